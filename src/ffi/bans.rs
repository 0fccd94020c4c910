//! Banned texts for C.

use std::ffi::{CStr, c_char, c_int};

use llama_sieve_constraints::bans;

use crate::errors::{LLAMA_SIEVE_ERROR_INVALID, LLAMA_SIEVE_ERROR_PARAMS};
use crate::ffi::failure::{Failure, answer, made, usable};
use crate::ffi::given::{Argument, argument, c_bytes_within};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::llama_vocab;
use crate::ffi::known_vocabularies::known;
use crate::ffi::samplers::DISABLED;
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::memory;
use crate::sampler::Sampler;
use crate::samplers::{BanStrings, BanStringsBias, BanVocabulary, Disabled};

/// The maximum number of texts that may be banned.
pub const LLAMA_SIEVE_BAN_MAX_TEXTS: usize = 16_384;
const _: () = assert!(LLAMA_SIEVE_BAN_MAX_TEXTS == bans::MAX_TEXTS);
/// The maximum number of bytes of a banned text.
pub const LLAMA_SIEVE_BAN_MAX_TEXT_BYTES: usize = 1024;
const _: () = assert!(LLAMA_SIEVE_BAN_MAX_TEXT_BYTES == bans::MAX_TEXT_BYTES);
/// The maximum number of bytes of all banned texts together.
pub const LLAMA_SIEVE_BAN_MAX_BYTES: usize = 262_144;
const _: () = assert!(LLAMA_SIEVE_BAN_MAX_BYTES == bans::MAX_BYTES);

/// The maximum number of states of the automaton of banned regular expressions.
pub const LLAMA_SIEVE_BAN_MAX_STATES: usize = 16_384;
const _: () = assert!(LLAMA_SIEVE_BAN_MAX_STATES == bans::MAX_STATES);

/// A flag of llama_sieve_init_ban_strings and llama_sieve_init_ban_strings_bias: letters that
/// differ in case alone are equal, by Unicode's simple case folding.
pub const LLAMA_SIEVE_BAN_FOLD_CASE: u32 = 1;

/// A flag of llama_sieve_init_ban_strings: the texts are regular expressions.
pub const LLAMA_SIEVE_BAN_REGEX: u32 = 2;

pub(super) static BANS: Vtable = vtable::<BanStrings>();
pub(super) static BAN_BIASES: Vtable = vtable::<BanStringsBias>();

/// The name of a sampler that bans nothing.
const OFF: &CStr = c"?ban-strings";
/// The name of a sampler that biases nothing.
const BIAS_OFF: &CStr = c"?ban-strings-bias";

const TEXTS: Argument = argument!("texts", "n", LLAMA_SIEVE_BAN_MAX_TEXTS);

/// The approximate number of bytes of memory that each byte of a text needs.
const PER_BYTE: usize = 128;
/// The approximate number of bytes of memory that each byte of a regular expression needs.
const PER_BYTE_OF_PATTERN: usize = 1024;

