//! Tests the trie together with other samplers that allow only some tokens, before and after it:
//! the tokens that both allow are left, and banned tokens stay banned. The expected tokens are
//! computed from the texts of the values, the grammar and the bans.

use std::ffi::{CStr, CString};

use crate::naive::*;
use crate::support::{
    Array, HostSampler, Rng, ban_strings, fresh_rng, logit_biases, replay, trained_model,
};
use llama_sieve::ffi::grammar::lazy::llama_sieve_init_grammar_lazy_patterns;
use llama_sieve::ffi::grammar::llama_sieve_init_grammar;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::trie::*;
use vendor_llama_cpp::{Model, sys};

const VALUES: [&str; 5] = [
    " Moses",
    " Aaron",
    " the LORD",
    " the children",
    " the children of Israel",
];
/// A grammar for some of the values, and for a text that is not a value.
const GRAMMAR: &CStr = cr#"root ::= " Moses" | " the " ("LORD" | "children") | " Pharaoh""#;
const IN_BOTH: [&str; 3] = [" Moses", " the LORD", " the children"];

struct World {
    model: Model,
    payload: String,
    tokens: Vec<Vec<i32>>,
}

impl World {
    fn new() -> Self {
        let model = Model::load(trained_model()).expect("the model of the repository");
        let before = model.tokenize("unto", false);
        let behind = |value: &str| {
            let all = model.tokenize(&format!("unto{value}"), false);
            assert!(all.starts_with(&before));
            all[before.len()..].to_vec()
        };
        let tokens: Vec<Vec<i32>> = VALUES.iter().map(|value| behind(value)).collect();
        let leaves = VALUES.map(String::from).into_iter().zip(tokens.clone());
        Self {
            payload: json(&one(leaves.collect())),
            tokens,
            model,
        }
    }

    fn trie(&self, mode: i32) -> HostSampler {
        let trie = slot();
        assert_eq!(set(&trie, self.payload.as_bytes(), mode), 0);
        trie
    }

    /// Returns a grammar, this library's or the built-in one. If lazy, it waits for a pattern or a
    /// token.
    fn grammar(&self, ours: bool, text: &CStr, lazy: Option<(&CStr, &[i32])>) -> HostSampler {
        let vocab = self.model.vocab();
        let (text, root) = (text.as_ptr(), c"root".as_ptr());
        let (pattern, tokens) = lazy.unwrap_or((c"", &[]));
        let n_patterns = usize::from(!pattern.is_empty());
        let mut patterns = [pattern.as_ptr()];
        let triggers = (patterns.as_mut_ptr(), n_patterns);
        let tokens = (tokens.as_ptr(), tokens.len());
        // SAFETY: C strings, arrays of the lengths that are passed, and a vocabulary that outlives
        // the sampler.
        let made = unsafe {
            match (ours, lazy.is_some()) {
                (true, false) => llama_sieve_init_grammar(vocab.cast(), text, root).cast(),
                (true, true) => llama_sieve_init_grammar_lazy_patterns(
                    vocab.cast(),
                    text,
                    root,
                    triggers.0,
                    triggers.1,
                    tokens.0,
                    tokens.1,
                )
                .cast(),
                (false, lazy) => sys::vendor_llama_grammar(
                    vocab, text, root, lazy, triggers.0, triggers.1, tokens.0, tokens.1,
                ),
            }
        };
        HostSampler::new(made)
    }

