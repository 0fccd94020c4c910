//! Locks that a forked child can take, whatever the other threads of its parent were doing.
//!
//! A fork copies only the thread that calls it. A lock that another thread held at that moment
//! stays held in the child, forever. So a thread counts itself while it holds a lock of this
//! module, or waits for one, and a fork waits until no other thread is counted:
//!
//! ```text
//! lock:      count this thread; if another thread has begun to fork, uncount this one, wait, and
//!            begin again; lock
//! unlock:    unlock; uncount this thread
//! fork:      announce that a fork has begun, and wait until no thread is counted but the caller;
//!            copy the process;
//!            announce that the fork is over; in the child, no thread is counted but the caller
//! ```
//!
//! A thread waits for a fork, and a fork for threads, only for a limited time.
//!
//! A counted thread continues while a fork waits: it may take further locks, so that threads that
//! wait for it finish, too. For this to hold, a counted thread must not wait for one that is not
//! counted: it must not join a thread, or hand work to others and wait for it, while it holds a
//! lock of this module.
//!
//! The C library calls the handlers of a fork (`pthread_atfork` of POSIX). A child made without it,
//! by the system call `clone` itself, inherits the locks of its parent as they are.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use once_cell::sync::OnceCell;

#[cfg(not(windows))]
mod forks;

/// The functions of forks for Windows, which has no forks.
#[cfg(windows)]
mod forks {
    use std::sync::atomic::AtomicUsize;

    pub(super) fn is_registered() -> bool {
        true
    }

    pub(super) fn count_after_forks(_counter: &AtomicUsize) {}
}

/// A lock for mutual exclusion. A panic does not poison it.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

/// Gives access to the data of a [`Mutex`] until it is dropped.
pub type MutexGuard<'a, T> = Held<parking_lot::MutexGuard<'a, T>>;

impl<T> Mutex<T> {
    /// Makes an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits until no other thread holds the lock, and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let section = Section::enter();
        Held {
            guard: self.0.lock(),
            _section: section,
        }
    }

    /// Takes the lock, unless it is held.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let section = Section::enter();
        Some(Held {
            guard: self.0.try_lock()?,
            _section: section,
        })
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Releases the lock to the thread that has waited longest, if any.
    pub fn unlock_fair(held: Self) {
        parking_lot::MutexGuard::unlock_fair(held.guard);
    }
}

/// A lock that one writer or several readers may hold.
#[derive(Debug, Default)]
pub struct RwLock<T>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    /// Makes an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    /// Waits until no other thread writes, and takes the lock for reading.
    #[inline]
    pub fn read(&self) -> Held<parking_lot::RwLockReadGuard<'_, T>> {
        let section = Section::enter();
        Held {
            guard: self.0.read(),
            _section: section,
        }
    }

    /// Waits until no other thread holds the lock, and takes it for writing.
    #[inline]
    pub fn write(&self) -> Held<parking_lot::RwLockWriteGuard<'_, T>> {
        let section = Section::enter();
        Held {
            guard: self.0.write(),
            _section: section,
        }
    }
}

/// A value that is made once, by the first thread that uses it.
// Not the standard library's type, since a thread sanitizer does not see its synchronisation.
#[derive(Debug)]
pub struct OnceLock<T>(OnceCell<T>);

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceLock<T> {
    /// Creates an empty cell.
    pub const fn new() -> Self {
        Self(OnceCell::new())
    }

    /// Returns the value, if it has been made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Returns the value, made by `make` if there is none yet.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.0.get().unwrap_or_else(|| {
            let _section = Section::enter();
            self.0.get_or_init(make)
        })
    }

    /// Stores a value, or returns it as an error if the cell already has one.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _section = Section::enter();
        self.0.set(value)
    }
}

/// A lock that is held.
#[derive(Debug)]
pub struct Held<G> {
    guard: G,
    // Declared after the guard, so that the section ends after the lock is released.
    _section: Section,
}

impl<G: Deref> Deref for Held<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Held<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// A section during which no other thread of the process forks, for code that may hold locks of
/// other libraries. Sections may be nested.
#[derive(Debug)]
pub struct Section(PhantomData<*const ()>);

impl Section {
    /// Counts the calling thread; waits if a fork has begun.
    #[inline]
    pub fn enter() -> Self {
        let depth = DEPTH.get();
        if depth == 0 {
            count();
        }
        DEPTH.set(depth + 1);
        Self(PhantomData)
    }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            own_counter().0.fetch_sub(1, Ordering::Release);
        }
    }
}

thread_local! {
    /// The number of nested sections that the thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// The index of the thread's counter.
    static COUNTER: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The number of threads in a section, among those that share this counter. It is alone in its
/// cache lines.
#[repr(align(128))]
struct Counter(AtomicUsize);

/// The counters; there are several, so that few threads that take different locks share a cache
/// line.
static COUNTERS: [Counter; 16] = [const { Counter(AtomicUsize::new(0)) }; 16];

/// The number of forks that have begun and are not over.
static FORKS: AtomicUsize = AtomicUsize::new(0);

fn own_counter() -> &'static Counter {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut place = COUNTER.get();
    if place == usize::MAX {
        place = NEXT.fetch_add(1, Ordering::Relaxed);
        COUNTER.set(place);
    }
    &COUNTERS[place % COUNTERS.len()]
}

fn count() {
    watch_forks();
    let counter = &own_counter().0;
    // Either this load sees that a fork has begun, or the fork sees that the thread is counted.
    counter.fetch_add(1, Ordering::SeqCst);
    if FORKS.load(Ordering::SeqCst) != 0 {
        forks::count_after_forks(counter);
    }
}

/// Registers the handlers of a fork with the C library. If no code ran when the library was loaded,
/// the first lock does so. Two threads at the same time may register them twice, and so may a child
/// whose parent was about to register them. So the handlers count their calls.
#[inline]
fn watch_forks() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    if !IS_WATCHED.load(Ordering::Acquire) {
        // If there is no memory for that, the next lock tries again.
        IS_WATCHED.store(forks::is_registered(), Ordering::Release);
    }
}

#[cfg(all(test, not(windows)))]
mod tests;
