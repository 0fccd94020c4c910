//! Vocabularies of any texts, without a model around them, for tests of what reads texts of tokens.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use crate::test_model::{Gguf, symbol};
use crate::{Model, model, sys};

/// The kind of a token, by GGUF's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// Any bytes.
    Normal = 1,
    /// A name, which stands in no text; any bytes but NUL.
    Control = 3,
    /// A text that is recognised whole; any bytes but NUL.
    UserDefined = 4,
    /// A token without a text; its name is free.
    Unused = 5,
}

/// The texts of a vocabulary, in the order of their tokens. No two may be written alike: the same
/// bytes as a normal and as a user-defined token are.
#[derive(Clone, Debug, Default)]
pub struct TestVocabulary {
    /// Bytes or name, and kind.
    pub tokens: Vec<(Vec<u8>, Kind)>,
    /// The token that ends a text.
    pub eos: usize,
}

impl TestVocabulary {
    /// Writes the vocabulary as a GGUF file and loads it.
    pub fn load(&self, path: &Path) -> Result<Model, String> {
        self.write(path)?;
        Model::load_vocabulary(path)
    }

    /// Writes a GGUF file with so many tokens that have no texts, over one that may be there, and
    /// loads it.
    pub fn load_without_texts(n_tokens: usize, path: &Path) -> Result<Model, String> {
        model::start_backend();
        let file = Gguf::new()?;
        file.set_str("general.architecture", "llama");
        file.set_str("tokenizer.ggml.model", "no_vocab");
        file.set_u32("llama.vocab_size", n_tokens);
        write_to(&file, path)?;
        Model::load_vocabulary(path)
    }

    /// Writes the vocabulary as a GGUF file, over one that may be there.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        model::start_backend();
        let file = Gguf::new()?;
        file.set_str("general.architecture", "llama");
        file.set_str("tokenizer.ggml.model", "gpt2");
        file.set_str("tokenizer.ggml.pre", "gpt-2");
        let texts: Vec<Vec<u8>> = self.tokens.iter().map(written).collect();
        file.set_texts("tokenizer.ggml.tokens", &texts);
        let kinds: Vec<i32> = self.tokens.iter().map(|&(_, kind)| kind as i32).collect();
        file.set_i32s("tokenizer.ggml.token_type", &kinds);
        // The tokenizer wants some, and a pair that does not occur does no harm.
        file.set_strings("tokenizer.ggml.merges", &["no merge".to_owned()]);
        file.set_u32("tokenizer.ggml.eos_token_id", self.eos);
        file.set_bool("tokenizer.ggml.add_bos_token", false);
        write_to(&file, path)
    }
}

fn write_to(file: &Gguf, path: &Path) -> Result<(), String> {
    model::forget_error();
    let c_path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| format!("{}: a file name cannot contain NUL", path.display()))?;
    // SAFETY: file and path are valid, and only what is said about the file is written.
    match unsafe { sys::gguf_write_to_file(file.as_ptr(), c_path.as_ptr(), true) } {
        true => Ok(()),
        false => Err(format!(
            "cannot write {}: {}",
            path.display(),
            model::last_error()
        )),
    }
}

fn written((text, kind): &(Vec<u8>, Kind)) -> Vec<u8> {
    match kind {
        Kind::Normal => text
            .iter()
            .map(|&byte| symbol(byte))
            .collect::<String>()
            .into_bytes(),
        _ => text.clone(),
    }
}

impl Model {
    /// Loads the vocabulary of a GGUF file, and nothing else of it.
    pub fn load_vocabulary(path: impl AsRef<Path>) -> Result<Self, String> {
        let path = path.as_ref();
        model::start_backend();
        model::forget_error();
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| format!("{}: a file name cannot contain NUL", path.display()))?;
        let name: *const c_char = c_path.as_ptr();
        // SAFETY: `c_path` ends with NUL and outlives the call.
        let loaded = unsafe { sys::vendor_llama_vocabulary_load(name) };
        NonNull::new(loaded)
            .map(Self::from_raw)
            .ok_or_else(|| format!("cannot load {}: {}", path.display(), model::last_error()))
    }
}
