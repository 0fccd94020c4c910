//! The llama.cpp of the process: where it is found, and what we need of it.
//!
//! Looked for when a sampler is first made, in this order, until one place has it:
//! 1. the handle that `llama_sieve_bind_host` was given;
//! 2. the linker: weak references, filled when llama.cpp is linked into the same program or loaded
//!    before us;
//! 3. the process's global symbols (a program linked with libllama.so, or LD_PRELOAD);
//! 4. every loaded library, also one that was opened with RTLD_LOCAL (Python, Node, Bun).
//!
//! What was found is kept, and its library stays loaded. What was not found is looked for again at
//! the next call.
//!
//! All other functions are then taken from the library that has `llama_sampler_init`, not from the
//! process: another library may export the same names to stand in for them, as our own preload
//! library does.

pub mod build;
pub mod built_ins;
mod linker;
pub mod llama_h;
pub(super) mod per_host;
pub mod vocabulary;

use std::ffi::{CStr, c_void};

use parking_lot::RwLock;

use crate::algorithms::host_order;
pub(crate) use crate::ffi::host::linker::Address;
use crate::ffi::host::linker::{
    global, library_of, linked, linked_built_in, loaded_libraries, open_loaded, symbol_of,
};
use crate::ffi::host::llama_h::SamplerInit;
#[cfg(test)]
use crate::ffi::tests::mock_host;
use crate::log;

/// What makes a library a host.
pub(super) const SAMPLER_INIT: &CStr = c"llama_sampler_init";

/// A constructor that every program with that C++ library can find.
const LOCALE_OF_LIBSTDCXX: &CStr = c"_ZNSt6localeC1Ev";
/// The same of libc++.
const LOCALE_OF_LIBCXX: &CStr = c"_ZNSt3__16localeC1Ev";

/// A llama.cpp.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Makes the shell of a sampler.
    pub sampler_init: SamplerInit,
    /// Handle of the shared library; `None` if llama.cpp is part of the program itself.
    library: Option<Address>,
}

// SAFETY: functions and handles of the dynamic linker belong to no thread.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

/// The host of the process, once it is known.
static BOUND: RwLock<Option<Host>> = RwLock::new(None);

impl Host {
    /// The host of this process, or why there is none.
    pub fn get() -> Result<Self, String> {
        #[cfg(test)]
        if let Some(sampler_init) = mock_host::sampler_init() {
            return Ok(Self {
                sampler_init,
                library: None,
            });
        }
        if let Some(host) = *BOUND.read() {
            return Ok(host);
        }
        // Without the lock: the dynamic linker may run foreign code. Two threads that come here at
        // once find the same.
        let host = find().ok_or_else(|| {
            "no llama.cpp in this process: load libllama (build b4662 or later, which exports llama_sampler_init) first, \
             or pass its dlopen handle to llama_sieve_bind_host"
                .to_owned()
        })?;
        let host = *BOUND.write().get_or_insert(host);
        host.tell_its_sorts();
        Ok(host)
    }

    /// Takes the host from a library handle of `dlopen`.
    ///
    /// # Safety
    /// `handle` is a live handle that `dlopen` gave, and stays open.
    pub unsafe fn bind(handle: Address) -> Result<(), String> {
        // SAFETY: the caller guarantees the handle.
        let symbol = unsafe { symbol_of(handle.as_ptr(), SAMPLER_INIT) };
        let symbol = symbol.ok_or(
            "the library exports no llama_sampler_init (it is not libllama, or older than b4662)",
        )?;
        let host = Self::new(symbol, Some(handle));
        if !BOUND.read().is_some_and(|known| known.is(&host)) {
            *BOUND.write() = Some(host);
        }
        host.tell_its_sorts();
        Ok(())
    }

    /// Tells the samplers whether equal logits end where libstdc++'s sorts leave them.
    ///
    /// A host that is built with libc++ (Android, macOS) brings that library along, and its symbols
    /// have a namespace of their own. One into which libc++ is linked statically cannot be told.
    fn tell_its_sorts(&self) {
        let exports = |name: &CStr| match self.library {
            // SAFETY: the handle stays open as long as the host.
            Some(library) => unsafe { symbol_of(library.as_ptr(), name) }.is_some(),
            None => global(name).is_some(),
        };
        let stable = exports(LOCALE_OF_LIBCXX) && !exports(LOCALE_OF_LIBSTDCXX);
        if stable {
            log::warn(
                "the host's C++ library is libc++: tied candidates keep input order, which may not \
                 be that of the built-in samplers",
            );
        }
        host_order::set_stable(stable);
    }

    /// Whether both are the same llama.cpp.
    pub fn is(&self, other: &Self) -> bool {
        self.library == other.library && self.sampler_init as usize == other.sampler_init as usize
    }

    /// The host's function `name`, or an error that names it.
    pub fn function(&self, name: &CStr) -> Result<Address, String> {
        #[cfg(test)]
        if let Some(found) = mock_host::function(name) {
            return found.ok_or_else(|| Self::lacks(name));
        }
        let found = match self.library {
            // SAFETY: the handle stays open as long as the host.
            Some(library) => unsafe { symbol_of(library.as_ptr(), name) },
            None => linked(name)
                .or_else(|| linked_built_in(name))
                .or_else(|| global(name)),
        };
        found.ok_or_else(|| Self::lacks(name))
    }

    /// Whether it is part of the program itself, no shared library.
    pub(super) fn is_in_the_program(&self) -> bool {
        self.library.is_none()
    }

    fn lacks(name: &CStr) -> String {
        let name = name.to_string_lossy();
        format!("the llama.cpp of this process has no {name}: it is too old, or was stripped of it")
    }

    fn new(sampler_init: Address, library: Option<Address>) -> Self {
        // SAFETY: found under the name llama_sampler_init, whose signature is the same in every
        // llama.cpp that exports it.
        let sampler_init =
            unsafe { std::mem::transmute::<*mut c_void, SamplerInit>(sampler_init.as_ptr()) };
        Self {
            sampler_init,
            library,
        }
    }
}

/// The host's function of that name, as a function pointer of that type; returns the error if the
/// host lacks it.
///
/// The type must be the function's signature in every llama.cpp that has it.
macro_rules! host_function {
    ($host:expr, $name:literal, $signature:ty) => {{
        let address: std::ptr::NonNull<std::ffi::c_void> = $host.function($name)?;
        // SAFETY: the host's function of that name, whose signature does not change.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, $signature>(address.as_ptr()) }
    }};
}
pub(crate) use host_function;

fn find() -> Option<Host> {
    if let Some(sampler_init) = linked(SAMPLER_INIT).or_else(|| global(SAMPLER_INIT)) {
        return Some(Host::new(sampler_init, library_of(sampler_init)));
    }
    loaded()
}

/// The first loaded library that has a host, in load order.
fn loaded() -> Option<Host> {
    loaded_libraries().iter().find_map(|path| {
        let library = open_loaded(path)?;
        // SAFETY: the handle was just opened.
        let symbol = unsafe { symbol_of(library.as_ptr(), SAMPLER_INIT) };
        let Some(symbol) = symbol else {
            // SAFETY: closes only the reference taken above.
            unsafe { libc::dlclose(library.as_ptr()) };
            return None;
        };
        // The handle stays open: the host must not be unloaded under our samplers.
        Some(Host::new(symbol, library_of(symbol).or(Some(library))))
    })
}
