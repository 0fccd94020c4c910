//! Makes a `llama_sampler` for a host from a [`Sampler`].
//!
//! A vtable is a named `static`, filled by the generic [`vtable`]. Its address identifies the kind
//! of a sampler (`llama_sampler_copy` compares it). The host owns the `struct llama_sampler`. This
//! library owns only the boxed `Object` to which its `ctx` points.
//!
//! An entry's own code runs inside the guard. Entries that use the sampler's state take its lock,
//! and a second thread waits for the first one, since threads may share a built-in for functions
//! that only read it. If it has waited longer than any call takes, it gets an error, and the call
//! has the result of a failure. (`free` does not wait.) The cost per call is one uncontended atomic
//! exchange. Error messages and waiting are out of line, so that the rest is one function: on 40
//! candidates, calls between its parts took as long as dividing the logits.

mod array;
mod entries;
mod object;
// Not under Miri, which cannot call the host. `ffi::tests` tests every entry without a host.
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

/// A vtable, followed by zeros. A host whose `llama_sampler_i` has more members reads them as NULL.
#[repr(C)]
pub struct Vtable {
    iface: llama_sampler_i,
    spare: [usize; 12],
    /// Returns the seed of a sampler with this vtable. Like the fields after it, it is not a member
    /// of the host's vtable.
    seed: unsafe fn(*const llama_sampler) -> Option<u32>,
    /// Returns the recipe of the built-in that can replace the sampler.
    recipe: unsafe fn(*const llama_sampler) -> Option<Recipe>,
    /// Applies the sampler to a pool.
    narrow: unsafe fn(*mut llama_sampler, &mut Pool<'_>),
    /// Returns a clone with the whole state.
    twin: unsafe fn(*const llama_sampler) -> *mut llama_sampler,
    /// Returns a word that is stored with the sampler, for
    /// [`in_front`](crate::ffi::chain::in_front).
    note: unsafe fn(*const llama_sampler) -> Option<NonNull<AtomicU64>>,
    /// Returns the number that a trace gives to a chain whose last member is the sampler.
    sequence: unsafe fn(*const llama_sampler) -> Option<u64>,
    /// Reports the numbers that a trace requests.
    tell: unsafe fn(*const llama_sampler, About, Tell<'_>),
    /// Returns a description of what a constraint lets through next.
    expected: unsafe fn(*const llama_sampler) -> Option<Expected>,
    /// Returns a twin without a `llama_sampler`.
    member: unsafe fn(*const llama_sampler) -> Option<Box<dyn Member>>,
}

impl Vtable {
    /// Replaces the entry `accept` with a function that may let an exception of the host pass
    /// through.
    pub const fn with_accept(
        mut self,
        accept: unsafe extern "C-unwind" fn(*mut llama_sampler, Token),
    ) -> Self {
        self.iface.accept = Some(accept);
        self
    }

    /// Returns the result of `body` on a sampler with this vtable, which contains an `S`. `body`
    /// runs as an entry of the vtable does. `None`, with the reason as last error, if the sampler
    /// could not be used.
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

    /// Returns the result of `body`, which only reads the sampler. It runs as in
    /// [`run`](Self::run), but a panic does not disable the sampler.
    ///
    /// # Safety
    /// The requirements of [`run`](Self::run) apply.
    pub unsafe fn look<S: Sampler, T>(
        &'static self,
        smpl: *const llama_sampler,
        function: &str,
        body: impl FnOnce(&S) -> T,
    ) -> Option<T> {
        // SAFETY: the caller guarantees it.
        unsafe { object::<S>(smpl) }?.look(function, body)
    }

    /// Returns the vtable as the host's `llama_sampler_init` requires it. That function's
    /// declaration lacks the `const`, but no host writes to the vtable.
    fn as_iface(&'static self) -> *mut llama_sampler_i {
        (&raw const self.iface).cast_mut()
    }

    /// Returns true if `smpl` has this vtable.
    ///
    /// # Safety
    /// `smpl` is a live sampler of any kind.
    pub unsafe fn is_of(&'static self, smpl: *const llama_sampler) -> bool {
        // SAFETY: the caller guarantees it.
        unsafe { (*smpl).iface == self.as_iface() }
    }

    /// Returns the data that a sampler with this vtable, which contains an `S`, shares with other
    /// threads.
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

    /// Returns a clone that continues as this sampler would. If the sampler cannot be cloned, the
    /// result is NULL for a constraint, and otherwise a disabled sampler.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn twin_of(&'static self, smpl: *const llama_sampler) -> *mut llama_sampler {
        // SAFETY: the caller guarantees it.
        unsafe { (self.twin)(smpl) }
    }

    /// Returns a clone that is not a `llama_sampler` of the host; `None`, with the reason as last
    /// error, if the sampler cannot be cloned.
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

    /// Applies the sampler to a pool. The result is that of `apply` on an array, failures included.
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

    /// Reports the numbers that a trace requests.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn tell(&'static self, smpl: *const llama_sampler, about: About, to: Tell<'_>) {
        // SAFETY: the caller guarantees it.
        unsafe { (self.tell)(smpl, about, to) }
    }

    /// Returns a description of the text that a constraint with this vtable allows next, if it has
    /// one.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn expected_of(&'static self, smpl: *const llama_sampler) -> Option<Expected> {
        // SAFETY: the caller guarantees it.
        unsafe { (self.expected)(smpl) }
    }

    /// Returns a word that is stored with the sampler, and that this library never reads.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable, which lives on during `'a`.
    pub unsafe fn note_of<'a>(&'static self, smpl: *const llama_sampler) -> Option<&'a AtomicU64> {
        // SAFETY: the caller guarantees the sampler, of which the word is a part.
        unsafe { Some((self.note)(smpl)?.as_ref()) }
    }
}

/// Returns the vtable of `S`. Entries that `S` does not have are NULL.
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

/// Returns a `llama_sampler` of the host that contains `sampler`; NULL, with an error, if there is
/// no host or if it makes none.
pub fn into_host<S: Sampler>(vtable: &'static Vtable, sampler: S) -> *mut llama_sampler {
    match Host::get() {
        Ok(host) => Object::new(host, sampler.name(), Some(sampler)).into_shell(vtable.as_iface()),
        Err(text) => {
            log::error(LLAMA_SIEVE_ERROR_NO_HOST, &text);
            null_mut()
        }
    }
}
