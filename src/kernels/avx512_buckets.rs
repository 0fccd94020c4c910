//! The passes of [`buckets`](super::buckets) with AVX-512.
//!
//! Doubles are compared, of which the processor finds minima and maxima on two ports; of 64-bit
//! integers it does so on one. 16 registers of 8 words are sorted lane by lane, by the 60 exchanges
//! that sort 16, then lanes are merged by twos, fours and eights: 504 minima and maxima, 96
//! shuffles between lanes, and 48 to bring the lanes one behind the other.

use std::arch::x86_64::*;

use super::buckets::{INDEX_BITS, Passes, REVERSED, SEGMENTS, Spread, WINDOW, sort_large};

/// Only where the processor has AVX-512 may they be called.
pub const BUCKETS: Option<Passes> = Some(Passes {
    number: |xs, spread, to| {
        // SAFETY: the table is given out only where the processor has AVX-512.
        unsafe { number(xs, spread, to) }
    },
    sort: |words, ends, indices, sorted| {
        // SAFETY: the table is given out only where the processor has AVX-512.
        unsafe { sort(words, ends, indices, sorted) }
    },
});

/// Reads 4 bytes per element and writes 2.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
#[expect(
    clippy::indexing_slicing,
    reason = "a remainder has fewer elements than a register has lanes"
)]
fn number(xs: &[f32], spread: &Spread, to: &mut [u16]) -> bool {
    assert_eq!(xs.len(), to.len());
    let mut plain = true;
    let mut chunks = xs.chunks_exact(16);
    let mut rest = to.chunks_exact_mut(16);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        plain &= number_16(chunk, spread, to);
    }
    let (from, to) = (chunks.remainder(), rest.into_remainder());
    let (mut padded, mut last) = ([0.0; 16], [0; 16]);
    padded[..from.len()].copy_from_slice(from);
    plain &= number_16(&padded, spread, &mut last);
    to.copy_from_slice(&last[..from.len()]);
    plain
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
fn number_16(xs: &[f32], spread: &Spread, to: &mut [u16]) -> bool {
    const LAST: f32 = SEGMENTS as f32 - 1e-4;
    assert!(xs.len() >= 16 && to.len() >= 16);
    // SAFETY: 16 floats and 16 places are there, and two registers of segments.
    let (x, tables) = unsafe {
        let tables = [&spread.first, &spread.many].map(|table| {
            let table = table.as_ptr();
            [_mm512_loadu_ps(table), _mm512_loadu_ps(table.add(16))]
        });
        (_mm512_loadu_ps(xs.as_ptr()), tables)
    };
    let [[first_low, first_high], [many_low, many_high]] = tables;
    let below = _mm512_sub_ps(_mm512_set1_ps(spread.top), x);
    let below = _mm512_mul_ps(below, _mm512_set1_ps(spread.per_unit));
    // What is NaN, as 0 times infinity, becomes 0.
    let below = _mm512_min_ps(
        _mm512_max_ps(below, _mm512_setzero_ps()),
        _mm512_set1_ps(LAST),
    );
    let segment = _mm512_cvttps_epi32(below);
    let part = _mm512_sub_ps(below, _mm512_cvtepi32_ps(segment));
    let first = _mm512_permutex2var_ps(first_low, segment, first_high);
    let many = _mm512_permutex2var_ps(many_low, segment, many_high);
    let bucket = _mm512_cvttps_epi32(_mm512_fmadd_ps(part, many, first));
    // SAFETY: as above.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(bucket)) };
    let bits = _mm512_castps_si512(x);
    _mm512_cmpeq_epi32_mask(bits, _mm512_set1_epi32(i32::MIN)) == 0
}

