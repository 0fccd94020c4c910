//! Grammars beside llama.cpp's own: the whole array, the mask, the constructor, and a token while a
//! lazy grammar waits for one of 139 tools. Checks that both sides leave the same candidates.
//!
//! On the vocabulary of the GGUF file that LLAMA_SIEVE_BENCH_VOCABULARY names, or else on 128,256
//! texts that are made: bytes, and syllables, words and numbers as tokenizers have them.

use std::collections::HashSet;
use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};

use llama_sieve::ffi::grammar as sieve;
use llama_sieve::ffi::lazy_grammar::llama_sieve_init_grammar_lazy_patterns;
use vendor_llama_cpp::test_vocabulary::Kind;
use vendor_llama_cpp::{Model, TestVocabulary, sys};

use crate::Options;
use crate::measure::{floor, median, thread_time};
use crate::report::Measurement;
use crate::support::arrays::{Rng, peaked};
use crate::support::{Array, HostSampler};

const N_VOCAB: usize = 128_256;
const STEPS: usize = 12;
const ROUNDS: usize = 9;

const JSON: &str = r#"root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;
const DATES: &str = r#"root ::= (date "\n")+
date ::= [0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ([0-2] [0-9] | "3" [01])
"#;
const PROGRAM: &str = r#"root ::= (statement "\n")+
statement ::= ident " = " expr ";" | "return " expr ";" | "if (" expr ") { " statement " }"
expr ::= term (" " [-+*/<] " " term)*
term ::= ident | [0-9]+ | "(" expr ")" | ident "(" expr ")"
ident ::= [a-z] [a-z0-9_]*
"#;

/// Both sides of a text.
struct Pair {
    ours: HostSampler,
    theirs: HostSampler,
}

fn ours(model: &Model, text: &str) -> HostSampler {
    let text = CString::new(text).expect("no NUL");
    let vocab = model.vocab().cast();
    // SAFETY: the vocabulary lives, both texts are C strings.
    HostSampler::new(unsafe {
        sieve::llama_sieve_init_grammar(vocab, text.as_ptr(), c"root".as_ptr())
    })
}

fn theirs(model: &Model, text: &str) -> HostSampler {
    let text = CString::new(text).expect("no NUL");
    // SAFETY: the vocabulary lives, both texts are C strings.
    HostSampler::new(unsafe {
        sys::llama_sampler_init_grammar(model.vocab(), text.as_ptr(), c"root".as_ptr())
    })
}

/// Nanoseconds of `body`, and what it gives.
fn timed<T>(body: impl FnOnce() -> T) -> (f64, T) {
    let start = thread_time();
    let made = std::hint::black_box(body());
    ((thread_time() - start) * 1e3, made)
}

fn vocabulary() -> Model {
    if let Ok(path) = std::env::var("LLAMA_SIEVE_BENCH_VOCABULARY") {
        return Model::load_vocabulary(path).expect("LLAMA_SIEVE_BENCH_VOCABULARY is a vocabulary");
    }
    let mut tokens = vec![(b"</s>".to_vec(), Kind::Control)];
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    for byte in 1..=u8::MAX {
        seen.insert(vec![byte]);
        tokens.push((vec![byte], Kind::Normal));
    }
    let mut rng = Rng(7);
    while tokens.len() < N_VOCAB {
        let text = text(&mut rng);
        if seen.insert(text.clone()) {
            tokens.push((text, Kind::Normal));
        }
    }
    let vocabulary = TestVocabulary { tokens, eos: 0 };
    let path = std::env::temp_dir().join(format!("llama-sieve-bench-{}.gguf", std::process::id()));
    let model = vocabulary.load(&path).expect("the vocabulary loads");
    std::fs::remove_file(&path).expect("it was written");
    model
}

fn text(rng: &mut Rng) -> Vec<u8> {
    const PARTS: [&str; 24] = [
        "er", "in", "th", "an", "on", "re", "st", "al", "ing", "tion", "com", "pro", "un", "ly",
        "ment", "con", "able", "é", "ß", "日", "本", "の", "и", "о",
    ];
    const SIGNS: [&str; 16] = [
        "\": ", "\", \"", "(", ");", " = ", "{\n", "}\n", "--", "==", "/", "\t", "  ", ".", ",",
        "_", "<",
    ];
    let mut text = String::new();
    if rng.chance(0.45) {
        text.push(' ');
    }
    match rng.below(10) {
        0 => text += &rng.below(1000).to_string(),
        1 => {
            for _ in 0..1 + rng.below(3) {
                text += rng.pick(&SIGNS);
            }
        }
        _ => {
            for _ in 0..1 + rng.below(4) {
                match rng.chance(0.5) {
                    true => text += rng.pick(&PARTS),
                    false => text.push(char::from(b'a' + rng.below(26) as u8)),
                }
            }
        }
    }
    text.into_bytes()
}

/// Measures every row.
pub fn run(options: &Options, done: &mut dyn FnMut(Measurement)) {
    let mut row = |name: &str, n: usize, ours: f64, theirs: Option<f64>, floor: Option<f64>| {
        if options.wants(name) {
            done(Measurement {
                part: "grammar".into(),
                name: name.into(),
                n,
                shape: String::new(),
                ours_ns: ours,
                theirs_ns: theirs,
                floor_ns: floor,
            });
        }
    };
    let model = vocabulary();
    let n = model.n_vocab();
    let input = peaked(n, &mut Rng(71));
    let floor = floor(&input) * 1e3;
    let (tree, first) = timed(|| ours(&model, "root ::= \"first\""));
    drop(first);
    row("grammar, the vocabulary's tree, once", n, tree, None, None);
    let names: Vec<String> = (0..200)
        .map(|i| format!("\"name{} {i}\"", i * 7 % 200))
        .collect();
    let choice = format!("root ::= {}", names.join(" | "));
    for (name, text) in [
        ("JSON", JSON),
        ("dates", DATES),
        ("program", PROGRAM),
        ("200 names", &choice),
    ] {
        let [mask, apply, builtin] = walk(&model, text, &input);
        let (full, alone) = (
            format!("grammar {name}, apply"),
            format!("grammar {name}, a new mask"),
        );
        row(&full, n, apply, Some(builtin), Some(floor));
        row(&alone, n, mask, None, None);
        let [fresh, known, builtin] = constructors(&model, text);
        row(
            &format!("grammar {name}, init, fresh"),
            0,
            fresh,
            Some(builtin),
            None,
        );
        row(
            &format!("grammar {name}, init, known"),
            0,
            known,
            Some(builtin),
            None,
        );
    }
    for (length, both) in [(300, true), (300, false), (10_000, false)] {
        let [ours, theirs] = waiting(&model, length, both);
        let how = if both { "in turn" } else { "alone" };
        let name = format!("grammar, accept behind {length} tokens, 139 triggers, {how}");
        row(&name, 0, ours, both.then_some(theirs), None);
    }
}

/// Medians along a walk: a mask that is not known yet, our apply with it, the built-in's.
fn walk(model: &Model, text: &str, input: &Array) -> [f64; 3] {
    let pair = Pair {
        ours: ours(model, text),
        theirs: theirs(model, text),
    };
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let mut rng = Rng(5);
    for _ in 0..STEPS {
        let smpl = pair.ours.as_ptr().cast();
        // SAFETY: the sampler lives, and nothing is written.
        let (mask, _) = timed(|| unsafe { sieve::llama_sieve_grammar_mask(smpl, null_mut(), 0) });
        let (mut a, mut b) = (input.clone(), input.clone());
        let (apply, ()) = timed(|| pair.ours.apply(&mut a));
        let (builtin, ()) = timed(|| pair.theirs.apply(&mut b));
        assert_eq!(a, b, "the two sides differ");
        for (times, time) in times.iter_mut().zip([mask, apply, builtin]) {
            times.push(time);
        }
        let may_follow =
            |c: &&sys::llama_token_data| c.logit > f32::NEG_INFINITY && !model.is_eog(c.id);
        let allowed: Vec<i32> = a.data.iter().filter(may_follow).map(|c| c.id).collect();
        let Some(&token) = allowed.get(rng.below(allowed.len().max(1))) else {
            break;
        };
        pair.ours.accept(token);
        pair.theirs.accept(token);
    }
    times.map(median)
}

/// Medians: ours of a text that was never seen, ours of one that was, the built-in.
fn constructors(model: &Model, text: &str) -> [f64; 3] {
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        let unseen = format!("{text}\n# {round}\n");
        times[0].push(timed(|| ours(model, &unseen)).0);
        times[1].push(timed(|| ours(model, &unseen)).0);
        times[2].push(timed(|| theirs(model, &unseen)).0);
    }
    times.map(median)
}

