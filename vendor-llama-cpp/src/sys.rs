//! llama.cpp's C interface, as far as samplers and their tests need it.
//!
//! The declarations are written by hand after `llama.h`, `ggml.h` and `gguf.h`, which document each
//! function and its requirements.

use std::ffi::{c_char, c_int, c_void};

/// The id of a token.
#[allow(non_camel_case_types)]
pub type llama_token = i32;

/// The seed with which a sampler chooses a random one.
pub const LLAMA_DEFAULT_SEED: u32 = 0xFFFF_FFFF;

/// The token id that means "none".
pub const LLAMA_TOKEN_NULL: llama_token = -1;

/// A candidate token.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(non_camel_case_types)]
pub struct llama_token_data {
    /// The token's id.
    pub id: llama_token,
    /// Its logit.
    pub logit: f32,
    /// Its probability, once a sampler has computed it.
    pub p: f32,
}

/// The candidates on which samplers work.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct llama_token_data_array {
    /// A pointer to the first candidate, which a sampler may replace.
    pub data: *mut llama_token_data,
    /// The number of candidates left.
    pub size: usize,
    /// The index (not the id) of the chosen candidate, or -1.
    pub selected: i64,
    /// True if the candidates are known to be in descending order of their logits.
    pub sorted: bool,
}

/// The options of a sampler chain.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub struct llama_sampler_chain_params {
    /// True if the chain does not measure time.
    pub no_perf: bool,
}

/// A bias for the logit of a token.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(non_camel_case_types)]
pub struct llama_logit_bias {
    /// The token.
    pub token: llama_token,
    /// The addend.
    pub bias: f32,
}

/// The vtable of a sampler. Only its address is used.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct llama_sampler_i {
    _opaque: [u8; 0],
}

/// A sampler.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct llama_sampler {
    _opaque: [u8; 0],
}

/// A model's vocabulary.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct llama_vocab {
    _opaque: [u8; 0],
}

/// A loaded model.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct llama_model {
    _opaque: [u8; 0],
}

/// A model with the tokens that it has read.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct llama_context {
    _opaque: [u8; 0],
}

/// The memory of a context, which keeps data of its tokens.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct llama_memory_i {
    _opaque: [u8; 0],
}

/// A GGUF file that is being built.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct gguf_context {
    _opaque: [u8; 0],
}

/// The memory of tensors.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct ggml_context {
    _opaque: [u8; 0],
}

/// A tensor.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct ggml_tensor {
    _opaque: [u8; 0],
}

/// The options of a new `ggml_context`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct ggml_init_params {
    /// The number of bytes for all tensors and their descriptions.
    pub mem_size: usize,
    /// The memory for these bytes; if it is null, ggml allocates it.
    pub mem_buffer: *mut c_void,
    /// True if no memory is allocated for the tensors' data.
    pub no_alloc: bool,
}

/// `ggml_type` of 32-bit floats.
pub const GGML_TYPE_F32: c_int = 0;
/// `ggml_type` of 16-bit floats.
pub const GGML_TYPE_F16: c_int = 1;

/// `gguf_type` of signed 32-bit integers.
pub const GGUF_TYPE_INT32: c_int = 5;

/// `ggml_log_level` of errors.
pub const GGML_LOG_LEVEL_ERROR: c_int = 4;

/// A function that receives llama.cpp's messages. Its arguments are level, text and user data.
#[allow(non_camel_case_types)]
pub type ggml_log_callback =
    Option<unsafe extern "C" fn(level: c_int, text: *const c_char, user_data: *mut c_void)>;

