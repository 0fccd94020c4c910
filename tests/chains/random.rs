//! Compares whole chains of 1 to 9 members in random order, drop-ins mixed with built-ins, with a
//! chain of built-ins: 300 steps of `apply` and `accept`, with clone, reset, `llama_sampler_copy`
//! and exchanged members in between. After every member of every step, everything must be equal,
//! bit for bit.
//!
//! Runs 5,000 chains; LLAMA_SIEVE_TEST_CHAINS sets another number.

use crate::support::arrays::{Recipe, Rng};
use crate::support::compare::same;
use crate::support::family::FAMILY;
use crate::support::{Array, HostSampler, fresh_rng, number_from_env, replay};

const STEPS: usize = 300;
const N_VOCAB: i32 = 2048;

/// Two chains with equal parameters: one mixed, and one of built-ins.
struct Chains {
    label: String,
    mixed: HostSampler,
    theirs: HostSampler,
    len: usize,
    /// True if a member is infill, which compares all pairs of candidates.
    has_infill: bool,
}

impl Chains {
    fn new(rng: &mut Rng) -> Self {
        let mut chains = Self {
            label: String::new(),
            mixed: HostSampler::chain(vec![]),
            theirs: HostSampler::chain(vec![]),
            len: 0,
            has_infill: false,
        };
        for _ in 0..1 + rng.below(9) {
            chains.add(rng);
        }
        chains
    }

    fn add(&mut self, rng: &mut Rng) {
        let member = &FAMILY[rng.below(FAMILY.len())];
        let beyond = rng.chance(0.1);
        let mut same_parameters = rng.clone();
        let pair = (member.make)(rng, N_VOCAB, beyond);
        let again = (member.make)(&mut same_parameters, N_VOCAB, beyond);
        let ours = rng.chance(0.7);
        let mark = if ours { "ours" } else { "built-in" };
        self.label += &format!("\n  {mark}: {}", pair.label);
        self.mixed.add(if ours { pair.ours } else { again.theirs });
        self.theirs.add(pair.theirs);
        self.len += 1;
        self.has_infill |= member.name == "infill";
    }

    /// Does with both chains what a host may do between two tokens.
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
            // The chains go their own way, and then get the states of their copies back.
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

    /// Applies the members one by one.
    ///
    /// If members turn infinities into NaN, the members after them do not run, on either side,
    /// since NaN is the only input for which built-ins that sort or compare are undefined. They do
    /// not run on an empty array either, since built-ins abort on it.
    fn step(&self, input: &Array, rng: &mut Rng) -> Result<(), String> {
        let (mut ours, mut theirs) = (input.clone(), input.clone());
        for i in 0..self.len {
            if ours.data.is_empty() || ours.data.iter().any(|c| c.logit.is_nan()) {
                break;
            }
            self.mixed.apply_member(i, &mut ours);
            self.theirs.apply_member(i, &mut theirs);
            same(&ours, &theirs).map_err(|difference| format!("member {i}: {difference}"))?;
        }
        let token = accepted_token(&theirs, rng);
        self.mixed.accept(token);
        self.theirs.accept(token);
        Ok(())
    }
}

/// Returns a token to accept, usually the selected one. It is always one of the vocabulary, since
/// with other tokens some built-ins abort, or read out of bounds when cloned.
fn accepted_token(array: &Array, rng: &mut Rng) -> i32 {
    let chosen = array.data.get(array.selected as usize).map(|c| c.id);
    let forced = rng.below(60) as i32;
    chosen.filter(|_| rng.chance(0.9)).unwrap_or(forced)
}

fn input(chains: &Chains, rng: &mut Rng) -> Array {
    // Usually few candidates, for speed, and sometimes more than the built-ins' thresholds.
    let n = match rng.below(40) {
        0 if !chains.has_infill => 1025 + rng.below(1000),
        1 if !chains.has_infill => 129 + rng.below(800),
        2 => rng.pick(&[16, 17, 18, 33]),
        _ => 1 + rng.below(60),
    };
    Recipe::random(rng).array(n, N_VOCAB as usize, rng)
}

/// Compares `count` chains step by step. Returns the number of steps.
fn run(name: &str, count: usize) -> usize {
    let mut rng = fresh_rng(name);
    for i in 0..count {
        let mut chains = Chains::new(&mut rng);
        for step in 0..STEPS {
            chains.between_tokens(&mut rng);
            let array = input(&chains, &mut rng);
            if let Err(difference) = chains.step(&array, &mut rng) {
                let label = &chains.label;
                panic!(
                    "{}, {name}, chain {i}, step {step}: {difference}{label}",
                    replay()
                );
            }
        }
    }
    count * STEPS
}

#[test]
fn mixed_chains_are_those_of_built_ins() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    let count = number_from_env("LLAMA_SIEVE_TEST_CHAINS", 5000);
    let workers = ["chains of the first", "chains of the second"];
    let each = count.div_ceil(workers.len());
    let threads = workers.map(|name| std::thread::spawn(move || run(name, each)));
    let steps = threads.map(|t| t.join().expect("no difference"));
    println!("{} steps", steps.iter().sum::<usize>());
}
