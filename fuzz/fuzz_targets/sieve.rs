//! The sieve: parameters with arbitrary bits, saved states with arbitrary bytes, stages in any
//! order.
#![no_main]

use std::collections::BTreeSet;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::sieve::*;
use llama_sieve_fuzz::logits::Logit;
use llama_sieve_fuzz::params::{CParams, Change};
use llama_sieve_fuzz::stages::{CStages, Stages};

fuzz_target!(init: llama_sieve_fuzz::silence(), |case: Case| match case {
    Case::Bits(bits) => any_bits(&bits),
    Case::Changes { first, second, logits } => changes(&first, &second, &logits),
    Case::State { params, logits, accepted, damage, reader } => {
        state(&params, &logits, &accepted, &damage, reader.as_deref());
    }
    Case::Bytes { params, bytes } => bytes_as_state(&params, &bytes),
    Case::Stages { params, stages, others, logits, damage } => {
        with_stages(&params, &stages, others.as_ref(), &logits, &damage);
    }
});

#[derive(Arbitrary, Debug)]
enum Case {
    /// The default parameters, with these bytes in place of the first ones of the struct.
    Bits(Vec<u8>),
    Changes {
        first: Vec<Change>,
        second: Vec<Change>,
        logits: Vec<Logit>,
    },
    State {
        params: Vec<Change>,
        logits: Vec<Logit>,
        accepted: Vec<i16>,
        damage: Vec<Damage>,
        reader: Option<Vec<Change>>,
    },
    Bytes {
        params: Vec<Change>,
        bytes: Vec<u8>,
    },
    Stages {
        params: Vec<Change>,
        stages: Stages,
        others: Option<Stages>,
        logits: Vec<Logit>,
        damage: Vec<Damage>,
    },
}

#[derive(Arbitrary, Debug)]
enum Damage {
    Xor(u16, u8),
    Truncate(u16),
    Append(u8),
    /// Changes the number of draws in the state.
    Draws(u64),
    Seed(u64),
    Generator(u8),
    State(u8),
    Accepted(u64),
    /// Corrects the checksum.
    Sum,
    /// Changes four bytes at this distance from the end, where the memory of stages is stored.
    Behind(u16, u32),
}

fn any_bits(bits: &[u8]) {
    let mut raw = llama_sieve_default_params();
    let size = size_of::<llama_sieve_params>();
    let mut bytes = vec![0u8; size];
    // Fields beyond the given bytes keep their defaults. The biases stay NULL, since a pointer with
    // arbitrary bits would be invalid.
    let known = std::mem::offset_of!(llama_sieve_params, bias);
    // SAFETY: plain numbers and a pointer, copied as bytes, and the pointer's bytes stay.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const raw).cast(), bytes.as_mut_ptr(), size);
        let n = bits.len().min(known);
        bytes[..n].copy_from_slice(&bits[..n]);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut raw).cast::<u8>(), known);
    }
    let params = CParams::of(raw);
    // SAFETY: the struct is whole, and its bias NULL.
    unsafe {
        let sieve = llama_sieve_new(&params.raw);
        assert_eq!(sieve.is_null(), !params.is_valid(), "{raw:?}");
        if !sieve.is_null() {
            let logits = [0.5f32, 3.0, -1.0, f32::NAN, 2.5];
            for _ in 0..3 {
                let token = llama_sieve_sample(sieve, logits.as_ptr(), 5);
                assert!((0..5).contains(&token), "{token}");
                llama_sieve_accept(sieve, token);
            }
        }
        llama_sieve_free(sieve);
    }
}

fn values(logits: &[Logit]) -> Vec<f32> {
    logits.iter().take(200).map(|logit| logit.value()).collect()
}

/// Returns the tokens of some steps; a negative number means a failure.
///
/// # Safety
/// `sieve` is alive.
unsafe fn tokens(sieve: *mut Handle, logits: &[f32], steps: usize) -> Vec<i32> {
    let mut tokens = Vec::new();
    let mut logits = logits.to_vec();
    for _ in 0..steps {
        // SAFETY: the sieve is alive, and the logits are as many.
        unsafe {
            let token = llama_sieve_sample(sieve, logits.as_ptr(), logits.len() as i32);
            assert!(
                token >= 0
                    || [LLAMA_SIEVE_ERROR_SIZE, LLAMA_SIEVE_ERROR_NO_CANDIDATE].contains(&token),
                "{token}"
            );
            check_candidates(sieve, token, &logits);
            tokens.push(token);
            llama_sieve_accept(sieve, token.max(0));
        }
        if !logits.is_empty() {
            logits.rotate_left(1);
        }
    }
    tokens
}

