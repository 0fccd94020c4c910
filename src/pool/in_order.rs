//! A deferred sort of all tokens in descending order, as long as the order is not read.
//!
//! Some samplers sort everything, and what comes behind them often asks for one token alone. So the
//! pool notes that it is sorted, and what was done to all of it since then; the array is made of
//! that when it is read.
//!
//! So it is with what locally typical sampling keeps, of which some candidates are equally near to
//! the entropy: which of them comes first takes both of the host's sorts.

use super::Pool;
use crate::candidates::{Candidates, Cut};
use crate::kernels::{self, divide_p_double};
use crate::token::{Token, TokenData};

/// The type of the sum in the softmax probabilities that a draw leaves to all candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// A sum in `double`, as in dist.
    Double,
    /// A sum in `float`, as in adaptive-p.
    Float,
}

/// The deferred operations on all tokens of a vocabulary, beginning with their softmax
/// probabilities and a sort of all.
#[derive(Clone, Copy, Debug)]
pub struct InOrder {
    /// The cut of locally typical sampling, and how many of the candidates [kept
    /// loosely](Pool::keep_loosely) are there for sure. Without it they descend.
    pub typical: Option<(Cut, usize)>,
    /// The number of candidates dropped: the first, where they descend. What was kept loosely may
    /// lose more.
    pub dropped: usize,
    /// The largest logit that is left, before the division, or a larger one.
    pub first: f32,
    /// The number that the logits were divided by.
    pub divisor: f32,
    /// True if the probabilities were computed again after that, in `double`.
    pub weighted: bool,
    /// The token chosen after all this.
    pub chosen: Option<Token>,
}

/// True if logits, of which `max` is the largest, stay in order when they are divided by `by`, and
/// the largest stays finite.
pub fn division_keeps_order(max: f32, by: f32) -> bool {
    by > 0.0 && by.is_finite() && (max / by).is_finite()
}

/// Methods of a pool that [is whole](Pool::is_whole), until one of these has been called, or that
/// [is in order](Pool::order).
impl Pool<'_> {
    /// Sorts all candidates, gives them their softmax probabilities and drops the first `dropped`,
    /// as soon as the array is read. `first` is the logit of the next one. Nothing has been chosen:
    /// of a choice only the place would be left.
    pub fn put_in_order(&mut self, dropped: usize, first: f32) {
        let n = self.len();
        // Whether somebody looks or not, a vocabulary of this size has warmed up.
        self.buffers.host_order.warm_up(n);
        self.buffers.work.warm_up(n);
        self.buffers.softmax.warm_up();
        self.order = Some(InOrder {
            typical: None,
            dropped,
            first,
            divisor: 1.0,
            weighted: false,
            chosen: None,
        });
    }

    /// Keeps what locally typical sampling keeps by this cut. Some are equally near and come in the
    /// order of the host as soon as the array is read: of these the ids here are the complements,
    /// below 0, which no token's is. Whether all are kept behind the first `sure`, two or more,
    /// that order decides, too; none of them is larger than all the others. Nothing has been
    /// chosen.
    pub fn keep_loosely(&mut self, kept: &[TokenData], sure: usize, cut: Cut) {
        let (n, max) = (self.len(), self.max());
        self.put_in_order(n - kept.len(), max);
        if let Some(order) = &mut self.order {
            order.typical = Some((cut, sure));
        }
        self.buffers.by_distance.reserve(n);
        self.buffers.array.clear();
        self.buffers.array.extend_from_slice(kept);
    }

    /// Returns the candidates [kept loosely](Self::keep_loosely), divided where that was asked for.
    pub fn loose(&mut self) -> &mut [TokenData] {
        &mut self.buffers.array
    }

    /// True if the array of the candidates kept loosely has been read, here or in a pool before
    /// with the same buffers, since the last call.
    pub fn was_settled(&mut self) -> bool {
        std::mem::take(&mut self.buffers.settled)
    }

    /// Returns the deferred operations, if the candidates are in order, their array has not been
    /// read, and nothing was chosen among them.
    pub fn order(&self) -> Option<InOrder> {
        self.order.filter(|order| order.chosen.is_none())
    }

    /// Divides the logits in order by `by`, if that can wait: it [keeps their
    /// order](division_keeps_order), and they have not been divided. `weighted`: then computes the
    /// probabilities again, in `double`, of all that descend. Says whether it did.
    pub fn divide_in_order(&mut self, by: f32, weighted: bool) -> bool {
        let Some(order) = self.order.as_mut().filter(|order| order.chosen.is_none()) else {
            return false;
        };
        let can_wait = division_keeps_order(order.first, by);
        if !can_wait || order.divisor != 1.0 || order.weighted {
            return false;
        }
        order.divisor = by;
        order.weighted = weighted;
        if order.typical.is_some() {
            kernels::divide_logits(&mut self.buffers.array, by);
        }
        true
    }

    /// Chooses a token that is left in order, and gives each its softmax probability, as soon as
    /// the array is read.
    pub fn choose_in_order(&mut self, token: Token) {
        if let Some(order) = &mut self.order {
            order.chosen = Some(token);
            self.weights = Some(Weights::Double);
        }
    }

    /// Does to the array, which has all tokens, what became of them.
    pub(super) fn settle_order(&mut self, order: InOrder) {
        let buffers = &mut *self.buffers;
        let mut candidates = Candidates::new(&mut buffers.array, false);
        let (host_order, work) = (&mut buffers.host_order, &mut buffers.work);
        if let Some((cut, _)) = order.typical {
            buffers.settled = true;
            let by_distance = &mut buffers.by_distance;
            by_distance.keep(&mut candidates, (host_order, work), cut);
        } else {
            candidates.sort_with_softmax(host_order, work);
            candidates.drop_front(order.dropped);
        }
        let (dropped, sorted) = (candidates.dropped(), candidates.is_sorted());
        let data = candidates.as_mut_slice();
        if order.divisor != 1.0 {
            kernels::divide_logits(data, order.divisor);
        }
        if order.weighted {
            buffers.work.softmax_double(data);
        }
        if let Some(chosen) = order.chosen {
            let sum = buffers.softmax.exponentiate(data, sorted);
            divide_p_double(data, sum);
            self.selected = data.iter().position(|c: &TokenData| c.id == chosen);
        }
        let len = data.len();
        self.set_kept(sorted);
        self.set_array(dropped, len, sorted);
    }
}
