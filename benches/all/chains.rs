//! Whole chains straight from the logits, compared with a host that fills the candidate array and
//! applies the chain of built-ins. For cuts and transformations that llama.cpp does not have, the
//! comparison is with the same chain without them.

use std::time::Instant;

use half::bf16;
use llama_sieve::ffi::chain::llama_sieve_chain_sample_batch;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::samplers::{
    llama_sieve_init_epsilon_cutoff, llama_sieve_init_eta_cutoff, llama_sieve_init_min_k,
    llama_sieve_init_p_less, llama_sieve_init_quadratic, llama_sieve_init_top_a,
    llama_sieve_init_top_h,
};
use llama_sieve::kernels::logits::Logits;
use vendor_llama_cpp::sys;

use crate::Options;
use crate::measure::{fill, median, thread_time};
use crate::report::Measurement;
use crate::samplers::{SEED, chain, dist, input, min_p, penalties, temp, top_k, top_p};
use crate::support::HostSampler;
use crate::support::both;

/// A row of the table: its name, and the function that makes both chains for a vocabulary.
pub struct Row {
    pub name: &'static str,
    pub make: fn(n_vocab: i32) -> [HostSampler; 2],
}

/// Returns penalties that are switched off, which llama.cpp's own programs put in front of top-k by
/// default.
fn disabled_penalties(n: i32) -> [HostSampler; 2] {
    both!(llama_sieve_init_penalties, llama_sampler_init_penalties; n, 64, 1.0, 0.0, 0.0)
}

fn disabled_typical() -> [HostSampler; 2] {
    both!(llama_sieve_init_typical, llama_sampler_init_typical; 1.0, 1)
}

fn sigma(n: f32) -> [HostSampler; 2] {
    both!(llama_sieve_init_top_n_sigma, llama_sampler_init_top_n_sigma; n)
}

fn temp_ext() -> [HostSampler; 2] {
    both!(llama_sieve_init_temp_ext, llama_sampler_init_temp_ext; 0.8, 0.3, 1.0)
}

fn xtc(probability: f32) -> [HostSampler; 2] {
    both!(llama_sieve_init_xtc, llama_sampler_init_xtc; probability, 0.1, 1, SEED)
}

fn typical() -> [HostSampler; 2] {
    both!(llama_sieve_init_typical, llama_sampler_init_typical; 0.9, 1)
}

/// Returns llama.cpp's default chain with these penalties and this XTC, and without DRY.
fn default_chain(penalties: [HostSampler; 2], xtc: [HostSampler; 2]) -> [HostSampler; 2] {
    chain([
        penalties,
        sigma(-1.0),
        top_k(40),
        disabled_typical(),
        top_p(),
        min_p(),
        xtc,
        temp(),
        dist(),
    ])
}

/// Returns two chains of this library's samplers: one with a cut between `before` and `behind`, and
/// one without it.
fn beside(
    before: Vec<[HostSampler; 2]>,
    cut: *mut llama_sampler,
    behind: Vec<[HostSampler; 2]>,
) -> [HostSampler; 2] {
    let [before, behind] = [before, behind].map(|samplers| {
        let ours = samplers.into_iter().map(|[ours, _]| ours);
        ours.collect::<Vec<HostSampler>>()
    });
    let without = [before.clone(), behind.clone()].concat();
    let with = [before, vec![HostSampler::new(cut)], behind].concat();
    [with, without].map(HostSampler::chain)
}

/// Makes two rows for each cut or transformation: one in which it comes between a top-k and the
/// draw, and one in which it comes before temperature and draw.
macro_rules! cuts {
    ($($name:literal: $make:expr,)*) => {
        [$(
            Row {
                name: concat!("top_k 40, ", $name, ", dist"),
                make: |_| beside(vec![top_k(40)], $make, vec![dist()]),
            },
            Row {
                name: concat!($name, ", temp, dist"),
                make: |_| beside(vec![], $make, vec![temp(), dist()]),
            },
        )*]
    };
}

