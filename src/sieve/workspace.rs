//! The buffers of a sieve. They grow by powers of two, never shrink, and are used again for every token.

use crate::kernels;
use crate::sieve::source::Touched;
use crate::token::TokenData;

/// Makes room for `n` elements in all; a buffer that is too small gets the next power of two.
pub(super) fn reserve<T>(buffer: &mut Vec<T>, n: usize) {
    if buffer.capacity() < n {
        buffer.reserve_exact(n.next_power_of_two() - buffer.len());
    }
}

/// Buffers; what is in them has meaning only within one call, but for `candidates`.
#[derive(Clone, Debug, Default)]
pub(super) struct Workspace {
    /// What is left of the vocabulary.
    pub candidates: Vec<TokenData>,
    /// The same in another order.
    pub spare: Vec<TokenData>,
    /// Sort keys.
    pub keys: Vec<u64>,
    /// Tokens that bias or penalties change.
    pub touched: Vec<Touched>,
    /// The largest logit of each block.
    pub maxima: Vec<f32>,
    /// A sample of logits, or of their maxima.
    pub sample: Vec<f32>,
    /// Exponentials of many candidates.
    pub exponentials: kernels::Workspace,
    /// Logits out of a host's candidate array.
    pub gathered: Vec<f32>,
}

impl Workspace {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        (self.candidates.capacity() + self.spare.capacity()) * size_of::<TokenData>()
            + self.keys.capacity() * size_of::<u64>()
            + self.touched.capacity() * size_of::<Touched>()
            + (self.gathered.capacity() + self.maxima.capacity() + self.sample.capacity())
                * size_of::<f32>()
            + self.exponentials.bytes()
    }
}
