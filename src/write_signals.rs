//! Keeps the signals of a failed write from the process: it is an error of the write, and no more.
//!
//! A write to a pipe that nobody reads raises SIGPIPE, one beyond a limit on the size of files
//! SIGXFSZ. Both end a process that has not said otherwise, and both go to the thread that writes:
//! it blocks them meanwhile, and takes those that came before it unblocks them.

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use std::mem::MaybeUninit;
    use std::ptr;

    use libc::{sigset_t, timespec};

    /// Those signals are blocked for this thread while one lives.
    #[derive(Debug)]
    pub(crate) struct Blocked {
        /// The signals that are blocked; `None` where they could not be.
        before: Option<sigset_t>,
        /// Those that were not pending before.
        new: sigset_t,
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

    impl Blocked {
        /// Blocks them from now on.
        pub(crate) fn now() -> Self {
            let (mut all, mut new, mut pending, mut before) = (empty(), empty(), empty(), empty());
            // SAFETY: sets that live; the signals exist.
            let code = unsafe {
                libc::sigpending(&mut pending);
                for signal in ALL {
                    libc::sigaddset(&mut all, signal);
                    if libc::sigismember(&pending, signal) == 0 {
                        libc::sigaddset(&mut new, signal);
                    }
                }
                libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before)
            };
            Self {
                before: (code == 0).then_some(before),
                new,
            }
        }
    }

    impl Drop for Blocked {
        fn drop(&mut self) {
            let Some(before) = &self.before else {
                return;
            };
            const AT_ONCE: timespec = timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: sets that live.
            unsafe {
                while libc::sigtimedwait(&self.new, ptr::null_mut(), &AT_ONCE) > 0 {}
                libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut());
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod elsewhere {
    /// Nothing is blocked here.
    #[derive(Debug)]
    pub(crate) struct Blocked(());

    impl Blocked {
        /// Blocks nothing.
        pub(crate) fn now() -> Self {
            Self(())
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) use elsewhere::Blocked;
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) use linux::Blocked;

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
