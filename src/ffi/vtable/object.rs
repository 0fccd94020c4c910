//! The object in a `llama_sampler` of this library: the sampler and its lock.

use std::any::Any;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr::{self, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use crate::errors::{LLAMA_SIEVE_ERROR_BUSY, LLAMA_SIEVE_ERROR_NO_HOST, LLAMA_SIEVE_ERROR_NULL};
use crate::ffi::exclusive::{Exclusive, Taken};
use crate::ffi::guard::guard;
use crate::ffi::host::Host;
use crate::ffi::host::llama_h::{llama_sampler, llama_sampler_i};
use crate::last_error;
use crate::log;
use crate::sampler::{Kind, Sampler};
use crate::trace;

/// The object to which `ctx` points.
pub(super) struct Object<S> {
    /// The host that made the `llama_sampler`. It also makes the clones, which it will free.
    pub(super) host: Host,
    /// The vtable with which the sampler was made, and which its clones get: a host may have
    /// replaced it.
    iface: AtomicPtr<llama_sampler_i>,
    pub(super) name: Name,
    pub(super) shared: Option<Arc<dyn Any + Send + Sync>>,
    /// The sampler. `None` after a filter or selector has panicked while changing it, since its
    /// state may then be inconsistent, and in a clone to which it could not be copied.
    pub(super) state: Exclusive<Option<S>>,
    /// See [`Vtable::note_of`](super::Vtable::note_of).
    pub(super) note: AtomicU64,
    /// See [`Vtable::sequence_of`](super::Vtable::sequence_of).
    pub(super) sequence: trace::Sequence,
}

/// The name of a sampler, which changes if the state of an enabled sampler is copied to a disabled
/// one, or the reverse.
pub(super) struct Name(AtomicPtr<c_char>);

impl Name {
    fn new(name: &'static CStr) -> Self {
        Self(AtomicPtr::new(name.as_ptr().cast_mut()))
    }

    pub(super) fn get(&self) -> &'static CStr {
        // SAFETY: only pointers to static strings are stored.
        unsafe { CStr::from_ptr(self.0.load(Ordering::Relaxed)) }
    }

    fn set(&self, name: &'static CStr) {
        self.0.store(name.as_ptr().cast_mut(), Ordering::Relaxed);
    }
}

/// The call to which an error message refers.
pub(super) struct Call<'a> {
    sampler: &'a Name,
    function: &'a str,
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}",
            self.sampler.get().to_string_lossy(),
            self.function
        )
    }
}

/// The time that a call waits for another thread that uses the sampler. It is longer than any call
/// takes. No sampler runs foreign code while it is locked, so a thread never waits for itself,
/// unless it has jumped out of a call. A forked child may wait for a thread that does not exist in
/// it.
pub(super) const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });

impl<S: Sampler> Object<S> {
    pub(super) fn new(host: Host, name: &'static CStr, sampler: Option<S>) -> Self {
        trace::from_environment();
        Self {
            host,
            iface: AtomicPtr::new(null_mut()),
            name: Name::new(name),
            shared: sampler.as_ref().and_then(Sampler::shared),
            state: Exclusive::new(sampler),
            note: AtomicU64::new(0),
            sequence: trace::Sequence::default(),
        }
    }

    pub(super) fn into_shell(self, iface: *mut llama_sampler_i) -> *mut llama_sampler {
        let sampler_init = self.host.sampler_init;
        self.iface.store(iface, Ordering::Relaxed);
        let ctx = Box::into_raw(Box::new(self));
        // SAFETY: `iface` is one of this library's statics, and `ctx` has the type that belongs to
        // it; the host keeps both unchanged.
        let smpl = unsafe { sampler_init(iface, ctx.cast()) };
        if smpl.is_null() {
            // SAFETY: the host has refused the object, so this is the only pointer to it.
            drop(unsafe { Box::from_raw(ctx) });
            log::error(
                LLAMA_SIEVE_ERROR_NO_HOST,
                "the host's llama_sampler_init returned NULL",
            );
        }
        smpl
    }

    /// Returns the vtable that clones get.
    pub(super) fn iface(&self) -> *mut llama_sampler_i {
        self.iface.load(Ordering::Relaxed)
    }

    pub(super) fn call<'a>(&'a self, function: &'a str) -> Call<'a> {
        Call {
            sampler: &self.name,
            function,
        }
    }

