//! Loads models, and computes their logits.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Once;

use crate::sys;

thread_local! {
    /// The error messages that llama.cpp has logged on this thread since `forget_error`.
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A loaded model, on the CPU.
#[derive(Debug)]
pub struct Model {
    model: NonNull<sys::llama_model>,
}

// SAFETY: llama.cpp does not change a model after loading it, and any thread may free it.
unsafe impl Send for Model {}
// SAFETY: as above; llama.h calls tokenising thread-safe, and contexts only read the model.
unsafe impl Sync for Model {}

impl Model {
    /// Loads a GGUF file. The error contains llama.cpp's own messages.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, String> {
        let path = path.as_ref();
        start_backend();
        forget_error();
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| format!("{}: a file name cannot contain NUL", path.display()))?;
        // SAFETY: `c_path` ends with NUL and outlives the call.
        let model = unsafe { sys::vendor_llama_model_load(c_path.as_ptr()) };
        let model = NonNull::new(model)
            .ok_or_else(|| format!("cannot load {}: {}", path.display(), last_error()))?;
        Ok(Self { model })
    }

    pub(crate) fn from_raw(model: NonNull<sys::llama_model>) -> Self {
        Self { model }
    }

    /// Returns the model itself, for calls of [`sys`]. It is freed with `self`.
    pub fn as_ptr(&self) -> *mut sys::llama_model {
        self.model.as_ptr()
    }

    /// Returns the model's vocabulary. It is freed with `self`.
    pub fn vocab(&self) -> *const sys::llama_vocab {
        // SAFETY: `self.model` is a loaded model until it is dropped.
        unsafe { sys::llama_model_get_vocab(self.model.as_ptr()) }
    }

    /// Returns the number of tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        // SAFETY: `vocab()` is valid as long as `self`.
        let n = unsafe { sys::llama_vocab_n_tokens(self.vocab()) };
        usize::try_from(n).expect("llama.cpp counts tokens from zero up")
    }

    /// Returns the token that begins a text; `LLAMA_TOKEN_NULL` if there is none.
    pub fn bos(&self) -> i32 {
        // SAFETY: `vocab()` is valid as long as `self`.
        unsafe { sys::llama_vocab_bos(self.vocab()) }
    }

    /// Returns the token that ends a text; `LLAMA_TOKEN_NULL` if there is none.
    pub fn eos(&self) -> i32 {
        // SAFETY: `vocab()` is valid as long as `self`.
        unsafe { sys::llama_vocab_eos(self.vocab()) }
    }

    /// True if the token ends a generated text.
    pub fn is_eog(&self, token: i32) -> bool {
        // SAFETY: `vocab()` is valid as long as `self`; the token is only looked up in a set.
        unsafe { sys::llama_vocab_is_eog(self.vocab(), token) }
    }

    /// Returns the tokens of a text. If `add_special` is true, the special tokens that the model
    /// requires at the beginning and the end are added. Names of special tokens in the text count
    /// as plain text.
    pub fn tokenize(&self, text: &str, add_special: bool) -> Vec<i32> {
        // A token has at least one byte, and two special tokens may be added.
        let mut tokens = vec![0; text.len() + 2];
        let room = length_i32(tokens.len());
        // SAFETY: `vocab()` is valid as long as `self`, and both lengths are those of their
        // buffers.
        let n = unsafe {
            sys::llama_tokenize(
                self.vocab(),
                text.as_ptr().cast(),
                length_i32(text.len()),
                tokens.as_mut_ptr(),
                room,
                add_special,
                false,
            )
        };
        let n = usize::try_from(n).expect("no text has more tokens than bytes, and two");
        tokens.truncate(n);
        tokens
    }

    /// Returns the bytes of a token's text; for a special token, its name.
    ///
    /// # Panics
    ///
    /// If the vocabulary has no such token.
    pub fn piece(&self, token: i32) -> Vec<u8> {
        let known = usize::try_from(token).is_ok_and(|id| id < self.n_vocab());
        assert!(
            known,
            "token {token} is outside the vocabulary of {} tokens",
            self.n_vocab()
        );
        let mut bytes = vec![0_u8; 32];
        let n = self.piece_into(token, &mut bytes);
        if n < 0 {
            // A negative result is minus the required length.
            bytes.resize(n.unsigned_abs() as usize, 0);
            let again = self.piece_into(token, &mut bytes);
            assert_eq!(again, -n, "llama.cpp changed its mind about token {token}");
            return bytes;
        }
        bytes.truncate(n.unsigned_abs() as usize);
        bytes
    }

    fn piece_into(&self, token: i32, bytes: &mut [u8]) -> i32 {
        let room = length_i32(bytes.len());
        // SAFETY: `vocab()` is valid as long as `self`, `piece` has checked the token, and `room`
        // is the length of `bytes`.
        unsafe {
            sys::llama_token_to_piece(
                self.vocab(),
                token,
                bytes.as_mut_ptr().cast(),
                room,
                0,
                true,
            )
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: the model came from llama.cpp and is freed only here; contexts borrow `self`,
        // so none is left.
        unsafe { sys::llama_model_free(self.model.as_ptr()) };
    }
}

