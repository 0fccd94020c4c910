//! A vocabulary's texts as a tree, made once per vocabulary.
//!
//! The nodes are bytes, depth first, so that what lies below a node is a range: of nodes, and of
//! tokens, which are ranked in the same order. A node where a character is complete knows it; one
//! in the midst of a character knows what its bytes say so far. Of each node it is known which
//! characters occur below, so that a state which takes them all takes the whole range.
//!
//! In the tree are the tokens whose text is well-formed up to its end. The few others are in two
//! lists and looked at one by one: those that begin within a character, and odd ones (overlong
//! forms, bytes that are taken for the rest of a character though they do not look like it).

#![expect(
    clippy::indexing_slicing,
    reason = "the tree's numbers are positions in its own arrays, which never change"
)]

use crate::grammar::utf8::{Partial, counted, decode, lead};
use crate::memory::{exhausted, reserve_exact};
use crate::token::Token;
use crate::vocabulary::Vocabulary;

/// What kind of text a token has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It ends a generation, whatever its text.
    EndOfGeneration,
    /// Its text is empty or begins with NUL: never allowed.
    Blank,
    /// It is in the tree.
    Ranked,
    /// It begins within a character.
    Continues,
    /// It can be decoded, but is not well-formed.
    Odd,
    /// It is no UTF-8 wherever it stands.
    Invalid,
}

/// A set of characters: a bit per ASCII character, and bit 0 for all others together.
pub type CharSet = u128;

/// The bit of a code point. (NUL is in no tree.)
pub fn char_bit(code_point: u32) -> CharSet {
    if code_point < 0x80 {
        1 << code_point
    } else {
        1
    }
}

/// What a node's byte says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This character is complete.
    Complete(u32),
    /// Part of a character.
    Within(Partial),
}

/// The tree. Node 0 is the root, which has no byte.
#[derive(Debug, Default)]
pub struct VocabularyTree {
    n_tokens: usize,
    texts: Vec<u8>,
    /// Where each token's text begins, and where the last one ends.
    offsets: Vec<u32>,
    /// The whole texts of tokens that have NUL in them, by token.
    with_nul: Vec<(Token, Box<[u8]>)>,
    kinds: Vec<Kind>,
    end_of_generation: Vec<Token>,
    continues: Vec<Token>,
    odd: Vec<Token>,
    /// Ranks to tokens.
    ranked: Vec<u32>,
    /// Tokens to ranks.
    rank_of: Vec<u32>,
    /// Bit per token: whether it is in the tree.
    in_tree: Vec<u64>,
    /// Per node: its byte's meaning, packed.
    steps: Vec<u32>,
    /// Per node: the first node behind what lies below it.
    ends: Vec<u32>,
    /// Per node, and one more: the first rank at it or below.
    first_ranks: Vec<u32>,
    /// Per node: the characters that occur below.
    below: Vec<CharSet>,
    /// Per node: the most characters that follow below, up to 255.
    heights: Vec<u8>,
}

/// Bit of a packed step that says: part of a character.
const WITHIN: u32 = 1 << 31;
const MISSING_SHIFT: u32 = 28;

impl VocabularyTree {
    /// The tree of a vocabulary's texts.
    pub fn new(vocabulary: &dyn Vocabulary) -> Self {
        let n_tokens = vocabulary.n_tokens();
        let mut tree = Self {
            n_tokens,
            in_tree: vec![0; n_tokens.div_ceil(64)],
            ..Self::default()
        };
        tree.read(vocabulary);
        tree.rank();
        tree.link();
        tree.summarise();
        tree
    }

    fn read(&mut self, vocabulary: &dyn Vocabulary) {
        let n = self.n_tokens;
        reserve_exact(&mut self.offsets, n + 1).unwrap_or_else(exhausted);
        reserve_exact(&mut self.kinds, n).unwrap_or_else(exhausted);
        let mut text = Vec::new();
        let mut chars = Vec::new();
        self.offsets.push(0);
        for token in 0..n as Token {
            vocabulary.written_out(token, &mut text);
            let kind = if vocabulary.is_eog(token) {
                Kind::EndOfGeneration
            } else {
                kind_of(counted(&text), &mut chars)
            };
            match kind {
                Kind::EndOfGeneration => self.end_of_generation.push(token),
                Kind::Continues => self.continues.push(token),
                Kind::Odd => self.odd.push(token),
                Kind::Blank | Kind::Ranked | Kind::Invalid => {}
            }
            self.kinds.push(kind);
            if counted(&text).len() < text.len() {
                self.with_nul.push((token, text.as_slice().into()));
            }
            self.texts.extend_from_slice(counted(&text));
            self.offsets.push(self.texts.len() as u32);
        }
        self.texts.shrink_to_fit();
    }

