//! The lock of what threads share: the constraint of a slot, the cache of tries, the handles that
//! are bound.
//!
//! It is parking_lot's. In the model check (`RUSTFLAGS="--cfg model"`, see `models.rs`) it is one
//! that hands control to a scheduler at each step, which tries every order of the threads; outside
//! the models it then cannot be used.

#[cfg(not(all(test, model)))]
pub(crate) use parking_lot::{Mutex, MutexGuard};

#[cfg(all(test, model))]
pub(crate) use tests_modelled::{Mutex, MutexGuard};

#[cfg(all(test, model))]
mod tests_modelled;
