//! Tests of chains without a host. `tests/chains/logits.rs` tests that they choose the built-ins'
//! tokens.

use super::{Chain, ChainError};
use crate::candidates::Candidates;
use crate::lcg::Lcg;
use crate::sampler::Sampler;
use crate::samplers::{
    AdaptiveP, Dist, Greedy, LogitBias, MinP, MirostatV2, Penalties, Temp, TopK, TopP,
};
use crate::token::array_of;

/// Returns approximately normal logits with mean 0.
fn logits(n: usize, seed: u32) -> Vec<f32> {
    let mut lcg = Lcg(seed);
    let mut next = || lcg.unit();
    let normal = |_| 2.0 * (next() + next() + next() + next() - 2.0);
    (0..n).map(normal).collect()
}

fn default_chain(seed: u32) -> Chain {
    Chain::new()
        .with(LogitBias::new(&[
            (7, 3.0),
            (7, -1.0),
            (9, f32::NEG_INFINITY),
        ]))
        .with(Penalties::new(0, 64, 1.3, 0.1, 0.2))
        .with(TopK::new(40))
        .with(TopP::new(0.95, 1))
        .with(MinP::new(0.05, 1))
        .with(Temp::new(0.8))
        .with(Some(Dist::new(seed)))
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_chain_is_its_samplers_one_after_the_other() {
    let mut chain = default_chain(5);
    let mut bias = LogitBias::new(&[(7, 3.0), (7, -1.0), (9, f32::NEG_INFINITY)]).expect("biases");
    let mut penalties = Penalties::new(0, 64, 1.3, 0.1, 0.2).expect("penalties");
    let mut filters = (TopK::new(40), TopP::new(0.95, 1), MinP::new(0.05, 1));
    let (mut temp, mut dist) = (Temp::new(0.8).expect("on"), Dist::new(5));
    for position in 0..50 {
        let logits = logits(9000, position);
        let token = chain.sample(&logits[..]).expect("a token");
        let mut data = array_of(&logits);
        let mut array = Candidates::new(&mut data, false);
        bias.apply(&mut array);
        penalties.apply(&mut array);
        filters.0.as_mut().expect("on").apply(&mut array);
        filters.1.as_mut().expect("on").apply(&mut array);
        filters.2.as_mut().expect("on").apply(&mut array);
        temp.apply(&mut array);
        dist.apply(&mut array);
        let chosen = array.as_slice()[array.selected().expect("dist selects")].id;
        assert_eq!(token, chosen, "position {position}");
        assert_eq!(chain.candidates(&logits[..]), Some(array.as_slice()));
        chain.accept(token);
        penalties.accept(token);
    }
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_copy_goes_on_from_the_same_state_and_a_reset_begins_anew() {
    let mut chain = default_chain(11);
    let all: Vec<_> = (0..20).map(|seed| logits(5000, seed)).collect();
    let sampled = |chain: &mut Chain, logits: &[f32]| {
        let token = chain.sample(logits).expect("a token");
        chain.accept(token);
        token
    };
    let first: Vec<_> = all[..10].iter().map(|l| sampled(&mut chain, l)).collect();
    let mut copy = chain.clone();
    for logits in &all[10..] {
        assert_eq!(sampled(&mut chain, logits), sampled(&mut copy, logits));
    }
    chain.reset();
    let again: Vec<_> = all[..10].iter().map(|l| sampled(&mut chain, l)).collect();
    assert_eq!(first, again);
}

#[test]
fn what_gives_no_token_says_why() {
    let mut chain = Chain::new().with(TopK::new(2));
    let logits = [1.0f32, 2.0, 3.0];
    assert_eq!(chain.sample(&logits[..]), Err(ChainError::NoSelector));
    assert_eq!(chain.candidates(&logits[..]).map(<[_]>::len), Some(2));
    chain.push(Greedy);
    assert_eq!(chain.sample(&logits[..]), Ok(2));
    assert_eq!(chain.candidates(&logits[..2]), None);
    let none: [f32; 0] = [];
    assert_eq!(chain.sample(&none[..]), Err(ChainError::EmptyVocabulary));
    assert_eq!(chain.candidates(&logits[..]), None);
    assert_eq!((chain.len(), chain.is_empty()), (2, false));
    let empty = Chain::new().sample(&logits[..]);
    assert_eq!(empty, Err(ChainError::NoSelector));
}

/// A candidate with a logit of minus infinity counts as no candidate, in every form of the pool.
#[test]
fn what_is_banned_is_no_token() {
    const BANNED: f32 = f32::NEG_INFINITY;
    let selectors: [fn(Chain) -> Chain; 3] = [
        |chain| chain.with(Some(Greedy)),
        |chain| chain.with(Some(Dist::new(1))),
        |chain| chain.with(TopK::new(3)).with(Some(Dist::new(1))),
    ];
    let biases: Vec<_> = (0..700).map(|token| (token, BANNED)).collect();
    for select in selectors {
        for logits in [[BANNED; 700], [f32::NAN; 700]] {
            let mut chain = select(Chain::new());
            assert_eq!(chain.sample(&logits[..]), Err(ChainError::NoCandidate));
        }
        // First as a few edits, then as a column.
        for n in [5, 700] {
            let logits = &[1.0f32; 700][..n];
            let ban = || LogitBias::new(&biases[..n]);
            let mut chain = select(Chain::new().with(ban()));
            assert_eq!(chain.sample(logits), Err(ChainError::NoCandidate));
            let mut chain = select(Chain::new().with(ban()).with(Temp::new(0.5)));
            assert_eq!(chain.sample(logits), Err(ChainError::NoCandidate));
            // All tokens but one are banned.
            let mut chain = select(Chain::new().with(LogitBias::new(&biases[..n - 1])));
            assert_eq!(chain.sample(logits), Ok(n as i32 - 1));
        }
    }
}

/// If a candidate is banned after a sampler that sorts, the array stays marked as sorted. Like the
/// built-ins, selectors then take the first candidate for the largest, even if it is banned, and
/// may choose a banned candidate.
#[test]
fn what_is_banned_behind_a_sort_is_no_token_though_others_are_left() {
    const BANNED: f32 = f32::NEG_INFINITY;
    let selectors: [fn(Chain) -> Chain; 3] = [
        |chain| chain.with(Some(Dist::new(1))),
        |chain| chain.with(Some(MirostatV2::new(1, 5.0, 0.1))),
        |chain| chain.with(Some(AdaptiveP::new(0.3, 0.9, 1))),
    ];
    for (number, select) in selectors.into_iter().enumerate() {
        for n in [3, 9000] {
            let mut logits = vec![-20.0f32; n];
            logits[..3].copy_from_slice(&[3.0, 5.0, 2.0]);
            let sorted = || Chain::new().with(TopK::new(3));
            let ban = || LogitBias::new(&[(1, BANNED), (2, BANNED)]);
            let mut chain = select(sorted().with(ban()));
            let mut none = 0;
            for _ in 0..50 {
                let sampled = chain.sample(&logits[..]);
                none += usize::from(sampled == Err(ChainError::NoCandidate));
                assert!(matches!(sampled, Err(ChainError::NoCandidate) | Ok(0)));
            }
            assert!(none > 0, "selector {number}, {n} logits");
            // A ban before the sampler that sorts has the expected effect.
            let mut chain = select(Chain::new().with(ban()).with(TopK::new(3)));
            for _ in 0..50 {
                assert_ne!(chain.sample(&logits[..]), Err(ChainError::NoCandidate));
            }
        }
    }
}

/// NaN counts as minus infinity, as in every sampler of this library.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn nan_is_never_chosen() {
    for (n, seed) in [(3000, 1), (9000, 2), (9000, 3)] {
        let mut logits = logits(n, seed);
        for logit in logits.iter_mut().step_by(3) {
            *logit = f32::NAN;
        }
        for position in 0..20 {
            let mut chain = match position % 3 {
                0 => default_chain(position),
                1 => Chain::new().with(Some(Dist::new(position))),
                _ => Chain::new().with(Temp::new(0.7)).with(Some(Greedy)),
            };
            let token = chain.sample(&logits[..]).expect("a token");
            assert!(!logits[token as usize].is_nan());
        }
    }
}
