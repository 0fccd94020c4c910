//! Compares the samplers that llama.cpp never had with their definitions, computed in `f64`: the
//! kept candidates must be equal, even if a probability is next to the threshold.

use std::collections::HashSet;

use crate::support::arrays::{Grid, Recipe, Rng, Shape, size};
use crate::support::compare::same;
use crate::support::straight::Straight;
use crate::support::{Array, HostSampler, fresh_rng, number_from_env};
use llama_sieve::ffi::samplers::{
    llama_sieve_init_dist, llama_sieve_init_epsilon_cutoff, llama_sieve_init_eta_cutoff,
    llama_sieve_init_min_k, llama_sieve_init_p_less, llama_sieve_init_quadratic,
    llama_sieve_init_softmax, llama_sieve_init_top_a, llama_sieve_init_top_h,
};

/// Returns the probabilities of an array, in its order. The largest logit must be finite.
fn probabilities(array: &Array) -> Vec<f64> {
    let logits = array.data.iter().map(|c| f64::from(c.logit));
    let max = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    let es: Vec<f64> = logits.map(|x| (x - max).exp()).collect();
    let sum: f64 = es.iter().sum();
    es.iter().map(|e| e / sum).collect()
}

fn entropy(ps: &[f64]) -> f64 {
    let terms = ps.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln());
    terms.sum()
}

fn largest(ps: &[f64]) -> f64 {
    ps.iter().copied().fold(0.0, f64::max)
}

/// A sampler that cuts at a probability.
struct Rule {
    name: &'static str,
    make: fn(f32) -> HostSampler,
    /// Returns the threshold for a parameter.
    threshold: fn(f64, &[f64]) -> f64,
    /// Returns a parameter for which a given probability is the threshold.
    parameter: fn(f64, &[f64]) -> f64,
    usual: [f32; 4],
}

const RULES: [Rule; 5] = [
    Rule {
        name: "top-a",
        make: |a| HostSampler::new(llama_sieve_init_top_a(a)),
        threshold: |a, ps| a * largest(ps) * largest(ps),
        parameter: |p, ps| p / (largest(ps) * largest(ps)),
        usual: [0.2, 0.9, 1e-3, 5.0],
    },
    Rule {
        name: "epsilon-cutoff",
        make: |epsilon| HostSampler::new(llama_sieve_init_epsilon_cutoff(epsilon)),
        threshold: |epsilon, _| epsilon,
        parameter: |p, _| p,
        usual: [3e-4, 0.02, 1e-9, 1.5],
    },
    Rule {
        name: "eta-cutoff",
        make: |eta| HostSampler::new(llama_sieve_init_eta_cutoff(eta)),
        threshold: |eta, ps| eta.min(eta.sqrt() * (-entropy(ps)).exp()),
        parameter: |p, ps| p.max((p * entropy(ps).exp()).powi(2)),
        usual: [3e-4, 0.02, 1e-9, 1.5],
    },
    Rule {
        name: "p-less",
        make: |_| HostSampler::new(llama_sieve_init_p_less(false)),
        threshold: |_, ps| ps.iter().map(|p| p * p).sum(),
        parameter: |_, _| 1.0,
        usual: [1.0; 4],
    },
    Rule {
        name: "p-less",
        make: |_| HostSampler::new(llama_sieve_init_p_less(true)),
        threshold: |_, ps| {
            let (n, sum) = (ps.len() as f64, ps.iter().map(|p| p * p).sum::<f64>());
            (n * sum - 1.0) / (n - 1.0)
        },
        parameter: |_, _| 1.0,
        usual: [1.0; 4],
    },
];

/// Returns an array of any kind that is sorted if it is marked as sorted.
fn any_array(rng: &mut Rng) -> Array {
    let mut recipe = Recipe::random(rng);
    recipe.claims_order = false;
    recipe.array(size(rng).min(20_000), 300_000, rng)
}

fn max_of(array: &Array) -> f32 {
    let logits = array.data.iter().map(|c| c.logit);
    logits.fold(f32::NEG_INFINITY, f32::max)
}

fn arrays() -> usize {
    number_from_env("LLAMA_SIEVE_TEST_ARRAYS", 20_000) / 2
}

/// Returns the array with only the candidates whose indices `keeps` accepts.
fn filtered(input: &Array, keeps: impl Fn(usize) -> bool) -> Array {
    let mut filtered = input.clone();
    let kept = input.data.iter().enumerate();
    let kept = kept.filter(|&(i, _)| keeps(i)).map(|(_, c)| *c);
    filtered.data = kept.collect();
    filtered
}

