//! Regular expressions and choices for C.

use std::ffi::c_char;
use std::sync::Arc;

use crate::errors::LLAMA_SIEVE_ERROR_PARAMS;
use crate::ffi::failure::{Failure, made, usable};
use crate::ffi::given::{Argument, argument, c_bytes_within};
use crate::ffi::grammar::making::{GRAMMAR, invalid};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::llama_vocab;
use crate::ffi::known_vocabularies::known;
use crate::ffi::vtable::into_host;
use crate::grammar::limits;
use crate::grammar::{Grammar, Refused, VocabularyTree};
use crate::memory;
use crate::quoted::quoted;

/// The maximum number of bytes of a regular expression.
pub const LLAMA_SIEVE_PATTERN_MAX_TEXT: usize = 32_768;
const _: () = assert!(LLAMA_SIEVE_PATTERN_MAX_TEXT == limits::MAX_PATTERN_TEXT);
/// The maximum nesting depth of a regular expression: each group, repetition, sequence and list of
/// alternatives within another is a level.
pub const LLAMA_SIEVE_PATTERN_MAX_DEPTH: u32 = 128;
const _: () = assert!(LLAMA_SIEVE_PATTERN_MAX_DEPTH == limits::MAX_PATTERN_DEPTH);
/// The maximum number of classes of characters that a regular expression may name, such as \w and
/// \p{Greek}, including ranges in brackets.
pub const LLAMA_SIEVE_PATTERN_MAX_CLASSES: usize = 4096;
const _: () = assert!(LLAMA_SIEVE_PATTERN_MAX_CLASSES == limits::MAX_PATTERN_CLASSES);
/// The maximum number of strings of a choice. Together they may have LLAMA_SIEVE_GRAMMAR_MAX_TEXT
/// bytes.
pub const LLAMA_SIEVE_CHOICE_MAX_VALUES: usize = 1_048_576;
const _: () = assert!(LLAMA_SIEVE_CHOICE_MAX_VALUES == limits::MAX_CHOICES);

/// Makes a sampler that lets through only tokens with which the whole text matches, or can still
/// match, a regular expression.
///
/// The syntax is that of the crate regex: Unicode classes, flags such as (?i), counts. Greedy and
/// lazy repetitions match the same texts, and groups capture nothing. The whole text must match,
/// with or without ^ and $. An anchor elsewhere, a word boundary (\b), the beginning or end of a
/// line ((?m)^), look-ahead, look-behind and back references are refused, and the error names them.
/// Patterns and texts are UTF-8: a pattern that is not UTF-8, or that matches other bytes, is
/// refused. `flags` is 0.
///
/// The sampler is a grammar: except for the notation it behaves as that of
/// llama_sieve_init_grammar, llama_sieve_grammar_mask and the like accept it, and its limits are
/// LLAMA_SIEVE_GRAMMAR_MAX_*. Returns NULL, and llama_sieve_last_error says where and why, for a
/// pattern that cannot be read, that no text matches, or that is beyond LLAMA_SIEVE_PATTERN_MAX_*
/// or LLAMA_SIEVE_GRAMMAR_MAX_*; also if `vocab` or `pattern` is NULL, or a bit of `flags` is set.
/// See docs/grammar.md.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; `pattern` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_init_regex(
    vocab: *const llama_vocab,
    pattern: *const c_char,
    flags: u32,
) -> *mut llama_sampler {
    made("llama_sieve_init_regex", || {
        no_flags(flags)?;
        usable("pattern", pattern)?;
        // SAFETY: not NULL, and the caller guarantees the string.
        let text = unsafe { c_bytes_within(pattern, LLAMA_SIEVE_PATTERN_MAX_TEXT + 1) };
        if text.len() > LLAMA_SIEVE_PATTERN_MAX_TEXT {
            let most = LLAMA_SIEVE_PATTERN_MAX_TEXT;
            let text = format!(
                "the pattern has more than {most} bytes \
                                (LLAMA_SIEVE_PATTERN_MAX_TEXT)"
            );
            return Err(invalid(text));
        }
        let Ok(text) = std::str::from_utf8(text) else {
            let text = format!("the pattern \"{}\" is not UTF-8", quoted(text));
            return Err(invalid(text));
        };
        memory::room(PARSER + PER_BYTE * text.len())?;
        // SAFETY: the caller guarantees the vocabulary.
        unsafe { constructed(vocab, |tree| Grammar::regex(text, tree)) }
    })
}

