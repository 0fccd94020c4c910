//! The locks of data that threads share ([`llama_sieve_kernels::sync`]).
//!
//! In the model check (`RUSTFLAGS="--cfg model"`, see `models.rs`) the lock of modelled data passes
//! control to a scheduler at each step. The scheduler tries every interleaving of the threads. The
//! lock then cannot be used outside the models.

#[cfg(not(all(test, model)))]
pub use llama_sieve_kernels::sync::{Mutex, MutexGuard};
pub use llama_sieve_kernels::sync::{OnceLock, RwLock, Section};

#[cfg(all(test, model))]
pub(crate) use tests_modelled::{Mutex, MutexGuard};

#[cfg(all(test, model))]
mod tests_modelled;
