//! Random walks of tokens through a grammar: the time of this library's mask at each step, and a
//! file from which other programs can repeat the walks.

use std::path::Path;
use std::ptr::null_mut;

use llama_sieve::ffi::grammar as sieve;
use serde::Serialize;
use vendor_llama_cpp::Model;

use super::{STEPS, ours, step, timed};
use crate::report::Run;
use crate::support::arrays::Rng;

/// The number of walks that only this library takes.
const WALKS: usize = 16;

/// A grammar, the walks through it, and their times in nanoseconds.
#[derive(Serialize)]
pub struct Walked {
    pub name: String,
    /// The grammar in GBNF, with the rule `root`.
    pub text: String,
    /// The tokens of the walks.
    pub walks: Vec<Vec<i32>>,
    /// The time of this library's mask at each step, in the order of the walks.
    pub masks_ns: Vec<f64>,
    /// The times of the constructors: this library's for a text that is new, this library's for a
    /// text that it has seen, and the built-in's.
    pub init_ns: [f64; 3],
    /// The mean times of this library and of the built-in for the whole array, if the built-in was
    /// measured.
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

/// Returns the walks, and the nanoseconds of this library's mask at each step. In the first walk
/// the grammar is new to the library.
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
            // SAFETY: the sampler lives, and there are as many words as the number that is passed.
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
