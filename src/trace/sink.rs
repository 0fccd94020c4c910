//! The destination of the lines: a file or a function, for one process.
//!
//! A forked child opens a destination of its own, or is not traced. The parent's locks, which are
//! those of [`crate::sync`], stay usable in the child.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::process;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::file::{LineFile, is_of_process, of_process};
use super::lines::{self, Place};
use super::observer::{Numbers, Observer, Stage};
use super::{ON, Options, Pieces};
use crate::kernels::logits::Logits;
use crate::log::{self, Level};
use crate::sync::Mutex;
use crate::token::Token;

/// A function that receives the lines, each with its line terminator. It is called with no lock
/// held.
pub type Function = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// The maximum number of sequences whose position is kept. Beyond it the oldest are forgotten.
const SEQUENCES: usize = 4096;

/// The time for which [`stop`] waits for calls of the function.
const PATIENCE: Duration = Duration::from_secs(10);

/// A destination.
struct Sink {
    process: u32,
    options: Options,
    began: Instant,
    pattern: Option<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<LineFile>,
    function: Option<Function>,
    sequences: BTreeMap<u64, Known>,
}

/// The stages and the position of a sequence.
struct Known {
    stages: Vec<(String, Numbers)>,
    n_vocab: usize,
    position: u64,
}

static CURRENT: Mutex<Option<Arc<Sink>>> = Mutex::new(None);

thread_local! {
    /// True while this thread is in a call of the trace's function. Tokens sampled in that call are
    /// not traced.
    static DELIVERS: Cell<bool> = const { Cell::new(false) };
}

/// True within a call of the trace's function.
pub fn delivers() -> bool {
    DELIVERS.get()
}

/// Runs `work`; if `delivers` is true, as if within a call of the trace's function. A thread that
/// helps another one passes that thread's value of [`delivers`].
pub fn delivering<T>(delivers: bool, work: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            DELIVERS.set(self.0);
        }
    }
    let _back = Back(DELIVERS.replace(delivers));
    work()
}

/// Ends the current trace, and starts one in a file, in whose name `%p` becomes the process id. The
/// file is emptied and, except on Windows, readable by this user only. Fails, with the reason, for
/// a link, for anything but a file, for a file with several names, for one to which another trace
/// is being written and, except on Windows, for another user's file.
pub fn to_file(pattern: &str, options: Options) -> Result<(), String> {
    begin(Some(pattern), None, options)
}

/// Ends the current trace, and starts one that is passed to a function line by line.
pub fn to_function(function: Function, options: Options) -> Result<(), String> {
    begin(None, Some(function), options)
}

