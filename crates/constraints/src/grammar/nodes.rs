//! The texts of a vocabulary as a trie over bytes.
//!
//! The tokens below a node have consecutive *ranks*, their numbers in the order of their texts. A
//! node whose byte completes a character stores that character; a node within a character stores
//! the bits so far. The children of a node are contiguous, followed by their descendants, child by
//! child. A walk that skips most children therefore reads little memory, and in order. Each node
//! records, roughly, which characters occur below it: if a state accepts them all, it accepts the
//! whole range of tokens below.

// In bounds: the numbers of nodes are positions in arrays that never change.

use std::ops::Range;

use crate::grammar::utf8::{Partial, lead};

/// A set of characters: a bit per ASCII character, and bit 0 for all others together.
pub type CharSet = u128;

/// The control characters from U+0001 to U+001F.
pub const CONTROLS: CharSet = 0xFFFF_FFFE;

/// Returns the bit of a code point. Bit 0 is free for characters beyond ASCII, since no tree
/// contains NUL.
pub fn char_bit(code_point: u32) -> CharSet {
    1 << label(code_point)
}

/// Returns the index of a code point's bit.
fn label(code_point: u32) -> u8 {
    if code_point < 0x80 {
        code_point as u8
    } else {
        0
    }
}

/// The index of the root node, which has no byte.
pub const ROOT: usize = 0;

/// The character, or part of a character, that a node's byte completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A complete character.
    Complete(u32),
    /// Part of a character.
    Within(Partial),
}

/// The *kinds* of characters. Most states accept all characters of a kind or none, so a set of
/// kinds is enough to describe the texts below a node. Characters beyond ASCII are the first kind.
const KINDS: [&[u8]; 29] = [
    b"",
    b"abcdef",
    b"ghijklmnopqrstuvwxyz",
    b"ABCDEF",
    b"GHIJKLMNOPQRSTUVWXYZ",
    b"0123456789",
    b" ",
    b"\n",
    b"\t",
    b"\r",
    b"\"",
    b"\\",
    b"_",
    b"-",
    b"<",
    b">",
    b"{}",
    b"[]",
    b"()",
    b",",
    b".",
    b":",
    b"/",
    b"'",
    b"=",
    b"+*",
    b";",
    b"!#$%&?@^`|~",
    CONTROL,
];

const CONTROL: &[u8] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
    30, 31, 127,
];

/// The kind of each ASCII character; index 0 is for all other characters.
const KIND_OF: [u8; 128] = {
    let mut kinds = [0; 128];
    let mut kind = 1;
    while kind < KINDS.len() {
        let mut i = 0;
        while i < KINDS[kind].len() {
            kinds[KINDS[kind][i] as usize] = kind as u8;
            i += 1;
        }
        kind += 1;
    }
    kinds
};

/// The characters of each kind.
const SETS: [CharSet; KINDS.len()] = {
    let mut sets = [0; KINDS.len()];
    let mut i = 0;
    while i < 128 {
        sets[KIND_OF[i] as usize] |= 1 << i;
        i += 1;
    }
    sets
};

/// A set of kinds of characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// Returns the kinds whose characters are all in `set`.
    pub fn within(set: CharSet) -> Self {
        let (mut kinds, mut left) = (0, set);
        while left != 0 {
            let kind = KIND_OF[left.trailing_zeros() as usize];
            let all = SETS[usize::from(kind)];
            kinds |= u32::from(all & !set == 0) << kind;
            left &= !all;
        }
        Self(kinds)
    }

    /// True if the set has no kinds.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns all characters of these kinds.
    pub fn characters(self) -> CharSet {
        let sets = SETS.iter().enumerate();
        let sets = sets.filter(|(kind, _)| self.0 >> kind & 1 != 0);
        sets.fold(0, |all, (_, set)| all | set)
    }

    /// True if every kind of this set is in `other`.
    #[inline]
    pub fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

/// A summary of texts.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// The kinds of the characters in the texts.
    pub kinds: Kinds,
    /// The number of characters of the longest text; `None` if more than 254.
    pub height: Option<u32>,
}

/// Marks a height of more than 254, which is not stored.
const HIGH: u8 = u8::MAX;

/// A node of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// From the lowest bit: the character, or its bits so far (22 bits); the number of its bytes
    /// still to come (2); the number of children (8).
    packed: u32,
    first_child: u32,
    first_rank: u32,
    /// The kinds of the characters below the node.
    kinds: Kinds,
}

const VALUE_BITS: u32 = 22;
const MISSING_BITS: u32 = 2;

impl Node {
    /// Returns the character, or part of a character, that the node's byte completes.
    #[inline]
    pub fn step(&self) -> Step {
        let value = self.packed & ((1 << VALUE_BITS) - 1);
        match self.packed >> VALUE_BITS & ((1 << MISSING_BITS) - 1) {
            0 => Step::Complete(value),
            missing => Step::Within(Partial {
                bits: value,
                missing: missing as i8,
            }),
        }
    }

