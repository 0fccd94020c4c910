//! Grammars for C: the constructor, and what may be asked of such a sampler.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

use crate::ffi::errors::{
    LLAMA_SIEVE_ERROR_GRAMMAR_END, LLAMA_SIEVE_ERROR_GRAMMAR_LIMIT,
    LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN, LLAMA_SIEVE_ERROR_INTERNAL, LLAMA_SIEVE_ERROR_INVALID,
    LLAMA_SIEVE_OK,
};
use crate::ffi::failure::{Failure, begin, made, part, usable, value};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::{Tokenizer, c_bytes, llama_vocab};
use crate::ffi::host::{Host, host_function};
use crate::ffi::hosted_grammar::{HOSTED, HostedGrammar};
use crate::ffi::known_vocabularies::{Known, forget, known};
use crate::ffi::trie::llama_sieve_cache_stats;
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::grammar::parser::token_texts;
use crate::grammar::sampler::Slot;
use crate::grammar::triggers::Triggers;
use crate::grammar::{Dead, Grammar, Refused, cache, limits};
use crate::memory;
use crate::token::Token;

/// The most bytes of a grammar's text.
pub const LLAMA_SIEVE_GRAMMAR_MAX_TEXT: usize = 8_388_608;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_TEXT == limits::MAX_TEXT);
/// The most elements of a grammar's rules, with repetitions written out.
pub const LLAMA_SIEVE_GRAMMAR_MAX_ELEMENTS: usize = 4_194_304;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_ELEMENTS == limits::MAX_ELEMENTS);
/// The most rules of a grammar, those that groups and repetitions make included.
pub const LLAMA_SIEVE_GRAMMAR_MAX_RULES: usize = 1_048_576;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_RULES == limits::MAX_RULES);
/// The most stacks of rules that one character may lead through.
pub const LLAMA_SIEVE_GRAMMAR_MAX_STACKS: usize = 262_144;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_STACKS == limits::MAX_STEP);
/// The most steps that a grammar may take for one token, one array or one mask.
pub const LLAMA_SIEVE_GRAMMAR_MAX_STEPS: usize = 16_777_216;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_MAX_STEPS == limits::MAX_WORK);
/// The most bytes that the grammars of the cache occupy together.
pub const LLAMA_SIEVE_GRAMMAR_CACHE_BYTES: usize = 134_217_728;
const _: () = assert!(LLAMA_SIEVE_GRAMMAR_CACHE_BYTES == limits::MAX_CACHE_BYTES);

pub(super) static GRAMMAR: Vtable = vtable::<Grammar>();

/// Lets only tokens through with which the text follows a grammar in GBNF, llama.cpp's notation.
///
/// `grammar_root` names the rule that a whole text follows. `vocab` must outlive this call. An
/// empty or NULL `grammar_str` gives a sampler that does nothing. NULL, and llama_sieve_last_error
/// says in which line and column what was expected, where the grammar cannot be read or exceeds one
/// of LLAMA_SIEVE_GRAMMAR_MAX_*; also where `vocab` or `grammar_root` is NULL. Which token an
/// element `<text>` is, the host's tokenizer says; an exception that it throws passes through.
///
/// After a token that the grammar does not allow the constraint is dead: only tokens that end the
/// generation are allowed until llama_sampler_reset, and one message says so. See docs/grammar.md.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; the strings are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_init_grammar(
    vocab: *const llama_vocab,
    grammar_str: *const c_char,
    grammar_root: *const c_char,
) -> *mut llama_sampler {
    const CALL: &str = "llama_sieve_init_grammar";
    // SAFETY: the caller guarantees the arguments.
    unsafe { constructed(CALL, (vocab, grammar_str, grammar_root), || Ok(None), &OWN) }
}

/// How a sampler is made of a grammar.
pub(super) struct Making<'a> {
    /// Gives the host the sampler.
    pub(super) into_host: &'a dyn Fn(Grammar) -> Result<*mut llama_sampler, Failure>,
    /// Set where llama.cpp's own would not come back from the text that was refused.
    pub(super) is_trap: Option<&'a Cell<bool>>,
}

/// Under our own names.
pub(super) const OWN: Making<'_> = Making {
    into_host: &|grammar| Ok(into_host(&GRAMMAR, grammar)),
    is_trap: None,
};

impl Making<'_> {
    fn refused(&self, refused: Refused) -> Failure {
        if let Some(is_trap) = self.is_trap {
            is_trap.set(refused.is_trap);
        }
        invalid(refused.what)
    }
}

