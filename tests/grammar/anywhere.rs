//! Predicts the built-in's work on a lazy grammar, which may begin anywhere in a text.

use crate::stacks::Stacks;

/// The positions of a text in a grammar that may have begun at any byte of the text.
#[derive(Clone, Debug)]
pub struct Anywhere {
    begin: Stacks,
    all: Vec<Stacks>,
}

impl Anywhere {
    /// Returns the state before the first byte. `begin` is the grammar's initial state.
    pub fn new(begin: Stacks) -> Self {
        Self {
            begin,
            all: Vec::new(),
        }
    }

    /// Returns to the initial state.
    pub fn reset(&mut self) {
        self.all.clear();
    }

    /// Accepts a token. Returns true if the built-in can do so, wherever the grammar has begun, and
    /// can then find which of `pieces` are allowed, without too much work.
    pub fn accept(&mut self, piece: &[u8], pieces: &[Vec<u8>]) -> bool {
        if !self.all.iter_mut().all(|stacks| stacks.accept(piece)) {
            return false;
        }
        for start in 0..piece.len() {
            let mut stacks = self.begin.clone();
            if !stacks.accept(&piece[start..]) {
                return false;
            }
            self.all.push(stacks);
        }
        // States in which nothing can follow, and duplicates, need not be followed.
        self.all.retain(|stacks| !stacks.stacks.is_empty());
        self.all.sort_by(|a, b| a.stacks.cmp(&b.stacks));
        self.all
            .dedup_by(|a, b| a.stacks == b.stacks && a.partial == b.partial);
        self.all.iter().all(|stacks| stacks.may_apply(pieces))
    }
}
