//! `expf` and `logf` of the C library the process runs on.
//!
//! The built-ins call these, so their last bit is part of the exactness contract. The standard library's `f32::exp` and
//! `f32::ln` compile to the same calls on Linux, but promise nothing of the kind; these do.

unsafe extern "C" {
    safe fn expf(x: f32) -> f32;
    safe fn logf(x: f32) -> f32;
}

/// e^x, bit for bit the host's `expf`.
#[inline]
pub fn exp(x: f32) -> f32 {
    expf(x)
}

/// The natural logarithm, bit for bit the host's `logf`.
#[inline]
pub fn ln(x: f32) -> f32 {
    logf(x)
}
