//! The Aho-Corasick automaton of banned texts, with the tokens that complete a banned text.

// In bounds: nodes, edges and ranges are positions in arrays that never change.

use std::ops::Range;

use sha2::{Digest as _, Sha256};

use super::order::Order;
use crate::memory::{exhausted, push, with_room};

/// A state: the longest prefix of a banned text that is a suffix of the text so far.
pub type State = u32;
/// The state in which no banned text has begun.
pub const ROOT: State = 0;

#[derive(Debug)]
struct Node {
    /// The children of the node, in the order of their bytes.
    children: Range<u32>,
    /// The byte that leads to the node.
    byte: u8,
    /// The length of the node's text, in bytes and in characters.
    length: (u32, u32),
    /// The node whose text is the longest proper suffix of this node's text.
    fail: State,
    /// True if a banned text ends at this node.
    is_end: bool,
    /// True if a banned text ends at this node or at a node on its failure path.
    is_match: bool,
    /// The indices in [`Automaton::ranges`] of the ranks of the tokens that complete a banned text
    /// of which this node's text is a prefix.
    ranges: Range<u32>,
    /// The next node on the failure path that has ranges; the root if there is none.
    next: State,
}

impl Node {
    fn new(byte: u8, length: (u32, u32)) -> Self {
        Self {
            children: 0..0,
            byte,
            length,
            fail: ROOT,
            is_end: false,
            is_match: false,
            ranges: 0..0,
            next: ROOT,
        }
    }
}

/// The automaton.
#[derive(Debug)]
pub struct Automaton {
    nodes: Vec<Node>,
    /// The root's child for each byte; the root itself where there is none.
    first: Box<[State; 256]>,
    /// Ranges of ranks, ascending and disjoint for each node.
    ranges: Vec<Range<u32>>,
    /// The length of the longest text in units: in characters if texts are folded, and otherwise in
    /// bytes.
    longest: usize,
    counts_characters: bool,
    /// The first 8 bytes of a SHA-256 digest of the texts.
    digest: [u8; 8],
}

/// How a list of strings is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    /// Texts, perhaps folded.
    Text { is_folded: bool },
    /// Regular expressions.
    Pattern { ignores_case: bool },
}

/// Returns the first 8 bytes of the SHA-256 digest of `reading` and `keys`.
pub(super) fn digest_of(keys: &[Vec<u8>], reading: Reading) -> [u8; 8] {
    let mut digest = Sha256::new();
    digest.update([match reading {
        Reading::Text { is_folded } => u8::from(is_folded),
        Reading::Pattern { ignores_case } => 2 + u8::from(ignores_case),
    }]);
    for key in keys {
        digest.update((key.len() as u32).to_le_bytes());
        digest.update(key);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&digest.finalize()[..8]);
    first
}

impl Automaton {
    /// Returns the automaton of `texts`, none of which may be empty, for the vocabulary of `order`.
    pub fn new(texts: &[&[u8]], order: &Order) -> Self {
        let mut keys: Vec<Vec<u8>> = with_room(texts.len()).unwrap_or_else(exhausted);
        keys.extend(texts.iter().map(|text| order.key_of(text)));
        keys.sort_unstable();
        keys.dedup();
        let mut automaton = Self {
            nodes: Vec::new(),
            first: Box::new([ROOT; 256]),
            ranges: Vec::new(),
            longest: 0,
            counts_characters: order.folds(),
            digest: digest_of(
                &keys,
                Reading::Text {
                    is_folded: order.folds(),
                },
            ),
        };
        automaton.grow(&keys, order);
        automaton.link();
        let units = (0..automaton.nodes.len()).map(|node| automaton.units(node as State));
        automaton.longest = units.max().unwrap_or(0);
        automaton
    }

