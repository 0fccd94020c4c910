//! The trees of the host's vocabularies, one per vocabulary and process.
//!
//! A model may have been freed, and another one may be at its address. So a vocabulary is
//! identified by its address and a checksum over the number of its tokens, five special tokens, and
//! some of its texts, of added and of other tokens. Vocabularies that agree in both are treated as
//! the same one.

use std::hash::{DefaultHasher, Hasher};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::ffi::grammar::proof::found::Proofs;
use crate::ffi::host::vocabulary::{HostVocabulary, host_vocabulary, llama_vocab};
use crate::ffi::host::{Host, host_function};
use crate::grammar::limits::MAX_VOCABULARIES;
use crate::grammar::{VocabularyTree, cache};
use crate::samplers::BanVocabulary;
use crate::sync::{Mutex, OnceLock};
use crate::token::Token;
use crate::vocabulary::Vocabulary;

/// The maximum numbers of texts that the checksum reads: of added tokens, and of other tokens.
const SAMPLES: (usize, usize) = (256, 32);
/// The number of bytes that are written for a token before its text.
const ABOUT: usize = 5;
/// `LLAMA_TOKEN_ATTR_UNKNOWN`, `_CONTROL` and `_USER_DEFINED`.
const ADDED: i32 = 1 << 0 | 1 << 3 | 1 << 4;

type Vocab = *const llama_vocab;
type OfToken = unsafe extern "C" fn(Vocab, Token) -> i32;

/// A vocabulary with its tree.
#[derive(Debug)]
pub(super) struct Known {
    address: usize,
    samples: Vec<Token>,
    fingerprint: u64,
    pub(super) tree: Arc<VocabularyTree>,
    /// The results of comparing the host's grammars with this library's on this vocabulary.
    pub(super) proofs: Proofs,
    /// The texts as bans read them, with and without case; made at the first use.
    for_bans: [OnceLock<BanVocabulary>; 2],
}

impl Known {
    /// Returns the texts as bans read them. If `folds` is true, letters that differ only in case
    /// are equal.
    ///
    /// # Safety
    /// `vocab` is the live vocabulary that this object describes.
    pub(super) unsafe fn for_bans(
        &self,
        vocab: *const llama_vocab,
        folds: bool,
    ) -> Result<BanVocabulary, String> {
        let [exact, folded] = &self.for_bans;
        let made = if folds { folded } else { exact };
        if let Some(made) = made.get() {
            return Ok(made.clone());
        }
        // SAFETY: the caller guarantees the vocabulary, which is read within this call only.
        let vocabulary = unsafe { host_vocabulary(vocab) }?;
        // If two threads make it at the same time, one of the two is kept.
        let new = BanVocabulary::new(&vocabulary, folds);
        Ok(made.get_or_init(|| new).clone())
    }
}

static KNOWN: Mutex<Vec<Arc<Known>>> = Mutex::new(Vec::new());

/// Returns the data kept for a vocabulary, with its tree. Builds the tree if there are no such
/// data. Returns an error if `vocab` is NULL, if there is no host or it lacks a function, or if the
/// tokens have no texts.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the bound host.
pub(super) unsafe fn known(vocab: *const llama_vocab) -> Result<Arc<Known>, String> {
    let vocab = NonNull::new(vocab.cast_mut()).ok_or("the vocabulary is NULL")?;
    let address = vocab.as_ptr().addr();
    let found = KNOWN
        .lock()
        .iter()
        .find(|known| known.address == address)
        .cloned();
    if let Some(found) = found {
        // SAFETY: the caller guarantees the vocabulary.
        if unsafe { fingerprint(vocab, &found.samples) }? == found.fingerprint {
            return Ok(found);
        }
        forget(address);
    }
    // SAFETY: the caller guarantees it.
    let vocabulary = unsafe { HostVocabulary::new(vocab) }?;
    // SAFETY: as above.
    let samples = unsafe { samples(vocab, vocabulary.n_tokens()) }?;
    let known = Arc::new(Known {
        address,
        // SAFETY: as above.
        fingerprint: unsafe { fingerprint(vocab, &samples) }?,
        samples,
        tree: Arc::new(VocabularyTree::new(&vocabulary)),
        proofs: Proofs::default(),
        for_bans: Default::default(),
    });
    let mut all = KNOWN.lock();
    // Another thread may have added it meanwhile.
    let same =
        |other: &&Arc<Known>| other.address == address && other.fingerprint == known.fingerprint;
    if let Some(other) = all.iter().find(same) {
        return Ok(Arc::clone(other));
    }
    let removed = (all.len() >= MAX_VOCABULARIES).then(|| all.remove(0));
    all.push(Arc::clone(&known));
    drop(all);
    if let Some(removed) = removed {
        cache::forget(&removed.tree);
    }
    Ok(known)
}

