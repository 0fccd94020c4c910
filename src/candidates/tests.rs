use super::*;
use crate::token::array_of;

#[test]
fn retain_keeps_order() {
    let mut data = array_of(&[1.0, 5.0, 2.0, 7.0]);
    let mut candidates = Candidates::new(&mut data, false);
    candidates.retain(|c| c.logit > 1.5);
    let ids: Vec<_> = candidates.as_slice().iter().map(|c| c.id).collect();
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn a_token_is_found_in_place_only_where_a_host_puts_it() {
    let mut data = array_of(&[1.0, 5.0, 2.0]);
    data.swap(0, 1);
    let candidates = Candidates::new(&mut data, false);
    assert_eq!(candidates.index_in_place(2), Some(2));
    assert_eq!(candidates.index_in_place(0), None);
    assert_eq!(candidates.index_in_place(-1), None);
    assert_eq!(candidates.index_in_place(Token::MAX), None);
}

#[test]
fn dropping_at_the_front_moves_nothing() {
    let mut data = array_of(&[1.0, 5.0, 2.0]);
    let mut candidates = Candidates::new(&mut data, false);
    candidates.drop_front(1);
    assert_eq!(candidates.as_slice()[0].id, 1);
    candidates.drop_front(5);
    assert!(candidates.is_empty());
    assert_eq!(candidates.dropped(), 3);
    assert_eq!(data[2].id, 2);
}

#[test]
fn truncating_never_lengthens() {
    let mut data = array_of(&[1.0, 5.0, 2.0]);
    let mut candidates = Candidates::new(&mut data, false);
    candidates.truncate(2);
    candidates.truncate(3);
    assert_eq!(candidates.len(), 2);
}