    /// Returns the value that a chain of a trie and bans writes, or `None` if all tokens that the
    /// trie allows are banned.
    fn write_one(
        &self,
        chain: &HostSampler,
        banned: &[&str],
        mode: i32,
        rng: &mut Rng,
        at: &str,
    ) -> Option<&'static str> {
        let mut prefix: Vec<i32> = Vec::new();
        loop {
            let value = self.tokens.iter().position(|tokens| *tokens == prefix);
            if let Some(value) = value {
                return Some(VALUES[value]);
            }
            let completes = |token: i32| {
                let tokens = prefix.iter().copied().chain([token]);
                let text: Vec<u8> = tokens.flat_map(|token| self.model.piece(token)).collect();
                let text = String::from_utf8(text).expect("ASCII");
                banned.iter().any(|banned| text.contains(banned))
            };
            let children = self.follow(&prefix, &VALUES);
            let mut allowed = children.clone();
            allowed.retain(|&token| !completes(token));
            let mut array = self.logits(rng);
            chain.apply(&mut array);
            let left = left(&array);
            if allowed.is_empty() {
                assert_eq!(left, [] as [i32; 0], "{at}: {prefix:?}");
                // A compact trie leaves only its own tokens, which are all banned.
                let n = array.data.len();
                let is_whole = n == self.model.n_vocab();
                assert!(is_whole || n == children.len(), "{at}: {prefix:?}: {n}");
                return None;
            }
            match mode == MODES[2] {
                true => assert!(left.len() == 1 && allowed.contains(&left[0]), "{at}"),
                false => assert_eq!(left, allowed, "{at}: {prefix:?}"),
            }
            let token = left[rng.below(left.len())];
            chain.accept(token);
            prefix.push(token);
        }
    }

    /// Returns a token that occurs in no value.
    fn unused(&self) -> i32 {
        let used = |token: i32| self.tokens.iter().flatten().any(|&t| t == token);
        let mut all = 0..self.model.n_vocab() as i32;
        all.find(|&token| !used(token))
            .expect("the values do not use all tokens")
    }

    fn logits(&self, rng: &mut Rng) -> Array {
        Array::of_logits((0..self.model.n_vocab()).map(|_| rng.normal() * 3.0))
    }

    /// Returns the tokens with which one of `values` continues after `prefix`.
    fn follow(&self, prefix: &[i32], values: &[&str]) -> Vec<i32> {
        let mut next: Vec<i32> = VALUES
            .iter()
            .zip(&self.tokens)
            .filter(|(value, _)| values.contains(value))
            .filter_map(|(_, tokens)| tokens.strip_prefix(prefix)?.first().copied())
            .collect();
        next.sort_unstable();
        next.dedup();
        next
    }
}

/// Returns the ids of the candidates that are left, ascending.
fn left(array: &Array) -> Vec<i32> {
    let mut ids = array.allowed();
    ids.sort_unstable();
    ids
}

const MODES: [i32; 4] = [
    LLAMA_SIEVE_TRIE_GREEDY,
    LLAMA_SIEVE_TRIE_SAMPLED,
    LLAMA_SIEVE_TRIE_GREEDY | LLAMA_SIEVE_TRIE_COMPACT,
    LLAMA_SIEVE_TRIE_SAMPLED | LLAMA_SIEVE_TRIE_COMPACT,
];

fn chain(first: bool, trie: HostSampler, other: HostSampler) -> HostSampler {
    HostSampler::chain(match first {
        true => vec![other, trie],
        false => vec![trie, other],
    })
}

/// A grammar allows any tokens that spell its texts, the trie only the tokens of its values. At
/// every step the tokens that both allow are left, and a value of both is written.
fn with_a_grammar(world: &World, grammar: impl Fn() -> HostSampler, values: &[&str]) {
    let mut rng = fresh_rng("composition");
    for round in 0..30 {
        for mode in MODES {
            for first in [true, false] {
                // In the greedy compact mode the trie leaves a grammar after it no choice: see the
                // other test.
                if mode == MODES[2] && !first {
                    continue;
                }
                let chain = chain(first, world.trie(mode), grammar());
                let mut prefix: Vec<i32> = Vec::new();
                loop {
                    let at = format!("{}: mode {mode:#x}, {first}, {round}, {prefix:?}", replay());
                    let both = world.follow(&prefix, values);
                    // The text may end where one value ends and another continues.
                    let at_value = VALUES.iter().zip(&world.tokens);
                    let ended = at_value.filter(|(_, tokens)| **tokens == prefix).count() > 0;
                    if both.is_empty() || ended {
                        let written = VALUES.iter().zip(&world.tokens);
                        let value = written.clone().find(|(_, tokens)| **tokens == prefix);
                        let (value, _) = value.unwrap_or_else(|| panic!("{at}: no value"));
                        assert!(values.contains(value), "{at}: {value}");
                        break;
                    }
                    let mut array = world.logits(&mut rng);
                    chain.apply(&mut array);
                    let left = left(&array);
                    assert!(!left.is_empty(), "{at}");
                    if mode & LLAMA_SIEVE_TRIE_COMPACT == 0 || mode == MODES[3] {
                        assert_eq!(left, both, "{at}");
                    }
                    let token = left[rng.below(left.len())];
                    assert!(both.contains(&token), "{at}: {token}");
                    chain.accept(token);
                    prefix.push(token);
                }
            }
        }
    }
}

