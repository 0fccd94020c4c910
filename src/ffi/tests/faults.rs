//! An injected panic at every point of every export and every vtable entry: the documented answer
//! comes, the last error names the call, nothing leaks, and the objects are as they were, or say
//! that they are out of use.
//!
//! Each case runs again and again: the first point that it passes fails, then the second, until it
//! comes through. Exports are those of `tests/exports.txt`; one without a case here fails the test.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Once};

use parking_lot::Mutex;

use super::{memory, mock_host};
use crate::fault::armed;
use crate::ffi::certificate::llama_sieve_certify;
use crate::ffi::chain::*;
use crate::ffi::library::*;
use crate::ffi::llama_h::{llama_logit_bias, llama_sampler, llama_token_data_array};
use crate::ffi::metrics::*;
use crate::ffi::samplers::*;
use crate::ffi::seed::*;
use crate::ffi::sieve::*;
use crate::ffi::trie::*;
use crate::ffi::trie_handles::*;
use crate::token::TokenData;
use crate::{last_error, log};

const PAYLOAD: &CStr =
    c"{\"descriptors\":[{\"path\":\"p\",\"leaves\":[{\"name\":\"a\",\"tokens\":[1,3]},{\"name\":\"b\",\"tokens\":[2]}]}]}";
const OTHER_PAYLOAD: &CStr =
    c"{\"descriptors\":[{\"path\":\"q\",\"leaves\":[{\"name\":\"c\",\"tokens\":[5,6]}]}]}";
const CHILDREN: [i32; 2] = [1, 2];
const N: usize = 16;
/// Of the logits below.
const LARGEST: i32 = 3;

fn logits() -> Vec<f32> {
    let mut logits: Vec<f32> = (0..N).map(|i| i as f32 / 4.0).collect();
    logits[LARGEST as usize] = 9.0;
    logits
}

fn params() -> llama_sieve_params {
    let mut params = llama_sieve_default_params();
    params.temperature = 0.0;
    params.seed = 5;
    params
}

/// The bound handles and the cache of tries are the whole process's, and what they hold is counted.
static TURN: Mutex<()> = Mutex::new(());

/// Faults that were asked for are no news.
fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<String>().map(String::as_str) != Some(armed::TEXT) {
                usual(info);
            }
        }));
        log::set_sink(Some(Arc::new(|_, text| {
            if !text.contains(armed::TEXT) && !text.ends_with("not enough memory") {
                memory::unlimited(|| eprintln!("{text}"));
            }
        })));
    });
}

/// What a call may have made, to be freed when no fault is armed any more.
enum Made {
    Sampler(*mut llama_sampler),
    Sieve(*mut Handle),
    Ppl(*mut llama_sieve_ppl),
}

/// One object of each kind.
struct World {
    sieve: *mut Handle,
    ppl: *mut llama_sieve_ppl,
    trie: *mut llama_sampler,
    dist: *mut llama_sampler,
    chain: *mut llama_sampler,
    /// To be freed by the call that is tested.
    spare_sieve: Cell<*mut Handle>,
    spare_ppl: Cell<*mut llama_sieve_ppl>,
    params: llama_sieve_params,
    logits: Vec<f32>,
    state: Vec<u8>,
    made: RefCell<Vec<Made>>,
}

impl World {
    /// One without objects, for samplers to be made in.
    fn bare() -> Self {
        Self {
            sieve: null_mut(),
            ppl: null_mut(),
            trie: null_mut(),
            dist: null_mut(),
            chain: null_mut(),
            spare_sieve: Cell::new(null_mut()),
            spare_ppl: Cell::new(null_mut()),
            params: params(),
            logits: logits(),
            state: Vec::new(),
            made: RefCell::default(),
        }
    }

    fn new() -> Self {
        // SAFETY: arguments as the functions want them.
        unsafe {
            let sieve = llama_sieve_new(&params());
            llama_sieve_accept(sieve, 4);
            let ppl = llama_sieve_ppl_new();
            llama_sieve_ppl_add(ppl, 1.5);
            let trie = llama_sampler_init_token_trie(null(), PAYLOAD.as_ptr(), 1);
            eliza_inference_bind_token_trie(mock_host::handle::<u64>().cast(), trie);
            let mut state = vec![0; llama_sieve_state_size(sieve)];
            llama_sieve_state_save(sieve, state.as_mut_ptr(), state.len());
            let dist = llama_sieve_init_dist(42);
            // What this thread keeps for chains is there before anything fails.
            let logits = logits();
            llama_sieve_chain_sample_logits(dist, logits.as_ptr(), logits.len() as i32);
            Self {
                sieve,
                ppl,
                trie,
                dist,
                chain: mock_host::chain_init(1),
                spare_sieve: Cell::new(llama_sieve_clone(sieve)),
                spare_ppl: Cell::new(llama_sieve_ppl_clone(ppl)),
                params: params(),
                logits,
                state,
                made: RefCell::default(),
            }
        }
    }

    /// All that can be seen of the objects but of the sieve: `Err` if that is out of use.
    fn seen(&self) -> (String, Result<Vec<u8>, c_int>) {
        // SAFETY: the objects live, and there is room.
        unsafe {
            let mut state = vec![0; 4096];
            let saved = llama_sieve_state_save(self.sieve, state.as_mut_ptr(), state.len());
            let mut forced = [0; 4];
            let n_forced = llama_sieve_trie_forced(self.trie, forced.as_mut_ptr(), forced.len());
            let text = format!(
                "{} {} {} {n_forced} {forced:?} {} {:?}",
                llama_sieve_ppl_count(self.ppl),
                llama_sieve_ppl_value(self.ppl),
                llama_sieve_trie_is_active(self.trie),
                llama_sieve_get_seed(self.dist),
                apply(self.trie).ids,
            );
            (text, if saved == 0 { Ok(state) } else { Err(saved) })
        }
    }

