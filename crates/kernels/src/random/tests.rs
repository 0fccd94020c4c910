use super::*;

#[test]
fn the_key_depends_on_every_random_bit() {
    let mut keys = std::collections::BTreeSet::from([key_of(Some([0; 16]))]);
    for bit in 0..128 {
        assert!(keys.insert(key_of(Some((1_u128 << bit).to_ne_bytes()))));
    }
    assert_ne!(key_of(None), key_of(None), "of the time");
}

#[test]
fn random_numbers_are_other_ones_at_each_call() {
    let numbers: std::collections::BTreeSet<_> = (0..1000).map(|_| random_number()).collect();
    assert_eq!(numbers.len(), 1000);
    let of_bits = |bit: u32| numbers.iter().filter(|&&n| n >> bit & 1 == 1).count();
    // Within eight standard deviations of one half.
    assert!((0..64).all(|bit| (373..=627).contains(&of_bits(bit))));
}

#[test]
fn a_hash_depends_on_the_key() {
    let with = |key| ProcessState(key).hash_one("text");
    assert_ne!(with(1), with(3));
    assert_eq!(with(1), with(1));
}
