//! Compares the drop-ins with the built-ins on arrays that are in some order or have few values,
//! which sorts treat differently from random ones. Everything must be equal, bit for bit.

use crate::support::arrays::Rng;
use crate::support::compare::same;
use crate::support::family::{FAMILY, Member};
use crate::support::orders::ORDERS;
use crate::support::{Array, Grid, fresh_rng, replay};

/// Sizes at which sorts and samplers take different branches, and the size of a vocabulary.
const SIZES: [usize; 6] = [200, 1_500, 2_500, 9_000, 17_000, 33_000];

/// Compares arrays of one kind, one after the other.
fn compare(member: &Member, name: &str, make: impl Fn(&mut Rng) -> Array, rng: &mut Rng) {
    let pair = (member.make)(rng, 200_000, false);
    for position in 0..2 {
        let input = make(rng);
        let (mut ours, mut theirs) = (input.clone(), input);
        pair.ours.apply(&mut ours);
        pair.theirs.apply(&mut theirs);
        if let Err(difference) = same(&ours, &theirs) {
            let n = ours.data.len();
            panic!(
                "{} on {name}, {n} left, array {position}, {}: {difference}",
                pair.label,
                replay()
            );
        }
        if let Some(chosen) = theirs.data.get(theirs.selected as usize) {
            pair.ours.accept(chosen.id);
            pair.theirs.accept(chosen.id);
        }
    }
}

#[test]
fn every_drop_in_on_every_order() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    let mut rng = fresh_rng("orders");
    for order in ORDERS {
        for grid in Grid::ALL {
            let members = FAMILY.iter().filter(|member| member.max_size >= SIZES[0]);
            for member in members {
                let n = rng.pick(&SIZES).min(member.max_size);
                let make = |rng: &mut Rng| {
                    let logits = (order.logits)(n, rng).into_iter();
                    let mut array = Array::of_logits(logits.map(|x| grid.round(x)));
                    if rng.chance(0.2) {
                        array.data[n / 2].p = 0.25;
                    }
                    array
                };
                let name = format!("{n} candidates, {}, {grid:?}", order.name);
                for _ in 0..2 {
                    compare(member, &name, make, &mut rng);
                }
            }
        }
    }
}
