//! Values that each thread keeps from one call to the next, and that are freed when the thread
//! ends.
//!
//! A value of `thread_local!` that has to be dropped is registered with the C library when a thread
//! first uses it, and for that glibc takes the dynamic linker's lock. A call of this library would
//! then wait while another thread is inside `dlopen`, and would wait forever if a library's
//! constructor waits for that call. So `thread_local!` holds only a bare pointer, and the
//! destructor of a POSIX thread key, which takes no lock, frees the pointer's target. On Windows
//! the registration takes no such lock. A thread-local variable with a destructor frees the target
//! there.

use std::alloc::{Layout, alloc};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::thread::LocalKey;

#[cfg(not(windows))]
mod posix;
#[cfg(windows)]
mod windows;

#[cfg(not(windows))]
use posix as list;
#[cfg(windows)]
use windows as list;

/// A slot for a value in a `static` of `thread_local!`. The value is made at its first use.
#[derive(Debug)]
pub struct PerThread<T: 'static>(Cell<*mut Kept<T>>);

/// The header of a kept value: the function that drops the value, and the link in its thread's
/// list.
#[derive(Debug)]
struct Header {
    next: *mut Header,
    /// Drops the value with this header.
    end: unsafe fn(*mut Header),
}

#[derive(Debug)]
#[repr(C)]
struct Kept<T: 'static> {
    header: Header,
    /// The key of the thread-local slot that points to the value. It is not the slot's address,
    /// since some systems free a thread's variables in any order, and create a freed one again when
    /// it is used.
    place: &'static LocalKey<PerThread<T>>,
    value: T,
}

impl<T: Default + 'static> PerThread<T> {
    /// Returns an empty slot.
    #[allow(clippy::new_without_default)] // To be used in a `const` block.
    pub const fn new() -> Self {
        Self(Cell::new(null_mut()))
    }

    /// Returns the result of `look` on the calling thread's value; `None` if there is no memory for
    /// the value.
    #[inline]
    pub fn with<R>(place: &'static LocalKey<Self>, look: impl FnOnce(&T) -> R) -> Option<R> {
        // The slot needs no drop, so it is valid as long as its thread.
        let kept = place.with(|here| NonNull::new(here.0.get()).or_else(|| here.made(place)))?;
        // SAFETY: the value is freed when the thread ends, and not during a call.
        Some(look(unsafe { &(*kept.as_ptr()).value }))
    }

    #[cold]
    fn made(&self, place: &'static LocalKey<Self>) -> Option<NonNull<Kept<T>>> {
        const { assert!(size_of::<Kept<T>>() > 0) };
        // SAFETY: the size is not 0.
        let kept = NonNull::new(unsafe { alloc(Layout::new::<Kept<T>>()) })?.cast::<Kept<T>>();
        let made = Kept {
            header: Header {
                next: null_mut(),
                end: end::<T>,
            },
            place,
            value: T::default(),
        };
        // SAFETY: just allocated with this layout.
        unsafe { kept.write(made) };
        self.0.set(kept.as_ptr());
        // If that fails, the value is not freed when the thread ends.
        list::keep(kept.cast());
        Some(kept)
    }
}

/// A value that a call takes from its thread and returns for the next call.
pub trait Lent: Default + 'static {
    /// Returns the slot in which the thread keeps the value.
    fn place() -> &'static LocalKey<PerThread<Cell<Option<Box<Self>>>>>;

    /// Returns the value that the thread keeps; a new one if it keeps none, or if an outer call has
    /// it.
    #[inline]
    fn lend() -> Box<Self> {
        let kept = PerThread::with(Self::place(), Cell::take).flatten();
        kept.unwrap_or_default()
    }

    /// Keeps the value for the thread's next call, or drops it if it cannot be kept.
    #[inline]
    fn give_back(self: Box<Self>) {
        let _ = PerThread::with(Self::place(), |place| place.set(Some(self)));
    }
}

/// Implements [`Lent`] for types. Each thread keeps one value of each type.
#[doc(hidden)]
#[macro_export]
macro_rules! lent_per_thread {
    ($($kept:ty),* $(,)?) => {$(
        impl $crate::per_thread::Lent for $kept {
            #[inline]
            fn place() -> &'static std::thread::LocalKey<
                $crate::per_thread::PerThread<std::cell::Cell<Option<Box<Self>>>>,
            > {
                use $crate::per_thread::PerThread;
                thread_local! {
                    static KEPT: PerThread<std::cell::Cell<Option<Box<$kept>>>> =
                        const { PerThread::new() };
                }
                &KEPT
            }
        }
    )*};
}
pub use lent_per_thread;

/// Drops the kept value with this header, and empties its slot.
///
/// # Safety
/// `header` is that of a `Kept<T>` of the calling thread, which is not used any more.
unsafe fn end<T: 'static>(header: *mut Header) {
    // SAFETY: the caller guarantees it, and the value was allocated as a box is. Code that requests
    // a value while this one is dropped gets another one.
    unsafe {
        let kept = header.cast::<Kept<T>>();
        let _ = (*kept).place.try_with(|place| place.0.set(null_mut()));
        drop(Box::from_raw(kept));
    }
}

/// Calls `end` with `of` when the calling thread ends.
///
/// # Safety
/// When the thread ends, `of` must be a valid argument of `end`.
pub unsafe fn at_end(end: unsafe extern "C" fn(*mut c_void), of: *mut c_void) {
    #[repr(C)]
    struct Call {
        header: Header,
        end: unsafe extern "C" fn(*mut c_void),
        of: *mut c_void,
    }
    /// # Safety
    /// `header` is that of a `Call`, which is not used again.
    unsafe fn run(header: *mut Header) {
        // SAFETY: the caller guarantees it; it was a box.
        unsafe {
            let call = Box::from_raw(header.cast::<Call>());
            (call.end)(call.of);
        }
    }
    let header = Header {
        next: null_mut(),
        end: run,
    };
    let call = Box::into_raw(Box::new(Call { header, end, of }));
    if let Some(call) = NonNull::new(call) {
        list::keep(call.cast());
    }
}

/// Drops the values of a list.
///
/// # Safety
/// The values must belong to the calling thread, which must no longer hold the list.
unsafe fn end_all(list: *mut Header) {
    let mut next = list;
    while !next.is_null() {
        // SAFETY: the caller guarantees the list.
        unsafe {
            let header = next;
            next = (*header).next;
            ((*header).end)(header);
        }
    }
}

#[cfg(test)]
mod tests;
