//! Tests the sieve: its invariants, parameters, draws and state, and its parity with llama.cpp's
//! chain.

mod beside;
mod between_tokens;
mod draws;
mod invariants;
mod numbers;
mod parameters;
mod parity;
mod sizes;
mod slots;
mod stages;
mod states;
#[path = "../support/mod.rs"]
mod support;

use llama_sieve::sieve::{Params, Sieve};
use support::arrays::{Rng, Shape};

const INF: f32 = f32::INFINITY;

/// Returns parameters with every stage switched off: every token of the vocabulary is a candidate,
/// with its softmax probability.
fn open() -> Params {
    Params {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        penalty_repeat: 1.0,
        seed: 1,
        ..Params::default()
    }
}

fn new(params: &Params) -> Sieve {
    Sieve::new(params).expect("valid parameters")
}

fn logits(shape: Shape, n: usize, rng: &mut Rng) -> Vec<f32> {
    shape.array(n, rng).logits()
}
