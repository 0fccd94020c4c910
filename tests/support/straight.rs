//! Samples with a chain straight from logits, and reads the candidates that it leaves.

use half::{bf16, f16};
use llama_sieve::TokenData;
use llama_sieve::ffi::chain::*;
use vendor_llama_cpp::sys;

use super::{Array, Grid, HostSampler};

/// Logits in the precision in which a chain gets them.
pub struct Straight<'l> {
    logits: &'l [f32],
    grid: Grid,
    /// The logits in half precision, if the chain gets these.
    halves: Vec<u16>,
}

impl<'l> Straight<'l> {
    /// Returns these logits, which the precision must be able to represent.
    pub fn new(logits: &'l [f32], grid: Grid) -> Self {
        let bits: fn(f32) -> u16 = match grid {
            Grid::F16 => |x| f16::from_f32(x).to_bits(),
            _ => |x| bf16::from_f32(x).to_bits(),
        };
        let is_half = matches!(grid, Grid::F16 | Grid::Bf16);
        let halves = logits.iter().filter(|_| is_half).map(|&x| bits(x));
        Self {
            logits,
            grid,
            halves: halves.collect(),
        }
    }

    /// Returns the token that the chain selects, or an error.
    pub fn sample(&self, chain: &HostSampler) -> i32 {
        let (smpl, n) = (chain.as_ptr().cast(), self.logits.len() as i32);
        // SAFETY: a live chain and `n` logits.
        unsafe {
            match self.grid {
                Grid::F16 => llama_sieve_chain_sample_f16(smpl, self.halves.as_ptr(), n),
                Grid::Bf16 => llama_sieve_chain_sample_bf16(smpl, self.halves.as_ptr(), n),
                _ => chain.sample_logits(self.logits),
            }
        }
    }

    /// Returns the candidates that the chain, which has sampled these logits last, has left of
    /// them, with the other fields of `like`.
    pub fn left(&self, chain: &HostSampler, like: &Array) -> Array {
        let chain = chain.as_ptr().cast();
        let empty = sys::llama_token_data::default();
        // SAFETY: a live chain, whose logits are there; no more are written than there is room for.
        let data = unsafe {
            let n = llama_sieve_chain_candidates(chain, std::ptr::null_mut(), 0);
            let mut data = vec![empty; usize::try_from(n).expect("a number")];
            let out = data.as_mut_ptr().cast::<TokenData>();
            assert_eq!(llama_sieve_chain_candidates(chain, out, data.len()), n);
            data
        };
        Array { data, ..*like }
    }
}

/// Returns the array that a chain of built-ins leaves of these logits; `None` if their behaviour is
/// undefined.
pub fn left_by_built_ins(chain: &HostSampler, logits: &[f32]) -> Option<Array> {
    let mut array = Array::of_logits(logits.iter().copied());
    // SAFETY: this is a chain.
    let n = unsafe { sys::llama_sampler_chain_n(chain.as_ptr()) };
    for i in 0..n as usize {
        if array.data.is_empty() || array.data.iter().any(|c| c.logit.is_nan()) {
            return None;
        }
        chain.apply_member(i, &mut array);
    }
    Some(array)
}
