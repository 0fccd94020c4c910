//! Lazy grammars for C: constraints that wait for a trigger.

use std::ffi::c_char;

use crate::ffi::failure::Failure;
use crate::ffi::given::{Argument, argument};
use crate::ffi::grammar::making::{Lazy, OWN, constructed, invalid};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::{c_bytes, llama_vocab};
use crate::grammar::limits;
use crate::grammar::triggers::Triggers as Patterns;
use crate::token::Token;

/// The maximum number of bytes of all trigger words, or of all trigger patterns, of a lazy grammar.
pub const LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_TEXT: usize = 1_048_576;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_TEXT == limits::MAX_TRIGGER_TEXT);
/// The maximum number of states of all trigger patterns together, with repetitions expanded.
/// (std::regex allows 100000 for one pattern.) It is also the maximum number of words or patterns.
pub const LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_STATES: usize = 262_144;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_STATES == limits::MAX_TRIGGER_STATES);
/// The maximum nesting depth of parentheses in a trigger pattern.
pub const LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_DEPTH: usize = 100;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_DEPTH == limits::MAX_TRIGGER_DEPTH);
/// The maximum number of steps that one token may take while its grammar waits for a trigger, for
/// all patterns together.
pub const LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_STEPS: usize = 4_194_304;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_STEPS == limits::MAX_TRIGGER_STEPS);
/// The maximum number of bytes of trigger patterns that are cached for later grammars, including
/// the states that may be added while texts are read.
pub const LLAMA_SIEVE_GRAMMAR_TRIGGER_CACHE_BYTES: usize = 33_554_432;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_TRIGGER_CACHE_BYTES == limits::MAX_TRIGGER_CACHE);
/// The maximum number of sets of trigger patterns that are cached.
pub const LLAMA_SIEVE_GRAMMAR_TRIGGER_CACHE_SETS: usize = 64;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_TRIGGER_CACHE_SETS == limits::MAX_TRIGGERS_CACHED);
/// The maximum number of trigger tokens of a lazy grammar.
pub const LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_TOKENS: usize = 1_048_576;
/// The maximum number of bytes of a text in which a lazy grammar waits for its trigger.
pub const LLAMA_SIEVE_GRAMMAR_MAX_WAITING_TEXT: usize = 268_435_456;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_WAITING_TEXT == limits::MAX_WAITING_TEXT);

/// Makes a grammar sampler that allows everything until one of the words occurs in the text, or one
/// of the tokens is accepted. The grammar then begins with that word, or with that token.
///
/// Like llama.cpp's deprecated llama_sampler_init_grammar_lazy, this function joins all words into
/// one pattern. If `trigger_words` is NULL, there are no words, and `num_trigger_words` is ignored.
/// In all other respects it works like llama_sieve_init_grammar_lazy_patterns.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; `grammar_str` and `grammar_root` are NULL or C
/// strings; `trigger_words` is NULL or `num_trigger_words` pointers, each NULL or a C string;
/// `trigger_tokens` is NULL or `num_trigger_tokens` tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_init_grammar_lazy(
    vocab: *const llama_vocab,
    grammar_str: *const c_char,
    grammar_root: *const c_char,
    trigger_words: *mut *const c_char,
    num_trigger_words: usize,
    trigger_tokens: *const Token,
    num_trigger_tokens: usize,
) -> *mut llama_sampler {
    const CALL: &str = "llama_sieve_init_grammar_lazy";
    let arguments = (vocab, grammar_str, grammar_root);
    let tokens = (trigger_tokens, num_trigger_tokens);
    // SAFETY: the caller guarantees the arguments.
    unsafe {
        let triggers = || of_words((trigger_words, num_trigger_words), tokens);
        constructed(CALL, arguments, triggers, &OWN)
    }
}

const WORDS: Argument = argument!(
    "the list of trigger words",
    "num_trigger_words",
    LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_STATES
);
const PATTERNS: Argument = argument!(
    "the list of trigger patterns",
    "num_trigger_patterns",
    LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_STATES
);
const TOKENS: Argument = argument!(
    "the list of trigger tokens",
    "num_trigger_tokens",
    LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_TOKENS
);

/// A pointer from C, and the number of its elements.
pub type List<T> = (*const T, usize);

/// The triggers of a lazy grammar, as C passes them.
#[derive(Clone, Copy, Debug)]
pub enum Triggers {
    /// There are no triggers: the grammar is not lazy.
    None,
    /// The words and tokens of llama_sampler_init_grammar_lazy.
    Words(List<*const c_char>, List<Token>),
    /// The patterns and tokens of llama_sampler_init_grammar_lazy_patterns.
    Patterns(List<*const c_char>, List<Token>),
}

/// Returns the triggers that llama_sieve_init_grammar_lazy was given, or an error if they cannot be
/// read or are not allowed.
///
/// # Safety
/// Each list is NULL or has its number of elements; each word is NULL or a C string.
pub(super) unsafe fn of_words(
    (words, n): List<*const c_char>,
    tokens: List<Token>,
) -> Result<Option<Lazy>, Failure> {
    let words = match words.is_null() {
        true => Vec::new(),
        // SAFETY: the caller guarantees the words.
        false => unsafe { texts("trigger words", WORDS, words, n) }?,
    };
    // SAFETY: the caller guarantees the tokens.
    let tokens = unsafe { self::tokens(tokens) }?;
    lazy(Patterns::of_words(&words), tokens)
}

