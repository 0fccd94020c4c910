//! The child process: its environment, start, signals and exit.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, ChildStderr, Command, Stdio};
use std::ptr::null_mut;
use std::sync::mpsc::Sender;
use std::thread;

use crate::Event;

/// The signals that are passed on to the child.
const PASSED_ON: [i32; 5] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// The length above which a line is passed on in pieces.
const LONGEST_LINE: u64 = 1 << 16;

/// Returns true for a signal that asks a supervisor to end.
pub fn ends(signal: i32) -> bool {
    matches!(signal, libc::SIGTERM | libc::SIGINT)
}

/// Returns the exit code with which shells report a program that a signal has ended.
pub fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Returns the absolute path of the library, if `LD_PRELOAD` can name it.
pub fn nameable(library: &Path) -> Result<PathBuf, String> {
    let shown = library.display();
    File::open(library).map_err(|error| {
        format!("{shown}: {error}; cargo build --release -p llama-sieve-preload makes it")
    })?;
    let path = std::path::absolute(library).map_err(|error| format!("{shown}: {error}"))?;
    // The dynamic linker splits `LD_PRELOAD` at these characters.
    let splits = |byte: &u8| matches!(byte, b':' | b' ' | b'\t' | b'\n');
    match path.as_os_str().as_bytes().iter().any(splits) {
        true => Err(format!(
            "{}: LD_PRELOAD cannot name it: its path has a space or a colon",
            path.display()
        )),
        false => Ok(path),
    }
}

/// Returns the value of `LD_PRELOAD` with the library before those that it lists already.
fn preloaded(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut list = OsString::from(library);
    let others = before.map_or(&b""[..], OsStr::as_bytes);
    let others = others.split(|byte| matches!(byte, b':' | b' ' | b'\t' | b'\n'));
    for other in others.map(OsStr::from_bytes) {
        if !other.is_empty() && other != library.as_os_str() {
            list.push(":");
            list.push(other);
        }
    }
    list
}

/// A running program.
pub struct Child(process::Child);

impl Child {
    /// Starts the program, with the library if one is given. Its lines on standard error are sent
    /// as they come.
    pub fn start(
        command: &[OsString],
        library: Option<&Path>,
        events: Sender<Event>,
    ) -> Result<Self, String> {
        let (program, arguments) = command.split_first().ok_or("no program")?;
        let mut command = Command::new(program);
        command.args(arguments).stderr(Stdio::piped());
        if let Some(library) = library {
            let before = env::var_os("LD_PRELOAD");
            command.env("LD_PRELOAD", preloaded(library, before.as_deref()));
            if env::var_os("LLAMA_SIEVE_VERBOSE").is_none() {
                command.env("LLAMA_SIEVE_VERBOSE", "1");
            }
        }
        // A terminal sends its signals to a whole process group. In a group of its own the child
        // gets each signal only once, from the supervisor.
        command.process_group(0);
        // SAFETY: `prepare` allocates nothing and takes no lock.
        unsafe { command.pre_exec(prepare) };
        let shown = Path::new(program).display();
        let mut child = command
            .spawn()
            .map_err(|error| format!("{shown} cannot be started: {error}"))?;
        let from = child.stderr.take().ok_or("the child has no stderr")?;
        let id = child.id();
        thread::spawn(move || read(id, from, &events));
        Ok(Self(child))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Returns the program's exit code if it has ended.
    pub fn code(&mut self) -> Result<Option<u8>, String> {
        let ended = self.0.try_wait().map_err(|error| error.to_string())?;
        Ok(ended.map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
            (None, signal) => code_of_signal(signal.unwrap_or(0)),
        }))
    }

    /// Sends the program a signal. Since it has not been waited for, its process ID cannot belong
    /// to another.
    pub fn send(&self, signal: i32) {
        let Ok(id) = libc::pid_t::try_from(self.id()) else {
            return;
        };
        // SAFETY: the function takes two numbers.
        unsafe { libc::kill(id, signal) };
    }
}

/// Sends the lines of the child with this process ID, and an event at their end.
fn read(id: u32, from: ChildStderr, events: &Sender<Event>) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match from
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
        {
            Ok(1..) if events.send(Event::Line(id, line)).is_ok() => {}
            _ => break,
        }
    }
    let _ = events.send(Event::Closed(id));
}

/// Runs in the child before it executes the program. Unblocks the signals that the supervisor
/// blocks, and makes the child end when the supervisor is killed.
fn prepare() -> std::io::Result<()> {
    set_mask(libc::SIG_UNBLOCK)?;
    #[cfg(target_os = "linux")]
    // SAFETY: with this option the function takes two numbers.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } {
        0 => {}
        _ => return Err(std::io::Error::last_os_error()),
    }
    Ok(())
}

/// Returns the signals that a thread waits for: those that are passed on, and SIGCHLD.
fn signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call initialises the set, and the others add to it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn set_mask(how: i32) -> std::io::Result<()> {
    // SAFETY: the set is valid, and the old mask is not requested.
    match unsafe { libc::pthread_sigmask(how, &signals(), null_mut()) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// Keeps signals from ending the supervisor: a thread receives each, and sends it as an event. Must
/// be called before other threads are started.
pub fn receive_signals(events: Sender<Event>) -> Result<(), String> {
    set_mask(libc::SIG_BLOCK).map_err(|error| error.to_string())?;
    thread::spawn(move || {
        let set = signals();
        let mut signal = 0;
        // SAFETY: the set is valid, and the number is written to a variable.
        while unsafe { libc::sigwait(&set, &raw mut signal) } == 0 {
            if events.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    });
    Ok(())
}
