//! The exports for grammars, and what forgets a vocabulary with its model. Each decides inside the
//! guard, and calls the host outside of it.

use std::ffi::{c_char, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use llama_sieve::Token;
use llama_sieve::ffi::grammar::hosted::{Hosted, Triggers, forget_model, hosted};
use llama_sieve::ffi::host::llama_h::{llama_model, llama_sampler};
use llama_sieve::ffi::host::vocabulary::llama_vocab;

use crate::choice::{self, Chosen, Named, Theirs, choose};
use crate::constructors::{Constructor, GRAMMAR, GRAMMAR_LAZY, GRAMMAR_LAZY_PATTERNS};
use crate::routes::Route;
use crate::sampling::way;

/// What every constructor is given: vocabulary, text and root.
type Arguments = (*const llama_vocab, *const c_char, *const c_char);

/// What a constructor's stand-in is to do.
///
/// # Safety
/// The arguments are what llama.h asks for.
unsafe fn chosen(
    constructor: &'static Constructor,
    grammar: Arguments,
    triggers: Triggers,
    numbers: &[Named<'_>],
) -> Chosen {
    let mut is_nothing = false;
    // SAFETY: the caller guarantees the arguments.
    let mut ours = || match unsafe { hosted(grammar, triggers) } {
        Hosted::Made(sampler) => sampler,
        Hosted::Theirs => null_mut(),
        Hosted::Nothing => {
            is_nothing = true;
            null_mut()
        }
    };
    let chosen = choose(constructor, &|_| numbers.to_vec(), |_| ours());
    match is_nothing {
        true => Chosen::Made(null_mut()),
        false => chosen,
    }
}

/// Calls the host's constructor with these arguments, outside any guard, so that what it throws
/// passes through.
macro_rules! call_host {
    ($theirs:expr, ($($argument:ident: $kind:ty),*)) => {{
        type Function = unsafe extern "C-unwind" fn($($kind),*) -> *mut llama_sampler;
        let theirs: Theirs = $theirs;
        // SAFETY: the host's function of the name that was called, with the arguments of the call.
        unsafe { transmute::<*mut c_void, Function>(theirs.address())($($argument),*) }
    }};
}

/// Stand-in for `llama_sampler_init_grammar`.
///
/// # Safety
/// The arguments are what llama.h asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sampler_init_grammar(
    vocab: *const llama_vocab,
    grammar: *const c_char,
    root: *const c_char,
) -> *mut llama_sampler {
    let arguments = (vocab, grammar, root);
    // SAFETY: the caller guarantees the arguments.
    let chosen = unsafe { chosen(&GRAMMAR, arguments, Triggers::None, &[]) };
    match chosen {
        Chosen::Made(sampler) => sampler,
        Chosen::Theirs(theirs) => call_host!(
            theirs,
            (vocab: *const llama_vocab, grammar: *const c_char, root: *const c_char)
        ),
    }
}

/// The stand-ins for lazy grammars.
macro_rules! lazy {
    ($($symbol:ident: $which:ident, $triggers:ident;)*) => {$(
        /// The built-in constructor's stand-in.
        ///
        /// # Safety
        /// The arguments are what llama.h asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol(
            vocab: *const llama_vocab,
            grammar: *const c_char,
            root: *const c_char,
            texts: *mut *const c_char,
            n_texts: usize,
            tokens: *const Token,
            n_tokens: usize,
        ) -> *mut llama_sampler {
            let triggers = Triggers::$triggers((texts, n_texts), (tokens, n_tokens));
            let numbers: [Named<'_>; 2] =
                [("n_texts", &n_texts), ("n_tokens", &n_tokens)];
            // SAFETY: the caller guarantees the arguments.
            let chosen = unsafe { chosen(&$which, (vocab, grammar, root), triggers, &numbers) };
            match chosen {
                Chosen::Made(sampler) => sampler,
                Chosen::Theirs(theirs) => call_host!(
                    theirs,
                    (
                        vocab: *const llama_vocab,
                        grammar: *const c_char,
                        root: *const c_char,
                        texts: *mut *const c_char,
                        n_texts: usize,
                        tokens: *const Token,
                        n_tokens: usize
                    )
                ),
            }
        }
    )*};
}

lazy! {
    llama_sampler_init_grammar_lazy: GRAMMAR_LAZY, Words;
    llama_sampler_init_grammar_lazy_patterns: GRAMMAR_LAZY_PATTERNS, Patterns;
}

/// Forgets the vocabulary of a model that is freed, and calls the host's.
///
/// # Safety
/// `model` is what llama.h asks for.
unsafe fn free_model(way: Option<Route>, model: *mut llama_model) {
    if way.is_some_and(choice::is_served) {
        // SAFETY: the caller guarantees the model, which is of the host that is served.
        unsafe { forget_model(model) };
    }
    if let Some(way) = way {
        type Function = unsafe extern "C-unwind" fn(*mut llama_model);
        // SAFETY: the host's function of the name that was called, with the argument of the call.
        unsafe { transmute::<*mut c_void, Function>(way.address.as_ptr())(model) }
    }
}

/// Stand-in for `llama_model_free`: another model may lie at the same place afterwards.
///
/// # Safety
/// `model` is what llama.h asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_model_free(model: *mut llama_model) {
    // SAFETY: the caller guarantees the model.
    unsafe { free_model(way(c"llama_model_free"), model) }
}

/// Stand-in for its deprecated name, which llama.cpp may implement without the other.
///
/// # Safety
/// `model` is what llama.h asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_free_model(model: *mut llama_model) {
    // SAFETY: the caller guarantees the model.
    unsafe { free_model(way(c"llama_free_model"), model) }
}
