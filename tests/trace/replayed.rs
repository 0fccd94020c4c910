//! Samples random chains of this library straight from the logits, with and without a trace. The
//! trace is compared with llama.cpp's own samplers, which are applied one after the other to the
//! array of all candidates.

use std::collections::BTreeMap;

use llama_sieve::TokenData;
use llama_sieve::ffi::chain::in_front;
use llama_sieve::ffi::host::llama_h::llama_token_data_array;
use serde_json::Value;

use crate::record::{Lines, tokens};
use crate::support::arrays::{Grid, Rng};
use crate::support::family::FAMILY;
use crate::support::straight::Straight;
use crate::support::{Array, HostSampler, alone, both, fresh_rng, number_from_env, replay};

const STEPS: usize = 12;
const N_VOCAB: i32 = 2048;
const FOLLOWED: usize = 10;

/// Three chains with equal parameters: two of this library's samplers, and one of built-ins.
struct Chains {
    label: String,
    traced: HostSampler,
    plain: HostSampler,
    theirs: HostSampler,
    len: usize,
}

impl Chains {
    fn new(rng: &mut Rng) -> Self {
        let mut chains = Self {
            label: String::new(),
            traced: HostSampler::chain(vec![]),
            plain: HostSampler::chain(vec![]),
            theirs: HostSampler::chain(vec![]),
            len: 0,
        };
        for _ in 0..1 + rng.below(6) {
            let member = &FAMILY[rng.below(FAMILY.len())];
            if member.name == "infill" {
                continue;
            }
            let mut again = rng.clone();
            let pair = (member.make)(rng, N_VOCAB, false);
            let second = (member.make)(&mut again, N_VOCAB, false);
            chains.label += &format!("\n  {}", pair.label);
            chains.add(pair.ours, second.ours, pair.theirs);
        }
        let seed = rng.next() as u32 & 0xFFFF;
        let [ours, theirs] = both!(llama_sieve_init_dist, llama_sampler_init_dist; seed);
        let [second, _] = both!(llama_sieve_init_dist, llama_sampler_init_dist; seed);
        chains.add(ours, second, theirs);
        chains
    }

    fn add(&mut self, traced: HostSampler, plain: HostSampler, theirs: HostSampler) {
        self.traced.add(traced);
        self.plain.add(plain);
        self.theirs.add(theirs);
        self.len += 1;
    }

    fn accept(&self, token: i32) {
        for chain in [&self.traced, &self.plain, &self.theirs] {
            chain.accept(token);
        }
    }
}

fn sample(chain: &HostSampler, logits: &[f32]) -> i32 {
    Straight::new(logits, Grid::F32).sample(chain)
}

/// The logits of the candidates above minus infinity, by token.
type Left = BTreeMap<i32, f32>;

fn left(array: &Array) -> Left {
    let candidates = array.data.iter();
    let some = candidates.filter(|c| c.logit > f32::NEG_INFINITY);
    some.map(|c| (c.id, c.logit)).collect()
}

/// The largest logit, and the sum of the exponentials relative to it. They are kept apart, since
/// with logits of 10^12 the logarithm of the sum would have no digits left.
#[derive(Clone, Copy)]
struct Sum {
    max: f64,
    sum: f64,
}

impl Sum {
    fn of(candidates: &Left) -> Self {
        let logits = candidates.values().map(|&x| f64::from(x));
        let max = logits.clone().fold(f64::NEG_INFINITY, f64::max);
        let sum = logits.map(|x| (x - max).exp()).sum();
        Self { max, sum }
    }

    fn probability(self, logit: f32) -> f64 {
        (f64::from(logit) - self.max).exp() / self.sum
    }
}

fn near(found: &Value, expected: f64) -> bool {
    let Some(found) = found.as_f64() else {
        return !expected.is_finite();
    };
    (found - expected).abs() <= 2e-5 * expected.abs().max(1.0)
}

