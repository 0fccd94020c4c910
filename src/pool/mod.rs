//! Candidates on their way from the logits of a vocabulary to the few that are left.
//!
//! A pool begins as the caller's logits, which are only read. It stays that way while samplers
//! change the logits of a few named tokens ([`Pool::edit`]) or let only some tokens through
//! ([`Pool::mask`]), becomes a column of its own where one changes them all ([`Pool::column_mut`]),
//! and an array of candidates where one keeps few of them ([`Pool::keep`]) or has no quicker way
//! ([`Pool::apply`]). The 12-byte array of the whole vocabulary, which a host fills before each
//! token, is only made when it is asked for.
//!
//! Whatever the form, the candidates are those that the same samplers leave of that array: ids,
//! order, logits, probabilities, what is selected.

mod buffers;
mod contenders;
mod in_order;
mod observed;
#[cfg(test)]
mod tests;
mod whole;

use crate::candidates::Candidates;
use crate::kernels::bitmap::has;
use crate::kernels::divide_p_double;
use crate::kernels::layout::{CHUNK, GROUP};
use crate::kernels::logits::Logits;
use crate::kernels::scan::{count_at_least, position_of};
use crate::memory;
use crate::token::{Token, TokenData, comparable};
pub use buffers::Buffers;
use buffers::{Edit, MOST_EDITS, reserve};
pub use in_order::{First, InOrder, Part, Weights, division_keeps_order};
use whole::{Whole, block_of};

/// The number of blocks of which one may have a candidate that is not masked.
const SPARSE: usize = 8;

/// The form in which the candidates are held.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// The caller's logits but for the edits.
    Logits,
    /// The caller's logits but for the edits; only the tokens count whose bits are set in the
    /// buffers.
    Masked,
    /// The column of the buffers: a logit for every token.
    Column,
    /// Some candidates of the array of the buffers.
    Array {
        start: usize,
        len: usize,
        sorted: bool,
    },
}

/// The state in which a pool was left, to [resume](Pool::resume) it.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    n: usize,
    form: Form,
    weights: Option<Weights>,
    order: Option<InOrder>,
    selected: Option<usize>,
    bans_nan: bool,
}

impl Left {
    /// The index of the chosen candidate, if it is an array.
    pub fn selected(self) -> Option<usize> {
        self.selected
    }

    /// True if the candidates are an array that is known to descend.
    pub fn is_sorted(self) -> bool {
        matches!(self.form, Form::Array { sorted: true, .. })
    }
}

/// The candidates of one token position.
#[derive(Debug)]
pub struct Pool<'a> {
    logits: Logits<'a>,
    buffers: &'a mut Buffers,
    form: Form,
    /// The type of the probabilities of all candidates of the vocabulary, not yet written.
    weights: Option<Weights>,
    /// The deferred operations on the candidates of the vocabulary.
    order: Option<InOrder>,
    selected: Option<usize>,
    /// The largest logit, where the maxima of the blocks are known.
    max: Option<f32>,
    /// See [`banning_nan`](Self::banning_nan).
    bans_nan: bool,
}

impl<'a> Pool<'a> {
    /// Returns the pool of all tokens of a vocabulary, with these logits.
    pub fn new(logits: impl Into<Logits<'a>>, buffers: &'a mut Buffers) -> Self {
        buffers.edits.clear();
        Self {
            logits: logits.into(),
            buffers,
            form: Form::Logits,
            weights: None,
            order: None,
            selected: None,
            max: None,
            bans_nan: false,
        }
    }

    /// Makes a new pool read every NaN among the caller's logits as minus infinity.
    ///
    /// The replacement is made when candidates or a column are built from the logits. Code that
    /// reads the logits in place already treats NaN like minus infinity.
    #[must_use]
    pub fn banning_nan(mut self) -> Self {
        self.bans_nan = true;
        self
    }

    /// The pool that was [left](Self::leave), with the same logits and the same buffers. `None` if
    /// there are not as many logits.
    pub fn resume(logits: Logits<'a>, buffers: &'a mut Buffers, left: Left) -> Option<Self> {
        (logits.len() == left.n).then_some(Self {
            logits,
            buffers,
            form: left.form,
            weights: left.weights,
            order: left.order,
            selected: left.selected,
            max: None,
            bans_nan: left.bans_nan,
        })
    }

    /// Returns the state that it takes to resume the pool.
    pub fn leave(self) -> Left {
        Left {
            n: self.logits.len(),
            form: self.form,
            weights: self.weights,
            order: self.order,
            selected: self.selected,
            bans_nan: self.bans_nan,
        }
    }

