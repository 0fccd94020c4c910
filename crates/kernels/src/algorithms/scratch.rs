//! Buffers that belong to the thread. Their contents are valid only within one call.

use std::cell::OnceCell;
use std::ops::{Deref, DerefMut};

use crate::per_thread::Lent;

/// A buffer that is borrowed from the thread at its first use in a call, and returned by
/// [`rest`](Self::rest). The samplers of a thread share one buffer of each type, so that a new
/// sampler finds memory that is already allocated. Without `rest` the buffer stays with its
/// borrower.
///
/// A clone begins without a buffer: hosts clone and free whole chains between two tokens, and
/// copying buffers for a whole vocabulary takes long.
#[derive(Debug)]
pub struct Scratch<T>(OnceCell<Box<T>>);

impl<T: Lent> Scratch<T> {
    /// Returns the buffer to the thread, for the next call there.
    #[inline]
    pub fn rest(&mut self) {
        if let Some(lent) = self.0.take() {
            lent.give_back();
        }
    }
}

impl<T: Lent + Room> Room for Scratch<T> {
    fn warm_up(&mut self, n: usize) {
        (**self).warm_up(n);
    }
}

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        Self(OnceCell::new())
    }
}

impl<T> Clone for Scratch<T> {
    fn clone(&self) -> Self {
        Self::default()
    }

    /// Keeps the buffer, since the next call needs it again.
    fn clone_from(&mut self, _source: &Self) {}
}

/// Buffers whose memory can be reserved in advance: as much as any array of `n` candidates may
/// need. Reserving may discard their contents. Reserved pages that are never written to take no
/// physical memory.
pub trait Room {
    /// Reserves memory for `n` candidates.
    fn warm_up(&mut self, n: usize);
}

/// The number of elements that are reserved in addition to `n`: for the register that a kernel may
/// write past the end, and for the heaps and samples of small arrays.
pub const BESIDE: usize = 128;

impl<T> Room for Vec<T> {
    fn warm_up(&mut self, n: usize) {
        self.clear();
        self.reserve(n + BESIDE);
    }
}

impl<T: Room, const N: usize> Room for [T; N] {
    fn warm_up(&mut self, n: usize) {
        self.iter_mut().for_each(|buffer| buffer.warm_up(n));
    }
}

/// Implements [`Room`] for a struct by reserving memory in each of its fields. Fields after a
/// semicolon use [`room_to_write_over`].
#[doc(hidden)]
#[macro_export]
macro_rules! room {
    ($name:ident: $($field:tt),* $(; $($kept:ident),*)?) => {
        impl $crate::algorithms::scratch::Room for $name {
            fn warm_up(&mut self, n: usize) {
                $($crate::algorithms::scratch::Room::warm_up(&mut self.$field, n);)*
                $($($crate::algorithms::scratch::room_to_write_over(&mut self.$kept, n);)*)?
            }
        }
    };
}
pub use room;

/// Reserves memory for `n` values that will be overwritten. Keeps the old values: a cleared buffer
/// would first have to be filled again, which is an extra pass.
pub fn room_to_write_over<T>(buffer: &mut Vec<T>, n: usize) {
    buffer.reserve((n + BESIDE).saturating_sub(buffer.len()));
}

impl<T: Lent> Deref for Scratch<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.get_or_init(T::lend)
    }
}

impl<T: Lent> DerefMut for Scratch<T> {
    #[inline]
    #[expect(clippy::unreachable, reason = "it has just been made")]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_init(T::lend);
        match self.0.get_mut() {
            Some(made) => made,
            None => unreachable!(),
        }
    }
}
