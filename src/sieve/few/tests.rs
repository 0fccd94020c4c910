use super::*;

/// What looks at more than order and probability is left to its sampler, and so are many.
#[test]
fn few_candidates_take_the_place_of_the_samplers() {
    let candidates = [TokenData::default(); MOST + 1];
    let fits = |params: Params, n: usize| super::fits(&Stages::new(&params), &candidates[..n]);
    let params = Params::default();
    assert!(fits(params.clone(), MOST) && !fits(params.clone(), MOST + 1));
    let typical_p = 0.9;
    assert!(!fits(
        Params {
            typical_p,
            ..params.clone()
        },
        MOST
    ));
    let top_n_sigma = 1.0;
    assert!(!fits(
        Params {
            top_n_sigma,
            ..params
        },
        MOST
    ));
}
