//! The candidates that the last token was drawn from, and the statistics of the stages.

use std::ffi::c_int;
use std::mem::offset_of;

use crate::ffi::failure::{answer, struct_size};
use crate::ffi::given::argument;
use crate::sieve::{Sieve, Stats};
use crate::token::TokenData;

use super::handle::*;
/// Statistics of the stages and of the last token's distribution. The caller sets struct_size.
/// Later versions may add members at the end, and callers without these still work.
///
/// Each count is the number of candidates with a probability above 0 after a stage. Unless
/// llama_sieve_set_stages has set the stages, no stage has a higher count than the stage before it,
/// and the last count is the number of candidates drawn from, unless the temperature is below
/// 0.001. With stages set by llama_sieve_set_stages each is taken after the stage of its name, at
/// any position, or is the number of candidates drawn from if there is no such stage. Entropies and
/// surprisals are in nats, and NaN unless requested by llama_sieve_measure.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct llama_sieve_stats {
    /// sizeof(llama_sieve_stats) of the caller.
    pub struct_size: usize,
    /// The entropy of the raw logits' distribution.
    pub model_entropy: f32,
    /// The surprisal of the chosen token in the raw logits' distribution.
    pub surprisal: f32,
    /// The entropy of the distribution that was drawn from.
    pub sampling_entropy: f32,
    /// The size of the vocabulary.
    pub n_vocab: i32,
    /// The number of candidates after top-k.
    pub after_top_k: i32,
    /// The number of candidates after typical.
    pub after_typical: i32,
    /// The number of candidates after top-p.
    pub after_top_p: i32,
    /// The number of candidates after min-p.
    pub after_min_p: i32,
    /// The number of candidates after top-n-sigma.
    pub after_top_n_sigma: i32,
    /// The surprisal of the chosen token in the distribution that was drawn from.
    pub sampling_surprisal: f32,
    /// The number of tokens that had been accepted when this one was chosen: its position, counted
    /// from 0.
    pub n_accepted: u64,
}

/// The sizes that the struct has had, the newest first. The first version ended before
/// `sampling_surprisal`, with padding at its offset.
const SIZES: [usize; 2] = [
    size_of::<llama_sieve_stats>(),
    offset_of!(llama_sieve_stats, n_accepted),
];

/// Writes the distribution that the last token was drawn from to `out`: at most `cap` candidates,
/// with the logits after all stages and with probabilities, whose sum over all candidates is 1.
/// Returns the number of all candidates, which may be larger. The candidates are in descending
/// order if top-k is enabled and typical disabled, unless llama_sieve_set_stages has set the
/// stages. Returns 0 before the first token and after a failure, and a negative error for NULL and
/// for a sieve in use.
///
/// `out` may be NULL if `cap` is 0.
///
/// # Safety
/// `sieve` is NULL or alive; `out` has room for `cap` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_candidates(
    sieve: *const Handle,
    out: *mut TokenData,
    cap: usize,
) -> c_int {
    answer("llama_sieve_candidates", || {
        argument!("out", "cap").check(out, cap)?;
        let copy = |sieve: &mut Sieve| {
            let candidates = sieve.candidates();
            let n = candidates.len().min(cap);
            if n > 0 {
                // SAFETY: the caller guarantees room for `cap` elements, of which `n` are used; the
                // source is not in the caller's memory.
                unsafe { std::ptr::copy_nonoverlapping(candidates.as_ptr(), out, n) };
            }
            Ok(candidates.len() as c_int)
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { with(sieve, copy) }
    })
}

/// Sets whether llama_sieve_last_stats includes entropies and surprisals. They cost an extra pass
/// over the logits, which takes about four times as long as finding the maximum. If the filters
/// leave the whole vocabulary, all of it is also written out as candidates and read once more.
/// Returns LLAMA_SIEVE_OK, or a negative error for NULL and for a sieve in use.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_measure(sieve: *mut Handle, measured: bool) -> c_int {
    answer("llama_sieve_measure", || {
        let measure = |sieve: &mut Sieve| {
            sieve.measure(measured);
            Ok(())
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { with(sieve, measure) }
    })
}

/// Writes the statistics of the stages and of the last token's distribution to `out`. Returns
/// LLAMA_SIEVE_OK or, with `out` unchanged, a negative error. Before the first token the counts are
/// 0. Values that were not measured are NaN. llama_sieve_measure takes effect at the next token.
///
/// # Safety
/// `sieve` is NULL or alive; `out` is NULL or as long as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_last_stats(
    sieve: *const Handle,
    out: *mut llama_sieve_stats,
) -> c_int {
    answer("llama_sieve_last_stats", || {
        // SAFETY: the caller guarantees the first member.
        let size = unsafe { struct_size("out", "llama_sieve_stats", out, &SIZES) }?;
        // SAFETY: the caller guarantees the sieve.
        let stats = unsafe { look(sieve, |s| Ok(*s.stats())) }?;
        let stats = llama_sieve_stats {
            struct_size: size,
            ..stats_for_c(&stats)
        };
        // SAFETY: the caller guarantees that many bytes, which are not more than this struct has;
        // its members are plain numbers.
        unsafe { std::ptr::copy_nonoverlapping((&raw const stats).cast::<u8>(), out.cast(), size) };
        Ok(())
    })
}

fn stats_for_c(stats: &Stats) -> llama_sieve_stats {
    // Token numbers have 31 bits, so a count of tokens fits.
    let count = |n: usize| n as i32;
    llama_sieve_stats {
        struct_size: size_of::<llama_sieve_stats>(),
        model_entropy: stats.model_entropy,
        surprisal: stats.surprisal,
        sampling_entropy: stats.sampling_entropy,
        n_vocab: count(stats.n_vocab),
        after_top_k: count(stats.after_top_k),
        after_typical: count(stats.after_typical),
        after_top_p: count(stats.after_top_p),
        after_min_p: count(stats.after_min_p),
        after_top_n_sigma: count(stats.after_top_n_sigma),
        sampling_surprisal: stats.sampling_surprisal,
        n_accepted: stats.accepted,
    }
}
