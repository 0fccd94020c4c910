//! The vocabularies that a llama.cpp has returned. When an argument list is not yet proven, an
//! argument is taken for a vocabulary only if it is one of them.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};

use llama_sieve::ffi::guard::guard;
use llama_sieve::ffi::host::llama_h::llama_model;
use llama_sieve::ffi::host::vocabulary::llama_vocab;
use llama_sieve::sync::Mutex;

use crate::routes::Function;

/// The vocabularies that were returned: the model and the address of each.
static GIVEN_OUT: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Some vocabularies of the list. Programs query their vocabulary at each token, and this lookup
/// needs no lock.
static RECENT: [AtomicUsize; N_RECENT] = [const { AtomicUsize::new(0) }; N_RECENT];

const N_RECENT: usize = 16;

thread_local! {
    /// The vocabulary that this thread last got from the host.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// Returns the vocabulary that this thread last got from the host, or otherwise the only known one;
/// `None` if neither exists.
pub fn of_this_thread() -> Option<*const llama_vocab> {
    let last = LAST.get();
    if is_one(last) {
        return Some(last as *const llama_vocab);
    }
    match GIVEN_OUT.lock().as_slice() {
        &[(_, only)] => Some(only as *const llama_vocab),
        _ => None,
    }
}

/// Returns the slot of a vocabulary among the recent ones.
fn recent(vocab: usize) -> Option<&'static AtomicUsize> {
    // The upper bits of the product depend on all bits of the address.
    let mixed = (vocab as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    RECENT.get(mixed as usize % N_RECENT)
}

fn is_recent(vocab: usize) -> bool {
    recent(vocab).is_some_and(|recent| recent.load(Ordering::Relaxed) == vocab)
}

fn keep(model: usize, vocab: usize) {
    let mut all = GIVEN_OUT.lock();
    if !all.contains(&(model, vocab)) {
        all.push((model, vocab));
    }
    drop(all);
    if let Some(recent) = recent(vocab) {
        recent.store(vocab, Ordering::Relaxed);
    }
}

/// Forgets the vocabularies of a model that is being freed.
pub fn forget(model: *mut llama_model) {
    let model = model.addr();
    GIVEN_OUT.lock().retain(|&(of, _)| of != model);
    for recent in &RECENT {
        recent.store(0, Ordering::Relaxed);
    }
}

/// Forgets all vocabularies, since from now on models may be freed without a call of the stand-in.
pub fn forget_all() {
    GIVEN_OUT.lock().clear();
    for recent in &RECENT {
        recent.store(0, Ordering::Relaxed);
    }
}

/// True if this is a known vocabulary.
pub fn is_one(vocab: usize) -> bool {
    vocab != 0 && GIVEN_OUT.lock().iter().any(|&(_, known)| known == vocab)
}

/// Stand-in for `llama_model_get_vocab` that records the host's result.
///
/// # Safety
/// `model` meets the requirements of llama.h.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_model_get_vocab(
    model: *const llama_model,
) -> *const llama_vocab {
    static HOSTS: Function = Function::new(c"llama_model_get_vocab");
    let vocab = call_host!(
        HOSTS.route(),
        (*const llama_model) -> *const llama_vocab,
        (model),
        null()
    );
    LAST.set(vocab.addr());
    if !vocab.is_null() && !is_recent(vocab.addr()) {
        let keep = || keep(model.addr(), vocab.addr());
        guard("llama_model_get_vocab", || (), keep);
    }
    vocab
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vocabulary_is_known_until_its_model_is_freed() {
        keep(1000, 2000);
        keep(1008, 2008);
        keep(1000, 2000);
        assert!(is_one(2000) && is_one(2008) && !is_one(1000) && !is_one(0));
        forget(1000 as *mut _);
        assert!(!is_one(2000) && is_one(2008));
        forget(1008 as *mut _);
        assert!(!is_one(2008));
        keep(1016, 2016);
        forget_all();
        assert!(!is_one(2016) && !is_recent(2016));
    }
}
