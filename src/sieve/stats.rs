//! Statistics of the last token: the number of candidates that each stage left, entropies and
//! surprisals.

/// The number of candidates that each stage left, and the entropies and surprisals of the model and
/// of the draw.
///
/// Masked tokens, which have probability 0, are not counted. In the default order of stages the
/// counts never rise from one stage to the next, and a disabled stage leaves them unchanged. With
/// [custom stages](crate::sieve::Sieve::set_stages) each count is taken after the stage of its name
/// or, if that is absent, is the number of candidates from which the token was drawn. A temperature
/// that counts as 0 masks all candidates except the largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// The entropy of the raw logits, before bias and penalties, in nats. NaN unless
    /// [requested](crate::sieve::Sieve::measure).
    pub model_entropy: f32,
    /// The surprisal of the chosen token in that distribution, in nats. NaN unless requested.
    pub surprisal: f32,
    /// The entropy of the distribution from which the token was drawn, in nats. NaN unless
    /// requested.
    pub sampling_entropy: f32,
    /// The surprisal of the chosen token in the distribution from which it was drawn, in nats. NaN
    /// unless requested.
    pub sampling_surprisal: f32,
    /// The number of tokens that had been accepted when this one was chosen: its position, counted
    /// from 0.
    pub accepted: u64,
    /// The number of logits.
    pub n_vocab: usize,
    /// The number of candidates after top-k.
    pub after_top_k: usize,
    /// The number of candidates after typical.
    pub after_typical: usize,
    /// The number of candidates after top-p.
    pub after_top_p: usize,
    /// The number of candidates after min-p.
    pub after_min_p: usize,
    /// The number of candidates after top-n-sigma. In the default order of stages the token was
    /// drawn from these candidates, unless the temperature counts as 0.
    pub after_top_n_sigma: usize,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            model_entropy: f32::NAN,
            surprisal: f32::NAN,
            sampling_entropy: f32::NAN,
            sampling_surprisal: f32::NAN,
            accepted: 0,
            n_vocab: 0,
            after_top_k: 0,
            after_typical: 0,
            after_top_p: 0,
            after_min_p: 0,
            after_top_n_sigma: 0,
        }
    }
}
