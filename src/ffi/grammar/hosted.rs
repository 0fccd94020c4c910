//! Grammars that transparently replace a host's own, with the behaviour that the host relies on.
//!
//! They differ from the other grammars of this library when a token that is not allowed is
//! accepted. The built-in then throws. This library makes the host's own code throw as well: a
//! grammar of the host that allows nothing accepts the token, and is freed while the exception
//! passes. The message depends only on the token, so neither the client's grammar nor the earlier
//! tokens are needed. Where the built-in would end the process or never return, this library's
//! grammar becomes dead. After a limit or an internal error, the host's code throws at the next
//! token, since a server must not mistake a truncated text for a finished one.
//!
//! This library's grammar is used if comparisons have shown that the host's own gives the same
//! results: see `proof`. A grammar whose first tokens cannot be found within the limits is left to
//! the host, if the host's constructor is certain to return. A text is checked by the host's own
//! constructor, which is called with the program's arguments. If that throws or returns NULL, so
//! does this library. Otherwise the sampler that it returns is freed at once. The constructor is
//! not called for arguments that it has accepted before, nor for those on which it may hang or end
//! the process: see [`host_work`](crate::grammar::host_work).
//!
//! The grammar that throws is lazy and waits for the token. Since the token triggers it, it skips
//! the check that the generation may end, where llama.cpp ends the process.
//!
//! The host's functions are called outside the guard, so that their exceptions pass through.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::ptr::null;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::candidates::Candidates;
use crate::errors::{LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN, LLAMA_SIEVE_ERROR_INVALID};
use crate::ffi::failure::Failure;
use crate::ffi::grammar::host_own::{Functions, Owned};
pub use crate::ffi::grammar::lazy::Triggers;
use crate::ffi::grammar::lazy::{given, of_patterns, of_words};
use crate::ffi::grammar::making::{Arguments, Making, Notes, constructed};
use crate::ffi::grammar::proof::found::Digest;
use crate::ffi::grammar::proof::proven;
use crate::ffi::guard::guard;
use crate::ffi::host::llama_h::{llama_model, llama_sampler};
use crate::ffi::host::vocabulary::{c_bytes, llama_vocab};
use crate::ffi::host::{Host, host_function};
use crate::ffi::known_vocabularies::{any_known, forget};
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::grammar::host_work::DEEP;
pub use crate::grammar::parser::Repetitions;
use crate::grammar::{Grammar, Refusal};
use crate::last_error;
use crate::log;
use crate::pool::Pool;
use crate::sampler::{About, Expected, Kind, Sampler, Tell, clone_by_field};
use crate::token::Token;

pub(in crate::ffi) static HOSTED: Vtable = vtable::<HostedGrammar>().with_accept(accept_or_throw);

/// The result of making a grammar sampler for a host.
#[derive(Clone, Debug)]
pub enum Hosted {
    /// A sampler of this library.
    Made(*mut llama_sampler),
    /// The host must make its own grammar, since this library refuses the text; the last error says
    /// why.
    Theirs,
    /// The host must make its own grammar, although this library accepts the text; the string says
    /// why.
    Otherwise(String),
    /// The result is NULL, as for an invalid grammar: the host's constructor returns NULL, or may
    /// hang or end the process. The last error says why.
    Nothing,
}

