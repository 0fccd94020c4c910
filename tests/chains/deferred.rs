//! Tests chains that sample straight from the logits, and in which samplers defer work: locally
//! typical sampling leaves open the order of candidates that are equally near to the entropy, and
//! top-p the order of its nucleus. The chain may choose a token before that order is known. The
//! token, and the candidates if they are read, are compared bit for bit with those of built-ins on
//! the array that a host fills.
//!
//! Runs 400 chains of 8 tokens each with typical and with top-p, and ten times as many with typical
//! on small vocabularies. LLAMA_SIEVE_TEST_CHAINS sets another number in place of 400.

use crate::support::arrays::Rng;
use crate::support::compare::same;
use crate::support::family::Member;
use crate::support::straight::{Straight, left_by_built_ins};
use crate::support::{Grid, HostSampler, both, fresh_rng, logit_biases, number_from_env, replay};
use llama_sieve::errors::{LLAMA_SIEVE_ERROR_INVALID, LLAMA_SIEVE_ERROR_NO_CANDIDATE};

const TOKENS: usize = 8;

/// A chain of this library's samplers and one of built-ins, with the kind of logits that they get.
struct Chains {
    label: String,
    sides: [HostSampler; 2],
    n: usize,
    deviation: f32,
    /// The logits are multiples of 1 / `fineness`, so that many are equal.
    fineness: f32,
    grid: Grid,
    /// The number of logits that stand out.
    peaks: usize,
    /// The share of logits that are masked.
    masked: f64,
}

impl Chains {
    /// Returns chains without members.
    fn empty(n: usize) -> Self {
        Self {
            label: String::new(),
            sides: [(); 2].map(|()| HostSampler::chain(vec![])),
            n,
            deviation: 1.0,
            fineness: 0.0,
            grid: Grid::F32,
            peaks: 0,
            masked: 0.0,
        }
    }

    fn new(rng: &mut Rng) -> Self {
        let n = match rng.below(20) {
            0..=7 => 512 + rng.below(5000),
            8..=16 => 5000 + rng.below(25_000),
            17 | 18 => 30_000 + rng.below(40_000),
            _ => 70_000 + rng.below(60_000),
        };
        let grid = rng.pick(&[
            Grid::F32,
            Grid::F32,
            Grid::F32,
            Grid::F32,
            Grid::F32,
            Grid::F32,
            Grid::F16,
            Grid::Bf16,
            Grid::Quarters,
        ]);
        // In half precision these logits are so near to 0 that they are seldom equal.
        let small = grid == Grid::F16 && rng.chance(0.5);
        let mut chains = Self {
            deviation: match small {
                true => 1e-3,
                false => rng.pick(&[0.02, 0.3, 1.0, 1.0, 2.0, 3.0]),
            },
            fineness: rng.pick(&[0.0, 0.0, 0.0, 65536.0, 8192.0, 4e6, 1e6]),
            grid,
            ..Self::empty(n)
        };
        chains.label = format!("{n}, {} / {}, {grid:?}", chains.deviation, chains.fineness);
        chains.add_members(rng);
        chains
    }

    /// Returns chains for vocabularies so small that the draw changes if one token more or less is
    /// kept.
    fn of_few(rng: &mut Rng) -> Self {
        let chains = Self::empty(512 + rng.below(1000));
        let mut chains = Self {
            deviation: rng.pick(&[0.3, 1.0, 2.0, 3.0]),
            fineness: rng.pick(&[256.0, 512.0, 1024.0, 4096.0]),
            ..chains
        };
        chains.label = format!("{}, {} / {}", chains.n, chains.deviation, chains.fineness);
        chains.add_members(rng);
        chains
    }

