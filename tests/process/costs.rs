//! The cost of inputs that a stranger can choose, beside a usual one: more, but not many times
//! more.
//!
//! The shortest of several turns, taken in turn with the other, is compared: what disturbs one of
//! them only makes it longer.

use std::time::Duration;

use crate::support::alone;
use crate::support::arrays::Rng;
use crate::thread_time::thread_time;
use llama_sieve::samplers::{LogitBias, TempExt, TopP, Typical};
use llama_sieve::sieve::{Params, Sieve};
use llama_sieve::{Candidates, Sampler, TokenData};

const V: usize = 128_256;

fn shortest(runs: usize, mut run: impl FnMut() -> Duration) -> Duration {
    let times = (0..runs).map(|_| run());
    times.min().expect("at least one")
}

/// Checks that `strange` takes at most `factor` times as long as `usual`, in one of some attempts.
fn compare(
    what: &str,
    factor: u32,
    usual: impl FnMut() -> Duration,
    strange: impl FnMut() -> Duration,
) {
    let (mut usual, mut strange) = (usual, strange);
    let mut told = String::new();
    for _ in 0..8 {
        let (ours, theirs) = (shortest(10, &mut strange), shortest(10, &mut usual));
        told = format!("{what}: {ours:?}, usually {theirs:?}");
        if ours <= theirs * factor {
            eprintln!("{told}");
            return;
        }
    }
    panic!("{told}");
}

fn timed<T>(run: impl FnOnce() -> T) -> Duration {
    let start = thread_time();
    std::hint::black_box(run());
    thread_time() - start
}

fn normal() -> Vec<f32> {
    let mut rng = Rng(3);
    // The sum of twelve uniform numbers is nearly so distributed.
    let mut number = || (0..12).map(|_| rng.below(1 << 20) as f32).sum::<f32>() / (1 << 20) as f32;
    (0..V).map(|_| 2.4 * (number() - 6.0) - 1.5).collect()
}

fn sieve(params: &Params) -> Sieve {
    let params = Params {
        seed: 1,
        bias: params.bias.clone(),
        ..*params
    };
    Sieve::new(&params).expect("valid parameters")
}

fn sampled<'a>(sieve: &'a mut Sieve, logits: &'a [f32]) -> impl FnMut() -> Duration + 'a {
    move || timed(|| sieve.sample(logits).expect("there is a candidate"))
}

fn candidates(logits: &[f32]) -> Vec<TokenData> {
    let candidates = (0..).zip(logits);
    candidates
        .map(|(id, &logit)| TokenData { id, logit, p: 0.0 })
        .collect()
}