/// Makes a sampler that bans every token that would complete one of `n` texts, however the text is
/// tokenized, so that none of these texts occurs in the generated text.
///
/// The text is that of the accepted tokens as hosts show it: control tokens, and tokens that end a
/// generation, have none. A token that only begins a text is not banned. llama_sieve_ban_rewind
/// returns how many tokens a host must take back to avoid that text from its start.
///
/// `flags` is 0 or a sum of
/// - LLAMA_SIEVE_BAN_FOLD_CASE;
/// - LLAMA_SIEVE_BAN_REGEX: the texts are regular expressions in the syntax of the crate regex, and
///   none of them matches anywhere in the generated text. With LLAMA_SIEVE_BAN_FOLD_CASE each is
///   read as if it began with (?i). ^ is the beginning of all accepted text, (?m)^ that of a line.
///   Conditions on the following text ($, \b) are refused, since a token is banned before that text
///   is known; so are look-around, back references, and an expression that matches the empty text.
///   Together they may have LLAMA_SIEVE_BAN_MAX_STATES states.
///
/// Put the sampler before those that truncate, so that other tokens are left to choose. It never
/// removes a candidate: if all are banned, they stay with minus infinity. llama.cpp does not have
/// it.
///
/// `vocab` is read within this call only. Disabled: `n` == 0. Returns NULL, and
/// llama_sieve_last_error says which text and why, if `vocab`, `texts` or a text is NULL; if a text
/// is empty or longer than LLAMA_SIEVE_BAN_MAX_TEXT_BYTES; if there are more than
/// LLAMA_SIEVE_BAN_MAX_TEXTS texts or LLAMA_SIEVE_BAN_MAX_BYTES bytes in all; if a text is not
/// UTF-8 although case is folded or it is an expression; if an expression is refused; and for other
/// `flags`.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; `texts` is NULL or `n` pointers, each NULL or a C
/// string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_init_ban_strings(
    vocab: *const llama_vocab,
    texts: *const *const c_char,
    n: usize,
    flags: u32,
) -> *mut llama_sampler {
    made("llama_sieve_init_ban_strings", || {
        if flags & !(LLAMA_SIEVE_BAN_FOLD_CASE | LLAMA_SIEVE_BAN_REGEX) != 0 {
            let text = format!(
                "flags is {flags:#x}; the flags are {LLAMA_SIEVE_BAN_FOLD_CASE} \
                 (LLAMA_SIEVE_BAN_FOLD_CASE) and {LLAMA_SIEVE_BAN_REGEX} (LLAMA_SIEVE_BAN_REGEX)"
            );
            return Err(Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text));
        }
        // SAFETY: the caller guarantees the pointers.
        let texts = unsafe { texts_of(texts, n) }?;
        if texts.is_empty() {
            return Ok(into_host(&DISABLED, Disabled::new(OFF)));
        }
        let folds = flags & LLAMA_SIEVE_BAN_FOLD_CASE != 0;
        let are_patterns = flags & LLAMA_SIEVE_BAN_REGEX != 0;
        // SAFETY: the caller guarantees the vocabulary.
        let vocabulary = unsafe { vocabulary_of(vocab, folds && !are_patterns) }?;
        let made = match are_patterns {
            true => {
                let bytes: usize = texts.iter().map(|text| text.len() + 1).sum();
                memory::room(PER_BYTE_OF_PATTERN * bytes.min(2 * LLAMA_SIEVE_BAN_MAX_BYTES))?;
                BanStrings::patterns(&texts, folds, &vocabulary)?
            }
            false => BanStrings::new(&texts, &vocabulary)?,
        };
        match made {
            Some(bans) => Ok(into_host(&BANS, bans)),
            None => Ok(into_host(&DISABLED, Disabled::new(OFF))),
        }
    })
}

/// Makes a sampler that biases tokens which continue one of `n` texts, in place of a ban: the
/// longer the matched part of the text, the larger the bias.
///
/// A token continues a text if the text began before the token and matches up to the token's end.
/// If m of the text's L bytes then match, m / L of `bias` is added to the token's logit. Of several
/// texts the one with the largest share counts. A token that completes a text, or contains a whole
/// text, gets all of `bias`. A token that only begins a text is not changed.
///
/// Texts and `flags` are those of llama_sieve_init_ban_strings, but LLAMA_SIEVE_BAN_REGEX is
/// refused, since an expression has no length. With LLAMA_SIEVE_BAN_FOLD_CASE characters are
/// counted in place of bytes. `bias` is usually negative. A `bias` above 0 favours the texts.
///
/// Put the sampler before those that truncate. llama_sieve_ban_rewind returns 0 for it. llama.cpp
/// does not have it.
///
/// `vocab` is read within this call only. Disabled: `n` == 0 or `bias` == 0. Returns NULL, and
/// llama_sieve_last_error says why, if `bias` is NaN or infinite, and for the texts and `flags`
/// that llama_sieve_init_ban_strings refuses.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; `texts` is NULL or `n` pointers, each NULL or a C
/// string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_init_ban_strings_bias(
    vocab: *const llama_vocab,
    texts: *const *const c_char,
    n: usize,
    flags: u32,
    bias: f32,
) -> *mut llama_sampler {
    made("llama_sieve_init_ban_strings_bias", || {
        if flags & LLAMA_SIEVE_BAN_REGEX != 0 {
            let text = "flags has LLAMA_SIEVE_BAN_REGEX; a bias grows with the matched part of a \
                        text, and an expression has no length: list the texts, or ban the \
                        expression";
            return Err(Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text));
        }
        if flags & !LLAMA_SIEVE_BAN_FOLD_CASE != 0 {
            let text = format!(
                "flags is {flags:#x}; the only flag is {LLAMA_SIEVE_BAN_FOLD_CASE} \
                 (LLAMA_SIEVE_BAN_FOLD_CASE)"
            );
            return Err(Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text));
        }
        if !bias.is_finite() {
            let text = format!(
                "bias is {bias}; it must be finite. To ban texts, use \
                                llama_sieve_init_ban_strings"
            );
            return Err(Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text));
        }
        // SAFETY: the caller guarantees the pointers.
        let texts = unsafe { texts_of(texts, n) }?;
        if texts.is_empty() || bias == 0.0 {
            return Ok(into_host(&DISABLED, Disabled::new(BIAS_OFF)));
        }
        let folds = flags & LLAMA_SIEVE_BAN_FOLD_CASE != 0;
        // SAFETY: the caller guarantees the vocabulary.
        let vocabulary = unsafe { vocabulary_of(vocab, folds) }?;
        match BanStringsBias::new(&texts, bias, &vocabulary)? {
            Some(biases) => Ok(into_host(&BAN_BIASES, biases)),
            None => Ok(into_host(&DISABLED, Disabled::new(BIAS_OFF))),
        }
    })
}

