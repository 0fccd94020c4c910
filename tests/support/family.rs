//! The table of drop-ins: how to make one of ours and the built-in with the same random parameters.

use llama_sieve::ffi::samplers as sieve;
use vendor_llama_cpp::sys;

use super::{HostSampler, Rng};

/// Both sides of one sampler with equal parameters.
pub struct Pair {
    pub label: String,
    pub ours: HostSampler,
    pub theirs: HostSampler,
}

/// A row of the table.
pub struct Member {
    pub name: &'static str,
    /// Whether it sorts: then infinite logits are undefined in the built-in, whose buckets overflow.
    pub sorts: bool,
    /// Whether the built-in aborts on an empty array.
    pub make: fn(&mut Rng, n_vocab: i32) -> Pair,
}

fn probability(rng: &mut Rng) -> f32 {
    let edges = [
        0.0, -1.0, 1.0, 1.5, 1e-9, 1e-3, 0.05, 0.5, 0.9, 0.95, 0.999, 0.999_999,
    ];
    if rng.chance(0.5) {
        rng.pick(&edges)
    } else {
        rng.range(0.0, 1.0)
    }
}

fn min_keep(rng: &mut Rng) -> usize {
    rng.pick(&[0, 1, 1, 1, 2, 10, 300, 5000, 1_000_000])
}

/// Calls a constructor of both sides with the same arguments.
macro_rules! pair {
    ($ours:path, $theirs:path, $($argument:expr),*) => {
        Pair {
            label: format!(concat!(stringify!($theirs), "{:?}"), ($($argument,)*)),
            ours: HostSampler::new($ours($($argument),*)),
            // SAFETY: a constructor without preconditions.
            theirs: HostSampler::new(unsafe { $theirs($($argument),*) }),
        }
    };
}

pub const FAMILY: &[Member] = &[
    Member {
        name: "greedy",
        sorts: false,
        make: |_, _| {
            pair!(
                sieve::llama_sieve_init_greedy,
                sys::llama_sampler_init_greedy,
            )
        },
    },
    Member {
        name: "dist",
        sorts: false,
        make: |rng, _| {
            let seed = rng.next() as u32 & 0xFFFF;
            pair!(
                sieve::llama_sieve_init_dist,
                sys::llama_sampler_init_dist,
                seed
            )
        },
    },
    Member {
        name: "top_k",
        sorts: true,
        make: |rng, _| {
            let edges = [
                i32::MIN,
                -1,
                0,
                1,
                2,
                40,
                128,
                129,
                1000,
                5000,
                200_000,
                i32::MAX,
            ];
            let k = if rng.chance(0.5) {
                rng.pick(&edges)
            } else {
                rng.below(300) as i32
            };
            pair!(
                sieve::llama_sieve_init_top_k,
                sys::llama_sampler_init_top_k,
                k
            )
        },
    },
    Member {
        name: "top_p",
        sorts: true,
        make: |rng, _| {
            let (p, keep) = (probability(rng), min_keep(rng));
            pair!(
                sieve::llama_sieve_init_top_p,
                sys::llama_sampler_init_top_p,
                p,
                keep
            )
        },
    },
    Member {
        name: "min_p",
        sorts: true,
        make: |rng, _| {
            let (p, keep) = (probability(rng), min_keep(rng));
            pair!(
                sieve::llama_sieve_init_min_p,
                sys::llama_sampler_init_min_p,
                p,
                keep
            )
        },
    },
    Member {
        name: "typical",
        sorts: true,
        make: |rng, _| {
            let (p, keep) = (probability(rng), min_keep(rng));
            pair!(
                sieve::llama_sieve_init_typical,
                sys::llama_sampler_init_typical,
                p,
                keep
            )
        },
    },
    Member {
        name: "temp",
        sorts: false,
        make: |rng, _| {
            let t = if rng.chance(0.5) {
                rng.pick(&[0.0, -0.0, -1.0, 1.0, 1e-6, 0.1, 0.8, 100.0])
            } else {
                rng.range(0.0, 3.0)
            };
            pair!(
                sieve::llama_sieve_init_temp,
                sys::llama_sampler_init_temp,
                t
            )
        },
    },
    Member {
        name: "top_n_sigma",
        sorts: false,
        make: |rng, _| {
            let n = if rng.chance(0.5) {
                rng.pick(&[0.0, -1.0, 1e-6, 0.5, 1.0, 2.0, 5.0, 100.0])
            } else {
                rng.range(0.0, 3.0)
            };
            pair!(
                sieve::llama_sieve_init_top_n_sigma,
                sys::llama_sampler_init_top_n_sigma,
                n
            )
        },
    },
    Member {
        name: "penalties",
        sorts: false,
        make: |rng, n_vocab| {
            let n_vocab = rng.pick(&[n_vocab, n_vocab, 0, -1]);
            let last_n = rng.pick(&[-1, 0, 1, 2, 3, 16, 64, 64, 2000]);
            let repeat = rng.pick(&[1.0, 1.1, 1.5, 0.9, 0.0, -1.0]);
            let freq = rng.pick(&[0.0, 0.0, 0.1, -0.5, 2.0]);
            let present = rng.pick(&[0.0, 0.0, 0.1, -0.5, 2.0]);
            pair!(
                sieve::llama_sieve_init_penalties,
                sys::llama_sampler_init_penalties,
                n_vocab,
                last_n,
                repeat,
                freq,
                present
            )
        },
    },
];
