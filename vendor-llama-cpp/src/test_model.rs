//! Tiny models with random weights, for tests that need a real model file with a given vocabulary
//! size.
//!
//! Such a model has the llama architecture, a byte-level tokenizer that can encode and decode any
//! text, and logits whose spread is about that of a language model. The text that it generates is
//! nonsense.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{model, paths, sys};

mod tokens;
mod weights;

use tokens::Tokenizer;
pub(crate) use tokens::symbol;
use weights::Random;

/// The vocabulary sizes that can be written. The smallest vocabulary has only the 256 bytes.
pub const VOCAB_SIZES: RangeInclusive<usize> = 256..=524_288;

/// The standard deviation of the logits.
const LOGIT_SPREAD: f32 = 3.0;

/// The weight of each half of a layer, relative to the contribution of the token's own embedding.
/// The output weights are the embeddings, so with a smaller weight every token would predict
/// itself.
const LAYER_SHARE: f32 = 4.0;

/// A number in the names of the cached files. It must be increased when equal parameters give a
/// different file.
const FORMAT: u32 = 1;

/// The contents of a file to write: the sizes of the model, and the seed of its weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestModel {
    /// The number of tokens in the vocabulary, within [`VOCAB_SIZES`].
    pub n_vocab: usize,
    /// The seed of the weights. The tokenizer depends only on `n_vocab`.
    pub seed: u64,
    /// The number of elements of an embedding.
    pub n_embd: usize,
    /// The number of layers.
    pub n_layer: usize,
    /// The number of attention heads, among which `n_embd` is divided.
    pub n_head: usize,
    /// The number of elements in the hidden layer of the feed-forward network.
    pub n_ff: usize,
    /// The number of tokens for which the model claims to have been trained.
    pub n_ctx: usize,
    /// True if the matrices are stored as 16-bit floats.
    pub f16: bool,
}

impl Default for TestModel {
    /// Returns a model with the smallest vocabulary.
    fn default() -> Self {
        Self::new(*VOCAB_SIZES.start(), 1)
    }
}

impl TestModel {
    /// Returns a model of the usual tiny size.
    pub fn new(n_vocab: usize, seed: u64) -> Self {
        Self {
            n_vocab,
            seed,
            n_embd: 32,
            n_layer: 2,
            n_head: 2,
            n_ff: 64,
            n_ctx: 512,
            f16: false,
        }
    }