/// Rows of the cuts, and of the quadratic transformation, that llama.cpp does not have.
pub const CUTS: [Row; 14] = cuts! {
    "p_less": llama_sieve_init_p_less(false),
    "top_a": llama_sieve_init_top_a(0.2),
    "epsilon_cutoff": llama_sieve_init_epsilon_cutoff(3e-4),
    "eta_cutoff": llama_sieve_init_eta_cutoff(3e-4),
    "quadratic": llama_sieve_init_quadratic(0.2, 1.0),
    "top_h": llama_sieve_init_top_h(0.4),
    "min_k": llama_sieve_init_min_k(0.0),
};

const ROWS: [Row; 18] = [
    Row {
        name: "from logits: default chain",
        make: |n| default_chain(disabled_penalties(n), xtc(0.0)),
    },
    Row {
        name: "from logits: default chain with penalties",
        make: |n| default_chain(penalties(n), xtc(0.0)),
    },
    Row {
        name: "from logits: default chain with xtc",
        make: |n| default_chain(disabled_penalties(n), xtc(0.5)),
    },
    Row {
        name: "from logits: greedy",
        make: |_| both!(llama_sieve_init_greedy, llama_sampler_init_greedy),
    },
    Row {
        name: "from logits: min_p, temp, dist",
        make: |_| chain([min_p(), temp(), dist()]),
    },
    Row {
        name: "from logits: top_p, dist",
        make: |_| chain([top_p(), dist()]),
    },
    Row {
        name: "from logits: top_p, temp, dist",
        make: |_| chain([top_p(), temp(), dist()]),
    },
    Row {
        name: "from logits: top_p, min_p, temp, dist",
        make: |_| chain([top_p(), min_p(), temp(), dist()]),
    },
    Row {
        name: "from logits: top_k 40, dist",
        make: |_| chain([top_k(40), dist()]),
    },
    Row {
        name: "from logits: temp, dist",
        make: |_| chain([temp(), dist()]),
    },
    Row {
        name: "from logits: xtc, dist",
        make: |_| chain([xtc(0.5), dist()]),
    },
    Row {
        name: "from logits: xtc that always acts, dist",
        make: |_| chain([xtc(1.0), dist()]),
    },
    Row {
        name: "from logits: temp_ext, dist",
        make: |_| chain([temp_ext(), dist()]),
    },
    Row {
        name: "from logits: top_n_sigma, temp, dist",
        make: |_| chain([sigma(1.0), temp(), dist()]),
    },
    Row {
        name: "from logits: adaptive_p",
        make: |_| both!(llama_sieve_init_adaptive_p, llama_sampler_init_adaptive_p; 0.3, 0.9, SEED),
    },
    Row {
        name: "from logits: typical, dist",
        make: |_| chain([typical(), dist()]),
    },
    Row {
        name: "from logits: mirostat 2",
        make: |_| both!(llama_sieve_init_mirostat_v2, llama_sampler_init_mirostat_v2; SEED, 5.0, 0.1),
    },
    Row {
        name: "from logits: top_k 1000, top_p, dist",
        make: |_| chain([top_k(1000), top_p(), dist()]),
    },
];

/// Measures every row on every input.
pub fn run(options: &Options, done: &mut dyn FnMut(Measurement)) {
    let sizes: &[usize] = if options.quick {
        &[128_256]
    } else {
        &[32_000, 128_256, 151_936, 262_144]
    };
    let sizes = options.size.as_ref().map_or(sizes, std::slice::from_ref);
    for &n in sizes {
        for (shape, logits) in shapes(n) {
            if !options.wants_shape(shape) {
                continue;
            }
            for row in ROWS.iter().filter(|row| options.wants(row.name)) {
                let sides = (row.make)(n as i32);
                let us = measure(&sides, row.name, &logits, options.budget());
                done(Measurement::of_us("chains", row.name, (n, shape), us));
            }
            slots(&logits, shape, options, done);
            copies(&logits, shape, options, done);
        }
    }
}

