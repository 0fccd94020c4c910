//! Random vocabularies and texts, for the tests of the searches.

use llama_sieve_kernels::lcg::Lcg;

use super::order::ShownTexts;
use crate::token::Token;

pub(super) struct Random(pub(super) Lcg);

impl Random {
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.0.bits() >> 8) as usize % n
    }
}

/// The texts of tokens, indexed by token.
pub(super) struct Vocabulary(pub(super) Vec<Vec<u8>>);

impl ShownTexts for Vocabulary {
    fn n_tokens(&self) -> usize {
        self.0.len()
    }

    fn shown(&self, token: Token, text: &mut Vec<u8>) {
        text.extend_from_slice(&self.0[token as usize]);
    }
}

/// Characters of one to four bytes, with and without case; some fold to characters of fewer bytes.
pub(super) const CHARACTERS: [&str; 12] = [
    "a", "A", "b", "k", "K", "\u{212A}", "é", "É", "s", "ſ", "😀", "ß",
];

/// Returns a random text of 1 to `most` characters, out of the first `few` of [`CHARACTERS`].
pub(super) fn text(random: &mut Random, few: usize, most: usize) -> Vec<u8> {
    let n = 1 + random.below(most);
    let characters = (0..n).flat_map(|_| CHARACTERS[random.below(few)].bytes());
    characters.collect()
}

pub(super) fn vocabulary(random: &mut Random, few: usize) -> Vocabulary {
    let mut texts: Vec<Vec<u8>> = vec![Vec::new()];
    texts.extend(CHARACTERS.iter().map(|text| text.as_bytes().to_vec()));
    for byte in [
        0xC3, 0xA9, 0x89, 0xE2, 0x84, 0xAA, 0xF0, 0x9F, 0x98, 0x80, 0xC5, 0xBF,
    ] {
        texts.push(vec![byte]);
    }
    while texts.len() < 80 {
        let whole = text(random, few, 4);
        // Pieces that may end within a character, as tokens of a byte-level vocabulary do.
        let (from, to) = (random.below(whole.len()), 1 + random.below(whole.len()));
        texts.push(whole[from.min(to - 1)..to].to_vec());
    }
    Vocabulary(texts)
}
