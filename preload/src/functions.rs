//! llama-sieve's C functions, by name, for users that have only this library.
//!
//! They are not exported: under LD_PRELOAD they would come before those of a program's own
//! libllama_sieve, which may be another version. With this table one file serves both purposes in a
//! package. A program that preloads it finds llama.cpp's names in it; Python and Node, which load
//! it for themselves, get llama-sieve's functions from the table.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null;

/// A function of any type.
type Function = unsafe extern "C" fn();

include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// Returns the address of llama-sieve's C function named `name`, for example `llama_sieve_version`;
/// NULL if there is none.
///
/// # Safety
/// `name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_preload_function(name: *const c_char) -> *const c_void {
    if name.is_null() {
        return null();
    }
    // SAFETY: the caller guarantees the string.
    let name = unsafe { CStr::from_ptr(name) };
    let found = FUNCTIONS.binary_search_by(|(known, _)| (*known).cmp(name));
    let function = found.ok().and_then(|at| FUNCTIONS.get(at));
    function.map_or(null(), |(_, function)| *function as *const c_void)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &CStr) -> *const c_void {
        // SAFETY: a C string.
        unsafe { llama_sieve_preload_function(name.as_ptr()) }
    }

    #[test]
    fn every_function_has_an_address_of_its_own() {
        let mut addresses: Vec<_> = FUNCTIONS.iter().map(|(name, _)| address(name)).collect();
        assert!(!addresses.contains(&null()));
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), FUNCTIONS.len());
        let version = llama_sieve::ffi::library::llama_sieve_version as *const c_void;
        assert_eq!(address(c"llama_sieve_version"), version);
    }

    #[test]
    fn other_names_have_none() {
        for name in [
            c"",
            c"llama_sieve_",
            c"llama_sieve_versions",
            c"zzz",
            c"llama_sampler_free",
        ] {
            assert_eq!(address(name), null(), "{name:?}");
        }
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { llama_sieve_preload_function(null()) }, null());
    }
}
