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
    // 128 each on average, with a deviation of 11.
    assert!(buckets.iter().all(|&n| (40..260).contains(&n)));
}
