//! The handlers of a fork on POSIX systems.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{COUNTERS, DEPTH, FORKS, own_counter};

/// The pause between two checks while a thread waits.
const PAUSE: Duration = Duration::from_micros(50);

/// The most that one pause counts towards the waiting time. A longer pause is taken as a sign that
/// the process was stopped or had no processor, so that the thread that is waited for could not run
/// either. If only this thread woke late, the wait lasts longer than its limit.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// The longest time that a fork waits for other threads: longer than any of them holds a lock.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The longest time that threads wait for a fork: as long as copying a large process takes. A fork
/// that has not ended by then is assumed to wait for a lock of the program that one of the waiting
/// threads holds.
pub(super) const LONGEST_FORK: Duration = Duration::from_secs(1);

/// The number of forks that have ever begun.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

/// The number of forks that have ended in the parent.
static ENDED: AtomicUsize = AtomicUsize::new(0);

/// The value of [`BEGUN`] up to which threads no longer wait for the forks.
static PASSED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of forks that the thread has begun and that have not ended.
    static OWN_FORKS: Cell<usize> = const { Cell::new(0) };
}

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

/// Called before a fork. Makes other threads wait before they are counted, and waits at most
/// [`PATIENCE`] until none is counted.
pub(super) extern "C" fn begins() {
    OWN_FORKS.set(OWN_FORKS.get() + 1);
    BEGUN.fetch_add(1, Ordering::SeqCst);
    FORKS.fetch_add(1, Ordering::SeqCst);
    let mut waited = Duration::ZERO;
    while counted() > own_count() && waited < PATIENCE {
        waited += pause();
    }
}

/// Called in the parent after a fork. Lets other threads continue.
pub(super) extern "C" fn is_over() {
    // If the handlers were registered after the fork had begun, it was not counted.
    let Some(left) = OWN_FORKS.get().checked_sub(1) else {
        return;
    };
    OWN_FORKS.set(left);
    ENDED.fetch_add(1, Ordering::SeqCst);
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

/// Called in the child, which has no other threads.
pub(super) extern "C" fn has_made_a_child() {
    for counter in &COUNTERS {
        counter.0.store(0, Ordering::SeqCst);
    }
    own_counter().0.store(own_count(), Ordering::SeqCst);
    OWN_FORKS.set(0);
    FORKS.store(0, Ordering::SeqCst);
}

/// Waits for the forks that have begun, unless the calling thread itself forks. The thread is
/// counted before and afterwards, but not while it waits.
#[cold]
pub(super) fn count_after_forks(counter: &AtomicUsize) {
    // Counts first, and then checks, as `count` does.
    while OWN_FORKS.get() == 0 && must_wait() {
        counter.fetch_sub(1, Ordering::SeqCst);
        wait();
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns true if a fork has begun that threads wait for.
fn must_wait() -> bool {
    FORKS.load(Ordering::SeqCst) != 0 && !are_passed()
}

/// Returns true if threads no longer wait for the forks that have begun.
pub(super) fn are_passed() -> bool {
    PASSED.load(Ordering::SeqCst) == BEGUN.load(Ordering::SeqCst)
}

/// Sleeps, and returns how much of that time counts.
fn pause() -> Duration {
    let started = Instant::now();
    thread::sleep(PAUSE);
    started.elapsed().min(LONGEST_PAUSE)
}

/// Waits until there is no fork to wait for. If none has ended for [`LONGEST_FORK`], no thread
/// waits any longer for those that have begun.
fn wait() {
    let mut ended = ENDED.load(Ordering::SeqCst);
    let mut waited = Duration::ZERO;
    while must_wait() {
        if waited >= LONGEST_FORK {
            PASSED.store(BEGUN.load(Ordering::SeqCst), Ordering::SeqCst);
            return;
        }
        waited += pause();
        let ended_now = ENDED.load(Ordering::SeqCst);
        if ended_now != ended {
            (ended, waited) = (ended_now, Duration::ZERO);
        }
    }
}

/// Registers the handlers when the library is loaded, so that handlers that the program registers
/// later run before [`begins`].
#[cfg(not(miri))]
#[used]
// SAFETY: the section holds functions of this type, which the loader calls once. This one needs
// nothing but the C library, which is initialised before it.
#[cfg_attr(
    target_vendor = "apple",
    unsafe(link_section = "__DATA,__mod_init_func")
)]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        super::watch_forks();
    }
    at_load
};

/// Registers the handlers of a fork with the C library. Returns true if that succeeded.
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
    // SAFETY: POSIX's function. On Linux the handlers stay valid, since the library is never
    // unloaded.
    unsafe { pthread_atfork(begins, is_over, has_made_a_child) == 0 }
}
