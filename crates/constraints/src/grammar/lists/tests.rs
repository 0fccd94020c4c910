use super::Lists;

/// Returns `n` numbers in a scrambled order.
fn numbers(n: u32) -> impl Iterator<Item = u32> {
    (0..n).scan(1_u32, |state, _| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some(*state >> 8)
    })
}

#[test]
fn pairs_become_lists_in_their_order() {
    for (n_lists, n_pairs) in [(0, 0), (0, 9), (1, 0), (1, 5), (7, 3), (50, 400)] {
        // One pair in ten has a list that does not exist.
        let pairs: Vec<(u32, u32)> = numbers(n_pairs)
            .map(|number| (number % (n_lists + n_lists / 10 + 1), number % 97))
            .collect();
        let mut expected = vec![Vec::new(); n_lists as usize];
        for &(list, number) in &pairs {
            if let Some(list) = expected.get_mut(list as usize) {
                list.push(number);
            }
        }
        let lists = Lists::of(n_lists as usize, || pairs.iter().copied());
        assert_eq!(lists.len(), expected.len());
        assert!(lists.iter().eq(expected.iter().map(Vec::as_slice)));
        assert_eq!(lists.get(n_lists), [0; 0]);
        assert_eq!(lists.get(u32::MAX), [0; 0]);
    }
}

#[test]
fn lists_are_written_one_behind_the_other() {
    let mut lists = Lists::with_room(2, 2);
    assert!(lists.is_empty());
    lists.add(5);
    lists.add(3);
    assert_eq!(lists.open(), [5, 3]);
    assert_eq!(lists.get(0), [0; 0]);
    lists.end();
    lists.end();
    assert_eq!(lists.open(), [0; 0]);
    lists.add(9);
    lists.end();
    assert_eq!(lists.iter().collect::<Vec<_>>(), [&[5, 3][..], &[], &[9]]);
    assert_eq!(Lists::default().len(), 0);
}
