//! The instruction sets of x86-64.

pub(super) mod avx2;
pub(super) mod avx512;
mod avx512_tables;