// Samplers.
#[allow(missing_docs)]
unsafe extern "C" {
    pub fn llama_sampler_init(iface: *mut llama_sampler_i, ctx: *mut c_void) -> *mut llama_sampler;
    pub fn llama_sampler_name(smpl: *const llama_sampler) -> *const c_char;
    pub fn llama_sampler_accept(smpl: *mut llama_sampler, token: llama_token);
    pub fn llama_sampler_apply(smpl: *mut llama_sampler, cur_p: *mut llama_token_data_array);
    pub fn llama_sampler_reset(smpl: *mut llama_sampler);
    pub fn llama_sampler_clone(smpl: *const llama_sampler) -> *mut llama_sampler;
    pub fn llama_sampler_copy(src: *const llama_sampler, dst: *mut llama_sampler);
    pub fn llama_sampler_free(smpl: *mut llama_sampler);
    pub fn llama_sampler_get_seed(smpl: *const llama_sampler) -> u32;
    pub fn llama_sampler_sample(
        smpl: *mut llama_sampler,
        ctx: *mut llama_context,
        idx: i32,
    ) -> llama_token;

    pub fn llama_sampler_chain_default_params() -> llama_sampler_chain_params;
    pub fn llama_sampler_chain_init(params: llama_sampler_chain_params) -> *mut llama_sampler;
    pub fn llama_sampler_chain_add(chain: *mut llama_sampler, smpl: *mut llama_sampler);
    pub fn llama_sampler_chain_get(chain: *mut llama_sampler, i: i32) -> *mut llama_sampler;
    pub fn llama_sampler_chain_n(chain: *const llama_sampler) -> i32;
    pub fn llama_sampler_chain_remove(chain: *mut llama_sampler, i: i32) -> *mut llama_sampler;

    pub fn llama_sampler_init_greedy() -> *mut llama_sampler;
    pub fn llama_sampler_init_dist(seed: u32) -> *mut llama_sampler;
    pub fn llama_sampler_init_top_k(k: i32) -> *mut llama_sampler;
    pub fn llama_sampler_init_top_p(p: f32, min_keep: usize) -> *mut llama_sampler;
    pub fn llama_sampler_init_min_p(p: f32, min_keep: usize) -> *mut llama_sampler;
    pub fn llama_sampler_init_typical(p: f32, min_keep: usize) -> *mut llama_sampler;
    pub fn llama_sampler_init_temp(t: f32) -> *mut llama_sampler;
    pub fn llama_sampler_init_temp_ext(t: f32, delta: f32, exponent: f32) -> *mut llama_sampler;
    pub fn llama_sampler_init_xtc(p: f32, t: f32, min_keep: usize, seed: u32)
    -> *mut llama_sampler;
    pub fn llama_sampler_init_top_n_sigma(n: f32) -> *mut llama_sampler;
    pub fn llama_sampler_init_mirostat(
        n_vocab: i32,
        seed: u32,
        tau: f32,
        eta: f32,
        m: i32,
    ) -> *mut llama_sampler;
    pub fn llama_sampler_init_mirostat_v2(seed: u32, tau: f32, eta: f32) -> *mut llama_sampler;
    pub fn llama_sampler_init_grammar(
        vocab: *const llama_vocab,
        grammar_str: *const c_char,
        grammar_root: *const c_char,
    ) -> *mut llama_sampler;
    pub fn llama_sampler_init_grammar_lazy(
        vocab: *const llama_vocab,
        grammar_str: *const c_char,
        grammar_root: *const c_char,
        trigger_words: *mut *const c_char,
        num_trigger_words: usize,
        trigger_tokens: *const llama_token,
        num_trigger_tokens: usize,
    ) -> *mut llama_sampler;
    pub fn llama_sampler_init_grammar_lazy_patterns(
        vocab: *const llama_vocab,
        grammar_str: *const c_char,
        grammar_root: *const c_char,
        trigger_patterns: *mut *const c_char,
        num_trigger_patterns: usize,
        trigger_tokens: *const llama_token,
        num_trigger_tokens: usize,
    ) -> *mut llama_sampler;
    pub fn llama_sampler_init_penalties(
        n_vocab: i32,
        penalty_last_n: i32,
        penalty_repeat: f32,
        penalty_freq: f32,
        penalty_present: f32,
    ) -> *mut llama_sampler;
    pub fn llama_sampler_init_dry(
        vocab: *const llama_vocab,
        dry_multiplier: f32,
        dry_base: f32,
        dry_allowed_length: i32,
        dry_penalty_last_n: i32,
        seq_breakers: *mut *const c_char,
        num_breakers: usize,
    ) -> *mut llama_sampler;
    pub fn llama_sampler_init_adaptive_p(target: f32, decay: f32, seed: u32) -> *mut llama_sampler;
    pub fn llama_sampler_init_logit_bias(
        n_vocab: i32,
        n_logit_bias: i32,
        logit_bias: *const llama_logit_bias,
    ) -> *mut llama_sampler;
    pub fn llama_sampler_init_infill(vocab: *const llama_vocab) -> *mut llama_sampler;

}

