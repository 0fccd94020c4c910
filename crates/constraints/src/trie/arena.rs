//! The immutable trie, in three flat arrays without pointers.
//!
//! Nodes are numbered breadth first, beginning with the roots of the descriptors. The children of a
//! node are therefore contiguous, sorted by token, and end where the children of the next node
//! begin. A node takes 12 bytes: its token, the index of its first child, and, if a value ends
//! there, the index of the value's name. One step is a binary search among the children.
//!
//! A hash table per node would not be faster: among 200 children, a search takes 8 probes in 800
//! contiguous bytes.

use std::ops::Range;

use crate::memory::{self, copied, exhausted, push};
use crate::token::Token;
use crate::trie::descriptor::{Descriptor, Leaf, Payload};

/// The index of a node.
pub type NodeId = u32;

const NO_NAME: u32 = u32::MAX;

/// The trie of all sequences of a payload.
#[derive(Debug)]
pub struct Trie {
    /// The token that leads to each node; -1 for roots.
    tokens: Vec<Token>,
    /// The first child of each node, and one more entry for the end of the last node's children.
    first_child: Vec<NodeId>,
    /// The index in `names` of the name of the value that ends at each node; [`NO_NAME`] if none
    /// does.
    names_of: Vec<u32>,
    names: Vec<Box<str>>,
    /// The path of the descriptor of each root.
    paths: Vec<Box<str>>,
    /// The terminators of the descriptor of each root, ascending.
    terminators: Vec<Vec<Token>>,
    max_token: Token,
}

/// A node to be built. The leaves below it share their first `depth` tokens.
struct Pending {
    leaves: Range<usize>,
    depth: usize,
}

impl Trie {
    /// Returns the trie of a payload. Descriptors without tokens get no root. Equal sequences of a
    /// descriptor are merged under the smallest of their names.
    pub fn new(payload: &Payload) -> Self {
        let mut sorted: Vec<&Leaf> = Vec::new();
        let mut pending: Vec<Pending> = Vec::new();
        let mut trie = Self {
            tokens: Vec::new(),
            first_child: Vec::new(),
            names_of: Vec::new(),
            names: Vec::new(),
            paths: Vec::new(),
            terminators: Vec::new(),
            max_token: 0,
        };
        for descriptor in &payload.descriptors {
            let terminators = ascending(&descriptor.terminators);
            trie.max_token = trie.max_token.max(terminators.last().copied().unwrap_or(0));
            let leaves = sorted_leaves(descriptor);
            if leaves.is_empty() {
                continue;
            }
            let start = sorted.len();
            leaves.into_iter().for_each(|leaf| push(&mut sorted, leaf));
            push(&mut trie.paths, boxed(&descriptor.path));
            push(&mut trie.terminators, terminators);
            push(&mut trie.tokens, -1);
            let leaves = start..sorted.len();
            push(&mut pending, Pending { leaves, depth: 0 });
        }
        trie.grow(&sorted, pending);
        trie
    }

    /// Builds the nodes breadth first: each appends its children after all existing nodes.
    // In bounds: `next` is compared with the length; the ranges of leaves lie in `sorted`, and each
    // leaf of a range has more than `depth` tokens, except the first, which is checked.
    fn grow(&mut self, sorted: &[&Leaf], mut pending: Vec<Pending>) {
        let mut next = 0;
        while next < pending.len() {
            let Pending { leaves, depth } = &pending[next];
            let (depth, mut leaves) = (*depth, leaves.clone());
            push(&mut self.first_child, pending.len() as NodeId);
            // The shortest sequence is sorted first.
            let name = (sorted[leaves.start].tokens.len() == depth).then(|| {
                push(&mut self.names, boxed(&sorted[leaves.start].name));
                leaves.start += 1;
                self.names.len() as u32 - 1
            });
            push(&mut self.names_of, name.unwrap_or(NO_NAME));
            while leaves.start < leaves.end {
                let token = sorted[leaves.start].tokens[depth];
                let group = &sorted[leaves.clone()];
                let len = group.partition_point(|leaf| leaf.tokens[depth] == token);
                push(&mut self.tokens, token);
                self.max_token = self.max_token.max(token);
                let below = Pending {
                    leaves: leaves.start..leaves.start + len,
                    depth: depth + 1,
                };
                push(&mut pending, below);
                leaves.start += len;
            }
            next += 1;
        }
        push(&mut self.first_child, pending.len() as NodeId);
        // Copied, since shrinking in place aborts the process if memory runs out.
        self.tokens = copied(&self.tokens);
        self.first_child = copied(&self.first_child);
        self.names_of = copied(&self.names_of);
    }

