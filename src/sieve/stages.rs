//! The filters of a sieve: one exact sampler of this library for each, which is kept from token to
//! token.

use crate::sampler::Sampler;
use crate::samplers::{MinP, Temp, TopK, TopNSigma, TopP, Typical};
use crate::sieve::params::{GREEDY_BELOW, Params};

/// The filters of a sieve. A filter that the parameters disable is `None`. Their buffers belong to
/// the thread.
#[derive(Clone, Debug)]
pub(super) struct Stages {
    pub(super) top_k: Option<TopK>,
    pub(super) typical: Option<Typical>,
    pub(super) top_p: Option<TopP>,
    pub(super) min_p: Option<MinP>,
    pub(super) top_n_sigma: Option<TopNSigma>,
    pub(super) temp: Option<Temp>,
}

impl Stages {
    pub(super) fn new(params: &Params) -> Self {
        let keep = params.min_keep;
        Self {
            top_k: TopK::new(params.top_k),
            typical: Typical::new(params.typical_p, keep),
            top_p: TopP::new(params.top_p, keep),
            min_p: MinP::new(params.min_p, keep),
            top_n_sigma: TopNSigma::new(params.top_n_sigma),
            temp: Temp::new(temperature(params)),
        }
    }

    /// Reserves the most memory that `n` candidates can need.
    pub(super) fn warm_up(&mut self, n: usize) {
        warm_up(self.top_k.as_mut(), n);
        warm_up(self.typical.as_mut(), n);
        warm_up(self.top_p.as_mut(), n);
        warm_up(self.min_p.as_mut(), n);
        warm_up(self.top_n_sigma.as_mut(), n);
    }
}

/// Returns the temperature, or 0 if it is below [`GREEDY_BELOW`]. At or below 0, llama.cpp's
/// sampler keeps only the most probable candidate.
pub(super) fn temperature(params: &Params) -> f32 {
    if params.temperature < GREEDY_BELOW {
        return 0.0;
    }
    params.temperature
}

/// Reserves the memory that a stage needs for `n` candidates in the buffers of the thread, if the
/// stage is enabled.
pub(super) fn warm_up(stage: Option<&mut impl Sampler>, n: usize) {
    if let Some(stage) = stage {
        stage.warm_up(n);
        stage.rest();
    }
}
