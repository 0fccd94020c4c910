//! The README's snippets run as they stand there: C and Node here, Python in python/tests, and Rust
//! as a documentation test.

use std::fs;
use std::process::Command;

use crate::languages::node_folder;
use crate::toolchain::{Build, Link, empty_folder, our_library, root, said};

/// The one block of a language.
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
    let Some(folder) = node_folder() else {
        return;
    };
    let library = "target/release/libllama_sieve.so";
    let source = snippet("js");
    assert!(source.contains(library), "{source}");
    let ours = our_library(Link::Shared).display().to_string();
    let script = folder.join("readme.mjs");
    fs::write(&script, source.replace(library, &ours)).expect("the folder is writable");
    let output = Command::new("node").arg(&script).output().expect("it runs");
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("1 1.26"), "{text}");
}
