//! The token trie for C: the constraint as a sampler, and slots, whose constraint can be set and
//! cleared.

pub mod handles;
mod strings;

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null;
use std::sync::Arc;

use crate::errors::{LLAMA_SIEVE_ERROR_INVALID, LLAMA_SIEVE_ERROR_NOT_FOUND};
use crate::ffi::failure::{Failure, answer, made, struct_size, usable, value};
use crate::ffi::given::{Argument, argument, c_bytes_within};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::llama_vocab;
use crate::ffi::host::{Host, host_function};
use crate::ffi::library::{Shown, show};
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::token::Token;
use crate::trie::Trie;
use crate::trie::cache::{self, CacheStats};
use crate::trie::descriptor::SPAN_LIMIT;
use crate::trie::sampler::{Mode, Slot, TrieSampler};

pub use strings::*;

/// Mode of a token trie: the valid tokens keep their logits, all others get minus infinity, and the
/// most probable valid one is selected.
pub const LLAMA_SIEVE_TRIE_GREEDY: c_int = 0;
/// Mode of a token trie: the valid tokens keep their logits, all others get minus infinity, and
/// none is selected, so that temperature, top-p and the draw of later samplers apply to the valid
/// tokens.
pub const LLAMA_SIEVE_TRIE_SAMPLED: c_int = 1;
/// A flag, to be or-ed into the mode of a token trie: instead of masking, the array is reduced to
/// the valid tokens (in greedy mode to the most probable one).
pub const LLAMA_SIEVE_TRIE_COMPACT: c_int = 0x100;

/// A flag, to be or-ed into the mode of a token trie: after a complete value, llama_sampler_reset
/// does not restart the span, so nothing is constrained. Without the flag a reset always restarts
/// the span. It is for hosts that reset a chain between generations.
pub const LLAMA_SIEVE_TRIE_RESET_IDLE: c_int = 0x200;

/// The maximum number of tokens of one value of a token trie: a span has no more. A payload with a
/// longer value is refused.
pub const LLAMA_SIEVE_TRIE_SPAN_LIMIT: usize = 500;
const _: () = assert!(LLAMA_SIEVE_TRIE_SPAN_LIMIT == SPAN_LIMIT);
/// The maximum number of bytes of a payload.
pub const LLAMA_SIEVE_TRIE_MAX_PAYLOAD: usize = 268_435_456;
/// The maximum number of bytes that the tries of the cache and their payloads occupy together. A
/// larger trie is not cached.
pub const LLAMA_SIEVE_TRIE_CACHE_BYTES: usize = 16_777_216;
const _: () = assert!(LLAMA_SIEVE_TRIE_CACHE_BYTES == cache::MAX_BYTES);

const PAYLOAD: Argument = argument!("the payload", "len", LLAMA_SIEVE_TRIE_MAX_PAYLOAD);
const OUT: Argument = argument!("out", "cap");

/// Counters of a cache since the start of the process, and its current contents: of the cache of
/// token tries, or of the cache of grammars.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct llama_sieve_cache_stats {
    /// The number of lookups that found an entry: a trie or a grammar.
    pub hits: u64,
    /// The number of lookups that found none.
    pub misses: u64,
    /// The number of entries evicted to make room for others; those in use stay valid.
    pub evictions: u64,
    /// The number of entries: at most 128 tries, or at most 256 grammars.
    pub entries: u64,
    /// The size of the entries in bytes: of tries, with the payloads that lead to them, at most
    /// LLAMA_SIEVE_TRIE_CACHE_BYTES; of grammars, at most LLAMA_SIEVE_GRAMMAR_CACHE_BYTES.
    pub bytes: u64,
}

impl From<CacheStats> for llama_sieve_cache_stats {
    fn from(stats: CacheStats) -> Self {
        Self {
            hits: stats.hits,
            misses: stats.misses,
            evictions: stats.evictions,
            entries: stats.entries,
            bytes: stats.bytes,
        }
    }
}

pub(super) static TOKEN_TRIE: Vtable = vtable::<TrieSampler>();

