//! What chains need, kept by each thread from one call to the next.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use half::{bf16, f16};

use super::Member;
use crate::ffi::host::llama_h::llama_sampler;
use crate::kernels::logits::Logits;
use crate::pool::{Buffers, Left};

/// What the calling thread keeps from one call to the next.
#[derive(Default)]
pub(super) struct Workspace {
    pub buffers: Buffers,
    /// Of the chain at work.
    pub members: Vec<Member>,
    pub last: Option<Last>,
}

/// What the last token was sampled from.
#[derive(Clone, Copy)]
pub(super) struct Last {
    pub chain: *mut llama_sampler,
    pub logits: RawLogits,
    pub left: Left,
}

/// Logits without their lifetime.
#[derive(Clone, Copy)]
pub(super) enum RawLogits {
    F32(*const f32, usize),
    F16(*const f16, usize),
    Bf16(*const bf16, usize),
}

impl RawLogits {
    pub fn of(logits: Logits<'_>) -> Self {
        match logits {
            Logits::F32(xs) => Self::F32(xs.as_ptr(), xs.len()),
            Logits::F16(xs) => Self::F16(xs.as_ptr(), xs.len()),
            Logits::Bf16(xs) => Self::Bf16(xs.as_ptr(), xs.len()),
        }
    }

    /// # Safety
    /// The logits that these are of are there, and stay as they are during `'a`.
    pub unsafe fn get<'a>(self) -> Logits<'a> {
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

thread_local! {
    static WORKSPACE: Cell<Option<Box<Workspace>>> = const { Cell::new(None) };
}

/// The thread's workspace, until this is dropped; another one for a call inside a call, which a
/// member can make, and on a thread that is ending.
pub(super) struct Taken(ManuallyDrop<Box<Workspace>>);

impl Taken {
    pub fn new() -> Self {
        let kept = WORKSPACE.try_with(Cell::take).ok().flatten();
        Self(ManuallyDrop::new(kept.unwrap_or_default()))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: taken once, and never looked at again.
        let workspace = unsafe { ManuallyDrop::take(&mut self.0) };
        // Dropped where it cannot be kept.
        let _ = WORKSPACE.try_with(|kept| kept.set(Some(workspace)));
    }
}

impl Deref for Taken {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        &self.0
    }
}

impl DerefMut for Taken {
    fn deref_mut(&mut self) -> &mut Workspace {
        &mut self.0
    }
}

/// Nobody can ask for the candidates of the token before this call any more.
pub(super) fn forget() {
    Taken::new().last = None;
}
