//! A vocabulary's texts, sorted out once per vocabulary.
//!
//! Tokens whose text is well-formed up to its end are in a [tree](Nodes). The few others are in two
//! lists and looked at one by one: those that begin within a character, and odd ones (overlong
//! forms, bytes that are taken for the rest of a character though they do not look like it).

#![expect(
    clippy::indexing_slicing,
    reason = "tokens and ranks are positions in arrays that never change"
)]

use crate::grammar::nodes::{Nodes, Sorted};
use crate::grammar::utf8::{Partial, counted, decode, lead};
use crate::memory::{exhausted, reserve_exact, with_room};
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

/// The texts of a vocabulary.
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
    nodes: Nodes,
}

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
        let mut keyed: Vec<(u64, u32)> = with_room(self.n_tokens).unwrap_or_else(exhausted);
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

    /// Makes the nodes, of texts that stand in the order of their ranks.
    fn link(&mut self) {
        let mut bytes = with_room(self.texts.len()).unwrap_or_else(exhausted);
        let mut offsets = with_room(self.ranked.len() + 1).unwrap_or_else(exhausted);
        offsets.push(0);
        for &token in &self.ranked {
            bytes.extend_from_slice(self.text(token as Token));
            offsets.push(bytes.len() as u32);
        }
        self.nodes = Nodes::new(&Sorted {
            bytes: &bytes,
            offsets: &offsets,
        });
    }

    /// How many tokens the vocabulary has.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
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

    /// The tree of the texts that are well-formed.
    #[inline]
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
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
                + self.rank_of.capacity())
            + self.nodes.bytes()
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
