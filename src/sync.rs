//! The locks of what threads share ([`llama_sieve_kernels::sync`]).
//!
//! In the model check (`RUSTFLAGS="--cfg model"`, see `models.rs`) the one of what models look at
//! hands control to a scheduler at each step, which tries every order of the threads; outside the
//! models it then cannot be used.

#[cfg(not(all(test, model)))]
pub use llama_sieve_kernels::sync::{Mutex, MutexGuard};
pub use llama_sieve_kernels::sync::{OnceLock, RwLock, Section};

#[cfg(all(test, model))]
pub(crate) use tests_modelled::{Mutex, MutexGuard};

#[cfg(all(test, model))]
mod tests_modelled;
