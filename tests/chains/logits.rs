//! Compares chains that run straight from the logits with the same chains of built-ins on the full
//! array that a host fills: the token, and the candidates that the chain leaves, bit for bit.
//!
//! The chains are random: of this library's samplers, mixed with built-ins, with grammars, with the
//! token trie in front, or nested. The logits have every shape, three precisions, and many ties.
//! Runs 400 chains of 50 steps; LLAMA_SIEVE_TEST_CHAINS sets another number.

use std::ffi::CString;

use crate::support::arrays::{Array, ODD_SIZES, Recipe, Rng, odd_logits};
use crate::support::compare::same;
use crate::support::family::{FAMILY, Member, vocabulary};
use crate::support::span::{json, one};
use crate::support::straight::{Straight, left_by_built_ins};
use crate::support::{Grid, HostSampler, fresh_rng, logit_biases, number_from_env, replay};
use llama_sieve::ffi::chain::*;
use llama_sieve::ffi::grammar::llama_sieve_init_grammar;
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::trie::*;
use vendor_llama_cpp::sys;

const STEPS: usize = 50;

/// Two chains with equal parameters: one that is sampled straight from the logits, and one of
/// built-ins, as far as these exist.
struct Chains {
    label: String,
    ours: HostSampler,
    theirs: HostSampler,
    n: usize,
}

/// Returns the size of the vocabulary that grammars use.
fn n_of_vocabulary() -> usize {
    // SAFETY: the vocabulary lives as long as the process.
    unsafe { sys::llama_vocab_n_tokens(vocabulary()) as usize }
}

/// Grammars that at first allow most tokens, some tokens, or fewer than a top-k keeps.
const GRAMMARS: [&str; 5] = [
    "root ::= [a-zA-Z ,.;:]* \"\\n\"?",
    "root ::= [^a-z] .*",
    "root ::= \" \"? [a-m]{1,3}",
    "root ::= \"the \" | \"and\" | [;:]",
    "root ::= \"Q\"",
];

/// Returns a grammar for the mixed chain, from this library or built-in, and the built-in one.
fn grammar(rng: &mut Rng) -> (HostSampler, HostSampler) {
    let text = CString::new(rng.pick(&GRAMMARS)).expect("no NUL");
    let (text, root, vocab) = (text.as_ptr(), c"root".as_ptr(), vocabulary());
    // SAFETY: the vocabulary lives as long as the process; the strings during the call.
    let built_in =
        || HostSampler::new(unsafe { sys::llama_sampler_init_grammar(vocab, text, root) });
    if rng.chance(0.2) {
        return (built_in(), built_in());
    }
    // SAFETY: as above.
    let ours = unsafe { llama_sieve_init_grammar(vocab.cast(), text, root) };
    (HostSampler::new(ours), built_in())
}

fn trie(n: usize, mode: i32, rng: &mut Rng) -> HostSampler {
    let n_leaves = 1 + rng.below(40);
    let leaf = |i| {
        let length = 1 + rng.below(60);
        let tokens = (0..length).map(|_| rng.below(n) as i32).collect();
        (format!("n{i}"), tokens)
    };
    let leaves = (0..n_leaves).map(leaf).collect();
    let json = CString::new(json(&one(leaves))).expect("no NUL");
    // SAFETY: no vocabulary, and a string that lives during the call.
    HostSampler::new(unsafe {
        llama_sampler_init_token_trie(std::ptr::null(), json.as_ptr(), mode)
    })
}

impl Chains {
    /// Returns chains without members.
    fn empty(n: usize) -> Self {
        Self {
            label: format!("n {n}"),
            ours: HostSampler::chain(vec![]),
            theirs: HostSampler::chain(vec![]),
            n,
        }
    }

    fn new(rng: &mut Rng) -> Self {
        let with_grammar = rng.chance(0.1);
        let n = match rng.below(12) {
            _ if with_grammar => n_of_vocabulary(),
            0..=4 => 1 + rng.below(300),
            5..=7 => 300 + rng.below(3700),
            8..=10 => 4000 + rng.below(8000),
            _ => 12_000 + rng.below(60_000),
        };
        let mut chains = Self::empty(n);
        if with_grammar {
            // After a member that edits some logits, or changes all of them.
            if rng.chance(0.4) {
                chains.add(
                    Some(rng.pick(&["penalties", "logit_bias", "temp"])),
                    1.0,
                    rng,
                );
            }
            let (ours, theirs) = grammar(rng);
            chains.add_both(ours, theirs, "grammar");
        }
        if rng.chance(0.08) {
            let compact = if rng.chance(0.5) {
                LLAMA_SIEVE_TRIE_COMPACT
            } else {
                0
            };
            let mode = rng.pick(&[LLAMA_SIEVE_TRIE_GREEDY, LLAMA_SIEVE_TRIE_SAMPLED]) | compact;
            let same = rng.clone();
            let mut again = same.clone();
            let pair = (trie(n, mode, rng), trie(n, mode, &mut again));
            chains.add_both(pair.0, pair.1, "trie");
        }
        let share = rng.pick(&[1.0, 1.0, 0.7, 0.3]);
        for _ in 0..rng.below(7) {
            chains.add(None, share, rng);
        }
        if rng.chance(0.95) {
            let selector = rng.pick(&["dist", "dist", "greedy", "mirostat_v2", "adaptive_p"]);
            chains.add(Some(selector), share, rng);
        }
        chains
    }