/// Makes the grammar sampler that replaces the bound host's own. If `repetitions` lets this library
/// accept a text that the host would refuse for its repetitions, the host's constructor is not
/// called.
///
/// # Safety
/// The arguments are as llama.h requires, and `vocab` outlives the sampler.
pub unsafe fn hosted(
    (vocab, text, root): Arguments,
    triggers: Triggers,
    repetitions: Repetitions,
) -> Hosted {
    let notes = Notes::default();
    let functions = Cell::new(None);
    let making = Making {
        into_host: &|grammar| {
            let host = Host::get().map_err(Failure::no_host)?;
            let found = Functions::of(&host).map_err(Failure::no_host)?;
            functions.set(Some(found));
            notes.exceeds.set(!grammar.begins_within_limits());
            let hosted = HostedGrammar {
                grammar: grammar.hosted(),
                host: HostSide {
                    vocab,
                    functions: found,
                },
            };
            Ok(into_host(&HOSTED, hosted))
        },
        notes: Some(&notes),
        repetitions,
    };
    // SAFETY: the caller guarantees the arguments.
    let lazy = || unsafe {
        match triggers {
            Triggers::None => Ok(None),
            Triggers::Words(words, tokens) => of_words(words, tokens),
            Triggers::Patterns(patterns, tokens) => of_patterns(patterns, tokens),
        }
    };
    // SAFETY: as above.
    let made = unsafe { constructed(CALL, (vocab, text, root), lazy, &making) };
    if let (false, Some(functions)) = (made.is_null(), functions.get()) {
        // SAFETY: as above.
        return unsafe { judged((made, functions), (vocab, text, root), triggers, &notes) };
    }
    // SAFETY: as above.
    let is_trap = notes.is_trap.get() || guard(CALL, || false, || unsafe { nests_deeply(text) });
    if !is_trap {
        return Hosted::Theirs;
    }
    guard(
        CALL,
        || (),
        || log::error(last_error::code(), &last_error::get()),
    );
    Hosted::Nothing
}

const CALL: &str = "grammar";

/// Returns this library's sampler, the reason why the host's is used, or [`Hosted::Nothing`] if the
/// host's constructor returns NULL.
///
/// # Safety
/// The requirements of [`hosted`] apply. Nothing else refers to the sampler `made`, and `functions`
/// are those of its host.
unsafe fn judged(
    (made, functions): (*mut llama_sampler, Functions),
    (vocab, text, root): Arguments,
    triggers: Triggers,
    notes: &Notes,
) -> Hosted {
    let ours = Owned(made, functions.free);
    let known = notes.known.take();
    if let (Some(about), Some(known)) = (notes.about.get(), &known) {
        if notes.exceeds.get() && about.host_comes_back {
            return Hosted::Otherwise("what may come first exceeds the limits of ours".into());
        }
        let of_vocabulary = (vocab, &known.proofs, &known.tree);
        // SAFETY: the caller guarantees the vocabulary, to which `known` belongs.
        let proven = unsafe { proven(functions, of_vocabulary, about, triggers) };
        if let Err(reason) = proven {
            return Hosted::Otherwise(reason);
        }
        // SAFETY: the caller guarantees the arguments, which were read before.
        let asked = about
            .host_comes_back
            .then(|| unsafe { asked((text, root), triggers) });
        if let Some(digest) = asked.flatten()
            && !known.proofs.is_accepted(&digest)
        {
            // SAFETY: the host's constructor, called as the program calls it.
            if unsafe { refuses(functions, (vocab, text, root), triggers) } {
                let what = "llama.cpp's own constructor gives NULL";
                guard(
                    CALL,
                    || (),
                    || last_error::set(LLAMA_SIEVE_ERROR_INVALID, what),
                );
                return Hosted::Nothing;
            }
            guard(CALL, || (), || known.proofs.accept(digest));
        }
    }
    Hosted::Made(ours.given())
}

/// Returns true if the host's constructor returns NULL, or if the host has no constructor for these
/// triggers. The host's exceptions pass through.
///
/// # Safety
/// The requirements of [`hosted`] apply, and `functions` are those of the bound host.
unsafe fn refuses(
    functions: Functions,
    (vocab, text, root): Arguments,
    triggers: Triggers,
) -> bool {
    // SAFETY: the caller guarantees functions and arguments.
    let theirs = unsafe {
        match (triggers, functions.words) {
            (Triggers::None, _) => (functions.plain)(vocab, text, root),
            (Triggers::Words((words, n), (tokens, n_tokens)), Some(of_words)) => {
                of_words(vocab, text, root, words, n, tokens, n_tokens)
            }
            (Triggers::Words(..), None) => return true,
            (Triggers::Patterns((patterns, n), (tokens, n_tokens)), _) => {
                (functions.patterns)(vocab, text, root, patterns, n, tokens, n_tokens)
            }
        }
    };
    Owned(theirs, functions.free).0.is_null()
}

