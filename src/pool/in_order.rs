//! All tokens in descending order, as long as nobody looks at the order.
//!
//! Some samplers sort everything, and what comes behind them often asks for one token alone. So the
//! pool notes that it is sorted, and what was done to all of it since then; the array is made of
//! that where somebody does look.

use super::Pool;
use crate::candidates::Candidates;
use crate::kernels::{self, divide_p_double};
use crate::token::{Token, TokenData};

/// How the probabilities of all candidates are made that a draw has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// With a sum in `double`, as dist has it.
    Double,
    /// With one in `float`, as adaptive-p has it.
    Float,
}

/// What became of the tokens of a vocabulary, beginning with a sort of all and their softmax
/// probabilities.
#[derive(Clone, Copy, Debug)]
pub struct InOrder {
    /// How many of the first are gone.
    pub dropped: usize,
    /// The logit of the first that is left, before the division.
    pub first: f32,
    /// What the logits were divided by.
    pub divisor: f32,
    /// Whether the probabilities were computed again after that, in `double`.
    pub weighted: bool,
    /// What was chosen behind all this.
    pub chosen: Option<Token>,
}

/// Of a pool that [is whole](Pool::is_whole), until one of these has been called, or that
/// [is in order](Pool::order).
impl Pool<'_> {
    /// Sorts all candidates, gives them their softmax probabilities and drops the first `dropped`,
    /// as soon as somebody looks. `first` is the logit of the next one. Nothing has been chosen:
    /// of a choice only the place would be left.
    pub fn put_in_order(&mut self, dropped: usize, first: f32) {
        let n = self.len();
        // Whether somebody looks or not, a vocabulary of this size has warmed up.
        self.buffers.host_order.warm_up(n);
        self.buffers.work.warm_up(n);
        self.buffers.softmax.warm_up();
        self.order = Some(InOrder {
            dropped,
            first,
            divisor: 1.0,
            weighted: false,
            chosen: None,
        });
    }

    /// What became of the candidates, if they are in order, nobody has looked, and nothing was
    /// chosen among them.
    pub fn order(&self) -> Option<InOrder> {
        self.order.filter(|order| order.chosen.is_none())
    }

    /// Divides the logits in order by `by`, if that can wait: it is above 0, leaves the first
    /// finite, and they have not been divided. `weighted`: then computes the probabilities again,
    /// in `double`. Says whether it did.
    pub fn divide_in_order(&mut self, by: f32, weighted: bool) -> bool {
        let Some(order) = self.order.as_mut().filter(|order| order.chosen.is_none()) else {
            return false;
        };
        let can_wait = by > 0.0 && by.is_finite() && (order.first / by).is_finite();
        if !can_wait || order.divisor != 1.0 || order.weighted {
            return false;
        }
        order.divisor = by;
        order.weighted = weighted;
        true
    }

    /// Chooses a token that is left in order, and gives each its softmax probability, as soon as
    /// somebody looks.
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
        candidates.sort_with_softmax(&mut buffers.host_order, &mut buffers.work);
        candidates.drop_front(order.dropped);
        let data = candidates.as_mut_slice();
        if order.divisor != 1.0 {
            kernels::divide_logits(data, order.divisor);
        }
        if order.weighted {
            buffers.work.softmax_double(data);
        }
        if let Some(chosen) = order.chosen {
            let sum = buffers.softmax.exponentiate(data, true);
            divide_p_double(data, sum);
            self.selected = data.iter().position(|c: &TokenData| c.id == chosen);
        }
        let len = data.len();
        self.set_kept(true);
        self.set_array(order.dropped, len, true);
    }
}
