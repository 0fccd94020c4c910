//! The calls that a host makes to a grammar for one token at a time, compared with the built-in's:
//! to check one candidate, to accept a token, to clone and to free. There is also a chain that
//! begins with a grammar, straight from the logits.

use llama_sieve::ffi::grammar as sieve;
use vendor_llama_cpp::Model;

use super::{STEPS, mean, ours, step, texts, theirs, timed};
use crate::Options;
use crate::chains;
use crate::measure::median;
use crate::report::Measurement;
use crate::samplers::{chain, dist, min_p, temp, top_k, top_p};
use crate::support::arrays::{Rng, peaked};
use crate::support::{Array, HostSampler};

/// The number of walks. Each is repeated [`ROUNDS`] times.
const WALKS: usize = 4;
const ROUNDS: usize = 9;
/// The numbers of checks and of copies that are timed together, since the clock is too coarse for
/// one.
const CHECKS: usize = 16;
const COPIES: usize = 64;

/// The calls that are timed, in the order of their rows.
const NAMES: [&str; 4] = ["one candidate", "accept", "clone", "free"];

/// Reports and returns, for each of [`NAMES`], the medians over all rounds but the first, for this
/// library and for the built-in, in nanoseconds per call.
pub fn rows(
    model: &Model,
    name: &str,
    text: &str,
    row: &mut impl FnMut(&str, f64, f64),
) -> [[f64; 2]; NAMES.len()] {
    let walks: Vec<Vec<i32>> = (0..WALKS).map(|i| walk(model, text, i as u64)).collect();
    let sides = [ours(model, text), theirs(model, text)];
    let mut times: [[Vec<f64>; 2]; NAMES.len()] = Default::default();
    for round in 0..ROUNDS {
        for walk in &walks {
            for (i, side) in sides.iter().enumerate() {
                let of_walk = calls(side, walk);
                // The first round fills the caches that the later rounds use.
                if round > 0 {
                    for (times, time) in times.iter_mut().zip(of_walk) {
                        times[i].push(time);
                    }
                }
            }
        }
    }
    let medians = times.map(|sides| sides.map(median));
    for (what, [ours, theirs]) in NAMES.iter().zip(medians) {
        row(&format!("grammar {name}, {what}"), ours, theirs);
    }
    medians
}

/// Reports the means over all grammars of the results of [`rows`].
pub fn means(all: &[[[f64; 2]; NAMES.len()]], row: &mut impl FnMut(&str, f64, f64)) {
    for (i, what) in NAMES.iter().enumerate() {
        let of_side = |side: usize| mean(&all.iter().map(|of| of[i][side]).collect::<Vec<f64>>());
        let name = format!("all grammars, {what}, mean of medians");
        row(&name, of_side(0), of_side(1));
    }
}

/// Returns a sequence of tokens that the grammar accepts. It is found with a sampler of its own, so
/// that the measured samplers have not seen it.
fn walk(model: &Model, text: &str, seed: u64) -> Vec<i32> {
    let other = ours(model, &format!("{text}\n# tokens\n"));
    let mut bits = vec![0_u32; model.n_vocab().div_ceil(32)];
    let mut rng = Rng(900 + seed);
    let mut tokens = Vec::new();
    for _ in 0..STEPS {
        // SAFETY: the sampler lives, and there are as many words as the number that is passed.
        unsafe {
            let smpl = other.as_ptr().cast();
            sieve::llama_sieve_grammar_mask(smpl, bits.as_mut_ptr(), bits.len());
        }
        let is_set = |token: &i32| bits[*token as usize / 32] >> (token % 32) & 1 != 0;
        let allowed = (0..model.n_vocab() as i32).filter(is_set);
        let Some(token) = step(model, allowed, &mut rng) else {
            break;
        };
        other.accept(token);
        tokens.push(token);
    }
    tokens
}

/// Returns the nanoseconds of each kind of call along a walk.
fn calls(side: &HostSampler, walk: &[i32]) -> [f64; NAMES.len()] {
    let mut times = [0.0; NAMES.len()];
    side.reset();
    for &token in walk {
        let mut one = Array::of_logits([1.0]);
        one.data[0].id = token;
        times[0] += timed(|| (0..CHECKS).for_each(|_| side.apply(&mut one))).0 / CHECKS as f64;
        assert_eq!(one.data[0].logit, 1.0, "a token of the walk is allowed");
        side.accept(token);
    }
    side.reset();
    times[1] = timed(|| walk.iter().for_each(|&token| side.accept(token))).0;
    let (clone, copies) = timed(|| (0..COPIES).map(|_| side.clone()).collect::<Vec<_>>());
    let (free, ()) = timed(|| drop(copies));
    let n = walk.len().max(1) as f64;
    [
        times[0] / n,
        times[1] / n,
        clone / COPIES as f64,
        free / COPIES as f64,
    ]
}

/// The points at which the chain samples: the name of each, and the text that was accepted before
/// it.
const PLACES: [(&str, &str); 3] = [
    ("at the begin of JSON", ""),
    ("in a string of JSON", "{\"name\": \"a"),
    ("behind a key of JSON", "{\"name\": "),
];

/// Measures a chain of a grammar and the usual samplers, straight from the logits. The grammar's
/// mask is already in its cache.
pub fn fused(model: &Model, options: &Options, done: &mut dyn FnMut(Measurement)) {
    let n = model.n_vocab();
    let input = peaked(n, &mut Rng(71));
    let logits = input.logits();
    for (place, text) in PLACES {
        let name = format!("from logits: grammar {place}, top_k, top_p, min_p, temp, dist");
        if !options.wants(&name) {
            continue;
        }
        let grammar = [ours(model, texts::JSON), theirs(model, texts::JSON)];
        for byte in text.bytes() {
            let is_byte = |token: &i32| model.piece(*token) == [byte];
            let token = (0..n as i32).find(is_byte).expect("each byte is a token");
            grammar.iter().for_each(|side| side.accept(token));
        }
        let sides = chain([grammar, top_k(40), top_p(), min_p(), temp(), dist()]);
        let us = chains::measure(&sides, &name, &logits, options.budget());
        done(Measurement::of_us("grammar", &name, (n, "peaked"), us));
    }
}
