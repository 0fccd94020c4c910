//! Code that runs on an instruction set.

use super::vector::Vector;

/// Code that runs on an instruction set: a value with its arguments.
///
/// No closure in it may hold vector code: only what is marked `#[inline(always)]` is compiled with
/// the instructions of the function that it ends up in.
pub trait Kernel {
    /// The type of its result.
    type Output;
    /// Runs with the instructions of `v`; marked `#[inline(always)]`.
    fn run<V: Vector>(self, v: V) -> Self::Output;
}
