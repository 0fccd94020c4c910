//! The buffers of pools.

use std::collections::TryReserveError;

use super::{Left, Pool, Source, State};
use crate::algorithms::host_order::HostOrder;
use crate::algorithms::scratch::{BESIDE, Room};
use crate::algorithms::{Softmax, Workspace};
use crate::kernels::layout::GROUP;
use crate::kernels::logits::Logits;
use crate::memory;
use crate::token::TokenData;

/// A token whose logit differs from the caller's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edit {
    pub(super) token: u32,
    pub(super) logit: f32,
}

/// The maximum number of edits that are kept separately from the logits. If there are more, all
/// logits are copied and changed in the copy.
pub(super) const MOST_EDITS: usize = 512;

/// The changes that a pool makes to the logits of a vocabulary.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The edits in ascending order of token, at most one for each token.
    pub(super) edits: Vec<Edit>,
    /// The bitmap of the tokens that a masked pool allows, with one bit for each token of the
    /// vocabulary.
    pub(super) allowed: Vec<u64>,
    pub(super) column: Vec<f32>,
}

/// The buffers of pools, reused from one pool to the next. They grow and never shrink.
#[derive(Debug, Default)]
pub struct Buffers {
    pub(super) changes: Changes,
    pub(super) maxima: Vec<f32>,
    pub(super) array: Vec<TokenData>,
    pub(super) collected: Vec<TokenData>,
    pub(super) picked: Vec<f32>,
    /// See `InOrder::first_logits`.
    pub(super) first: Vec<f32>,
    pub(super) softmax: Softmax,
    /// Buffers for the sort that makes an array of a pool in order.
    pub(super) host_order: HostOrder,
    pub(super) work: Workspace,
}

impl Buffers {
    /// Reserves the most memory that the candidates of a vocabulary of `n` tokens can need, however
    /// many are kept. Pages that are never written to cost no memory.
    pub fn try_reserve(&mut self, n: usize) -> Result<(), TryReserveError> {
        reserve(&mut self.changes.edits, MOST_EDITS)?;
        reserve(&mut self.changes.allowed, n.div_ceil(64))?;
        reserve(&mut self.changes.column, n)?;
        reserve(&mut self.maxima, n.div_ceil(GROUP))?;
        // Two buffers of equal size, since they are swapped.
        reserve(&mut self.array, n + 2 * GROUP)?;
        reserve(&mut self.collected, n + 2 * GROUP)?;
        reserve(&mut self.picked, n)?;
        // This buffer is as large as the sampler's buffer with which it is swapped.
        reserve(&mut self.first, n + BESIDE)
    }

    /// Reserves memory like [`try_reserve`](Self::try_reserve), and also the memory for making an
    /// array of candidates in order.
    pub fn warm_up(&mut self, n: usize) -> Result<(), TryReserveError> {
        self.warm_up_to_sort(n);
        self.try_reserve(n)
    }

    /// Reserves the memory for sorting `n` candidates.
    pub(super) fn warm_up_to_sort(&mut self, n: usize) {
        self.host_order.warm_up(n);
        self.work.warm_up(n);
        self.softmax.warm_up(n);
    }

    /// Returns the size of the candidates' buffers in bytes.
    pub fn bytes(&self) -> usize {
        self.changes.edits.capacity() * size_of::<Edit>()
            + self.changes.allowed.capacity() * size_of::<u64>()
            + (self.changes.column.capacity()
                + self.maxima.capacity()
                + self.picked.capacity()
                + self.first.capacity())
                * size_of::<f32>()
            + (self.array.capacity() + self.collected.capacity()) * size_of::<TokenData>()
    }

    /// Returns a copy of the data of a pool that was [left alone](Pool::leave_alone).
    pub fn of_left(&self, left: Option<Left>) -> Self {
        let mut copy = Self::default();
        match left.map(|left| (left.state, left.source)) {
            Some((State::Array { .. }, _)) => copy.array.clone_from(&self.array),
            Some((_, Source::Column)) => copy.changes.column.clone_from(&self.changes.column),
            Some((_, Source::Masked)) => {
                copy.changes.edits.clone_from(&self.changes.edits);
                copy.changes.allowed.clone_from(&self.changes.allowed);
            }
            Some((_, Source::Given)) | None => {}
        }
        copy
    }

    /// Returns the candidates of a pool that was [left alone](Pool::leave_alone), as an array.
    pub fn settle(&mut self, left: &mut Left) -> &[TokenData] {
        if !matches!(left.state, State::Array { .. }) {
            // The memory is reserved first: if there is too little, the state must stay intact.
            reserve(&mut self.array, left.n).unwrap_or_else(memory::exhausted);
            let mut column = std::mem::take(&mut self.changes.column);
            // In a pool whose tokens are all masked, the values of the logits do not matter.
            column.resize(left.n, 0.0);
            let source = match left.source {
                Source::Column => Source::Given,
                source => source,
            };
            let whole = Left { source, ..*left };
            if let Some(mut pool) = Pool::resume(Logits::F32(&column), self, whole) {
                pool.array();
                *left = pool.leave();
            }
            self.changes.column = column;
        }
        self.array_of(*left)
    }

    /// Returns the candidates of a pool that was left as an array; an empty slice for any other
    /// form.
    pub fn array_of(&self, left: Left) -> &[TokenData] {
        match left.state {
            State::Array { start, len, .. } => {
                self.array.get(start..start + len).unwrap_or_default()
            }
            State::Whole | State::Weighted(_) | State::InOrder(..) => &[],
        }
    }
}

/// Grows the capacity of `buffer` to at least `n` elements.
pub(super) fn reserve<T>(buffer: &mut Vec<T>, n: usize) -> Result<(), TryReserveError> {
    memory::reserve_exact(buffer, n.saturating_sub(buffer.len()))
}