/// Reads 8 bytes per element and writes 8.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
#[expect(
    clippy::indexing_slicing,
    reason = "the last end is that of all elements, behind which all have a window more: asserted"
)]
fn sort(words: &mut [u64], ends: &[u32], indices: &mut [u32], sorted: &mut [f32]) {
    let n = ends.last().map_or(0, |&end| end as usize);
    let padded = n + WINDOW;
    assert!(words.len() >= padded && indices.len() >= padded && sorted.len() >= padded);
    words[n..].fill(u64::MAX >> 12 | super::buckets::ONE);
    let mut ends = ends.iter().map(|&end| end as usize).peekable();
    // The compiler must not know them: it would make of each maximum under a mask a maximum and a
    // shuffle, on the one port that has shuffles.
    let uppers = std::hint::black_box([0b1010_1010, 0b1100_1100, 0b1111_0000]);
    let mut at = 0;
    while at < n {
        let mut end = at;
        while let Some(next) = ends.next_if(|&end| end <= at + WINDOW) {
            end = next;
        }
        if end > at {
            sort_window(&words[at..], uppers, &mut indices[at..], &mut sorted[at..]);
        } else {
            end = ends.next().unwrap_or(n);
            let (indices, sorted) = (&mut indices[at..end], &mut sorted[at..end]);
            sort_large(&mut words[at..end], indices, sorted);
        }
        at = end;
    }
}

/// Exchanges what stands in two registers where the former is larger.
macro_rules! exchange {
    ($r:ident: $($a:literal $b:literal),*) => {$(
        let (a, b) = ($r[$a], $r[$b]);
        $r[$a] = _mm512_min_pd(a, b);
        $r[$b] = _mm512_max_pd(a, b);
    )*};
}

/// Puts in order what rises and then falls from register to register.
macro_rules! merge_registers {
    ($r:ident) => {
        exchange!($r: 0 8, 1 9, 2 10, 3 11, 4 12, 5 13, 6 14, 7 15);
        exchange!($r: 0 4, 1 5, 2 6, 3 7, 8 12, 9 13, 10 14, 11 15);
        exchange!($r: 0 2, 1 3, 4 6, 5 7, 8 10, 9 11, 12 14, 13 15);
        exchange!($r: 0 1, 2 3, 4 5, 6 7, 8 9, 10 11, 12 13, 14 15);
    };
}

/// Compares each lane with the one that `$other` brings to its place, register by register, from
/// the other end if `$from_end`; lanes of `$upper` keep the larger.
macro_rules! exchange_lanes {
    ($r:ident, $upper:expr, $other:expr; from the end) => {
        for i in 0..8 {
            let (a, b) = ($r[i], $r[15 - i]);
            let (other_a, other_b) = ($other(a), $other(b));
            let low = _mm512_min_pd(a, other_b);
            $r[i] = _mm512_mask_max_pd(low, $upper, a, other_b);
            let low = _mm512_min_pd(b, other_a);
            $r[15 - i] = _mm512_mask_max_pd(low, $upper, b, other_a);
        }
    };
    ($r:ident, $upper:expr, $other:expr) => {
        for i in 0..16 {
            let (a, other) = ($r[i], $other($r[i]));
            $r[i] = _mm512_mask_max_pd(_mm512_min_pd(a, other), $upper, a, other);
        }
    };
}

/// The upper halves of two, four and eight lanes.
type Uppers = [__mmask8; 3];

