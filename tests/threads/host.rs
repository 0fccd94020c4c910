//! Tests rebinding the host while other threads make samplers, and replacing the log's sink while
//! others write to it. `ci/sanitize tsan` runs this, too.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{HostSampler, alone, number_from_env};
use llama_sieve::ffi::library::{LLAMA_SIEVE_OK, llama_sieve_bind_host, llama_sieve_log_set};
use llama_sieve::ffi::samplers::{llama_sieve_init_dist, llama_sieve_init_top_p};
use llama_sieve::ffi::seed::llama_sieve_get_seed;
use vendor_llama_cpp::paths;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
}

#[test]
fn samplers_are_made_while_the_host_is_bound_anew() {
    let _alone = alone();
    let path = paths::shared_library().display().to_string();
    let path = CString::new(path).expect("no NUL in a path");
    // SAFETY: a C string; RTLD_NOW | RTLD_LOCAL.
    let other = unsafe { dlopen(path.as_ptr(), 2) };
    assert!(!other.is_null());
    // SAFETY: NULL means the program itself, which has a host linked in.
    let program = unsafe { dlopen(std::ptr::null(), 2) };
    static STOP: AtomicBool = AtomicBool::new(false);
    let (other, program) = (other.addr(), program.addr());
    let binder = std::thread::spawn(move || {
        let mut bound = 0;
        loop {
            for handle in [other, program] {
                let handle = std::ptr::with_exposed_provenance_mut(handle);
                // SAFETY: neither is ever closed. If the program does not export its functions, the
                // binding stays.
                bound += usize::from(unsafe { llama_sieve_bind_host(handle) } == LLAMA_SIEVE_OK);
            }
            // Checked last, so that each host is bound at least once even if this thread starts
            // late.
            if STOP.load(Ordering::Relaxed) {
                return bound;
            }
        }
    });
    let end =
        Instant::now() + Duration::from_secs(number_from_env("LLAMA_SIEVE_TEST_SECONDS", 1) as u64);
    let makers: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                while Instant::now() < end {
                    // Either host may free the sampler: `llama_sampler_free` of one can free an
                    // object of the other, since both are built alike.
                    let sampler = HostSampler::new(llama_sieve_init_dist(9));
                    // SAFETY: the sampler lives.
                    assert_eq!(unsafe { llama_sieve_get_seed(sampler.as_ptr().cast()) }, 9);
                    drop(sampler.clone());
                }
            })
        })
        .collect();
    makers.into_iter().for_each(|t| t.join().expect("no panic"));
    STOP.store(true, Ordering::Relaxed);
    assert!(binder.join().expect("no panic") > 0);
}

static HEARD: AtomicUsize = AtomicUsize::new(0);

/// A callback that calls the library: it makes a sampler (which logs nothing), and registers itself
/// again.
unsafe extern "C" fn calls_back(_level: c_int, text: *const c_char, user: *mut c_void) {
    assert!(!text.is_null());
    HEARD.fetch_add(1, Ordering::Relaxed);
    drop(HostSampler::new(llama_sieve_init_top_p(0.9, 1)));
    // SAFETY: this function, as it was registered.
    unsafe { llama_sieve_log_set(Some(calls_back), user) };
}

#[test]
fn the_sink_is_replaced_from_within_and_from_other_threads() {
    let _alone = alone();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..200 {
                    // SAFETY: a function as described.
                    unsafe { llama_sieve_log_set(Some(calls_back), std::ptr::null_mut()) };
                    // This logs a warning.
                    drop(HostSampler::new(llama_sieve_init_top_p(f32::NAN, 1)));
                    let told = llama_sieve::last_error::get();
                    assert!(told.contains("not all finite"), "{told}");
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|t| t.join().expect("no panic"));
    assert_eq!(HEARD.load(Ordering::Relaxed), 4 * 200);
    // SAFETY: NULL is allowed.
    unsafe { llama_sieve_log_set(None, std::ptr::null_mut()) };
}
