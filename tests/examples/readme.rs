//! Runs the README's snippets unchanged: C and Node here, Python in python/tests, and Rust as a
//! documentation test.

use std::fs;
use std::process::Command;

use llama_sieve::sieve::{Params, Sieve};

use crate::languages::node_package;
use crate::toolchain::{Build, Link, empty_folder, our_library, root, said};

/// Returns the only code block in a language.
fn snippet(language: &str) -> String {
    let readme = fs::read_to_string(root().join("README.md")).expect("it is there");
    let fence = format!("```{language}\n");
    let blocks: Vec<&str> = readme.split(&fence).skip(1).collect();
    let [block] = blocks[..] else {
        panic!("{} blocks of {language}", blocks.len());
    };
    block.split("```").next().expect("it ends").to_owned()
}

#[test]
fn c() {
    let source = empty_folder("readme_c").join("main.c");
    let main = "int main(void) {
        struct llama_sampler * chain = new_chain();
        int n = llama_sampler_chain_n(chain);
        llama_sampler_free(chain);
        return n == 3 ? 0 : 1;
    }\n";
    fs::write(&source, snippet("c") + main).expect("the folder was just made");
    let build = Build::new("readme", &source.display().to_string());
    let program = build
        .with_ours(Link::Shared)
        .with_llama(Link::Shared)
        .build();
    assert_eq!(program.succeed(&[]), "");
}

#[test]
fn node() {
    let Some(folder) = node_package() else {
        return;
    };
    let script = folder.join("readme.mjs");
    fs::write(&script, snippet("js")).expect("the folder is writable");
    let mut node = Command::new("node");
    node.arg(&script)
        .env("LLAMA_SIEVE_LIBRARY", our_library(Link::Shared));
    let output = node.output().expect("it runs");
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let seeded = Params {
        seed: 42,
        ..Params::default()
    };
    let mut sieve = Sieve::new(&seeded).expect("parameters");
    let token = sieve.sample(&[0.5f32, 3.0, 2.5, -1.0]).expect("logits");
    assert!(text.starts_with(&format!("{token} 1.26")), "{text}");
    assert!(text.contains("root ::="), "{text}");
}
