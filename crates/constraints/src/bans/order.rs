//! The texts of a vocabulary, in the order of their bytes.

// In bounds: tokens and ranks are positions in arrays that never change.

use std::ops::Range;

use super::fold::{self, Pending, fold};
use crate::memory::{exhausted, push, reserve_exact, with_room};
use crate::token::Token;

/// A vocabulary's texts, as a user sees them.
pub trait ShownTexts {
    /// Returns the number of tokens; their ids begin at 0.
    fn n_tokens(&self) -> usize;

    /// Writes to `text`, which is empty, the bytes that `token` adds to the shown text: nothing for
    /// a control token or a token that ends a generation.
    fn shown(&self, token: Token, text: &mut Vec<u8>);
}

/// Texts stored one after the other.
#[derive(Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    /// The offset of each text, and the end of the last one.
    offsets: Vec<u32>,
}

impl Texts {
    fn with_room(n: usize) -> Self {
        let mut offsets = with_room(n + 1).unwrap_or_else(exhausted);
        offsets.push(0);
        Self {
            bytes: Vec::new(),
            offsets,
        }
    }

    fn push(&mut self, text: &[u8]) {
        if self.bytes.capacity() - self.bytes.len() < text.len() {
            let more = text.len().max(self.bytes.len());
            reserve_exact(&mut self.bytes, more).unwrap_or_else(exhausted);
        }
        self.bytes.extend_from_slice(text);
        push(&mut self.offsets, self.bytes.len() as u32);
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    #[inline]
    fn get(&self, i: usize) -> &[u8] {
        &self.bytes[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }
}

/// The texts of a vocabulary, and the order of their keys. A key is the text itself, or the folded
/// text.
#[derive(Debug)]
pub struct Order {
    /// The texts of tokens.
    texts: Texts,
    /// The folded texts of tokens; `None` if the texts are the keys.
    folded: Option<Texts>,
    /// The tokens that have a text, in the order of their keys.
    by_key: Vec<Token>,
    /// The index of each token in `by_key`; `u32::MAX` for a token without a text.
    ranks: Vec<u32>,
    /// The tokens whose texts may complete a character that an earlier token began.
    continues: Vec<Token>,
    longest: usize,
}

impl Order {
    /// Returns the order of a vocabulary's texts, or of the folded texts if `folds` is set.
    pub fn new(vocabulary: &dyn ShownTexts, folds: bool) -> Self {
        if folds {
            fold::make_ready();
        }
        let n = vocabulary.n_tokens();
        let mut texts = Texts::with_room(n);
        let mut folded = folds.then(|| Texts::with_room(n));
        let mut continues = Vec::new();
        let (mut text, mut key) = (Vec::new(), Vec::new());
        for token in 0..n as Token {
            text.clear();
            vocabulary.shown(token, &mut text);
            texts.push(&text);
            if let Some(folded) = &mut folded {
                key.clear();
                fold(&text, &mut key);
                folded.push(&key);
                if matches!(text.first(), Some(0x80..0xC0)) {
                    push(&mut continues, token);
                }
            }
        }
        let mut order = Self {
            texts,
            folded,
            by_key: Vec::new(),
            ranks: Vec::new(),
            continues,
            longest: 0,
        };
        order.sort();
        order
    }

    fn sort(&mut self) {
        let n = self.n_tokens();
        let mut by_key = with_room(n).unwrap_or_else(exhausted);
        by_key.extend((0..n as Token).filter(|&token| !self.key(token).is_empty()));
        by_key.sort_unstable_by_key(|&token| (self.key(token), token));
        let mut ranks = with_room(n).unwrap_or_else(exhausted);
        ranks.resize(n, u32::MAX);
        for (rank, &token) in (0..).zip(&by_key) {
            ranks[token as usize] = rank;
        }
        let lengths = by_key.iter().map(|&token| self.key(token).len());
        self.longest = lengths.max().unwrap_or(0);
        (self.by_key, self.ranks) = (by_key, ranks);
    }

    /// Returns the number of tokens of the vocabulary.
    pub fn n_tokens(&self) -> usize {
        self.texts.len()
    }

    /// True if the keys are folded texts.
    pub fn folds(&self) -> bool {
        self.folded.is_some()
    }

    /// Returns the text of a token of the vocabulary.
    #[inline]
    pub fn text(&self, token: Token) -> &[u8] {
        self.texts.get(token as usize)
    }

    /// Returns the key of a token of the vocabulary.
    #[inline]
    pub fn key(&self, token: Token) -> &[u8] {
        let keys = self.folded.as_ref().unwrap_or(&self.texts);
        keys.get(token as usize)
    }

    /// Returns the key of a banned text, which is folded if the keys of the tokens are.
    pub fn key_of(&self, text: &[u8]) -> Vec<u8> {
        if !self.folds() {
            return crate::memory::copied(text);
        }
        // The first character of a class has at most as many bytes as the others.
        let mut key = with_room(text.len()).unwrap_or_else(exhausted);
        fold(text, &mut key);
        key
    }

    /// Returns the ranks of the tokens whose keys begin with `beginning`.
    pub fn beginning_with(&self, beginning: &[u8]) -> Range<u32> {
        if beginning.len() > self.longest {
            return 0..0;
        }
        let first = self
            .by_key
            .partition_point(|&token| self.key(token) < beginning);
        let begin_so = |&token: &Token| self.key(token).starts_with(beginning);
        let n = self.by_key[first..].partition_point(begin_so);
        first as u32..(first + n) as u32
    }

    /// Returns the part of `ranks` whose keys have `byte` at the offset `at`. The keys of all
    /// `ranks` must be equal before that offset.
    pub fn narrowed(&self, ranks: Range<u32>, at: usize, byte: u8) -> Range<u32> {
        let tokens = &self.by_key[ranks.start as usize..ranks.end as usize];
        let byte_of = |token: Token| self.key(token).get(at).copied();
        let before = tokens.partition_point(|&token| byte_of(token) < Some(byte));
        let n = tokens[before..].partition_point(|&token| byte_of(token) == Some(byte));
        let first = ranks.start + before as u32;
        first..first + n as u32
    }

    /// Returns the number of tokens that have a text.
    pub fn n_ranks(&self) -> u32 {
        self.by_key.len() as u32
    }

    /// Returns the length of the longest key in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the tokens with these ranks.
    pub fn tokens(&self, ranks: Range<u32>) -> &[Token] {
        &self.by_key[ranks.start as usize..ranks.end as usize]
    }

    /// Returns the rank of a token, if it is in the vocabulary and has a text.
    #[inline]
    pub fn rank(&self, token: Token) -> Option<u32> {
        let rank = *self.ranks.get(usize::try_from(token).ok()?)?;
        (rank != u32::MAX).then_some(rank)
    }

    /// Returns the tokens that may complete a character that an earlier token began. Empty if the
    /// keys are not folded, since bytes are then compared.
    pub fn continues(&self) -> &[Token] {
        &self.continues
    }

    /// Appends the text of a token to `pending`, and calls `each` with every unit that is then
    /// complete: a byte, or, if keys are folded, a folded character.
    pub fn feed(&self, token: Token, pending: &mut Pending, mut each: impl FnMut(&[u8])) {
        let text = self.text(token);
        match self.folds() {
            true => pending.feed(text, each),
            false => text.chunks(1).for_each(&mut each),
        }
    }

    /// Returns the size of the order in bytes.
    pub fn bytes(&self) -> usize {
        let of = |texts: &Texts| texts.bytes.capacity() + 4 * texts.offsets.capacity();
        let tokens = self.by_key.capacity() + self.ranks.capacity() + self.continues.capacity();
        of(&self.texts) + self.folded.as_ref().map_or(0, of) + 4 * tokens
    }
}