/// Returns the texts of a vocabulary, which is read within this call only.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host.
unsafe fn vocabulary_of(vocab: *const llama_vocab, folds: bool) -> Result<BanVocabulary, Failure> {
    usable("the vocabulary", vocab.cast::<u8>())?;
    // SAFETY: the caller guarantees the vocabulary.
    let known = unsafe { known(vocab) }.map_err(Failure::no_host)?;
    // SAFETY: as above.
    unsafe { known.for_bans(vocab, folds) }.map_err(Failure::no_host)
}

/// Returns the texts, each cut to one byte more than the limit.
///
/// # Safety
/// `texts` is NULL or `n` pointers, each NULL or a C string that outlives `'a`.
unsafe fn texts_of<'a>(texts: *const *const c_char, n: usize) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: the caller guarantees the pointers.
    let pointers = unsafe { TEXTS.slice(texts, n) }?;
    let mut texts = memory::with_room(n)?;
    for (i, &pointer) in pointers.iter().enumerate() {
        if pointer.is_null() {
            return Err(Failure::null(&format!("text {i}")));
        }
        // SAFETY: not NULL, and the caller guarantees the string.
        texts.push(unsafe { c_bytes_within(pointer, LLAMA_SIEVE_BAN_MAX_TEXT_BYTES + 1) });
    }
    let bytes: usize = texts.iter().map(|text: &&[u8]| text.len() + 1).sum();
    memory::room(PER_BYTE * bytes.min(2 * LLAMA_SIEVE_BAN_MAX_BYTES))?;
    Ok(texts)
}

/// Returns how many of the newest accepted tokens contain the longest prefix of a banned text that
/// one more token would complete; 0 if there is none.
///
/// With regular expressions it is the smallest number of newest tokens, at most 1024, that by
/// themselves have begun the same matches: with "a+b", after three tokens "a", it is 1. After
/// taking these back, ask again. With llama_sieve_init_ban_strings_bias the result is 0, since
/// nothing is banned.
///
/// The function is for hosts that can rewind their cache: if the ban has masked the most probable
/// candidate, they take that many tokens back, which removes the prefix, and continue with a
/// different token. The sampler is rewound by llama_sampler_reset and by accepting the tokens that
/// are left, or replaced by a clone that was made at that point. Returns a negative error for NULL,
/// for other samplers, and if the sampler is in use or disabled by an internal error.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_ban_rewind(smpl: *const llama_sampler) -> c_int {
    answer("llama_sieve_ban_rewind", || {
        usable("the sampler", smpl)?;
        // SAFETY: not NULL, and the caller guarantees the sampler; the vtable is compared before
        // the contents are used.
        let name = unsafe {
            match DISABLED.is_of(smpl) {
                true => DISABLED.look(smpl, "rewind", Disabled::name),
                false => None,
            }
        };
        // SAFETY: as above.
        if name == Some(OFF) || name == Some(BIAS_OFF) || unsafe { BAN_BIASES.is_of(smpl) } {
            return Ok(0);
        }
        // SAFETY: as above.
        if !unsafe { BANS.is_of(smpl) } {
            let text = "the sampler bans no texts: make it with llama_sieve_init_ban_strings";
            return Err(Failure::new(LLAMA_SIEVE_ERROR_INVALID, text));
        }
        // SAFETY: as above; the vtable is that of `BanStrings`.
        let tokens = unsafe { BANS.look(smpl, "rewind", BanStrings::rewind) };
        let tokens = tokens.ok_or_else(Failure::told_already)?;
        Ok(c_int::try_from(tokens).unwrap_or(c_int::MAX))
    })
}
