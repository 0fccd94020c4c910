//! Instruction sets: the only place with intrinsics.
//!
//! - [`vector`]: the trait that a backend implements and that kernels are written against;
//!   [`kernel`]: code that runs on a backend; [`bits`]: sets of lanes;
//! - [`dispatch`](mod@dispatch): the choice of the instruction set that runs a kernel, and the call
//!   that enters it;
//! - `scalar`, `x86_64`, `aarch64`: the backends;
//! - [`exp`], [`exp_f64`], [`ln`]: tables and polynomials; [`libm`]: the C library's functions;
//! - `self_check`: a check that the backends' functions agree with the C library's on this machine.

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub mod bits;
pub mod dispatch;
pub mod exp;
pub mod exp_f64;
pub mod kernel;
pub mod libm;
pub mod ln;
mod scalar;
mod self_check;
pub mod vector;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub(crate) use dispatch::dispatched;
pub use dispatch::{Function, Isa, dispatch, instruction_set, take_unknown_name};
pub use kernel::Kernel;
pub use vector::{MAX_LANES, Vector};

/// Prefetches the cache line of an element. `at` may be out of range.
#[inline(always)]
pub fn prefetch<T>(of: &[T], at: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads nothing and cannot fail; every processor of this architecture has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(of.as_ptr().wrapping_add(at).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (of, at);
}
