//! Grammars, their queries, and the data kept for their vocabularies.

use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

use llama_sieve::ffi::grammar::between::*;
use llama_sieve::ffi::grammar::lazy::*;
use llama_sieve::ffi::grammar::pattern::*;
use llama_sieve::ffi::grammar::schema::*;
use llama_sieve::ffi::grammar::tags::*;
use llama_sieve::ffi::grammar::*;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::host::vocabulary::llama_vocab;
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::trie::llama_sieve_cache_stats;
use vendor_llama_cpp::sys;

use crate::World;
use crate::answers::assert_reason;
use crate::calls::{Call, Lazy, Text};
use crate::support::family::vocabulary;

const TEXTS: [&CStr; 6] = [
    c"root ::= [a-z ]+ | \"the LORD\" list\nlist ::= (\" \" [A-Z]*){0,3} other\nother ::= \".\"?",
    c"root ::= .*",
    c"",
    c"root ::= list | root \"a\"\nlist ::= \"x\" | list \"y\"\nother ::= \"\"",
    c"root ::= other\nlist ::= \" and\"+\nother ::= !<[7]>* list",
    c"root ::= none",
];
const ROOTS: [&CStr; 4] = [c"root", c"list", c"other", c""];
/// Triggers of lazy grammars, used as words and as patterns.
const TRIGGERS: [&CStr; 6] = [
    c"LORD",
    c"^.*the$",
    c"",
    c"[\\s\\S]*?(a+)[\\s\\S]*",
    c"(a|",
    c"\xFF",
];

const SCHEMAS: [&CStr; 4] = [
    c"{}",
    c"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"maxProperties\":2}",
    c"{\"items\":{\"pattern\":\"^a|b$\",\"maxLength\":9},\"not\":{\"type\":\"null\"}}",
    c"{\"oneOf\":[{\"multipleOf\":3,\"minimum\":-9},{\"enum\":[1,\"the\"]}]}",
];

const TAGS: [&CStr; 3] = [
    c"{\"tags\": [{\"begin\": \"<\", \"regex\": \"[a-z ]+\", \"end\": \">\"}], \"once\": true}",
    c"{\"tags\": [{\"begin\": {\"token\": 7}, \"grammar\": \"root ::= [a-z]\"}]}",
    c"{\"tags\": [{\"begin\": \"the\", \"regex\": \" L\"}], \"required\": true}",
];

impl Text {
    /// Returns the text, cut short, since a long one would only be slower.
    fn get(&self, good: &[&CStr]) -> Option<CString> {
        match self {
            Text::Null => None,
            Text::Good(which) => Some(good[usize::from(*which) % good.len()].to_owned()),
            Text::Bytes(bytes) => {
                let bytes = bytes.iter().copied().filter(|&byte| byte != 0);
                let bytes: Vec<u8> = bytes.take(60).collect();
                Some(CString::new(bytes).expect("without NUL"))
            }
        }
    }
}