/// A sequence of tokens that a model reads.
#[derive(Debug)]
pub struct Context<'model> {
    context: NonNull<sys::llama_context>,
    n_vocab: usize,
    has_logits: bool,
    model: PhantomData<&'model Model>,
}

// SAFETY: a context is bound to no thread; without `Sync` only one thread uses it at a time.
unsafe impl Send for Context<'_> {}

impl<'model> Context<'model> {
    /// Returns a context for at least `n_ctx` tokens (0: as many as the model was trained for).
    pub fn new(model: &'model Model, n_ctx: u32, n_threads: i32) -> Result<Self, String> {
        forget_error();
        // SAFETY: the model is loaded, and the borrow keeps it so for as long as the context lives.
        let context = unsafe { sys::vendor_llama_context_new(model.as_ptr(), n_ctx, n_threads) };
        let context = NonNull::new(context)
            .ok_or_else(|| format!("cannot create a context: {}", last_error()))?;
        Ok(Self {
            context,
            n_vocab: model.n_vocab(),
            has_logits: false,
            model: PhantomData,
        })
    }

    /// Returns the context itself, for calls of [`sys`]. It is freed with `self`.
    pub fn as_ptr(&self) -> *mut sys::llama_context {
        self.context.as_ptr()
    }

    /// Returns the number of tokens that the context has room for.
    pub fn n_ctx(&self) -> usize {
        // SAFETY: the context is valid as long as `self`.
        unsafe { sys::llama_n_ctx(self.as_ptr()) as usize }
    }

    /// Returns the number of tokens in the context.
    pub fn n_past(&self) -> usize {
        // SAFETY: the memory belongs to the context, which is valid as long as `self`.
        let last = unsafe { sys::llama_memory_seq_pos_max(self.memory(), 0) };
        usize::try_from(last + 1).expect("llama.cpp counts positions from zero up")
    }

    /// Appends tokens to the sequence, and computes the logits of the next token.
    pub fn decode(&mut self, tokens: &[i32]) -> Result<(), String> {
        if tokens.is_empty() {
            return Err(String::from("there are no tokens to decode"));
        }
        let free = self.n_ctx() - self.n_past();
        if tokens.len() > free {
            return Err(format!(
                "{} tokens do not fit: the context has room for {free} more",
                tokens.len()
            ));
        }
        self.has_logits = false;
        forget_error();
        // SAFETY: the context is valid as long as `self`, and the length is that of `tokens`.
        let code = unsafe {
            sys::vendor_llama_decode(self.as_ptr(), tokens.as_ptr(), length_i32(tokens.len()))
        };
        if code != 0 {
            return Err(format!("llama_decode returned {code}: {}", last_error()));
        }
        self.has_logits = true;
        Ok(())
    }

