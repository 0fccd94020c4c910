use std::thread;
use std::time::{Duration, Instant};

use super::forks::{
    LONGEST_FORK, PATIENCE, are_passed, begins, counted, has_made_a_child, is_over,
};
use super::*;

/// Calls `work` on three other threads, again and again, while `body` runs.
fn beside(work: impl Fn() + Sync, body: impl FnOnce()) {
    /// Stops the other threads when it is dropped, even after a panic.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    work();
                }
            });
        }
        body();
    });
}

/// Runs `body` in a child, and returns its exit code, or the negated number of the signal that
/// killed it. A child that hangs is killed after two minutes.
fn in_a_child(body: impl FnOnce()) -> i32 {
    // SAFETY: the child takes no lock that another thread of this process may hold, except those
    // that are tested, and never returns.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no child could be made");
    if child == 0 {
        // SAFETY: kills this process alone.
        unsafe { libc::alarm(120) };
        body();
        // SAFETY: ends only this process.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a valid place for the status.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(ended, child);
    match libc::WIFEXITED(status) {
        true => libc::WEXITSTATUS(status),
        false => -libc::WTERMSIG(status),
    }
}

fn a_while() {
    thread::sleep(Duration::from_micros(200));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no forks")]
fn a_child_can_take_what_other_threads_held() {
    static ONE: Mutex<u32> = Mutex::new(0);
    static MANY: RwLock<u32> = RwLock::new(0);
    let work = || {
        let mut one = ONE.lock();
        a_while();
        // One lock inside the other, even while a fork waits.
        *MANY.write() += 1;
        a_while();
        *one += 1;
        drop(one);
        let many = MANY.read();
        a_while();
        drop(many);
        a_while();
    };
    beside(work, || {
        for _ in 0..100 {
            let ended = in_a_child(|| {
                *ONE.lock() += 1;
                *MANY.write() += 1;
                assert!(ONE.try_lock().is_some());
            });
            assert_eq!(ended, 7);
            a_while();
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no forks")]
fn a_child_has_values_that_another_thread_was_making() {
    for _ in 0..50 {
        let place = OnceLock::new();
        let make = || {
            a_while();
            3
        };
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(*place.get_or_init(make), 3));
            while counted() == 0 && place.get().is_none() {
                std::hint::spin_loop();
            }
            let ended = in_a_child(|| assert_eq!(*place.get_or_init(make), 3));
            assert_eq!(ended, 7);
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no forks")]
fn a_thread_that_holds_a_lock_may_fork() {
    static HELD: Mutex<u32> = Mutex::new(0);
    static FREE: Mutex<u32> = Mutex::new(0);
    let started = Instant::now();
    let held = HELD.lock();
    let ended = in_a_child(|| {
        assert!(HELD.try_lock().is_none());
        *FREE.lock() += 1;
    });
    assert_eq!(ended, 7);
    assert!(started.elapsed() < PATIENCE, "it has waited for itself");
    drop(held);
    *FREE.lock() += 1;
    assert_eq!(in_a_child(|| *HELD.lock() += 1), 7);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no forks")]
fn many_threads_fork_at_once() {
    static SHARED: Mutex<u32> = Mutex::new(0);
    let work = || {
        *SHARED.lock() += 1;
        assert_eq!(in_a_child(|| *SHARED.lock() += 1), 7);
    };
    beside(work, || (0..30).for_each(|_| work()));
    // No fork is left to wait for.
    *SHARED.lock() += 1;
}

/// Calls the handlers as the C library does, in a child, where no other test forks.
fn alone(body: impl FnOnce()) {
    assert_eq!(in_a_child(body), 7, "the child says why");
}

fn seconds_of(body: impl FnOnce()) -> f64 {
    let started = Instant::now();
    body();
    started.elapsed().as_secs_f64()
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no forks")]
fn a_thread_does_not_wait_for_its_own_forks() {
    static SHARED: Mutex<u32> = Mutex::new(0);
    // None of these forks ends meanwhile: a thread that waited would have passed them.
    let takes_at_once = || {
        *SHARED.lock() += 1;
        assert!(!are_passed());
    };
    alone(|| {
        begins();
        takes_at_once();
        // A handler that forks itself.
        begins();
        takes_at_once();
        is_over();
        takes_at_once();
        is_over();
        // As if the handlers had been registered again after the fork had begun.
        is_over();
        assert_eq!(FORKS.load(Ordering::SeqCst), 0);
        assert_eq!(counted(), 0);
        // The child has neither the other threads of the parent nor their forks.
        begins();
        FORKS.fetch_add(1, Ordering::SeqCst);
        COUNTERS[3].0.fetch_add(1, Ordering::SeqCst);
        takes_at_once();
        has_made_a_child();
        takes_at_once();
        assert_eq!(counted(), 0);
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no forks")]
fn no_thread_waits_longer_than_the_longest_fork() {
    static SHARED: Mutex<u32> = Mutex::new(0);
    let long = LONGEST_FORK.as_secs_f64();
    alone(|| {
        let of_another = || {
            thread::scope(|s| {
                s.spawn(|| seconds_of(|| *SHARED.lock() += 1))
                    .join()
                    .unwrap()
            })
        };
        for _ in 0..2 {
            begins();
            // A child that waits forever is killed by its alarm.
            let first = of_another();
            assert!(first >= long, "{first}");
            // Any of these would take as long, if it waited.
            let later = (0..5).map(|_| of_another());
            assert!(later.fold(f64::MAX, f64::min) < long, "all go on");
            is_over();
        }
        assert_eq!(counted(), 0);
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no forks")]
fn threads_wait_for_forks_that_end() {
    static SHARED: Mutex<u32> = Mutex::new(0);
    let long = LONGEST_FORK.as_secs_f64();
    alone(|| {
        begins();
        let waited = thread::scope(|scope| {
            let other = scope.spawn(|| seconds_of(|| *SHARED.lock() += 1));
            for _ in 0..30 {
                // One begins before another is over.
                thread::sleep(LONGEST_FORK / 20);
                begins();
                is_over();
            }
            assert!(!are_passed(), "it has waited for all of them");
            is_over();
            other.join().unwrap()
        });
        assert!(waited >= 1.2 * long, "{waited}");
    });
}

#[test]
fn locks_hold_others_off_and_panics_do_not_poison_them() {
    let lock = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| *lock.lock() += 1));
        }
    });
    assert_eq!(*lock.lock(), 400);
    let held = lock.lock();
    assert!(lock.try_lock().is_none());
    MutexGuard::unlock_fair(held);
    let panics = || {
        let _held = lock.lock();
        panic!("while the lock is held");
    };
    let caught = thread::scope(|scope| scope.spawn(panics).join());
    assert!(caught.is_err());
    assert_eq!(*lock.lock(), 400);
    assert_eq!(DEPTH.get(), 0);
}
