use super::*;
use crate::sieve::Sieve;

/// Where only the temperature follows a large nucleus, no candidates are made of it.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_nucleus_that_is_only_divided_stays_apart() {
    const N: usize = 20_000;
    let logits: Vec<f32> = (0..N).map(|i| (i * 7919 % N) as f32 / N as f32).collect();
    let stays_apart = |min_p, top_n_sigma| {
        let params = Params {
            top_k: 0,
            top_p: 0.9,
            min_p,
            top_n_sigma,
            ..Params::default()
        };
        let mut sieve = Sieve::new(&params).expect("ordinary parameters");
        sieve.sample(&logits[..]).expect("a token");
        sieve.workspace.apart
    };
    assert!(stays_apart(0.0, -1.0));
    assert!(!stays_apart(0.01, -1.0));
    assert!(!stays_apart(0.0, 3.0));
}
