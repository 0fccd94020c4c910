//! Threads that help with the work of one call.
//!
//! What lost: rayon's scopes. A scope ends when each of its tasks has run, also one that no thread has taken up by the time that all work is done: a thread that wakes up
//! late, on a processor that has been idle or is busy, holds the call. Here a thread that comes too late finds nothing, and nobody waits for it.
//!
//! A thread that has had nothing to do for [`PATIENCE`] ends, so that after a while a program that has no more use for the library has no thread of it; until then the C
//! library keeps the code mapped for the sake of their thread-local variables.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long a thread waits for work.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a caller that is done looks whether the others are, before it sleeps: as long as their last pieces of work take, which is less than to fall asleep and be woken.
const SPIN: Duration = Duration::from_micros(100);

/// What all threads of one call run; it lives until the call returns.
#[derive(Clone, Copy)]
struct Work(*const (dyn Fn() + Sync));
// SAFETY: what it points to is `Sync`.
unsafe impl Send for Work {}

/// How many threads are in the work of one call, and whether one has panicked.
#[derive(Default)]
struct Inside {
    threads: AtomicUsize,
    panicked: AtomicBool,
}

/// Work that threads may still join.
struct Open {
    work: Work,
    inside: Arc<Inside>,
    /// How many more may.
    places: usize,
}

#[derive(Default)]
struct State {
    open: Vec<Open>,
    /// Used again for the next call.
    spare: Vec<Arc<Inside>>,
    threads: usize,
    idle: usize,
}

struct Pool {
    state: Mutex<State>,
    /// There is something to join.
    opened: Condvar,
    /// A thread has left the work that it was in last.
    left: Condvar,
}

static POOL: Pool = Pool {
    state: Mutex::new(State {
        open: Vec::new(),
        spare: Vec::new(),
        threads: 0,
        idle: 0,
    }),
    opened: Condvar::new(),
    left: Condvar::new(),
};

/// Runs `work` on this thread, and at the same time on up to `helpers` others, as many as come before it is done here. Returns when all that have begun it are done; `work`
/// must find out itself what there is left to do.
///
/// Panics if one of them does.
pub fn share(helpers: usize, work: &(dyn Fn() + Sync)) {
    let helpers = helpers.min(processors().saturating_sub(1));
    if helpers == 0 {
        return work();
    }
    let inside = POOL.open(helpers, work);
    let result = catch_unwind(AssertUnwindSafe(work));
    POOL.close(&inside);
    let panicked = inside.panicked.swap(false, Ordering::Relaxed);
    POOL.state.lock().spare.push(inside);
    if let Err(payload) = result {
        resume_unwind(payload);
    }
    if panicked {
        resume_unwind(Box::new("a thread of a batch has panicked"));
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

impl Pool {
    /// Lets up to `helpers` threads join `work`, until [`close`](Self::close).
    fn open(&'static self, helpers: usize, work: &(dyn Fn() + Sync)) -> Arc<Inside> {
        let work: *const (dyn Fn() + Sync) = work;
        // SAFETY: only the lifetime changes; `close` waits for all that have joined, and lets nobody join afterwards.
        let work = Work(unsafe {
            std::mem::transmute::<*const (dyn Fn() + Sync), *const (dyn Fn() + Sync)>(work)
        });
        let mut state = self.state.lock();
        let inside = state.spare.pop().unwrap_or_default();
        state.open.push(Open {
            work,
            inside: Arc::clone(&inside),
            places: helpers,
        });
        let missing = helpers.saturating_sub(state.idle);
        let missing = missing.min(processors().saturating_sub(1 + state.threads));
        for _ in 0..missing {
            let thread = thread::Builder::new().name("llama-sieve".into());
            // Without it the call does its work all the same.
            if thread.spawn(|| self.help()).is_err() {
                break;
            }
            state.threads += 1;
        }
        drop(state);
        for _ in 0..helpers {
            self.opened.notify_one();
        }
        inside
    }

    /// Lets nobody join any more, and waits for those that have.
    fn close(&self, inside: &Arc<Inside>) {
        let mut state = self.state.lock();
        state.open.retain(|open| !Arc::ptr_eq(&open.inside, inside));
        drop(state);
        let busy = || inside.threads.load(Ordering::Acquire) > 0;
        let start = Instant::now();
        while busy() {
            if start.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            let mut state = self.state.lock();
            while busy() {
                self.left.wait(&mut state);
            }
        }
    }

    /// What a thread of the pool does.
    fn help(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((work, inside)) = state.join() {
                drop(state);
                // SAFETY: `close` waits until this thread is no longer inside.
                let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*work.0)() }));
                if result.is_err() {
                    inside.panicked.store(true, Ordering::Relaxed);
                }
                let last = inside.threads.fetch_sub(1, Ordering::Release) == 1;
                drop(inside);
                state = self.state.lock();
                if last {
                    self.left.notify_all();
                }
                continue;
            }
            state.idle += 1;
            let waited = self.opened.wait_for(&mut state, PATIENCE);
            state.idle -= 1;
            if waited.timed_out() && state.open.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

impl State {
    /// The first work with a place left, entered.
    fn join(&mut self) -> Option<(Work, Arc<Inside>)> {
        let open = self.open.iter_mut().find(|open| open.places > 0)?;
        open.places -= 1;
        open.inside.threads.fetch_add(1, Ordering::Relaxed);
        Some((open.work, Arc::clone(&open.inside)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_to(n: usize, helpers: usize) -> usize {
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        share(helpers, &|| {
            while next.fetch_add(1, Ordering::Relaxed) < n {
                thread::sleep(Duration::from_micros(50));
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        done.into_inner()
    }

    #[test]
    fn all_work_is_done_once() {
        for helpers in [0, 1, 2, 100] {
            for n in [0, 1, 7, 100] {
                assert_eq!(count_to(n, helpers), n);
            }
        }
    }

    #[test]
    fn callers_do_not_disturb_each_other() {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..30 {
                        assert_eq!(count_to(n, 2), n);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        for round in 0..4 {
            let turn = AtomicUsize::new(0);
            let result = catch_unwind(|| {
                share(1, &|| {
                    thread::sleep(Duration::from_millis(2));
                    // In turn the first and the second thread.
                    assert_ne!(turn.fetch_add(1, Ordering::Relaxed), round % 2);
                });
            });
            assert!(result.is_err() || processors() == 1 || round % 2 == 1);
            assert_eq!(count_to(50, 1), 50);
        }
    }
}
