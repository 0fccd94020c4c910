//! Compares the samplers that llama.cpp no longer has with their definitions, computed in `f64`.

use crate::support::arrays::{Shape, size};
use crate::support::{Array, HostSampler, fresh_rng, number_from_env};
use llama_sieve::ffi::samplers::{llama_sieve_init_softmax, llama_sieve_init_tail_free};

/// Returns ids and probabilities in descending order; `None` if some logits are equal, since no
/// definition determines their order.
fn softmax(input: &Array) -> Option<Vec<(i32, f64)>> {
    let mut sorted: Vec<(i32, f64)> = input
        .data
        .iter()
        .map(|c| (c.id, f64::from(c.logit)))
        .collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    if sorted.windows(2).any(|pair| pair[0].1 == pair[1].1) {
        return None;
    }
    let max = sorted[0].1;
    let sum: f64 = sorted.iter().map(|c| (c.1 - max).exp()).sum();
    Some(
        sorted
            .into_iter()
            .map(|(id, l)| (id, (l - max).exp() / sum))
            .collect(),
    )
}

/// Returns the number of candidates that tail-free sampling keeps; `None` if the running sum is so
/// near to `z` that rounding decides.
fn tail_free(p: &[(i32, f64)], z: f64, min_keep: usize) -> Option<usize> {
    if p.len() <= 2 {
        return Some(p.len());
    }
    let slope: Vec<f64> = p.windows(2).map(|pair| pair[0].1 - pair[1].1).collect();
    let bend: Vec<f64> = slope
        .windows(2)
        .map(|pair| (pair[0] - pair[1]).abs())
        .collect();
    let sum: f64 = bend.iter().sum();
    let mut running = 0.0;
    for (i, bend) in bend.iter().enumerate() {
        running += if sum > 1e-6 {
            bend / sum
        } else {
            1.0 / (p.len() - 2) as f64
        };
        if (running - z).abs() < 1e-4 {
            return None;
        }
        if running > z && i >= min_keep.max(1) {
            return Some(i);
        }
    }
    Some(p.len())
}

const SHAPES: [Shape; 5] = [
    Shape::Peaked,
    Shape::Flat,
    Shape::Wide,
    Shape::Sorted,
    Shape::Shuffled,
];

#[test]
fn softmax_is_its_definition() {
    let mut rng = fresh_rng("softmax_is_its_definition");
    let sampler = HostSampler::new(llama_sieve_init_softmax());
    assert_eq!(sampler.name(), "softmax");
    let mut compared = 0;
    let arrays = number_from_env("LLAMA_SIEVE_TEST_ARRAYS", 20_000) / 4;
    for _ in 0..arrays {
        let input = rng
            .pick(&SHAPES)
            .array(size(&mut rng).min(20_000), &mut rng);
        let mut output = input.clone();
        sampler.apply(&mut output);
        assert!(output.sorted);
        let Some(expected) = softmax(&input) else {
            continue;
        };
        compared += 1;
        for (candidate, (id, p)) in output.data.iter().zip(&expected) {
            assert_eq!(candidate.id, *id);
            // A sum of n floats, added one by one, has an error of at most n roundings. The
            // exponent is a difference that was rounded to a float.
            let exponent = f64::from(output.data[0].logit - candidate.logit);
            let allowed = 1e-6 + 6e-8 * (input.data.len() as f64 + exponent);
            let error = (f64::from(candidate.p) - p).abs();
            assert!(error <= allowed * p + 1e-37, "{candidate:?} != {p}");
        }
    }
    assert!(
        compared * 10 > arrays,
        "only {compared} arrays without ties"
    );
}

#[test]
fn tail_free_is_its_definition() {
    let mut rng = fresh_rng("tail_free_is_its_definition");
    let mut compared = 0;
    let arrays = number_from_env("LLAMA_SIEVE_TEST_ARRAYS", 20_000);
    for _ in 0..arrays {
        let input = rng.pick(&SHAPES).array(size(&mut rng).min(3000), &mut rng);
        let z = rng.pick(&[0.95, 0.5, 0.1, 0.99, 0.0, -1.0, 1.0, 2.0]);
        let min_keep = rng.pick(&[0, 1, 5, 1000]);
        let sampler = HostSampler::new(llama_sieve_init_tail_free(z, min_keep));
        let mut output = input.clone();
        sampler.apply(&mut output);
        if z >= 1.0 {
            assert_eq!((sampler.name().as_str(), &output), ("?tail-free", &input));
            continue;
        }
        assert_eq!(sampler.name(), "tail-free");
        let Some(p) = softmax(&input) else {
            continue;
        };
        let Some(kept) = tail_free(&p, f64::from(z), min_keep) else {
            continue;
        };
        compared += 1;
        assert_eq!(output.data.len(), kept, "z {z}, min_keep {min_keep}");
        if input.data.len() > 2 {
            let ids: Vec<i32> = p[..kept].iter().map(|c| c.0).collect();
            assert_eq!(output.ids(), ids);
        }
    }
    assert!(
        compared * 20 > arrays,
        "only {compared} arrays away from rounding"
    );
}
