//! Answers to failed allocations.
//!
//! The standard library ends the process when an allocation fails, and so does C++ where it may not
//! throw. What grows with a caller's numbers (a window, biases, a vocabulary, the payload of a
//! trie) is therefore reserved fallibly. What does not grow (the sampler's own box, the host's
//! shell, texts of errors, the standard library's and serde's small pieces) cannot fail in a way
//! that could be reported. So a call that makes or sets something first checks that there is
//! [`HEAD_ROOM`], and whatever it reserves leaves as much. After a failure the call returns what it
//! documents, with nothing changed: at the beginning without a single allocation, later by
//! unwinding to the guard.
//!
//! Another thread may take the room in between. Costs taking and giving back 16 KiB for each call
//! that makes or sets something, and for each 4 KiB that it reserves.

use std::cell::Cell;
use std::collections::{HashMap, TryReserveError};
use std::hash::{BuildHasher, Hash};
use std::hint::black_box;
use std::panic::resume_unwind;

use crate::random::HashSet;

/// The payload of the unwinding after a failed allocation.
#[derive(Debug)]
pub struct Exhausted;

/// The bytes of head room: more than any call allocates in pieces that do not grow with its
/// arguments, the host's and the report of a failure included.
pub const HEAD_ROOM: usize = 16 * 1024;

/// The bytes up to which small pieces are counted before the room is checked.
const UNSEEN: usize = 4096;

thread_local! {
    /// The bytes that this thread has claimed since it last checked that there is room.
    static CLAIMED: Cell<usize> = const { Cell::new(0) };
}

/// Checks that there is room for `bytes`, and head room after them.
pub fn room(bytes: usize) -> Result<(), TryReserveError> {
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(bytes.saturating_add(HEAD_ROOM))?;
    // Or the compiler takes it out, as nobody writes there.
    black_box(&mut probe);
    CLAIMED.set(0);
    Ok(())
}

/// Checks that there is room for `bytes` before they are reserved, unless they are few.
pub fn claim(bytes: usize) -> Result<(), TryReserveError> {
    let claimed = CLAIMED.get().saturating_add(bytes);
    if claimed >= UNSEEN {
        return room(bytes);
    }
    CLAIMED.set(claimed);
    Ok(())
}

/// Returns the bytes that a hash table takes for `n` entries of type `T`: the next power of two of
/// 8/7 of them, and a byte for each.
pub fn table_bytes<T>(n: usize) -> usize {
    let buckets = n.saturating_mul(8).div_ceil(7).next_power_of_two();
    buckets.saturating_mul(size_of::<T>() + 1)
}

/// Unwinds to the guard. Pass it to `unwrap_or_else` after a `try_reserve` or [`claim`].
#[cold]
pub fn exhausted<T>(_error: TryReserveError) -> T {
    // Not a panic: nothing is wrong with the library, and the panic hook would allocate.
    resume_unwind(Box::new(Exhausted))
}

/// Makes room for `n` elements in all; a buffer that is too small gets the next power of two.
pub fn reserve<T>(buffer: &mut Vec<T>, n: usize) {
    if buffer.capacity() < n {
        buffer.reserve_exact(n.next_power_of_two() - buffer.len());
    }
}

/// Makes room for exactly `n` more elements.
pub fn reserve_exact<T>(to: &mut Vec<T>, n: usize) -> Result<(), TryReserveError> {
    if to.capacity() - to.len() < n {
        claim((to.len() + n).saturating_mul(size_of::<T>()))?;
    }
    to.try_reserve_exact(n)
}

/// Returns an empty buffer with room for exactly `n` elements.
pub fn with_room<T>(n: usize) -> Result<Vec<T>, TryReserveError> {
    let mut elements = Vec::new();
    reserve_exact(&mut elements, n)?;
    Ok(elements)
}

/// Returns an empty buffer with room for `n` elements.
pub fn set_with_room<T: Eq + Hash>(n: usize) -> Result<HashSet<T>, TryReserveError> {
    let mut set = HashSet::default();
    claim(table_bytes::<T>(n))?;
    set.try_reserve(n)?;
    Ok(set)
}

/// Makes room for one more entry.
pub fn grow_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.len() == map.capacity() {
        let grown = (2 * map.len()).max(4);
        claim(table_bytes::<(K, V)>(grown))
            .and_then(|()| map.try_reserve(1))
            .unwrap_or_else(exhausted);
    }
}

/// Returns a copy of `elements`.
pub fn copied<T: Copy>(elements: &[T]) -> Vec<T> {
    let mut copy = with_room(elements.len()).unwrap_or_else(exhausted);
    copy.extend_from_slice(elements);
    copy
}

/// Returns a copy of `text` without spare capacity.
pub fn text(text: &str) -> String {
    let mut copy = String::new();
    claim(text.len()).unwrap_or_else(exhausted);
    copy.try_reserve_exact(text.len()).unwrap_or_else(exhausted);
    copy.push_str(text);
    copy
}

/// Appends one element.
pub fn push<T>(to: &mut Vec<T>, element: T) {
    if to.len() == to.capacity() {
        // As a vector grows.
        let grown = to.capacity().saturating_mul(2).max(4);
        claim(grown.saturating_mul(size_of::<T>())).unwrap_or_else(exhausted);
        to.try_reserve(1).unwrap_or_else(exhausted);
    }
    to.push(element);
}