/// Measures every row of [`CUTS`] on all shapes of one size.
pub fn run_cuts(options: &Options, done: &mut dyn FnMut(Measurement)) {
    let n = options.size.unwrap_or(128_256);
    for (shape, logits) in shapes(n) {
        let rows = CUTS.iter().filter(|row| options.wants(row.name));
        for row in rows.filter(|_| options.wants_shape(shape)) {
            let us = measure_both(&(row.make)(n as i32), &logits, options.budget());
            done(Measurement::of_us("cuts", row.name, (n, shape), us));
        }
    }
}

/// Measures the copies that speculative decoding makes of a chain at every verification: the chain
/// is cloned, the state of the clone is copied back, and the clone is freed. Sampling is not timed.
/// It takes place so that the chain has buffers.
fn copies(logits: &[f32], shape: &str, options: &Options, done: &mut dyn FnMut(Measurement)) {
    let n = logits.len();
    for (name, make) in COPIED {
        if !options.wants(name) {
            continue;
        }
        let chains = make(n as i32);
        let mut array = Vec::with_capacity(n);
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < options.budget() || times[0].len() < 7 {
            for (i, (chain, times)) in chains.iter().zip(&mut times).enumerate() {
                let token = match i {
                    0 => chain.sample_logits(logits),
                    _ => host_path(chain, logits, &mut array),
                };
                chain.accept(token);
                let start = thread_time();
                let copy = chain.clone();
                // SAFETY: both are chains of equal members.
                unsafe { sys::llama_sampler_copy(copy.as_ptr(), chain.as_ptr()) };
                drop(copy);
                times.push(thread_time() - start);
            }
            times[2].push(floor(logits));
        }
        let us = times.map(median);
        done(Measurement::of_us("chains", name, (n, shape), us));
    }
}

type Made = fn(i32) -> [HostSampler; 2];

/// The chains that [`copies`] measures.
const COPIED: [(&str, Made); 2] = [
    (
        "clone, copy, free: default chain with penalties and xtc",
        |n| default_chain(penalties(n), xtc(0.5)),
    ),
    ("clone, copy, free: typical, top_p, dist", |_| {
        chain([typical(), top_p(), dist()])
    }),
];

