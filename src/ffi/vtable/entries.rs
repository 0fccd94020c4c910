//! The functions that a vtable points to.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

use crate::errors::LLAMA_SIEVE_ERROR_BUSY;
use crate::ffi::guard::guard;
use crate::ffi::host::built_ins::{Recipe, give_way};
use crate::ffi::host::llama_h::{llama_sampler, llama_token_data_array};
use crate::log;
use crate::pool::Pool;
use crate::sampler::{About, Expected, Kind, Member, Sampler, Tell};
use crate::token::Token;

use super::array::*;
use super::object::*;
/// The name that is reported if there is no sampler.
pub(super) const NAMELESS: &CStr = c"llama-sieve";

// The entries of the vtable. Their common safety condition is the host's part of the interface:
// `smpl` is NULL or a live sampler with the vtable of `S`.

pub(super) unsafe extern "C" fn name<S: Sampler>(smpl: *const llama_sampler) -> *const c_char {
    guard(
        "name",
        || NAMELESS.as_ptr(),
        || {
            // SAFETY: the host calls entries only on samplers that have them.
            let object = unsafe { object::<S>(smpl) };
            object.map_or(NAMELESS, |object| object.name.get()).as_ptr()
        },
    )
}

pub(super) unsafe extern "C-unwind" fn accept<S: Sampler>(smpl: *mut llama_sampler, token: Token) {
    guard(
        "accept",
        || (),
        || {
            // SAFETY: the host calls entries only on samplers that have them.
            if let Some(object) = unsafe { object::<S>(smpl) } {
                object.run("accept", |sampler| sampler.accept(token));
            }
        },
    )
}

pub(super) unsafe extern "C" fn reset<S: Sampler>(smpl: *mut llama_sampler) {
    guard(
        "reset",
        || (),
        || {
            // SAFETY: the host calls entries only on samplers that have them.
            if let Some(object) = unsafe { object::<S>(smpl) } {
                object.run("reset", Sampler::reset);
            }
        },
    )
}

pub(super) unsafe extern "C" fn apply<S: Sampler>(
    smpl: *mut llama_sampler,
    cur_p: *mut llama_token_data_array,
) {
    guard(
        "apply",
        // SAFETY: the host passes NULL or a valid array that no other code uses during the call.
        || guard("apply", || (), || unsafe { give_up::<S>(smpl, cur_p) }),
        || {
            // SAFETY: the host calls entries only on samplers that have them.
            let object = unsafe { object::<S>(smpl) };
            // SAFETY: the host passes NULL or a valid array that no other code uses during the
            // call.
            let mut array = match unsafe { CandidateArray::new(cur_p) } {
                Ok(array) => array,
                Err(unfit) => {
                    return unfit.say(object.map_or(NAMELESS, |object| object.name.get()));
                }
            };
            let done = object.and_then(|object| {
                let mut candidates = array.candidates();
                object.run("apply", |sampler| {
                    sampler.apply(&mut candidates);
                    sampler.rest();
                })?;
                Some(Outcome::of(&candidates))
            });
            match (done, S::KIND) {
                (Some(outcome), kind) => array.keep(outcome, kind),
                (None, Kind::Filter) => {}
                (None, Kind::Selector) => array.select_argmax(),
                (None, Kind::Constraint) => array.salvage(object),
            }
        },
    )
}

/// Leaves the candidates in the state that this kind of sampler requires after a failure, when the
/// sampler has not run.
///
/// # Safety
/// `smpl` is NULL or a live sampler with the vtable of `S`. `cur_p` is NULL or a valid array that
/// no other code uses during the call.
pub(super) unsafe fn give_up<S: Sampler>(
    smpl: *mut llama_sampler,
    cur_p: *mut llama_token_data_array,
) {
    // SAFETY: the caller guarantees it.
    let Ok(mut array) = (unsafe { CandidateArray::new(cur_p) }) else {
        return;
    };
    match S::KIND {
        Kind::Filter => {}
        Kind::Selector => array.select_argmax(),
        // SAFETY: as above.
        Kind::Constraint => array.salvage::<S>(unsafe { object(smpl) }),
    }
}

