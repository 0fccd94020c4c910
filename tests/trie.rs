//! The token trie against a naive model: random sets of sequences, random walks, every function of
//! the C interface.

mod support;

use std::ffi::{CStr, CString};

use llama_sieve::ffi::library::*;
use llama_sieve::ffi::llama_h::llama_sampler;
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::trie::*;
use llama_sieve::last_error;
use support::arrays::{Rng, Shape};
use support::{Array, HostSampler, trained_model};
use vendor_llama_cpp::{Context, Model};

/// The allowed sequences of one span with their names, as a list.
#[derive(Clone, Debug)]
struct Naive {
    leaves: Vec<(Vec<i32>, String)>,
    /// What may follow where a value ends and another goes on; empty: anything.
    terminators: Vec<i32>,
    /// What was accepted since the span began; `None` while idle.
    prefix: Option<Vec<i32>>,
    leaf: Option<String>,
}

impl Naive {
    fn new(leaves: Vec<(Vec<i32>, String)>) -> Self {
        Self {
            leaves,
            terminators: Vec::new(),
            prefix: Some(Vec::new()),
            leaf: None,
        }
    }

    fn reset(&mut self, mode: i32) {
        let is_complete = self.prefix.is_none() && self.leaf.is_some();
        if mode & LLAMA_SIEVE_TRIE_RESET_IDLE != 0 && is_complete {
            return;
        }
        self.prefix = Some(Vec::new());
        self.leaf = None;
    }

    /// Name of the value that `prefix` is.
    fn name(&self, prefix: &[i32]) -> Option<String> {
        let names = self.leaves.iter().filter(|(tokens, _)| tokens == prefix);
        names.map(|(_, name)| name.clone()).min()
    }