/// Checks that the candidates of the last draw contain the token, and have only valid ids, and
/// probabilities that add up to 1.
///
/// # Safety
/// `sieve` is alive.
unsafe fn check_candidates(sieve: *mut Handle, token: i32, logits: &[f32]) {
    // SAFETY: the sieve is alive, and there is room.
    let candidates = unsafe {
        let n = llama_sieve_candidates(sieve, std::ptr::null_mut(), 0);
        let mut out =
            vec![llama_sieve::TokenData::default(); usize::try_from(n).expect("a number")];
        llama_sieve_candidates(sieve, out.as_mut_ptr(), out.len());
        out
    };
    assert_eq!(candidates.is_empty(), token < 0);
    if token < 0 {
        return;
    }
    let ids: BTreeSet<i32> = candidates.iter().map(|c| c.id).collect();
    assert_eq!(ids.len(), candidates.len());
    assert!(
        ids.iter()
            .all(|&id| usize::try_from(id).is_ok_and(|id| id < logits.len()))
    );
    assert!(ids.contains(&token));
    let sum: f64 = candidates.iter().map(|c| f64::from(c.p)).sum();
    // With the largest penalties and biases, logits become infinite or NaN.
    if candidates.iter().all(|c| c.logit.abs() < 1e30) {
        assert!((sum - 1.0).abs() < 1e-4, "probabilities add up to {sum}");
    }
}

/// Checks that rejected parameters change nothing.
fn changes(first: &[Change], second: &[Change], logits: &[Logit]) {
    let (first, second) = (CParams::new(first), CParams::new(second));
    let logits = values(logits);
    // SAFETY: parameters are whole, sieves alive until they are freed.
    unsafe {
        let sieve = llama_sieve_new(&first.raw);
        assert_eq!(sieve.is_null(), !first.is_valid());
        if sieve.is_null() {
            return;
        }
        tokens(sieve, &logits, 2);
        let same = llama_sieve_clone(sieve);
        let answer = llama_sieve_set_params(sieve, &second.raw);
        assert_eq!(answer == LLAMA_SIEVE_OK, second.is_valid());
        if answer != LLAMA_SIEVE_OK {
            assert!([LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_PARAMS].contains(&answer));
            assert_eq!(tokens(sieve, &logits, 3), tokens(same, &logits, 3));
        } else {
            tokens(sieve, &logits, 2);
            // Restores the first parameters. The history and the generator have changed, but
            // nothing may fail.
            assert_eq!(llama_sieve_set_params(sieve, &first.raw), LLAMA_SIEVE_OK);
            tokens(sieve, &logits, 1);
        }
        llama_sieve_free(sieve);
        llama_sieve_free(same);
    }
}

/// Returns the saved state of a sieve.
///
/// # Safety
/// `sieve` is alive.
unsafe fn saved(sieve: *mut Handle) -> Vec<u8> {
    // SAFETY: the sieve is alive, and there is room.
    unsafe {
        let mut bytes = vec![0; llama_sieve_state_size(sieve)];
        assert_eq!(
            llama_sieve_state_save(sieve, bytes.as_mut_ptr(), bytes.len()),
            LLAMA_SIEVE_OK
        );
        bytes
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, step)
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        let mut put = |at: usize, value: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + value.len()) {
                place.copy_from_slice(value);
            }
        };
        match self {
            Damage::Xor(at, xor) => {
                let at = usize::from(*at) % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= xor;
                }
            }
            Damage::Truncate(len) => bytes.truncate(usize::from(*len)),
            Damage::Append(byte) => bytes.push(*byte),
            Damage::Draws(draws) => put(24, &draws.to_le_bytes()),
            Damage::Seed(seed) => put(16, &seed.to_le_bytes()),
            Damage::Generator(kind) => put(8, &u32::from(*kind).to_le_bytes()),
            Damage::State(byte) => put(32, &[*byte; 16]),
            Damage::Accepted(n) => put(48, &n.to_le_bytes()),
            Damage::Sum => {
                if let Some(end) = bytes.len().checked_sub(8) {
                    let sum = fnv1a(&bytes[..end]).to_le_bytes();
                    bytes[end..].copy_from_slice(&sum);
                }
            }
            Damage::Behind(from_end, word) => {
                if let Some(at) = len.checked_sub(12 + usize::from(*from_end)) {
                    put(at, &word.to_le_bytes());
                }
            }
        }
    }
}