    /// Makes the nodes breadth first, so the children of each node are contiguous.
    fn grow(&mut self, keys: &[Vec<u8>], order: &Order) {
        push(&mut self.nodes, Node::new(0, (0, 0)));
        // For each node, the keys that begin with its text.
        let mut with = Vec::new();
        push(&mut with, 0..keys.len());
        let mut own = Vec::new();
        let mut state = 0;
        while state < self.nodes.len() {
            let mut here: Range<usize> = with[state].clone();
            let (n_bytes, n_characters) = self.nodes[state].length;
            let depth = n_bytes as usize;
            if keys[here.clone()]
                .first()
                .is_some_and(|key| key.len() == depth)
            {
                self.nodes[state].is_end = true;
                here.start += 1;
            }
            if depth > 0 {
                for key in &keys[here.clone()] {
                    push(&mut own, order.beginning_with(&key[depth..]));
                }
                self.nodes[state].ranges = self.keep(&mut own);
            }
            let first = self.nodes.len() as State;
            while !here.is_empty() {
                let byte = keys[here.start][depth];
                let n = keys[here.clone()].partition_point(|key| key[depth] == byte);
                let begins = u32::from(!matches!(byte, 0x80..0xC0));
                let length = (n_bytes + 1, n_characters + begins);
                push(&mut with, here.start..here.start + n);
                push(&mut self.nodes, Node::new(byte, length));
                here.start += n;
            }
            self.nodes[state].children = first..self.nodes.len() as State;
            state += 1;
        }
    }

    /// Merges the ranges in `own`, which may be nested, into the fewest disjoint ranges, and stores
    /// these. Returns their indices.
    fn keep(&mut self, own: &mut Vec<Range<u32>>) -> Range<u32> {
        own.retain(|range| !range.is_empty());
        own.sort_unstable_by_key(|range| (range.start, range.end));
        let first = self.ranges.len();
        for range in own.drain(..) {
            let has_own = self.ranges.len() > first;
            match self.ranges.last_mut().filter(|_| has_own) {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => push(&mut self.ranges, range),
            }
        }
        first as u32..self.ranges.len() as u32
    }

    /// Sets each node's failure link. Its target is nearer to the root and is therefore linked
    /// first.
    fn link(&mut self) {
        for child in self.nodes[ROOT as usize].children.clone() {
            self.first[usize::from(self.nodes[child as usize].byte)] = child;
        }
        for node in 0..self.nodes.len() {
            let fail = self.nodes[node].fail;
            for child in self.nodes[node].children.clone() {
                let byte = self.nodes[child as usize].byte;
                let fail = match node as State {
                    ROOT => ROOT,
                    _ => self.step(fail, byte),
                };
                let below = &self.nodes[fail as usize];
                let next = match below.ranges.is_empty() {
                    true => below.next,
                    false => fail,
                };
                let is_match = below.is_match;
                let node = &mut self.nodes[child as usize];
                (node.fail, node.next) = (fail, next);
                node.is_match = node.is_end || is_match;
            }
        }
    }

    /// Returns the state that a byte leads to from `state`.
    #[inline]
    pub fn step(&self, mut state: State, byte: u8) -> State {
        loop {
            if state == ROOT {
                return self.first[usize::from(byte)];
            }
            let node = &self.nodes[state as usize];
            let children = &self.nodes[node.children.start as usize..node.children.end as usize];
            let found = match children {
                [] => None,
                [only] => (only.byte == byte).then_some(0),
                _ => children
                    .binary_search_by_key(&byte, |child| child.byte)
                    .ok(),
            };
            match found {
                Some(place) => return node.children.start + place as u32,
                None => state = node.fail,
            }
        }
    }

    /// Returns the state that some bytes lead to from `state`.
    #[inline]
    pub fn run(&self, state: State, bytes: &[u8]) -> State {
        bytes
            .iter()
            .fold(state, |state, &byte| self.step(state, byte))
    }

    /// True if a banned text ends in this state.
    #[inline]
    pub fn is_match(&self, state: State) -> bool {
        self.nodes[state as usize].is_match
    }

    /// Returns the length of the longest text that ends in this state, in units; `None` if none
    /// does.
    pub fn ended(&self, mut state: State) -> Option<usize> {
        if !self.is_match(state) {
            return None;
        }
        while !self.nodes[state as usize].is_end {
            state = self.nodes[state as usize].fail;
        }
        Some(self.units(state))
    }

