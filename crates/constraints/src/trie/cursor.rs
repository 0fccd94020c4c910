//! A position in a trie: the state machine of a constrained span.
//!
//! A span begins at the root of a descriptor and is active until a value is complete or a token
//! leaves the trie. While it is active, the tokens that may follow are the children of the node; at
//! a node where one value ends and others continue, the host's choice decides.
//!
//! For a trie built without a payload's checks, the span is closed after as many tokens as a value
//! may have.

use std::sync::Arc;

use crate::token::Token;
use crate::trie::arena::{NodeId, Trie};
use crate::trie::descriptor::SPAN_LIMIT;

/// An outcome of accepting a token that is worth a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The token may not follow, so the constraint becomes idle.
    LeftTrie(Token),
    /// The span was closed by its length.
    TooLong,
}

/// A trie and the text's position in it.
#[derive(Clone, Debug)]
pub struct Cursor {
    trie: Arc<Trie>,
    root: NodeId,
    /// The node; `None` while idle.
    node: Option<NodeId>,
    /// The node of the value that the span completed.
    completed: Option<NodeId>,
    accepted: usize,
}

impl Cursor {
    /// Returns a cursor that is active at the root of the first descriptor.
    pub fn new(trie: Arc<Trie>) -> Self {
        let root = trie.first_root();
        Self {
            trie,
            root,
            node: Some(root),
            completed: None,
            accepted: 0,
        }
    }

    /// Begins the span of the descriptor with this path. Returns false if there is none.
    pub fn activate(&mut self, path: &str) -> bool {
        let Some(root) = self.trie.root(path) else {
            return false;
        };
        self.root = root;
        self.restart();
        true
    }

    /// Restarts the span.
    pub fn restart(&mut self) {
        self.node = Some(self.root);
        self.completed = None;
        self.accepted = 0;
    }

    /// Returns the trie.
    pub fn trie(&self) -> &Trie {
        &self.trie
    }

    /// Returns the node, while the span is active.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// True if the span is active.
    pub fn is_active(&self) -> bool {
        self.node.is_some()
    }

    /// Returns the name of the value that the span completed.
    pub fn leaf(&self) -> Option<&str> {
        self.trie.name(self.completed?)
    }

    /// True if the span has completed a value.
    pub fn is_complete(&self) -> bool {
        self.completed.is_some()
    }

    /// True if a value ends here, others continue, and the value has no terminators, so that any
    /// token may follow.
    pub fn is_open(&self) -> bool {
        let is_terminal = |node| self.trie.is_terminal(node);
        self.node.is_some_and(is_terminal) && self.trie.terminators(self.root).is_empty()
    }

    /// Returns the tokens that may follow, ascending: the children and, where a value ends, the
    /// terminators, which are then merged in `merged`. Empty while idle.
    pub fn allowed<'a>(&'a self, merged: &'a mut Vec<Token>) -> &'a [Token] {
        let Some(node) = self.node else {
            return &[];
        };
        let children = self.trie.children(node);
        let terminators = self.trie.terminators(self.root);
        if terminators.is_empty() || !self.trie.is_terminal(node) {
            return children;
        }
        merged.clear();
        merged.extend_from_slice(children);
        merged.extend_from_slice(terminators);
        merged.sort_unstable();
        merged.dedup();
        merged
    }

    /// Ends the span with the value that ends here.
    pub fn complete(&mut self) {
        self.completed = self.node.take();
    }

    /// Accepts a token.
    pub fn accept(&mut self, token: Token) -> Option<Notice> {
        let node = self.node?;
        self.accepted += 1;
        let Some(child) = self.trie.child(node, token) else {
            if self.trie.is_terminal(node) {
                self.complete();
                return None;
            }
            self.node = None;
            return Some(Notice::LeftTrie(token));
        };
        self.node = Some(child);
        if self.trie.children(child).is_empty() {
            self.complete();
            return None;
        }
        if self.accepted >= SPAN_LIMIT {
            self.node = None;
            return Some(Notice::TooLong);
        }
        None
    }

    /// Returns the tokens that are each the only one that may follow, up to the next choice, the
    /// end of the value, or the span's limit.
    pub fn forced(&self) -> Forced<'_> {
        Forced {
            trie: &self.trie,
            node: self.node,
            left: SPAN_LIMIT.saturating_sub(self.accepted),
        }
    }
}

/// See [`Cursor::forced`].
#[derive(Clone, Debug)]
pub struct Forced<'a> {
    trie: &'a Trie,
    node: Option<NodeId>,
    /// The number of tokens left in the span's limit.
    left: usize,
}

impl Iterator for Forced<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        let node = self.node.take()?;
        self.left = self.left.checked_sub(1)?;
        // Where a value ends, ending is a choice.
        if self.trie.is_terminal(node) {
            return None;
        }
        let &[token] = self.trie.children(node) else {
            return None;
        };
        self.node = self.trie.child(node, token);
        Some(token)
    }
}
