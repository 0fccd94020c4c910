//! Saved states: history, generator, parameters and the memory of stages as bytes.

use std::ffi::c_int;

use crate::errors::LLAMA_SIEVE_ERROR_STATE;
use crate::ffi::failure::{Failure, answer, value};
use crate::ffi::given::{Argument, argument};
use crate::sieve::Sieve;

use super::handle::*;

/// The maximum number of bytes of a state.
pub const LLAMA_SIEVE_STATE_MAX_BYTES: usize = 1_073_741_824;

const STATE: Argument =
    argument!("bytes", "size", LLAMA_SIEVE_STATE_MAX_BYTES).answered_with(LLAMA_SIEVE_ERROR_STATE);

/// Returns the number of bytes that llama_sieve_state_save writes now; 0, with an error, for NULL
/// or a sieve in use. It grows with the accepted tokens up to 136 + 8 * n_bias + 4 *
/// penalty_last_n, and with mt19937 another 2496. Stages with a memory that are set by
/// llama_sieve_set_stages add 8 bytes each, 4 per token that DRY searches, at most 16 for mirostat
/// or adaptive-p, with mt19937 2496 for each stage that draws random numbers, and the name and the
/// memory of each sampler in a slot.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_state_size(sieve: *const Handle) -> usize {
    value("llama_sieve_state_size", 0, || {
        let size = |sieve: &Sieve| Ok(sieve.state_size());
        // SAFETY: the caller guarantees the sieve.
        unsafe { look(sieve, size) }
    })
}

/// Writes history, generator, parameters and the memory of stages into the first
/// llama_sieve_state_size bytes of `bytes`, in a format that is the same on every machine.
///
/// Returns LLAMA_SIEVE_OK or, with nothing written, a negative error: NULL, a sieve in use, or
/// LLAMA_SIEVE_ERROR_STATE if `size` is too small or above LLAMA_SIEVE_STATE_MAX_BYTES, or if the
/// memory of a sampler in a slot cannot be saved.
///
/// # Safety
/// `sieve` is NULL or alive; `bytes` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_state_save(
    sieve: *const Handle,
    bytes: *mut u8,
    size: usize,
) -> c_int {
    answer("llama_sieve_state_save", || {
        if bytes.is_null() {
            return Err(Failure::null("bytes"));
        }
        STATE.check(bytes, size)?;
        let save = |sieve: &Sieve| {
            sieve.check_saved()?;
            // Only as many bytes are used as are needed, even if the caller has more.
            let used = size.min(sieve.state_size());
            // SAFETY: the caller guarantees the bytes. They may be uninitialised, so they are
            // initialised before they become a slice.
            let bytes = unsafe {
                if used == sieve.state_size() {
                    bytes.write_bytes(0, used);
                    STATE.room(bytes, used)?
                } else {
                    let needed = sieve.state_size();
                    let text = format!("the state has {needed} bytes; there is room for {size}");
                    return Err(Failure::new(LLAMA_SIEVE_ERROR_STATE, text));
                }
            };
            Ok(sieve.save(bytes)?)
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { look(sieve, save) }
    })
}

/// An option of llama_sieve_state_load_with: also restores the saved parameters.
pub const LLAMA_SIEVE_STATE_PARAMS: c_int = 1;

/// Restores a saved state without its parameters, as llama_sieve_state_load_with does with options
/// 0.
///
/// # Safety
/// `sieve` is NULL or alive; `bytes` is NULL or `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_state_load(
    sieve: *mut Handle,
    bytes: *const u8,
    size: usize,
) -> c_int {
    answer("llama_sieve_state_load", || {
        // SAFETY: the caller guarantees sieve and bytes.
        unsafe { load(sieve, bytes, size, 0) }
    })
}

/// Restores a saved state, so that the sieve continues like the one that saved `bytes`: with equal
/// parameters and logits it chooses equal tokens. `size` must be the result of
/// llama_sieve_state_size when they were saved. The state includes the random stream, independently
/// of the parameters' seed. llama_sieve_reset returns to that seed. Stages set by
/// llama_sieve_set_stages are not saved: set them first.
///
/// With `options` 0 the sieve keeps its parameters. A smaller penalty_last_n keeps the newest
/// tokens. With LLAMA_SIEVE_STATE_PARAMS the saved parameters are restored, including biases and
/// generator, so that a sieve with any parameters continues exactly like the one that saved them.
///
/// Returns LLAMA_SIEVE_OK or, with nothing changed, a negative error: NULL, a sieve in use, too
/// little memory, LLAMA_SIEVE_ERROR_INVALID for other options, or LLAMA_SIEVE_ERROR_STATE for more
/// than LLAMA_SIEVE_STATE_MAX_BYTES, and for bytes that are not a state, are damaged, have an
/// unknown version, or belong to a sieve whose stages with a memory differ. With options 0 that is
/// also the error for a generator other than the parameters'. With LLAMA_SIEVE_STATE_PARAMS it is
/// also the error for a state of an earlier version, which has no parameters, and for parameters
/// that llama_sieve_new would refuse. Apart from that, states of earlier versions are accepted. A
/// state of mt19937 that lacks the generator itself (version 1) is accepted up to 1,048,576 draws,
/// which are repeated. Otherwise the time is bounded by `size`.
///
/// # Safety
/// `sieve` is NULL or alive; `bytes` is NULL or `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_state_load_with(
    sieve: *mut Handle,
    bytes: *const u8,
    size: usize,
    options: c_int,
) -> c_int {
    answer("llama_sieve_state_load_with", || {
        // SAFETY: the caller guarantees sieve and bytes.
        unsafe { load(sieve, bytes, size, options) }
    })
}

/// Restores a saved state.
///
/// # Safety
/// `sieve` is NULL or alive; `bytes` is NULL or `size` bytes.
unsafe fn load(
    sieve: *mut Handle,
    bytes: *const u8,
    size: usize,
    options: c_int,
) -> Result<(), Failure> {
    let with_params = match options {
        0 => false,
        LLAMA_SIEVE_STATE_PARAMS => true,
        _ => {
            return Err(Failure::from(format!(
                "options are {options}; there are 0 and LLAMA_SIEVE_STATE_PARAMS (1)"
            )));
        }
    };
    if bytes.is_null() {
        return Err(Failure::null("bytes"));
    }
    // SAFETY: the caller guarantees the bytes.
    let bytes = unsafe { STATE.slice(bytes, size) }?;
    let load = |sieve: &mut Sieve| match with_params {
        true => Ok(sieve.load_with_params(bytes)?),
        false => Ok(sieve.load(bytes)?),
    };
    // SAFETY: the caller guarantees the sieve.
    unsafe { with(sieve, load) }
}
