//! Classifies and sorts the texts of a vocabulary, once per vocabulary.
//!
//! Tokens with a well-formed text, which may end within a character, are in [trees](Nodes) for each
//! band of lengths. For a band, a repetition counts as unbounded if it has more rounds left than
//! the longest token of the band has characters. The few other tokens that a text can match are in
//! two lists, and are tested one at a time: tokens that begin within a character, and odd tokens
//! (overlong forms, surrogates, and bytes that are read as the rest of a character but are not
//! continuation bytes).

// In bounds: tokens and ranks are positions in arrays that never change.

use crate::grammar::nodes::{Nodes, Sorted};
use crate::grammar::utf8::{Partial, begins_a_text, counted, decode};
use crate::memory::{exhausted, reserve_exact, with_room};
use crate::token::Token;

/// The texts of a vocabulary's tokens, as a grammar reads them.
pub trait TokenTexts {
    /// Returns the number of tokens; they are numbered from 0.
    fn n_tokens(&self) -> usize;

    /// True if `token` ends a generation.
    fn is_eog(&self, token: Token) -> bool;

    /// Writes the text of `token` to `piece`; for a control token, its name.
    fn written_out(&self, token: Token, piece: &mut Vec<u8>);
}

/// The kind of a token's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The token ends a generation, whatever its text.
    EndOfGeneration,
    /// The text is empty or begins with NUL. Such a token is never allowed.
    Blank,
    /// The token is in a tree of its band.
    Ranked,
    /// The text begins within a character.
    Continues,
    /// The text can be decoded, but is not well-formed.
    Odd,
    /// The text cannot be decoded, whatever text precedes it.
    Invalid,
}

/// The texts of a vocabulary.
#[derive(Debug, Default)]
pub struct VocabularyTree {
    n_tokens: usize,
    texts: Vec<u8>,
    /// The offset of each token's text, and the end of the last one.
    offsets: Vec<u32>,
    /// The tokens whose texts contain NUL, each with its whole text.
    with_nul: Vec<(Token, Box<[u8]>)>,
    kinds: Vec<Kind>,
    end_of_generation: Vec<Token>,
    continues: Vec<Token>,
    odd: Vec<Token>,
    bands: Vec<Band>,
    /// For each token, its rank within its band.
    rank_of: Vec<u32>,
    /// For each token, its band.
    band_of: Vec<u8>,
    most_chars: usize,
}

/// The maximum number of characters of a token in each band. One more band has all longer tokens.
const ENDS: [usize; 3] = [8, 16, 48];

/// A band: the tokens with lengths in some range.
#[derive(Debug, Default)]
pub struct Band {
    /// The maximum number of characters of a token, including an unfinished character.
    pub most_chars: usize,
    /// The tokens by rank: in the order of `Marks`, and then of their texts.
    pub ranked: Vec<u32>,
    /// The number of characters of each token, by rank, including an unfinished character; 255 if
    /// there are more than 254.
    pub n_chars: Vec<u8>,
    /// The trees of the texts, one for each of the `Marks` that occur.
    pub trees: Vec<Nodes>,
    /// For each tree a bitmap of the tokens in it.
    pub has: Vec<Vec<u64>>,
}

/// Groups texts by their first quotation mark, backslash, DEL or control character, none of which a
/// JSON string has unescaped in llama.cpp's grammars. Most states accept all or none of the texts
/// without such a character, and none of those in which a control character comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Marks {
    Nothing,
    Quotes,
    Controls,
}

impl Marks {
    fn of(text: &[u8]) -> Self {
        let marks = text.iter().filter_map(|byte| match byte {
            0..0x20 => Some(Self::Controls),
            b'"' | b'\\' | 0x7F => Some(Self::Quotes),
            _ => None,
        });
        marks.into_iter().next().unwrap_or(Self::Nothing)
    }
}

impl Band {
    fn bytes(&self) -> usize {
        let trees = self.trees.iter().map(Nodes::bytes);
        4 * self.ranked.capacity()
            + self.n_chars.capacity()
            + 8 * self.has.iter().map(Vec::capacity).sum::<usize>()
            + trees.sum::<usize>()
    }
}

impl VocabularyTree {
    /// Returns the tree of a vocabulary's texts.
    pub fn new(vocabulary: &dyn TokenTexts) -> Self {
        let n_tokens = vocabulary.n_tokens();
        let mut tree = Self {
            n_tokens,
            ..Self::default()
        };
        tree.read(vocabulary);
        tree.rank();
        tree.link();
        tree
    }

