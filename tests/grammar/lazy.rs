//! Compares lazy grammars with llama.cpp's own, on texts that contain triggers.

use std::ffi::{CString, c_char};
use std::ptr::null;

use llama_sieve::errors::LLAMA_SIEVE_ERROR_GRAMMAR_LIMIT;
use llama_sieve::ffi::grammar::lazy as sieve;
use llama_sieve::grammar::limits::MAX_TRIGGER_DEPTH;
use llama_sieve::grammar::triggers::{Budget, Triggers};
use vendor_llama_cpp::reference::StdRegex;
use vendor_llama_cpp::sys;

use crate::anywhere::Anywhere;
use crate::pair::{self, Pair, Vocabulary, c_string, quietly};
use crate::support::{HostSampler, Rng, replay};
use crate::triggers::{STEPS, costly, ends_soon, nested, on_a_small_stack, pattern};
use crate::walk::{self, array, check_dead};

/// The triggers of a lazy grammar.
#[derive(Clone, Debug, Default)]
pub struct Wait {
    /// Patterns, or words.
    pub texts: Vec<Vec<u8>>,
    pub are_words: bool,
    pub tokens: Vec<i32>,
}

impl Wait {
    /// True if the built-in quickly finds what matches in `text`.
    fn is_short(&self, text: &[u8]) -> bool {
        let is_short = |pattern: &Vec<u8>| {
            let triggers = Triggers::new(&[pattern]).expect("it was read before");
            let takes_long = |whole| triggers.matched(0, text, whole, Budget::of(STEPS)).is_err();
            let regex = StdRegex::new(pattern).expect("it was read before");
            !(takes_long(true) || takes_long(false)) && ends_soon(&regex, text)
        };
        self.are_words || self.texts.iter().all(is_short)
    }

    /// Returns only this library's sampler.
    fn ours(&self, grammar: &[u8], vocabulary: &Vocabulary) -> HostSampler {
        assert!(!self.are_words && self.tokens.is_empty());
        let (text, root) = (c_string(grammar), c"root");
        let texts: Vec<CString> = self.texts.iter().map(|text| c_string(text)).collect();
        let mut pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let list = pointers.as_mut_ptr();
        // SAFETY: C strings and a vocabulary that live through the call.
        let ours = unsafe {
            sieve::llama_sieve_init_grammar_lazy_patterns(
                vocabulary.as_ours(),
                text.as_ptr(),
                root.as_ptr(),
                list,
                self.texts.len(),
                null(),
                0,
            )
        };
        assert!(!ours.is_null(), "{}", llama_sieve::last_error::get());
        HostSampler::new(ours)
    }

    /// Makes both samplers; `None` if both refuse the triggers.
    pub fn pair(&self, grammar: &[u8], vocabulary: &Vocabulary) -> Option<Pair> {
        let (text, root) = (c_string(grammar), c"root");
        let texts: Vec<CString> = self.texts.iter().map(|text| c_string(text)).collect();
        let mut pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let list = pointers.as_mut_ptr();
        let (n, tokens) = (self.texts.len(), self.tokens.as_ptr());
        let n_tokens = self.tokens.len();
        let vocab = vocabulary.as_ours();
        // SAFETY: C strings, tokens and a vocabulary that live through the call.
        let (ours, theirs) = unsafe {
            let (text, root) = (text.as_ptr(), root.as_ptr());
            let theirs = vocabulary.model.vocab();
            match self.are_words {
                true => (
                    sieve::llama_sieve_init_grammar_lazy(
                        vocab, text, root, list, n, tokens, n_tokens,
                    ),
                    quietly(|| {
                        sys::vendor_llama_grammar_words(
                            theirs, text, root, list, n, tokens, n_tokens,
                        )
                    }),
                ),
                false => (
                    sieve::llama_sieve_init_grammar_lazy_patterns(
                        vocab, text, root, list, n, tokens, n_tokens,
                    ),
                    quietly(|| {
                        sys::vendor_llama_grammar(
                            theirs, text, root, true, list, n, tokens, n_tokens,
                        )
                    }),
                ),
            }
        };
        let said = llama_sieve::last_error::get();
        assert_eq!(
            ours.is_null(),
            theirs.is_null(),
            "{self:?}: {said}\n{}",
            replay()
        );
        if ours.is_null() {
            assert!(!said.is_empty());
            return None;
        }
        Some(Pair {
            ours: HostSampler::new(ours),
            theirs: HostSampler::new(theirs),
        })
    }
}

