//! The command `doctor`: reports the llama.cpp of a process, a program or a library, and the
//! samplers that would be replaced in it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lexopt::prelude::*;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::elf::{self, Elf};
use crate::failure::Failure;
use crate::library::Sieve;
use crate::probe::{Trial, try_all, watch};
use crate::{help, output, run, wrong};

/// The command by which the Python package prints its own report: `.report [--json]` reads a report
/// in the format of `doctor --json` from the standard input, and prints it as text, or as JSON with
/// `--json`.
pub const TELL: &str = ".report";

/// The export that identifies a llama.cpp in a library or program.
const MARK: &str = "llama_sampler_chain_init";
const TAKES_OTHERS: &str = "llama_sampler_init";

/// Exports that a build introduced: a llama.cpp with one of them is that build or a later one.
const SIGNS: [(&str, u32); 3] = [
    ("llama_version", 10_394),
    ("llama_sampler_copy", 10_355),
    ("llama_set_sampler", 7_627),
];

const PRELOAD_MARK: &str = "llama_sieve_preload_marker";

/// Exports of this project: a file with one of them does not count as a caller of llama.cpp's
/// constructors.
const OURS: [&str; 2] = ["llama_sieve_version", PRELOAD_MARK];

const CONSTRUCTOR: &str = "llama_sampler_init_";

/// Kinds that need a vocabulary. They are compared at the first call of their constructors.
const AT_FIRST_CALL: [(&str, &str); 2] = [
    ("infill", "llama_sampler_init_infill"),
    ("grammar", "llama_sampler_init_grammar_lazy_patterns"),
];

/// The exit code if no sampler would be replaced.
const NONE: u8 = 1;

/// A llama.cpp that was found.
#[derive(Default, Deserialize, Serialize)]
struct Found {
    path: String,
    /// The release of llama.cpp, if it reports one.
    version: Option<String>,
    /// The earliest build that this llama.cpp can be, as its exports show.
    since: Option<u32>,
    build_id: Option<String>,
    /// The arithmetic of this llama.cpp where builds differ, in the notation of
    /// LLAMA_SIEVE_PROFILE.
    profile: Option<String>,
    /// Each kind of sampler, with "" if it would be replaced, otherwise the reason why not.
    #[serde(serialize_with = "as_map", deserialize_with = "of_map")]
    kinds: Vec<(String, String)>,
    /// The names of the kinds that are compared when the program first makes such a sampler.
    at_first_call: Vec<String>,
    /// The reason why nothing could be tested.
    problem: Option<String>,
    /// Other files that call the constructors of this llama.cpp through the linker. LD_PRELOAD
    /// affects these calls.
    callers: Vec<String>,
}

#[derive(Deserialize, Serialize)]
struct Report {
    subject: String,
    hosts: Vec<Found>,
    remarks: Vec<String>,
}

fn as_map<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}

/// Reads the entries of a map as pairs, in the map's order.
fn of_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    struct Pairs;

    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(String, String)>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("kinds of samplers, each with a reason")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }

    deserializer.deserialize_map(Pairs)
}

pub fn command(parser: &mut lexopt::Parser) -> Result<u8, Failure> {
    let (mut json, mut subject) = (false, None);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Short('h') | Long("help") => return output::print(help::DOCTOR),
            Long("json") => json = true,
            Value(name) if subject.is_none() => subject = Some(name),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let Some(subject) = subject else {
        return Err(Failure::usage("doctor: which process, program or library?"));
    };
    let report = of(&subject).map_err(|why| Failure::usage(&format!("doctor: {why}")))?;
    tell(&report, json)
}

/// Prints a report made by another program.
pub fn tell_given(parser: &mut lexopt::Parser) -> Result<u8, Failure> {
    let mut json = false;
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Long("json") => json = true,
            other => return Err(wrong(other.unexpected())),
        }
    }
    let refused = |why: &dyn fmt::Display| Failure::usage(&format!("{TELL}: {why}"));
    let given = std::io::read_to_string(std::io::stdin()).map_err(|error| refused(&error))?;
    let report = serde_json::from_str(&given).map_err(|error| refused(&error))?;
    tell(&report, json)
}

/// Prints a report, and returns its exit code.
fn tell(report: &Report, json: bool) -> Result<u8, Failure> {
    if json {
        output::print_json(report)?;
    } else {
        output::print(&output::printable(&text(report)?))?;
    }
    let mut kinds = report.hosts.iter().flat_map(|host| &host.kinds);
    let helps = kinds.any(|(_, reason)| reason.is_empty());
    Ok(if helps { 0 } else { NONE })
}

/// Returns the report on the user's argument: a process id, a file, or a program in PATH.
fn of(subject: &OsStr) -> Result<Report, String> {
    let name = subject.to_string_lossy();
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && Path::new("/proc").join(subject).is_dir() {
        return of_process(&name);
    }
    let here = Path::new(subject);
    let path = if here.is_file() {
        Some(here.to_owned())
    } else {
        run::which(subject)
    };
    let path = path.ok_or_else(|| format!("{name}: no process, library or program"))?;
    let path = std::fs::canonicalize(&path).map_err(|error| format!("{name}: {error}"))?;
    let elf = elf::read(&path)?;
    Ok(of_file(elf))
}

