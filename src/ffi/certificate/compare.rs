//! Compares two samplers on the same arrays.

use std::ffi::c_int;
use std::mem::transmute;
use std::ptr::null_mut;

use crate::ffi::failure::Failure;
use crate::ffi::host::built_ins::Free;
use crate::ffi::host::llama_h::{Apply, llama_sampler, llama_token_data_array};
use crate::ffi::host::vocabulary::c_bytes;
use crate::token::{Token, TokenData};

use super::arrays::*;
use super::codes::*;
use super::kinds::*;

/// A difference that was found, and the size of the array that shows it.
pub(super) struct Difference {
    code: c_int,
    size: usize,
}

impl Difference {
    pub(super) fn failure(&self, name: &str) -> Failure {
        let what = match self.code {
            LLAMA_SIEVE_CERTIFY_NAME => "the name",
            LLAMA_SIEVE_CERTIFY_SIZE => "the number of candidates left",
            LLAMA_SIEVE_CERTIFY_SORTED => "whether the candidates are sorted",
            LLAMA_SIEVE_CERTIFY_SELECTED => "the selected candidate",
            LLAMA_SIEVE_CERTIFY_IDS => "the order of the candidates",
            LLAMA_SIEVE_CERTIFY_LOGITS => "a logit",
            LLAMA_SIEVE_CERTIFY_PROBABILITIES => "a probability",
            _ => "what is made",
        };
        let size = self.size;
        let text = format!("{name}: llama.cpp's own differs on {size} candidates in {what}");
        Failure::new(self.code, text)
    }
}

/// The host's sampler and this library's, freed even if the host throws.
pub(super) struct Pair {
    pub(super) made: Samplers,
    pub(super) free: Free,
}

impl Drop for Pair {
    fn drop(&mut self) {
        for smpl in self.made.into_iter().filter(|smpl| !smpl.is_null()) {
            // SAFETY: a live sampler of the host, not used again.
            unsafe { (self.free)(smpl) };
        }
    }
}

impl Pair {
    /// Applies both samplers to `arrays`, one after the other. Then repeats that on `few` with
    /// clones of both, with both after the state of their clones was copied to them, and with both
    /// after a reset. Returns the first difference as an error.
    ///
    /// # Safety
    /// The samplers are live or NULL; `copy` is their host's `llama_sampler_copy`.
    pub(super) unsafe fn compare(
        &self,
        arrays: &[Array],
        few: &[Array],
        copy: Option<CopyTo>,
        work: &mut [Vec<TokenData>; 2],
    ) -> Result<(), Difference> {
        self.are_complete()?;
        // SAFETY: both are live.
        let [theirs, ours] = self.made.map(|smpl| unsafe { name_of(smpl) });
        if theirs != ours {
            return differ(LLAMA_SIEVE_CERTIFY_NAME, 0);
        }
        for token in HISTORY {
            for smpl in self.made {
                // SAFETY: as above.
                unsafe { accept(smpl, token) };
            }
        }
        // SAFETY: as above.
        unsafe {
            self.work_on(arrays, work)?;
            self.compare_copies(copy, &mut |pair| pair.work_on(few, work))
        }
    }

    /// Runs `work` with clones of both samplers, with both after the state of their clones was
    /// copied to them, and with both after a reset.
    ///
    /// # Safety
    /// The samplers are live; `copy` is their host's `llama_sampler_copy`.
    pub(super) unsafe fn compare_copies(
        &self,
        copy: Option<CopyTo>,
        work: &mut dyn FnMut(&Self) -> Result<(), Difference>,
    ) -> Result<(), Difference> {
        // SAFETY: the caller guarantees the sampler; clones are live if the original is.
        unsafe {
            if !self.are_bare() {
                let clones = Self {
                    made: self.made.map(|smpl| copy_of(smpl)),
                    free: self.free,
                };
                clones.are_complete()?;
                work(&clones)?;
                if let Some(copy) = copy.filter(|_| self.are_of_the_kinds_of(&clones)) {
                    for (from, to) in clones.made.into_iter().zip(self.made) {
                        copy(from, to);
                    }
                    work(self)?;
                }
            }
            for smpl in self.made {
                reset(smpl);
            }
            work(self)
        }
    }

