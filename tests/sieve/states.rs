//! Tests saved states of a sieve that are cut short, changed, or of another kind: loading either
//! fails and changes nothing, or gives a valid state.

use llama_sieve::samplers::DryParams;
use llama_sieve::sieve::{Method, Mode, Order, Params, RngKind, Sieve, Stage};

const LOGITS: [f32; 8] = [0.1, 2.0, 1.5, 0.3, 1.9, 0.0, 1.2, 0.7];

fn sieve(rng: RngKind, accepted: i32) -> Sieve {
    let params = Params {
        rng,
        seed: 11,
        ..Params::default()
    };
    let mut sieve = Sieve::new(&params).expect("good parameters");
    for token in 0..accepted {
        sieve.sample(&LOGITS[..]).expect("a token");
        sieve.accept(token % 8);
    }
    sieve
}

pub fn saved(sieve: &Sieve) -> Vec<u8> {
    let mut bytes = vec![0; sieve.state_size()];
    sieve.save(&mut bytes).expect("there is room");
    bytes
}

/// Checks that two sieves choose the same `n` tokens.
pub fn check_alike(first: &mut Sieve, second: &mut Sieve, logits: &[f32], n: usize) {
    for i in 0..n {
        let token = first.sample(logits).expect("a token");
        assert_eq!(second.sample(logits), Ok(token), "token {i}");
        first.accept(token);
        second.accept(token);
    }
}

pub const KINDS: [RngKind; 3] = [
    RngKind::Xoroshiro128Plus,
    RngKind::Mt19937,
    RngKind::Position,
];

/// Writes the checksum that makes changed bytes look valid: FNV-1a of all but the last 8.
pub fn seal(bytes: &mut [u8]) {
    let end = bytes.len() - 8;
    let sum = bytes[..end]
        .iter()
        .fold(0xCBF2_9CE4_8422_2325u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
}

/// The sizes of the parameters of a state without biases, and of its checksum.
const PARAMS: usize = 72;
const SUM: usize = 8;

/// Returns the part of a state, which has no biases, before its parameters and checksum.
fn without_params(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len() - PARAMS - SUM]
}

/// Loads bytes into a sieve, without and with their parameters. Each load either gives exactly the
/// state in the bytes, or fails and changes nothing. Returns the number of loads that succeeded.
fn try_load(target: &mut Sieve, bytes: &[u8]) -> usize {
    let alone = load_by(target, bytes, false);
    let with_params = load_by(target, bytes, true);
    usize::from(alone) + usize::from(with_params)
}

fn load_by(target: &mut Sieve, bytes: &[u8], with_params: bool) -> bool {
    let before = saved(target);
    let loaded = match with_params {
        true => target.load_with_params(bytes),
        false => target.load(bytes),
    };
    match loaded {
        Ok(()) => {
            // The loaded state saves as the same bytes, so nothing else was taken over.
            let after = saved(target);
            if with_params {
                // A smaller window holds fewer tokens.
                assert_eq!(after[16..56], bytes[16..56]);
                let params = |state: &[u8]| state[state.len() - PARAMS - SUM..][..PARAMS].to_vec();
                assert_eq!(params(&after), params(bytes));
            } else {
                assert_eq!(without_params(&after), without_params(bytes));
            }
            assert!(target.sample(&LOGITS[..]).is_ok());
            target.load_with_params(&before).expect("its own state");
            assert_eq!(saved(target), before);
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(saved(target), before, "{error}");
            false
        }
    }
}

