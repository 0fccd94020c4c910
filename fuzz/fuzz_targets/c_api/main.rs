//! Any calls of the C interface in any order. Checks that results are documented, that every
//! failure has an error text and changes nothing, and that nothing panics inside the guard
//! (libFuzzer's own hook ends the process at any panic, caught or not). Leaks are found by
//! LeakSanitizer.
#![no_main]

mod answers;
mod calls;
mod certify;
mod chains;
mod grammars;
mod makers;
mod metrics;
mod results;
mod samplers;
mod sieves;
mod stages;
#[path = "../../../tests/support/mod.rs"]
mod support;
mod tries;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null_mut;

use libfuzzer_sys::fuzz_target;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::metrics::*;
use llama_sieve::ffi::sieve::*;
use llama_sieve::ffi::trie::handles::*;
use support::family::vocabulary;
use vendor_llama_cpp::sys;

use crate::answers::assert_reason;
use crate::calls::Call;

fuzz_target!(
    init: {
        llama_sieve_fuzz::silence();
        vocabulary();
    },
    |calls: Vec<Call>| World::default().run(&calls)
);

/// A sampler that the host's functions accept: one of ours, or a built-in.
struct Smp {
    ptr: *mut llama_sampler,
    is_trie: bool,
    is_grammar: bool,
    is_ours: bool,
}

#[derive(Default)]
struct World {
    samplers: Vec<Smp>,
    sieves: Vec<*mut Handle>,
    ppls: Vec<*mut llama_sieve_ppl>,
    /// The sampler that each handle was bound to, as long as it lives.
    bound: BTreeMap<usize, *mut llama_sampler>,
    saved: Vec<u8>,
    /// True once stages, or a sampler in a slot, were set for some sieve.
    is_staged: bool,
    /// True once a sampler exists that may add tokens to an array, even tokens without logits.
    puts_back: bool,
    /// True while messages go to a callback different from the one at the start.
    hears: bool,
}

/// The number of calls per input; more would only be slower.
const MOST_CALLS: usize = 40;
const MOST_OBJECTS: usize = 8;

fn pick<T: Copy>(objects: &[T], which: u8) -> Option<T> {
    // Sometimes there is no object, and the call gets NULL.
    objects
        .get(usize::from(which) % (objects.len() + 1))
        .copied()
}

impl World {
    fn run(mut self, calls: &[Call]) {
        for call in calls.iter().take(MOST_CALLS) {
            // SAFETY: `World` keeps only live objects, and NULL is documented everywhere it is
            // passed.
            unsafe { self.call(call) };
        }
        // SAFETY: as above.
        unsafe { self.free_all() };
    }

    /// Frees all objects.
    ///
    /// # Safety
    /// All objects must be alive.
    unsafe fn free_all(self) {
        if self.hears {
            llama_sieve_fuzz::silence();
        }
        // SAFETY: the caller says so; each is freed once.
        unsafe {
            self.samplers
                .iter()
                .for_each(|smp| sys::llama_sampler_free(smp.ptr.cast()));
            self.sieves
                .iter()
                .for_each(|&sieve| llama_sieve_free(sieve));
            self.ppls.iter().for_each(|&ppl| llama_sieve_ppl_free(ppl));
            // Using a handle whose sampler was freed must be an error, not a crash.
            for &handle in self.bound.keys() {
                eliza_inference_clear_token_trie(handle as *mut c_void);
                assert_reason();
                assert_eq!(
                    eliza_inference_bind_token_trie(handle as *mut c_void, null_mut()),
                    LLAMA_SIEVE_OK
                );
            }
        }
    }

    fn smp(&self, which: u8) -> *mut llama_sampler {
        let pointers: Vec<_> = self.samplers.iter().map(|smp| smp.ptr).collect();
        pick(&pointers, which).unwrap_or(null_mut())
    }

    fn is_trie(&self, ptr: *const llama_sampler) -> bool {
        self.samplers
            .iter()
            .any(|smp| std::ptr::eq(smp.ptr, ptr) && smp.is_trie)
    }

    fn is_grammar(&self, ptr: *const llama_sampler) -> bool {
        self.samplers
            .iter()
            .any(|smp| std::ptr::eq(smp.ptr, ptr) && smp.is_grammar)
    }

    fn sieve(&self, which: u8) -> *mut Handle {
        pick(&self.sieves, which).unwrap_or(null_mut())
    }

    fn ppl(&self, which: u8) -> *mut llama_sieve_ppl {
        pick(&self.ppls, which).unwrap_or(null_mut())
    }
}
