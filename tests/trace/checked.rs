//! Tests the linter, which names each member of a host's chain that makes no sense there.

use std::ffi::{CStr, c_char};

use llama_sieve::ffi::chain::llama_sieve_chain_check;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::samplers::*;
use vendor_llama_cpp::sys;

use crate::support::HostSampler;

fn check(chain: *const llama_sampler, cap: usize) -> (i32, String) {
    let mut text = vec![0x55; cap + 1];
    // SAFETY: NULL or a live chain; there is room for that many.
    let n = unsafe { llama_sieve_chain_check(chain, text.as_mut_ptr().cast::<c_char>(), cap) };
    assert_eq!(text[cap], 0x55);
    let text = CStr::from_bytes_until_nul(&text).map_or("", |text| text.to_str().expect("UTF-8"));
    (n, text.to_owned())
}

#[test]
fn a_chain_of_ours_and_built_ins_is_told_what_makes_no_sense_in_it() {
    let good = HostSampler::chain(vec![
        HostSampler::new(llama_sieve_init_top_k(40)),
        // SAFETY: a constructor without preconditions.
        HostSampler::new(unsafe { sys::llama_sampler_init_min_p(0.05, 1) }),
        HostSampler::new(llama_sieve_init_temp(0.8)),
        HostSampler::new(llama_sieve_init_dist(1)),
    ]);
    assert_eq!(check(good.as_ptr().cast(), 1000), (0, String::new()));
    let bad = HostSampler::chain(vec![
        HostSampler::new(llama_sieve_init_top_k(0)),
        HostSampler::new(llama_sieve_init_temp(0.0)),
        HostSampler::new(llama_sieve_init_xtc(0.5, 0.1, 1, 7)),
        // SAFETY: a constructor without preconditions.
        HostSampler::new(unsafe { sys::llama_sampler_init_dist(7) }),
        HostSampler::new(llama_sieve_init_top_p(0.9, 1)),
    ]);
    let (n, text) = check(bad.as_ptr().cast(), 1000);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((n, lines.len()), (3, 3), "{text}");
    for (line, word) in lines.iter().zip([
        "top-k does nothing",
        "xtc comes after a temperature of 0",
        "top-p comes after dist",
    ]) {
        assert!(line.contains(word), "{line}");
    }
    // The text is cut off at the end of the buffer.
    for cap in 0..40 {
        let (n, cut) = check(bad.as_ptr().cast(), cap);
        assert_eq!(n, 3);
        assert_eq!(cut, text[..cap.saturating_sub(1)]);
    }
    // SAFETY: NULL is an error, and no buffer is passed.
    let n = unsafe { llama_sieve_chain_check(std::ptr::null(), std::ptr::null_mut(), 0) };
    assert!(n < 0, "{n}");
}
