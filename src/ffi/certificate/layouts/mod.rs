//! Determines the argument list of a host's constructor from the calls of a program.
//!
//! Some lists have changed between builds, and may change again. So this library calls none of
//! these constructors with its own arguments before the list is known. The host makes its sampler
//! from a program's call, with all registers unchanged. This library's sampler is made for each
//! known list, from the same registers. A copy of each then accepts the same tokens and is applied
//! to the same candidates. All results must be equal, bit for bit, also for their clones and after
//! a reset. Every list for which that holds gives the requested sampler.
//!
//! That holds for one call. The list is known for all calls when only one list is left, and calls
//! have proven that each of its numbers, except `n_vocab`, comes from its own register: no other
//! register had the same value, and the value had an effect. Otherwise two arguments that were
//! equal by chance could be exchanged. Until then each call with new values is tested.
//!
//! If a list has a pointer at a position, the memory there is read only if the kernel confirms that
//! it is readable. If a list has a vocabulary at a position, the argument is used only if the host
//! has returned that address as a vocabulary.
//!
//! The host's functions are called outside the guard, so that their exceptions pass through.

mod arguments;
mod battery;
pub mod confirmed;

use std::sync::atomic::{AtomicU8, Ordering};

use crate::ffi::certificate::compare::{CopyTo, Pair, copy_of};
use crate::ffi::certificate::copy_to;
use crate::ffi::chain::switched_off;
use crate::ffi::guard::guard;
use crate::ffi::host::Host;
use crate::ffi::host::build::Build;
use crate::ffi::host::built_ins::{self, Free, free_of};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::profile;
use crate::ffi::samplers::is_disabled;
use crate::sync::{Mutex, MutexGuard};

use arguments::{Arguments, Unread};
use battery::{Battery, Outcome};

/// The raw arguments of a call, which a list interprets.
///
/// On Windows each argument, whatever its kind, uses the next position, and there are as many
/// integer registers as floating-point registers. Elsewhere each kind uses its own registers in
/// turn.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// The registers of integers and pointers, in order; on Windows they are followed by the stack.
    pub integers: [usize; INTEGERS],
    /// The lower 32 bits of the floating-point registers, in order; on Windows they are followed by
    /// the stack.
    pub vectors: [u32; 8],
}

/// The number of positions in which integers are searched.
pub const INTEGERS: usize = if cfg!(windows) { 8 } else { 6 };

impl Registers {
    /// Returns the integers and pointers of a call whose argument list is numbered `list`, in the
    /// list's order.
    pub fn integers_of(&self, kind: Changing, list: usize) -> [usize; 6] {
        std::array::from_fn(|number| {
            let place = kind.place(list, INTEGER, number);
            place
                .and_then(|place| self.integers.get(place).copied())
                .unwrap_or(0)
        })
    }

    /// Returns the bits of the floating-point numbers of a call whose argument list is numbered
    /// `list`, in the list's order.
    pub fn vectors_of(&self, kind: Changing, list: usize) -> [u32; 3] {
        std::array::from_fn(|number| {
            let place = kind.place(list, VECTOR, number);
            place
                .and_then(|place| self.vectors.get(place).copied())
                .unwrap_or(0)
        })
    }

    /// Returns true if no other integer position has the same lower 32 bits as `place`.
    fn is_only_integer(&self, place: Option<usize>) -> bool {
        is_only(&self.integers.map(|value| value as u32), place)
    }

    fn is_only_vector(&self, place: Option<usize>) -> bool {
        is_only(&self.vectors, place)
    }
}

fn is_only(all: &[u32], place: Option<usize>) -> bool {
    let value = place.and_then(|place| all.get(place));
    value.is_some_and(|value| all.iter().filter(|&other| other == value).count() == 1)
}

/// Kinds of arguments: integers and pointers, and floating-point numbers.
const INTEGER: u8 = b'i';
const VECTOR: u8 = b'f';

/// Returns the position in `list`, counted over arguments of all kinds, of the argument of the kind
/// `kind` that has the index `number` among those of its kind.
fn place_among_all(list: &[u8], kind: u8, number: usize) -> Option<usize> {
    let mut of_kind = (0..).zip(list).filter(|(_, other)| **other == kind);
    of_kind.nth(number).map(|(place, _)| place)
}

/// The constructors whose argument lists must be determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changing {
    /// Penalties; one list has `n_vocab`, and one does not.
    Penalties,
    /// DRY; one list has no `n_ctx_train`, and one does.
    Dry,
    /// Logit bias: one known list, with a pointer.
    LogitBias,
    /// Infill: one known list, with a pointer.
    Infill,
}