#[test]
fn with_a_grammar_what_both_let_through_is_left() {
    quiet();
    let world = World::new();
    for ours in [true, false] {
        with_a_grammar(&world, || world.grammar(ours, GRAMMAR, None), &IN_BOTH);
    }
}

/// A lazy grammar that waits allows everything, so only the trie decides.
#[test]
fn beside_a_lazy_grammar_that_waits_the_trie_decides() {
    quiet();
    let world = World::new();
    let unused = world.unused();
    for ours in [true, false] {
        let waits = || world.grammar(ours, GRAMMAR, Some((c"[\\s\\S]*(Pharaoh)", &[unused])));
        with_a_grammar(&world, waits, &VALUES);
    }
}

/// A lazy grammar that was triggered by a word or a token before the span acts like any other
/// grammar.
#[test]
fn with_a_lazy_grammar_that_was_set_off_what_both_let_through_is_left() {
    quiet();
    let world = World::new();
    let word = world.model.tokenize("unto", false);
    let token = *word.last().expect("a word has tokens");
    assert!(world.tokens.iter().flatten().all(|t| !word.contains(t)));
    let piece = String::from_utf8(world.model.piece(token)).expect("ASCII");
    for ours in [true, false] {
        let set_off = |first: &str, lazy: (&CStr, &[i32])| {
            let text = GRAMMAR.to_str().expect("ASCII");
            let text = text.replace("root ::= ", "value ::= ");
            let text = CString::new(format!("root ::= {first:?} value\n{text}")).expect("no NUL");
            let grammar = world.grammar(ours, &text, Some(lazy));
            word.iter().for_each(|&token| grammar.accept(token));
            grammar
        };
        let by_word = || set_off("unto", (c"[\\s\\S]*?(unto)", &[]));
        with_a_grammar(&world, by_word, &IN_BOTH);
        let by_token = || set_off(&piece, (c"", &[token]));
        with_a_grammar(&world, by_token, &IN_BOTH);
    }
}

/// Tests a bias, and a stand-in for a reasoning budget: a sampler that bans some tokens for a
/// while.
#[test]
fn a_ban_stays_one_and_a_bias_counts() {
    quiet();
    let world = World::new();
    let mut rng = fresh_rng("composition");
    let firsts = world.follow(&[], &VALUES);
    assert!(firsts.len() >= 3);
    for round in 0..200 {
        let mut banned: Vec<i32> = firsts.clone();
        banned.retain(|_| rng.chance(0.4));
        let raised = firsts[rng.below(firsts.len())];
        let bans = banned.iter().map(|&token| (token, f32::NEG_INFINITY));
        let biases: Vec<(i32, f32)> = bans.chain([(raised, 2.5), (3, 50.0)]).collect();
        let n_vocab = world.model.n_vocab() as i32;
        for mode in MODES {
            for first in [true, false] {
                for bias in logit_biases(n_vocab, &biases) {
                    let chain = chain(first, world.trie(mode), bias);
                    let input = world.logits(&mut rng);
                    let mut array = input.clone();
                    chain.apply(&mut array);
                    let at = format!("{}: mode {mode:#x}, {first}, {round}", replay());
                    let left = left(&array);
                    // Only tokens of the values are left, whatever the bias raises, and none that
                    // is banned.
                    assert!(left.iter().all(|token| firsts.contains(token)), "{at}");
                    assert!(left.iter().all(|token| !banned.contains(token)), "{at}");
                    assert!(!array.data.is_empty(), "{at}");
                    for candidate in array.data.iter().filter(|c| c.id == raised) {
                        let raw = input.data[raised as usize].logit;
                        let is_banned = banned.contains(&raised);
                        assert!(is_banned || candidate.logit == raw + 2.5, "{at}");
                    }
                }
            }
        }
    }
}

/// A model of a reasoning budget: it allows everything for some tokens, then only the text that
/// ends the thought, and then everything again.
struct Budget {
    left: usize,
    end: Vec<i32>,
}

impl Budget {
    fn apply(&self, array: &mut Array) {
        if let (0, Some(&forced)) = (self.left, self.end.first()) {
            let others = array.data.iter_mut().filter(|c| c.id != forced);
            others.for_each(|candidate| candidate.logit = f32::NEG_INFINITY);
        }
    }