    fn children(&self, prefix: &[i32]) -> Vec<i32> {
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

    /// The tokens that go on, and those that may follow a value.
    fn known(&self) -> Vec<i32> {
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

    /// The tokens that stay unmasked; `None`: all.
    fn allowed(&mut self, input: &Array, greedy: bool) -> Option<Vec<i32>> {
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

    fn accept(&mut self, token: i32) {
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

    fn forced(&self) -> Vec<i32> {
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

fn json(descriptors: &[(&str, &Naive)]) -> String {
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

/// Sequences with shared beginnings, with some that begin others, and with some twice.
fn random_leaves(rng: &mut Rng, n: usize, n_vocab: usize) -> Vec<(Vec<i32>, String)> {
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

fn without_empty(leaves: &[(Vec<i32>, String)]) -> Vec<(Vec<i32>, String)> {
    let leaves = leaves.iter().filter(|(tokens, _)| !tokens.is_empty());
    leaves.cloned().collect()
}

fn slot() -> HostSampler {
    // SAFETY: without a vocabulary nothing is followed.
    HostSampler::new(unsafe { llama_sieve_init_trie_slot(std::ptr::null()) })
}

fn raw(sampler: &HostSampler) -> *mut llama_sampler {
    sampler.as_ptr().cast()
}

fn set(sampler: &HostSampler, json: &[u8], mode: i32) -> i32 {
    // SAFETY: the sampler lives, the length is the text's.
    unsafe { llama_sieve_trie_set(raw(sampler), json.as_ptr().cast(), json.len(), mode) }
}

fn is_active(sampler: &HostSampler) -> bool {
    // SAFETY: the sampler lives.
    unsafe { llama_sieve_trie_is_active(raw(sampler)) }
}

fn leaf(sampler: &HostSampler) -> Option<String> {
    // SAFETY: the sampler lives; the text is copied at once.
    unsafe {
        let leaf = llama_sieve_trie_leaf(raw(sampler));
        (!leaf.is_null()).then(|| CStr::from_ptr(leaf).to_string_lossy().into_owned())
    }
}

fn forced(sampler: &HostSampler) -> Vec<i32> {
    let mut tokens = vec![0; 1000];
    // SAFETY: the sampler lives, there is room for 1000.
    let n = unsafe { llama_sieve_trie_forced(raw(sampler), tokens.as_mut_ptr(), tokens.len()) };
    tokens.truncate(n);
    tokens
}

fn allowed(sampler: &HostSampler) -> Vec<i32> {
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

fn activate(sampler: &HostSampler, path: &CStr) -> i32 {
    // SAFETY: the sampler lives.
    unsafe { llama_sieve_trie_activate(raw(sampler), path.as_ptr()) }
}

/// Compares one `apply` with the model.
fn check_apply(sampler: &HostSampler, naive: &mut Naive, input: &Array, mode: i32) {
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
    let left: Vec<i32> = output
        .data
        .iter()
        .filter(|c| c.logit > f32::NEG_INFINITY)
        .map(|c| c.id)
        .collect();
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
        let chosen = &output.data[output.selected as usize];
        assert_eq!(chosen.id, best.id);
    } else {
        assert_eq!(output.selected, -1);
    }
}

fn input(rng: &mut Rng, n_vocab: usize) -> Array {
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

/// What a bias or a grammar in front leaves: some of the tokens that may follow have minus
/// infinity, or all; sometimes another sampler has cut some as well.
fn ban(rng: &mut Rng, naive: &Naive, array: &mut Array) {
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

/// A token to accept: mostly one that may follow.
fn next_token(rng: &mut Rng, naive: &Naive, n_vocab: usize) -> i32 {
    let known = naive.known();
    if !known.is_empty() && rng.chance(0.9) {
        return rng.pick(&known);
    }
    rng.below(n_vocab) as i32
}

fn quiet() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
}

#[test]
fn random_walks_follow_the_naive_model() {
    quiet();
    let mut rng = Rng(61);
    let modes = [0, 1, 0x100, 0x101, 0x200, 0x201, 0x300, 0x301];
    for round in 0..400 {
        let n_vocab = rng.pick(&[20, 60, 500]);
        let n = if round % 40 == 0 {
            1000
        } else {
            1 + rng.below(40)
        };
        let n = if round == 200 { 5000 } else { n };
        let all = random_leaves(&mut rng, n, n_vocab);
        let mut first = Naive::new(without_empty(&all));
        let mut with_empty = Naive::new(all);
        if rng.chance(0.5) {
            let n = 1 + rng.below(4);
            first.terminators = (0..n).map(|_| rng.below(n_vocab) as i32).collect();
            with_empty.terminators = first.terminators.clone();
        }
        let second = Naive::new(without_empty(&random_leaves(&mut rng, 5, n_vocab)));
        if first.leaves.is_empty() || second.leaves.is_empty() {
            continue;
        }
        let text = json(&[("first", &with_empty), ("second", &second)]);
        let mode = rng.pick(&modes);
        let mut sampler = slot();
        assert!(!is_active(&sampler));
        assert_eq!(set(&sampler, text.as_bytes(), mode), LLAMA_SIEVE_OK);
        let mut naive = first.clone();
        for _ in 0..60 {
            assert_eq!(is_active(&sampler), naive.prefix.is_some());
            assert_eq!(leaf(&sampler), naive.leaf);
            assert_eq!(forced(&sampler), naive.forced());
            assert_eq!(allowed(&sampler), naive.known());
            let mut input = input(&mut rng, n_vocab);
            if rng.chance(0.2) {
                ban(&mut rng, &naive, &mut input);
            }
            check_apply(&sampler, &mut naive, &input, mode);
            let token = next_token(&mut rng, &naive, n_vocab);
            sampler.accept(token);
            naive.accept(token);
            match rng.below(30) {
                0 => {
                    sampler.reset();
                    naive.reset(mode);
                }
                1 => {
                    let copy = sampler.clone();
                    // What happens to the original is none of the copy's business.
                    sampler.accept(rng.below(n_vocab) as i32);
                    sampler = copy;
                }
                2 => {
                    assert_eq!(activate(&sampler, c"second"), LLAMA_SIEVE_OK);
                    naive = second.clone();
                }
                3 => {
                    assert_eq!(set(&sampler, text.as_bytes(), mode), LLAMA_SIEVE_OK);
                    naive = first.clone();
                }
                4 => {
                    let other = slot();
                    other.copy_from(&sampler);
                    sampler.accept(rng.below(n_vocab) as i32);
                    sampler.copy_from(&other);
                }
                5 => {
                    // A wrong payload changes nothing.
                    assert_eq!(set(&sampler, b"{", mode), LLAMA_SIEVE_ERROR_INVALID);
                    assert_eq!(activate(&sampler, c"third"), LLAMA_SIEVE_ERROR_NOT_FOUND);
                    assert!(last_error::get().contains("\"first\", \"second\""));
                }
                _ => {}
            }
        }
    }
}

/// "go" and "go on", after which a full stop (7) or a comma (8) may follow.
fn with_terminators() -> Naive {
    let mut naive = Naive::new(vec![
        (vec![1], "go".into()),
        (vec![1, 2], "go on".into()),
        (vec![3], "stop".into()),
    ]);
    naive.terminators = vec![8, 7, 8];
    naive
}

#[test]
fn terminators_may_follow_a_value_that_begins_another() {
    let payload = json(&[("p", &with_terminators())]);
    for mode in [0, 1, 0x100, 0x101] {
        let sampler = slot();
        assert_eq!(set(&sampler, payload.as_bytes(), mode), LLAMA_SIEVE_OK);
        assert_eq!(allowed(&sampler), [1, 3]);
        sampler.accept(1);
        assert_eq!(allowed(&sampler), [2, 7, 8]);
        assert_eq!(forced(&sampler), [] as [i32; 0]);
        // The favourite is none of them.
        let mut array = Array::of_logits((0..10).map(|i| if i == 7 { 5.5 } else { i as f32 }));
        sampler.apply(&mut array);
        let left = array.data.iter().filter(|c| c.logit > f32::NEG_INFINITY);
        let left: Vec<i32> = left.map(|c| c.id).collect();
        let expected: &[i32] = if mode == 0x100 { &[8] } else { &[2, 7, 8] };
        assert_eq!(left, expected);
        if mode & 1 == LLAMA_SIEVE_TRIE_GREEDY {
            assert_eq!(array.data[array.selected as usize].id, 8);
        }
        assert!(is_active(&sampler));
        sampler.accept(8);
        assert!(!is_active(&sampler));
        assert_eq!(leaf(&sampler).as_deref(), Some("go"));
        assert_eq!(allowed(&sampler), [] as [i32; 0]);
        // Behind a value that begins no other anything may follow.
        sampler.reset();
        sampler.accept(3);
        assert_eq!(leaf(&sampler).as_deref(), Some("stop"));
    }
}

#[test]
fn a_reset_may_leave_a_complete_span_idle() {
    quiet();
    let payload = json(&[("p", &with_terminators())]);
    for (mode, idle) in [(1, false), (0x101, false), (0x201, true), (0x300, true)] {
        let sampler = slot();
        assert_eq!(set(&sampler, payload.as_bytes(), mode), LLAMA_SIEVE_OK);
        // Not complete: it begins anew, from wherever it was.
        for (token, follows) in [(1, true), (4, false)] {
            sampler.accept(token);
            assert_eq!(is_active(&sampler), follows);
            sampler.reset();
            assert!(is_active(&sampler));
            assert_eq!(allowed(&sampler), [1, 3]);
        }
        sampler.accept(3);
        let copy = sampler.clone();
        for sampler in [sampler, copy] {
            sampler.reset();
            assert_eq!(is_active(&sampler), !idle);
            assert_eq!(leaf(&sampler).as_deref(), idle.then_some("stop"));
            assert_eq!(activate(&sampler, c"p"), LLAMA_SIEVE_OK);
            assert!(is_active(&sampler));
        }
    }
}

#[test]
fn a_value_may_be_as_long_as_a_span_and_no_longer() {
    let sampler = slot();
    let value = |n| Naive::new(vec![((0..n).collect(), "long".to_owned())]);
    let longest = json(&[("p", &value(500))]);
    assert_eq!(set(&sampler, longest.as_bytes(), 1), LLAMA_SIEVE_OK);
    let longer = json(&[("p", &value(501))]);
    assert_eq!(
        set(&sampler, longer.as_bytes(), 1),
        LLAMA_SIEVE_ERROR_INVALID
    );
    assert!(
        last_error::get().contains("descriptors[0].leaves[0].tokens: the value has 501 tokens")
    );
    for token in 0..500 {
        assert!(is_active(&sampler));
        assert_eq!(forced(&sampler), (token..500).collect::<Vec<i32>>());
        sampler.accept(token);
    }
    assert!(!is_active(&sampler));
    assert_eq!(leaf(&sampler).as_deref(), Some("long"));
}

/// A payload that was not parsed has not been checked.
#[test]
fn a_span_of_500_tokens_is_closed() {
    use llama_sieve::Sampler;
    use llama_sieve::trie::descriptor::{Descriptor, Leaf, Payload};
    use llama_sieve::trie::{Mode, Slot, Trie, TrieSampler};
    quiet();
    let payload = Payload {
        model_id: String::new(),
        descriptors: vec![Descriptor {
            path: "p".to_owned(),
            leaves: vec![Leaf {
                name: "long".to_owned(),
                tokens: (0..600).collect(),
            }],
            terminators: Vec::new(),
        }],
    };
    let slot = std::sync::Arc::new(Slot::new(None));
    let mode = Mode::from_number(LLAMA_SIEVE_TRIE_SAMPLED).expect("a mode");
    slot.set(std::sync::Arc::new(Trie::new(&payload)), mode);
    let mut sampler = TrieSampler::new(std::sync::Arc::clone(&slot));
    for token in 0..500 {
        assert!(slot.is_active());
        assert_eq!(slot.forced(&mut []), 500 - token as usize);
        sampler.accept(token);
    }
    assert!(!slot.is_active());
    assert_eq!(slot.leaf(), None);
    assert!(last_error::get().contains("500 tokens"));
    sampler.reset();
    assert!(slot.is_active());
}

#[test]
fn an_infinite_logit_of_a_valid_token_wins_alone() {
    let naive = Naive::new(vec![(vec![1], "a".into()), (vec![2], "b".into())]);
    for mode in [0, 1, 0x100, 0x101] {
        let sampler = slot();
        set(&sampler, json(&[("p", &naive)]).as_bytes(), mode);
        let mut array = Array::of_logits([f32::INFINITY, 3.0, f32::INFINITY, 9.0]);
        sampler.apply(&mut array);
        assert_eq!(array.ids(), [2]);
        // NaN cannot win.
        let mut array = Array::of_logits([1.0, 3.0, f32::NAN, 9.0]);
        sampler.apply(&mut array);
        assert_eq!(array.ids(), [1]);
    }
}

/// The choices of the tests on the trained model.
fn choices(model: &Model) -> Naive {
    let names = [
        "Moses",
        "Aaron",
        "David",
        "David the king",
        "Jerusalem",
        "the LORD",
        "the land of Egypt",
    ];
    let leaves = names.iter().map(|name| {
        (
            model.tokenize(&format!(" {name}"), false),
            (*name).to_owned(),
        )
    });
    Naive::new(leaves.collect())
}

/// Filters of the first nine in random order, then dist.
fn random_tail(rng: &mut Rng, n_vocab: i32) -> Vec<HostSampler> {
    let mut tail = vec![HostSampler::new(llama_sieve_init_temp(2.0))];
    for _ in 0..rng.below(5) {
        tail.push(HostSampler::new(match rng.below(8) {
            0 => llama_sieve_init_top_k(1 + rng.below(50) as i32),
            1 => llama_sieve_init_top_p(rng.range(0.0, 1.0), 1),
            2 => llama_sieve_init_min_p(rng.range(0.0, 0.5), rng.below(3)),
            3 => llama_sieve_init_typical(rng.range(0.0, 1.0), rng.below(3)),
            4 => llama_sieve_init_temp(rng.range(0.0, 3.0)),
            5 => llama_sieve_init_top_n_sigma(rng.range(0.0, 2.0)),
            6 => llama_sieve_init_penalties(
                n_vocab,
                64,
                rng.range(1.0, 2.0),
                rng.range(-1.0, 1.0),
                0.5,
            ),
            _ => llama_sieve_init_greedy(),
        }));
    }
    tail.push(HostSampler::new(llama_sieve_init_dist(rng.next() as u32)));
    tail
}

#[test]
fn a_thousand_generations_always_give_a_choice() {
    quiet();
    let model = Model::load(trained_model()).expect("the model loads");
    let n_vocab = model.n_vocab() as i32;
    let choices = choices(&model);
    let payload = CString::new(json(&[("person", &choices)])).expect("no NUL");
    let prompt = model.tokenize("And the LORD said unto", true);
    let mut context = Context::new(&model, 64, 1).expect("a context");
    let mut rng = Rng(62);
    let mut seen = std::collections::HashSet::new();
    for round in 0..1000 {
        let mode = rng.pick(&[
            LLAMA_SIEVE_TRIE_SAMPLED,
            LLAMA_SIEVE_TRIE_SAMPLED | LLAMA_SIEVE_TRIE_COMPACT,
        ]);
        // SAFETY: the vocabulary lives, the payload is a C string.
        let trie =
            unsafe { llama_sampler_init_token_trie(model.vocab().cast(), payload.as_ptr(), mode) };
        let chain = HostSampler::chain(vec![HostSampler::new(trie)]);
        random_tail(&mut rng, n_vocab)
            .into_iter()
            .for_each(|member| chain.add(member));
        context.clear();
        context.decode(&prompt).expect("the prompt fits");
        let mut text = Vec::new();
        loop {
            let token = chain.sample(context.as_ptr());
            // SAFETY: the trie is a member of the living chain.
            let active = unsafe { llama_sieve_trie_is_active(trie) };
            // A value that begins another ends with the token that does not go on.
            let ended = !active && choices.leaves.iter().any(|(tokens, _)| *tokens == text);
            if !ended {
                text.push(token);
            }
            if !active {
                break;
            }
            context.decode(&[token]).expect("there is room");
        }
        let name = choices.name(&text);
        let name = name.unwrap_or_else(|| panic!("round {round}: {text:?} is no choice"));
        // SAFETY: as above.
        let leaf = unsafe { CStr::from_ptr(llama_sieve_trie_leaf(trie)) };
        assert_eq!(leaf.to_str(), Ok(name.as_str()));
        seen.insert(name);
    }
    assert!(seen.len() >= 5, "only {seen:?}");
}

#[test]
fn every_bad_payload_has_an_answer() {
    let naive = Naive::new(vec![(vec![1, 2], "a".into()), (vec![3], "b".into())]);
    let good = json(&[("p", &naive)]);
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
        // The constraint is where it was.
        assert_eq!(forced(&sampler), [2]);
    }
    for mode in [2, -1, 0x102, 0x202, 0x400, i32::MAX, i32::MIN] {
        assert_eq!(
            set(&sampler, good.as_bytes(), mode),
            LLAMA_SIEVE_ERROR_INVALID
        );
        assert!(last_error::get().contains("mode"));
    }
    let names: Vec<(Vec<i32>, String)> = (0..200_000)
        .map(|i| (vec![i % 1000, i / 1000], format!("value number {i}")))
        .collect();
    let large = json(&[("p", &Naive::new(names))]);
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
        // The empty array of an unconstrained slot, and of a constrained one, which has no room for
        // anything.
        let naive = Naive::new(vec![(vec![1], "a".into()), (vec![2], "b".into())]);
        for _ in 0..2 {
            let mut array = Array::of_logits([]);
            slot.apply(&mut array);
            assert!(array.data.is_empty());
            set(&slot, json(&[("p", &naive)]).as_bytes(), 0);
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
    let naive = Naive::new(random_leaves(&mut rng, 5000, 30_000));
    let payload =
        Payload::parse(json(&[("p", &naive)]).as_bytes(), None).expect("the payload is good");
    let trie = Trie::new(&payload);
    let names: usize = naive.leaves.iter().map(|(_, name)| name.len() + 16).sum();
    let per_node = (trie.bytes() - names.min(trie.bytes())) as f64 / trie.n_nodes() as f64;
    println!(
        "{} nodes, {} bytes, {per_node:.1} bytes per node besides names",
        trie.n_nodes(),
        trie.bytes()
    );
    assert!(trie.bytes() <= 24 * trie.n_nodes() + names);
}