impl Changing {
    /// Returns all these constructors, in the order of their numbers.
    pub const fn all() -> [Self; 4] {
        [Self::Penalties, Self::Dry, Self::LogitBias, Self::Infill]
    }

    /// Returns the known argument lists, one bit each. The newest list is numbered 0.
    const fn lists(self) -> u8 {
        match self {
            Self::Penalties | Self::Dry => 0b11,
            Self::LogitBias | Self::Infill => 0b1,
        }
    }

    /// Returns the kinds of the arguments in the list numbered `list`.
    const fn arguments(self, list: usize) -> &'static [u8] {
        match (self, list) {
            (Self::Penalties, 0) => b"iifff",
            (Self::Penalties, _) => b"ifff",
            (Self::Dry, 0) => b"iffiiii",
            (Self::Dry, _) => b"iiffiiii",
            (Self::LogitBias, _) => b"iii",
            (Self::Infill, _) => b"i",
        }
    }

    /// Returns the index in [`Registers`] of an argument in the list numbered `list`: the one of
    /// the kind `kind` that has the index `number` among those of its kind.
    fn place(self, list: usize, kind: u8, number: usize) -> Option<usize> {
        match cfg!(windows) {
            true => place_among_all(self.arguments(list), kind, number),
            false => Some(number),
        }
    }

    /// Returns the number of the argument list that the constructor takes in `build`.
    pub fn list_of(self, build: Build) -> usize {
        match self {
            Self::Penalties => usize::from(!build.penalties_take_n_vocab()),
            Self::Dry => usize::from(build.dry_takes_n_ctx_train()),
            Self::LogitBias | Self::Infill => 0,
        }
    }

    /// Returns a build whose constructor takes the argument list numbered `list`.
    pub const fn build_with(self, list: usize) -> Build {
        match list {
            0 => Build::NEW_LISTS,
            _ => Build::OLD_LISTS,
        }
    }
}

/// The findings about one constructor of one host.
#[derive(Debug)]
pub struct Layouts {
    kind: Changing,
    settled: AtomicU8,
    evidence: Mutex<Evidence>,
}

/// The value of `settled` while there is no finding. None of these three values is the number of a
/// list.
const OPEN: u8 = 0xFF;
const REFUSED: u8 = 0xFE;
const COPIED_OTHERWISE: u8 = 0xFD;

#[derive(Debug)]
struct Evidence {
    /// A bit for each list that no call has refuted.
    possible: u8,
    /// For each list, a bitmap of its arguments that calls have proven.
    shown: [u8; LISTS],
    /// The most recent calls that were tested, and for which every possible list gave the host's
    /// sampler.
    tried: Vec<Read>,
}

const LISTS: usize = 2;
const MOST_TRIED: usize = 64;

/// The finding that holds for all calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// There is no such finding yet.
    Open,
    /// Calls have proven that the list is the one with this number.
    Proven(usize),
    /// The list is not one of the known ones.
    Refused,
    /// The host's copies differ from this library's, or the samplers differ after a reset.
    CopiedOtherwise,
}

/// The arguments of a call, interpreted according to each argument list that had not been refuted
/// when they were read; `None` for the other lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read([Option<Result<Arguments, Unread>>; LISTS]);

/// The outcome for a list, and this library's sampler with the arguments read according to that
/// list.
type Found = Option<(Outcome, Option<Owned>)>;

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This library's sampler, which equals the host's; the host's must be [freed](free).
    Ours(*mut llama_sampler),
    /// No result: the host's sampler is to be used for this call.
    Undecided,
    /// The list is not one of the known ones.
    Refused,
    /// The host's copies differ from this library's, or the samplers differ after a reset.
    CopiedOtherwise,
}

impl Layouts {
    /// Returns the initial state for a constructor, without findings.
    pub const fn new(kind: Changing) -> Self {
        Self {
            kind,
            settled: AtomicU8::new(OPEN),
            evidence: Mutex::new(Evidence {
                possible: kind.lists(),
                shown: [0; LISTS],
                tried: Vec::new(),
            }),
        }
    }

    /// Returns the finding that holds for all calls.
    pub fn settled(&self) -> Settled {
        match self.settled.load(Ordering::Acquire) {
            OPEN => Settled::Open,
            REFUSED => Settled::Refused,
            COPIED_OTHERWISE => Settled::CopiedOtherwise,
            list => Settled::Proven(list.into()),
        }
    }

