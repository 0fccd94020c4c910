//! A deferred sort of all tokens in descending order, as long as the order is not read.
//!
//! Some samplers sort everything, or as much as they keep, and what comes behind them often asks
//! for one token alone. So the pool notes which part of the order is left ([`Part`]), and what was
//! done to it since then; the array is made of that when it is read.

use super::{Buffers, Pool, in_order_of_ids};
use crate::algorithms::scratch::Room;
use crate::candidates::Candidates;
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

/// The part of all tokens that is left in order.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// In descending order, with softmax probabilities that are summed in this order: all but the
    /// first so many.
    Behind(usize),
    /// In descending order: the first.
    First(First),
}

/// The first of all tokens in descending order.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// The number of tokens.
    pub n: usize,
    /// The logit of the last of them.
    pub last: f32,
    /// The sum of the exponentials of all tokens, by which exponentials are divided to give
    /// probabilities.
    pub sum: f32,
    /// The number of largest tokens that the host sorts to find them.
    pub sorted: usize,
}

/// The deferred operations on all tokens of a vocabulary, beginning with their softmax
/// probabilities and a sort.
#[derive(Clone, Copy, Debug)]
pub struct InOrder {
    /// The part that is left.
    pub part: Part,
    /// The number of tokens left.
    pub len: usize,
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
    /// Defers three operations until the array is read: sorting all candidates, computing their
    /// softmax probabilities, and dropping the first `dropped`. `first` is the logit of the first
    /// candidate that stays. No candidate may be selected yet: a selection is an index, which the
    /// sort would invalidate.
    pub fn put_in_order(&mut self, dropped: usize, first: f32) {
        let len = self.len() - dropped;
        self.defer(Part::Behind(dropped), len, first);
    }

    /// Keeps the first candidates in descending order, with their probabilities, and sorts these as
    /// soon as the array is read. `max` is the largest logit, which is finite; no logit is NaN.
    /// `logits` are those of these candidates, and perhaps of some more, in order; they are
    /// exchanged for others. Nothing has been chosen.
    pub fn keep_first(&mut self, first: First, max: f32, logits: &mut Vec<f32>) {
        std::mem::swap(&mut self.buffers.first, logits);
        self.defer(Part::First(first), first.n, max);
    }

    /// Keeps fewer of the [first](Self::keep_first) candidates, which have not been divided: `n`,
    /// of which the last has the logit `last`.
    pub fn keep_fewer(&mut self, n: usize, last: f32) {
        let Some(order) = &mut self.order else {
            return;
        };
        if let Part::First(first) = &mut order.part {
            (first.n, first.last, order.len) = (n, last, n);
        }
    }

    /// Returns the logits that came with the [first](Self::keep_first) candidates, before the
    /// division.
    pub fn first_logits(&self) -> &[f32] {
        &self.buffers.first
    }

    fn defer(&mut self, part: Part, len: usize, first: f32) {
        let n = self.logits.len();
        // Whether somebody looks or not, a vocabulary of this size has warmed up.
        self.buffers.host_order.warm_up(n);
        self.buffers.work.warm_up(n);
        self.buffers.softmax.warm_up(n);
        self.order = Some(InOrder {
            part,
            len,
            first,
            divisor: 1.0,
            weighted: false,
            chosen: None,
        });
    }

    /// Returns the deferred operations, if the candidates are in order, their array has not been
    /// read, and nothing was chosen among them.
    pub fn order(&self) -> Option<InOrder> {
        self.order.filter(|order| order.chosen.is_none())
    }

    /// Divides the logits in order by `by`, if that can wait: it [keeps their
    /// order](division_keeps_order), and they have not been divided. `weighted`: then computes the
    /// probabilities again, in `double`. Says whether it did.
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

    /// Makes the array of the tokens that are left, as what was deferred leaves them.
    pub(super) fn settle_order(&mut self, order: InOrder) {
        match order.part {
            Part::First(first) => self.write_first(first),
            Part::Behind(_) => self.fill(),
        }
        let buffers = &mut *self.buffers;
        let sorted = matches!(order.part, Part::First(_));
        let mut candidates = Candidates::new(&mut buffers.array, sorted);
        let (host_order, work) = (&mut buffers.host_order, &mut buffers.work);
        if let Part::Behind(dropped) = order.part {
            candidates.sort_with_softmax(host_order, work);
            candidates.drop_front(dropped);
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

    /// Writes the first tokens in the host's order, with their probabilities.
    fn write_first(&mut self, first: First) {
        self.make_contiguous();
        let Buffers {
            column,
            array,
            host_order,
            work,
            ..
        } = &mut *self.buffers;
        let logits = in_order_of_ids(self.form, self.logits, column);
        let (ids, logits) = host_order.rank_first(logits, first.n, first.sorted, first.last);
        work.exponentiate_sorted(logits);
        array.clear();
        array.resize(ids.len(), TokenData::default());
        kernels::write_divided(array, ids, logits, work.values(), first.sum);
    }
}
