//! The loop breaker for C.

use std::sync::Arc;

use crate::errors::LLAMA_SIEVE_ERROR_PARAMS;
use crate::ffi::failure::{Failure, made, struct_size, usable};
use crate::ffi::given::{Argument, argument};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::{host_vocabulary, llama_vocab};
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::memory;
use crate::samplers::loop_breaker::{MAX_FORCED, MAX_LENGTH, MAX_PERIOD};
use crate::samplers::{LoopAction, LoopBreaker, LoopParams};
use crate::token::Token;
use crate::vocabulary::Vocabulary;

/// The longest period of a repetition, in tokens.
pub const LLAMA_SIEVE_LOOP_MAX_PERIOD: i32 = 1024;
const _: () = assert!(LLAMA_SIEVE_LOOP_MAX_PERIOD as usize == MAX_PERIOD);
/// The largest value of min_tokens.
pub const LLAMA_SIEVE_LOOP_MAX_TOKENS: i32 = 65_536;
const _: () = assert!(LLAMA_SIEVE_LOOP_MAX_TOKENS as usize == MAX_LENGTH);
/// The maximum number of tokens that a loop breaker forces.
pub const LLAMA_SIEVE_LOOP_MAX_FORCED: usize = 1024;
const _: () = assert!(LLAMA_SIEVE_LOOP_MAX_FORCED == MAX_FORCED);

/// Action of a loop breaker: the token that would continue the repetition is banned.
pub const LLAMA_SIEVE_LOOP_BAN: i32 = 0;
/// Action of a loop breaker: the temperature rises until a token is chosen that does not continue
/// the repetition.
pub const LLAMA_SIEVE_LOOP_TEMPERATURE: i32 = 1;
/// Action of a loop breaker: the tokens of the parameters follow, for example those that end a
/// model's reasoning.
pub const LLAMA_SIEVE_LOOP_FORCE: i32 = 2;
/// Action of a loop breaker: a token follows that ends the generation.
pub const LLAMA_SIEVE_LOOP_END: i32 = 3;

/// Parameters of a loop breaker. A member with a default has it if it is 0. Set the whole struct to
/// 0, and struct_size to its size.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct llama_sieve_loop_params {
    /// sizeof(llama_sieve_loop_params) of the caller.
    pub struct_size: usize,
    /// The action that ends a repetition: LLAMA_SIEVE_LOOP_*. Default LLAMA_SIEVE_LOOP_BAN.
    pub action: i32,
    /// The longest period, up to LLAMA_SIEVE_LOOP_MAX_PERIOD, which is the default.
    pub max_period: i32,
    /// The minimum number of tokens in all copies together, including an incomplete one, up to
    /// LLAMA_SIEVE_LOOP_MAX_TOKENS. Default 128, since shorter repetitions occur in tables and
    /// lists. With 1, three copies are enough, even of a single token.
    pub min_tokens: i32,
    /// For LLAMA_SIEVE_LOOP_TEMPERATURE: the number, above 1, by which the logits are divided, once
    /// at the first token, twice at the next, and so on, but by 1000000 at most. Default 1.5.
    pub temperature: f32,
    /// For LLAMA_SIEVE_LOOP_FORCE: n_tokens tokens, which are copied.
    pub tokens: *const Token,
    /// The number of these tokens, 1 to LLAMA_SIEVE_LOOP_MAX_FORCED.
    pub n_tokens: usize,
    /// For LLAMA_SIEVE_LOOP_END: the vocabulary, from which the tokens that end a generation are
    /// read. It is not kept.
    pub vocab: *const llama_vocab,
}

pub(super) static LOOP_BREAKER: Vtable = vtable::<LoopBreaker>();

const TOKENS: Argument = argument!("tokens", "n_tokens", LLAMA_SIEVE_LOOP_MAX_FORCED);

