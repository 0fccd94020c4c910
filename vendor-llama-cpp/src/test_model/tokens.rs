//! A byte-level BPE vocabulary of any size: bytes, then pairs of bytes, then pairs of pairs.

/// The frequent bytes of English text, most frequent first. The first merges join these, so that
/// even a small vocabulary shortens a text.
const FREQUENT: &[u8] =
    b" etaoinshrdlucmfwygpbvk,.\n'TIAS\"-jxqz?!BCDEFGHJKLMNOPQRUVWXYZ0123456789:;()";

/// The names of the special tokens. They are longer than all merged tokens, so none is the same.
const BOS: &str = "<|startoftext|>";
const EOS: &str = "<|endoftext|>";

/// GGUF's numbers for kinds of tokens.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

/// The tokenizer of a GGUF file.
pub struct Tokenizer {
    pub texts: Vec<String>,
    pub kinds: Vec<i32>,
    pub merges: Vec<String>,
    pub bos: usize,
    pub eos: usize,
    pub add_bos: bool,
}

impl Tokenizer {
    /// Returns the tokenizer of a vocabulary of this size. Token n is byte n for n below 256. The
    /// merges follow, and then the special tokens: an end token if there are at least 257 tokens,
    /// and also a start token if there are at least 258. With only 256 tokens, byte 0, which texts
    /// hardly contain, is the end token.
    pub fn new(n_vocab: usize) -> Self {
        let n_special = (n_vocab - 256).min(2);
        let mut tokenizer = Self {
            texts: (0..=255).map(|byte| symbol(byte).to_string()).collect(),
            kinds: Vec::new(),
            merges: Vec::new(),
            bos: 0,
            eos: 0,
            add_bos: false,
        };
        tokenizer.add_merges(n_vocab - 256 - n_special);
        tokenizer.kinds = vec![NORMAL; tokenizer.texts.len()];
        tokenizer.add_special(n_special);
        tokenizer
    }

    fn add_merges(&mut self, count: usize) {
        let symbols: Vec<String> = frequent_first()
            .map(|byte| symbol(byte).to_string())
            .collect();
        let pairs = joined(&symbols, count, &mut self.merges);
        let of_pairs = joined(&pairs, count - pairs.len(), &mut self.merges);
        self.texts.extend(pairs);
        self.texts.extend(of_pairs);
    }

    fn add_special(&mut self, count: usize) {
        if count == 2 {
            self.bos = self.texts.len();
            self.add_bos = true;
            self.add_control(BOS);
        }
        if count >= 1 {
            self.eos = self.texts.len();
            self.add_control(EOS);
        }
        if count == 1 {
            self.bos = self.eos;
        }
    }

    fn add_control(&mut self, name: &str) {
        self.texts.push(String::from(name));
        self.kinds.push(CONTROL);
    }
}

/// Returns the first `count` concatenations of two of the parts, those of early parts first, and
/// adds their merges to `merges`.
fn joined(parts: &[String], count: usize, merges: &mut Vec<String>) -> Vec<String> {
    let pairs = pairs(parts.len()).take(count);
    pairs
        .map(|(left, right)| {
            let (left, right) = (&parts[left], &parts[right]);
            merges.push(format!("{left} {right}"));
            format!("{left}{right}")
        })
        .collect()
}

/// Returns all pairs of numbers below `n`, in ascending order of the larger number.
fn pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(|larger| {
        let others = (0..larger).flat_map(move |other| [(other, larger), (larger, other)]);
        others.chain([(larger, larger)])
    })
}

fn frequent_first() -> impl Iterator<Item = u8> {
    let others = (0..=255).filter(|byte| !FREQUENT.contains(byte));
    FREQUENT.iter().copied().chain(others)
}

/// Returns the character that GPT-2's vocabulary uses for a byte: the byte itself if it is
/// printable. The other bytes get the characters from 256 on, in order.
pub(crate) fn symbol(byte: u8) -> char {
    if is_printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&other| !is_printable(other)).count();
    u32::try_from(before)
        .ok()
        .and_then(|before| char::from_u32(256 + before))
        .expect("there are fewer than 256 unprintable bytes")
}

/// True if the byte is a visible character of Latin-1. (173 is the soft hyphen.)
fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 161..=172 | 174..=255)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{FREQUENT, Tokenizer, symbol};

    #[test]
    fn symbols_are_those_of_gpt_2() {
        assert_eq!(symbol(b'a'), 'a');
        assert_eq!(symbol(b' '), 'Ġ');
        assert_eq!(symbol(b'\n'), 'Ċ');
        assert_eq!(symbol(0), 'Ā');
        assert_eq!(symbol(173), 'Ń');
    }

    #[test]
    fn every_size_has_distinct_tokens() {
        for n_vocab in [256, 257, 258, 259, 1000, 65_794, 65_795, 262_145] {
            let tokenizer = Tokenizer::new(n_vocab);
            let distinct: HashSet<&String> = tokenizer.texts.iter().collect();
            assert_eq!(distinct.len(), n_vocab);
            assert_eq!(tokenizer.kinds.len(), n_vocab);
            assert!(tokenizer.bos < n_vocab && tokenizer.eos < n_vocab);
        }
    }

    #[test]
    fn frequent_bytes_are_named_once() {
        let distinct: HashSet<&u8> = FREQUENT.iter().collect();
        assert_eq!(distinct.len(), FREQUENT.len());
    }
}
