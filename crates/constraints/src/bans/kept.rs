//! Memoizes a list for each state, which is found when a text first reaches the state.

// In bounds: states are positions in an array that never changes.

use std::sync::atomic::{AtomicUsize, Ordering};

use llama_sieve_kernels::sync::OnceLock;

use crate::memory::{exhausted, with_room};

/// The maximum size of all kept lists, in bytes. A list beyond this limit is found again each time.
const MAX_KEPT_BYTES: usize = 32 << 20;

/// The lists that have been found, by state.
#[derive(Debug)]
pub(super) struct Kept<T> {
    lists: Vec<OnceLock<Box<[T]>>>,
    bytes: AtomicUsize,
    most_bytes: usize,
}

impl<T> Kept<T> {
    /// Returns an empty table for states below `n_states`.
    pub(super) fn new(n_states: usize) -> Self {
        Self::with_limit(n_states, MAX_KEPT_BYTES)
    }

    /// Returns an empty table that keeps at most `most_bytes` of lists.
    pub(super) fn with_limit(n_states: usize, most_bytes: usize) -> Self {
        let mut lists = with_room(n_states).unwrap_or_else(exhausted);
        lists.resize_with(n_states, OnceLock::default);
        Self {
            lists,
            bytes: AtomicUsize::new(0),
            most_bytes,
        }
    }

    /// Returns the list of a state, if it is known.
    #[inline]
    pub(super) fn get(&self, state: u32) -> Option<&[T]> {
        Some(self.lists[state as usize].get()?)
    }

    /// Keeps the list of a state, and returns it.
    ///
    /// # Errors
    /// Returns the list if there is no room for it.
    pub(super) fn keep(&self, state: u32, list: Vec<T>) -> Result<&[T], Vec<T>> {
        let bytes = size_of_val(&list[..]);
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most_bytes {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(list);
        }
        Ok(self.lists[state as usize].get_or_init(|| list.into()))
    }
}
