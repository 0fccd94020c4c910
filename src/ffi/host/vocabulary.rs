//! A host's `llama_vocab` as a [`Vocabulary`].

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;

use crate::ffi::host::{Host, host_function};
use crate::grammar::TokenTexts;
use crate::memory::{exhausted, with_room};
use crate::token::Token;
use crate::vocabulary::Vocabulary;

/// The host's `struct llama_vocab`, whose contents are never accessed.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug)]
pub struct llama_vocab {
    _opaque: [u8; 0],
}

type Vocab = *const llama_vocab;
type Detokenize =
    unsafe extern "C" fn(Vocab, *const Token, i32, *mut c_char, i32, bool, bool) -> i32;
type Piece = unsafe extern "C" fn(Vocab, Token, *mut c_char, i32, i32, bool) -> i32;
type Tokenize = unsafe extern "C" fn(Vocab, *const c_char, i32, *mut Token, i32, bool, bool) -> i32;

type Throwing =
    unsafe extern "C-unwind" fn(Vocab, *const c_char, i32, *mut Token, i32, bool, bool) -> i32;

/// A vocabulary of the host, with the functions that read it.
#[derive(Debug)]
pub struct HostVocabulary {
    vocab: NonNull<llama_vocab>,
    n_tokens: usize,
    end: Option<Token>,
    /// True for each token that ends a generation. Determined once, since a filter needs it for
    /// every candidate.
    eog: Vec<bool>,
    detokenize: Detokenize,
    piece: Piece,
    tokenize: Tokenize,
}

// SAFETY: llama.cpp only reads a vocabulary after it was loaded; llama.h says that its tokenizer is
// thread-safe.
unsafe impl Send for HostVocabulary {}
// SAFETY: as above.
unsafe impl Sync for HostVocabulary {}

/// Returns an error for a vocabulary whose tokens have only numbers, and no texts.
///
/// # Safety
/// `vocab` is a vocabulary of the host.
unsafe fn has_texts(host: &Host, vocab: Vocab) -> Result<(), String> {
    type Kind = unsafe extern "C" fn(Vocab) -> c_int;
    /// The value of `LLAMA_VOCAB_TYPE_NONE`.
    const NONE: c_int = 0;
    let kind = || -> Result<Kind, String> { Ok(host_function!(host, c"llama_vocab_type", Kind)) };
    match kind() {
        // SAFETY: the caller guarantees the vocabulary.
        Ok(kind) if unsafe { kind(vocab) } == NONE => {
            Err("the model's tokens have no texts (its tokenizer is no_vocab)".into())
        }
        _ => Ok(()),
    }
}

impl HostVocabulary {
    /// Returns the vocabulary. The error says that there is no host, that it lacks a function, or
    /// that the tokens have only numbers: the host would end the process if their texts were
    /// requested.
    ///
    /// # Safety
    /// `vocab` is a vocabulary of the bound host and outlives the object.
    pub unsafe fn new(vocab: NonNull<llama_vocab>) -> Result<Self, String> {
        type OfVocab = unsafe extern "C" fn(Vocab) -> Token;
        let host = Host::get()?;
        let n_tokens = host_function!(host, c"llama_vocab_n_tokens", OfVocab);
        let eot = host_function!(host, c"llama_vocab_eot", OfVocab);
        let eos = host_function!(host, c"llama_vocab_eos", OfVocab);
        let is_eog = host_function!(
            host,
            c"llama_vocab_is_eog",
            unsafe extern "C" fn(Vocab, Token) -> u8
        );
        let detokenize = host_function!(host, c"llama_detokenize", Detokenize);
        let piece = host_function!(host, c"llama_token_to_piece", Piece);
        let tokenize = host_function!(host, c"llama_tokenize", Tokenize);

        let raw = vocab.as_ptr().cast_const();
        // SAFETY: the caller guarantees the vocabulary.
        unsafe { has_texts(&host, raw) }?;
        // SAFETY: the caller guarantees the vocabulary.
        let (n_tokens, eot, eos) = unsafe { (n_tokens(raw), eot(raw), eos(raw)) };
        let token = |id: Token| (id >= 0).then_some(id);
        // SAFETY: as above; the tokens are the vocabulary's.
        let all = (0..n_tokens).map(|id| unsafe { is_eog(raw, id) } != 0);
        let n_tokens = usize::try_from(n_tokens).unwrap_or(0);
        let mut eog = with_room(n_tokens).unwrap_or_else(exhausted);
        eog.extend(all);
        Ok(Self {
            vocab,
            n_tokens,
            end: token(eot).or(token(eos)),
            eog,
            detokenize,
            piece,
            tokenize,
        })
    }

    fn as_ptr(&self) -> Vocab {
        self.vocab.as_ptr()
    }

    fn has(&self, token: Token) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.n_tokens)
    }
}

/// Calls `write(buffer, room)` until there is enough room. `write` returns the length, or minus the
/// room that it needs.
fn written<T: Copy + Default>(buffer: &mut Vec<T>, write: impl Fn(*mut T, i32) -> i32) {
    buffer.resize(buffer.capacity().max(32), T::default());
    // The second call has enough room. If a third one were needed, the host would contradict
    // itself.
    for _ in 0..2 {
        let room = i32::try_from(buffer.len()).unwrap_or(i32::MAX);
        let length = write(buffer.as_mut_ptr(), room);
        if length >= 0 {
            return buffer.truncate(length as usize);
        }
        buffer.resize(length.unsigned_abs() as usize, T::default());
    }
    buffer.clear();
}