/// Makes a sampler that detects a repetition of the accepted tokens, and ends it.
///
/// A repetition is a period of tokens whose newest three or more copies are equal, with at least
/// min_tokens tokens in all. It is found when the last of these tokens is accepted. If there are
/// several periods, the shortest counts. The action then begins, with one Info message for each
/// repetition. Without a repetition no bit of a candidate is changed. Nothing is done if a ban
/// would leave no candidate, or if an earlier sampler has banned the forced or ending tokens. A
/// forced or ending token that an earlier sampler has removed is put back, but not into an array of
/// one candidate. llama.cpp does not have this sampler. DRY makes a repetition less likely. This
/// sampler ends it.
///
/// With `params` NULL every member has its default. Returns NULL, and llama_sieve_last_error names
/// the member, if a member is out of its range, if struct_size is unknown, or if a member that the
/// action needs is missing.
///
/// # Safety
/// `params` is NULL or as long as its struct_size says; its tokens are NULL or n_tokens tokens; its
/// vocab is NULL or a vocabulary of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_init_loop_breaker(
    params: *const llama_sieve_loop_params,
) -> *mut llama_sampler {
    made("llama_sieve_init_loop_breaker", || {
        let params = match params.is_null() {
            true => LoopParams::default(),
            // SAFETY: not NULL, and the caller guarantees the parameters.
            false => unsafe { params_of(params) }?,
        };
        let breaker = LoopBreaker::new(params);
        let breaker = breaker.map_err(|text| Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text))?;
        Ok(into_host(&LOOP_BREAKER, breaker))
    })
}

/// Returns the parameters that C passes, or an error if they cannot be read or are not allowed.
///
/// # Safety
/// The requirements of [`llama_sieve_init_loop_breaker`] apply, and `params` is not NULL.
unsafe fn params_of(params: *const llama_sieve_loop_params) -> Result<LoopParams, Failure> {
    let known = [size_of::<llama_sieve_loop_params>()];
    // SAFETY: the caller guarantees the parameters.
    unsafe { struct_size("params", "llama_sieve_loop_params", params, &known) }?;
    // SAFETY: neither NULL nor misaligned, and as long as its size says.
    let params = unsafe { params.read() };
    let number = |what: &str, number: i32, default: usize| match usize::try_from(number) {
        Ok(0) => Ok(default),
        Ok(number) => Ok(number),
        Err(_) => Err(wrong(format!("{what} is {number}; it must be above 0"))),
    };
    // SAFETY: the caller guarantees tokens and vocabulary.
    let action = unsafe { action_of(&params) }?;
    Ok(LoopParams {
        max_period: number("max_period", params.max_period, MAX_PERIOD)?,
        min_tokens: number("min_tokens", params.min_tokens, LoopParams::MIN_TOKENS)?,
        action,
    })
}

/// Returns the action and its parameters, or an error if they cannot be read or are not allowed.
///
/// # Safety
/// The tokens in `params` are NULL or n_tokens tokens; the vocabulary is NULL or one of the host's.
unsafe fn action_of(params: &llama_sieve_loop_params) -> Result<LoopAction, Failure> {
    const RISE: f32 = 1.5;
    match params.action {
        LLAMA_SIEVE_LOOP_BAN => Ok(LoopAction::Ban),
        LLAMA_SIEVE_LOOP_TEMPERATURE if params.temperature == 0.0 => {
            Ok(LoopAction::Temperature(RISE))
        }
        LLAMA_SIEVE_LOOP_TEMPERATURE => Ok(LoopAction::Temperature(params.temperature)),
        LLAMA_SIEVE_LOOP_FORCE => {
            // SAFETY: the caller guarantees the tokens.
            let tokens = unsafe { TOKENS.slice(params.tokens, params.n_tokens) }?;
            Ok(LoopAction::Force(tokens.into()))
        }
        LLAMA_SIEVE_LOOP_END => {
            usable("vocab", params.vocab.cast::<u8>())?;
            // SAFETY: the caller guarantees the vocabulary, which is read within this call only.
            let vocabulary = unsafe { host_vocabulary(params.vocab) }.map_err(Failure::no_host)?;
            Ok(LoopAction::End(ends(&vocabulary)))
        }
        action => Err(wrong(format!(
            "action is {action}; it must be one of LLAMA_SIEVE_LOOP_*, 0 to {LLAMA_SIEVE_LOOP_END}"
        ))),
    }
}

fn wrong(text: String) -> Failure {
    Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text)
}

/// Returns the tokens that end a generation. The token that ends a turn comes first: it is inserted
/// if no candidate is one of these tokens.
fn ends(vocabulary: &dyn Vocabulary) -> Arc<[Token]> {
    let first = vocabulary.end_token();
    let all = 0..Token::try_from(vocabulary.n_tokens()).unwrap_or(Token::MAX);
    let others = all.filter(|&token| vocabulary.is_eog(token) && Some(token) != first);
    let mut ends = Vec::new();
    for token in first.into_iter().chain(others) {
        memory::push(&mut ends, token);
    }
    ends.into()
}