pub(super) unsafe extern "C" fn clone<S: Sampler>(
    smpl: *const llama_sampler,
) -> *mut llama_sampler {
    guard(
        "clone",
        || {
            let without = |_: &Object<S>| None;
            // SAFETY: the host calls entries only on samplers that have them.
            guard("clone", null_mut, || unsafe { clone_with(smpl, without) })
        },
        || {
            // SAFETY: as above.
            unsafe { clone_with::<S>(smpl, |object| object.copied(S::clone)) }
        },
    )
}

/// Makes a second sampler from the result of `copy`.
///
/// If a filter or selector is disabled by an error, or cannot be copied, the result is a disabled
/// sampler, which passes all candidates through or takes the largest logit: with NULL, a chain
/// would crash. If a constraint cannot be copied, the result is NULL, since a disabled constraint
/// would allow nothing.
///
/// # Safety
/// `smpl` is NULL or a live sampler with the vtable of `S`.
pub(super) unsafe fn clone_with<S: Sampler>(
    smpl: *const llama_sampler,
    copy: impl FnOnce(&Object<S>) -> Option<S>,
) -> *mut llama_sampler {
    // SAFETY: the caller guarantees the sampler.
    let Some(object) = (unsafe { object::<S>(smpl) }) else {
        return null_mut();
    };
    let copy = copy(object);
    if copy.is_none() && S::KIND == Kind::Constraint {
        return null_mut();
    }
    Object::new(object.host, object.name.get(), copy).into_shell(object.iface())
}

/// Frees `ctx`; the `llama_sampler` itself belongs to the host.
pub(super) unsafe extern "C" fn free<S: Sampler>(smpl: *mut llama_sampler) {
    guard(
        "free",
        || (),
        || {
            // SAFETY: the host calls entries only on samplers that have them.
            let Some(object) = (unsafe { object::<S>(smpl) }) else {
                return;
            };
            // The state is never put back, so that no other call gets the sampler before it is
            // freed.
            let Some(taken) = object.state.take() else {
                log::error(
                    LLAMA_SIEVE_ERROR_BUSY,
                    "free: the sampler is in use by another thread; its memory is leaked, not pulled away",
                );
                return;
            };
            std::mem::forget(taken);
            // SAFETY: `object` came from `smpl`, which is therefore not NULL; the object has no
            // other user any more, and `ctx` is not used again.
            unsafe {
                let ctx = std::mem::replace(&mut (*smpl).ctx, null_mut::<c_void>());
                drop(Box::from_raw(ctx.cast::<Object<S>>()));
            }
        },
    )
}

pub(super) unsafe extern "C" fn copy_state<S: Sampler>(
    src: *const llama_sampler,
    dst: *mut llama_sampler,
) {
    guard(
        "copy_state",
        || (),
        || {
            // SAFETY: the host has compared the vtables, and calls entries only on samplers that
            // have them.
            let objects = unsafe { (object::<S>(src), object::<S>(dst)) };
            let (Some(from), Some(to)) = objects else {
                return;
            };
            if !std::ptr::eq(from, to) {
                to.copy_from(from);
            }
        },
    )
}

/// Returns the seed that the sampler reports, if it has one.
///
/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
pub(super) unsafe fn seed<S: Sampler>(smpl: *const llama_sampler) -> Option<u32> {
    // SAFETY: the caller guarantees it.
    let object = unsafe { object::<S>(smpl) }?;
    object.look("seed", S::seed).flatten()
}

/// Returns a clone with the whole state.
///
/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
pub(super) unsafe fn twin<S: Sampler>(smpl: *const llama_sampler) -> *mut llama_sampler {
    // SAFETY: the caller guarantees it.
    let copy = || unsafe { clone_with::<S>(smpl, |object| object.copied(S::twin)) };
    guard("twin", null_mut, copy)
}

/// Returns a clone without a `llama_sampler` of the host.
///
/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
pub(super) unsafe fn member<S: Sampler>(smpl: *const llama_sampler) -> Option<Box<dyn Member>> {
    // SAFETY: the caller guarantees it.
    let twin = unsafe { object::<S>(smpl) }?.copied(S::twin)?;
    Some(Box::new(twin))
}

/// Returns the word of the sampler for [`Vtable::note_of`](super::Vtable::note_of).
///
/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
pub(super) unsafe fn note<S: Sampler>(smpl: *const llama_sampler) -> Option<NonNull<AtomicU64>> {
    // SAFETY: the caller guarantees it.
    let object = unsafe { object::<S>(smpl) }?;
    Some(NonNull::from(&object.note))
}

