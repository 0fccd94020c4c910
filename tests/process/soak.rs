//! A soak test: 8 threads generate on the trained model with random chains and constraints that
//! change at random. A chain of this library's samplers and a chain of built-ins sample from the
//! same logits, some of which are rounded as those of a model in half precision are.
//!
//! At every token both sides must leave the same candidates and choose the same token, which a
//! naive model of the constraint must allow. Each thread makes 20 chains, unless
//! LLAMA_SIEVE_SOAK_SECONDS sets a duration. In a run of two minutes or more, the resident set must
//! grow by less than 2 % after the first tenth of the run, or after the first minute in a run of
//! more than ten.

use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::arrays::Rng;
use crate::support::compare::same;
use crate::support::family::{FAMILY, Member};
use crate::support::span::{Span, json, one};
use crate::support::{Grid, HostSampler, alone, fresh_rng, number_from_env, replay, trained_model};
use llama_sieve::ffi::library::LLAMA_SIEVE_OK;
use llama_sieve::ffi::trie::*;
use llama_sieve::sieve::{Params, Sieve};
use vendor_llama_cpp::{Context, Model, sys};

const THREADS: u64 = 8;
const N_CTX: u32 = 192;
/// The number of chains that a thread makes if no duration is set.
const CHAINS: usize = 20;
/// The shortest run whose memory is checked: a shorter one ends while its allocators still warm up.
const JUDGED_FROM: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
struct Counters {
    /// Chains that ended because the built-ins' behaviour is undefined.
    undefined: AtomicU64,
    tokens: AtomicU64,
    chains: AtomicU64,
    constraints: AtomicU64,
    constrained_tokens: AtomicU64,
    completed: AtomicU64,
    /// Masked tokens that were chosen nevertheless.
    masked: AtomicU64,
}

/// Returns sequences of equal length, so that none is a prefix of another.
fn sequences(rng: &mut Rng, n_vocab: usize) -> Vec<Vec<i32>> {
    let length = 1 + rng.below(4);
    // Few different tokens, so that sequences share beginnings.
    let tokens: Vec<i32> = (0..2 + rng.below(20))
        .map(|_| rng.below(n_vocab) as i32)
        .collect();
    let mut sequences: Vec<Vec<i32>> = (0..1 + rng.below(30))
        .map(|_| (0..length).map(|_| rng.pick(&tokens)).collect())
        .collect();
    sequences.sort();
    sequences.dedup();
    sequences
}

/// Equal chains on both sides, each with a slot for a constraint in front.
struct Chains {
    label: String,
    sides: [HostSampler; 2],
    /// Pointers into the chains, which own the slots.
    slots: [*mut sys::llama_sampler; 2],
    /// The naive model of the constraint.
    span: Option<Span>,
    constrained: bool,
    /// True if a member may choose a masked token, on both sides alike.
    may_choose_masked: bool,
    /// True if the constraint masks candidates, false if it removes them.
    masks: bool,
    /// The precision that the logits are rounded to.
    grid: Grid,
}

impl Chains {
    fn new(rng: &mut Rng, model: &Model) -> Self {
        let n_vocab = model.n_vocab() as i32;
        // SAFETY: the vocabulary lives.
        let slot = || HostSampler::new(unsafe { llama_sieve_init_trie_slot(model.vocab().cast()) });
        let slots = [slot(), slot()];
        let mut chains = Self {
            label: String::new(),
            slots: [slots[0].as_ptr(), slots[1].as_ptr()],
            sides: slots.map(|slot| HostSampler::chain(vec![slot])),
            span: None,
            constrained: rng.chance(0.6),
            may_choose_masked: false,
            masks: false,
            grid: rng.pick(&Grid::ALL),
        };
        for _ in 0..rng.below(7) {
            chains.add_random(rng, n_vocab);
        }
        // A selector at the end, whatever precedes it.
        chains.add("dist", rng, n_vocab);
        chains
    }