    /// Returns chains with top-p, on logits such that few to nearly all are kept, and none to
    /// nearly all are tied.
    fn of_nucleus(rng: &mut Rng) -> Self {
        let n = match rng.below(20) {
            0..=2 => 1 + rng.below(300),
            3..=5 => 300 + rng.below(2000),
            6..=11 => 2000 + rng.below(10_000),
            12..=17 => 12_000 + rng.below(50_000),
            18 => 120_000 + rng.below(20_000),
            _ => 140_000 + rng.below(60_000),
        };
        let grid = rng.pick(&[
            Grid::F32,
            Grid::F32,
            Grid::F32,
            Grid::F16,
            Grid::Bf16,
            Grid::Bf16,
            Grid::Quarters,
        ]);
        let mut chains = Self {
            deviation: rng.pick(&[0.0, 0.3, 1.0, 2.4, 2.4, 4.0, 9.0]),
            fineness: rng.pick(&[0.0, 0.0, 0.0, 1e6, 4096.0, 64.0, 4.0, 1.0]),
            grid,
            peaks: rng.pick(&[0, 0, 1, 60, 500]),
            masked: rng.pick(&[0.0, 0.0, 0.0, 0.001, 0.5, 0.99]),
            ..Self::empty(n)
        };
        chains.label = format!(
            "{n}, {} / {}, {grid:?}, {} peaks, {} masked",
            chains.deviation, chains.fineness, chains.peaks, chains.masked
        );
        chains.add_edits(rng);
        for _ in 0..usize::from(rng.chance(0.15)) {
            chains.add_one_of(
                &["min_p", "typical", "xtc", "temp", "greedy", "top_n_sigma"],
                rng,
            );
        }
        chains.add_top_p(rng);
        if rng.chance(0.3) {
            // A probability above the last of the nucleus, below it, or above all.
            let p = rng.pick(&[1e-6, 1e-3, 0.01, 0.1, 0.5, 0.99, 1.5]);
            let min_keep = rng.pick(&[0, 1, 1, 20, 3000]);
            let members = both!(llama_sieve_init_min_p, llama_sampler_init_min_p; p, min_keep);
            chains.add(&format!("min_p({p}, {min_keep})"), members);
        }
        if rng.chance(0.6) {
            chains.add_temp(rng);
        }
        if rng.chance(0.25) {
            let behind = [
                "min_p",
                "typical",
                "xtc",
                "temp_ext",
                "top_k",
                "penalties",
                "top_p",
            ];
            chains.add_one_of(&behind, rng);
        }
        chains.add_last(rng);
        chains
    }

    fn add_top_p(&mut self, rng: &mut Rng) {
        let p = match rng.chance(0.7) {
            true => rng.pick(&[0.0, 1e-6, 0.25, 0.5, 0.9, 0.95, 0.95, 0.999, 0.999_999_9]),
            false => rng.range(0.0, 1.0),
        };
        let min_keep = match rng.below(8) {
            0 => rng.below(self.n + 2),
            i => usize::from(i > 1),
        };
        let members = both!(llama_sieve_init_top_p, llama_sampler_init_top_p; p, min_keep);
        self.add(&format!("top_p({p}, {min_keep})"), members);
    }

    /// Adds a member with one of these names and random parameters.
    fn add_one_of(&mut self, names: &[&str], rng: &mut Rng) {
        let member = Member::named(rng.pick(names));
        let pair = (member.make)(rng, self.n as i32, false);
        self.add(&pair.label, [pair.ours, pair.theirs]);
    }

    fn add(&mut self, name: &str, members: [HostSampler; 2]) {
        self.label += ", ";
        self.label += name;
        for (side, member) in self.sides.iter().zip(members) {
            side.add(member);
        }
    }

    /// Adds members that change the logits of some tokens.
    fn add_edits(&mut self, rng: &mut Rng) {
        let n = self.n as i32;
        if rng.chance(0.3) {
            let mut biases = vec![];
            for _ in 0..1 + rng.below(5) {
                let bias = rng.pick(&[1.0, -2.0, 4.0]);
                let bias = if rng.chance(0.05) {
                    f32::NEG_INFINITY
                } else {
                    bias
                };
                biases.push((rng.below(self.n) as i32, bias));
            }
            self.add("logit_bias", logit_biases(n, &biases));
        }
        if rng.chance(0.3) {
            let members = both!(
                llama_sieve_init_penalties, llama_sampler_init_penalties;
                n, 64, 1.3, 0.1, 0.2
            );
            self.add("penalties", members);
        }
    }

    fn add_temp(&mut self, rng: &mut Rng) {
        let t = match rng.below(12) {
            0 => rng.pick(&[0.0, -1.0, 1e-38, 1e-42, 1e38]),
            _ => rng.range(0.2, 3.0),
        };
        self.add_temp_of(t);
    }

    fn add_temp_of(&mut self, t: f32) {
        let members = both!(llama_sieve_init_temp, llama_sampler_init_temp; t);
        self.add(&format!("temp({t:e})"), members);
    }

    fn add_members(&mut self, rng: &mut Rng) {
        self.add_edits(rng);
        if rng.chance(0.1) {
            self.add_temp_of(rng.pick(&[0.7, 1.5]));
        }
        // A selector in the middle of the chain: it selects an index, at which there is another
        // candidate after the next members.
        let is_chosen = rng.chance(0.03);
        if is_chosen {
            let members = both!(llama_sieve_init_greedy, llama_sampler_init_greedy);
            self.add("greedy", members);
        }
        let p = match rng.chance(0.5) {
            true => rng.pick(&[0.2, 0.5, 0.9, 0.95, 0.99]),
            false => rng.range(0.2, 0.99),
        };
        let min_keep = match rng.below(4) {
            0 => rng.below(self.n),
            i => i - 1,
        };
        let members = both!(llama_sieve_init_typical, llama_sampler_init_typical; p, min_keep);
        self.add(&format!("typical({p}, {min_keep})"), members);
        if rng.chance(0.4) {
            self.add_temp(rng);
        }
        if rng.chance(0.1) {
            self.add_temp_of(rng.pick(&[0.5, 2.0]));
        }
        if rng.chance(0.1) {
            let kind = rng.below(4);
            let members = match kind {
                0 => both!(llama_sieve_init_top_p, llama_sampler_init_top_p; 0.9, 1),
                1 => both!(llama_sieve_init_top_k, llama_sampler_init_top_k; 50),
                2 => both!(llama_sieve_init_xtc, llama_sampler_init_xtc; 1.0, 1e-5, 1, 3),
                _ => both!(llama_sieve_init_temp_ext, llama_sampler_init_temp_ext; 0.8, 0.3, 1.0),
            };
            let name = ["top_p", "top_k", "xtc", "temp_ext"][kind];
            self.add(name, members);
        }
        if is_chosen && rng.chance(0.8) {
            return;
        }
        self.add_last(rng);
    }

