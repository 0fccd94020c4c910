//! Handles failed allocations.
//!
//! The standard library aborts the process when an allocation fails, and so does C++ where it may
//! not throw. Memory whose size depends on the caller (a window, biases, a vocabulary, the payload
//! of a trie) is therefore reserved fallibly, with the exceptions that docs/reliability.md lists.
//! If that fails, a call that makes or sets something changes nothing and returns its documented
//! error: at once if the memory is reserved when the call begins, otherwise by unwinding to the
//! guard around each call from C. Memory of small fixed size (a sampler's own box, the host's
//! wrapper around it, texts of errors, small pieces of the standard library and of serde) is
//! allocated infallibly. If a few KiB are not available, the host's own allocations abort the
//! process as well.

use std::collections::{HashMap, TryReserveError};
use std::hash::{BuildHasher, Hash};
use std::hint::black_box;
use std::panic::resume_unwind;

use crate::random::HashSet;

/// The payload of the unwinding after a failed allocation.
#[derive(Debug)]
pub struct Exhausted;

/// Checks that `bytes` bytes can be allocated. Call it before work that allocates up to that many
/// in small pieces. Another thread may still take them in between.
pub fn room(bytes: usize) -> Result<(), TryReserveError> {
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(bytes)?;
    // Otherwise the compiler removes the allocation, since nothing is written to it.
    black_box(&mut probe);
    Ok(())
}

/// Unwinds to the guard. Pass it to `unwrap_or_else` after a `try_reserve`.
#[cold]
pub fn exhausted<T>(_error: TryReserveError) -> T {
    // Not a panic: nothing is wrong with the library, and the panic hook would allocate.
    resume_unwind(Box::new(Exhausted))
}

/// Reserves memory for `n` elements in all; a buffer that is too small grows to the next power of
/// two.
pub fn reserve<T>(buffer: &mut Vec<T>, n: usize) {
    if buffer.capacity() < n {
        buffer.reserve_exact(n.next_power_of_two() - buffer.len());
    }
}

/// Reserves memory for exactly `n` more elements.
pub fn reserve_exact<T>(to: &mut Vec<T>, n: usize) -> Result<(), TryReserveError> {
    to.try_reserve_exact(n)
}

/// Returns an empty buffer with room for exactly `n` elements.
pub fn with_room<T>(n: usize) -> Result<Vec<T>, TryReserveError> {
    let mut elements = Vec::new();
    reserve_exact(&mut elements, n)?;
    Ok(elements)
}

/// Returns an empty set with room for `n` elements.
pub fn set_with_room<T: Eq + Hash>(n: usize) -> Result<HashSet<T>, TryReserveError> {
    let mut set = HashSet::default();
    set.try_reserve(n)?;
    Ok(set)
}

/// Reserves memory for one more entry. Unwinds to the guard if there is no memory.
pub fn grow_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    map.try_reserve(1).unwrap_or_else(exhausted);
}

/// Returns a copy of `elements`. Unwinds to the guard if there is no memory.
pub fn copied<T: Copy>(elements: &[T]) -> Vec<T> {
    let mut copy = with_room(elements.len()).unwrap_or_else(exhausted);
    copy.extend_from_slice(elements);
    copy
}

/// Returns a copy of `text` without spare capacity. Unwinds to the guard if there is no memory.
pub fn text(text: &str) -> String {
    let mut copy = String::new();
    copy.try_reserve_exact(text.len()).unwrap_or_else(exhausted);
    copy.push_str(text);
    copy
}

/// Appends one element. Unwinds to the guard if there is no memory.
pub fn push<T>(to: &mut Vec<T>, element: T) {
    to.try_reserve(1).unwrap_or_else(exhausted);
    to.push(element);
}
