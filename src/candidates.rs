//! A safe view of llama.h's `llama_token_data_array`. Samplers access the array only through it.
//!
//! An array can be reordered, rewritten and shortened in place, but never lengthened: its memory
//! belongs to the host.

use crate::algorithms::Workspace;
use crate::algorithms::host_order::{HEAP, HostOrder, is_replayed};
use crate::kernels;
use crate::token::{Token, TokenData};

/// The candidates of one token position.
#[derive(Debug)]
pub struct Candidates<'a> {
    data: &'a mut [TokenData],
    /// The number of candidates dropped before `data`.
    dropped: usize,
    len: usize,
    selected: Option<usize>,
    sorted: bool,
}

impl<'a> Candidates<'a> {
    /// Returns a view of `data`. `sorted` promises that the logits descend. Like the built-ins,
    /// this function does not check it.
    pub fn new(data: &'a mut [TokenData], sorted: bool) -> Self {
        let len = data.len();
        Self {
            data,
            dropped: 0,
            len,
            selected: None,
            sorted,
        }
    }

    /// Returns the view with `selected` as the choice of an earlier sampler. Only a selector or a
    /// constraint changes that choice.
    pub fn with_selected(mut self, selected: Option<usize>) -> Self {
        self.selected = selected;
        self
    }

    /// Returns the number of candidates left.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no candidate is left.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if the logits are known to descend.
    pub fn is_sorted(&self) -> bool {
        self.sorted
    }

    /// Sets whether the logits are known to descend.
    pub fn set_sorted(&mut self, sorted: bool) {
        self.sorted = sorted;
    }

    /// Returns the index of the chosen candidate.
    pub fn selected(&self) -> Option<usize> {
        self.selected
    }

    /// Chooses the candidate with this index; `None` chooses no candidate.
    pub fn select(&mut self, index: Option<usize>) {
        self.selected = index;
    }

    /// Returns the candidates that are left.
    // In bounds: `len` only shrinks, from the length of `data`.
    pub fn as_slice(&self) -> &[TokenData] {
        &self.data[..self.len]
    }

    /// Returns the candidates that are left, to be rewritten in place.
    // In bounds: `len` only shrinks, from the length of `data`.
    pub fn as_mut_slice(&mut self) -> &mut [TokenData] {
        &mut self.data[..self.len]
    }

    /// Keeps the first `len` candidates; has no effect if there are fewer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Drops the first `n` candidates, or all if there are fewer, without moving the others.
    // In bounds: `n` is bounded by `len`, and that by the length of `data`.
    pub fn drop_front(&mut self, n: usize) {
        let n = n.min(self.len);
        let data = std::mem::take(&mut self.data);
        self.data = &mut data[n..];
        self.dropped += n;
        self.len -= n;
    }

    /// Returns the number of candidates dropped from the front: the offset of the array from its
    /// original start.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// Replaces the candidates with `kept`.
    ///
    /// # Panics
    /// If `kept` is longer than the array.
    // In bounds: no caller passes more candidates than are left.
    pub fn replace(&mut self, kept: &[TokenData]) {
        self.data[..kept.len()].copy_from_slice(kept);
        self.len = kept.len();
    }

    /// Keeps the candidates for which `keep` returns true, in order.
    // In bounds: `kept` never overtakes `i`, which is below the length.
    pub fn retain(&mut self, mut keep: impl FnMut(&TokenData) -> bool) {
        let mut kept = 0;
        for i in 0..self.len {
            let candidate = self.data[i];
            self.data[kept] = candidate;
            kept += usize::from(keep(&candidate));
        }
        self.len = kept;
    }

    /// Returns `id` as an index if the token is at the position where a host puts it: `data[id].id
    /// == id`. O(1).
    ///
    /// If the result is `None`, the token may still be at another index.
    #[inline]
    pub fn index_in_place(&self, id: Token) -> Option<usize> {
        let index = usize::try_from(id).ok()?;
        (self.as_slice().get(index)?.id == id).then_some(index)
    }

    /// Sorts the candidates by descending logit as the host does, ties included, unless they are
    /// already sorted. `order` provides the buffers.
    pub fn sort(&mut self, order: &mut HostOrder) {
        if self.sorted {
            return;
        }
        order.sort(self.as_mut_slice());
        self.sorted = true;
    }

    /// Sorts the candidates, unless they are sorted, and writes their probabilities like
    /// [`softmax`](Self::softmax). `order` and `work` provide the buffers.
    ///
    /// Doing both at once writes each candidate only once. Afterwards the contents of `work` are
    /// undefined.
    pub fn sort_with_softmax(&mut self, order: &mut HostOrder, work: &mut Workspace) {
        if !self.sorted && self.len > HEAP && is_replayed(self.as_slice()) {
            order.replay(self.as_mut_slice());
            self.sorted = true;
        }
        if self.sorted || !order.rank_plain(self.as_slice()) {
            self.sort(order);
            return self.softmax(work);
        }
        let ranking = order.ranking();
        let (ids, logits) = (ranking.indices(), ranking.sorted());
        let sum = work.exponentiate_sorted(logits);
        kernels::write_divided(self.as_mut_slice(), ids, logits, work.values(), sum);
        self.sorted = true;
    }

    /// Writes the probabilities of all candidates, computed as the built-ins do, with a `float` sum
    /// in array order. Afterwards `work` contains the probabilities as well.
    pub fn softmax(&mut self, work: &mut Workspace) {
        work.softmax(self.as_slice(), self.sorted);
        kernels::set_p(self.as_mut_slice(), work.values());
    }

    /// Returns the largest logit as the built-ins find it: the first candidate's if the array is
    /// sorted. Minus infinity for an empty array.
    pub fn max_logit(&self) -> f32 {
        kernels::max_logit(self.as_slice(), self.sorted)
    }

    /// Returns the index of the largest logit, the first one if several are equal; `None` for an
    /// empty array.
    pub fn argmax(&self) -> Option<usize> {
        kernels::argmax(self.as_slice())
    }
}

#[cfg(test)]
mod tests;