/// Calls a constructor of grammars. Returns NULL if it rejects the grammar.
///
/// # Safety
/// `vocab` is NULL or a vocabulary.
pub(crate) unsafe fn grammar(
    vocab: *const llama_vocab,
    text: &Text,
    root: &Text,
    lazy: Option<&Lazy>,
) -> *mut llama_sampler {
    let (text, root) = (text.get(&TEXTS), root.get(&ROOTS));
    let text = text.as_ref().map_or(null(), |text| text.as_ptr());
    let root = root.as_ref().map_or(null(), |root| root.as_ptr());
    let Some(lazy) = lazy else {
        // SAFETY: NULL or C strings, and the caller guarantees the vocabulary.
        return unsafe { llama_sieve_init_grammar(vocab, text, root) };
    };
    if let Some(tokens) = lazy.tokens.as_ref().filter(|tokens| tokens.len() > 1) {
        // Uses the same texts as patterns, values and tags.
        let flags = tokens.len() as u32 - 2;
        let values = [text, root];
        // SAFETY: as above.
        return unsafe {
            match lazy.first % 3 {
                0 => llama_sieve_init_regex(vocab, text, flags),
                1 => llama_sieve_init_choice(vocab, values.as_ptr(), tokens.len() % 3),
                _ if lazy.words => {
                    llama_sieve_init_tags(vocab, TAGS[tokens.len() % TAGS.len()].as_ptr(), 0)
                }
                _ => llama_sieve_init_tags(vocab, text, flags),
            }
        };
    }
    // The pointer after the last trigger is NULL.
    let mut triggers: Vec<_> = TRIGGERS.iter().map(|trigger| trigger.as_ptr()).collect();
    triggers.push(null());
    let some = &mut triggers[usize::from(lazy.first) % TRIGGERS.len()..];
    let (list, n) = match lazy.n {
        Some(n) => (some.as_mut_ptr(), usize::from(n) % (some.len() + 1)),
        None => (null_mut(), usize::from(lazy.first % 2)),
    };
    let tokens = lazy.tokens.as_ref();
    let tokens = tokens.map(|tokens| tokens.iter().map(|token| token.0).collect::<Vec<i32>>());
    let (first, n_tokens) = match &tokens {
        Some(tokens) => (tokens.as_ptr(), tokens.len()),
        None => (null(), usize::from(lazy.first % 3)),
    };
    // SAFETY: as above; the lists are NULL or have as many elements as the call expects.
    unsafe {
        if lazy.words {
            llama_sieve_init_grammar_lazy(vocab, text, root, list, n, first, n_tokens)
        } else {
            llama_sieve_init_grammar_lazy_patterns(vocab, text, root, list, n, first, n_tokens)
        }
    }
}

/// Calls the constructor for a JSON Schema. Returns NULL if it rejects the schema.
///
/// # Safety
/// `vocab` is NULL or a vocabulary.
pub(crate) unsafe fn schema(
    vocab: *const llama_vocab,
    text: &Text,
    flags: u32,
) -> *mut llama_sampler {
    let text = text.get(&SCHEMAS);
    let text = text.as_ref().map_or(null(), |text| text.as_ptr());
    // SAFETY: NULL or a C string, room of the length that is given, and the caller guarantees the
    // vocabulary.
    unsafe {
        let n = llama_sieve_json_schema_to_gbnf(text, flags, null_mut(), 0);
        let mut gbnf = vec![1_u8; n];
        assert_eq!(
            llama_sieve_json_schema_to_gbnf(text, flags, gbnf.as_mut_ptr().cast(), n),
            n
        );
        assert_eq!(gbnf.iter().position(|&byte| byte == 0), n.checked_sub(1));
        llama_sieve_init_json_schema(vocab, text, flags)
    }
}

impl World {
    /// Makes a call about grammars. Ignores any other call.
    ///
    /// # Safety
    /// All objects must be alive.
    pub(crate) unsafe fn call_grammar(&mut self, call: &Call) {
        // SAFETY: NULL or live; a vocabulary to be forgotten is not followed.
        unsafe {
            match call {
                Call::AskGrammar { which, n_words } => {
                    let smpl = self.smp(*which);
                    match self.is_grammar(smpl) {
                        true => ask(smpl, (*n_words).into()),
                        false => ask_another(smpl, (*n_words).into()),
                    }
                }
                Call::GrammarStats { null: true } => {
                    llama_sieve_grammar_cache_stats(null_mut());
                    assert_reason();
                }
                Call::GrammarStats { null: false } => {
                    let mut stats = std::mem::zeroed::<llama_sieve_cache_stats>();
                    llama_sieve_grammar_cache_stats(&mut stats);
                    assert!(stats.entries <= 256 && stats.misses >= stats.evictions);
                    assert!(stats.bytes <= LLAMA_SIEVE_GRAMMAR_CACHE_BYTES as u64);
                }
                Call::VocabForget(which) => llama_sieve_vocab_forget(match which % 3 {
                    0 => null(),
                    1 => vocabulary().cast(),
                    _ => std::ptr::without_provenance(0x40),
                }),
                _ => {}
            }
        }
    }
}

