//! One object of each kind, and queries of their state.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int};
use std::panic;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Once};

use parking_lot::Mutex;

use crate::fault::armed;
use crate::ffi::bans::llama_sieve_init_ban_strings;
use crate::ffi::chain::*;
use crate::ffi::grammar::lazy::*;
use crate::ffi::grammar::llama_sieve_init_grammar;
use crate::ffi::grammar::tags::llama_sieve_init_tags;
use crate::ffi::host::llama_h::{llama_sampler, llama_token_data_array};
use crate::ffi::metrics::*;
use crate::ffi::samplers::*;
use crate::ffi::seed::*;
use crate::ffi::sieve::*;
use crate::ffi::tests::{memory, mock_host};
use crate::ffi::trie::handles::*;
use crate::ffi::trie::*;
use crate::log;
use crate::token::{TokenData, array_of};

pub(super) const PAYLOAD: &CStr =
    c"{\"descriptors\":[{\"path\":\"p\",\"leaves\":[{\"name\":\"a\",\"tokens\":[1,3]},{\"name\":\"b\",\"tokens\":[2]}]}]}";
pub(super) const OTHER_PAYLOAD: &CStr =
    c"{\"descriptors\":[{\"path\":\"q\",\"leaves\":[{\"name\":\"c\",\"tokens\":[5,6]}]}]}";
pub(super) const CHILDREN: [i32; 2] = [1, 2];
pub(super) const N: usize = 16;
/// The token with the largest of these logits.
pub(super) const LARGEST: i32 = 3;

pub(super) fn logits() -> Vec<f32> {
    let mut logits: Vec<f32> = (0..N).map(|i| i as f32 / 4.0).collect();
    logits[LARGEST as usize] = 9.0;
    logits
}

pub(super) fn params() -> llama_sieve_params {
    let mut params = llama_sieve_default_params();
    params.temperature = 0.0;
    params.rng = LLAMA_SIEVE_RNG_XOROSHIRO128PLUS;
    params.seed = 5;
    params
}

/// Returns the default stages with DRY enabled, which needs memory.
fn stages() -> llama_sieve_stages {
    llama_sieve_stages {
        dry_multiplier: 1.0,
        ..llama_sieve_default_stages()
    }
}

/// A lock for tests, since the handles of tries and the cache of tries belong to the whole process,
/// and their memory is counted.
pub(super) static TURN: Mutex<()> = Mutex::new(());

