//! The sizes that several kernels and algorithms share.

/// The number of elements that a sequential sum adds at once if rounding allows. The running sum is
/// kept at the end of each such block.
pub const SUM_BLOCK: usize = 512;

/// The number of adjacent elements in a group. The maximum of each group is kept for a later pass
/// that searches for elements above a threshold.
pub const GROUP: usize = 64;

/// The number of elements that go through several passes before the next ones are read: 4 KiB of
/// floats, which stay in the first-level cache. Streams of logits are split at multiples of this
/// number.
pub const CHUNK: usize = 1024;

/// The fraction of a `float` sum below which a term, and all smaller ones after it, leave the sum
/// unchanged: at most a quarter of a unit in the last place.
pub const NOTHING: f32 = f32::EPSILON / 8.0;

/// 2^23. From here to 2^24 the floats are exactly the integers.
pub const TWO_23: f32 = 8_388_608.0;

/// Returns the power of two at or below `x`, which is positive and normal.
#[inline(always)]
pub fn binade(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & 0x7f80_0000)
}

const _: () = assert!(SUM_BLOCK.is_multiple_of(GROUP) && CHUNK.is_multiple_of(SUM_BLOCK));
