//! The element of every candidate array: a token with its logit and probability.

/// A token id, like llama.cpp's `llama_token`.
pub type Token = i32;

/// One candidate, laid out as llama.h's `llama_token_data` (12 bytes).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenData {
    /// The id of the token in the vocabulary.
    pub id: Token,
    /// The unnormalised log-probability, from the model or as changed by earlier samplers.
    pub logit: f32,
    /// The probability, which is meaningful only after a sampler that writes it.
    pub p: f32,
}

impl TokenData {
    /// Returns the candidate of a token with this logit, and a probability of 0.
    #[inline(always)]
    pub const fn new(id: Token, logit: f32) -> Self {
        Self { id, logit, p: 0.0 }
    }
}

/// Returns the candidates of a vocabulary with these logits.
pub fn array_of(logits: &[f32]) -> Vec<TokenData> {
    let candidate = |(&logit, id)| TokenData::new(id, logit);
    logits.iter().zip(0..).map(candidate).collect()
}

/// Returns the logit for comparisons: minus infinity for NaN.
///
/// The built-in samplers leave NaN undefined; with this rule a NaN can neither win nor stop a
/// search.
#[inline]
pub fn comparable(logit: f32) -> f32 {
    // This form compiles to one instruction.
    if logit > f32::NEG_INFINITY {
        logit
    } else {
        f32::NEG_INFINITY
    }
}
