//! Buffers of chains, kept by each thread from one call to the next.

use std::collections::TryReserveError;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use half::{bf16, f16};

use super::Member;
use super::traced::Waiting;
use crate::ffi::failure::Failure;
use crate::ffi::guard::Payload;
use crate::ffi::host::llama_h::llama_sampler;
use crate::kernels::logits::Logits;
use crate::memory;
use crate::per_thread::{Lent, lent_per_thread};
use crate::pool::{Buffers, Left};
use crate::token::Token;

/// The data that a thread keeps from one call to the next.
#[derive(Default)]
pub(super) struct Workspace {
    pub buffers: Buffers,
    /// The members of the chain that is running.
    pub members: Vec<Member>,
    pub last: Option<Last>,
}

/// The chain and the logits from which the last token was sampled, and the candidates that were
/// left.
#[derive(Clone, Copy)]
pub(super) struct Last {
    pub chain: *mut llama_sampler,
    pub logits: RawLogits,
    pub left: Left,
}

/// A reference to logits, without their lifetime.
#[derive(Clone, Copy)]
pub(super) enum RawLogits {
    F32(*const f32, usize),
    F16(*const f16, usize),
    Bf16(*const bf16, usize),
}

impl RawLogits {
    pub(super) fn of(logits: Logits<'_>) -> Self {
        match logits {
            Logits::F32(xs) => Self::F32(xs.as_ptr(), xs.len()),
            Logits::F16(xs) => Self::F16(xs.as_ptr(), xs.len()),
            Logits::Bf16(xs) => Self::Bf16(xs.as_ptr(), xs.len()),
        }
    }

    /// Returns the logits.
    ///
    /// # Safety
    /// The logits still exist, and do not change during `'a`.
    pub(super) unsafe fn get<'a>(self) -> Logits<'a> {
        use std::slice::from_raw_parts;
        // SAFETY: the caller guarantees it.
        unsafe {
            match self {
                Self::F32(xs, n) => Logits::F32(from_raw_parts(xs, n)),
                Self::F16(xs, n) => Logits::F16(from_raw_parts(xs, n)),
                Self::Bf16(xs, n) => Logits::Bf16(from_raw_parts(xs, n)),
            }
        }
    }
}

/// A chain of a batch whose members are all this library's.
pub(super) struct Job {
    /// The index of the chain in the batch.
    pub index: usize,
    /// The members of the chain, in the list of all members of the batch.
    pub members: *const [Member],
    pub logits: RawLogits,
    pub token: Result<Result<Token, Failure>, Payload>,
    /// The observations for the token's line in the trace.
    pub waiting: Option<Box<Waiting>>,
}

/// The lists that are built for a batch. Their contents are valid only within one call.
#[derive(Default)]
pub(super) struct Lists {
    /// The chains, each with its index among the caller's.
    pub seen: Vec<(usize, usize)>,
    /// The members of all chains, one after the other, and the indices at which those of each chain
    /// end.
    pub members: Vec<Member>,
    pub ends: Vec<usize>,
    pub jobs: Vec<Job>,
    /// The indices of the chains with a member that is not this library's.
    pub foreign: Vec<usize>,
}

impl Lists {
    /// Empties the lists, and makes room for `n` chains.
    pub(super) fn clear(&mut self, n: usize) -> Result<(), TryReserveError> {
        self.members.clear();
        cleared(&mut self.seen, n)?;
        cleared(&mut self.ends, n)?;
        cleared(&mut self.jobs, n)?;
        cleared(&mut self.foreign, n)
    }
}

fn cleared<T>(list: &mut Vec<T>, n: usize) -> Result<(), TryReserveError> {
    list.clear();
    memory::reserve_exact(list, n)
}

lent_per_thread!(Workspace, Lists);

/// The thread's data, borrowed until this guard is dropped. A nested call, which a member may make,
/// gets data of its own.
pub(super) struct Taken<T: Lent>(ManuallyDrop<Box<T>>);

impl<T: Lent> Taken<T> {
    pub(super) fn new() -> Self {
        Self(ManuallyDrop::new(T::lend()))
    }
}

impl<T: Lent> Drop for Taken<T> {
    fn drop(&mut self) {
        // SAFETY: taken only once, and not used afterwards.
        let kept = unsafe { ManuallyDrop::take(&mut self.0) };
        kept.give_back();
    }
}

impl<T: Lent> Deref for Taken<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Lent> DerefMut for Taken<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Forgets the last token, whose candidates are then no longer available.
pub(super) fn forget() {
    Taken::<Workspace>::new().last = None;
}
