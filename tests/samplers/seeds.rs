//! Compares `llama_sieve_get_seed` on this library's samplers, on built-ins and on chains of both
//! with `llama_sampler_get_seed` on the same chain of built-ins.

use std::ffi::c_char;

use crate::support::HostSampler;
use crate::support::arrays::Rng;
use crate::support::family::FAMILY;
use llama_sieve::ffi::host::llama_h::{llama_sampler, llama_sampler_i};
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::seed::llama_sieve_get_seed;
use llama_sieve::ffi::sieve::{
    llama_sieve_default_params, llama_sieve_init_sampler, llama_sieve_params,
};
use llama_sieve::rng::DEFAULT_SEED;
use vendor_llama_cpp::sys;

fn ours(smpl: &HostSampler) -> u32 {
    // SAFETY: the sampler lives.
    unsafe { llama_sieve_get_seed(smpl.as_ptr().cast()) }
}

fn theirs(smpl: &HostSampler) -> u32 {
    // SAFETY: the sampler lives.
    unsafe { sys::llama_sampler_get_seed(smpl.as_ptr()) }
}

#[test]
fn every_sampler_tells_what_its_built_in_tells() {
    let mut rng = Rng(31);
    for member in FAMILY {
        for _ in 0..50 {
            let pair = (member.make)(&mut rng, 100, true);
            let expected = theirs(&pair.theirs);
            assert_eq!(ours(&pair.ours), expected, "{}", pair.label);
            assert_eq!(ours(&pair.theirs), expected, "{}", pair.label);
            assert_eq!(ours(&pair.ours.clone()), expected, "{}", pair.label);
        }
    }
}

#[test]
fn a_chain_tells_the_seed_of_its_last_seeded_member() {
    let mut rng = Rng(32);
    for _ in 0..500 {
        let (mixed, built_in) = (HostSampler::chain(vec![]), HostSampler::chain(vec![]));
        for _ in 0..rng.below(6) {
            let member = &FAMILY[rng.below(FAMILY.len())];
            let pair = (member.make)(&mut rng, 100, true);
            if rng.chance(0.5) {
                mixed.add(pair.theirs.clone());
            } else {
                mixed.add(pair.ours);
            }
            built_in.add(pair.theirs);
        }
        let nested = HostSampler::chain(vec![mixed.clone()]);
        assert_eq!(ours(&mixed), theirs(&built_in));
        assert_eq!(ours(&nested), theirs(&built_in));
    }
}

#[test]
fn a_random_seed_is_told_and_leads_to_the_same_draws() {
    for make in [
        || HostSampler::new(llama_sieve_init_dist(DEFAULT_SEED)),
        || HostSampler::new(llama_sieve_init_mirostat_v2(DEFAULT_SEED, 5.0, 0.1)),
        || HostSampler::new(llama_sieve_init_mirostat(100, DEFAULT_SEED, 5.0, 0.1, 10)),
    ] {
        let sampler = make();
        let seed = ours(&sampler);
        assert_ne!(seed, DEFAULT_SEED);
        assert_ne!(ours(&make()), seed, "two random seeds are equal");
        sampler.reset();
        assert_ne!(ours(&sampler), seed, "a reset takes a new one");
    }
    let random = HostSampler::new(llama_sieve_init_dist(DEFAULT_SEED));
    let again = HostSampler::new(llama_sieve_init_dist(ours(&random)));
    for _ in 0..100 {
        let mut a = crate::support::Array::of_logits((0..50).map(|i| i as f32 / 10.0));
        let mut b = a.clone();
        random.apply(&mut a);
        again.apply(&mut b);
        assert_eq!(a, b);
    }
}

#[test]
fn the_sieve_tells_the_lower_half_of_its_seed() {
    let mut params = llama_sieve_default_params();
    let make = |params: &llama_sieve_params| {
        // SAFETY: a whole struct.
        HostSampler::new(unsafe { llama_sieve_init_sampler(params) })
    };
    params.seed = 0x1234_5678_9ABC_DEF0;
    let sieve = make(&params);
    assert_eq!(ours(&sieve), 0x9ABC_DEF0);
    assert_eq!(ours(&sieve.clone()), 0x9ABC_DEF0);
    let chain = HostSampler::chain(vec![HostSampler::new(llama_sieve_init_dist(7)), sieve]);
    assert_eq!(ours(&chain), 0x9ABC_DEF0);
    params.seed = DEFAULT_SEED.into();
    let random = make(&params);
    assert_ne!(ours(&random), DEFAULT_SEED);
    assert_ne!(ours(&make(&params)), ours(&random));
}

#[test]
fn null_has_no_seed() {
    // SAFETY: NULL is allowed.
    let seed = unsafe { llama_sieve_get_seed(std::ptr::null()) };
    assert_eq!(seed, DEFAULT_SEED);
    assert!(llama_sieve::last_error::get().contains("NULL"));
}

/// A chain is recognized by its vtable. The context of any other sampler must not be read, even if
/// it has the name of a chain.
#[test]
fn a_foreign_sampler_named_chain_has_no_seed() {
    unsafe extern "C" fn name(_: *const llama_sampler) -> *const c_char {
        c"chain".as_ptr()
    }
    // SAFETY: a vtable of a C struct, whose functions may be NULL but for the name.
    let mut iface: llama_sampler_i = unsafe { std::mem::zeroed() };
    iface.name = Some(name);
    // The pointer that would be that of a chain's members is invalid.
    let nowhere = std::ptr::without_provenance_mut(8);
    // SAFETY: the vtable outlives the sampler.
    let foreign = unsafe { sys::llama_sampler_init((&raw mut iface).cast(), nowhere) };
    let foreign = HostSampler::new(foreign);
    assert_eq!(theirs(&foreign), DEFAULT_SEED);
    assert_eq!(ours(&foreign), DEFAULT_SEED);
    let chain = HostSampler::chain(vec![HostSampler::new(llama_sieve_init_dist(7)), foreign]);
    assert_eq!(ours(&chain), 7);
    drop(chain);
}
