//! The candidates between two members of a chain that runs straight from the logits.
//!
//! A pool begins as the caller's logits, which are only read, and takes one [`Form`] after another:
//!
//! - [`Whole`]: all tokens, in the order of their ids. Samplers change the logits of a few named
//!   tokens ([`Whole::edit`]), allow only some tokens ([`Whole::mask`]), or change all logits in
//!   the pool's own copy of them, the column ([`Whole::column_mut`]).
//! - [`InOrder`]: all tokens in descending order, or only the first or last ones, not sorted yet.
//! - an array of candidates, where a sampler keeps few of them ([`Whole::keep`]) or has no quicker
//!   method ([`Pool::apply`]). The array of the whole vocabulary, with 12 bytes per token, which a
//!   host fills before each token, is made only when something needs it.
//!
//! A form has the methods that make sense for it, and a method that turns it into another form
//! takes it by value. In every form the candidates are those that the same samplers would leave of
//! the host's array, with the same ids, order, logits, probabilities and selected index.

mod buffers;
mod contenders;
mod in_order;
mod observed;
#[cfg(test)]
mod tests;
mod tokens;
mod whole;

use crate::candidates::Candidates;
use crate::kernels::divide_p_double;
use crate::kernels::logits::Logits;
use crate::token::{Token, TokenData, comparable};
pub use buffers::Buffers;
use buffers::Changes;
pub use in_order::{First, InOrder, Order, Part, Weights, division_keeps_order};
use tokens::Given;
pub use tokens::Tokens;
pub use whole::Whole;

/// The form of a pool, with its methods.
#[derive(Debug)]
pub enum Form<'p, 'a> {
    /// All tokens of the vocabulary, in the order of their ids; none is chosen.
    Whole(Whole<'p, 'a>),
    /// Tokens in descending order that are not sorted yet; none is chosen.
    InOrder(InOrder<'p, 'a>),
    /// An array, to which [`Pool::apply`] and [`Pool::array`] give access, or candidates one of
    /// which is already chosen.
    Array,
}

/// The form of the candidates.
#[derive(Clone, Copy, Debug)]
enum State {
    /// All tokens, in the order of their ids.
    Whole,
    /// All tokens, in the order of their ids, with probabilities that are not written yet.
    Weighted(Weights),
    /// All tokens after the deferred operations, and the token that was chosen after them, if there
    /// is one. Choosing also gives each token its softmax probability.
    InOrder(Order, Option<Token>),
    /// Some candidates of the array in the buffers.
    Array {
        start: usize,
        len: usize,
        sorted: bool,
    },
}

/// The storage that holds the logits of a vocabulary.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The caller's logits, with the edits.
    Given,
    /// The caller's logits, with the edits. Tokens whose bits in the buffers are not set are
    /// masked.
    Masked,
    /// The column in the buffers, with a logit for every token.
    Column,
}

/// The state in which a pool was left, from which it can be [resumed](Pool::resume).
#[derive(Clone, Copy, Debug)]
pub struct Left {
    n: usize,
    source: Source,
    state: State,
    selected: Option<usize>,
    bans_nan: bool,
}

impl Left {
    /// The index of the chosen candidate. `None` if none was chosen, or if the index is not known
    /// until the array is made.
    pub fn selected(self) -> Option<usize> {
        self.selected
    }

    /// True if the candidates are an array known to be in descending order.
    pub fn is_sorted(self) -> bool {
        matches!(self.state, State::Array { sorted: true, .. })
    }
}

/// The candidates of one token position.
#[derive(Debug)]
pub struct Pool<'a> {
    tokens: Tokens<'a>,
    state: State,
    selected: Option<usize>,
}

impl<'a> Pool<'a> {
    /// Returns a pool of all tokens of a vocabulary with these logits.
    pub fn new(logits: impl Into<Logits<'a>>, buffers: &'a mut Buffers) -> Self {
        buffers.changes.edits.clear();
        let given = Given {
            logits: logits.into(),
            source: Source::Given,
            bans_nan: false,
        };
        Self {
            tokens: Tokens::of(given, buffers),
            state: State::Whole,
            selected: None,
        }
    }

