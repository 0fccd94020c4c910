use super::*;

/// The exponentials of few candidates lie beside the array, those of many in it.
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
