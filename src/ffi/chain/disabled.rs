//! The host's disabled samplers.
//!
//! For a value that disables a sampler (a top k of 0, a typical p of 1, penalties without effect)
//! llama.cpp's constructors return one that does nothing. All of these have the same vtable.
//! Members of a chain with that vtable are skipped, so that they do not require an array of the
//! whole vocabulary. Older builds have no such vtable.
//!
//! The vtable is determined by making two disabled samplers of different kinds. It is used only if
//! both have the same vtable, if the names of both begin with a question mark, and if they leave
//! some candidates unchanged.

use std::ptr::{self, null};

use crate::ffi::host::built_ins::{Free, free_of};
use crate::ffi::host::llama_h::{
    Accept, Apply, llama_sampler, llama_sampler_i, llama_token_data_array,
};
use crate::ffi::host::{Host, host_function};
use crate::token::TokenData;

type InitTopK = unsafe extern "C-unwind" fn(i32) -> *mut llama_sampler;
type InitTypical = unsafe extern "C-unwind" fn(f32, usize) -> *mut llama_sampler;

/// The vtable of the host's disabled samplers; NULL if there is no such vtable.
#[derive(Clone, Copy)]
pub(super) struct Disabled(*const llama_sampler_i);

// SAFETY: a vtable of the host, of which only the address is compared.
unsafe impl Send for Disabled {}
// SAFETY: as above.
unsafe impl Sync for Disabled {}

impl Disabled {
    /// The value for a host that has no such vtable.
    pub(super) const NONE: Self = Self(null());

    /// Returns true if the host has such a vtable.
    pub(super) fn is_known(self) -> bool {
        !self.0.is_null()
    }

    /// Returns true if `iface` is this vtable.
    pub(super) fn has(self, iface: *const llama_sampler_i) -> bool {
        !self.0.is_null() && ptr::eq(iface, self.0)
    }
}

/// Everything needed to determine the vtable, so that this library cannot fail between calls of the
/// host.
pub(super) struct Trial {
    top_k: InitTopK,
    typical: InitTypical,
    free: Free,
    apply: Apply,
    accept: Accept,
}

impl Trial {
    pub(super) fn of(host: &Host, apply: Apply, accept: Accept) -> Result<Self, String> {
        Ok(Self {
            top_k: host_function!(host, c"llama_sampler_init_top_k", InitTopK),
            typical: host_function!(host, c"llama_sampler_init_typical", InitTypical),
            free: free_of(host)?,
            apply,
            accept,
        })
    }

    /// Returns the vtable of the host's disabled samplers, or [`Disabled::NONE`].
    ///
    /// # Safety
    /// The host is loaded.
    pub(super) unsafe fn run(&self) -> Disabled {
        // SAFETY: the host's own constructors and destructor, with the host's own samplers.
        unsafe {
            let made = [(self.top_k)(0), (self.typical)(1.0, 1)];
            let ifaces = made.map(|smpl| smpl.as_ref().map_or(ptr::null_mut(), |s| s.iface));
            let is_one = !ifaces[0].is_null() && ptr::eq(ifaces[0], ifaces[1]);
            let does_nothing = is_one && made.iter().all(|&smpl| self.does_nothing(smpl));
            for smpl in made.into_iter().filter(|smpl| !smpl.is_null()) {
                (self.free)(smpl);
            }
            match does_nothing {
                true => Disabled(ifaces[0]),
                false => Disabled::NONE,
            }
        }
    }

    /// Returns true if the sampler's name begins with a question mark, and the sampler leaves
    /// candidates unchanged.
    ///
    /// # Safety
    /// `smpl` is a live sampler of the host, with a vtable.
    unsafe fn does_nothing(&self, smpl: *mut llama_sampler) -> bool {
        const BEFORE: [TokenData; 3] = [candidate(2, 0.25), candidate(0, 1.5), candidate(1, 1.5)];
        let mut data = BEFORE;
        let mut array = llama_token_data_array {
            data: data.as_mut_ptr(),
            size: data.len(),
            selected: -1,
            sorted: 0,
        };
        // SAFETY: the caller guarantees the sampler, which has a vtable; the array is valid.
        let name = unsafe {
            (self.accept)(smpl, 1);
            (self.apply)(smpl, &raw mut array);
            (*(*smpl).iface).name.map(|name| name(smpl))
        };
        // SAFETY: a sampler's name is NULL or a C string.
        let first = name.and_then(|name| unsafe { name.cast::<u8>().as_ref() });
        let is_as_before = ptr::eq(array.data, data.as_ptr())
            && (array.size, array.selected, array.sorted) == (data.len(), -1, 0)
            && data.iter().zip(&BEFORE).all(|(now, before)| {
                (now.id, now.logit, now.p) == (before.id, before.logit, before.p)
            });
        first == Some(&b'?') && is_as_before
    }
}

const fn candidate(id: i32, logit: f32) -> TokenData {
    TokenData { id, logit, p: 0.5 }
}
