//! Compares samplers on the logits of a vocabulary with the same samplers on the array of its
//! candidates.

use super::*;
use crate::built_in::BuiltIn;
use crate::candidates::Candidates;
use crate::last_error;
use crate::lcg::Lcg;
use crate::pool::{Buffers, Pool};
use crate::rng::SeededMt19937;
use crate::sampler::Sampler;
use crate::token::{TokenData, array_of};

const N: usize = 20_000;

/// Returns numbers around 0, hardly any of which are equal. With a wide `range` the distribution is
/// peaked.
fn logits(range: f32) -> Vec<f32> {
    let mut lcg = Lcg(7);
    let mut unit = || lcg.unit();
    let normal = |_| range * ((unit() + unit() + unit() + unit()) / 4.0 - 0.5);
    (0..N).map(normal).collect()
}

/// Two samplers in the same state: one for the logits, and one for the array.
struct Ways {
    narrow: Box<dyn FnMut(&mut Pool<'_>)>,
    apply: Box<dyn FnMut(&mut Candidates<'_>)>,
}

fn ways(sampler: Option<impl Sampler>) -> Ways {
    let mut narrows = sampler.expect("one that does something");
    // Accepts some tokens, the last one twice, for samplers that remember them.
    for token in [1, 2, 3, 3] {
        narrows.accept(token);
    }
    let mut applies = narrows.clone();
    Ways {
        narrow: Box::new(move |pool| narrows.narrow(pool)),
        apply: Box::new(move |candidates| applies.apply(candidates)),
    }
}

/// Returns chains with their names.
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
        ("min-p of 1", vec![ways(MinP::new(1.0, 1)), dist()]),
        ("top-p", vec![ways(TopP::new(0.9, 1)), dist()]),
        ("top-n-sigma", vec![ways(TopNSigma::new(1.0)), dist()]),
        ("typical", vec![ways(Typical::new(0.9, 1)), dist()]),
        ("top-a", vec![ways(TopA::new(50.0)), dist()]),
        (
            "epsilon",
            vec![ways(EpsilonCutoff::new(3e-4)), temp(), dist()],
        ),
        ("eta", vec![ways(EtaCutoff::new(0.5)), dist()]),
        ("p-less", vec![ways(Some(PLess::new(false))), dist()]),
        ("min-k", vec![ways(MinK::new(0.0)), dist()]),
        ("top-h", vec![ways(TopH::new(0.4)), dist()]),
        ("top-h, temp", vec![ways(TopH::new(0.5)), temp(), dist()]),
        ("quadratic", vec![ways(Quadratic::new(0.2, 1.5)), dist()]),
        ("xtc", vec![xtc(), dist()]),
        ("xtc, temp", vec![xtc(), temp(), dist()]),
        ("temp-ext", vec![ways(TempExt::new(0.8, 0.3, 1.0)), dist()]),
        (
            "temp-ext without range",
            vec![ways(TempExt::new(0.8, 0.0, 1.0)), dist()],
        ),
        (
            "mirostat",
            vec![ways(Some(Mirostat::new(N as i32, 42, 5.0, 0.1, 100)))],
        ),
        (
            "mirostat-v2",
            vec![ways(Some(MirostatV2::new(42, 5.0, 0.1)))],
        ),
        ("adaptive-p", vec![ways(Some(AdaptiveP::new(0.3, 0.9, 42)))]),
        (
            "adaptive-p of 0",
            vec![ways(Some(AdaptiveP::new(0.0, 0.9, 42)))],
        ),
    ]
}

