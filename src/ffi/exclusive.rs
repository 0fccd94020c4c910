//! A value for one thread at a time, which a second one does not get.
//!
//! Cheaper than a mutex, since nobody sleeps on it: entering is one atomic exchange, leaving a
//! plain store, where a mutex exchanges twice to see whether it must wake somebody.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A value, and a flag that is set while somebody has it.
pub(crate) struct Exclusive<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has set `taken` reaches the value, until it clears it.
unsafe impl<T: Send> Sync for Exclusive<T> {}

/// The value, until this is dropped.
pub(crate) struct Taken<'a, T> {
    of: &'a Exclusive<T>,
    /// Shared between threads only if the value may be.
    value: PhantomData<&'a mut T>,
}

/// The pause between two attempts of a waiting thread.
const PAUSE: Duration = Duration::from_micros(50);

impl<T> Exclusive<T> {
    /// Makes one that nobody has yet.
    pub(crate) fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, unless somebody has it.
    #[inline]
    pub(crate) fn take(&self) -> Option<Taken<'_, T>> {
        if self.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Taken {
            of: self,
            value: PhantomData,
        })
    }

    /// Takes the value, and waits for it, at most this long, while somebody has it.
    pub(crate) fn take_within(&self, patience: Duration) -> Option<Taken<'_, T>> {
        if let Some(taken) = self.take() {
            return Some(taken);
        }
        let start = Instant::now();
        while start.elapsed() < patience {
            thread::sleep(PAUSE);
            if let Some(taken) = self.take() {
                return Some(taken);
            }
        }
        None
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: whoever holds this is alone with the value.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: whoever holds this is alone with the value.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.of.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
