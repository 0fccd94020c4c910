//! Copies between this library's samplers and built-ins. The built-ins replace this library's
//! samplers in a graph (see [`built_ins`](crate::ffi::host::built_ins)), or were made by the host's
//! own constructors, for example because this library refused the arguments.
//!
//! The host's functions are called outside the guard, so that their exceptions pass through.

use std::ffi::CStr;
use std::ptr;

use crate::ffi::chain::host::Chains;
use crate::ffi::guard::guard;
use crate::ffi::host::Host;
use crate::ffi::host::built_ins::{Recipe, free_of};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::samplers::REPLACEABLE;
use crate::ffi::vtable::Vtable;

/// Returns the recipe of the built-in equivalent to `smpl`; `None` if `smpl` is not a sampler of
/// this library, if no built-in replaces its kind, or if the built-in cannot be made.
///
/// # Safety
/// `smpl` is a live sampler of any kind.
unsafe fn recipe_of(smpl: *const llama_sampler) -> Option<Recipe> {
    // SAFETY: the caller guarantees it.
    let is_of = |vtable: &&&'static _| unsafe { Vtable::is_of(vtable, smpl) };
    let vtable = REPLACEABLE.iter().find(is_of)?;
    // SAFETY: the vtable was compared.
    unsafe { vtable.recipe_of(smpl) }
}

/// Copies the state of `src` to `dst` like `llama_sampler_copy`.
///
/// If one of the two is this library's and the other is the built-in of the same kind, the former
/// is replaced with a built-in made from it: `src` for this call only, `dst` for good. Kinds that a
/// built-in never replaces are cloned instead. Otherwise calls `copy`, the host's
/// `llama_sampler_copy`, which aborts if the vtables differ.
///
/// # Safety
/// `src` and `dst` are NULL or live samplers of the bound host, and `copy` is its
/// `llama_sampler_copy`.
pub unsafe fn copy_between(
    src: *const llama_sampler,
    dst: *mut llama_sampler,
    copy: unsafe extern "C-unwind" fn(*const llama_sampler, *mut llama_sampler),
) {
    // SAFETY: the caller guarantees the samplers.
    let differ = || unsafe { (*src).iface != (*dst).iface };
    if src.is_null() || dst.is_null() || !differ() {
        if cfg!(windows) && !src.is_null() && !dst.is_null() {
            // SAFETY: as above.
            unsafe { liken_members(src, dst) };
        }
        // SAFETY: as above.
        return unsafe { copy(src, dst) };
    }
    // SAFETY: as above.
    let of = |smpl| guard("copy", || None, || unsafe { recipe_of(smpl) });
    if let Some(recipe) = of(dst) {
        // SAFETY: `dst` is the sampler from which the recipe was read.
        unsafe { take_kind_of(src, dst, &recipe) };
        // SAFETY: as above.
        return unsafe { copy(src, dst) };
    }
    let Some(recipe) = of(src) else {
        // SAFETY: as above.
        unsafe {
            if !become_clone_of(src, dst) {
                copy(src, dst);
            }
        }
        return;
    };
    // SAFETY: `src`, from which the recipe was read, is only read; the sampler that is made here is
    // freed here.
    unsafe {
        let made = recipe.make();
        copy(if made.is_null() { src } else { made }, dst);
        if !made.is_null() {
            recipe.free(made);
        }
    }
}

/// Replaces `dst` with a built-in made from the recipe, if `src` is a built-in of that kind.
///
/// # Safety
/// `src` and `dst` are live samplers of one host; `dst` is this library's, and the recipe was read
/// from it.
unsafe fn take_kind_of(src: *const llama_sampler, dst: *mut llama_sampler, recipe: &Recipe) {
    // SAFETY: the caller guarantees the samplers and the recipe; no other code has a pointer to the
    // sampler that is freed.
    unsafe {
        let made = recipe.make();
        if made.is_null() {
            return;
        }
        if (*made).iface == (*src).iface {
            ptr::swap(dst, made);
        }
        recipe.free(made);
    }
}

/// Prepares two chains for a host that then copies the members itself, by calls that cannot be
/// intercepted. Each member of `dst` whose vtable differs from that of its counterpart in `src` is
/// replaced with a clone of the counterpart, if the two have the same name. Does nothing unless
/// both samplers are chains.
///
/// # Safety
/// `src` and `dst` are live samplers of the bound host.
unsafe fn liken_members(src: *const llama_sampler, dst: *mut llama_sampler) {
    let Ok(chains) = Chains::of_host("copy") else {
        return;
    };
    // SAFETY: the caller guarantees the samplers, and members live as long as their chain.
    unsafe {
        let (Some(from), Some(to)) = (chains.members(src), chains.members(dst)) else {
            return;
        };
        for (from, to) in from.zip(to) {
            match (*from).iface == (*to).iface {
                true => liken_members(from, to),
                false => {
                    become_clone_of(from, to);
                }
            }
        }
    }
}

/// Makes `dst` a clone of `src`. Returns false, with `dst` unchanged, if the two have different
/// names, or if `src` cannot be cloned.
///
/// # Safety
/// `src` and `dst` are live samplers of the bound host.
unsafe fn become_clone_of(src: *const llama_sampler, dst: *mut llama_sampler) -> bool {
    let free = guard("copy", || None, || free_of(&Host::get().ok()?).ok());
    // SAFETY: the caller guarantees the samplers; names are strings. No other code has a pointer to
    // the sampler that is freed.
    unsafe {
        let (from, to) = (&*(*src).iface, &*(*dst).iface);
        let (Some(free), Some(clone)) = (free, from.clone) else {
            return false;
        };
        let (Some(from), Some(to)) = (from.name, to.name) else {
            return false;
        };
        let (from, to) = (from(src), to(dst));
        if from.is_null() || to.is_null() || CStr::from_ptr(from) != CStr::from_ptr(to) {
            return false;
        }
        let made = clone(src);
        if made.is_null() {
            return false;
        }
        ptr::swap(dst, made);
        free(made);
        true
    }
}
