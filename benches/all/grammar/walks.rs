//! Walks of random tokens through a grammar: our masks along them, and the file by which others go
//! the same way.

use std::path::Path;
use std::ptr::null_mut;

use llama_sieve::ffi::grammar as sieve;
use serde::Serialize;
use vendor_llama_cpp::Model;

use super::{STEPS, ours, step, timed};
use crate::report::Run;
use crate::support::arrays::Rng;

/// Walks that the built-in does not take.
const WALKS: usize = 16;

/// A grammar, the walks through it, and what they took, in nanoseconds.
#[derive(Serialize)]
pub struct Walked {
    pub name: String,
    /// The grammar in GBNF, with the rule `root`.
    pub text: String,
    /// Their tokens.
    pub walks: Vec<Vec<i32>>,
    /// The times of our masks, one for each step, in the order of the walks.
    pub masks_ns: Vec<f64>,
    /// The times of our constructor, for a text that was never seen and for one that was, and the
    /// built-in's.
    pub init_ns: [f64; 3],
    /// The means of ours and of the built-in for the whole array, where the built-in was asked.
    pub apply_ns: Option<[f64; 2]>,
}

#[derive(Serialize)]
struct File {
    title: String,
    n_vocab: usize,
    grammars: Vec<Walked>,
}

/// Writes the file that `hosts/beside_llguidance.py` reads.
pub fn write(path: &Path, model: &Model, grammars: Vec<Walked>) {
    let file = File {
        title: Run::here().title(),
        n_vocab: model.n_vocab(),
        grammars,
    };
    let text = serde_json::to_string(&file).expect("plain data");
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Walks, and the nanoseconds of our mask at each of their steps; the first is of a grammar that
/// was never seen.
pub fn run(model: &Model, text: &str) -> (Vec<Vec<i32>>, Vec<f64>) {
    let unseen = format!("{text}\n# walks\n");
    let ours = ours(model, &unseen);
    let smpl = ours.as_ptr().cast();
    let mut bits = vec![0_u32; model.n_vocab().div_ceil(32)];
    let mut times = Vec::new();
    let walks = (0..WALKS).map(|walk| {
        let mut rng = Rng(100 + walk as u64);
        let mut tokens = Vec::new();
        ours.reset();
        for _ in 0..STEPS {
            // SAFETY: the sampler lives, and nothing is written.
            let mask = || unsafe { sieve::llama_sieve_grammar_mask(smpl, null_mut(), 0) };
            times.push(timed(mask).0);
            // SAFETY: the sampler lives, and that many words are there.
            unsafe { sieve::llama_sieve_grammar_mask(smpl, bits.as_mut_ptr(), bits.len()) };
            let allowed =
                (0..model.n_vocab() as i32).filter(|&t| bits[t as usize / 32] >> (t % 32) & 1 != 0);
            let Some(token) = step(model, allowed, &mut rng) else {
                break;
            };
            ours.accept(token);
            tokens.push(token);
        }
        tokens
    });
    (walks.collect(), times)
}
