//! Makes a sampler from a grammar that a C caller passes, lazy or not. This module is used by this
//! library's own constructors, and by those that replace a host's.

use std::cell::{Cell, RefCell};
use std::ffi::c_char;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::errors::LLAMA_SIEVE_ERROR_INVALID;
use crate::ffi::failure::{Failure, begin, made, part, usable};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::{Tokenizer, c_bytes, llama_vocab};
use crate::ffi::host::{Host, host_function};
use crate::ffi::known_vocabularies::{Known, known};
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::grammar::elements::About;
use crate::grammar::parser::{Repetitions, token_texts};
use crate::grammar::triggers::Triggers;
use crate::grammar::{Grammar, Refused};
use crate::random::HashMap;
use crate::token::Token;

pub(in crate::ffi) static GRAMMAR: Vtable = vtable::<Grammar>();

/// The options for making the sampler of a grammar.
pub(super) struct Making<'a> {
    /// Makes a sampler of the host's type from the grammar.
    pub(super) into_host: &'a dyn Fn(Grammar) -> Result<*mut llama_sampler, Failure>,
    /// Filled in while the grammar is made, if it is to replace a host's.
    pub(super) notes: Option<&'a Notes>,
    pub(super) repetitions: Repetitions,
}

/// Findings from the making of a grammar that is to replace a host's.
#[derive(Default)]
pub(super) struct Notes {
    /// True if the text is refused, and llama.cpp's own parser may hang on it, overflow the stack,
    /// or read out of bounds.
    pub(super) is_trap: Cell<bool>,
    /// The data kept for the vocabulary; `None` if the grammar is empty.
    pub(super) known: RefCell<Option<Arc<Known>>>,
    /// True if finding the first tokens exceeds the limits.
    pub(super) exceeds: Cell<bool>,
    /// Properties of the grammar's text that builds of llama.cpp treat differently.
    pub(super) about: Cell<Option<About>>,
}

/// The options for samplers of this library's own constructors.
pub(super) const OWN: Making<'_> = Making {
    into_host: &|grammar| Ok(into_host(&GRAMMAR, grammar)),
    notes: None,
    repetitions: Repetitions::Many,
};

impl Making<'_> {
    fn refused(&self, refused: Refused) -> Failure {
        if let Some(notes) = self.notes {
            notes.is_trap.set(refused.is_trap);
        }
        invalid(refused.what)
    }
}

/// The arguments of every constructor: vocabulary, text and root.
pub(super) type Arguments = (*const llama_vocab, *const c_char, *const c_char);

/// Makes the sampler of a grammar, which is lazy if `triggers` returns triggers. `triggers` is
/// called only if the grammar is not empty. Returns NULL on failure.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; the strings are NULL or C strings.
pub(super) unsafe fn constructed(
    call: &'static str,
    (vocab, text, root): Arguments,
    triggers: impl FnOnce() -> Result<Option<Lazy>, Failure>,
    making: &Making<'_>,
) -> *mut llama_sampler {
    let prepared = begin(call).and_then(|()| {
        part(call, || {
            // SAFETY: the caller guarantees the arguments.
            let prepared = unsafe { prepared(vocab, text, root, making) }?;
            let is_empty = matches!(prepared, Prepared::Empty(_));
            let lazy = if is_empty { None } else { triggers()? };
            Ok((prepared, lazy))
        })
    });
    let Ok((mut prepared, lazy)) = prepared else {
        return null_mut();
    };
    if let Prepared::Text(text) = &mut prepared {
        // SAFETY: the caller guarantees the vocabulary. The call is outside the guard, through
        // which the host's exceptions would not pass.
        unsafe { text.ask(vocab) };
    }
    made(call, || {
        let grammar = prepared.grammar(making)?;
        if let Some(notes) = making.notes {
            notes.about.set(grammar.about());
        }
        (making.into_host)(match lazy {
            Some((triggers, tokens)) => grammar.lazy(triggers, &tokens),
            None => grammar,
        })
    })
}

/// The triggers of a lazy grammar: patterns and tokens.
pub(super) type Lazy = (Arc<Triggers>, Vec<Token>);

/// A grammar, read as far as that is possible without the tokenizer.
enum Prepared<'a> {
    /// An empty grammar, with the number of tokens of the vocabulary.
    Empty(usize),
    /// A cached grammar, which needs no tokenizer.
    Ready(Grammar),
    /// The text of a grammar that has yet to be read.
    Text(Text<'a>),
}

