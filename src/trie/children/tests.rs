use super::*;

/// Returns `n` candidates by descending id. If `n` is even, none is at the index where a host puts
/// it.
fn reversed(n: i32) -> Vec<TokenData> {
    let ids = (0..n).rev();
    ids.map(|id| TokenData::new(id, id as f32)).collect()
}

#[test]
fn a_bitmap_is_bounded_by_the_candidates() {
    // With 16 candidates, a bitmap may have 64 words.
    for (last, words) in [(64 * 64 - 1, 64), (64 * 64, 0), (Token::MAX, 0)] {
        let mut data = reversed(16);
        let candidates = Candidates::new(&mut data, false);
        let mut scratch = Scratch::default();
        let found = scratch.find(&candidates, &[3, 5, last]);
        assert_eq!((found.best, found.possible), (Some(10), 2));
        assert_eq!(scratch.indices, [10, 12]);
        assert_eq!(scratch.bits.len(), words);
        assert!(scratch.bits.iter().all(|&word| word == 0));
    }
}

#[test]
fn a_candidate_with_an_impossible_id_is_no_child() {
    let mut data = reversed(16);
    data[0].id = -1;
    data[1].id = Token::MIN;
    data[2].id = Token::MAX;
    let candidates = Candidates::new(&mut data, false);
    let mut scratch = Scratch::default();
    scratch.find(&candidates, &[0, 63, 64]);
    assert_eq!(scratch.indices, [15]);
}

#[test]
fn of_equal_logits_the_first_is_the_best() {
    let mut data = reversed(16);
    for candidate in &mut data {
        candidate.logit = 1.0;
    }
    let candidates = Candidates::new(&mut data, false);
    let found = Scratch::default().find(&candidates, &[3, 5, 7]);
    // The best child is token 7, which comes before the others.
    assert_eq!((found.best, found.possible), (Some(8), 3));
}