/// Suppresses messages about injected faults.
pub(super) fn quiet() {
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

/// An object that a call has made. It is freed when no fault is armed any more.
pub(super) enum Made {
    Sampler(*mut llama_sampler),
    Sieve(*mut Handle),
    Ppl(*mut llama_sieve_ppl),
}

/// One object of each kind.
pub(super) struct World {
    pub(super) sieve: *mut Handle,
    pub(super) ppl: *mut llama_sieve_ppl,
    pub(super) trie: *mut llama_sampler,
    pub(super) grammar: *mut llama_sampler,
    pub(super) bans: *mut llama_sampler,
    pub(super) dist: *mut llama_sampler,
    pub(super) chain: *mut llama_sampler,
    /// A sieve in a sampler for chains.
    pub(super) in_chain: *mut llama_sampler,
    /// A sieve for the call under test to free.
    pub(super) spare_sieve: Cell<*mut Handle>,
    pub(super) spare_ppl: Cell<*mut llama_sieve_ppl>,
    pub(super) params: llama_sieve_params,
    pub(super) stages: llama_sieve_stages,
    pub(super) logits: Vec<f32>,
    pub(super) state: Vec<u8>,
    pub(super) made: RefCell<Vec<Made>>,
}

impl World {
    /// Returns a world without objects, in which samplers can be made.
    pub(super) fn bare() -> Self {
        Self {
            sieve: null_mut(),
            ppl: null_mut(),
            trie: null_mut(),
            grammar: null_mut(),
            bans: null_mut(),
            dist: null_mut(),
            chain: null_mut(),
            in_chain: null_mut(),
            spare_sieve: Cell::new(null_mut()),
            spare_ppl: Cell::new(null_mut()),
            params: params(),
            stages: stages(),
            logits: logits(),
            state: Vec::new(),
            made: RefCell::default(),
        }
    }

    pub(super) fn new() -> Self {
        // SAFETY: the arguments are those that the functions require.
        unsafe {
            let sieve = llama_sieve_new(&params());
            llama_sieve_accept(sieve, 4);
            let ppl = llama_sieve_ppl_new();
            llama_sieve_ppl_add(ppl, 1.5);
            let trie = llama_sampler_init_token_trie(null(), PAYLOAD.as_ptr(), 1);
            eliza_inference_bind_token_trie(mock_host::handle::<u64>().cast(), trie);
            let mut state = vec![0; llama_sieve_state_size(sieve)];
            llama_sieve_state_save(sieve, state.as_mut_ptr(), state.len());
            let grammar = grammar();
            let bans = bans();
            let dist = llama_sieve_init_dist(42);
            // The buffers that this thread keeps for chains are allocated before any fault.
            let logits = logits();
            llama_sieve_chain_sample_logits(dist, logits.as_ptr(), logits.len() as i32);
            Self {
                sieve,
                ppl,
                trie,
                grammar,
                bans,
                dist,
                chain: mock_host::chain_init(ChainParams { no_perf: 1 }),
                in_chain: llama_sieve_init_sampler(&params()),
                spare_sieve: Cell::new(llama_sieve_clone(sieve)),
                spare_ppl: Cell::new(llama_sieve_ppl_clone(ppl)),
                params: params(),
                stages: stages(),
                logits,
                state,
                made: RefCell::default(),
            }
        }
    }

    /// Returns the visible state of the objects: a text for all except the sieve, and the saved
    /// state of the sieve, or an error if it is out of use.
    pub(super) fn seen(&self) -> (String, Result<Vec<u8>, c_int>) {
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
            ) + &format!(" {:?}", apply(self.grammar).logits);
            (text, if saved == 0 { Ok(state) } else { Err(saved) })
        }
    }

    pub(super) fn n(&self) -> i32 {
        self.logits.len() as i32
    }

    pub(super) fn sampler(&self, made: *mut llama_sampler) -> String {
        self.keep(made, Made::Sampler)
    }

    pub(super) fn keep<T>(&self, made: *mut T, what: fn(*mut T) -> Made) -> String {
        memory::unlimited(|| {
            if made.is_null() {
                return "NULL".to_owned();
            }
            self.made.borrow_mut().push(what(made));
            "an object".to_owned()
        })
    }
}

/// Returns the sampler of a grammar of any number of the children's letters. Unless a fault is
/// armed, tables that the grammar caches are filled first, since otherwise they would count as
/// leaks.
pub(super) fn grammar() -> *mut llama_sampler {
    warm(|| {
        let (text, root) = (c"root ::= [bc]*", c"root");
        // SAFETY: C strings, and the host's one vocabulary.
        unsafe { llama_sieve_init_grammar(mock_host::handle(), text.as_ptr(), root.as_ptr()) }
    })
}

/// Returns a ban of "bc", after the first letter. Caches are filled as in [`grammar`].
fn bans() -> *mut llama_sampler {
    let made = warm(|| {
        let text = c"bc".as_ptr();
        // SAFETY: a vocabulary of the host in Rust, and a C string.
        unsafe { llama_sieve_init_ban_strings(mock_host::handle(), &text, 1, 0) }
    });
    // SAFETY: the sampler has just been made.
    unsafe { ((*(*made).iface).accept.expect("it accepts"))(made, 1) };
    made
}

/// Returns the sampler that `make` makes. Caches are filled as in [`grammar`].
pub(super) fn warm(make: impl Fn() -> *mut llama_sampler) -> *mut llama_sampler {
    if armed::is_armed() || memory::is_limited() {
        return make();
    }
    let first = make();
    apply(first);
    // SAFETY: a live sampler of this library, which has the entry, and is freed once.
    unsafe {
        ((*(*first).iface).accept.expect("it has one"))(first, 1);
        apply(first);
        mock_host::free(first);
    }
    make()
}

