use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};

use super::without_signals;

/// A pipe that nobody reads.
fn broken() -> File {
    let mut ends = [0; 2];
    // SAFETY: room for two; each is owned once.
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

/// Without it, either write would end the process of the tests.
#[test]
fn writes_that_fail_are_errors() {
    // SAFETY: no other thread writes to what is broken.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    for _ in 0..2 {
        writes_to_what_is_broken();
    }
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGPIPE, before) };
}

/// A signal that the thread has blocked stays blocked, and pending where it was.
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
        // Taken, as its thread goes on with other tests, or ends.
        let mut taken = 0;
        assert_eq!(libc::sigwait(&set, &mut taken), 0);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, none);
    }
}
