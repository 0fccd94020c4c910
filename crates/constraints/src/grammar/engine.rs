//! A compiled grammar with the masks that were found so far, shared by all samplers of the grammar.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use llama_sieve_kernels::sync::Mutex;

use crate::grammar::compiled::Compiled;
use crate::grammar::limits::MAX_IDLE_BYTES;
use crate::grammar::masks::{Masks, note_growth};
use crate::grammar::states::budget::Budget;
use crate::grammar::tables::Tables;

/// A compiled grammar, its masks, and the tables that no sampler currently uses.
#[derive(Debug)]
pub struct Engine {
    compiled: Arc<Compiled>,
    masks: Masks,
    idle: Mutex<Vec<Tables>>,
    budget: Budget,
    /// The size of `compiled` in bytes.
    fixed_bytes: usize,
    bytes_of_idle: AtomicUsize,
}

impl Engine {
    /// Returns an engine that has no masks yet.
    pub fn new(compiled: Compiled) -> Self {
        Self {
            fixed_bytes: compiled.bytes(),
            compiled: Arc::new(compiled),
            masks: Masks::default(),
            idle: Mutex::default(),
            budget: Budget::default(),
            bytes_of_idle: AtomicUsize::new(0),
        }
    }

    /// Returns the engine with another budget per call, for tests, since the real limits are large.
    pub fn within(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Returns the limit on the work of each call.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Returns the grammar.
    pub fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// Returns the masks that were found so far.
    pub fn masks(&self) -> &Masks {
        &self.masks
    }

    /// Returns the size of the engine in bytes, without the vocabulary and the tables in use.
    pub fn bytes(&self) -> usize {
        self.fixed_bytes + self.masks.bytes() + self.bytes_of_idle.load(Ordering::Relaxed)
    }

    /// Returns the tables that an earlier sampler has left behind, or new ones.
    pub fn tables(&self) -> Tables {
        let mut idle = self.idle.lock();
        let tables = idle.pop();
        if let Some(tables) = &tables {
            self.bytes_of_idle
                .fetch_sub(tables.bytes(), Ordering::Relaxed);
        }
        drop(idle);
        tables.unwrap_or_else(|| Tables::new(&self.compiled))
    }

    /// Keeps tables for the next sampler, unless the kept tables would exceed [`MAX_IDLE_BYTES`].
    pub fn leave(&self, tables: Tables) {
        let bytes = tables.bytes();
        let mut idle = self.idle.lock();
        if self.bytes_of_idle.load(Ordering::Relaxed) + bytes <= MAX_IDLE_BYTES {
            self.bytes_of_idle.fetch_add(bytes, Ordering::Relaxed);
            note_growth(bytes);
            idle.push(tables);
        }
    }

    /// Drops all masks and tables.
    pub fn forget(&self) {
        self.masks.forget();
        let mut idle = self.idle.lock();
        let dropped = std::mem::take(&mut *idle);
        self.bytes_of_idle.store(0, Ordering::Relaxed);
        drop(idle);
        drop(dropped);
    }
}
