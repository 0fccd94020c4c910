//! All benchmarks, in one process and one run: `cargo bench`.
//!
//! - `samplers`: most drop-ins and four chains compared with the built-ins, on candidate arrays of
//!   six sizes and nine shapes, and on logits of the trained model;
//! - `chains`: whole chains straight from the logits, compared with a host's path from the same
//!   logits to the token;
//! - `cuts`: chains with a cut or a transformation that llama.cpp does not have, compared with the
//!   same chain without it;
//! - `sieve`: the sieve on raw logits, compared with a host's candidate array and the built-in
//!   chain;
//! - `trie`: the token trie, compared with the built-in grammar;
//! - `grammar`: plain and lazy grammars, compared with the built-in;
//! - `dry_breakers`: the constructor of DRY, compared with the built-in's;
//! - `tokens`: bans and the loop breaker, for one token;
//! - `shapes`, only if named with `--part`: the drop-ins of `samplers` on arrays that are ordered,
//!   have few different values or are rounded.
//!
//! The two sides of a row take turns on fresh copies of one input, except in `trie`. Where both
//! compute the same, most rows also check that the results are equal. The figures are medians of
//! the thread's CPU time, unless the name of a row says otherwise. Those of batches are wall-clock
//! times, and those of `tokens` are minima. "floor" is the time of this library's maximum over the
//! same array: the least that a pass over it can cost.
//!
//! `cargo bench -- --help` lists the options.

mod chains;
mod dry_breakers;
mod grammar;
mod instructions;
mod measure;
mod report;
mod samplers;
mod shapes;
mod sieve;
#[path = "../../tests/support/mod.rs"]
mod support;
mod tokens;
mod trie;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use report::{Measurement, Run};

/// The options of the command line.
pub struct Options {
    /// True for fewer sizes and shorter rows.
    pub quick: bool,
    only: String,
    /// The names of all rows about which [`wants`](Self::wants) was called.
    names: RefCell<BTreeSet<String>>,
    /// The text that the names of the measured shapes contain.
    shape: String,
    part: Option<String>,
    /// The size to measure instead of all.
    pub size: Option<usize>,
    /// True if the sieve's logits begin at a multiple of 64 bytes, as llama.cpp's own do.
    pub aligned: bool,
    seconds: Option<f64>,
    save: bool,
    /// The file to which the walks through grammars are written.
    pub walks: Option<PathBuf>,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            quick: false,
            only: String::new(),
            names: RefCell::default(),
            shape: String::new(),
            part: None,
            size: None,
            aligned: false,
            seconds: None,
            save: false,
            walks: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || {
                let value = arguments.next().filter(|value| !value.starts_with("--"));
                value.unwrap_or_else(|| refuse(&format!("{argument} needs a value")))
            };
            match argument.as_str() {
                "--instructions" => finish(instructions::check(false)),
                "--update-instructions" => finish(instructions::check(true)),
                // The argument with which this program runs itself under valgrind.
                "--apply-once" => {
                    instructions::apply_once();
                    finish(true);
                }
                "--quick" => options.quick = true,
                "--only" => options.only = value(),
                "--shape" => options.shape = value(),
                "--part" => options.part = Some(part(value())),
                "--size" => options.size = Some(positive(&argument, &value())),
                "--seconds" => options.seconds = Some(positive(&argument, &value())),
                "--aligned" => options.aligned = true,
                "--save" => options.save = true,
                "--walks" => options.walks = Some(value().into()),
                "--help" | "-h" => {
                    say(USAGE);
                    finish(true);
                }
                // Cargo passes this to every benchmark.
                "--bench" => {}
                other => refuse(&format!("unknown argument {other}")),
            }
        }
        options
    }

    /// True if the row named `name` is wanted. Records the name.
    pub fn wants(&self, name: &str) -> bool {
        self.names.borrow_mut().insert(name.to_owned());
        is_meant(name, &self.only)
    }

    /// True if the shape named `name` is wanted.
    pub fn wants_shape(&self, name: &str) -> bool {
        is_meant(name, &self.shape)
    }

    /// Returns the time for which one row is measured, in seconds.
    pub fn budget(&self) -> f64 {
        let default = if self.quick { 0.5 } else { 1.0 };
        self.seconds.unwrap_or(default)
    }
}

/// True if a name contains `text`. If `text` begins with an equals sign, true if the name equals
/// the rest of `text`.
fn is_meant(name: &str, text: &str) -> bool {
    match text.strip_prefix('=') {
        Some(whole) => name == whole,
        None => name.contains(text),
    }
}

/// Prints the fault in the command line and the known options, and exits with a failure.
fn refuse(why: &str) -> ! {
    eprintln!("{why}\n\n{USAGE}");
    finish(false)
}

/// Returns `name` if a part has this name; otherwise exits with a failure.
fn part(name: String) -> String {
    if !PARTS.iter().any(|(known, _)| *known == name) {
        refuse(&format!("--part {name}: there is no such part"));
    }
    name
}

fn positive<T: FromStr + PartialOrd + Default>(option: &str, text: &str) -> T {
    let number = text.parse().ok().filter(|number| *number > T::default());
    number.unwrap_or_else(|| refuse(&format!("{option} {text}: must be a number above 0")))
}

/// Prints a line, and exits if the reader has closed the output.
fn say(line: impl Display) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        finish(true);
    }
}

fn finish(good: bool) -> ! {
    std::process::exit(i32::from(!good))
}

type Part = fn(&Options, &mut dyn FnMut(Measurement));

const PARTS: [(&str, Part); 9] = [
    ("samplers", samplers::run),
    ("chains", chains::run),
    ("cuts", chains::run_cuts),
    ("sieve", sieve::run),
    ("trie", trie::run),
    ("grammar", grammar::run),
    ("dry_breakers", dry_breakers::run),
    ("tokens", tokens::run),
    ("shapes", shapes::run),
];

/// The part that runs only if `--part` names it, since it takes an hour.
const BY_NAME: &str = "shapes";

const USAGE: &str = "\
cargo bench -- [options]
  --quick                one size, under a minute
  --only TEXT            the rows whose name contains TEXT, or is it: --only =greedy
  --shape TEXT           the drop-ins on the shapes of logits whose name contains TEXT, or is it
  --part NAME            samplers, chains, cuts, sieve, trie, grammar, dry_breakers or tokens; or shapes, which is no part of a usual run
  --size N               one size
  --aligned              the sieve's logits at a multiple of 64 bytes, as llama.cpp's own, instead of 16 behind one
  --seconds S            how long each row is measured, 1 by default, 0.5 with --quick
  --save                 also writes benches/results/<processor>-<instruction set>-<date>.{md,json}
  --walks FILE.json      also writes the walks through grammars, for hosts/beside_llguidance.py
  --instructions         counts instructions under valgrind and compares them with the committed counts
  --update-instructions  replaces those";

fn main() {
    let options = Options::parse();
    let mut run = Run::here();
    say(format_args!("{}\n", run.title()));
    say(report::HEAD);
    for (name, part) in PARTS {
        let wanted = options.part.as_deref();
        if wanted.map_or(name != BY_NAME, |wanted| wanted == name) {
            part(&options, &mut |row| {
                say(row.line());
                run.rows.push(row);
            });
        }
    }
    if run.rows.is_empty() {
        eprintln!("no row is left by these options; there are:");
        options
            .names
            .borrow()
            .iter()
            .for_each(|name| eprintln!("  {name}"));
        finish(false);
    }
    say(format_args!("\n{}", report::LEGEND));
    say(run.slower());
    if options.save {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results");
        run.save(&folder);
    }
}
