//! Drop-ins compared with their built-ins on arrays that are ordered or have few different values,
//! which are the best or the worst case of sorts, and on arrays rounded to half precision. The
//! purpose is to find drop-ins that are slower than the built-in.
//!
//! Each is measured four times. "again": the sampler has processed such arrays before. "new": the
//! sampler was just made, on a thread that has used others. "trimmed": as "new", but the host has
//! just returned all free memory to the system. "first": the sampler is the first one of its
//! thread, so the system must provide all memory, for this library's buffers as well as for the
//! built-in's.

use crate::Options;
use crate::report::Measurement;
use crate::samplers::{
    Before, ROWS, Row, SEED, chain, dist, measure, measure_new, min_p, row, temp, top_k, top_p,
};
use crate::support::orders::ORDERS;
use crate::support::{Array, Grid, Rng, both};

/// Rows in addition to those of `samplers`.
const MORE: &[Row] = &[
    row("top_k(1)", |_| top_k(1)),
    row("top_k(128)", |_| top_k(128)),
    row("top_k(129)", |_| top_k(129)),
    row("top_k(half)", |n| top_k(n / 2)),
    row("top_k(all)", top_k),
    row(
        "top_p(.5)",
        |_| both!(llama_sieve_init_top_p, llama_sampler_init_top_p; 0.5, 1),
    ),
    row(
        "min_p(.5, 1000)",
        |_| both!(llama_sieve_init_min_p, llama_sampler_init_min_p; 0.5, 1000),
    ),
    row(
        "typical(.2)",
        |_| both!(llama_sieve_init_typical, llama_sampler_init_typical; 0.2, 1),
    ),
    row(
        "xtc(1, .0001)",
        |_| both!(llama_sieve_init_xtc, llama_sampler_init_xtc; 1.0, 1e-4, 1, SEED),
    ),
    row(
        "mirostat_v2(12, .1)",
        |_| both!(llama_sieve_init_mirostat_v2, llama_sampler_init_mirostat_v2; SEED, 12.0, 0.1),
    ),
    row("chain: top_k 40, dist", |_| chain([top_k(40), dist()])),
    row("chain: temp, top_p, dist", |_| {
        chain([temp(), top_p(), dist()])
    }),
    row("chain: min_p, xtc, dist", |_| {
        let xtc = both!(llama_sieve_init_xtc, llama_sampler_init_xtc; 1.0, 0.1, 1, SEED);
        chain([min_p(), xtc, dist()])
    }),
];

/// Measures every row on every shape.
pub fn run(options: &Options, done: &mut dyn FnMut(Measurement)) {
    // With one arena, memory that an earlier thread has freed can be returned to the system. The
    // heaps of other threads would keep it, and the built-in would find it there.
    //
    // SAFETY: the function has no preconditions.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    let sizes: &[usize] = match options.quick {
        true => &[128_256],
        false => &[128_256, 32_000],
    };
    let sizes = options.size.as_ref().map_or(sizes, std::slice::from_ref);
    for &n in sizes {
        for order in ORDERS {
            for grid in [Grid::F32, Grid::F16, Grid::Bf16] {
                let shape = format!("{}, {}", order.name, format!("{grid:?}").to_lowercase());
                if options.wants_shape(&shape) {
                    let logits = (order.logits)(n, &mut Rng(n as u64)).into_iter();
                    let input = Array::of_logits(logits.map(|x| grid.round(x)));
                    rows(&input, &shape, options, done);
                }
            }
        }
    }
}

fn rows(input: &Array, shape: &str, options: &Options, done: &mut dyn FnMut(Measurement)) {
    for row in ROWS.iter().chain(MORE) {
        for state in ["again", "new", "trimmed", "first"] {
            let name = format!("{}, {state}", row.name);
            if !options.wants(&name) {
                continue;
            }
            let measure = |budget| match state {
                "again" => measure(row, input, budget),
                "new" => measure_new(row, input, budget, Before::Others),
                "trimmed" => measure_new(row, input, budget, Before::OthersTrimmed),
                _ => measure_new(row, input, budget, Before::Nothing),
            };
            let mut measured = measure(options.budget());
            // A row that looks slower, or nearly so, is measured again for longer.
            if measured.theirs < 1.05 * measured.ours {
                measured = measure(4.0 * options.budget());
            }
            done(Measurement {
                part: "shapes".into(),
                name,
                n: input.data.len(),
                shape: shape.into(),
                ours_ns: measured.ours * 1e3,
                theirs_ns: Some(measured.theirs * 1e3),
                floor_ns: None,
            });
        }
    }
}
