//! Memory whose amount the caller decides, and what happens where there is none.
//!
//! The standard library ends the process when an allocation fails. What grows with a caller's numbers (a window, biases, a vocabulary, the payload of a trie) is
//! therefore reserved fallibly; a failure unwinds to the guard, and the call gives its documented answer with nothing changed.

use std::collections::TryReserveError;
use std::panic::resume_unwind;

/// What unwinds.
#[derive(Debug)]
pub struct Exhausted;

/// To be given to `unwrap_or_else` behind a `try_reserve`.
#[cold]
pub fn exhausted<T>(_error: TryReserveError) -> T {
    // Not a panic: nothing is wrong with the library, and the panic hook would allocate.
    resume_unwind(Box::new(Exhausted))
}

/// A copy of `elements`.
pub fn copied<T: Copy>(elements: &[T]) -> Vec<T> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(elements.len())
        .unwrap_or_else(exhausted);
    copy.extend_from_slice(elements);
    copy
}

/// Appends one element.
pub fn push<T>(to: &mut Vec<T>, element: T) {
    if to.len() == to.capacity() {
        to.try_reserve(1).unwrap_or_else(exhausted);
    }
    to.push(element);
}
