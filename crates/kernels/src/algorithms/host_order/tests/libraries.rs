//! Compares the replayed sorts with those of other C++ libraries, each compiled into a separate
//! shared library.

use vendor_llama_cpp::sorts::Sorts;

use super::{
    Random, arrange, candidates, items, logits, places, places_by, reference, rounds, sizes,
};
use crate::algorithms::host_order::sort::{All, sort, sort_numbers};
use crate::algorithms::host_order::{HostOrder, heap, killer};
use crate::host_profile::{HostProfile, Sort};

/// Returns the order in which a library's sorts leave equal elements.
fn order_of(sorts: &Sorts) -> Sort {
    match sorts.version() {
        -1 => Sort::Msvc,
        0 => Sort::Libstdcxx,
        14..17 => Sort::Libcxx14,
        17..22 => Sort::Libcxx17,
        22.. => Sort::Libcxx22,
        version => panic!("the order of libc++ {version} is not known"),
    }
}

/// Asserts that the replayed sorts give the same order as the library's: for its full sort, and for
/// the first `k` of its partial sort, alone and after the built-ins' buckets.
fn compare(sorts: &Sorts, order: &mut HostOrder, keys: &[f32], k: usize) {
    let profile = HostProfile {
        sort: order_of(sorts),
        ..HostProfile::UNFUSED
    };
    profile.trying(|| {
        let mut ours = items(keys);
        sort(&mut ours, &mut All);
        let theirs = sorts.sort(keys);
        assert!(places(&ours) == theirs, "{}: {keys:?}", sorts.name());

        let mut ours = items(keys);
        sort_numbers(&mut ours, &mut All);
        let theirs = sorts.sort_numbers(keys);
        assert!(
            places(&ours) == theirs,
            "{}: numbers, {keys:?}",
            sorts.name()
        );

        let mut ours = items(keys);
        heap::partial_sort(&mut ours, k);
        let theirs = sorts.partial_sort(keys, k);
        assert!(
            places(&ours)[..k] == theirs[..k],
            "{}: {k} of {keys:?}",
            sorts.name()
        );

        let top = order.top(&candidates(keys), k);
        let ours: Vec<u32> = top.iter().map(|candidate| candidate.id as u32).collect();
        let (sort, partial_sort) = (
            |keys: &[f32]| sorts.sort(keys),
            |keys: &[f32], k| sorts.partial_sort(keys, k),
        );
        let theirs = places_by(keys, k, sort, partial_sort);
        assert!(ours == theirs, "{}: top {k} of {keys:?}", sorts.name());
    });
}

/// Returns a number of items, sometimes close to one at which some library changes its algorithm.
fn size(random: &mut Random) -> usize {
    let around = random.pick(&[2, 5, 16, 23, 30, 32, 40, 64, 128, 256, 1000, 2048]);
    match random.below(4) {
        0 => around + random.below(4) - 2,
        _ => sizes(random) % 9_001,
    }
}

/// Returns `killer`, keys on which a sort reaches its depth limit, with the last part, which the
/// heap sort gets, replaced by ties in random order.
fn with_ties_at_the_end(killer: &[f32], random: &mut Random) -> Vec<f32> {
    let n = killer.len();
    let first_of_end = n / 2 + random.below(n / 4);
    let end = -(first_of_end as f32);
    let tied = killer.iter().map(|&key| match key > end {
        true => key,
        false => end - random.below(n / 6) as f32,
    });
    tied.collect()
}

/// Compares the replayed sorts with those of every library in the folder that LLAMA_SIEVE_SORTS
/// names.
#[test]
#[ignore = "ci/profiles gets the libraries and runs it"]
fn sorted_as_other_libraries_do() {
    let libraries = Sorts::in_folder("LLAMA_SIEVE_SORTS");
    assert!(!libraries.is_empty());
    for sorts in &libraries {
        println!("{}: {:?}", sorts.name(), order_of(sorts));
        let (mut random, mut order) = (Random(7), HostOrder::default());
        for _ in 0..rounds() {
            let keys = logits(size(&mut random), &mut random);
            let most = random.pick(&[64, 300, keys.len()]).min(keys.len());
            compare(sorts, &mut order, &keys, random.below(most + 1));
        }
        // Every library sorts the arrays that were made to defeat any of them.
        for n in [40, 64, 200, 1000, 4097] {
            let killers = libraries.iter().filter_map(|other| other.killer(n));
            let of_msvc = killer::of_msvc(n).into_iter().map(|x| -(x as f32));
            for mut keys in killers.chain([reference::std_sort_killer(n), of_msvc.collect()]) {
                for _ in 0..10 {
                    compare(
                        sorts,
                        &mut order,
                        &with_ties_at_the_end(&keys, &mut random),
                        n / 2,
                    );
                }
                for coarse in [1.0, 2.0, 3.0, 5.0] {
                    keys.iter_mut().for_each(|x| *x = (*x / coarse).floor());
                    compare(sorts, &mut order, &keys, n / 2);
                    let mut changed = keys.clone();
                    arrange(&mut changed, &mut random);
                    compare(sorts, &mut order, &changed, n / 3);
                }
            }
        }
    }
}
