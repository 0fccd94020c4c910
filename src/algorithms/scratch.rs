//! Buffers that a copy of their owner does without.

use std::cell::OnceCell;
use std::ops::{Deref, DerefMut};

/// What is in it has meaning only within one call: a clone begins with an empty one. Hosts clone
/// and free whole chains between two tokens, and a vocabulary's worth of buffers is a long copy.
/// Even many empty buffers take time to copy, so each is made at its first use.
#[derive(Debug)]
pub struct Scratch<T>(OnceCell<Box<T>>);

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        Self(OnceCell::new())
    }
}

impl<T> Clone for Scratch<T> {
    fn clone(&self) -> Self {
        Self::default()
    }

    /// Keeps what is there: the next call needs it again.
    fn clone_from(&mut self, _source: &Self) {}
}

/// Implements `Clone` field by field, so that `clone_from` keeps the buffers: hosts copy the state
/// of one chain to another, which goes on sampling. (A derived `clone_from` replaces the whole.)
macro_rules! clone_by_field {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl Clone for $name {
            fn clone(&self) -> Self {
                Self { $($field: self.$field.clone()),* }
            }

            fn clone_from(&mut self, source: &Self) {
                $(self.$field.clone_from(&source.$field);)*
            }
        }
    };
}
pub(crate) use clone_by_field;

/// Makes room for `n` values that are to be written over. What is there stays: to clear it would
/// have it filled anew first, which is a pass of its own.
pub fn room_to_write_over<T>(buffer: &mut Vec<T>, n: usize) {
    buffer.reserve(n.saturating_sub(buffer.len()));
}

impl<T: Default> Deref for Scratch<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.get_or_init(Box::default)
    }
}

impl<T: Default> DerefMut for Scratch<T> {
    #[inline]
    #[expect(clippy::unreachable, reason = "it has just been made")]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_init(Box::default);
        match self.0.get_mut() {
            Some(made) => made,
            None => unreachable!(),
        }
    }
}
