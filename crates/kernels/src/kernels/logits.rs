//! Raw logits of one position, in any of three precisions. They are widened when they are read, and
//! never copied as a whole.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use super::layout::CHUNK;
use crate::simd::{MAX_LANES, Vector, dispatched, prefetch};
use crate::token::comparable;

/// Raw logits of one position, indexed by token, in any of three precisions.
#[derive(Clone, Copy, Debug)]
pub enum Logits<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// IEEE half precision.
    F16(&'a [f16]),
    /// bfloat16: the upper half of a `f32`.
    Bf16(&'a [bf16]),
}

impl<'a> From<&'a [f32]> for Logits<'a> {
    fn from(logits: &'a [f32]) -> Self {
        Logits::F32(logits)
    }
}

impl<'a, const N: usize> From<&'a [f32; N]> for Logits<'a> {
    fn from(logits: &'a [f32; N]) -> Self {
        Self::F32(logits)
    }
}

impl<'a> From<&'a Vec<f32>> for Logits<'a> {
    fn from(logits: &'a Vec<f32>) -> Self {
        Logits::F32(logits)
    }
}

impl<'a> From<&'a [f16]> for Logits<'a> {
    fn from(logits: &'a [f16]) -> Self {
        Logits::F16(logits)
    }
}

impl<'a> From<&'a [bf16]> for Logits<'a> {
    fn from(logits: &'a [bf16]) -> Self {
        Logits::Bf16(logits)
    }
}

/// Evaluates the expression `$body` on the numbers in the precision that the logits have.
macro_rules! each {
    ($logits:expr, $xs:ident => $body:expr) => {
        match $logits {
            Logits::F32($xs) => $body,
            Logits::F16($xs) => $body,
            Logits::Bf16($xs) => $body,
        }
    };
}

pub(super) use each;

impl<'a> Logits<'a> {
    /// Returns the number of logits.
    #[inline]
    pub fn len(&self) -> usize {
        each!(self, xs => xs.len())
    }

    /// Returns true if there are no logits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns one logit, widened.
    ///
    /// # Panics
    /// If there is no logit at `index`.
    // In bounds: every caller passes a token of the vocabulary.
    #[inline]
    pub fn at(&self, index: usize) -> f32 {
        each!(self, xs => xs[index].to_f32())
    }

    /// Prefetches one logit.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        each!(self, xs => prefetch(xs, index));
    }

    /// Returns the logits from `start` to before `end`.
    ///
    /// # Panics
    /// If the range exceeds the vocabulary.
    // In bounds: every caller passes a range of the vocabulary.
    #[inline]
    pub fn part(&self, start: usize, end: usize) -> Logits<'a> {
        each!(self, xs => (&xs[start..end]).into())
    }

    /// Writes the logits from `start` on, widened, into `to`.
    ///
    /// # Panics
    /// If there are not enough logits to fill `to`.
    // In bounds: every caller asks for a range of the vocabulary.
    pub fn widen(&self, start: usize, to: &mut [f32]) {
        match self.part(start, start + to.len()) {
            Logits::F32(xs) => to.copy_from_slice(xs),
            halves => widen(halves, to),
        }
    }

    /// Writes the logits from `start` on, widened, into `to`, with NaN as minus infinity.
    ///
    /// # Panics
    /// If there are not enough logits to fill `to`.
    pub fn widen_banning_nan(&self, start: usize, to: &mut [f32]) {
        widen_banning_nan(self.part(start, start + to.len()), to);
    }
}

dispatched! {
    fn widen(xs: Logits<'_>, to: &mut [f32]) => widen_on;
    fn widen_banning_nan(xs: Logits<'_>, to: &mut [f32]) => widen_banning_nan_on;
}

#[inline(always)]
fn widen_on<V: Vector>(v: V, xs: Logits<'_>, to: &mut [f32]) {
    each!(xs, xs => widen_all::<V, _, false>(v, xs, to));
}

#[inline(always)]
fn widen_banning_nan_on<V: Vector>(v: V, xs: Logits<'_>, to: &mut [f32]) {
    each!(xs, xs => widen_all::<V, _, true>(v, xs, to));
}

/// Writes as many numbers as there are into `to`, if `BANS_NAN` with NaN as minus infinity.
#[inline(always)]
fn widen_all<V: Vector, T: Load, const BANS_NAN: bool>(v: V, xs: &[T], to: &mut [f32]) {
    let lowest = v.splat(f32::NEG_INFINITY);
    let mut from = xs.chunks_exact(V::LANES);
    let mut registers = to.chunks_exact_mut(V::LANES);
    for (from, to) in (&mut from).zip(&mut registers) {
        let x = T::load(v, from);
        v.store(to, if BANS_NAN { v.max(x, lowest) } else { x });
    }
    for (x, to) in from.remainder().iter().zip(registers.into_remainder()) {
        let x = x.to_f32();
        *to = if BANS_NAN { comparable(x) } else { x };
    }
}

/// A number in one of the three precisions.
pub trait Number: Copy + 'static {
    /// Converts the number to single precision, without rounding.
    fn to_f32(self) -> f32;
}

impl Number for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
}

