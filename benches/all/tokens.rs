//! Samplers that follow the text and read few logits or none: bans of 500 texts, with and without
//! regard to case, bans of as many patterns, biases in place of bans, and the loop breaker. A row
//! is the time to accept one token and to apply the sampler to an array. llama.cpp has no such
//! samplers.
//!
//! The vocabulary is that of the grammars. Where instructions are counted, no model of it is
//! loaded: the samplers are made from the texts of its tokens.

use std::cell::OnceCell;
use std::fmt;
use std::time::Instant;

use llama_sieve::TokenData;
use llama_sieve::candidates::Candidates;
use llama_sieve::ffi::bans::{LLAMA_SIEVE_BAN_FOLD_CASE, LLAMA_SIEVE_BAN_REGEX};
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::loops::llama_sieve_init_loop_breaker;
use llama_sieve::sampler::Sampler;
use llama_sieve::samplers::{BanStrings, BanVocabulary};
use llama_sieve::vocabulary::Vocabulary;
use vendor_llama_cpp::Model;

use crate::Options;
use crate::grammar::{generated_texts, vocabulary};
use crate::measure::thread_time;
use crate::report::Measurement;
use crate::support::arrays::Rng;
use crate::support::{Array, HostSampler, ban_strings};

/// The number of tokens that are timed together, since the clock is too coarse for one. The
/// sequence is repeated, with a period that is longer than a loop breaker looks for.
const TOKENS: usize = 2000;

/// The number of banned texts.
const TEXTS: usize = 500;

/// The texts of a vocabulary's tokens, texts to ban, and tokens whose text contains parts of these.
pub struct World {
    pieces: Vec<Vec<u8>>,
    texts: Vec<String>,
    tokens: Vec<i32>,
}

/// A row of the table: its name, and the function that makes its sampler.
pub struct Row {
    pub name: &'static str,
    /// True if each sampler accepts the sequence only once, and a new one is made for each
    /// measurement.
    pub first: bool,
    pub make: fn(&World, &Model) -> HostSampler,
}

pub const ROWS: [Row; 7] = [
    Row {
        name: "ban_strings, 500 texts",
        first: false,
        make: |world, model| bans(model, &world.texts, 0),
    },
    Row {
        name: "ban_strings, 500 texts in any case",
        first: false,
        make: |world, model| bans(model, &world.texts, LLAMA_SIEVE_BAN_FOLD_CASE),
    },
    Row {
        name: "ban_strings, 500 patterns",
        first: false,
        make: |world, model| bans(model, &world.patterns(), LLAMA_SIEVE_BAN_REGEX),
    },
    Row {
        name: "ban_strings, 500 patterns, at first",
        first: true,
        make: |world, model| bans(model, &world.patterns(), LLAMA_SIEVE_BAN_REGEX),
    },
    Row {
        name: "ban_strings_bias, 500 texts",
        first: false,
        make: |world, model| biases(model, &world.texts, 0),
    },
    Row {
        name: "ban_strings_bias, 500 texts in any case",
        first: false,
        make: |world, model| biases(model, &world.texts, LLAMA_SIEVE_BAN_FOLD_CASE),
    },
    Row {
        name: "loop_breaker",
        first: false,
        make: |_, _| HostSampler::new(loop_breaker()),
    },
];

impl World {
    /// Returns the texts to ban and the tokens to accept, generated from a model's vocabulary.
    fn of(model: &Model) -> Self {
        let tokens = 0..model.n_vocab() as i32;
        Self::new(tokens.map(|token| model.piece(token)).collect())
    }

    /// Returns the texts to ban and the tokens to accept, generated from the vocabulary that
    /// `grammar` generates.
    pub fn generated() -> Self {
        let mut pieces = vec![Vec::new()];
        pieces.extend(generated_texts());
        Self::new(pieces)
    }

    /// Generates texts to ban, each of them the text of two to four tokens, and a sequence of
    /// tokens. The sequence alternates between the first tokens of one of these texts, never all of
    /// them, and three random tokens.
    fn new(pieces: Vec<Vec<u8>>) -> Self {
        let (n, mut rng) = (pieces.len(), Rng(11));
        let mut texts = Vec::new();
        let mut parts: Vec<Vec<i32>> = Vec::new();
        while texts.len() < TEXTS {
            let part: Vec<i32> = (0..2 + rng.below(3)).map(|_| rng.below(n) as i32).collect();
            let parts_of = part.iter().map(|&token| &pieces[token as usize][..]);
            // Texts whose case is ignored must be UTF-8.
            let text = String::from_utf8(parts_of.collect::<Vec<_>>().concat());
            let is_usable = |text: &String| text.len() > 3 && !text.contains('\0');
            if let Some(text) = text.ok().filter(is_usable) {
                texts.push(text);
                parts.push(part);
            }
        }
        let mut tokens = Vec::new();
        while tokens.len() < TOKENS {
            let part = rng.pick(&parts.iter().collect::<Vec<_>>());
            let n_known = 1 + rng.below(part.len() - 1);
            tokens.extend_from_slice(&part[..n_known]);
            tokens.extend((0..3).map(|_| rng.below(n) as i32));
        }
        tokens.truncate(TOKENS);
        Self {
            pieces,
            texts,
            tokens,
        }
    }

