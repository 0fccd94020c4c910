//! Tests the comparison that the differential tests rely on: it accepts equal arrays, and refuses
//! every wrong one.

use crate::support::arrays::{Array, Recipe, Rng, Shape};
use crate::support::compare::same;
use crate::support::family::FAMILY;
use crate::support::{HostSampler, fresh_rng};
use vendor_llama_cpp::sys;

const N: usize = 1000;

fn distinct() -> Array {
    Array::of_logits((0..N).map(|i| (i * 7919 % N) as f32 / 100.0))
}

/// Returns the array that a built-in makes of `input`.
fn built_in(sampler: *mut sys::llama_sampler, input: &Array) -> Array {
    let mut output = input.clone();
    HostSampler::new(sampler).apply(&mut output);
    output
}

fn top_40() -> Array {
    // SAFETY: a constructor without preconditions.
    built_in(unsafe { sys::llama_sampler_init_top_k(40) }, &distinct())
}

fn drawn() -> Array {
    // SAFETY: a constructor without preconditions.
    built_in(unsafe { sys::llama_sampler_init_dist(7) }, &distinct())
}

/// Checks that the comparison accepts a right array, and refuses it after `spoil` has changed it.
#[track_caller]
fn refused(right: &Array, spoil: impl FnOnce(&mut Array)) {
    assert_eq!(same(right, right), Ok(()));
    let mut wrong = right.clone();
    spoil(&mut wrong);
    assert!(same(&wrong, right).is_err(), "{wrong:?}");
    assert!(same(right, &wrong).is_err(), "{wrong:?}");
}

#[test]
fn ids_that_are_all_wrong() {
    refused(&top_40(), |array| {
        let kept = array.ids();
        let mut others = (0..N as i32).filter(|id| !kept.contains(id));
        for candidate in &mut array.data {
            candidate.id = others.next().expect("960 are left");
        }
    });
}

#[test]
fn the_best_candidate_under_the_id_of_one_that_was_cut() {
    refused(&top_40(), |array| {
        let kept = array.ids();
        let cut = (0..N as i32).find(|id| !kept.contains(id));
        array.data[0].id = cut.expect("960 are left");
    });
}

#[test]
fn another_choice() {
    refused(&drawn(), |array| array.selected ^= 1);
    refused(&drawn(), |array| array.selected = -1);
    refused(&top_40(), |array| array.selected = 0);
}

#[test]
fn every_p_one_unit_off() {
    refused(&drawn(), |array| {
        for candidate in &mut array.data {
            candidate.p = candidate.p.next_up();
        }
    });
}

#[test]
fn one_p_one_unit_off() {
    refused(&drawn(), |array| {
        let last = array.data.len() - 1;
        array.data[last].p = array.data[last].p.next_down();
    });
}

#[test]
fn an_id_that_was_never_there() {
    refused(&top_40(), |array| array.data[39].id = 1_000_000);
}

#[test]
fn an_invented_id_where_candidates_are_replaced() {
    let row = FAMILY.iter().find(|row| row.name == "infill");
    let mut rng = Rng(1);
    let pair = (row.expect("a row of the table").make)(&mut rng, 0, false);
    let mut output = Recipe::of_shape(Shape::Flat).array(50, 50, &mut rng);
    pair.theirs.apply(&mut output);
    refused(&output, |array| array.data[0].id += 1);
}

#[test]
fn a_set_of_typical_candidates_that_is_one_too_small() {
    let tied = Array::of_logits((0..N).map(|i| (i % 50) as f32 / 10.0));
    // SAFETY: a constructor without preconditions.
    let typical = unsafe { sys::llama_sampler_init_typical(0.5, 1) };
    let output = built_in(typical, &tied);
    refused(&output, |array| array.data.truncate(array.data.len() - 1));
    refused(&output, |array| array.data.push(array.data[0]));
}

#[test]
fn tied_candidates_in_another_order() {
    let tied = Array::of_logits((0..N).map(|i| (i % 50) as f32 / 10.0));
    // SAFETY: a constructor without preconditions.
    let output = built_in(unsafe { sys::llama_sampler_init_top_k(200) }, &tied);
    assert_eq!(output.data[3].logit, output.data[4].logit);
    refused(&output, |array| array.data.swap(3, 4));
    refused(&output, |array| array.data.swap(0, 199));
}

#[test]
fn a_logit_of_other_bits() {
    refused(&top_40(), |array| {
        array.data[5].logit = array.data[5].logit.next_up();
    });
    let zero = Array::of_logits([0.0, 1.0]);
    refused(&zero, |array| array.data[0].logit = -0.0);
}

#[test]
fn another_claim_of_order() {
    refused(&top_40(), |array| array.sorted = false);
}

#[test]
fn a_number_where_the_other_has_none() {
    let mut array = distinct();
    array.data[3].p = f32::NAN;
    refused(&array, |array| array.data[3].p = 0.0);
    // The bits of a NaN do not matter.
    let mut other = array.clone();
    other.data[3].p = f32::from_bits(0xFFC0_1234);
    assert_eq!(same(&other, &array), Ok(()));
}

/// One fault of every kind, in arrays of every kind.
#[test]
fn a_fault_in_any_array() {
    let mut rng = fresh_rng("oracle");
    for _ in 0..2000 {
        let n = 2 + rng.below(200);
        let right = Recipe::random(&mut rng).array(n, 2 * n, &mut rng);
        let i = rng.below(right.data.len());
        refused(&right, |array| array.data[i].id ^= 1 << 20);
        refused(&right, |array| array.data[i].p = 7.0);
        refused(&right, |array| array.data[i].logit = 123.456);
        refused(&right, |array| array.selected = -7);
        refused(&right, |array| array.sorted = !array.sorted);
        refused(&right, |array| array.data.truncate(i));
    }
}