impl Number for f16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self.to_f32()
    }
}

impl Number for bf16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// A precision that an instruction set can load.
pub trait Load: Number {
    /// True if a number has 16 bits: the sign and then the magnitude, so that numbers from 0 on
    /// have the order of their bits.
    const IS_HALF: bool;
    /// The bits of infinity, if a number has 16 bits.
    const INFINITE: u16 = 0;
    /// Returns the first numbers of `from`, widened.
    fn load<V: Vector>(v: V, from: &[Self]) -> V::F;
    /// Returns the numbers of a chunk in single precision, either in place or in `to`.
    #[inline(always)]
    fn widened<'c, V: Vector>(v: V, chunk: &'c [Self], to: &'c mut [f32; CHUNK]) -> &'c [f32] {
        widen_into(v, chunk, to)
    }
    /// Returns the numbers if they are in single precision, otherwise an empty slice.
    #[inline(always)]
    fn singles(_from: &[Self]) -> &[f32] {
        &[]
    }
    /// Returns the bits of the numbers if they have 16 bits, otherwise an empty slice.
    #[inline(always)]
    fn bits(_from: &[Self]) -> &[u16] {
        &[]
    }
    /// Loads as many numbers of 16 bits as a register holds, given by their bits, and widens them.
    #[inline(always)]
    fn load_bits<V: Vector>(v: V, _bits: &[u16]) -> V::F {
        v.splat(0.0)
    }
}

impl Load for f32 {
    const IS_HALF: bool = false;
    #[inline(always)]
    fn widened<'c, V: Vector>(_v: V, chunk: &'c [f32], _to: &'c mut [f32; CHUNK]) -> &'c [f32] {
        chunk
    }
    #[inline(always)]
    fn singles(from: &[f32]) -> &[f32] {
        from
    }
    #[inline(always)]
    fn load<V: Vector>(v: V, from: &[f32]) -> V::F {
        v.load(from)
    }
}

impl Load for f16 {
    const IS_HALF: bool = true;
    const INFINITE: u16 = 0x7C00;
    #[inline(always)]
    fn bits(from: &[f16]) -> &[u16] {
        from.reinterpret_cast()
    }
    #[inline(always)]
    fn load_bits<V: Vector>(v: V, bits: &[u16]) -> V::F {
        v.load_f16(bits.reinterpret_cast())
    }
    #[inline(always)]
    fn load<V: Vector>(v: V, from: &[f16]) -> V::F {
        v.load_f16(from)
    }
}

impl Load for bf16 {
    const IS_HALF: bool = true;
    const INFINITE: u16 = 0x7F80;
    #[inline(always)]
    fn bits(from: &[bf16]) -> &[u16] {
        from.reinterpret_cast()
    }
    #[inline(always)]
    fn load_bits<V: Vector>(v: V, bits: &[u16]) -> V::F {
        v.load_bf16(bits.reinterpret_cast())
    }
    #[inline(always)]
    fn load<V: Vector>(v: V, from: &[bf16]) -> V::F {
        v.load_bf16(from)
    }
}

/// Returns the last numbers, too few to fill a register, widened and padded with minus infinity.
#[inline(always)]
pub fn padded<T: Load>(rest: &[T]) -> [f32; MAX_LANES] {
    let mut padded = [f32::NEG_INFINITY; MAX_LANES];
    for (to, x) in padded.iter_mut().zip(rest) {
        *to = x.to_f32();
    }
    padded
}

/// Writes the numbers of a chunk, at most [`CHUNK`], into `to` in single precision, and prefetches
/// the next chunk into the first-level cache.
#[inline(always)]
// In bounds: a chunk has at most `CHUNK` numbers.
pub fn widen_into<'c, V: Vector, T: Load>(
    v: V,
    chunk: &[T],
    to: &'c mut [f32; CHUNK],
) -> &'c [f32] {
    let to = &mut to[..chunk.len()];
    let mut from = chunk.chunks_exact(V::LANES);
    let mut registers = to.chunks_exact_mut(V::LANES);
    for (from, to) in (&mut from).zip(&mut registers) {
        v.prefetch(from.as_ptr().wrapping_add(CHUNK));
        v.store(to, T::load(v, from));
    }
    for (x, to) in from.remainder().iter().zip(registers.into_remainder()) {
        *to = x.to_f32();
    }
    to
}
