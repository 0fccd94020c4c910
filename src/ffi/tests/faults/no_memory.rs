//! Tests of constructors and setters with too little memory.

use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::ptr::{null, null_mut};

use super::cases::*;
use super::world::*;
use crate::ffi::host::llama_h::llama_logit_bias;
use crate::ffi::library::*;
use crate::ffi::metrics::*;
use crate::ffi::samplers::*;
use crate::ffi::sieve::*;
use crate::ffi::tests::{memory, mock_host};
use crate::ffi::trie::handles::*;
use crate::ffi::trie::*;
use crate::last_error;

/// Every allocation of at least this size may fail without ending the process. Smaller ones do not
/// grow with the arguments.
pub(super) const LARGE: usize = 6144;

#[test]
fn without_memory_constructors_and_setters_fail_and_change_nothing() {
    let _turn = TURN.lock();
    mock_host::install();
    quiet();
    // With 800 or more elements every array of the library is large. Miri takes seconds for each
    // failure, and tests only every third one.
    let (n, step) = if cfg!(miri) { (800, 3) } else { (3000, 1) };
    let bias: Vec<llama_logit_bias> = (0..n)
        .map(|token| llama_logit_bias { token, bias: 1.0 })
        .collect();
    let leaves: Vec<String> = (0..n)
        .map(|n| format!("{{\"name\":\"{n}\",\"tokens\":[{n},{}]}}", n % 7))
        .collect();
    let payload = format!(
        "{{\"descriptors\":[{{\"path\":\"p\",\"leaves\":[{}]}}]}}",
        leaves.join(",")
    );
    let mut failed = 0;
    for setter in 0..7 {
        for passed in (0..).step_by(step) {
            let world = World::new();
            let large = llama_sieve_params {
                bias: bias.as_ptr(),
                n_bias: bias.len(),
                penalty_last_n: 4000,
                ..params()
            };
            // The text differs each time, so that it is parsed and not found in a cache.
            let payload = format!("{payload}{}", " ".repeat(passed + 1));
            let json = CString::new(payload.as_str()).expect("no NUL");
            let before = world.seen();
            // SAFETY: the objects live, and arrays have the lengths that are passed.
            let call = || unsafe {
                match setter {
                    0 => world.sampler(llama_sieve_init_penalties(16, 4000, 1.1, 0.0, 0.0)),
                    1 => world.sampler(llama_sieve_init_dry(
                        null(),
                        1.0,
                        1.75,
                        2,
                        4000,
                        null_mut(),
                        0,
                    )),
                    2 => world.sampler(llama_sieve_init_logit_bias(16, n, bias.as_ptr())),
                    3 => world.keep(llama_sieve_new(&large), Made::Sieve),
                    4 => llama_sieve_set_params(world.sieve, &large).to_string(),
                    5 => {
                        llama_sieve_trie_set(world.trie, payload.as_ptr().cast(), payload.len(), 0)
                            .to_string()
                    }
                    _ => world.sampler(llama_sampler_init_token_trie(null(), json.as_ptr(), 0)),
                }
            };
            let (answer, reached) = memory::failing(LARGE, passed, call);
            let at = format!(
                "setter {setter}, allocation {passed}: {}",
                last_error::get()
            );
            if !reached {
                assert!(passed > 0, "{at} allocates nothing large");
                assert!(answer == "an object" || answer == "0", "{at}: {answer}");
                break;
            }
            failed += 1;
            assert!(answer == "NULL" || answer == "-3", "{at}: {answer}");
            assert!(last_error::get().contains("not enough memory"), "{at}");
            assert_eq!(world.seen(), before, "{at}");
        }
    }
    eprintln!("{failed} allocations failed");
}

/// A name, and a call that makes or sets something and returns its answer as text.
pub(super) type Setter<'a> = (&'a str, &'a dyn Fn(&World) -> String);

