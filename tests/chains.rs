//! Whole chains: 1 to 9 members in random order, ours and built-ins mixed in one chain, against the chain of built-ins alone; 300 steps of `apply` and
//! `accept` with clone, reset, `llama_sampler_copy` and exchanged members in between. Compared after every step.
//!
//! 5,000 chains; LLAMA_SIEVE_TEST_CHAINS sets another number.

mod support;

use support::arrays::{Rng, Shape};
use support::compare::{Order, same};
use support::family::FAMILY;
use support::{Array, HostSampler, number_from_env};

const STEPS: usize = 300;
const N_VOCAB: i32 = 2048;

/// Two chains of equal parameters: one mixed, one of built-ins.
struct Chains {
    label: String,
    mixed: HostSampler,
    theirs: HostSampler,
    len: usize,
    /// A member tells tied candidates apart: one that orders by distance from the entropy, where two at equal distance have different probabilities, or
    /// infill, to which the ids of masked candidates matter. Ties stand in another order than in the built-in, the one difference that the contract
    /// allows; behind such a member it may become visible.
    sees_ties: bool,
    /// A member makes all improbable candidates equal: behind it nothing may sort, or ties decide everything.
    makes_ties: bool,
    /// A member compares all pairs of candidates.
    has_infill: bool,
}

impl Chains {
    fn new(rng: &mut Rng) -> Self {
        let mut chains = Self {
            label: String::new(),
            mixed: HostSampler::chain(vec![]),
            theirs: HostSampler::chain(vec![]),
            len: 0,
            sees_ties: false,
            makes_ties: false,
            has_infill: false,
        };
        for _ in 0..1 + rng.below(9) {
            chains.add(rng);
        }
        chains
    }

    fn add(&mut self, rng: &mut Rng) {
        let allowed = FAMILY
            .iter()
            .filter(|member| !(self.makes_ties && member.sorts));
        let allowed: Vec<_> = allowed.collect();
        let member = rng.pick(&allowed);
        let mut same_parameters = rng.clone();
        let pair = (member.make)(rng, N_VOCAB, false);
        let again = (member.make)(&mut same_parameters, N_VOCAB, false);
        let ours = rng.chance(0.7);
        let mark = if ours { "ours" } else { "built-in" };
        self.label += &format!("\n  {mark}: {}", pair.label);
        self.mixed.add(if ours { pair.ours } else { again.theirs });
        self.theirs.add(pair.theirs);
        self.len += 1;
        self.sees_ties |= member.order != Order::Logit;
        self.makes_ties |= member.name == "adaptive_p";
        self.has_infill |= member.name == "infill";
    }

    /// What a host may do between two tokens.
    fn between_tokens(&mut self, rng: &mut Rng) {
        if rng.chance(0.01) {
            self.mixed.reset();
            self.theirs.reset();
        }
        if rng.chance(0.02) {
            self.mixed = self.mixed.clone();
            self.theirs = self.theirs.clone();
        }
        if rng.chance(0.02) {
            // Copies part ways, and then come back.
            let (mixed, theirs) = (self.mixed.clone(), self.theirs.clone());
            let token = rng.below(60) as i32;
            self.mixed.accept(token);
            self.theirs.accept(token);
            self.mixed.copy_from(&mixed);
            self.theirs.copy_from(&theirs);
        }
        if rng.chance(0.01) {
            let i = rng.below(self.len);
            drop((self.mixed.remove(i), self.theirs.remove(i)));
            self.label += &format!("\n  without member {i}");
            self.len -= 1;
            self.add(rng);
        }
    }

    fn step(&self, input: &Array, rng: &mut Rng) -> Result<(), Apart> {
        let (mut ours, mut theirs) = (input.clone(), input.clone());
        self.mixed.apply(&mut ours);
        self.theirs.apply(&mut theirs);
        if theirs.data.iter().any(|c| c.logit.is_nan() || c.p.is_nan()) {
            return Err(Apart::Undefined);
        }
        // Infill puts tokens in place of others, and more than one member may.
        same(input, &ours, &theirs, Order::Replaced).map_err(Apart::Difference)?;
        let token = accepted_token(&ours, &theirs, rng);
        self.mixed.accept(token);
        self.theirs.accept(token);
        Ok(())
    }
}