fn wait(rng: &mut Rng, vocabulary: &Vocabulary) -> Wait {
    let mut wait = Wait {
        are_words: rng.chance(0.3),
        ..Wait::default()
    };
    for _ in 0..rng.below(4) {
        let mut text = Vec::new();
        if wait.are_words || rng.chance(0.3) {
            for _ in 0..1 + rng.below(2) {
                let piece = &vocabulary.pieces[rng.below(vocabulary.n_tokens)];
                text.extend(piece.iter().take(1 + rng.below(4)));
            }
        } else {
            pattern(rng, 1, &mut text);
            if rng.chance(0.3) {
                text.insert(0, b'^');
                text.push(b'$');
            }
        }
        // C strings end at NUL, and a pattern that matches the empty text would trigger at once.
        text.retain(|&byte| byte != 0);
        let is_empty = |regex: StdRegex| regex.find(b"", false).is_some();
        if wait.are_words || rng.chance(0.1) || !StdRegex::new(&text).is_some_and(is_empty) {
            wait.texts.push(text);
        }
    }
    for _ in 0..rng.below(3) {
        wait.tokens.push(rng.below(vocabulary.n_tokens) as i32);
    }
    wait
}

/// Counts of the texts that one lazy grammar has read.
#[derive(Default)]
pub struct Streams {
    pub compared: usize,
    /// The number of texts in which the grammar has begun.
    pub begun: usize,
}

/// Tests a random grammar with random triggers.
pub fn random(vocabulary: &Vocabulary, rng: &mut Rng) -> Streams {
    let grammar = match rng.chance(0.5) {
        true => rng.pick(&pair::OPEN).as_bytes().to_vec(),
        false => crate::random::grammar(rng, vocabulary),
    };
    let theirs_ends = !walk::would_not_return(&grammar, vocabulary);
    if !(theirs_ends && walk::read_alike(&grammar, vocabulary)) {
        return Streams::default();
    }
    let wait = wait(rng, vocabulary);
    let Some(mut pair) = wait.pair(&grammar, vocabulary) else {
        return Streams::default();
    };
    let Some(stacks) = walk::stacks(&grammar, vocabulary) else {
        return Streams::default();
    };
    let mut stacks = Anywhere::new(stacks);
    let mut streams = Streams::default();
    for _ in 0..4 {
        let tokens: Vec<i32> = (0..12)
            .map(|_| rng.below(vocabulary.n_tokens) as i32)
            .collect();
        match stream(&mut pair, &mut stacks, &wait, vocabulary, &tokens, rng) {
            Ok(Some(has_begun)) => {
                streams.compared += 1;
                streams.begun += usize::from(has_begun);
            }
            Ok(None) => break,
            Err(what) => {
                let grammar = String::from_utf8_lossy(&grammar).into_owned();
                let texts: Vec<_> = wait.texts.iter().map(|text| text.escape_ascii()).collect();
                let texts: Vec<String> = texts.into_iter().map(|text| text.to_string()).collect();
                panic!(
                    "{what}\n{grammar}\n{wait:?} {texts:?}\n{tokens:?}\n{}",
                    replay()
                );
            }
        }
        pair.reset();
        stacks.reset();
    }
    streams
}

