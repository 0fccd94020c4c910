use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};

use super::without_signals;

/// Returns the writing end of a pipe that has no reader.
fn broken() -> File {
    let mut ends = [0; 2];
    // SAFETY: there is room for two ends; each is owned once.
    let [reads, writes] = unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        ends.map(|end| OwnedFd::from_raw_fd(end))
    };
    drop(reads);
    File::from(writes)
}

fn writes_to_what_is_broken() {
    let error = without_signals(|| broken().write(b"a")).expect_err("nobody reads");
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

/// Without the guard, either write would end the process of the tests.
#[test]
fn writes_that_fail_are_errors() {
    // SAFETY: no other thread writes to a broken pipe.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    for _ in 0..2 {
        writes_to_what_is_broken();
    }
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGPIPE, before) };
}

/// A signal that the thread itself has blocked stays blocked, and stays pending.
#[test]
fn what_was_pending_stays() {
    let has = |set: &libc::sigset_t| {
        // SAFETY: a set that lives.
        unsafe { libc::sigismember(set, libc::SIGPIPE) == 1 }
    };
    // SAFETY: sets that live; the signal is sent to this thread, which blocks it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPIPE);
        let none = std::ptr::null_mut();
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &set, none), 0);
        libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE);
        writes_to_what_is_broken();
        let mut pending = std::mem::zeroed();
        libc::sigpending(&mut pending);
        assert!(has(&pending));
        let mut blocked = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut blocked);
        assert!(has(&blocked));
        // The signal is consumed, since the thread goes on with other tests, or ends.
        let mut taken = 0;
        assert_eq!(libc::sigwait(&set, &mut taken), 0);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, none);
    }
}