    fn accept(&mut self, token: i32) {
        match self.left {
            0 if self.end.first() == Some(&token) => drop(self.end.remove(0)),
            _ => self.left = self.left.saturating_sub(1),
        }
    }
}

/// Tests a thought that the budget ends, followed by the span. While the slot is idle the budget
/// decides, and after the thought the trie. If both are active, the tokens that both allow are
/// left, or, if there are none, the valid tokens, all banned.
#[test]
fn beside_a_reasoning_budget_what_both_let_through_is_left() {
    quiet();
    let world = World::new();
    let mut rng = fresh_rng("composition");
    let firsts = world.follow(&[], &VALUES);
    let end = world.model.tokenize("</thought>", false);
    assert!(end.len() > 1 && !firsts.contains(&end[0]));
    for mode in MODES {
        for first in [true, false] {
            let apply = |budget: &Budget, trie: &HostSampler, rng: &mut Rng| {
                let mut array = world.logits(rng);
                if first {
                    budget.apply(&mut array);
                }
                trie.apply(&mut array);
                if !first {
                    budget.apply(&mut array);
                }
                array
            };
            let trie = slot();
            let mut budget = Budget {
                left: 5,
                end: end.clone(),
            };
            for i in 0..5 + end.len() {
                let left = left(&apply(&budget, &trie, &mut rng));
                match i {
                    0..5 => assert_eq!(left.len(), world.model.n_vocab()),
                    _ => assert_eq!(left, [end[i - 5]]),
                }
                let token = left[rng.below(left.len())];
                budget.accept(token);
                trie.accept(token);
            }
            assert_eq!(set(&trie, world.payload.as_bytes(), mode), 0);
            let at = format!("{}: mode {mode:#x}, {first}", replay());
            let array = apply(&budget, &trie, &mut rng);
            match mode {
                0x100 => assert!(firsts.contains(&left(&array)[0]), "{at}"),
                _ => assert_eq!(left(&array), firsts, "{at}"),
            }
            // The budget ends within the span, with a token of a value or another one.
            budget.end = vec![firsts[0]];
            let array = apply(&budget, &trie, &mut rng);
            // After a greedy trie, which leaves one candidate, there may be no choice.
            if first || mode != 0x100 {
                assert_eq!(left(&array), [firsts[0]], "{at}");
            }
            budget.end.clone_from(&end);
            let array = apply(&budget, &trie, &mut rng);
            assert_eq!(left(&array), [] as [i32; 0], "{at}");
            assert!(!array.data.is_empty(), "{at}");
            if mode & LLAMA_SIEVE_TRIE_COMPACT != 0 {
                assert!(array.data.iter().all(|c| firsts.contains(&c.id)), "{at}");
            }
        }
    }
}

/// Tests bans before or after the trie: the tokens of the values that complete no banned text are
/// left. If there are none, the array does not become empty, but all of it is masked.
#[test]
fn with_banned_texts_a_value_without_them_is_written() {
    quiet();
    let world = World::new();
    let mut rng = fresh_rng("composition");
    let (mut written, mut dead_ends) = (0, 0);
    for texts in [
        &["the LORD"][..],
        &["ron", "Mos"],
        &["LORD", "ren of Is"],
        &["e childre", "LOR"],
        &[" M", " A", "e L", "ildren"],
        &["Pharaoh"],
    ] {
        for round in 0..10 {
            for mode in MODES {
                for first in [true, false] {
                    // In the greedy compact mode the trie leaves a ban after it no choice.
                    if mode == MODES[2] && !first {
                        continue;
                    }
                    let chain = chain(
                        first,
                        world.trie(mode),
                        ban_strings(world.model.vocab(), texts, 0, None),
                    );
                    let at = format!("{}: mode {mode:#x}, {first}, {round}, {texts:?}", replay());
                    match world.write_one(&chain, texts, mode, &mut rng, &at) {
                        Some(value) => {
                            let has = |text: &&str| value.contains(*text);
                            assert!(!texts.iter().any(has), "{at}: {value}");
                            written += 1;
                        }
                        None => dead_ends += 1,
                    }
                }
            }
        }
    }
    assert!(written > 100 && dead_ends > 50, "{written}, {dead_ends}");
}

