//! Makes a `llama_sampler` for a host from a [`Sampler`].
//!
//! A vtable is a named `static`, filled by the generic [`vtable`]; its address is the sampler's
//! identity (`llama_sampler_copy` compares it). The host owns the `struct llama_sampler`; this
//! library owns only the boxed `Object` to which its `ctx` points.
//!
//! Every entry runs inside the guard, and takes a lock: a second thread waits for the first, since
//! threads may share a built-in for functions that only read it. After a time that no call takes,
//! it gets an error and the result for a failure instead. The cost per call is one uncontended
//! atomic exchange. Error messages and waiting are out of line, so that the rest is one function:
//! on 40 candidates the calls between its parts took as long as dividing the logits.

mod array;
mod entries;
mod object;
// Not under Miri, which cannot call the host; `ffi::tests` drives every entry without one.
#[cfg(all(test, not(miri)))]
mod tests;

use std::any::Any;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::built_in::InGraph;
use crate::errors::LLAMA_SIEVE_ERROR_NO_HOST;
use crate::ffi::host::Host;
use crate::ffi::host::built_ins::Recipe;
use crate::ffi::host::llama_h::{llama_sampler, llama_sampler_i};
use crate::log;
use crate::pool::Pool;
use crate::sampler::{About, Expected, Member, Sampler, Tell};
use crate::token::Token;

use entries::*;
use object::*;

/// A vtable, followed by room: a host whose `llama_sampler_i` has more members reads NULL there.
#[repr(C)]
pub struct Vtable {
    iface: llama_sampler_i,
    spare: [usize; 12],
    /// Returns the seed of a sampler with this vtable. Like the fields after it, it is not a member
    /// of the host's vtable.
    seed: unsafe fn(*const llama_sampler) -> Option<u32>,
    /// Returns the recipe of the built-in that can replace it.
    recipe: unsafe fn(*const llama_sampler) -> Option<Recipe>,
    /// Applies the sampler to a pool.
    narrow: unsafe fn(*mut llama_sampler, &mut Pool<'_>),
    /// Returns a clone with the whole state.
    twin: unsafe fn(*const llama_sampler) -> *mut llama_sampler,
    /// Returns a word that is stored with the sampler, for
    /// [`in_front`](crate::ffi::chain::in_front).
    note: unsafe fn(*const llama_sampler) -> Option<NonNull<AtomicU64>>,
    /// Returns the number of a chain in a trace, which is that of its last member.
    sequence: unsafe fn(*const llama_sampler) -> Option<u64>,
    /// Reports the numbers for a trace.
    tell: unsafe fn(*const llama_sampler, About, Tell<'_>),
    /// Returns a description of what a constraint lets through next.
    expected: unsafe fn(*const llama_sampler) -> Option<Expected>,
    /// Returns a twin without a `llama_sampler`.
    member: unsafe fn(*const llama_sampler) -> Option<Box<dyn Member>>,
}

impl Vtable {
    /// Replaces `accept` by a function that may let an exception of the host pass through.
    pub const fn with_accept(
        mut self,
        accept: unsafe extern "C-unwind" fn(*mut llama_sampler, Token),
    ) -> Self {
        self.iface.accept = Some(accept);
        self
    }

    /// Runs `body` on a sampler with this vtable, made of an `S`, as an entry of the vtable does.
    /// `None`, with the reason as last error, if that was not possible.
    ///
    /// # Safety
    /// `smpl` is NULL or a live sampler with this vtable, which is that of `S`.
    pub unsafe fn run<S: Sampler, T>(
        &'static self,
        smpl: *mut llama_sampler,
        function: &str,
        body: impl FnOnce(&mut S) -> T,
    ) -> Option<T> {
        // SAFETY: the caller guarantees it.
        unsafe { object::<S>(smpl) }?.run(function, body)
    }

    /// Runs `body`, which only reads, as [`run`](Self::run) does: a panic does not disable the
    /// sampler.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub unsafe fn look<S: Sampler, T>(
        &'static self,
        smpl: *const llama_sampler,
        function: &str,
        body: impl FnOnce(&S) -> T,
    ) -> Option<T> {
        // SAFETY: the caller guarantees it.
        unsafe { object::<S>(smpl) }?.look(function, body)
    }

    /// Returns the vtable as a host's `llama_sampler_init` takes it. Its signature lacks the const,
    /// but no host writes there.
    fn as_iface(&'static self) -> *mut llama_sampler_i {
        (&raw const self.iface).cast_mut()
    }

    /// True if `smpl` has this vtable.
    ///
    /// # Safety
    /// `smpl` is a live sampler of any kind.
    pub unsafe fn is_of(&'static self, smpl: *const llama_sampler) -> bool {
        // SAFETY: the caller guarantees it.
        unsafe { (*smpl).iface == self.as_iface() }
    }

    /// Returns the data that a sampler with this vtable, made of an `S`, shares.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable, which is that of `S`.
    pub unsafe fn shared_of<S: Sampler>(
        &'static self,
        smpl: *const llama_sampler,
    ) -> Option<Arc<dyn Any + Send + Sync>> {
        // SAFETY: the caller guarantees it.
        unsafe { object::<S>(smpl) }?.shared.clone()
    }

    /// Returns another sampler with this vtable, which continues as this one would; NULL if that is
    /// impossible.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn twin_of(&'static self, smpl: *const llama_sampler) -> *mut llama_sampler {
        // SAFETY: the caller guarantees it.
        unsafe { (self.twin)(smpl) }
    }

