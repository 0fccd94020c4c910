//! Interprets the lines that the library writes to a program's standard error.

use std::collections::BTreeMap;
use std::fmt;

const LIBRARY: &str = "llama-sieve: preload library";
const SAMPLER: &str = "llama-sieve: preload: ";
const OURS: &str = "ours";
const NOT_OURS: &str = "llama.cpp's own: ";

/// The functions that the library replaces by sampling directly from the logits.
const DIRECT: [&str; 2] = ["common_sampler_sample", "llama_sampler_sample"];

/// The state of one run, as known from its lines.
#[derive(Default)]
pub struct Watch {
    is_asked_for: bool,
    /// The programs that the library was loaded into: a script's interpreter, then the server.
    loaded_into: Vec<String>,
    /// For each kind of sampler the reason why it is not ours, or "" if it is.
    kinds: BTreeMap<String, String>,
    is_direct: bool,
    /// The reason why the program had no sampler.
    none: Option<String>,
}

/// The result of reading one line.
pub struct Heard {
    pub is_passed_on: bool,
    /// A message that the supervisor adds.
    pub news: Option<String>,
}

impl Watch {
    pub fn new(is_asked_for: bool) -> Self {
        Self {
            is_asked_for,
            ..Self::default()
        }
    }

    /// Reads a line, and updates the state.
    pub fn hear(&mut self, line: &str) -> Heard {
        let line = line.trim_end();
        if let Some(rest) = line.strip_prefix(LIBRARY) {
            return self.hear_of_library(rest);
        }
        let known = line.strip_prefix(SAMPLER).and_then(outcome);
        let Some((kind, reason)) = known else {
            return Heard {
                is_passed_on: true,
                news: None,
            };
        };
        let is_direct = reason.is_empty() && DIRECT.contains(&kind);
        let is_first = is_direct && !self.is_direct;
        self.is_direct |= is_direct;
        let before = self.kinds.insert(kind.to_owned(), reason.to_owned());
        Heard {
            is_passed_on: before.as_deref() != Some(reason),
            news: is_first.then(|| "it works: tokens are sampled straight from the logits".into()),
        }
    }

    fn hear_of_library(&mut self, rest: &str) -> Heard {
        let mut news = None;
        if let Some((_, program)) = rest.split_once(" is loaded into ") {
            self.loaded_into.push(program.to_owned());
            news = Some(format!("the library is in {program}"));
        } else if let Some((_, why)) = rest.split_once(": no sampler was made in ") {
            let why = why.split_once(": ").map_or(why, |(_, why)| why);
            self.none = Some(why.to_owned());
        }
        Heard {
            is_passed_on: true,
            news,
        }
    }
}

/// Returns the kind of sampler that a line reports, and the reason why it is not ours, or "".
fn outcome(line: &str) -> Option<(&str, &str)> {
    let (kind, rest) = line.split_once('(')?;
    let (_, outcome) = rest.split_once("): ")?;
    match outcome {
        OURS => Some((kind, "")),
        _ => Some((kind, outcome.strip_prefix(NOT_OURS)?)),
    }
}

/// The summary that is printed at the end.
impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_asked_for {
            return f.write_str("it ran without the library");
        }
        if self.loaded_into.is_empty() {
            return f.write_str(
                "the library was not loaded: LLAMA_SIEVE_VERBOSE is 0, the file is for another \
                 machine, or the program is setuid or linked statically",
            );
        }
        let ours = self.kinds.iter().filter(|(_, reason)| reason.is_empty());
        let ours: Vec<&str> = ours.map(|(kind, _)| kind.as_str()).collect();
        if !ours.is_empty() {
            return write!(f, "ours: {}", ours.join(", "));
        }
        let in_programs = self.loaded_into.join(", ");
        let why = match (&self.none, self.kinds.values().next()) {
            (Some(why), _) | (None, Some(why)) => why,
            (None, None) => "it asked for none, or started a program without LD_PRELOAD",
        };
        write!(
            f,
            "the library was in {in_programs}; no sampler was ours: {why}"
        )
    }
}