/// Returns the report on a running process.
fn of_process(number: &str) -> Result<Report, String> {
    let folder = Path::new("/proc").join(number);
    let told = |error: std::io::Error| format!("process {number}: {error}");
    let program = std::fs::read_link(folder.join("exe")).map_err(told)?;
    let maps = std::fs::read(folder.join("maps")).map_err(told)?;
    let elves = read_all(&code_of(&String::from_utf8_lossy(&maps)));
    let mut ours = elves
        .iter()
        .filter(|elf| elf.exports.contains(PRELOAD_MARK))
        .peekable();
    let is_there = ours.peek().is_some();
    // The variables of a process may not be readable by any other user.
    let variables = std::fs::read(folder.join("environ")).unwrap_or_default();
    let mut report = Report::of(format!("process {number} ({})", program.display()));
    let remark = match is_there {
        true if ours.any(|elf| is_preloaded(&elf.path, &variables)) => {
            "The preload library is in the process."
        }
        true => {
            "The preload library is in the process, but not by its LD_PRELOAD: it replaces \
             samplers only after llama_sieve_attach, which a package may have called."
        }
        false => "The preload library is not in it.",
    };
    report.remarks.push(remark.to_owned());
    report.describe(&elves, &program);
    Ok(report)
}

/// True if LD_PRELOAD in the environment of a process lists a file with the name of `path`.
fn is_preloaded(path: &Path, variables: &[u8]) -> bool {
    let own = path.file_name().map(OsStr::as_encoded_bytes);
    let lists = variables.split(|&byte| byte == 0);
    let lists = lists.filter_map(|variable| variable.strip_prefix(b"LD_PRELOAD="));
    let mut files = lists.flat_map(|list| list.split(|byte| b" :\t\n".contains(byte)));
    files.any(|file| file.rsplit(|&byte| byte == b'/').next() == own)
}

/// Returns the files that a process has mapped as code, each once, in the order of /proc/PID/maps.
fn code_of(maps: &str) -> Vec<PathBuf> {
    let (mut paths, mut known) = (Vec::new(), BTreeSet::new());
    for line in maps.lines() {
        let rights = line.split(' ').nth(1).unwrap_or_default();
        let path = line.find('/').and_then(|at| line.get(at..));
        if let Some(path) = path.filter(|path| rights.contains('x') && known.insert(*path)) {
            paths.push(path.into());
        }
    }
    paths
}

/// Returns the report on a program that could be run, or on a library.
fn of_file(elf: Elf) -> Report {
    let path = elf.path.clone();
    let is_program = elf.interpreter.is_some();
    let what = if is_program { "program" } else { "library" };
    let mut report = Report::of(format!("{what} {}", path.display()));
    if let Some(why) = elf::out_of_reach(&path).filter(|_| is_program) {
        report
            .remarks
            .push(format!("LD_PRELOAD does not reach it: {why}."));
    }
    let others = loaded_at_start(&elf);
    let mut elves = vec![elf];
    elves.extend(read_all(&others));
    report.describe(&elves, &path);
    report
}