/// Checks that a state, damaged or not, is either rejected without a change, or accepted and
/// continues like the sieve that saved it.
fn state(
    params: &[Change],
    logits: &[Logit],
    accepted: &[i16],
    damage: &[Damage],
    reader: Option<&[Change]>,
) {
    let params = CParams::new(params);
    let reader = reader.map_or_else(|| CParams::of(params.raw), CParams::new);
    let logits = values(logits);
    // SAFETY: parameters are whole (the biases of `params` live), sieves alive until they are
    // freed.
    unsafe {
        let (writer, reader) = (llama_sieve_new(&params.raw), llama_sieve_new(&reader.raw));
        if !writer.is_null() && !reader.is_null() {
            for &token in accepted {
                llama_sieve_accept(writer, i32::from(token));
            }
            tokens(writer, &logits, 2);
            let whole = saved(writer);
            let mut bytes = whole.clone();
            damage.iter().for_each(|damage| damage.apply(&mut bytes));
            load(reader, &bytes, &logits);
            // A sieve with the same parameters must continue with the same tokens.
            let twin = llama_sieve_new(&params.raw);
            assert_eq!(
                llama_sieve_state_load(twin, whole.as_ptr(), whole.len()),
                LLAMA_SIEVE_OK
            );
            assert_eq!(saved(twin), whole);
            assert_eq!(tokens(twin, &logits, 3), tokens(writer, &logits, 3));
            llama_sieve_free(twin);
            // If the parameters are loaded as well, any sieve must continue like the writer.
            load_with_params(reader, &bytes, &logits);
            load_with_params(reader, &whole, &logits);
            let twin = llama_sieve_clone(reader);
            assert_eq!(
                llama_sieve_state_load(writer, whole.as_ptr(), whole.len()),
                LLAMA_SIEVE_OK
            );
            load_with_params(twin, &whole, &[]);
            assert_eq!(saved(twin), whole);
            assert_eq!(tokens(twin, &logits, 3), tokens(writer, &logits, 3));
            llama_sieve_free(twin);
        }
        llama_sieve_free(writer);
        llama_sieve_free(reader);
    }
}

/// Checks stages with any parameters: a saved state must continue in a sieve with the same stages,
/// a damaged state must do no harm, and stages may change at any token.
fn with_stages(
    params: &[Change],
    stages: &Stages,
    others: Option<&Stages>,
    logits: &[Logit],
    damage: &[Damage],
) {
    let params = CParams::new(params);
    let (stages, others) = (CStages::new(stages), others.map(CStages::new));
    let logits = values(logits);
    // SAFETY: parameters and stages are whole, sieves alive until they are freed.
    unsafe {
        let sieve = llama_sieve_new(&params.raw);
        if sieve.is_null() {
            return;
        }
        tokens(sieve, &logits, 1);
        let answer = llama_sieve_set_stages(sieve, &stages.raw);
        assert_eq!(answer == LLAMA_SIEVE_OK, stages.is_valid(), "{answer}");
        if answer == LLAMA_SIEVE_OK {
            assert!(stages.are_of(sieve));
            tokens(sieve, &logits, 2);
            // A copy, and a sieve that loads the state, must continue as the sieve does.
            let (copy, twin) = (llama_sieve_clone(sieve), llama_sieve_new(&params.raw));
            assert_eq!(llama_sieve_set_stages(twin, &stages.raw), LLAMA_SIEVE_OK);
            let whole = saved(sieve);
            load_with_params(twin, &whole, &[]);
            assert_eq!(saved(twin), whole);
            let expected = tokens(sieve, &logits, 3);
            assert_eq!(tokens(copy, &logits, 3), expected);
            assert_eq!(tokens(twin, &logits, 3), expected);
            assert_eq!(saved(copy), saved(sieve));
            // Loads a damaged state into a sieve with the same stages, and into one with others.
            let mut bytes = whole.clone();
            damage.iter().for_each(|damage| damage.apply(&mut bytes));
            load(twin, &bytes, &logits);
            load_with_params(copy, &bytes, &logits);
            let before = saved(twin);
            let answer = others.as_ref().map_or(LLAMA_SIEVE_OK, |others| {
                let answer = llama_sieve_set_stages(twin, &others.raw);
                assert_eq!(answer == LLAMA_SIEVE_OK, others.is_valid(), "{answer}");
                answer
            });
            if answer != LLAMA_SIEVE_OK {
                assert!([LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_PARAMS].contains(&answer));
                assert_eq!(saved(twin), before);
            }
            load(twin, &bytes, &logits);
            load_with_params(twin, &whole, &logits);
            // After a reset the sieves must behave like a new one.
            for sieve in [sieve, copy] {
                assert_eq!(llama_sieve_set_stages(sieve, &stages.raw), LLAMA_SIEVE_OK);
                assert_eq!(llama_sieve_set_params(sieve, &params.raw), LLAMA_SIEVE_OK);
                llama_sieve_reset(sieve);
            }
            assert_eq!(llama_sieve_reserve(copy, 20), LLAMA_SIEVE_OK);
            assert_eq!(saved(copy), saved(sieve));
            assert_eq!(tokens(copy, &logits, 3), tokens(sieve, &logits, 3));
            llama_sieve_free(copy);
            llama_sieve_free(twin);
        }
        assert_eq!(
            llama_sieve_set_stages(sieve, std::ptr::null()),
            LLAMA_SIEVE_OK
        );
        tokens(sieve, &logits, 1);
        llama_sieve_free(sieve);
    }
}