    /// Returns the indices of the node's children.
    #[inline]
    pub fn children(&self) -> Range<usize> {
        let first = self.first_child as usize;
        first..first + (self.packed >> (VALUE_BITS + MISSING_BITS)) as usize
    }

    /// Returns the first rank at the node or below it.
    #[inline]
    pub fn first_rank(&self) -> usize {
        self.first_rank as usize
    }
}

/// The tree.
#[derive(Debug, Default)]
pub struct Nodes {
    all: Vec<Node>,
    /// For each node, the index of its [`char_bit`]; 0 also for parts of characters.
    labels: Vec<u8>,
    /// For each node, the maximum number of characters that follow it in a text, or [`HIGH`].
    heights: Vec<u8>,
    /// For each node, the length of the chain below it: nodes that are only children, all with the
    /// same ASCII character, and with consecutive numbers.
    chains: Vec<u8>,
    /// If each text has a control character: for each node, the kinds of the characters below it
    /// that precede the first control character, or all kinds if the path to the node contains one.
    /// Otherwise empty.
    before_controls: Vec<Kinds>,
    first_rank: usize,
    end: usize,
}

/// Sorted texts, none of which is empty, contains NUL, or is malformed.
pub struct Sorted<'a> {
    /// The bytes of all texts, one after the other.
    pub bytes: &'a [u8],
    /// The offset of each text, and the end of the last one.
    pub offsets: &'a [u32],
    /// The rank of the first text.
    pub first_rank: usize,
    /// True if each text has a control character.
    pub have_controls: bool,
}

impl Sorted<'_> {
    fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    fn byte(&self, rank: usize, depth: usize) -> Option<u8> {
        let at = self.offsets[rank] as usize + depth;
        (at < self.offsets[rank + 1] as usize).then(|| self.bytes[at])
    }
}

impl Nodes {
    /// Returns the tree of `texts`.
    pub fn new(texts: &Sorted<'_>) -> Self {
        let mut nodes = Self {
            first_rank: texts.first_rank,
            end: texts.first_rank + texts.len(),
            ..Self::default()
        };
        nodes.link(texts);
        nodes.summarise();
        if texts.have_controls {
            nodes.find_controls();
        }
        nodes.all.shrink_to_fit();
        nodes.labels.shrink_to_fit();
        nodes
    }

    fn link(&mut self, texts: &Sorted<'_>) {
        self.add(Step::Complete(0), 0);
        // Nodes, each with its depth in bytes and the ranks at and below it.
        let mut pending = vec![(ROOT, 0, 0..texts.len())];
        while let Some((node, depth, mut ranks)) = pending.pop() {
            while !ranks.is_empty() && texts.byte(ranks.start, depth).is_none() {
                ranks.start += 1;
            }
            let (first_child, n_pending) = (self.all.len(), pending.len());
            while let Some(byte) = ranks.clone().next().and_then(|i| texts.byte(i, depth)) {
                let same = ranks.clone();
                let same = same.take_while(|&i| texts.byte(i, depth) == Some(byte));
                let below = ranks.start..ranks.start + same.count();
                ranks.start = below.end;
                let child = self.add(behind(self.all[node].step(), byte), below.start);
                pending.push((child, depth + 1, below));
            }
            let n_children = self.all.len() - first_child;
            self.all[node].first_child = first_child as u32;
            self.all[node].packed |= (n_children as u32) << (VALUE_BITS + MISSING_BITS);
            pending[n_pending..].reverse();
        }
    }

    fn add(&mut self, step: Step, first_rank: usize) -> usize {
        let (value, missing, label) = match step {
            Step::Complete(code_point) => (code_point, 0, label(code_point)),
            Step::Within(partial) => (partial.bits, partial.missing as u32, 0),
        };
        self.labels.push(label);
        self.all.push(Node {
            packed: value | missing << VALUE_BITS,
            first_child: 0,
            first_rank: (self.first_rank + first_rank) as u32,
            kinds: Kinds::default(),
        });
        self.all.len() - 1
    }

    /// Computes heights, kinds and chains, from the last node to the first, since children come
    /// after their parents.
    fn summarise(&mut self) {
        self.heights = vec![0; self.all.len()];
        self.chains = vec![0; self.all.len()];
        for node in (0..self.all.len()).rev() {
            let (mut kinds, mut tallest) = (0, 0_u8);
            for child in self.all[node].children() {
                let height = self.heights[child];
                let reach = match self.all[child].step() {
                    Step::Complete(_) => height.saturating_add(1),
                    // A token may end at this child, within a character.
                    Step::Within(_) => height.max(1),
                };
                kinds |= self.all[child].kinds.0 | 1 << KIND_OF[self.labels[child] as usize];
                tallest = tallest.max(reach);
            }
            self.heights[node] = tallest;
            self.all[node].kinds = Kinds(kinds);
            self.chains[node] = self.chain_from(node);
        }
    }

