//! The llama.cpp of the process: where it is found, and what we need of it.
//!
//! Looked for when a sampler is first made, in this order, until one place has it:
//! 1. the handle that `llama_sieve_bind_host` was given;
//! 2. the linker: a weak reference, filled when llama.cpp is linked into the same program or loaded before us;
//! 3. the process's global symbols (a program linked with libllama.so, or LD_PRELOAD);
//! 4. every loaded library, also one that was opened with RTLD_LOCAL (Python, Node, Bun).
//!
//! What was found is kept, and its library stays loaded. What was not found is looked for again at the next call.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::ffi::llama_h::SamplerInit;

const SAMPLER_INIT: &CStr = c"llama_sampler_init";

/// What the library needs of a host.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Makes the shell of a sampler.
    pub sampler_init: SamplerInit,
}

/// The host's `llama_sampler_init`, null while no host is known.
static BOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

impl Host {
    /// The host of this process, or why there is none.
    pub fn get() -> Result<Self, String> {
        let bound = BOUND.load(Ordering::Acquire);
        if !bound.is_null() {
            return Ok(Self::from_symbol(bound));
        }
        let found = find().ok_or_else(|| {
            "no llama.cpp in this process: load libllama (build b4662 or later, which exports llama_sampler_init) first, \
             or pass its dlopen handle to llama_sieve_bind_host"
                .to_owned()
        })?;
        BOUND.store(found, Ordering::Release);
        Ok(Self::from_symbol(found))
    }

    /// Takes the host from a library handle of `dlopen`.
    ///
    /// # Safety
    /// `handle` is a live handle that `dlopen` gave, and stays open.
    pub unsafe fn bind(handle: *mut c_void) -> Result<(), String> {
        // SAFETY: the caller guarantees the handle.
        let symbol = unsafe { libc::dlsym(handle, SAMPLER_INIT.as_ptr()) };
        if symbol.is_null() {
            return Err(
                "llama_sieve_bind_host: the library exports no llama_sampler_init (it is not libllama, or older than b4662)"
                    .to_owned(),
            );
        }
        BOUND.store(symbol, Ordering::Release);
        Ok(())
    }

    fn from_symbol(symbol: *mut c_void) -> Self {
        // SAFETY: non-null, found under the name llama_sampler_init, whose signature is the same in every llama.cpp that exports it.
        let sampler_init = unsafe { std::mem::transmute::<*mut c_void, SamplerInit>(symbol) };
        Self { sampler_init }
    }
}

fn find() -> Option<*mut c_void> {
    linked().or_else(global).or_else(loaded)
}

// Rust has no stable weak linkage, so the assembler makes a word that the linker fills in if it can.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
std::arch::global_asm!(
    ".weak llama_sampler_init",
    ".pushsection .data.rel.ro.llama_sieve_weak_host, \"aw\"",
    ".balign 8",
    ".globl llama_sieve_weak_host",
    ".hidden llama_sieve_weak_host",
    "llama_sieve_weak_host: .quad llama_sampler_init",
    ".popsection",
);

/// The weak reference: null if the linker found no definition.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn linked() -> Option<*mut c_void> {
    unsafe extern "C" {
        static llama_sieve_weak_host: usize;
    }
    // SAFETY: the word above, filled before any of our code runs and never written again. A volatile read, since to the
    // compiler the address of a function is never null.
    let address = unsafe { std::ptr::read_volatile(&raw const llama_sieve_weak_host) };
    (address != 0).then_some(address as *mut c_void)
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn linked() -> Option<*mut c_void> {
    None
}

fn global() -> Option<*mut c_void> {
    // SAFETY: RTLD_DEFAULT needs no handle, the name is a C string.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SAMPLER_INIT.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

#[cfg(target_os = "linux")]
fn loaded() -> Option<*mut c_void> {
    loaded_libraries().iter().find_map(|path| {
        // SAFETY: a C string; RTLD_NOLOAD runs no code of the library, it only finds one that is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: the handle was just opened.
        let symbol = unsafe { libc::dlsym(handle, SAMPLER_INIT.as_ptr()) };
        if symbol.is_null() {
            // SAFETY: closes only the reference taken above.
            unsafe { libc::dlclose(handle) };
            return None;
        }
        // The handle stays open: the host must not be unloaded under our samplers.
        Some(symbol)
    })
}

#[cfg(not(target_os = "linux"))]
fn loaded() -> Option<*mut c_void> {
    None
}

/// Paths of all loaded libraries.
#[cfg(target_os = "linux")]
fn loaded_libraries() -> Vec<CString> {
    unsafe extern "C" fn collect(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        paths: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid entry, and back the pointer to the vector below, which nobody else uses.
        let (info, paths) = unsafe { (&*info, &mut *paths.cast::<Vec<CString>>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: a C string of the dynamic linker, valid during the callback.
            let path = unsafe { CStr::from_ptr(info.dlpi_name) };
            // The program itself has an empty name.
            if !path.is_empty() {
                paths.push(path.to_owned());
            }
        }
        0
    }
    let mut paths: Vec<CString> = Vec::new();
    // SAFETY: the callback matches, and the vector outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut paths).cast()) };
    paths
}
