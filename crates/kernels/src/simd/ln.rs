//! Constants and tables for `logf`.
//!
//! Let x = 2^k z, with z between 0.7 and 1.4, and let c be approximately 1 / z, from a table of 16
//! entries that is indexed by the highest bits of z. Then ln x = k ln 2 - ln c + ln(1 + r) with r =
//! z c - 1. The last term is a polynomial of degree 4. All is computed in `double`, and rounded
//! once to `float`. The GNU C library has computed it in this way since 2.27. The results for all
//! positive normal floats were compared, and are the same with and without fused multiplication.

/// The bits of the float at which the range of z begins, about 0.7.
pub const OFFSET: u32 = 0x3f33_0000;
/// ln 2.
pub const LN_2: f64 = std::f64::consts::LN_2;
/// The polynomial in r: `(A[0] r^2 + (A[1] r + A[2])) r^2 + r`.
pub const A: [f64; 3] = [
    f64::from_bits(0xbfd0_0ea3_48b8_8334),
    f64::from_bits(0x3fd5_575b_0be0_0b6a),
    f64::from_bits(0xbfdf_fffe_f20a_4123),
];

/// The parts of x = 2^k * z, with the entry of the table for z.
#[derive(Clone, Copy)]
pub struct LnParts<D> {
    /// z, between 0.7 and 1.4.
    pub z: [D; 2],
    /// c, about 1 / z.
    pub inverse: [D; 2],
    /// -ln c.
    pub ln: [D; 2],
    /// The exponent k.
    pub k: [D; 2],
}

/// Returns k and z of a positive normal float, and the index of the table's entry for z.
#[inline(always)]
pub fn reduce(x: f32) -> (i32, f32, usize) {
    let from_offset = x.to_bits().wrapping_sub(OFFSET);
    let z = f32::from_bits(x.to_bits().wrapping_sub(from_offset & 0xFF80_0000));
    let entry = (from_offset >> 19) as usize % INVERSES.len();
    (from_offset as i32 >> 23, z, entry)
}

/// c for each entry of the table.
pub static INVERSES: [f64; 16] = from_bits([
    0x3ff661ec79f8f3be,
    0x3ff571ed4aaf883d,
    0x3ff49539f0f010b0,
    0x3ff3c995b0b80385,
    0x3ff30d190c8864a5,
    0x3ff25e227b0b8ea0,
    0x3ff1bb4a4a1a343f,
    0x3ff12358f08ae5ba,
    0x3ff0953f419900a7,
    0x3ff0000000000000,
    0x3fee608cfd9a47ac,
    0x3feca4b31f026aa0,
    0x3feb2036576afce6,
    0x3fe9c2d163a1aa2d,
    0x3fe886e6037841ed,
    0x3fe767dcf5534862,
]);

/// -ln c for each entry of the table.
pub static LOGARITHMS: [f64; 16] = from_bits([
    0xbfd57bf7808caade,
    0xbfd2bef0a7c06ddb,
    0xbfd01eae7f513a67,
    0xbfcb31d8a68224e9,
    0xbfc6574f0ac07758,
    0xbfc1aa2bc79c8100,
    0xbfba4e76ce8c0e5e,
    0xbfb1973c5a611ccc,
    0xbfa252f438e10c1e,
    0x0000000000000000,
    0x3faaa5aa5df25984,
    0x3fbc5e53aa362eb4,
    0x3fc526e57720db08,
    0x3fcbc2860d224770,
    0x3fd1058bc8a07ee1,
    0x3fd4043057b6ee09,
]);

// In bounds: evaluated by the compiler, which refuses an index that is out of bounds.
pub(super) const fn from_bits<const N: usize>(bits: [u64; N]) -> [f64; N] {
    let mut doubles = [0.0; N];
    let mut i = 0;
    while i < N {
        doubles[i] = f64::from_bits(bits[i]);
        i += 1;
    }
    doubles
}