/// Ends the trace. Waits at most ten seconds for running calls of the trace's function, unless this
/// thread is itself in such a call.
pub fn stop() {
    ON.store(false, Ordering::Relaxed);
    let sink = CURRENT.lock().take();
    let Some(sink) = sink.filter(|sink| sink.process == process::id()) else {
        return;
    };
    let function = {
        let mut state = sink.state.lock();
        state.file = None;
        state.sequences = BTreeMap::new();
        state.function.take()
    };
    let Some(function) = function else {
        return;
    };
    let started = Instant::now();
    while !DELIVERS.get() && Arc::strong_count(&function) > 1 && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn begin(
    pattern: Option<&str>,
    function: Option<Function>,
    options: Options,
) -> Result<(), String> {
    stop();
    let process = process::id();
    let file = pattern.map(|pattern| LineFile::open(&of_process(pattern, process)));
    let state = State {
        file: file.transpose()?,
        function,
        sequences: BTreeMap::new(),
    };
    let sink = Arc::new(Sink {
        process,
        options,
        began: Instant::now(),
        pattern: pattern.map(str::to_owned),
        state: Mutex::new(state),
    });
    *CURRENT.lock() = Some(Arc::clone(&sink));
    sink.send(lines::start(options));
    // The trace's function may have ended the trace already.
    let is_there = CURRENT.lock().is_some();
    ON.store(is_there, Ordering::Relaxed);
    Ok(())
}

/// Returns an observer of a token; `None` if the token is not traced.
#[cold]
pub(super) fn observer(logits: Logits<'_>) -> Option<Box<Observer>> {
    if DELIVERS.get() {
        return None;
    }
    let sink = of_this_process()?;
    Some(Box::new(Observer::new(logits, sink.options)))
}

/// Returns the destination of this process. A forked child opens a file of its own.
fn of_this_process() -> Option<Arc<Sink>> {
    let found = Sink::known(&mut CURRENT.lock());
    found.unwrap_or_else(|text| {
        ON.store(false, Ordering::Relaxed);
        let text = format!("the trace of a forked process ends: {text}");
        log::log(Level::Warn, &text);
        None
    })
}

impl Observer {
    /// Writes the lines of the [chosen](super::Watch::chosen) token, if there is one. `refused` is
    /// the token that a grammar refused before it.
    pub fn deliver(self: Box<Self>, sequence: u64, pieces: Pieces<'_>, refused: Option<Token>) {
        let Some((sink, place)) = self.place(sequence, refused) else {
            return;
        };
        sink.send(lines::token(place, &self, pieces));
    }

    /// Writes a line for `token`, which the host has accepted instead of the chosen one.
    pub fn deliver_other(self: Box<Self>, sequence: u64, pieces: Pieces<'_>, token: Token) {
        let Some((sink, place)) = self.place(sequence, self.token()) else {
            return;
        };
        sink.send(lines::other(place, token, self.options, pieces));
    }

    /// Returns the position of this sequence's next line. First writes the sequence's own line, if
    /// the sequence is new or its stages have changed.
    fn place(&self, sequence: u64, refused: Option<Token>) -> Option<(Arc<Sink>, Place)> {
        let sink = of_this_process().filter(|_| self.chosen.is_some())?;
        let (position, is_new) = sink.advance(sequence, self);
        if is_new {
            sink.send(lines::sequence(sequence, self));
        }
        let since = sink.began.elapsed();
        let place = Place {
            sequence,
            position,
            since,
            refused,
        };
        Some((sink, place))
    }
}

impl Sink {
    /// Returns the destination of this process. A forked child replaces the parent's with a file of
    /// its own. If there is no file, or its name would be the same, the trace ends and the result
    /// is `None`. Fails if the new file cannot be opened or written.
    fn known(current: &mut Option<Arc<Self>>) -> Result<Option<Arc<Self>>, String> {
        let process = process::id();
        let Some(sink) = current else {
            return Ok(None);
        };
        if sink.process == process {
            return Ok(Some(Arc::clone(sink)));
        }
        let pattern = sink.pattern.as_deref().filter(|name| is_of_process(name));
        let Some(pattern) = pattern else {
            ON.store(false, Ordering::Relaxed);
            return Ok(None);
        };
        let mut file = LineFile::open(&of_process(pattern, process))?;
        let begun = file.write(&lines::start(sink.options));
        begun.map_err(|error| error.to_string())?;
        let own = Arc::new(Self {
            process,
            options: sink.options,
            began: Instant::now(),
            pattern: sink.pattern.clone(),
            state: Mutex::new(State {
                file: Some(file),
                ..State::default()
            }),
        });
        *current = Some(Arc::clone(&own));
        Ok(Some(own))
    }

    /// Returns the position of this token in its sequence, and true if the sequence is new or its
    /// stages have changed.
    fn advance(&self, sequence: u64, of: &Observer) -> (u64, bool) {
        let mut state = self.state.lock();
        let known = state.sequences.get_mut(&sequence);
        if let Some(known) = known {
            let position = match of.replaces {
                true => known.position.saturating_sub(1),
                false => known.position,
            };
            known.position = position + 1;
            if known.is_of(of) {
                return (position, false);
            }
            *known = Known::of(of, position + 1);
            return (position, true);
        }
        if state.sequences.len() >= SEQUENCES {
            state.sequences.pop_first();
        }
        state.sequences.insert(sequence, Known::of(of, 1));
        (0, true)
    }

    /// Writes a line to the file, or passes it to the function, which is called without the lock.
    fn send(&self, line: Vec<u8>) {
        if line.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let function = state.function.clone();
        let written = state.file.as_mut().map(|file| file.write(&line));
        if let Some(Err(error)) = written {
            state.file = None;
            drop(state);
            ON.store(false, Ordering::Relaxed);
            let text = format!("the trace ends here, its file cannot be written: {error}");
            return log::log(Level::Warn, &text);
        }
        drop(state);
        if let Some(function) = function {
            delivering(true, || function(&line));
        }
    }
}

impl Known {
    fn of(of: &Observer, position: u64) -> Self {
        let stages = of.stages.iter();
        Self {
            stages: stages
                .map(|stage| (stage.name.to_string(), stage.parameters.clone()))
                .collect(),
            n_vocab: of.n_vocab,
            position,
        }
    }

    fn is_of(&self, of: &Observer) -> bool {
        let same = |(known, stage): (&(String, Numbers), &Stage)| {
            known.0 == stage.name && known.1 == stage.parameters
        };
        self.n_vocab == of.n_vocab
            && self.stages.len() == of.stages.len()
            && self.stages.iter().zip(&of.stages).all(same)
    }
}