    /// Returns the root of the first descriptor.
    pub fn first_root(&self) -> NodeId {
        0
    }

    /// Returns the root of the first descriptor whose path is `path`.
    pub fn root(&self, path: &str) -> Option<NodeId> {
        let index = self.paths.iter().position(|known| &**known == path)?;
        Some(index as NodeId)
    }

    /// Returns the paths of all descriptors that have values.
    pub fn paths(&self) -> impl Iterator<Item = &str> + Clone {
        self.paths.iter().map(|path| &**path)
    }

    /// Returns the tokens that may follow a value of a root's descriptor, ascending.
    pub fn terminators(&self, root: NodeId) -> &[Token] {
        self.terminators
            .get(root as usize)
            .map_or(&[], Vec::as_slice)
    }

    // In bounds: node numbers come from this trie, and `first_child` has one entry more than there
    // are nodes.
    fn child_range(&self, node: NodeId) -> Range<usize> {
        let node = node as usize;
        self.first_child[node] as usize..self.first_child[node + 1] as usize
    }

    /// Returns the tokens that may follow at `node`, ascending.
    // In bounds: the children of a node are nodes.
    pub fn children(&self, node: NodeId) -> &[Token] {
        &self.tokens[self.child_range(node)]
    }

    /// Returns the child of `node` that `token` leads to.
    // In bounds: the children of a node are nodes.
    pub fn child(&self, node: NodeId, token: Token) -> Option<NodeId> {
        let range = self.child_range(node);
        let index = self.tokens[range.clone()].binary_search(&token).ok()?;
        Some((range.start + index) as NodeId)
    }

    /// Returns the name of the value that ends at `node`.
    // In bounds: node numbers come from this trie, and each has an entry.
    pub fn name(&self, node: NodeId) -> Option<&str> {
        let name = self.names.get(self.names_of[node as usize] as usize)?;
        Some(name)
    }

    /// True if a value ends at `node`.
    // In bounds: node numbers come from this trie, and each has an entry.
    pub fn is_terminal(&self, node: NodeId) -> bool {
        self.names_of[node as usize] != NO_NAME
    }

    /// Returns the largest token of the payload.
    pub fn max_token(&self) -> Token {
        self.max_token
    }

    /// Returns the number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the size of the trie in bytes, including the names.
    pub fn bytes(&self) -> usize {
        let arrays =
            4 * (self.tokens.capacity() + self.first_child.capacity() + self.names_of.capacity());
        let texts = self.names.iter().chain(&self.paths);
        let texts: usize = texts.map(|text| text.len() + size_of::<Box<str>>()).sum();
        let terminators = self.terminators.iter();
        let terminators: usize = terminators
            .map(|tokens| size_of_val(tokens) + size_of_val(&**tokens))
            .sum();
        size_of::<Self>() + arrays + texts + terminators
    }
}

/// Returns the distinct tokens in ascending order.
pub fn ascending(tokens: &[Token]) -> Vec<Token> {
    let mut tokens = copied(tokens);
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

fn boxed(text: &str) -> Box<str> {
    // The string has no spare capacity, so this does not reallocate.
    memory::text(text).into_boxed_str()
}

/// Returns the leaves that have tokens, sorted by tokens. Of leaves with equal tokens, only the one
/// with the smallest name is returned.
pub fn sorted_leaves(descriptor: &Descriptor) -> Vec<&Leaf> {
    let mut leaves: Vec<&Leaf> =
        memory::with_room(descriptor.leaves.len()).unwrap_or_else(exhausted);
    leaves.extend(
        descriptor
            .leaves
            .iter()
            .filter(|leaf| !leaf.tokens.is_empty()),
    );
    // An unstable sort, since a stable one allocates, and the order of equal leaves does not
    // matter.
    leaves.sort_unstable_by(|a, b| (&a.tokens, &a.name).cmp(&(&b.tokens, &b.name)));
    leaves.dedup_by(|later, kept| later.tokens == kept.tokens);
    leaves
}

#[cfg(test)]
mod tests;
