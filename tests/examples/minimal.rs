//! Checks that the minimal examples print the tokens of llama.cpp's own chain. The one in Python is
//! tested in `python/tests`, since it needs numpy.

use std::fs;
use std::process::Command;

use crate::languages::node_package;
use crate::toolchain::{Build, Link, our_library, root, rust_example, said};
use vendor_llama_cpp::sys;

/// Returns the output that the examples must have: the tokens of the built-in chain, each sampled
/// from the logits of their made-up model after the previous token.
fn tokens() -> String {
    // SAFETY: constructors without preconditions; the chain owns its members.
    let chain = unsafe {
        let chain = sys::llama_sampler_chain_init(sys::llama_sampler_chain_default_params());
        for member in [
            sys::llama_sampler_init_top_k(40),
            sys::llama_sampler_init_top_p(0.95, 1),
            sys::llama_sampler_init_min_p(0.05, 1),
            sys::llama_sampler_init_temp(0.8),
            sys::llama_sampler_init_dist(42),
        ] {
            sys::llama_sampler_chain_add(chain, member);
        }
        chain
    };
    let mut token = 0;
    let mut text = String::new();
    for _ in 0..8 {
        let candidate = |id: i32| sys::llama_token_data {
            id,
            logit: ((id + token) * 7919 % 1024) as f32 / 16.0,
            p: 0.0,
        };
        let mut candidates: Vec<_> = (0..1000).map(candidate).collect();
        let mut array = sys::llama_token_data_array {
            data: candidates.as_mut_ptr(),
            size: candidates.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: the chain is alive, and the array is that of the candidates.
        unsafe { sys::llama_sampler_apply(chain, &raw mut array) };
        token = candidates[array.selected as usize].id;
        text += &format!("{token} ");
    }
    // SAFETY: it was made above, and is not used any more.
    unsafe { sys::llama_sampler_free(chain) };
    text
}

#[test]
fn every_language_says_what_it_prints() {
    for language in ["c", "rs", "py", "mjs"] {
        let path = root().join("examples/minimal").with_extension(language);
        let source = fs::read_to_string(&path).expect("the example is there");
        let says = format!("Prints: {}", tokens().trim_end());
        assert!(source.contains(&says), "{}: {says}", path.display());
        assert!(source.lines().count() <= 25, "{}", path.display());
    }
}

#[test]
fn c() {
    let build = Build::new("minimal", "examples/minimal.c").with_ours(Link::Shared);
    assert_eq!(build.build().succeed(&[]), tokens());
}

#[test]
fn rust() {
    let Some(example) = rust_example("minimal", "minimal::rust") else {
        return;
    };
    let output = Command::new(example).output().expect("the example runs");
    assert_eq!(said(&output), tokens());
}

#[test]
fn node() {
    let Some(folder) = node_package() else {
        return;
    };
    let script = folder.join("minimal.mjs");
    fs::copy(root().join("examples/minimal.mjs"), &script).expect("the folder is writable");
    let mut node = Command::new("node");
    node.arg(&script)
        .env("LLAMA_SIEVE_LIBRARY", our_library(Link::Shared));
    assert_eq!(said(&node.output().expect("node runs")), tokens());
}
