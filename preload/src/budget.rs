//! Reasoning budgets: the sampler that llama.cpp's common library applies before the chain.
//!
//! A budget counts the tokens of a model's thoughts, and changes nothing until there are too many.
//! Then it forces a text that ends the thoughts, token by token: the logits of all other tokens
//! become minus infinity. Applying it to two candidates therefore shows whether it forces a token.
//! Only then is it applied to the whole vocabulary, and the chain to the result.
//!
//! ```text
//! apply to [token 0, token 1]
//! neither has changed  -> the chain works on the logits
//! otherwise            -> apply to all tokens; the chain works on the changed logits
//! ```
//!
//! Any sampler may come before a chain. A budget is recognised by its name, and by applying a copy
//! of it to several arrays of candidates. Recognised budgets are kept in a list, since the note
//! about a chain (see `calls`) may outlive the budget to which it refers. A freed budget is removed
//! from the list.

use std::ffi::{CStr, c_char, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use llama_sieve::TokenData;
use llama_sieve::ffi::chain::in_front::Edited;
use llama_sieve::ffi::guard::guard;
use llama_sieve::ffi::host::llama_h::{llama_sampler, llama_token_data_array};
use llama_sieve::memory;

use crate::host_constructors::Route;
use crate::routes::Function;

/// The name that `llama_sampler_name` reports for a budget.
const NAME: &CStr = c"reasoning-budget";

static APPLY: Function = Function::new(c"llama_sampler_apply");
static CLONE: Function = Function::new(c"llama_sampler_clone");
static FREE: Function = Function::new(c"llama_sampler_free");
static NAME_OF: Function = Function::new(c"llama_sampler_name");

/// The most live budgets that are in the list at once. Chains after other budgets are left to the
/// host.
const MOST: usize = 255;

/// The logit of the two candidates that show whether a budget forces a token. A budget changes a
/// logit only to minus infinity, so a change is always visible.
const ASKED: f32 = 1.5;

/// An entry of the list of recognised budgets.
struct Place {
    sampler: AtomicPtr<llama_sampler>,
    /// The number of samplers that have been removed from this entry.
    nth: AtomicU32,
}

static LIST: [Place; MOST] = [const {
    Place {
        sampler: AtomicPtr::new(null_mut()),
        nth: AtomicU32::new(0),
    }
}; MOST];

/// The number of entries, from the first on, that have ever been used.
static USED: AtomicU32 = AtomicU32::new(0);

/// A reference to a budget in the list. Zero refers to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed(u32);

/// The number of bits in a note that identify a budget.
const BITS: u32 = 24;

impl Listed {
    /// Returns the reference in a note, which may refer to no budget.
    pub const fn in_note(note: u32) -> Self {
        Self(note >> (u32::BITS - BITS))
    }

    /// Returns the note with this reference in place of its own.
    pub const fn noted(self, note: u32) -> u32 {
        let below = note & (u32::MAX >> BITS);
        below | self.0 << (u32::BITS - BITS)
    }

    /// True if this refers to a budget, even if that has been freed.
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// Returns the sampler, unless it has been freed.
    pub fn sampler(self) -> Option<*mut llama_sampler> {
        let place = LIST.get(usize::from(self.0 as u8).checked_sub(1)?)?;
        let sampler = place.sampler.load(Ordering::Acquire);
        let is_it = self.0 >> 8 == place.nth.load(Ordering::Acquire) & 0xFFFF;
        (is_it && !sampler.is_null()).then_some(sampler)
    }

    /// Returns the entry of a sampler, which is added if it is not in the list; `None` if the list
    /// is full.
    fn of(sampler: *mut llama_sampler) -> Option<Self> {
        let listed = |(i, place): (usize, &Place)| {
            let nth = place.nth.load(Ordering::Acquire) & 0xFFFF;
            Self(nth << 8 | (i as u32 + 1))
        };
        let all = || LIST.iter().enumerate();
        let holds = |place: &Place| place.sampler.load(Ordering::Acquire) == sampler;
        if let Some(known) = all().find(|(_, place)| holds(place)) {
            return Some(listed(known));
        }
        let take = |place: &Place| {
            let taken = place.sampler.compare_exchange(
                null_mut(),
                sampler,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            taken.is_ok()
        };
        let taken = all().find(|(_, place)| take(place))?;
        USED.fetch_max(taken.0 as u32 + 1, Ordering::AcqRel);
        Some(listed(taken))
    }
}

/// Removes a sampler from the list, if it is there, since it is being freed.
fn forget(sampler: *mut llama_sampler) {
    let used = USED.load(Ordering::Acquire) as usize;
    let places = LIST.iter().take(used);
    let holds = |place: &&Place| place.sampler.load(Ordering::Acquire) == sampler;
    if let Some(place) = places.filter(|_| !sampler.is_null()).find(holds) {
        place.nth.fetch_add(1, Ordering::AcqRel);
        place.sampler.store(null_mut(), Ordering::Release);
    }
}

/// Empties the list, since from now on samplers may be freed without a call of the stand-in.
pub fn forget_all() {
    for place in &LIST {
        forget(place.sampler.load(Ordering::Acquire));
    }
}

/// Adds `smpl` to the list if it is a budget, and returns its entry. The host is about to apply it
/// to `array`, before the chain.
///
/// # Safety
/// `smpl` is a live sampler of the host that is served, and no other thread uses it; `array` is
/// NULL or valid.
pub unsafe fn recognise(
    smpl: *mut llama_sampler,
    array: *const llama_token_data_array,
) -> Option<Listed> {
    // SAFETY: the caller guarantees sampler and array.
    unsafe {
        let array = array.as_ref().filter(|array| !array.data.is_null())?;
        let all = std::slice::from_raw_parts(array.data, array.size);
        if !is_named(smpl) {
            return None;
        }
        let copy = Copy::of(smpl)?;
        is_budget(copy.0, all)?.then(|| Listed::of(smpl))?
    }
}

/// Returns the logits that `budget` leaves for the chain; `None` if they cannot be determined.
///
/// # Safety
/// `budget` is a live sampler of the host that is served, and no other thread uses it.
pub unsafe fn edited(budget: *mut llama_sampler, logits: &[f32]) -> Option<Edited> {
    let apply = APPLY.route()?;
    let candidate = |(i, &logit): (usize, &f32)| TokenData::new(i as i32, logit);
    let mut asked = [(0, &ASKED), (1, &ASKED)].map(candidate);
    let asked = asked.get_mut(..logits.len().min(2))?;
    // SAFETY: the caller guarantees the sampler, and the candidates are here.
    unsafe { apply_to(apply, budget, asked)? };
    if asked.iter().all(|candidate| candidate.logit == ASKED) {
        return Some(Edited::AsTheyAre);
    }
    let mut all = memory::with_room(logits.len()).ok()?;
    all.extend(logits.iter().enumerate().map(candidate));
    // SAFETY: as above.
    unsafe { apply_to(apply, budget, &mut all)? };
    let mut others = memory::with_room(logits.len()).ok()?;
    others.extend(all.iter().map(|candidate| candidate.logit));
    Some(Edited::Others(others))
}

/// Applies a sampler to candidates. Returns `None` if it sets the array's pointer, size, selected
/// index or mark as sorted.
///
/// # Safety
/// `smpl` is a live sampler of the host that is served, and no other thread uses it.
unsafe fn apply_to(
    apply: Route,
    smpl: *mut llama_sampler,
    candidates: &mut [TokenData],
) -> Option<()> {
    let mut array = llama_token_data_array {
        data: candidates.as_mut_ptr(),
        size: candidates.len(),
        selected: -1,
        sorted: 0,
    };
    call_host!(
        apply,
        (*mut llama_sampler, *mut llama_token_data_array) -> (),
        (smpl, &raw mut array)
    );
    let marks = (array.data, array.size, array.selected, array.sorted);
    (marks == (candidates.as_mut_ptr(), candidates.len(), -1, 0)).then_some(())
}

/// True if `copy` acts on several arrays of candidates as a budget does: it changes none of them,
/// or in each it sets the logits of all tokens except the forced one to minus infinity. Returns
/// `None` if its effect on one array is not a budget's, or if it cannot be applied.
///
/// # Safety
/// `copy` is a live sampler of the host that is served, and no other thread uses it.
unsafe fn is_budget(copy: *mut llama_sampler, all: &[TokenData]) -> Option<bool> {
    let apply = APPLY.route()?;
    let mut other = memory::with_room(all.len()).ok()?;
    other.extend(all.iter().map(|candidate| TokenData {
        logit: (candidate.id % 7) as f32,
        ..*candidate
    }));
    let few = other.get(..all.len().min(2))?;
    let mut candidates = memory::with_room(all.len()).ok()?;
    let mut forced = None;
    for asked in [few, all, &other, few, all] {
        candidates.clear();
        candidates.extend_from_slice(asked);
        // SAFETY: the caller guarantees the copy, and the candidates are here.
        unsafe { apply_to(apply, copy, &mut candidates)? };
        let outcome = Outcome::of(asked, &candidates)?;
        let expected = forced.get_or_insert(outcome);
        if !expected.agrees(outcome) {
            return Some(false);
        }
        if let Outcome::Forces(Some(_)) = outcome {
            forced = Some(outcome);
        }
    }
    Some(true)
}

/// The effect of a budget on candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Nothing,
    /// A token is forced. `None` means that it is not among the candidates.
    Forces(Option<i32>),
}

impl Outcome {
    /// Returns the effect, given the candidates before and after; `None` if no budget has this
    /// effect.
    fn of(before: &[TokenData], after: &[TokenData]) -> Option<Self> {
        let bits = |c: &TokenData| (c.id, c.logit.to_bits(), c.p.to_bits());
        let same = |pair: &(&TokenData, &TokenData)| bits(pair.0) == bits(pair.1);
        let pairs = || before.iter().zip(after);
        if before.len() == after.len() && pairs().all(|pair| same(&pair)) {
            return Some(Self::Nothing);
        }
        let masked = |c: &TokenData| TokenData {
            logit: f32::NEG_INFINITY,
            ..*c
        };
        let mut kept = pairs().filter(|(b, a)| bits(&masked(b)) != bits(a));
        let forced = kept.next();
        let is_alone = kept.next().is_none() && forced.is_none_or(|pair| same(&pair));
        is_alone.then(|| Self::Forces(forced.map(|(_, after)| after.id)))
    }

    /// True if one budget can have both effects, with no token accepted in between.
    fn agrees(self, other: Self) -> bool {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => true,
            (Self::Forces(a), Self::Forces(b)) => a.is_none() || b.is_none() || a == b,
            _ => false,
        }
    }
}