    #[inline]
    pub(super) fn enter(&self, function: &str) -> Option<Taken<'_, Option<S>>> {
        let state = self.state.take_within(PATIENCE);
        if state.is_none() {
            self.say_in_use(function);
        }
        state
    }

    #[cold]
    pub(super) fn say_in_use(&self, function: &str) {
        self.say(
            function,
            "the sampler is in use by another thread; give each thread its own (llama_sampler_clone)",
        );
    }

    /// Sets the last error. This function is out of line, since on a small array every instruction
    /// before the first candidate matters.
    #[cold]
    #[inline(never)]
    pub(super) fn say(&self, function: &str, what: &str) {
        last_error::set(
            LLAMA_SIEVE_ERROR_BUSY,
            &format!("{}: {what}", self.call(function)),
        );
    }

    /// Returns the result of `body` on the sampler, which runs inside the guard. `None`, with the
    /// reason as last error, if the sampler could not be used.
    #[inline]
    pub(super) fn run<T>(&self, function: &str, body: impl FnOnce(&mut S) -> T) -> Option<T> {
        let mut state = self.enter(function)?;
        let Some(sampler) = state.as_mut() else {
            self.say_out_of_use(function);
            return None;
        };
        let done = guard(self.call(function), || None, || Some(body(sampler)));
        // A constraint stays, since it is still queried for the candidates that it allows.
        if done.is_none() && S::KIND != Kind::Constraint {
            guard(self.call("drop"), || (), || *state = None);
        }
        done
    }

    /// Returns the result of `body`, which only reads the sampler. It runs as in
    /// [`run`](Self::run), but a panic does not disable the sampler.
    pub(super) fn look<T>(&self, function: &str, body: impl FnOnce(&S) -> T) -> Option<T> {
        let state = self.enter(function)?;
        let Some(sampler) = state.as_ref() else {
            self.say_out_of_use(function);
            return None;
        };
        guard(self.call(function), || None, || Some(body(sampler)))
    }

    /// Returns the result of `copy` on the sampler; `None`, with the reason as last error, if the
    /// sampler is disabled by an error, is in use, or cannot be copied.
    pub(super) fn copied(&self, copy: impl FnOnce(&S) -> S) -> Option<S> {
        self.look("clone", copy)
    }

    pub(super) fn say_out_of_use(&self, function: &str) {
        self.say(
            function,
            "the sampler failed earlier and is out of use; make a new one",
        );
    }
}

impl<S: Sampler> Object<S> {
    /// Copies the state and the name of `from`, which must not be this object. If `from` is
    /// disabled by an error, this object also becomes so.
    pub(super) fn copy_from(&self, from: &Self) {
        // The locks are taken in the order of the objects' addresses, since another thread may copy
        // in the other direction.
        let (first, second) = match ptr::from_ref(self) < ptr::from_ref(from) {
            true => (self, from),
            false => (from, self),
        };
        let Some(first_state) = first.enter("copy_state") else {
            return;
        };
        let Some(second_state) = second.enter("copy_state") else {
            return;
        };
        let (mut target, source) = match ptr::eq(first, self) {
            true => (first_state, second_state),
            false => (second_state, first_state),
        };
        self.name.set(from.name.get());
        let copy = || {
            match (&*source, target.as_mut()) {
                // The target is changed in place, since other threads may share data with it.
                (Some(source), Some(target)) => target.copy_state(source),
                (source, _) => target.clone_from(source),
            }
            true
        };
        if !guard(self.call("copy_state"), || false, copy) && S::KIND != Kind::Constraint {
            guard(self.call("drop"), || (), || *target = None);
        }
    }
}

/// Returns the object of a sampler; `None`, with the reason as last error, if `smpl` is NULL or
/// misaligned, or was freed.
///
/// # Safety
/// `smpl` is NULL or a live sampler with the vtable of `S`.
#[inline]
pub(super) unsafe fn object<'a, S>(smpl: *const llama_sampler) -> Option<&'a Object<S>> {
    if smpl.is_null() || !smpl.is_aligned() {
        last_error::set(LLAMA_SIEVE_ERROR_NULL, "the sampler is NULL or not aligned");
        return None;
    }
    // SAFETY: not NULL, and the caller guarantees that it is alive.
    let shell = unsafe { &*smpl };
    // SAFETY: the `ctx` of such a sampler points to this library's object, or is NULL after a free.
    // The object is shared behind its lock.
    let object = unsafe { shell.ctx.cast::<Object<S>>().as_ref() };
    if object.is_none() {
        last_error::set(LLAMA_SIEVE_ERROR_NULL, "the sampler was freed");
    }
    object
}
