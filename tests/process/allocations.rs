//! After warm-up no drop-in allocates: not in `apply`, not in `accept`.

use crate::counting_allocator::allocations;
use crate::support::alone;
use crate::support::arrays::{Rng, Shape};
use crate::support::family::FAMILY;

#[test]
fn no_drop_in_allocates_after_warm_up() {
    let _alone = alone();
    const N: usize = 4000;
    let mut rng = Rng(11);
    for member in FAMILY {
        for _ in 0..20 {
            let pair = (member.make)(&mut rng, N as i32, true);
            let mut arrays = Vec::new();
            for _ in 0..20 {
                let shape = rng.pick(&[Shape::Peaked, Shape::Flat, Shape::Masked, Shape::Shuffled]);
                arrays.push(shape.array(N.min(member.max_size), &mut rng));
            }
            // Warm-up: every path that these arrays take, and a window of which every token has
            // been replaced.
            for array in &arrays {
                pair.ours.apply(&mut array.clone());
            }
            for _ in 0..5000 {
                pair.ours.accept(rng.below(N) as i32);
            }
            let before = allocations();
            for array in &mut arrays {
                pair.ours.apply(array);
                pair.ours.accept(rng.below(N) as i32);
            }
            assert_eq!(allocations(), before, "{} allocates", pair.label);
        }
    }
}
