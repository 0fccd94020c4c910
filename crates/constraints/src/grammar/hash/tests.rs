use super::*;

#[test]
fn numbers_in_a_row_are_spread() {
    let keys = Keys::default();
    let mut buckets = vec![0; 1024];
    for i in 0..64 * 1024_u32 {
        let hash = keys.hash_one((i / 256, i % 256));
        buckets[(hash >> 54) as usize] += 1;
        buckets[(hash % 1024) as usize] += 1;
    }
    // On average 128 in each, with a standard deviation of 11.
    assert!(buckets.iter().all(|&n| (40..260).contains(&n)));
}

#[test]
fn an_identity_is_of_all_members_in_any_order() {
    let below = [Identity::of_end(false), Identity::of_end(true)];
    let of = |may_end, members: &[(u32, (u32, u32), usize)]| {
        let members = members.iter();
        let members = members.map(|&(sequence, counts, at)| (sequence, counts, below[at]));
        Identity::of(may_end, members)
    };
    let members = [(7, (0, 9), 0), (8, (1, 2), 1)];
    let swapped = [members[1], members[0]];
    assert_eq!(of(false, &members), of(false, &swapped));
    assert_eq!(of(true, &[]), Identity::of_end(true));
    let others = [
        of(true, &members),
        of(false, &members[..1]),
        of(false, &[(6, (0, 9), 0), members[1]]),
        of(false, &[(7, (1, 9), 0), members[1]]),
        of(false, &[(7, (0, 8), 0), members[1]]),
        of(false, &[(7, (0, 9), 1), members[1]]),
    ];
    assert!(others.iter().all(|other| *other != of(false, &members)));
}
