//! The functions of the C library of Windows, looked up in `ucrtbase.dll` when they are first
//! called.

use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::windows::{library, symbol};

/// Declares functions of the C library, each by its name in `ucrtbase.dll`.
macro_rules! functions {
    ($(
        $(#[$attribute:meta])*
        $visible:vis fn $name:ident($($argument:ident),*) -> $number:ty = $symbol:ident;
    )*) => {$(
        $(#[$attribute])*
        #[inline]
        $visible fn $name($($argument: $number),*) -> $number {
            type Function = unsafe extern "C" fn($(functions!($argument as $number)),*) -> $number;
            unsafe extern "C" {
                /// The linked function, for versions of Windows without `ucrtbase.dll`.
                fn $symbol($($argument: $number),*) -> $number;
            }
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            #[cold]
            fn find() -> *mut c_void {
                const NAME: &[u8] = concat!(stringify!($symbol), "\0").as_bytes();
                let found = found(NAME).unwrap_or($symbol as Function as *mut c_void);
                FOUND.store(found, Ordering::Relaxed);
                found
            }
            let mut found = FOUND.load(Ordering::Relaxed);
            if found.is_null() {
                found = find();
            }
            // SAFETY: the C standard's function of that name, which takes every number.
            unsafe { transmute::<*mut c_void, Function>(found)($($argument),*) }
        }
    )*};
    ($argument:ident as $number:ty) => { $number };
}

functions! {
    pub(super) fn expf(x) -> f32 = expf;
    pub(super) fn logf(x) -> f32 = logf;
    pub(super) fn log2f(x) -> f32 = log2f;
    pub(super) fn powf(x, y) -> f32 = powf;
    pub(super) fn exp_double(x) -> f64 = exp;
    pub(super) fn pow_double(x, y) -> f64 = pow;
    /// x * y + z, rounded once.
    pub fn fma(x, y, z) -> f32 = fmaf;
    /// x * y + z in double precision, rounded once.
    pub fn fma_f64(x, y, z) -> f64 = fma;
}

/// Returns the function of `ucrtbase.dll` named `name`, which must end with a NUL.
fn found(name: &[u8]) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name).ok()?;
    Some(symbol(library("ucrtbase.dll")?, name)?.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_of_the_library() {
        for name in [
            c"expf", c"logf", c"log2f", c"powf", c"exp", c"pow", c"fmaf", c"fma",
        ] {
            assert!(found(name.to_bytes_with_nul()).is_some(), "{name:?}");
        }
        assert_eq!(found(b"no such function\0"), None);
    }

    /// Checks a product with more digits than a float holds. The subtraction leaves only the last
    /// ones.
    #[test]
    fn a_sum_is_rounded_once() {
        let x = 1.0 + f64::EPSILON;
        assert_eq!(fma_f64(x, x, -(x * x)), f64::EPSILON * f64::EPSILON);
        let x = 1.0 + f32::EPSILON;
        assert_eq!(fma(x, x, -(x * x)), f32::EPSILON * f32::EPSILON);
        // Half-way between two numbers, except for the last digit.
        let (half, least) = (f32::EPSILON / 2.0, f32::MIN_POSITIVE);
        assert_eq!(fma(half, 1.0 + f32::EPSILON, 1.0), 1.0 + f32::EPSILON);
        assert_eq!(fma(least, least, 1.0), 1.0);
        assert_eq!(fma(f32::NAN, 1.0, 1.0).to_bits() & 0x7fc0_0000, 0x7fc0_0000);
    }
}
