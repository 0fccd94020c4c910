//! Tests that written models and the trained one can be loaded, tokenise texts, and give usable
//! logits.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use vendor_llama_cpp::{Context, Model, TestModel, sys, test_model};

const TEXTS: [&str; 6] = [
    "",
    "In the beginning was the Word.",
    "  two spaces\n\nand\ttabs  ",
    "Grüße, καλημέρα, 你好, 🦙🧂!",
    "<|endoftext|> is plain text here",
    "a\0b",
];

#[test]
fn models_of_all_sizes_work() {
    for n_vocab in [256, 257, 258, 1000, 32_000, 262_144] {
        let model = load(&test_model::cached(n_vocab, 1));
        assert_eq!(model.n_vocab(), n_vocab);
        check_round_trips(&model);
        check_logits(&model, "seed 1");
    }
}

#[test]
fn half_precision_works() {
    let file = Temporary::new("half.gguf");
    let mut wanted = TestModel::new(1000, 5);
    wanted.f16 = true;
    wanted.write(&file.0).unwrap();
    let model = load(&file.0);
    check_round_trips(&model);
    check_logits(&model, "f16");
}

#[test]
fn special_tokens_exist_from_257_on() {
    let smallest = load(&test_model::cached(256, 1));
    assert_eq!((smallest.bos(), smallest.eos()), (0, 0));
    assert!(smallest.is_eog(0));
    assert_eq!(smallest.tokenize("a", true), [i32::from(b'a')]);

    let model = load(&test_model::cached(258, 1));
    assert_eq!((model.bos(), model.eos()), (256, 257));
    assert!(model.is_eog(257) && !model.is_eog(256));
    assert_eq!(model.tokenize("a", true), [256, i32::from(b'a')]);
    assert_eq!(model.piece(257), b"<|endoftext|>");
}

#[test]
fn merges_shorten_a_text() {
    let text = "In the beginning God created the heaven and the earth.";
    let lengths = [256, 1000, 262_144].map(|n_vocab| {
        load(&test_model::cached(n_vocab, 1))
            .tokenize(text, false)
            .len()
    });
    assert!(lengths[0] == text.len(), "{lengths:?}");
    assert!(
        lengths[0] > lengths[1] && lengths[1] > lengths[2],
        "{lengths:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_file() {
    let files = [("a.gguf", 3), ("b.gguf", 3), ("c.gguf", 4)].map(|(name, seed)| {
        let file = Temporary::new(name);
        TestModel::new(300, seed).write(&file.0).unwrap();
        fs::read(&file.0).unwrap()
    });
    assert!(files[0] == files[1]);
    assert!(files[0] != files[2]);
}

#[test]
fn sizes_out_of_range_are_named() {
    let refused = |model: TestModel, name: &str| {
        let message = model.write(Path::new("never-written.gguf")).unwrap_err();
        assert!(message.contains(name), "{message}");
    };
    refused(TestModel::new(255, 1), "n_vocab is 255");
    refused(TestModel::new(524_289, 1), "n_vocab is 524289");
    let model = TestModel::default;
    refused(
        TestModel {
            n_embd: 0,
            ..model()
        },
        "n_embd is 0",
    );
    refused(
        TestModel {
            n_head: 3,
            ..model()
        },
        "n_head = 6",
    );
    refused(
        TestModel {
            n_layer: 0,
            ..model()
        },
        "n_layer is 0",
    );
    refused(TestModel { n_ff: 0, ..model() }, "n_ff is 0");
    refused(
        TestModel {
            n_ctx: 0,
            ..model()
        },
        "n_ctx is 0",
    );
}

#[test]
fn a_missing_folder_is_an_error() {
    let message = TestModel::default()
        .write(Path::new("/nonexistent/model.gguf"))
        .unwrap_err();
    assert!(message.contains("/nonexistent/model.gguf"), "{message}");
}

#[test]
fn load_errors_say_why() {
    let message = Model::load("/nonexistent/model.gguf").unwrap_err();
    assert!(message.contains("/nonexistent/model.gguf"), "{message}");
    assert!(!message.contains("no reason"), "{message}");

    let file = Temporary::new("broken.gguf");
    fs::write(&file.0, "not a model").unwrap();
    let message = Model::load(&file.0).unwrap_err();
    assert!(!message.contains("no reason"), "{message}");
}

#[test]
fn contexts_forget_what_they_are_told_to() {
    let model = load(&test_model::cached(1000, 1));
    let tokens = model.tokenize("In the beginning was the Word", false);
    let mut context = Context::new(&model, 512, 1).unwrap();
    assert_eq!(context.n_past(), 0);
    context.decode(&tokens).unwrap();
    let first = context.logits().to_vec();
    assert_eq!(context.n_past(), tokens.len());

    context.truncate(2);
    assert_eq!(context.n_past(), 2);
    context.decode(&tokens[2..]).unwrap();
    assert_eq!(context.n_past(), tokens.len());

    context.clear();
    assert_eq!(context.n_past(), 0);
    context.decode(&tokens).unwrap();
    assert_eq!(context.logits(), first);
}

#[test]
fn contexts_take_long_input_and_refuse_too_long() {
    let model = load(&test_model::cached(1000, 1));
    let mut context = Context::new(&model, 1024, 2).unwrap();
    context.decode(&[65; 1000]).unwrap();
    assert_eq!(context.n_past(), 1000);
    let message = context.decode(&[65; 100]).unwrap_err();
    assert!(message.contains("room for 24 more"), "{message}");
    assert!(context.decode(&[]).is_err());
    assert_eq!(context.n_past(), 1000);
}

#[test]
fn tokens_outside_the_vocabulary_are_refused() {
    let model = load(&test_model::cached(256, 1));
    let mut context = Context::new(&model, 512, 1).unwrap();
    let message = context.decode(&[256]).unwrap_err();
    assert!(message.contains("invalid token"), "{message}");
}

#[test]
fn models_are_shared_between_threads() {
    let model = load(&test_model::cached(1000, 1));
    let model = &model;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || check_logits(model, "thread"));
        }
    });
}

