//! Makes arrays on which the sort of Microsoft's library reaches its depth limit.

/// The number of items that each level splits off, if the pivot is the median of three medians of
/// three items.
const PER_LEVEL: usize = 4;

/// Returns `n` numbers on which the sort reaches its depth limit. The heap sort that takes over
/// gets the numbers equal to `n`: at least two thirds of 200 numbers, and a larger part of longer
/// arrays. They may be replaced by any numbers that are not less.
///
/// Each level splits off the four least numbers that are left. Two are among the first three items
/// that are compared, and two among the next three. So the greater of each two is the median of its
/// three, and the greatest of the four is the median of these medians, which is the pivot. All four
/// are in the first half, so the others keep their order.
// In bounds: indices of `rest` are below its length.
pub fn of_msvc(n: usize) -> Vec<u32> {
    let mut numbers = vec![n as u32; n];
    let mut rest: Vec<usize> = (0..n).collect();
    let (mut budget, mut next) = (n, 0);
    while budget > 0 && rest.len() > 2 * PER_LEVEL {
        let (middle, step) = (rest.len() / 2, rest.len() / 8);
        let places = [0, step, middle - step, middle];
        for place in places {
            numbers[rest[place]] = next;
            next += 1;
        }
        for place in places.into_iter().rev() {
            rest.remove(place);
        }
        budget = budget / 2 + budget / 4;
    }
    numbers
}