    fn n(&self) -> i32 {
        self.logits.len() as i32
    }

    fn sampler(&self, made: *mut llama_sampler) -> String {
        self.keep(made, Made::Sampler)
    }

    fn keep<T>(&self, made: *mut T, what: fn(*mut T) -> Made) -> String {
        memory::unlimited(|| {
            if made.is_null() {
                return "NULL".to_owned();
            }
            self.made.borrow_mut().push(what(made));
            "an object".to_owned()
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: everything is freed once.
        unsafe {
            for made in self.made.take() {
                match made {
                    Made::Sampler(smpl) => mock_host::free(smpl),
                    Made::Sieve(sieve) => llama_sieve_free(sieve),
                    Made::Ppl(ppl) => llama_sieve_ppl_free(ppl),
                }
            }
            if !self.trie.is_null() {
                eliza_inference_bind_token_trie(mock_host::handle::<u64>().cast(), null_mut());
                mock_host::free(self.trie);
                mock_host::free(self.dist);
                mock_host::free(self.chain);
            }
            llama_sieve_free(self.sieve);
            llama_sieve_free(self.spare_sieve.get());
            llama_sieve_ppl_free(self.ppl);
            llama_sieve_ppl_free(self.spare_ppl.get());
        }
    }
}

/// Whether a function clears the last error when nothing is wrong.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    Clears,
    Leaves,
}
use Told::{Clears, Leaves};

struct Case {
    export: &'static str,
    told: Told,
    call: fn(&World) -> String,
    good: &'static str,
    failed: &'static str,
}

fn constructor(export: &'static str, call: fn(&World) -> String) -> Case {
    case(export, Clears, call, "an object", "NULL")
}

fn case(
    export: &'static str,
    told: Told,
    call: fn(&World) -> String,
    good: &'static str,
    failed: &'static str,
) -> Case {
    Case {
        export,
        told,
        call,
        good,
        failed,
    }
}

fn text(of: *const c_char) -> String {
    if of.is_null() {
        return "NULL".to_owned();
    }
    // SAFETY: the functions give C strings.
    let text = unsafe { CStr::from_ptr(of) };
    match text.to_bytes() {
        b"" => "".to_owned(),
        _ => "a text".to_owned(),
    }
}

/// A function that returns nothing.
fn nothing(call: impl FnOnce()) -> String {
    call();
    String::new()
}

fn some(number: f32) -> String {
    match number.is_nan() {
        true => "NaN".to_owned(),
        false => "a number".to_owned(),
    }
}

fn data(w: &World) -> Vec<TokenData> {
    let data = w.logits.iter().zip(0..);
    data.map(|(&logit, id)| TokenData { id, logit, p: 0.0 })
        .collect()
}

unsafe extern "C" fn no_log(_: c_int, _: *const c_char, _: *mut std::ffi::c_void) {}

// SAFETY of all calls below: the objects live, and arrays have the lengths that are passed.
#[rustfmt::skip]
#[allow(clippy::undocumented_unsafe_blocks)]
fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("llama_sieve_version", Leaves, |_| text(llama_sieve_version()), "a text", ""),
        case("llama_sieve_simd", Leaves, |_| text(llama_sieve_simd()), "a text", ""),
        case("llama_sieve_last_error", Leaves, |_| text(llama_sieve_last_error()), "a text", ""),
        case("llama_sieve_trie_set", Clears, |w| unsafe { llama_sieve_trie_set(w.trie, OTHER_PAYLOAD.as_ptr(), OTHER_PAYLOAD.count_bytes(), 0) }.to_string(), "0", "-3"),
        case("llama_sieve_trie_clear", Leaves, |w| nothing(|| unsafe { llama_sieve_trie_clear(w.trie) }), "", ""),
        case("llama_sieve_trie_activate", Clears, |w| unsafe { llama_sieve_trie_activate(w.trie, c"p".as_ptr()) }.to_string(), "0", "-3"),
        case("llama_sieve_trie_is_active", Leaves, |w| unsafe { llama_sieve_trie_is_active(w.trie) }.to_string(), "true", "false"),
        case("llama_sieve_trie_leaf", Leaves, |w| text(unsafe { llama_sieve_trie_leaf(w.trie) }), "NULL", "NULL"),
        case("llama_sieve_trie_forced", Leaves, |w| unsafe { llama_sieve_trie_forced(w.trie, null_mut(), 0) }.to_string(), "0", "0"),
        case("llama_sieve_trie_allowed", Leaves, |w| unsafe { llama_sieve_trie_allowed(w.trie, null_mut(), 0) }.to_string(), "2", "0"),
        case("llama_sieve_trie_cache_stats", Leaves, |_| {
            let mut stats = llama_sieve_cache_stats { hits: u64::MAX, misses: 0, evictions: 0, entries: 0, bytes: 0 };
            unsafe { llama_sieve_trie_cache_stats(&mut stats) };
            if stats.hits == u64::MAX { "as it was" } else { "written" }.to_owned()
        }, "written", "as it was"),
        case("eliza_inference_bind_token_trie", Clears, |w| unsafe { eliza_inference_bind_token_trie(mock_host::handle::<u64>().cast(), w.trie) }.to_string(), "0", "-3"),
        case("eliza_inference_set_token_trie", Clears, |_| nothing(|| unsafe { eliza_inference_set_token_trie(mock_host::handle::<u64>().cast(), OTHER_PAYLOAD.as_ptr(), OTHER_PAYLOAD.count_bytes(), 0) }), "", ""),
        case("eliza_inference_clear_token_trie", Clears, |_| nothing(|| eliza_inference_clear_token_trie(mock_host::handle::<u64>().cast())), "", ""),
        case("llama_sieve_get_seed", Leaves, |w| unsafe { llama_sieve_get_seed(w.dist) }.to_string(), "42", "4294967295"),
        // The host in Rust has no samplers of its own.
        case("llama_sieve_certify", Clears, |_| unsafe { llama_sieve_certify(c"greedy".as_ptr()) }.to_string(), "-2", "-3"),
        // Chains of that host have no members, so that none is selected; faults in members are those of
        // the vtables' own tests.
        case("llama_sieve_chain_sample", Clears, |w| unsafe { llama_sieve_chain_sample(w.chain, mock_host::handle(), -1) }.to_string(), "-4", "-3"),
        case("llama_sieve_chain_sample_logits", Clears, |w| unsafe { llama_sieve_chain_sample_logits(w.chain, w.logits.as_ptr(), w.n()) }.to_string(), "-4", "-3"),
        case("llama_sieve_chain_sample_f16", Clears, |w| unsafe { llama_sieve_chain_sample_f16(w.chain, [0u16, 0x4000].as_ptr(), 2) }.to_string(), "-4", "-3"),
        case("llama_sieve_chain_sample_bf16", Clears, |w| unsafe { llama_sieve_chain_sample_bf16(w.chain, [0u16, 0x4000].as_ptr(), 2) }.to_string(), "-4", "-3"),
        case("llama_sieve_chain_sample_batch", Clears, |w| {
            let mut out = [-99];
            unsafe { llama_sieve_chain_sample_batch(&w.chain, &w.logits.as_ptr(), w.n(), 1, out.as_mut_ptr(), 1) }.to_string()
        }, "-4", "-3"),
        // Of this chain nothing was sampled, which is no error number but told.
        case("llama_sieve_chain_candidates", Clears, |w| format!("- {}", unsafe { llama_sieve_chain_candidates(w.chain, null_mut(), 0) }), "- 0", "- -3"),
        case("llama_sieve_default_params", Leaves, |_| llama_sieve_default_params().top_k.to_string(), "40", "40"),
        case("llama_sieve_new", Clears, |w| w.keep(unsafe { llama_sieve_new(&w.params) }, Made::Sieve), "an object", "NULL"),
        case("llama_sieve_clone", Clears, |w| w.keep(unsafe { llama_sieve_clone(w.sieve) }, Made::Sieve), "an object", "NULL"),
        case("llama_sieve_free", Leaves, |w| { let spare = w.spare_sieve.replace(null_mut()); nothing(|| unsafe { llama_sieve_free(spare) }) }, "", ""),
        case("llama_sieve_reset", Leaves, |w| nothing(|| unsafe { llama_sieve_reset(w.sieve) }), "", ""),
        case("llama_sieve_accept", Leaves, |w| nothing(|| unsafe { llama_sieve_accept(w.sieve, 7) }), "", ""),
        case("llama_sieve_set_params", Clears, |w| {
            let bias = llama_logit_bias { token: 3, bias: 1.0 };
            let params = llama_sieve_params { bias: &bias, n_bias: 1, penalty_last_n: 2000, ..w.params };
            unsafe { llama_sieve_set_params(w.sieve, &params) }.to_string()
        }, "0", "-3"),
        case("llama_sieve_sample", Clears, |w| unsafe { llama_sieve_sample(w.sieve, w.logits.as_ptr(), w.n()) }.to_string(), "3", "-3"),
        case("llama_sieve_sample_f16", Clears, |w| unsafe { llama_sieve_sample_f16(w.sieve, [0u16, 0x4000].as_ptr(), w.n().min(2)) }.to_string(), "1", "-3"),
        case("llama_sieve_sample_bf16", Clears, |w| unsafe { llama_sieve_sample_bf16(w.sieve, [0u16, 0x4000].as_ptr(), w.n().min(2)) }.to_string(), "1", "-3"),
        case("llama_sieve_sample_ctx", Clears, |w| unsafe { llama_sieve_sample_ctx(w.sieve, mock_host::handle(), -1) }.to_string(), "3", "-3"),
        case("llama_sieve_sample_batch", Clears, |w| {
            let mut out = [-99];
            let code = unsafe { llama_sieve_sample_batch(&w.sieve, &w.logits.as_ptr(), w.n(), 1, out.as_mut_ptr(), 1) };
            // A fault of the call leaves it as it was, one of the sieve's own is told there.
            format!("{code} {}", if matches!(out[0], -99 | -3) { "none" } else { "a token" })
        }, "0 a token", "-3 none"),
        case("llama_sieve_candidates", Clears, |w| unsafe { llama_sieve_candidates(w.sieve, null_mut(), 0) }.to_string(), "0", "-3"),
        case("llama_sieve_measure", Clears, |w| unsafe { llama_sieve_measure(w.sieve, true) }.to_string(), "0", "-3"),
        case("llama_sieve_last_stats", Clears, |w| {
            // SAFETY: plain numbers.
            let mut stats: llama_sieve_stats = unsafe { std::mem::zeroed() };
            stats.struct_size = size_of::<llama_sieve_stats>();
            stats.n_vocab = -99;
            let code = unsafe { llama_sieve_last_stats(w.sieve, &mut stats) };
            format!("{code} {}", stats.n_vocab)
        }, "0 0", "-3 -99"),
        case("llama_sieve_state_size", Leaves, |w| unsafe { llama_sieve_state_size(w.sieve) }.to_string(), "68", "0"),
        case("llama_sieve_state_save", Clears, |w| {
            let mut state = [9; 128];
            let code = unsafe { llama_sieve_state_save(w.sieve, state.as_mut_ptr(), 128) };
            format!("{code} {}", state == [9; 128])
        }, "0 false", "-3 true"),
        case("llama_sieve_state_load", Clears, |w| unsafe { llama_sieve_state_load(w.sieve, w.state.as_ptr(), w.state.len()) }.to_string(), "0", "-3"),
        case("llama_sieve_top_candidates", Clears, |w| {
            let mut out = [TokenData { id: -99, logit: 0.0, p: 0.0 }];
            let code = unsafe { llama_sieve_top_candidates(w.logits.as_ptr(), w.n(), 1, out.as_mut_ptr()) };
            format!("{code} {}", out[0].id)
        }, "1 3", "-3 -99"),
        case("llama_sieve_greedy", Clears, |w| unsafe { llama_sieve_greedy(w.logits.as_ptr(), w.n()) }.to_string(), "3", "-3"),
        case("llama_sieve_entropy", Leaves, |w| some(unsafe { llama_sieve_entropy(w.logits.as_ptr(), w.n(), 2) }), "a number", "NaN"),
        case("llama_sieve_surprisal", Leaves, |w| some(unsafe { llama_sieve_surprisal(w.logits.as_ptr(), w.n(), 1, 0) }), "a number", "NaN"),
        case("llama_sieve_candidates_entropy", Leaves, |w| { let d = data(w); some(unsafe { llama_sieve_candidates_entropy(d.as_ptr(), d.len(), 0) }) }, "a number", "NaN"),
        case("llama_sieve_candidates_surprisal", Leaves, |w| { let d = data(w); some(unsafe { llama_sieve_candidates_surprisal(d.as_ptr(), d.len(), 1, 0) }) }, "a number", "NaN"),
        case("llama_sieve_ppl_new", Clears, |w| w.keep(llama_sieve_ppl_new(), Made::Ppl), "an object", "NULL"),
        case("llama_sieve_ppl_clone", Clears, |w| w.keep(unsafe { llama_sieve_ppl_clone(w.ppl) }, Made::Ppl), "an object", "NULL"),
        case("llama_sieve_ppl_free", Leaves, |w| { let spare = w.spare_ppl.replace(null_mut()); nothing(|| unsafe { llama_sieve_ppl_free(spare) }) }, "", ""),
        case("llama_sieve_ppl_add", Leaves, |w| nothing(|| unsafe { llama_sieve_ppl_add(w.ppl, 1.0) }), "", ""),
        case("llama_sieve_ppl_value", Leaves, |w| some(unsafe { llama_sieve_ppl_value(w.ppl) }), "a number", "NaN"),
        case("llama_sieve_ppl_count", Leaves, |w| unsafe { llama_sieve_ppl_count(w.ppl) }.to_string(), "1", "0"),
        case("llama_sieve_ppl_reset", Leaves, |w| nothing(|| unsafe { llama_sieve_ppl_reset(w.ppl) }), "", ""),
        // The functions of the library that are the same for the whole process; another sink would
        // be seen by other tests.
        case("llama_sieve_log_set", Leaves, |_| {
            // Asked for and at once undone; the fault comes before.
            let before = log::sink();
            unsafe { llama_sieve_log_set(Some(no_log), null_mut()) };
            let changed = log::sink().is_some() != before.is_some() || !same_sink(&log::sink(), &before);
            log::set_sink(before);
            if changed { "another" } else { "as it was" }.to_owned()
        }, "another", "as it was"),
        case("llama_sieve_bind_host", Clears, |_| unsafe { llama_sieve_bind_host(no_host()) }.to_string(), "-2", "-3"),
    ];
    cases.extend(samplers().into_iter().map(|(export, make, _)| constructor(export, make)));
    cases
}

