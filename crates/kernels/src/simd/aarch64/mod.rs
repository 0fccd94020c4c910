//! The instruction set of 64-bit ARM.

pub(super) mod neon;