/// Returns the sampler of tags in which a span has begun. Caches are filled as in [`grammar`].
pub(super) fn begun_tags() -> *mut llama_sampler {
    let make = || {
        let json =
            c"{\"tags\": [{\"begin\": {\"token\": 3}, \"regex\": \"[bc]*\"}], \"once\": true}";
        // SAFETY: a C string, and the host's one vocabulary.
        unsafe { llama_sieve_init_tags(mock_host::handle(), json.as_ptr(), 0) }
    };
    if armed::is_armed() || memory::is_limited() {
        return make();
    }
    let accept = |smpl: *mut llama_sampler, token| {
        // SAFETY: a live sampler of this library, which has the entry.
        unsafe { ((*(*smpl).iface).accept.expect("it has one"))(smpl, token) };
        apply(smpl);
    };
    let first = make();
    if first.is_null() {
        return first;
    }
    apply(first);
    accept(first, 3);
    accept(first, 1);
    // SAFETY: a live sampler of this library, which is freed once.
    unsafe { mock_host::free(first) };
    let smpl = make();
    accept(smpl, 3);
    smpl
}

/// Returns the sampler of a lazy grammar that a token has triggered. Caches are filled as in
/// [`grammar`].
pub(super) fn lazy_grammar(of_words: bool) -> *mut llama_sampler {
    let make = || {
        let (vocab, text, root) = (mock_host::handle(), c"root ::= [bc]*", c"root");
        let (text, root) = (text.as_ptr(), root.as_ptr());
        let (mut texts, token) = ([c"never".as_ptr()], 1);
        let list = texts.as_mut_ptr();
        // SAFETY: C strings, a token, and the host's one vocabulary.
        unsafe {
            match of_words {
                true => llama_sieve_init_grammar_lazy(vocab, text, root, list, 1, &token, 1),
                false => {
                    llama_sieve_init_grammar_lazy_patterns(vocab, text, root, list, 1, &token, 1)
                }
            }
        }
    };
    if armed::is_armed() || memory::is_limited() {
        return make();
    }
    // SAFETY: a live sampler of this library, which is freed once.
    unsafe { mock_host::free(grammar()) };
    let smpl = make();
    // SAFETY: as above, which has the entry.
    unsafe { ((*(*smpl).iface).accept.expect("it has one"))(smpl, 1) };
    smpl
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
                mock_host::free(self.grammar);
                mock_host::free(self.bans);
                mock_host::free(self.dist);
                mock_host::free(self.chain);
                mock_host::free(self.in_chain);
            }
            llama_sieve_free(self.sieve);
            llama_sieve_free(self.spare_sieve.get());
            llama_sieve_ppl_free(self.ppl);
            llama_sieve_ppl_free(self.spare_ppl.get());
        }
    }
}

/// The effect of a successful call on the last error.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Told {
    Clears,
    Leaves,
}
pub(super) use Told::{Clears, Leaves};

pub(super) struct Case {
    pub(super) export: &'static str,
    pub(super) told: Told,
    pub(super) call: fn(&World) -> String,
    pub(super) good: &'static str,
    pub(super) failed: &'static str,
}

pub(super) fn constructor(export: &'static str, call: fn(&World) -> String) -> Case {
    case(export, Clears, call, "an object", "NULL")
}

pub(super) fn case(
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

pub(super) fn text(of: *const c_char) -> String {
    if of.is_null() {
        return "NULL".to_owned();
    }
    // SAFETY: the functions return C strings.
    let text = unsafe { CStr::from_ptr(of) };
    match text.to_bytes() {
        b"" => "".to_owned(),
        _ => "a text".to_owned(),
    }
}

/// Returns "" after calling a function without a result.
pub(super) fn nothing(call: impl FnOnce()) -> String {
    call();
    String::new()
}

pub(super) fn some(number: f32) -> String {
    match number.is_nan() {
        true => "NaN".to_owned(),
        false => "a number".to_owned(),
    }
}

pub(super) fn data(w: &World) -> Vec<TokenData> {
    array_of(&w.logits)
}

pub(super) unsafe extern "C" fn no_log(_: c_int, _: *const c_char, _: *mut std::ffi::c_void) {}

/// The state of the candidates after a call of `apply`.
#[derive(PartialEq, Debug)]
pub(super) struct After {
    pub(super) ids: Vec<i32>,
    pub(super) logits: Vec<u32>,
    pub(super) selected: i64,
}

pub(super) fn apply(smpl: *mut llama_sampler) -> After {
    let mut data = array_of(&logits());
    let mut array = llama_token_data_array {
        data: data.as_mut_ptr(),
        size: data.len(),
        selected: -1,
        sorted: 0,
    };
    // SAFETY: a live sampler of this library, which has the entry, and a valid array; the
    // candidates that are left lie within it.
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
