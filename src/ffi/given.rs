//! Checks an argument from a C caller that consists of a pointer and a number of elements.
//!
//! Nothing checks that the pointer points to memory of that size. But each argument has a limit,
//! named in the header, that no sensible call exceeds. A larger number is an error that names the
//! argument and the limit, and nothing is read or written.

use std::ffi::{CStr, c_char, c_int};

use crate::errors::{LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_SIZE};
use crate::ffi::failure::Failure;
use crate::token::Token;

/// The maximum number of elements of an array that a function reads or writes, if the header names
/// no other limit: logits, candidates, tokens, biases.
pub const LLAMA_SIEVE_MAX_ELEMENTS: usize = 2_147_483_647;
const _: () = assert!(LLAMA_SIEVE_MAX_ELEMENTS == Token::MAX as usize);
/// The maximum number of sequences of a batch, of chains or of sieves.
pub const LLAMA_SIEVE_MAX_BATCH: usize = 1_048_576;
/// The maximum number of sequence breakers of DRY.
pub const LLAMA_SIEVE_DRY_MAX_BREAKERS: usize = 4096;

/// The reason why nothing can be read or written at a pointer. It contains no text, which is made
/// only for an error, so that the check of a usable array takes little code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    Null,
    Misaligned,
    /// The number is above the limit, or larger than the address space after the pointer.
    TooMany,
}

/// Checks that there may be `n` elements at `elements`. If `n` is 0, any pointer is accepted, NULL
/// included.
#[inline]
pub(super) fn judge<T>(elements: *const T, n: usize, most: usize) -> Result<(), Unfit> {
    const { assert!(size_of::<T>() > 0) };
    if n == 0 {
        return Ok(());
    }
    if n > most || n > isize::MAX as usize / size_of::<T>() {
        return Err(Unfit::TooMany);
    }
    if elements.is_null() {
        return Err(Unfit::Null);
    }
    if !elements.is_aligned() {
        return Err(Unfit::Misaligned);
    }
    match elements.addr().checked_add(n * size_of::<T>()) {
        Some(_) => Ok(()),
        None => Err(Unfit::TooMany),
    }
}

/// An array argument of a function, with its names in the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument {
    /// The pointer's name.
    pub(super) array: &'static str,
    /// The name of the number of elements.
    pub(super) count: &'static str,
    /// The largest number, and its name in the header.
    pub(super) most: (usize, &'static str),
    /// The error number for a larger number.
    pub(super) code: c_int,
}

/// Makes an [`Argument`] named `$array`, with `$count` elements, which may be at most `$most`; at
/// most LLAMA_SIEVE_MAX_ELEMENTS if that is not given.
macro_rules! argument {
    ($array:literal, $count:literal) => {
        $crate::ffi::given::argument!($array, $count, LLAMA_SIEVE_MAX_ELEMENTS)
    };
    ($array:literal, $count:literal, $most:ident) => {{
        #[allow(unused_imports)]
        use $crate::ffi::given::LLAMA_SIEVE_MAX_ELEMENTS;
        $crate::ffi::given::Argument::new($array, $count, ($most, stringify!($most)))
    }};
}
pub(super) use argument;

impl Argument {
    pub(super) const fn new(
        array: &'static str,
        count: &'static str,
        most: (usize, &'static str),
    ) -> Self {
        Self {
            array,
            count,
            most,
            code: LLAMA_SIEVE_ERROR_SIZE,
        }
    }

    /// Returns this argument for a function that returns `code`, not LLAMA_SIEVE_ERROR_SIZE, for
    /// too many elements.
    pub(super) const fn answered_with(mut self, code: c_int) -> Self {
        self.code = code;
        self
    }

    /// Returns an error if there cannot be `n` elements at `elements`.
    #[inline]
    pub(super) fn check<T>(&self, elements: *const T, n: usize) -> Result<(), Failure> {
        judge(elements, n, self.most.0).map_err(|unfit| self.failure(unfit, n))
    }

    #[cold]
    fn failure(&self, unfit: Unfit, n: usize) -> Failure {
        let Self { array, count, .. } = self;
        let (most, name) = self.most;
        match unfit {
            Unfit::Null => Failure::null(array),
            Unfit::Misaligned => {
                let text = format!("{array} is not aligned for its type");
                Failure::new(LLAMA_SIEVE_ERROR_NULL, text)
            }
            Unfit::TooMany if n > most => {
                let text = format!("{count} is {n}; {array} may have {most} at most ({name})");
                Failure::new(self.code, text)
            }
            Unfit::TooMany => {
                let text = format!("{count} is {n}; memory has no room for so many at {array}");
                Failure::new(self.code, text)
            }
        }
    }

    /// Returns the caller's elements; empty if `n` is 0, for any pointer.
    ///
    /// # Safety
    /// `elements` is NULL or has `n` elements, which are not written during `'a`.
    #[inline]
    pub(super) unsafe fn slice<'a, T>(
        &self,
        elements: *const T,
        n: usize,
    ) -> Result<&'a [T], Failure> {
        self.check(elements, n)?;
        if n == 0 {
            return Ok(&[]);
        }
        // SAFETY: neither NULL nor misaligned, not longer than memory, and the caller guarantees
        // the elements.
        Ok(unsafe { std::slice::from_raw_parts(elements, n) })
    }

    /// Returns the caller's memory for `n` elements; empty if `n` is 0, for any pointer.
    ///
    /// # Safety
    /// `out` is NULL or points to `n` valid elements, which no other code uses during `'a`.
    pub(super) unsafe fn room<'a, T>(&self, out: *mut T, n: usize) -> Result<&'a mut [T], Failure> {
        self.check(out, n)?;
        if n == 0 {
            return Ok(&mut []);
        }
        // SAFETY: neither NULL nor misaligned, not longer than memory, and the caller guarantees
        // the room.
        Ok(unsafe { std::slice::from_raw_parts_mut(out, n) })
    }

    /// Returns the caller's memory like [`room`](Self::room), but an empty slice for NULL. It is
    /// for functions that only count if the pointer is NULL.
    ///
    /// # Safety
    /// The requirements of [`room`](Self::room) apply.
    pub(super) unsafe fn room_or_none<'a, T>(
        &self,
        out: *mut T,
        n: usize,
    ) -> Result<&'a mut [T], Failure> {
        // SAFETY: the caller guarantees the room.
        unsafe { self.room(out, if out.is_null() { 0 } else { n }) }
    }
}

/// Returns the first bytes of a C string, at most `most` of them. At most `most` bytes are read.
///
/// # Safety
/// `text` is a C string that outlives `'a`.
pub(super) unsafe fn c_bytes_within<'a>(text: *const c_char, most: usize) -> &'a [u8] {
    // Miri has no strnlen.
    let n = if cfg!(miri) {
        // SAFETY: the caller guarantees the string.
        unsafe { CStr::from_ptr(text) }.count_bytes().min(most)
    } else {
        // SAFETY: as above.
        unsafe { libc::strnlen(text, most) }
    };
    // SAFETY: the slice has all bytes before the string's end, or the first of them.
    unsafe { std::slice::from_raw_parts(text.cast(), n) }
}

/// Checks that `n_vocab`, the number of logits, is above 0, and returns it.
pub(super) fn vocabulary_of(n_vocab: i32) -> Result<usize, Failure> {
    usize::try_from(n_vocab)
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| {
            let text = format!("n_vocab is {n_vocab}; it must be above 0");
            Failure::new(LLAMA_SIEVE_ERROR_SIZE, text)
        })
}

#[cfg(test)]
mod tests;
