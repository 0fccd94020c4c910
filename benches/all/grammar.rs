//! Grammars compared with llama.cpp's own. The rows are: the vocabulary's tree, the application to
//! the whole array, the mask alone, the constructor, the calls for one token at a time, a chain
//! straight from the logits, and a token while a lazy grammar waits for one of 139 triggers. The
//! rows in which both sides process an array check that both leave the same candidates, and the
//! chain checks the tokens.
//!
//! The vocabulary is that of the GGUF file that LLAMA_SIEVE_BENCH_VOCABULARY names. Without it,
//! 128,256 texts are generated: single bytes, and syllables, words and numbers as tokenizers have
//! them.

mod calls;
mod texts;
mod walks;

use std::collections::HashSet;
use std::ffi::{CString, c_char};
use std::ptr::null;

use llama_sieve::ffi::grammar as sieve;
use llama_sieve::ffi::grammar::lazy::llama_sieve_init_grammar_lazy_patterns;
use llama_sieve::grammar::{TokenTexts, VocabularyTree};
use vendor_llama_cpp::test_vocabulary::Kind;
use vendor_llama_cpp::{Model, TestVocabulary, sys};

use crate::Options;
use crate::measure::{fill, floor, median, thread_time};
use crate::report::Measurement;
use crate::support::arrays::{Rng, peaked};
use crate::support::{Array, HostSampler};

const N_VOCAB: usize = 128_256;
/// The most steps of one walk.
const STEPS: usize = 24;
const WALKS_OF_BOTH: usize = 2;
const ROUNDS: usize = 9;

fn ours(model: &Model, text: &str) -> HostSampler {
    let text = CString::new(text).expect("no NUL");
    let vocab = model.vocab().cast();
    // SAFETY: the vocabulary lives, both texts are C strings.
    HostSampler::new(unsafe {
        sieve::llama_sieve_init_grammar(vocab, text.as_ptr(), c"root".as_ptr())
    })
}

/// Returns the built-in grammar of a text.
pub fn theirs(model: &Model, text: &str) -> HostSampler {
    let text = CString::new(text).expect("no NUL");
    // SAFETY: the vocabulary lives, both texts are C strings.
    HostSampler::new(unsafe {
        sys::llama_sampler_init_grammar(model.vocab(), text.as_ptr(), c"root".as_ptr())
    })
}

/// Returns the nanoseconds that `body` takes, and its result.
fn timed<T>(body: impl FnOnce() -> T) -> (f64, T) {
    let start = thread_time();
    let made = std::hint::black_box(body());
    ((thread_time() - start) * 1e3, made)
}

pub fn vocabulary() -> Model {
    if let Ok(path) = std::env::var("LLAMA_SIEVE_BENCH_VOCABULARY") {
        return Model::load_vocabulary(path).expect("LLAMA_SIEVE_BENCH_VOCABULARY is a vocabulary");
    }
    let texts = generated_texts().into_iter();
    let mut tokens = vec![(b"</s>".to_vec(), Kind::Control)];
    tokens.extend(texts.map(|text| (text, Kind::Normal)));
    let vocabulary = TestVocabulary { tokens, eos: 0 };
    let path = std::env::temp_dir().join(format!("llama-sieve-bench-{}.gguf", std::process::id()));
    let model = vocabulary.load(&path).expect("the vocabulary loads");
    std::fs::remove_file(&path).expect("it was written");
    model
}

/// Returns the texts of all tokens but the first, which ends the generation.
pub fn generated_texts() -> Vec<Vec<u8>> {
    let mut texts: Vec<Vec<u8>> = (1..=u8::MAX).map(|byte| vec![byte]).collect();
    let mut seen: HashSet<Vec<u8>> = texts.iter().cloned().collect();
    let mut rng = Rng(7);
    while texts.len() < N_VOCAB - 1 {
        let text = text(&mut rng);
        if seen.insert(text.clone()) {
            texts.push(text);
        }
    }
    texts
}

fn text(rng: &mut Rng) -> Vec<u8> {
    const PARTS: [&str; 24] = [
        "er", "in", "th", "an", "on", "re", "st", "al", "ing", "tion", "com", "pro", "un", "ly",
        "ment", "con", "able", "é", "ß", "日", "本", "の", "и", "о",
    ];
    const SIGNS: [&str; 16] = [
        "\": ", "\", \"", "(", ");", " = ", "{\n", "}\n", "--", "==", "/", "\t", "  ", ".", ",",
        "_", "<",
    ];
    let mut text = String::new();
    if rng.chance(0.45) {
        text.push(' ');
    }
    match rng.below(10) {
        0 => text += &rng.below(1000).to_string(),
        1 => {
            for _ in 0..1 + rng.below(3) {
                text += rng.pick(&SIGNS);
            }
        }
        _ => {
            for _ in 0..1 + rng.below(4) {
                match rng.chance(0.5) {
                    true => text += rng.pick(&PARTS),
                    false => text.push(char::from(b'a' + rng.below(26) as u8)),
                }
            }
        }
    }
    text.into_bytes()
}