    /// Writes the model as a GGUF file, replacing an existing one.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        self.check()?;
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| format!("{}: a file name cannot contain NUL", path.display()))?;
        model::start_backend();
        model::forget_error();
        let file = Gguf::new()?;
        self.describe(&file);
        describe_tokenizer(&file, &Tokenizer::new(self.n_vocab));
        let tensors = self.tensors();
        let memory = Tensors::new(&tensors)?;
        let mut random = Random::new(self.seed);
        for tensor in &tensors {
            memory.add(tensor, &mut random, &file);
        }
        // SAFETY: file and path are valid, and `memory` still holds the tensors' data.
        let written = unsafe { sys::gguf_write_to_file(file.0.as_ptr(), c_path.as_ptr(), false) };
        if !written {
            return Err(format!(
                "cannot write {}: {}",
                path.display(),
                model::last_error()
            ));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let limits = [
            ("n_vocab", self.n_vocab, VOCAB_SIZES),
            ("n_embd", self.n_embd, 2..=4096),
            ("n_layer", self.n_layer, 1..=64),
            ("n_head", self.n_head, 1..=self.n_embd),
            ("n_ff", self.n_ff, 1..=16_384),
            ("n_ctx", self.n_ctx, 1..=1_048_576),
        ];
        for (name, value, limit) in limits {
            if !limit.contains(&value) {
                return Err(format!(
                    "{name} is {value}, but must be from {} to {}",
                    limit.start(),
                    limit.end()
                ));
            }
        }
        if !self.n_embd.is_multiple_of(2 * self.n_head) {
            return Err(format!(
                "n_embd is {}, but must be a multiple of 2 * n_head = {}: every head needs an even share",
                self.n_embd,
                2 * self.n_head
            ));
        }
        Ok(())
    }

    fn describe(&self, file: &Gguf) {
        file.set_str("general.architecture", "llama");
        file.set_str("general.name", "vendor-llama-cpp test model");
        for (key, value) in [
            ("llama.vocab_size", self.n_vocab),
            ("llama.context_length", self.n_ctx),
            ("llama.embedding_length", self.n_embd),
            ("llama.block_count", self.n_layer),
            ("llama.feed_forward_length", self.n_ff),
            ("llama.attention.head_count", self.n_head),
            ("llama.rope.dimension_count", self.n_embd / self.n_head),
        ] {
            file.set_u32(key, value);
        }
        file.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    }

    /// Returns all tensors. There is no output matrix, so llama.cpp uses the embeddings.
    fn tensors(&self) -> Vec<Tensor> {
        let (embd, ff) = (self.n_embd, self.n_ff);
        // The spread with which a matrix preserves the length of a vector.
        let plain = |n_in: usize| (n_in as f32).sqrt().recip();
        let mut tensors = vec![
            self.matrix("token_embd", embd, self.n_vocab, 1.0),
            Tensor::vector("output_norm", embd, LOGIT_SPREAD * plain(embd)),
        ];
        for layer in 0..self.n_layer {
            let name = |part: &str| format!("blk.{layer}.{part}");
            tensors.extend([
                Tensor::vector(&name("attn_norm"), embd, 1.0),
                self.matrix(&name("attn_q"), embd, embd, plain(embd)),
                self.matrix(&name("attn_k"), embd, embd, plain(embd)),
                self.matrix(&name("attn_v"), embd, embd, plain(embd)),
                self.matrix(&name("attn_output"), embd, embd, LAYER_SHARE * plain(embd)),
                Tensor::vector(&name("ffn_norm"), embd, 1.0),
                self.matrix(&name("ffn_gate"), embd, ff, plain(embd)),
                self.matrix(&name("ffn_up"), embd, ff, plain(embd)),
                self.matrix(&name("ffn_down"), ff, embd, LAYER_SHARE * plain(ff)),
            ]);
        }
        tensors
    }

    fn matrix(&self, name: &str, n_in: usize, n_out: usize, spread: f32) -> Tensor {
        Tensor {
            name: c_string(&format!("{name}.weight")),
            n_in,
            n_out: Some(n_out),
            fill: Fill::Random(spread),
            f16: self.f16,
        }
    }
}

/// Returns the path of the file of `TestModel::new(n_vocab, seed)`, which the first call writes to
/// the build folder.
///
/// # Panics
///
/// If the file cannot be written.
pub fn cached(n_vocab: usize, seed: u64) -> PathBuf {
    let dir = paths::build_dir().join("models");
    let path = dir.join(format!("llama-{n_vocab}-{seed}-v{FORMAT}.gguf"));
    if path.is_file() {
        return path;
    }
    let written = fs::create_dir_all(&dir)
        .map_err(|error| format!("{}: {error}", dir.display()))
        .and_then(|()| write_whole(&TestModel::new(n_vocab, seed), &path));
    if let Err(message) = written {
        panic!("no test model of {n_vocab} tokens: {message}");
    }
    path
}

/// Writes the file under another name first, so that no other process ever sees a partial file.
fn write_whole(model: &TestModel, path: &Path) -> Result<(), String> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let unfinished = path.with_extension(format!("{}-{number}.part", process::id()));
    model.write(&unfinished)?;
    fs::rename(&unfinished, path).map_err(|error| format!("{}: {error}", path.display()))
}

fn describe_tokenizer(file: &Gguf, tokenizer: &Tokenizer) {
    file.set_str("tokenizer.ggml.model", "gpt2");
    file.set_str("tokenizer.ggml.pre", "gpt-2");
    file.set_strings("tokenizer.ggml.tokens", &tokenizer.texts);
    file.set_i32s("tokenizer.ggml.token_type", &tokenizer.kinds);
    file.set_strings("tokenizer.ggml.merges", &tokenizer.merges);
    file.set_u32("tokenizer.ggml.bos_token_id", tokenizer.bos);
    file.set_u32("tokenizer.ggml.eos_token_id", tokenizer.eos);
    file.set_bool("tokenizer.ggml.add_bos_token", tokenizer.add_bos);
    file.set_bool("tokenizer.ggml.add_eos_token", false);
}