/// Medians of one token behind so many in which no trigger stands.
fn waiting(model: &Model, length: usize, both: bool) -> [f64; 2] {
    let tools: Vec<CString> = (0..139)
        .map(|i| CString::new(format!("<function=tool_{i}>")).expect("no NUL"))
        .collect();
    let mut list: Vec<*const c_char> = tools.iter().map(|tool| tool.as_ptr()).collect();
    let (text, root) = (CString::new(JSON).expect("no NUL"), c"root");
    let (text, root, n) = (text.as_ptr(), root.as_ptr(), list.len());
    let (vocab, list) = (model.vocab(), list.as_mut_ptr());
    // SAFETY: the vocabulary lives, all texts are C strings.
    let (ours, theirs) = unsafe {
        let of_ours = vocab.cast();
        (
            llama_sieve_init_grammar_lazy_patterns(of_ours, text, root, list, n, null(), 0),
            sys::llama_sampler_init_grammar_lazy_patterns(vocab, text, root, list, n, null(), 0),
        )
    };
    let (ours, theirs) = (HostSampler::new(ours), HostSampler::new(theirs));
    let mut rng = Rng(3);
    let mut times = [Vec::new(), Vec::new()];
    for i in 0..length + 50 {
        let token = 1 + rng.below(model.n_vocab() - 1) as i32;
        let (a, ()) = timed(|| ours.accept(token));
        // The built-in searches the whole text each time: only as often as it is timed.
        let b = if both {
            timed(|| theirs.accept(token)).0
        } else {
            0.0
        };
        if i >= length {
            times[0].push(a);
            times[1].push(b);
        }
    }
    times.map(median)
}
