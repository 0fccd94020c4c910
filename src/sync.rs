//! The lock of what threads share: the constraint of a slot, the cache of tries, the handles that
//! are bound.
//!
//! It is parking_lot's. In the model check (`RUSTFLAGS="--cfg model"`, see `models.rs`) it is one
//! that hands control to a scheduler at each step, which tries every order of the threads; outside
//! the models it then cannot be used.

#[cfg(not(all(test, model)))]
pub(crate) use parking_lot::{Mutex, MutexGuard};

#[cfg(all(test, model))]
pub(crate) use modelled::{Mutex, MutexGuard};

#[cfg(all(test, model))]
mod modelled {
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;

    use test_crates::shuttle;

    /// Like parking_lot's, it is not poisoned.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    pub(crate) struct MutexGuard<'a, T>(shuttle::sync::MutexGuard<'a, T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    impl<T> MutexGuard<'_, T> {
        pub(crate) fn unlock_fair(guard: Self) {
            drop(guard);
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }
}