/// Calls every query of a grammar, and checks that the results agree with each other.
///
/// # Safety
/// `smpl` is a live grammar.
unsafe fn ask(smpl: *const llama_sampler, n_words: usize) {
    const KNOWN: [i32; 4] = [
        LLAMA_SIEVE_OK,
        LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN,
        LLAMA_SIEVE_ERROR_GRAMMAR_END,
        LLAMA_SIEVE_ERROR_GRAMMAR_LIMIT,
    ];
    let mut bits = vec![u32::MAX; n_words];
    // SAFETY: it lives, and there is room.
    unsafe {
        let n_tokens = sys::llama_vocab_n_tokens(vocabulary()) as usize;
        let allowed = llama_sieve_grammar_mask(smpl, bits.as_mut_ptr(), n_words);
        let counted: usize = bits.iter().map(|word| word.count_ones() as usize).sum();
        assert!(counted <= allowed && allowed <= n_tokens);
        assert!(counted == allowed || n_words * 32 < n_tokens);
        assert_eq!(llama_sieve_grammar_mask(smpl, null_mut(), 0), allowed);
        let error = llama_sieve_grammar_error(smpl);
        assert!(KNOWN.contains(&error), "{error}");
        assert!(error == LLAMA_SIEVE_OK || !llama_sieve_grammar_is_complete(smpl));
        let mut bytes = vec![0xAA_u8; n_words];
        let n_forced = llama_sieve_grammar_forced(smpl, bytes.as_mut_ptr().cast(), n_words);
        assert!(bytes.iter().skip(n_forced).all(|&byte| byte == 0xAA));
        assert!(n_forced == 0 || !llama_sieve_grammar_is_complete(smpl));
        // A draft of the first tokens. Its first token is accepted only if the mask allows it. Not
        // every allowed one is accepted: it may trigger a lazy grammar that then rejects it.
        let draft: Vec<i32> = (0..8).collect();
        let n_accepted = llama_sieve_grammar_accepts(smpl, draft.as_ptr(), draft.len());
        assert!(n_accepted <= draft.len());
        assert!(n_accepted == 0 || bits.first().is_none_or(|word| word & 1 == 1));
        assert_eq!(llama_sieve_grammar_mask(smpl, null_mut(), 0), allowed);
        assert_eq!(
            llama_sieve_grammar_rollback(smpl.cast_mut(), 0),
            LLAMA_SIEVE_OK
        );
        if n_words % 4 == 1 {
            let n_back = n_words % 9;
            let code = llama_sieve_grammar_rollback(smpl.cast_mut(), n_back);
            assert!(
                [LLAMA_SIEVE_OK, LLAMA_SIEVE_ERROR_SIZE].contains(&code),
                "{code}"
            );
        }
    }
}

/// Checks that queries of NULL and of other samplers have documented results.
///
/// # Safety
/// `smpl` is NULL or a live sampler that is no grammar.
unsafe fn ask_another(smpl: *const llama_sampler, n_words: usize) {
    let mut bits = vec![0; n_words];
    // SAFETY: as the caller says, and there is room.
    unsafe {
        assert_eq!(
            llama_sieve_grammar_mask(smpl, bits.as_mut_ptr(), n_words),
            0
        );
        assert_reason();
        assert!(!llama_sieve_grammar_is_complete(smpl));
        assert_reason();
        assert_eq!(llama_sieve_grammar_forced(smpl, null_mut(), 0), 0);
        assert_reason();
        assert_eq!(llama_sieve_grammar_accepts(smpl, null(), 0), 0);
        assert_reason();
        assert!(llama_sieve_grammar_rollback(smpl.cast_mut(), 1) < 0);
        assert_reason();
        let error = llama_sieve_grammar_error(smpl);
        assert!([LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_INVALID].contains(&error));
        assert_reason();
    }
}
