//! The functions of forks on POSIX systems.

use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::{COUNTERS, DEPTH, FORKS, PAUSE, own_counter};

/// The time that a fork waits for other threads: longer than any of them holds a lock.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the number of counted threads.
pub(super) fn counted() -> usize {
    let counters = COUNTERS.iter();
    counters
        .map(|counter| counter.0.load(Ordering::SeqCst))
        .sum()
}

/// Returns 1 if the calling thread is counted, otherwise 0.
fn own_count() -> usize {
    usize::from(DEPTH.get() > 0)
}

/// Called before a fork. Waits at most [`PATIENCE`] until no other thread is counted, and lets none
/// be counted from then on.
extern "C" fn begins() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    let started = Instant::now();
    while counted() > own_count() && started.elapsed() < PATIENCE {
        thread::sleep(PAUSE);
    }
}

/// Called in the parent after a fork. Lets other threads continue.
extern "C" fn is_over() {
    // Where this was registered after the fork had begun, that was not counted.
    let _ = FORKS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |forks| {
        forks.checked_sub(1)
    });
}

/// Called in the child, which has no other threads.
extern "C" fn has_made_a_child() {
    for counter in &COUNTERS {
        counter.0.store(0, Ordering::SeqCst);
    }
    own_counter().0.store(own_count(), Ordering::SeqCst);
    FORKS.store(0, Ordering::SeqCst);
}

/// True if the C library calls the handlers of a fork.
#[cold]
pub(super) fn is_registered() -> bool {
    // Miri has no forks.
    if cfg!(miri) {
        return true;
    }
    unsafe extern "C" {
        fn pthread_atfork(
            before: extern "C" fn(),
            in_parent: extern "C" fn(),
            in_child: extern "C" fn(),
        ) -> c_int;
    }
    // SAFETY: POSIX's function. What it is given stays: the library is never unloaded.
    unsafe { pthread_atfork(begins, is_over, has_made_a_child) == 0 }
}