fn same_sink(a: &Option<log::Sink>, b: &Option<log::Sink>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// A handle of a library that is no host: the C library.
fn no_host() -> *mut std::ffi::c_void {
    if cfg!(miri) {
        return libc::RTLD_DEFAULT.wrapping_byte_add(1);
    }
    // SAFETY: a library that is loaded.
    let handle = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY) };
    assert!(!handle.is_null());
    handle
}

/// What is left of the candidates when a sampler has failed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Answer {
    /// All.
    Filter,
    /// All, and the largest selected.
    Selector,
    /// Only what may follow.
    Constraint,
}
use Answer::{Constraint, Filter, Selector};

type Make = fn(&World) -> String;

/// Every constructor of a sampler.
#[rustfmt::skip]
#[allow(clippy::undocumented_unsafe_blocks)]
fn samplers() -> Vec<(&'static str, Make, Answer)> {
    vec![
        ("llama_sieve_init_greedy", |w| w.sampler(llama_sieve_init_greedy()), Selector),
        ("llama_sieve_init_dist", |w| w.sampler(llama_sieve_init_dist(1)), Selector),
        ("llama_sieve_init_top_k", |w| w.sampler(llama_sieve_init_top_k(2)), Filter),
        ("llama_sieve_init_top_p", |w| w.sampler(llama_sieve_init_top_p(0.5, 1)), Filter),
        ("llama_sieve_init_min_p", |w| w.sampler(llama_sieve_init_min_p(0.5, 1)), Filter),
        ("llama_sieve_init_typical", |w| w.sampler(llama_sieve_init_typical(0.5, 1)), Filter),
        ("llama_sieve_init_temp", |w| w.sampler(llama_sieve_init_temp(0.5)), Filter),
        ("llama_sieve_init_top_n_sigma", |w| w.sampler(llama_sieve_init_top_n_sigma(1.0)), Filter),
        ("llama_sieve_init_penalties", |w| w.sampler(llama_sieve_init_penalties(16, 64, 1.1, 0.1, 0.1)), Filter),
        ("llama_sieve_init_temp_ext", |w| w.sampler(llama_sieve_init_temp_ext(0.8, 0.3, 1.0)), Filter),
        ("llama_sieve_init_xtc", |w| w.sampler(llama_sieve_init_xtc(0.9, 0.1, 1, 3)), Filter),
        ("llama_sieve_init_mirostat", |w| w.sampler(llama_sieve_init_mirostat(16, 1, 5.0, 0.1, 10)), Selector),
        ("llama_sieve_init_mirostat_v2", |w| w.sampler(llama_sieve_init_mirostat_v2(1, 5.0, 0.1)), Selector),
        ("llama_sieve_init_dry", |w| {
            let mut breakers = [c"a".as_ptr()];
            w.sampler(unsafe { llama_sieve_init_dry(mock_host::handle(), 1.0, 1.75, 2, 64, breakers.as_mut_ptr(), 1) })
        }, Filter),
        ("llama_sieve_init_adaptive_p", |w| w.sampler(llama_sieve_init_adaptive_p(0.5, 0.9, 1)), Selector),
        ("llama_sieve_init_logit_bias", |w| {
            let bias = llama_logit_bias { token: 3, bias: 1.0 };
            w.sampler(unsafe { llama_sieve_init_logit_bias(16, 1, &bias) })
        }, Filter),
        ("llama_sieve_init_infill", |w| w.sampler(unsafe { llama_sieve_init_infill(mock_host::handle()) }), Filter),
        ("llama_sieve_init_tail_free", |w| w.sampler(llama_sieve_init_tail_free(0.5, 1)), Filter),
        ("llama_sieve_init_softmax", |w| w.sampler(llama_sieve_init_softmax()), Filter),
        ("llama_sieve_init_sampler", |w| w.sampler(unsafe { llama_sieve_init_sampler(&w.params) }), Selector),
        ("llama_sampler_init_token_trie", |w| w.sampler(unsafe { llama_sampler_init_token_trie(mock_host::handle(), PAYLOAD.as_ptr(), 1) }), Constraint),
        ("llama_sieve_init_trie_slot", |w| {
            let answer = w.sampler(unsafe { llama_sieve_init_trie_slot(mock_host::handle()) });
            if let Some(Made::Sampler(smpl)) = w.made.borrow().last() {
                // The constructor alone is the case; without a fault what it made gets a
                // constraint.
                if !armed::is_armed() {
                    unsafe { llama_sieve_trie_set(*smpl, PAYLOAD.as_ptr(), PAYLOAD.count_bytes(), 1) };
                }
            }
            answer
        }, Constraint),
    ]
}

