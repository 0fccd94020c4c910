//! Symbols of the host, found by the linker at build time or by the dynamic linker.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// An address in a library or the program, in most cases that of a function.
pub type Address = NonNull<c_void>;

/// The symbol that identifies a library as a host.
pub(super) const SAMPLER_INIT: &CStr = c"llama_sampler_init";

/// Declares the names of all functions that may be needed from a host. On 64-bit Linux there is a
/// word for each name, into which the linker writes the function's address, or 0 if it does not
/// find one. Rust has no stable weak linkage, but the assembler does.
macro_rules! weak_references {
    ($table:ident $count:literal: $($name:literal)*) => {
        /// The names of all functions that may be needed from a host.
        pub(super) const NAMES: [&str; $count] = [$($name),*];

        #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
        std::arch::global_asm!(
            concat!(".pushsection .data.rel.ro.", stringify!($table), ", \"aw\""),
            ".balign 8",
            concat!(".globl ", stringify!($table)),
            concat!(".hidden ", stringify!($table)),
            concat!(stringify!($table), ":"),
            $(concat!(".weak ", $name), concat!(".quad ", $name),)*
            ".popsection",
        );

        /// Returns the address to which the linker has bound each of these names; `None` for a name
        /// that it has not bound.
        #[cfg(not(windows))]
        pub(super) fn linked() -> [Option<Address>; $count] {
            #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
            {
                unsafe extern "C" {
                    static $table: [*mut c_void; $count];
                }
                // SAFETY: the words above are filled before any code of this library runs, and
                // never written again. The read is volatile, since the compiler assumes that the
                // address of a function is never null.
                unsafe { (&raw const $table).read_volatile() }.map(NonNull::new)
            }
            #[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(miri))))]
            [None; $count]
        }
    };
}

weak_references! {
    llama_sieve_weak_host 53:
    "llama_sampler_init"
    "llama_sampler_name"
    "llama_sampler_get_seed"
    "llama_sampler_copy"
    "llama_sampler_chain_n"
    "llama_sampler_chain_get"
    "llama_sampler_apply"
    "llama_sampler_accept"
    "llama_sampler_reset"
    "llama_sampler_clone"
    "llama_sampler_sample"
    "llama_sampler_chain_init"
    "llama_sampler_free"
    "llama_set_sampler"
    "llama_vocab_type"
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
    "llama_get_sampled_token_ith"
    "llama_get_sampled_probs_ith"
    "llama_get_sampled_logits_ith"
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
    "llama_sampler_init_grammar"
    "llama_sampler_init_grammar_lazy"
    "llama_sampler_init_grammar_lazy_patterns"
}

/// A name in [`NAMES`].
#[derive(Clone, Copy, Debug)]
pub(in crate::ffi) struct Name {
    /// The index of the name in [`NAMES`].
    pub index: usize,
    /// The name as a C string.
    pub text: &'static CStr,
}

impl Name {
    /// Returns the name whose text is `text`; `None` if it is not one of [`NAMES`].
    pub(crate) const fn of(text: &'static CStr) -> Option<Self> {
        match index(text) {
            Some(index) => Some(Self { index, text }),
            None => None,
        }
    }
}

/// Makes a [`Name`]. A name that is not one of [`NAMES`] does not compile.
macro_rules! host_name {
    ($name:literal) => {
        const { $crate::ffi::host::linker::Name::of($name).expect("one of linker::NAMES") }
    };
}
pub(crate) use host_name;

/// Returns the index of `name` in [`NAMES`]; `None` if it is not one of them.
pub(super) const fn index(name: &CStr) -> Option<usize> {
    const fn is(mut a: &[u8], mut b: &[u8]) -> bool {
        while let ([first, a_rest @ ..], [second, b_rest @ ..]) = (a, b) {
            if *first != *second {
                return false;
            }
            (a, b) = (a_rest, b_rest);
        }
        a.is_empty() && b.is_empty()
    }
    let mut i = 0;
    let mut names: &[&str] = &NAMES;
    while let [first, rest @ ..] = names {
        if is(first.as_bytes(), name.to_bytes()) {
            return Some(i);
        }
        (i, names) = (i + 1, rest);
    }
    None
}

/// Returns the function `name` of the module `handle`.
///
/// # Safety
/// Nothing is required: a handle that is not a module has no functions.
#[cfg(windows)]
pub(in crate::ffi) unsafe fn symbol_of(handle: *mut c_void, name: &CStr) -> Option<Address> {
    crate::windows::symbol(NonNull::new(handle)?, name)
}

/// Returns the function `name` of the library whose handle is `handle`. Waits while another thread
/// is inside `dlopen`.
///
/// # Safety
/// `handle` is live, or RTLD_DEFAULT.
#[cfg(not(windows))]
pub(in crate::ffi) unsafe fn symbol_of(handle: *mut c_void, name: &CStr) -> Option<Address> {
    // SAFETY: the caller guarantees the handle, and the type guarantees the string.
    NonNull::new(unsafe { libc::dlsym(handle, name.as_ptr()) })
}
