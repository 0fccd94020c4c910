//! The host's array of candidates, with its checks, and the result of a sampler on it.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::errors::{LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_SIZE};
use crate::ffi::given;
use crate::ffi::host::llama_h::llama_token_data_array;
use crate::kernels;
use crate::last_error;
use crate::sampler::{Kind, Sampler};
use crate::token::{Token, TokenData};

use super::object::*;
/// The result of a sampler on the candidates.
pub(super) struct Outcome {
    dropped: usize,
    len: usize,
    sorted: bool,
    selected: Option<usize>,
}

impl Outcome {
    #[inline]
    pub(super) fn of(candidates: &Candidates<'_>) -> Self {
        Self {
            dropped: candidates.dropped(),
            len: candidates.len(),
            sorted: candidates.is_sorted(),
            selected: candidates.selected(),
        }
    }
}

/// The reason why a host's array cannot be used. It contains no text, which is made only for an
/// error, so that the check of a usable array takes little code.
pub(super) enum Unfit {
    Null,
    /// The size of the array, which is too large.
    TooLarge(usize),
    WithoutData(usize),
}

impl Unfit {
    #[cold]
    pub(super) fn say(self, sampler: &CStr) {
        let what = match self {
            Self::Null => "the candidate array is NULL or not aligned".into(),
            Self::TooLarge(size) => format!(
                "the candidate array has size {size}; token numbers end at {}",
                Token::MAX
            ),
            Self::WithoutData(size) => {
                format!("the candidate array has size {size} and NULL or unaligned data")
            }
        };
        let code = match self {
            Self::TooLarge(_) => LLAMA_SIEVE_ERROR_SIZE,
            Self::Null | Self::WithoutData(_) => LLAMA_SIEVE_ERROR_NULL,
        };
        let text = format!("{}: apply: {what}", sampler.to_string_lossy());
        last_error::set(code, &text);
    }
}

/// The host's array, after its checks.
pub(super) struct CandidateArray<'a> {
    array: &'a mut llama_token_data_array,
    data: &'a mut [TokenData],
}

impl<'a> CandidateArray<'a> {
    /// Returns the array, or the reason why it cannot be used.
    ///
    /// # Safety
    /// `array` is NULL or valid, with `size` candidates at `data` unless that is NULL, and not used
    /// by any other code during `'a`.
    #[inline]
    pub(super) unsafe fn new(array: *mut llama_token_data_array) -> Result<Self, Unfit> {
        if array.is_null() || !array.is_aligned() {
            return Err(Unfit::Null);
        }
        // SAFETY: not NULL, and the caller guarantees that it is valid.
        let array = unsafe { &mut *array };
        if array.size == 0 {
            return Ok(Self {
                array,
                data: &mut [],
            });
        }
        match given::judge(array.data, array.size, Token::MAX as usize) {
            Ok(()) => {}
            Err(given::Unfit::TooMany) => return Err(Unfit::TooLarge(array.size)),
            Err(given::Unfit::Null | given::Unfit::Misaligned) => {
                return Err(Unfit::WithoutData(array.size));
            }
        }
        // SAFETY: the caller guarantees `size` candidates; size, NULL and alignment were checked.
        let data = unsafe { std::slice::from_raw_parts_mut(array.data, array.size) };
        Ok(Self { array, data })
    }

    #[inline]
    pub(super) fn candidates(&mut self) -> Candidates<'_> {
        let selected = usize::try_from(self.array.selected).ok();
        Candidates::new(self.data, self.array.sorted != 0).with_selected(selected)
    }

    #[inline]
    pub(super) fn keep(&mut self, outcome: Outcome, kind: Kind) {
        // The array then begins at a later candidate, as after the built-in XTC.
        self.array.data = self.array.data.wrapping_add(outcome.dropped);
        self.array.size = outcome.len;
        self.array.sorted = u8::from(outcome.sorted);
        // A constraint may also select a candidate.
        if kind != Kind::Filter {
            self.array.selected = outcome.selected.map_or(-1, |index| index as i64);
        }
    }

    /// Keeps the candidates that a failed constraint allows. If the constraint cannot determine
    /// them, all candidates stay and get minus infinity, since hosts may read beyond the end of an
    /// empty array.
    pub(super) fn salvage<S: Sampler>(&mut self, object: Option<&Object<S>>) {
        let mut candidates = self.candidates();
        let salvaged = object
            .and_then(|object| object.run("salvage", |sampler| sampler.salvage(&mut candidates)));
        if salvaged.is_some() {
            let outcome = Outcome::of(&candidates);
            return self.keep(outcome, Kind::Filter);
        }
        for candidate in &mut *self.data {
            candidate.logit = f32::NEG_INFINITY;
        }
    }

    pub(super) fn select_argmax(&mut self) {
        self.array.selected = kernels::argmax(self.data).map_or(-1, |index| index as i64);
    }
}