/// Returns the array that the definition leaves.
fn expected(rule: &Rule, parameter: f32, input: &Array) -> Array {
    let max = max_of(input);
    if input.data.len() < 2 || max == f32::NEG_INFINITY {
        return input.clone();
    }
    if max == f32::INFINITY {
        return filtered(input, |i| input.data[i].logit == max);
    }
    let ps = probabilities(input);
    let threshold = (rule.threshold)(f64::from(parameter), &ps);
    filtered(input, |i| ps[i] >= threshold || input.data[i].logit == max)
}

#[test]
fn each_cut_at_a_probability_is_its_definition() {
    let mut rng = fresh_rng("each_cut_at_a_probability_is_its_definition");
    for rule in &RULES {
        let (mut near, mut cut) = (0, 0);
        for _ in 0..arrays() {
            let input = any_array(&mut rng);
            let mut parameter = rng.pick(&rule.usual);
            let ps = probabilities(&input);
            let p = rng.pick(&ps);
            let is_near = max_of(&input).is_finite() && p > 1e-30 && rng.chance(0.5);
            if is_near {
                // The float nearest to the probability of a candidate.
                parameter = (rule.parameter)(p, &ps) as f32;
                near += 1;
            }
            let sampler = (rule.make)(parameter);
            assert_eq!(sampler.name(), rule.name);
            let mut output = input.clone();
            sampler.apply(&mut output);
            let expected = expected(rule, parameter, &input);
            if let Err(difference) = same(&output, &expected) {
                panic!("{}({parameter}): {difference}\n{input:?}", rule.name);
            }
            cut += usize::from(output.data.len() < input.data.len());
        }
        let n = arrays();
        assert!(near * 4 > n && cut * 3 > n, "{}: {near}, {cut}", rule.name);
    }
}

/// The logits are two adjacent floats, so that the probabilities of the candidates hardly differ.
/// The sums cannot decide, and the definition is computed.
#[test]
fn neighbouring_probabilities_are_told_apart() {
    let mut rng = fresh_rng("neighbouring_probabilities_are_told_apart");
    for n in [2, 3, 40, 1000, 5000] {
        for _ in 0..20 {
            let logits = (0..n).map(|_| {
                if rng.chance(0.5) {
                    1.0
                } else {
                    1.0_f32.next_down()
                }
            });
            let input = Array::of_logits(logits.collect::<Vec<f32>>());
            for rule in &RULES {
                let ps = probabilities(&input);
                let parameter = (rule.parameter)(rng.pick(&ps), &ps) as f32;
                let sampler = (rule.make)(parameter);
                let mut output = input.clone();
                sampler.apply(&mut output);
                let expected = expected(rule, parameter, &input);
                assert_eq!(output.ids(), expected.ids(), "{}({parameter})", rule.name);
            }
        }
    }
}

/// Returns the number of descending probabilities that top-h keeps.
fn top_h(alpha: f64, entropy_of_all: f64, descending: &[f64]) -> usize {
    let mut n = 0;
    for (i, &p) in descending.iter().enumerate() {
        let first = &descending[..=i];
        let sum: f64 = first.iter().sum();
        let shares: Vec<f64> = first.iter().map(|p| p / sum).collect();
        if i > 0 && (p == 0.0 || entropy(&shares) > alpha * entropy_of_all) {
            break;
        }
        n = i + 1;
    }
    n
}

