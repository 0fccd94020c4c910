//! Tests callers' mistakes, and texts that are made to do harm.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use llama_sieve::errors::{LLAMA_SIEVE_ERROR_INVALID as INVALID, LLAMA_SIEVE_ERROR_NULL as NULL};
use llama_sieve::ffi::grammar as sieve;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::samplers::llama_sieve_init_greedy;
use llama_sieve::ffi::trie::{llama_sieve_cache_stats, llama_sieve_init_trie_strings};
use vendor_llama_cpp::TestVocabulary;
use vendor_llama_cpp::test_vocabulary::Kind;

use crate::pair::{self, Pair, Vocabulary};
use crate::random::folder;
use crate::support::{Array, HostSampler, Rng};
use crate::walk::array;

fn made(vocabulary: &Vocabulary, text: &str) -> Option<HostSampler> {
    let smpl = pair::ours(text.as_bytes(), "root", vocabulary);
    (!smpl.is_null()).then(|| HostSampler::new(smpl))
}

fn said() -> String {
    llama_sieve::last_error::get()
}

fn stats() -> llama_sieve_cache_stats {
    let mut stats = MaybeUninit::uninit();
    // SAFETY: written before it is read.
    unsafe {
        sieve::llama_sieve_grammar_cache_stats(stats.as_mut_ptr());
        stats.assume_init()
    }
}

pub fn wrong_arguments(vocabulary: &Vocabulary) {
    let (text, root) = (c"root ::= \"a\"", c"root");
    let make = |vocab, text: Option<&CStr>, root: Option<&CStr>| {
        let (text, root) = (
            text.map_or(null(), CStr::as_ptr),
            root.map_or(null(), CStr::as_ptr),
        );
        // SAFETY: NULL or a valid argument.
        unsafe { sieve::llama_sieve_init_grammar(vocab, text, root) }
    };
    assert!(make(null(), Some(text), Some(root)).is_null());
    assert!(said().contains("vocabulary is NULL"), "{}", said());
    let vocab = vocabulary.as_ours();
    assert!(make(vocab, Some(text), None).is_null());
    assert!(said().contains("root rule is NULL"), "{}", said());
    assert!(make(vocab, Some(text), Some(c"other")).is_null());
    assert!(said().contains("no rule 'other'"), "{}", said());
    // Without a grammar the sampler does nothing.
    for (vocab, text) in [(vocab, None), (vocab, Some(c"")), (null(), None)] {
        let smpl = HostSampler::new(make(vocab, text, None));
        let input = Array::of_logits([1.0, 2.0]);
        let mut array = input.clone();
        smpl.apply(&mut array);
        smpl.accept(1);
        smpl.reset();
        assert_eq!(array.data, input.data);
        assert_eq!((pair::error(&smpl), pair::is_complete(&smpl)), (0, false));
    }
    // Queries to NULL, and to a sampler of another kind.
    let other = HostSampler::new(llama_sieve_init_greedy());
    for smpl in [null(), other.as_ptr().cast()] {
        // SAFETY: NULL or a live sampler.
        unsafe {
            assert_eq!(sieve::llama_sieve_grammar_mask(smpl, null_mut(), 0), 0);
            assert!(!sieve::llama_sieve_grammar_is_complete(smpl));
            let null = smpl.is_null();
            let code = if null { NULL } else { INVALID };
            assert_eq!(sieve::llama_sieve_grammar_error(smpl), code);
        }
    }
    // SAFETY: NULL is allowed.
    unsafe {
        sieve::llama_sieve_grammar_cache_stats(null_mut());
        sieve::llama_sieve_vocab_forget(null());
    }
}

pub fn messages_name_the_place(vocabulary: &Vocabulary) {
    for (text, place) in [
        (
            "root ::= \"a\"\nnext ::= (\"b\" \"c\"\n",
            "line 3, column 1: expected ')'",
        ),
        ("root ::= \"é\" ]", "line 1, column 14: expected an element"),
        ("root ::= \"a\\q\"", "line 1, column 12: unknown escape"),
        (
            "root ::= [a",
            "line 1, column 10: this character class does not end",
        ),
        (
            "root ::= \"a\" b",
            "line 1, column 14: rule 'b' is not defined",
        ),
        ("root = \"a\"", "line 1, column 6: expected '::='"),
        (
            "root ::= \"a\"{1000001}",
            "line 1, column 14: more than 1000000 repetitions",
        ),
        (
            "root ::= root \"a\"",
            "line 1, column 1: rule 'root' may begin with itself",
        ),
        ("root ::= <[1>", "line 1, column 13: expected ']'"),
        ("# nothing\n", "there is no rule"),
    ] {
        assert!(made(vocabulary, text).is_none(), "{text}");
        assert!(said().contains(place), "{text}: {}", said());
    }
}

