//! Instruction counts of most drop-ins, of the sieve on raw logits, and of samplers that llama.cpp
//! does not have, as a check against regressions: unlike times, the counts are equal on a
//! busy and on an idle machine. Two of the sieves are also measured on logits of 16 bits, and two
//! while a trace is recorded. So is the cost of a trace that is off.
//!
//! `cargo bench -- --instructions` runs this program again under valgrind's callgrind, on the AVX2
//! path (valgrind does not support AVX-512), and compares the instructions of one `apply` to
//! 128,256 candidates, or of one token from 128,256 logits, or of 2,000 tokens for bans and the
//! loop breaker, with `benches/results/instructions.json`. No row may load a model or a vocabulary:
//! that starts llama.cpp's backend, which may be compiled for AVX-512. An increase of more than 3 %
//! is a failure. `--update-instructions` rewrites that file. If the compiler is not the one named
//! in the file, whose code may differ, differences are only reported.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use half::bf16;
use llama_sieve::sieve::{Logits, Params, Sieve};
use llama_sieve::{simd, trace};
use serde::{Deserialize, Serialize};
use vendor_llama_cpp::sys;

use crate::chains::CUTS;
use crate::samplers::{ROWS, input};
use crate::support::{Array, HostSampler};
use crate::tokens;

const N: usize = 128_256;
const TOLERANCE: f64 = 0.03;
const MEASURED: &str = "llama_sieve_bench_measured";

/// The committed counts.
#[derive(Deserialize, Serialize)]
struct Counts {
    compiler: String,
    /// The number of instructions of each row, by its name: "sampler, shape".
    instructions: BTreeMap<String, u64>,
}

/// Runs the one call whose instructions valgrind counts.
#[unsafe(export_name = "llama_sieve_bench_measured")]
#[inline(never)]
fn measured(body: &mut dyn FnMut()) {
    body();
}

/// Returns the names and parameters of sieves, each with only the stages of its name.
fn sieves() -> [(&'static str, Params); 6] {
    let default = Params {
        seed: 1,
        ..Params::default()
    };
    let open = Params {
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        ..default.clone()
    };
    let with = |penalty_repeat| Params {
        penalty_repeat,
        ..default.clone()
    };
    [
        ("sieve, default parameters", with(1.0)),
        ("sieve, penalty_repeat(1.1)", with(1.1)),
        (
            "sieve, min_p(.05)",
            Params {
                min_p: 0.05,
                ..open.clone()
            },
        ),
        (
            "sieve, top_p(.95), temp(.8)",
            Params {
                top_p: 0.95,
                ..open.clone()
            },
        ),
        (
            "sieve, greedy",
            Params {
                temperature: 0.0,
                ..open.clone()
            },
        ),
        ("sieve, temp(.8)", open),
    ]
}

/// The name of the row for a trace that is off.
const OFF: &str = "trace, off";

/// The names of the sieves that are also measured on logits of 16 bits.
const HALVES: [&str; 2] = ["sieve, top_p(.95), temp(.8)", "sieve, temp(.8)"];

/// The names of the sieves that are also measured with a trace.
const TRACED: [&str; 2] = ["sieve, default parameters", "sieve, penalty_repeat(1.1)"];

fn labels() -> Vec<String> {
    let of_shape = |shape| {
        let rows = ROWS.iter().map(|row| row.name.to_owned());
        let sieves = sieves().map(|(name, _)| name.to_owned());
        let halves = HALVES.map(|name| format!("{name}, bf16"));
        let cuts = CUTS.iter().map(|row| row.name.to_owned());
        let traced = TRACED.map(|name| format!("{name}, traced"));
        let names = rows.chain(sieves).chain(halves).chain(cuts);
        let names = names.chain([OFF.to_owned()]).chain(traced);
        names.map(move |name| format!("{name}, {shape}"))
    };
    let of_shapes = ["peaked", "flat"].into_iter().flat_map(of_shape);
    of_shapes
        .chain(tokens::COUNTED.map(str::to_owned))
        .collect()
}

/// Runs every row once under valgrind, in the order of [`labels`], after a warm-up that is not
/// counted.
pub fn apply_once() {
    assert_eq!(simd::instruction_set().to_bytes(), b"avx2");
    for peaked in [true, false] {
        let input = input(N, peaked);
        for row in ROWS {
            // Buffers are lent by the thread, and reach their size with its first two arrays.
            (row.make)(N as i32)[0].apply(&mut input.clone());
            let [ours, _] = (row.make)(N as i32);
            ours.apply(&mut input.clone());
            apply(&ours, &mut input.clone());
        }
        let logits = input.logits();
        for (_, params) in sieves() {
            sample_once(&params, &logits);
        }
        let halves: Vec<bf16> = logits.iter().map(|&x| bf16::from_f32(x)).collect();
        for (_, params) in sieves().iter().filter(|(name, _)| HALVES.contains(name)) {
            sample_once(params, &halves[..]);
        }
        for row in &CUTS {
            let [with, _] = (row.make)(N as i32);
            for _ in 0..3 {
                with.sample_logits(&logits);
            }
            measured(&mut || {
                black_box(with.sample_logits(&logits));
            });
        }
        measured(&mut || {
            black_box(trace::begin(black_box(Logits::from(&logits))).is_some());
        });
        let sink = Arc::new(|line: &[u8]| {
            black_box(line);
        });
        trace::to_function(sink, trace::Options::default()).expect("a function takes all lines");
        for (_, params) in sieves().iter().filter(|(name, _)| TRACED.contains(name)) {
            sample_once(params, &logits);
        }
        trace::stop();
    }
    tokens::World::generated().count(measured);
}

/// Measures one token of a sieve, after others that are not counted.
fn sample_once<'l>(params: &Params, logits: impl Into<Logits<'l>>) {
    let logits = logits.into();
    let mut sieve = Sieve::new(params).expect("valid parameters");
    for i in 0..64 {
        sieve.accept(i * 997 % N as i32);
    }
    for _ in 0..3 {
        sieve.sample(logits).expect("there is a candidate");
    }
    measured(&mut || {
        black_box(sieve.sample(logits).is_ok());
    });
}