/// One test for each, so that a run can choose among them; `every_export_has_a_case_and_a_test`
/// compares the names.
macro_rules! tests_of {
    ($names:ident, $module:ident, $body:ident: $($name:ident)*) => {
        const $names: &[&str] = &[$(stringify!($name)),*];

        mod $module {
            $(
                #[test]
                fn $name() {
                    super::$body(stringify!($name));
                }
            )*
        }
    };
}

tests_of! {
    EXPORTS, a_fault_gives_the_documented_answer_of, faults_in_export:
    llama_sieve_version llama_sieve_simd llama_sieve_last_error llama_sieve_log_set
    llama_sieve_trie_set llama_sieve_trie_clear llama_sieve_trie_activate llama_sieve_trie_is_active llama_sieve_trie_leaf llama_sieve_trie_forced
    llama_sieve_trie_allowed
    llama_sieve_trie_cache_stats
    eliza_inference_bind_token_trie eliza_inference_set_token_trie eliza_inference_clear_token_trie
    llama_sieve_get_seed llama_sieve_certify
    llama_sieve_chain_sample llama_sieve_chain_sample_logits llama_sieve_chain_sample_f16 llama_sieve_chain_sample_bf16
    llama_sieve_chain_sample_batch llama_sieve_chain_candidates
    llama_sieve_default_params llama_sieve_new llama_sieve_clone llama_sieve_free llama_sieve_reset llama_sieve_accept llama_sieve_set_params
    llama_sieve_sample llama_sieve_sample_f16 llama_sieve_sample_bf16 llama_sieve_sample_ctx llama_sieve_sample_batch
    llama_sieve_candidates llama_sieve_measure llama_sieve_last_stats llama_sieve_state_size llama_sieve_state_save llama_sieve_state_load
    llama_sieve_top_candidates llama_sieve_greedy
    llama_sieve_entropy llama_sieve_surprisal llama_sieve_candidates_entropy llama_sieve_candidates_surprisal
    llama_sieve_ppl_new llama_sieve_ppl_clone llama_sieve_ppl_free llama_sieve_ppl_add llama_sieve_ppl_value llama_sieve_ppl_count llama_sieve_ppl_reset
}