    /// Adds the selector at the end.
    fn add_last(&mut self, rng: &mut Rng) {
        let seed = rng.next() as u32 >> 1;
        let members = match rng.below(20) {
            0 => both!(llama_sieve_init_greedy, llama_sampler_init_greedy),
            1 => {
                // A member that reads the candidates after a choice.
                let dist = both!(llama_sieve_init_dist, llama_sampler_init_dist; seed);
                self.add("dist", dist);
                both!(llama_sieve_init_temp, llama_sampler_init_temp; 0.5)
            }
            _ => both!(llama_sieve_init_dist, llama_sampler_init_dist; seed),
        };
        self.add("the last", members);
    }

    fn logits(&self, rng: &mut Rng) -> Vec<f32> {
        let mut logits: Vec<f32> = (0..self.n).map(|_| self.deviation * rng.normal()).collect();
        if self.fineness > 0.0 {
            for x in &mut logits {
                *x = (*x * self.fineness).round() / self.fineness;
            }
        }
        for i in 0..self.peaks {
            logits[rng.below(self.n)] = 17.0 - 8.0 * i as f32 / self.peaks as f32;
        }
        for x in &mut logits {
            if self.masked > 0.0 && rng.chance(self.masked) {
                *x = f32::NEG_INFINITY;
            }
        }
        if rng.chance(0.03) {
            logits[rng.below(self.n)] = f32::NEG_INFINITY;
        }
        logits.iter().map(|&x| self.grid.round(x)).collect()
    }

    /// Samples and compares one token. Returns `Ok(false)` if the built-ins' behaviour is
    /// undefined, after which the states differ.
    fn step(&self, looks: f64, rng: &mut Rng) -> Result<bool, String> {
        let logits = self.logits(rng);
        let [ours, theirs] = &self.sides;
        let Some(expected) = left_by_built_ins(theirs, &logits) else {
            return Ok(false);
        };
        let straight = Straight::new(&logits, self.grid);
        let token = straight.sample(ours);
        let Some(chosen) = expected.data.get(expected.selected as usize) else {
            return match token {
                LLAMA_SIEVE_ERROR_INVALID => Ok(true),
                _ => Err(format!("token {token}, not none")),
            };
        };
        // There is no token if a tiny temperature has turned its logit into minus infinity.
        let is_none = expected.selects_none();
        let wanted = match is_none {
            true => LLAMA_SIEVE_ERROR_NO_CANDIDATE,
            false => chosen.id,
        };
        if token != wanted {
            return Err(format!("token {token}, not {wanted}"));
        }
        let token = chosen.id;
        // Reads the candidates twice, since an order that was made must stay.
        for _ in 0..usize::from(rng.chance(looks) && !is_none) * 2 {
            same(&straight.left(ours, &expected), &expected)?;
        }
        for side in &self.sides {
            side.accept(token);
        }
        Ok(true)
    }
}

/// Runs chains whose candidates are read at every token, at some, or at none. Each chain has to
/// guess which.
fn run(name: &str, count: usize, make: fn(&mut Rng) -> Chains) {
    let mut rng = fresh_rng(name);
    let mut compared = 0;
    for i in 0..count {
        let chains = make(&mut rng);
        let looks = rng.pick(&[0.0, 0.0, 0.3, 1.0]);
        for token in 0..TOKENS {
            match chains.step(looks, &mut rng) {
                Ok(true) => compared += 1,
                Ok(false) => break,
                Err(difference) => {
                    let (label, replay) = (&chains.label, replay());
                    panic!("{replay}, {name}, chain {i}, token {token}: {difference}, {label}");
                }
            }
        }
    }
    assert!(compared > count * TOKENS / 4 * 3, "only {compared}");
}

fn count() -> usize {
    number_from_env("LLAMA_SIEVE_TEST_CHAINS", 400)
}

#[test]
fn equally_typical_candidates_are_those_of_the_built_in() {
    run("equally typical", count(), Chains::new);
}

#[test]
fn a_nucleus_is_that_of_the_built_in() {
    run("a nucleus", count(), Chains::of_nucleus);
}

#[test]
fn equally_typical_of_few_are_those_of_the_built_in() {
    run("equally typical of few", 10 * count(), Chains::of_few);
}