#[test]
fn the_trained_model_generates() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/kjv-tiny.gguf");
    let model = load(&path);
    check_round_trips(&model);
    let mut context = Context::new(&model, 512, 2).unwrap();
    context
        .decode(&model.tokenize("In the beginning", true))
        .unwrap();

    let greedy = Sampler::greedy();
    let mut text = Vec::new();
    for _ in 0..24 {
        // SAFETY: sampler and context are alive, and the context has logits.
        let token = unsafe { sys::llama_sampler_sample(greedy.0, context.as_ptr(), -1) };
        assert_eq!(token, largest(context.logits()));
        if model.is_eog(token) {
            break;
        }
        text.extend(model.piece(token));
        context.decode(&[token]).unwrap();
    }
    let text = String::from_utf8_lossy(&text);
    assert!(text.split_whitespace().count() >= 4, "{text:?}");
}

#[test]
fn the_version_is_the_pinned_one() {
    assert!(vendor_llama_cpp::model::version().starts_with("0.6.0"));
}

fn load(path: &Path) -> Model {
    Model::load(path).unwrap()
}

fn check_round_trips(model: &Model) {
    for text in TEXTS {
        let tokens = model.tokenize(text, false);
        let bytes: Vec<u8> = tokens
            .iter()
            .flat_map(|&token| model.piece(token))
            .collect();
        assert_eq!(bytes, text.as_bytes(), "{} tokens", model.n_vocab());
    }
}

/// Checks that the logits are like a language model's: finite, several units apart, and with
/// different largest ones after different tokens.
fn check_logits(model: &Model, what: &str) {
    let mut context = Context::new(model, 512, 1).unwrap();
    let mut winners = Vec::new();
    for token in model.tokenize("And God said, Let there be light", false) {
        context.decode(&[token]).unwrap();
        let logits = context.logits();
        assert_eq!(logits.len(), model.n_vocab());
        assert!(logits.iter().all(|logit| logit.is_finite()));
        let spread = spread(logits);
        assert!((1.5..6.0).contains(&spread), "{what}: spread {spread}");
        winners.push(largest(logits));
    }
    winners.sort_unstable();
    winners.dedup();
    assert!(winners.len() > 3, "{what}: always {winners:?}");
}

fn spread(logits: &[f32]) -> f64 {
    let n = logits.len() as f64;
    let mean = logits.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let squares = logits.iter().map(|&x| (f64::from(x) - mean).powi(2));
    (squares.sum::<f64>() / n).sqrt()
}

/// Returns the token with the largest logit, the first one if several are equal, as the greedy
/// sampler does.
fn largest(logits: &[f32]) -> i32 {
    let mut best = 0;
    for (index, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = index;
        }
    }
    i32::try_from(best).unwrap()
}

/// A sampler that frees itself.
struct Sampler(*mut sys::llama_sampler);

impl Sampler {
    fn greedy() -> Self {
        // SAFETY: the function asks for nothing.
        Self(unsafe { sys::llama_sampler_init_greedy() })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // SAFETY: the sampler came from llama.cpp, is in no chain, and is freed only here.
        unsafe { sys::llama_sampler_free(self.0) };
    }
}

/// A file that is removed at the end of its test.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("vendor-llama-{}-{number}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
