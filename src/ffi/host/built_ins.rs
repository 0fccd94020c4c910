//! Makes built-ins in the state of this library's samplers, and puts them in the place of these
//! samplers.
//!
//! A host that runs a chain in its graph (`llama_set_sampler`) calls functions of each member to
//! build the graph. The graph's types change between builds, so only the built-ins can build it.
//! When a host calls the first of these functions, `backend_init`, the built-in replaces this
//! library's sampler: the contents of the two `llama_sampler` structs are exchanged. The address of
//! the sampler stays valid, and leads to the built-in from then on.
//!
//! The host's functions are called outside the guard, so that their exceptions pass through.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::{self, null_mut};

use crate::built_in::BuiltIn;
use crate::ffi::host::build::{Build, named};
use crate::ffi::host::linker::{Name, host_name};
use crate::ffi::host::llama_h::{llama_logit_bias, llama_sampler, llama_token_data_array};
use crate::ffi::host::per_host::PerHost;
use crate::ffi::host::{Address, Host, host_function};
use crate::token::TokenData;

type BackendInit = unsafe extern "C-unwind" fn(*mut llama_sampler, *mut c_void, u32) -> u8;
pub(in crate::ffi) type Free = unsafe extern "C-unwind" fn(*mut llama_sampler);

/// True if a program's calls have shown that the host's penalties take `n_vocab` first, false if
/// they have shown that they do not.
static PENALTIES_TAKE_N_VOCAB: PerHost<bool> = PerHost::new();

/// Stores whether the host's penalties take `n_vocab` first, for built-ins that replace this
/// library's samplers.
#[cfg(all(any(target_os = "linux", windows), not(miri)))]
pub(in crate::ffi) fn penalties_take_n_vocab(host: Host, take: bool) {
    PENALTIES_TAKE_N_VOCAB.keep(host, take);
}

/// Everything needed to make a built-in, so that making it runs no code of this library that could
/// fail.
pub struct Recipe {
    constructor: Address,
    free: Free,
    arguments: BuiltIn,
    /// The biases of logit bias, in the host's type.
    biases: Vec<llama_logit_bias>,
    /// True if the arguments are those of penalties whose first one is `n_vocab`.
    takes_n_vocab: bool,
}

impl Recipe {
    /// Returns the recipe by which `host` makes `built_in`. The error says why that is not
    /// possible.
    pub fn new(host: &Host, built_in: BuiltIn) -> Result<Self, String> {
        let takes_n_vocab = match built_in {
            BuiltIn::Penalties { .. } => match PENALTIES_TAKE_N_VOCAB.known(host) {
                Some(true) => true,
                // No host whose penalties lack `n_vocab` runs them in its graph.
                Some(false) => return Err("the host's penalties do not run in its graph".into()),
                None => Build::of(host, named())?.penalties_take_n_vocab(),
            },
            _ => false,
        };
        let biases = match &built_in {
            BuiltIn::LogitBias { biases, .. } => biases
                .iter()
                .map(|&(token, bias)| llama_logit_bias { token, bias })
                .collect(),
            _ => Vec::new(),
        };
        Ok(Self {
            constructor: host.function(constructor(&built_in))?,
            free: free_of(host)?,
            arguments: built_in,
            biases,
            takes_n_vocab,
        })
    }

    /// Makes the built-in, and brings it to the state of this library's sampler. Returns NULL if
    /// that is not possible.
    ///
    /// # Safety
    /// The host of the recipe is loaded.
    pub(in crate::ffi) unsafe fn make(&self) -> *mut llama_sampler {
        /// Calls the host's constructor with these arguments.
        macro_rules! call {
            ($($argument:expr => $kind:ty),*) => {{
                type Constructor = unsafe extern "C-unwind" fn($($kind),*) -> *mut llama_sampler;
                // SAFETY: the host's constructor for these arguments; if its list has changed
                // between builds, the host's list is known.
                unsafe {
                    transmute::<*mut c_void, Constructor>(self.constructor.as_ptr())(
                        $($argument),*
                    )
                }
            }};
        }
        let made = match &self.arguments {
            BuiltIn::Greedy => call!(),
            BuiltIn::Dist { seed, .. } => call!(*seed => u32),
            BuiltIn::TopK { k } => call!(*k => i32),
            BuiltIn::TopP { p, min_keep } | BuiltIn::MinP { p, min_keep } => {
                call!(*p => f32, *min_keep => usize)
            }
            BuiltIn::Temp { t } => call!(*t => f32),
            BuiltIn::TempExt { t, delta, exponent } => {
                call!(*t => f32, *delta => f32, *exponent => f32)
            }
            &BuiltIn::Penalties {
                n_vocab,
                last_n,
                repeat,
                freq,
                present,
                ..
            } => match self.takes_n_vocab {
                true => call!(
                    n_vocab => i32, last_n => i32, repeat => f32, freq => f32, present => f32
                ),
                false => call!(last_n => i32, repeat => f32, freq => f32, present => f32),
            },
            BuiltIn::LogitBias { n_vocab, .. } => call!(
                *n_vocab => i32,
                self.biases.len() as i32 => i32,
                self.biases.as_ptr() => *const llama_logit_bias
            ),
        };
        // SAFETY: just made, if not NULL.
        if made.is_null() || unsafe { (*made).iface.is_null() } {
            return null_mut();
        }
        // SAFETY: just made, of these arguments.
        unsafe { self.replay(made) };
        made
    }