    /// Returns the texts as regular expressions, in which ` +` replaces each space, and `[0-9]`
    /// replaces the last character.
    fn patterns(&self) -> Vec<String> {
        let pattern = |text: &String| {
            let mut parts: Vec<String> = text.chars().map(part).collect();
            parts.pop();
            parts.concat() + "[0-9]"
        };
        self.texts.iter().map(pattern).collect()
    }

    /// Returns an array of the whole vocabulary.
    pub fn array(&self) -> Array {
        Array::of_logits(std::iter::repeat_n(1.0, self.pieces.len()))
    }

    /// Accepts all tokens, and applies the sampler to an array after each.
    pub fn follow(&self, sampler: &HostSampler, array: &mut Array) {
        for &token in &self.tokens {
            sampler.accept(token);
            sampler.apply(array);
        }
    }

    /// Calls `measured` with the work of each row of [`COUNTED`]. Preparations are outside that
    /// call.
    pub fn count(&self, measured: fn(&mut dyn FnMut())) {
        let patterns = self.patterns();
        let [texts, patterns] = [&self.texts, &patterns].map(|texts| bytes_of(texts));
        let exact = BanVocabulary::new(self, false);
        let folded = BanVocabulary::new(self, true);
        let mut array = self.array();
        let mut data = array.tokens();
        for vocabulary in [&exact, &folded] {
            let mut sampler = some(BanStrings::new(&texts, vocabulary));
            self.follow_with(&mut sampler, &mut data);
            measured(&mut || self.follow_with(&mut sampler, &mut data));
        }
        let mut sampler = some(BanStrings::patterns(&patterns, false, &exact));
        for _ in 0..2 {
            measured(&mut || self.follow_with(&mut sampler, &mut data));
        }
        let breaker = HostSampler::new(loop_breaker());
        self.follow(&breaker, &mut array);
        measured(&mut || self.follow(&breaker, &mut array));
    }

    /// Does what [`follow`](Self::follow) does, without the host.
    fn follow_with(&self, sampler: &mut impl Sampler, data: &mut [TokenData]) {
        for &token in &self.tokens {
            sampler.accept(token);
            sampler.apply(&mut Candidates::new(data, false));
        }
    }
}

/// The names of the rows whose instructions are counted. Each row counts those of all tokens of the
/// sequence. Patterns have a row for the first time that a sampler accepts the sequence, and one
/// for the second.
pub const COUNTED: [&str; 5] = [
    "ban_strings, 500 texts, 2000 tokens",
    "ban_strings, 500 texts in any case, 2000 tokens",
    "ban_strings, 500 patterns, the first 2000 tokens",
    "ban_strings, 500 patterns, 2000 tokens",
    "loop_breaker, 2000 tokens",
];

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl Vocabulary for World {
    fn n_tokens(&self) -> usize {
        self.pieces.len()
    }

    fn is_eog(&self, token: i32) -> bool {
        token == 0
    }

    fn end_token(&self) -> Option<i32> {
        Some(0)
    }

    fn piece(&self, token: i32, piece: &mut Vec<u8>) {
        piece.extend_from_slice(&self.pieces[token as usize]);
    }

    fn detokenize(&self, token: i32, text: &mut Vec<u8>) {
        self.piece(token, text);
    }

    fn tokenize(&self, _text: &[u8]) -> Vec<i32> {
        unreachable!("bans read texts of tokens only")
    }
}

fn bytes_of(texts: &[String]) -> Vec<&[u8]> {
    texts.iter().map(String::as_bytes).collect()
}

fn some(made: Result<Option<BanStrings>, String>) -> BanStrings {
    made.expect("the texts can be banned")
        .expect("there are texts")
}

fn loop_breaker() -> *mut llama_sampler {
    // SAFETY: NULL is allowed.
    unsafe { llama_sieve_init_loop_breaker(std::ptr::null()) }
}

fn bans(model: &Model, texts: &[String], flags: u32) -> HostSampler {
    ban_strings(model.vocab(), texts, flags, None)
}

fn biases(model: &Model, texts: &[String], flags: u32) -> HostSampler {
    ban_strings(model.vocab(), texts, flags, Some(-5.0))
}

/// Returns the expression for a character of a text.
fn part(character: char) -> String {
    match character {
        ' ' => " +".into(),
        character => format!(r"\x{{{:X}}}", u32::from(character)),
    }
}

/// Measures every row. The result is the minimum over several repetitions, since other programs use
/// the caches, too.
pub fn run(options: &Options, done: &mut dyn FnMut(Measurement)) {
    let world = OnceCell::new();
    for row in ROWS.iter().filter(|row| options.wants(row.name)) {
        let (world, model) = world.get_or_init(|| {
            let model = vocabulary();
            (World::of(&model), model)
        });
        let (mut sampler, mut array) = ((row.make)(world, model), world.array());
        // The tokens that are banned or biased in a state of the search are determined when a text
        // first reaches that state.
        world.follow(&sampler, &mut array);
        let (begun, mut least) = (Instant::now(), f64::INFINITY);
        while begun.elapsed().as_secs_f64() < options.budget() {
            if row.first {
                sampler = (row.make)(world, model);
            }
            let start = thread_time();
            world.follow(&sampler, &mut array);
            least = least.min(thread_time() - start);
        }
        done(Measurement {
            part: "tokens".into(),
            name: row.name.into(),
            n: array.data.len(),
            shape: String::new(),
            ours_ns: least * 1e3 / TOKENS as f64,
            theirs_ns: None,
            floor_ns: None,
        });
    }
}
