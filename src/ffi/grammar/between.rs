//! Queries to a grammar, and rollback, between tokens.

use std::ffi::{c_char, c_int};

use crate::errors::LLAMA_SIEVE_ERROR_SIZE;
use crate::ffi::failure::{Failure, answer, value};
use crate::ffi::given::{Argument, argument};
use crate::ffi::grammar::slot_of;
use crate::ffi::host::llama_h::llama_sampler;
use crate::grammar::{TooFar, limits};
use crate::token::Token;

/// The maximum number of tokens that llama_sieve_grammar_rollback takes back.
pub const LLAMA_SIEVE_GRAMMAR_MAX_ROLLBACK: usize = 1024;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_ROLLBACK == limits::MAX_ROLLBACK);
/// The maximum number of bytes that llama_sieve_grammar_forced returns, not counting the rest of
/// the last character.
pub const LLAMA_SIEVE_GRAMMAR_MAX_FORCED: usize = 65_536;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_FORCED == limits::MAX_FORCED);

const TOKENS: Argument = argument!("tokens", "n");
const BYTES: Argument = argument!("bytes", "cap");

/// Takes back the last `n_tokens` tokens that a grammar has accepted. That restores which tokens
/// are allowed, whether the text is complete, whether the constraint is dead, and whether a lazy
/// grammar still waits. Returns 0.
///
/// The last LLAMA_SIEVE_GRAMMAR_MAX_ROLLBACK tokens that were accepted since the sampler was made,
/// reset, or cloned can be taken back; fewer if their states take more than 4 MiB, which no common
/// grammar needs. While a lazy grammar waits, tokens accepted before a clone can be taken back as
/// well. For more, and after an internal error, returns LLAMA_SIEVE_ERROR_SIZE, and nothing
/// changes. Returns another LLAMA_SIEVE_ERROR_* for NULL and for other samplers. Only the grammar
/// is changed: the caller must rewind the other samplers of a chain and the context's memory. Does
/// nothing for an empty grammar, which constrains nothing.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_grammar_rollback(
    smpl: *mut llama_sampler,
    n_tokens: usize,
) -> c_int {
    answer("llama_sieve_grammar_rollback", || {
        // SAFETY: the caller guarantees the sampler.
        let done = unsafe { slot_of(smpl) }?.rollback(n_tokens);
        done.map_err(|TooFar(most)| {
            let text = format!(
                "n_tokens is {n_tokens}; only {most} can be taken back of those accepted since the \
                 sampler was made, reset or cloned (at most LLAMA_SIEVE_GRAMMAR_MAX_ROLLBACK)"
            );
            Failure::new(LLAMA_SIEVE_ERROR_SIZE, text)
        })
    })
}

/// Returns the number of leading tokens of a draft that a grammar allows after the text so far: the
/// index of the first token that is not allowed, or `n`. Changes nothing.
///
/// A lazy grammar that waits allows every token of the vocabulary until its trigger is found in the
/// draft. A token that ends the generation is allowed where the text is complete. The whole draft
/// may take LLAMA_SIEVE_GRAMMAR_MAX_STEPS steps, which is also the limit for one token. Tokens
/// beyond that count as not allowed. Returns 0 if the constraint is dead, and, with an error, if
/// `smpl` is NULL or not a grammar, if `tokens` is NULL or not aligned although `n` is above 0, and
/// if `n` is too large. May be called from any thread.
///
/// # Safety
/// `smpl` is NULL or a live sampler; `tokens` is NULL or has `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_grammar_accepts(
    smpl: *const llama_sampler,
    tokens: *const Token,
    n: usize,
) -> usize {
    value("llama_sieve_grammar_accepts", 0, || {
        // SAFETY: the caller guarantees the sampler and the tokens.
        let (slot, tokens) = unsafe { (slot_of(smpl)?, TOKENS.slice(tokens, n)?) };
        Ok::<_, Failure>(slot.accepts(tokens))
    })
}

/// Writes the bytes that must follow the text so far, such as the next key of an object with its
/// quotation marks. A caller that tokenizes them saves a forward pass for each of these tokens.
/// Returns their number, and writes the first `cap` of them to `bytes`, without a final NUL;
/// nothing if `bytes` is NULL.
///
/// The bytes are whole characters, or the rest of one that the last token has begun, up to the next
/// choice; at most LLAMA_SIEVE_GRAMMAR_MAX_FORCED and the rest of the last character, as far as
/// LLAMA_SIEVE_GRAMMAR_MAX_STEPS suffice. Returns 0 if the text may end, if a token may follow that
/// the grammar names by its number, if nothing is constrained, while a lazy grammar waits, and if
/// the constraint is dead; also, with an error, for NULL and for other samplers. A tokenizer may
/// join these bytes with the text after them: to be exact, leave their last token to the model. May
/// be called from any thread.
///
/// # Safety
/// `smpl` is NULL or a live sampler; `bytes` is NULL or has room for `cap` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_grammar_forced(
    smpl: *const llama_sampler,
    bytes: *mut c_char,
    cap: usize,
) -> usize {
    value("llama_sieve_grammar_forced", 0, || {
        // SAFETY: the caller guarantees the sampler and the room.
        let (slot, room) =
            unsafe { (slot_of(smpl)?, BYTES.room_or_none(bytes.cast::<u8>(), cap)?) };
        let forced = slot.forced();
        for (to, &byte) in room.iter_mut().zip(&forced) {
            *to = byte;
        }
        Ok::<_, Failure>(forced.len())
    })
}