    /// Makes every NaN among the caller's logits count as minus infinity. The pool must be new.
    ///
    /// NaN is replaced when candidates or a column are made of the logits. Code that reads the
    /// logits in place treats NaN like minus infinity anyway.
    #[must_use]
    pub fn banning_nan(mut self) -> Self {
        self.tokens.given.bans_nan = true;
        self
    }

    /// Returns the pool that was [left](Self::leave), given the same logits and buffers. `None` if
    /// the number of logits has changed.
    pub fn resume(logits: Logits<'a>, buffers: &'a mut Buffers, left: Left) -> Option<Self> {
        let given = Given {
            logits,
            source: left.source,
            bans_nan: left.bans_nan,
        };
        (logits.len() == left.n).then_some(Self {
            tokens: Tokens::of(given, buffers),
            state: left.state,
            selected: left.selected,
        })
    }

    /// Returns the state from which the pool can be resumed.
    pub fn leave(self) -> Left {
        Left {
            n: self.n_vocab(),
            source: self.tokens.given.source,
            state: self.state,
            selected: self.selected,
            bans_nan: self.tokens.given.bans_nan,
        }
    }

    /// Returns the state of the pool, from which an array can be made [later](Buffers::settle)
    /// without access to the caller's logits.
    pub fn leave_alone(mut self) -> Left {
        let needs_logits = match (self.state, self.tokens.given.source) {
            (State::Array { .. }, _) | (_, Source::Column) => false,
            (_, Source::Given) => true,
            (_, Source::Masked) => self
                .tokens
                .buffers
                .changes
                .allowed
                .iter()
                .any(|&word| word != 0),
        };
        if needs_logits {
            self.tokens.make_column();
        }
        self.leave()
    }

    /// Returns the candidates in their form.
    pub fn form(&mut self) -> Form<'_, 'a> {
        match self.state {
            State::Whole if self.selected.is_none() => Form::Whole(Whole(self)),
            State::InOrder(order, None) => Form::InOrder(InOrder::of(self, order)),
            _ => Form::Array,
        }
    }

    /// Returns the pool as all tokens of the vocabulary in the order of their ids. `None` if the
    /// pool has a different form, or if a token is chosen.
    pub fn whole(&mut self) -> Option<Whole<'_, 'a>> {
        match self.form() {
            Form::Whole(whole) => Some(whole),
            Form::InOrder(_) | Form::Array => None,
        }
    }