// Vocabulary and text.
#[allow(missing_docs)]
unsafe extern "C" {
    pub fn llama_vocab_type(vocab: *const llama_vocab) -> c_int;
    pub fn llama_vocab_n_tokens(vocab: *const llama_vocab) -> i32;
    pub fn llama_vocab_get_attr(vocab: *const llama_vocab, token: llama_token) -> c_int;
    pub fn llama_vocab_is_eog(vocab: *const llama_vocab, token: llama_token) -> bool;
    pub fn llama_vocab_bos(vocab: *const llama_vocab) -> llama_token;
    pub fn llama_vocab_eos(vocab: *const llama_vocab) -> llama_token;
    pub fn llama_vocab_eot(vocab: *const llama_vocab) -> llama_token;
    pub fn llama_vocab_nl(vocab: *const llama_vocab) -> llama_token;
    pub fn llama_vocab_pad(vocab: *const llama_vocab) -> llama_token;
    pub fn llama_tokenize(
        vocab: *const llama_vocab,
        text: *const c_char,
        text_len: i32,
        tokens: *mut llama_token,
        n_tokens_max: i32,
        add_special: bool,
        parse_special: bool,
    ) -> i32;
    pub fn llama_token_to_piece(
        vocab: *const llama_vocab,
        token: llama_token,
        buf: *mut c_char,
        length: i32,
        lstrip: i32,
        special: bool,
    ) -> i32;
}

// Models and contexts.
#[allow(missing_docs)]
unsafe extern "C" {
    pub fn llama_version() -> *const c_char;
    pub fn llama_backend_init();
    pub fn llama_log_set(log_callback: ggml_log_callback, user_data: *mut c_void);

    pub fn llama_model_get_vocab(model: *const llama_model) -> *const llama_vocab;
    pub fn llama_model_free(model: *mut llama_model);

    pub fn llama_free(ctx: *mut llama_context);
    pub fn llama_get_model(ctx: *const llama_context) -> *const llama_model;
    pub fn llama_n_ctx(ctx: *const llama_context) -> u32;
    pub fn llama_get_logits_ith(ctx: *mut llama_context, i: i32) -> *mut f32;
    pub fn llama_get_memory(ctx: *const llama_context) -> *mut llama_memory_i;
    pub fn llama_memory_clear(mem: *mut llama_memory_i, data: bool);
    pub fn llama_memory_seq_rm(mem: *mut llama_memory_i, seq_id: i32, p0: i32, p1: i32) -> bool;
    pub fn llama_memory_seq_pos_max(mem: *mut llama_memory_i, seq_id: i32) -> i32;
}

// GGUF files.
#[allow(missing_docs)]
unsafe extern "C" {
    pub fn ggml_tensor_overhead() -> usize;
    pub fn ggml_init(params: ggml_init_params) -> *mut ggml_context;
    pub fn ggml_free(ctx: *mut ggml_context);
    pub fn ggml_new_tensor_1d(ctx: *mut ggml_context, kind: c_int, ne0: i64) -> *mut ggml_tensor;
    pub fn ggml_new_tensor_2d(
        ctx: *mut ggml_context,
        kind: c_int,
        ne0: i64,
        ne1: i64,
    ) -> *mut ggml_tensor;
    pub fn ggml_set_name(tensor: *mut ggml_tensor, name: *const c_char) -> *mut ggml_tensor;
    pub fn ggml_get_data(tensor: *const ggml_tensor) -> *mut c_void;
    pub fn ggml_fp32_to_fp16_row(from: *const f32, to: *mut u16, n: i64);

    pub fn gguf_init_empty() -> *mut gguf_context;
    pub fn gguf_free(ctx: *mut gguf_context);
    pub fn gguf_set_val_u32(ctx: *mut gguf_context, key: *const c_char, val: u32);
    pub fn gguf_set_val_f32(ctx: *mut gguf_context, key: *const c_char, val: f32);
    pub fn gguf_set_val_bool(ctx: *mut gguf_context, key: *const c_char, val: bool);
    pub fn gguf_set_val_str(ctx: *mut gguf_context, key: *const c_char, val: *const c_char);
    pub fn gguf_set_arr_data(
        ctx: *mut gguf_context,
        key: *const c_char,
        kind: c_int,
        data: *const c_void,
        n: usize,
    );
    pub fn gguf_set_arr_str(
        ctx: *mut gguf_context,
        key: *const c_char,
        data: *mut *const c_char,
        n: usize,
    );
    pub fn gguf_add_tensor(ctx: *mut gguf_context, tensor: *const ggml_tensor);
    pub fn gguf_write_to_file(
        ctx: *const gguf_context,
        fname: *const c_char,
        only_meta: bool,
    ) -> bool;
}