/// Makes a sampler that allows only tokens that continue one of a set of allowed sequences, until a
/// sequence is complete.
///
/// json is a TokenTreePayload as a C string: {"modelId": s, "descriptors": [{"path": s, "leaves":
/// [{"name": s, "tokens": [id, ...]}, ...], "terminators": [id, ...]}, ...]}, where modelId and
/// terminators are optional. mode is LLAMA_SIEVE_TRIE_GREEDY or LLAMA_SIEVE_TRIE_SAMPLED, into
/// which LLAMA_SIEVE_TRIE_COMPACT and LLAMA_SIEVE_TRIE_RESET_IDLE may be or-ed. The constraint is
/// active immediately, at the first descriptor. Its effect and its position in a chain (before
/// samplers that truncate) are described in docs/token-trie.md. llama_sieve_trie_set can replace
/// it, as in a slot.
///
/// Returns NULL, and llama_sieve_last_error says why and where, for a payload that is invalid, has
/// no leaf with tokens, or has more than LLAMA_SIEVE_TRIE_MAX_PAYLOAD bytes, a value of more than
/// LLAMA_SIEVE_TRIE_SPAN_LIMIT tokens, a name with NUL in it, or a token outside the vocabulary
/// (the upper bound is not checked if `vocab` is NULL); and for an unknown mode, or without a host.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; `json` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sampler_init_token_trie(
    vocab: *const llama_vocab,
    json: *const c_char,
    mode: c_int,
) -> *mut llama_sampler {
    made("llama_sampler_init_token_trie", || {
        // SAFETY: the caller guarantees the arguments.
        let slot = unsafe {
            let slot = slot_for(vocab)?;
            let json = match json.is_null() {
                true => bytes(json, 0)?,
                false => {
                    let read = c_bytes_within(json, LLAMA_SIEVE_TRIE_MAX_PAYLOAD + 1);
                    bytes(json, read.len())?
                }
            };
            set(&slot, json, mode)?;
            slot
        };
        Ok(into_host(&TOKEN_TRIE, TrieSampler::new(Arc::new(slot))))
    })
}

/// Makes a token trie sampler without a constraint: it has no effect and no cost until
/// llama_sieve_trie_set. One such sampler can stay in a chain for many spans. Returns NULL without
/// a host.
///
/// # Safety
/// `vocab` is NULL (then the upper bound of tokens is not checked) or a vocabulary of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_init_trie_slot(
    vocab: *const llama_vocab,
) -> *mut llama_sampler {
    made("llama_sieve_init_trie_slot", || {
        // SAFETY: the caller guarantees the vocabulary.
        let slot = unsafe { slot_for(vocab) }?;
        Ok(into_host(&TOKEN_TRIE, TrieSampler::new(Arc::new(slot))))
    })
}

/// Sets the constraint of a token trie sampler, which is active at the root of the first descriptor
/// from the next token on. May be called from any thread, even while the sampler runs. A valid
/// payload that is still in the cache is not parsed again.
///
/// `json` has `len` bytes, LLAMA_SIEVE_TRIE_MAX_PAYLOAD at most, and need not end with NUL. Returns
/// LLAMA_SIEVE_OK, or a negative LLAMA_SIEVE_ERROR_*, with the constraint unchanged.
///
/// # Safety
/// `smpl` is NULL or a live sampler; `json` is NULL or `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_trie_set(
    smpl: *mut llama_sampler,
    json: *const c_char,
    len: usize,
    mode: c_int,
) -> c_int {
    answer("llama_sieve_trie_set", || {
        // SAFETY: the caller guarantees the arguments.
        unsafe { set(&*slot_of(smpl)?, bytes(json, len)?, mode) }
    })
}

/// Clears the constraint of a token trie sampler, from the next token on. May be called from any
/// thread.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_trie_clear(smpl: *mut llama_sampler) {
    value("llama_sieve_trie_clear", (), || {
        // SAFETY: the caller guarantees the sampler.
        unsafe { slot_of(smpl) }.map(|slot| slot.clear())
    })
}

/// Begins the span of the descriptor whose path is `path`, at its root. Returns LLAMA_SIEVE_OK;
/// LLAMA_SIEVE_ERROR_NOT_FOUND if nothing is set or no descriptor has the path, with some existing
/// paths in the text; or another negative LLAMA_SIEVE_ERROR_*. On error nothing changes.
///
/// # Safety
/// `smpl` is NULL or a live sampler; `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_trie_activate(
    smpl: *mut llama_sampler,
    path: *const c_char,
) -> c_int {
    answer("llama_sieve_trie_activate", || {
        // SAFETY: the caller guarantees the sampler.
        let slot = unsafe { slot_of(smpl) }?;
        if path.is_null() {
            return Err(Failure::null("the path"));
        }
        // SAFETY: not NULL, and the caller guarantees the string.
        let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
        slot.activate(&path)
            .map_err(|text| Failure::new(LLAMA_SIEVE_ERROR_NOT_FOUND, text))
    })
}

