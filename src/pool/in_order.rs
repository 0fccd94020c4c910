//! The deferred sort of all tokens in descending order.
//!
//! Some samplers sort all candidates, or those that they keep, and the samplers after them often
//! need only one token. So the pool only records the part of the order that is left ([`Part`]) and
//! the later operations on it. The array is made when it is read.

use std::ops::{Deref, DerefMut};

use super::tokens::Tokens;
use super::{Buffers, Pool, State};
use crate::candidates::Candidates;
use crate::kernels::{self, divide_p_double};
use crate::token::{Token, TokenData};

/// The type of the sum by which exponentials are divided when a draw gives all candidates their
/// softmax probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The sum is computed in `double`.
    Double,
    /// The sum is computed in `float`, in the order of the candidates.
    Float,
}

/// The part that is left of all tokens in descending order.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// All tokens except the first ones; the field is the number of those. The exponentials of the
    /// softmax are summed in descending order of the logits.
    Behind(usize),
    /// The first tokens.
    First(First),
}

/// The first tokens of the vocabulary in descending order.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// The number of tokens.
    pub n: usize,
    /// The logit of the last of these tokens.
    pub last: f32,
    /// The sum of the exponentials of all tokens. Exponentials divided by it are probabilities.
    pub sum: f32,
    /// The number of largest tokens that the host sorts to find the first `n`.
    pub sorted: usize,
}

/// The deferred operations on all tokens of a vocabulary, beginning with their softmax
/// probabilities and a sort.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The part that is left.
    pub part: Part,
    /// The largest logit that is left, before the division.
    pub first: f32,
    /// The number by which the logits were divided.
    pub divisor: f32,
    /// True if the probabilities were computed again after the division, in `double`.
    pub(super) weighted: bool,
}

impl Order {
    /// Returns the number of tokens that are left of `n_vocab`.
    pub(super) fn len(&self, n_vocab: usize) -> usize {
        match self.part {
            Part::Behind(dropped) => n_vocab - dropped,
            Part::First(first) => first.n,
        }
    }
}

/// True if dividing logits by `by` keeps their order and leaves the largest one, `max`, finite.
pub fn division_keeps_order(max: f32, by: f32) -> bool {
    by > 0.0 && by.is_finite() && (max / by).is_finite()
}

/// Tokens in descending order. None of them is chosen, and their array has not been made. A method
/// that changes the form takes it by value.
#[derive(Debug)]
pub struct InOrder<'p, 'a> {
    pool: &'p mut Pool<'a>,
    /// The operations that are deferred.
    pub order: Order,
}

impl<'a> Deref for InOrder<'_, 'a> {
    type Target = Tokens<'a>;

    fn deref(&self) -> &Tokens<'a> {
        &self.pool.tokens
    }
}

impl<'a> DerefMut for InOrder<'_, 'a> {
    fn deref_mut(&mut self) -> &mut Tokens<'a> {
        &mut self.pool.tokens
    }
}

impl<'p, 'a> InOrder<'p, 'a> {
    /// Returns this form of a pool with the given order.
    pub(super) fn of(pool: &'p mut Pool<'a>, order: Order) -> Self {
        Self { pool, order }
    }

    /// Returns the number of tokens that are left.
    #[allow(clippy::len_without_is_empty)] // Never empty.
    pub fn len(&self) -> usize {
        self.order.len(self.n_vocab())
    }

    /// Keeps only `n` of the candidates that [`keep_first`](super::Whole::keep_first) has kept, the
    /// largest ones. Their logits must not have been divided, and `last` is the smallest of the
    /// kept logits.
    pub fn keep_fewer(self, n: usize, last: f32) {
        if let State::InOrder(order, _) = &mut self.pool.state
            && let Part::First(first) = &mut order.part
        {
            (first.n, first.last) = (n, last);
        }
    }

    /// Returns the logits, before the division, that [`keep_first`](super::Whole::keep_first)
    /// received.
    pub fn first_logits(&self) -> &[f32] {
        &self.buffers.first
    }

    /// Defers a division of the logits by `by`. If `weighted` is true, the probabilities are then
    /// computed again, in `double`. Returns false, and changes nothing, if the division would not
    /// [keep the order](division_keeps_order) or is not the first one.
    pub fn divide(self, by: f32, weighted: bool) -> bool {
        let Order { first, divisor, .. } = self.order;
        if !division_keeps_order(first, by) || divisor != 1.0 || self.order.weighted {
            return false;
        }
        let order = Order {
            divisor: by,
            weighted,
            ..self.order
        };
        self.pool.state = State::InOrder(order, None);
        true
    }

    /// Chooses one of the tokens that are left. Each gets its softmax probability when the array is
    /// made.
    pub fn choose(self, token: Token) {
        self.pool.state = State::InOrder(self.order, Some(token));
    }
}

impl Pool<'_> {
    /// Makes the array of the tokens that are left, by performing the deferred operations.
    pub(super) fn settle_order(&mut self, order: Order, chosen: Option<Token>) {
        match order.part {
            Part::First(first) => self.tokens.write_first(first),
            Part::Behind(_) => self.tokens.fill(),
        }
        let buffers = &mut *self.tokens.buffers;
        let sorted = matches!(order.part, Part::First(_));
        let mut candidates = Candidates::new(&mut buffers.array, sorted);
        if let Part::Behind(dropped) = order.part {
            candidates.sort_with_softmax(&mut buffers.host_order, &mut buffers.work);
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
        if let Some(chosen) = chosen {
            let sum = buffers.softmax.exponentiate(data, sorted);
            divide_p_double(data, sum);
            self.selected = data.iter().position(|c: &TokenData| c.id == chosen);
        }
        let len = data.len();
        self.set_kept(sorted);
        self.set_array(dropped, len, sorted);
    }
}

impl Tokens<'_> {
    /// Writes the first tokens into the array in the host's order, with their probabilities.
    fn write_first(&mut self, first: First) {
        self.make_contiguous();
        let Buffers {
            changes,
            array,
            host_order,
            work,
            ..
        } = &mut *self.buffers;
        let logits = self.given.contiguous(changes);
        let (ids, logits) = host_order.rank_first(logits, first.n, first.sorted, first.last);
        work.exponentiate_sorted(logits);
        array.clear();
        array.resize(ids.len(), TokenData::default());
        kernels::write_divided(array, ids, logits, work.values(), first.sum);
    }
}
