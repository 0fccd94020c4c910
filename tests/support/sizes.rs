//! Calls functions with absurd numbers of elements, which must be refused by name, with nothing
//! written.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use llama_sieve::TokenData;
use llama_sieve::ffi::chain::*;
use llama_sieve::ffi::given::*;
use llama_sieve::ffi::grammar::between::*;
use llama_sieve::ffi::grammar::lazy::*;
use llama_sieve::ffi::grammar::pattern::*;
use llama_sieve::ffi::grammar::*;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::metrics::*;
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::sieve::*;
use llama_sieve::ffi::trie::handles::*;
use llama_sieve::ffi::trie::*;
use llama_sieve::last_error;
use vendor_llama_cpp::sys;

use super::family::vocabulary;

/// The name of a number, its limit, and a function that passes the number and returns true if it
/// was refused.
pub type Case = (&'static str, usize, unsafe fn(&mut Subjects, usize) -> bool);

/// The objects that the functions are called on.
pub struct Subjects {
    smpl: *mut llama_sampler,
    sieve: *mut Handle,
    /// The output of every function that writes. It must stay unchanged.
    out: [u32; 12],
}

const TEXT: *const std::ffi::c_char = c"root ::= [a-z]+".as_ptr();
const ROOT: *const std::ffi::c_char = c"root".as_ptr();
const WORDS: usize = LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_STATES;
const TOKENS: usize = LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_TOKENS;

/// Returns parameters with a bias array whose length is given as `n`.
fn biased(n: usize) -> llama_sieve_params {
    llama_sieve_params {
        bias: [0u64].as_ptr().cast(),
        n_bias: n,
        ..llama_sieve_default_params()
    }
}

impl Subjects {
    fn out<T>(&mut self) -> *mut T {
        self.out.as_mut_ptr().cast()
    }
}

/// The cases. A function may check first that the sampler or sieve is not NULL and of the right
/// kind, or the number.
#[expect(
    clippy::undocumented_unsafe_blocks,
    reason = "of all: samplers and sieves are NULL or live, and no function follows the number"
)]
pub const CASES: [Case; 30] = [
    ("n_breakers", LLAMA_SIEVE_DRY_MAX_BREAKERS, |_, n| unsafe {
        let mut texts = [c"\n".as_ptr()];
        let vocab = vocabulary().cast();
        llama_sieve_init_dry(vocab, 1.0, 1.75, 2, 64, texts.as_mut_ptr(), n).is_null()
    }),
    ("n_breakers", LLAMA_SIEVE_DRY_MAX_BREAKERS, |_, n| unsafe {
        let mut texts = [c"\n".as_ptr()];
        llama_sieve_init_dry(null(), 1.0, 1.75, 2, 64, texts.as_mut_ptr(), n).is_null()
    }),
    ("n_breakers", LLAMA_SIEVE_DRY_MAX_BREAKERS, |on, n| unsafe {
        let mut texts = [c"\n".as_ptr()];
        let vocab = vocabulary().cast();
        llama_sieve_set_dry_breakers(on.sieve, vocab, texts.as_mut_ptr(), n) < 0
    }),
    (
        "n_words",
        LLAMA_SIEVE_GRAMMAR_MAX_MASK_WORDS,
        |on, n| unsafe { llama_sieve_grammar_mask(on.smpl, on.out(), n) == 0 },
    ),
    ("n", LLAMA_SIEVE_MAX_ELEMENTS, |on, n| unsafe {
        llama_sieve_grammar_accepts(on.smpl, [1].as_ptr(), n) == 0
    }),
    ("cap", LLAMA_SIEVE_MAX_ELEMENTS, |on, n| unsafe {
        llama_sieve_grammar_forced(on.smpl, on.out(), n) == 0
    }),
    ("n", LLAMA_SIEVE_CHOICE_MAX_VALUES, |_, n| unsafe {
        let values = [c"a".as_ptr()];
        llama_sieve_init_choice(vocabulary().cast(), values.as_ptr(), n).is_null()
    }),
    ("num_trigger_words", WORDS, |_, n| unsafe {
        let mut texts = [c"a".as_ptr()];
        let (vocab, texts) = (vocabulary().cast(), texts.as_mut_ptr());
        llama_sieve_init_grammar_lazy(vocab, TEXT, ROOT, texts, n, null(), 0).is_null()
    }),
    ("num_trigger_patterns", WORDS, |_, n| unsafe {
        let mut texts = [c"a".as_ptr()];
        let (vocab, texts) = (vocabulary().cast(), texts.as_mut_ptr());
        llama_sieve_init_grammar_lazy_patterns(vocab, TEXT, ROOT, texts, n, null(), 0).is_null()
    }),
    ("num_trigger_tokens", TOKENS, |_, n| unsafe {
        let (vocab, tokens) = (vocabulary().cast(), [1].as_ptr());
        let none = null_mut();
        llama_sieve_init_grammar_lazy_patterns(vocab, TEXT, ROOT, none, 0, tokens, n).is_null()
    }),
    ("num_trigger_tokens", TOKENS, |_, n| unsafe {
        let (vocab, tokens) = (vocabulary().cast(), [1].as_ptr());
        llama_sieve_init_grammar_lazy(vocab, TEXT, ROOT, null_mut(), 0, tokens, n).is_null()
    }),
    ("len", LLAMA_SIEVE_TRIE_MAX_PAYLOAD, |on, n| unsafe {
        llama_sieve_trie_set(on.smpl, c"{}".as_ptr(), n, 1) < 0
    }),
    ("len", LLAMA_SIEVE_TRIE_MAX_PAYLOAD, |_, n| unsafe {
        let handle = std::ptr::without_provenance_mut::<c_void>(7);
        let slot = llama_sieve_init_trie_slot(null());
        assert_eq!(
            eliza_inference_bind_token_trie(handle, slot),
            LLAMA_SIEVE_OK
        );
        eliza_inference_set_token_trie(handle, c"{}".as_ptr(), n, 1);
        let text = last_error::get();
        sys::llama_sampler_free(slot.cast());
        text.contains("LLAMA_SIEVE_TRIE_MAX_PAYLOAD")
    }),
    ("n", LLAMA_SIEVE_TRIE_MAX_STRINGS, |_, n| unsafe {
        let strings = [c"a".as_ptr()];
        llama_sieve_init_trie_strings(vocabulary().cast(), strings.as_ptr(), n, 1).is_null()
    }),
    ("cap", LLAMA_SIEVE_MAX_ELEMENTS, |on, n| unsafe {
        llama_sieve_trie_forced(on.smpl, on.out(), n) == 0
    }),
    ("cap", LLAMA_SIEVE_MAX_ELEMENTS, |on, n| unsafe {
        llama_sieve_trie_allowed(on.smpl, on.out(), n) == 0
    }),
    ("n", LLAMA_SIEVE_MAX_BATCH, |on, n| unsafe {
        let (chains, logits) = ([on.smpl], [[0.0f32].as_ptr()]);
        let out = on.out();
        llama_sieve_chain_sample_batch(chains.as_ptr(), logits.as_ptr(), 1, n, out, 1) < 0
    }),
    ("cap", LLAMA_SIEVE_MAX_ELEMENTS, |on, n| unsafe {
        llama_sieve_chain_candidates(on.smpl, on.out(), n) < 0
    }),
    ("n", LLAMA_SIEVE_MAX_BATCH, |on, n| unsafe {
        let (sieves, logits) = ([on.sieve], [[0.0f32].as_ptr()]);
        let out = on.out();
        llama_sieve_sample_batch(sieves.as_ptr(), logits.as_ptr(), 1, n, out, 1) < 0
    }),
    ("cap", LLAMA_SIEVE_MAX_ELEMENTS, |on, n| unsafe {
        llama_sieve_candidates(on.sieve, on.out(), n) < 0
    }),
    ("cap", LLAMA_SIEVE_MAX_ELEMENTS, |on, n| unsafe {
        llama_sieve_history_unique(on.sieve, on.out(), n) == 0
    }),
    ("cap", LLAMA_SIEVE_MAX_ELEMENTS, |on, n| unsafe {
        llama_sieve_get_stages(on.sieve, on.out(), n) < 0
    }),
    ("n_bias", LLAMA_SIEVE_MAX_ELEMENTS, |_, n| unsafe {
        llama_sieve_new(&biased(n)).is_null()
    }),
    ("n_bias", LLAMA_SIEVE_MAX_ELEMENTS, |on, n| unsafe {
        llama_sieve_set_params(on.sieve, &biased(n)) < 0
    }),
    ("n_bias", LLAMA_SIEVE_MAX_ELEMENTS, |_, n| unsafe {
        llama_sieve_init_sampler(&biased(n)).is_null()
    }),
    ("size", LLAMA_SIEVE_STATE_MAX_BYTES, |on, n| unsafe {
        llama_sieve_state_save(on.sieve, on.out(), n) < 0
    }),
    ("size", LLAMA_SIEVE_STATE_MAX_BYTES, |on, n| unsafe {
        llama_sieve_state_load(on.sieve, on.out::<u8>(), n) < 0
    }),
    ("size", LLAMA_SIEVE_STATE_MAX_BYTES, |on, n| unsafe {
        llama_sieve_state_load_with(on.sieve, on.out::<u8>(), n, LLAMA_SIEVE_STATE_PARAMS) < 0
    }),
    ("n", LLAMA_SIEVE_MAX_ELEMENTS, |_, n| unsafe {
        llama_sieve_candidates_entropy([TokenData::default()].as_ptr(), n, 0).is_nan()
    }),
    ("n", LLAMA_SIEVE_MAX_ELEMENTS, |_, n| unsafe {
        llama_sieve_candidates_surprisal([TokenData::default()].as_ptr(), n, 0, 0).is_nan()
    }),
];

/// Calls one function with more elements than are possible; `number` chooses how many. Returns
/// false if the function refused the sampler or sieve first.
///
/// # Safety
/// `smpl` and `sieve` are NULL or alive.
pub unsafe fn absurd(
    smpl: *mut llama_sampler,
    sieve: *mut Handle,
    which: usize,
    number: u64,
) -> bool {
    let (count, most, is_refused) = CASES[which % CASES.len()];
    // Any number above the limit.
    let n = most + 1 + number as usize % (usize::MAX - most);
    let mut subjects = Subjects {
        smpl,
        sieve,
        out: [0xA5A5_A5A5; 12],
    };
    // SAFETY: NULL or live; no function may follow the number.
    assert!(unsafe { is_refused(&mut subjects, n) }, "{count} {n}");
    assert_eq!(subjects.out, [0xA5A5_A5A5; 12]);
    let text = last_error::get();
    let is_named = text.contains(&format!("{count} is {n}; ")) && text.contains("at most (");
    // Some functions check the sampler or sieve first.
    let is_other = ["NULL", "no grammar", "no token trie", "out of use"];
    assert!(
        is_named || is_other.iter().any(|part| text.contains(part)),
        "{count} {n}: {text}"
    );
    is_named
}
