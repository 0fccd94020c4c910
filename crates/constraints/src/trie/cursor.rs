//! The state machine of a constrained span: a position in a trie.
//!
//! A span begins at the root of a descriptor. It is active until a value is complete or a token is
//! accepted that is not allowed. While it is active, the tokens that may follow are the children of
//! the current node. Where one value ends and others continue, the token that the host accepts next
//! decides.
//!
//! A span ends after [`SPAN_LIMIT`] tokens at the latest. Only a trie that was built from an
//! unchecked payload can have longer values.

use std::sync::Arc;

use crate::token::Token;
use crate::trie::arena::{NodeId, Trie};
use crate::trie::descriptor::SPAN_LIMIT;

/// A reason to warn after a token was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The token is not allowed, so the constraint becomes idle.
    LeftTrie(Token),
    /// The span was ended, since it reached the limit on its length.
    TooLong,
}

/// A trie and the text's position in it.
#[derive(Clone, Debug)]
pub struct Cursor {
    trie: Arc<Trie>,
    root: NodeId,
    /// The current node; `None` while the cursor is idle.
    node: Option<NodeId>,
    /// The node of the value that the last span completed.
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

    /// Begins a span of the descriptor whose path is `path`. Returns false if there is no such
    /// descriptor.
    pub fn activate(&mut self, path: &str) -> bool {
        let Some(root) = self.trie.root(path) else {
            return false;
        };
        self.root = root;
        self.restart();
        true
    }

    /// Restarts the span from its root.
    pub fn restart(&mut self) {
        self.node = Some(self.root);
        self.completed = None;
        self.accepted = 0;
    }

    /// Returns the trie.
    pub fn trie(&self) -> &Trie {
        &self.trie
    }

    /// Returns the current node, while the span is active.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// True if the span is active.
    pub fn is_active(&self) -> bool {
        self.node.is_some()
    }

    /// Returns the name of the value that the last span completed.
    pub fn leaf(&self) -> Option<&str> {
        self.trie.name(self.completed?)
    }

    /// True if the span has completed a value.
    pub fn is_complete(&self) -> bool {
        self.completed.is_some()
    }

    /// True if a value ends at the current node, longer values continue from it, and the descriptor
    /// has no terminators. Any token may then follow.
    pub fn is_open(&self) -> bool {
        let is_terminal = |node| self.trie.is_terminal(node);
        self.node.is_some_and(is_terminal) && self.trie.terminators(self.root).is_empty()
    }

    /// Returns the tokens that may follow, ascending: the children of the current node and, if a
    /// value ends there, the terminators. `merged` is a buffer for both together. Returns no tokens
    /// while the cursor is idle.
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

    /// Ends the span with the value at the current node.
    pub fn complete(&mut self) {
        self.completed = self.node.take();
    }

    /// Accepts a token. Returns a reason to warn if the span ends without a value.
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

    /// Returns the sequence of tokens that must follow, up to the next choice, the end of a value,
    /// or the limit of the span.
    pub fn forced(&self) -> Forced<'_> {
        Forced {
            trie: &self.trie,
            node: self.node,
            left: SPAN_LIMIT.saturating_sub(self.accepted),
        }
    }
}

/// The iterator of [`Cursor::forced`].
#[derive(Clone, Debug)]
pub struct Forced<'a> {
    trie: &'a Trie,
    node: Option<NodeId>,
    /// The number of tokens that the span may still have.
    left: usize,
}

impl Iterator for Forced<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        let node = self.node.take()?;
        self.left = self.left.checked_sub(1)?;
        // Where a value ends, ending the span is a choice, too.
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
