//! Draws the pictures of docs/sampling.md: the effect of each stage of the sieve on one
//! distribution of the trained model.
//!
//! ```text
//! cargo run --release --example draw_sampling              draws docs/pictures/*.svg from the recorded logits
//! cargo run --release --example draw_sampling -- record    records them: docs/pictures/logits.tsv
//! ```
//!
//! The logits are recorded in hundredths, since those that the model computes differ in their last
//! digits between processors. The pictures of the recorded ones are the same everywhere, and a test
//! compares them with the files.

mod pictures;

use std::path::Path;
use std::process::ExitCode;

use pictures::Step;
use vendor_llama_cpp::{Context, Model};

const PROMPT: &str = "And the king said unto the servants of the king, Bring me the";

/// Returns the trained model's logits after [`PROMPT`].
fn record(root: &Path) -> Step {
    let model = Model::load(root.join("models/kjv-tiny.gguf")).expect("the model loads");
    let history = model.tokenize(PROMPT, true);
    let mut context = Context::new(&model, 64, 1).expect("a context");
    context.decode(&history).expect("the prompt fits");
    let logits = context.logits();
    let tokens = logits.iter().enumerate();
    Step {
        prompt: PROMPT.to_owned(),
        tokens: tokens
            .map(|(id, &logit)| {
                let piece = model.piece(id as i32);
                (String::from_utf8_lossy(&piece).into_owned(), logit)
            })
            .collect(),
        history,
    }
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("docs/pictures");
    let recorded = folder.join("logits.tsv");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("record") => {
            let text = record(root).to_text();
            std::fs::write(&recorded, text).expect("docs/pictures can be written");
        }
        Some(other) => {
            eprintln!("unknown argument {other}; record, or nothing");
            return ExitCode::from(2);
        }
        None => {}
    }
    let text = std::fs::read_to_string(&recorded).expect("docs/pictures/logits.tsv is there");
    let step = Step::parse(&text);
    for (name, picture) in pictures::all(&step) {
        std::fs::write(folder.join(name), picture).expect("docs/pictures can be written");
    }
    ExitCode::SUCCESS
}
