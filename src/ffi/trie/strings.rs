//! Token tries of plain strings, for C.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

use crate::errors::LLAMA_SIEVE_ERROR_SIZE;
use crate::ffi::failure::{Failure, begin, made, part, usable};
use crate::ffi::given::{Argument, argument};
use crate::ffi::host::Host;
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::{Tokenizer, c_bytes, llama_vocab};
use crate::ffi::vtable::into_host;
use crate::grammar::limits::MAX_TOKEN_TEXT;
use crate::memory;
use crate::quoted::quoted;
use crate::token::Token;
use crate::trie::cache;
use crate::trie::descriptor::{Descriptor, Leaf, Payload, SPAN_LIMIT};
use crate::trie::sampler::{Mode, TrieSampler};

use super::{TOKEN_TRIE, slot_for};

/// The maximum number of strings of a token trie of strings.
pub const LLAMA_SIEVE_TRIE_MAX_STRINGS: usize = 1_048_576;

/// The maximum number of bytes of one string of a token trie of strings, and of a token's text in a
/// grammar or a tag. Tokenizers of a host that split a text with std::regex recurse for each
/// character of the text: 512 KiB of stack are enough.
pub const LLAMA_SIEVE_TRIE_MAX_STRING_BYTES: usize = 1024;
const _: () = assert!(LLAMA_SIEVE_TRIE_MAX_STRING_BYTES == MAX_TOKEN_TEXT);

const CALL: &str = "llama_sieve_init_trie_strings";

const STRINGS: Argument = argument!("strings", "n", LLAMA_SIEVE_TRIE_MAX_STRINGS);

/// Makes a token trie of `n` strings. Each is a value and the name of its leaf, and is tokenized as
/// in the middle of a text: without special tokens, and without the space that some tokenizers
/// insert before a text. So if a value follows a space, include the space in it, as in " Moses".
///
/// Otherwise the result is that of llama_sampler_init_token_trie for a payload with these leaves,
/// in one descriptor whose path is "". Returns NULL, with the reason in llama_sieve_last_error, if
/// `vocab` or `strings` is NULL; if `n` is 0 or beyond LLAMA_SIEVE_TRIE_MAX_STRINGS; if a string is
/// NULL, empty, not UTF-8, or longer than LLAMA_SIEVE_TRIE_MAX_STRING_BYTES bytes or
/// LLAMA_SIEVE_TRIE_SPAN_LIMIT tokens; for an unknown mode; or without a host. Exceptions of the
/// host's tokenizer pass through. The tokenizer may take 512 KiB of stack. For longer values, pass
/// their tokens to llama_sampler_init_token_trie.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; `strings` is NULL or `n` pointers, each NULL or a C
/// string.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_init_trie_strings(
    vocab: *const llama_vocab,
    strings: *const *const c_char,
    n: usize,
    mode: c_int,
) -> *mut llama_sampler {
    let prepared = begin(CALL).and_then(|()| {
        // SAFETY: the caller guarantees the arguments.
        part(CALL, || unsafe { prepared(vocab, strings, n, mode) })
    });
    let Ok(mut prepared) = prepared else {
        return null_mut();
    };
    // SAFETY: the caller guarantees the vocabulary. The call is outside the guard, through which
    // the host's exceptions would not pass.
    if unsafe { prepared.ask(vocab) }.is_err() {
        return null_mut();
    }
    made(CALL, || {
        let (payload, mode) = prepared.payload()?;
        // SAFETY: the caller guarantees the vocabulary.
        let slot = unsafe { slot_for(vocab) }?;
        payload.check(slot.n_vocab())?;
        slot.set(cache::trie_of_payload(&payload), mode);
        Ok(into_host(&TOKEN_TRIE, TrieSampler::new(Arc::new(slot))))
    })
}

/// The text put before a string when it is tokenized, so that the string is not at the beginning of
/// a text. A line end is hardly ever joined into one token with the text after it.
const BEFORE: &[u8] = b"\n";

/// The strings of a trie, and the tokenizer that is to tokenize them.
struct Strings<'a> {
    tokenizer: Tokenizer,
    mode: Mode,
    values: Vec<Value<'a>>,
    /// The tokens of [`BEFORE`].
    before: Vec<Token>,
}

/// A string, and the buffer for its tokens.
struct Value<'a> {
    /// The index of the string among the caller's; of equal strings, that of the first.
    number: usize,
    text: &'a str,
    /// The text [`BEFORE`], followed by the string.
    together: Vec<u8>,
    tokens: Vec<Token>,
    /// True if there are more than [`MOST`] tokens. `tokens` does not contain them then.
    are_many: bool,
}

/// The maximum number of tokens that are read for one string. A string with more has too many, even
/// if some of them belong to the text before it, or if it has a few more or fewer without that
/// text.
const MOST: usize = 2 * SPAN_LIMIT;

impl<'a> Value<'a> {
    fn new(number: usize, text: &'a str) -> Result<Self, Failure> {
        let mut together = memory::with_room(BEFORE.len() + text.len())?;
        together.extend_from_slice(BEFORE);
        together.extend_from_slice(text.as_bytes());
        Ok(Self {
            number,
            text,
            tokens: room_for_tokens(&together)?,
            together,
            are_many: false,
        })
    }

    /// Returns true if the tokens of the string cannot be a value of a trie. The tokens must be
    /// known.
    fn is_refused(&self) -> bool {
        self.are_many || self.tokens.is_empty() || self.tokens.len() > SPAN_LIMIT
    }