/// Returns true if data are kept for any vocabulary.
pub(super) fn any_known() -> bool {
    !KNOWN.lock().is_empty()
}

/// Drops the data kept for the vocabulary at `address`, and the grammars that were compiled for it.
pub(super) fn forget(address: usize) {
    let mut all = KNOWN.lock();
    let (removed, kept) = all.drain(..).partition(|known| known.address == address);
    *all = kept;
    drop(all);
    let removed: Vec<Arc<Known>> = removed;
    for known in removed {
        cache::forget(&known.tree);
    }
}

/// Returns the tokens whose texts the checksum reads.
///
/// # Safety
/// `vocab` is a vocabulary of the bound host.
unsafe fn samples(vocab: NonNull<llama_vocab>, n_tokens: usize) -> Result<Vec<Token>, String> {
    let host = Host::get()?;
    let attributes = attributes(&host);
    let is_added = |&token: &Token| {
        // SAFETY: the caller guarantees the vocabulary; the token is one of its own.
        attributes.is_some_and(|of| unsafe { of(vocab.as_ptr(), token) } & ADDED != 0)
    };
    let n_tokens = Token::try_from(n_tokens).unwrap_or(Token::MAX);
    let (added, others): (Vec<Token>, Vec<Token>) = (0..n_tokens).partition(is_added);
    let spread = |tokens: &[Token], most: usize| {
        let step = tokens.len().div_ceil(most).max(1);
        tokens.iter().copied().step_by(step).collect::<Vec<_>>()
    };
    let mut samples = spread(&added, SAMPLES.0);
    samples.extend(spread(&others, SAMPLES.1));
    Ok(samples)
}

fn attributes(host: &Host) -> Option<OfToken> {
    let look = || -> Result<OfToken, String> {
        Ok(host_function!(host, c"llama_vocab_get_attr", OfToken))
    };
    look().ok()
}

/// Returns a checksum of the vocabulary's properties and of the tokens `samples`.
///
/// # Safety
/// `vocab` is a vocabulary of the bound host.
unsafe fn fingerprint(vocab: NonNull<llama_vocab>, samples: &[Token]) -> Result<u64, String> {
    type OfVocab = unsafe extern "C" fn(Vocab) -> i32;
    type Piece = unsafe extern "C" fn(Vocab, Token, *mut u8, i32, i32, bool) -> i32;
    let host = Host::get()?;
    let raw: Vocab = vocab.as_ptr();
    let n_tokens = host_function!(host, c"llama_vocab_n_tokens", OfVocab);
    // SAFETY: the caller guarantees the vocabulary.
    let n_tokens = unsafe { n_tokens(raw) };
    let mut hash = DefaultHasher::new();
    hash.write_i32(n_tokens);
    for special in [
        host_function!(host, c"llama_vocab_eos", OfVocab),
        host_function!(host, c"llama_vocab_eot", OfVocab),
        host_function!(host, c"llama_vocab_bos", OfVocab),
        host_function!(host, c"llama_vocab_nl", OfVocab),
        host_function!(host, c"llama_vocab_pad", OfVocab),
    ] {
        // SAFETY: as above.
        hash.write_i32(unsafe { special(raw) });
    }
    let piece = host_function!(host, c"llama_token_to_piece", Piece);
    let is_eog = host_function!(
        host,
        c"llama_vocab_is_eog",
        unsafe extern "C" fn(Vocab, Token) -> u8
    );
    // The length of each token's text, whether the token ends a generation, and the text are hashed
    // in one piece: many small pieces take the hasher far longer.
    let mut about = [0_u8; ABOUT + 64];
    for &token in samples.iter().filter(|&&token| token < n_tokens) {
        let (head, text) = about.split_at_mut(ABOUT);
        let room = text.len() as i32;
        // SAFETY: as above; the token is the vocabulary's, and there is room for the text.
        let (length, is_eog) = unsafe {
            (
                piece(raw, token, text.as_mut_ptr(), room, 0, true),
                is_eog(raw, token),
            )
        };
        let [a, b, c, d] = length.to_ne_bytes();
        head.copy_from_slice(&[a, b, c, d, is_eog]);
        // If a text is too long for the buffer, only its length counts.
        let written = usize::try_from(length).unwrap_or(0);
        hash.write(about.get(..ABOUT + written).unwrap_or(&about[..ABOUT]));
    }
    Ok(hash.finish())
}