impl Vocabulary for HostVocabulary {
    fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    fn is_eog(&self, token: Token) -> bool {
        let index = usize::try_from(token).ok();
        index.is_some_and(|index| self.eog.get(index) == Some(&true))
    }

    fn end_token(&self) -> Option<Token> {
        self.end
    }

    fn piece(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clear();
        if !self.has(token) {
            return;
        }
        written(piece, |buffer, room| {
            // SAFETY: the vocabulary outlives the object, the token is its own, and there is `room`
            // in the buffer.
            unsafe { (self.piece)(self.as_ptr(), token, buffer.cast(), room, 0, false) }
        });
    }

    fn detokenize(&self, token: Token, text: &mut Vec<u8>) {
        text.clear();
        if !self.has(token) {
            return;
        }
        written(text, |buffer, room| {
            // SAFETY: as above.
            unsafe { (self.detokenize)(self.as_ptr(), &token, 1, buffer.cast(), room, false, true) }
        });
    }

    fn tokenize(&self, text: &[u8]) -> Vec<Token> {
        let mut tokens = Vec::with_capacity(text.len() + 2);
        let length = i32::try_from(text.len()).unwrap_or(i32::MAX);
        written(&mut tokens, |buffer, room| {
            let text = text.as_ptr().cast();
            // SAFETY: the vocabulary outlives the object; text and buffer have the lengths that are
            // passed.
            unsafe { (self.tokenize)(self.as_ptr(), text, length, buffer, room, false, false) }
        });
        tokens
    }
}

/// The texts of the tokens, as a grammar reads them.
impl TokenTexts for HostVocabulary {
    fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    fn is_eog(&self, token: Token) -> bool {
        Vocabulary::is_eog(self, token)
    }

    fn written_out(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clear();
        if !self.has(token) {
            return;
        }
        written(piece, |buffer, room| {
            // SAFETY: as above.
            unsafe { (self.piece)(self.as_ptr(), token, buffer.cast(), room, 0, true) }
        });
    }
}

/// The host's tokenizer. It is called outside the guard, so that its exceptions pass through.
#[derive(Debug)]
pub(crate) struct Tokenizer(Throwing);

impl Tokenizer {
    /// Returns the tokenizer of a vocabulary. The error says that the host lacks the function, or
    /// that the tokens have only numbers.
    ///
    /// # Safety
    /// `vocab` is a vocabulary of the host.
    pub(crate) unsafe fn of(host: &Host, vocab: Vocab) -> Result<Self, String> {
        // SAFETY: the caller guarantees the vocabulary.
        unsafe { has_texts(host, vocab) }?;
        Ok(Self(host_function!(host, c"llama_tokenize", Throwing)))
    }

    /// Writes the tokens of `text`, none of them special, to `out`, if they fit into its capacity:
    /// nothing is allocated outside the guard. Returns their number, even if they do not fit;
    /// `None` if the host reports no number.
    ///
    /// # Safety
    /// `vocab` is a vocabulary of the host.
    pub(crate) unsafe fn tokens(
        &self,
        vocab: Vocab,
        text: &[u8],
        out: &mut Vec<Token>,
    ) -> Option<usize> {
        out.clear();
        out.resize(out.capacity(), 0);
        let length = i32::try_from(text.len()).ok()?;
        let room = i32::try_from(out.len()).unwrap_or(i32::MAX);
        let (text, to) = (text.as_ptr().cast(), out.as_mut_ptr());
        // SAFETY: the caller guarantees the vocabulary; text and buffer have the lengths that are
        // passed.
        let n = unsafe { (self.0)(vocab, text, length, to, room, false, false) };
        let is_written = n >= 0;
        let n = usize::try_from(n.unsigned_abs()).ok();
        out.truncate(n.filter(|_| is_written).unwrap_or(0));
        // The lowest number means that there are more tokens than the host can count.
        n.filter(|&n| n <= i32::MAX as usize)
    }

    /// Returns the token for the whole `text`, with control tokens recognised; `None` if the text
    /// is not exactly one token.
    ///
    /// # Safety
    /// `vocab` is a vocabulary of the host.
    pub(crate) unsafe fn one_token(&self, vocab: Vocab, text: &[u8]) -> Option<Token> {
        let mut tokens = [0; 2];
        let length = i32::try_from(text.len()).ok()?;
        let (text, out) = (text.as_ptr().cast(), tokens.as_mut_ptr());
        // SAFETY: the caller guarantees the vocabulary; text and buffer have the lengths that are
        // passed.
        let n = unsafe { (self.0)(vocab, text, length, out, 2, false, true) };
        let [token, _] = tokens;
        (n == 1).then_some(token)
    }
}

/// Returns the vocabulary that `vocab` points to. The error says that it is NULL, or is that of
/// [`HostVocabulary::new`].
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the bound host, and outlives the returned object.
pub unsafe fn host_vocabulary(vocab: *const llama_vocab) -> Result<HostVocabulary, String> {
    let vocab = NonNull::new(vocab.cast_mut()).ok_or("the vocabulary is NULL")?;
    // SAFETY: the caller guarantees it.
    unsafe { HostVocabulary::new(vocab) }
}

/// Returns the bytes of a C string.
///
/// # Safety
/// `text` is a C string that outlives `'a`.
pub unsafe fn c_bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: the caller guarantees it.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}
