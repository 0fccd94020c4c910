//! Compares a constraint with the naive model, and makes payloads for both.

use std::ffi::CStr;

use crate::support::arrays::{Rng, Shape};
pub use crate::support::span::{Descriptor, Leaves, Span, json, one};
use crate::support::{Array, HostSampler};
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::trie::*;

/// Returns the descriptor of some values and their tokens.
pub fn values(values: &[(&str, &[i32])]) -> [Descriptor; 1] {
    let leaf = |&(name, tokens): &(&str, &[i32])| (name.to_owned(), tokens.to_vec());
    one(values.iter().map(leaf).collect())
}

/// Returns sequences with shared prefixes, some of which are prefixes of others, and some of which
/// occur twice.
pub fn random_leaves(rng: &mut Rng, n: usize, n_vocab: usize) -> Leaves {
    let mut leaves = Leaves::new();
    for i in 0..n {
        let mut tokens = Vec::new();
        if rng.chance(0.6) && !leaves.is_empty() {
            let other = &leaves[rng.below(leaves.len())].1;
            tokens.extend(&other[..rng.below(other.len() + 1)]);
        }
        for _ in 0..rng.below(4) {
            tokens.push(rng.below(n_vocab) as i32);
        }
        if tokens.is_empty() && rng.chance(0.9) {
            tokens.push(rng.below(n_vocab) as i32);
        }
        leaves.push((format!("n{}", (i * 7919) % 10_007), tokens));
    }
    leaves
}

pub fn slot() -> HostSampler {
    // SAFETY: without a vocabulary nothing is followed.
    HostSampler::new(unsafe { llama_sieve_init_trie_slot(std::ptr::null()) })
}

pub fn raw(sampler: &HostSampler) -> *mut llama_sampler {
    sampler.as_ptr().cast()
}

pub fn set(sampler: &HostSampler, json: &[u8], mode: i32) -> i32 {
    // SAFETY: the sampler lives, the length is the text's.
    unsafe { llama_sieve_trie_set(raw(sampler), json.as_ptr().cast(), json.len(), mode) }
}

pub fn is_active(sampler: &HostSampler) -> bool {
    // SAFETY: the sampler lives.
    unsafe { llama_sieve_trie_is_active(raw(sampler)) }
}

pub fn leaf(sampler: &HostSampler) -> Option<String> {
    // SAFETY: the sampler lives; the text is copied at once.
    unsafe {
        let leaf = llama_sieve_trie_leaf(raw(sampler));
        (!leaf.is_null()).then(|| CStr::from_ptr(leaf).to_string_lossy().into_owned())
    }
}

pub fn forced(sampler: &HostSampler) -> Vec<i32> {
    let mut tokens = vec![0; 1000];
    // SAFETY: the sampler lives, there is room for 1000.
    let n = unsafe { llama_sieve_trie_forced(raw(sampler), tokens.as_mut_ptr(), tokens.len()) };
    tokens.truncate(n);
    tokens
}

pub fn allowed(sampler: &HostSampler) -> Vec<i32> {
    let mut tokens = vec![-7; 6000];
    // SAFETY: the sampler lives, there is room for 6000.
    let n = unsafe { llama_sieve_trie_allowed(raw(sampler), tokens.as_mut_ptr(), tokens.len()) };
    assert!(tokens[n..].iter().all(|&token| token == -7));
    tokens.truncate(n);
    let mut few = [-7; 3];
    // SAFETY: the sampler lives, there is room for two.
    let again = unsafe { llama_sieve_trie_allowed(raw(sampler), few.as_mut_ptr(), 2) };
    assert_eq!((again, few[2]), (n, -7));
    assert_eq!(few[..n.min(2)], tokens[..n.min(2)]);
    tokens
}

pub fn activate(sampler: &HostSampler, path: &CStr) -> i32 {
    // SAFETY: the sampler lives.
    unsafe { llama_sieve_trie_activate(raw(sampler), path.as_ptr()) }
}