/// Returns the triggers that llama_sieve_init_grammar_lazy_patterns was given, or an error if they
/// cannot be read or are not allowed.
///
/// # Safety
/// Each list is NULL or has its number of elements; each pattern is NULL or a C string.
pub(super) unsafe fn of_patterns(
    (patterns, n): List<*const c_char>,
    tokens: List<Token>,
) -> Result<Option<Lazy>, Failure> {
    // SAFETY: the caller guarantees the patterns.
    let patterns = unsafe { texts("trigger patterns", PATTERNS, patterns, n) }?;
    // SAFETY: the caller guarantees the tokens.
    let tokens = unsafe { self::tokens(tokens) }?;
    lazy(Patterns::new(&patterns), tokens)
}

/// Makes a grammar sampler that allows everything until one of the patterns is found in the
/// accepted text, or one of the tokens is accepted.
///
/// With a token, the grammar begins with it. With a pattern, it begins at the first group that is
/// not empty, or otherwise where the match begins. It reads the text from there, even from within a
/// token. Patterns are tried in the order given. Their syntax is that of std::regex (ECMAScript, on
/// bytes, in the C locale). A pattern that begins with ^ and ends with $ is first matched against
/// the whole text.
///
/// Returns NULL, and llama_sieve_last_error says why, if llama_sieve_init_grammar would, if a
/// pattern is NULL or not a regular expression, if a list is NULL although its number is not 0, and
/// beyond LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_*. A token that takes more steps than
/// LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_STEPS, and a longer text than
/// LLAMA_SIEVE_GRAMMAR_MAX_WAITING_TEXT, make the constraint dead. llama_sampler_reset lets it wait
/// again. All arguments are copied. Patterns are cached for the next grammar that has them, within
/// LLAMA_SIEVE_GRAMMAR_TRIGGER_CACHE_*.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; `grammar_str` and `grammar_root` are NULL or C
/// strings; `trigger_patterns` is NULL or `num_trigger_patterns` pointers, each NULL or a C string;
/// `trigger_tokens` is NULL or `num_trigger_tokens` tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_init_grammar_lazy_patterns(
    vocab: *const llama_vocab,
    grammar_str: *const c_char,
    grammar_root: *const c_char,
    trigger_patterns: *mut *const c_char,
    num_trigger_patterns: usize,
    trigger_tokens: *const Token,
    num_trigger_tokens: usize,
) -> *mut llama_sampler {
    const CALL: &str = "llama_sieve_init_grammar_lazy_patterns";
    let arguments = (vocab, grammar_str, grammar_root);
    let tokens = (trigger_tokens, num_trigger_tokens);
    // SAFETY: the caller guarantees the arguments.
    unsafe {
        let triggers = || of_patterns((trigger_patterns, num_trigger_patterns), tokens);
        constructed(CALL, arguments, triggers, &OWN)
    }
}

fn lazy(
    triggers: Result<std::sync::Arc<Patterns>, String>,
    tokens: Vec<Token>,
) -> Result<Option<Lazy>, Failure> {
    Ok(Some((triggers.map_err(invalid)?, tokens)))
}

/// Returns the words or patterns of the triggers, and their tokens; an error if they cannot be
/// read. If the list of words is NULL, there are no words.
///
/// # Safety
/// Each list is NULL or has its number of elements; each string is NULL or a C string that lives
/// for `'a`.
pub(super) unsafe fn given<'a>(triggers: Triggers) -> Result<(Vec<&'a [u8]>, Vec<Token>), Failure> {
    // SAFETY: the caller guarantees the lists.
    unsafe {
        match triggers {
            Triggers::None => Ok((Vec::new(), Vec::new())),
            Triggers::Words((words, _), tokens) if words.is_null() => {
                Ok((Vec::new(), self::tokens(tokens)?))
            }
            Triggers::Words((words, n), tokens) => {
                let words = texts("trigger words", WORDS, words, n)?;
                Ok((words, self::tokens(tokens)?))
            }
            Triggers::Patterns((patterns, n), tokens) => {
                let patterns = texts("trigger patterns", PATTERNS, patterns, n)?;
                Ok((patterns, self::tokens(tokens)?))
            }
        }
    }
}

/// Returns the texts of a list, or an error if the list cannot be read or contains NULL.
///
/// # Safety
/// `list` is NULL or `n` pointers, each NULL or a C string that lives for `'a`.
unsafe fn texts<'a>(
    name: &str,
    argument: Argument,
    list: *const *const c_char,
    n: usize,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: the caller guarantees `n` pointers.
    let list = unsafe { argument.slice(list, n) }?;
    list.iter()
        .enumerate()
        .map(|(i, &text)| {
            if text.is_null() {
                return Err(invalid(format!("number {i} of the {name} is NULL")));
            }
            // SAFETY: the caller guarantees the string.
            Ok(unsafe { c_bytes(text) })
        })
        .collect()
}

/// Returns the tokens of a list, or an error if it cannot be read.
///
/// # Safety
/// `list` is NULL or `n` tokens.
unsafe fn tokens((list, n): List<Token>) -> Result<Vec<Token>, Failure> {
    // SAFETY: the caller guarantees that many tokens.
    Ok(unsafe { TOKENS.slice(list, n) }?.to_vec())
}
