use super::*;
use crate::ffi::tests::mock_host;

fn penalties(last_n: i32, [repeat, freq, present]: [f32; 3]) -> Arguments {
    Arguments::Penalties {
        n_vocab: 0,
        last_n,
        factors: [repeat, freq, present].map(f32::to_bits),
    }
}

fn dry(allowed_length: i32, last_n: i32, [multiplier, base]: [f32; 2], breaker: &str) -> Arguments {
    Arguments::Dry {
        vocab: mock_host::handle::<u8>().addr(),
        multiplier: multiplier.to_bits(),
        base: base.to_bits(),
        allowed_length,
        last_n,
        breakers: vec![breaker.into()],
    }
}

/// Returns the mock host's function that frees samplers.
fn free() -> Free {
    let host = Host::get().expect("it is installed");
    free_of(&host).expect("it has one")
}

/// Returns the outcome of comparing a host's sampler, made from the arguments `theirs`, and this
/// library's, made from `ours`.
fn outcome(theirs: &Arguments, ours: &Arguments) -> Outcome {
    mock_host::install();
    // SAFETY: the vocabulary is the mock host's; each sampler is freed once.
    unsafe {
        let theirs = Owned(theirs.make(), free());
        let (outcome, _ours) = compared(ours, theirs.0, free(), None);
        outcome
    }
}

#[test]
fn every_argument_of_penalties_shows() {
    const FACTORS: [f32; 3] = [1.3, 0.4, 0.25];
    for last_n in [1, 2, 7, 8, 9, 10, 11, 64, 1000] {
        let ours = penalties(last_n, FACTORS);
        assert_eq!(outcome(&ours, &ours), Outcome::Same, "{last_n}");
        for other in [last_n - 1, last_n + 1, 2 * last_n, 100_000] {
            let theirs = penalties(other, FACTORS);
            assert_eq!(
                outcome(&theirs, &ours),
                Outcome::Differs,
                "{last_n}, {other}"
            );
        }
        for factors in [[1.3, 0.25, 0.4], [0.4, 1.3, 0.25], [1.31, 0.4, 0.25]] {
            let theirs = penalties(last_n, factors);
            // In this case the difference has no effect, and the arguments do not count as shown.
            let is_alike = last_n == 1 && factors[0] == FACTORS[0];
            let differs = outcome(&theirs, &ours) == Outcome::Differs;
            assert_eq!(differs, !is_alike, "{last_n}, {factors:?}");
            let shown = ours.shown(
                0,
                &registers([900, last_n as usize, 901, 902, 903, 904], FACTORS),
            );
            let expected = if last_n == 1 { 0b1001 } else { 0b1111 };
            assert_eq!(shown, expected);
        }
    }
    // The window is longer than the maximum number of tokens that are tried.
    let ours = penalties(i32::MAX, FACTORS);
    assert_eq!(outcome(&ours, &ours), Outcome::AsFarAsSeen);
    assert_eq!(outcome(&penalties(64, FACTORS), &ours), Outcome::Differs);
    let off = penalties(64, [1.0, 0.0, 0.0]);
    assert_eq!(outcome(&off, &off), Outcome::DoesNothing);
}