/// Compares one `apply` with the model.
pub fn check_apply(sampler: &HostSampler, naive: &mut Span, input: &Array, mode: i32) {
    let greedy = mode & 1 == LLAMA_SIEVE_TRIE_GREEDY;
    let compact = mode & LLAMA_SIEVE_TRIE_COMPACT != 0;
    let mut output = input.clone();
    sampler.apply(&mut output);
    let Some(allowed) = naive.allowed(&input.tokens(), greedy) else {
        assert_eq!(&output, input, "nothing is to be masked");
        return;
    };
    let present: Vec<_> = input
        .data
        .iter()
        .filter(|c| allowed.contains(&c.id))
        .collect();
    let possible: Vec<_> = present
        .iter()
        .filter(|c| c.logit > f32::NEG_INFINITY)
        .collect();
    let left = output.allowed();
    if possible.is_empty() {
        let is_absent = |id: &i32| present.iter().all(|c| c.id != *id);
        let absent: Vec<i32> = allowed.iter().copied().filter(is_absent).collect();
        let (expected, logit) = if absent.is_empty() {
            (present.iter().map(|c| c.id).collect(), f32::NEG_INFINITY)
        } else {
            (absent, 0.0)
        };
        let expected = &expected[..expected.len().min(input.data.len())];
        assert_eq!(output.ids(), expected, "what was cut is put back");
        assert!(output.data.iter().all(|c| c.logit == logit));
        assert!(output.data.is_empty() == input.data.is_empty());
        assert!(output.data.is_empty() || output.selected == if greedy { 0 } else { -1 });
        return;
    }
    let best = possible
        .iter()
        .rev()
        .max_by(|a, b| a.logit.total_cmp(&b.logit));
    let best = best.expect("some are possible");
    if possible.len() == 1 || (greedy && compact) {
        assert_eq!(output.ids(), [best.id]);
    } else if compact {
        let expected: Vec<i32> = present.iter().map(|c| c.id).collect();
        assert_eq!(output.ids(), expected);
    } else {
        assert_eq!(output.ids(), input.ids(), "masking moves nothing");
        let expected: Vec<i32> = possible.iter().map(|c| c.id).collect();
        assert_eq!(left, expected);
        assert!(!output.sorted);
    }
    for candidate in output.data.iter().filter(|c| c.logit > f32::NEG_INFINITY) {
        let before = present.iter().find(|c| c.id == candidate.id);
        let before = before.expect("it was there");
        assert_eq!(candidate.logit.to_bits(), before.logit.to_bits());
    }
    if greedy {
        let chosen = output.chosen();
        assert_eq!(chosen.id, best.id);
    } else {
        assert_eq!(output.selected, -1);
    }
}

pub fn input(rng: &mut Rng, n_vocab: usize) -> Array {
    let shape = rng.pick(&[
        Shape::Peaked,
        Shape::Flat,
        Shape::Shuffled,
        Shape::Masked,
        Shape::Sorted,
        Shape::TopK,
    ]);
    shape.array(n_vocab, rng)
}

/// Bans candidates, as a bias or a grammar before the trie would: some or all of the tokens that
/// may follow get minus infinity. Sometimes also removes candidates, as another sampler would.
pub fn ban(rng: &mut Rng, naive: &Span, array: &mut Array) {
    let following = naive.following();
    let all = rng.chance(0.5);
    for candidate in &mut array.data {
        if following.contains(&candidate.id) && (all || rng.chance(0.5)) {
            candidate.logit = f32::NEG_INFINITY;
        }
    }
    array.sorted = false;
    if rng.chance(0.3) {
        array.data.retain(|_| rng.chance(0.7));
    }
}

/// Returns a token to accept, usually one that may follow.
pub fn next_token(rng: &mut Rng, naive: &Span, n_vocab: usize) -> i32 {
    let following = naive.following();
    if !following.is_empty() && rng.chance(0.9) {
        return rng.pick(&following);
    }
    rng.below(n_vocab) as i32
}

pub fn quiet() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
}