/// Accepts tokens with both samplers and compares them. Once the grammar has begun, tokens that it
/// does not allow are mostly replaced by allowed ones. Returns true if the grammar has begun;
/// `None` if the built-in would take too long.
fn stream(
    pair: &mut Pair,
    stacks: &mut Anywhere,
    wait: &Wait,
    vocabulary: &Vocabulary,
    tokens: &[i32],
    rng: &mut Rng,
) -> Result<Option<bool>, String> {
    let n = vocabulary.n_tokens;
    let mut so_far = Vec::new();
    let mut has_begun = false;
    for &token in tokens {
        let few: Vec<i32> = (0..rng.below(5)).map(|_| rng.below(n) as i32).collect();
        pair.apply(&array([token], rng))?;
        pair.apply(&array(few, rng))?;
        let full = pair.apply(&array(0..n as i32, rng))?;
        let is_allowed = |token: i32| full.data[token as usize].logit != f32::NEG_INFINITY;
        let allowed: Vec<i32> = (0..n as i32).filter(|&token| is_allowed(token)).collect();
        if pair::mask(&pair.ours, n) != allowed {
            return Err("the mask is not what apply leaves".into());
        }
        has_begun |= allowed.len() < n;
        let mut token = token;
        if has_begun && !is_allowed(token) && !(allowed.is_empty() || rng.chance(0.1)) {
            token = rng.pick(&allowed);
        }
        // The built-in aborts in this case.
        if vocabulary.eog.contains(&token) && !is_allowed(token) {
            return Ok(Some(has_begun));
        }
        if rng.chance(0.1) {
            *pair = pair.clone();
        }
        pair.ours.accept(token);
        so_far.extend_from_slice(&vocabulary.pieces[token as usize]);
        let piece = &vocabulary.pieces[token as usize];
        if !stacks.accept(piece, &vocabulary.pieces) || !(has_begun || wait.is_short(&so_far)) {
            return Ok(None);
        }
        // SAFETY: the sampler lives.
        let theirs = unsafe { sys::vendor_llama_sampler_accept(pair.theirs.as_ptr(), token) };
        let error = pair::error(&pair.ours);
        if (error == 0) != theirs {
            return Err(format!(
                "token {token}: ours gives {error}, theirs {theirs}"
            ));
        }
        if !theirs {
            check_dead(pair, vocabulary)?;
            return Ok(Some(true));
        }
    }
    Ok(Some(has_begun))
}

/// Returns a random way to write `text` in tokens.
fn spelled(text: &[u8], vocabulary: &Vocabulary, rng: &mut Rng) -> Vec<i32> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let fits = |token: &i32| {
            let piece = &vocabulary.pieces[*token as usize];
            !piece.is_empty() && rest.starts_with(piece)
        };
        let fitting: Vec<i32> = (0..vocabulary.n_tokens as i32).filter(fits).collect();
        assert!(!fitting.is_empty(), "no token begins {rest:?}");
        let token = rng.pick(&fitting);
        tokens.push(token);
        rest = &rest[vocabulary.pieces[token as usize].len()..];
    }
    tokens
}