#[test]
fn top_h_is_its_definition() {
    let mut rng = fresh_rng("top_h_is_its_definition");
    let sort = HostSampler::new(llama_sieve_init_softmax());
    let mut cut = 0;
    for _ in 0..arrays() {
        let mut recipe = Recipe::random(&mut rng);
        recipe.claims_order = false;
        // Limited, since the definition takes a pass for each candidate.
        let input = recipe.array(size(&mut rng).min(1500), 300_000, &mut rng);
        let alpha = rng.pick(&[0.4, 0.1, 0.7, 0.95, 0.0, -1.0]);
        let sampler = HostSampler::new(llama_sieve_init_top_h(alpha));
        let mut output = input.clone();
        sampler.apply(&mut output);
        let max = max_of(&input);
        if max == f32::NEG_INFINITY {
            assert_eq!(output, input);
            continue;
        }
        let mut sorted = input.clone();
        sort.apply(&mut sorted);
        assert!(output.sorted);
        assert_eq!(output.selected, input.selected);
        let n = output.data.len();
        let descends = |array: &Array| array.data.is_sorted_by(|a, b| a.logit >= b.logit);
        assert!(descends(&output));
        assert!(output.data[0].logit == max, "the largest is the first");
        if max < 1e8 {
            // The host's sort gives no order beyond its buckets.
            assert_eq!(output.ids(), sorted.ids()[..n], "alpha {alpha}");
        }
        if max == f32::INFINITY {
            assert_eq!(n, 1);
            continue;
        }
        let mut ps = probabilities(&input);
        ps.sort_unstable_by(|a, b| b.total_cmp(a));
        if entropy(&ps) < 1e-9 {
            // The logarithm of a probability near 1 has few significant digits.
            continue;
        }
        let alpha = f64::from(alpha);
        // The order of additions affects the last digits.
        let [least, most] =
            [1.0 - 1e-12, 1.0 + 1e-12].map(|by| top_h(alpha, by * entropy(&ps), &ps));
        assert!(
            (least..=most).contains(&n),
            "alpha {alpha}: {n}, {least}, {most}"
        );
        for (candidate, p) in output.data.iter().zip(&ps) {
            let off = (f64::from(candidate.p) - p).abs();
            assert!(off <= 2e-4 * p + 1e-37, "{candidate:?} != {p}");
        }
        cut += usize::from(n < input.data.len());
    }
    assert!(cut * 2 > arrays(), "only {cut} were cut");
}

#[test]
fn min_k_is_its_definition() {
    let mut rng = fresh_rng("min_k_is_its_definition");
    let (mut cut, mut many) = (0, 0);
    for _ in 0..arrays() {
        let input = any_array(&mut rng);
        let tau = rng.pick(&[0.0, 0.0, 3.0, 1000.0, 1e5]);
        let sampler = HostSampler::new(llama_sieve_init_min_k(tau));
        assert_eq!(sampler.name(), "min-k");
        let mut output = input.clone();
        sampler.apply(&mut output);
        let logits = input.data.iter().map(|c| f64::from(c.logit));
        let mut x: Vec<f64> = logits.filter(|&x| x > f64::NEG_INFINITY).collect();
        x.sort_unstable_by(|a, b| b.total_cmp(a));
        let infinite = x.iter().filter(|&&x| x == f64::INFINITY).count();
        if x.is_empty() {
            assert_eq!(output, input);
            continue;
        }
        let falls: Vec<f64> = x
            .windows(2)
            .zip(1..)
            .map(|(x, k)| (x[0] - x[1]) / f64::from(k))
            .collect();
        let largest = falls.iter().copied().fold(0.0, f64::max);
        let cliff = 1 + falls.iter().position(|&fall| fall == largest).unwrap_or(0);
        let flat = (f64::from(tau) / (x[0] - x[x.len() - 1] + 1e-8)).floor();
        let mut n = cliff.max(flat as usize).min(x.len());
        if infinite > 0 {
            n = infinite;
        }
        let expected = filtered(&input, |i| f64::from(input.data[i].logit) >= x[n - 1]);
        if let Err(difference) = same(&output, &expected) {
            panic!("min-k({tau}): {difference}\n{input:?}");
        }
        cut += usize::from(output.data.len() < input.data.len());
        many += usize::from(output.data.len() > 64);
    }
    assert!(cut * 3 > arrays() && many * 10 > arrays(), "{cut}, {many}");
}

