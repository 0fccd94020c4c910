//! `logf` by a table.
//!
//! With x = 2^k z, z between 0.7 and 1.4, and c about 1 / z from a table of 16 by the highest bits
//! of z: ln x = k ln 2 - ln c + ln(1 + r), r = z c - 1, the last a polynomial of degree 4, all in
//! `double`, rounded once to `float`. That is what the GNU C library computes since 2.27; the
//! results for all positive normal floats were compared, and are the same with and without fused
//! multiplication.

/// What the bits of a float are counted from, so that z begins at 0.7.
pub const OFFSET: u32 = 0x3f33_0000;
/// ln 2.
pub const LN_2: f64 = std::f64::consts::LN_2;
/// The polynomial in r: `(A[0] r^2 + (A[1] r + A[2])) r^2 + r`.
pub const A: [f64; 3] = [
    f64::from_bits(0xbfd0_0ea3_48b8_8334),
    f64::from_bits(0x3fd5_575b_0be0_0b6a),
    f64::from_bits(0xbfdf_fffe_f20a_4123),
];

/// x as 2^k * z, with the entry of the table for z.
#[derive(Clone, Copy)]
pub struct LnParts<D> {
    /// Between 0.7 and 1.4.
    pub z: [D; 2],
    /// About 1 / z.
    pub inverse: [D; 2],
    /// -ln of that.
    pub ln: [D; 2],
    /// The exponent.
    pub k: [D; 2],
}

/// The exponent k of a positive normal float, z, and the index of its entry.
#[inline(always)]
pub fn reduce(x: f32) -> (i32, f32, usize) {
    let from_offset = x.to_bits().wrapping_sub(OFFSET);
    let z = f32::from_bits(x.to_bits().wrapping_sub(from_offset & 0xFF80_0000));
    let entry = (from_offset >> 19) as usize % INVERSES.len();
    (from_offset as i32 >> 23, z, entry)
}

/// c for each sixteenth.
pub static INVERSES: [f64; 16] = from_bits([
    0x3ff6_61ec_79f8_f3be,
    0x3ff5_71ed_4aaf_883d,
    0x3ff4_9539_f0f0_10b0,
    0x3ff3_c995_b0b8_0385,
    0x3ff3_0d19_0c88_64a5,
    0x3ff2_5e22_7b0b_8ea0,
    0x3ff1_bb4a_4a1a_343f,
    0x3ff1_2358_f08a_e5ba,
    0x3ff0_953f_4199_00a7,
    0x3ff0_0000_0000_0000,
    0x3fee_608c_fd9a_47ac,
    0x3fec_a4b3_1f02_6aa0,
    0x3feb_2036_576a_fce6,
    0x3fe9_c2d1_63a1_aa2d,
    0x3fe8_86e6_0378_41ed,
    0x3fe7_67dc_f553_4862,
]);

/// -ln c.
pub static LOGARITHMS: [f64; 16] = from_bits([
    0xbfd5_7bf7_808c_aade,
    0xbfd2_bef0_a7c0_6ddb,
    0xbfd0_1eae_7f51_3a67,
    0xbfcb_31d8_a682_24e9,
    0xbfc6_574f_0ac0_7758,
    0xbfc1_aa2b_c79c_8100,
    0xbfba_4e76_ce8c_0e5e,
    0xbfb1_973c_5a61_1ccc,
    0xbfa2_52f4_38e1_0c1e,
    0x0000_0000_0000_0000,
    0x3faa_a5aa_5df2_5984,
    0x3fbc_5e53_aa36_2eb4,
    0x3fc5_26e5_7720_db08,
    0x3fcb_c286_0d22_4770,
    0x3fd1_058b_c8a0_7ee1,
    0x3fd4_0430_57b6_ee09,
]);

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which refuses an index that is out of bounds"
)]
pub(super) const fn from_bits<const N: usize>(bits: [u64; N]) -> [f64; N] {
    let mut doubles = [0.0; N];
    let mut i = 0;
    while i < N {
        doubles[i] = f64::from_bits(bits[i]);
        i += 1;
    }
    doubles
}