    fn why_refused(&self) -> String {
        let (i, text) = (self.number, self.text);
        let n = match self.tokens.len() {
            _ if self.are_many => format!("more than {MOST}"),
            0 => return format!("strings[{i}], \"{}\", has no tokens", quoted(text)),
            n => n.to_string(),
        };
        format!(
            "strings[{i}] has {n} tokens, and a span takes at most {SPAN_LIMIT} \
             (LLAMA_SIEVE_TRIE_SPAN_LIMIT)"
        )
    }
}

/// Returns a buffer for the tokens of a text: one token for each byte, and one that some tokenizers
/// add at either end, but at most [`MOST`]. A text may have more tokens: a vocabulary without a
/// token for the space may take three tokens for it.
fn room_for_tokens(text: &[u8]) -> Result<Vec<Token>, Failure> {
    Ok(memory::with_room(MOST.min(text.len() + 2))?)
}

/// Reads and checks the arguments.
///
/// # Safety
/// The requirements of [`llama_sieve_init_trie_strings`] apply, and the strings live for `'a`.
unsafe fn prepared<'a>(
    vocab: *const llama_vocab,
    strings: *const *const c_char,
    n: usize,
    mode: c_int,
) -> Result<Strings<'a>, Failure> {
    usable("the vocabulary", vocab.cast::<u8>())?;
    usable("strings", strings)?;
    if n == 0 {
        let text = "n is 0; it must be above 0";
        return Err(Failure::new(LLAMA_SIEVE_ERROR_SIZE, text));
    }
    // SAFETY: the caller guarantees `n` pointers.
    let strings = unsafe { STRINGS.slice(strings, n) }?;
    let mode = Mode::from_number(mode)?;
    let host = Host::get().map_err(Failure::no_host)?;
    // SAFETY: the caller guarantees the vocabulary.
    let tokenizer = unsafe { Tokenizer::of(&host, vocab) }.map_err(Failure::no_host)?;
    let mut values = memory::with_room(n)?;
    let mut known = memory::set_with_room(n)?;
    for (i, &string) in strings.iter().enumerate() {
        if string.is_null() {
            return Err(Failure::null(&format!("strings[{i}]")));
        }
        // SAFETY: the caller guarantees the string.
        let text = unsafe { c_bytes(string) };
        if text.len() > LLAMA_SIEVE_TRIE_MAX_STRING_BYTES {
            let text = format!(
                "strings[{i}] has {} bytes; a string of a trie has at most \
                 {LLAMA_SIEVE_TRIE_MAX_STRING_BYTES} (LLAMA_SIEVE_TRIE_MAX_STRING_BYTES)",
                text.len()
            );
            return Err(Failure::new(LLAMA_SIEVE_ERROR_SIZE, text));
        }
        let text = std::str::from_utf8(text)
            .map_err(|error| format!("strings[{i}] is not UTF-8: {error}"))?;
        if text.is_empty() {
            return Err(Failure::from(format!("strings[{i}] is empty")));
        }
        if known.insert(text) {
            values.push(Value::new(i, text)?);
        }
    }
    Ok(Strings {
        tokenizer,
        mode,
        values,
        before: room_for_tokens(BEFORE)?,
    })
}

impl Strings<'_> {
    /// Tokenizes the strings, up to the first one whose tokens are refused. On failure returns the
    /// error code of the call.
    ///
    /// # Safety
    /// `vocab` is a vocabulary of the host.
    unsafe fn ask(&mut self, vocab: *const llama_vocab) -> Result<(), c_int> {
        let tokenizer = &self.tokenizer;
        // Writes the tokens of a text. Returns false, without them, if there are more than `MOST`.
        let ask = |text: &[u8], to: &mut Vec<Token>| -> Result<bool, c_int> {
            // SAFETY: the caller guarantees the vocabulary.
            let needed = unsafe { tokenizer.tokens(vocab, text, to) }.unwrap_or(0);
            if needed > MOST {
                return Ok(false);
            }
            if needed > to.len() {
                part(CALL, || Ok(to.try_reserve_exact(needed)?))?;
                // SAFETY: as above.
                unsafe { tokenizer.tokens(vocab, text, to) };
            }
            Ok(true)
        };
        ask(BEFORE, &mut self.before)?;
        for value in &mut self.values {
            let tokens = &mut value.tokens;
            value.are_many = !ask(&value.together, tokens)?;
            if value.are_many {
                break;
            }
            let parts = tokens.len() > self.before.len() && tokens.starts_with(&self.before);
            if parts {
                tokens.drain(..self.before.len());
            } else {
                // The tokenizer has joined the string with the text before it, so the string is
                // tokenized alone.
                value.are_many = !ask(value.text.as_bytes(), tokens)?;
            }
            if value.is_refused() {
                break;
            }
        }
        Ok(())
    }

    fn payload(self) -> Result<(Payload, Mode), Failure> {
        let mut leaves = memory::with_room(self.values.len())?;
        for value in self.values {
            if value.is_refused() {
                return Err(Failure::from(value.why_refused()));
            }
            leaves.push(Leaf {
                name: memory::text(value.text),
                tokens: value.tokens,
            });
        }
        let descriptor = Descriptor {
            path: String::new(),
            leaves,
            terminators: Vec::new(),
        };
        let payload = Payload {
            model_id: String::new(),
            descriptors: vec![descriptor],
        };
        Ok((payload, self.mode))
    }
}
