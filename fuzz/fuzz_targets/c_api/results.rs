//! Queries of a sieve: results, parameters, history and saved state.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use llama_sieve::TokenData;
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::sieve::*;
use llama_sieve_fuzz::stages::SLOTS;

use crate::World;
use crate::answers::{assert_answer, assert_count, assert_reason, last_error};
use crate::calls::Call;
use crate::stages::set_stages;
use crate::support::sizes::absurd;

impl World {
    /// Returns a sieve, or the sieve inside a sampler, and records that the caller changes its
    /// stages.
    ///
    /// # Safety
    /// All objects must be alive.
    unsafe fn staged(&mut self, which: u8, in_sampler: bool) -> *mut Handle {
        self.is_staged = true;
        match in_sampler {
            // SAFETY: NULL or a live sampler.
            true => unsafe { llama_sieve_of_sampler(self.smp(which)) },
            false => self.sieve(which),
        }
    }

    /// Makes a call about the results of a sieve. Passes any other call on to [`Self::call_chain`].
    ///
    /// # Safety
    /// All objects must be alive.
    pub(crate) unsafe fn call_results(&mut self, call: &Call) {
        // SAFETY: NULL or live, and arrays are as long as the calls expect.
        unsafe {
            match call {
                Call::Candidates { which, cap } => {
                    let sieve = self.sieve(*which);
                    let mut out = vec![TokenData::new(-7, 0.0); usize::from(*cap)];
                    let n = llama_sieve_candidates(sieve, out.as_mut_ptr(), out.len());
                    assert_count(n, &[LLAMA_SIEVE_ERROR_NULL]);
                    let written = out.iter().filter(|c| c.id != -7).count();
                    assert_eq!(written, usize::try_from(n).unwrap_or(0).min(out.len()));
                }
                Call::Measure { which, on } => {
                    assert_answer(
                        llama_sieve_measure(self.sieve(*which), *on),
                        &[LLAMA_SIEVE_ERROR_NULL],
                    );
                }
                Call::Stats {
                    which,
                    wrong_size,
                    null,
                } => {
                    let mut stats = std::mem::zeroed::<llama_sieve_stats>();
                    stats.struct_size = size_of::<llama_sieve_stats>() + usize::from(*wrong_size);
                    let out = if *null { null_mut() } else { &raw mut stats };
                    let answer = llama_sieve_last_stats(self.sieve(*which), out);
                    if assert_answer(answer, &[LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_PARAMS]) {
                        let counts = [
                            stats.n_vocab,
                            stats.after_top_k,
                            stats.after_typical,
                            stats.after_top_p,
                            stats.after_min_p,
                            stats.after_top_n_sigma,
                        ];
                        // With the parameters' own order the counts descend. In any order they are
                        // at most the size of the vocabulary.
                        let descend = counts.is_sorted_by(|a, b| a >= b);
                        assert!(descend || self.is_staged, "{stats:?}");
                        assert!(counts.iter().all(|&count| count <= stats.n_vocab));
                    }
                }
                Call::Save { which, short } => {
                    let sieve = self.sieve(*which);
                    let size = llama_sieve_state_size(sieve);
                    assert_eq!(size == 0, sieve.is_null());
                    let room = size.saturating_sub(usize::from(short % 3));
                    let mut bytes = vec![0xAA; room.max(1)];
                    let answer = llama_sieve_state_save(sieve, bytes.as_mut_ptr(), room);
                    if assert_answer(answer, &[LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_STATE]) {
                        self.saved = bytes;
                    } else {
                        assert!(bytes.iter().all(|&byte| byte == 0xAA));
                    }
                }
                Call::Load { which, damage } => {
                    let sieve = self.sieve(*which);
                    let mut bytes = self.saved.clone();
                    if let (Some((at, xor)), false) = (damage, bytes.is_empty()) {
                        let at = usize::from(*at) % bytes.len();
                        bytes[at] ^= xor;
                    }
                    let pointer = if bytes.is_empty() {
                        null()
                    } else {
                        bytes.as_ptr()
                    };
                    let answer = llama_sieve_state_load(sieve, pointer, bytes.len());
                    assert_answer(answer, &[LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_STATE]);
                }
                Call::GetParams { which, wrong_size } => {
                    let sieve = self.sieve(*which);
                    let mut seen = llama_sieve_default_params();
                    seen.struct_size += usize::from(*wrong_size);
                    let answer = llama_sieve_get_params(sieve, &mut seen);
                    let errors = [LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_PARAMS];
                    if assert_answer(answer, &errors) {
                        // Parameters that were read can be set again, without effect.
                        assert_eq!(llama_sieve_set_params(sieve, &seen), LLAMA_SIEVE_OK);
                    }
                }
                Call::Ask {
                    which,
                    token,
                    logit,
                    cap,
                } => {
                    let (sieve, logit) = (self.sieve(*which), logit.get());
                    ask(sieve, token.0, logit, (*cap).into());
                    let number = u64::from(token.0 as u32) << 32 | u64::from(logit.to_bits());
                    absurd(self.smp(*which), sieve, (*cap).into(), number);
                }
                Call::LoadWith {
                    which,
                    damage,
                    options,
                } => self.load_with(*which, *damage, i32::from(*options % 3)),
                Call::Reserve { which, n } => {
                    let sieve = self.sieve(*which);
                    let answer = llama_sieve_reserve(sieve, n.0.min(5000));
                    let done =
                        assert_answer(answer, &[LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_SIZE]);
                    assert_eq!(done, !sieve.is_null() && n.0 > 0);
                }
                Call::OfSampler(which) => {
                    let sieve = llama_sieve_of_sampler(self.smp(*which));
                    if sieve.is_null() {
                        assert_reason();
                    } else {
                        assert_eq!(last_error(), "");
                        ask(sieve, 3, 0.5, 4);
                        // The sieve belongs to the sampler, so this call must not free it.
                        llama_sieve_free(sieve);
                        assert!(llama_sieve_state_size(sieve) > 0);
                    }
                }
                Call::SetSampler {
                    which,
                    in_sampler,
                    slot,
                    sampler,
                } => {
                    let sieve = self.staged(*which, *in_sampler);
                    let slot = i32::from(*slot % (SLOTS + 1)) - 1;
                    let answer = llama_sieve_set_sampler(sieve, slot, self.smp(*sampler));
                    let errors = [
                        LLAMA_SIEVE_ERROR_NULL,
                        LLAMA_SIEVE_ERROR_PARAMS,
                        LLAMA_SIEVE_ERROR_INVALID,
                        LLAMA_SIEVE_ERROR_BUSY,
                    ];
                    assert_answer(answer, &errors);
                }
                Call::SetStages {
                    which,
                    in_sampler,
                    stages,
                    breakers,
                    vocab,
                } => {
                    let sieve = self.staged(*which, *in_sampler);
                    set_stages(sieve, stages.as_ref(), breakers.map(|n| (n, *vocab)));
                }
                other => self.call_chain(other),
            }
        }
    }