    /// Returns a chain of a few of this library's members, each of which reads the whole
    /// vocabulary, so that work that one defers must be done when the next reads.
    fn of_whole(rng: &mut Rng) -> Self {
        let n = 4000 + rng.below(30_000);
        let mut chains = Self::empty(n);
        let first = ["penalties", "logit_bias", "temp", "greedy"];
        let whole = ["xtc", "temp_ext", "top_n_sigma", "top_p", "top_p"];
        let behind = ["temp", "temp", "xtc", "temp_ext", "min_p", "penalties"];
        if rng.chance(0.4) {
            chains.add(Some(rng.pick(&first)), 1.0, rng);
        }
        chains.add(Some(rng.pick(&whole)), 1.0, rng);
        if rng.chance(0.5) {
            chains.add(Some(rng.pick(&behind)), 1.0, rng);
        }
        let selector = rng.pick(&["dist", "dist", "dist", "adaptive_p", "greedy"]);
        chains.add(Some(selector), 1.0, rng);
        if rng.chance(0.1) {
            // A member that reads the candidates after a choice.
            chains.add(Some(rng.pick(&["temp", "top_k", "dist"])), 0.5, rng);
        }
        chains
    }

    fn add_both(&mut self, ours: HostSampler, theirs: HostSampler, label: &str) {
        self.label += &format!("\n  {label}");
        self.ours.add(ours);
        self.theirs.add(theirs);
    }

    fn add(&mut self, name: Option<&str>, share: f64, rng: &mut Rng) {
        let fits = |member: &&Member| match name {
            Some(name) => member.name == name,
            // Not infill, which compares all pairs, nor a built-in that aborts unless tokens are
            // accepted.
            None => member.name != "infill" && !member.accept_always,
        };
        let members: Vec<_> = FAMILY.iter().filter(fits).collect();
        let member = members[rng.below(members.len())];
        let mut same_parameters = rng.clone();
        let pair = (member.make)(rng, self.n as i32, false);
        let again = (member.make)(&mut same_parameters, self.n as i32, false);
        let ours = rng.chance(share);
        let mark = if ours { "ours" } else { "built-in" };
        let label = format!("{mark}: {}", pair.label);
        let chosen = if ours { pair.ours } else { again.theirs };
        // A nested chain does what its members do.
        match rng.chance(0.05) {
            true => self.add_both(HostSampler::chain(vec![chosen]), pair.theirs, &label),
            false => self.add_both(chosen, pair.theirs, &label),
        }
    }

    fn between_tokens(&mut self, rng: &mut Rng) {
        if rng.chance(0.02) {
            self.ours.reset();
            self.theirs.reset();
        }
        if rng.chance(0.03) {
            self.ours = self.ours.clone();
            self.theirs = self.theirs.clone();
        }
    }

    /// Samples and compares one token. Returns `Ok(false)` if the built-ins' behaviour is
    /// undefined, after which the states differ.
    fn step(&self, rng: &mut Rng) -> Result<bool, String> {
        let recipe = Recipe::random(rng);
        let mut array = recipe.array(self.n, self.n, rng);
        array.data.truncate(self.n);
        let logits = array.logits();
        let Some(expected) = left_by_built_ins(&self.theirs, &logits) else {
            return Ok(false);
        };
        let before = logits.clone();
        // By one of the functions for logits of this precision.
        let grid = match rng.chance(0.5) {
            true => recipe.grid,
            false => Grid::F32,
        };
        let straight = Straight::new(&logits, grid);
        let token = straight.sample(&self.ours);
        let untouched = before
            .iter()
            .zip(&logits)
            .all(|(a, b)| a.to_bits() == b.to_bits());
        if !untouched {
            return Err(format!("{recipe:?}: the logits were written to"));
        }
        let selected = usize::try_from(expected.selected).ok();
        let selected = selected.and_then(|i| expected.data.get(i));
        // A banned token does not count as chosen.
        let chosen = selected.filter(|_| !expected.selects_none());
        let chosen = chosen.map(|c| c.id);
        let wanted = match chosen {
            Some(token) => token,
            None if selected.is_some() || expected.data.is_empty() => {
                LLAMA_SIEVE_ERROR_NO_CANDIDATE
            }
            None => LLAMA_SIEVE_ERROR_INVALID,
        };
        if token != wanted {
            return Err(format!("{recipe:?}: {token}, not {wanted}"));
        }
        if chosen.is_some() {
            let left = straight.left(&self.ours, &expected);
            same(&left, &expected).map_err(|difference| format!("{recipe:?}: {difference}"))?;
        }
        let forced = rng.below(self.n) as i32;
        let accepted = chosen.filter(|_| rng.chance(0.9)).unwrap_or(forced);
        if !self.label.contains("grammar") {
            self.ours.accept(accepted);
            self.theirs.accept(accepted);
        }
        Ok(true)
    }
}