/// Returns the candidates before the first and after each of the built-ins, with the name of each,
/// and the array at the end; `None` if the array of a built-in is empty or contains NaN, for which
/// built-ins are undefined, or if no candidate is selected.
fn by_built_ins(chains: &Chains, mut array: Array) -> Option<(Vec<(String, Left)>, Array)> {
    let mut all = vec![(String::new(), left(&array))];
    for i in 0..chains.len {
        if array.data.is_empty() || array.data.iter().any(|c| c.logit.is_nan()) {
            return None;
        }
        chains.theirs.apply_member(i, &mut array);
        // SAFETY: this is a chain, and has that many.
        let member = unsafe {
            vendor_llama_cpp::sys::llama_sampler_chain_get(chains.theirs.as_ptr(), i as i32)
        };
        let name = std::mem::ManuallyDrop::new(HostSampler::new(member)).name();
        all.push((name, left(&array)));
    }
    chosen(&array)?;
    Some((all, array))
}

/// Returns the selected token; `None` if no candidate is selected.
fn chosen(array: &Array) -> Option<i32> {
    let selected = usize::try_from(array.selected).ok()?;
    Some(array.data.get(selected)?.id)
}

/// Compares a line with the built-ins. Stages that are switched off may be missing in it. Returns
/// the number of listed candidates that a stage has removed.
fn compare(line: &Value, all: &[(String, Left)], logits: &[f32]) -> Result<usize, String> {
    let stages = line["stages"].as_array().ok_or("no stages")?;
    let mut kept = vec![0];
    let mut next = 1;
    for (index, stage) in stages.iter().enumerate() {
        while all
            .get(next)
            .is_some_and(|(name, _)| *name != stage["name"])
        {
            if !all[next].0.starts_with('?') {
                return Err(format!("{} is not told", all[next].0));
            }
            next += 1;
        }
        let (_, after) = all.get(next).ok_or(format!("stage {index} is none"))?;
        let before = &all[*kept.last().expect("the first")].1;
        if (&stage["before"], &stage["after"]) != (&before.len().into(), &after.len().into()) {
            return Err(format!(
                "stage {index}: {stage}, but {} and {}",
                before.len(),
                after.len()
            ));
        }
        let removes = stage.get("kept").is_some();
        let of_before = Sum::of(before);
        let stay = after.keys().filter_map(|id| before.get(id));
        let mass: f64 = stay.map(|&x| of_before.probability(x)).sum();
        if removes && !near(&stage["kept"], mass) {
            return Err(format!("stage {index}: {stage}, but kept {mass}"));
        }
        kept.push(next);
        next += 1;
    }
    let raw = Sum::of(&all[0].1);
    let last = Sum::of(&all[*kept.last().expect("the first")].1);
    let told: Vec<&Left> = kept.iter().map(|&place| &all[place].1).collect();
    let mut removed = 0;
    for candidate in line["top"].as_array().ok_or("no candidates")? {
        let id = candidate["id"].as_i64().ok_or("no number")? as i32;
        let mut by = None;
        let mut changes = Vec::new();
        for stage in 0..stages.len() {
            match (told[stage].get(&id), told[stage + 1].get(&id)) {
                (Some(_), None) => by = Some(stage),
                (Some(before), Some(after)) if before != after => changes.push((stage, *after)),
                _ => {}
            }
        }
        let found: Vec<(usize, f32)> = candidate["changes"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
            .iter()
            .map(|c| {
                let stage = c["stage"].as_u64().expect("a number") as usize;
                (stage, c["logit"].as_f64().expect("a number") as f32)
            })
            .collect();
        let found_by = candidate["removed_by"].as_u64().map(|by| by as usize);
        if (found_by, &found) != (by, &changes) {
            return Err(format!("{candidate}: but removed by {by:?}, {changes:?}"));
        }
        removed += usize::from(by.is_some());
        let final_logit = told.last().and_then(|left| left.get(&id));
        let p = final_logit.map_or(0.0, |&x| last.probability(x));
        let model = raw.probability(logits[id as usize]);
        if !near(&candidate["final"], p) || !near(&candidate["p"], model) {
            return Err(format!("{candidate}: but {model} and {p}"));
        }
    }
    Ok(removed)
}

/// Traces random chains on random logits, and compares each trace with the built-ins.
///
/// `run` is traced; it gets the number of the step. `check` gets its result, and a label for
/// messages. It returns the candidates between the built-ins and the token that the trace must
/// name, or `None` if the chain ends.
fn hold_records<T>(
    name: &str,
    run: impl Fn(&Chains, &[f32], usize) -> T,
    check: impl Fn(&Chains, &[f32], T, &str) -> Option<(Vec<(String, Left)>, i32)>,
) {
    let _alone = alone();
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    let mut rng = fresh_rng(name);
    let (mut compared, mut removed) = (0, 0);
    for i in 0..number_from_env("LLAMA_SIEVE_TEST_CHAINS", 400) {
        let chains = Chains::new(&mut rng);
        let grid = rng.pick(&Grid::ALL);
        for step in 0..STEPS {
            let n = rng.pick(&[3, 40, 200, 2048]);
            let scale = rng.pick(&[1.0, 4.0]);
            let logits: Vec<f32> = (0..n).map(|_| grid.round(scale * rng.normal())).collect();
            let at = format!("{}, chain {i}, step {step}{}", replay(), chains.label);
            let lines = Lines::begin(&format!("n={FOLLOWED}"));
            let ran = run(&chains, &logits, step);
            let lines = lines.end();
            let Some((all, token)) = check(&chains, &logits, ran, &at) else {
                break;
            };
            let line = lines.last().expect("a line");
            assert_eq!(line["token"]["id"], token, "{at}");
            match compare(line, &all, &logits) {
                Ok(n) => removed += n,
                Err(text) => panic!("{at}\n{text}\n{line}"),
            }
            compared += 1;
            chains.accept(token);
        }
    }
    println!("{compared} tokens, {removed} candidates removed");
    assert!(compared > 100 && removed > 100, "{compared}, {removed}");
}

#[test]
fn each_candidate_is_removed_by_the_stage_that_a_naive_replay_names() {
    let run = |chains: &Chains, logits: &[f32], _| sample(&chains.traced, logits);
    hold_records("replayed", run, |chains, logits, token, at| {
        assert_eq!(token, sample(&chains.plain, logits), "{at}");
        if token < 0 {
            // No candidate is left, or the selected one is banned.
            return None;
        }
        // If a built-in was not applied, its random stream differs, so the chain ends.
        let (all, left) = by_built_ins(chains, Array::of_logits(logits.iter().copied()))?;
        assert_eq!(Some(token), chosen(&left), "{at}");
        Some((all, token))
    });
}

/// Applies the chain to an array as a host does, with a trace. Returns false if that was left to
/// the host.
fn record(chain: &HostSampler, array: &mut Array) -> bool {
    let mut raw = llama_token_data_array {
        data: array.data.as_mut_ptr().cast(),
        size: array.data.len(),
        selected: array.selected,
        sorted: u8::from(array.sorted),
    };
    // SAFETY: the chain lives, the array is valid.
    let recorded = unsafe { in_front::record(chain.as_ptr().cast(), &raw mut raw) };
    array.data.truncate(raw.size);
    (array.selected, array.sorted) = (raw.selected, raw.sorted != 0);
    recorded
}

/// Ids with the bits of logits and probabilities, the selected index, and true if the array is
/// sorted.
type Bits = (Vec<(i32, u32, u32)>, i64, bool);

fn bits(array: &Array) -> Bits {
    let candidates = array.data.iter();
    let data = candidates.map(|c| (c.id, c.logit.to_bits(), c.p.to_bits()));
    (data.collect(), array.selected, array.sorted)
}

#[test]
fn an_array_that_a_host_fills_is_left_as_by_built_ins_and_recorded() {
    let filled = |logits: &[f32], step: usize| {
        let mut array = Array::of_logits(logits.iter().copied());
        if step % 3 == 2 {
            // Not in the order of the ids.
            array.data.rotate_left(logits.len() / 2);
        }
        array
    };
    let run = |chains: &Chains, logits: &[f32], step| {
        let array = filled(logits, step);
        let mut left = array.clone();
        let is_recorded = record(&chains.traced, &mut left);
        (array, left, is_recorded)
    };
    hold_records(
        "arrays",
        run,
        |chains, _, (array, left, is_recorded), at| {
            assert!(is_recorded, "{at}");
            let (all, expected) = by_built_ins(chains, array)?;
            assert_eq!(bits(&left), bits(&expected), "{at}");
            let token = chosen(&expected).expect("there is one");
            Some((all, token))
        },
    );
}

/// Some hosts first check only the chosen token with their grammar.
#[test]
fn a_token_that_is_refused_is_replaced() {
    let _alone = alone();
    let [chain, _] = both!(llama_sieve_init_greedy, llama_sampler_init_greedy);
    let chain = HostSampler::chain(vec![chain]);
    let logits = [1.0, 3.0, 2.0];
    let look = |token: i32, logit: f32| {
        let mut one = TokenData::new(token, logit);
        let array = llama_token_data_array {
            data: &raw mut one,
            size: 1,
            selected: -1,
            sorted: 0,
        };
        // SAFETY: an array of one.
        unsafe { in_front::looked_at(&raw const array) };
    };
    let sample = |logits: &[f32]| {
        let mut array = Array::of_logits(logits.iter().copied());
        assert!(record(&chain, &mut array));
        chosen(&array).expect("there is one")
    };
    let lines = Lines::begin("n=2");
    assert_eq!(sample(&logits), 1);
    look(1, 3.0);
    assert_eq!(sample(&logits), 1);
    // Another token.
    look(2, f32::NEG_INFINITY);
    assert_eq!(sample(&logits), 1);
    look(1, f32::NEG_INFINITY);
    assert_eq!(sample(&[1.0, f32::NEG_INFINITY, 2.0]), 2);
    assert_eq!(sample(&logits), 1);
    let lines = lines.end();
    let found: Vec<[&Value; 4]> = tokens(&lines)
        .into_iter()
        .map(|line| {
            let refused = &line["refused"]["id"];
            [
                &line["position"],
                &line["token"]["id"],
                refused,
                &line["replaces"],
            ]
        })
        .collect();
    let none = Value::Null;
    let expected = [
        [&0.into(), &1.into(), &none, &none],
        [&1.into(), &1.into(), &none, &none],
        [&2.into(), &1.into(), &none, &none],
        [&2.into(), &2.into(), &1.into(), &true.into()],
        [&3.into(), &1.into(), &none, &none],
    ];
    assert_eq!(found, expected);
}

/// `record` does nothing, and leaves the work to the host.
#[test]
fn what_is_no_array_of_a_vocabulary_is_left_to_the_host() {
    let _alone = alone();
    let [ours, theirs] = both!(llama_sieve_init_greedy, llama_sampler_init_greedy);
    let mixed = HostSampler::chain(vec![theirs]);
    let chain = HostSampler::chain(vec![ours]);
    let _lines = Lines::begin("n=2");
    let array = Array::of_logits([1.0, 3.0]);
    let with_id = |id| {
        let mut array = array.clone();
        array.data[0].id = id;
        array
    };
    let one = Array::of_logits([1.0]);
    let cases = [
        (&mixed, array.clone()),
        (&chain, with_id(-1)),
        (&chain, with_id(i32::MAX)),
        (&chain, one),
    ];
    for (chain, before) in cases {
        let mut after = before.clone();
        assert!(!record(chain, &mut after));
        assert_eq!(bits(&after), bits(&before));
    }
    let [single, _] = both!(llama_sieve_init_greedy, llama_sampler_init_greedy);
    let array_of_one_sampler = &mut array.clone();
    assert!(!record(&single, array_of_one_sampler));
    llama_sieve::trace::stop();
    assert!(!record(&chain, &mut array.clone()), "there is no record");
}