fn apply(sampler: &HostSampler, array: &mut Array) {
    let mut raw = sys::llama_token_data_array {
        data: array.data.as_mut_ptr(),
        size: array.data.len(),
        selected: -1,
        sorted: false,
    };
    // SAFETY: the sampler lives, the array is valid.
    measured(&mut || unsafe { sys::llama_sampler_apply(sampler.as_ptr(), &raw mut raw) });
}

/// Counts the instructions, and compares the counts with the committed ones, or replaces those if
/// `update` is true. Returns false if, with the same compiler, a count has risen too far or is not
/// among the committed ones.
pub fn check(update: bool) -> bool {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: instruction counts need valgrind");
        return true;
    }
    let counts = count();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results/instructions.json");
    if update {
        let text = serde_json::to_string_pretty(&counts).expect("plain data");
        std::fs::write(&file, text + "\n").expect("the counts can be written");
        return true;
    }
    let text = std::fs::read_to_string(&file).expect("the committed counts");
    let committed: Counts = serde_json::from_str(&text).expect("as --update-instructions wrote it");
    compare(&committed, &counts)
}

fn compare(committed: &Counts, counts: &Counts) -> bool {
    println!("| sampler | instructions | committed | change |\n| --- | ---: | ---: | ---: |");
    let mut risen = Vec::new();
    for (label, &now) in &counts.instructions {
        let Some(&before) = committed.instructions.get(label) else {
            println!("| {label} | {now} | none | |");
            risen.push(label);
            continue;
        };
        let change = now as f64 / before as f64 - 1.0;
        println!("| {label} | {now} | {before} | {:+.1} % |", change * 100.0);
        if change > TOLERANCE {
            risen.push(label);
        }
    }
    if committed.compiler != counts.compiler {
        println!(
            "\nnot judged: counted with {}, committed with {}",
            counts.compiler, committed.compiler
        );
        return true;
    }
    if !risen.is_empty() {
        println!(
            "\nmore instructions than committed: {risen:?}. If that is meant: cargo bench -- --update-instructions"
        );
    }
    risen.is_empty()
}

fn count() -> Counts {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("instructions");
    // A file of an earlier run would be taken for one of this run.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the target directory can be written");
    let run = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--toggle-collect={MEASURED}"))
        .arg(format!("--dump-after={MEASURED}"))
        .arg(format!(
            "--callgrind-out-file={}",
            folder.join("out").display()
        ))
        .arg(std::env::current_exe().expect("this program"))
        .arg("--apply-once")
        .env("LLAMA_SIEVE_SIMD", "avx2")
        .output()
        .expect("valgrind runs");
    let log = String::from_utf8_lossy(&run.stderr);
    assert!(
        run.status.success(),
        "the run under valgrind failed:\n{log}"
    );
    let totals = (1..).map_while(|i| total(&folder.join(format!("out.{i}"))));
    let totals: Vec<u64> = totals.collect();
    let labels = labels();
    assert!(
        totals.len() >= labels.len(),
        "{} dumps for {} rows:\n{log}",
        totals.len(),
        labels.len()
    );
    Counts {
        compiler: compiler(),
        instructions: labels.into_iter().zip(totals).collect(),
    }
}

/// Returns the number of instructions in one dump; `None` if the file cannot be read.
fn total(dump: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(dump).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("totals: "));
    Some(line?.trim().parse().expect("a number"))
}

fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC");
    let output = Command::new(rustc.as_deref().unwrap_or(OsStr::new("rustc")))
        .arg("--version")
        .output();
    output.map_or_else(
        |_| "unknown".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
