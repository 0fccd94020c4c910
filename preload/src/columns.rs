//! The candidates that a chain left, in the columns that a host queries.

use llama_sieve::ffi::chain::in_front::Candidates;
use llama_sieve::ffi::host::llama_h::llama_token_data_array;
use llama_sieve::{Token, TokenData};

/// Ids, logits and probabilities of candidates, in their order.
#[derive(Default)]
pub struct Columns {
    pub ids: Vec<Token>,
    pub logits: Vec<f32>,
    pub probs: Vec<f32>,
    selected: i64,
    sorted: bool,
}

impl Columns {
    /// Fills the columns. Returns false if there is not enough memory.
    pub fn fill(&mut self, left: Candidates<'_>) -> bool {
        self.ids.clear();
        self.logits.clear();
        self.probs.clear();
        let n = left.data.len();
        let room = self.ids.try_reserve(n).is_ok()
            && self.logits.try_reserve(n).is_ok()
            && self.probs.try_reserve(n).is_ok();
        if room {
            self.ids.extend(left.data.iter().map(|c| c.id));
            self.logits.extend(left.data.iter().map(|c| c.logit));
            self.probs.extend(left.data.iter().map(|c| c.p));
            (self.selected, self.sorted) = (left.selected, left.sorted);
        }
        room
    }

    /// Sets the selected index and the mark as sorted in the host's array. Returns false, with
    /// nothing set, if the array has a different number of candidates.
    pub fn select(&self, array: &mut llama_token_data_array) -> bool {
        let has_them = array.size == self.ids.len();
        if has_them {
            array.selected = self.selected;
            array.sorted = u8::from(self.sorted);
        }
        has_them
    }

    /// True if the array has exactly these candidates, with the same selected index and the same
    /// mark as sorted.
    ///
    /// # Safety
    /// `array` is NULL or valid.
    pub unsafe fn are_in(&self, array: *const llama_token_data_array) -> bool {
        // SAFETY: the caller guarantees the array.
        unsafe { self.are_marked_in(array, (self.selected, self.sorted)) }
    }

    /// True if the array has exactly these candidates, none is selected, and the array is not
    /// marked as sorted.
    ///
    /// # Safety
    /// `array` is NULL or valid.
    pub unsafe fn were_taken_to(&self, array: *const llama_token_data_array) -> bool {
        // SAFETY: the caller guarantees the array.
        unsafe { self.are_marked_in(array, (-1, false)) }
    }

    /// True if the array has exactly these candidates, with this selected index and this mark as
    /// sorted.
    ///
    /// # Safety
    /// `array` is NULL or valid.
    unsafe fn are_marked_in(
        &self,
        array: *const llama_token_data_array,
        marks: (i64, bool),
    ) -> bool {
        // SAFETY: the caller guarantees the array.
        let found = unsafe { array.as_ref().and_then(|a| Some((a, candidates(a)?))) };
        found.is_some_and(|(array, found)| {
            let columns = self.ids.iter().zip(&self.logits).zip(&self.probs);
            (array.selected, array.sorted != 0) == marks
                && found.len() == self.ids.len()
                && columns.zip(found).all(|(((&id, &logit), &p), c)| {
                    c.id == id && is_same(c.logit, logit) && is_same(c.p, p)
                })
        })
    }
}

/// True if the array has one candidate for each of `logits`, in order and with probability 0, none
/// is selected, and the array is not marked as sorted.
///
/// # Safety
/// `array` is NULL or valid.
pub unsafe fn are_logits_in(logits: &[f32], array: *const llama_token_data_array) -> bool {
    // SAFETY: the caller guarantees the array.
    let found = unsafe { array.as_ref().and_then(|a| Some((a, candidates(a)?))) };
    found.is_some_and(|(array, found)| {
        let of_logits = (0..).zip(logits).zip(found);
        let is_of = |((id, logit), c): ((Token, &f32), &TokenData)| {
            c.id == id && c.logit.to_bits() == logit.to_bits() && c.p.to_bits() == 0
        };
        (array.selected, array.sorted) == (-1, 0)
            && found.len() == logits.len()
            && of_logits.into_iter().all(is_of)
    })
}

/// Returns the selected token; `None` if there is none.
///
/// # Safety
/// `array` is NULL or valid.
pub unsafe fn selected_in(array: *const llama_token_data_array) -> Option<Token> {
    // SAFETY: the caller guarantees the array.
    unsafe {
        let array = array.as_ref()?;
        let selected = usize::try_from(array.selected).ok()?;
        Some(candidates(array)?.get(selected)?.id)
    }
}

/// Returns the candidates of an array; `None` if its pointer is NULL or misaligned.
///
/// # Safety
/// `array` is valid, and not written while the candidates are read.
unsafe fn candidates(array: &llama_token_data_array) -> Option<&[TokenData]> {
    if array.data.is_null() || !array.data.is_aligned() {
        return None;
    }
    // SAFETY: the caller guarantees the elements.
    Some(unsafe { std::slice::from_raw_parts(array.data, array.size) })
}

/// True if two numbers are equal, or both are NaN.
fn is_same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}