fn shapes(n: usize) -> [(&'static str, Vec<f32>); 4] {
    let logits = |peaked: bool| input(n, peaked).logits();
    let rounded = |peaked: bool| -> Vec<f32> {
        let round = |x: f32| bf16::from_f32(x).to_f32();
        logits(peaked).into_iter().map(round).collect()
    };
    [
        ("peaked", logits(true)),
        ("flat", logits(false)),
        ("bf16 peaked", rounded(true)),
        ("bf16 flat", rounded(false)),
    ]
}

/// Returns the microseconds of one maximum over the logits, immediately after another one, so that
/// the caches hold the same part of the logits in each row.
fn floor(logits: &[f32]) -> f64 {
    let pass = || std::hint::black_box(Logits::F32(std::hint::black_box(logits)).max());
    pass();
    let start = thread_time();
    pass();
    thread_time() - start
}

/// Samples on a host's path: fills the candidate array from the logits, and applies the chain.
fn host_path(
    chain: &HostSampler,
    logits: &[f32],
    array: &mut Vec<sys::llama_token_data>,
) -> sys::llama_token {
    fill(array, logits);
    let mut raw = sys::llama_token_data_array {
        data: array.as_mut_ptr(),
        size: array.len(),
        selected: -1,
        sorted: false,
    };
    // SAFETY: the chain lives, the array is valid, and the choice is one of its candidates.
    unsafe {
        sys::llama_sampler_apply(chain.as_ptr(), &raw mut raw);
        (*raw.data.add(raw.selected as usize)).id
    }
}

/// Returns the medians, in microseconds, of this library, of the host and of one maximum. They take
/// turns for `budget` seconds, and at least 7 times. Every pair of tokens is compared.
///
/// This library runs immediately after the host, which leaves as little of the logits in the caches
/// as a forward pass does. The maximum would load them into the caches, so each round times either
/// this library or the maximum.
pub fn measure(
    [ours, theirs]: &[HostSampler; 2],
    name: &str,
    logits: &[f32],
    budget: f64,
) -> [f64; 3] {
    let mut array = Vec::with_capacity(logits.len());
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < budget || times[2].len() < 7 {
        let start = thread_time();
        let expected = host_path(theirs, logits, &mut array);
        times[1].push(thread_time() - start);
        let alone = times[0].len() > times[2].len();
        if alone {
            times[2].push(floor(logits));
        }
        let start = thread_time();
        let token = ours.sample_logits(logits);
        if !alone {
            times[0].push(thread_time() - start);
        }
        assert_eq!(token, expected, "{name}");
    }
    times.map(median)
}

/// Returns the medians, in microseconds, of two chains of this library and of one maximum. They
/// take turns for `budget` seconds, and at least 7 times.
fn measure_both(sides: &[HostSampler; 2], logits: &[f32], budget: f64) -> [f64; 3] {
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < budget || times[2].len() < 7 {
        for (side, times) in sides.iter().zip(&mut times) {
            let start = thread_time();
            side.sample_logits(logits);
            times.push(thread_time() - start);
        }
        times[2].push(floor(logits));
    }
    times.map(median)
}

/// Measures the default chain for the 32 slots of a server, each with logits of its own.
fn slots(logits: &[f32], shape: &str, options: &Options, done: &mut dyn FnMut(Measurement)) {
    const SLOTS: usize = 32;
    let n = logits.len();
    for threads in [1, 2] {
        let name = format!("from logits: default chain, 32 slots, {threads} threads");
        if !options.wants(&name) {
            continue;
        }
        let all: Vec<Vec<f32>> = (0..SLOTS)
            .map(|i| {
                let mut logits = logits.to_vec();
                logits.rotate_left(i);
                logits
            })
            .collect();
        let pointers: Vec<*const f32> = all.iter().map(|logits| logits.as_ptr()).collect();
        let make = |_| default_chain(disabled_penalties(n as i32), xtc(0.0));
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..SLOTS)
            .map(make)
            .map(|[ours, theirs]| (ours, theirs))
            .unzip();
        let chains: Vec<_> = ours.iter().map(|chain| chain.as_ptr().cast()).collect();
        let mut array = Vec::with_capacity(n);
        let mut out = vec![0; SLOTS];
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < options.budget() || times[0].len() < 7 {
            // The wall clock, since several threads work.
            let start = Instant::now();
            // SAFETY: live chains, as many logits and room for as many tokens.
            let code = unsafe {
                llama_sieve_chain_sample_batch(
                    chains.as_ptr(),
                    pointers.as_ptr(),
                    n as i32,
                    SLOTS,
                    out.as_mut_ptr(),
                    threads,
                )
            };
            times[0].push(start.elapsed().as_secs_f64() * 1e6 / SLOTS as f64);
            assert_eq!(code, 0, "{name}");
            let start = Instant::now();
            let tokens = theirs.iter().zip(&all);
            let expected: Vec<_> = tokens
                .map(|(chain, logits)| host_path(chain, logits, &mut array))
                .collect();
            times[1].push(start.elapsed().as_secs_f64() * 1e6 / SLOTS as f64);
            assert_eq!(out, expected, "{name}");
            times[2].extend(all.iter().map(|logits| floor(logits)));
        }
        let us = times.map(median);
        done(Measurement::of_us("chains", &name, (n, shape), us));
    }
}
