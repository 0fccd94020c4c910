//! The table of drop-ins, with functions that make each and its built-in with the same random
//! parameters.

use std::ffi::{CStr, c_char};
use std::sync::LazyLock;

use llama_sieve::ffi::samplers as sieve;
use vendor_llama_cpp::{Model, sys};

use super::{HostSampler, Rng, both, logit_biases};

/// Both sides of one sampler with equal parameters.
pub struct Pair {
    pub label: String,
    pub ours: HostSampler,
    pub theirs: HostSampler,
}

/// A row of the table.
pub struct Member {
    pub name: &'static str,
    /// Makes both samplers. With `beyond`, parameters may make logits infinite or NaN.
    pub make: fn(&mut Rng, n_vocab: i32, beyond: bool) -> Pair,
    /// The largest array to test, since infill compares all pairs.
    pub max_size: usize,
    /// The size of the vocabulary in which the built-in looks up every id.
    pub vocabulary: usize,
    /// True if a real token must be accepted after each `apply`: otherwise a clone of the built-in
    /// reads out of bounds, and token -1 makes it abort.
    pub accept_always: bool,
}

const ORDINARY: Member = Member {
    name: "",
    make: |_, _, _| unreachable!("a row without a sampler"),
    max_size: usize::MAX,
    vocabulary: 262_144,
    accept_always: false,
};

impl Member {
    /// Returns the row named `name`, which must be in the table.
    pub fn named(name: &str) -> &'static Self {
        let row = FAMILY.iter().find(|member| member.name == name);
        row.expect("the table has every sampler")
    }
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
    ($ours:ident, $theirs:ident $(; $($argument:expr),*)?) => {{
        let [ours, theirs] = both!($ours, $theirs $(; $($argument),*)?);
        let label = format!(concat!(stringify!($theirs), "{:?}"), ($($($argument,)*)?));
        Pair { label, ours, theirs }
    }};
}