/// Sorts a window of words, from which it takes indices and floats. Asks for the next window's
/// cache lines.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
#[expect(
    clippy::indexing_slicing,
    reason = "numbers of 16 registers, most of them literal"
)]
fn sort_window(words: &[u64], uppers: Uppers, indices: &mut [u32], sorted: &mut [f32]) {
    assert!(words.len() >= WINDOW && indices.len() >= WINDOW && sorted.len() >= WINDOW);
    let [of_two, of_four, of_eight] = uppers;
    let mut r = [_mm512_setzero_pd(); 16];
    let reversed = _mm512_set1_epi64(REVERSED as i64);
    for (i, r) in r.iter_mut().enumerate() {
        // SAFETY: a window is 16 registers.
        let word = unsafe { _mm512_loadu_epi64(words.as_ptr().add(8 * i).cast()) };
        super::prefetch(words, WINDOW + 8 * i);
        // The sign of the float in all bits.
        let signs = _mm512_slli_epi64::<{ 64 - 32 - INDEX_BITS }>(word);
        let signs = _mm512_srai_epi64::<63>(signs);
        // word ^ (reversed & !signs).
        let word = _mm512_ternarylogic_epi64::<0xD2>(word, signs, reversed);
        *r = _mm512_castsi512_pd(word);
    }
    exchange!(r: 0 13, 1 12, 2 15, 3 14, 4 8, 5 6, 7 11, 9 10);
    exchange!(r: 0 5, 1 7, 2 9, 3 4, 6 13, 8 14, 10 15, 11 12);
    exchange!(r: 0 1, 2 3, 4 5, 6 8, 7 9, 10 11, 12 13, 14 15);
    exchange!(r: 0 2, 1 3, 4 10, 5 11, 6 7, 8 9, 12 14, 13 15);
    exchange!(r: 1 2, 3 12, 4 6, 5 7, 8 10, 9 11, 13 14);
    exchange!(r: 1 4, 2 6, 5 8, 7 10, 9 13, 11 14);
    exchange!(r: 2 4, 3 6, 9 12, 11 13);
    exchange!(r: 3 5, 6 8, 7 9, 10 12);
    exchange!(r: 3 4, 5 6, 7 8, 9 10, 11 12);
    exchange!(r: 6 7, 8 9);
    let neighbour = |x| _mm512_permute_pd::<0b0101_0101>(x);
    let second = |x| _mm512_permutex_pd::<0b01_00_11_10>(x);
    let of_four_reversed = |x| _mm512_permutex_pd::<0b00_01_10_11>(x);
    let lanes = _mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    let of_eight_reversed = |x| _mm512_permutexvar_pd(lanes, x);
    exchange_lanes!(r, of_two, neighbour; from the end);
    merge_registers!(r);
    exchange_lanes!(r, of_four, of_four_reversed; from the end);
    exchange_lanes!(r, of_two, neighbour);
    merge_registers!(r);
    exchange_lanes!(r, of_eight, of_eight_reversed; from the end);
    exchange_lanes!(r, of_four, second);
    exchange_lanes!(r, of_two, neighbour);
    merge_registers!(r);
    let [low, high] = r.as_chunks::<8>().0 else {
        return;
    };
    let (low, high) = (transposed(*low), transposed(*high));
    for i in 0..8 {
        super::prefetch(indices, WINDOW + 16 * i);
        super::prefetch(sorted, WINDOW + 16 * i);
        // SAFETY: a window is 8 registers of either.
        unsafe {
            let [index, x] = split(low[i], high[i]);
            _mm512_storeu_epi32(indices.as_mut_ptr().add(16 * i).cast(), index);
            _mm512_storeu_epi32(sorted.as_mut_ptr().add(16 * i).cast(), x);
        }
    }
}

/// Lane j of register i in lane i of register j.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
#[expect(clippy::indexing_slicing, reason = "numbers of 8 registers")]
fn transposed(r: [__m512d; 8]) -> [__m512d; 8] {
    let mut pairs = r;
    for i in (0..8).step_by(2) {
        pairs[i] = _mm512_unpacklo_pd(r[i], r[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_pd(r[i], r[i + 1]);
    }
    let low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    let high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    let mut fours = pairs;
    for i in [0, 1, 4, 5] {
        fours[i] = _mm512_permutex2var_pd(pairs[i], low, pairs[i + 2]);
        fours[i + 2] = _mm512_permutex2var_pd(pairs[i], high, pairs[i + 2]);
    }
    let mut eights = fours;
    for i in 0..4 {
        eights[i] = _mm512_shuffle_f64x2::<0b01_00_01_00>(fours[i], fours[i + 4]);
        eights[i + 4] = _mm512_shuffle_f64x2::<0b11_10_11_10>(fours[i], fours[i + 4]);
    }
    eights
}

/// The indices and the floats of 16 sorted words.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
fn split(low: __m512d, high: __m512d) -> [__m512i; 2] {
    let (low, high) = (_mm512_castpd_si512(low), _mm512_castpd_si512(high));
    let halves = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let index = _mm512_permutex2var_epi32(low, halves, high);
    let index = _mm512_and_si512(index, _mm512_set1_epi32((1 << INDEX_BITS) - 1));
    let low = _mm512_srli_epi64::<INDEX_BITS>(low);
    let high = _mm512_srli_epi64::<INDEX_BITS>(high);
    let x = _mm512_permutex2var_epi32(low, halves, high);
    let (signs, reversed) = (_mm512_srai_epi32::<31>(x), _mm512_set1_epi32(i32::MAX));
    [index, _mm512_ternarylogic_epi32::<0xD2>(x, signs, reversed)]
}
