//! Saved states of a sieve that are cut short, changed or of another kind: an error and the state as it was, or a state that is as good as any.

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

/// Loads bytes into a sieve: it then has exactly the state that they say, or fails and has the one that it had. Says which.
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
            for other in 1..=255u8 {
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
            // As many draws of mt19937 are repeated as the state says: of the changes of their number, the small ones.
            let draws = kind == RngKind::Mt19937 && (24..32).contains(&at);
            if draws && at > 25 {
                continue;
            }
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