    /// Makes a new built-in accept the recipe's tokens, and draw as often as this library's
    /// sampler.
    ///
    /// # Safety
    /// `made` is a live sampler that was made from these arguments.
    unsafe fn replay(&self, made: *mut llama_sampler) {
        // SAFETY: the caller guarantees the sampler, which has a vtable.
        let entries = unsafe { &*(*made).iface };
        if let (BuiltIn::Penalties { accepted, .. }, Some(accept)) =
            (&self.arguments, entries.accept)
        {
            for &token in accepted {
                // SAFETY: as above.
                unsafe { accept(made, token) };
            }
        }
        let draws = match self.arguments {
            BuiltIn::Dist { draws, .. } => draws,
            _ => 0,
        };
        for _ in 0..draws {
            // Two candidates, since older builds draw nothing for one.
            let mut data = [0, 1].map(|id| TokenData::new(id, 0.0));
            let mut array = llama_token_data_array {
                data: data.as_mut_ptr(),
                size: data.len(),
                selected: -1,
                sorted: 0,
            };
            if let Some(apply) = entries.apply {
                // SAFETY: as above, and a valid array.
                unsafe { apply(made, &raw mut array) };
            }
        }
    }

    /// Frees a sampler of the host.
    ///
    /// # Safety
    /// `smpl` is a sampler of the host, not used again.
    pub(in crate::ffi) unsafe fn free(&self, smpl: *mut llama_sampler) {
        // SAFETY: the caller guarantees it.
        unsafe { (self.free)(smpl) };
    }
}

/// Returns the name of the host's constructor.
fn constructor(built_in: &BuiltIn) -> Name {
    match built_in {
        BuiltIn::Greedy => host_name!(c"llama_sampler_init_greedy"),
        BuiltIn::Dist { .. } => host_name!(c"llama_sampler_init_dist"),
        BuiltIn::TopK { .. } => host_name!(c"llama_sampler_init_top_k"),
        BuiltIn::TopP { .. } => host_name!(c"llama_sampler_init_top_p"),
        BuiltIn::MinP { .. } => host_name!(c"llama_sampler_init_min_p"),
        BuiltIn::Temp { .. } => host_name!(c"llama_sampler_init_temp"),
        BuiltIn::TempExt { .. } => host_name!(c"llama_sampler_init_temp_ext"),
        BuiltIn::Penalties { .. } => host_name!(c"llama_sampler_init_penalties"),
        BuiltIn::LogitBias { .. } => host_name!(c"llama_sampler_init_logit_bias"),
    }
}

/// Returns the host's `llama_sampler_free`.
pub(in crate::ffi) fn free_of(host: &Host) -> Result<Free, String> {
    Ok(host_function!(host, c"llama_sampler_free", Free))
}

/// Replaces `smpl` with the built-in and returns the built-in's hook for the host's graph. Returns
/// `None`, with `smpl` unchanged, if the built-in cannot be made or has no such hook.
///
/// # Safety
/// `smpl` is a live sampler of this library, from which the recipe was made.
pub(in crate::ffi) unsafe fn give_way(
    smpl: *mut llama_sampler,
    recipe: &Recipe,
) -> Option<BackendInit> {
    // SAFETY: the host that made `smpl` is loaded.
    let made = unsafe { recipe.make() };
    if made.is_null() {
        return None;
    }
    // SAFETY: the sampler was just made. A host that calls hooks has a vtable with entries for
    // them.
    let hook = unsafe { (*(*made).iface).backend_init };
    // SAFETY: two live samplers of one host; no other code has a pointer to the one that is freed.
    unsafe {
        if hook.is_some() {
            ptr::swap(smpl, made);
        }
        recipe.free(made);
    }
    hook
}