fn bytes_as_state(params: &[Change], bytes: &[u8]) {
    let params = CParams::new(params);
    // SAFETY: parameters are whole, the sieve alive until it is freed.
    unsafe {
        let sieve = llama_sieve_new(&params.raw);
        if !sieve.is_null() {
            load(sieve, bytes, &[1.0, 2.0, 3.0]);
            load_with_params(sieve, bytes, &[1.0, 2.0, 3.0]);
        }
        llama_sieve_free(sieve);
    }
}

/// Checks that loading the bytes with their parameters either changes nothing, or gives the sieve
/// that saved them, except for a window that its own parameters shorten.
///
/// # Safety
/// `sieve` is alive.
unsafe fn load_with_params(sieve: *mut Handle, bytes: &[u8], logits: &[f32]) {
    // SAFETY: the sieve is alive, the bytes are as many.
    unsafe {
        let before = saved(sieve);
        let params = LLAMA_SIEVE_STATE_PARAMS;
        let answer = llama_sieve_state_load_with(sieve, bytes.as_ptr(), bytes.len(), params);
        if answer != LLAMA_SIEVE_OK {
            assert_eq!(answer, LLAMA_SIEVE_ERROR_STATE);
            assert_eq!(saved(sieve), before);
            return;
        }
        let after = saved(sieve);
        assert_eq!(after[..12], bytes[..12]);
        assert_eq!(after[16..56], bytes[16..56]);
        assert!(
            bytes[56 + 4 * window_of(bytes)..bytes.len() - 8]
                .ends_with(&after[56 + 4 * window_of(&after)..after.len() - 8])
        );
        // Without logits nothing is sampled, and the sieve stays in the loaded state.
        if !logits.is_empty() {
            tokens(sieve, logits, 2);
        }
    }
}

/// Returns the number of tokens in the window of a state.
fn window_of(state: &[u8]) -> usize {
    u32::from_le_bytes([state[12], state[13], state[14], state[15]]) as usize
}

/// Loads a state into a sieve. Checks that a refused state changes nothing, and that an accepted
/// one is restored.
///
/// # Safety
/// `sieve` is alive.
unsafe fn load(sieve: *mut Handle, bytes: &[u8], logits: &[f32]) {
    // SAFETY: the sieve is alive, the bytes are as many; clones are alive until they are freed.
    unsafe {
        llama_sieve_accept(sieve, 5);
        let before = saved(sieve);
        let answer = llama_sieve_state_load(sieve, bytes.as_ptr(), bytes.len());
        if answer != LLAMA_SIEVE_OK {
            assert_eq!(answer, LLAMA_SIEVE_ERROR_STATE);
            assert_eq!(saved(sieve), before);
            return;
        }
        let after = saved(sieve);
        let end = bytes.len() - 8;
        assert_eq!(fnv1a(&bytes[..end]).to_le_bytes(), bytes[end..]);
        // Generator, seed and counters must be those of the bytes, and the window's newest tokens,
        // as many as fit. The format's version is the newest, and the parameters are the sieve's
        // own.
        assert_eq!(after[..4], bytes[..4]);
        assert_eq!(after[8..12], bytes[8..12]);
        assert_eq!(after[16..32], bytes[16..32]);
        assert_eq!(after[48..56], bytes[48..56]);
        let window = |state: &[u8]| state[56..56 + 4 * window_of(state)].to_vec();
        assert!(window(bytes).ends_with(&window(&after)));
        let copy = llama_sieve_clone(sieve);
        assert_eq!(tokens(copy, logits, 2), tokens(sieve, logits, 2));
        llama_sieve_free(copy);
    }
}
