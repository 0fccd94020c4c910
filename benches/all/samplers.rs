//! Most drop-ins compared with their built-ins, on candidate arrays of several sizes, and on logits
//! of the trained model.
//!
//! The copy of the array is not timed. It leaves as much of the array in the caches as a host's
//! loop that builds the array does.

use std::collections::HashSet;
use std::time::Instant;

use vendor_llama_cpp::{Context, Model, sys};

use crate::Options;
use crate::measure::{floor, median, thread_time};
use crate::report::Measurement;
use crate::support::arrays::Rng;
use crate::support::compare::same;
use crate::support::orders::{bulk, peaks};
use crate::support::{Array, HostSampler, both, trained_model};

/// A row of the table: its name, and the function that makes both samplers for a vocabulary.
pub struct Row {
    pub name: &'static str,
    pub make: fn(n_vocab: i32) -> [HostSampler; 2],
}

pub const SEED: u32 = 42;

pub fn chain<const N: usize>(members: [[HostSampler; 2]; N]) -> [HostSampler; 2] {
    let mut sides = [Vec::new(), Vec::new()];
    for [ours, theirs] in members {
        sides[0].push(ours);
        sides[1].push(theirs);
    }
    sides.map(HostSampler::chain)
}

pub fn top_k(k: i32) -> [HostSampler; 2] {
    both!(llama_sieve_init_top_k, llama_sampler_init_top_k; k)
}

pub fn top_p() -> [HostSampler; 2] {
    both!(llama_sieve_init_top_p, llama_sampler_init_top_p; 0.95, 1)
}

pub fn min_p() -> [HostSampler; 2] {
    both!(llama_sieve_init_min_p, llama_sampler_init_min_p; 0.05, 1)
}

pub fn temp() -> [HostSampler; 2] {
    both!(llama_sieve_init_temp, llama_sampler_init_temp; 0.8)
}

pub fn dist() -> [HostSampler; 2] {
    both!(llama_sieve_init_dist, llama_sampler_init_dist; SEED)
}

/// Returns penalties with a full window.
pub fn penalties(n: i32) -> [HostSampler; 2] {
    let sides =
        both!(llama_sieve_init_penalties, llama_sampler_init_penalties; n, 64, 1.1, 0.1, 0.1);
    for i in 0..64 {
        for side in &sides {
            side.accept(i * 997 % n);
        }
    }
    sides
}

pub const ROWS: &[Row] = &[
    row("greedy", |_| {
        both!(llama_sieve_init_greedy, llama_sampler_init_greedy)
    }),
    row("dist", |_| dist()),
    row("top_k(40)", |_| top_k(40)),
    row("top_k(1000)", |_| top_k(1000)),
    row("top_p(.95)", |_| top_p()),
    row("min_p(.05)", |_| min_p()),
    Row {
        name: "typical(.9)",
        make: |_| both!(llama_sieve_init_typical, llama_sampler_init_typical; 0.9, 1),
    },
    row("temp(.8)", |_| temp()),
    row(
        "temp_ext(.8, .3, 1)",
        |_| both!(llama_sieve_init_temp_ext, llama_sampler_init_temp_ext; 0.8, 0.3, 1.0),
    ),
    row(
        "xtc(1, .1)",
        |_| both!(llama_sieve_init_xtc, llama_sampler_init_xtc; 1.0, 0.1, 1, SEED),
    ),
    row(
        "top_n_sigma(1)",
        |_| both!(llama_sieve_init_top_n_sigma, llama_sampler_init_top_n_sigma; 1.0),
    ),
    row(
        "mirostat(5, .1, 100)",
        |n| both!(llama_sieve_init_mirostat, llama_sampler_init_mirostat; n, SEED, 5.0, 0.1, 100),
    ),
    row(
        "mirostat_v2(5, .1)",
        |_| both!(llama_sieve_init_mirostat_v2, llama_sampler_init_mirostat_v2; SEED, 5.0, 0.1),
    ),
    row(
        "adaptive_p(.5, .9)",
        |_| both!(llama_sieve_init_adaptive_p, llama_sampler_init_adaptive_p; 0.5, 0.9, SEED),
    ),
    row("penalties(64)", penalties),
    row("chain: top_k 40, top_p, min_p, temp, dist", |_| {
        chain([top_k(40), top_p(), min_p(), temp(), dist()])
    }),
    row(
        "chain: penalties, top_k 40, top_p, min_p, temp, dist",
        |n| chain([penalties(n), top_k(40), top_p(), min_p(), temp(), dist()]),
    ),
    row("chain: min_p, temp, dist", |_| {
        chain([min_p(), temp(), dist()])
    }),
    row("chain: top_p, temp, dist", |_| {
        chain([top_p(), temp(), dist()])
    }),
];