/// Applies a chain to a pool, and an identical chain to the array of the same logits. Checks that
/// both leave the same candidates. Returns the number of bytes in the pool's buffers before its
/// array was read.
fn compare_ways(name: &str, mut chain: Vec<Ways>, logits: &[f32]) -> usize {
    let mut buffers = Buffers::default();
    let mut pool = Pool::new(logits, &mut buffers);
    for sampler in &mut chain {
        (sampler.narrow)(&mut pool);
    }
    let left = pool.leave();
    let bytes = buffers.bytes();

    let mut data = array_of(logits);
    let mut candidates = Candidates::new(&mut data, false);
    for sampler in &mut chain {
        (sampler.apply)(&mut candidates);
    }
    let mut pool = Pool::resume(logits.into(), &mut buffers, left).expect("the same logits");
    let token = pool.token();
    let chosen = candidates.selected().map(|i| candidates.as_slice()[i].id);
    assert_eq!(token, chosen, "{name}");
    let (ours, sorted) = pool.array();
    assert_eq!(sorted, candidates.is_sorted(), "{name}");
    // All NaN count as equal.
    let bits = |x: f32| if x.is_nan() { u32::MAX } else { x.to_bits() };
    let bits = |c: &TokenData| (c.id, bits(c.logit), bits(c.p));
    let ours: Vec<_> = ours.iter().map(bits).collect();
    let theirs: Vec<_> = candidates.as_slice().iter().map(bits).collect();
    assert!(ours == theirs, "{name}");
    bytes
}

/// A pool gives the results of the array without making the array, which would cost more than
/// everything else. The results do not show whether it was made.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn ordinary_logits_need_no_array_of_the_vocabulary() {
    for (range, keeps_many) in [(60.0, false), (12.0, true)] {
        let logits = logits(range);
        for (name, chain) in chains() {
            let bytes = compare_ways(name, chain, &logits);
            // Some of the thousands of tokens that typical keeps are equally near to the entropy.
            let has_ties = keeps_many && name == "typical";
            let made = bytes >= N * size_of::<TokenData>();
            assert_eq!(made, has_ties, "{name}: {bytes} bytes");
        }
    }
}

/// Returns chains with parameters at the ends of their ranges, which may need the array.
fn odd_chains() -> Vec<(&'static str, Vec<Ways>)> {
    let dist = || ways(Some(Dist::new(42)));
    let before = |sampler| vec![sampler, dist()];
    let temp_ext = |t, delta| before(ways(TempExt::new(t, delta, 1.0)));
    let adaptive_p = |target| vec![ways(Some(AdaptiveP::new(target, 0.9, 42)))];
    let xtc = |threshold| before(ways(Xtc::new(1.0, threshold, 1, 42)));
    vec![
        ("temp of NaN", before(ways(Temp::new(f32::NAN)))),
        ("temp-ext of nearly 0", temp_ext(1e-38, 1e-38)),
        ("temp-ext without end", temp_ext(1.0, f32::INFINITY)),
        ("adaptive-p of NaN", adaptive_p(f32::NAN)),
        ("adaptive-p that is disabled", adaptive_p(-1.0)),
        ("min-p above 1", before(ways(MinP::new(1.5, 1)))),
        ("min-p, many kept", before(ways(MinP::new(0.5, 3000)))),
        ("top-p of 0", before(ways(TopP::new(0.0, 0)))),
        ("top-p, many kept", before(ways(TopP::new(0.1, 3000)))),
        ("typical of 0", before(ways(Typical::new(0.0, 0)))),
        ("typical, many kept", before(ways(Typical::new(0.1, 3000)))),
        ("xtc of all", xtc(0.0)),
        ("xtc of none", xtc(0.49)),
        ("epsilon of all", before(ways(EpsilonCutoff::new(1e-30)))),
        ("top-a of most", before(ways(TopA::new(0.001)))),
        ("eta of most", before(ways(EtaCutoff::new(1e-5)))),
        ("epsilon of one", before(ways(EpsilonCutoff::new(2.0)))),
        ("p-less, normalised", before(ways(Some(PLess::new(true))))),
        ("min-k of many", before(ways(MinK::new(1e4)))),
        ("top-h of one", before(ways(TopH::new(0.0)))),
        ("top-h of nearly all", before(ways(TopH::new(0.999)))),
        (
            "quadratic out of order",
            before(ways(Quadratic::new(0.2, 8.0))),
        ),
        ("top-h behind a choice", {
            vec![ways(Some(Greedy)), ways(TopH::new(0.5)), dist()]
        }),
        ("top-a behind an order", {
            let mut both = before(ways(TopA::new(0.1)));
            both.insert(0, ways(TopP::new(0.9, 1)));
            both
        }),
        ("quadratic behind an order", {
            let mut both = before(ways(Quadratic::new(0.1, 1.0)));
            both.insert(0, ways(TopP::new(0.9, 1)));
            both
        }),
        ("temp-ext twice", {
            let mut twice = temp_ext(0.8, 0.3);
            twice.insert(0, ways(TempExt::new(1.2, 0.3, 1.0)));
            twice
        }),
        ("xtc, then temp-ext", {
            let mut both = xtc(0.001);
            both.insert(1, ways(TempExt::new(1.2, 0.3, 1.0)));
            both
        }),
    ]
}

