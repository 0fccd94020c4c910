//! Grammars for a host that does not know of ours, and relies on what its own does.
//!
//! The difference to those under our own names: where the built-in throws at a token that is not
//! allowed, the host's own code throws. A grammar of the host's is made that allows nothing, is
//! given the token, and is freed again while the exception passes. Its message depends on the token
//! alone, so the text of the client's grammar and what was accepted before need not be repeated.
//! Where the built-in would end the process, or never return, ours is dead. Of a limit, or of an
//! internal error, the host's code throws at the next token: a server must not take what was cut
//! off for what has ended.
//!
//! That grammar waits for the token: with its trigger it begins at once, without the question
//! whether the generation may end, by which llama.cpp ends the process.
//!
//! The host's functions are called outside the guard: what they throw passes through.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::ptr::null;
use std::sync::Arc;

use crate::algorithms::scratch::clone_by_field;
use crate::candidates::Candidates;
use crate::ffi::failure::Failure;
use crate::ffi::grammar::lazy::{List, of_patterns, of_words};
use crate::ffi::grammar::making::{Arguments, Making, constructed};
use crate::ffi::guard::guard;
use crate::ffi::host::built_ins::{Free, free_of};
use crate::ffi::host::llama_h::{Accept, llama_model, llama_sampler};
use crate::ffi::host::vocabulary::{c_bytes, llama_vocab};
use crate::ffi::host::{Host, host_function};
use crate::ffi::known_vocabularies::{any_known, forget};
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::grammar::host_work::DEEP;
use crate::grammar::parser::Repetitions;
use crate::grammar::{Grammar, Refusal};
use crate::last_error;
use crate::log;
use crate::pool::Pool;
use crate::sampler::{Kind, Sampler};
use crate::token::Token;

pub(in crate::ffi) static HOSTED: Vtable = vtable::<HostedGrammar>().with_accept(accept_or_throw);

type Constructor = unsafe extern "C-unwind" fn(
    *const llama_vocab,
    *const c_char,
    *const c_char,
    *const *const c_char,
    usize,
    *const Token,
    usize,
) -> *mut llama_sampler;

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub enum Triggers {
    /// Nothing: the grammar is not lazy.
    None,
    /// As for llama_sampler_init_grammar_lazy.
    Words(List<*const c_char>, List<Token>),
    /// As for llama_sampler_init_grammar_lazy_patterns.
    Patterns(List<*const c_char>, List<Token>),
}

/// What a host gets.
#[derive(Clone, Copy, Debug)]
pub enum Hosted {
    /// This one.
    Made(*mut llama_sampler),
    /// Its own is to be made. The last error says why.
    Theirs,
    /// NULL, as of a text that is no grammar: its own constructor would not return, or end the
    /// process. The last error says why.
    Nothing,
}

/// The grammar sampler that the bound host is given in the place of its own.
///
/// # Safety
/// The arguments are what llama.h asks for, and `vocab` outlives the sampler.
pub unsafe fn hosted((vocab, text, root): Arguments, triggers: Triggers) -> Hosted {
    const CALL: &str = "grammar";
    let is_trap = Cell::new(false);
    let making = Making {
        into_host: &|grammar| {
            let hosted = HostedGrammar {
                grammar: grammar.hosted(),
                host: HostSide::of(vocab)?,
            };
            Ok(into_host(&HOSTED, hosted))
        },
        is_trap: Some(&is_trap),
        repetitions: Repetitions::AsLlamaCpp,
    };
    // SAFETY: the caller guarantees the arguments.
    let triggers = || unsafe {
        match triggers {
            Triggers::None => Ok(None),
            Triggers::Words(words, tokens) => of_words(words, tokens),
            Triggers::Patterns(patterns, tokens) => of_patterns(patterns, tokens),
        }
    };
    // SAFETY: as above.
    let made = unsafe { constructed(CALL, (vocab, text, root), triggers, &making) };
    if !made.is_null() {
        return Hosted::Made(made);
    }
    // SAFETY: as above.
    let is_trap = is_trap.get() || guard(CALL, || false, || unsafe { nests_deeply(text) });
    if !is_trap {
        return Hosted::Theirs;
    }
    guard(CALL, || (), || log::error(&last_error::get()));
    Hosted::Nothing
}

/// Whether llama.cpp's parser, which goes into parentheses by recursion, may come to the end of the
/// stack.
///
/// # Safety
/// `text` is NULL or a C string.
unsafe fn nests_deeply(text: *const c_char) -> bool {
    if text.is_null() {
        return false;
    }
    // SAFETY: the caller guarantees the string.
    let text = unsafe { c_bytes(text) };
    text.iter().filter(|&&byte| byte == b'(').count() > DEEP
}

/// A grammar in a host's hands.
#[derive(Debug)]
pub(super) struct HostedGrammar {
    grammar: Grammar,
    host: HostSide,
}

