//! A value for one thread at a time. A second thread polls until the value is free.
//!
//! This is cheaper than a mutex, since no thread is woken: entering is one atomic exchange, and
//! leaving is a plain store. A mutex needs two exchanges to know if it must wake a thread.

use std::cell::UnsafeCell;
use std::hint;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A value, and a flag that is set while it is taken.
pub(crate) struct Exclusive<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has set `taken` reaches the value, until it clears it.
unsafe impl<T: Send> Sync for Exclusive<T> {}

/// Access to the value. Dropping it clears the flag.
pub(crate) struct Taken<'a, T> {
    of: &'a Exclusive<T>,
    /// Makes this `Send` and `Sync` only if a mutable reference to the value is.
    value: PhantomData<&'a mut T>,
}

/// The number of attempts of a waiting thread before it sleeps. Some calls take less time than
/// falling asleep.
const LOOKS: usize = 100;

/// The pause between two attempts after the first [`LOOKS`].
const PAUSE: Duration = Duration::from_micros(50);

/// The most that one pause counts towards the waiting time. A longer pause is taken as a sign that
/// the process was stopped or had no processor, so that the thread that holds the value could not
/// run either. If only this thread woke late, the wait lasts longer than its limit.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

impl<T> Exclusive<T> {
    /// Returns the value with a cleared flag.
    pub(crate) fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the value; `None` if it is taken already.
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

    /// Takes the value. If it is taken already, waits for about `patience` at most, and then
    /// returns `None`.
    #[inline]
    pub(crate) fn take_within(&self, patience: Duration) -> Option<Taken<'_, T>> {
        self.take().or_else(|| self.wait(patience))
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, patience: Duration) -> Option<Taken<'_, T>> {
        for _ in 0..LOOKS {
            hint::spin_loop();
            if let Some(taken) = self.take_if_free() {
                return Some(taken);
            }
        }
        let mut waited = Duration::ZERO;
        while waited < patience {
            let start = Instant::now();
            thread::sleep(PAUSE);
            waited += start.elapsed().min(LONGEST_PAUSE);
            if let Some(taken) = self.take_if_free() {
                return Some(taken);
            }
        }
        None
    }

    /// Takes the value like [`take`](Self::take), but writes the flag only if it is clear.
    fn take_if_free(&self) -> Option<Taken<'_, T>> {
        if self.taken.load(Ordering::Relaxed) {
            return None;
        }
        self.take()
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: only the holder of this accesses the value.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: only the holder of this accesses the value.
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
