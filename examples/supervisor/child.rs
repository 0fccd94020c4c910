//! The child: its environment, its beginning, its signals, its end.

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

/// A longer line comes in pieces.
const LONGEST_LINE: u64 = 1 << 16;

/// True for a signal by which a supervisor is asked to end.
pub fn ends(signal: i32) -> bool {
    matches!(signal, libc::SIGTERM | libc::SIGINT)
}

/// The exit code by which shells report a program that a signal has ended.
pub fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The absolute path of the library, as `LD_PRELOAD` can name it.
pub fn nameable(library: &Path) -> Result<PathBuf, String> {
    let shown = library.display();
    File::open(library).map_err(|error| {
        format!("{shown}: {error}; cargo build --release -p llama-sieve-preload makes it")
    })?;
    let path = std::path::absolute(library).map_err(|error| format!("{shown}: {error}"))?;
    // The dynamic linker splits the list at these.
    let splits = |byte: &u8| matches!(byte, b':' | b' ' | b'\t' | b'\n');
    match path.as_os_str().as_bytes().iter().any(splits) {
        true => Err(format!(
            "{}: LD_PRELOAD cannot name it: its path has a space or a colon",
            path.display()
        )),
        false => Ok(path),
    }
}

/// The library in front of what is preloaded already.
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

/// A program that runs.
pub struct Child(process::Child);

impl Child {
    /// Starts it; with the library, if one is given. Its lines are sent as they come.
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
        // A terminal sends its signals to a whole group: in one of its own the child gets each
        // once, from here.
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

    /// Its exit code, if it has ended.
    pub fn code(&mut self) -> Result<Option<u8>, String> {
        let ended = self.0.try_wait().map_err(|error| error.to_string())?;
        Ok(ended.map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
            (None, signal) => code_of_signal(signal.unwrap_or(0)),
        }))
    }

    /// Sends it a signal. It has not been waited for, so that the number is still its own.
    pub fn send(&self, signal: i32) {
        let Ok(id) = libc::pid_t::try_from(self.id()) else {
            return;
        };
        // SAFETY: the function takes two numbers.
        unsafe { libc::kill(id, signal) };
    }
}

/// Sends the lines of the child of this number, and says when there will be none.
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

/// In the child, before it becomes the program: it takes the signals that are held back here, and
/// ends when the supervisor is killed.
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

/// The signals that a thread waits for: these, and that the child has ended.
fn signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call makes a set of what is there, and the others add to it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn set_mask(how: i32) -> std::io::Result<()> {
    // SAFETY: the set is valid, and what was before is not asked for.
    match unsafe { libc::pthread_sigmask(how, &signals(), null_mut()) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// Lets no signal end the supervisor: a thread sends each that comes. To be called before there
/// are other threads.
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
