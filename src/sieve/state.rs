//! The state of a sieve as bytes: generator, number of accepted tokens, window. Parameters are not
//! part of it.
//!
//! Little-endian, 64 bytes and 4 per token of the window, with mt19937 another 2496:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | "LSST" |
//! | 4..8 | version: 2 with mt19937, 1 with the others |
//! | 8..12 | generator: 0 xoroshiro128+, 1 mt19937, 2 position |
//! | 12..16 | n, tokens in the window |
//! | 16..24 | seed in use |
//! | 24..32 | numbers drawn |
//! | 32..48 | state of xoroshiro128+; 0 for other generators |
//! | 48..56 | tokens accepted |
//! | 56..56 + 4 n | the window, oldest first |
//! | the next 2496, in version 2 | the words of mt19937, the oldest first |
//! | the last 8 | FNV-1a (64 bits) of all before |
//!
//! The check sum finds damage, not malice: whoever writes a state can compute it. Loading one takes
//! time that follows from its size. A state of mt19937 of version 1 has no words: its draws are
//! repeated, up to a number that is quickly done.

use crate::rng::Mt19937;
use crate::sieve::Error;
use crate::sieve::generator::Place;
use crate::sieve::params::RngKind;
use crate::token::Token;

const MAGIC: &[u8; 4] = b"LSST";
/// Without the words of mt19937.
const VERSION: u32 = 1;
/// With them.
const VERSION_WORDS: u32 = 2;
const HEAD: usize = 56;
const WORDS: usize = 4 * Mt19937::WORDS;
const SUM: usize = 8;

/// What is saved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State<I> {
    pub place: Place,
    pub accepted: u64,
    pub window: I,
}

/// How many bytes a window of `n` tokens takes, with a generator of that kind.
pub(super) fn size(n: usize, kind: RngKind) -> usize {
    let words = if kind == RngKind::Mt19937 { WORDS } else { 0 };
    HEAD + 4 * n + words + SUM
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

impl<I: ExactSizeIterator<Item = Token>> State<I> {
    /// Writes into `bytes`, which has the [`size`] of the window.
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: `bytes` has the length of what is put"
    )]
    pub fn write(self, bytes: &mut [u8]) {
        let kind = match self.place.kind {
            RngKind::Xoroshiro128Plus => 0u32,
            RngKind::Mt19937 => 1,
            RngKind::Position => 2,
        };
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(MAGIC);
        let version = self.place.words.map_or(VERSION, |_| VERSION_WORDS);
        put(&version.to_le_bytes());
        put(&kind.to_le_bytes());
        put(&(self.window.len() as u32).to_le_bytes());
        put(&self.place.seed.to_le_bytes());
        put(&self.place.draws.to_le_bytes());
        put(&self.place.state[0].to_le_bytes());
        put(&self.place.state[1].to_le_bytes());
        put(&self.accepted.to_le_bytes());
        for token in self.window {
            put(&token.to_le_bytes());
        }
        for word in self.place.words.iter().flatten() {
            put(&word.to_le_bytes());
        }
        let sum = fnv1a(&bytes[..at]);
        bytes[at..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Reads what `write` wrote; everything is checked.
#[expect(
    clippy::indexing_slicing,
    reason = "not shorter than `HEAD` and `SUM`; of what lies between the length was checked"
)]
pub(super) fn read(
    bytes: &[u8],
) -> Result<State<impl ExactSizeIterator<Item = Token> + '_>, Error> {
    let wrong = |text: String| Err(Error::State(text));
    let least = HEAD + SUM;
    if bytes.len() < least {
        return wrong(format!(
            "{} bytes are too few for a state, which has {least} or more",
            bytes.len()
        ));
    }
    if !bytes.starts_with(MAGIC) {
        return wrong("the bytes are no state of a sieve".to_owned());
    }
    let version = u32_at(bytes, 4);
    if version != VERSION && version != VERSION_WORDS {
        return wrong(format!(
            "the state has version {version}; this library reads versions {VERSION} and \
             {VERSION_WORDS}"
        ));
    }
    let words = if version == VERSION_WORDS { WORDS } else { 0 };
    let body = &bytes[HEAD..bytes.len() - SUM];
    let n = u32_at(bytes, 12) as usize;
    let expected = n.checked_mul(4).and_then(|n| n.checked_add(words));
    if Some(body.len()) != expected {
        return wrong(format!(
            "{} bytes were given; a state of {n} tokens has another length",
            bytes.len()
        ));
    }
    let (window, words) = body.split_at(body.len() - words);
    if fnv1a(&bytes[..bytes.len() - SUM]) != u64_at(bytes, bytes.len() - SUM) {
        return wrong("the state is damaged: its check sum is another".to_owned());
    }
    let kind = match u32_at(bytes, 8) {
        0 => RngKind::Xoroshiro128Plus,
        1 => RngKind::Mt19937,
        2 => RngKind::Position,
        other => return wrong(format!("the state is of an unknown generator, {other}")),
    };
    let state = [u64_at(bytes, 32), u64_at(bytes, 40)];
    if kind != RngKind::Xoroshiro128Plus && state != [0, 0] {
        return wrong(format!(
            "the state is of generator {kind:?}, and has one of xoroshiro128+ as well"
        ));
    }
    if version == VERSION_WORDS && kind != RngKind::Mt19937 {
        return wrong(format!(
            "the state is of generator {kind:?}, and has one of mt19937 as well"
        ));
    }
    Ok(State {
        place: Place {
            kind,
            seed: u64_at(bytes, 16),
            draws: u64_at(bytes, 24),
            state,
            words: (version == VERSION_WORDS).then(|| words_of(words)),
        },
        accepted: u64_at(bytes, 48),
        window: window
            .chunks_exact(4)
            .map(|token| u32_at(token, 0) as Token),
    })
}

fn words_of(bytes: &[u8]) -> [u32; Mt19937::WORDS] {
    let mut words = [0; Mt19937::WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32_at(bytes, 0);
    }
    words
}

#[expect(
    clippy::indexing_slicing,
    reason = "the callers read parts of the head, of the sum and of whole tokens, which are there"
)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

#[expect(
    clippy::indexing_slicing,
    reason = "the callers read parts of the head and the sum, which are there"
)]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sieve::{Params, Sieve};

    #[test]
    fn the_largest_numbers_of_a_state_go_on_too() {
        let mut sieve = Sieve::new(&Params::default()).expect("the defaults are good");
        let state = State {
            place: Place {
                kind: RngKind::Xoroshiro128Plus,
                seed: u64::MAX,
                draws: u64::MAX,
                state: [1, 2],
                words: None,
            },
            accepted: u64::MAX,
            window: [7].into_iter(),
        };
        let mut bytes = vec![0; size(1, RngKind::Xoroshiro128Plus)];
        state.write(&mut bytes);
        sieve.load(&bytes).expect("a whole state");
        let logits = [1.0f32, 2.0, 3.0];
        let token = sieve.sample(&logits[..]).expect("a token");
        sieve.accept(token);
        assert_eq!(sieve.accepted(), 0);
    }
}