/// The time of samplers that are applied one after the other, to a copy.
fn applied<'a>(
    samplers: &'a mut [&'a mut dyn FnMut(&mut Candidates<'_>)],
    data: &'a [TokenData],
) -> impl FnMut() -> Duration + 'a {
    let mut copy = data.to_vec();
    move || {
        copy.copy_from_slice(data);
        let mut candidates = Candidates::new(&mut copy, false);
        timed(|| samplers.iter_mut().for_each(|apply| apply(&mut candidates)))
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "unoptimised code has other costs")]
fn equal_logits_in_the_sieve() {
    let _alone = alone();
    let (mut one, mut other) = (sieve(&Params::default()), sieve(&Params::default()));
    for (what, logits) in [
        ("equal logits", vec![1.0; V]),
        (
            "logits of three values",
            (0..V).map(|i| (i % 3) as f32).collect(),
        ),
    ] {
        compare(
            what,
            4,
            sampled(&mut one, &normal()),
            sampled(&mut other, &logits),
        );
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "unoptimised code has other costs")]
fn typical_on_all_of_the_vocabulary_in_the_sieve() {
    let _alone = alone();
    let params = Params {
        top_k: 0,
        typical_p: 0.9,
        top_p: 0.9,
        min_p: 0.0,
        ..Params::default()
    };
    let (usual, equal) = (normal(), vec![1.0; V]);
    let mut far = usual.clone();
    far[7] = -900.0;
    let data = candidates(&usual);
    let mut typical = Typical::new(0.9, 1).expect("0.9 keeps something");
    let mut top_p = TopP::new(0.9, 1).expect("0.9 keeps something");
    let mut first = |candidates: &mut Candidates<'_>| typical.apply(candidates);
    let mut second = |candidates: &mut Candidates<'_>| top_p.apply(candidates);
    let mut samplers: [&mut dyn FnMut(&mut Candidates<'_>); 2] = [&mut first, &mut second];
    let mut samplers = applied(&mut samplers, &data);
    let mut ours = sieve(&params);
    compare("typical", 3, &mut samplers, sampled(&mut ours, &usual));
    compare("one far token", 3, &mut samplers, sampled(&mut ours, &far));
    compare(
        "typical of equals",
        5,
        &mut samplers,
        sampled(&mut ours, &equal),
    );
}

#[test]
#[cfg_attr(debug_assertions, ignore = "unoptimised code has other costs")]
fn a_bias_for_every_token_in_the_sieve() {
    let _alone = alone();
    let logits = normal();
    let data = candidates(&logits);
    let bias: Vec<(i32, f32)> = (0..V as i32).map(|token| (token, 0.5)).collect();
    let mut sampler = LogitBias::new(&bias).expect("there are biases");
    let mut apply = |candidates: &mut Candidates<'_>| sampler.apply(candidates);
    let mut samplers: [&mut dyn FnMut(&mut Candidates<'_>); 1] = [&mut apply];
    let mut sieve = sieve(&Params {
        bias,
        ..Params::default()
    });
    let usual = applied(&mut samplers, &data);
    compare("biases", 3, usual, sampled(&mut sieve, &logits));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "unoptimised code has other costs")]
fn a_small_array_after_a_large_one() {
    let _alone = alone();
    let logits = normal();
    let (small, large) = (candidates(&logits[..2100]), candidates(&[1.0f32; 1 << 20]));
    let mut fresh = TempExt::new(0.8, 0.3, 1.0).expect("it does something");
    let mut used = fresh.clone();
    for logit in [0.0, 1e-6] {
        let mut large = large.clone();
        for (i, candidate) in large.iter_mut().enumerate() {
            candidate.logit += logit * (i * 7919 % (1 << 20)) as f32;
        }
        used.apply(&mut Candidates::new(&mut large, false));
    }
    let mut first = |candidates: &mut Candidates<'_>| fresh.apply(candidates);
    let mut second = |candidates: &mut Candidates<'_>| used.apply(candidates);
    let mut fresh: [&mut dyn FnMut(&mut Candidates<'_>); 1] = [&mut first];
    let mut used: [&mut dyn FnMut(&mut Candidates<'_>); 1] = [&mut second];
    let (fresh, used) = (applied(&mut fresh, &small), applied(&mut used, &small));
    compare("after a large array", 2, fresh, used);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "unoptimised code has other costs")]
fn tokens_that_are_chosen_to_collide() {
    let _alone = alone();
    const N: usize = 8192;
    let usual: Vec<(i32, f32)> = (0..N as i32).map(|token| (token, 0.5)).collect();
    // One bucket of 65536 of a multiplication without a seed.
    let collides = |&token: &u64| {
        let product = token.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (product ^ (product >> 32)) & 0xFFFF == 7
    };
    let tokens = (0..1u64 << 31).filter(collides).take(N);
    let strange: Vec<(i32, f32)> = tokens.map(|token| (token as i32, 0.5)).collect();
    assert_eq!(strange.len(), N);
    let made = |biases: &[(i32, f32)]| timed(|| LogitBias::new(biases));
    compare("colliding tokens", 4, || made(&usual), || made(&strange));
}
