//! Tests the answers of every function of the C interface to bad payloads, NULL, and tokens that do
//! not exist.

use crate::naive::*;
use crate::support::arrays::Rng;
use crate::support::{Array, HostSampler, trained_model};
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::trie::*;
use llama_sieve::last_error;
use vendor_llama_cpp::Model;

#[test]
fn every_bad_payload_has_an_answer() {
    let good = json(&values(&[("a", &[1, 2]), ("b", &[3])]));
    let sampler = slot();
    assert_eq!(set(&sampler, good.as_bytes(), 1), LLAMA_SIEVE_OK);
    sampler.accept(1);
    let mut bad: Vec<Vec<u8>> = (0..good.len())
        .map(|n| good.as_bytes()[..n].to_vec())
        .collect();
    let leaf = |tokens: &str| {
        format!(
            "{{\"descriptors\":[{{\"path\":\"p\",\"leaves\":[{{\"name\":\"a\",\"tokens\":{tokens}}}]}}]}}"
        )
    };
    for terminators in ["[-1]", "[1.5]", "[2147483648]", "3", "null", "[null]"] {
        let with = good.replacen('{', &format!("{{\"terminators\":{terminators},"), 2);
        bad.push(with.into_bytes());
    }
    for tokens in [
        "[-1]",
        "[1.5]",
        "[2147483648]",
        "[1e99]",
        "[\"1\"]",
        "[[1]]",
        "3",
        "null",
        "[]",
        "[null]",
    ] {
        bad.push(leaf(tokens).into_bytes());
    }
    bad.push(leaf("[1]").replace("\"a\"", "\"a\\u0000b\"").into_bytes());
    bad.push(vec![b'['; 100_000]);
    bad.push(format!("{{\"descriptors\":{}", "[".repeat(10_000)).into_bytes());
    bad.push(b"{\"descriptors\":[{\"path\":\"\xFF\",\"leaves\":[]}]}".to_vec());
    bad.push(b"{\"descriptors\":[],\"descriptors\":[]}".to_vec());
    bad.push(b"\0".to_vec());
    bad.push(b"{\"descriptors\":{}}".to_vec());
    for payload in &bad {
        assert_eq!(set(&sampler, payload, 1), LLAMA_SIEVE_ERROR_INVALID);
        let text = last_error::get();
        let names_place = ["line ", "descriptors[", "no leaf"]
            .iter()
            .any(|part| text.contains(part));
        assert!(names_place, "{text}");
        // The constraint is unchanged.
        assert_eq!(forced(&sampler), [2]);
    }
    for mode in [2, -1, 0x102, 0x202, 0x400, i32::MAX, i32::MIN] {
        assert_eq!(
            set(&sampler, good.as_bytes(), mode),
            LLAMA_SIEVE_ERROR_INVALID
        );
        assert!(last_error::get().contains("mode"));
    }
    let many = (0..200_000).map(|i| (format!("value number {i}"), vec![i % 1000, i / 1000]));
    let large = json(&one(many.collect()));
    assert!(large.len() > 7_000_000);
    assert_eq!(set(&sampler, large.as_bytes(), 1), LLAMA_SIEVE_OK);
    assert_eq!(
        set(&sampler, leaf("[2147483647]").as_bytes(), 1),
        LLAMA_SIEVE_OK
    );
    let mut array = Array::of_logits([1.0, 2.0]);
    sampler.apply(&mut array);
    assert_eq!(array.ids(), [2_147_483_647]);
}

