//! The vocabularies that a llama.cpp has given out: what a call passes as one is asked only if it
//! is among them.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use llama_sieve::ffi::guard::guard;
use llama_sieve::ffi::host::llama_h::llama_model;
use llama_sieve::ffi::host::vocabulary::llama_vocab;

use crate::routes::Function;

/// Of a model, and where it is.
static GIVEN_OUT: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// The last one, which most programs ask for again and again.
static LAST: AtomicUsize = AtomicUsize::new(0);

fn given_out() -> MutexGuard<'static, Vec<(usize, usize)>> {
    GIVEN_OUT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep(model: usize, vocab: usize) {
    let mut all = given_out();
    if !all.contains(&(model, vocab)) {
        all.push((model, vocab));
    }
    LAST.store(vocab, Ordering::Relaxed);
}

/// Forgets those of a model that is freed.
pub fn forget(model: *mut llama_model) {
    let model = model.addr();
    let mut all = given_out();
    all.retain(|&(of, _)| of != model);
    LAST.store(0, Ordering::Relaxed);
}

/// True if this is one.
pub fn is_one(vocab: usize) -> bool {
    vocab != 0 && given_out().iter().any(|&(_, known)| known == vocab)
}

/// Stand-in for `llama_model_get_vocab`: keeps what the host gives.
///
/// # Safety
/// `model` is what llama.h asks for.
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
    if !vocab.is_null() && LAST.load(Ordering::Relaxed) != vocab.addr() {
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
    }
}