/// Tests infill. Before the trie it merges and cuts, and may leave only the end of the text; the
/// remaining choice is still valid, and not empty. After the trie it may end the text, but cannot
/// add anything else.
#[test]
fn beside_infill_nothing_invalid_can_be_chosen() {
    quiet();
    let world = World::new();
    let mut rng = fresh_rng("composition");
    let firsts = world.follow(&[], &VALUES);
    for _ in 0..12 {
        for mode in MODES {
            for built_in in [true, false] {
                for first in [true, false] {
                    // SAFETY: the vocabulary outlives the sampler.
                    let infill = unsafe {
                        let vocab = world.model.vocab();
                        match built_in {
                            true => HostSampler::new(sys::llama_sampler_init_infill(vocab)),
                            false => HostSampler::new(llama_sieve_init_infill(vocab.cast())),
                        }
                    };
                    let chain = chain(first, world.trie(mode), infill);
                    let mut array = world.logits(&mut rng);
                    chain.apply(&mut array);
                    let left = left(&array);
                    let is_valid = |token: &i32| {
                        firsts.contains(token) || (!first && world.model.is_eog(*token))
                    };
                    let at = format!("{}: mode {mode:#x}, {first}, {left:?}", replay());
                    assert!(!left.is_empty() && left.iter().all(is_valid), "{at}");
                }
            }
        }
    }
}

/// Tests a trie that masks before samplers that read all candidates. The samplers that the
/// documentation lists act differently than on the valid tokens alone, and all others act the same.
/// All choose a valid token.
#[test]
fn behind_a_mask_only_some_samplers_do_otherwise() {
    quiet();
    let world = World::new();
    let mut rng = fresh_rng("composition");
    let firsts = world.follow(&[], &VALUES);
    type Make = fn() -> *mut llama_sampler;
    let samplers: [(&str, bool, Make); 12] = [
        ("typical", true, || llama_sieve_init_typical(0.5, 1)),
        ("temp_ext", true, || {
            llama_sieve_init_temp_ext(1.0, 0.9, 1.0)
        }),
        ("mirostat", true, || {
            llama_sieve_init_mirostat(2048, 1, 1.0, 0.1, 100)
        }),
        ("xtc that leaves 3", true, || {
            llama_sieve_init_xtc(1.0, 0.1, 3, 1)
        }),
        ("temp", false, || llama_sieve_init_temp(0.7)),
        ("top_k", false, || llama_sieve_init_top_k(2)),
        ("top_p", false, || llama_sieve_init_top_p(0.7, 1)),
        ("min_p", false, || llama_sieve_init_min_p(0.2, 1)),
        ("top_n_sigma", false, || llama_sieve_init_top_n_sigma(1.0)),
        ("xtc", false, || llama_sieve_init_xtc(1.0, 0.1, 1, 1)),
        ("mirostat_v2", false, || {
            llama_sieve_init_mirostat_v2(1, 1.0, 0.1)
        }),
        ("adaptive_p", false, || {
            llama_sieve_init_adaptive_p(0.3, 0.9, 1)
        }),
    ];
    for (name, does_otherwise, make) in samplers {
        let mut n_different = 0;
        for _ in 0..40 {
            let input = world.logits(&mut rng);
            let [masked, compact] = [0, LLAMA_SIEVE_TRIE_COMPACT].map(|shape| {
                let trie = world.trie(LLAMA_SIEVE_TRIE_SAMPLED | shape);
                let mut members = vec![trie, HostSampler::new(make())];
                if !name.starts_with("mirostat") && name != "adaptive_p" {
                    members.push(HostSampler::new(llama_sieve_init_dist(1)));
                }
                let mut array = input.clone();
                HostSampler::chain(members).apply(&mut array);
                let at = format!("{}: {name}, {shape:#x}", replay());
                let chosen = usize::try_from(array.selected).expect("one is chosen");
                assert!(firsts.contains(&array.data[chosen].id), "{at}");
                let kept = array.data.iter().filter(|c| c.p > 0.0);
                let mut kept: Vec<(i32, u32)> = kept.map(|c| (c.id, c.logit.to_bits())).collect();
                kept.sort_unstable();
                kept
            });
            n_different += usize::from(masked != compact);
        }
        assert_eq!(n_different > 0, does_otherwise, "{}: {name}", replay());
    }
}
