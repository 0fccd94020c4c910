//! Saved states of a sieve that are cut short, changed or of another kind: an error and the state
//! as it was, or a state that is as good as any.

use std::time::Duration;

use crate::thread_time::thread_time;
use llama_sieve::sieve::{Params, RngKind, Sieve};

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

fn saved(sieve: &Sieve) -> Vec<u8> {
    let mut bytes = vec![0; sieve.state_size()];
    sieve.save(&mut bytes).expect("there is room");
    bytes
}

const KINDS: [RngKind; 3] = [
    RngKind::Xoroshiro128Plus,
    RngKind::Mt19937,
    RngKind::Position,
];

/// The check sum that makes changed bytes look whole: FNV-1a of all but the last 8.
fn seal(bytes: &mut [u8]) {
    let end = bytes.len() - 8;
    let sum = bytes[..end]
        .iter()
        .fold(0xCBF2_9CE4_8422_2325u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
}

/// Loads bytes into a sieve: it then has exactly the state that they say, or fails and has the one
/// that it had. Says which.
fn try_load(target: &mut Sieve, bytes: &[u8]) -> bool {
    let before = saved(target);
    match target.load(bytes) {
        Ok(()) => {
            // What was loaded saves as the same bytes: nothing was taken over that is not in them.
            assert_eq!(saved(target), bytes);
            assert!(target.sample(&LOGITS[..]).is_ok());
            target.load(&before).expect("its own state");
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
            assert!(!try_load(&mut target, &bytes[..n]), "{kind:?}, {n} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(!try_load(&mut target, &longer));
        assert!(try_load(&mut target, &bytes));
    }
}

#[test]
fn every_change_of_one_byte_is_an_error_and_changes_nothing() {
    for kind in KINDS {
        let bytes = saved(&sieve(kind, 20));
        let mut target = sieve(kind, 5);
        for at in 0..bytes.len() {
            // Of the many words of mt19937, each bit.
            let word = (56 + 4 * 20..bytes.len() - 8).contains(&at);
            for other in (1..=255u8).filter(|other| !word || other.is_power_of_two()) {
                let mut changed = bytes.clone();
                changed[at] ^= other;
                assert!(!try_load(&mut target, &changed), "{kind:?}, byte {at}");
            }
        }
    }
}

/// With the check sum mended, what remains is what the fields themselves say.
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
                taken += usize::from(try_load(&mut target, &changed));
            }
        }
        // Magic, version, generator and length are no free choice.
        for at in 0..16 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            seal(&mut changed);
            assert!(!try_load(&mut target, &changed), "{kind:?}, byte {at}");
        }
    }
    assert!(taken > 100, "{taken}");
}

/// What version 1 wrote of mt19937: how many numbers were drawn, not where that leads.
fn of_version_1(bytes: &[u8], draws: u64) -> Vec<u8> {
    let mut old = bytes[..bytes.len() - 8 - 4 * 624].to_vec();
    old[4..8].copy_from_slice(&1u32.to_le_bytes());
    old[24..32].copy_from_slice(&draws.to_le_bytes());
    old.extend([0; 8]);
    seal(&mut old);
    old
}

#[test]
fn a_state_of_version_1_is_read() {
    let mut first = sieve(RngKind::Mt19937, 20);
    let bytes = saved(&first);
    let mut second = sieve(RngKind::Mt19937, 3);
    second.load(&of_version_1(&bytes, 20)).expect("a state");
    assert_eq!(saved(&second), bytes);
    for _ in 0..700 {
        let token = first.sample(&LOGITS[..]).expect("a token");
        assert_eq!(second.sample(&LOGITS[..]), Ok(token));
        first.accept(token);
        second.accept(token);
    }
    assert_eq!(saved(&second), saved(&first));
}

/// A state says how many draws came before it, and anybody can seal one.
#[test]
fn no_state_takes_long() {
    let bytes = saved(&sieve(RngKind::Mt19937, 20));
    let mut target = sieve(RngKind::Mt19937, 5);
    let mut load = |bytes: &[u8]| {
        let start = thread_time();
        let loaded = target.load(bytes);
        (
            loaded.map_err(|error| error.to_string()),
            thread_time() - start,
        )
    };
    for draws in [1 << 20, (1 << 20) + 1, 1 << 31, u64::MAX] {
        // What takes 10 ms on one machine may take ten times as long on another.
        let (loaded, time) = load(&of_version_1(&bytes, draws));
        assert!(time < Duration::from_millis(100), "{draws} draws: {time:?}");
        match loaded {
            Ok(()) => assert!(draws <= 1 << 20),
            Err(text) => {
                assert!(draws > 1 << 20);
                assert!(
                    text.contains("version 1") && text.contains("draws"),
                    "{text}"
                );
            }
        }
        let mut new = bytes.clone();
        new[24..32].copy_from_slice(&draws.to_le_bytes());
        seal(&mut new);
        let (loaded, time) = load(&new);
        assert!(
            loaded.is_ok() && time < Duration::from_millis(10),
            "{time:?}"
        );
    }
}

#[test]
fn a_generator_that_stands_still_is_an_error() {
    let mut bytes = saved(&sieve(RngKind::Mt19937, 20));
    let end = bytes.len() - 8;
    bytes[end - 4 * 624..end].fill(0);
    seal(&mut bytes);
    assert!(!try_load(&mut sieve(RngKind::Mt19937, 5), &bytes));
}
