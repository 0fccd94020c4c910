//! The allocator of the unit tests. It counts the bytes that each thread holds, and fails when a
//! test requests it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static LIMIT: Cell<Option<Limit>> = const { Cell::new(None) };
    static FAILING: Cell<Failing> = const { Cell::new(Failing { at_least: usize::MAX, passed: 0 }) };
}

/// The limit on the bytes that a thread may allocate.
#[derive(Clone, Copy)]
struct Limit {
    /// The size below which allocations are counted, but never fail.
    at_least: usize,
    left: isize,
}

/// An allocation that is to fail: of those with at least `at_least` bytes, the one after the first
/// `passed`.
#[derive(Clone, Copy)]
struct Failing {
    at_least: usize,
    passed: usize,
}

fn note(bytes: isize) {
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
    let taken = |limit: Limit| Limit {
        left: limit.left - bytes,
        ..limit
    };
    let _ = LIMIT.try_with(|limit| limit.set(limit.get().map(taken)));
}

fn is_too_much(size: usize) -> bool {
    let limit = LIMIT.try_with(Cell::get).ok().flatten();
    limit.is_some_and(|limit| size >= limit.at_least && size as isize > limit.left)
}

fn fails(size: usize) -> bool {
    if is_too_much(size) {
        return true;
    }
    let asked = FAILING.try_with(|failing| {
        let now = failing.get();
        if size < now.at_least {
            return false;
        }
        let (at_least, passed) = match now.passed.checked_sub(1) {
            Some(passed) => (now.at_least, passed),
            None => (usize::MAX, 0),
        };
        failing.set(Failing { at_least, passed });
        now.passed == 0
    });
    asked.unwrap_or(false)
}

// SAFETY: every call is passed on unchanged to the system's allocator, or returns NULL.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails(layout.size()) {
            return null_mut();
        }
        note(layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if fails(size) {
            return null_mut();
        }
        note(size as isize - layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of bytes that this thread has allocated and not freed.
pub fn held() -> isize {
    HELD.get()
}

/// Runs `body` with a failing allocation: of those with at least `at_least` bytes, the one after
/// the first `passed`. Also returns true if that allocation was reached.
pub fn failing<T>(at_least: usize, passed: usize, body: impl FnOnce() -> T) -> (T, bool) {
    FAILING.set(Failing { at_least, passed });
    let result = body();
    let nothing = Failing {
        at_least: usize::MAX,
        passed: 0,
    };
    (result, FAILING.replace(nothing).at_least == usize::MAX)
}

/// Runs `body` with at most `bytes` bytes of memory. An allocation of at least `at_least` bytes
/// fails if fewer bytes are left. Freed memory can be allocated again.
pub fn limited<T>(at_least: usize, bytes: usize, body: impl FnOnce() -> T) -> T {
    let left = bytes as isize;
    LIMIT.set(Some(Limit { at_least, left }));
    let result = body();
    LIMIT.set(None);
    result
}

/// Runs `body` without the limit that [`limited`] has set. It is for allocations of the test
/// itself.
pub fn unlimited<T>(body: impl FnOnce() -> T) -> T {
    let limit = LIMIT.take();
    let result = body();
    LIMIT.set(limit);
    result
}

#[test]
fn the_allocator_limits() {
    let mut text: Vec<u8> = Vec::new();
    limited(11, 100, || {
        assert!(text.try_reserve_exact(101).is_err());
        assert!(text.try_reserve_exact(90).is_ok());
        assert!(Vec::<u8>::new().try_reserve_exact(11).is_err());
        assert!(Vec::<u8>::new().try_reserve_exact(10).is_ok());
        // An allocation counts as if it moved: the old one is freed only afterwards.
        assert!(text.try_reserve_exact(95).is_err());
        unlimited(|| assert!(Vec::<u8>::new().try_reserve_exact(11).is_ok()));
        text = Vec::new();
        assert!(text.try_reserve_exact(100).is_ok());
    });
    assert!(text.try_reserve_exact(1000).is_ok());
}

#[test]
fn the_allocator_counts_and_fails() {
    let before = held();
    let mut text: Vec<u8> = Vec::with_capacity(100);
    assert_eq!(held(), before + 100);
    let (result, reached) = failing(200, 0, || text.try_reserve_exact(300));
    assert!(result.is_err() && reached);
    let (result, reached) = failing(200, 1, || text.try_reserve_exact(300));
    assert!(result.is_ok() && !reached);
    drop(text);
    assert_eq!(held(), before);
}

/// Returns true if a limit is set on this thread.
pub fn is_limited() -> bool {
    LIMIT.get().is_some()
}
