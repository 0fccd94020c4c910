//! Loads a llama.cpp and tests every kind of sampler in a separate process, since a library that
//! only looks like a llama.cpp may end the process that loads it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lexopt::prelude::*;
use libloading::Library;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::library::Sieve;
use crate::{output, wrong};

/// The hidden command with which this program runs itself: `.probe LIBRARY [KIND BUILD]` prints one
/// line.
pub const NAME: &str = ".probe";

/// The kinds of samplers that get a verdict, by the names that `llama_sampler_name` reports.
pub const KINDS: [&str; 17] = [
    "greedy",
    "dist",
    "top-k",
    "top-p",
    "min-p",
    "typical",
    "temp",
    "temp-ext",
    "xtc",
    "top-n-sigma",
    "mirostat",
    "mirostat-v2",
    "penalties",
    "dry",
    "adaptive-p",
    "logit-bias",
    INFILL,
];

/// The sampler that needs a vocabulary, and so cannot be compared here.
const INFILL: &str = "infill";

/// Kinds whose argument lists have changed or may change, each with one build for every known list.
const LISTS: [(&str, &[i32]); 3] = [
    ("penalties", &[11_434, 10_000]),
    ("dry", &[11_434, 10_000]),
    ("logit-bias", &[11_434]),
];

/// The values of LLAMA_SIEVE_CERTIFY_ARGUMENTS and LLAMA_SIEVE_CERTIFY_VOCABULARY.
const ARGUMENTS: i32 = 8;
const VOCABULARY: i32 = 9;

/// The time that loading and testing a library may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time to wait for the last output of a child that has ended. Its own children may hold the
/// pipe open.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// At least this many bytes of a child's output are kept, from the end.
const KEPT: usize = 1 << 20;

/// The verdict on one kind of the host's samplers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Trial {
    pub kind: String,
    /// 0 if the sampler would be replaced, otherwise a code LLAMA_SIEVE_CERTIFY_* or
    /// LLAMA_SIEVE_ERROR_*.
    pub code: i32,
    /// The reason why the sampler would not be replaced, or "" if it would be.
    pub reason: String,
}

/// The verdicts on a library.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Answer {
    /// The reason why nothing could be tested.
    pub problem: Option<String>,
    /// The library's release, if it reports one.
    pub version: Option<String>,
    pub profile: Option<String>,
    /// True if the argument lists of the constructors are known.
    known_build: bool,
    pub kinds: Vec<Trial>,
}

/// Tests every kind of sampler in a library. If its build is unknown, each known argument list is
/// tested in a separate process.
pub fn try_all(library: &Path) -> Answer {
    let mut answer = ask(library, None);
    if answer.known_build {
        return answer;
    }
    for trial in &mut answer.kinds {
        let lists = LISTS.iter().find(|(kind, _)| *kind == trial.kind);
        if let (Some((_, builds)), ARGUMENTS) = (lists, trial.code) {
            *trial = try_lists(library, trial, builds);
        }
    }
    answer
}

fn try_lists(library: &Path, trial: &Trial, builds: &[i32]) -> Trial {
    let mut reasons = Vec::new();
    for build in builds {
        let answer = ask(library, Some((&trial.kind, *build)));
        match answer.kinds.first() {
            Some(found) if found.code == 0 => return found.clone(),
            Some(found) => reasons.push(format!("as in b{build}: {}", found.reason)),
            None => reasons.push(format!(
                "as in b{build}: {}",
                answer.problem.unwrap_or_default()
            )),
        }
    }
    let reason = format!(
        "its calls have none of the argument lists that are known ({})",
        reasons.join("; ")
    );
    Trial {
        reason,
        ..trial.clone()
    }
}

/// Tests a library in a separate process: all kinds, or one kind with the argument list of one
/// build.
fn ask(library: &Path, list: Option<(&str, i32)>) -> Answer {
    let problem = |why: String| Answer {
        problem: Some(why),
        ..Answer::default()
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return problem(format!("this program does not find itself: {error}")),
    };
    let mut command = Command::new(program);
    // The child must not have this project's preload library.
    command.arg(NAME).arg(library).env_remove("LD_PRELOAD");
    if let Some((kind, build)) = list {
        command.arg(kind).arg(build.to_string());
    }
    let (out, err, ended) = match watch(command) {
        Ok(ended) => ended,
        Err(why) => return problem(why),
    };
    let answer = out
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok());
    answer.unwrap_or_else(|| {
        let last = err.lines().rev().find(|line| !line.trim().is_empty());
        problem(last.map_or_else(|| format!("trying it ended with {ended}"), str::to_owned))
    })
}