/// Compares `count` chains step by step. Returns the number of steps that were compared.
fn run(name: &str, count: usize, make: fn(&mut Rng) -> Chains) -> usize {
    let mut rng = fresh_rng(name);
    let mut compared = 0;
    for i in 0..count {
        let mut chains = make(&mut rng);
        for step in 0..STEPS {
            chains.between_tokens(&mut rng);
            match chains.step(&mut rng) {
                Ok(true) => compared += 1,
                Ok(false) => break,
                Err(difference) => {
                    let label = &chains.label;
                    panic!(
                        "{}, {name}, chain {i}, step {step}: {difference}, {label}",
                        replay()
                    );
                }
            }
        }
    }
    compared
}

#[test]
fn chains_from_logits_are_those_of_built_ins() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    let count = number_from_env("LLAMA_SIEVE_TEST_CHAINS", 400);
    let workers = ["logits of the first", "logits of the second"];
    let each = count.div_ceil(workers.len());
    let threads = workers.map(|name| std::thread::spawn(move || run(name, each, Chains::new)));
    let steps: usize = threads
        .map(|t| t.join().expect("no difference"))
        .iter()
        .sum();
    println!("{steps} steps");
    assert!(
        steps > count * STEPS / 2,
        "only {steps} steps were compared"
    );
}

#[test]
fn what_is_put_off_is_what_built_ins_do() {
    let count = number_from_env("LLAMA_SIEVE_TEST_CHAINS", 400) / 4;
    let steps = run("what is put off", count, Chains::of_whole);
    assert!(
        steps > count * STEPS / 3,
        "only {steps} steps were compared"
    );
}

/// Returns the token or error that each sampling function returns for a chain.
fn samples_of(chain: &HostSampler, logits: &[f32]) -> Vec<i32> {
    let (handle, n) = (chain.as_ptr().cast(), logits.len() as i32);
    let mut out = [7];
    // SAFETY: a live chain and `n` logits; room for one token.
    unsafe {
        let rows = [logits.as_ptr()];
        let code = llama_sieve_chain_sample_batch(
            [handle].as_ptr(),
            rows.as_ptr(),
            n,
            1,
            out.as_mut_ptr(),
            2,
        );
        assert_eq!(code, out[0].min(0));
    }
    let mut samples: Vec<i32> = [Grid::F32, Grid::F16, Grid::Bf16]
        .map(|grid| Straight::new(logits, grid).sample(chain))
        .into();
    samples.push(out[0]);
    samples
}

/// The members of the table that select a token.
const SELECTORS: [&str; 5] = ["dist", "greedy", "mirostat", "mirostat_v2", "adaptive_p"];

/// In any chain, of this library's samplers or of built-ins, a candidate with minus infinity does
/// not count.
#[test]
fn where_every_candidate_is_banned_there_is_no_token() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    let mut rng = fresh_rng("banned");
    let none = vec![LLAMA_SIEVE_ERROR_NO_CANDIDATE; 4];
    for case in 0..300 {
        let n = 2 + rng.below(300);
        let share = rng.pick(&[0.0, 0.5, 1.0]);
        let mut chains = Chains::empty(n);
        for _ in 0..rng.below(4) {
            let filters = [
                "temp",
                "top_k",
                "min_p",
                "penalties",
                "top_p",
                "typical",
                "xtc",
            ];
            chains.add(Some(rng.pick(&filters)), share, &mut rng);
        }
        let selector = rng.pick(&SELECTORS);
        chains.add(Some(selector), share, &mut rng);
        let mut logits = vec![f32::NEG_INFINITY; n];
        let what = || format!("{}, case {case}, n {n}, {}", replay(), chains.label);
        assert_eq!(samples_of(&chains.ours, &logits), none, "{}", what());
        if share == 1.0 {
            // NaN counts as minus infinity, but not to built-ins.
            logits.iter_mut().step_by(2).for_each(|x| *x = f32::NAN);
            assert_eq!(samples_of(&chains.ours, &logits), none, "{}", what());
        }
    }
}