    /// Loads the saved state, perhaps damaged, into a sieve, and checks the result.
    ///
    /// # Safety
    /// All objects must be alive.
    unsafe fn load_with(&mut self, which: u8, damage: Option<(u16, u8)>, options: c_int) {
        let sieve = self.sieve(which);
        let mut bytes = self.saved.clone();
        if let (Some((at, xor)), false) = (damage, bytes.is_empty()) {
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= xor;
        }
        let pointer = match bytes.is_empty() {
            true => null(),
            false => bytes.as_ptr(),
        };
        // SAFETY: NULL or live, and the bytes are as many.
        unsafe {
            let answer = llama_sieve_state_load_with(sieve, pointer, bytes.len(), options);
            let errors = [
                LLAMA_SIEVE_ERROR_NULL,
                LLAMA_SIEVE_ERROR_STATE,
                LLAMA_SIEVE_ERROR_INVALID,
            ];
            if assert_answer(answer, &errors) && options == LLAMA_SIEVE_STATE_PARAMS {
                let mut again = vec![0; llama_sieve_state_size(sieve)];
                llama_sieve_state_save(sieve, again.as_mut_ptr(), again.len());
                assert_eq!(again, bytes);
            }
        }
    }
}

/// Calls every query of a sieve, and checks that the results agree with each other.
///
/// # Safety
/// `sieve` is NULL or alive.
unsafe fn ask(sieve: *mut Handle, token: i32, logit: f32, cap: usize) {
    let mut out = vec![-7; cap];
    // SAFETY: NULL or live, and there is room.
    unsafe {
        let size = llama_sieve_history_size(sieve);
        let count = llama_sieve_history_count(sieve, token);
        assert_eq!(llama_sieve_history_contains(sieve, token), count > 0);
        let unique = llama_sieve_history_unique(sieve, out.as_mut_ptr(), cap);
        assert!(unique <= size && count as usize <= size);
        assert!(out[unique.min(cap)..].iter().all(|&token| token == -7));
        for &token in &out[..unique.min(cap)] {
            // This includes negative tokens, which `llama_sieve_accept` rejects: a host's
            // `llama_sampler_accept` passes on any token, as it does to the built-in penalties.
            assert!(llama_sieve_history_contains(sieve, token));
        }
        let adjusted = llama_sieve_adjusted_logit(sieve, token, logit);
        assert!(!sieve.is_null() || adjusted.is_nan());
        let error = llama_sieve_error(sieve);
        assert_eq!(error.is_null(), sieve.is_null());
        if sieve.is_null() {
            assert_reason();
            assert_eq!(llama_sieve_n_accepted(sieve), 0);
            assert_eq!(llama_sieve_current_seed(sieve), 0xFFFF_FFFF);
        }
    }
}