    /// Leaves the pool such that an array can be made of it [later](Buffers::settle) without the
    /// caller's logits.
    pub fn leave_alone(mut self) -> Left {
        let needs_logits = match self.form {
            Form::Logits => true,
            Form::Masked => self.buffers.allowed.iter().any(|&word| word != 0),
            Form::Column | Form::Array { .. } => false,
        };
        if needs_logits {
            self.make_column();
        }
        self.leave()
    }

    /// The number of candidates left.
    pub fn len(&self) -> usize {
        match self.form {
            Form::Logits | Form::Masked | Form::Column => {
                self.order.map_or(self.logits.len(), |order| order.len)
            }
            Form::Array { len, .. } => len,
        }
    }

    /// True if no candidate is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if all tokens of the vocabulary are there, in order and without probabilities: then
    /// they have a quicker form than an array, which the methods that say so take.
    pub fn is_whole(&self) -> bool {
        let waits = self.weights.is_some() || self.order.is_some();
        !waits && !matches!(self.form, Form::Array { .. })
    }

    /// Index of the chosen candidate.
    pub fn selected(&self) -> Option<usize> {
        self.selected
    }

    /// Chooses a candidate by index, or none.
    pub fn select(&mut self, index: Option<usize>) {
        self.selected = index;
    }

    /// The chosen token, if the choice is one of those that are left.
    pub fn token(&self) -> Option<Token> {
        if let Some(chosen) = self.order.and_then(|order| order.chosen) {
            return Some(chosen);
        }
        let index = self.selected.filter(|&index| index < self.len())?;
        match self.form {
            Form::Logits | Form::Masked | Form::Column => Token::try_from(index).ok(),
            Form::Array { start, .. } => Some(self.buffers.array.get(start + index)?.id),
        }
    }

    /// True if the chosen candidate is as good as none: its logit is minus infinity or NaN.
    pub fn is_banned(&self) -> bool {
        let chosen = match (self.form, self.selected) {
            (Form::Array { start, .. }, Some(index)) => self.buffers.array.get(start + index),
            _ => None,
        };
        let chosen = chosen.copied().or_else(|| self.chosen_of_whole());
        chosen.is_some_and(|chosen| comparable(chosen.logit) == f32::NEG_INFINITY)
    }

    /// The chosen token and its logit, as long as there is one for each of the vocabulary.
    fn chosen_of_whole(&self) -> Option<TokenData> {
        let token = self.token()?;
        let divisor = self.order.map_or(1.0, |order| order.divisor);
        Some(TokenData {
            id: token,
            logit: self.logit_of(token) / divisor,
            p: 0.0,
        })
    }

    /// The logit of a token of the vocabulary, as long as there is one for each.
    fn logit_of(&self, token: Token) -> f32 {
        let edits = &self.buffers.edits;
        let edit = edits.binary_search_by_key(&token, |edit| edit.token as Token);
        match edit.ok().and_then(|place| edits.get(place)) {
            Some(edit) => edit.logit,
            None => self.whole().at(token as usize),
        }
    }

    /// Puts minus infinity in the place of every logit that is NaN, in a pool that is made to
    /// [ban](Self::banning_nan) those that came in.
    pub fn ban_nan(&mut self) {
        let ban = |logit: &mut f32| *logit = comparable(*logit);
        if matches!(self.form, Form::Array { .. }) {
            self.array().0.iter_mut().for_each(|c| ban(&mut c.logit));
            return;
        }
        let Buffers { edits, column, .. } = &mut *self.buffers;
        edits.iter_mut().for_each(|edit| ban(&mut edit.logit));
        if matches!(self.form, Form::Column) {
            column.iter_mut().for_each(ban);
        }
    }

    /// Runs `body` on the candidates as an array, and keeps what it leaves.
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

    /// The candidates as an array, and whether they are known to be sorted.
    // In bounds: the form of an array names a part of the array.
    pub fn array(&mut self) -> (&mut [TokenData], bool) {
        self.make_array();
        let Form::Array { start, len, sorted } = self.form else {
            return (&mut [], false);
        };
        (&mut self.buffers.array[start..start + len], sorted)
    }

    /// Says what is left of the array: without its first `dropped` candidates the next `len`.
    pub fn set_array(&mut self, dropped: usize, len: usize, sorted: bool) {
        let Form::Array {
            start, len: before, ..
        } = self.form
        else {
            return;
        };
        let dropped = dropped.min(before);
        self.form = Form::Array {
            start: start + dropped,
            len: len.min(before - dropped),
            sorted,
        };
    }