pub const FAMILY: &[Member] = &[
    Member {
        name: "greedy",
        make: |_, _, _| pair!(llama_sieve_init_greedy, llama_sampler_init_greedy),
        ..ORDINARY
    },
    Member {
        name: "dist",
        make: |rng, _, _| {
            let seed = rng.next() as u32 & 0xFFFF;
            pair!(llama_sieve_init_dist, llama_sampler_init_dist; seed)
        },
        ..ORDINARY
    },
    Member {
        name: "top_k",
        make: |rng, _, _| {
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
            pair!(llama_sieve_init_top_k, llama_sampler_init_top_k; k)
        },
        ..ORDINARY
    },
    Member {
        name: "top_p",
        make: |rng, _, _| {
            let (p, keep) = (probability(rng), min_keep(rng));
            pair!(llama_sieve_init_top_p, llama_sampler_init_top_p; p, keep)
        },
        ..ORDINARY
    },
    Member {
        name: "min_p",
        make: |rng, _, _| {
            let (p, keep) = (probability(rng), min_keep(rng));
            pair!(llama_sieve_init_min_p, llama_sampler_init_min_p; p, keep)
        },
        ..ORDINARY
    },
    Member {
        name: "typical",
        make: |rng, _, _| {
            let (p, keep) = (probability(rng), min_keep(rng));
            pair!(llama_sieve_init_typical, llama_sampler_init_typical; p, keep)
        },
        ..ORDINARY
    },
    Member {
        name: "temp",
        make: |rng, _, _| {
            let t = if rng.chance(0.5) {
                rng.pick(&[0.0, -0.0, -1.0, 1.0, 1e-6, 0.1, 0.8, 100.0])
            } else {
                rng.range(0.0, 3.0)
            };
            pair!(llama_sieve_init_temp, llama_sampler_init_temp; t)
        },
        ..ORDINARY
    },
    Member {
        name: "top_n_sigma",
        make: |rng, _, _| {
            let n = if rng.chance(0.5) {
                rng.pick(&[0.0, -1.0, 1e-6, 0.5, 1.0, 2.0, 5.0, 100.0])
            } else {
                rng.range(0.0, 3.0)
            };
            pair!(llama_sieve_init_top_n_sigma, llama_sampler_init_top_n_sigma; n)
        },
        ..ORDINARY
    },
    Member {
        name: "penalties",
        make: |rng, n_vocab, beyond| {
            let n_vocab = rng.pick(&[n_vocab, n_vocab, 0, -1]);
            let last_n = rng.pick(&[-1, 0, 1, 2, 3, 16, 64, 64, 2000]);
            let repeats = [1.0, 1.1, 1.5, 0.9, 0.0, -1.0];
            let repeat = rng.pick(&repeats[..if beyond { 6 } else { 4 }]);
            let freq = rng.pick(&[0.0, 0.0, 0.1, -0.5, 2.0]);
            let present = rng.pick(&[0.0, 0.0, 0.1, -0.5, 2.0]);
            pair!(
                llama_sieve_init_penalties, llama_sampler_init_penalties;
                n_vocab, last_n, repeat, freq, present
            )
        },
        ..ORDINARY
    },
    Member {
        name: "temp_ext",
        make: |rng, _, beyond| {
            let t = rng.pick(&[0.0, -1.0, 1.0, 0.8, 0.3, 2.0]);
            let delta = rng.pick(&[0.0, -1.0, 0.3, 0.5, 1.0, 5.0]);
            let exponents = [1.0, 0.0, 0.5, 2.0, -1.0];
            let exponent = rng.pick(&exponents[..if beyond { 5 } else { 4 }]);
            pair!(llama_sieve_init_temp_ext, llama_sampler_init_temp_ext; t, delta, exponent)
        },
        ..ORDINARY
    },
    Member {
        name: "xtc",
        make: |rng, _, _| {
            let p = rng.pick(&[0.0, 0.3, 0.5, 1.0, 1.0, 2.0]);
            let t = rng.pick(&[0.1, 0.05, 0.01, 0.0, -1.0, 0.5, 0.6]);
            let (keep, seed) = (min_keep(rng), seed(rng));
            pair!(llama_sieve_init_xtc, llama_sampler_init_xtc; p, t, keep, seed)
        },
        ..ORDINARY
    },
    Member {
        name: "mirostat",
        make: |rng, n_vocab, _| {
            let n_vocab = rng.pick(&[n_vocab, 32_000, 0, -1]);
            let (seed, tau, eta) = (seed(rng), tau(rng), eta(rng));
            let m = rng.pick(&[100, 100, 1, 2, 0, -5, 1000]);
            pair!(
                llama_sieve_init_mirostat, llama_sampler_init_mirostat;
                n_vocab, seed, tau, eta, m
            )
        },
        ..ORDINARY
    },
    Member {
        name: "mirostat_v2",
        make: |rng, _, _| {
            let (seed, tau, eta) = (seed(rng), tau(rng), eta(rng));
            pair!(llama_sieve_init_mirostat_v2, llama_sampler_init_mirostat_v2; seed, tau, eta)
        },
        ..ORDINARY
    },
    Member {
        name: "dry",
        make: dry,
        ..ORDINARY
    },
    Member {
        name: "adaptive_p",
        make: |rng, _, _| {
            let target = rng.pick(&[0.5, 0.1, 0.9, 0.0, 1.0, -1.0, 2.0]);
            let decay = rng.pick(&[0.9, 0.0, 0.5, 0.99, 1.0, -1.0]);
            let seed = seed(rng);
            pair!(llama_sieve_init_adaptive_p, llama_sampler_init_adaptive_p; target, decay, seed)
        },
        accept_always: true,
        ..ORDINARY
    },
    Member {
        name: "logit_bias",
        make: logit_bias,
        ..ORDINARY
    },
    Member {
        name: "infill",
        make: |_, _, _| {
            let vocab = vocabulary();
            Pair {
                label: "infill".to_owned(),
                // SAFETY: the vocabulary lives as long as the process.
                ours: HostSampler::new(unsafe { sieve::llama_sieve_init_infill(vocab.cast()) }),
                // SAFETY: as above.
                theirs: HostSampler::new(unsafe { sys::llama_sampler_init_infill(vocab) }),
            }
        },
        max_size: 400,
        vocabulary: 2048,
        ..ORDINARY
    },
];

