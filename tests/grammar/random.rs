//! Makes random vocabularies and random grammars.

use std::collections::HashSet;

use vendor_llama_cpp::TestVocabulary;
use vendor_llama_cpp::test_vocabulary::Kind;

use crate::pair::Vocabulary;
use crate::support::Rng;

/// Characters that texts and grammars have in common.
const CHARACTERS: [&str; 14] = [
    "a", "b", "c", "0", "1", " ", "\"", "\n", "é", "ß", "あ", "い", "😀", "]",
];

/// Bytes that should not occur in texts, but do in some vocabularies.
const BYTES: [u8; 16] = [
    0, 0x80, 0x81, 0x82, 0xBF, 0xC0, 0xC3, 0xA9, 0xE3, 0x81, 0x82, 0xF0, 0x9F, 0x98, 0xFF, b'a',
];

pub fn vocabulary(rng: &mut Rng, name: &str) -> Vocabulary {
    let most = rng.pick(&[300, 300, 300, 1970]);
    let n = 30 + rng.below(most);
    let mut tokens = vec![
        (b"</s>".to_vec(), Kind::Control),
        (b"<|im_end|>".to_vec(), Kind::Control),
        (b"<tool>".to_vec(), Kind::UserDefined),
        (b"<unused>".to_vec(), Kind::Unused),
        (b"<plain>".to_vec(), Kind::Control),
    ];
    let mut seen: HashSet<Vec<u8>> = tokens.iter().map(|(text, _)| text.clone()).collect();
    for character in CHARACTERS {
        tokens.push((character.as_bytes().to_vec(), Kind::Normal));
        seen.insert(character.as_bytes().to_vec());
    }
    while tokens.len() < n {
        let text = text(rng);
        if !text.is_empty() && seen.insert(text.clone()) {
            tokens.push((text, Kind::Normal));
        }
    }
    let vocabulary = TestVocabulary { tokens, eos: 0 };
    let path = folder().join(format!("grammar-{}-{name}.gguf", std::process::id()));
    let model = vocabulary.load(&path).expect("a vocabulary");
    std::fs::remove_file(&path).expect("it was written");
    Vocabulary::new(model)
}

pub fn folder() -> std::path::PathBuf {
    std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

fn text(rng: &mut Rng) -> Vec<u8> {
    let mut text = Vec::new();
    if rng.chance(0.1) {
        // Vocabularies have runs of spaces and dashes, and tokens that end such runs.
        text = rng.pick(&CHARACTERS).repeat(2 + rng.below(14)).into_bytes();
        if rng.chance(0.7) {
            return text;
        }
    }
    for _ in 0..1 + rng.below(4) {
        if rng.chance(0.8) {
            text.extend_from_slice(rng.pick(&CHARACTERS).as_bytes());
        } else {
            text.push(rng.pick(&BYTES));
        }
    }
    if rng.chance(0.3) {
        text.truncate(text.len() - 1);
    }
    text
}

struct Writer<'a> {
    rng: &'a mut Rng,
    text: String,
    n_rules: usize,
    n_tokens: usize,
}

pub fn grammar(rng: &mut Rng, vocabulary: &Vocabulary) -> Vec<u8> {
    let n_rules = 1 + rng.below(5);
    let mut writer = Writer {
        rng,
        text: String::new(),
        n_rules,
        n_tokens: vocabulary.n_tokens,
    };
    for rule in 0..n_rules {
        writer.rule(rule);
    }
    writer.text.into_bytes()
}