/// Few logits, equal ones, and some that are infinite or NaN.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn both_ways_leave_the_same_of_any_logits() {
    let few = |n: usize| logits(12.0)[..n].to_vec();
    let with = |odd: f32| {
        let mut logits = few(5000);
        logits[777] = odd;
        logits
    };
    let rounded = |to: f32| few(5000).iter().map(|x| (x * to).round() / to).collect();
    let kinds: [Vec<f32>; 13] = [
        few(1),
        few(2),
        few(40),
        few(4095),
        few(4096),
        vec![0.5; 5000],
        rounded(4.0),
        rounded(100.0),
        with(f32::INFINITY),
        with(f32::NEG_INFINITY),
        with(f32::NAN),
        // So large that the number of its bucket overflows in the built-ins' sort.
        with(4e8),
        with(f32::MIN),
    ];
    for logits in &kinds {
        for (name, chain) in chains().into_iter().chain(odd_chains()) {
            let what = format!(
                "{name}, {} logits, {}",
                logits.len(),
                logits[logits.len() / 7]
            );
            compare_ways(&what, chain, logits);
        }
    }
}

/// The array is made only if that is faster, or if the steps of the built-in are needed. The
/// results do not show whether it was made, only the time does.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn the_array_is_made_where_that_is_sooner() {
    let dist = || ways(Some(Dist::new(42)));
    let temp_ext = |t, delta| ways(TempExt::new(t, delta, 1.0));
    let xtc = |threshold| ways(Xtc::new(1.0, threshold, 1, 42));
    let adaptive_p = || ways(Some(AdaptiveP::new(0.3, 0.9, 42)));
    let greedy = || ways(Some(Greedy));
    let mirostat = |m| ways(Some(Mirostat::new(N as i32, 42, 5.0, 0.1, m)));
    let makes_it = [
        ("dist of few", vec![dist()], 4095),
        ("adaptive-p of few", vec![adaptive_p()], 1023),
        ("temp-ext of nearly 0", vec![temp_ext(1e-39, 1e-39)], N),
        (
            "temp-ext without end",
            vec![temp_ext(1.0, f32::INFINITY)],
            N,
        ),
        ("xtc of all", vec![xtc(0.0)], N),
        ("xtc behind a choice", vec![greedy(), xtc(0.001)], N),
        ("mirostat, a large share", vec![mirostat(2501)], N),
    ];
    let does_not = [
        ("dist of many", vec![dist()], 4096),
        ("adaptive-p of many", vec![adaptive_p()], 1024),
        ("temp-ext", vec![temp_ext(0.8, 0.3)], N),
        ("xtc of none", vec![xtc(0.49)], N),
        ("mirostat, a smaller share", vec![mirostat(2500)], N),
        ("mirostat, one", vec![mirostat(1)], N),
    ];
    let made = makes_it.into_iter().map(|of| (of, true));
    let spared = does_not.into_iter().map(|of| (of, false));
    for ((name, chain, n), made) in made.chain(spared) {
        let bytes = compare_ways(name, chain, &logits(12.0)[..n]);
        assert_eq!(bytes >= n * size_of::<TokenData>(), made, "{name}: {bytes}");
    }
}

#[test]
fn a_disabled_selector_takes_the_largest() {
    let mut data = array_of(&[1.0, 3.0, 2.0]);
    let mut candidates = Candidates::new(&mut data, false);
    DisabledSelector::new(c"?greedy").apply(&mut candidates);
    assert_eq!(candidates.selected(), Some(1));
}

