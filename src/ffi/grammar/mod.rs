//! Grammars for C: the constructor of a grammar sampler, and the functions for one.
//!
//! - [`between`]: queries and rollback between tokens;
//! - [`lazy`]: the constructors of grammars that wait for a trigger;
//! - [`pattern`]: the constructors of regular expressions and choices; [`schema`]: of JSON Schemas;
//!   [`tags`]: of tags in free text;
//! - `making`: the code that the constructors of grammars in GBNF share;
//! - [`hosted`]: grammars that transparently replace a host's own; `proof`: the comparison of the
//!   two.

pub mod between;
mod host_own;
pub mod hosted;
pub mod lazy;
pub(super) mod making;
pub mod pattern;
pub(super) mod proof;
pub mod schema;
pub mod tags;

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use crate::errors::{LLAMA_SIEVE_ERROR_INVALID, LLAMA_SIEVE_OK};
use crate::ffi::failure::{Failure, part, usable, value};
use crate::ffi::given::{Argument, argument};
use crate::ffi::grammar::hosted::{HOSTED, HostedGrammar};
use crate::ffi::grammar::making::{GRAMMAR, OWN, constructed};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::llama_vocab;
use crate::ffi::known_vocabularies::forget;
use crate::ffi::trie::llama_sieve_cache_stats;
use crate::grammar::sampler::Slot;
use crate::grammar::{Grammar, cache, limits};

/// The maximum number of bytes of a grammar's text.
pub const LLAMA_SIEVE_GRAMMAR_MAX_TEXT: usize = 8_388_608;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_TEXT == limits::MAX_TEXT);
/// The maximum number of elements of a grammar's rules. The content of a counted repetition counts
/// once.
pub const LLAMA_SIEVE_GRAMMAR_MAX_ELEMENTS: usize = 4_194_304;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_ELEMENTS == limits::MAX_ELEMENTS);
/// The maximum number of rules of a grammar, including those that are generated for groups and
/// repetitions.
pub const LLAMA_SIEVE_GRAMMAR_MAX_RULES: usize = 1_048_576;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_RULES == limits::MAX_RULES);
/// The maximum number of repetitions in one `{m,n}`. llama.cpp allows 2,000, and as many rules from
/// nested repetitions. A text that llama.cpp accepts has the same meaning in this library. A text
/// that llama.cpp refuses because of these limits may have numbers up to this one, whatever their
/// product.
pub const LLAMA_SIEVE_GRAMMAR_MAX_REPETITIONS: u64 = 1_000_000;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_REPETITIONS == limits::MAX_REPETITIONS);
/// The maximum number of stacks of rules that may be visited for one character.
pub const LLAMA_SIEVE_GRAMMAR_MAX_STACKS: usize = 262_144;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_STACKS == limits::MAX_STEP);
/// The maximum number of elements that all stacks of rules together may have below their tops,
/// shared ones counted once. A rule that continues after a reference adds one, so this bounds how
/// deep, or in how many ways, a text may nest.
pub const LLAMA_SIEVE_GRAMMAR_MAX_STACK: usize = 32_768;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_STACK == limits::MAX_STACK);
/// The maximum number of steps that a grammar may take for one token, one array or one mask. The
/// text that is read when a lazy grammar begins counts as one token. Allocating 8 bytes is a step.
/// Cached results count as if they were computed.
pub const LLAMA_SIEVE_GRAMMAR_MAX_STEPS: usize = 8_388_608;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_STEPS == limits::MAX_WORK);
/// The maximum number of bytes that the grammars of the cache occupy together.
pub const LLAMA_SIEVE_GRAMMAR_CACHE_BYTES: usize = 134_217_728;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_CACHE_BYTES == limits::MAX_CACHE_BYTES);
/// The maximum number of words of a bitmap of tokens, with one bit for every possible token number.
pub const LLAMA_SIEVE_GRAMMAR_MAX_MASK_WORDS: usize = 67_108_864;

const BITS: Argument = argument!("bits", "n_words", LLAMA_SIEVE_GRAMMAR_MAX_MASK_WORDS);

/// The maximum number of vocabularies whose data is kept. One more replaces the oldest, so a
/// program that cycles through more vocabularies never finds kept data.
pub const LLAMA_SIEVE_MAX_VOCABULARIES: usize = 8;
const _: () = assert!(LLAMA_SIEVE_MAX_VOCABULARIES == limits::MAX_VOCABULARIES);

/// Makes a sampler that allows only tokens after which the text can still become a sentence of a
/// grammar in GBNF, llama.cpp's notation.
///
/// `grammar_root` names the rule that the whole text must match. `vocab` must outlive this call. An
/// empty or NULL `grammar_str` gives a sampler that does nothing. Returns NULL if the grammar
/// cannot be read or exceeds one of LLAMA_SIEVE_GRAMMAR_MAX_*, and llama_sieve_last_error says what
/// was expected at which line and column; also if `vocab` or `grammar_root` is NULL. The host's
/// tokenizer determines the token of an element `<text>`. An exception that it throws passes
/// through, and it may take 512 KiB of stack.
///
/// After a token that the grammar does not allow, and that is a text (UTF-8 that does not begin
/// with NUL), the constraint is dead: only tokens that end the generation are allowed until
/// llama_sampler_reset, and one message says so. If an array of several candidates has none of
/// these tokens, one of them replaces the first candidate. In an array of one candidate, the
/// candidate stays, with minus infinity. See docs/grammar.md.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; the strings are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_init_grammar(
    vocab: *const llama_vocab,
    grammar_str: *const c_char,
    grammar_root: *const c_char,
) -> *mut llama_sampler {
    const CALL: &str = "llama_sieve_init_grammar";
    // SAFETY: the caller guarantees the arguments.
    unsafe { constructed(CALL, (vocab, grammar_str, grammar_root), || Ok(None), &OWN) }
}

