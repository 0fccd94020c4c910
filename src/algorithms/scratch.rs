//! Buffers that a copy of their owner does without.

use std::ops::{Deref, DerefMut};

/// What is in it has meaning only within one call: a clone begins with an empty one. Hosts clone
/// and free whole chains between two tokens, and a vocabulary's worth of buffers is a long copy.
#[derive(Debug, Default)]
pub struct Scratch<T>(T);

impl<T: Default> Clone for Scratch<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> Deref for Scratch<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