/// The numbers with which a tensor is filled.
enum Fill {
    Constant(f32),
    /// Normally distributed numbers with this standard deviation.
    Random(f32),
}

/// A tensor to write.
struct Tensor {
    name: CString,
    n_in: usize,
    /// The number of outputs of a matrix; `None` for a vector.
    n_out: Option<usize>,
    fill: Fill,
    f16: bool,
}

impl Tensor {
    fn vector(name: &str, length: usize, value: f32) -> Self {
        Self {
            name: c_string(&format!("{name}.weight")),
            n_in: length,
            n_out: None,
            fill: Fill::Constant(value),
            // llama.cpp requires all vectors as 32-bit floats.
            f16: false,
        }
    }

    fn len(&self) -> usize {
        self.n_in * self.n_out.unwrap_or(1)
    }

    fn kind(&self) -> c_int {
        if self.f16 {
            sys::GGML_TYPE_F16
        } else {
            sys::GGML_TYPE_F32
        }
    }
}

/// ggml's memory for the tensors of one file.
struct Tensors(NonNull<sys::ggml_context>);

impl Tensors {
    fn new(tensors: &[Tensor]) -> Result<Self, String> {
        // SAFETY: the function only returns a constant.
        let overhead = unsafe { sys::ggml_tensor_overhead() };
        // Four bytes per number, and room to align the start of each tensor.
        let mem_size = tensors
            .iter()
            .map(|tensor| 4 * tensor.len() + overhead + 64)
            .sum();
        let params = sys::ggml_init_params {
            mem_size,
            mem_buffer: ptr::null_mut(),
            no_alloc: false,
        };
        // SAFETY: with a null buffer ggml allocates the memory itself.
        let context = unsafe { sys::ggml_init(params) };
        let context =
            NonNull::new(context).ok_or_else(|| format!("ggml got no {mem_size} bytes"))?;
        Ok(Self(context))
    }

    /// Makes the tensor, fills it, and adds it to `file`, which must be written before `self` is
    /// dropped.
    fn add(&self, tensor: &Tensor, random: &mut Random, file: &Gguf) {
        let made = self.make(tensor);
        // SAFETY: `make` returned a tensor of this context, which has its data allocated.
        let data = unsafe { sys::ggml_get_data(made) };
        if tensor.f16 {
            let mut numbers = vec![0.0; tensor.len()];
            fill(&mut numbers, &tensor.fill, random);
            let n = tensor.len() as i64;
            // SAFETY: `data` has room for as many 16-bit numbers as `numbers` has elements.
            unsafe { sys::ggml_fp32_to_fp16_row(numbers.as_ptr(), data.cast(), n) };
        } else {
            // SAFETY: the data is `len` 32-bit floats, aligned and set to zero or not by ggml's
            // allocation; any bits are a float, and nothing else refers to them yet.
            let numbers = unsafe { slice::from_raw_parts_mut(data.cast::<f32>(), tensor.len()) };
            fill(numbers, &tensor.fill, random);
        }
        // SAFETY: both are valid, and the tensor's name is not in the file yet.
        unsafe { sys::gguf_add_tensor(file.0.as_ptr(), made) };
    }

    fn make(&self, tensor: &Tensor) -> *mut sys::ggml_tensor {
        let context = self.0.as_ptr();
        let kind = tensor.kind();
        let n_in = tensor.n_in as i64;
        // SAFETY: the context is valid and was given memory for this tensor.
        let made = unsafe {
            match tensor.n_out {
                Some(n_out) => sys::ggml_new_tensor_2d(context, kind, n_in, n_out as i64),
                None => sys::ggml_new_tensor_1d(context, kind, n_in),
            }
        };
        // SAFETY: the tensor is the one just made, and ggml copies the name.
        unsafe { sys::ggml_set_name(made, tensor.name.as_ptr()) }
    }
}