/// True if the sampler has the name of a budget.
///
/// # Safety
/// `smpl` is a live sampler of the host that is served.
unsafe fn is_named(smpl: *const llama_sampler) -> bool {
    let name = call_host!(
        NAME_OF.route(),
        (*const llama_sampler) -> *const c_char,
        (smpl),
        NAME.as_ptr().wrapping_add(NAME.count_bytes())
    );
    // SAFETY: a sampler's name is NULL or a C string.
    !name.is_null() && unsafe { CStr::from_ptr(name) } == NAME
}

/// A copy of a sampler, made by the host and freed when this is dropped.
struct Copy(*mut llama_sampler);

impl Copy {
    /// Returns a copy of a sampler; `None` if the host makes none.
    ///
    /// # Safety
    /// `smpl` is a live sampler of the host that is served.
    unsafe fn of(smpl: *const llama_sampler) -> Option<Self> {
        let clone = CLONE.route()?;
        let copy = call_host!(
            clone,
            (*const llama_sampler) -> *mut llama_sampler,
            (smpl)
        );
        (!copy.is_null()).then_some(Self(copy))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        call_host!(FREE.route(), (*mut llama_sampler) -> (), (self.0), ());
    }
}

/// Stand-in for `llama_sampler_free` that also removes a freed budget from the list.
///
/// # Safety
/// The argument meets the requirements of llama.h.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sampler_free(smpl: *mut llama_sampler) {
    guard("llama_sampler_free", || (), || forget(smpl));
    call_host!(FREE.route(), (*mut llama_sampler) -> (), (smpl), ());
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: [TokenData; 3] = [
        TokenData::new(0, 0.5),
        TokenData::new(1, 2.0),
        TokenData::new(2, -1.0),
    ];
    const MASKED: f32 = f32::NEG_INFINITY;

    /// Returns the effect of a change to candidates with these logits.
    fn outcome(logits: [f32; 3]) -> Option<Outcome> {
        let after = [0, 1, 2].map(|id| TokenData::new(id, logits[id as usize]));
        Outcome::of(&BEFORE, &after)
    }

    #[test]
    fn a_budget_does_nothing_or_masks_all_but_one() {
        assert_eq!(outcome([0.5, 2.0, -1.0]), Some(Outcome::Nothing));
        let forces = |token| Some(Outcome::Forces(token));
        assert_eq!(outcome([MASKED, 2.0, MASKED]), forces(Some(1)));
        assert_eq!(outcome([MASKED; 3]), forces(None));
        for other in [
            [MASKED, 2.0, -1.0],
            [0.5, 2.5, -1.0],
            [MASKED, 2.5, MASKED],
            [f32::NAN, 2.0, -1.0],
        ] {
            assert_eq!(outcome(other), None, "{other:?}");
        }
        let [a, b, c] = BEFORE;
        assert_eq!(Outcome::of(&BEFORE, &[b, a, c]), None);
        assert_eq!(Outcome::of(&BEFORE, &[a, b]), None);
    }

    #[test]
    fn what_is_forced_is_one_token() {
        let forces = Outcome::Forces;
        assert!(Outcome::Nothing.agrees(Outcome::Nothing));
        assert!(
            !Outcome::Nothing.agrees(forces(None)) && !forces(Some(3)).agrees(Outcome::Nothing)
        );
        assert!(forces(None).agrees(forces(Some(3))) && forces(Some(3)).agrees(forces(None)));
        assert!(
            forces(Some(3)).agrees(forces(Some(3))) && !forces(Some(3)).agrees(forces(Some(4)))
        );
    }

    #[test]
    fn a_note_names_a_budget_until_that_is_freed() {
        let mut places = [0u8; 2];
        let [first, second] = places
            .each_mut()
            .map(|p| (&raw mut *p).cast::<llama_sampler>());
        let listed = Listed::of(first).expect("there is room");
        assert_eq!(Listed::of(first), Some(listed));
        let note = listed.noted(0b1_0101);
        assert_eq!((Listed::in_note(note), note & 0xFF), (listed, 0b1_0101));
        assert_eq!(listed.sampler(), Some(first));
        assert!(listed.is_some() && !Listed::in_note(0b1_0101).is_some());
        assert_eq!(Listed::in_note(0).sampler(), None);

        forget(second);
        assert_eq!(listed.sampler(), Some(first));
        forget(first);
        assert_eq!(listed.sampler(), None);
        // Another sampler takes the entry, and the first one's address gets another entry.
        let later = Listed::of(second).expect("there is room");
        assert_eq!((later.sampler(), listed.sampler()), (Some(second), None));
        assert_ne!(later, listed);
        let first = Listed::of(first).expect("there is room");
        forget_all();
        assert_eq!((later.sampler(), first.sampler()), (None, None));
        forget(null_mut());
    }
}
