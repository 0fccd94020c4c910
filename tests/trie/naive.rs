//! A naive model of a constraint: a list of sequences, without a trie. Also has helpers for the
//! real one.

use std::ffi::CStr;

use crate::support::arrays::{Rng, Shape};
use crate::support::{Array, HostSampler};
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::trie::*;

/// The allowed sequences of one span with their names, as a list.
#[derive(Clone, Debug)]
pub struct Naive {
    pub leaves: Vec<(Vec<i32>, String)>,
    /// The tokens that may follow where a value ends and another continues; if empty, any token
    /// may.
    pub terminators: Vec<i32>,
    /// The tokens accepted since the span began; `None` while idle.
    pub prefix: Option<Vec<i32>>,
    pub leaf: Option<String>,
}

impl Naive {
    pub fn new(leaves: Vec<(Vec<i32>, String)>) -> Self {
        Self {
            leaves,
            terminators: Vec::new(),
            prefix: Some(Vec::new()),
            leaf: None,
        }
    }

    pub fn reset(&mut self, mode: i32) {
        let is_complete = self.prefix.is_none() && self.leaf.is_some();
        if mode & LLAMA_SIEVE_TRIE_RESET_IDLE != 0 && is_complete {
            return;
        }
        self.prefix = Some(Vec::new());
        self.leaf = None;
    }

    /// Returns the name of the value `prefix`.
    pub fn name(&self, prefix: &[i32]) -> Option<String> {
        let names = self.leaves.iter().filter(|(tokens, _)| tokens == prefix);
        names.map(|(_, name)| name.clone()).min()
    }

    pub fn children(&self, prefix: &[i32]) -> Vec<i32> {
        let longer = self
            .leaves
            .iter()
            .filter(|(tokens, _)| tokens.len() > prefix.len());
        let longer = longer.filter(|(tokens, _)| tokens.starts_with(prefix));
        let mut children: Vec<i32> = longer.map(|(tokens, _)| tokens[prefix.len()]).collect();
        children.sort_unstable();
        children.dedup();
        children
    }

    /// Returns the tokens that continue a value, and those that may follow one.
    pub fn known(&self) -> Vec<i32> {
        let Some(prefix) = &self.prefix else {
            return Vec::new();
        };
        let mut known = self.children(prefix);
        if self.name(prefix).is_some() {
            known.extend(&self.terminators);
        }
        known.sort_unstable();
        known.dedup();
        known
    }

    /// Returns the tokens that stay unmasked; `None` means all.
    pub fn allowed(&mut self, input: &Array, greedy: bool) -> Option<Vec<i32>> {
        let prefix = self.prefix.clone()?;
        let children = self.children(&prefix);
        let Some(name) = self.name(&prefix) else {
            return Some(children);
        };
        if !self.terminators.is_empty() {
            return Some(self.known());
        }
        if !greedy {
            return None;
        }
        let best = input
            .data
            .iter()
            .rev()
            .max_by(|a, b| a.logit.total_cmp(&b.logit));
        if best.is_some_and(|best| children.contains(&best.id)) {
            return Some(children);
        }
        self.leaf = Some(name);
        self.prefix = None;
        None
    }

    pub fn accept(&mut self, token: i32) {
        let Some(mut prefix) = self.prefix.take() else {
            return;
        };
        let here = self.name(&prefix);
        if !self.children(&prefix).contains(&token) {
            self.leaf = here.or(self.leaf.take());
            return;
        }
        prefix.push(token);
        if self.children(&prefix).is_empty() {
            self.leaf = self.name(&prefix);
        } else {
            self.prefix = Some(prefix);
        }
    }

    pub fn forced(&self) -> Vec<i32> {
        let mut run = Vec::new();
        let Some(mut prefix) = self.prefix.clone() else {
            return run;
        };
        while self.name(&prefix).is_none() {
            let children = self.children(&prefix);
            let [only] = children[..] else {
                break;
            };
            run.push(only);
            prefix.push(only);
        }
        run
    }
}

pub fn json(descriptors: &[(&str, &Naive)]) -> String {
    let descriptors: Vec<String> = descriptors
        .iter()
        .map(|(path, naive)| {
            let leaves: Vec<String> = naive
                .leaves
                .iter()
                .map(|(tokens, name)| format!("{{\"name\":\"{name}\",\"tokens\":{tokens:?}}}"))
                .collect();
            let leaves = leaves.join(",");
            let terminators = &naive.terminators;
            if terminators.is_empty() {
                return format!("{{\"path\":\"{path}\",\"leaves\":[{leaves}]}}");
            }
            format!("{{\"terminators\":{terminators:?},\"path\":\"{path}\",\"leaves\":[{leaves}]}}")
        })
        .collect();
    format!(
        "{{\"modelId\":\"test\",\"descriptors\":[{}]}}",
        descriptors.join(",")
    )
}

/// Returns sequences with shared prefixes, some of which are prefixes of others, and some of which
/// occur twice.
pub fn random_leaves(rng: &mut Rng, n: usize, n_vocab: usize) -> Vec<(Vec<i32>, String)> {
    let mut leaves: Vec<(Vec<i32>, String)> = Vec::new();
    for i in 0..n {
        let mut tokens = Vec::new();
        if rng.chance(0.6) && !leaves.is_empty() {
            let other = &leaves[rng.below(leaves.len())].0;
            tokens.extend(&other[..rng.below(other.len() + 1)]);
        }
        for _ in 0..rng.below(4) {
            tokens.push(rng.below(n_vocab) as i32);
        }
        if tokens.is_empty() && rng.chance(0.9) {
            tokens.push(rng.below(n_vocab) as i32);
        }
        leaves.push((tokens, format!("n{}", (i * 7919) % 10_007)));
    }
    leaves
}

pub fn without_empty(leaves: &[(Vec<i32>, String)]) -> Vec<(Vec<i32>, String)> {
    let leaves = leaves.iter().filter(|(tokens, _)| !tokens.is_empty());
    leaves.cloned().collect()
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
pub fn check_apply(sampler: &HostSampler, naive: &mut Naive, input: &Array, mode: i32) {
    let greedy = mode & 1 == LLAMA_SIEVE_TRIE_GREEDY;
    let compact = mode & LLAMA_SIEVE_TRIE_COMPACT != 0;
    let mut output = input.clone();
    sampler.apply(&mut output);
    let Some(allowed) = naive.allowed(input, greedy) else {
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

/// Bans candidates as a bias or a grammar before the trie does: some or all of the tokens that may
/// follow get minus infinity. Sometimes also removes some, as another sampler may.
pub fn ban(rng: &mut Rng, naive: &Naive, array: &mut Array) {
    let children = naive.known();
    let all = rng.chance(0.5);
    for candidate in &mut array.data {
        if children.contains(&candidate.id) && (all || rng.chance(0.5)) {
            candidate.logit = f32::NEG_INFINITY;
        }
    }
    array.sorted = false;
    if rng.chance(0.3) {
        array.data.retain(|_| rng.chance(0.7));
    }
}

/// Returns a token to accept, usually one that may follow.
pub fn next_token(rng: &mut Rng, naive: &Naive, n_vocab: usize) -> i32 {
    let known = naive.known();
    if !known.is_empty() && rng.chance(0.9) {
        return rng.pick(&known);
    }
    rng.below(n_vocab) as i32
}

pub fn quiet() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
}