fn seed(rng: &mut Rng) -> u32 {
    rng.next() as u32 & 0xFFFF
}

fn tau(rng: &mut Rng) -> f32 {
    rng.pick(&[5.0, 3.0, 8.0, 0.0, -1.0, 0.5])
}

fn eta(rng: &mut Rng) -> f32 {
    rng.pick(&[0.1, 0.0, 1.0, -0.1])
}

/// Returns the vocabulary of the trained model, whose tokens are words and parts of words. It lives
/// as long as the process.
pub fn vocabulary() -> *const sys::llama_vocab {
    static MODEL: LazyLock<Model> =
        LazyLock::new(|| Model::load(super::trained_model()).expect("the model loads"));
    MODEL.vocab()
}

fn dry(rng: &mut Rng, _n_vocab: i32, beyond: bool) -> Pair {
    let multipliers = [0.8, 0.8, 1.5, 0.0, -1.0];
    let multiplier = rng.pick(&multipliers[..if beyond { 5 } else { 4 }]);
    let base = rng.pick(&[1.75, 1.75, 1.0, 1.000_000_5, 10.0, 0.5]);
    let allowed = rng.pick(&[2, 2, 0, 1, -3, 5]);
    let last_n = rng.pick(&[64, 1000, 16, 5, 1, 0, -1]);
    let breakers: [&CStr; 9] = [
        c"\n",
        c":",
        c"and",
        c"the LORD",
        c" shall come to pass",
        c"a",
        c"",
        c"unto Moses, saying, Speak unto the children of Israel",
        c"\xC3\xA9\xFF",
    ];
    let n = rng.below(4);
    let mut chosen: Vec<*const c_char> = (0..n).map(|_| rng.pick(&breakers).as_ptr()).collect();
    if rng.chance(0.1) {
        chosen.push(std::ptr::null());
    }
    let (breakers, n) = (chosen.as_mut_ptr(), chosen.len());
    let vocab = vocabulary();
    // SAFETY: the vocabulary lives as long as the process, the breakers during the calls.
    let (ours, theirs) = unsafe {
        (
            sieve::llama_sieve_init_dry(
                vocab.cast(),
                multiplier,
                base,
                allowed,
                last_n,
                breakers,
                n,
            ),
            sys::llama_sampler_init_dry(vocab, multiplier, base, allowed, last_n, breakers, n),
        )
    };
    Pair {
        label: format!("dry({multiplier}, {base}, {allowed}, {last_n}, {n} breakers)"),
        ours: HostSampler::new(ours),
        theirs: HostSampler::new(theirs),
    }
}

fn logit_bias(rng: &mut Rng, n_vocab: i32, beyond: bool) -> Pair {
    let n = rng.pick(&[0, 1, 3, 20, 200]);
    let large = if beyond { 100.0 } else { 2.0 };
    let bias = |_| {
        // Few tokens, so that some occur twice, and some outside the vocabulary.
        let token = rng.pick(&[
            rng.clone().below(40) as i32,
            rng.clone().below(9000) as i32,
            -1,
            i32::MAX,
        ]);
        let bias = rng.pick(&[1.0, -3.5, large, f32::NEG_INFINITY, 0.25]) + rng.range(0.0, 1.0);
        (token, bias)
    };
    let biases: Vec<(i32, f32)> = (0..n).map(bias).collect();
    let [ours, theirs] = logit_biases(n_vocab, &biases);
    let first = &biases[..biases.len().min(3)];
    Pair {
        label: format!("logit_bias of {n}, the first {first:?}"),
        ours,
        theirs,
    }
}
