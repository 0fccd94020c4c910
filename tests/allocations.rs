//! After warm-up no drop-in allocates: not in `apply`, not in `accept`.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use support::arrays::{Rng, Shape};
use support::family::FAMILY;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Only Rust's allocations are counted, which the built-ins' are not.
fn allocations() -> usize {
    ALLOCATIONS.with(Cell::get)
}

#[test]
fn the_counter_counts() {
    let before = allocations();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(allocations(), before + 1);
}

#[test]
fn no_drop_in_allocates_after_warm_up() {
    const N: usize = 4000;
    let mut rng = Rng(11);
    for member in FAMILY {
        for _ in 0..20 {
            let pair = (member.make)(&mut rng, N as i32, true);
            let mut arrays = Vec::new();
            for _ in 0..20 {
                let shape = rng.pick(&[Shape::Peaked, Shape::Flat, Shape::Masked, Shape::Shuffled]);
                arrays.push(shape.array(N, &mut rng));
            }
            // Warm-up: every path that these arrays take, and a window of which every token has been replaced.
            for array in &arrays {
                pair.ours.apply(&mut array.clone());
            }
            for _ in 0..5000 {
                pair.ours.accept(rng.below(N) as i32);
            }
            let before = allocations();
            for array in &mut arrays {
                pair.ours.apply(array);
                pair.ours.accept(rng.below(N) as i32);
            }
            assert_eq!(allocations(), before, "{} allocates", pair.label);
        }
    }
}
