//! Log messages of the library, delivered to a replaceable sink.
//!
//! A message is delivered when no lock is held. Messages of a call into the library, and of threads
//! that help with it, wait until the outermost call ([`Inside`]) is about to return. No sampler is
//! in use at that point, so the sink may use the objects of the call. If a sink itself calls the
//! library, messages of that call are not delivered, since that could recurse forever.
//!
//! Code that runs for each token logs only the first occurrence of a problem.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use llama_sieve_kernels::sync::{Mutex, Section};

use crate::last_error;
use crate::per_thread::PerThread;
use crate::write_signals::without_signals;

/// The severity of a message; the numbers are those of `enum ggml_log_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Level {
    /// Information that is not about a fault.
    Info = 2,
    /// Something was wrong, but the library continues.
    Warn = 3,
    /// A request was not fulfilled.
    Error = 4,
}

/// The destination of messages. It is called while no lock is held, so it may call back into the
/// library.
pub type Sink = Arc<dyn Fn(Level, &str) + Send + Sync>;

/// The sink, and the running calls of sinks.
struct Sinks {
    current: Option<Sink>,
    /// The number of times that the sink was replaced.
    replaced: u64,
    running: Vec<Running>,
}

/// A running call of the sink that was installed by replacement number `replaced`.
#[derive(Clone, Copy, PartialEq)]
struct Running {
    replaced: u64,
    /// The process of the call: in a forked child, calls of the parent's other threads never
    /// return.
    process: u32,
}

static SINKS: Mutex<Sinks> = Mutex::new(Sinks {
    current: None,
    replaced: 0,
    running: Vec::new(),
});

/// The pause between two checks of the running calls of sinks.
const PAUSE: Duration = Duration::from_millis(1);

/// A message that waits for delivery.
struct Message {
    level: Level,
    text: String,
}

/// The maximum number of messages of one thread that wait for delivery. Further messages are only
/// counted.
const WAITING: usize = 64;

thread_local! {
    /// The nesting depth of this thread's calls into the library.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// True while this thread is in a call of a sink.
    static DELIVERS: Cell<bool> = const { Cell::new(false) };
    static ANY_WAITING: Cell<bool> = const { Cell::new(false) };
    static MESSAGES: PerThread<RefCell<Vec<Message>>> = const { PerThread::new() };
    static LEFT_OUT: Cell<usize> = const { Cell::new(0) };
}

/// A guard of a call into the library. While one exists, its thread's messages wait. Dropping the
/// outermost one delivers them.
pub struct Inside(());

impl Inside {
    /// Records that this thread has entered the library.
    #[inline]
    pub fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 && ANY_WAITING.get() {
            deliver_waiting();
        }
    }
}

/// Replaces the sink; `None` means the default, which is stderr.
///
/// Returns once no earlier sink is still running. If a sink calls this function, it returns at
/// once, since it would otherwise wait for that sink.
pub fn set_sink(sink: Option<Sink>) {
    let mut sinks = SINKS.lock();
    let before = std::mem::replace(&mut sinks.current, sink);
    sinks.replaced += 1;
    if !DELIVERS.get() {
        let (replaced, process) = (sinks.replaced, process::id());
        let earlier = |call: &Running| call.process == process && call.replaced < replaced;
        while sinks.running.iter().any(earlier) {
            drop(sinks);
            thread::sleep(PAUSE);
            sinks = SINKS.lock();
        }
    }
    drop(sinks);
    // The sink is dropped without the lock, since destructors of the data that it has captured may
    // do anything.
    drop(before);
}

/// Returns the sink; `None` means the default.
pub fn sink() -> Option<Sink> {
    SINKS.lock().current.clone()
}

/// Passes `text`, which has no line end, to the sink: at once, or when this thread leaves the
/// library. Within a call of a sink, drops it.
pub fn log(level: Level, text: &str) {
    if DELIVERS.get() {
        return;
    }
    if DEPTH.get() > 0 {
        return wait(level, text);
    }
    deliver(level, text);
}

/// Logs a warning, and keeps it as this thread's last error.
pub fn warn(text: &str) {
    last_error::set_warning(text);
    log(Level::Warn, text);
}

/// Logs an error, and keeps it as this thread's last error.
pub fn error(code: c_int, text: &str) {
    last_error::set(code, text);
    log(Level::Error, text);
}

/// Keeps a message until it can be delivered. Drops it if there is too little memory.
#[cold]
fn wait(level: Level, text: &str) {
    let _ = PerThread::with(&MESSAGES, |messages| {
        let mut messages = messages.borrow_mut();
        if messages.len() >= WAITING {
            return LEFT_OUT.set(LEFT_OUT.get() + 1);
        }
        let mut copy = String::new();
        let room = copy.try_reserve_exact(text.len());
        if room.is_err() || messages.try_reserve(1).is_err() {
            return;
        }
        copy.push_str(text);
        messages.push(Message { level, text: copy });
        ANY_WAITING.set(true);
    });
}

