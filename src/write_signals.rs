//! Keeps the signals of a failed write from the process: it is an error of the write, and no more.
//!
//! A write to a pipe that nobody reads raises SIGPIPE, one beyond a limit on the size of files
//! SIGXFSZ. Both end a process that has not said otherwise, and both go to the thread that writes:
//! it blocks them meanwhile, and takes what a failure has raised before it unblocks them.

use std::io;

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use std::mem::MaybeUninit;
    use std::ptr;

    use libc::{sigset_t, timespec};

    /// Those signals are blocked for this thread while one lives.
    pub(super) struct Blocked {
        /// The signals that were blocked before; `None` where none could be.
        before: Option<sigset_t>,
    }

    const ALL: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

    fn empty() -> sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: it is written whole.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        }
    }

    /// Those of the two that are not in a set.
    fn others(than: &sigset_t) -> sigset_t {
        let mut set = empty();
        for signal in ALL {
            // SAFETY: sets that live; the signal exists.
            unsafe {
                if libc::sigismember(than, signal) == 0 {
                    libc::sigaddset(&mut set, signal);
                }
            }
        }
        set
    }

    impl Blocked {
        /// Blocks them from now on.
        pub(super) fn now() -> Self {
            let (all, mut before) = (others(&empty()), empty());
            // SAFETY: sets that live.
            let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before) };
            Self {
                before: (code == 0).then_some(before),
            }
        }

        /// Takes what a write has raised. What was blocked before stays: it may have been raised
        /// before, too. What was not cannot have been pending.
        pub(super) fn take(&self) {
            const AT_ONCE: timespec = timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            if let Some(before) = &self.before {
                let new = others(before);
                // SAFETY: a set and a time that live.
                while unsafe { libc::sigtimedwait(&new, ptr::null_mut(), &AT_ONCE) } > 0 {}
            }
        }
    }

    impl Drop for Blocked {
        fn drop(&mut self) {
            if let Some(before) = &self.before {
                // SAFETY: a set that lives.
                unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod elsewhere {
    /// Nothing is blocked here.
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

/// Writes, and lets a failure raise nothing. A write that succeeds makes one more system call
/// before and after it, rt_sigprocmask.
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
