//! Records traces, and checks their lines against the schema.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use llama_sieve::trace::{self, Options};
use serde_json::Value;

use crate::schemas::Schema;

/// The lines that a trace has so far.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Begins a trace.
    pub fn begin(options: &str) -> Self {
        let lines = Self::default();
        let to = lines.clone();
        let push = move |line: &[u8]| {
            let line = String::from_utf8(line.to_vec()).expect("UTF-8");
            to.0.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line);
        };
        let options = Options::parse(options).expect("known options");
        trace::to_function(Arc::new(push), options).expect("nothing that can fail");
        lines
    }

    /// Ends the trace. Returns its lines, after checking them against the schema.
    pub fn end(self) -> Vec<Value> {
        trace::stop();
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = lines.iter();
        let lines: Vec<Value> = lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        check(&lines);
        lines
    }
}

/// Checks lines against the committed schema.
pub fn check(lines: &[Value]) {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::of("docs/trace.schema.json"));
    lines.iter().for_each(|line| SCHEMA.check(line));
}

/// Returns the lines of tokens.
pub fn tokens(lines: &[Value]) -> Vec<&Value> {
    let of_tokens = lines.iter().filter(|line| line["kind"] == "token");
    of_tokens.collect()
}
