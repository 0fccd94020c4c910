//! Code that runs on an instruction set.

use super::vector::Vector;

/// Code that runs on any instruction set, with its arguments.
///
/// No closure in it may contain vector code: only functions marked `#[inline(always)]` are compiled
/// with the instructions of the function into which they are inlined.
pub trait Kernel {
    /// The type of the result.
    type Output;
    /// Runs with the instructions of `v`. Implementations are marked `#[inline(always)]`.
    fn run<V: Vector>(self, v: V) -> Self::Output;
}