    fn add_random(&mut self, rng: &mut Rng, n_vocab: i32) {
        let name = FAMILY[rng.below(FAMILY.len())].name;
        if self.allows_member(name) {
            self.add(name, rng, n_vocab);
        }
    }

    /// False for infill, which compares all pairs of a vocabulary and takes too long, and, in a
    /// constrained chain, for a bias, which may forbid all that a constraint allows.
    fn allows_member(&self, name: &str) -> bool {
        match name {
            "infill" => false,
            "logit_bias" => !self.constrained,
            _ => true,
        }
    }

    fn add(&mut self, name: &str, rng: &mut Rng, n_vocab: i32) {
        let pair = (Member::named(name).make)(rng, n_vocab, false);
        self.label += &format!("\n  {}", pair.label);
        self.may_choose_masked |= matches!(name, "typical" | "xtc" | "mirostat" | "adaptive_p");
        self.sides[0].add(pair.ours);
        self.sides[1].add(pair.theirs);
    }

    /// Sets another constraint, or none, on both sides.
    fn change_constraint(&mut self, rng: &mut Rng, n_vocab: usize, counters: &Counters) {
        if !self.constrained {
            return;
        }
        counters.constraints.fetch_add(1, Relaxed);
        if rng.chance(0.2) {
            self.span = None;
            for slot in self.slots {
                // SAFETY: the chains live, and with them their slots.
                unsafe { llama_sieve_trie_clear(slot.cast()) };
            }
            return;
        }
        let sequences = sequences(rng, n_vocab).into_iter().enumerate();
        let descriptors = one(sequences
            .map(|(i, tokens)| (format!("v{i}"), tokens))
            .collect());
        let json = json(&descriptors);
        self.span = Some(Span::new(&descriptors));
        self.masks = rng.chance(0.5);
        let compact = match self.masks {
            true => 0,
            false => LLAMA_SIEVE_TRIE_COMPACT,
        };
        for slot in self.slots {
            let (data, mode) = (
                json.as_ptr().cast::<c_char>(),
                LLAMA_SIEVE_TRIE_SAMPLED | compact,
            );
            // SAFETY: the slot lives; the length is the text's.
            let answer = unsafe { llama_sieve_trie_set(slot.cast(), data, json.len(), mode) };
            assert_eq!(answer, LLAMA_SIEVE_OK, "{}", llama_sieve::last_error::get());
        }
    }

    /// Returns the token of both sides, and true if they drew it from probabilities that are NaN:
    /// two dynamic temperatures in a row may divide by a number so small that a logit becomes
    /// infinite.
    ///
    /// Returns `None` if the built-ins have made a logit NaN, as adaptive-p does with such
    /// probabilities. Later members are then undefined (docs/exactness.md), and the chain ends.
    fn sample_both(&self, context: &Context) -> Option<(i32, bool)> {
        let sample = |side: usize| self.sides[side].sample_from(context.logits(), self.grid);
        let [(token, array), (_, expected)] = [0, 1].map(sample);
        if expected.data.iter().any(|c| c.logit.is_nan()) {
            return None;
        }
        let what = || format!("{}, {:?}:{}", replay(), self.grid, self.label);
        assert_eq!(same(&array, &expected), Ok(()), "{}", what());
        Some((token, array.chosen().p.is_nan()))
    }

    fn sample(&mut self, context: &Context, counters: &Counters) -> Option<i32> {
        let (ours, is_nan) = self.sample_both(context)?;
        let following = self.span.as_ref().map_or(Vec::new(), Span::following);
        let allowed = following.is_empty() || following.contains(&ours);
        assert!(
            allowed || (self.masks && (self.may_choose_masked || is_nan)),
            "token {ours} is forbidden:{}",
            self.label
        );
        counters.tokens.fetch_add(1, Relaxed);
        // At a token that is not allowed the trie becomes idle, on both sides.
        counters.masked.fetch_add(u64::from(!allowed), Relaxed);
        let constrained = allowed && !following.is_empty();
        counters
            .constrained_tokens
            .fetch_add(u64::from(constrained), Relaxed);
        if let Some(span) = &mut self.span {
            span.accept(ours);
        }
        let is_active = self.span.as_ref().is_some_and(Span::is_active);
        let completed = constrained && !is_active;
        counters.completed.fetch_add(u64::from(completed), Relaxed);
        // SAFETY: the slot lives.
        let active = unsafe { llama_sieve_trie_is_active(self.slots[0].cast()) };
        assert_eq!(active, is_active, "{}", self.label);
        Some(ours)
    }
}