    /// Sorts the tokens by text. No text has NUL in it, so that shorter ones may be filled up with
    /// it for comparison.
    fn rank(&mut self) {
        let mut keyed: Vec<(u64, u32)> = Vec::new();
        reserve_exact(&mut keyed, self.n_tokens).unwrap_or_else(exhausted);
        for token in 0..self.n_tokens as u32 {
            if self.kinds[token as usize] == Kind::Ranked {
                let text = self.text(token as Token);
                let mut first = [0; 8];
                let n = text.len().min(8);
                first[..n].copy_from_slice(&text[..n]);
                keyed.push((u64::from_be_bytes(first), token));
            }
        }
        keyed.sort_unstable_by(|a, b| {
            let text = |token: u32| self.text(token as Token);
            a.0.cmp(&b.0)
                .then_with(|| text(a.1).cmp(text(b.1)))
                .then_with(|| a.1.cmp(&b.1))
        });
        self.ranked = keyed.iter().map(|&(_, token)| token).collect();
        self.rank_of = vec![u32::MAX; self.n_tokens];
        for (rank, &token) in self.ranked.iter().enumerate() {
            self.rank_of[token as usize] = rank as u32;
            self.in_tree[token as usize / 64] |= 1 << (token % 64);
        }
    }

    /// Makes the nodes.
    fn link(&mut self) {
        self.add_node(WITHIN, 0);
        // The nodes on the way to the text before, with their bytes.
        let mut path: Vec<(u32, u8)> = Vec::new();
        for rank in 0..self.ranked.len() {
            let token = self.ranked[rank] as usize;
            let (from, to) = (
                self.offsets[token] as usize,
                self.offsets[token + 1] as usize,
            );
            let text = &self.texts[from..to];
            let shared = text
                .iter()
                .zip(&path)
                .take_while(|(byte, node)| **byte == node.1);
            let shared = shared.count();
            for &(node, _) in &path[shared..] {
                self.ends[node as usize] = self.steps.len() as u32;
            }
            path.truncate(shared);
            for depth in shared..to - from {
                let byte = self.texts[from + depth];
                let parent = path
                    .last()
                    .map_or(WITHIN, |&(node, _)| self.steps[node as usize]);
                let node = self.steps.len() as u32;
                self.add_node(step_behind(parent, byte), rank as u32);
                path.push((node, byte));
            }
        }
        let n_nodes = self.steps.len() as u32;
        for (node, _) in path {
            self.ends[node as usize] = n_nodes;
        }
        self.ends[0] = n_nodes;
        self.first_ranks.push(self.ranked.len() as u32);
        self.steps.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.first_ranks.shrink_to_fit();
    }

    fn add_node(&mut self, step: u32, rank: u32) {
        self.steps.push(step);
        self.ends.push(0);
        self.first_ranks.push(rank);
    }

    /// From the last node to the first, each adds to its parent's summary; parents are found by
    /// going through the children of each node.
    fn summarise(&mut self) {
        let n = self.steps.len();
        self.below = vec![0; n];
        self.heights = vec![0; n];
        for node in (0..n).rev() {
            let (mut below, mut height) = (0, 0);
            let mut child = node + 1;
            while child < self.ends[node] as usize {
                let (bit, reach) = match self.step(child) {
                    Step::Complete(code_point) => {
                        (char_bit(code_point), self.heights[child].saturating_add(1))
                    }
                    // A token may end here, in the midst of one character.
                    Step::Within(_) => (char_bit(u32::MAX), self.heights[child].max(1)),
                };
                below |= bit | self.below[child];
                height = height.max(reach);
                child = self.ends[child] as usize;
            }
            self.below[node] = below;
            self.heights[node] = height;
        }
    }

    /// How many tokens the vocabulary has.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// How many nodes the tree has, the root included.
    pub fn n_nodes(&self) -> usize {
        self.steps.len()
    }

    /// What kind of text a token has; `None` if there is no such token.
    pub fn kind(&self, token: Token) -> Option<Kind> {
        self.kinds.get(usize::try_from(token).ok()?).copied()
    }

    /// The bytes of a token before the first NUL.
    pub fn text(&self, token: Token) -> &[u8] {
        let token = token as usize;
        &self.texts[self.offsets[token] as usize..self.offsets[token + 1] as usize]
    }

    /// All bytes of a token.
    pub fn piece(&self, token: Token) -> &[u8] {
        let with_nul = &self.with_nul;
        match with_nul.binary_search_by_key(&token, |&(other, _)| other) {
            Ok(place) => &with_nul[place].1,
            Err(_) => self.text(token),
        }
    }

    /// The tokens that end a generation.
    pub fn end_of_generation(&self) -> &[Token] {
        &self.end_of_generation
    }