tests_of! {
    CONSTRUCTORS, a_fault_gives_the_documented_answer_of_constructor, faults_in_export:
    llama_sieve_init_greedy llama_sieve_init_dist llama_sieve_init_top_k llama_sieve_init_top_p llama_sieve_init_min_p llama_sieve_init_typical
    llama_sieve_init_temp llama_sieve_init_top_n_sigma llama_sieve_init_penalties llama_sieve_init_temp_ext llama_sieve_init_xtc
    llama_sieve_init_mirostat llama_sieve_init_mirostat_v2 llama_sieve_init_dry llama_sieve_init_adaptive_p llama_sieve_init_logit_bias
    llama_sieve_init_infill llama_sieve_init_tail_free llama_sieve_init_softmax llama_sieve_init_sampler
    llama_sampler_init_token_trie llama_sieve_init_trie_slot
}

tests_of! {
    VTABLES, a_fault_gives_the_documented_answer_of_each_entry_made_by, faults_in_entries:
    llama_sieve_init_greedy llama_sieve_init_dist llama_sieve_init_top_k llama_sieve_init_top_p llama_sieve_init_min_p llama_sieve_init_typical
    llama_sieve_init_temp llama_sieve_init_top_n_sigma llama_sieve_init_penalties llama_sieve_init_temp_ext llama_sieve_init_xtc
    llama_sieve_init_mirostat llama_sieve_init_mirostat_v2 llama_sieve_init_dry llama_sieve_init_adaptive_p llama_sieve_init_logit_bias
    llama_sieve_init_infill llama_sieve_init_tail_free llama_sieve_init_softmax llama_sieve_init_sampler
    llama_sampler_init_token_trie llama_sieve_init_trie_slot
}