/// Messages that wait, and the number of those that were only counted.
#[derive(Default)]
struct Waiting {
    messages: Vec<Message>,
    left_out: usize,
}

/// Replaces the messages of this thread that wait, and returns them.
fn exchange_waiting(with: Waiting) -> Waiting {
    ANY_WAITING.set(!with.messages.is_empty() || with.left_out > 0);
    let swap = |messages: &RefCell<Vec<Message>>| messages.replace(with.messages);
    Waiting {
        messages: PerThread::with(&MESSAGES, swap).unwrap_or_default(),
        left_out: LEFT_OUT.replace(with.left_out),
    }
}

/// The messages of threads that help with a call. The thread that made the call logs them, since
/// the objects of the call are still in use when a helper thread has done its part.
#[derive(Default)]
pub struct OfHelpers(Mutex<Waiting>);

impl OfHelpers {
    /// Runs `body`, a part of the call, on a helper thread, and keeps its messages.
    pub fn keep(&self, body: impl FnOnce()) {
        let _inside = Inside::enter();
        // A helper thread that waits for its own batch may run a part of another call.
        let before = ANY_WAITING
            .get()
            .then(|| exchange_waiting(Waiting::default()));
        body();
        if ANY_WAITING.get() {
            self.add(exchange_waiting(Waiting::default()));
        }
        if let Some(before) = before {
            exchange_waiting(before);
        }
    }

    fn add(&self, more: Waiting) {
        let mut all = self.0.lock();
        let mut messages = more.messages;
        all.left_out += more.left_out;
        match all.messages.try_reserve(messages.len()) {
            Ok(()) => all.messages.append(&mut messages),
            Err(_) => all.left_out += messages.len(),
        }
    }

    /// Logs the messages, in the thread that made the call.
    pub fn log(self) {
        let Waiting { messages, left_out } = std::mem::take(&mut *self.0.lock());
        if messages.is_empty() && left_out == 0 || DELIVERS.get() {
            return;
        }
        let _inside = Inside::enter();
        messages
            .iter()
            .for_each(|message| wait(message.level, &message.text));
        LEFT_OUT.set(LEFT_OUT.get() + left_out);
        ANY_WAITING.set(true);
    }
}

#[cold]
#[inline(never)]
fn deliver_waiting() {
    let Waiting { messages, left_out } = exchange_waiting(Waiting::default());
    for message in messages {
        deliver(message.level, &message.text);
    }
    if left_out > 0 {
        let text = format!("{left_out} more messages of the same call are left out");
        deliver(Level::Warn, &text);
    }
}

/// Calls the sink. The last error is preserved, whatever functions of the library the sink calls.
fn deliver(level: Level, text: &str) {
    let process = process::id();
    let mut sinks = SINKS.lock();
    let call = Running {
        replaced: sinks.replaced,
        process,
    };
    let sink = sinks.current.clone();
    if sink.is_some() && sinks.running.try_reserve(1).is_ok() {
        sinks.running.push(call);
    } else if sink.is_some() {
        return;
    }
    drop(sinks);
    let Some(sink) = sink else {
        return write(level, text);
    };
    let error = last_error::kept();
    DELIVERS.set(true);
    // A sink in Rust may panic. Its message is dropped then.
    let _ = catch_unwind(AssertUnwindSafe(|| sink(level, text)));
    DELIVERS.set(false);
    last_error::put(&error);
    // The sink is dropped before the call counts as over: a thread that waits for the call relies
    // on the sink's data being freed.
    drop(sink);
    let mut sinks = SINKS.lock();
    if let Some(place) = sinks.running.iter().position(|&other| other == call) {
        sinks.running.swap_remove(place);
    }
}

fn write(level: Level, text: &str) {
    let label = match level {
        Level::Info => "info",
        Level::Warn => "warning",
        Level::Error => "error",
    };
    write_to_stderr(format_args!("llama-sieve: {label}: {text}"));
}

/// Writes a line to stderr. If there is enough memory, this is one call, so that lines of several
/// threads do not mix.
pub fn write_to_stderr(line: fmt::Arguments<'_>) {
    struct Length(usize);
    impl fmt::Write for Length {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 += part.len();
            Ok(())
        }
    }
    let (mut length, mut whole) = (Length(1), String::new());
    let is_whole = fmt::write(&mut length, line).is_ok()
        && whole.try_reserve_exact(length.0).is_ok()
        && fmt::write(&mut whole, format_args!("{line}\n")).is_ok();
    // The standard library locks stderr. The process must not be forked while it is locked.
    let _section = Section::enter();
    let mut stderr = std::io::stderr();
    // `eprintln!` is not used, since it panics if stderr is closed.
    let _ = without_signals(|| match is_whole {
        true => stderr.write_all(whole.as_bytes()),
        false => writeln!(stderr, "{line}"),
    });
}

#[cfg(test)]
mod tests;
