//! The exports for grammars, and the exports that free a model, whose vocabulary is then forgotten.

use std::ffi::{c_char, c_void};
use std::mem::transmute;

use llama_sieve::Token;
use llama_sieve::ffi::grammar::hosted::{Hosted, Repetitions, Triggers, forget_model, hosted};
use llama_sieve::ffi::guard::guard;
use llama_sieve::ffi::host::llama_h::{llama_model, llama_sampler};
use llama_sieve::ffi::host::vocabulary::llama_vocab;

use crate::choice::{self, Call, Named, Ours, choose};
use crate::constructors::{Constructor, GRAMMAR, GRAMMAR_LAZY, GRAMMAR_LAZY_PATTERNS};
use crate::host_constructors::Route;
use crate::routes::Function;
use crate::settings::settings;
use crate::stubs::{self, Answer, Saved, stand_in};
use crate::vocabularies;

/// The first arguments of every constructor: vocabulary, text and root.
type Arguments = (*const llama_vocab, *const c_char, *const c_char);

/// Decides for a constructor's stand-in: returns a sampler of this library, or the host's function.
///
/// # Safety
/// The arguments meet the requirements of llama.h.
unsafe fn chosen(
    constructor: &'static Constructor,
    saved: &Saved,
    grammar: Arguments,
    triggers: Triggers,
    told: &[Named<'_>],
) -> Answer {
    let repetitions = match settings().large_grammars {
        true => Repetitions::Many,
        false => Repetitions::AsLlamaCpp,
    };
    // SAFETY: the caller guarantees the arguments.
    let ours = |_| match unsafe { hosted(grammar, triggers, repetitions) } {
        Hosted::Made(sampler) => Ours::Made(sampler),
        Hosted::Theirs => Ours::Refused,
        Hosted::Otherwise(reason) => Ours::Otherwise(reason),
        Hosted::Nothing => Ours::Nothing,
    };
    let call = Call {
        constructor,
        saved,
        arguments: &|_| told.to_vec(),
        are_finite: true,
    };
    choose(&call, ours)
}

/// Exports constructors for grammars, given their arguments after vocabulary, text and root, their
/// triggers, and the arguments that are reported.
macro_rules! constructors {
    ($($symbol:ident($($argument:ident: $kind:ty),*): $which:ident, $triggers:expr, $told:expr;)*) => {$(
        const _: () = {
            unsafe extern "C-unwind" fn decide(saved: &Saved) -> Answer {
                let mut arguments = stubs::Arguments::of(saved);
                // SAFETY: the caller of the constructor guarantees the arguments.
                unsafe {
                    let grammar = (arguments.next(), arguments.next(), arguments.next());
                    $(let $argument: $kind = arguments.next();)*
                    chosen(&$which, saved, grammar, $triggers, $told)
                }
            }
            stand_in!($symbol, decide);
        };
    )*};
}
constructors! {
    llama_sampler_init_grammar(): GRAMMAR, Triggers::None, &[];
    llama_sampler_init_grammar_lazy(
        words: *mut *const c_char, n_words: usize, tokens: *const Token, n_tokens: usize
    ):
        GRAMMAR_LAZY,
        Triggers::Words((words, n_words), (tokens, n_tokens)),
        &[("num_trigger_words", &n_words), ("num_trigger_tokens", &n_tokens)];
    llama_sampler_init_grammar_lazy_patterns(
        patterns: *mut *const c_char, n_patterns: usize, tokens: *const Token, n_tokens: usize
    ):
        GRAMMAR_LAZY_PATTERNS,
        Triggers::Patterns((patterns, n_patterns), (tokens, n_tokens)),
        &[("num_trigger_patterns", &n_patterns), ("num_trigger_tokens", &n_tokens)];
}

/// Forgets the vocabulary of a model that is being freed, and calls the host's function.
///
/// # Safety
/// `model` meets the requirements of llama.h.
unsafe fn free_model(way: Option<Route>, model: *mut llama_model) {
    guard("llama_model_free", || (), || vocabularies::forget(model));
    if way.is_some_and(choice::is_served) {
        // SAFETY: the caller guarantees the model, which is of the host that is served.
        unsafe { forget_model(model) };
    }
    call_host!(way, (*mut llama_model) -> (), (model), ());
}

/// Stand-in for `llama_model_free` that also forgets the model's vocabulary, since another model
/// may be at the same address afterwards.
///
/// # Safety
/// `model` meets the requirements of llama.h.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_model_free(model: *mut llama_model) {
    static HOSTS: Function = Function::new(c"llama_model_free");
    // SAFETY: the caller guarantees the model.
    unsafe { free_model(HOSTS.route(), model) }
}

/// Stand-in for `llama_free_model`, the deprecated name of `llama_model_free`. The host's
/// implementation need not call `llama_model_free`.
///
/// # Safety
/// `model` meets the requirements of llama.h.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_free_model(model: *mut llama_model) {
    static HOSTS: Function = Function::new(c"llama_free_model");
    // SAFETY: the caller guarantees the model.
    unsafe { free_model(HOSTS.route(), model) }
}
