//! Runs a server with the preload library as a supervisor would, and reports whether it works.
//!
//! ```text
//! cargo build --release -p llama-sieve-preload
//! cargo run --release --example supervisor -- llama-server -m model.gguf --port 8080
//! ```
//!
//! The server is a child process. It inherits the supervisor's environment, with the library added
//! in front of the entries of `LD_PRELOAD`. Its standard error is passed on line by line. Signals
//! are passed on as well. A server that fails is started again; the last attempt is without the
//! library, since a slower server is better than none. `docs/supervisors.md` shows the same setup
//! for systemd, containers and Ollama, which need no such program.

mod child;
mod watch;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use lexopt::prelude::*;

use child::Child;
use watch::Watch;

const HELP: &str = "\
Runs a server with the preload library. Usage: supervisor [options] PROGRAM [arguments]

      --preload FILE  the library (default: libllama_sieve_preload.so of this build)
      --restarts N    how often a program that fails is started again, the last time without the
                      library (default 3)
      --pause MS      milliseconds before it is started again (default 1000)
  -h, --help          this text

It ends with what the program ended with: its code, or 128 and the number of its signal.
LLAMA_SIEVE_VERBOSE is 1 for the program unless it is set: the supervisor reads what the library
says, and passes each sampler's line on once.
";

/// The longest wait for another line of a child that has ended: its own children may hold the pipe
/// open.
const LAST_LINES: Duration = Duration::from_secs(5);

struct Options {
    preload: PathBuf,
    restarts: u32,
    pause: Duration,
    command: Vec<std::ffi::OsString>,
}

/// An event that the supervisor waits for.
pub enum Event {
    /// A signal has been received, possibly SIGCHLD.
    Signal(i32),
    /// The child with this process ID, or one of its own children, has written this line to its
    /// standard error.
    Line(u32, Vec<u8>),
    /// That child's standard error is closed.
    Closed(u32),
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            say(&message);
            return ExitCode::from(2);
        }
    };
    match supervise(&options) {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            say(&message);
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Option<Options>, String> {
    let mut options = Options {
        preload: of_this_build()?,
        restarts: 3,
        pause: Duration::from_secs(1),
        command: Vec::new(),
    };
    let mut arguments = lexopt::Parser::from_env();
    let wrong = |error: lexopt::Error| format!("{error}; see --help");
    while let Some(argument) = arguments.next().map_err(wrong)? {
        match argument {
            Long("preload") => options.preload = arguments.value().map_err(wrong)?.into(),
            Long("restarts") => options.restarts = number(&mut arguments, "--restarts")?,
            Long("pause") => {
                let milliseconds: u32 = number(&mut arguments, "--pause")?;
                options.pause = Duration::from_millis(milliseconds.into());
            }
            Short('h') | Long("help") => return Ok(None),
            Value(program) => {
                // All further arguments are the program's.
                options.command = vec![program];
                options.command.extend(arguments.raw_args().map_err(wrong)?);
            }
            other => return Err(wrong(other.unexpected())),
        }
    }
    if options.command.is_empty() {
        return Err("which program? see --help".to_owned());
    }
    Ok(Some(options))
}

fn number(arguments: &mut lexopt::Parser, name: &str) -> Result<u32, String> {
    let text = arguments.value().map_err(|error| error.to_string())?;
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("{name} is {text:?}, but must be a whole number"))
}

/// Returns the path of the library that `cargo build -p llama-sieve-preload` puts next to this
/// example's folder.
fn of_this_build() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let build = program.ancestors().nth(2).unwrap_or(&program);
    Ok(build.join("libllama_sieve_preload.so"))
}

/// Runs the program until it succeeds, a signal asks the supervisor to end, or no restart is left.
/// Returns its exit code, or that of the signal.
fn supervise(options: &Options) -> Result<u8, String> {
    let preload = child::nameable(&options.preload)?;
    let (sender, events) = channel();
    child::receive_signals(sender.clone())?;
    let mut restarts = options.restarts;
    let mut with_ours = true;
    loop {
        let ours = with_ours.then_some(preload.as_path());
        let (mut child, mut watch) = start(options, ours, &sender)?;
        let (code, is_asked_to_end) = run(&mut child, &mut watch, &events)?;
        say(&format!("{} ended with {code}: {watch}", child.id()));
        if code == 0 || is_asked_to_end || restarts == 0 {
            return Ok(code);
        }
        restarts -= 1;
        with_ours = options.restarts == 0 || restarts > 0;
        if let Some(signal) = pause(options.pause, &events) {
            return Ok(child::code_of_signal(signal));
        }
    }
}

fn start(
    options: &Options,
    ours: Option<&std::path::Path>,
    events: &Sender<Event>,
) -> Result<(Child, Watch), String> {
    let child = Child::start(&options.command, ours, events.clone())?;
    let how = match ours {
        Some(library) => format!("with {}", library.display()),
        None => "without the library".to_owned(),
    };
    say(&format!("{} started {how}", child.id()));
    Ok((child, Watch::new(ours.is_some())))
}

/// Runs the child once. Returns its exit code, and whether a signal has asked the supervisor to
/// end.
fn run(
    child: &mut Child,
    watch: &mut Watch,
    events: &Receiver<Event>,
) -> Result<(u8, bool), String> {
    let mut is_asked_to_end = false;
    let mut is_closed = false;
    loop {
        match events.recv().map_err(|error| error.to_string())? {
            Event::Signal(libc::SIGCHLD) => {
                let Some(code) = child.code()? else { continue };
                while !is_closed {
                    match events.recv_timeout(LAST_LINES) {
                        Ok(Event::Line(of, line)) => hear(child.id(), of, watch, &line),
                        Ok(Event::Signal(signal)) => is_asked_to_end |= child::ends(signal),
                        Ok(Event::Closed(of)) => is_closed = of == child.id(),
                        Err(_) => is_closed = true,
                    }
                }
                return Ok((code, is_asked_to_end));
            }
            Event::Signal(signal) => {
                is_asked_to_end |= child::ends(signal);
                child.send(signal);
            }
            Event::Line(of, line) => hear(child.id(), of, watch, &line),
            Event::Closed(of) => is_closed |= of == child.id(),
        }
    }
}

/// Passes on a line of the child `of`, unless it is about a sampler and was passed on before, and
/// prints the supervisor's own message about it. The lines of an earlier child are passed on, but
/// not attributed to the current child, `id`.
fn hear(id: u32, of: u32, watch: &mut Watch, line: &[u8]) {
    if of != id {
        let _ = std::io::stderr().write_all(line);
        return;
    }
    let heard = watch.hear(&String::from_utf8_lossy(line));
    if heard.is_passed_on {
        let _ = std::io::stderr().write_all(line);
    }
    if let Some(news) = heard.news {
        say(&format!("{id}: {news}"));
    }
}

/// Waits before a restart. Returns a signal that was received meanwhile and asks the supervisor to
/// end.
fn pause(pause: Duration, events: &Receiver<Event>) -> Option<i32> {
    let end = Instant::now() + pause;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match events.recv_timeout(left) {
            Ok(Event::Signal(signal)) if child::ends(signal) => return Some(signal),
            // The last child's own children may still write.
            Ok(Event::Line(_, line)) => drop(std::io::stderr().write_all(&line)),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        }
    }
}

fn say(what: &str) {
    // `eprintln!` would panic where stderr is closed.
    let _ = writeln!(std::io::stderr(), "supervisor: {what}");
}