    /// Returns the only possible list, if all others have been refuted.
    pub fn only(&self) -> Option<usize> {
        let possible = self.evidence().possible;
        possible
            .is_power_of_two()
            .then(|| possible.trailing_zeros() as usize)
    }

    fn evidence(&self) -> MutexGuard<'_, Evidence> {
        self.evidence.lock()
    }

    /// Returns the arguments of a call with these registers and, if the same values were tested
    /// before, the number of a list by which this library's sampler may be made. Must be called
    /// inside the guard. `is_vocabulary` returns true for the address of a vocabulary.
    pub fn read(
        &self,
        registers: &Registers,
        is_vocabulary: &dyn Fn(usize) -> bool,
    ) -> (Read, Option<usize>) {
        let possible = self.evidence().possible;
        let mut read = Read(Default::default());
        for (list, place) in read.0.iter_mut().enumerate() {
            if has(possible, list) {
                *place = Some(Arguments::read(self.kind, list, registers, is_vocabulary));
            }
        }
        let evidence = self.evidence();
        let tried = |tried: &Read| {
            let mut both = tried.0.iter().zip(&read.0).enumerate();
            both.all(|(list, (tried, read))| {
                !has(evidence.possible, list) || (tried == read && matches!(read, Some(Ok(_))))
            })
        };
        let is_known = evidence.possible != 0 && evidence.tried.iter().any(tried);
        let list = is_known.then(|| evidence.possible.trailing_zeros() as usize);
        drop(evidence);
        (read, list)
    }

    /// Tests a call with these arguments, from which the host has made `theirs`. If several lists
    /// give the same sampler, the one with the number `first` is used.
    ///
    /// # Safety
    /// `theirs` is a live sampler that the bound host has just made in a call with these registers.
    pub unsafe fn judge(
        &self,
        registers: &Registers,
        read: &Read,
        first: usize,
        theirs: *mut llama_sampler,
    ) -> Verdict {
        let Ok(host) = Host::get() else {
            return Verdict::Undecided;
        };
        let Ok(free) = free_of(&host) else {
            return Verdict::Undecided;
        };
        let copy = copy_to(&host).ok();
        // SAFETY: the caller guarantees the sampler.
        let tells_off = unsafe { switched_off(theirs) }.is_some();
        let mut found = [const { None }; LISTS];
        for (place, read) in found.iter_mut().zip(&read.0) {
            *place = match read {
                None => None,
                Some(Err(Unread::Impossible)) => Some((Outcome::Differs, None)),
                Some(Err(Unread::Unknown)) => Some((Outcome::AsFarAsSeen, None)),
                Some(Ok(arguments)) => {
                    // SAFETY: the caller guarantees the sampler, and the arguments that were read.
                    let compared = || unsafe { compared(arguments, theirs, free, copy) };
                    let (mut outcome, mut ours) = compared();
                    if matches!(outcome, Outcome::Differs)
                        && matches!(arguments, Arguments::Penalties { .. })
                        && let Some(clangs) = profile::perhaps_clangs()
                        && let (Outcome::Same, as_clangs) = clangs.trying(compared)
                    {
                        profile::keep(clangs);
                        (outcome, ours) = (Outcome::Same, as_clangs);
                    }
                    // SAFETY: this library's sampler was just made, or is NULL.
                    let is_off = unsafe { is_disabled(ours.0) };
                    let outcome = match outcome {
                        // A sampler that does nothing shows nothing about the list.
                        Outcome::DoesNothing if is_off && !tells_off => Outcome::DoesNothing,
                        Outcome::DoesNothing if is_off => Outcome::Differs,
                        Outcome::DoesNothing => Outcome::AsFarAsSeen,
                        other => other,
                    };
                    Some((outcome, Some(ours)))
                }
            };
        }
        guard(
            "layouts",
            || Verdict::Undecided,
            || self.conclude(registers, read, first, (&host, found)),
        )
    }

    /// Stores the finding `to`, which holds for all calls, unless one is stored already.
    fn settle(&self, to: u8) {
        let (order, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.settled.compare_exchange(OPEN, to, order, otherwise);
    }

    fn conclude(
        &self,
        registers: &Registers,
        read: &Read,
        first: usize,
        (host, mut found): (&Host, [Found; LISTS]),
    ) -> Verdict {
        let mut evidence = self.evidence();
        let mut agree = 0;
        let mut copied_otherwise = 0;
        for (list, found) in found.iter().enumerate() {
            match found {
                Some((Outcome::Differs, _)) => evidence.possible &= !bit(list),
                Some((Outcome::Same | Outcome::DoesNothing, _)) => agree |= bit(list),
                Some((Outcome::CopiesDiffer, _)) => copied_otherwise |= bit(list),
                Some((Outcome::AsFarAsSeen, _)) | None => {}
            }
        }
        agree &= evidence.possible;
        if evidence.possible == 0 {
            self.settle(REFUSED);
            return Verdict::Refused;
        }
        if agree == 0 {
            if copied_otherwise & evidence.possible == 0 {
                return Verdict::Undecided;
            }
            self.settle(COPIED_OTHERWISE);
            return Verdict::CopiedOtherwise;
        }
        for (list, read) in read.0.iter().enumerate() {
            if let Some(Ok(arguments)) = read
                && matches!(found.get(list), Some(Some((Outcome::Same, _))))
                && let Some(shown) = evidence.shown.get_mut(list)
            {
                *shown |= arguments.shown(list, registers);
            }
        }
        let list = match has(agree, first) {
            true => first,
            false => agree.trailing_zeros() as usize,
        };
        if self.kind == Changing::Penalties {
            built_ins::penalties_take_n_vocab(*host, list == 0);
        }
        let is_shown = evidence.shown.get(list) == Some(&self.kind.all_shown());
        if evidence.possible == bit(list) && is_shown {
            self.settle(list as u8);
            evidence.tried = Vec::new();
        } else if agree == evidence.possible {
            if evidence.tried.len() == MOST_TRIED {
                evidence.tried.remove(0);
            }
            evidence.tried.push(read.clone());
        }
        drop(evidence);
        let ours = found.get_mut(list).and_then(|found| found.take()?.1);
        match ours {
            Some(ours) => Verdict::Ours(ours.given_away()),
            None => Verdict::Undecided,
        }
    }
}

