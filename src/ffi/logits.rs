//! Logits as a C caller passes them: a pointer and a number, or an output of a `llama_context`.

use crate::errors::LLAMA_SIEVE_ERROR_NO_LOGITS;
use crate::ffi::failure::Failure;
use crate::ffi::given::{Argument, argument, vocabulary_of};
use crate::ffi::host::llama_h::{llama_context, llama_model};
use crate::ffi::host::per_host::PerHost;
use crate::ffi::host::vocabulary::llama_vocab;
use crate::ffi::host::{Host, host_function};

const LOGITS: Argument = argument!("logits", "n_vocab");

/// Returns the logits as a slice, or an error if `logits` is NULL or misaligned, or `n_vocab` not
/// above 0.
///
/// # Safety
/// `logits` is NULL or has `n_vocab` elements, which are not written during `'a`.
pub(super) unsafe fn logits_of<'a, T>(logits: *const T, n_vocab: i32) -> Result<&'a [T], Failure> {
    // SAFETY: the caller guarantees the elements.
    unsafe { LOGITS.slice(logits, vocabulary_of(n_vocab)?) }
}

type LogitsIth = unsafe extern "C-unwind" fn(*mut llama_context, i32) -> *const f32;
type GetModel = unsafe extern "C-unwind" fn(*const llama_context) -> *const llama_model;
type GetVocab = unsafe extern "C-unwind" fn(*const llama_model) -> *const llama_vocab;
type NTokens = unsafe extern "C-unwind" fn(*const llama_vocab) -> i32;

/// The host's functions that return the logits and the vocabulary of a context. Chains call them
/// outside the guard, so that their exceptions pass through.
#[derive(Clone, Copy)]
pub(super) struct ContextFunctions {
    logits_ith: LogitsIth,
    get_model: GetModel,
    get_vocab: GetVocab,
    n_tokens: NTokens,
}

static CONTEXT_FUNCTIONS: PerHost<ContextFunctions> = PerHost::new();

impl ContextFunctions {
    pub(super) fn of_host() -> Result<Self, Failure> {
        CONTEXT_FUNCTIONS
            .of_host(Self::looked_up)
            .map_err(Failure::no_host)
    }

    fn looked_up(host: &Host) -> Result<Self, String> {
        Ok(Self {
            logits_ith: host_function!(host, c"llama_get_logits_ith", LogitsIth),
            get_model: host_function!(host, c"llama_get_model", GetModel),
            get_vocab: host_function!(host, c"llama_model_get_vocab", GetVocab),
            n_tokens: host_function!(host, c"llama_vocab_n_tokens", NTokens),
        })
    }

    /// Returns the vocabulary of a context, and its size.
    ///
    /// # Safety
    /// `ctx` is a live context of this host.
    pub(super) unsafe fn vocabulary(&self, ctx: *mut llama_context) -> (*const llama_vocab, i32) {
        // SAFETY: the caller guarantees the context, which has a model with a vocabulary.
        unsafe {
            let vocab = (self.get_vocab)((self.get_model)(ctx));
            (vocab, (self.n_tokens)(vocab))
        }
    }

    /// Returns the logits of an output, which are NULL if the context has none, and the
    /// vocabulary's size.
    ///
    /// # Safety
    /// `ctx` is a live context of this host.
    pub(super) unsafe fn logits(&self, ctx: *mut llama_context, idx: i32) -> (*const f32, i32) {
        // SAFETY: the caller guarantees the context, which has a model with a vocabulary.
        unsafe {
            let (_, n_tokens) = self.vocabulary(ctx);
            ((self.logits_ith)(ctx, idx), n_tokens)
        }
    }
}

/// Returns as a slice the logits that [`ContextFunctions::logits`] has returned for `idx`, or an
/// error if they are NULL.
///
/// # Safety
/// The requirements of [`logits_of`] apply.
pub(super) unsafe fn logits_of_output<'a>(
    (logits, n_vocab): (*const f32, i32),
    idx: i32,
) -> Result<&'a [f32], Failure> {
    if logits.is_null() {
        let text = format!("the context has no logits for output {idx}");
        return Err(Failure::new(LLAMA_SIEVE_ERROR_NO_LOGITS, text));
    }
    // SAFETY: the caller guarantees the elements.
    unsafe { logits_of(logits, n_vocab) }
}