/// The vocabulary of a model, as a grammar needs it.
#[derive(Debug)]
struct Texts<'a>(&'a Model);

impl TokenTexts for Texts<'_> {
    fn n_tokens(&self) -> usize {
        self.0.n_vocab()
    }

    fn is_eog(&self, token: i32) -> bool {
        self.0.is_eog(token)
    }

    fn written_out(&self, token: i32, piece: &mut Vec<u8>) {
        *piece = self.0.piece(token);
    }
}

/// Measures every row.
pub fn run(options: &Options, done: &mut dyn FnMut(Measurement)) {
    let mut row = |name: &str, n: usize, ours: f64, theirs: Option<f64>, floor: Option<f64>| {
        if options.wants(name) {
            done(Measurement {
                part: "grammar".into(),
                name: name.into(),
                n,
                shape: String::new(),
                ours_ns: ours,
                theirs_ns: theirs,
                floor_ns: floor,
            });
        }
    };
    let model = vocabulary();
    let n = model.n_vocab();
    let input = peaked(n, &mut Rng(71));
    let floor = floor(&input) * 1e3;
    let (tree, first) = timed(|| ours(&model, "root ::= \"first\""));
    drop(first);
    row("grammar, the vocabulary's tree, once", n, tree, None, None);
    if options.wants("grammar, the vocabulary's tree, once") {
        let tree = VocabularyTree::new(&Texts(&model));
        let mib = tree.bytes() as f64 / f64::from(1 << 20);
        crate::say(format_args!("The vocabulary's tree has {mib:.1} MiB."));
    }
    let mut calls_of_all = Vec::new();
    let (mut all, mut applies) = (Vec::new(), [Vec::new(), Vec::new()]);
    let mut walked = Vec::new();
    for text in texts::all() {
        let name = text.name;
        let mut of_both = None;
        if text.both {
            let [ours, theirs] = walks_of_both(&model, &text.text, &input);
            let full = format!("grammar {name}, mask and apply, mean, in turn");
            row(&full, n, mean(&ours), Some(mean(&theirs)), Some(floor));
            of_both = Some([mean(&ours), mean(&theirs)]);
            applies[0].extend(ours);
            applies[1].extend(theirs);
            let mut of_call = |name: &str, ours, theirs| row(name, 0, ours, Some(theirs), None);
            calls_of_all.push(calls::rows(&model, name, &text.text, &mut of_call));
        }
        let (walks, times) = walks::run(&model, &text.text);
        row(
            &format!("grammar {name}, first mask"),
            n,
            times[0],
            None,
            None,
        );
        masks(&mut row, &format!("grammar {name}"), n, &times);
        all.extend_from_slice(&times);
        let [fresh, known, builtin] = constructors(&model, &text.text);
        for (how, ours) in [("fresh", fresh), ("known", known)] {
            row(
                &format!("grammar {name}, init, {how}"),
                0,
                ours,
                Some(builtin),
                None,
            );
        }
        walked.push(walks::Walked {
            name: name.into(),
            text: text.text,
            walks,
            masks_ns: times,
            init_ns: [fresh, known, builtin],
            apply_ns: of_both,
        });
    }
    if let Some(path) = &options.walks {
        walks::write(path, &model, walked);
    }
    masks(&mut row, "all grammars", n, &all);
    let [ours, theirs] = applies.map(|times| mean(&times));
    let name = "all grammars, mask and apply, mean, in turn";
    row(name, n, ours, Some(theirs), Some(floor));
    calls::means(&calls_of_all, &mut |name, ours, theirs| {
        row(name, 0, ours, Some(theirs), None);
    });
    for (length, both) in [(300, true), (300, false), (10_000, false)] {
        let [ours, theirs] = waiting(&model, length, both);
        let how = if both { "in turn" } else { "alone" };
        let name = format!("grammar, accept behind {length} tokens, 139 triggers, {how}");
        row(&name, 0, ours, both.then_some(theirs), None);
    }
    calls::fused(&model, options, done);
}