#[test]
fn every_argument_of_dry_shows() {
    const FACTORS: [f32; 2] = [0.8, 1.75];
    for (allowed, last_n) in [
        (1, 3),
        (1, 6),
        (2, 5),
        (2, 6),
        (2, 7),
        (2, 8),
        (2, 64),
        (5, 300),
        (64, 2000),
    ] {
        let ours = dry(allowed, last_n, FACTORS, "a");
        assert_eq!(outcome(&ours, &ours), Outcome::Same, "{allowed}, {last_n}");
        let differs = |theirs: &Arguments| {
            let differs = outcome(theirs, &ours) == Outcome::Differs;
            assert!(differs, "{ours:?}, {theirs:?}");
        };
        for other in [last_n - 1, last_n + 1, 2 * last_n, 100_000] {
            differs(&dry(allowed, other, FACTORS, "a"));
        }
        differs(&dry(allowed + 1, last_n, FACTORS, "a"));
        differs(&dry(allowed, last_n, [1.75, 0.8], "a"));
        differs(&dry(allowed, last_n, [0.9, 1.75], "a"));
        differs(&dry(last_n, allowed, FACTORS, "a"));
        if allowed > 1 {
            differs(&dry(allowed - 1, last_n, FACTORS, "a"));
        }
        // If no repetition can be longer than the minimum length, the base does not count as shown.
        let place = registers(
            [900, allowed as usize, last_n as usize, 901, 902, 903],
            [0.8, 1.75, 0.0],
        );
        let is_shown = ours.shown(0, &place) == 0b11111;
        assert_eq!(is_shown, last_n >= 2 * allowed + 4, "{allowed}, {last_n}");
        if is_shown {
            differs(&dry(allowed, last_n, [0.8, 1.8], "a"));
        }
    }
    let ours = dry(2, 64, FACTORS, "a");
    assert_eq!(outcome(&dry(2, 64, FACTORS, ""), &ours), Outcome::Differs);
    // More tokens than are tried, or fewer than would show every argument.
    for (allowed, last_n) in [(2, 1 << 20), (100, 1000), (2, 4)] {
        let ours = dry(allowed, last_n, FACTORS, "a");
        assert_eq!(
            outcome(&ours, &ours),
            Outcome::AsFarAsSeen,
            "{allowed}, {last_n}"
        );
    }
}

#[test]
fn every_bias_shows() {
    let list = |n: i32, bias: f32| Arguments::LogitBias {
        n_vocab: 16,
        biases: (0..n).map(|i| (i * 3, bias.to_bits())).collect(),
    };
    for n in [1, 2, 40, 3000] {
        assert_eq!(outcome(&list(n, 0.5), &list(n, 0.5)), Outcome::Same, "{n}");
        assert_eq!(
            outcome(&list(n, 0.25), &list(n, 0.5)),
            Outcome::Differs,
            "{n}"
        );
        assert_eq!(
            outcome(&list(n - 1, 0.5), &list(n, 0.5)),
            Outcome::Differs,
            "{n}"
        );
    }
}

const fn registers(integers: [usize; 6], vectors: [f32; 3]) -> Registers {
    let [a, b, c] = vectors;
    Registers {
        integers,
        vectors: [
            a.to_bits(),
            b.to_bits(),
            c.to_bits(),
            0x7F12_3456,
            0x7F12_3457,
            0x7F12_3458,
            0x7F12_3459,
            0x7F12_345A,
        ],
    }
}

/// Returns the verdict on a call of penalties, from which the host makes the sampler `theirs`.
fn judged(layouts: &Layouts, call: &Registers, theirs: &Arguments) -> Verdict {
    mock_host::install();
    let (read, known) = layouts.read(call, &|_| false);
    assert_eq!(known, None);
    // SAFETY: there is no vocabulary; each sampler is freed once.
    unsafe {
        let theirs = Owned(theirs.make(), free());
        let verdict = layouts.judge(call, &read, 0, theirs.0);
        if let Verdict::Ours(ours) = verdict {
            drop(Owned(ours, free()));
        }
        verdict
    }
}

fn is_ours(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Ours(_))
}

