use super::*;
use crate::pool::{Buffers, Pool};

/// With a p above 1 no candidate passes, and the steps of the built-in decide which ones are left,
/// even if `min_keep` is 0.
#[test]
fn a_share_above_1_is_not_taken_of_the_whole() {
    for (p, could) in [(1.0, true), (1.5, false), (f32::INFINITY, false)] {
        let mut buffers = Buffers::default();
        let mut pool = Pool::new(&[1.0, 3.0, 2.0], &mut buffers);
        let mut min_p = MinP::new(p, 0).expect("it cuts something");
        assert_eq!(
            min_p.narrow_whole(pool.whole().expect("a new pool")),
            could,
            "{p}"
        );
    }
}
