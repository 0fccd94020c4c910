//! Every drop-in beside its built-in, on candidate arrays of a vocabulary's size: a Markdown table of medians and ratios.
//!
//! `cargo bench --bench samplers`: sizes 40, 1,000, 32,000, 128,256 and 262,144; `-- --quick`: 128,256 with fewer rounds, under a minute. `--only NAME`
//! measures the rows whose name contains NAME, `--size N` arrays of N candidates.
//!
//! Each row first checks that both sides give the same, then alternates them in one process on fresh copies of the same array. The copy is outside the
//! timed part, and so is what other programs take of the processor; it leaves the array as warm as a host's loop that builds it. "floor" is the library's own maximum over the array, the least that a pass
//! costs. At the end: how often a shortcut had to give way to the built-in's own order of operations.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use llama_sieve::ffi::samplers as sieve;
use llama_sieve::kernels::fallbacks::Fallback;
use llama_sieve::{TokenData, kernels};
use support::arrays::Rng;
use support::compare::{Order, same};
use support::{Array, HostSampler};
use vendor_llama_cpp::sys;

/// A row of the table: a name, how to make both sides for a vocabulary, and how their outputs are compared.
struct Row {
    name: &'static str,
    make: fn(n_vocab: i32) -> [HostSampler; 2],
    order: Order,
}

const SEED: u32 = 42;

/// Both sides of a constructor with the same arguments.
macro_rules! both {
    ($ours:ident, $theirs:ident $(, $argument:expr)*) => {
        [
            HostSampler::new(sieve::$ours($($argument),*)),
            // SAFETY: a constructor without preconditions.
            HostSampler::new(unsafe { sys::$theirs($($argument),*) }),
        ]
    };
}

fn chain<const N: usize>(members: [[HostSampler; 2]; N]) -> [HostSampler; 2] {
    let mut sides = [Vec::new(), Vec::new()];
    for [ours, theirs] in members {
        sides[0].push(ours);
        sides[1].push(theirs);
    }
    sides.map(HostSampler::chain)
}

fn top_k(k: i32) -> [HostSampler; 2] {
    both!(llama_sieve_init_top_k, llama_sampler_init_top_k, k)
}

fn top_p() -> [HostSampler; 2] {
    both!(llama_sieve_init_top_p, llama_sampler_init_top_p, 0.95, 1)
}

fn min_p() -> [HostSampler; 2] {
    both!(llama_sieve_init_min_p, llama_sampler_init_min_p, 0.05, 1)
}

fn temp() -> [HostSampler; 2] {
    both!(llama_sieve_init_temp, llama_sampler_init_temp, 0.8)
}

fn dist() -> [HostSampler; 2] {
    both!(llama_sieve_init_dist, llama_sampler_init_dist, SEED)
}

/// Penalties with a full window.
fn penalties(n: i32) -> [HostSampler; 2] {
    let sides = both!(
        llama_sieve_init_penalties,
        llama_sampler_init_penalties,
        n,
        64,
        1.1,
        0.1,
        0.1
    );
    for i in 0..64 {
        for side in &sides {
            side.accept(i * 997 % n);
        }
    }
    sides
}

const ROWS: &[Row] = &[
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
        make: |_| both!(llama_sieve_init_typical, llama_sampler_init_typical, 0.9, 1),
        order: Order::Entropy,
    },
    row("temp(.8)", |_| temp()),
    row("temp_ext(.8, .3, 1)", |_| {
        both!(
            llama_sieve_init_temp_ext,
            llama_sampler_init_temp_ext,
            0.8,
            0.3,
            1.0
        )
    }),
    row("xtc(1, .1)", |_| {
        both!(
            llama_sieve_init_xtc,
            llama_sampler_init_xtc,
            1.0,
            0.1,
            1,
            SEED
        )
    }),
    row("top_n_sigma(1)", |_| {
        both!(
            llama_sieve_init_top_n_sigma,
            llama_sampler_init_top_n_sigma,
            1.0
        )
    }),
    row("mirostat(5, .1, 100)", |n| {
        both!(
            llama_sieve_init_mirostat,
            llama_sampler_init_mirostat,
            n,
            SEED,
            5.0,
            0.1,
            100
        )
    }),
    row("mirostat_v2(5, .1)", |_| {
        both!(
            llama_sieve_init_mirostat_v2,
            llama_sampler_init_mirostat_v2,
            SEED,
            5.0,
            0.1
        )
    }),
    row("adaptive_p(.5, .9)", |_| {
        both!(
            llama_sieve_init_adaptive_p,
            llama_sampler_init_adaptive_p,
            0.5,
            0.9,
            SEED
        )
    }),
    row("penalties(64)", penalties),
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

