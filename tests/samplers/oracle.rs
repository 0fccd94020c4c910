//! Tests the comparison that the differential tests rely on: it accepts equal arrays, and refuses
//! every wrong one.

use crate::support::arrays::{Array, Recipe};
use crate::support::compare::same;
use crate::support::fresh_rng;

/// Checks that the comparison accepts a right array, and refuses it after `spoil` has changed it.
#[track_caller]
fn refused(right: &Array, spoil: impl FnOnce(&mut Array)) {
    assert_eq!(same(right, right), Ok(()));
    let mut wrong = right.clone();
    spoil(&mut wrong);
    assert!(same(&wrong, right).is_err(), "{wrong:?}");
    assert!(same(right, &wrong).is_err(), "{wrong:?}");
}

/// Zeros of both signs differ. The bits of a NaN do not matter, but a number does not equal NaN.
#[test]
fn zeros_have_signs_and_nan_has_none() {
    let zero = Array::of_logits([0.0, 1.0]);
    refused(&zero, |array| array.data[0].logit = -0.0);
    let mut array = zero.clone();
    array.data[1].p = f32::NAN;
    refused(&array, |array| array.data[1].p = 0.0);
    let mut other = array.clone();
    other.data[1].p = f32::from_bits(0xFFC0_1234);
    assert_eq!(same(&other, &array), Ok(()));
}

/// Tests one fault of every kind in arrays of every kind, including faults of one unit in the last
/// place.
#[test]
fn a_fault_in_any_array() {
    let mut rng = fresh_rng("oracle");
    let next = |x: f32| f32::from_bits(x.to_bits() ^ 1);
    for _ in 0..2000 {
        let n = 2 + rng.below(200);
        let right = Recipe::random(&mut rng).array(n, 2 * n, &mut rng);
        let n = right.data.len();
        let [i, j] = [rng.below(n), rng.below(n)];
        refused(&right, |array| array.data[i].id ^= 1 << 20);
        refused(&right, |array| array.data[i].p = next(array.data[i].p));
        refused(&right, |array| {
            array.data[i].logit = next(array.data[i].logit)
        });
        refused(&right, |array| array.selected = -7);
        refused(&right, |array| array.selected ^= 1);
        refused(&right, |array| array.sorted = !array.sorted);
        refused(&right, |array| array.data.truncate(i));
        refused(&right, |array| array.data.push(array.data[i]));
        if i != j {
            refused(&right, |array| array.data.swap(i, j));
        }
    }
}