/// Returns the number of the sampler for [`Vtable::sequence_of`](super::Vtable::sequence_of).
///
/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
pub(super) unsafe fn sequence<S: Sampler>(smpl: *const llama_sampler) -> Option<u64> {
    // SAFETY: the caller guarantees it.
    Some(unsafe { object::<S>(smpl) }?.sequence.number())
}

/// Reports the numbers that a trace requests.
///
/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
pub(super) unsafe fn tell<S: Sampler>(smpl: *const llama_sampler, about: About, to: Tell<'_>) {
    // SAFETY: the caller guarantees it.
    if let Some(object) = unsafe { object::<S>(smpl) } {
        object.look("trace", |sampler| sampler.tell(about, to));
    }
}

/// Returns a description of the text that a constraint allows next.
///
/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
pub(super) unsafe fn expected<S: Sampler>(smpl: *const llama_sampler) -> Option<Expected> {
    // SAFETY: the caller guarantees it.
    let object = unsafe { object::<S>(smpl) }?;
    object.look("trace", S::expected).flatten()
}

/// Returns the recipe of the built-in that is equivalent to the sampler.
///
/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
pub(super) unsafe fn recipe<S: Sampler>(smpl: *const llama_sampler) -> Option<Recipe> {
    // SAFETY: the caller guarantees it.
    let object = unsafe { object::<S>(smpl) }?;
    let built_in = object.look("backend_init", S::built_in).flatten()?;
    match Recipe::new(&object.host, built_in) {
        Ok(recipe) => Some(recipe),
        Err(text) => {
            object.say("backend_init", &text);
            None
        }
    }
}

/// Applies the sampler to a pool.
///
/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
pub(super) unsafe fn narrow<S: Sampler>(smpl: *mut llama_sampler, pool: &mut Pool<'_>) {
    let done = guard(
        "apply",
        || None,
        || {
            // SAFETY: the caller guarantees it.
            let object = unsafe { object::<S>(smpl) }?;
            object.run("apply", |sampler| {
                sampler.narrow(pool);
                sampler.rest();
            })
        },
    );
    if done.is_none() && S::KIND != Kind::Filter {
        // SAFETY: as above.
        guard("apply", || (), || unsafe { give_up_pool::<S>(smpl, pool) });
    }
}

/// Leaves the candidates in the state that a selector or constraint requires after a failure.
///
/// # Safety
/// The requirements of [`narrow`] apply.
unsafe fn give_up_pool<S: Sampler>(smpl: *mut llama_sampler, pool: &mut Pool<'_>) {
    if S::KIND == Kind::Selector {
        return pool.apply(|candidates| {
            let best = candidates.argmax();
            candidates.select(best);
        });
    }
    // SAFETY: the caller guarantees it.
    let object = unsafe { object::<S>(smpl) };
    let salvage = |sampler: &mut S| pool.apply(|candidates| sampler.salvage(candidates));
    let salvaged = object.and_then(|object| object.run("salvage", salvage));
    if salvaged.is_none() {
        let (data, _) = pool.array();
        for candidate in data {
            candidate.logit = f32::NEG_INFINITY;
        }
    }
}

/// Replaces the sampler with the built-in, and returns the result of the built-in's hook. Returns
/// false if the sampler cannot be replaced: the host then applies it after the samplers of its
/// graph. The host's exceptions pass through.
pub(super) unsafe extern "C-unwind" fn backend_init<S: Sampler>(
    smpl: *mut llama_sampler,
    buffers: *mut c_void,
    n_outputs: u32,
) -> u8 {
    // SAFETY: the host calls entries only on samplers that have them.
    let recipe = guard("backend_init", || None, || unsafe { recipe::<S>(smpl) });
    // SAFETY: as above; the recipe was made from this sampler.
    let hook = recipe.and_then(|recipe| unsafe { give_way(smpl, &recipe) });
    // SAFETY: the hook of the built-in that has replaced the sampler, with the arguments of the
    // host.
    hook.map_or(0, |hook| unsafe { hook(smpl, buffers, n_outputs) })
}

/// Adds nothing to the graph. The vtable has no other hook that the host could call.
pub(super) unsafe extern "C-unwind" fn backend_pass_over(
    _smpl: *mut llama_sampler,
    _buffers: *mut c_void,
    _n_outputs: u32,
) -> u8 {
    1
}