    /// Returns true if the host's sampler has no state and no function to clone it, like older
    /// greedy samplers. The host's `llama_sampler_clone` then makes another sampler with the same
    /// vtable.
    ///
    /// # Safety
    /// All samplers are live.
    unsafe fn are_bare(&self) -> bool {
        let [theirs, _] = self.made;
        // SAFETY: the caller guarantees the sampler, which has a vtable.
        unsafe { (*theirs).ctx.is_null() && (*(*theirs).iface).clone.is_none() }
    }

    /// Returns true if each sampler has the vtable of its clone. Otherwise the host's
    /// `llama_sampler_copy` would abort. The vtables differ if a built-in clones itself with a
    /// constructor that is interposed.
    ///
    /// # Safety
    /// All samplers are live.
    unsafe fn are_of_the_kinds_of(&self, clones: &Self) -> bool {
        let mut pairs = self.made.into_iter().zip(clones.made);
        // SAFETY: the caller guarantees it.
        pairs.all(|(made, clone)| unsafe { (*made).iface == (*clone).iface })
    }

    /// Checks that both were made.
    fn are_complete(&self) -> Result<(), Difference> {
        // SAFETY: both are live or NULL.
        let complete =
            |smpl: *mut llama_sampler| unsafe { !smpl.is_null() && !(*smpl).iface.is_null() };
        match self.made.into_iter().all(complete) {
            true => Ok(()),
            false => differ(LLAMA_SIEVE_CERTIFY_NOT_MADE, 0),
        }
    }

    /// Applies both samplers to `arrays`. After each array both accept the selected token, or token
    /// 1 if none is selected; after every third array, the token with the next id instead. Returns
    /// the first difference as an error.
    ///
    /// # Safety
    /// The samplers are live.
    unsafe fn work_on(
        &self,
        arrays: &[Array],
        work: &mut [Vec<TokenData>; 2],
    ) -> Result<(), Difference> {
        for (place, Array { data, sorted }) in arrays.iter().enumerate() {
            let left = std::array::from_fn(|side| {
                let (Some(&smpl), Some(work)) = (self.made.get(side), work.get_mut(side)) else {
                    return Left::nothing();
                };
                work.clear();
                work.extend_from_slice(data);
                // SAFETY: the caller guarantees the samplers, and the array is this call's.
                unsafe { apply(smpl, work, *sorted) }
            });
            let [theirs, ours]: [Left; 2] = left;
            let [of_theirs, of_ours] = &*work;
            if let Some(code) = theirs.differs_from(of_theirs, &ours, of_ours) {
                return differ(code, data.len());
            }
            let chosen = theirs.chosen(of_theirs).unwrap_or(1);
            let accepted = chosen.wrapping_add(Token::from(place % 3 == 2));
            for smpl in self.made {
                // SAFETY: as above.
                unsafe { accept(smpl, accepted) };
            }
        }
        Ok(())
    }
}

pub(super) fn differ<T>(code: c_int, size: usize) -> Result<T, Difference> {
    Err(Difference { code, size })
}

/// The host's `llama_sampler_copy`.
pub(super) type CopyTo = unsafe extern "C-unwind" fn(*const llama_sampler, *mut llama_sampler);

/// Returns a clone of a sampler, made by the sampler's own function; NULL if there is no such
/// function.
///
/// # Safety
/// `smpl` is live or NULL.
pub(super) unsafe fn copy_of(smpl: *mut llama_sampler) -> *mut llama_sampler {
    type Clone = unsafe extern "C-unwind" fn(*const llama_sampler) -> *mut llama_sampler;
    // SAFETY: the caller guarantees the sampler, which has a vtable. A host's entries may throw.
    unsafe {
        let iface = smpl.as_ref().and_then(|smpl| smpl.iface.as_ref());
        let Some(clone) = iface.and_then(|iface| iface.clone) else {
            return null_mut();
        };
        let clone: Clone = transmute(clone);
        clone(smpl)
    }
}

/// Resets a sampler.
///
/// # Safety
/// `smpl` is live.
unsafe fn reset(smpl: *mut llama_sampler) {
    type Reset = unsafe extern "C-unwind" fn(*mut llama_sampler);
    // SAFETY: as above.
    unsafe {
        if let Some(reset) = (*(*smpl).iface).reset {
            let reset: Reset = transmute(reset);
            reset(smpl);
        }
    }
}

