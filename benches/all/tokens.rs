//! Samplers that follow the text and read few logits or none: bans of 500 texts, with and without
//! regard to case, bans of as many patterns, and the loop breaker. A row is the time of one token:
//! it is accepted, and the sampler is applied to an array. llama.cpp has no such samplers.
//!
//! The vocabulary is that of the grammars.

use std::cell::OnceCell;
use std::ffi::{CString, c_char};
use std::time::Instant;

use llama_sieve::ffi::bans::{
    LLAMA_SIEVE_BAN_FOLD_CASE, LLAMA_SIEVE_BAN_REGEX, llama_sieve_init_ban_strings,
};
use llama_sieve::ffi::loops::llama_sieve_init_loop_breaker;
use vendor_llama_cpp::Model;

use crate::Options;
use crate::grammar::vocabulary;
use crate::measure::thread_time;
use crate::report::Measurement;
use crate::support::arrays::Rng;
use crate::support::{Array, HostSampler};

/// The number of tokens that are timed together, since the clock is too coarse for one. The
/// sequence is repeated, with a period that is longer than a loop breaker looks for.
const TOKENS: usize = 2000;

/// The number of banned texts.
const TEXTS: usize = 500;

/// A vocabulary, texts to ban, and tokens whose text contains parts of these.
pub struct World {
    model: Model,
    texts: Vec<CString>,
    tokens: Vec<i32>,
}

/// A row of the table: its name, and the function that makes its sampler.
pub struct Row {
    pub name: &'static str,
    pub make: fn(&World) -> HostSampler,
}

pub const ROWS: [Row; 4] = [
    Row {
        name: "ban_strings, 500 texts",
        make: |world| world.bans(&world.texts, 0),
    },
    Row {
        name: "ban_strings, 500 texts in any case",
        make: |world| world.bans(&world.texts, LLAMA_SIEVE_BAN_FOLD_CASE),
    },
    Row {
        name: "ban_strings, 500 patterns",
        make: |world| world.bans(&world.patterns(), LLAMA_SIEVE_BAN_REGEX),
    },
    Row {
        name: "loop_breaker",
        // SAFETY: NULL is allowed.
        make: |_| HostSampler::new(unsafe { llama_sieve_init_loop_breaker(std::ptr::null()) }),
    },
];

impl World {
    /// Returns a world in which each banned text is that of two to four tokens. Every fourth token
    /// of the sequence begins one of them, and often the next tokens continue it.
    pub fn new() -> Self {
        let (model, mut rng) = (vocabulary(), Rng(11));
        let n = model.n_vocab();
        let mut texts = Vec::new();
        let mut parts: Vec<Vec<i32>> = Vec::new();
        while texts.len() < TEXTS {
            let part: Vec<i32> = (0..2 + rng.below(3)).map(|_| rng.below(n) as i32).collect();
            let text: Vec<u8> = part.iter().flat_map(|&token| model.piece(token)).collect();
            // Texts whose case is ignored must be UTF-8.
            if std::str::from_utf8(&text).is_ok_and(|text| text.len() > 3 && !text.contains('\0')) {
                texts.push(CString::new(text).expect("no NUL"));
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
            model,
            texts,
            tokens,
        }
    }

    /// The texts as regular expressions: with any number of spaces in place of one, and a digit
    /// instead of the last character.
    fn patterns(&self) -> Vec<CString> {
        let pattern = |text: &CString| {
            let text = text.to_str().expect("texts are UTF-8");
            let mut parts: Vec<String> = text.chars().map(part).collect();
            parts.pop();
            CString::new(parts.concat() + "[0-9]").expect("no NUL")
        };
        self.texts.iter().map(pattern).collect()
    }

    fn bans(&self, texts: &[CString], flags: u32) -> HostSampler {
        let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let vocab = self.model.vocab().cast();
        // SAFETY: a live vocabulary, and as many C strings as the number that is passed.
        HostSampler::new(unsafe {
            llama_sieve_init_ban_strings(vocab, pointers.as_ptr(), pointers.len(), flags)
        })
    }

    /// Returns an array of the whole vocabulary.
    pub fn array(&self) -> Array {
        Array::of_logits(std::iter::repeat_n(1.0, self.model.n_vocab()))
    }

    /// Accepts all tokens, and applies the sampler to an array after each.
    pub fn follow(&self, sampler: &HostSampler, array: &mut Array) {
        for &token in &self.tokens {
            sampler.accept(token);
            sampler.apply(array);
        }
    }
}

/// Returns the expression for a character of a text.
fn part(character: char) -> String {
    match character {
        ' ' => " +".into(),
        character => format!(r"\x{{{:X}}}", u32::from(character)),
    }
}

/// Measures every row. The result is the least of several times, since other programs use the
/// caches, too.
pub fn run(options: &Options, done: &mut dyn FnMut(Measurement)) {
    let world = OnceCell::new();
    for row in ROWS.iter().filter(|row| options.wants(row.name)) {
        let world = world.get_or_init(World::new);
        let (sampler, mut array) = ((row.make)(world), world.array());
        // What patterns ban in a state is found when a text first reaches it.
        world.follow(&sampler, &mut array);
        let (begun, mut least) = (Instant::now(), f64::INFINITY);
        while begun.elapsed().as_secs_f64() < options.budget() {
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
