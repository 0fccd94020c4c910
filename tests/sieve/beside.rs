//! Tests what the sieve offers beside sampling a token: metrics, top candidates and batches.

use crate::support::arrays::Shape;
use crate::support::fresh_rng;
use crate::{INF, logits, new};
use llama_sieve::sieve::{self, Job, Logits, Params, Sieve, Stage};
use llama_sieve::{Candidates, metrics};

#[test]
fn stats_are_the_metrics_of_the_same_logits() {
    let mut rng = fresh_rng("stats_are_the_metrics_of_the_same_logits");
    for n in [1, 50, 3000, 20_000] {
        let logits = logits(Shape::Peaked, n, &mut rng);
        for (top_k, top_p) in [(40, 0.95), (0, 0.95), (0, 1.0), (1, 1.0)] {
            let mut sieve = new(&Params {
                top_k,
                top_p,
                ..Params::default()
            });
            sieve.accept(0);
            sieve.sample(&logits).expect("there is a candidate");
            assert!(sieve.stats().model_entropy.is_nan());
            sieve.measure(true);
            let token = sieve.sample(&logits).expect("there is a candidate");
            let stats = *sieve.stats();
            let nats = metrics::Base::Nats;
            assert_eq!(Some(stats.model_entropy), metrics::entropy(&logits, nats));
            assert_eq!(
                Some(stats.surprisal),
                metrics::surprisal(&logits, token, nats)
            );
            let drawn = metrics::candidates_entropy(sieve.candidates(), nats);
            assert_eq!(Some(stats.sampling_entropy), drawn);
        }
    }
}

/// Tests the candidates of a chain, too, whose indices are not their ids.
#[test]
fn stats_of_candidates_are_the_metrics_of_their_logits() {
    let mut rng = fresh_rng("stats_of_candidates_are_the_metrics_of_their_logits");
    for stages in [None, Some(&[Stage::TopK, Stage::Temperature][..])] {
        let mut sieve = new(&Params::default());
        sieve.set_stages(stages).expect("good stages");
        sieve.measure(true);
        for n in [2, 50, 3000] {
            let mut data = Shape::Peaked.array(n, &mut rng).tokens();
            rng.shuffle(&mut data);
            let before = data.clone();
            let mut candidates = Candidates::new(&mut data, false);
            sieve
                .sample_candidates(&mut candidates)
                .expect("there is one");
            let chosen = candidates.selected().map(|i| candidates.as_slice()[i].id);
            let place = before.iter().position(|c| Some(c.id) == chosen);
            let place = place.expect("one that was given") as i32;
            let logits: Vec<f32> = before.iter().map(|c| c.logit).collect();
            let surprisal = metrics::surprisal(&logits, place, metrics::Base::Nats);
            assert_eq!(Some(sieve.stats().surprisal), surprisal);
        }
    }
}

#[test]
fn top_candidates_are_the_head_of_the_softmax() {
    let mut rng = fresh_rng("top_candidates_are_the_head_of_the_softmax");
    for n in [1, 3, 1000, 40_000] {
        let logits = logits(Shape::Peaked, n, &mut rng);
        let lse = metrics::Summary::of(&logits).log_sum_exp();
        let mut order: Vec<i32> = (0..n as i32).collect();
        order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
        for wanted in [0, 1, 5, 200, n, n + 1] {
            let mut top = Vec::new();
            sieve::top_candidates(&logits, wanted, &mut top).expect("there is a candidate");
            assert_eq!(top.len(), wanted.min(n));
            for (candidate, &id) in top.iter().zip(&order) {
                assert_eq!(candidate.logit, logits[id as usize]);
                let p = (f64::from(candidate.logit) - lse).exp();
                assert!((f64::from(candidate.p) - p).abs() <= 1e-6 * p);
            }
        }
    }
    let mut top = Vec::new();
    sieve::top_candidates(&[1.0, INF, INF][..], 3, &mut top).expect("there is a candidate");
    let p: Vec<(i32, f32)> = top.iter().map(|c| (c.id, c.p)).collect();
    assert_eq!(p, [(1, 1.0), (2, 0.0), (0, 0.0)]);
    sieve::top_candidates(&[1.0, -INF, f32::NAN][..], 3, &mut top).expect("there is a candidate");
    assert_eq!(top.len(), 1);
}

#[test]
fn a_batch_does_not_depend_on_the_number_of_threads() {
    let mut rng = fresh_rng("a_batch_does_not_depend_on_the_number_of_threads");
    let n = 4000;
    let logits: Vec<Vec<f32>> = (0..33)
        .map(|_| logits(Shape::Peaked, n, &mut rng))
        .collect();
    let run = |threads: usize| -> Vec<Vec<i32>> {
        let make = |seed| {
            new(&Params {
                seed,
                top_k: [40, 0][seed as usize % 2],
                ..Params::default()
            })
        };
        let mut sieves: Vec<Sieve> = (0..33).map(make).collect();
        let step = |_| {
            let pairs = sieves.iter_mut().zip(&logits);
            let mut jobs: Vec<Job> = pairs.map(|(s, l)| Job::new(s, Logits::from(l))).collect();
            sieve::sample_batch(&mut jobs, threads);
            let tokens: Vec<i32> = jobs
                .iter()
                .map(|j| *j.token.as_ref().expect("a token"))
                .collect();
            for (sieve, &token) in sieves.iter_mut().zip(&tokens) {
                sieve.accept(token);
            }
            tokens
        };
        (0..10).map(step).collect()
    };
    let one = run(1);
    for threads in [0, 2, 3, 8, 100] {
        assert_eq!(run(threads), one, "{threads} threads");
    }
}