    /// Returns a clone without a `llama_sampler` of the host; `None`, with the reason as last
    /// error, if that is impossible.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub(in crate::ffi) unsafe fn member_of(
        &'static self,
        smpl: *const llama_sampler,
    ) -> Option<Box<dyn Member>> {
        // SAFETY: the caller guarantees it.
        unsafe { (self.member)(smpl) }
    }

    /// Returns the seed that a sampler with this vtable uses, if it reports one.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn seed_of(&'static self, smpl: *const llama_sampler) -> Option<u32> {
        // SAFETY: the caller guarantees it.
        unsafe { (self.seed)(smpl) }
    }

    /// Returns the recipe of the built-in equivalent to a sampler with this vtable.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn recipe_of(&'static self, smpl: *const llama_sampler) -> Option<Recipe> {
        // SAFETY: the caller guarantees it.
        unsafe { (self.recipe)(smpl) }
    }

    /// Applies the sampler to a pool, with the result of its `apply` on an array, failures
    /// included.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn narrow(&'static self, smpl: *mut llama_sampler, pool: &mut Pool<'_>) {
        // SAFETY: the caller guarantees it.
        unsafe { (self.narrow)(smpl, pool) }
    }

    /// Returns the number by which a trace identifies the chain of this sampler. No other sampler
    /// of the process has it, even after this one is freed.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn sequence_of(&'static self, smpl: *const llama_sampler) -> Option<u64> {
        // SAFETY: the caller guarantees it.
        unsafe { (self.sequence)(smpl) }
    }

    /// Reports the numbers for a trace.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn tell(&'static self, smpl: *const llama_sampler, about: About, to: Tell<'_>) {
        // SAFETY: the caller guarantees it.
        unsafe { (self.tell)(smpl, about, to) }
    }

    /// Returns a description of what a constraint with this vtable lets through next, if it can
    /// tell.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn expected_of(&'static self, smpl: *const llama_sampler) -> Option<Expected> {
        // SAFETY: the caller guarantees it.
        unsafe { (self.expected)(smpl) }
    }

    /// Returns a word that exists as long as the sampler, and that this library does not read.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable, which lives on during `'a`.
    pub unsafe fn note_of<'a>(&'static self, smpl: *const llama_sampler) -> Option<&'a AtomicU64> {
        // SAFETY: the caller guarantees it; the word is part of the sampler.
        unsafe { Some((self.note)(smpl)?.as_ref()) }
    }
}

/// Returns the vtable of `S`. Functions that `S` lacks are NULL.
pub const fn vtable<S: Sampler>() -> Vtable {
    Vtable {
        iface: llama_sampler_i {
            name: Some(name::<S>),
            accept: if S::ACCEPTS { Some(accept::<S>) } else { None },
            apply: Some(apply::<S>),
            reset: if S::RESETS { Some(reset::<S>) } else { None },
            clone: Some(clone::<S>),
            free: Some(free::<S>),
            backend_init: match S::IN_GRAPH {
                InGraph::Never => None,
                InGraph::AsBuiltIn => Some(backend_init::<S>),
                InGraph::PassedOver => Some(backend_pass_over),
            },
            backend_accept: None,
            backend_apply: None,
            backend_set_input: None,
            backend_reset: None,
            copy_state: Some(copy_state::<S>),
        },
        spare: [0; 12],
        seed: seed::<S>,
        recipe: recipe::<S>,
        narrow: narrow::<S>,
        twin: twin::<S>,
        note: note::<S>,
        sequence: sequence::<S>,
        tell: tell::<S>,
        expected: expected::<S>,
        member: member::<S>,
    }
}

/// Returns a `llama_sampler` of the host with `sampler` in it; NULL, with an error, without a host.
pub fn into_host<S: Sampler>(vtable: &'static Vtable, sampler: S) -> *mut llama_sampler {
    match Host::get() {
        Ok(host) => Object::new(host, sampler.name(), Some(sampler)).into_shell(vtable.as_iface()),
        Err(text) => {
            log::error(LLAMA_SIEVE_ERROR_NO_HOST, &text);
            null_mut()
        }
    }
}
