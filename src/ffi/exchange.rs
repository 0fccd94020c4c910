//! Copying between ours and built-ins that stand in their place (see
//! [`built_ins`](crate::ffi::host::built_ins)).
//!
//! The host's functions are called outside the guard: what they throw passes through.

use std::ptr;

use crate::ffi::guard::guard;
use crate::ffi::host::built_ins::Recipe;
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::samplers::REPLACEABLE;
use crate::ffi::vtable::Vtable;

/// How the built-in is made that does what `smpl` does; `None` if `smpl` is none of ours.
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

/// As `llama_sampler_copy`, which is `copy`; but where one of the two has given way to a built-in
/// and the other has not, the built-in's state is copied.
///
/// # Safety
/// `src` and `dst` are NULL or live samplers of the bound host, and `copy` is its function.
pub unsafe fn copy_between(
    src: *const llama_sampler,
    dst: *mut llama_sampler,
    copy: unsafe extern "C-unwind" fn(*const llama_sampler, *mut llama_sampler),
) {
    // SAFETY: the caller guarantees the samplers.
    let differ = || unsafe { (*src).iface != (*dst).iface };
    if src.is_null() || dst.is_null() || !differ() {
        // SAFETY: as above.
        return unsafe { copy(src, dst) };
    }
    // SAFETY: as above.
    let of = |smpl| guard("copy", || None, || unsafe { recipe_of(smpl) });
    if let Some(recipe) = of(dst) {
        // SAFETY: `dst` told the recipe.
        unsafe { take_kind_of(src, dst, &recipe) };
        // SAFETY: as above.
        return unsafe { copy(src, dst) };
    }
    let Some(recipe) = of(src) else {
        // SAFETY: as above.
        return unsafe { copy(src, dst) };
    };
    // SAFETY: `src`, which told the recipe, is only read; what is made here is freed here.
    unsafe {
        let made = recipe.make();
        copy(if made.is_null() { src } else { made }, dst);
        if !made.is_null() {
            recipe.free(made);
        }
    }
}

/// Puts the built-in in the place of `dst`, if `src` is one of that kind.
///
/// # Safety
/// `src` and `dst` are live samplers of one host; `dst` is ours, and told the recipe.
unsafe fn take_kind_of(src: *const llama_sampler, dst: *mut llama_sampler, recipe: &Recipe) {
    // SAFETY: the caller guarantees it; the shell that is freed is not known to anybody.
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