/// Runs a command with a time limit. Returns the text on its stdout, the text on its stderr, and a
/// description of how it ended.
pub fn watch(mut command: Command) -> Result<(String, String, String), String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("no process: {error}"))?;
    let out = child.stdout.take().map(Words::of);
    let err = child.stderr.take().map(Words::of);
    let ended = wait(&mut child)?;
    let text = |words: Option<Words>| words.map(Words::last).unwrap_or_default();
    Ok((text(out), text(err), ended))
}

fn wait(child: &mut Child) -> Result<String, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.to_string()),
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                let seconds = PATIENCE.as_secs();
                return Err(format!("it was not loaded and tried within {seconds} s"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The last output of a pipe, which a thread reads.
struct Words {
    text: Arc<Mutex<Vec<u8>>>,
    closed: Receiver<()>,
}

impl Words {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let (sender, closed) = channel();
        let kept = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                let Ok(mut text) = kept.lock() else { return };
                text.extend_from_slice(&buffer[..n]);
                if text.len() > 2 * KEPT {
                    let surplus = text.len() - KEPT;
                    text.drain(..surplus);
                }
            }
            let _ = sender.send(());
        });
        Self { text, closed }
    }

    fn last(self) -> String {
        let _ = self.closed.recv_timeout(LAST_WORDS);
        let text = self.text.lock();
        text.map(|text| String::from_utf8_lossy(&text).into_owned())
            .unwrap_or_default()
    }
}

/// Runs the command `.probe`, which tests a library in this process.
pub fn command(parser: &mut lexopt::Parser) -> Result<u8, Failure> {
    let mut arguments = parser.raw_args().map_err(wrong)?;
    let library = arguments.next().map(PathBuf::from);
    let library = library.ok_or_else(|| Failure::usage(".probe: which library?"))?;
    let list = match (arguments.next(), arguments.next()) {
        (Some(kind), Some(build)) => {
            Some((kind.string().map_err(wrong)?, build.parse().map_err(wrong)?))
        }
        _ => None,
    };
    let answer = attempt(&library, list).unwrap_or_else(|why| Answer {
        problem: Some(why),
        ..Answer::default()
    });
    let line = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
    // The library may have printed a line without a line break.
    output::print(&format!("\n{line}\n"))
}

fn attempt(library: &Path, list: Option<(String, i32)>) -> Result<Answer, String> {
    let sieve = Sieve::load()?;
    // SAFETY: the library's initialisers run, which the user has requested.
    let host = unsafe { Library::new(library) }.map_err(|error| error.to_string())?;
    let version = release(&host);
    sieve.bind_host(handle(host))?;
    if let Some((kind, build)) = list {
        return Ok(Answer {
            kinds: vec![try_one(&sieve, &kind, build)?],
            ..Answer::default()
        });
    }
    let mut kinds = Vec::new();
    for kind in KINDS {
        kinds.push(try_one(&sieve, kind, 0)?);
    }
    let unknown = kinds.iter().find(|trial| trial.code == ARGUMENTS).cloned();
    if let Some(infill) = kinds.iter_mut().find(|trial| trial.code == VOCABULARY) {
        // If the build is known, so is the constructor's argument list.
        infill.code = unknown.as_ref().map_or(0, |trial| trial.code);
        infill.reason = unknown
            .as_ref()
            .map_or_else(String::new, |trial| trial.reason.clone());
    }
    Ok(Answer {
        problem: None,
        version,
        profile: Some(sieve.host_profile()?),
        known_build: unknown.is_none(),
        kinds,
    })
}

fn try_one(sieve: &Sieve, kind: &str, build: i32) -> Result<Trial, String> {
    let (code, reason) = sieve.certify(kind, build)?;
    // The message may begin with the function's name and the kind.
    let prefix = format!("{kind}: ");
    let reason = reason
        .split(prefix.as_str())
        .last()
        .unwrap_or(&reason)
        .to_owned();
    Ok(Trial {
        kind: kind.to_owned(),
        code,
        reason,
    })
}

/// Returns the release that the library reports, as builds do since b10394.
fn release(host: &Library) -> Option<String> {
    type Version = unsafe extern "C" fn() -> *const std::ffi::c_char;
    // SAFETY: llama.h's type.
    let ask = unsafe { host.get::<Version>(b"llama_version") }.ok()?;
    // SAFETY: the function has no arguments.
    let text = unsafe { ask() };
    if text.is_null() {
        return None;
    }
    // SAFETY: a C string of the library's own.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// Returns the linker's handle, which is never closed.
#[cfg(unix)]
fn handle(host: Library) -> *mut std::ffi::c_void {
    libloading::os::unix::Library::from(host).into_raw()
}

#[cfg(windows)]
fn handle(host: Library) -> *mut std::ffi::c_void {
    libloading::os::windows::Library::from(host).into_raw() as *mut std::ffi::c_void
}