/// What every constructor is given: vocabulary, text and root.
pub type Arguments = (*const llama_vocab, *const c_char, *const c_char);

/// The sampler of a grammar, lazy if `triggers` gives what it waits for; it is asked where there is
/// a grammar.
///
/// # Safety
/// As for `llama_sieve_init_grammar`.
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
        // SAFETY: the caller guarantees the vocabulary. Outside the guard, through which the
        // exceptions of the host would not pass.
        unsafe { text.ask(vocab) };
    }
    made(call, || {
        let grammar = prepared.grammar(making)?;
        (making.into_host)(match lazy {
            Some((triggers, tokens)) => grammar.lazy(triggers, &tokens),
            None => grammar,
        })
    })
}

/// What a lazy grammar waits for.
pub(super) type Lazy = (Arc<Triggers>, Vec<Token>);

/// A grammar, as far as it can be told without the host's tokenizer.
enum Prepared<'a> {
    /// There is none, for so many tokens.
    Empty(usize),
    /// There is nothing to ask.
    Ready(Grammar),
    /// It is to be read.
    Text(Text<'a>),
}

/// A grammar that is to be read.
struct Text<'a> {
    text: &'a [u8],
    root: &'a [u8],
    known: Arc<Known>,
    /// What its elements `<text>` say, with the tokens once they were asked for.
    tokens: Vec<(Vec<u8>, Option<Token>)>,
    tokenizer: Tokenizer,
}

pub(super) fn invalid(text: String) -> Failure {
    Failure::new(LLAMA_SIEVE_ERROR_INVALID, text)
}

/// # Safety
/// As for `llama_sieve_init_grammar`; the strings live for `'a`.
unsafe fn prepared<'a>(
    vocab: *const llama_vocab,
    text: *const c_char,
    root: *const c_char,
    making: &Making<'_>,
) -> Result<Prepared<'a>, Failure> {
    memory::room(0)?;
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
    // SAFETY: the caller guarantees the vocabulary; it is asked within this call only.
    let known = unsafe { known(vocab) }.map_err(Failure::no_host)?;
    if let Some(cached) = Grammar::cached(text, root, &known.tree) {
        let cached = cached.map_err(|refused| making.refused(refused));
        return Ok(Prepared::Ready(cached?));
    }
    let texts = token_texts(text, root).into_iter();
    Ok(Prepared::Text(Text {
        text,
        root,
        known,
        tokens: texts.map(|text| (text, None)).collect(),
        tokenizer: Tokenizer::of(&host)?,
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
    /// # Safety
    /// `vocab` is a vocabulary of the host.
    unsafe fn ask(&mut self, vocab: *const llama_vocab) {
        for (text, token) in &mut self.tokens {
            // SAFETY: the caller guarantees the vocabulary.
            *token = unsafe { self.tokenizer.one_token(vocab, text) };
        }
    }

    fn grammar(self, making: &Making<'_>) -> Result<Grammar, Failure> {
        let token = |text: &[u8]| {
            let place = self
                .tokens
                .binary_search_by(|(other, _)| (**other).cmp(text));
            self.tokens.get(place.ok()?)?.1
        };
        let grammar = Grammar::new(self.text, self.root, &self.known.tree, token);
        grammar.map_err(|refused| making.refused(refused))
    }
}

/// Writes the tokens that a grammar allows now as a bitmap: bit t % 32 of word t / 32 stands for
/// token t. Writes the first `n_words` words to `bits`; words behind the vocabulary's last are 0.
/// Returns how many tokens are allowed in all; where the grammar is empty, and while a lazy one
/// waits, all are. 0, with an error, if the sampler is NULL or no grammar, or `bits` is not aligned.
/// May be called from any thread.
///
/// # Safety
/// `smpl` is NULL or a live sampler; `bits` is NULL or has room for `n_words` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_grammar_mask(
    smpl: *const llama_sampler,
    bits: *mut u32,
    n_words: usize,
) -> usize {
    value("llama_sieve_grammar_mask", 0, || {
        // SAFETY: the caller guarantees the sampler.
        let mask = unsafe { slot_of(smpl) }?.allowed();
        if !bits.is_null() && n_words > 0 {
            usable("bits", bits)?;
            let words = mask
                .words()
                .iter()
                .flat_map(|&word| [word as u32, (word >> 32) as u32]);
            let words = words.chain(std::iter::repeat(0)).take(n_words);
            for (i, word) in words.enumerate() {
                // SAFETY: neither NULL nor misaligned, and the caller guarantees the room.
                unsafe { bits.add(i).write(word) };
            }
        }
        Ok::<_, Failure>(mask.count())
    })
}

/// Whether the text so far is a whole sentence of the grammar, so that the generation may end. What
/// the last token leaves of a character does not count, as it does not for llama.cpp. False where
/// the grammar is empty, while a lazy one waits, and, with an error, for NULL and for other
/// samplers. May be called from any thread.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_grammar_is_complete(smpl: *const llama_sampler) -> bool {
    value("llama_sieve_grammar_is_complete", false, || {
        // SAFETY: the caller guarantees the sampler.
        unsafe { slot_of(smpl) }.map(|slot| slot.is_complete())
    })
}

