//! Vocabularies with any texts, without a model, for tests of code that reads the texts of tokens.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use crate::test_model::{Gguf, symbol};
use crate::{Model, model, sys};

/// The kind of a token, with the numbers of GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// A normal token. Its text may have any bytes.
    Normal = 1,
    /// A control token. Its name is not part of any text, and may have any bytes except NUL.
    Control = 3,
    /// A user-defined token. Its text is recognised as a whole, and may have any bytes except NUL.
    UserDefined = 4,
    /// A token without a text, which may have any name.
    Unused = 5,
}

/// The texts of a vocabulary, in the order of their tokens. No two may be written in the same way
/// in the file, as equal ASCII texts of a normal and of a user-defined token would be.
#[derive(Clone, Debug, Default)]
pub struct TestVocabulary {
    /// The text or name of each token, and its kind.
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

    /// Writes a GGUF file with `n_tokens` tokens that have no texts, replacing an existing file,
    /// and loads it.
    pub fn load_without_texts(n_tokens: usize, path: &Path) -> Result<Model, String> {
        model::start_backend();
        let file = Gguf::new()?;
        file.set_str("general.architecture", "llama");
        file.set_str("tokenizer.ggml.model", "no_vocab");
        file.set_u32("llama.vocab_size", n_tokens);
        write_to(&file, path)?;
        Model::load_vocabulary(path)
    }

    /// Writes the vocabulary as a GGUF file, replacing an existing one.
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
        // The tokenizer requires merges, and a pair that does not occur has no effect.
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
    // SAFETY: file and path are valid, and only the metadata is written.
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
    /// Loads only the vocabulary of a GGUF file.
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