pub fn hostile_texts_end(vocabulary: &Vocabulary) {
    let n = 100_000;
    let nested = format!("root ::= {}\"a\"{}", "(".repeat(n), ")".repeat(n));
    let deep = made(vocabulary, &nested).expect("a grammar like others");
    assert!(!pair::mask(&deep, vocabulary.n_tokens).is_empty());
    assert!(made(vocabulary, &format!("root ::= {}", "(".repeat(n))).is_none());
    // Left recursion after something that is empty through another rule, with and without growing
    // stacks.
    for text in [
        "root ::= a root \"z\" | \"x\"\na ::= b\nb ::= \"\" | \"y\"\n",
        "root ::= a root\na ::= b\nb ::= \"\"\n",
    ] {
        assert!(made(vocabulary, text).is_none(), "{text}");
        assert!(!said().is_empty());
    }
    // Each rule begins with two others, so that the built-in's check visits exponentially many
    // paths.
    let chain: String = (0..60)
        .map(|i| format!("r{i} ::= r{n} | r{n}\n", n = i + 1))
        .collect();
    assert!(made(vocabulary, &format!("root ::= r0\n{chain}r60 ::= \"c\"\n")).is_some());
    let circle = format!("{chain}r60 ::= \"c\"\nroot ::= root\n");
    assert!(made(vocabulary, &circle).is_none());
    assert!(said().contains("may begin with itself"), "{}", said());
    // A long text, and a short text that expands to a lot.
    let long = format!("root ::= \"{}\"", "ab".repeat(500_000));
    assert!(made(vocabulary, &long).is_some());
    let much = format!("root ::= \"{}\"{{2000}}", "a".repeat(10_000));
    assert!(made(vocabulary, &much).is_some());
    let much = format!("root ::= \"{}\"", "a".repeat(5_000_000));
    assert!(made(vocabulary, &much).is_none());
    assert!(said().contains("elements"), "{}", said());
    // Exponentially many stacks.
    let ambiguous = "root ::= ((((\"a\"* \"a\"?)* | \"a\"+)* \"a\"*)* \"b\"?)*";
    let ambiguous = made(vocabulary, ambiguous).expect("a grammar like others");
    let a = vocabulary
        .pieces
        .iter()
        .position(|piece| piece == b"a")
        .expect("it has one");
    for _ in 0..200 {
        assert!(pair::mask(&ambiguous, vocabulary.n_tokens).contains(&(a as i32)));
        ambiguous.accept(a as i32);
    }
    assert_eq!(pair::error(&ambiguous), 0);
    // Brackets that are never closed, so that the stack is as deep as the text is long.
    let open = made(vocabulary, "root ::= \"a\" root \"b\" | \"\"").expect("a grammar like others");
    let text = HostSampler::new(open.clone().into_raw());
    for _ in 0..20_000 {
        text.accept(a as i32);
    }
    assert_eq!(pair::error(&text), 0);
}

pub fn a_second_request_starts_warm(vocabulary: &Vocabulary) {
    let text = "root ::= \"a\" [b-z]* \"warm\"";
    let before = stats();
    let first = made(vocabulary, text).expect("a grammar");
    let second = made(vocabulary, text).expect("a grammar");
    let after = stats();
    assert!(after.misses > before.misses && after.hits > before.hits);
    assert!(after.entries > 0 && after.bytes > 0);
    drop(first);
    // SAFETY: a live vocabulary, which is not accessed.
    unsafe { sieve::llama_sieve_vocab_forget(vocabulary.as_ours()) };
    assert!(!pair::mask(&second, vocabulary.n_tokens).is_empty());
    let misses = stats().misses;
    made(vocabulary, text).expect("a grammar");
    assert!(stats().misses > misses);
}

/// Checks vocabularies without texts. The host aborts if it is asked for a text of such a model.
pub fn tokens_without_texts() {
    let path = folder().join(format!("grammar-{}-no-texts.gguf", std::process::id()));
    let model = TestVocabulary::load_without_texts(100, &path);
    std::fs::remove_file(&path).expect("it was written");
    let model = model.expect("a vocabulary");
    let vocab = model.vocab().cast();
    let is_refused = |smpl: *const llama_sampler| {
        smpl.is_null() && said().contains("the model's tokens have no texts")
    };
    let (text, root) = (c"root ::= \"a\"".as_ptr(), c"root".as_ptr());
    // SAFETY: a live vocabulary and C strings.
    let smpl = unsafe { sieve::llama_sieve_init_grammar(vocab, text, root) };
    assert!(is_refused(smpl), "{}", said());
    let words = [c"a".as_ptr()];
    // SAFETY: as above.
    let smpl = unsafe { llama_sieve_init_trie_strings(vocab, words.as_ptr(), 1, 1) };
    assert!(is_refused(smpl), "{}", said());
}

/// Checks thousands of alternatives that begin with as many different characters, like word lists
/// in Chinese.
pub fn alternatives_with_many_beginnings() {
    let character = |i: u32| char::from_u32(0x4E00 + i).expect("a character");
    let word = |i: u32| format!("{}{}", character(i), character(i / 2));
    let mut tokens = vec![(b"</s>".to_vec(), Kind::Control)];
    for i in 0..8000 {
        for text in [character(i).to_string(), word(i)] {
            tokens.push((text.into_bytes(), Kind::Normal));
        }
    }
    let path = folder().join(format!("grammar-{}-many.gguf", std::process::id()));
    let model = TestVocabulary { tokens, eos: 0 }.load(&path);
    std::fs::remove_file(&path).expect("it was written");
    let vocabulary = Vocabulary::new(model.expect("a vocabulary"));
    let words: Vec<String> = (0..8000).map(|i| format!("\"{}\"", word(i))).collect();
    let words = words.join(" | ");
    // The alternatives alone, and together with classes of many characters.
    for text in [
        format!("root ::= {words}"),
        format!("root ::= [a-z]? ({words} | [^\\u4e00-\\u9fff] | [\\u5000-\\u5010]+)"),
    ] {
        let pair = Pair {
            ours: HostSampler::new(pair::ours(text.as_bytes(), "root", &vocabulary)),
            theirs: HostSampler::new(pair::theirs(text.as_bytes(), "root", &vocabulary)),
        };
        let mut rng = Rng(1);
        for token in [0x201 * 2 + 1, 0x100 * 2 + 1] {
            let all = array(0..vocabulary.n_tokens as i32, &mut rng);
            pair.apply(&all).expect("the same is left");
            assert_eq!(pair::error(&pair.ours), 0);
            assert_eq!(pair.accept(token), Ok(true));
        }
    }
}