    /// Returns the number of tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.tokens.n_vocab()
    }

    /// Returns the number of candidates that are left.
    pub fn len(&self) -> usize {
        match self.state {
            State::Whole | State::Weighted(_) => self.n_vocab(),
            State::InOrder(order, _) => order.len(self.n_vocab()),
            State::Array { len, .. } => len,
        }
    }

    /// True if no candidate is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of candidates that are left and not masked.
    pub fn unmasked(&mut self) -> usize {
        match self.state {
            State::Array { .. } => {
                let logits = self.array().0.iter().map(|c| c.logit);
                logits.filter(|&logit| logit > f32::NEG_INFINITY).count()
            }
            State::Whole | State::Weighted(_) => self.tokens.unmasked(),
            // In descending order the masked candidates come last.
            State::InOrder(order, _) => match order.part {
                Part::Behind(dropped) => self.tokens.unmasked() - dropped,
                Part::First(first) => self.tokens.unmasked().min(first.n),
            },
        }
    }

    /// Returns the index of the chosen candidate. `None` if none was chosen, or if the index is not
    /// known until the array is made.
    pub fn selected(&self) -> Option<usize> {
        self.selected
    }

    /// Chooses the candidate with this index; `None` chooses no candidate.
    pub fn select(&mut self, index: Option<usize>) {
        self.selected = index;
    }

    /// Returns the chosen token, if it is among the candidates that are left.
    pub fn token(&self) -> Option<Token> {
        Some(self.chosen()?.id)
    }

    /// True if the chosen candidate has a logit of minus infinity or NaN.
    pub fn is_banned(&self) -> bool {
        let chosen = self.chosen();
        chosen.is_some_and(|chosen| comparable(chosen.logit) == f32::NEG_INFINITY)
    }

    /// Returns the chosen candidate, without its probability, if it is among the candidates that
    /// are left.
    fn chosen(&self) -> Option<TokenData> {
        let index = self.selected.filter(|&index| index < self.len());
        let (id, divisor) = match self.state {
            State::Array { start, .. } => {
                return self.tokens.buffers.array.get(start + index?).copied();
            }
            State::InOrder(order, chosen) => (chosen?, order.divisor),
            State::Whole | State::Weighted(_) => (Token::try_from(index?).ok()?, 1.0),
        };
        let logit = self.tokens.logit_of(id) / divisor;
        Some(TokenData::new(id, logit))
    }

    /// Replaces every NaN that a sampler produced with minus infinity. The pool must already
    /// [ban](Self::banning_nan) NaN among the caller's logits.
    pub fn ban_nan(&mut self) {
        let ban = |logit: &mut f32| *logit = comparable(*logit);
        if matches!(self.state, State::Array { .. }) {
            self.array().0.iter_mut().for_each(|c| ban(&mut c.logit));
            return;
        }
        let Changes { edits, column, .. } = &mut self.tokens.buffers.changes;
        edits.iter_mut().for_each(|edit| ban(&mut edit.logit));
        if matches!(self.tokens.given.source, Source::Column) {
            column.iter_mut().for_each(ban);
        }
    }

    /// Runs `body` on the candidates as an array, and keeps the candidates that it leaves.
    pub fn apply(&mut self, body: impl FnOnce(&mut Candidates<'_>)) {
        self.make_array();
        let selected = self.selected;
        let (data, sorted) = self.array();
        let mut candidates = Candidates::new(data, sorted).with_selected(selected);
        body(&mut candidates);
        let (dropped, len) = (candidates.dropped(), candidates.len());
        let (sorted, selected) = (candidates.is_sorted(), candidates.selected());
        self.set_array(dropped, len, sorted);
        self.selected = selected;
    }

    /// Returns the candidates as an array, and true if they are known to be sorted.
    // In bounds: the state of an array is a part of the array in the buffers.
    pub fn array(&mut self) -> (&mut [TokenData], bool) {
        self.make_array();
        let State::Array { start, len, sorted } = self.state else {
            return (&mut [], false);
        };
        (&mut self.tokens.buffers.array[start..start + len], sorted)
    }

    /// Skips the first `dropped` candidates of the array and keeps the next `len`.
    pub fn set_array(&mut self, dropped: usize, len: usize, sorted: bool) {
        let State::Array {
            start, len: before, ..
        } = self.state
        else {
            return;
        };
        let dropped = dropped.min(before);
        self.state = State::Array {
            start: start + dropped,
            len: len.min(before - dropped),
            sorted,
        };
    }

    /// Replaces the candidates with a copy of `kept`, as an array.
    pub fn keep(&mut self, kept: &[TokenData], sorted: bool) {
        let array = &mut self.tokens.buffers.array;
        array.clear();
        array.extend_from_slice(kept);
        self.set_kept(sorted);
    }

    /// Makes the candidates those of the array in the buffers.
    fn set_kept(&mut self, sorted: bool) {
        self.state = State::Array {
            start: 0,
            len: self.tokens.buffers.array.len(),
            sorted,
        };
    }

    /// Makes an array of the candidates, unless they already are one.
    fn make_array(&mut self) {
        let weights = match self.state {
            State::Array { .. } => return,
            State::InOrder(order, chosen) => return self.settle_order(order, chosen),
            State::Whole => None,
            State::Weighted(weights) => Some(weights),
        };
        self.tokens.fill();
        let Buffers { array, softmax, .. } = &mut *self.tokens.buffers;
        match weights {
            Some(Weights::Double) => {
                let sum = softmax.exponentiate(array, false);
                divide_p_double(array, sum);
            }
            Some(Weights::Float) => {
                let sum = softmax.exponentiate_in_order(array, false);
                softmax.divide(array, sum);
            }
            None => {}
        }
        self.set_kept(false);
    }
}
