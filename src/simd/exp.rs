//! `expf` by a table, and the polynomial of an approximation.
//!
//! With k the integer nearest to x * 32 / ln 2 and r what remains, e^x = 2^(k/32) * 2^(r/32): the
//! first from a table of 32, the second a polynomial of degree 3, all in `double`, rounded once to
//! `float`. That is what the GNU C library computes since 2.27, bit for bit where r is formed by a
//! fused multiplication; the results for all negative floats were compared.

/// 32 / ln 2.
pub const SCALE: f64 = f64::from_bits(0x4047_1547_652b_82fe);
/// Adding 1.5 * 2^52 rounds a `double` to an integer and leaves that in the low bits.
pub const ROUND: f64 = 6_755_399_441_055_744.0;
/// The polynomial in r: `(C[0] r + C[1]) r^2 + (C[2] r + 1)`.
pub const C: [f64; 3] = [
    f64::from_bits(0x3fac_6af8_4b91_2394) / (32.0 * 32.0 * 32.0),
    f64::from_bits(0x3fce_bfce_50fa_c4f3) / (32.0 * 32.0),
    f64::from_bits(0x3fe6_2e42_ff0c_52d6) / 32.0,
];
/// Below this every result rounds to 0.
pub const LOWEST: f32 = -104.0;
/// The vector form is for numbers below this: every result from 88.7 on is infinite, and from 709
/// on the doubles overflow.
pub const HIGHEST: f32 = 128.0;

/// 1.5 * 2^23: adding it leaves the integer nearest to a `float` in the low bits.
pub const ROUND_F32: f32 = 12_582_912.0;
/// e^r for |r| <= ln 2 / 2, from the constant to r^5: the minimax polynomial, rounded; within
/// 1.4e-7.
pub const POLYNOMIAL: [f32; 6] = [
    1.0,
    0.999_999_7,
    0.499_988_9,
    0.166_675_76,
    0.041_915_63,
    0.008_297_619,
];

/// 2^(n/32), where n is the low half of a double, an integer.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "modulo the length of the table")]
pub fn power_of_32nds(n: f64) -> f64 {
    static ENTRIES: [u64; 32] = TABLE;
    let n = n.to_bits();
    f64::from_bits(ENTRIES[n as usize % ENTRIES.len()].wrapping_add(n << 47))
}

/// The bits of 2^(i/32) less i * 2^47: adding k * 2^47, k = i modulo 32, gives the bits of
/// 2^(k/32).
pub const TABLE: [u64; 32] = table();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which refuses an index that is out of bounds"
)]
const fn table() -> [u64; 32] {
    // 2^(i/32), correctly rounded.
    let mut table: [u64; 32] = [
        0x3ff0000000000000,
        0x3ff059b0d3158574,
        0x3ff0b5586cf9890f,
        0x3ff11301d0125b51,
        0x3ff172b83c7d517b,
        0x3ff1d4873168b9aa,
        0x3ff2387a6e756238,
        0x3ff29e9df51fdee1,
        0x3ff306fe0a31b715,
        0x3ff371a7373aa9cb,
        0x3ff3dea64c123422,
        0x3ff44e086061892d,
        0x3ff4bfdad5362a27,
        0x3ff5342b569d4f82,
        0x3ff5ab07dd485429,
        0x3ff6247eb03a5585,
        0x3ff6a09e667f3bcd,
        0x3ff71f75e8ec5f74,
        0x3ff7a11473eb0187,
        0x3ff82589994cce13,
        0x3ff8ace5422aa0db,
        0x3ff93737b0cdc5e5,
        0x3ff9c49182a3f090,
        0x3ffa5503b23e255d,
        0x3ffae89f995ad3ad,
        0x3ffb7f76f2fb5e47,
        0x3ffc199bdd85529c,
        0x3ffcb720dcef9069,
        0x3ffd5818dcfba487,
        0x3ffdfc97337b9b5f,
        0x3ffea4afa2a490da,
        0x3fff50765b6e4540,
    ];
    let mut i = 0;
    while i < 32 {
        table[i] -= (i as u64) << 47;
        i += 1;
    }
    table
}
