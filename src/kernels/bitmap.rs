//! Sets of tokens as bitmaps: bit t % 64 of word t / 64 stands for token t.

use super::registers::prefetch_candidates;
use crate::simd::{Vector, dispatched};
use crate::token::TokenData;

dispatched! {
    /// Gives minus infinity to the candidates whose tokens are not in `allowed`. Reads 12 bytes per
    /// candidate, and writes where something changes.
    pub fn mask_tokens(data: &mut [TokenData], allowed: &[u64]) => mask_tokens_on;
    /// Gives minus infinity to the logits of the tokens that are not in `allowed`, the first of which
    /// is token 0. Reads and writes 4 bytes per logit where a word has some of both.
    pub fn mask_column(column: &mut [f32], allowed: &[u64]) => mask_column_on;
    /// How many bits are set.
    pub fn count_bits(words: &[u64]) -> usize => count_bits_on;
}

/// Whether a token is in a set; false of one that there is not.
#[inline(always)]
pub fn has(words: &[u64], token: i32) -> bool {
    let word = words.get(token as u32 as usize / 64);
    word.is_some_and(|word| word >> (token as u32 % 64) & 1 != 0)
}

/// How far ahead, in candidates, the cache lines are asked for.
const FAR: usize = 128;

/// The last ones first, where whoever filled the array has ended.
#[inline(always)]
fn mask_tokens_on<V: Vector>(v: V, data: &mut [TokenData], allowed: &[u64]) {
    let whole = data.len() - data.len() % V::LANES;
    let (data, rest) = data.split_at_mut(whole);
    for candidate in rest.iter_mut().filter(|c| !has(allowed, c.id)) {
        candidate.logit = f32::NEG_INFINITY;
    }
    for chunk in data.chunks_exact_mut(V::LANES).rev() {
        prefetch_candidates(v, chunk.as_ptr().wrapping_sub(FAR));
        let masked = !lanes_of(v, chunk, allowed) & (u32::MAX >> (32 - V::LANES));
        if masked != 0 {
            v.mask_logits(chunk, masked);
        }
    }
}

#[inline(always)]
fn mask_column_on<V: Vector>(_: V, column: &mut [f32], allowed: &[u64]) {
    let words = allowed.iter().copied().chain(std::iter::repeat(0));
    for (logits, word) in column.chunks_mut(64).zip(words) {
        match word {
            u64::MAX => {}
            0 => logits.fill(f32::NEG_INFINITY),
            // Each is written, so that the compiler does it by registers.
            _ => {
                for (half, logits) in logits.chunks_mut(32).enumerate() {
                    let word = (word >> (32 * half)) as u32;
                    for (bit, logit) in logits.iter_mut().enumerate() {
                        let is_set = word >> bit & 1 != 0;
                        *logit = if is_set { *logit } else { f32::NEG_INFINITY };
                    }
                }
            }
        }
    }
}

/// A bit for each candidate of a register: whether its token is in the set.
#[inline(always)]
fn lanes_of<V: Vector>(v: V, chunk: &[TokenData], words: &[u64]) -> u32 {
    let first = chunk.first().map_or(-1, |candidate| candidate.id);
    if first < 0 || !v.ids_count_from(chunk, first as u32) {
        return lanes_of_any(chunk, words);
    }
    let (word, shift) = (first as usize / 64, first as u32 % 64);
    let at = |i: usize| words.get(i).copied().unwrap_or(0);
    // Shifted twice: 64 at once is none.
    (at(word) >> shift | at(word + 1) << 1 << (63 - shift)) as u32
}

/// The same of tokens in any order.
#[inline(never)]
fn lanes_of_any(chunk: &[TokenData], words: &[u64]) -> u32 {
    let lanes = chunk.iter().enumerate();
    lanes.fold(0, |lanes, (lane, candidate)| {
        lanes | u32::from(has(words, candidate.id)) << lane
    })
}

#[inline(always)]
fn count_bits_on<V: Vector>(_: V, words: &[u64]) -> usize {
    let ones = words.iter().map(|word| word.count_ones() as usize);
    ones.sum()
}