    fn read(&mut self, vocabulary: &dyn TokenTexts) {
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

    /// Sorts the tokens by marks and text, and divides them into bands. Texts are padded with NUL
    /// for comparison, since none contains it.
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
        keyed.sort_by_cached_key(|&(_, token)| Marks::of(self.text(token as Token)));
        self.rank_of = vec![u32::MAX; self.n_tokens];
        self.band_of = vec![0; self.n_tokens];
        self.bands.resize_with(ENDS.len() + 1, Band::default);
        let mut chars = Vec::new();
        for (_, token) in keyed {
            let end = decode(self.text(token as Token), Partial::default(), &mut chars);
            let n_chars = chars.len() + usize::from(end.is_pending());
            let number = ENDS.iter().filter(|&&end| end < n_chars).count();
            let band = &mut self.bands[number];
            self.rank_of[token as usize] = band.ranked.len() as u32;
            self.band_of[token as usize] = number as u8;
            band.most_chars = band.most_chars.max(n_chars);
            band.ranked.push(token);
            band.n_chars.push(u8::try_from(n_chars).unwrap_or(u8::MAX));
        }
        // For tokens in no tree, the number of bytes is an upper bound on the number of characters.
        let others = self.continues.iter().chain(&self.odd);
        let in_others = others.map(|&token| self.text(token).len());
        let in_bands = self.bands.iter().map(|band| band.most_chars);
        self.most_chars = in_others.chain(in_bands).max().unwrap_or(0);
    }

    /// Builds the trees from the texts in the order of their ranks.
    fn link(&mut self) {
        let mut bands = std::mem::take(&mut self.bands);
        let text = |token: u32| self.text(token as Token);
        for band in &mut bands {
            let mut first_rank = 0;
            let alike = |&a: &u32, &b: &u32| Marks::of(text(a)) == Marks::of(text(b));
            for tokens in band.ranked.chunk_by(alike) {
                let n_bytes = tokens.iter().map(|&token| text(token).len());
                let mut bytes = with_room(n_bytes.sum()).unwrap_or_else(exhausted);
                let mut has = vec![0; self.n_tokens.div_ceil(64)];
                let mut offsets = with_room(tokens.len() + 1).unwrap_or_else(exhausted);
                offsets.push(0);
                for &token in tokens {
                    has[token as usize / 64] |= 1 << (token % 64);
                    bytes.extend_from_slice(text(token));
                    offsets.push(bytes.len() as u32);
                }
                band.trees.push(Nodes::new(&Sorted {
                    bytes: &bytes,
                    offsets: &offsets,
                    first_rank,
                    have_controls: tokens.first().map(|&token| Marks::of(text(token)))
                        == Some(Marks::Controls),
                }));
                band.has.push(has);
                first_rank += tokens.len();
            }
            band.ranked.shrink_to_fit();
            band.n_chars.shrink_to_fit();
        }
        self.bands = bands;
    }

    /// Returns the number of tokens of the vocabulary.
    #[inline]
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Returns the kind of a token's text; `None` if there is no such token.
    #[inline]
    pub fn kind(&self, token: Token) -> Option<Kind> {
        self.kinds.get(usize::try_from(token).ok()?).copied()
    }

    /// Returns the bytes of a token before the first NUL.
    #[inline]
    pub fn text(&self, token: Token) -> &[u8] {
        let token = token as usize;
        &self.texts[self.offsets[token] as usize..self.offsets[token + 1] as usize]
    }

    /// Returns all bytes of a token.
    pub fn piece(&self, token: Token) -> &[u8] {
        let with_nul = &self.with_nul;
        match with_nul.binary_search_by_key(&token, |&(other, _)| other) {
            Ok(place) => &with_nul[place].1,
            Err(_) => self.text(token),
        }
    }

    /// Returns the tokens that end a generation.
    pub fn end_of_generation(&self) -> &[Token] {
        &self.end_of_generation
    }

    /// Returns the tokens that begin within a character.
    pub fn continues(&self) -> &[Token] {
        &self.continues
    }

    /// Returns the tokens that can be decoded, but are not well-formed.
    pub fn odd(&self) -> &[Token] {
        &self.odd
    }

    /// Returns the tokens in bands, the shortest first.
    pub fn bands(&self) -> &[Band] {
        &self.bands
    }

    /// Returns the rank of a token in a band, if it is in that band.
    pub fn rank_in(&self, band: usize, token: u32) -> Option<usize> {
        let rank = *self.rank_of.get(token as usize)?;
        let is_in = rank != u32::MAX && usize::from(self.band_of[token as usize]) == band;
        is_in.then_some(rank as usize)
    }

    /// Returns the maximum number of characters of a token, including an unfinished character.
    pub fn most_chars(&self) -> usize {
        self.most_chars
    }

    /// Returns the number of complete characters in a token's text.
    pub fn n_chars(&self, token: u32) -> usize {
        let mut chars = Vec::new();
        decode(self.text(token as Token), Partial::default(), &mut chars);
        chars.len()
    }

    /// Returns the size of the tree in bytes.
    pub fn bytes(&self) -> usize {
        self.texts.capacity()
            + self.kinds.capacity()
            + self.with_nul.len() * size_of::<(Token, Box<[u8]>)>()
            + self
                .with_nul
                .iter()
                .map(|(_, text)| text.len())
                .sum::<usize>()
            + self.band_of.capacity()
            + self.bands.iter().map(Band::bytes).sum::<usize>()
            + 4 * (self.offsets.capacity()
                + self.end_of_generation.capacity()
                + self.continues.capacity()
                + self.odd.capacity()
                + self.rank_of.capacity())
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
    match begins_a_text(text) {
        true => Kind::Ranked,
        false => Kind::Odd,
    }
}
