//! Writes `include/llama_sieve.h`, which is committed and compared by CI, from `src/ffi` and
//! `src/errors.rs`.
//!
//! cbindgen prints all constants, then all types, then all functions. [`sections`] defines the
//! sections of the header; [`book`] sorts the items into them.

mod book;
mod sections;

use std::error::Error;
use std::fs;
use std::path::Path;

/// The files whose public items, with those of the modules that they declare, belong in the header.
const SOURCES: [&str; 15] = [
    "../errors.rs",
    "given.rs",
    "library.rs",
    "attach.rs",
    "certificate/mod.rs",
    "samplers.rs",
    "bans.rs",
    "loops.rs",
    "seed.rs",
    "trie/mod.rs",
    "grammar/mod.rs",
    "sieve/mod.rs",
    "chain/mod.rs",
    "trace.rs",
    "metrics.rs",
];

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ffi = here.join("../../src/ffi");
    let config = cbindgen::Config::from_file(here.join("../../cbindgen.toml"))?;
    let builder = cbindgen::Builder::new().with_config(config);
    let add = |builder: cbindgen::Builder, file| builder.with_src(ffi.join(file));
    let bindings = SOURCES.iter().fold(builder, add).generate()?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = as_c_prose(&String::from_utf8(text)?);
    fs::write(here.join("../llama_sieve.h"), book::bind(&text)?)?;
    Ok(())
}

/// Replaces the markup of Rust's documentation by plain words for C readers.
fn as_c_prose(text: &str) -> String {
    text.replace(" # Safety\n", " The caller guarantees:\n")
        .replace('`', "")
}