pub const fn row(name: &'static str, make: fn(i32) -> [HostSampler; 2]) -> Row {
    Row { name, make }
}

/// The medians of both sides, in microseconds.
pub struct Measured {
    pub ours: f64,
    pub theirs: f64,
}

/// Measures both samplers of a row on copies of `input`, after a check that their results are
/// equal.
pub fn measure(row: &Row, input: &Array, budget: f64) -> Measured {
    let [ours, theirs] = (row.make)(input.data.len() as i32);
    check(row, [&ours, &theirs], input);
    let mut scratch = Vec::new();
    measure_in_turn(budget, |side| {
        time([&ours, &theirs][side], input, &mut scratch)
    })
}

/// The state of a thread's memory before a sampler processes its first array.
#[derive(Clone, Copy)]
pub enum Before {
    /// The thread has used and freed the buffers of other samplers.
    Others,
    /// The thread has used and freed the buffers of other samplers, and the host has then returned
    /// free memory to the system.
    OthersTrimmed,
    /// The thread has used no sampler, and has no free memory.
    Nothing,
}

/// Measures new samplers on their first array, on a thread whose memory is in the state `before`.
pub fn measure_new(row: &Row, input: &Array, budget: f64, before: Before) -> Measured {
    let n = input.data.len();
    let mut array = Vec::new();
    let mut time = |side| {
        let [ours, theirs] = (row.make)(n as i32);
        let sampler = if side == 0 { ours } else { theirs };
        array.clear();
        array.extend_from_slice(&input.data);
        if !matches!(before, Before::Others) {
            // SAFETY: the function has no preconditions.
            unsafe { libc::malloc_trim(0) };
        }
        time_of(&sampler, &mut array, n)
    };
    measure_in_turn(budget, |side| match before {
        Before::Others | Before::OthersTrimmed => time(side),
        Before::Nothing => std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // A thread that has computed anything before has touched its stack.
                std::hint::black_box([0u8; 64 * 1024]);
                time(side)
            });
            thread.join().expect("no panic")
        }),
    })
}

/// Checks that both samplers have the same effect on an array.
fn check(row: &Row, [ours, theirs]: [&HostSampler; 2], input: &Array) {
    let (mut a, mut b) = (input.clone(), input.clone());
    ours.apply(&mut a);
    theirs.apply(&mut b);
    if let Err(difference) = same(&a, &b) {
        panic!("{}: the two sides differ: {difference}", row.name);
    }
}

/// Returns the medians of the results of `time` for each side. The sides take turns for `budget`
/// seconds, and at least 7 times.
fn measure_in_turn(budget: f64, mut time: impl FnMut(usize) -> f64) -> Measured {
    let mut times = [Vec::new(), Vec::new()];
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < budget || times[0].len() < 7 {
        for (side, times) in times.iter_mut().enumerate() {
            times.push(time(side));
        }
    }
    let [ours, theirs] = times.map(median);
    Measured { ours, theirs }
}

/// Returns the microseconds of one `apply` to each of the arrays of `n` candidates in `data`, in
/// total.
fn time_of(sampler: &HostSampler, data: &mut [sys::llama_token_data], n: usize) -> f64 {
    let start = thread_time();
    for array in data.chunks_exact_mut(n) {
        let mut raw = sys::llama_token_data_array {
            data: array.as_mut_ptr(),
            size: n,
            selected: -1,
            sorted: false,
        };
        // SAFETY: the sampler lives, the array is valid.
        unsafe { sys::llama_sampler_apply(sampler.as_ptr(), &raw mut raw) };
    }
    thread_time() - start
}

