//! Tokens of a vocabulary that distinguish the meanings of grammars: single characters, tokens that
//! end within a character or continue one, texts of several characters, and tokens without a text.

use crate::grammar::VocabularyTree;
use crate::grammar::utf8::lead;
use crate::grammar::vocabulary_tree::Kind;
use crate::random::HashSet;
use crate::token::{Token, TokenData};

/// The maximum number of candidates that both grammars test one by one, without the mask of the
/// whole vocabulary.
const CHUNK: usize = 96;

/// Characters beyond ASCII with which the grammars are tested.
const CHARACTERS: [&str; 12] = [
    "é", "ÿ", "ß", "à", "Ā", "€", "₯", "’", "中", "\u{fffd}", "😀", "😏",
];

/// The maximum number of bytes of a token's text, unless it ends the generation. llama.cpp matches
/// a text recursively and tries all derivations, so long texts are costly.
const LONGEST: usize = 32;

/// The maximum number of tokens that [`Found::long()`] keeps.
const MOST_LONG: usize = 64;
/// Tokens that end within a character or continue one are chosen by their first byte: one byte in
/// this many is represented by such a token. The lead bytes of [`CHARACTERS`] always are.
const ONE_PART_IN: usize = 3;
/// The maximum number of tokens that end the generation, of texts in angle brackets, and of tokens
/// of each kind that [`Found::other`] counts.
const MOST_OF_A_KIND: usize = 6;
/// The length of the longest text with which the remaining length is measured.
pub(super) const RULER: usize = 16;

/// The tokens of a vocabulary with which grammars are compared.
#[derive(Debug)]
pub(super) struct Samples {
    /// All candidates.
    pub(super) all: Vec<TokenData>,
    /// Candidates that measure how many characters are still allowed: the first of the letters,
    /// texts of two characters, of three, and so on, and a token that ends the generation.
    pub(super) ruler: Vec<TokenData>,
    /// The tokens whose text is one ASCII character, by that character.
    singles: [Option<Token>; 128],
    /// Four letters, with their tokens.
    pub(super) letters: Option<[(char, Token); 4]>,
    /// A text of several letters, perhaps after a blank, and its token.
    pub(super) word: Option<(String, Token)>,
    /// Texts in angle brackets, each of which may be one token.
    pub(super) in_brackets: Vec<Vec<u8>>,
    /// The tokens that end the generation.
    ends: Vec<Token>,
    /// The tokens that end within a character, or continue one.
    partial: Vec<Token>,
}

impl Samples {
    pub(super) fn of(tree: &VocabularyTree) -> Self {
        let mut found = Found::default();
        for token in 0..tree.n_tokens() as Token {
            found.look(tree, token);
        }
        found.samples(tree.n_tokens())
    }

    /// Returns the candidates in parts small enough to be tested one by one.
    pub(super) fn chunks(data: &mut [TokenData]) -> impl Iterator<Item = &mut [TokenData]> {
        data.chunks_mut(CHUNK)
    }

    /// Returns the token whose text is `character`, if there is one.
    pub(super) fn single(&self, character: char) -> Option<Token> {
        self.singles.get(character as usize).copied().flatten()
    }

    /// Returns the tokens of a text, one for each character; `None` if a character is not a token.
    pub(super) fn spelt(&self, text: &str) -> Option<Vec<Token>> {
        text.chars()
            .map(|character| self.single(character))
            .collect()
    }

    /// Returns true if the token ends the generation.
    pub(super) fn ends(&self, token: Token) -> bool {
        self.ends.contains(&token)
    }

    /// Returns true if the token's text is one ASCII character.
    pub(super) fn is_character(&self, token: Token) -> bool {
        self.singles.contains(&Some(token))
    }

    pub(super) fn is_partial(&self, token: Token) -> bool {
        self.partial.contains(&token)
    }
}

/// Returns a candidate for the token, with a logit that differs from those of the tokens next to
/// it.
pub(super) fn candidate(id: Token) -> TokenData {
    let logit = (id % 17) as f32 - 3.5;
    TokenData::new(id, logit)
}

/// The samples found so far.
struct Found {
    singles: [Option<Token>; 128],
    /// The shortest text that begins with each ASCII character: its length, and its token.
    begins: [Option<(usize, Token)>; 128],
    characters: [Option<Token>; CHARACTERS.len()],
    /// Tokens that begin a character, by its lead byte, and tokens that continue one, by their
    /// first byte.
    partial: [Option<Token>; 256],
    ends: Vec<Token>,
    others: Vec<Token>,
    n_of_kind: [usize; 4],
    long: Vec<Token>,
    n_long: usize,
    lengths: [Option<Token>; RULER],
    word: Option<(String, Token)>,
    in_brackets: Vec<(Vec<u8>, Token)>,
}

impl Default for Found {
    fn default() -> Self {
        Self {
            singles: [None; 128],
            begins: [None; 128],
            characters: [None; CHARACTERS.len()],
            partial: [None; 256],
            ends: Vec::new(),
            others: Vec::new(),
            n_of_kind: [0; 4],
            long: Vec::new(),
            n_long: 0,
            lengths: [None; RULER],
            word: None,
            in_brackets: Vec::new(),
        }
    }
}