#[test]
fn every_prefix_is_an_error_and_changes_nothing() {
    for kind in KINDS {
        let bytes = saved(&sieve(kind, 20));
        let mut target = sieve(kind, 5);
        for n in 0..bytes.len() {
            assert_eq!(try_load(&mut target, &bytes[..n]), 0, "{kind:?}, {n} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(try_load(&mut target, &longer), 0);
        assert_eq!(try_load(&mut target, &bytes), 2);
    }
}

#[test]
fn every_change_of_one_byte_is_an_error_and_changes_nothing() {
    for kind in KINDS {
        let bytes = saved(&sieve(kind, 20));
        let mut target = sieve(kind, 5);
        for at in 0..bytes.len() {
            // In the many words of mt19937 only single bits are changed.
            let word = (56 + 4 * 20..bytes.len() - PARAMS - SUM).contains(&at);
            for other in (1..=255u8).filter(|other| !word || other.is_power_of_two()) {
                let mut changed = bytes.clone();
                changed[at] ^= other;
                assert_eq!(try_load(&mut target, &changed), 0, "{kind:?}, byte {at}");
            }
        }
    }
}

/// With a corrected checksum only the fields themselves can reveal a change.
#[test]
fn every_sealed_change_of_one_byte_is_an_error_or_another_state() {
    let mut taken = 0;
    for kind in KINDS {
        let bytes = saved(&sieve(kind, 20));
        let mut target = sieve(kind, 5);
        for at in 0..bytes.len() - 8 {
            for other in [1, 2, 0x80, 0xFF] {
                let mut changed = bytes.clone();
                changed[at] ^= other;
                seal(&mut changed);
                taken += try_load(&mut target, &changed);
            }
        }
        // The magic number, version, generator and length must not be changed.
        for at in 0..16 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            seal(&mut changed);
            assert_eq!(try_load(&mut target, &changed), 0, "{kind:?}, byte {at}");
        }
    }
    assert!(taken > 100, "{taken}");
}

/// Returns the state that version 1 wrote with mt19937: with the number of draws, and without the
/// words of the generator.
fn of_version_1(bytes: &[u8], draws: u64) -> Vec<u8> {
    let state = without_params(bytes);
    let mut old = of_version(1, &state[..state.len() - 4 * 624]);
    old[24..32].copy_from_slice(&draws.to_le_bytes());
    seal(&mut old);
    old
}

/// Returns a state of an earlier version, which has no parameters, made from a current one.
fn of_version(version: u32, state: &[u8]) -> Vec<u8> {
    let mut old = state.to_vec();
    old[4..8].copy_from_slice(&version.to_le_bytes());
    old.extend([0; SUM]);
    seal(&mut old);
    old
}

/// Checks that states can be loaded that are, byte for byte, those that earlier versions of this
/// library wrote after twenty tokens.
#[test]
fn states_of_earlier_versions_are_read() {
    for (kind, version) in [
        (RngKind::Xoroshiro128Plus, 1),
        (RngKind::Position, 1),
        (RngKind::Mt19937, 2),
    ] {
        let first = sieve(kind, 20);
        let old = of_version(version, without_params(&saved(&first)));
        let mut second = sieve(kind, 3);
        let error = second.load_with_params(&old).expect_err("it has none");
        assert!(error.to_string().contains("no parameters"), "{error}");
        second.load(&old).expect("a state");
        assert_eq!(saved(&second), saved(&first));
        // Additional bytes are not read as parameters.
        let mut longer = old.clone();
        longer.splice(old.len() - SUM..old.len() - SUM, [0; PARAMS]);
        seal(&mut longer);
        assert_eq!(try_load(&mut second, &longer), 0);
    }
    // The shortest possible state.
    let kind = RngKind::Xoroshiro128Plus;
    let none = of_version(1, without_params(&saved(&sieve(kind, 0))));
    sieve(kind, 3).load(&none).expect("a state");
    // Version 2 always had the generator of mt19937.
    let kind = RngKind::Position;
    let without = of_version(2, without_params(&saved(&sieve(kind, 20))));
    assert_eq!(try_load(&mut sieve(kind, 3), &without), 0);
}

/// Loads a state that the library wrote before states had parameters.
#[test]
fn a_state_that_was_kept_goes_on() {
    const KEPT: &str = "4c5353540100000000000000140000000b000000000000001400000000000000417f02763d74afd7\
        ec6d226ce35dfca31400000000000000000000000100000002000000030000000400000005000000\
        06000000070000000000000001000000020000000300000004000000050000000600000007000000\
        000000000100000002000000030000001ac4c3a2a79342d2";
    let bytes: Vec<u8> = (0..KEPT.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&KEPT[at..at + 2], 16).expect("two digits"))
        .collect();
    let mut kept = sieve(RngKind::Xoroshiro128Plus, 0);
    // Stages that remember nothing add nothing to a state.
    kept.set_stages(Some(&[Stage::TopK])).expect("a stage");
    kept.load(&bytes).expect("a state");
    kept.set_stages(None).expect("none");
    let mut first = sieve(RngKind::Xoroshiro128Plus, 20);
    assert_eq!(saved(&kept), saved(&first));
    check_alike(&mut first, &mut kept, &LOGITS, 50);
}