impl Writer<'_> {
    fn rule(&mut self, rule: usize) {
        self.text += &name(rule);
        let equals = [" ::= ", "::=", "  ::=\n ", " ::= # comment\n"];
        self.text += self.rng.pick(&equals);
        self.alternatives(rule, 0);
        let ends = ["\n", "\r\n", "\r", " # end\n", "\n\n"];
        self.text += self.rng.pick(&ends);
    }

    fn alternatives(&mut self, rule: usize, depth: usize) {
        for i in 0..1 + self.rng.below(3) {
            if i > 0 {
                let between = [" | ", "|", " |\n  "];
                self.text += self.rng.pick(&between);
            }
            let n = self.rng.pick(&[0, 1, 1, 2, 2, 3, 4]);
            for j in 0..n {
                if j > 0 {
                    self.text.push(' ');
                }
                self.item(rule, depth, j > 0);
                if self.rng.chance(0.25) {
                    self.repetition();
                }
            }
        }
    }

    fn item(&mut self, rule: usize, depth: usize, may_recur: bool) {
        match self.rng.below(12) {
            0..4 => self.literal(),
            4..6 => self.class(),
            6 => self.text.push('.'),
            7 if depth < 3 => {
                self.text.push('(');
                self.alternatives(rule, depth + 1);
                self.text.push(')');
            }
            8 => {
                let token = self.rng.below(self.n_tokens + 2);
                let not = self.rng.pick(&["", "!"]);
                self.text += &format!("{not}<[{token}]>");
            }
            9 if self.rng.chance(0.3) => {
                self.text += self
                    .rng
                    .pick(&["<tool>", "!<tool>", "<plain>", "<nothing>"]);
            }
            _ => {
                let from = if may_recur { 0 } else { rule + 1 };
                if from >= self.n_rules {
                    return self.literal();
                }
                let to = from + self.rng.below(self.n_rules - from);
                self.text += &name(to);
            }
        }
    }

    fn character(&mut self) {
        let character = self.rng.pick(&CHARACTERS);
        match character {
            "\"" => self.text += "\\\"",
            "\n" => self.text += "\\n",
            "]" => self.text += "\\]",
            "é" if self.rng.chance(0.5) => self.text += "\\xe9",
            "あ" if self.rng.chance(0.5) => self.text += "\\u3042",
            "😀" if self.rng.chance(0.5) => self.text += "\\U0001F600",
            "a" if self.rng.chance(0.05) => self.text += "\\x00",
            other => self.text += other,
        }
    }

    fn literal(&mut self) {
        self.text.push('"');
        for _ in 0..self.rng.pick(&[0, 1, 1, 1, 2, 3]) {
            self.character();
        }
        self.text.push('"');
    }

    fn class(&mut self) {
        self.text.push('[');
        if self.rng.chance(0.4) {
            self.text.push('^');
        }
        for _ in 0..self.rng.pick(&[0, 1, 1, 2, 3]) {
            self.character();
            if self.rng.chance(0.4) {
                self.text.push('-');
                self.character();
            }
        }
        if self.rng.chance(0.05) {
            self.text.push('-');
        }
        self.text.push(']');
    }

    fn repetition(&mut self) {
        let (m, n) = (self.rng.below(4), self.rng.below(4));
        match self.rng.below(7) {
            0 => self.text.push('*'),
            1 => self.text.push('+'),
            2 => self.text.push('?'),
            3 => self.text += &format!("{{{m}}}"),
            4 => self.text += &format!("{{{m},}}"),
            5 => self.text += &format!("{{{m},{}}}", m + n),
            _ => self.text += " * ",
        }
    }
}

fn name(rule: usize) -> String {
    match rule {
        0 => "root".to_owned(),
        other => format!("r-{other}"),
    }
}

/// Returns a damaged text, which may no longer be a grammar.
pub fn damaged(text: &[u8], rng: &mut Rng) -> Vec<u8> {
    const PARTS: [&[u8]; 26] = [
        b"(",
        b")",
        b"[",
        b"]",
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"*",
        b"|",
        b"\n",
        b"::=",
        b"<",
        b">",
        b"!",
        b"#",
        b"\x80",
        b"\xE3",
        b"{2001}",
        b"{3,9999}",
        b"{50}{50}",
        b"\\x4",
        b"root",
        b"<[1]>",
        b"-",
        b"{99999999999999999999}",
    ];
    let mut text = text.to_vec();
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(text.len() + 1);
        match rng.below(3) {
            0 if at < text.len() => {
                text.remove(at);
            }
            1 if at < text.len() => text.truncate(at),
            _ => {
                let part = rng.pick(&PARTS);
                text.splice(at..at, part.iter().copied());
            }
        }
    }
    text
}