// This crate's shim.
unsafe extern "C" {
    /// Loads a model for the CPU; null on failure.
    pub fn vendor_llama_model_load(path: *const c_char) -> *mut llama_model;
    /// Loads only the vocabulary of a model; null on failure.
    pub fn vendor_llama_vocabulary_load(path: *const c_char) -> *mut llama_model;
    /// Calls `llama_sampler_init_grammar` or, if `lazy` is true,
    /// `llama_sampler_init_grammar_lazy_patterns`; null if it throws.
    pub fn vendor_llama_grammar(
        vocab: *const llama_vocab,
        text: *const c_char,
        root: *const c_char,
        lazy: bool,
        patterns: *mut *const c_char,
        n_patterns: usize,
        tokens: *const llama_token,
        n_tokens: usize,
    ) -> *mut llama_sampler;
    /// Calls `llama_sampler_init_grammar_lazy`; null if it throws.
    pub fn vendor_llama_grammar_words(
        vocab: *const llama_vocab,
        text: *const c_char,
        root: *const c_char,
        words: *mut *const c_char,
        n_words: usize,
        tokens: *const llama_token,
        n_tokens: usize,
    ) -> *mut llama_sampler;
    /// Calls `llama_sampler_accept`; false if it throws.
    pub fn vendor_llama_sampler_accept(smpl: *mut llama_sampler, token: llama_token) -> bool;
    /// Makes a context for one sequence; null on failure.
    pub fn vendor_llama_context_new(
        model: *mut llama_model,
        n_ctx: u32,
        n_threads: i32,
    ) -> *mut llama_context;
    /// Appends tokens to sequence 0 in as many batches as they need; 0 on success.
    pub fn vendor_llama_decode(
        ctx: *mut llama_context,
        tokens: *const llama_token,
        n_tokens: i32,
    ) -> i32;
    /// Writes `n` uniform doubles from `std::mt19937(seed)`.
    pub fn vendor_std_uniform_double(seed: u32, n: usize, out: *mut f64);
    /// Makes a `std::regex`; null if its constructor throws.
    pub fn vendor_std_regex(pattern: *const c_char, n: usize) -> *mut c_void;
    /// Frees a `std::regex`.
    pub fn vendor_std_regex_free(regex: *mut c_void);
    /// Searches `text` by `std::regex_match` if `whole` is true, otherwise by `std::regex_search`.
    /// Returns the number of groups, with the whole match as the first; 0 if there is no match.
    /// Writes the beginning and the end of each group (-1 for a group that takes no part) to `out`,
    /// which has room for `n_out` numbers. Groups for which there is no room are not written.
    pub fn vendor_std_regex_find(
        regex: *const c_void,
        text: *const c_char,
        n: usize,
        whole: bool,
        out: *mut i64,
        n_out: usize,
    ) -> usize;
    /// True if `vendor_std_regex_find` ends within `most` reads and comparisons of positions in the
    /// text.
    pub fn vendor_std_regex_ends(
        regex: *const c_void,
        text: *const c_char,
        n: usize,
        whole: bool,
        most: usize,
    ) -> bool;
    /// Writes the order in which `std::sort` leaves the indices of `n` keys, larger keys first.
    pub fn vendor_std_sort(keys: *const f32, n: usize, out: *mut u32);
    /// Writes the order in which `std::partial_sort` leaves the indices of `n` keys, larger keys
    /// first.
    pub fn vendor_std_partial_sort(keys: *const f32, n: usize, k: usize, out: *mut u32);
    /// Writes `n` keys on which `std::sort` falls back to a heap sort.
    pub fn vendor_std_sort_killer(n: usize, keys: *mut f32);
}
