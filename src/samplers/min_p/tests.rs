use super::*;
use crate::samplers::tests::assert_room;

#[test]
fn room_is_made_for_as_many_as_are_said() {
    const N: usize = 1000;
    let warm: [fn(&mut MinP); 2] = [|min_p| min_p.warm_up(N), |min_p| min_p.warm_up_sort(N)];
    for warm in warm {
        let mut min_p = MinP::new(0.05, 1).expect("it cuts something");
        warm(&mut min_p);
        assert_room(&min_p.passing, N);
    }
}
