//! The state of a sieve as bytes: generator, number of accepted tokens, window. Parameters are not part of it.
//!
//! Little-endian, 64 bytes and 4 per token of the window:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | "LSST" |
//! | 4..8 | version, 1 |
//! | 8..12 | generator: 0 xoroshiro128+, 1 mt19937, 2 position |
//! | 12..16 | n, tokens in the window |
//! | 16..24 | seed in use |
//! | 24..32 | numbers drawn |
//! | 32..48 | state of xoroshiro128+; 0 for other generators |
//! | 48..56 | tokens accepted |
//! | 56..56 + 4 n | the window, oldest first |
//! | the last 8 | FNV-1a (64 bits) of all before |

use crate::sieve::Error;
use crate::sieve::generator::Place;
use crate::sieve::params::RngKind;
use crate::token::Token;

const MAGIC: &[u8; 4] = b"LSST";
const VERSION: u32 = 1;
const HEAD: usize = 56;
const SUM: usize = 8;

/// What is saved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State<I> {
    pub place: Place,
    pub accepted: u64,
    pub window: I,
}

/// How many bytes a window of `n` tokens takes.
pub(super) fn size(n: usize) -> usize {
    HEAD + 4 * n + SUM
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
        put(&VERSION.to_le_bytes());
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
        let sum = fnv1a(&bytes[..at]);
        bytes[at..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Reads what `write` wrote; everything is checked.
#[expect(
    clippy::indexing_slicing,
    reason = "not shorter than the state of an empty window, `HEAD` and `SUM`"
)]
pub(super) fn read(
    bytes: &[u8],
) -> Result<State<impl ExactSizeIterator<Item = Token> + '_>, Error> {
    let wrong = |text: String| Err(Error::State(text));
    if bytes.len() < size(0) {
        return wrong(format!(
            "{} bytes are too few for a state, which has {} or more",
            bytes.len(),
            size(0)
        ));
    }
    if !bytes.starts_with(MAGIC) {
        return wrong("the bytes are no state of a sieve".to_owned());
    }
    let version = u32_at(bytes, 4);
    if version != VERSION {
        return wrong(format!(
            "the state has version {version}; this library reads version {VERSION}"
        ));
    }
    let window = &bytes[HEAD..bytes.len() - SUM];
    let n = u32_at(bytes, 12) as usize;
    if Some(window.len()) != n.checked_mul(4) {
        return wrong(format!(
            "{} bytes were given; a state of {n} tokens has another length",
            bytes.len()
        ));
    }
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
    Ok(State {
        place: Place {
            kind,
            seed: u64_at(bytes, 16),
            draws: u64_at(bytes, 24),
            state,
        },
        accepted: u64_at(bytes, 48),
        window: window
            .chunks_exact(4)
            .map(|token| u32_at(token, 0) as Token),
    })
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
            },
            accepted: u64::MAX,
            window: [7].into_iter(),
        };
        let mut bytes = vec![0; size(1)];
        state.write(&mut bytes);
        sieve.load(&bytes).expect("a whole state");
        let logits = [1.0f32, 2.0, 3.0];
        let token = sieve.sample(&logits[..]).expect("a token");
        sieve.accept(token);
        assert_eq!(sieve.accepted(), 0);
    }
}