#[test]
fn quadratic_is_its_definition() {
    let mut rng = fresh_rng("quadratic_is_its_definition");
    let (mut bent, mut far) = (0, 0);
    for _ in 0..arrays() {
        let mut input = any_array(&mut rng);
        if rng.chance(0.1) {
            let last = input.data.len() - 1;
            input.data[last].logit = rng.pick(&[f32::MIN, -1e30, -2e19]);
            input.data[0].logit = rng.pick(&[f32::MAX, 5.0]);
            input.sorted = false;
        }
        let factor = rng.pick(&[0.2, 1.0, 0.05, 5.0]);
        let curve = rng.pick(&[1.0, 2.0, 3.0, 1.5, 6.0, 0.0]);
        let sampler = HostSampler::new(llama_sieve_init_quadratic(factor, curve));
        assert_eq!(sampler.name(), "quadratic");
        let mut output = input.clone();
        sampler.apply(&mut output);
        let max = max_of(&input);
        if !max.is_finite() {
            assert_eq!(output, input);
            continue;
        }
        let in_order = (1.0..=3.0).contains(&curve);
        assert_eq!(output.sorted, input.sorted && in_order);
        assert_eq!(output.ids(), input.ids());
        let (factor, curve) = (f64::from(factor), f64::from(curve));
        let (k, s) = (factor * (3.0 - curve) / 2.0, factor * (curve - 1.0) / 2.0);
        for (new, old) in output.data.iter().zip(&input.data) {
            assert_eq!(new.p.to_bits(), old.p.to_bits());
            let d = f64::from(old.logit) - f64::from(max);
            if d == f64::NEG_INFINITY {
                assert_eq!(new.logit, f32::NEG_INFINITY);
                continue;
            }
            let terms = [f64::from(max), -k * d * d, s * d * d * d];
            let expected: f64 = terms.iter().sum();
            let overflows = (d as f32) * (d as f32) == f32::INFINITY;
            if overflows || expected.abs() > f64::from(f32::MAX) {
                assert_eq!(new.logit, expected.signum() as f32 * f32::INFINITY);
                far += 1;
                continue;
            }
            let size: f64 = terms.iter().map(|term| term.abs()).sum();
            let off = (f64::from(new.logit) - expected).abs();
            assert!(off <= 5e-7 * size, "{new:?} of {old:?} is not {expected}");
            bent += 1;
        }
        if in_order && input.sorted {
            assert!(output.data.is_sorted_by(|a, b| a.logit >= b.logit));
        }
    }
    assert!(bent > 100 * arrays(), "only {bent} logits");
    assert!(far > 0, "none overflows");
}

/// Writes 1,000 arrays for each of four samplers, with the candidates that they leave, as lines of
/// JSON to the file that LLAMA_SIEVE_TEST_DRAWN names. `hosts/references.py` compares them with
/// other libraries.
#[test]
#[ignore = "it writes what hosts/references.py reads: LLAMA_SIEVE_TEST_DRAWN"]
fn arrays_for_other_libraries() {
    let path = std::env::var("LLAMA_SIEVE_TEST_DRAWN").expect("a file is named");
    let mut rng = fresh_rng("arrays_for_other_libraries");
    let mut lines = String::new();
    let mut write = |name: &str, parameters: &[f32], input: &Array, output: &Array| {
        let list = |numbers: &mut dyn Iterator<Item = f64>| {
            let texts = numbers.map(|x| match x {
                f64::NEG_INFINITY => "-Infinity".to_owned(),
                x => format!("{x:?}"),
            });
            texts.collect::<Vec<String>>().join(",")
        };
        let logits = |array: &Array| list(&mut array.data.iter().map(|c| c.logit.into()));
        let line = format!(
            "{{\"sampler\":\"{name}\",\"parameters\":[{}],\"logits\":[{}],\"kept\":{:?},\"left\":[{}]}}\n",
            list(&mut parameters.iter().map(|&x| x.into())),
            logits(input),
            output.ids(),
            logits(output),
        );
        lines.push_str(&line);
    };
    let usable = |rng: &mut Rng| loop {
        let drawn = any_array(rng);
        let logits = drawn.data.iter().map(|c| c.logit).take(3000);
        let array = Array::of_logits(logits.collect::<Vec<f32>>());
        if max_of(&array).is_finite() && array.data.len() > 1 {
            return array;
        }
    };
    for rule in &RULES[..3] {
        let mut n = 0;
        while n < 1000 {
            let input = usable(&mut rng);
            let ps = probabilities(&input);
            let p = rng.pick(&ps);
            let parameter = match rng.chance(0.5) {
                true => (rule.parameter)(p, &ps) as f32,
                false => rng.pick(&rule.usual),
            };
            // The other libraries accept no other parameters.
            if !(parameter > 1e-30 && parameter < 1.0) {
                continue;
            }
            let mut output = input.clone();
            (rule.make)(parameter).apply(&mut output);
            write(rule.name, &[parameter], &input, &output);
            n += 1;
        }
    }
    for _ in 0..1000 {
        let input = usable(&mut rng);
        let (factor, curve) = (rng.range(0.01, 5.0), rng.range(0.0, 6.0));
        let mut output = input.clone();
        HostSampler::new(llama_sieve_init_quadratic(factor, curve)).apply(&mut output);
        write("quadratic", &[factor, curve], &input, &output);
    }
    std::fs::write(path, lines).expect("the file can be written");
}

