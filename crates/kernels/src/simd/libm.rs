//! `expf`, `logf` and similar functions of the process's C library.
//!
//! The built-ins call these, so their last bit is part of the exactness contract. The standard
//! library's `f32::exp` and `f32::ln` compile to the same calls on Linux, but do not promise that;
//! these functions do.
//!
//! A Windows program has several C libraries. There these functions are those of `ucrtbase.dll`,
//! which a llama.cpp built by Microsoft's compiler calls, not those that a linker finds: MinGW has
//! its own, whose results differ.

#[cfg(not(any(miri, windows)))]
unsafe extern "C" {
    safe fn expf(x: f32) -> f32;
    safe fn logf(x: f32) -> f32;
    safe fn log2f(x: f32) -> f32;
    safe fn powf(x: f32, y: f32) -> f32;
    #[link_name = "exp"]
    safe fn exp_double(x: f64) -> f64;
    #[link_name = "pow"]
    safe fn pow_double(x: f64, y: f64) -> f64;
}

#[cfg(windows)]
mod ucrt;
#[cfg(windows)]
use ucrt::{exp_double, expf, log2f, logf, pow_double, powf};

/// Replacements for Miri, which cannot run a C library. Miri checks memory accesses, not last bits.
#[cfg(miri)]
mod interpreted {
    pub fn expf(x: f32) -> f32 {
        x.exp()
    }
    pub fn logf(x: f32) -> f32 {
        x.ln()
    }
    pub fn log2f(x: f32) -> f32 {
        x.log2()
    }
    pub fn powf(x: f32, y: f32) -> f32 {
        x.powf(y)
    }
    pub fn exp_double(x: f64) -> f64 {
        x.exp()
    }
    pub fn pow_double(x: f64, y: f64) -> f64 {
        x.powf(y)
    }
}
#[cfg(miri)]
use interpreted::{exp_double, expf, log2f, logf, pow_double, powf};

/// Returns e^x, bit for bit as the process's `expf`.
#[inline]
pub fn exp(x: f32) -> f32 {
    expf(x)
}

/// Returns the natural logarithm, bit for bit as the process's `logf`.
#[inline]
pub fn ln(x: f32) -> f32 {
    logf(x)
}

/// Returns the logarithm to base 2, bit for bit as the process's `log2f`.
#[inline]
pub fn log2(x: f32) -> f32 {
    log2f(x)
}

/// Returns x^y, bit for bit as the process's `powf`.
#[inline]
pub fn pow(x: f32, y: f32) -> f32 {
    powf(x, y)
}

/// Returns e^x in double precision, bit for bit as the process's `exp`.
#[inline]
pub fn exp_f64(x: f64) -> f64 {
    exp_double(x)
}

/// Returns x^y in double precision, bit for bit as the process's `pow`.
#[inline]
pub fn pow_f64(x: f64, y: f64) -> f64 {
    pow_double(x, y)
}

/// Returns x * y + z, rounded once.
#[cfg(not(windows))]
#[inline(always)]
pub fn fma(x: f32, y: f32, z: f32) -> f32 {
    x.mul_add(y, z)
}

/// Returns x * y + z in double precision, rounded once.
#[cfg(not(windows))]
#[inline(always)]
pub fn fma_f64(x: f64, y: f64, z: f64) -> f64 {
    x.mul_add(y, z)
}

// Without the processor's instruction, the standard library calls MinGW's function, which is not
// exact.
#[cfg(windows)]
pub use ucrt::{fma, fma_f64};

/// Converts a float to a C++ `int`, as the host's compiled code does.
///
/// In C++ the result is undefined if the number is out of range. The instruction of x86 then gives
/// the smallest integer, and that of Arm the nearest.
#[inline]
pub fn as_int(x: f32) -> i32 {
    let in_range = (-2_147_483_648.0..2_147_483_648.0).contains(&x);
    if cfg!(target_arch = "x86_64") && !in_range {
        return i32::MIN;
    }
    x as i32
}
