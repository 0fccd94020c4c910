//! A counting allocator, for tests of code that must not allocate. Included by path, since it
//! becomes the allocator of the whole test binary.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::fmt::Display;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// The bytes that this thread has allocated, less those that it has freed.
    static BYTES: Cell<isize> = const { Cell::new(0) };
    /// All bytes that this thread has allocated, including those that it has freed since.
    static GIVEN: Cell<usize> = const { Cell::new(0) };
    /// True if the next allocation is reported with a backtrace.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

fn count(size: usize) {
    let _ = GIVEN.try_with(|n| n.set(n.get() + size));
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
    if WATCHED.try_with(|watched| watched.replace(false)) == Ok(true) {
        eprintln!("allocates:\n{}", Backtrace::force_capture());
    }
}

fn add(bytes: isize) {
    let _ = BYTES.try_with(|n| n.set(n.get() + bytes));
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        add(layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        add(size as isize - layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations of this thread. Only Rust's are counted, not those of the
/// built-ins.
fn allocations() -> usize {
    ALLOCATIONS.with(Cell::get)
}

/// Returns the number of bytes that this thread holds in addition to `before`. Only Rust's
/// allocations count, and frees by other threads do not.
pub fn bytes_since(before: isize) -> isize {
    BYTES.with(Cell::get) - before
}

/// Returns the number of bytes that this thread allocated in all while `f` ran, including those
/// that were freed again or moved.
pub fn bytes_given(f: impl FnOnce()) -> usize {
    let before = GIVEN.get();
    f();
    GIVEN.get() - before
}

/// Returns the result of `f`, which must not allocate. A backtrace of the first allocation is
/// printed.
#[track_caller]
pub fn without_allocating<T>(label: &dyn Display, f: impl FnOnce() -> T) -> T {
    let before = allocations();
    WATCHED.set(true);
    let result = f();
    WATCHED.set(false);
    assert_eq!(allocations(), before, "{label} allocates");
    result
}

#[test]
fn the_counter_counts() {
    let before = allocations();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(allocations(), before + 1);
    let before = bytes_since(0);
    let held = std::hint::black_box(vec![0_u8; 1000]);
    assert_eq!(bytes_since(before), 1000);
    drop(held);
    assert_eq!(bytes_since(before), 0);
    let given = bytes_given(|| {
        let mut bytes = std::hint::black_box(Vec::<u8>::with_capacity(1000));
        bytes.reserve_exact(2000);
        drop(std::hint::black_box(bytes));
    });
    assert_eq!(given, 3000);
}
