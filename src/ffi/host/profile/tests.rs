use std::collections::HashSet;

use vendor_llama_cpp::sorts::Sorts;

use super::*;
use crate::host_profile::Fused;

/// Returns the results that a host with this profile would give.
fn as_from(profile: HostProfile, with_penalties: bool) -> [Asked; 8] {
    asked().map(|asked| Asked {
        theirs: (with_penalties || asked.trial.name != "penalties")
            .then(|| profile.trying(|| (asked.trial.ours)(&asked.arrays))),
        ..asked
    })
}

/// Returns every known profile. The last one differs from the first in every property.
fn all() -> Vec<HostProfile> {
    let mut all = Vec::new();
    for sort in KNOWN_SORTS {
        for (_, fusion) in Fusion::KNOWN {
            for draw in 0..4 {
                all.push(HostProfile {
                    sort,
                    one_candidate_draw: OneCandidateDraw {
                        dist: draw & 1 == 0,
                        discrete: draw & 2 != 0,
                    },
                    libm: Libm::Process,
                    fusion,
                });
            }
        }
    }
    all
}

const KNOWN_SORTS: [Sort; 5] = [
    Sort::Libstdcxx,
    Sort::Libcxx14,
    Sort::Libcxx17,
    Sort::Libcxx22,
    Sort::Msvc,
];

/// Checks that every profile is distinguished from all others, with either of two first profiles.
#[test]
#[cfg_attr(miri, ignore = "no exact fma, and minutes")]
fn every_profile_is_found() {
    for profile in all() {
        let asked = as_from(profile, true);
        for first in [HostProfile::UNFUSED, *all().last().expect("some")] {
            assert_eq!(chosen(first, &asked), (profile, vec![]));
        }
        // Only penalties distinguish clang's profile from gcc's.
        let (found, others) = chosen(HostProfile::UNFUSED, &as_from(profile, false));
        let expected = match profile.fusion {
            Fusion::CLANG => Fusion::GCC,
            other => other,
        };
        assert_eq!((found.fusion, others), (expected, vec![]));
    }
}

/// Checks that a sort that keeps the input order of ties is not taken for a known sort.
#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn another_sort_is_not_known() {
    let stable = HostProfile {
        sort: Sort::Stable,
        ..HostProfile::UNFUSED
    };
    for first in [HostProfile::UNFUSED, stable] {
        let (found, others) = chosen(first, &as_from(stable, true));
        assert_eq!((found, others), (first, vec!["top-k"]));
    }
}

/// Checks that no profile is found for a host in which only one of these expressions is fused,
/// since no known compiler does that.
#[test]
#[cfg_attr(miri, ignore = "no exact fma, and minutes")]
fn what_is_fused_alone_is_not_known() {
    for (expression, name) in [
        (Fused::Entropy, "temp-ext"),
        (Fused::Temperature, "temp-ext"),
        (Fused::Penalty, "penalties"),
    ] {
        let alone = HostProfile {
            fusion: Fusion::only(expression),
            ..HostProfile::UNFUSED
        };
        let (found, others) = chosen(HostProfile::UNFUSED, &as_from(alone, true));
        assert_eq!(found, HostProfile::UNFUSED, "{expression:?}");
        assert!(others.contains(&name), "{expression:?}");
    }
}

/// Checks that a different last bit in one of 3, 64 or 2048 logits, as a different C library may
/// leave, is noticed. If results on the few arrays of the kind differ as well, many differences are
/// taken for a different formula.
#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn last_bits_of_another_libm_are_noticed() {
    for (few, many) in [(4, 6), (0, 7)] {
        for (one_of, of_few) in [
            (3, false),
            (64, false),
            (2048, false),
            (3, true),
            (64, true),
        ] {
            let mut asked = as_from(HostProfile::UNFUSED, true);
            for trial in [many].into_iter().chain(of_few.then_some(few)) {
                let theirs = asked[trial].theirs.as_mut().expect("left by ours");
                let candidates = theirs.iter_mut().flat_map(|(candidates, _)| candidates);
                for [_, logit, _] in candidates.step_by(one_of) {
                    *logit ^= 1;
                }
            }
            let expected = match (one_of, of_few) {
                (3, true) => Libm::Process,
                _ => Libm::Other,
            };
            let (found, others) = chosen(HostProfile::UNFUSED, &asked);
            assert_eq!(found.libm, expected, "{many}: one of {one_of}, {of_few}");
            assert_eq!(others.contains(&OF_LIBM), expected == Libm::Other);
        }
    }
}