/// An infinite temperature makes all candidates equally probable.
#[test]
fn without_end_dynamic_temperature_flattens() {
    let mut data = array_of(&[1.0, 3.0, 2.0, 0.5]);
    let mut temp_ext = TempExt::new(1.0, f32::INFINITY, 1.0).expect("it does something");
    temp_ext.apply(&mut Candidates::new(&mut data, false));
    assert!(data.iter().all(|c| (c.logit, c.p) == (0.0, 0.25)));
}

/// If the curve is straight everywhere, each candidate has the same weight.
#[test]
fn tail_free_cuts_equal_candidates_by_their_number() {
    let mut data = vec![TokenData::default(); 100];
    let mut candidates = Candidates::new(&mut data, false);
    let mut tail_free = TailFree::new(0.505, 1).expect("it cuts something");
    tail_free.apply(&mut candidates);
    // There are 98 differences, and the sum of the first 50 exceeds z.
    assert_eq!(candidates.len(), 49);
}

/// XTC acts if the draw equals the probability, since the comparison is that of the built-in.
#[test]
fn xtc_acts_where_the_draw_is_its_probability() {
    let draw = SeededMt19937::new(42).stream.uniform_f32();
    for (probability, left) in [(draw, 1), (draw.next_down(), 3)] {
        let mut data = vec![TokenData::default(); 3];
        let mut candidates = Candidates::new(&mut data, false);
        let mut xtc = Xtc::new(probability, 0.1, 1, 42).expect("it does something");
        xtc.apply(&mut candidates);
        assert_eq!(candidates.len(), left);
    }
}

/// With a single candidate there is no choice to exclude.
#[test]
fn xtc_acts_on_two() {
    for n in [1, 2] {
        let mut data = vec![TokenData::default(); n];
        let mut candidates = Candidates::new(&mut data, false);
        let mut xtc = Xtc::new(1.0, 0.1, 1, 42).expect("it does something");
        xtc.apply(&mut candidates);
        assert_eq!(candidates.len(), 1);
    }
}

#[test]
fn only_tokens_outside_a_known_vocabulary_are_complained_about() {
    for (n_vocab, token, complains) in [
        (10, 10, true),
        (10, -1, true),
        (10, 9, false),
        (0, 10, false),
        (-1, 10, false),
    ] {
        let penalties = Penalties::new(n_vocab, 8, 1.5, 0.0, 0.0);
        let mut penalties = penalties.expect("a factor");
        last_error::clear();
        penalties.accept(token);
        assert_eq!(
            !last_error::get().is_empty(),
            complains,
            "{token} of {n_vocab}"
        );
    }
}

/// Checks that the built-in that replaces a sampler in a graph has the sampler's arguments, and has
/// accepted the tokens of its window.
#[test]
fn the_built_in_is_made_of_the_same_arguments() {
    fn of(sampler: Option<impl Sampler>) -> Option<BuiltIn> {
        sampler.expect("one that does something").built_in()
    }
    let mut penalties = Penalties::new(100, 2, 1.3, 0.1, 0.2).expect("some factors");
    [1, 2, 3]
        .into_iter()
        .for_each(|token| penalties.accept(token));
    // A sampler that goes on from another window passes on only the newest tokens.
    let mut copied = Penalties::new(100, 2, 1.3, 0.1, 0.2).expect("some factors");
    let mut longer = Penalties::new(100, 9, 1.1, 0.0, 0.0).expect("a factor");
    [7, 1, 2, 3]
        .into_iter()
        .for_each(|token| longer.accept(token));
    copied.copy_state(&longer);
    assert_eq!(copied.built_in(), penalties.built_in());
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
            of(LogitBias::new(&[(3, 1.5)]).map(|bias| bias.of_vocabulary(100))),
            BuiltIn::LogitBias {
                n_vocab: 100,
                biases: vec![(3, 1.5)],
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

/// A stream that has begun continues in the built-in, with its random seed.
#[test]
fn a_generator_goes_on_in_the_built_in() {
    let candidate = TokenData::new(0, 0.0);
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