const VALUES: Argument = argument!("values", "n", LLAMA_SIEVE_CHOICE_MAX_VALUES);

/// Makes a sampler that lets through only tokens with which the whole text is, or can still become,
/// one of `n` strings. Thousands of them cost no more per token than a few.
///
/// Any tokens may spell a string, whereas a token trie (llama_sieve_init_trie_strings) uses the
/// tokens from the tokenizer, and reports the chosen value. The page docs/token-trie.md compares
/// the two.
///
/// The sampler is a grammar, like that of llama_sieve_init_regex. Returns NULL, and
/// llama_sieve_last_error says why, if `vocab`, `values` or a value is NULL, if a value is not
/// UTF-8, if `n` is 0 or above LLAMA_SIEVE_CHOICE_MAX_VALUES, or if all values together are beyond
/// LLAMA_SIEVE_GRAMMAR_MAX_*. An empty string is a value: the generation may then end at once.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; `values` is NULL or `n` pointers, each NULL or a C
/// string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_init_choice(
    vocab: *const llama_vocab,
    values: *const *const c_char,
    n: usize,
) -> *mut llama_sampler {
    made("llama_sieve_init_choice", || {
        usable("values", values)?;
        // SAFETY: the caller guarantees the pointers.
        let pointers = unsafe { VALUES.slice(values, n) }?;
        let mut texts: Vec<&[u8]> = memory::with_room(n)?;
        let mut left = MAX_BYTES;
        for (i, &pointer) in pointers.iter().enumerate() {
            if pointer.is_null() {
                return Err(Failure::null(&format!("value {i}")));
            }
            // SAFETY: not NULL, and the caller guarantees the string.
            let text = unsafe { c_bytes_within(pointer, left + 1) };
            texts.push(text);
            left = left.saturating_sub(text.len());
        }
        let n_bytes: usize = texts.iter().map(|text| text.len()).sum();
        memory::room(PARSER + PER_LETTER * (n_bytes + n))?;
        // SAFETY: the caller guarantees the vocabulary.
        unsafe { constructed(vocab, |tree| Grammar::choice(&texts, tree)) }
    })
}

/// The maximum number of bytes of all values that are read before they are found to be too long.
const MAX_BYTES: usize = limits::MAX_TEXT;

/// The number of bytes that must be available to read any text, however short.
pub(super) const PARSER: usize = 64 << 10;
/// Approximate bytes needed per byte of a pattern or a description.
pub(super) const PER_BYTE: usize = 1 << 10;
/// Approximate bytes needed per byte of a value.
const PER_LETTER: usize = 64;

/// Returns an error if a bit of `flags` is set, since no bit has a meaning yet.
pub(super) fn no_flags(flags: u32) -> Result<(), Failure> {
    if flags == 0 {
        return Ok(());
    }
    let text = format!("flags is {flags:#x}; it must be 0: no bit has a meaning");
    Err(Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text))
}

/// Makes the sampler of the grammar that `grammar` returns for the vocabulary's tree. Returns an
/// error if `vocab` is NULL, if there is no host, or if the grammar is refused.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host.
pub(super) unsafe fn constructed(
    vocab: *const llama_vocab,
    grammar: impl FnOnce(&Arc<VocabularyTree>) -> Result<Grammar, Refused>,
) -> Result<*mut llama_sampler, Failure> {
    usable("the vocabulary", vocab.cast::<u8>())?;
    // SAFETY: the caller guarantees the vocabulary, which is read within this call only.
    let known = unsafe { known(vocab) }.map_err(Failure::no_host)?;
    sampler(grammar(&known.tree))
}

/// Returns the sampler of a grammar, or the reason why it was refused.
pub(super) fn sampler(made: Result<Grammar, Refused>) -> Result<*mut llama_sampler, Failure> {
    let grammar = made.map_err(|refused| invalid(refused.what))?;
    Ok(into_host(&GRAMMAR, grammar))
}