#[test]
fn a_list_is_proven_when_calls_have_shown_it_all() {
    const OLD: [usize; 6] = [64, 9, 1, 2, 3, 4];
    const NEW: [usize; 6] = [9, 64, 1, 2, 3, 4];
    for (list, integers) in [(0, NEW), (1, OLD)] {
        let layouts = Layouts::new(Changing::Penalties);
        let before = mock_host::shells();
        // If two arguments are both 0, a call does not show which is which.
        for factors in [[1.1, 0.0, 0.0], [1.1, 0.5, 0.0]] {
            let call = registers(integers, factors);
            assert!(is_ours(judged(&layouts, &call, &penalties(64, factors))));
            assert_eq!(layouts.settled(), Settled::Open);
            assert_eq!(layouts.only(), Some(list));
            // A call with values that were tested is not tested again, whatever the other registers
            // hold.
            let mut again = call;
            again.integers[5] = 1000;
            assert_eq!(layouts.read(&again, &|_| false).1, Some(list));
            again.vectors[0] = 1.2f32.to_bits();
            assert_eq!(layouts.read(&again, &|_| false).1, None);
        }
        let factors = [1.0, 0.0, 0.25];
        let call = registers(integers, factors);
        assert!(is_ours(judged(&layouts, &call, &penalties(64, factors))));
        assert_eq!(layouts.settled(), Settled::Proven(list));
        assert_eq!(mock_host::shells(), before, "all is freed");
    }
}

#[test]
fn both_lists_stay_possible_while_a_call_fits_both() {
    let layouts = Layouts::new(Changing::Penalties);
    let factors = [1.1, 0.5, 0.25];
    let call = registers([64, 64, 1, 2, 3, 4], factors);
    assert!(is_ours(judged(&layouts, &call, &penalties(64, factors))));
    assert_eq!((layouts.settled(), layouts.only()), (Settled::Open, None));
    assert!(layouts.read(&call, &|_| false).1.is_some());
}

/// Checks that a host whose list has two arguments exchanged, which a first call with equal values
/// does not show, is refused at the first call that shows it.
#[test]
fn another_list_is_found_out_by_the_first_call_that_shows_it() {
    let layouts = Layouts::new(Changing::Penalties);
    let integers = [9, 64, 1, 2, 3, 4];
    let equal = [1.1, 0.5, 0.5];
    let call = registers(integers, equal);
    assert!(is_ours(judged(&layouts, &call, &penalties(64, equal))));
    let call = registers(integers, [1.1, 0.5, 0.25]);
    let theirs = penalties(64, [1.1, 0.25, 0.5]);
    assert_eq!(judged(&layouts, &call, &theirs), Verdict::Refused);
    assert_eq!(layouts.settled(), Settled::Refused);
}

/// Checks that a call whose window is longer than the maximum number of tokens that are tried shows
/// nothing about the list.
#[test]
fn a_window_that_is_too_long_shows_nothing() {
    let layouts = Layouts::new(Changing::Penalties);
    let factors = [1.1, 0.5, 0.25];
    let call = registers([9, 1 << 30, 1, 2, 3, 4], factors);
    let theirs = penalties(1 << 30, factors);
    assert_eq!(judged(&layouts, &call, &theirs), Verdict::Undecided);
    assert_eq!(
        (layouts.settled(), layouts.only()),
        (Settled::Open, Some(0))
    );
}

/// Checks the positions on Windows, where integers and floating-point numbers share one numbering.
/// The oldest DRY, for example, has (vocab, n_ctx_train, multiplier, base, allowed_length, last_n,
/// breakers, n_breakers).
#[test]
fn arguments_have_places_of_their_own_where_all_are_counted_together() {
    let places = |kind: Changing, list, of| -> Vec<usize> {
        let all = 0..8;
        all.filter_map(|n| place_among_all(kind.arguments(list), of, n))
            .collect()
    };
    for (kind, list, integers, vectors) in [
        (Changing::Penalties, 0, &[0, 1][..], &[2, 3, 4][..]),
        (Changing::Penalties, 1, &[0][..], &[1, 2, 3][..]),
        (Changing::Dry, 0, &[0, 3, 4, 5, 6][..], &[1, 2][..]),
        (Changing::Dry, 1, &[0, 1, 4, 5, 6, 7][..], &[2, 3][..]),
        (Changing::LogitBias, 0, &[0, 1, 2][..], &[][..]),
        (Changing::Infill, 0, &[0][..], &[][..]),
    ] {
        assert_eq!(places(kind, list, INTEGER), integers, "{kind:?}, {list}");
        assert_eq!(places(kind, list, VECTOR), vectors, "{kind:?}, {list}");
    }
}
