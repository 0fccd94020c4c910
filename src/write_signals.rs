//! Suppresses, on Linux, the signals of a failed write, so that the failure is only an error of the
//! write.
//!
//! A write to a pipe without a reader raises SIGPIPE, and a write beyond the limit on file sizes
//! raises SIGXFSZ. By default both end the process. The kernel sends these signals to the thread
//! that writes. So the thread blocks them during the write, and consumes those that a failure has
//! raised before it unblocks them.

use std::io;

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use std::mem::MaybeUninit;
    use std::ptr;

    use libc::{sigset_t, timespec};

    /// A guard: while it exists, the two signals are blocked for this thread.
    pub(super) struct Blocked {
        /// The signals that were blocked before; `None` if blocking failed.
        before: Option<sigset_t>,
    }

    const ALL: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

    fn empty() -> sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the function writes the whole set.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        }
    }

    /// Returns the two signals without those that are in `than`.
    fn others(than: &sigset_t) -> sigset_t {
        let mut set = empty();
        for signal in ALL {
            // SAFETY: live sets; the signal exists.
            unsafe {
                if libc::sigismember(than, signal) == 0 {
                    libc::sigaddset(&mut set, signal);
                }
            }
        }
        set
    }

    impl Blocked {
        /// Blocks the two signals.
        pub(super) fn now() -> Self {
            let (all, mut before) = (others(&empty()), empty());
            // SAFETY: live sets.
            let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before) };
            Self {
                before: (code == 0).then_some(before),
            }
        }

        /// Consumes the signals that a write has raised. A signal that was already blocked before
        /// stays pending, since it may have been raised earlier. One that was not blocked cannot
        /// have been pending.
        pub(super) fn take(&self) {
            const AT_ONCE: timespec = timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            if let Some(before) = &self.before {
                let new = others(before);
                // SAFETY: a live set and time.
                while unsafe { libc::sigtimedwait(&new, ptr::null_mut(), &AT_ONCE) } > 0 {}
            }
        }
    }

    impl Drop for Blocked {
        fn drop(&mut self) {
            if let Some(before) = &self.before {
                // SAFETY: a live set.
                unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod elsewhere {
    /// A guard that blocks nothing.
    pub(super) struct Blocked;

    impl Blocked {
        pub(super) fn now() -> Self {
            Self
        }

        pub(super) fn take(&self) {}
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
use elsewhere::Blocked;
#[cfg(all(target_os = "linux", not(miri)))]
use linux::Blocked;

/// Runs a write, on Linux so that its failure raises no signal. Even a successful write then costs
/// two more system calls, rt_sigprocmask before and after it.
pub(crate) fn without_signals<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let blocked = Blocked::now();
    let written = write();
    if written.is_err() {
        blocked.take();
    }
    written
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
