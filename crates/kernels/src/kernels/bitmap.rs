//! Sets of tokens as bitmaps: the bit of token t is bit t % 64 of word t / 64.

use super::registers::prefetch_candidates;
use crate::simd::{Vector, dispatched};
use crate::token::TokenData;

dispatched! {
    /// Sets the logits of candidates whose tokens are not in `allowed` to minus infinity. Reads 12
    /// bytes per candidate. Does not write to blocks of 64 candidates that are all allowed.
    pub fn mask_tokens(data: &mut [TokenData], allowed: &[u64]) => mask_tokens_on;
    /// Sets the logits of tokens that are not in `allowed` to minus infinity. The first logit is
    /// that of token 0. Reads and writes 4 bytes per logit if a word has bits of both kinds.
    pub fn mask_column(column: &mut [f32], allowed: &[u64]) => mask_column_on;
    /// Returns the number of bits set.
    pub fn count_bits(words: &[u64]) -> usize => count_bits_on;
}

/// Returns true if a token is in a set; false if the words end before its bit.
#[inline(always)]
pub fn has(words: &[u64], token: i32) -> bool {
    let word = words.get(token as u32 as usize / 64);
    word.is_some_and(|word| word >> (token as u32 % 64) & 1 != 0)
}

/// The number of candidates that are looked up at once, as many as a word of the bitmap has bits.
/// One branch for all of them is better predicted than one for each register.
const BLOCK: usize = 64;

/// The prefetch distance in candidates. Half, twice and four times the distance are no better.
/// Prefetching for writes is slower, and so is a forward pass.
const FAR: usize = 8 * BLOCK;

/// The alignment of blocks, in bytes, with which no load and no store of x86-64 crosses a cache
/// line.
const ALIGNMENT: usize = 64;

/// Masks the candidates in blocks, from the last to the first, since the last were written most
/// recently.
#[inline(always)]
fn mask_tokens_on<V: Vector>(v: V, data: &mut [TokenData], allowed: &[u64]) {
    let first = data.as_ptr().align_offset(ALIGNMENT).min(data.len());
    let (front, aligned) = data.split_at_mut(first);
    let (blocks, rest) = aligned.as_chunks_mut::<BLOCK>();
    mask_each(rest, allowed);
    for block in blocks.iter_mut().rev() {
        prefetch_block(v, block.as_ptr().wrapping_sub(FAR));
        let banned = !word_of(v, block, allowed);
        if banned != 0 {
            mask_block(v, block, banned);
        }
    }
    mask_each(front, allowed);
}

#[inline(always)]
fn mask_each(data: &mut [TokenData], allowed: &[u64]) {
    for candidate in data.iter_mut().filter(|c| !has(allowed, c.id)) {
        candidate.logit = f32::NEG_INFINITY;
    }
}

/// Sets the logits of candidates whose bits in `banned` are set to minus infinity.
#[inline(always)]
fn mask_block<V: Vector>(v: V, block: &mut [TokenData; BLOCK], banned: u64) {
    for (i, chunk) in block.chunks_exact_mut(V::LANES).enumerate() {
        let lanes = (banned >> (i * V::LANES)) as u32 & (u32::MAX >> (32 - V::LANES));
        v.mask_logits(chunk, lanes);
    }
}

/// Prefetches the cache lines of a block's candidates, which may be outside the array.
#[inline(always)]
fn prefetch_block<V: Vector>(v: V, at: *const TokenData) {
    for first in (0..BLOCK).step_by(V::LANES) {
        prefetch_candidates(v, at.wrapping_add(first));
    }
}

#[inline(always)]
fn mask_column_on<V: Vector>(_: V, column: &mut [f32], allowed: &[u64]) {
    let words = allowed.iter().copied().chain(std::iter::repeat(0));
    for (logits, word) in column.chunks_mut(64).zip(words) {
        match word {
            u64::MAX => {}
            0 => logits.fill(f32::NEG_INFINITY),
            // Every candidate is written, so that the compiler vectorizes the loop.
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

/// Returns a word with a bit for each candidate, set if its token is in the set.
#[inline(always)]
fn word_of<V: Vector>(v: V, block: &[TokenData; BLOCK], words: &[u64]) -> u64 {
    let [TokenData { id: first, .. }, ..] = *block;
    if first < 0 || !counts_from(v, block, first as u32) {
        return word_of_any(block, words);
    }
    let (word, shift) = (first as usize / 64, first as u32 % 64);
    let at = |i: usize| words.get(i).copied().unwrap_or(0);
    // Shifted in two steps, since a shift by 64 would not shift at all.
    at(word) >> shift | at(word + 1) << 1 << (63 - shift)
}

/// Returns true if the ids of a block count up from `first`.
#[inline(always)]
fn counts_from<V: Vector>(v: V, block: &[TokenData; BLOCK], first: u32) -> bool {
    let chunks = block
        .chunks_exact(V::LANES)
        .zip((first..).step_by(V::LANES));
    chunks.fold(true, |counts, (chunk, first)| {
        counts & v.ids_count_from(chunk, first)
    })
}

/// Returns a word with a bit for each candidate, set if its token is in the set, for tokens in any
/// order.
#[inline(never)]
fn word_of_any(block: &[TokenData; BLOCK], words: &[u64]) -> u64 {
    let candidates = block.iter().enumerate();
    candidates.fold(0, |word, (i, candidate)| {
        word | u64::from(has(words, candidate.id)) << i
    })
}

#[inline(always)]
fn count_bits_on<V: Vector>(_: V, words: &[u64]) -> usize {
    let ones = words.iter().map(|word| word.count_ones() as usize);
    ones.sum()
}
