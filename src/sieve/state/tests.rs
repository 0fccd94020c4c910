use super::*;
use crate::sieve::{Params, Sieve};

#[test]
fn the_largest_numbers_of_a_state_go_on_too() {
    let params = Params {
        min_keep: usize::MAX,
        seed: u64::MAX,
        rng: RngKind::Xoroshiro128Plus,
        ..Params::default()
    };
    let mut sieve = Sieve::new(&Params::default()).expect("the defaults are good");
    let state = State {
        place: Place {
            kind: RngKind::Xoroshiro128Plus,
            seed: u64::MAX,
            draws: u64::MAX,
            state: [1, 2],
            words: None,
        },
        accepted: u64::MAX,
        window: [7].into_iter(),
        params: &params,
        stages: &Members::default(),
    };
    let mut bytes = vec![0; size(1, &params, &Members::default())];
    state.write(&mut bytes);
    sieve.load_with_params(&bytes).expect("a whole state");
    assert_eq!(sieve.params(), &params);
    let logits = [1.0f32, 2.0, 3.0];
    let token = sieve.sample(&logits[..]).expect("a token");
    sieve.accept(token);
    assert_eq!(sieve.accepted(), 0);
}
