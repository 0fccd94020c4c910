//! The instruction set of 64-bit ARM.

pub mod neon;