const CALLS: &str = r#"root ::= "<tool_call>"? "\n"? (call | xml | ticks)
call ::= "{\"name\": \"" [a-z_]+ "\", \"arguments\": {" [^}]* "}}" .{0,3} "</tool_call>"?
xml ::= "<function=" [a-z_0-9]+ ">" [^<]* "</function>"
ticks ::= "```json\n" [^`]+ "```"
"#;

/// Returns the triggers of chat templates, current and former.
fn realistic_waits() -> Vec<Wait> {
    let patterns = |texts: &[&str]| Wait {
        texts: texts.iter().map(|text| text.as_bytes().to_vec()).collect(),
        ..Wait::default()
    };
    let tools: Vec<String> = (0..139).map(|i| format!("<function=tool_{i}>")).collect();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let mut all = vec![
        patterns(&["<tool_call>", "<function="]),
        patterns(&tools),
        patterns(&[r#"^[\s\S]*?(<tool_call>|<function[ =])[\s\S]*$"#]),
        patterns(&[r#"(?:^|\n)\s*(```json\n|\{"name")"#, r#"<function=\w+>"#]),
        patterns(&[r#"^(?:[^<]|<(?!t))*(<tool_call>)"#, r#"([`'"])name\1: "#]),
        patterns(&[r#"[\s\S]*?(\{\s*"name"\s*:)[\s\S]*"#, r#"\bfunction\b"#]),
        patterns(&[r#"\{"type": "function","#, r#"^\s*\{"name"$"#, "```$"]),
    ];
    all.push(Wait {
        are_words: true,
        ..patterns(&["<tool_call>", "{\"name\"", "<function=tool_1>", "```"])
    });
    all.push(Wait {
        are_words: true,
        ..patterns(&tools)
    });
    all
}

const TEXTS: [&str; 8] = [
    "I call it now: <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>",
    "<function=tool_7>{\"x\": 2}</function>",
    "The functional way; <functio n, <function=tool_138>\nvalue</function>",
    "{\"name\": \"f\", \"arguments\": {}}",
    "Grüße, 日本 and 'name': or\n  ```json\n{\"a\": 1}```",
    " {\"name\" ```<tool_call><tool_call>",
    "nothing that anybody waits for, \u{3042}\u{3044}\u{1F600}.",
    "{ \"name\" : \"x\"} <function tool>",
];

/// Tests texts with and without tool calls. Returns the number of texts in which the grammar has
/// begun.
pub fn realistic(vocabulary: &Vocabulary, rng: &mut Rng) -> usize {
    let mut begun = 0;
    let stacks = walk::stacks(CALLS.as_bytes(), vocabulary).expect("few stacks");
    let mut stacks = Anywhere::new(stacks);
    for wait in realistic_waits() {
        let mut pair = wait.pair(CALLS.as_bytes(), vocabulary).expect("patterns");
        for text in TEXTS {
            let tokens = spelled(text.as_bytes(), vocabulary, rng);
            match stream(&mut pair, &mut stacks, &wait, vocabulary, &tokens, rng) {
                Ok(has_begun) => begun += usize::from(has_begun == Some(true)),
                Err(what) => panic!("{what}\n{wait:?}\n{text}\n{tokens:?}\n{}", replay()),
            }
            pair.reset();
            stacks.reset();
        }
    }
    begun
}

fn patterns(texts: &[String]) -> Wait {
    Wait {
        texts: texts.iter().map(|text| text.as_bytes().to_vec()).collect(),
        ..Wait::default()
    }
}

/// Checks how much work patterns may cause for one token, and how much stack they may need.
pub fn limits(vocabulary: &Vocabulary) {
    let n = vocabulary.n_tokens;
    let a = vocabulary.pieces.iter().position(|piece| piece == b"a");
    let a = a.expect("it has one") as i32;
    let grammar = b"root ::= .*";
    for depth in [80, MAX_TRIGGER_DEPTH] {
        for pattern in nested(depth) {
            on_a_small_stack(|| {
                let waits = patterns(&[pattern]).ours(grammar, vocabulary);
                for _ in 0..4 {
                    waits.accept(a);
                }
                drop(waits.clone());
            });
        }
    }
    // A single pattern does not take too many steps.
    let one = patterns(&costly(1)).ours(grammar, vocabulary);
    let hundred = patterns(&costly(100)).ours(grammar, vocabulary);
    for _ in 0..98 {
        one.accept(a);
        hundred.accept(a);
    }
    assert_eq!(pair::error(&one), 0);
    assert_eq!(pair::mask(&one, n).len(), n);
    assert_eq!(pair::error(&hundred), LLAMA_SIEVE_ERROR_GRAMMAR_LIMIT);
    assert_eq!(pair::mask(&hundred, n), vocabulary.eog);
    hundred.reset();
    assert_eq!(pair::error(&hundred), 0);
    assert_eq!(pair::mask(&hundred, n).len(), n);
}
