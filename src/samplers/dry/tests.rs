use super::*;
use crate::lcg::Lcg;
use crate::token::array_of;

#[test]
fn the_reach_is_what_comparing_gives() {
    let mut lcg = Lcg(5);
    // All 60 lengths would take minutes under Miri.
    for n in 0..if cfg!(miri) { 20 } else { 60 } {
        let tokens: Vec<Token> = (0..n).map(|_| (lcg.bits() >> 31) as Token).collect();
        let mut reach = Vec::new();
        reach_of_end(&tokens, &mut reach);
        for k in 1..n {
            let pairs = tokens[k..].iter().zip(&tokens);
            let naive = pairs.take_while(|(a, b)| a == b).count();
            assert_eq!(reach[k], naive, "{tokens:?} at {k}");
        }
    }
}

/// The search takes as many steps as there are tokens. Comparing at each position would take hours.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn the_reach_of_one_token_is_found_in_one_pass() {
    const N: usize = 1 << 22;
    let mut reach = Vec::new();
    reach_of_end(&vec![7; N], &mut reach);
    assert!(reach.iter().skip(1).copied().eq((1..N).rev()));
}

/// Returns the logit, after the penalty, of the token that would continue the repetition.
fn penalised(allowed_length: i32) -> f32 {
    let params = DryParams {
        multiplier: 0.8,
        base: 1.75,
        allowed_length,
        last_n: 64,
    };
    let mut dry = Dry::new(params).expect("the parameters enable it");
    for token in [1, 2, 3, 1, 2] {
        dry.accept(token);
    }
    let mut data = array_of(&[1.0; 4]);
    dry.apply(&mut Candidates::new(&mut data, false));
    data[3].logit
}

#[test]
fn the_least_allowed_length_penalises_as_every_far_negative_one() {
    assert!(penalised(-1_000_000_000) < -1e30);
    assert_eq!(penalised(i32::MIN), penalised(-1_000_000_000));
}

/// A power that is too large for a `float` is cut to the largest finite one, as in the built-in.
#[test]
fn a_penalty_stays_finite_where_a_power_of_the_base_does() {
    let penalty = |base: f32| {
        let params = DryParams {
            multiplier: 1.0,
            base,
            allowed_length: 0,
            last_n: 500,
        };
        let mut dry = Dry::new(params).expect("the parameters enable it");
        for _ in 0..500 {
            dry.accept(1);
        }
        let mut data = array_of(&[0.0; 2]);
        dry.apply(&mut Candidates::new(&mut data, false));
        -data[1].logit
    };
    assert_eq!(penalty(10.0), 1e38);
    // For these bases either all powers are finite or none is, so nothing is cut.
    assert_eq!(penalty(1.0), 1.0);
    assert_eq!(penalty(f32::INFINITY), f32::INFINITY);
}