    fn find_controls(&mut self) {
        let is_control = |label: u8| CONTROLS >> label & 1 != 0;
        let mut is_behind = vec![false; self.all.len()];
        for node in 0..self.all.len() {
            for child in self.all[node].children() {
                is_behind[child] = is_behind[node] || is_control(self.labels[child]);
            }
        }
        self.before_controls = vec![Kinds(u32::MAX); self.all.len()];
        for node in (0..self.all.len()).rev().filter(|&node| !is_behind[node]) {
            let children = self.all[node].children();
            let before = children.filter(|&child| !is_behind[child]);
            let kinds = before.fold(0, |kinds, child| {
                let own = 1 << KIND_OF[self.labels[child] as usize];
                kinds | own | self.before_controls[child].0
            });
            self.before_controls[node] = Kinds(kinds);
        }
    }

    fn chain_from(&self, node: usize) -> u8 {
        let children = self.all[node].children();
        let label = |node: usize| self.labels[node];
        if children.len() != 1 || label(children.start) == 0 {
            return 0;
        }
        let child = children.start;
        let goes_on = self.chains[child] > 0 && label(child + 1) == label(child);
        1 + match goes_on {
            true => self.chains[child].min(u8::MAX - 1),
            false => 0,
        }
    }

    /// Returns the kind of the character in the chain below a node, and the length of the chain.
    /// The nodes of the chain have consecutive numbers, beginning with the node's child.
    #[inline]
    pub fn chain(&self, node: usize) -> (Kinds, usize) {
        let n = self.chains[node];
        if n == 0 {
            return (Kinds::default(), 0);
        }
        let label = self.labels[self.all[node].first_child as usize];
        (Kinds(1 << KIND_OF[label as usize]), n.into())
    }

    /// Returns a summary of the texts below a node.
    #[inline]
    pub fn summary(&self, node: usize) -> Summary {
        let height = self.heights[node];
        Summary {
            kinds: self.all[node].kinds,
            height: (height != HIGH).then_some(height.into()),
        }
    }

    /// Returns a summary of the texts below a node: the kinds of their characters up to the first
    /// control character, and the height of the whole texts. Returns `None` unless each text of the
    /// tree has a control character.
    #[inline]
    pub fn before_controls(&self, node: usize) -> Option<Summary> {
        let kinds = *self.before_controls.get(node)?;
        Some(Summary {
            kinds,
            ..self.summary(node)
        })
    }

    /// Returns the ranks of all texts.
    pub fn ranks(&self) -> Range<usize> {
        self.first_rank..self.end
    }

    /// Returns the rank after those of all texts.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Returns the node with the index `node`.
    #[inline]
    pub fn at(&self, node: usize) -> &Node {
        &self.all[node]
    }

    /// Returns the first of `children` whose character is in `set`.
    #[inline]
    pub fn next_in(&self, children: Range<usize>, set: CharSet) -> Option<usize> {
        let start = children.start;
        let labels = &self.labels[children];
        let found = labels.iter().position(|&label| set >> label & 1 != 0);
        found.map(|place| start + place)
    }

    /// Returns the first rank after those at `child` and below it. `children` are `child` and its
    /// siblings, and `end` is the first rank after all of these.
    #[inline]
    pub fn end_of(&self, child: usize, children: &Range<usize>, end: usize) -> usize {
        match child + 1 < children.end {
            true => self.all[child + 1].first_rank(),
            false => end,
        }
    }

    /// Returns the first rank after those at the node itself. `end` is the first rank after those
    /// at the node and below it.
    #[inline]
    pub fn end_of_own(&self, node: &Node, end: usize) -> usize {
        let children = node.children();
        match children.is_empty() {
            true => end,
            false => self.all[children.start].first_rank(),
        }
    }

    /// Returns the size of the tree in bytes.
    pub fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<Node>()
            + self.labels.capacity()
            + self.heights.capacity()
            + self.chains.capacity()
            + self.before_controls.capacity() * size_of::<Kinds>()
    }
}

/// Returns the step to a child with `byte` from its parent's step. After a complete character, and
/// at the root, a new character begins.
fn behind(parent: Step, byte: u8) -> Step {
    let (bits, missing) = match parent {
        Step::Within(partial) => (
            (partial.bits << 6) + u32::from(byte & 0x3F),
            partial.missing - 1,
        ),
        Step::Complete(_) => {
            let (mask, n_more) = lead(byte).unwrap_or((0x7F, 0));
            (u32::from(byte & mask), n_more)
        }
    };
    match missing {
        0 => Step::Complete(bits),
        _ => Step::Within(Partial { bits, missing }),
    }
}

#[cfg(test)]
mod tests;
