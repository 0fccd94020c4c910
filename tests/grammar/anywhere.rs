//! Bounds the built-in's work on a lazy grammar, which may begin anywhere in a text.

use crate::stacks::Stacks;

/// The positions of a text in a grammar, which may have begun at any of its bytes.
#[derive(Clone, Debug)]
pub struct Anywhere {
    begin: Stacks,
    all: Vec<Stacks>,
}

impl Anywhere {
    /// Begins before the first byte; `begin` is where the grammar begins.
    pub fn new(begin: Stacks) -> Self {
        Self {
            begin,
            all: Vec::new(),
        }
    }

    /// Begins again.
    pub fn reset(&mut self) {
        self.all.clear();
    }

    /// Goes on with a token. Whether the built-in can be asked to, wherever it has begun, and then
    /// which of these texts are allowed.
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
        // Where nothing can follow, or the same can, there is nothing more to ask.
        self.all.retain(|stacks| !stacks.stacks.is_empty());
        self.all.sort_by(|a, b| a.stacks.cmp(&b.stacks));
        self.all
            .dedup_by(|a, b| a.stacks == b.stacks && a.partial == b.partial);
        self.all.iter().all(|stacks| stacks.may_apply(pieces))
    }
}
