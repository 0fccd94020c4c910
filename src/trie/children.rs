//! Finds those candidates that may follow, and removes or masks all others.

use crate::candidates::Candidates;
use crate::token::{Token, TokenData, comparable};

/// The reason why no token that may follow has a logit above minus infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// Some of these tokens are absent, and the others of them are banned. The absent ones are put
    /// back.
    Cut,
    /// All of these tokens are present, with a logit of minus infinity.
    Banned,
}

/// The children that were found among the candidates.
pub(super) struct Found {
    /// The index of the child with the largest logit, if any is above minus infinity.
    pub(super) best: Option<usize>,
    /// The number of children with a logit above minus infinity.
    pub(super) possible: usize,
}

/// The maximum size of a bitmap of children, in 64-bit words per candidate. A bitmap of that size
/// is 2.7 times as large as the array.
const WORDS_PER_CANDIDATE: usize = 4;

/// Buffers that all calls reuse.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// The indices of the children among the candidates, in ascending order.
    indices: Vec<usize>,
    logits: Vec<f32>,
    /// The children that are among the candidates, sorted.
    present: Vec<Token>,
    /// A bitmap of tokens, all 0 between calls.
    bits: Vec<u64>,
}

impl Scratch {
    /// Finds the children among the candidates. This takes one step per child as long as the array
    /// has been neither reordered nor cut, and otherwise a pass over the array.
    // In bounds: `indices` were found among the same candidates.
    pub(super) fn find(&mut self, candidates: &Candidates<'_>, children: &[Token]) -> Found {
        self.indices.clear();
        let in_place = children
            .iter()
            .map_while(|&token| candidates.index_in_place(token));
        self.indices.extend(in_place);
        if self.indices.len() < children.len() {
            self.search(candidates.as_slice(), children);
        }
        let data = candidates.as_slice();
        let mut found = Found {
            best: None,
            possible: 0,
        };
        let mut max = f32::NEG_INFINITY;
        for &index in &self.indices {
            let logit = comparable(data[index].logit);
            found.possible += usize::from(logit > f32::NEG_INFINITY);
            if logit > max {
                max = logit;
                found.best = Some(index);
            }
        }
        found
    }

    /// Finds the children by one pass over the candidates. The memory that this needs is bounded by
    /// the number of candidates, whatever the token ids are.
    fn search(&mut self, data: &[TokenData], children: &[Token]) {
        let last = children.last().map_or(0, |&token| token as usize);
        let words = last / 64 + 1;
        self.indices.clear();
        if words <= WORDS_PER_CANDIDATE * data.len() {
            return self.search_by_bits(data, children, words);
        }
        let is_child = |candidate: &TokenData| children.binary_search(&candidate.id).is_ok();
        let found = data.iter().enumerate().filter(|(_, c)| is_child(c));
        self.indices.extend(found.map(|(index, _)| index));
    }

    // In bounds: `bits` has a word for the last child, and children ascend from 0.
    fn search_by_bits(&mut self, data: &[TokenData], children: &[Token], words: usize) {
        if self.bits.len() < words {
            self.bits.resize(words, 0);
        }
        for &token in children {
            self.bits[token as usize / 64] |= 1 << (token % 64);
        }
        let bits = &self.bits[..words];
        let is_child = |token: Token| {
            let index = usize::try_from(token).unwrap_or(usize::MAX);
            bits.get(index / 64)
                .is_some_and(|word| word >> (index % 64) & 1 == 1)
        };
        let found = data.iter().enumerate().filter(|(_, c)| is_child(c.id));
        self.indices.extend(found.map(|(index, _)| index));
        for &token in children {
            self.bits[token as usize / 64] = 0;
        }
    }

    /// Handles the case that every child that was found is masked. Replaces the candidates with the
    /// children that were not found, as many as fit, with logit 0. If all children were found,
    /// keeps only these. Returns `None` for an empty array, which does not change.
    // In bounds: `indices` were found among the same candidates.
    pub(super) fn fall_back(
        &mut self,
        candidates: &mut Candidates<'_>,
        children: &[Token],
    ) -> Option<Lack> {
        if candidates.is_empty() {
            return None;
        }
        self.present.clear();
        let data = candidates.as_slice();
        let present = self.indices.iter().map(|&index| data[index].id);
        self.present.extend(present);
        self.present.sort_unstable();
        let is_absent = |token: &Token| self.present.binary_search(token).is_err();
        let absent = children.iter().copied().filter(is_absent);
        let mut kept = 0;
        for (candidate, id) in candidates.as_mut_slice().iter_mut().zip(absent) {
            *candidate = TokenData::new(id, 0.0);
            kept += 1;
        }
        if kept > 0 {
            candidates.truncate(kept);
            candidates.set_sorted(false);
            return Some(Lack::Cut);
        }
        self.compact(candidates);
        for candidate in candidates.as_mut_slice() {
            candidate.logit = f32::NEG_INFINITY;
        }
        Some(Lack::Banned)
    }

    /// Keeps only the children that were found, in their order; a sorted array stays sorted.
    // In bounds: `indices` are distinct positions of the same candidates in ascending order, so `to
    // <= from`.
    pub(super) fn compact(&mut self, candidates: &mut Candidates<'_>) {
        let data = candidates.as_mut_slice();
        // The indices ascend, so no candidate is overwritten before it is read.
        for (to, &from) in self.indices.iter().enumerate() {
            data[to] = data[from];
        }
        candidates.truncate(self.indices.len());
    }

    /// Masks all but the children that were found.
    // In bounds: `indices` were found among the same candidates.
    pub(super) fn mask(&mut self, candidates: &mut Candidates<'_>) {
        let data = candidates.as_mut_slice();
        self.logits.clear();
        let kept = self
            .indices
            .iter()
            .map(|&index| comparable(data[index].logit));
        self.logits.extend(kept);
        for candidate in &mut *data {
            candidate.logit = f32::NEG_INFINITY;
        }
        for (&index, &logit) in self.indices.iter().zip(&self.logits) {
            data[index].logit = logit;
        }
        candidates.set_sorted(false);
    }
}

#[cfg(test)]
mod tests;