impl Found {
    fn look(&mut self, tree: &VocabularyTree, token: Token) {
        let text = tree.text(token);
        let Some(&first) = text.first() else {
            return self.other(0, token);
        };
        if text.len() > LONGEST && tree.kind(token) != Some(Kind::EndOfGeneration) {
            return;
        }
        match tree.kind(token) {
            Some(Kind::EndOfGeneration) => {
                if self.ends.len() < MOST_OF_A_KIND {
                    self.ends.push(token);
                }
            }
            Some(Kind::Ranked) => self.well_formed(text, first, token),
            Some(Kind::Continues) => {
                self.partial
                    .get_mut(usize::from(first))
                    .map(|place| place.get_or_insert(token));
            }
            Some(Kind::Odd) => self.other(1, token),
            Some(Kind::Invalid) => self.other(2, token),
            Some(Kind::Blank) | None => self.other(3, token),
        }
    }

    fn other(&mut self, kind: usize, token: Token) {
        if let Some(n) = self
            .n_of_kind
            .get_mut(kind)
            .filter(|n| **n < MOST_OF_A_KIND)
        {
            *n += 1;
            self.others.push(token);
        }
    }

    fn well_formed(&mut self, text: &[u8], first: u8, token: Token) {
        if first >= 0x80 {
            if lead(first).is_some_and(|(_, n_more)| text.len() <= n_more as usize) {
                self.partial
                    .get_mut(usize::from(first))
                    .map(|place| place.get_or_insert(token));
            } else if let Some(known) = CHARACTERS.iter().position(|c| c.as_bytes() == text) {
                self.characters
                    .get_mut(known)
                    .map(|place| place.get_or_insert(token));
            } else {
                self.long(token);
            }
            return;
        }
        if let Some(begin) = self.begins.get_mut(usize::from(first))
            && begin.is_none_or(|(length, _)| text.len() < length)
        {
            *begin = Some((text.len(), token));
        }
        if let [_] = text {
            self.singles
                .get_mut(usize::from(first))
                .map(|place| place.get_or_insert(token));
        } else {
            self.long(token);
        }
        if text.is_ascii() {
            self.of_ascii(text, token);
        }
    }

    fn of_ascii(&mut self, text: &[u8], token: Token) {
        if let Some(place) = self.lengths.get_mut(text.len() - 1) {
            place.get_or_insert(token);
        }
        let letters = text.strip_prefix(b" ").unwrap_or(text);
        if self.word.is_none()
            && (4..=6).contains(&letters.len())
            && letters.iter().all(u8::is_ascii_lowercase)
            && let Ok(text) = std::str::from_utf8(text)
        {
            self.word = Some((text.to_owned(), token));
        }
        if let [b'<', inner @ .., b'>'] = text
            && self.in_brackets.len() < MOST_OF_A_KIND
            && inner.first().is_some_and(|&byte| byte != b'[')
            && !inner.contains(&b'>')
        {
            self.in_brackets.push((text.into(), token));
        }
    }

    /// Keeps the first tokens of several characters, and later ones at increasing intervals.
    fn long(&mut self, token: Token) {
        self.n_long += 1;
        let is_taken = self.n_long <= 16 || self.n_long.is_power_of_two() || {
            let every = self.n_long.next_power_of_two() / 8;
            self.n_long.is_multiple_of(every.max(1))
        };
        if is_taken && self.long.len() < MOST_LONG {
            self.long.push(token);
        }
    }

    fn samples(self, n_tokens: usize) -> Samples {
        let begins = self.singles.iter().zip(&self.begins);
        let ascii = begins.filter_map(|(single, begin)| single.or(begin.map(|(_, token)| token)));
        let mut ids: Vec<Token> = ascii.collect();
        // The lead bytes of all [`CHARACTERS`] are kept.
        let is_lead = |byte: usize| {
            let mut characters = CHARACTERS.iter();
            characters.any(|text| text.as_bytes().first().copied().map(usize::from) == Some(byte))
        };
        let partial = self.partial.iter().enumerate();
        let partial = partial.filter(|&(byte, _)| byte % ONE_PART_IN == 0 || is_lead(byte));
        let partial: Vec<Token> = partial.filter_map(|(_, &token)| token).collect();
        ids.extend(&self.ends);
        ids.extend(self.characters.iter().flatten());
        ids.extend(&partial);
        ids.extend(&self.others);
        ids.extend(self.lengths.iter().flatten());
        ids.extend(self.word.iter().map(|&(_, token)| token));
        ids.extend(self.in_brackets.iter().map(|&(_, token)| token));
        ids.extend(&self.long);
        ids.retain(|&id| usize::try_from(id).is_ok_and(|id| id < n_tokens));
        let mut seen = HashSet::default();
        ids.retain(|&id| seen.insert(id));
        let lower = ('a'..='z').chain('A'..='Z');
        let mut letters = lower.filter_map(|letter| {
            let single = self.singles.get(letter as usize).copied().flatten();
            single.map(|token| (letter, token))
        });
        let letters = [(); 4].map(|()| letters.next());
        let letters = match letters {
            [Some(a), Some(b), Some(c), Some(d)] => Some([a, b, c, d]),
            _ => None,
        };
        let letter = letters.iter().flatten().next().map(|(_, token)| token);
        // The text may be given to a tokenizer, which may throw at a character that is not a token.
        let singles = self.singles;
        let is_token = |&byte: &u8| matches!(singles.get(usize::from(byte)), Some(Some(_)));
        let in_brackets = self.in_brackets.into_iter().map(|(text, _)| text);
        let in_brackets = in_brackets.filter(|text| text.iter().chain(b" ").all(is_token));
        let in_brackets = in_brackets.collect();
        let longer = self.lengths.iter().skip(1).flatten();
        let ruler = letter.into_iter().chain(longer).chain(self.ends.first());
        Samples {
            ruler: ruler.copied().map(candidate).collect(),
            all: ids.into_iter().map(candidate).collect(),
            singles: self.singles,
            letters,
            word: self.word,
            in_brackets,
            ends: self.ends,
            partial,
        }
    }
}