/// Returns the bucket into which the built-ins put a candidate.
fn bucket(candidate: &TokenData) -> i32 {
    ((candidate.logit * 6.4 + 64.0) as i32).clamp(0, 127)
}

/// Returns the candidates that the built-in top-k would leave of an array with these sorts.
fn top_k_by(sorts: &Sorts, array: &[TokenData]) -> Vec<TokenData> {
    let ordered = |places: &[usize], k: Option<usize>| -> Vec<usize> {
        let keys: Vec<f32> = places.iter().map(|&at| array[at].logit).collect();
        let order = match k {
            Some(k) => sorts.partial_sort(&keys, k),
            None => sorts.sort(&keys),
        };
        let first = order.into_iter().take(k.unwrap_or(places.len()));
        first.map(|at| places[at as usize]).collect()
    };
    let k = array.len().min(ties::LARGEST as usize);
    let all: Vec<usize> = (0..array.len()).collect();
    let mut top = Vec::new();
    if k <= 128 {
        top = ordered(&all, Some(k));
    } else {
        for number in (0..128).rev() {
            let is_there = |at: &&usize| bucket(&array[**at]) == number;
            let places: Vec<usize> = all.iter().filter(is_there).copied().collect();
            let left = k - top.len();
            top.extend(ordered(&places, (places.len() >= left).then_some(left)));
            if top.len() == k {
                break;
            }
        }
    }
    top.into_iter().map(|at| array[at]).collect()
}

/// Returns the profile that is chosen if top-k uses these sorts, and the kinds for which no profile
/// is found.
fn chosen_by(sorts: &Sorts) -> (HostProfile, Vec<&'static str>) {
    let asked = as_from(HostProfile::UNFUSED, true).map(|asked| {
        let left = || {
            let left = |array: &Vec<TokenData>| (bits(&top_k_by(sorts, array)), None);
            Some(asked.arrays.iter().map(left).collect())
        };
        match asked.trial.name {
            "top-k" => Asked {
                theirs: left(),
                ..asked
            },
            _ => asked,
        }
    });
    chosen(HostProfile::UNFUSED, &asked)
}

/// Checks that the last of the requested candidates is in the middle of the last range, whose
/// bucket is partially sorted.
#[test]
fn the_last_range_is_partially_sorted() {
    let ranges = ties::ranges(&mut Lcg(BEGINNING));
    let lengths: Vec<usize> = ranges.iter().map(Vec::len).collect();
    let [array, _] = &ties::of_top_k(&mut Lcg(BEGINNING))[..] else {
        panic!("two arrays");
    };
    assert_eq!(array.len(), lengths.iter().sum::<usize>());
    let last = lengths.last().expect("some");
    let largest = ties::LARGEST as usize;
    assert!(largest > array.len() - last / 4 * 3 && largest < array.len() - last / 4);
    let buckets: HashSet<i32> = array.iter().map(bucket).collect();
    assert_eq!(buckets.len(), ranges.len());
}

/// Checks that unchanged sorts are recognised and that altered ones are not. LLAMA_SIEVE_SORTS
/// names a folder with the sorts of unchanged C++ libraries, and LLAMA_SIEVE_ALTERED_SORTS one with
/// sorts in which one number or comparison was changed.
#[test]
#[ignore = "ci/profiles gets the libraries and runs it"]
fn altered_sorts_are_not_known() {
    let known = Sorts::in_folder("LLAMA_SIEVE_SORTS");
    let altered = Sorts::in_folder("LLAMA_SIEVE_ALTERED_SORTS");
    assert!(!known.is_empty() && !altered.is_empty());
    for sorts in known {
        let expected = match sorts.version() {
            -1 => Sort::Msvc,
            0 => Sort::Libstdcxx,
            ..17 => Sort::Libcxx14,
            _ => Sort::Libcxx17,
        };
        let (found, others) = chosen_by(&sorts);
        assert_eq!((found.sort, others), (expected, vec![]), "{}", sorts.name());
    }
    let unnoticed = altered.iter().filter(|sorts| chosen_by(sorts).1.is_empty());
    let unnoticed: Vec<&str> = unnoticed.map(Sorts::name).collect();
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}