const BIND_HOST: &str = "llama_sieve_bind_host";

#[test]
#[cfg_attr(miri, ignore = "there is no dynamic linker")]
fn a_fault_gives_the_documented_answer_of_bind_host() {
    faults_in_export(BIND_HOST);
}

#[test]
fn every_export_has_a_case_and_a_test() {
    let sorted = |mut names: Vec<&'static str>| {
        names.sort_unstable();
        names
    };
    let exports = sorted(include_str!("../../../tests/exports.txt").lines().collect());
    let cases = cases().iter().map(|case| case.export).collect();
    assert_eq!(sorted(cases), exports);
    assert_eq!(
        sorted([EXPORTS, CONSTRUCTORS, &[BIND_HOST]].concat()),
        exports
    );
    let makers = samplers().iter().map(|(name, _, _)| *name).collect();
    assert_eq!(sorted(makers), sorted(VTABLES.to_vec()));
}

fn faults_in_export(export: &str) {
    let _turn = TURN.lock();
    mock_host::install();
    quiet();
    let case = cases().into_iter().find(|case| case.export == export);
    let case = case.expect("it has a case");
    let injected = each_point(export, |points| Some(fault(&case, points)));
    eprintln!("{injected} faults in {export}");
}

/// Runs `inject` with a fault at the first point, the second, until it says that there is no such
/// point. Returns how many there were; 0 if it says that there is nothing to run.
fn each_point(what: &str, inject: impl Fn(usize) -> Option<bool>) -> usize {
    // Caches that are never freed are warmed up: the room for this thread's last error, and others
    // by a first run.
    last_error::set(&" ".repeat(1000));
    inject(0);
    for points in 0.. {
        let before = (memory::held(), mock_host::shells());
        let fired = inject(points);
        last_error::set("");
        let after = (memory::held(), mock_host::shells());
        assert_eq!(after, before, "{what} leaks at point {points}");
        match fired {
            Some(true) => {}
            Some(false) => {
                assert!(points > 0, "{what} passes no point");
                return points;
            }
            None => break,
        }
    }
    0
}

/// Change nothing, so that a fault in them leaves the sieve in use.
const LOOKS: [&str; 5] = [
    "llama_sieve_clone",
    "llama_sieve_candidates",
    "llama_sieve_last_stats",
    "llama_sieve_state_size",
    "llama_sieve_state_save",
];

/// The case with a fault at that point; says whether it has such a point.
fn fault(case: &Case, points: usize) -> bool {
    let export = case.export;
    let world = World::new();
    let before = world.seen();
    last_error::set("an earlier one");
    let spare = (world.spare_sieve.get(), world.spare_ppl.get());
    let (answer, fired) = armed::with(points, || (case.call)(&world));
    let told = last_error::get();
    if !fired {
        assert_eq!(answer, case.good, "{export}");
        // What returns an error may be meant to fail in its case.
        if !answer.starts_with('-') {
            let expected = if case.told == Clears {
                ""
            } else {
                "an earlier one"
            };
            assert_eq!(told, expected, "{export}");
        }
        return false;
    }
    if export.ends_with("_free") {
        // It was not freed.
        world.spare_sieve.set(spare.0);
        world.spare_ppl.set(spare.1);
    }
    let at = format!("{export}, point {points}");
    assert_eq!(answer, case.failed, "{at}");
    assert!(told.contains(armed::TEXT), "{at}: {told}");
    // Asked for its seed, a sampler fails under its own name; that it is still in use is seen
    // below.
    let in_sampler = told.starts_with("dist: seed: ") && points > 0;
    assert!(told.starts_with(export) || in_sampler, "{at}: {told}");
    let after = world.seen();
    assert_eq!(after.0, before.0, "{at}");
    let out_of_use = after.1 == Err(LLAMA_SIEVE_ERROR_BUSY);
    let may_fail = points > 0 && !LOOKS.contains(&export);
    assert!(after.1 == before.1 || (may_fail && out_of_use), "{at}");
    // And again, without a fault.
    last_error::set("an earlier one");
    let again = (case.call)(&world);
    assert!(again == case.good || out_of_use, "{at}: {again}");
    fired
}

/// The candidates after a call of `apply`.
#[derive(PartialEq, Debug)]
struct After {
    ids: Vec<i32>,
    logits: Vec<u32>,
    selected: i64,
}

fn apply(smpl: *mut llama_sampler) -> After {
    let mut data: Vec<TokenData> = logits()
        .into_iter()
        .zip(0..)
        .map(|(logit, id)| TokenData { id, logit, p: 0.0 })
        .collect();
    let mut array = llama_token_data_array {
        data: data.as_mut_ptr(),
        size: data.len(),
        selected: -1,
        sorted: 0,
    };
    // SAFETY: a live sampler of ours, which has the entry, and a valid array; what is left of it
    // lies within.
    unsafe {
        ((*(*smpl).iface).apply.expect("always there"))(smpl, &mut array);
        let left = std::slice::from_raw_parts(array.data, array.size);
        After {
            ids: left.iter().map(|c| c.id).collect(),
            logits: left.iter().map(|c| c.logit.to_bits()).collect(),
            selected: array.selected,
        }
    }
}

