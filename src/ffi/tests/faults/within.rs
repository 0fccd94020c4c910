//! Tests of exports that are called within the log callback, in a batch, and on an object in use.

use std::cell::{Cell, RefCell};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use super::cases::*;
use super::world::*;
use crate::fault::armed;
use crate::ffi::library::*;
use crate::ffi::sieve::*;
use crate::ffi::tests::mock_host;
use crate::{last_error, log};

thread_local! {
    /// True if exports are to be called during this thread's next message.
    static ASKED: Cell<bool> = const { Cell::new(false) };
    /// The exports that did not return the expected answer when called within the callback.
    static WRONG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn call_everything() {
    for case in cases() {
        if cfg!(miri) && case.export == "llama_sieve_bind_host" {
            continue; // Miri has no dynamic linker.
        }
        let world = World::new();
        last_error::set(LLAMA_SIEVE_ERROR_INVALID, "an earlier one");
        let answer = (case.call)(&world);
        if answer != case.good {
            let wrong = format!("{}: {answer}", case.export);
            WRONG.with_borrow_mut(|all| all.push(wrong));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "every call is interpreted elsewhere, and minutes")]
fn every_export_may_be_called_from_within_the_log_callback() {
    let _turn = TURN.lock();
    mock_host::install();
    quiet();
    let usual = log::sink();
    let world = World::new();
    // The constraint logs a warning while its sampler is locked, and the sieve logs a fault while
    // it is locked.
    let leaves = || {
        // SAFETY: a live sampler of this library, which has the entry.
        unsafe { ((*(*world.trie).iface).accept.expect("accepts"))(world.trie, 9) };
    };
    let fails = || {
        // SAFETY: the sieve lives, and there are as many logits as the number that is passed.
        let sample =
            || unsafe { llama_sieve_sample(world.sieve, world.logits.as_ptr(), world.n()) };
        let (token, fired) = armed::with(1, sample);
        assert!(fired && token == LLAMA_SIEVE_ERROR_INTERNAL);
    };
    let triggers: [(&dyn Fn(), &str); 2] =
        [(&leaves, "token 9 was accepted"), (&fails, armed::TEXT)];
    for (trigger, told) in triggers {
        log::set_sink(Some(Arc::new(|_, _| {
            if ASKED.take() {
                call_everything();
            }
        })));
        ASKED.set(true);
        trigger();
        assert!(!ASKED.take(), "nothing was logged");
        let wrong = WRONG.take();
        assert!(wrong.is_empty(), "{wrong:?}");
        // Calls within the callback do not change the last error of the call around them.
        assert!(last_error::get().contains(told), "{}", last_error::get());
    }
    log::set_sink(usual);
}

#[test]
fn of_a_batch_only_a_sieve_that_fails_itself_is_lost() {
    let _turn = TURN.lock();
    mock_host::install();
    quiet();
    let worlds = [World::new(), World::new(), World::new()];
    let sieves: Vec<_> = worlds.iter().map(|world| world.sieve).collect();
    let logits: Vec<_> = worlds.iter().map(|world| world.logits.as_ptr()).collect();
    let n_vocab = worlds[0].n();
    let batch = |out: &mut [i32; 3], n_threads| {
        // SAFETY: live sieves, each with as many logits as the number that is passed.
        unsafe {
            let (sieves, logits) = (sieves.as_ptr(), logits.as_ptr());
            llama_sieve_sample_batch(sieves, logits, n_vocab, 3, out.as_mut_ptr(), n_threads)
        }
    };
    let mut out = [-99; 3];
    // The first point is in the call, and the second in the first sieve.
    let (code, fired) = armed::with(1, || batch(&mut out, 1));
    let token = out[1];
    assert!(fired && token >= 0);
    let failed = LLAMA_SIEVE_ERROR_INTERNAL;
    assert_eq!((code, out), (failed, [failed, token, token]));
    let told = last_error::get();
    assert!(
        told.contains("sequence 0") && told.contains(armed::TEXT),
        "{told}"
    );
    for (world, expected) in worlds.iter().zip([LLAMA_SIEVE_ERROR_BUSY, token, token]) {
        // SAFETY: as above.
        let token = unsafe { llama_sieve_sample(world.sieve, world.logits.as_ptr(), n_vocab) };
        assert_eq!(token, expected);
    }
}

#[test]
fn what_is_in_use_is_not_freed() {
    let _turn = TURN.lock();
    mock_host::install();
    let world = World::new();
    // SAFETY: the sieve is alive and stays so, as this test checks.
    let handle = unsafe { &*world.sieve };
    let in_use = handle.take_for_a_test();
    // SAFETY: as above.
    unsafe { llama_sieve_free(world.sieve) };
    assert!(last_error::get().contains("in use by another thread"));
    // Other calls fail as well, and change nothing.
    //
    // SAFETY: as above; NULL is allowed.
    let answers = unsafe {
        [
            llama_sieve_sample(world.sieve, world.logits.as_ptr(), world.n()),
            llama_sieve_set_stages(world.sieve, null()),
            llama_sieve_get_stages(world.sieve, null_mut(), 0),
            llama_sieve_set_dry_breakers(world.sieve, null(), null_mut(), 0),
            llama_sieve_set_sampler(world.sieve, 0, null()),
        ]
    };
    assert_eq!(answers, [LLAMA_SIEVE_ERROR_BUSY; 5]);
    drop(in_use);
    // SAFETY: as above.
    let token = unsafe { llama_sieve_sample(world.sieve, world.logits.as_ptr(), world.n()) };
    assert!(token >= 0);
}
