//! The sorted texts of a vocabulary as a tree, represented by the lengths of longest common
//! prefixes (an LCP array). A walk can skip all texts that share a prefix.

// In bounds: ranks are positions in arrays that never change.

use crate::bans::order::Order;
use crate::memory::{exhausted, with_room};

/// The tree. Texts that share a prefix have consecutive ranks.
#[derive(Debug)]
pub(super) struct Tree {
    /// For each rank, the length of the prefix that its text shares with the previous text.
    common: Vec<u16>,
    /// For each rank, the next rank whose entry in `common` is at most as large.
    next: Vec<u32>,
}

impl Tree {
    /// Returns the tree of a vocabulary's texts.
    pub(super) fn new(order: &Order) -> Self {
        let common = common(order);
        let next = next(&common);
        Self { common, next }
    }

    /// Returns the length of the prefix that the text of a rank shares with the previous text, at
    /// most `u16::MAX`.
    #[inline]
    pub(super) fn common(&self, rank: u32) -> usize {
        self.common[rank as usize].into()
    }

    /// Returns the first later rank whose text might not begin with the first `n` bytes of the text
    /// of `rank`. `n` must be larger than `common(rank)`.
    pub(super) fn after(&self, rank: u32, n: usize) -> u32 {
        let mut after = match n - self.common(rank) {
            1 => self.next[rank as usize],
            _ => rank + 1,
        };
        while (after as usize) < self.common.len() && self.common(after) >= n {
            after = self.next[after as usize];
        }
        after
    }
}

/// Returns [`Tree::common`] of each rank. If a shared prefix is too long for `u16`, a walk reads
/// the rest of it again.
fn common(order: &Order) -> Vec<u16> {
    let tokens = order.tokens(0..order.n_ranks());
    let mut common = with_room(tokens.len()).unwrap_or_else(exhausted);
    let mut before: &[u8] = &[];
    for &token in tokens {
        let key = order.key(token);
        let n = key.iter().zip(before).take_while(|(a, b)| a == b).count();
        common.push(u16::try_from(n).unwrap_or(u16::MAX));
        before = key;
    }
    common
}

/// Returns, for each position, the next position whose value is at most as large, or the number of
/// values if there is none.
fn next(values: &[u16]) -> Vec<u32> {
    let mut next = with_room(values.len()).unwrap_or_else(exhausted);
    next.resize(values.len(), values.len() as u32);
    for i in (0..values.len()).rev() {
        let mut later = i + 1;
        while later < values.len() && values[later] > values[i] {
            later = next[later] as usize;
        }
        next[i] = later as u32;
    }
    next
}
