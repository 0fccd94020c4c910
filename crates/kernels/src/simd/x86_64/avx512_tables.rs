//! Tables of lanes, and of the exponentials, for AVX-512.
// In bounds: evaluated by the compiler, which refuses an index that is out of bounds.

use crate::simd::exp::TABLE;

/// The lanes of the logits in the three registers that hold 16 candidates: word 3 i + 1 of 48. No
/// lane is used twice, so merging under a mask gathers all and one permutation puts them in order.
pub(super) const LOGITS: [u16; 3] = lanes_of_field(1);
/// The lanes of the ids in those registers: word 3 i.
pub(super) const IDS: [u16; 3] = lanes_of_field(0);
/// The lanes of the probabilities in those registers: word 3 i + 2.
pub(super) const PROBABILITIES: [u16; 3] = lanes_of_field(2);

const fn lanes_of_field(field: usize) -> [u16; 3] {
    let mut masks = [0; 3];
    let mut word = field;
    while word < 48 {
        masks[word / 16] |= 1 << (word % 16);
        word += 3;
    }
    masks
}

/// The candidate that each of the 48 words belongs to, as a bit.
pub(super) static OWNERS: [[i32; 16]; 3] = owners();

const fn owners() -> [[i32; 16]; 3] {
    let mut owners = [[0; 16]; 3];
    let mut word = 0;
    while word < 48 {
        owners[word / 16][word % 16] = 1 << (word / 3);
        word += 1;
    }
    owners
}

/// Returns, for each candidate, the lane of its field in the merged register.
const fn gathering(field: i32) -> [i32; 16] {
    let mut lanes = [0; 16];
    let mut i = 0;
    while i < 16 {
        lanes[i] = (3 * i as i32 + field) % 16;
        i += 1;
    }
    lanes
}

/// Returns, for each lane of the merged register, the candidate whose field it holds.
const fn scattering(field: i32) -> [i32; 16] {
    let mut candidates = [0; 16];
    let lanes = gathering(field);
    let mut i = 0;
    while i < 16 {
        candidates[lanes[i] as usize] = i as i32;
        i += 1;
    }
    candidates
}

// Constants, not statics, so that their values are known in every codegen unit.
pub(super) const GATHER_LOGITS: [i32; 16] = gathering(1);
pub(super) const GATHER_PROBABILITIES: [i32; 16] = gathering(2);
pub(super) const SCATTER_IDS: [i32; 16] = scattering(0);
pub(super) const SCATTER_LOGITS: [i32; 16] = scattering(1);
pub(super) const SCATTER_PROBABILITIES: [i32; 16] = scattering(2);

pub(super) const LANE_NUMBERS: [i32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// For each lane, the one that it is exchanged with: lanes 1 and 2, 3 and 4, and so on. The first
/// and the last lane stay.
pub(super) const ODD_NEIGHBOURS: [i32; 16] = [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 15];

/// The lower halves of the doubles in two registers, in the order in which unpacking words joins
/// them into doubles again: of every four, two of the first register, then two of the second.
pub(super) const LOW_HALVES: [i32; 16] =
    [0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30];

/// The lower halves of the entries of the table, then the upper ones.
pub(super) static HALVES: [u32; 64] = halves();

const fn halves() -> [u32; 64] {
    let mut halves = [0; 64];
    let mut i = 0;
    while i < 32 {
        halves[i] = TABLE[i] as u32;
        halves[32 + i] = (TABLE[i] >> 32) as u32;
        i += 1;
    }
    halves
}

/// The permutation that makes the words of 16 candidates from 16 ids and 16 logits: an id, a logit,
/// and a word that a mask sets to 0.
pub(super) static CANDIDATES: [[i32; 16]; 3] = words_of_candidates();
/// The words that are not a probability.
pub(super) const NOT_P: [u16; 3] = [!PROBABILITIES[0], !PROBABILITIES[1], !PROBABILITIES[2]];

const fn words_of_candidates() -> [[i32; 16]; 3] {
    let mut words = [[0; 16]; 3];
    let mut i = 0;
    while i < 48 {
        words[i / 16][i % 16] = (i / 3 + if i % 3 == 1 { 16 } else { 0 }) as i32;
        i += 1;
    }
    words
}

/// 1.5 * 2^18: adding it leaves the nearest 32nd in the low bits.
pub(super) const ROUND_32NDS: f32 = 393_216.0;
/// The coefficients of (e^r - 1) / r for |r| <= ln 2 / 64: the constant, and that of r. They give
/// e^r within 6e-8.
pub(super) const EXPM1: [f32; 2] = [1.000_014_7, 0.500_005];
/// 2^(i/32) for each i below 32.
pub(super) static POWERS: [f32; 32] = powers();

const fn powers() -> [f32; 32] {
    let mut powers = [0.0; 32];
    let mut i = 0;
    while i < 32 {
        powers[i] = f64::from_bits(TABLE[i] + ((i as u64) << 47)) as f32;
        i += 1;
    }
    powers
}