/// Why a step was not alike.
enum Apart {
    /// The built-ins made NaN, and of that their members make anything.
    Undefined,
    Difference(String),
}

/// The token that was selected, mostly. Always one of the vocabulary: without, some built-ins abort, or read out of bounds when cloned.
fn accepted_token(ours: &Array, theirs: &Array, rng: &mut Rng) -> i32 {
    let selected = |array: &Array| {
        let chosen = array.data.get(array.selected as usize);
        chosen.map(|c| c.id)
    };
    let (ours, theirs) = (selected(ours), selected(theirs));
    if ours != theirs {
        // Equal logits in another order: both sides go on alike with a token that neither had.
        return N_VOCAB - 1;
    }
    let forced = rng.below(60) as i32;
    theirs.filter(|_| rng.chance(0.9)).unwrap_or(forced)
}

fn input(chains: &Chains, rng: &mut Rng) -> Array {
    let shapes = [
        Shape::Peaked,
        Shape::Flat,
        Shape::Sorted,
        Shape::Shuffled,
        Shape::Masked,
    ];
    // All masked candidates are tied.
    let shapes = &shapes[..if chains.has_infill { 4 } else { 5 }];
    // Mostly few candidates, for speed; sometimes more than the built-ins' thresholds of 128 and 1024.
    let n = match rng.below(40) {
        0 if !chains.has_infill => 1025 + rng.below(1000),
        1 if !chains.has_infill => 129 + rng.below(800),
        _ => 1 + rng.below(60),
    };
    let mut array = rng.pick(shapes).array(n, rng);
    // Probabilities of nothing but masked candidates are NaN.
    if array.data.iter().all(|c| c.logit == f32::NEG_INFINITY) {
        array.data[0].logit = 1.0;
    }
    array
}

/// What came of some chains.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    steps: usize,
    /// Chains that went apart at a tie.
    apart: usize,
    /// Steps in which the built-ins made NaN.
    undefined: usize,
}

impl std::ops::Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            apart: self.apart + other.apart,
            undefined: self.undefined + other.undefined,
        }
    }
}

fn run(seed: u64, count: usize) -> Tally {
    let mut rng = Rng(seed);
    let mut tally = Tally::default();
    for i in 0..count {
        let mut chains = Chains::new(&mut rng);
        for step in 0..STEPS {
            chains.between_tokens(&mut rng);
            let array = input(&chains, &mut rng);
            tally.steps += 1;
            match chains.step(&array, &mut rng) {
                Ok(()) => continue,
                Err(Apart::Undefined) => {
                    tally.undefined += 1;
                    chains.mixed.reset();
                    chains.theirs.reset();
                    continue;
                }
                Err(Apart::Difference(difference)) => {
                    let label = &chains.label;
                    let what = format!("seed {seed}, chain {i}, step {step}: {difference}{label}");
                    assert!(chains.sees_ties, "{what}");
                    eprintln!("apart at a tie: {what}");
                    tally.apart += 1;
                }
            }
            break;
        }
    }
    tally
}

#[test]
fn mixed_chains_are_those_of_built_ins() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    let count = number_from_env("LLAMA_SIEVE_TEST_CHAINS", 5000);
    let workers = 2;
    let threads: Vec<_> = (0..workers)
        .map(|seed| std::thread::spawn(move || run(seed as u64, count.div_ceil(workers))))
        .collect();
    let tallies = threads
        .into_iter()
        .map(|t| t.join().expect("no difference"));
    let tally = tallies.fold(Tally::default(), |sum, tally| sum + tally);
    println!("{tally:?}");
    assert!(tally.apart * 10_000 <= tally.steps, "{tally:?}");
    assert!(tally.undefined * 50 <= tally.steps, "{tally:?}");
}