    /// Returns the logits of the token after the last decoded one, one for each token of the
    /// vocabulary.
    ///
    /// # Panics
    ///
    /// If nothing has been decoded, or nothing since `clear`, or if llama.cpp failed in the last
    /// `decode`.
    pub fn logits(&self) -> &[f32] {
        assert!(self.has_logits, "there are no logits before a decode");
        // SAFETY: the context is valid as long as `self`.
        let logits = unsafe { sys::llama_get_logits_ith(self.as_ptr(), -1) };
        assert!(
            !logits.is_null(),
            "llama.cpp has no logits: {}",
            last_error()
        );
        // SAFETY: llama.cpp keeps `n_vocab` logits per output until the next decode, which needs
        // `self` mutably.
        unsafe { slice::from_raw_parts(logits, self.n_vocab) }
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        // SAFETY: the memory belongs to the context, which is valid as long as `self`.
        unsafe { sys::llama_memory_clear(self.memory(), true) };
        self.has_logits = false;
    }

    /// Forgets all tokens except the first `n_past`. The logits stay those of the last decode.
    ///
    /// # Panics
    ///
    /// If this kind of memory cannot forget only a part of its tokens.
    pub fn truncate(&mut self, n_past: usize) {
        if n_past >= self.n_past() {
            return;
        }
        let first = length_i32(n_past);
        // SAFETY: the memory belongs to the context, which is valid as long as `self`; -1 means
        // "to the end".
        let removed = unsafe { sys::llama_memory_seq_rm(self.memory(), 0, first, -1) };
        assert!(removed, "this model cannot forget a part of its tokens");
    }

    fn memory(&self) -> *mut sys::llama_memory_i {
        // SAFETY: the context is valid as long as `self`.
        unsafe { sys::llama_get_memory(self.as_ptr()) }
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: the context came from llama.cpp and is freed only here.
        unsafe { sys::llama_free(self.context.as_ptr()) };
    }
}

/// Returns llama.cpp's version, for example "0.6.0-dev".
pub fn version() -> &'static str {
    // SAFETY: llama.cpp returns a constant string that ends with NUL.
    let text = unsafe { CStr::from_ptr(sys::llama_version()) };
    text.to_str().unwrap_or("unknown")
}

/// Stops llama.cpp from printing. Its errors then appear in the errors of this module.
/// Loading or writing the first model calls this function.
pub fn quiet_logs() {
    // SAFETY: `keep_error` is a function of the type asked for and uses no user data.
    unsafe { sys::llama_log_set(Some(keep_error), ptr::null_mut()) };
}

/// Initialises llama.cpp once. Must be called before any function that may print something.
pub(crate) fn start_backend() {
    static START: Once = Once::new();
    START.call_once(|| {
        quiet_logs();
        // SAFETY: llama.cpp asks for this call once, before any other; `Once` sees to that.
        unsafe { sys::llama_backend_init() };
    });
}

unsafe extern "C" fn keep_error(level: c_int, text: *const c_char, _user_data: *mut c_void) {
    if level != sys::GGML_LOG_LEVEL_ERROR || text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a text that ends with NUL and stays valid during the call.
    let text = unsafe { CStr::from_ptr(text) };
    let line = text.to_string_lossy();
    // On a thread that is ending, the variable no longer exists, and the text is lost.
    let _ = LAST_ERROR.try_with(|last| {
        let mut last = last.borrow_mut();
        if !last.is_empty() {
            last.push_str("; ");
        }
        last.push_str(line.trim_end());
    });
}

/// Discards the messages of earlier calls. Must be called before the call that `last_error` is to
/// explain.
pub(crate) fn forget_error() {
    LAST_ERROR.with(|last| last.borrow_mut().clear());
}

/// Returns the error messages that llama.cpp has logged on this thread since `forget_error`.
pub(crate) fn last_error() -> String {
    let text = LAST_ERROR.with(|last| last.borrow().clone());
    if text.is_empty() {
        return String::from("llama.cpp gave no reason");
    }
    text
}

fn length_i32(length: usize) -> i32 {
    i32::try_from(length).expect("llama.cpp's lengths are 32 bits wide")
}