/// Makes and checks chains until `end`, or [`CHAINS`] of them if there is none.
fn work(model: &Model, thread: u64, end: Option<Instant>, counters: &Counters) {
    let mut rng = fresh_rng(&format!("thread {thread} of the soak"));
    let n_vocab = model.n_vocab();
    let mut context = Context::new(model, N_CTX, 1).expect("a context");
    let mut sieve = Sieve::new(&Params::default()).expect("ordinary parameters");
    let prompt = model.tokenize("And the LORD said", true);
    let goes_on = |made| end.map_or(made < CHAINS, |end| Instant::now() < end);
    for _ in (0..).take_while(|&made| goes_on(made)) {
        counters.chains.fetch_add(1, Relaxed);
        let mut chains = Chains::new(&mut rng, model);
        context.clear();
        context.decode(&prompt).expect("the prompt fits");
        let tokens = 1 + rng.below(N_CTX as usize - prompt.len());
        for _ in 0..tokens {
            if rng.chance(0.15) {
                chains.change_constraint(&mut rng, n_vocab, counters);
            }
            if rng.chance(0.02) {
                // A clone has its own slots.
                chains.sides = [0, 1].map(|side| {
                    let copy = chains.sides[side].clone();
                    // SAFETY: a chain, whose first member is the slot.
                    chains.slots[side] = unsafe { sys::llama_sampler_chain_get(copy.as_ptr(), 0) };
                    copy
                });
            }
            let Some(token) = chains.sample(&context, counters) else {
                counters.undefined.fetch_add(1, Relaxed);
                break;
            };
            let drawn = sieve.sample(context.logits()).expect("ordinary logits");
            assert!(usize::try_from(drawn).is_ok_and(|id| id < n_vocab));
            sieve.accept(drawn);
            context.decode(&[token]).expect("there is room");
        }
    }
}

/// Returns the bytes of memory that this process uses.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: f64 = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("the second number is the resident set");
    pages * 4096.0
}

#[test]
fn eight_threads_generate_with_random_chains_and_constraints() {
    let _alone = alone();
    // Discards warnings about parameters out of range, of which there are millions.
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    let length = Duration::from_secs(number_from_env("LLAMA_SIEVE_SOAK_SECONDS", 0) as u64);
    let model = Model::load(trained_model()).expect("the model loads");
    let counters = Counters::default();
    let end = (!length.is_zero()).then(|| Instant::now() + length);
    let [warm, last] = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let (model, counters) = (&model, &counters);
                    move || work(model, thread, end, counters)
                })
            })
            .collect();
        std::thread::sleep((length / 10).min(Duration::from_secs(60)));
        let warm = resident();
        // While all threads are still at work.
        if let Some(end) = end {
            std::thread::sleep(end.saturating_duration_since(Instant::now() + length / 100));
        }
        let last = resident();
        for thread in threads {
            thread.join().expect("no difference and no panic");
        }
        [warm, last]
    });
    let growth = last / warm - 1.0;
    println!("{counters:?}");
    assert!(counters.completed.load(Relaxed) > 0);
    if end.is_none() {
        return;
    }
    println!(
        "{} s; resident set {:.1} MB when warm, {:+.2} % at the end",
        length.as_secs(),
        warm / 1e6,
        growth * 100.0
    );
    if length >= JUDGED_FROM {
        assert!(growth < 0.02, "the resident set grew");
    }
}