#[test]
fn null_and_samplers_of_another_kind_have_an_answer() {
    let other = HostSampler::new(llama_sieve_init_greedy());
    let null = std::ptr::null_mut();
    // SAFETY: NULL and other samplers are allowed.
    unsafe {
        for smpl in [null, raw(&other)] {
            let expected = if smpl.is_null() {
                LLAMA_SIEVE_ERROR_NULL
            } else {
                LLAMA_SIEVE_ERROR_INVALID
            };
            assert_eq!(llama_sieve_trie_set(smpl, c"{}".as_ptr(), 2, 0), expected);
            assert_eq!(llama_sieve_trie_activate(smpl, c"p".as_ptr()), expected);
            assert!(!llama_sieve_trie_is_active(smpl));
            assert!(llama_sieve_trie_leaf(smpl).is_null());
            assert_eq!(llama_sieve_trie_forced(smpl, null.cast(), 5), 0);
            assert_eq!(llama_sieve_trie_allowed(smpl, null.cast(), 5), 0);
            llama_sieve_trie_clear(smpl);
            assert!(last_error::get().contains(if smpl.is_null() {
                "NULL"
            } else {
                "no token trie"
            }));
        }
        let slot = slot();
        assert_eq!(
            llama_sieve_trie_set(raw(&slot), std::ptr::null(), 2, 0),
            LLAMA_SIEVE_ERROR_NULL
        );
        assert_eq!(
            llama_sieve_trie_activate(raw(&slot), std::ptr::null()),
            LLAMA_SIEVE_ERROR_NULL
        );
        assert_eq!(
            llama_sieve_trie_activate(raw(&slot), c"p".as_ptr()),
            LLAMA_SIEVE_ERROR_NOT_FOUND
        );
        assert!(llama_sampler_init_token_trie(std::ptr::null(), std::ptr::null(), 0).is_null());
        assert!(llama_sampler_init_token_trie(std::ptr::null(), c"{}".as_ptr(), 0).is_null());
        assert!(last_error::get().contains("line 1 column 2"));
        llama_sieve_trie_cache_stats(std::ptr::null_mut());
        // Misaligned by one byte: nothing is written.
        let mut room = [-1; 4];
        let askew = room.as_mut_ptr().byte_add(1);
        set(&slot, json(&values(&[("a", &[1])])).as_bytes(), 0);
        for n in [
            llama_sieve_trie_forced(raw(&slot), askew, 2),
            llama_sieve_trie_allowed(raw(&slot), askew, 2),
        ] {
            assert_eq!((n, room), (0, [-1; 4]));
            assert!(last_error::get().contains("aligned"));
        }
        llama_sieve_trie_clear(raw(&slot));
        // An empty array, with an unconstrained slot and with a constrained one.
        let two = json(&values(&[("a", &[1]), ("b", &[2])]));
        for _ in 0..2 {
            let mut array = Array::of_logits([]);
            slot.apply(&mut array);
            assert!(array.data.is_empty());
            set(&slot, two.as_bytes(), 0);
        }
    }
}

#[test]
fn tokens_outside_the_vocabulary_are_refused_also_from_the_cache() {
    let model = Model::load(trained_model()).expect("the model loads");
    let payload =
        c"{\"descriptors\":[{\"path\":\"p\",\"leaves\":[{\"name\":\"a\",\"tokens\":[1,2048]}]}]}";
    // SAFETY: without a vocabulary nothing is followed; the payload is a C string.
    let anything = unsafe { llama_sampler_init_token_trie(std::ptr::null(), payload.as_ptr(), 0) };
    drop(HostSampler::new(anything));
    // SAFETY: the vocabulary lives, the payload is a C string.
    let refused =
        unsafe { llama_sampler_init_token_trie(model.vocab().cast(), payload.as_ptr(), 0) };
    assert!(refused.is_null());
    let text = last_error::get();
    assert!(
        text.contains(
            "descriptors[0].leaves[0].tokens[1]: token 2048 is outside the vocabulary of 2048"
        ),
        "{text}"
    );
}

#[test]
fn a_trie_of_5000_leaves_is_small() {
    use llama_sieve::trie::{Payload, Trie};
    let mut rng = Rng(63);
    let leaves = random_leaves(&mut rng, 5000, 30_000);
    let names: usize = leaves.iter().map(|(name, _)| name.len() + 16).sum();
    let payload = Payload::parse(json(&one(leaves)).as_bytes(), None);
    let trie = Trie::new(&payload.expect("the payload is good"));
    let per_node = (trie.bytes() - names.min(trie.bytes())) as f64 / trie.n_nodes() as f64;
    println!(
        "{} nodes, {} bytes, {per_node:.1} bytes per node besides names",
        trie.n_nodes(),
        trie.bytes()
    );
    assert!(trie.bytes() <= 24 * trie.n_nodes() + names);
}
