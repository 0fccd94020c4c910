//! Samplers on the logits of a vocabulary beside the same ones on the array of its candidates.

use super::*;
use crate::built_in::BuiltIn;
use crate::candidates::Candidates;
use crate::lcg::Lcg;
use crate::pool::{Buffers, Pool};
use crate::sampler::Sampler;
use crate::token::{Token, TokenData};

const N: usize = 20_000;

/// Numbers around 0 of which hardly any are equal, those of a wide `range` peaked.
fn logits(range: f32) -> Vec<f32> {
    let mut lcg = Lcg(7);
    let mut unit = || lcg.unit();
    let normal = |_| range * ((unit() + unit() + unit() + unit()) / 4.0 - 0.5);
    (0..N).map(normal).collect()
}

/// Two samplers of the same state, one for each way.
struct Ways {
    narrow: Box<dyn FnMut(&mut Pool<'_>)>,
    apply: Box<dyn FnMut(&mut Candidates<'_>)>,
}

fn ways(sampler: Option<impl Sampler>) -> Ways {
    let mut narrows = sampler.expect("one that does something");
    // A repetition of 3, for those that remember.
    for token in [1, 2, 3, 3] {
        narrows.accept(token);
    }
    let mut applies = narrows.clone();
    Ways {
        narrow: Box::new(move |pool| narrows.narrow(pool)),
        apply: Box::new(move |candidates| applies.apply(candidates)),
    }
}

/// Chains with their names.
fn chains() -> Vec<(&'static str, Vec<Ways>)> {
    let dist = || ways(Some(Dist::new(42)));
    let penalties = ways(Penalties::new(N as i32, 64, 1.3, 0.1, 0.2));
    let dry = ways(Dry::new(DryParams {
        multiplier: 0.8,
        base: 1.75,
        allowed_length: 1,
        last_n: 64,
    }));
    let bias = ways(LogitBias::new(&[(3, 1.5), (9, -2.0)]));
    let xtc = || ways(Xtc::new(1.0, 0.0001, 1, 42));
    let temp = || ways(Temp::new(0.8));
    vec![
        ("dist", vec![dist()]),
        ("greedy", vec![ways(Some(Greedy))]),
        ("logit-bias", vec![bias, dist()]),
        ("penalties", vec![penalties, dist()]),
        ("dry", vec![dry, dist()]),
        ("temp", vec![temp(), dist()]),
        ("temp of 0", vec![ways(Temp::new(0.0)), dist()]),
        ("top-k", vec![ways(TopK::new(40)), dist()]),
        ("min-p", vec![ways(MinP::new(0.05, 1)), dist()]),
        ("top-p", vec![ways(TopP::new(0.9, 1)), dist()]),
        ("top-n-sigma", vec![ways(TopNSigma::new(1.0)), dist()]),
        ("typical", vec![ways(Typical::new(0.9, 1)), dist()]),
        ("xtc", vec![xtc(), dist()]),
        ("xtc, temp", vec![xtc(), temp(), dist()]),
        ("temp-ext", vec![ways(TempExt::new(0.8, 0.3, 1.0)), dist()]),
        (
            "mirostat",
            vec![ways(Some(Mirostat::new(N as i32, 42, 5.0, 0.1, 100)))],
        ),
        (
            "mirostat-v2",
            vec![ways(Some(MirostatV2::new(42, 5.0, 0.1)))],
        ),
        ("adaptive-p", vec![ways(Some(AdaptiveP::new(0.3, 0.9, 42)))]),
    ]
}

/// Both ways leave the same. That of the pool does it without the array, which costs more than all
/// else: whether it is made is what no result shows.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn ordinary_logits_need_no_array_of_the_vocabulary() {
    for (name, mut chain) in chains() {
        for logits in [logits(60.0), logits(12.0)] {
            let mut buffers = Buffers::default();
            let mut pool = Pool::new(&logits[..], &mut buffers);
            for sampler in &mut chain {
                (sampler.narrow)(&mut pool);
            }
            let left = pool.leave();
            let bytes = buffers.bytes();
            assert!(bytes < N * size_of::<TokenData>(), "{name}: {bytes} bytes");

            let candidate = |(&logit, id): (&f32, Token)| TokenData { id, logit, p: 0.0 };
            let mut data: Vec<TokenData> = logits.iter().zip(0..).map(candidate).collect();
            let mut candidates = Candidates::new(&mut data, false);
            for sampler in &mut chain {
                (sampler.apply)(&mut candidates);
            }
            let mut pool =
                Pool::resume((&logits[..]).into(), &mut buffers, left).expect("the same logits");
            let token = pool.token();
            let chosen = candidates.selected().map(|i| candidates.as_slice()[i].id);
            assert_eq!(token, chosen, "{name}");
            let (ours, sorted) = pool.array();
            assert_eq!(sorted, candidates.is_sorted(), "{name}");
            let bits = |c: &TokenData| (c.id, c.logit.to_bits(), c.p.to_bits());
            let ours: Vec<_> = ours.iter().map(bits).collect();
            let theirs: Vec<_> = candidates.as_slice().iter().map(bits).collect();
            assert!(ours == theirs, "{name}");
        }
    }
}

/// What takes a sampler's place in a graph has its arguments, and has seen what it saw.
#[test]
fn the_built_in_is_made_of_the_same_arguments() {
    fn of(sampler: Option<impl Sampler>) -> Option<BuiltIn> {
        sampler.expect("one that does something").built_in()
    }
    let mut penalties = Penalties::new(100, 2, 1.3, 0.1, 0.2).expect("some factors");
    [1, 2, 3]
        .into_iter()
        .for_each(|token| penalties.accept(token));
    let (p, min_keep) = (0.9, 3);
    for (told, expected) in [
        (of(Some(Greedy)), BuiltIn::Greedy),
        (of(TopK::new(40)), BuiltIn::TopK { k: 40 }),
        (of(TopP::new(p, min_keep)), BuiltIn::TopP { p, min_keep }),
        (of(MinP::new(p, min_keep)), BuiltIn::MinP { p, min_keep }),
        (of(Temp::new(0.8)), BuiltIn::Temp { t: 0.8 }),
        (
            of(TempExt::new(0.8, 0.3, 1.5)),
            BuiltIn::TempExt {
                t: 0.8,
                delta: 0.3,
                exponent: 1.5,
            },
        ),
        (
            of(Some(penalties)),
            BuiltIn::Penalties {
                n_vocab: 100,
                last_n: 2,
                repeat: 1.3,
                freq: 0.1,
                present: 0.2,
                accepted: vec![2, 3],
            },
        ),
    ] {
        assert_eq!(told, Some(expected));
    }
}

/// A random seed is not drawn twice: what has begun goes on in the built-in.
#[test]
fn a_generator_goes_on_in_the_built_in() {
    let candidate = TokenData {
        id: 0,
        logit: 0.0,
        p: 0.0,
    };
    for asked in [42, u32::MAX] {
        let mut dist = Dist::new(asked);
        let seed = asked;
        let begun = BuiltIn::Dist { seed, draws: 0 };
        assert_eq!(dist.built_in(), Some(begun.clone()));
        let mut data = [candidate; 2];
        dist.apply(&mut Candidates::new(&mut data, false));
        let seed = dist.seed().expect("it draws");
        assert_eq!(seed == asked, asked == 42);
        assert_eq!(dist.built_in(), Some(BuiltIn::Dist { seed, draws: 1 }));
        dist.reset();
        assert_eq!(dist.built_in(), Some(begun));
    }
}