/// Returns the microseconds of one `apply` to a fresh copy. With small arrays many calls are timed
/// together, since the clock is too coarse for one.
fn time(sampler: &HostSampler, input: &Array, scratch: &mut Vec<sys::llama_token_data>) -> f64 {
    let n = input.data.len();
    let repeats = (4000 / n).max(1);
    scratch.clear();
    for _ in 0..repeats {
        scratch.extend_from_slice(&input.data);
    }
    time_of(sampler, scratch, n) / repeats as f64
}

/// Returns logits distributed as those of a language model, with a few that stand out if `peaked`
/// is true.
pub fn input(n: usize, peaked: bool) -> Array {
    let mut rng = Rng(n as u64);
    let logits = bulk(n, &mut rng);
    Array::of_logits(match peaked {
        true => peaks(logits, &mut rng),
        false => logits,
    })
}

/// Returns every shape of `n` candidates that is measured.
fn shapes(n: usize) -> Vec<(&'static str, Array)> {
    let (peaked, flat) = (input(n, true), input(n, false));
    let value = |logit: fn(usize) -> f32| Array::of_logits((0..n).map(logit));
    vec![
        ("distinct", distinct(&peaked)),
        ("bf16 peaked", rounded(&peaked)),
        ("bf16 flat", rounded(&flat)),
        ("peaked", peaked),
        ("flat", flat),
        ("all equal", value(|_| 1.0)),
        ("two values", value(|i| (i * 7919 % 1009 / 505) as f32)),
        ("alternating", value(|i| (i % 2) as f32)),
        ("descending", value(|i| -(i as f32) / 1e4)),
    ]
}

/// Returns the array with distinct logits: a logit that occurred before is replaced by the next
/// larger float that has not.
fn distinct(array: &Array) -> Array {
    let mut taken = HashSet::new();
    let logits = array.data.iter().map(|candidate| {
        let mut logit = candidate.logit;
        while !taken.insert(logit.to_bits()) {
            logit = logit.next_up();
        }
        logit
    });
    let logits: Vec<f32> = logits.collect();
    assert_eq!(taken.len(), logits.len(), "no two are alike");
    Array::of_logits(logits)
}

/// Returns the array with its logits rounded to bfloat16, as a device that computes in bfloat16
/// would.
fn rounded(array: &Array) -> Array {
    let logits = array.data.iter().map(|candidate| candidate.logit);
    Array::of_logits(logits.map(|logit| half::bf16::from_f32(logit).to_f32()))
}

/// Returns the logits that the trained model gives after some words.
fn recorded() -> Array {
    let model = Model::load(trained_model()).expect("the model loads");
    let prompt = model.tokenize("In the beginning God created the", true);
    let mut context = Context::new(&model, prompt.len() as u32, 1).expect("a context");
    context.decode(&prompt).expect("the prompt fits");
    Array::of_logits(context.logits().iter().copied())
}

/// Measures every row on every input.
pub fn run(options: &Options, done: &mut dyn FnMut(Measurement)) {
    let sizes: &[usize] = if options.quick {
        &[128_256]
    } else {
        &[40, 1000, 32_000, 128_256, 151_936, 262_144]
    };
    let sizes = options.size.as_ref().map_or(sizes, std::slice::from_ref);
    for &n in sizes {
        let shapes = shapes(n).into_iter();
        for (shape, input) in shapes.filter(|(name, _)| options.wants_shape(name)) {
            rows(&input, shape, options, done);
        }
    }
    if options.size.is_none() && !options.quick && options.wants_shape("recorded") {
        rows(&recorded(), "recorded", options, done);
    }
}

fn rows(input: &Array, shape: &str, options: &Options, done: &mut dyn FnMut(Measurement)) {
    let floor = floor(input);
    for row in ROWS.iter().filter(|row| options.wants(row.name)) {
        let Measured { ours, theirs } = measure(row, input, options.budget());
        let (input, us) = ((input.data.len(), shape), [ours, theirs, floor]);
        done(Measurement::of_us("samplers", row.name, input, us));
    }
}
