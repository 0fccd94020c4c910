//! What the library tells its user unasked: warnings and errors, to a sink that can be replaced.
//!
//! Nothing is written on a path that runs per token, except the first time that something is wrong.

use std::io::Write;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::last_error;

/// How serious a message is; the numbers are those of `enum ggml_log_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Level {
    /// Worth knowing, not a fault.
    Info = 2,
    /// The library goes on, but something was not as it should be.
    Warn = 3,
    /// Something asked for was not done.
    Error = 4,
}

/// Where messages go. It is called without any lock held, so it may call back into the library.
pub type Sink = Arc<dyn Fn(Level, &str) + Send + Sync>;

static SINK: RwLock<Option<Sink>> = RwLock::new(None);

/// Replaces the sink; `None` is the default, stderr.
pub fn set_sink(sink: Option<Sink>) {
    *SINK.write() = sink;
}

/// The sink; `None` is the default.
pub fn sink() -> Option<Sink> {
    SINK.read().clone()
}

/// Gives `text` (no line end) to the sink.
pub fn log(level: Level, text: &str) {
    if let Some(sink) = sink() {
        sink(level, text);
        return;
    }
    let label = match level {
        Level::Info => "info",
        Level::Warn => "warning",
        Level::Error => "error",
    };
    // Not eprintln!, which panics where stderr is closed.
    let _ = writeln!(std::io::stderr(), "llama-sieve: {label}: {text}");
}

/// A warning, which is also kept as this thread's last error.
pub fn warn(text: &str) {
    kept(Level::Warn, text);
}

/// An error, which is also kept as this thread's last error.
pub fn error(text: &str) {
    kept(Level::Error, text);
}

fn kept(level: Level, text: &str) {
    last_error::set(text);
    log(level, text);
    // The sink may have called the library, which then speaks of that call.
    last_error::set(text);
}