/// Returns true if a span is active: the next token is constrained, or may continue a value.
/// Returns false for NULL and for other samplers.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_trie_is_active(smpl: *const llama_sampler) -> bool {
    value("llama_sieve_trie_is_active", false, || {
        // SAFETY: the caller guarantees the sampler.
        unsafe { slot_of(smpl) }.map(|slot| slot.is_active())
    })
}

/// Returns the name of the leaf that the span has completed; NULL before that. The name is valid
/// until this thread calls this function again.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_trie_leaf(smpl: *const llama_sampler) -> *const c_char {
    thread_local! {
        static SHOWN: Shown = const { Shown::new() };
    }
    value("llama_sieve_trie_leaf", null(), || {
        // SAFETY: the caller guarantees the sampler.
        let leaf = unsafe { slot_of(smpl) }?.leaf();
        Ok::<_, Failure>(leaf.map_or(null(), |leaf| show(&SHOWN, &leaf)))
    })
}

/// Writes the forced tokens to `out`, but at most `cap`: each is the only one that may follow, up
/// to the next choice or the end of the value. They can be appended to the text as one batch
/// without sampling, and must then be accepted one by one. Returns their number, which may be
/// larger than `cap`, but never exceeds the rest of the span's limit. Returns 0 if nothing is
/// forced and, with an error, if `out` is not aligned or `cap` is too large.
///
/// # Safety
/// `smpl` is NULL or a live sampler; `out` is NULL or has room for `cap` tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_trie_forced(
    smpl: *const llama_sampler,
    out: *mut Token,
    cap: usize,
) -> usize {
    value("llama_sieve_trie_forced", 0, || {
        // SAFETY: the caller guarantees the sampler and the room.
        unsafe {
            let slot = slot_of(smpl)?;
            Ok::<_, Failure>(slot.forced(OUT.room_or_none(out, cap)?))
        }
    })
}

/// Writes the tokens that may follow to `out` in ascending order, but at most `cap`. Returns their
/// number, which may be larger. Returns 0 if nothing is constrained and, with an error, if `out` is
/// not aligned or `cap` is too large.
///
/// Where one value ends and longer ones continue, these are the tokens that continue them, and the
/// descriptor's terminators. Without terminators any other token may also follow, and completes the
/// span.
///
/// # Safety
/// `smpl` is NULL or a live sampler; `out` is NULL or has room for `cap` tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_trie_allowed(
    smpl: *const llama_sampler,
    out: *mut Token,
    cap: usize,
) -> usize {
    value("llama_sieve_trie_allowed", 0, || {
        // SAFETY: the caller guarantees the sampler and the room.
        unsafe {
            let slot = slot_of(smpl)?;
            Ok::<_, Failure>(slot.allowed(OUT.room_or_none(out, cap)?))
        }
    })
}

/// Writes the counters of the process-wide cache of token tries to `out`. The struct is frozen.
/// llama_sieve_trie_get_stats has more counters. Does nothing if `out` is NULL or misaligned.
///
/// # Safety
/// `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_trie_cache_stats(out: *mut llama_sieve_cache_stats) {
    value("llama_sieve_trie_cache_stats", (), || {
        usable("out", out)?;
        // SAFETY: neither NULL nor misaligned, and the caller guarantees that it is writable.
        unsafe { out.write(cache::stats().into()) };
        Ok::<_, Failure>(())
    })
}

/// All counters of the cache of token tries. The caller sets struct_size. Later versions may add
/// members at the end, and callers without them still work.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct llama_sieve_trie_stats {
    /// sizeof(llama_sieve_trie_stats) of the caller.
    pub struct_size: usize,
    /// The number of lookups that found a trie.
    pub hits: u64,
    /// The number of these lookups for a payload whose bytes were new but whose sets were known,
    /// such as the same values in another order.
    pub reordered: u64,
    /// The number of lookups that found none.
    pub misses: u64,
    /// The number of tries evicted to make room for others; those in use stay valid.
    pub evictions: u64,
    /// The number of cached tries, at most 128.
    pub entries: u64,
    /// The size in bytes of the cached tries and of the payloads that lead to them, at most
    /// LLAMA_SIEVE_TRIE_CACHE_BYTES.
    pub bytes: u64,
}

