//! The filters as the exact samplers of this library, one of each, kept from token to token with
//! their buffers.

use crate::sampler::Sampler;
use crate::samplers::{MinP, Temp, TopK, TopNSigma, TopP, Typical};
use crate::sieve::params::{GREEDY_BELOW, Params};

/// The filters of a sieve. Those that the parameters switch off stay, with their buffers: they may
/// be on again at the next token.
#[derive(Clone, Debug)]
pub(super) struct Stages {
    top_k: Switch<TopK>,
    typical: Switch<Typical>,
    top_p: Switch<TopP>,
    min_p: Switch<MinP>,
    top_n_sigma: Option<TopNSigma>,
    temp: Option<Temp>,
}

#[derive(Clone, Debug)]
struct Switch<S> {
    stage: Option<S>,
    on: bool,
}

impl<S> Switch<S> {
    fn new(stage: Option<S>) -> Self {
        let on = stage.is_some();
        Self { stage, on }
    }

    /// Adapts the stage to changed parameters. `fresh` is the stage made anew, without buffers, or
    /// `None` if it is off; `set` tells the old one.
    fn update(&mut self, fresh: Option<S>, set: impl FnOnce(&mut S)) {
        self.on = fresh.is_some();
        match &mut self.stage {
            Some(stage) => set(stage),
            none => *none = fresh,
        }
    }

    fn get(&mut self) -> Option<&mut S> {
        self.stage.as_mut().filter(|_| self.on)
    }
}

impl Stages {
    pub(super) fn new(params: &Params) -> Self {
        let keep = params.min_keep;
        Self {
            top_k: Switch::new(TopK::new(params.top_k)),
            typical: Switch::new(Typical::new(params.typical_p, keep)),
            top_p: Switch::new(TopP::new(params.top_p, keep)),
            min_p: Switch::new(MinP::new(params.min_p, keep)),
            top_n_sigma: TopNSigma::new(params.top_n_sigma),
            temp: Temp::new(temperature(params)),
        }
    }

    pub(super) fn update(&mut self, params: &Params) {
        let fresh = Self::new(params);
        let (keep, k) = (params.min_keep, params.top_k);
        let k = usize::try_from(k).unwrap_or(0);
        self.top_k.update(fresh.top_k.stage, |s| s.set(k));
        let p = params.typical_p;
        self.typical.update(fresh.typical.stage, |s| s.set(p, keep));
        let p = params.top_p;
        self.top_p.update(fresh.top_p.stage, |s| s.set(p, keep));
        let p = params.min_p;
        self.min_p.update(fresh.min_p.stage, |s| s.set(p, keep));
        self.top_n_sigma = fresh.top_n_sigma;
        self.temp = fresh.temp;
    }

    /// Makes room for whatever `n` candidates can take.
    pub(super) fn warm_up(&mut self, n: usize) {
        warm_up(self.top_k(), n);
        warm_up(self.typical(), n);
        warm_up(self.top_p(), n);
        warm_up(self.min_p(), n);
        warm_up(self.top_n_sigma(), n);
    }

    // Each stage, if it is on.

    pub(super) fn top_k(&mut self) -> Option<&mut TopK> {
        self.top_k.get()
    }

    pub(super) fn typical(&mut self) -> Option<&mut Typical> {
        self.typical.get()
    }

    pub(super) fn top_p(&mut self) -> Option<&mut TopP> {
        self.top_p.get()
    }

    pub(super) fn min_p(&mut self) -> Option<&mut MinP> {
        self.min_p.get()
    }

    pub(super) fn top_n_sigma(&mut self) -> Option<&mut TopNSigma> {
        self.top_n_sigma.as_mut()
    }

    pub(super) fn temp(&mut self) -> Option<&mut Temp> {
        self.temp.as_mut()
    }
}

/// Returns the temperature, or 0 if it is below [`GREEDY_BELOW`]. At or below 0 llama.cpp's own
/// sampler takes the most probable candidate.
pub(super) fn temperature(params: &Params) -> f32 {
    if params.temperature < GREEDY_BELOW {
        return 0.0;
    }
    params.temperature
}

/// Has a stage, if it is on, make room in the buffers of the thread.
pub(super) fn warm_up(stage: Option<&mut impl Sampler>, n: usize) {
    if let Some(stage) = stage {
        stage.warm_up(n);
        stage.rest();
    }
}