/// Even if there are infinities, logits with NaN give the same token and candidates as with minus
/// infinity in place of NaN, and the logit of the token is never NaN.
#[test]
fn nan_is_minus_infinity_also_beside_infinite_logits() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    let mut rng = fresh_rng("NaN of a chain");
    let (mut tokens, mut none) = (0, 0);
    for case in 0..1500 {
        let n = rng.pick(&ODD_SIZES);
        let chain = HostSampler::chain(vec![]);
        let mut label = String::new();
        let selector = rng.pick(&SELECTORS);
        let names: Vec<&str> = FAMILY.iter().map(|member| member.name).collect();
        let filters: Vec<&str> = names
            .into_iter()
            .filter(|name| !SELECTORS.contains(name) && *name != "infill")
            .collect();
        let mut members: Vec<&str> = (0..rng.below(4)).map(|_| rng.pick(&filters)).collect();
        members.push(selector);
        for name in members {
            let pair = (Member::named(name).make)(&mut rng, n as i32, false);
            label += &format!("\n{}", pair.label);
            chain.add(pair.ours);
        }
        // Numbers that are the same in each precision.
        let [with, without] = odd_logits(n, 24.0, &mut rng);
        let what = || format!("{}, case {case}, n {n}, {label}", replay());
        let (one, other) = (chain.clone(), chain.clone());
        let ours = samples_of(&one, &with);
        assert_eq!(ours, samples_of(&other, &without), "{}", what());
        for &token in ours.iter().filter(|&&token| token >= 0) {
            assert!(!with[token as usize].is_nan(), "{}", what());
        }
        let (one, other) = (chain.clone(), chain.clone());
        let left = [(&one, &with), (&other, &without)].map(|(chain, logits)| {
            let straight = Straight::new(logits, Grid::F32);
            straight.sample(chain);
            straight.left(chain, &Array::of_logits([]))
        });
        assert_eq!(same(&left[0], &left[1]), Ok(()), "{}", what());
        tokens += ours.iter().filter(|&&token| token >= 0).count();
        none += ours.iter().filter(|&&token| token < 0).count();
    }
    assert!(tokens > 1000 && none > 300, "{tokens} tokens, {none} none");
}

/// After top-k the array is marked as sorted, even if a grammar or a bias then bans the first
/// candidate. Built-ins may then choose a banned one, and there is no token. Otherwise the token is
/// the one that they choose.
#[test]
fn where_a_banned_candidate_is_chosen_there_is_no_token() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    let mut rng = fresh_rng("banned behind a sort");
    let n = n_of_vocabulary();
    let (mut none, mut some) = (0, 0);
    for case in 0..150 {
        let mut chains = Chains::empty(n);
        let share = rng.pick(&[1.0, 1.0, 0.5, 0.0]);
        // Numbers with few digits, which are the same in each precision.
        let mut logits = vec![-24.0; n];
        let few: Vec<usize> = (0..5).map(|_| rng.below(n)).collect();
        few.iter()
            .for_each(|&token| logits[token] = rng.below(16) as f32 / 2.0);
        let largest = (0..n).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        let largest = largest.expect("there are tokens") as i32;
        // SAFETY: constructors that copy their arguments.
        unsafe {
            let top_k = || HostSampler::new(sys::llama_sampler_init_top_k(3));
            chains.add_both(top_k(), top_k(), "top_k");
            match rng.chance(0.5) {
                true => {
                    let (ours, theirs) = grammar(&mut rng);
                    chains.add_both(ours, theirs, "grammar");
                }
                false => {
                    let [_, ban] = logit_biases(n as i32, &[(largest, f32::NEG_INFINITY)]);
                    chains.add_both(ban.clone(), ban, "bias");
                }
            }
        }
        let selector = rng.pick(&["dist", "greedy", "mirostat_v2", "adaptive_p"]);
        chains.add(Some(selector), share, &mut rng);
        let what = || format!("{}, case {case}, {}", replay(), chains.label);
        // The built-in's generator gives the same draws.
        let wanted: Vec<i32> = (0..4)
            .map(|_| {
                let mut array = Array::of_logits(logits.iter().copied());
                chains.theirs.apply(&mut array);
                match array.selects_none() {
                    true => LLAMA_SIEVE_ERROR_NO_CANDIDATE,
                    false => array.chosen().id,
                }
            })
            .collect();
        let mut ours = samples_of(&chains.ours, &logits);
        // The batch was sampled first, but is the last in the list.
        ours.rotate_right(1);
        assert_eq!(ours, wanted, "{}", what());
        let without = |tokens: &[i32]| tokens.iter().filter(|&&t| t < 0).count();
        none += without(&wanted);
        some += wanted.len() - without(&wanted);
    }
    assert!(
        none >= 50 && some >= 50,
        "{none} without a token, {some} with"
    );
}