/// Returns the name without the question mark of a disabled sampler, which older builds do not
/// have.
///
/// # Safety
/// `smpl` is live.
pub(super) unsafe fn name_of<'a>(smpl: *const llama_sampler) -> &'a [u8] {
    // SAFETY: the caller guarantees the sampler, which has a vtable; its name is NULL or a C
    // string.
    unsafe {
        let Some(name) = (*(*smpl).iface).name else {
            return &[];
        };
        let name = name(smpl);
        if name.is_null() {
            return &[];
        }
        let name = c_bytes(name);
        name.strip_prefix(b"?").unwrap_or(name)
    }
}

/// Makes a sampler accept a token.
///
/// # Safety
/// `smpl` is live.
pub(super) unsafe fn accept(smpl: *mut llama_sampler, token: Token) {
    // SAFETY: the caller guarantees the sampler, which has a vtable. A host's entries may throw.
    unsafe {
        if let Some(accept) = (*(*smpl).iface).accept {
            accept(smpl, token);
        }
    }
}

/// Applies a sampler to these candidates, and returns the state of the array.
///
/// # Safety
/// `smpl` is live.
pub(super) unsafe fn apply(smpl: *mut llama_sampler, data: &mut [TokenData], sorted: bool) -> Left {
    let start = data.as_mut_ptr();
    let mut array = llama_token_data_array {
        data: start,
        size: data.len(),
        selected: -1,
        sorted: u8::from(sorted),
    };
    // SAFETY: the caller guarantees the sampler, which has a vtable; the array is valid. A host's
    // entries may throw.
    unsafe {
        if let Some(apply) = (*(*smpl).iface).apply {
            let apply: Apply = transmute(apply);
            apply(smpl, &raw mut array);
        }
    }
    let offset = (array.data as usize).wrapping_sub(start as usize) / size_of::<TokenData>();
    Left {
        offset,
        size: array.size,
        selected: array.selected,
        sorted: array.sorted != 0,
    }
}

/// The state of an array after a sampler.
pub(super) struct Left {
    /// The offset in the array at which the candidates begin, which XTC changes.
    offset: usize,
    size: usize,
    selected: i64,
    sorted: bool,
}

impl Left {
    fn nothing() -> Self {
        Self {
            offset: 0,
            size: 0,
            selected: -1,
            sorted: false,
        }
    }

    /// Returns the state of an unchanged array of `size` candidates.
    #[cfg(all(any(target_os = "linux", windows), not(miri)))]
    pub(super) fn all(size: usize) -> Self {
        Self {
            size,
            ..Self::nothing()
        }
    }

    /// Returns the candidates; `None` if they are not in the array.
    fn of<'a>(&self, data: &'a [TokenData]) -> Option<&'a [TokenData]> {
        data.get(self.offset..)?.get(..self.size)
    }

    fn chosen(&self, data: &[TokenData]) -> Option<Token> {
        let index = usize::try_from(self.selected).ok()?;
        self.of(data)?.get(index).map(|candidate| candidate.id)
    }

    pub(super) fn differs_from(
        &self,
        data: &[TokenData],
        other: &Self,
        others: &[TokenData],
    ) -> Option<c_int> {
        let (Some(left), Some(right)) = (self.of(data), other.of(others)) else {
            return Some(LLAMA_SIEVE_CERTIFY_SIZE);
        };
        let all = |equal: fn(&TokenData, &TokenData) -> bool| {
            left.iter().zip(right).all(|(a, b)| equal(a, b))
        };
        let equal = [
            (left.len() == right.len(), LLAMA_SIEVE_CERTIFY_SIZE),
            (all(|a, b| a.id == b.id), LLAMA_SIEVE_CERTIFY_IDS),
            (
                all(|a, b| a.logit.to_bits() == b.logit.to_bits()),
                LLAMA_SIEVE_CERTIFY_LOGITS,
            ),
            (
                all(|a, b| a.p.to_bits() == b.p.to_bits()),
                LLAMA_SIEVE_CERTIFY_PROBABILITIES,
            ),
            (self.sorted == other.sorted, LLAMA_SIEVE_CERTIFY_SORTED),
            (
                self.selected == other.selected,
                LLAMA_SIEVE_CERTIFY_SELECTED,
            ),
        ];
        equal
            .into_iter()
            .find_map(|(equal, code)| (!equal).then_some(code))
    }
}