/// Adds the rows of masks along walks: their mean, median and 99th percentile. Some masks are in
/// the cache, and others have to be computed.
fn masks(
    row: &mut impl FnMut(&str, usize, f64, Option<f64>, Option<f64>),
    name: &str,
    n: usize,
    times: &[f64],
) {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    row(&format!("{name}, mask, mean"), n, mean(&times), None, None);
    for (name_of_share, share) in [("median", 50), ("99th percentile", 99)] {
        let time = times[times.len() * share / 100];
        row(
            &format!("{name}, mask, {name_of_share}"),
            n,
            time,
            None,
            None,
        );
    }
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// Returns a random one of the allowed tokens that do not end the generation, if there is any.
fn step(model: &Model, allowed: impl Iterator<Item = i32>, rng: &mut Rng) -> Option<i32> {
    let allowed: Vec<i32> = allowed.filter(|&token| !model.is_eog(token)).collect();
    allowed.get(rng.below(allowed.len().max(1))).copied()
}

/// Returns the times of the steps of walks that both sides take in turn: of this library's mask and
/// application together, and of the built-in's application.
fn walks_of_both(model: &Model, text: &str, input: &Array) -> [Vec<f64>; 2] {
    let ours = ours(model, text);
    let theirs = theirs(model, text);
    let mut times = [Vec::new(), Vec::new()];
    let logits = input.logits();
    let (mut a, mut b) = (input.clone(), input.clone());
    for walk in 0..WALKS_OF_BOTH {
        let mut rng = Rng(5 + walk as u64);
        ours.reset();
        theirs.reset();
        for _ in 0..STEPS {
            refill(&mut a, &logits);
            times[0].push(timed(|| ours.apply(&mut a)).0);
            refill(&mut b, &logits);
            times[1].push(timed(|| theirs.apply(&mut b)).0);
            assert_eq!(a, b, "the two sides differ");
            let Some(token) = step(model, a.allowed().into_iter(), &mut rng) else {
                break;
            };
            ours.accept(token);
            theirs.accept(token);
        }
    }
    times
}

/// Fills an array from the logits, as a host does before each application. A copy of a
/// whole array would move three times as much memory.
fn refill(array: &mut Array, logits: &[f32]) {
    fill(&mut array.data, logits);
    array.selected = -1;
    array.sorted = false;
}

/// Returns the medians of three constructors: this library's for a text that is new, this library's
/// for a text that it has seen, and the built-in's.
fn constructors(model: &Model, text: &str) -> [f64; 3] {
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        let unseen = format!("{text}\n# {round}\n");
        times[0].push(timed(|| ours(model, &unseen)).0);
        times[1].push(timed(|| ours(model, &unseen)).0);
        times[2].push(timed(|| theirs(model, &unseen)).0);
    }
    times.map(median)
}

/// Returns the medians of the time that one token takes after `length` tokens without a trigger,
/// for this library and, if `both` is true, for the built-in.
fn waiting(model: &Model, length: usize, both: bool) -> [f64; 2] {
    let tools: Vec<CString> = (0..139)
        .map(|i| CString::new(format!("<function=tool_{i}>")).expect("no NUL"))
        .collect();
    let mut list: Vec<*const c_char> = tools.iter().map(|tool| tool.as_ptr()).collect();
    let (text, root) = (CString::new(texts::JSON).expect("no NUL"), c"root");
    let (text, root, n) = (text.as_ptr(), root.as_ptr(), list.len());
    let (vocab, list) = (model.vocab(), list.as_mut_ptr());
    // SAFETY: the vocabulary lives, all texts are C strings.
    let (ours, theirs) = unsafe {
        let of_ours = vocab.cast();
        (
            llama_sieve_init_grammar_lazy_patterns(of_ours, text, root, list, n, null(), 0),
            sys::llama_sampler_init_grammar_lazy_patterns(vocab, text, root, list, n, null(), 0),
        )
    };
    let (ours, theirs) = (HostSampler::new(ours), HostSampler::new(theirs));
    let mut rng = Rng(3);
    let mut times = [Vec::new(), Vec::new()];
    for i in 0..length + 50 {
        let token = 1 + rng.below(model.n_vocab() - 1) as i32;
        let (a, ()) = timed(|| ours.accept(token));
        // The built-in searches the whole text each time, so it runs only when it is timed.
        let b = if both {
            timed(|| theirs.accept(token)).0
        } else {
            0.0
        };
        if i >= length {
            times[0].push(a);
            times[1].push(b);
        }
    }
    times.map(median)
}
