//! Symbols and libraries, as the linker and the dynamic linker know them.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A function or handle of the dynamic linker.
pub(crate) type Address = NonNull<c_void>;

/// Declares words that the linker fills with the addresses of the named functions, or with 0 where
/// it finds none. Rust has no stable weak linkage; the assembler does.
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
macro_rules! weak_references {
    ($find:ident $table:ident $count:literal: $($name:literal)*) => {
        std::arch::global_asm!(
            concat!(".pushsection .data.rel.ro.", stringify!($table), ", \"aw\""),
            ".balign 8",
            concat!(".globl ", stringify!($table)),
            concat!(".hidden ", stringify!($table)),
            concat!(stringify!($table), ":"),
            $(concat!(".weak ", $name), concat!(".quad ", $name),)*
            ".popsection",
        );

        /// The named functions, as far as they were linked.
        pub(super) fn $find(name: &CStr) -> Option<Address> {
            unsafe extern "C" {
                static $table: [*mut c_void; $count];
            }
            let names: [&str; $count] = [$($name),*];
            let index = names.iter().position(|&known| known.as_bytes() == name.to_bytes())?;
            // SAFETY: the words above, filled before any of our code runs and never written again.
            // A volatile read, since to the compiler the address of a function is never null.
            let linked = unsafe { (&raw const $table).read_volatile() };
            let address = *linked.get(index)?;
            NonNull::new(address)
        }
    };
}

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
weak_references! {
    linked llama_sieve_weak_host 27:
    "llama_sampler_init"
    "llama_sampler_name"
    "llama_sampler_get_seed"
    "llama_sampler_chain_n"
    "llama_sampler_chain_get"
    "llama_vocab_n_tokens"
    "llama_vocab_is_eog"
    "llama_vocab_eot"
    "llama_vocab_eos"
    "llama_vocab_bos"
    "llama_vocab_nl"
    "llama_vocab_pad"
    "llama_vocab_get_attr"
    "llama_token_to_piece"
    "llama_detokenize"
    "llama_tokenize"
    "llama_get_logits_ith"
    "llama_model_get_vocab"
    "llama_get_model"
    "llama_sampler_apply"
    "llama_sampler_accept"
    "llama_sampler_sample"
    "llama_sampler_chain_init"
    "llama_get_sampled_token_ith"
    "llama_get_sampled_probs_ith"
    "llama_get_sampled_logits_ith"
    "llama_sampler_free"
}

// What only an offloaded chain and the certificate need.
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
weak_references! {
    linked_built_in llama_sieve_weak_built_ins 18:
    "llama_version"
    "llama_sampler_init_greedy"
    "llama_sampler_init_dist"
    "llama_sampler_init_top_k"
    "llama_sampler_init_top_p"
    "llama_sampler_init_min_p"
    "llama_sampler_init_typical"
    "llama_sampler_init_temp"
    "llama_sampler_init_temp_ext"
    "llama_sampler_init_xtc"
    "llama_sampler_init_top_n_sigma"
    "llama_sampler_init_mirostat"
    "llama_sampler_init_mirostat_v2"
    "llama_sampler_init_penalties"
    "llama_sampler_init_dry"
    "llama_sampler_init_adaptive_p"
    "llama_sampler_init_logit_bias"
    "llama_sampler_init_infill"
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(miri))))]
pub(super) fn linked(_name: &CStr) -> Option<Address> {
    None
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(miri))))]
pub(super) fn linked_built_in(_name: &CStr) -> Option<Address> {
    None
}

pub(super) fn global(name: &CStr) -> Option<Address> {
    // SAFETY: RTLD_DEFAULT is no handle that could be closed.
    unsafe { symbol_of(libc::RTLD_DEFAULT, name) }
}

/// # Safety
/// `handle` is live, or RTLD_DEFAULT.
pub(super) unsafe fn symbol_of(handle: *mut c_void, name: &CStr) -> Option<Address> {
    // SAFETY: the caller guarantees the handle, the type the string.
    NonNull::new(unsafe { libc::dlsym(handle, name.as_ptr()) })
}

/// A handle of the shared library that `function` is in, which keeps it loaded; `None` if it is in
/// the program itself.
pub(super) fn library_of(function: Address) -> Option<Address> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr takes any address, and fills `info` if it returns other than 0.
    let info = unsafe {
        if libc::dladdr(function.as_ptr(), info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a C string of the dynamic linker; it is copied.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_owned();
    // Only libraries are in the list, so the program itself drops out here.
    if !loaded_libraries().contains(&path) {
        return None;
    }
    open_loaded(&path)
}

/// A handle of a library that is loaded already.
pub(super) fn open_loaded(path: &CStr) -> Option<Address> {
    // SAFETY: a C string; RTLD_NOLOAD runs no code of the library, it only finds it.
    NonNull::new(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) })
}

/// Paths of all loaded libraries.
#[cfg(target_os = "linux")]
pub(super) fn loaded_libraries() -> Vec<CString> {
    unsafe extern "C" fn collect(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        paths: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid entry, and back the pointer to the vector below,
        // which nobody else uses.
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

#[cfg(not(target_os = "linux"))]
pub(super) fn loaded_libraries() -> Vec<CString> {
    Vec::new()
}