clone_by_field!(HostedGrammar { grammar, host });

/// What it takes to let the host throw.
#[derive(Clone, Copy, Debug)]
struct HostSide {
    vocab: *const llama_vocab,
    constructor: Constructor,
    accept: Accept,
    free: Free,
}

// SAFETY: functions of the host, and a vocabulary that is only read.
unsafe impl Send for HostSide {}

impl HostSide {
    fn of(vocab: *const llama_vocab) -> Result<Self, Failure> {
        let host = Host::get().map_err(Failure::no_host)?;
        let look_up = || {
            Ok::<_, String>(Self {
                vocab,
                constructor: host_function!(
                    host,
                    c"llama_sampler_init_grammar_lazy_patterns",
                    Constructor
                ),
                accept: host_function!(host, c"llama_sampler_accept", Accept),
                free: free_of(&host)?,
            })
        };
        look_up().map_err(Failure::no_host)
    }

    /// Lets the host say that the token is not allowed, which it does by an exception.
    ///
    /// # Safety
    /// The host is loaded, and the vocabulary alive.
    unsafe fn refuse(&self, Refusal { token, skipped }: Refusal) {
        /// Freed also while an exception passes.
        struct Made(*mut llama_sampler, Free);
        impl Drop for Made {
            fn drop(&mut self) {
                // SAFETY: made by the same host, and known to nobody else.
                unsafe { (self.1)(self.0) }
            }
        }
        const NOTHING: &CStr = c"root ::= \"\"";
        // It begins with the token, or behind so many bytes of it.
        let pattern = guard(
            "accept",
            || None,
            || CString::new(format!("^[\\s\\S]{{{skipped}}}([\\s\\S]+)$")).ok(),
        );
        let pattern = pattern.filter(|_| skipped > 0);
        let patterns = [pattern.as_ref().map_or(null(), |pattern| pattern.as_ptr())];
        let tokens = [token];
        let (n_patterns, n_tokens) = match pattern {
            Some(_) => (1, 0),
            None => (0, 1),
        };
        // SAFETY: the host's functions with what they ask for.
        unsafe {
            let made = Made(
                (self.constructor)(
                    self.vocab,
                    NOTHING.as_ptr(),
                    c"root".as_ptr(),
                    patterns.as_ptr(),
                    n_patterns,
                    tokens.as_ptr(),
                    n_tokens,
                ),
                self.free,
            );
            (self.accept)(made.0, token);
        }
        log::error(&format!(
            "grammar: token {token} is not allowed, but llama.cpp did not say so"
        ));
    }
}

impl Sampler for HostedGrammar {
    const KIND: Kind = Grammar::KIND;
    const ACCEPTS: bool = Grammar::ACCEPTS;
    const RESETS: bool = Grammar::RESETS;

    fn name(&self) -> &'static CStr {
        self.grammar.name()
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        self.grammar.apply(candidates);
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        self.grammar.narrow(pool);
    }

    fn reset(&mut self) {
        self.grammar.reset();
    }

    fn salvage(&mut self, candidates: &mut Candidates<'_>) {
        self.grammar.salvage(candidates);
    }

    fn shared(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.grammar.shared()
    }
}

/// The entry of the vtable.
///
/// # Safety
/// `smpl` is NULL or a live sampler with this vtable.
unsafe extern "C-unwind" fn accept_or_throw(smpl: *mut llama_sampler, token: Token) {
    let of_it = |hosted: &mut HostedGrammar| {
        let refusal = hosted.grammar.accept_for_host(token)?;
        Some((refusal, hosted.host))
    };
    let ask = || {
        guard(
            "accept",
            || None,
            // SAFETY: the host calls entries only on samplers that have them.
            || unsafe { HOSTED.run(smpl, "accept", of_it) },
        )
    };
    // After a panic it is dead, and refuses.
    if let Some((refusal, host)) = ask().or_else(ask).flatten() {
        // SAFETY: the host calls this, and its vocabulary outlives the sampler.
        unsafe { host.refuse(refusal) }
    }
}

/// To be called before a model is freed: forgets what is kept of its vocabulary.
///
/// # Safety
/// `model` is NULL or a live model of the bound host.
pub unsafe fn forget_model(model: *const llama_model) {
    type Vocab = unsafe extern "C-unwind" fn(*const llama_model) -> *const llama_vocab;
    if model.is_null() || !any_known() {
        return;
    }
    let look_up = || -> Result<Vocab, String> {
        let host = Host::get()?;
        Ok(host_function!(host, c"llama_model_get_vocab", Vocab))
    };
    let Some(vocab_of) = guard("llama_model_free", || None, || look_up().ok()) else {
        return;
    };
    // SAFETY: the caller guarantees the model.
    let vocab = unsafe { vocab_of(model) };
    guard("llama_model_free", || (), || forget(vocab.addr()));
}