/// With parameters that switch them off, the samplers do nothing, and their names say so.
#[test]
fn those_that_are_switched_off_do_nothing() {
    let mut rng = fresh_rng("those_that_are_switched_off_do_nothing");
    for (name, make) in [
        ("?top-a", (|| llama_sieve_init_top_a(0.0)) as fn() -> _),
        ("?top-a", || llama_sieve_init_top_a(-1.0)),
        ("?epsilon-cutoff", || llama_sieve_init_epsilon_cutoff(0.0)),
        ("?eta-cutoff", || llama_sieve_init_eta_cutoff(-0.0)),
        ("?top-h", || llama_sieve_init_top_h(1.0)),
        ("?min-k", || llama_sieve_init_min_k(-1.0)),
        ("?quadratic", || llama_sieve_init_quadratic(0.0, 1.0)),
        ("?quadratic", || llama_sieve_init_quadratic(f32::NAN, 1.0)),
        ("?quadratic", || {
            llama_sieve_init_quadratic(1.0, f32::INFINITY)
        }),
        ("?top-h", || llama_sieve_init_top_h(f32::NEG_INFINITY)),
    ] {
        let sampler = HostSampler::new(make());
        assert_eq!(sampler.name(), name);
        let input = Shape::Peaked.array(100, &mut rng);
        let mut output = input.clone();
        sampler.apply(&mut output);
        assert_eq!(output, input);
    }
}

/// Returns a sampler that llama.cpp never had, and its name with its parameters, which are random
/// and may be unusual.
fn any_sampler(rng: &mut Rng) -> (String, HostSampler) {
    let p = rng.pick(&[3e-4, 0.02, 1e-9, 1.5, 0.3]);
    match rng.below(9) {
        8 => {
            let tau = rng.pick(&[0.0, 100.0, 1e4]);
            let sampler = HostSampler::new(llama_sieve_init_min_k(tau));
            (format!("min-k({tau})"), sampler)
        }
        5 => {
            let alpha = rng.pick(&[0.4, 0.1, 0.9, 0.999, 0.0]);
            let sampler = HostSampler::new(llama_sieve_init_top_h(alpha));
            (format!("top-h({alpha})"), sampler)
        }
        6 | 7 => {
            let (factor, curve) = (rng.pick(&[0.2, 1.0]), rng.pick(&[1.0, 2.0, 5.0]));
            let sampler = HostSampler::new(llama_sieve_init_quadratic(factor, curve));
            (format!("quadratic({factor}, {curve})"), sampler)
        }
        i => (format!("{}({p})", RULES[i].name), (RULES[i].make)(p)),
    }
}

/// Straight from the logits the samplers, alone or several, leave the same candidates as from the
/// array, and the draw after them is the same.
#[test]
fn straight_from_the_logits_they_leave_the_same() {
    let mut rng = fresh_rng("straight_from_the_logits_they_leave_the_same");
    let mut kept = HashSet::new();
    for _ in 0..arrays() / 4 {
        let shapes = [
            Shape::Peaked,
            Shape::Flat,
            Shape::Masked,
            Shape::Few,
            Shape::Jitter,
        ];
        let recipe = Recipe::of_shape(rng.pick(&shapes));
        let n = size(&mut rng).min(20_000);
        let grid = rng.pick(&[Grid::F32, Grid::F32, Grid::F16, Grid::Bf16]);
        let logits: Vec<f32> = {
            let array = recipe.array(n, n, &mut rng);
            array.data.iter().map(|c| grid.round(c.logit)).collect()
        };
        let made: Vec<_> = (0..1 + rng.below(3))
            .map(|_| any_sampler(&mut rng))
            .collect();
        let (labels, mut members): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        members.push(HostSampler::new(llama_sieve_init_dist(7)));
        let chain = HostSampler::chain(members);
        let twin = chain.clone();
        let mut array = Array::of_logits(logits.iter().copied());
        twin.apply(&mut array);
        if array.selects_none() {
            continue;
        }
        let straight = Straight::new(&logits, grid);
        let token = straight.sample(&chain);
        let chosen = array.chosen().id;
        assert_eq!(token, chosen, "{labels:?} of {n} logits");
        let left = straight.left(&chain, &array);
        assert_eq!(same(&left, &array), Ok(()), "{labels:?} of {n} logits");
        kept.insert(left.data.len());
    }
    assert!(kept.len() > 50, "only {} numbers of candidates", kept.len());
}