/// Writes the tokens that a grammar allows now as a bitmap: bit t % 32 of word t / 32 is set if
/// token t is allowed. Writes the first `n_words` words to `bits`. Words after the vocabulary's
/// last are 0. Returns the total number of allowed tokens. If the grammar is empty, and while a
/// lazy grammar waits, all tokens are allowed. Returns 0, with an error and nothing written, if the
/// sampler is NULL or not a grammar, if `bits` is not aligned, or if `n_words` is above
/// LLAMA_SIEVE_GRAMMAR_MAX_MASK_WORDS. If `bits` is NULL, nothing is written, and `n_words` is
/// ignored. May be called from any thread.
///
/// # Safety
/// `smpl` is NULL or a live sampler; `bits` is NULL or has room for `n_words` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_grammar_mask(
    smpl: *const llama_sampler,
    bits: *mut u32,
    n_words: usize,
) -> usize {
    value("llama_sieve_grammar_mask", 0, || {
        // SAFETY: the caller guarantees the sampler and the room.
        let (slot, room) = unsafe { (slot_of(smpl)?, BITS.room_or_none(bits, n_words)?) };
        let mask = slot.allowed();
        mask.copy_to(room);
        Ok::<_, Failure>(mask.count())
    })
}

/// Returns true if the text so far is a complete sentence of the grammar, so that the generation
/// may end. An unfinished character at the end of the last token does not count, as in llama.cpp.
/// Returns false if the grammar is empty, while a lazy grammar waits for its trigger, once the
/// constraint is dead, and, with an error, for NULL and for other samplers. May be called from any
/// thread.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_grammar_is_complete(smpl: *const llama_sampler) -> bool {
    value("llama_sieve_grammar_is_complete", false, || {
        // SAFETY: the caller guarantees the sampler.
        unsafe { slot_of(smpl) }.map(|slot| slot.is_complete())
    })
}

/// Returns 0 unless the constraint of a grammar is dead; otherwise the reason why it is:
/// LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN, _END, _LIMIT, or LLAMA_SIEVE_ERROR_INTERNAL. Returns another
/// LLAMA_SIEVE_ERROR_* for NULL and for other samplers. May be called from any thread.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_grammar_error(smpl: *const llama_sampler) -> c_int {
    part("llama_sieve_grammar_error", || {
        // SAFETY: the caller guarantees the sampler.
        let dead = unsafe { slot_of(smpl) }?.dead();
        Ok(dead.map_or(LLAMA_SIEVE_OK, |dead| dead.code()))
    })
    .unwrap_or_else(|code| code)
}

/// Writes the counters of the process-wide cache of compiled grammars to `out`. The cache keeps the
/// most recently used grammars: at most 256, in at most LLAMA_SIEVE_GRAMMAR_CACHE_BYTES. Its keys
/// are the vocabulary and the SHA-256 of what the grammar is made from, such as root and text. Does
/// nothing if `out` is NULL or not aligned.
///
/// # Safety
/// `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_grammar_cache_stats(out: *mut llama_sieve_cache_stats) {
    value("llama_sieve_grammar_cache_stats", (), || {
        usable("out", out)?;
        // SAFETY: neither NULL nor misaligned, and the caller guarantees that it is writable.
        unsafe { out.write(cache::stats().into()) };
        Ok::<_, Failure>(())
    })
}

/// Drops the data kept for a vocabulary: its tree, and the grammars that were compiled for it.
/// Samplers in use continue, but their later results are not kept. Call it before a model is freed:
/// it releases that memory, and another model at the same address cannot be mistaken for this one.
/// NULL does nothing.
///
/// # Safety
/// `vocab` is not dereferenced, and may have been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_vocab_forget(vocab: *const llama_vocab) {
    value("llama_sieve_vocab_forget", (), || {
        forget(vocab.addr());
        Ok::<_, Failure>(())
    })
}

/// Returns the part of a grammar that any thread may query, or an error if the sampler is NULL, no
/// grammar or out of use.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
unsafe fn slot_of(smpl: *const llama_sampler) -> Result<Arc<Slot>, Failure> {
    usable("the sampler", smpl)?;
    // SAFETY: not NULL, and the caller guarantees the sampler; the vtable is compared before the
    // contents are used.
    let shared = unsafe {
        if GRAMMAR.is_of(smpl) {
            GRAMMAR.shared_of::<Grammar>(smpl)
        } else if HOSTED.is_of(smpl) {
            HOSTED.shared_of::<HostedGrammar>(smpl)
        } else {
            let text = "the sampler is no grammar: make it with llama_sieve_init_grammar, \
                        _json_schema, _regex, _choice or _tags";
            return Err(Failure::new(LLAMA_SIEVE_ERROR_INVALID, text));
        }
    };
    shared
        .and_then(|shared| shared.downcast::<Slot>().ok())
        .ok_or_else(|| Failure::new(LLAMA_SIEVE_ERROR_INVALID, "the sampler is out of use"))
}
