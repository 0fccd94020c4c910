//! Quadratic sampling, or smoothing: maps the logits with a parabola or a cubic through the largest
//! one (kalomaze, text-generation-webui; KoboldCpp).
//!
//! With m the largest logit and d = x - m, a logit x becomes `m - k f d^2 + s f d^3` with `k = (3 -
//! curve) / 2`, `s = (curve - 1) / 2` and the factor f. Logits near the largest move nearer to it,
//! and distant ones further away. The arithmetic is in `float`. One pass finds the largest logit,
//! and a second one changes all logits.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::kernels::{self, Cubic};
use crate::pool::Whole;
use crate::sampler::{About, Sampler, Tell};

/// Applies the curve to the logits.
#[derive(Clone, Debug)]
pub struct Quadratic {
    square: f32,
    cube: f32,
}

impl Quadratic {
    /// Returns a sampler; `None` if `factor` disables it: `factor <= 0`.
    pub fn new(factor: f32, curve: f32) -> Option<Self> {
        (factor > 0.0).then(|| Self {
            square: factor * ((3.0 - curve) / 2.0),
            cube: factor * ((curve - 1.0) / 2.0),
        })
    }

    /// Returns the curve through the largest logit.
    fn through(&self, max: f32) -> Option<Cubic> {
        max.is_finite().then_some(Cubic {
            // The pass may find either 0 or -0 first. The sum is never -0.
            max: max + 0.0,
            square: self.square,
            cube: self.cube,
        })
    }

    /// True if the curve keeps the order of logits.
    fn keeps_order(&self) -> bool {
        self.square >= 0.0 && self.cube >= 0.0
    }
}

impl Sampler for Quadratic {
    fn name(&self) -> &'static CStr {
        c"quadratic"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("square", f64::from(self.square));
            to("cube", f64::from(self.cube));
        }
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        let max = kernels::max_logit(candidates.as_slice(), false);
        let Some(curve) = self.through(max) else {
            return;
        };
        kernels::cube_logits(candidates.as_mut_slice(), curve);
        if !self.keeps_order() {
            candidates.set_sorted(false);
        }
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        let max = whole.max();
        match self.through(max) {
            Some(curve) if self.keeps_order() => {
                whole.change_in_order(|logits| kernels::cube(logits, curve));
            }
            Some(curve) => kernels::cube(whole.column_mut(), curve),
            None => {}
        }
        true
    }
}
