//! Statistics of the last token: how many candidates each stage left, entropies and surprisals.

/// The number of candidates that each stage left, and how uncertain model and draw were.
///
/// Masked tokens, which have probability 0, are not counted. In the default order of stages the
/// counts never rise from one stage to the next, and a disabled stage leaves them unchanged. With
/// [stages of its own](crate::sieve::Sieve::set_stages) each count is taken after the stage of that
/// name, or, if that is absent, of the candidates that were drawn from. A temperature that counts
/// as 0 masks all candidates but the largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// Entropy of the raw logits, before bias and penalties, in nats. NaN unless
    /// [`Sieve::measure`](crate::sieve::Sieve::measure) asked for it.
    pub model_entropy: f32,
    /// Surprisal of the chosen token in the same distribution, in nats. NaN likewise.
    pub surprisal: f32,
    /// Entropy of the distribution that was drawn from, in nats. NaN likewise.
    pub sampling_entropy: f32,
    /// Surprisal of the chosen token in the distribution that was drawn from, in nats. NaN
    /// likewise.
    pub sampling_surprisal: f32,
    /// How many tokens had been accepted when this one was chosen: its position, counted from 0.
    pub accepted: u64,
    /// Size of the vocabulary.
    pub n_vocab: usize,
    /// Candidates after top-k.
    pub after_top_k: usize,
    /// Candidates after typical.
    pub after_typical: usize,
    /// Candidates after top-p.
    pub after_top_p: usize,
    /// Candidates after min-p.
    pub after_min_p: usize,
    /// Candidates after top-n-sigma. In the default order of stages the token was drawn from these.
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