#[test]
fn a_state_carries_its_parameters() {
    let theirs = Params {
        temperature: 0.6,
        top_k: 5,
        top_p: 0.9,
        min_p: 0.01,
        typical_p: 0.95,
        top_n_sigma: 2.5,
        min_keep: 2,
        penalty_last_n: 7,
        penalty_repeat: 1.2,
        penalty_freq: 0.1,
        penalty_present: 0.2,
        seed: 77,
        mode: Mode::Parity,
        rng: RngKind::Mt19937,
        method: Method::Gumbel,
        order: Order::TempFirst,
        bias: vec![(1, 0.5), (3, f32::NEG_INFINITY)],
    };
    let mut first = Sieve::new(&theirs).expect("good parameters");
    for token in 0..20 {
        first.sample(&LOGITS[..]).expect("a token");
        first.accept(token % 8);
    }
    let bytes = saved(&first);
    // Another generator, and a window of another size.
    let mut second = sieve(RngKind::Xoroshiro128Plus, 5);
    assert!(second.load(&bytes).is_err());
    second.load_with_params(&bytes).expect("a state");
    assert_eq!(second.params(), &theirs);
    assert_eq!(saved(&second), bytes);
    check_alike(&mut first, &mut second, &LOGITS, 50);
    // The requested seed is loaded, too: a reset returns to it.
    first.reset();
    second.reset();
    assert_eq!(saved(&second), saved(&first));
    // With invalid parameters nothing changes.
    let at = bytes.len() - SUM - 2 * 8 - PARAMS;
    for (place, value) in [(0, f32::NAN), (20, 0.0), (20, f32::NEG_INFINITY)] {
        let mut wrong = bytes.clone();
        wrong[at + place..at + place + 4].copy_from_slice(&value.to_le_bytes());
        seal(&mut wrong);
        let before = saved(&second);
        let error = second.load_with_params(&wrong).expect_err("none");
        assert!(error.to_string().contains("parameters"), "{error}");
        assert_eq!(saved(&second), before);
        // Parameters that are not loaded are not checked.
        assert!(second.load(&wrong).is_ok());
    }
}

#[test]
fn a_state_of_version_1_is_read() {
    let mut first = sieve(RngKind::Mt19937, 20);
    let bytes = saved(&first);
    let mut second = sieve(RngKind::Mt19937, 3);
    second.load(&of_version_1(&bytes, 20)).expect("a state");
    assert_eq!(saved(&second), bytes);
    check_alike(&mut first, &mut second, &LOGITS, 700);
    assert_eq!(saved(&second), saved(&first));
}

/// Checks a state with a long window of DRY: the stage saves every token that it looks back on.
#[test]
fn a_state_of_a_long_window_is_read() {
    const N: i32 = 1 << 17;
    let new = || {
        let mut sieve = sieve(RngKind::Mt19937, 0);
        let dry = Stage::Dry(DryParams {
            multiplier: 0.8,
            base: 1.75,
            allowed_length: 2,
            last_n: N,
        });
        sieve.set_stages(Some(&[dry])).expect("a stage");
        sieve
    };
    let (mut first, mut second) = (new(), new());
    (0..N).for_each(|i| first.accept(i % 1000));
    // The loaded tokens replace as many others.
    (0..N).for_each(|i| second.accept(i % 7));
    let bytes = saved(&first);
    assert!(bytes.len() > 4 * N as usize);
    second.load(&bytes).expect("a state");
    assert!(saved(&second) == bytes);
}

/// A state of version 1 contains the number of draws before it, and anyone can write one with a
/// valid checksum. Repeating the largest possible number of draws would never end.
#[test]
fn no_state_takes_long() {
    let bytes = saved(&sieve(RngKind::Mt19937, 20));
    let mut target = sieve(RngKind::Mt19937, 5);
    for draws in [1 << 20, (1 << 20) + 1, 1 << 31, u64::MAX] {
        match target.load(&of_version_1(&bytes, draws)) {
            Ok(()) => assert!(draws <= 1 << 20),
            Err(error) => {
                assert!(draws > 1 << 20);
                let text = error.to_string();
                assert!(
                    text.contains("version 1") && text.contains("draws"),
                    "{text}"
                );
            }
        }
        let mut new = bytes.clone();
        new[24..32].copy_from_slice(&draws.to_le_bytes());
        seal(&mut new);
        target.load(&new).expect("its generator is in it");
    }
}

#[test]
fn a_generator_that_stands_still_is_an_error() {
    let mut bytes = saved(&sieve(RngKind::Mt19937, 20));
    let end = bytes.len() - PARAMS - SUM;
    bytes[end - 4 * 624..end].fill(0);
    seal(&mut bytes);
    assert_eq!(try_load(&mut sieve(RngKind::Mt19937, 5), &bytes), 0);
}