    /// The tokens that begin within a character.
    pub fn continues(&self) -> &[Token] {
        &self.continues
    }

    /// The tokens that can be decoded, but are not well-formed.
    pub fn odd(&self) -> &[Token] {
        &self.odd
    }

    /// The tokens of the tree, by rank.
    pub fn ranked(&self) -> &[u32] {
        &self.ranked
    }

    /// The rank of a token in the tree.
    pub fn rank_of(&self, token: u32) -> Option<usize> {
        let rank = *self.rank_of.get(token as usize)?;
        (rank != u32::MAX).then_some(rank as usize)
    }

    /// Bit per token: whether it is in the tree.
    pub fn in_tree(&self) -> &[u64] {
        &self.in_tree
    }

    /// What a node's byte says.
    #[inline]
    pub fn step(&self, node: usize) -> Step {
        unpacked(self.steps[node])
    }

    /// The first node that is not below `node`.
    #[inline]
    pub fn end(&self, node: usize) -> usize {
        self.ends[node] as usize
    }

    /// The first rank at `node` or below; for one more than the last node, the number of ranks.
    #[inline]
    pub fn first_rank(&self, node: usize) -> usize {
        self.first_ranks[node] as usize
    }

    /// The characters that occur below `node`.
    #[inline]
    pub fn below(&self, node: usize) -> CharSet {
        self.below[node]
    }

    /// The most characters that follow below `node`, up to 255.
    #[inline]
    pub fn height(&self, node: usize) -> u8 {
        self.heights[node]
    }

    /// How many characters are complete in a token's text.
    pub fn n_chars(&self, token: u32) -> usize {
        let mut chars = Vec::new();
        decode(self.text(token as Token), Partial::default(), &mut chars);
        chars.len()
    }

    /// Bytes that the tree occupies.
    pub fn bytes(&self) -> usize {
        self.texts.capacity()
            + self.kinds.capacity()
            + self.with_nul.len() * size_of::<(Token, Box<[u8]>)>()
            + self
                .with_nul
                .iter()
                .map(|(_, text)| text.len())
                .sum::<usize>()
            + 8 * self.in_tree.capacity()
            + 4 * (self.offsets.capacity()
                + self.end_of_generation.capacity()
                + self.continues.capacity()
                + self.odd.capacity()
                + self.ranked.capacity()
                + self.rank_of.capacity()
                + self.steps.capacity()
                + self.ends.capacity()
                + self.first_ranks.capacity())
            + size_of::<CharSet>() * self.below.capacity()
            + self.heights.capacity()
    }
}

fn unpacked(packed: u32) -> Step {
    if packed & WITHIN == 0 {
        return Step::Complete(packed);
    }
    Step::Within(Partial {
        bits: packed & ((1 << MISSING_SHIFT) - 1),
        missing: ((packed >> MISSING_SHIFT) & 7) as i8,
    })
}

/// What `byte` says behind the byte of a node with the step `parent`. The root counts as part of a
/// character of which nothing is to come.
fn step_behind(parent: u32, byte: u8) -> u32 {
    let (value, missing) = match unpacked(parent) {
        Step::Within(partial) if partial.missing > 0 => (
            (partial.bits << 6) + u32::from(byte & 0x3F),
            partial.missing - 1,
        ),
        _ => {
            let (mask, n_more) = lead(byte).unwrap_or((0x7F, 0));
            (u32::from(byte & mask), n_more)
        }
    };
    match missing {
        0 => value,
        n => WITHIN | ((n as u32) << MISSING_SHIFT) | value,
    }
}

fn kind_of(text: &[u8], chars: &mut Vec<u32>) -> Kind {
    match text.first() {
        None => return Kind::Blank,
        Some(0x80..0xC0) => return Kind::Continues,
        Some(_) => {}
    }
    let end = decode(text, Partial::default(), chars);
    if end.missing < 0 {
        return Kind::Invalid;
    }
    match is_well_formed(text, chars, end) {
        true => Kind::Ranked,
        false => Kind::Odd,
    }
}

/// Whether every byte is what it is taken for, and no character is longer than it needs to be, as
/// far as ASCII is concerned.
fn is_well_formed(text: &[u8], chars: &[u32], end: Partial) -> bool {
    let mut missing = 0;
    let mut chars = chars.iter();
    for &byte in text {
        let is_rest = byte >> 6 == 2;
        if is_rest != (missing > 0) {
            return false;
        }
        missing = match missing {
            0 => lead(byte).map_or(0, |(_, n_more)| n_more),
            n => n - 1,
        };
        if missing == 0 {
            let ascii = chars.next().is_some_and(|&code_point| code_point < 0x80);
            if ascii == is_rest {
                return false;
            }
        }
    }
    end.missing != 1 || end.bits >= 2
}
