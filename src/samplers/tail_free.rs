//! Tail-free sampling: cuts where the curve of the sorted probabilities flattens (Trenton Bricken
//! 2019). llama.cpp had it in the past, and older guides use it.
//!
//! The absolute second differences of the descending probabilities, `|p[i] - 2 p[i+1] + p[i+2]|`,
//! are normalised to sum to 1, and candidates are kept until the sum of their differences exceeds
//! z. The sampler takes a sort of all candidates, and one `exp` per candidate.

use std::ffi::CStr;

use crate::algorithms::host_order::HostOrder;
use crate::algorithms::{Scratch, Workspace};
use crate::candidates::Candidates;
use crate::sampler::{About, Sampler, Tell, scratch};
use crate::token::TokenData;

/// Cuts the flat tail of the distribution.
#[derive(Clone, Debug)]
pub struct TailFree {
    z: f32,
    min_keep: usize,
    order: Scratch<HostOrder>,
    work: Scratch<Workspace>,
}

/// The sum of the differences below which the curve counts as straight. Each candidate then has the
/// same weight.
const STRAIGHT: f64 = 1e-6;

impl TailFree {
    /// Returns a sampler that keeps at least `min_keep` candidates, and at least one. `None` if `z`
    /// disables it: `z >= 1`.
    pub fn new(z: f32, min_keep: usize) -> Option<Self> {
        if z >= 1.0 {
            return None;
        }
        Some(Self {
            z,
            min_keep: min_keep.max(1),
            order: Scratch::default(),
            work: Scratch::default(),
        })
    }

    fn kept(&self, data: &[TokenData]) -> usize {
        let bends = || data.windows(3).map(bend);
        let sum: f64 = bends().sum();
        let count = (data.len() - 2) as f64;
        let mut running = 0.0;
        for (i, bend) in bends().enumerate() {
            running += if sum > STRAIGHT {
                bend / sum
            } else {
                1.0 / count
            };
            if running > f64::from(self.z) && i >= self.min_keep {
                return i;
            }
        }
        data.len()
    }
}

/// Returns the absolute second difference of the probabilities of three adjacent candidates.
fn bend(triple: &[TokenData]) -> f64 {
    let &[a, b, c] = triple else {
        return 0.0;
    };
    let [a, b, c] = [a, b, c].map(|candidate| f64::from(candidate.p));
    (a - 2.0 * b + c).abs()
}

impl Sampler for TailFree {
    fn name(&self) -> &'static CStr {
        c"tail-free"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("z", f64::from(self.z));
            to("min_keep", self.min_keep as f64);
        }
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.len() <= 2 {
            return;
        }
        candidates.sort_with_softmax(&mut self.order, &mut self.work);
        let kept = self.kept(candidates.as_slice());
        candidates.truncate(kept);
    }

    scratch!(order, work);
}