const fn bit(list: usize) -> u8 {
    1 << list
}

const fn has(lists: u8, list: usize) -> bool {
    lists & bit(list) != 0
}

/// A sampler, or NULL, that is freed even if the host throws.
#[derive(Debug)]
struct Owned(*mut llama_sampler, Free);

impl Owned {
    fn given_away(self) -> *mut llama_sampler {
        let sampler = self.0;
        std::mem::forget(self);
        sampler
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: a live sampler of the host, not used again.
            unsafe { (self.1)(self.0) };
        }
    }
}

/// Compares a copy of `theirs` with this library's sampler of these arguments. Returns the outcome,
/// and this library's sampler in its initial state.
///
/// # Safety
/// `theirs` is a live sampler of the bound host; a vocabulary among the arguments belongs to that
/// host; `copy` is the host's `llama_sampler_copy`.
unsafe fn compared(
    arguments: &Arguments,
    theirs: *mut llama_sampler,
    free: Free,
    copy: Option<CopyTo>,
) -> (Outcome, Owned) {
    // SAFETY: the caller guarantees the vocabulary.
    let ours = Owned(unsafe { arguments.make() }, free);
    let other = match arguments {
        // The number of tokens is left out, since this library's sampler would otherwise warn of
        // tokens that are not in the vocabulary.
        &Arguments::Penalties {
            last_n, factors, ..
        } => Some(Arguments::Penalties {
            n_vocab: 0,
            last_n,
            factors,
        }),
        _ => None,
    };
    // SAFETY: all samplers are live or NULL; the caller guarantees the host's and the vocabulary.
    let (theirs, other) = unsafe {
        let theirs = Owned(copy_of(theirs), free);
        let other = match other {
            Some(other) => other.make(),
            None => copy_of(ours.0),
        };
        (theirs, Owned(other, free))
    };
    let pair = Pair {
        made: [theirs.given_away(), other.given_away()],
        free,
    };
    let make = || {
        // SAFETY: this library's sampler was made from these arguments; the caller guarantees the
        // vocabulary.
        Some(unsafe { Battery::of(arguments, ours.0) })
    };
    let battery = guard("layouts", || None, make);
    let outcome = match battery {
        // SAFETY: copies that no other code uses.
        Some(mut battery) => unsafe { battery.run(&pair, copy) },
        None => Outcome::AsFarAsSeen,
    };
    (outcome, ours)
}

/// Frees a sampler of the host that is not needed.
///
/// # Safety
/// `smpl` is a live sampler of the bound host, not used again.
pub unsafe fn free(smpl: *mut llama_sampler) {
    if let Ok(free) = Host::get().and_then(|host| free_of(&host)) {
        // SAFETY: the caller guarantees the sampler.
        unsafe { free(smpl) };
    }
}

#[cfg(test)]
mod tests;