impl Answer {
    fn is(self, after: &After) -> bool {
        let all = logits()
            .iter()
            .map(|logit| logit.to_bits())
            .collect::<Vec<_>>();
        match self {
            Filter => after.logits == all && after.selected == -1,
            Selector => after.logits == all && after.selected == i64::from(LARGEST),
            Constraint => after.ids.iter().all(|id| CHILDREN.contains(id)),
        }
    }
}

/// The entries of a vtable, by name.
const ENTRIES: [&str; 7] = [
    "name",
    "accept",
    "apply",
    "reset",
    "clone",
    "free",
    "copy_state",
];

fn faults_in_entries(constructor: &str) {
    let _turn = TURN.lock();
    mock_host::install();
    quiet();
    let maker = samplers()
        .into_iter()
        .find(|(name, _, _)| *name == constructor);
    let (_, make, kind) = maker.expect("it is known");
    let injected: usize = ENTRIES
        .iter()
        .map(|entry| {
            let what = format!("{entry} of {constructor}");
            each_point(&what, |points| {
                fault_in_entry(make, kind, entry, points, constructor)
            })
        })
        .sum();
    eprintln!("{injected} faults in the entries of {constructor}");
}

fn make_one(world: &World, make: Make) -> *mut llama_sampler {
    assert_eq!(make(world), "an object", "{}", last_error::get());
    match world.made.borrow().last() {
        Some(Made::Sampler(smpl)) => *smpl,
        _ => unreachable!("it was just made"),
    }
}

/// Whether the entry has such a point; `None` if the vtable has no such entry.
fn fault_in_entry(
    make: Make,
    kind: Answer,
    entry: &str,
    points: usize,
    constructor: &str,
) -> Option<bool> {
    let at = format!("{entry} of {constructor}, point {points}");
    let world = World::bare();
    let smpl = make_one(&world, make);
    let fresh = make_one(&world, make);
    // SAFETY: a live sampler of ours.
    let iface = unsafe { &*(*smpl).iface };
    // Warm: with its buffers.
    let usual = apply(smpl);
    // SAFETY: live samplers of ours throughout; what is freed is not used again.
    unsafe {
        match entry {
            "name" => {
                let (name, fired) = armed::with(points, || iface.name.expect("named")(smpl));
                if fired {
                    assert_eq!(CStr::from_ptr(name), c"llama-sieve", "{at}");
                }
                Some(noted(fired, &at))
            }
            "accept" | "reset" => {
                let call: Box<dyn Fn()> = match (entry, iface.accept, iface.reset) {
                    ("accept", Some(accept), _) => Box::new(move || accept(smpl, 1)),
                    ("reset", _, Some(reset)) => Box::new(move || reset(smpl)),
                    _ => return None,
                };
                let ((), fired) = armed::with(points, call);
                let fired = noted(fired, &at);
                let after = apply(smpl);
                if fired && points > 0 && kind != Constraint {
                    assert!(kind.is(&after), "{at}: {after:?}");
                    assert!(last_error::get().contains("out of use"), "{at}");
                }
                if fired && kind == Constraint {
                    assert!(kind.is_allowed(&after), "{at}: {after:?}");
                }
                Some(fired)
            }
            "apply" => {
                let (after, fired) = armed::with(points, || apply(fresh));
                let fired = noted(fired, &at);
                if fired {
                    assert!(kind.is(&after), "{at}: {after:?}");
                    let again = apply(fresh);
                    let stays = points > 0 && kind != Constraint && kind.is(&again);
                    assert!(
                        stays || again == usual,
                        "{at}: {again:?}, usually {usual:?}"
                    );
                } else {
                    assert_eq!(after, usual, "{at}");
                }
                Some(fired)
            }
            "clone" => {
                let clone = iface.clone.expect("always there");
                let (copy, fired) = armed::with(points, || clone(smpl));
                let fired = noted(fired, &at);
                // Never a constraint that allows nothing.
                assert_eq!(copy.is_null(), fired && kind == Constraint, "{at}");
                if !copy.is_null() {
                    let after = apply(copy);
                    assert!(!fired || kind.is(&after), "{at}: {after:?}");
                    mock_host::free(copy);
                }
                // What was cloned was only read, and is still in use.
                last_error::clear();
                apply(smpl);
                assert_eq!(last_error::get(), "", "{at}");
                Some(fired)
            }
            "free" => {
                let free = iface.free.expect("always there");
                let ((), fired) = armed::with(points, || free(smpl));
                let fired = noted(fired, &at);
                // The world frees it once more, which frees what was left or does nothing.
                assert_eq!((*smpl).ctx.is_null(), !fired, "{at}");
                Some(fired)
            }
            "copy_state" => {
                let copy = iface.copy_state.expect("always there");
                let ((), fired) = armed::with(points, || copy(smpl, fresh));
                let fired = noted(fired, &at);
                let after = apply(fresh);
                if fired && kind == Constraint {
                    assert!(kind.is_allowed(&after), "{at}: {after:?}");
                }
                if fired && points > 0 && kind != Constraint {
                    assert!(kind.is(&after), "{at}: {after:?}");
                }
                Some(fired)
            }
            _ => unreachable!("no such entry"),
        }
    }
}