#[test]
fn where_memory_ends_constructors_and_setters_fail_and_change_nothing() {
    let _turn = TURN.lock();
    mock_host::install();
    quiet();
    let number = |number: c_int| memory::unlimited(|| number.to_string());
    let n = if cfg!(miri) { 800 } else { 3000 };
    let bias: Vec<llama_logit_bias> = (0..n)
        .map(|token| llama_logit_bias { token, bias: 1.0 })
        .collect();
    let biased = llama_sieve_params {
        bias: bias.as_ptr(),
        n_bias: bias.len(),
        penalty_last_n: 4000,
        ..params()
    };
    let mersenne = llama_sieve_params {
        rng: LLAMA_SIEVE_RNG_MT19937,
        ..params()
    };
    let leaves: Vec<String> = (0..n)
        .map(|n| format!("{{\"name\":\"{n}\",\"tokens\":[{n},{}]}}", n % 7))
        .collect();
    let payload = RefCell::new(format!(
        "{{\"descriptors\":[{{\"path\":\"p\",\"leaves\":[{}]}}]}}",
        leaves.join(",")
    ));
    let handle = || mock_host::handle::<u64>().cast();
    // SAFETY: the objects live, and arrays have the lengths that are passed.
    let setters: [Setter; 14] = unsafe {
        [
            ("new", &|w| w.keep(llama_sieve_new(&biased), Made::Sieve)),
            ("new with mt19937", &|w| {
                w.keep(llama_sieve_new(&mersenne), Made::Sieve)
            }),
            ("ppl_new", &|w| w.keep(llama_sieve_ppl_new(), Made::Ppl)),
            ("ppl_clone", &|w| {
                w.keep(llama_sieve_ppl_clone(w.ppl), Made::Ppl)
            }),
            ("logit_bias", &|w| {
                w.sampler(llama_sieve_init_logit_bias(16, n, bias.as_ptr()))
            }),
            ("set_params", &|w| {
                number(llama_sieve_set_params(w.sieve, &biased))
            }),
            ("set_params with mt19937", &|w| {
                number(llama_sieve_set_params(w.sieve, &mersenne))
            }),
            ("set_stages", &|w| {
                number(llama_sieve_set_stages(w.sieve, &w.stages))
            }),
            ("set_dry_breakers", &|w| {
                let mut breakers = [c"a".as_ptr()];
                number(llama_sieve_set_dry_breakers(
                    w.sieve,
                    mock_host::handle(),
                    breakers.as_mut_ptr(),
                    1,
                ))
            }),
            ("set_sampler", &|w| {
                number(llama_sieve_set_sampler(w.sieve, 0, w.bans))
            }),
            ("state_load", &|w| {
                number(llama_sieve_state_load(
                    w.sieve,
                    w.state.as_ptr(),
                    w.state.len(),
                ))
            }),
            ("trie_set", &|w| {
                let payload = payload.borrow();
                number(llama_sieve_trie_set(
                    w.trie,
                    payload.as_ptr().cast(),
                    payload.len(),
                    0,
                ))
            }),
            ("set_token_trie", &|w| {
                let payload = payload.borrow();
                eliza_inference_set_token_trie(handle(), payload.as_ptr().cast(), payload.len(), 0);
                let _ = w;
                let failed = memory::unlimited(|| !last_error::get().is_empty());
                number(if failed {
                    LLAMA_SIEVE_ERROR_INTERNAL
                } else {
                    0
                })
            }),
            ("bind_token_trie", &|w| {
                number(eliza_inference_bind_token_trie(handle(), w.trie))
            }),
        ]
    };
    let constructors = samplers();
    let constructors: Vec<Setter> = constructors
        .iter()
        .map(|(name, make, _)| (*name, make as &dyn Fn(&World) -> String))
        .collect();
    let step = if cfg!(miri) { 79_190 } else { 997 };
    let (mut runs, mut failed) = (0, Vec::new());
    for (name, set) in setters.into_iter().chain(constructors) {
        for bytes in (0..).map(|n| step * n) {
            let world = World::new();
            // The text differs each time, so that it is parsed and not found in a cache.
            payload.borrow_mut().push(' ');
            let before = world.seen();
            last_error::clear();
            let answer = memory::limited(LARGE, bytes, || set(&world));
            let at = format!("{name} with {bytes} bytes: {}", last_error::get());
            runs += 1;
            if answer == "an object" || answer == "0" {
                break;
            }
            assert!(answer == "NULL" || answer == "-3", "{at}: {answer}");
            assert!(last_error::get().contains("not enough memory"), "{at}");
            assert_eq!(world.seen(), before, "{at}");
            failed.push(name);
        }
    }
    failed.dedup();
    for name in [
        "new",
        "logit_bias",
        "set_params",
        "trie_set",
        "set_token_trie",
    ] {
        assert!(failed.contains(&name), "{name} takes nothing large");
    }
    eprintln!("{runs} calls with too little memory, or just enough: {failed:?} failed");
}

/// Checks that a saved state is refused where memory ends. A state of stages is restored into a
/// copy first, which may be far larger than the state.
#[test]
fn where_memory_ends_a_state_of_stages_is_refused() {
    let _turn = TURN.lock();
    mock_host::install();
    quiet();
    let step = if cfg!(miri) { 7919 } else { 997 };
    for bytes in (0..).map(|n| step * n) {
        let world = World::new();
        // SAFETY: the objects live, and there is room.
        unsafe {
            let stages = llama_sieve_stages {
                dry_penalty_last_n: 1000,
                ..world.stages
            };
            assert_eq!(llama_sieve_set_stages(world.sieve, &stages), 0);
            let mut state = vec![0; llama_sieve_state_size(world.sieve)];
            llama_sieve_state_save(world.sieve, state.as_mut_ptr(), state.len());
            (0..900).for_each(|token| llama_sieve_accept(world.sieve, token % 7));
            llama_sieve_sample(world.sieve, world.logits.as_ptr(), world.n());
            let before = world.seen();
            let load = || llama_sieve_state_load(world.sieve, state.as_ptr(), state.len());
            let answer = memory::limited(LARGE, bytes, load);
            if answer == 0 {
                assert!(bytes > 0, "it takes nothing large");
                return;
            }
            assert_eq!(answer, LLAMA_SIEVE_ERROR_INTERNAL);
            assert_eq!(world.seen(), before);
        }
    }
}