    /// Returns the number of states.
    pub fn n_states(&self) -> usize {
        self.nodes.len()
    }

    /// Returns, for each state, the length in units of the shortest banned text that begins with
    /// what the state has matched.
    pub fn shortest(&self) -> Vec<u32> {
        let mut shortest = with_room(self.nodes.len()).unwrap_or_else(exhausted);
        shortest.resize(self.nodes.len(), u32::MAX);
        // Children have higher indices than their parents.
        for (state, node) in self.nodes.iter().enumerate().rev() {
            let children = node.children.start as usize..node.children.end as usize;
            let below = shortest[children].iter().copied().min();
            shortest[state] = match node.is_end {
                true => self.units(state as State) as u32,
                false => below.unwrap_or(u32::MAX),
            };
        }
        shortest
    }

    /// True if texts are folded and the bytes that this state has matched end within a character.
    pub fn is_within_character(&self, state: State) -> bool {
        let children = self.children(state);
        self.counts_characters && children.clone().any(|(byte, _)| matches!(byte, 0x80..0xC0))
    }

    /// Returns the children of a state in the trie of banned texts, each with the byte that leads
    /// to it.
    pub fn children(&self, state: State) -> impl Iterator<Item = (u8, State)> + Clone {
        let children = self.nodes[state as usize].children.clone();
        children.map(|child| (self.nodes[child as usize].byte, child))
    }

    /// True if the bytes that this state has matched are a whole banned text.
    pub fn is_end(&self, state: State) -> bool {
        self.nodes[state as usize].is_end
    }

    /// Returns the states of all prefixes of banned texts that a text in this state ends with,
    /// longest first.
    pub fn suffixes(&self, state: State) -> impl Iterator<Item = State> + Clone {
        let of = |state: State| (state != ROOT).then_some(state);
        std::iter::successors(of(state), move |&state| of(self.nodes[state as usize].fail))
    }

    /// Returns the bytes that this state has matched.
    pub fn bytes_of(&self, mut state: State) -> Vec<u8> {
        let n = self.nodes[state as usize].length.0 as usize;
        let mut bytes = with_room(n).unwrap_or_else(exhausted);
        while state != ROOT {
            bytes.push(self.nodes[state as usize].byte);
            // Children are in the order of their parents.
            let is_before = |node: &Node| node.children.end <= state;
            state = self.nodes.partition_point(is_before) as State;
        }
        bytes.reverse();
        bytes
    }

    /// True if a banned text lies within `key`.
    pub fn has_match(&self, key: &[u8]) -> bool {
        let mut state = ROOT;
        key.iter().any(|&byte| {
            state = self.step(state, byte);
            self.is_match(state)
        })
    }

    /// Returns the length that this state has matched: in bytes, or in characters if texts are
    /// folded.
    pub fn units(&self, state: State) -> usize {
        let (bytes, characters) = self.nodes[state as usize].length;
        match self.counts_characters {
            true => characters as usize,
            false => bytes as usize,
        }
    }

    /// Returns the first 8 bytes of a digest that identifies the texts.
    pub fn digest(&self) -> &[u8] {
        &self.digest
    }

    /// Returns the length of the longest text, in units.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the prefixes of banned texts that a text in this state ends with, longest first, if
    /// one token can complete them. Each is returned as its length in units and the ranks of the
    /// tokens that complete a banned text.
    #[inline]
    pub fn begun(&self, state: State) -> impl Iterator<Item = (usize, &[Range<u32>])> + Clone {
        let of = |state: State| (state != ROOT).then_some(state);
        std::iter::successors(of(state), move |&state| of(self.nodes[state as usize].next))
            .filter_map(|state| {
                let ranges = self.nodes[state as usize].ranges.clone();
                let ranges = &self.ranges[ranges.start as usize..ranges.end as usize];
                (!ranges.is_empty()).then(|| (self.units(state), ranges))
            })
    }
}

#[cfg(test)]
mod tests;