/// Returns the libraries that the dynamic linker would load with this file.
fn loaded_at_start(elf: &Elf) -> Vec<PathBuf> {
    let own = || {
        let program = std::env::current_exe().ok()?;
        elf::read(&program).ok()?.interpreter
    };
    let Some(linker) = elf.interpreter.clone().or_else(own) else {
        return Vec::new();
    };
    let mut list = Command::new(linker);
    list.arg("--list").arg(&elf.path).env_clear();
    let Ok((text, _, _)) = watch(list) else {
        return Vec::new();
    };
    let path = |line: &str| {
        let (_, rest) = line.split_once("=> ")?;
        let (path, _) = rest.rsplit_once(" (")?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    text.lines().filter_map(path).collect()
}

fn read_all(paths: &[PathBuf]) -> Vec<Elf> {
    paths
        .iter()
        .filter_map(|path| elf::read(path).ok())
        .collect()
}

impl Report {
    fn of(subject: String) -> Self {
        Self {
            subject,
            hosts: Vec::new(),
            remarks: Vec::new(),
        }
    }

    fn describe(&mut self, elves: &[Elf], program: &Path) {
        let is_host =
            |elf: &&Elf| elf.exports.contains(MARK) && !elf.exports.contains(PRELOAD_MARK);
        let mut any = false;
        for elf in elves.iter().filter(is_host) {
            any = true;
            let path = elf.path.display();
            if elf.interpreter.is_some() && elf.path == program {
                self.remarks.push(format!(
                    "llama.cpp is linked into {path} itself, where LD_PRELOAD does not reach."
                ));
                continue;
            }
            let found = examine(elf, elves);
            if found.callers.is_empty() {
                self.remarks.push(format!(
                    "Nothing here calls the constructors of {path} through the linker: only \
                     callers that are loaded later are reached by LD_PRELOAD. Python's ctypes \
                     never is: use llama_sieve.patch()."
                ));
            }
            self.hosts.push(found);
        }
        if !any {
            self.remarks.push(
                "No llama.cpp here exports its functions. A library that is loaded later shows in \
                 the report on a process id; one that is linked in statically cannot be replaced."
                    .to_owned(),
            );
        }
    }
}

/// Tests a library that is a llama.cpp. Returns its version, and for each sampler whether it would
/// be replaced.
fn examine(elf: &Elf, loaded: &[Elf]) -> Found {
    let sign = SIGNS.iter().find(|(name, _)| elf.exports.contains(*name));
    let mut found = Found {
        path: elf.path.display().to_string(),
        since: sign.map(|(_, build)| *build),
        build_id: elf.build_id.clone(),
        callers: callers(elf, loaded),
        ..Found::default()
    };
    if !elf.exports.contains(TAKES_OTHERS) {
        let older = "it is older than b4662, the first that takes samplers of others";
        found.problem = Some(older.to_owned());
        return found;
    }
    let answer = try_all(&elf.path);
    found.problem = answer.problem;
    found.version = answer.version;
    found.profile = answer.profile;
    if answer.kinds.is_empty() {
        return found;
    }
    found.kinds = answer.kinds.into_iter().map(verdict).collect();
    for (kind, constructor) in AT_FIRST_CALL {
        let has_it = elf.exports.contains(constructor);
        let lacks = format!("it exports no {constructor}");
        found.kinds.retain(|(known, _)| known != kind);
        let reason = if has_it { String::new() } else { lacks };
        found.kinds.push((kind.to_owned(), reason));
        if has_it {
            found.at_first_call.push(kind.to_owned());
        }
    }
    found
}

fn verdict(trial: Trial) -> (String, String) {
    (trial.kind, trial.reason)
}

/// Returns the files that call llama.cpp's constructors through the linker, except this project's
/// files and the host itself.
fn callers(host: &Elf, loaded: &[Elf]) -> Vec<String> {
    let calls = |elf: &&Elf| {
        let asks = elf.imports.iter().any(|name| name.starts_with(CONSTRUCTOR));
        let is_ours = OURS.iter().any(|name| elf.exports.contains(*name));
        asks && elf.path != host.path && !is_ours
    };
    loaded
        .iter()
        .filter(calls)
        .map(|elf| elf.path.display().to_string())
        .collect()
}

/// Returns the report as text.
fn text(report: &Report) -> Result<String, String> {
    let sieve = Sieve::load()?;
    let mut lines = vec![
        format!("llama-sieve {}, {}", sieve.version()?, sieve.simd()?),
        format!("looked at {}", report.subject),
    ];
    for found in &report.hosts {
        lines.push(String::new());
        lines.extend(lines_of(found));
    }
    if !report.remarks.is_empty() {
        lines.push(String::new());
        lines.extend_from_slice(&report.remarks);
    }
    Ok(lines.join("\n") + "\n")
}

fn lines_of(found: &Found) -> Vec<String> {
    let mut lines = vec![format!("llama.cpp: {}", found.path)];
    match (&found.version, found.since) {
        (Some(version), _) => lines.push(format!("  version: {version}")),
        (None, Some(build)) => lines.push(format!(
            "  version: not told; b{build} or later by what it exports"
        )),
        (None, None) => {}
    }
    let told = [
        ("build id", &found.build_id),
        ("computes with", &found.profile),
        ("not tried", &found.problem),
    ];
    for (name, value) in told {
        if let Some(value) = value {
            lines.push(format!("  {name}: {value}"));
        }
    }
    for path in &found.callers {
        lines.push(format!("  called through the linker by: {path}"));
    }
    let is_later = |kind: &str| found.at_first_call.iter().any(|later| later == kind);
    let ours: Vec<&str> = found
        .kinds
        .iter()
        .filter(|(kind, reason)| reason.is_empty() && !is_later(kind))
        .map(|(kind, _)| kind.as_str())
        .collect();
    if !ours.is_empty() {
        lines.push(format!("  ours: {}", ours.join(", ")));
    }
    if !found.at_first_call.is_empty() {
        lines.push(format!(
            "  compared at the first call, with the program's vocabulary: {}",
            found.at_first_call.join(", ")
        ));
    }
    for (kind, reason) in found.kinds.iter().filter(|(_, reason)| !reason.is_empty()) {
        lines.push(format!("  its own: {kind}: {reason}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_in_the_list_of_those_that_are_preloaded() {
        let ours = Path::new("/a/libours.so");
        for (variables, expected) in [
            ("LD_PRELOAD=/a/libours.so\0A=1\0", true),
            ("A=1\0LD_PRELOAD=/b/x.so:/b/libours.so\0", true),
            ("LD_PRELOAD=x.so libours.so", true),
            ("", false),
            ("LD_PRELOAD=\0", false),
            ("LD_PRELOAD=/a/libours.so.1\0", false),
            ("NOT_LD_PRELOAD=/a/libours.so\0", false),
        ] {
            let found = is_preloaded(ours, variables.as_bytes());
            assert_eq!(found, expected, "{variables:?}");
        }
    }
}
