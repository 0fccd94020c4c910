use super::*;
use crate::pool::Buffers;
use crate::token::array_of;

/// The exponentials of few candidates are in a separate buffer, those of many in the array.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn few_candidates_are_drawn_from_aside() {
    for (n, aside) in [
        (2, true),
        (MANY - 1, true),
        (MANY, false),
        (MANY + 1, false),
    ] {
        let mut data = vec![TokenData::default(); n];
        let mut dist = Dist::new(42);
        dist.apply(&mut Candidates::new(&mut data, false));
        let beside = dist.work.values().len();
        assert_eq!(beside, if aside { n } else { 0 }, "{n} candidates");
    }
}

/// If nearly all tokens of a vocabulary are masked, only the others are read. The choice and the
/// remaining candidates are those of the array.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_draw_from_few_unmasked_tokens_is_that_of_the_array() {
    const N: usize = 2 * MANY;
    let mut buffers = Buffers::default();
    let (mut from_pool, mut from_array) = (Dist::new(7), Dist::new(7));
    for round in 0..200 {
        let mut logits = vec![f32::NEG_INFINITY; N];
        for i in 0..1 + round % 40 {
            logits[(i * 2311 + round) % (N / 16)] = (i % 5) as f32 - 0.3 * (i % 3) as f32;
        }
        logits[N - 1] = if round % 3 == 0 { f32::NAN } else { -1.0 };
        let mut pool = Pool::new(&logits[..], &mut buffers);
        assert!(
            pool.whole()
                .is_some_and(|mut whole| whole.few_unmasked().is_some())
        );
        from_pool.narrow(&mut pool);
        let mut data = array_of(&logits);
        let mut candidates = Candidates::new(&mut data, false);
        from_array.apply(&mut candidates);
        let chosen = candidates.selected();
        assert_eq!((pool.selected(), pool.whole().is_none()), (chosen, true));
        let bits =
            |data: &[TokenData]| -> Vec<u32> { data.iter().map(|c| c.p.to_bits()).collect() };
        assert_eq!(bits(pool.array().0), bits(candidates.as_slice()));
    }
}

/// With the profile of older builds a single candidate takes no draw. Draws from several candidates
/// are the same.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_single_candidate_takes_no_draw_of_one_that_spares_it() {
    let chosen = |dist: &mut Dist, n: usize| {
        let logits: Vec<f32> = (0..n).map(|i| -0.01 * i as f32).collect();
        let mut data = array_of(&logits);
        let mut candidates = Candidates::new(&mut data, false);
        dist.apply(&mut candidates);
        candidates.selected()
    };
    let mut profile = HostProfile::UNFUSED;
    profile.one_candidate_draw.dist = false;
    let (mut today, mut sparing) = (Dist::new(42), Dist::new(42));
    for round in 0..20 {
        assert_eq!(profile.trying(|| chosen(&mut sparing, 1)), Some(0));
        assert_eq!(
            chosen(&mut sparing, 900),
            chosen(&mut today, 900),
            "{round}"
        );
    }
    assert_eq!((sparing.draws, today.draws), (20, 20));
    chosen(&mut today, 1);
    assert_eq!(today.draws, 21);
}