const fn row(name: &'static str, make: fn(i32) -> [HostSampler; 2]) -> Row {
    Row {
        name,
        make,
        order: Order::Logit,
    }
}

/// Microseconds, medians.
struct Measured {
    ours: f64,
    theirs: f64,
}

/// Measures until `budget` seconds are over, but at least 7 rounds.
fn measure(row: &Row, input: &Array, budget: f64) -> Measured {
    let [ours, theirs] = (row.make)(input.data.len() as i32);
    let (mut a, mut b) = (input.clone(), input.clone());
    ours.apply(&mut a);
    theirs.apply(&mut b);
    if let Err(difference) = same(input, &a, &b, row.order) {
        panic!("{}: the two sides differ: {difference}", row.name);
    }
    let mut scratch = Vec::new();
    let mut times = [Vec::new(), Vec::new()];
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < budget || times[0].len() < 7 {
        for (side, times) in [&ours, &theirs].into_iter().zip(&mut times) {
            times.push(time(side, input, &mut scratch));
        }
    }
    let [ours, theirs] = times.map(median);
    Measured { ours, theirs }
}

/// Microseconds of one `apply` on a fresh copy. Small arrays are repeated, since the clock is too coarse for one.
fn time(sampler: &HostSampler, input: &Array, scratch: &mut Vec<sys::llama_token_data>) -> f64 {
    let n = input.data.len();
    let repeats = (4000 / n).max(1);
    scratch.clear();
    for _ in 0..repeats {
        scratch.extend_from_slice(&input.data);
    }
    let start = thread_time();
    for copy in scratch.chunks_exact_mut(n) {
        let mut raw = sys::llama_token_data_array {
            data: copy.as_mut_ptr(),
            size: n,
            selected: -1,
            sorted: false,
        };
        // SAFETY: the sampler lives, the array is valid.
        unsafe { sys::llama_sampler_apply(sampler.as_ptr(), &raw mut raw) };
    }
    (thread_time() - start) / repeats as f64
}

/// Microseconds that this thread has run: what other programs take of the machine does not count.
fn thread_time() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written to a valid place.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// The library's maximum over the array.
fn floor(input: &Array) -> f64 {
    let data: Vec<TokenData> = input
        .data
        .iter()
        .map(|c| TokenData {
            id: c.id,
            logit: c.logit,
            p: c.p,
        })
        .collect();
    let times = (0..201).map(|_| {
        let start = thread_time();
        std::hint::black_box(kernels::max_logit(std::hint::black_box(&data), false));
        thread_time() - start
    });
    median(times.collect())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// N(-1.5, 2.4), and in the peaked one 60 tokens that decay from 17 to 9.
fn input(n: usize, peaked: bool) -> Array {
    let mut rng = Rng(n as u64);
    let mut normal = || {
        let (u, v) = (rng.unit().max(1e-300), rng.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    let mut array = Array::of_logits((0..n).map(|_| (normal() * 2.4 - 1.5) as f32));
    if peaked {
        for i in 0..60.min(n) {
            let at = rng.below(n);
            array.data[at].logit = (17.0 - 8.0 * i as f64 / 60.0) as f32;
        }
    }
    array
}

fn main() {
    let mut quick = false;
    let mut only = String::new();
    let mut size: Option<usize> = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => quick = true,
            "--only" => only = arguments.next().expect("--only NAME"),
            "--size" => size = arguments.next().and_then(|n| n.parse().ok()),
            // What cargo passes to every benchmark.
            "--bench" => {}
            other => panic!("unknown argument {other}; --quick, --only NAME, --size N"),
        }
    }
    let (sizes, budget): (&[usize], f64) = if quick {
        (&[128_256], 0.8)
    } else {
        (&[40, 1000, 32_000, 128_256, 262_144], 1.5)
    };
    let sizes = size.as_ref().map_or(sizes, std::slice::from_ref);
    println!(
        "Instruction set: {}\n",
        kernels::instruction_set().to_string_lossy()
    );
    println!("| sampler | V | shape | ours us | built-in us | ratio | ns/candidate | floor us |");
    println!("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |");
    for &n in sizes {
        for (shape, peaked) in [("peaked", true), ("flat", false)] {
            let input = input(n, peaked);
            let floor = floor(&input);
            for row in ROWS.iter().filter(|row| row.name.contains(&only)) {
                let Measured { ours, theirs } = measure(row, &input, budget);
                println!(
                    "| {} | {n} | {shape} | {ours:.2} | {theirs:.2} | {:.1} | {:.2} | {floor:.2} |",
                    row.name,
                    theirs / ours,
                    ours * 1e3 / n as f64
                );
            }
        }
    }
    println!("\nShortcuts that gave way:");
    for fallback in Fallback::ALL {
        println!("- {fallback:?}: {}", fallback.count());
    }
}