    /// Replaces the candidates.
    pub fn keep(&mut self, kept: &[TokenData], sorted: bool) {
        self.buffers.array.clear();
        self.buffers.array.extend_from_slice(kept);
        self.set_kept(sorted);
    }

    /// Makes the array of the buffers the candidates.
    fn set_kept(&mut self, sorted: bool) {
        self.form = Form::Array {
            start: 0,
            len: self.buffers.array.len(),
            sorted,
        };
        self.weights = None;
        self.order = None;
    }

    /// Makes an array of the candidates, if they are none.
    fn make_array(&mut self) {
        if matches!(self.form, Form::Array { .. }) {
            return;
        }
        if let Some(order) = self.order {
            return self.settle_order(order);
        }
        self.fill();
        let Buffers { array, softmax, .. } = &mut *self.buffers;
        match self.weights {
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

    /// Writes all tokens as candidates, as a host passes them to a chain.
    // In bounds: a chunk has at most `CHUNK` logits; edits are of tokens of the vocabulary.
    fn fill(&mut self) {
        let Buffers {
            edits,
            allowed,
            column,
            array,
            ..
        } = &mut *self.buffers;
        let whole = Whole::of(self.form, self.logits, column, allowed, self.bans_nan);
        let n = self.logits.len();
        array.clear();
        reserve(array, n).unwrap_or_else(memory::exhausted);
        let mut chunk = [0.0; CHUNK];
        for start in (0..n).step_by(CHUNK) {
            let chunk = &mut chunk[..CHUNK.min(n - start)];
            whole.widen(start, chunk);
            let ids = start as Token..;
            let candidate = |(id, &logit): (Token, &f32)| TokenData { id, logit, p: 0.0 };
            array.extend(ids.zip(&*chunk).map(candidate));
        }
        for edit in &*edits {
            array[edit.token as usize].logit = edit.logit;
        }
    }
}

/// Returns the logits of all tokens in the order of their ids: the caller's slice if it is in
/// single precision and unchanged, otherwise the column that [`Pool::make_contiguous`] has made.
fn in_order_of_ids<'a>(form: Form, logits: Logits<'a>, column: &'a [f32]) -> &'a [f32] {
    match (form, logits) {
        (Form::Logits, Logits::F32(xs)) => xs,
        _ => column,
    }
}

/// Methods of a pool that [is whole](Pool::is_whole).
impl Pool<'_> {
    /// Chooses the candidate at `index`, and gives each its softmax probability, as soon as the
    /// array is read.
    pub fn select_weighted(&mut self, index: usize, weights: Weights) {
        self.weights = Some(weights);
        self.selected = Some(index);
    }

    /// True if `token` is one of the vocabulary.
    pub fn has(&self, token: Token) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.logits.len())
    }

    /// Asks for the memory of the logit of `token`, which is soon edited: after a model has run it
    /// lies far away.
    pub fn expect(&self, token: Token) {
        if self.has(token) {
            self.logits.prefetch(token as usize);
        }
    }

    /// Changes the logit of `token`, if it is one of the vocabulary.
    pub fn edit(&mut self, token: Token, change: impl FnOnce(f32) -> f32) {
        if !self.has(token) {
            return;
        }
        self.max = None;
        if self.buffers.edits.len() == MOST_EDITS {
            self.column_mut();
        }
        let (token, index) = (token as u32, token as usize);
        let buffers = &mut *self.buffers;
        if matches!(self.form, Form::Column) {
            if let Some(logit) = buffers.column.get_mut(index) {
                *logit = change(*logit);
            }
            return;
        }
        let whole = Whole::of(
            self.form,
            self.logits,
            &buffers.column,
            &buffers.allowed,
            self.bans_nan,
        );
        let place = buffers.edits.binary_search_by_key(&token, |e| e.token);
        match place.map(|place| buffers.edits.get_mut(place)) {
            Ok(Some(edit)) => edit.logit = change(edit.logit),
            Ok(None) => {}
            Err(place) => {
                let logit = change(whole.at(index));
                buffers.edits.insert(place, Edit { token, logit });
            }
        }
    }

    /// Adds to the logit of each of these tokens its number, one after the other. Tokens that the
    /// vocabulary does not have are passed over.
    pub fn add(&mut self, biases: impl ExactSizeIterator<Item = (Token, f32)> + Clone) {
        if biases.len() > MOST_EDITS {
            let column = self.column_mut();
            for (token, bias) in biases {
                let place = usize::try_from(token).ok();
                if let Some(logit) = place.and_then(|place| column.get_mut(place)) {
                    *logit += bias;
                }
            }
            return;
        }
        for (token, _) in biases.clone() {
            self.expect(token);
        }
        for (token, bias) in biases {
            self.edit(token, |logit| logit + bias);
        }
    }

    /// The logits of all tokens in order, in single precision: the caller's where nothing has
    /// changed, a copy otherwise.
    pub fn contiguous(&mut self) -> &[f32] {
        self.make_contiguous();
        in_order_of_ids(self.form, self.logits, &self.buffers.column)
    }

    /// Makes a column of the logits, unless they are the caller's as they came, in single
    /// precision.
    fn make_contiguous(&mut self) {
        let are_as_they_came = self.buffers.edits.is_empty();
        if !(matches!((self.form, self.logits), (Form::Logits, Logits::F32(_))) && are_as_they_came)
        {
            self.make_column();
        }
    }

    /// Returns the logits of all tokens in order and the largest of them, if none of them is NaN
    /// and the largest is finite.
    pub fn contiguous_numbers(&mut self) -> Option<(&[f32], f32)> {
        let (logits, _, max) = self.numbers_and_maxima()?;
        Some((logits, max))
    }

    /// Returns the logits of all tokens in order, the largest of each block of [`GROUP`], and the
    /// largest of all, if none of them is NaN and the largest is finite.
    pub fn numbers_and_maxima(&mut self) -> Option<(&[f32], &[f32], f32)> {
        let n = self.len();
        self.make_contiguous();
        let Buffers { column, maxima, .. } = &mut *self.buffers;
        let logits = in_order_of_ids(self.form, self.logits, column);
        maxima.resize(n.div_ceil(GROUP), 0.0);
        let (max, unmasked) = Logits::F32(logits).block_maxima_and_count(maxima);
        self.max = Some(max);
        // What is not counted is minus infinity or NaN, which is not even at least that.
        let are_numbers = unmasked == n || count_at_least(logits, f32::NEG_INFINITY) == n;
        (are_numbers && max.is_finite()).then_some((logits, maxima, max))
    }

    /// Has `pass` read the logits of all tokens in order. It leaves the largest of each block of
    /// [`GROUP`], and returns the largest of all, NaN not counted, with its result.
    pub fn read<T>(&mut self, pass: impl FnOnce(&[f32], &mut [f32]) -> (f32, T)) -> T {
        let n = self.len();
        self.make_contiguous();
        let Buffers { column, maxima, .. } = &mut *self.buffers;
        maxima.resize(n.div_ceil(GROUP), 0.0);
        let logits = in_order_of_ids(self.form, self.logits, column);
        let (max, result) = pass(logits, maxima);
        self.max = Some(max);
        result
    }

    /// The logits of all tokens in order, to be changed.
    pub fn column_mut(&mut self) -> &mut [f32] {
        self.make_column();
        self.max = None;
        &mut self.buffers.column
    }

    /// Returns the logits of all tokens in order, to be changed, with the largest of each block, as
    /// they were, and of all, if none of them is NaN and the largest is finite.
    pub fn column_and_maxima(&mut self) -> Option<(&mut [f32], &[f32], f32)> {
        let (_, max) = self.contiguous_numbers()?;
        self.make_column();
        self.max = None;
        let Buffers { column, maxima, .. } = &mut *self.buffers;
        Some((column, maxima, max))
    }

    // In bounds: edits are of tokens of the vocabulary.
    fn make_column(&mut self) {
        if matches!(self.form, Form::Column) {
            return;
        }
        let Buffers {
            edits,
            allowed,
            column,
            ..
        } = &mut *self.buffers;
        let n = self.logits.len();
        reserve(column, n).unwrap_or_else(memory::exhausted);
        column.resize(n, 0.0);
        Whole::of(self.form, self.logits, &[], allowed, self.bans_nan).widen(0, column);
        for edit in edits.drain(..) {
            column[edit.token as usize] = edit.logit;
        }
        self.form = Form::Column;
    }

    /// The largest logit, NaN not counted; minus infinity if there is none. One pass over the
    /// logits, unless they are as they were.
    pub fn max(&mut self) -> f32 {
        if let Some(max) = self.max {
            return max;
        }
        let max = self.find_maxima();
        self.max = Some(max);
        max
    }

    // In bounds: there is a maximum for each block.
    fn find_maxima(&mut self) -> f32 {
        let Buffers {
            edits,
            allowed,
            column,
            maxima,
            ..
        } = &mut *self.buffers;
        let whole = Whole::of(self.form, self.logits, column, allowed, self.bans_nan);
        maxima.resize(self.logits.len().div_ceil(GROUP), 0.0);
        let max = whole.block_maxima(maxima);
        if edits.is_empty() {
            return max;
        }
        for edit in &*edits {
            let number = edit.token as usize / GROUP;
            let logit = comparable(edit.logit);
            let raw = comparable(whole.at(edit.token as usize));
            if logit < raw && raw >= maxima[number] {
                let mut block = [0.0; GROUP];
                let block = block_of(whole, edits, number, &mut block);
                let largest = |max: f32, &x: &f32| max.max(comparable(x));
                maxima[number] = block.iter().fold(f32::NEG_INFINITY, largest);
            } else if logit > maxima[number] {
                maxima[number] = logit;
            }
        }
        Logits::F32(maxima).max()
    }

    /// Index of the largest logit, the first of equals; 0 if there is none.
    pub fn argmax(&mut self) -> usize {
        let max = self.max();
        if max == f32::NEG_INFINITY {
            return 0;
        }
        let number = position_of(&self.buffers.maxima, max).unwrap_or(0);
        let mut block = [0.0; GROUP];
        let block = self.block(number, &mut block);
        let first = position_of(block, max);
        number * GROUP + first.unwrap_or(0)
    }

    /// The candidates at or above `threshold`, which is above minus infinity, in order. None of
    /// them is NaN.
    pub fn at_least(&mut self, threshold: f32) -> &[TokenData] {
        self.max();
        self.buffers.collected.clear();
        let blocks = self.buffers.maxima.len();
        self.collect(0, blocks, threshold);
        &self.buffers.collected
    }

    /// The candidates above minus infinity, in order, if they are in few of the blocks.
    pub fn few_unmasked(&mut self) -> Option<&[TokenData]> {
        self.max();
        let blocks = count_at_least(&self.buffers.maxima, f32::MIN);
        let are_few = blocks <= self.buffers.maxima.len() / SPARSE;
        are_few.then(|| self.at_least(f32::MIN))
    }

    /// The logits of block `number`.
    fn block<'b>(&self, number: usize, to: &'b mut [f32; GROUP]) -> &'b [f32] {
        block_of(self.whole(), &self.buffers.edits, number, to)
    }

    /// The logits but for the edits.
    fn whole(&self) -> Whole<'_> {
        let Buffers {
            allowed, column, ..
        } = &*self.buffers;
        Whole::of(self.form, self.logits, column, allowed, self.bans_nan)
    }

    /// Appends the candidates of blocks `first` to before `end` at or above `threshold` to what is
    /// collected. The maxima are known.
    // In bounds: the caller names blocks of the vocabulary; places come from searches.
    fn collect(&mut self, first: usize, end: usize, threshold: f32) {
        let Buffers {
            edits,
            allowed,
            column,
            maxima,
            collected,
            ..
        } = &mut *self.buffers;
        let whole = Whole::of(self.form, self.logits, column, allowed, self.bans_nan);
        let before = collected.len();
        let tokens = first * GROUP..whole.logits.len().min(end * GROUP);
        let part = whole.logits.part(tokens.start, tokens.end);
        part.collect(
            &maxima[first..end],
            tokens.start as u32,
            threshold,
            collected,
        );
        if let Some(allowed) = whole.allowed {
            let mut kept = before;
            for i in before..collected.len() {
                collected[kept] = collected[i];
                kept += usize::from(has(allowed, collected[i].id));
            }
            collected.truncate(kept);
        }
        let place = |token: usize| edits.partition_point(|e| (e.token as usize) < token);
        let edits = &edits[place(tokens.start)..place(tokens.end)];
        for edit in edits {
            let token = edit.token as Token;
            let place = collected[before..].binary_search_by_key(&token, |c| c.id);
            let passes = edit.logit >= threshold;
            match place {
                Ok(place) if passes => collected[before + place].logit = edit.logit,
                Ok(place) => {
                    collected.remove(before + place);
                }
                Err(place) if passes => {
                    let candidate = TokenData {
                        id: token,
                        logit: edit.logit,
                        p: 0.0,
                    };
                    collected.insert(before + place, candidate);
                }
                Err(_) => {}
            }
        }
    }
}