impl Drop for Tensors {
    fn drop(&mut self) {
        // SAFETY: the context came from `ggml_init` and is freed only here.
        unsafe { sys::ggml_free(self.0.as_ptr()) };
    }
}

fn fill(numbers: &mut [f32], fill: &Fill, random: &mut Random) {
    match *fill {
        Fill::Constant(value) => numbers.fill(value),
        Fill::Random(spread) => {
            for number in numbers {
                *number = spread * random.normal();
            }
        }
    }
}

/// A GGUF file in memory.
pub(crate) struct Gguf(NonNull<sys::gguf_context>);

impl Gguf {
    pub(crate) fn new() -> Result<Self, String> {
        // SAFETY: the function asks for nothing.
        let file = unsafe { sys::gguf_init_empty() };
        let file = NonNull::new(file).ok_or("gguf_init_empty failed")?;
        Ok(Self(file))
    }

    pub(crate) fn set_str(&self, key: &str, value: &str) {
        let (key, value) = (c_string(key), c_string(value));
        // SAFETY: the file is valid, and it copies key and value.
        unsafe { sys::gguf_set_val_str(self.0.as_ptr(), key.as_ptr(), value.as_ptr()) };
    }

    pub(crate) fn set_u32(&self, key: &str, value: usize) {
        let key = c_string(key);
        let value = u32::try_from(value).expect("`check` has bounded all sizes");
        // SAFETY: the file is valid, and it copies the key.
        unsafe { sys::gguf_set_val_u32(self.0.as_ptr(), key.as_ptr(), value) };
    }

    pub(crate) fn set_f32(&self, key: &str, value: f32) {
        let key = c_string(key);
        // SAFETY: the file is valid, and it copies the key.
        unsafe { sys::gguf_set_val_f32(self.0.as_ptr(), key.as_ptr(), value) };
    }

    pub(crate) fn set_bool(&self, key: &str, value: bool) {
        let key = c_string(key);
        // SAFETY: the file is valid, and it copies the key.
        unsafe { sys::gguf_set_val_bool(self.0.as_ptr(), key.as_ptr(), value) };
    }

    pub(crate) fn set_i32s(&self, key: &str, values: &[i32]) {
        let key = c_string(key);
        let data = values.as_ptr().cast::<c_void>();
        let kind = sys::GGUF_TYPE_INT32;
        // SAFETY: the file is valid, it copies key and data, and the length is that of `values`.
        unsafe {
            sys::gguf_set_arr_data(self.0.as_ptr(), key.as_ptr(), kind, data, values.len());
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::gguf_context {
        self.0.as_ptr()
    }

    pub(crate) fn set_strings(&self, key: &str, values: &[String]) {
        let texts: Vec<Vec<u8>> = values
            .iter()
            .map(|value| value.clone().into_bytes())
            .collect();
        self.set_texts(key, &texts);
    }

    /// Sets strings that need not be UTF-8.
    pub(crate) fn set_texts(&self, key: &str, texts: &[Vec<u8>]) {
        let key = c_string(key);
        let c_text = |text: &Vec<u8>| CString::new(text.clone()).expect("no text has NUL in it");
        let owned: Vec<CString> = texts.iter().map(c_text).collect();
        let mut data: Vec<*const c_char> = owned.iter().map(|value| value.as_ptr()).collect();
        // SAFETY: the file is valid, it copies the key and the strings, which `owned` keeps until
        // then, and the length is that of `data`.
        unsafe {
            sys::gguf_set_arr_str(self.0.as_ptr(), key.as_ptr(), data.as_mut_ptr(), data.len());
        }
    }
}

impl Drop for Gguf {
    fn drop(&mut self) {
        // SAFETY: the file came from `gguf_init_empty` and is freed only here.
        unsafe { sys::gguf_free(self.0.as_ptr()) };
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("no name or token here contains NUL")
}
