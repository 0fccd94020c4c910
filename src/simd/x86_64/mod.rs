//! The instruction sets of x86-64.

pub mod avx2;
pub mod avx512;
mod avx512_tables;
