use super::*;
use crate::sieve::{Params, Stage};

/// The rehearsal has XTC act, and then leaves it the chance that was asked for.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_rehearsal_leaves_xtc_its_chance() {
    let mut sieve = Sieve::new(&Params::default()).expect("ordinary parameters");
    let xtc = Stage::Xtc {
        probability: 0.25,
        threshold: 0.1,
    };
    sieve.set_stages(Some(&[xtc])).expect("ordinary stages");
    sieve.reserve(100).expect("there is memory");
    let members = &mut sieve.pipeline.members;
    assert_eq!(members.swap_xtc_probability(0.5), Some(0.25));
    assert_eq!(members.swap_xtc_probability(0.25), Some(0.5));
}