/// 0 while a grammar constrains; why it is dead otherwise: LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN, _END,
/// _LIMIT, or LLAMA_SIEVE_ERROR_INTERNAL. Another LLAMA_SIEVE_ERROR_* for NULL and for other
/// samplers. May be called from any thread.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_grammar_error(smpl: *const llama_sampler) -> c_int {
    value(
        "llama_sieve_grammar_error",
        LLAMA_SIEVE_ERROR_INVALID,
        || {
            // SAFETY: the caller guarantees the sampler.
            let dead = unsafe { slot_of(smpl) }?.dead();
            Ok::<_, Failure>(match dead {
                None => LLAMA_SIEVE_OK,
                Some(Dead::NotAllowed) => LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN,
                Some(Dead::TooEarly) => LLAMA_SIEVE_ERROR_GRAMMAR_END,
                Some(Dead::Limit) => LLAMA_SIEVE_ERROR_GRAMMAR_LIMIT,
                Some(Dead::Internal) => LLAMA_SIEVE_ERROR_INTERNAL,
            })
        },
    )
}

/// Writes the counters of the process-wide cache of compiled grammars: at most 256, in at most
/// LLAMA_SIEVE_GRAMMAR_CACHE_BYTES, least recently used, keyed by the SHA-256 of root and text and
/// by the vocabulary. NULL or not aligned: does nothing.
///
/// # Safety
/// `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_grammar_cache_stats(out: *mut llama_sieve_cache_stats) {
    value("llama_sieve_grammar_cache_stats", (), || {
        usable("out", out)?;
        // SAFETY: neither NULL nor misaligned, and the caller guarantees that it is writable.
        unsafe { out.write(cache::stats().into()) };
        Ok::<_, Failure>(())
    })
}

/// Forgets what is kept of a vocabulary: its tree, and the grammars that were compiled for it.
/// Samplers that are in use go on, and what they make anew is not kept. To be called before a model
/// is freed, so that its memory goes with it, and so that another model at the same address cannot
/// be taken for it. NULL does nothing.
///
/// # Safety
/// Nothing is asked of `vocab`, which may have been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_vocab_forget(vocab: *const llama_vocab) {
    value("llama_sieve_vocab_forget", (), || {
        forget(vocab.addr());
        Ok::<_, Failure>(())
    })
}

/// What may be asked of a grammar.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
unsafe fn slot_of(smpl: *const llama_sampler) -> Result<Arc<Slot>, Failure> {
    usable("the sampler", smpl)?;
    // SAFETY: not NULL, and the caller guarantees the sampler; the vtable is compared before it is
    // believed.
    let shared = unsafe {
        if GRAMMAR.is_of(smpl) {
            GRAMMAR.shared_of::<Grammar>(smpl)
        } else if HOSTED.is_of(smpl) {
            HOSTED.shared_of::<HostedGrammar>(smpl)
        } else {
            let text = "the sampler is no grammar: make it with llama_sieve_init_grammar";
            return Err(Failure::new(LLAMA_SIEVE_ERROR_INVALID, text));
        }
    };
    shared
        .and_then(|shared| shared.downcast::<Slot>().ok())
        .ok_or_else(|| Failure::new(LLAMA_SIEVE_ERROR_INVALID, "the sampler is out of use"))
}

/// The most stacks that any text has left so far; the differential tests keep it small, since the
/// built-in goes through each. Not exported to C.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[doc(hidden)]
pub unsafe fn most_stacks_of(smpl: *const llama_sampler) -> u64 {
    // SAFETY: the caller guarantees the sampler.
    unsafe { slot_of(smpl) }.map_or(0, |slot| slot.most_stacks())
}