/// Writes all counters of the process-wide cache of token tries to `out`, whose struct_size the
/// caller sets. The cache keeps the most recently used tries: at most 128, in at most
/// LLAMA_SIEVE_TRIE_CACHE_BYTES. A trie is found by the bytes of a payload or by the SHA-256 of its
/// sets in canonical order.
///
/// Returns LLAMA_SIEVE_OK; or, with `out` unchanged, LLAMA_SIEVE_ERROR_NULL, or
/// LLAMA_SIEVE_ERROR_PARAMS for a struct_size that this library does not know.
///
/// # Safety
/// `out` is NULL or as long as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_trie_get_stats(out: *mut llama_sieve_trie_stats) -> c_int {
    answer("llama_sieve_trie_get_stats", || {
        let known = [size_of::<llama_sieve_trie_stats>()];
        // SAFETY: the caller guarantees the first member.
        let size = unsafe { struct_size("out", "llama_sieve_trie_stats", out, &known) }?;
        let (stats, reordered) = cache::stats_and_reordered();
        let stats = llama_sieve_trie_stats {
            struct_size: size,
            hits: stats.hits,
            reordered,
            misses: stats.misses,
            evictions: stats.evictions,
            entries: stats.entries,
            bytes: stats.bytes,
        };
        // SAFETY: the size is that of the whole struct.
        unsafe { out.write(stats) };
        Ok(())
    })
}

/// Returns a slot without a constraint for the vocabulary `vocab`, whose number of tokens is read.
/// If `vocab` is NULL, the slot does not check the upper bound of tokens.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host.
unsafe fn slot_for(vocab: *const llama_vocab) -> Result<Slot, Failure> {
    if vocab.is_null() {
        return Ok(Slot::new(None));
    }
    // SAFETY: the caller guarantees the vocabulary.
    let n_vocab = unsafe { n_tokens(vocab) }.map_err(Failure::no_host)?;
    Ok(Slot::new(Some(n_vocab)))
}

/// Returns the number of tokens in a vocabulary, or an error if the host does not report it.
///
/// # Safety
/// `vocab` is a vocabulary of the host.
unsafe fn n_tokens(vocab: *const llama_vocab) -> Result<usize, String> {
    type NTokens = unsafe extern "C" fn(*const llama_vocab) -> i32;
    let n_tokens = host_function!(Host::get()?, c"llama_vocab_n_tokens", NTokens);
    // SAFETY: the caller guarantees the vocabulary.
    let n = unsafe { n_tokens(vocab) };
    usize::try_from(n).map_err(|_| format!("the vocabulary says that it has {n} tokens"))
}

/// Returns the bytes of a payload, or an error if `json` is NULL or `len` above the limit.
///
/// # Safety
/// `json` is NULL or `len` bytes that outlive `'a`.
pub(in crate::ffi) unsafe fn bytes<'a>(
    json: *const c_char,
    len: usize,
) -> Result<&'a [u8], Failure> {
    if json.is_null() {
        return Err(Failure::null(PAYLOAD.array));
    }
    // SAFETY: the caller guarantees the bytes.
    unsafe { PAYLOAD.slice(json.cast(), len) }
}

/// Sets the constraint of a slot. On error nothing changes.
pub(in crate::ffi) fn set(slot: &Slot, json: &[u8], mode: c_int) -> Result<(), Failure> {
    let mode = Mode::from_number(mode)?;
    let trie: Arc<Trie> = cache::trie_of(json, slot.n_vocab())?;
    slot.set(trie, mode);
    Ok(())
}

/// Returns the slot of a token trie sampler, or an error for any other sampler.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
pub(in crate::ffi) unsafe fn slot_of(smpl: *const llama_sampler) -> Result<Arc<Slot>, Failure> {
    usable("the sampler", smpl)?;
    // SAFETY: not NULL, and the caller guarantees the sampler; the vtable is compared before the
    // contents are used.
    let shared = unsafe {
        if !TOKEN_TRIE.is_of(smpl) {
            let text = "the sampler is no token trie: make it with llama_sieve_init_trie_slot or llama_sampler_init_token_trie";
            return Err(Failure::new(LLAMA_SIEVE_ERROR_INVALID, text));
        }
        TOKEN_TRIE.shared_of::<TrieSampler>(smpl)
    };
    shared
        .and_then(|shared| shared.downcast::<Slot>().ok())
        .ok_or_else(|| Failure::new(LLAMA_SIEVE_ERROR_INVALID, "the sampler is out of use"))
}
