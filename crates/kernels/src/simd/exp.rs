//! Constants and tables for `expf`, and the polynomial of an approximation.
//!
//! With k the integer nearest to x * 32 / ln 2, and r the remainder, e^x = 2^(k/32) * 2^(r/32). The
//! first factor comes from a table of 32 entries, and the second is a polynomial of degree 3, all
//! in `double` and rounded once to `float`. The GNU C library has computed exactly this since 2.27,
//! with each product fused with the sum that follows it, except the product x * 32 / ln 2 on
//! aarch64. musl computes the same without fusing. The results for all negative floats were
//! compared with both on x86-64.

use super::exp_f64::BITS;

/// 32 / ln 2.
pub const SCALE: f64 = f64::from_bits(0x4047_1547_652b_82fe);
/// 1.5 * 2^52: adding it rounds a `double` to an integer and leaves that in the low bits.
pub const ROUND: f64 = 6_755_399_441_055_744.0;
/// The polynomial in r: `(C[0] r + C[1]) r^2 + (C[2] r + 1)`.
pub const C: [f64; 3] = [
    f64::from_bits(0x3fac_6af8_4b91_2394) / (32.0 * 32.0 * 32.0),
    f64::from_bits(0x3fce_bfce_50fa_c4f3) / (32.0 * 32.0),
    f64::from_bits(0x3fe6_2e42_ff0c_52d6) / 32.0,
];
/// The number below which every result rounds to 0.
pub const LOWEST: f32 = -104.0;
/// The number below which the vector form may be used. Every result from 88.73 on is infinite, and
/// from 710 on the doubles overflow.
pub const HIGHEST: f32 = 128.0;

/// 1.5 * 2^23: adding it leaves the integer nearest to a `float` in the low bits.
pub const ROUND_F32: f32 = 12_582_912.0;
/// The coefficients of the minimax polynomial for e^r with |r| <= ln 2 / 2, from the constant to
/// that of r^5, rounded to `float`. The polynomial is within 1.9e-7 of e^r.
pub const POLYNOMIAL: [f32; 6] = [
    1.0,
    0.999_999_7,
    0.499_988_9,
    0.166_675_76,
    0.041_915_63,
    0.008_297_619,
];

/// Returns 2^(k/32), where k is the integer in the low bits of the double `n`.
#[inline(always)]
// In bounds: modulo the length of the table.
pub fn power_of_32nds(n: f64) -> f64 {
    static ENTRIES: [u64; 32] = TABLE;
    let n = n.to_bits();
    f64::from_bits(ENTRIES[n as usize % ENTRIES.len()].wrapping_add(n << 47))
}

/// The bits of 2^(i/32) minus i * 2^47: adding k * 2^47, where k modulo 32 is i, gives the bits of
/// 2^(k/32).
pub const TABLE: [u64; 32] = table();

// In bounds: evaluated by the compiler, which refuses an index that is out of bounds.
const fn table() -> [u64; 32] {
    // Every fourth entry of the table for doubles, since 2^(4i/128) is 2^(i/32).
    let mut table = [0; 32];
    let mut i = 0;
    while i < 32 {
        table[i] = BITS[4 * i][1];
        i += 1;
    }
    table
}