/// The maximum number of bytes of a word or pattern, since `std::regex` parses it recursively.
const MOST_OF_A_PATTERN: usize = 2000;

/// Returns a digest that identifies the arguments of the host's constructor; `None` if a word or
/// pattern is so long that `std::regex` may overflow the stack.
///
/// # Safety
/// The requirements of [`hosted`] apply, `text` and `root` are not NULL, and the lists have been
/// read before.
unsafe fn asked(
    (text, root): (*const c_char, *const c_char),
    triggers: Triggers,
) -> Option<Digest> {
    let digest = || {
        let kind = match triggers {
            Triggers::None => 0,
            Triggers::Words(..) => 1,
            Triggers::Patterns(..) => 2,
        };
        // SAFETY: the caller guarantees strings and lists.
        let (text, root, (waits_for, tokens)) =
            unsafe { (c_bytes(text), c_bytes(root), given(triggers).ok()?) };
        if waits_for.iter().any(|one| one.len() > MOST_OF_A_PATTERN) {
            return None;
        }
        let mut hash = Sha256::new_with_prefix([kind]);
        hash.update(waits_for.len().to_le_bytes());
        for bytes in [text, root].iter().chain(&waits_for) {
            hash.update(bytes.len().to_le_bytes());
            hash.update(bytes);
        }
        for token in tokens {
            hash.update(token.to_le_bytes());
        }
        Some(hash.finalize().into())
    };
    guard(CALL, || None, digest)
}

/// Returns true if llama.cpp's parser, which recurses at each parenthesis, may overflow the stack
/// on `text`.
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

/// A grammar that a host uses as its own.
#[derive(Debug)]
pub(super) struct HostedGrammar {
    grammar: Grammar,
    host: HostSide,
}

clone_by_field!(HostedGrammar { grammar, host });

/// The arguments and functions needed to make the host throw.
#[derive(Clone, Copy, Debug)]
struct HostSide {
    vocab: *const llama_vocab,
    functions: Functions,
}

// SAFETY: functions of the host, and a vocabulary that is only read.
unsafe impl Send for HostSide {}

impl HostSide {
    /// Makes the host throw its exception for a token that is not allowed. If the host does not
    /// throw, logs an error and returns.
    ///
    /// # Safety
    /// The host is loaded, and the vocabulary alive.
    unsafe fn refuse(&self, Refusal { token, skipped }: Refusal) {
        const NOTHING: &CStr = c"root ::= \"\"";
        // The pattern skips as many bytes of the token as the text before the grammar takes.
        // Without such bytes the grammar begins with the token.
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
        // SAFETY: the host's functions with the arguments that they require.
        unsafe {
            let made = (self.functions.patterns)(
                self.vocab,
                NOTHING.as_ptr(),
                c"root".as_ptr(),
                patterns.as_ptr(),
                n_patterns,
                tokens.as_ptr(),
                n_tokens,
            );
            let made = Owned(made, self.functions.free);
            (self.functions.accept)(made.0, token);
        }
        log::error(
            LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN,
            &format!("grammar: token {token} is not allowed, but llama.cpp did not say so"),
        );
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

    fn tell(&self, about: About, to: Tell<'_>) {
        self.grammar.tell(about, to);
    }

    fn expected(&self) -> Option<Expected> {
        self.grammar.expected()
    }
}

/// Accepts a token, or makes the host throw if the grammar does not allow it. This is the vtable's
/// `accept`.
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
    // After a panic the grammar is dead, and the second call returns a refusal.
    if let Some((refusal, host)) = ask().or_else(ask).flatten() {
        // SAFETY: the host calls this, and its vocabulary outlives the sampler.
        unsafe { host.refuse(refusal) }
    }
}

/// Drops the data kept for a model's vocabulary. Call it before the model is freed.
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