impl Answer {
    /// Of a constraint that masks: whether what is not masked may follow.
    fn is_allowed(self, after: &After) -> bool {
        let mut left = after.ids.iter().zip(&after.logits);
        left.all(|(id, logit)| CHILDREN.contains(id) || f32::from_bits(*logit) == f32::NEG_INFINITY)
    }
}

fn noted(fired: bool, at: &str) -> bool {
    if fired {
        let told = last_error::get();
        assert!(told.contains(armed::TEXT), "{at}: {told}");
        let entry = at.split(' ').next().unwrap_or_default();
        assert!(told.contains(entry), "{at}: {told}");
    }
    fired
}

/// From this size on any single allocation may fail without ending the process: below it are those
/// that do not grow with the arguments, which are not begun without head room for them all.
const LARGE: usize = 6144;

#[test]
fn without_memory_constructors_and_setters_fail_and_change_nothing() {
    let _turn = TURN.lock();
    mock_host::install();
    quiet();
    // From 800 on every array of the library is large. Miri, which takes seconds for each, does
    // every third failure.
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
            // Another text each time, so that it is parsed.
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

/// A call that makes or sets something; the answer as text.
type Setter<'a> = (&'a str, &'a dyn Fn(&World) -> String);

#[test]
fn where_memory_ends_at_any_byte_constructors_and_setters_fail_and_change_nothing() {
    let _turn = TURN.lock();
    mock_host::install();
    quiet();
    let number = |number: c_int| memory::unlimited(|| number.to_string());
    let bias: Vec<llama_logit_bias> = (0..300)
        .map(|token| llama_logit_bias { token, bias: 1.0 })
        .collect();
    let biased = llama_sieve_params {
        bias: bias.as_ptr(),
        n_bias: bias.len(),
        penalty_last_n: 2000,
        ..params()
    };
    let mersenne = llama_sieve_params {
        rng: LLAMA_SIEVE_RNG_MT19937,
        ..params()
    };
    let leaves: Vec<String> = (0..if cfg!(miri) { 30 } else { 300 })
        .map(|n| format!("{{\"name\":\"{n}\",\"tokens\":[{n},{}]}}", n % 7))
        .collect();
    let payload = RefCell::new(format!(
        "{{\"descriptors\":[{{\"path\":\"p\",\"leaves\":[{}]}}]}}",
        leaves.join(",")
    ));
    let handle = || mock_host::handle::<u64>().cast();
    // SAFETY: the objects live, and arrays have the lengths that are passed.
    let setters: [Setter; 11] = unsafe {
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
                w.sampler(llama_sieve_init_logit_bias(16, 300, bias.as_ptr()))
            }),
            ("set_params", &|w| {
                number(llama_sieve_set_params(w.sieve, &biased))
            }),
            ("set_params with mt19937", &|w| {
                number(llama_sieve_set_params(w.sieve, &mersenne))
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
    // The first few within the head room; then to where it suffices.
    let head_room = crate::memory::HEAD_ROOM;
    let within = [0, head_room - 1, 1, 40, 1000];
    let (within, step) = match cfg!(miri) {
        true => (&within[..2], 7919),
        false => (&within[..], 61),
    };
    let mut runs = 0;
    for (name, set) in setters.into_iter().chain(constructors) {
        let steps = (0..).map(|n| head_room + step * n);
        for bytes in within.iter().copied().chain(steps) {
            let world = World::new();
            // Another text each time, so that it is parsed.
            payload.borrow_mut().push(' ');
            let before = world.seen();
            last_error::clear();
            let answer = memory::limited(bytes, || set(&world));
            let at = format!("{name} with {bytes} bytes: {}", last_error::get());
            runs += 1;
            if answer == "an object" || answer == "0" {
                assert!(bytes >= head_room, "{at}");
                break;
            }
            assert!(answer == "NULL" || answer == "-3", "{at}: {answer}");
            assert!(last_error::get().contains("not enough memory"), "{at}");
            assert_eq!(world.seen(), before, "{at}");
        }
    }
    eprintln!("{runs} calls with too little memory, or just enough");
}

thread_local! {
    /// Whether this thread's next message is one to be answered with calls.
    static ASKED: Cell<bool> = const { Cell::new(false) };
    /// The exports that were called from within, with another answer than the good one.
    static WRONG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn call_everything() {
    for case in cases() {
        if cfg!(miri) && case.export == "llama_sieve_bind_host" {
            continue; // No dynamic linker there.
        }
        let world = World::new();
        last_error::set("an earlier one");
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
    // The constraint warns while its sampler is locked, the sieve reports a fault while it is.
    let leaves = || {
        // SAFETY: a live sampler of ours, which has the entry.
        unsafe { ((*(*world.trie).iface).accept.expect("accepts"))(world.trie, 9) };
    };
    let fails = || {
        // SAFETY: the sieve lives, and the logits are as many as is said.
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
        // What was called from within does not speak for the call around it.
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
        // SAFETY: live sieves, each with its logits, as many as is said.
        unsafe {
            let (sieves, logits) = (sieves.as_ptr(), logits.as_ptr());
            llama_sieve_sample_batch(sieves, logits, n_vocab, 3, out.as_mut_ptr(), n_threads)
        }
    };
    let mut out = [-99; 3];
    // The first point is that of the call, the second the first sieve's.
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
    // SAFETY: alive, and so it stays: that is what is tested.
    let handle = unsafe { &*world.sieve };
    let in_use = handle.take_for_a_test();
    // SAFETY: as above.
    unsafe { llama_sieve_free(world.sieve) };
    assert!(last_error::get().contains("in use by another thread"));
    drop(in_use);
    // SAFETY: as above.
    let token = unsafe { llama_sieve_sample(world.sieve, world.logits.as_ptr(), world.n()) };
    assert!(token >= 0);
}