/// A grammar that has yet to be read.
struct Text<'a> {
    text: &'a [u8],
    root: &'a [u8],
    known: Arc<Known>,
    /// The texts of the grammar's elements `<text>`, in reading order, each with its token once
    /// that is known.
    tokens: Vec<(Vec<u8>, Option<Token>)>,
    tokenizer: Tokenizer,
}

pub(super) fn invalid(text: String) -> Failure {
    Failure::new(LLAMA_SIEVE_ERROR_INVALID, text)
}

/// Reads the arguments of a constructor, and the grammar as far as that needs no tokenizer.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; the strings are NULL or C strings that live for
/// `'a`.
unsafe fn prepared<'a>(
    vocab: *const llama_vocab,
    text: *const c_char,
    root: *const c_char,
    making: &Making<'_>,
) -> Result<Prepared<'a>, Failure> {
    let host = Host::get().map_err(Failure::no_host)?;
    let text = match text.is_null() {
        true => &[],
        // SAFETY: not NULL, and the caller guarantees the string.
        false => unsafe { c_bytes(text) },
    };
    if text.is_empty() {
        if vocab.is_null() {
            return Ok(Prepared::Empty(0));
        }
        type NTokens = unsafe extern "C" fn(*const llama_vocab) -> i32;
        let n_tokens = host_function!(host, c"llama_vocab_n_tokens", NTokens);
        // SAFETY: the caller guarantees the vocabulary.
        let n_tokens = unsafe { n_tokens(vocab) };
        let n_tokens = usize::try_from(n_tokens).unwrap_or(0);
        return Ok(Prepared::Empty(n_tokens));
    }
    usable("the vocabulary", vocab.cast::<u8>())?;
    if root.is_null() {
        return Err(Failure::null("the name of the root rule"));
    }
    // SAFETY: the caller guarantees the string.
    let root = unsafe { c_bytes(root) };
    // SAFETY: the caller guarantees the vocabulary, which is read within this call only.
    let known = unsafe { known(vocab) }.map_err(Failure::no_host)?;
    if let Some(notes) = making.notes {
        *notes.known.borrow_mut() = Some(Arc::clone(&known));
    }
    if let Some(cached) = Grammar::cached(text, root, making.repetitions, &known.tree) {
        let cached = cached.map_err(|refused| making.refused(refused));
        return Ok(Prepared::Ready(cached?));
    }
    let texts = token_texts(text, root, making.repetitions).into_iter();
    Ok(Prepared::Text(Text {
        text,
        root,
        known,
        tokens: texts.map(|text| (text, None)).collect(),
        // SAFETY: as above.
        tokenizer: unsafe { Tokenizer::of(&host, vocab) }?,
    }))
}

impl Prepared<'_> {
    fn grammar(self, making: &Making<'_>) -> Result<Grammar, Failure> {
        match self {
            Self::Empty(n_tokens) => Ok(Grammar::empty(n_tokens)),
            Self::Ready(grammar) => Ok(grammar),
            Self::Text(text) => text.grammar(making),
        }
    }
}

impl Text<'_> {
    /// Asks the host's tokenizer for the tokens of the texts. Stops at the first text that is not
    /// one token, for which the grammar is refused.
    ///
    /// # Safety
    /// `vocab` is a vocabulary of the host.
    unsafe fn ask(&mut self, vocab: *const llama_vocab) {
        for (text, token) in &mut self.tokens {
            // SAFETY: the caller guarantees the vocabulary.
            *token = unsafe { self.tokenizer.one_token(vocab, text) };
            if token.is_none() {
                return;
            }
        }
    }

    fn grammar(self, making: &Making<'_>) -> Result<Grammar, Failure> {
        let tokens = self.tokens.iter();
        let tokens: HashMap<&[u8], Token> = tokens
            .filter_map(|(text, token)| Some((text.as_slice(), (*token)?)))
            .collect();
        let token = |text: &[u8]| tokens.get(text).copied();
        let grammar = Grammar::new(
            self.text,
            self.root,
            making.repetitions,
            &self.known.tree,
            token,
        );
        grammar.map_err(|refused| making.refused(refused))
    }
}
