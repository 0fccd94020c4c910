use super::*;
use crate::host_profile::Fused;

/// The candidates that a host with this profile would leave.
fn as_from(profile: HostProfile, with_penalties: bool) -> [Asked; 5] {
    asked().map(|asked| Asked {
        theirs: (with_penalties || asked.trial.name != "penalties")
            .then(|| profile.trying(|| (asked.trial.ours)(&asked.arrays))),
        ..asked
    })
}

fn all() -> Vec<HostProfile> {
    let mut all = Vec::new();
    for (_, fusion) in Fusion::KNOWN {
        for draw in 0..4 {
            all.push(HostProfile {
                one_candidate_draw: OneCandidateDraw {
                    dist: draw & 1 == 0,
                    discrete: draw & 2 != 0,
                },
                fusion,
                ..HostProfile::UNFUSED
            });
        }
    }
    all
}

/// Each is told from every other, whatever is taken for granted first.
#[test]
#[cfg_attr(miri, ignore = "no exact fma, and minutes")]
fn every_profile_is_found() {
    for profile in all() {
        let asked = as_from(profile, true);
        for first in [HostProfile::UNFUSED, *all().last().expect("some")] {
            assert_eq!(chosen(first, &asked), (profile, vec![]));
        }
        // Only the penalties tell clang's from gcc's.
        let (found, others) = chosen(HostProfile::UNFUSED, &as_from(profile, false));
        let expected = match profile.fusion {
            Fusion::CLANG => Fusion::GCC,
            other => other,
        };
        assert_eq!((found.fusion, others), (expected, vec![]));
    }
}

/// An order of ties that is not libstdc++'s is none that is known.
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

/// One expression alone that is fused, and shows here, is no compiler's.
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
