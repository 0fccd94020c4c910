//! Any calls of the C interface in any order: only documented answers, a reason for every failure,
//! nothing changed by one, and no panic behind the guard (libFuzzer's own hook ends the process at
//! any panic, caught or not). Leaks are found by LeakSanitizer.
#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use llama_sieve::TokenData;
use llama_sieve::ffi::certificate::*;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::metrics::*;
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::seed::llama_sieve_get_seed;
use llama_sieve::ffi::sieve::*;
use llama_sieve::ffi::trie::handles::*;
use llama_sieve::ffi::trie::*;
use llama_sieve_fuzz::logits::{Logit, Number, Whole};
use llama_sieve_fuzz::params::{CParams, Change};
use support::family::vocabulary;
use vendor_llama_cpp::sys;

fuzz_target!(
    init: {
        llama_sieve_fuzz::silence();
        vocabulary();
    },
    |calls: Vec<Call>| World::default().run(&calls)
);

#[derive(Arbitrary, Debug)]
enum Call {
    Make(Maker),
    Chain(Vec<u8>),
    Apply {
        which: u8,
        array: Array,
    },
    Accept {
        which: u8,
        token: Whole,
    },
    Reset(u8),
    Clone(u8),
    Copy {
        from: u8,
        to: u8,
    },
    Free(u8),
    TrieSet {
        which: u8,
        payload: Payload,
        mode: Whole,
    },
    TrieClear(u8),
    TrieActivate {
        which: u8,
        path: u8,
    },
    Bind {
        handle: u8,
        slot: Option<u8>,
    },
    SetByHandle {
        handle: u8,
        payload: Payload,
        mode: Whole,
    },
    ClearByHandle(u8),
    CacheStats {
        null: bool,
    },
    SieveNew(Option<Vec<Change>>),
    SieveClone(u8),
    SieveFree(u8),
    SieveReset(u8),
    SieveSet {
        which: u8,
        changes: Option<Vec<Change>>,
    },
    SieveAccept {
        which: u8,
        token: Whole,
    },
    Sample {
        which: u8,
        logits: Logits,
        width: u8,
    },
    SampleCtx {
        which: u8,
    },
    Batch {
        which: Vec<u8>,
        logits: Logits,
        threads: u8,
    },
    Candidates {
        which: u8,
        cap: u8,
    },
    Measure {
        which: u8,
        on: bool,
    },
    Stats {
        which: u8,
        wrong_size: bool,
        null: bool,
    },
    Save {
        which: u8,
        short: u8,
    },
    Load {
        which: u8,
        damage: Option<(u16, u8)>,
    },
    Top {
        logits: Logits,
        n: Whole,
        null: bool,
    },
    Greedy(Logits),
    Metrics {
        logits: Logits,
        token: Whole,
        base: i8,
    },
    PplNew,
    PplClone(u8),
    PplAdd(u8, Number),
    PplReset(u8),
    PplFree(u8),
    Seed(u8),
    Library,
    Certify(Name),
    GetParams {
        which: u8,
        wrong_size: bool,
    },
    Ask {
        which: u8,
        token: Whole,
        logit: Number,
        cap: u8,
    },
    LoadWith {
        which: u8,
        damage: Option<(u16, u8)>,
        options: i8,
    },
    OfSampler(u8),
    Reserve {
        which: u8,
        n: Whole,
    },
}

/// The name of a sampler, for the certificate.
#[derive(Arbitrary, Debug)]
enum Name {
    Null,
    OfBuiltIn(u8),
    Bytes(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
enum Maker {
    Greedy,
    Dist(u32),
    TopK(Whole),
    TopP(Number, Whole),
    MinP(Number, Whole),
    Typical(Number, Whole),
    Temp(Number),
    TopNSigma(Number),
    TempExt(Number, Number, Number),
    Xtc(Number, Number, Whole, u32),
    Mirostat(Whole, u32, Number, Number, Whole),
    MirostatV2(u32, Number, Number),
    Penalties(Whole, Whole, Number, Number, Number),
    Dry {
        vocab: bool,
        numbers: (Number, Number, Whole, Whole),
        breakers: Option<u8>,
    },
    AdaptiveP(Number, Number, u32),
    LogitBias {
        biases: Option<Vec<(i16, Logit)>>,
        n: Whole,
    },
    Infill {
        vocab: bool,
    },
    TailFree(Number, Whole),
    Softmax,
    Trie {
        vocab: bool,
        payload: Payload,
        mode: Whole,
    },
    Slot {
        vocab: bool,
    },
    Sieve(Option<Vec<Change>>),
    BuiltIn,
    TrieStrings {
        vocab: bool,
        first: u8,
        n: Option<u8>,
        mode: Whole,
    },
}

#[derive(Arbitrary, Debug)]
enum Payload {
    Null,
    /// Some values of few tokens.
    Values(Vec<Vec<u8>>),
    Large(i32),
    Bytes(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
struct Array {
    logits: Vec<Logit>,
    first_id: i16,
    step: i8,
    sorted: bool,
    selected: i16,
    wrong: Wrong,
}

#[derive(Arbitrary, Debug)]
enum Wrong {
    Nothing,
    NullArray,
    NullData,
    HugeSize,
}

#[derive(Arbitrary, Debug)]
enum Logits {
    Null,
    NoVocabulary(Vec<Logit>),
    NegativeSize,
    Some(Vec<Logit>),
    Many(u16, Logit),
}

/// A sampler of the host's.
struct Smp {
    ptr: *mut llama_sampler,
    is_trie: bool,
    is_ours: bool,
}

#[derive(Default)]
struct World {
    samplers: Vec<Smp>,
    sieves: Vec<*mut Handle>,
    ppls: Vec<*mut llama_sieve_ppl>,
    /// Which sampler each handle was bound to, while that lives.
    bound: BTreeMap<usize, *mut llama_sampler>,
    saved: Vec<u8>,
}

/// More would only be slower.
const MOST_CALLS: usize = 40;
const MOST_OBJECTS: usize = 8;

fn last_error() -> String {
    // SAFETY: never NULL, valid until the next call.
    let text = unsafe { CStr::from_ptr(llama_sieve_last_error()) };
    text.to_str().expect("UTF-8").to_owned()
}

/// What is asked of a sieve agrees with itself.
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
            assert!(token >= 0 && llama_sieve_history_contains(sieve, token));
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

/// A failure has a reason, and no internal one.
fn assert_reason() {
    let text = last_error();
    assert!(!text.is_empty(), "no reason");
    assert!(
        !text.contains("internal error") && !text.contains("panicked"),
        "{text}"
    );
}

/// The answer is 0 or one of `errors`; a success has forgotten older errors.
fn assert_answer(answer: c_int, errors: &[c_int]) -> bool {
    if answer == LLAMA_SIEVE_OK {
        assert_eq!(last_error(), "");
        return true;
    }
    assert!(errors.contains(&answer), "{answer}: {}", last_error());
    assert_reason();
    false
}

/// The answer is a number or one of `errors`.
fn assert_count(answer: c_int, errors: &[c_int]) {
    if answer < 0 {
        assert!(errors.contains(&answer), "{answer}: {}", last_error());
        assert_reason();
    }
}

/// Whose built-ins are equal whatever the build; those whose arguments depend on it; and the one
/// that asks a vocabulary.
const CERTIFIED: [&CStr; 13] = [
    c"greedy",
    c"dist",
    c"top-k",
    c"top-p",
    c"min-p",
    c"typical",
    c"temp",
    c"temp-ext",
    c"xtc",
    c"top-n-sigma",
    c"mirostat",
    c"mirostat-v2",
    c"adaptive-p",
];
const OF_KNOWN_BUILDS: [&CStr; 3] = [c"penalties", c"dry", c"logit-bias"];
const INFILL: &CStr = c"infill";

/// The vendored samplers are what ours are compared with everywhere: each is certified, whatever
/// was called before.
fn certify(name: &Name) {
    let names = CERTIFIED.iter().chain(&OF_KNOWN_BUILDS).chain([&INFILL]);
    let names: Vec<&CStr> = names.copied().collect();
    let name = match name {
        Name::Null => None,
        Name::OfBuiltIn(which) => Some(names[usize::from(*which) % names.len()].to_owned()),
        Name::Bytes(bytes) => {
            let bytes = bytes.iter().copied().filter(|&byte| byte != 0);
            Some(CString::new(bytes.collect::<Vec<u8>>()).expect("without NUL"))
        }
    };
    let pointer = name.as_ref().map_or(null(), |name| name.as_ptr());
    // SAFETY: NULL or a C string.
    let verdict = unsafe { llama_sieve_certify(pointer) };
    let Some(name) = name.as_deref() else {
        assert!(!assert_answer(verdict, &[LLAMA_SIEVE_ERROR_NULL]));
        return;
    };
    match name {
        name if CERTIFIED.contains(&name) => assert!(assert_answer(verdict, &[])),
        name if OF_KNOWN_BUILDS.contains(&name) => {
            assert_answer(verdict, &[LLAMA_SIEVE_CERTIFY_ARGUMENTS]);
        }
        name if name == INFILL => {
            assert!(!assert_answer(verdict, &[LLAMA_SIEVE_CERTIFY_VOCABULARY]));
        }
        _ => assert!(!assert_answer(verdict, &[LLAMA_SIEVE_ERROR_NOT_FOUND])),
    }
}

fn pick<T: Copy>(objects: &[T], which: u8) -> Option<T> {
    // Sometimes none, for NULL.
    objects
        .get(usize::from(which) % (objects.len() + 1))
        .copied()
}

impl Payload {
    fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Payload::Null => None,
            Payload::Values(values) => {
                let leaves = values.iter().take(8).map(|tokens| {
                    let tokens: Vec<u8> = tokens.iter().take(8).map(|token| token % 8).collect();
                    serde_json::json!({"name": format!("{tokens:?}"), "tokens": tokens})
                });
                let leaves: Vec<_> = leaves.collect();
                let json = serde_json::json!({"descriptors": [
                    {"path": "path 0", "leaves": leaves},
                    {"path": "path 1", "leaves": [{"name": "x\0y", "tokens": [3]}]},
                ]});
                Some(json.to_string().into_bytes())
            }
            Payload::Large(token) => Some(
                format!(r#"{{"descriptors":[{{"path":"path 0","leaves":[{{"name":"n","tokens":[1,{token}]}}]}}]}}"#)
                    .into_bytes(),
            ),
            Payload::Bytes(bytes) => Some(bytes.clone()),
        }
    }
}

impl Logits {
    /// What they are, and as many as the call is told.
    fn get(&self) -> (Option<Vec<f32>>, i32) {
        let values = |logits: &[Logit]| -> Vec<f32> { logits.iter().map(|l| l.value()).collect() };
        match self {
            Logits::Null => (None, 5),
            Logits::NoVocabulary(logits) => (Some(values(logits)), 0),
            Logits::NegativeSize => (Some(vec![1.0]), -1),
            Logits::Some(logits) => {
                let logits = values(&logits[..logits.len().min(300)]);
                let n = logits.len() as i32;
                (Some(logits), n)
            }
            Logits::Many(n, last) => {
                let n = usize::from(*n) % 3000;
                let mut logits: Vec<f32> = (0..n).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
                logits.push(last.value());
                (Some(logits), n as i32 + 1)
            }
        }
    }

    fn pointer(values: &Option<Vec<f32>>) -> *const f32 {
        values.as_ref().map_or(null(), |values| values.as_ptr())
    }
}

const OF_LOGITS: [c_int; 4] = [
    LLAMA_SIEVE_ERROR_NULL,
    LLAMA_SIEVE_ERROR_SIZE,
    LLAMA_SIEVE_ERROR_NO_CANDIDATE,
    LLAMA_SIEVE_ERROR_BUSY,
];

impl World {
    fn run(mut self, calls: &[Call]) {
        for call in calls.iter().take(MOST_CALLS) {
            // SAFETY: `World` keeps only live objects, and NULL is documented everywhere it is
            // passed.
            unsafe { self.call(call) };
        }
        // SAFETY: as above.
        unsafe { self.free_all() };
    }

    /// # Safety
    /// All objects live.
    unsafe fn free_all(self) {
        // SAFETY: the caller says so; each is freed once.
        unsafe {
            self.samplers
                .iter()
                .for_each(|smp| sys::llama_sampler_free(smp.ptr.cast()));
            self.sieves
                .iter()
                .for_each(|&sieve| llama_sieve_free(sieve));
            self.ppls.iter().for_each(|&ppl| llama_sieve_ppl_free(ppl));
            // A handle whose sampler was freed is an error, not a crash.
            for &handle in self.bound.keys() {
                eliza_inference_clear_token_trie(handle as *mut c_void);
                assert_reason();
                assert_eq!(
                    eliza_inference_bind_token_trie(handle as *mut c_void, null_mut()),
                    LLAMA_SIEVE_OK
                );
            }
        }
    }

    fn smp(&self, which: u8) -> *mut llama_sampler {
        let pointers: Vec<_> = self.samplers.iter().map(|smp| smp.ptr).collect();
        pick(&pointers, which).unwrap_or(null_mut())
    }

    fn is_trie(&self, ptr: *const llama_sampler) -> bool {
        self.samplers
            .iter()
            .any(|smp| std::ptr::eq(smp.ptr, ptr) && smp.is_trie)
    }

    fn sieve(&self, which: u8) -> *mut Handle {
        pick(&self.sieves, which).unwrap_or(null_mut())
    }

    fn ppl(&self, which: u8) -> *mut llama_sieve_ppl {
        pick(&self.ppls, which).unwrap_or(null_mut())
    }

    /// # Safety
    /// All objects live.
    unsafe fn call(&mut self, call: &Call) {
        // SAFETY: the objects live, arrays are as long as the calls are told, and strings end.
        unsafe {
            match call {
                Call::Make(maker) if self.samplers.len() < MOST_OBJECTS => self.make(maker),
                Call::Chain(members) if self.samplers.len() < MOST_OBJECTS => self.chain(members),
                Call::Make(_) | Call::Chain(_) => {}
                Call::Apply { which, array } => self.apply(*which, array),
                Call::Accept { which, token } => {
                    let smpl = self.smp(*which);
                    if !smpl.is_null() {
                        sys::llama_sampler_accept(smpl.cast(), token.0);
                    }
                }
                Call::Reset(which) => {
                    let smpl = self.smp(*which);
                    if !smpl.is_null() {
                        sys::llama_sampler_reset(smpl.cast());
                    }
                }
                Call::Clone(which) => self.clone_sampler(*which),
                Call::Copy { from, to } => {
                    let (from, to) = (self.smp(*from), self.smp(*to));
                    // The host aborts on samplers of two kinds.
                    if !from.is_null() && !to.is_null() && (*from).iface == (*to).iface {
                        let name = |smpl: *mut llama_sampler| {
                            CStr::from_ptr(sys::llama_sampler_name(smpl.cast()))
                        };
                        if name(from) != c"chain" {
                            sys::llama_sampler_copy(from.cast(), to.cast());
                        }
                    }
                }
                Call::Free(which) => self.free_sampler(*which),
                Call::TrieSet {
                    which,
                    payload,
                    mode,
                } => self.trie_set(*which, payload, mode.0),
                Call::TrieClear(which) => {
                    let smpl = self.smp(*which);
                    llama_sieve_trie_clear(smpl);
                    if self.is_trie(smpl) {
                        assert!(!llama_sieve_trie_is_active(smpl));
                        assert!(llama_sieve_trie_leaf(smpl).is_null());
                    } else {
                        assert_reason();
                    }
                }
                Call::TrieActivate { which, path } => self.trie_activate(*which, *path),
                Call::Bind { handle, slot } => self.bind(*handle, *slot),
                Call::SetByHandle {
                    handle,
                    payload,
                    mode,
                } => self.set_by_handle(*handle, payload, mode.0),
                Call::ClearByHandle(handle) => {
                    let handle = usize::from(handle % 4);
                    eliza_inference_clear_token_trie(handle as *mut c_void);
                    match self.bound.get(&handle) {
                        Some(smpl) => assert!(!llama_sieve_trie_is_active(*smpl)),
                        None => assert_reason(),
                    }
                }
                Call::CacheStats { null: true } => llama_sieve_trie_cache_stats(null_mut()),
                Call::CacheStats { null: false } => {
                    let mut stats = std::mem::zeroed::<llama_sieve_cache_stats>();
                    llama_sieve_trie_cache_stats(&mut stats);
                    let mut all = std::mem::zeroed::<llama_sieve_trie_stats>();
                    all.struct_size = size_of::<llama_sieve_trie_stats>();
                    assert_eq!(llama_sieve_trie_get_stats(&mut all), LLAMA_SIEVE_OK);
                    assert_eq!((all.hits, all.bytes), (stats.hits, stats.bytes));
                    assert!(all.reordered <= all.hits);
                    assert!(stats.entries <= 128 && stats.misses >= stats.evictions);
                }
                Call::PplNew if self.ppls.len() < MOST_OBJECTS => {
                    self.ppls.push(llama_sieve_ppl_new())
                }
                Call::PplNew => {}
                Call::PplClone(which) => {
                    let ppl = self.ppl(*which);
                    let copy = llama_sieve_ppl_clone(ppl);
                    assert_eq!(copy.is_null(), ppl.is_null());
                    if !copy.is_null() {
                        assert_eq!(llama_sieve_ppl_count(copy), llama_sieve_ppl_count(ppl));
                        self.ppls.push(copy);
                    }
                }
                Call::PplAdd(which, number) => {
                    let ppl = self.ppl(*which);
                    let before = llama_sieve_ppl_count(ppl);
                    llama_sieve_ppl_add(ppl, number.get());
                    let added = usize::from(!ppl.is_null() && !number.get().is_nan());
                    assert_eq!(llama_sieve_ppl_count(ppl), before + added);
                    assert!(
                        ppl.is_null()
                            || before + added == 0
                            || !llama_sieve_ppl_value(ppl).is_nan()
                    );
                }
                Call::PplReset(which) => {
                    let ppl = self.ppl(*which);
                    llama_sieve_ppl_reset(ppl);
                    assert_eq!(llama_sieve_ppl_count(ppl), 0);
                }
                Call::PplFree(which) => {
                    let ppl = self.ppl(*which);
                    self.ppls.retain(|&p| p != ppl);
                    llama_sieve_ppl_free(ppl);
                }
                Call::Seed(which) => {
                    llama_sieve_get_seed(self.smp(*which));
                }
                Call::Library => {
                    assert!(!llama_sieve_version().is_null() && !llama_sieve_simd().is_null());
                    assert_eq!(llama_sieve_bind_host(null_mut()), LLAMA_SIEVE_ERROR_NULL);
                    assert_reason();
                }
                Call::Certify(name) => certify(name),
                sieve => self.call_sieve(sieve),
            }
        }
    }

    /// # Safety
    /// All objects live.
    unsafe fn make(&mut self, maker: &Maker) {
        let vocab = |given: bool| if given { vocabulary().cast() } else { null() };
        let (mut is_trie, mut is_ours, mut may_fail) = (false, true, false);
        // SAFETY: the vocabulary lives as long as the process; arrays and strings live during the
        // calls.
        let ptr = unsafe {
            match maker {
                Maker::Greedy => llama_sieve_init_greedy(),
                Maker::Dist(seed) => llama_sieve_init_dist(*seed),
                Maker::TopK(k) => llama_sieve_init_top_k(k.0),
                Maker::TopP(p, keep) => llama_sieve_init_top_p(p.get(), keep.size()),
                Maker::MinP(p, keep) => llama_sieve_init_min_p(p.get(), keep.size()),
                Maker::Typical(p, keep) => llama_sieve_init_typical(p.get(), keep.size()),
                Maker::Temp(t) => llama_sieve_init_temp(t.get()),
                Maker::TopNSigma(n) => llama_sieve_init_top_n_sigma(n.get()),
                Maker::TempExt(t, d, e) => llama_sieve_init_temp_ext(t.get(), d.get(), e.get()),
                Maker::Xtc(p, t, keep, seed) => {
                    llama_sieve_init_xtc(p.get(), t.get(), keep.size(), *seed)
                }
                Maker::Mirostat(n, seed, tau, eta, m) => {
                    llama_sieve_init_mirostat(n.0, *seed, tau.get(), eta.get(), m.0)
                }
                Maker::MirostatV2(seed, tau, eta) => {
                    llama_sieve_init_mirostat_v2(*seed, tau.get(), eta.get())
                }
                Maker::Penalties(n, last, r, f, p) => {
                    llama_sieve_init_penalties(n.0, last.0, r.get(), f.get(), p.get())
                }
                Maker::Dry {
                    vocab: given,
                    numbers: (multiplier, base, allowed, last),
                    breakers,
                } => {
                    let mut texts = [c"\n".as_ptr(), null(), c"".as_ptr(), c"the LORD".as_ptr()];
                    let (pointer, n) = match breakers {
                        Some(n) => (texts.as_mut_ptr(), usize::from(n % 5)),
                        None => (null_mut(), 3),
                    };
                    llama_sieve_init_dry(
                        vocab(*given),
                        multiplier.get(),
                        base.get(),
                        allowed.0,
                        last.0,
                        pointer,
                        n,
                    )
                }
                Maker::TrieStrings {
                    vocab: given,
                    first,
                    n,
                    mode,
                } => {
                    (is_trie, may_fail) = (true, true);
                    let texts = [
                        c" Moses".as_ptr(),
                        c"\n".as_ptr(),
                        c"the LORD".as_ptr(),
                        null(),
                        c" Aaron".as_ptr(),
                        c"".as_ptr(),
                        c"\xFF".as_ptr(),
                    ];
                    let some = &texts[usize::from(*first) % texts.len()..];
                    let (pointer, n) = match n {
                        Some(n) => (some.as_ptr(), usize::from(*n) % (some.len() + 1)),
                        None => (null(), 3),
                    };
                    llama_sieve_init_trie_strings(vocab(*given), pointer, n, mode_of(mode.0))
                }
                Maker::AdaptiveP(target, decay, seed) => {
                    llama_sieve_init_adaptive_p(target.get(), decay.get(), *seed)
                }
                Maker::LogitBias {
                    biases: Some(biases),
                    n,
                } => {
                    let biases: Vec<_> = biases
                        .iter()
                        .map(|&(token, bias)| sys::llama_logit_bias {
                            token: token.into(),
                            bias: bias.value(),
                        })
                        .collect();
                    let n = n.0.min(biases.len() as i32);
                    llama_sieve_init_logit_bias(0, n, biases.as_ptr().cast())
                }
                Maker::LogitBias { biases: None, n } => llama_sieve_init_logit_bias(0, n.0, null()),
                Maker::Infill { vocab: given } => llama_sieve_init_infill(vocab(*given)),
                Maker::TailFree(z, keep) => llama_sieve_init_tail_free(z.get(), keep.size()),
                Maker::Softmax => llama_sieve_init_softmax(),
                Maker::Trie {
                    vocab: given,
                    payload,
                    mode,
                } => {
                    (is_trie, may_fail) = (true, true);
                    // As a C string it ends at the first NUL.
                    let json = payload.bytes().map(|mut bytes| {
                        bytes.retain(|&byte| byte != 0);
                        CString::new(bytes).expect("no NUL")
                    });
                    let json = json.as_ref().map_or(null(), |json| json.as_ptr());
                    llama_sampler_init_token_trie(vocab(*given), json, mode_of(mode.0))
                }
                Maker::Slot { vocab: given } => {
                    is_trie = true;
                    llama_sieve_init_trie_slot(vocab(*given))
                }
                Maker::Sieve(changes) => {
                    let params = changes.as_ref().map(|changes| CParams::new(changes));
                    let ptr = llama_sieve_init_sampler(
                        params.as_ref().map_or(null(), |p| &raw const p.raw),
                    );
                    assert_eq!(
                        ptr.is_null(),
                        !params.is_some_and(|params| params.is_valid())
                    );
                    may_fail = true;
                    ptr
                }
                Maker::BuiltIn => {
                    is_ours = false;
                    sys::llama_sampler_init_temp(0.5).cast()
                }
            }
        };
        if ptr.is_null() {
            assert!(may_fail);
            return assert_reason();
        }
        self.samplers.push(Smp {
            ptr,
            is_trie,
            is_ours,
        });
        if is_trie {
            self.query(ptr);
        }
    }

    /// Some of the samplers become members of a chain, which is the host's.
    ///
    /// # Safety
    /// All objects live.
    unsafe fn chain(&mut self, members: &[u8]) {
        // SAFETY: each member is taken over once; a chain of a chain is left out.
        unsafe {
            let chain = sys::llama_sampler_chain_init(sys::llama_sampler_chain_default_params());
            for &which in members {
                let ptr = self.smp(which);
                let Some(at) = self
                    .samplers
                    .iter()
                    .position(|smp| smp.ptr == ptr && smp.is_ours)
                else {
                    continue;
                };
                let member = self.samplers.remove(at);
                // It still lives, but what happens to it is the chain's business.
                self.bound
                    .retain(|handle, bound| *bound != member.ptr || !eliza_unbind(handle));
                sys::llama_sampler_chain_add(chain, member.ptr.cast());
            }
            self.samplers.push(Smp {
                ptr: chain.cast(),
                is_trie: false,
                is_ours: false,
            });
        }
    }

    /// # Safety
    /// All objects live.
    unsafe fn clone_sampler(&mut self, which: u8) {
        let ptr = self.smp(which);
        let Some(smp) = self.samplers.iter().find(|smp| smp.ptr == ptr) else {
            return;
        };
        if self.samplers.len() >= MOST_OBJECTS {
            return;
        }
        // SAFETY: it lives.
        let copy = unsafe { sys::llama_sampler_clone(ptr.cast()) };
        assert!(!copy.is_null());
        let copy = Smp {
            ptr: copy.cast(),
            ..*smp
        };
        self.samplers.push(copy);
    }

    /// # Safety
    /// All objects live.
    unsafe fn free_sampler(&mut self, which: u8) {
        let ptr = self.smp(which);
        self.samplers.retain(|smp| smp.ptr != ptr);
        // SAFETY: it lived, and is not used any more. NULL is allowed by the host.
        unsafe { sys::llama_sampler_free(ptr.cast()) };
        let gone: Vec<usize> = self
            .bound
            .iter()
            .filter(|(_, bound)| **bound == ptr)
            .map(|(&handle, _)| handle)
            .collect();
        for handle in gone {
            // The handle is known, but what it was bound to is no more.
            eliza_inference_clear_token_trie(handle as *mut c_void);
            assert_reason();
            self.bound.remove(&handle);
            eliza_unbind(&handle);
        }
    }

    /// # Safety
    /// All objects live.
    unsafe fn apply(&mut self, which: u8, array: &Array) {
        let ptr = self.smp(which);
        let Some(smp) = self.samplers.iter().find(|smp| smp.ptr == ptr) else {
            return;
        };
        let logits = array.logits.iter().take(200).enumerate();
        let mut data: Vec<TokenData> = logits
            .map(|(i, logit)| TokenData {
                id: i32::from(array.first_id) + i as i32 * i32::from(array.step.max(1)),
                logit: logit.value(),
                p: 0.0,
            })
            .collect();
        let n = data.len();
        let mut raw = sys::llama_token_data_array {
            data: data.as_mut_ptr().cast(),
            size: n,
            selected: i64::from(array.selected),
            sorted: array.sorted,
        };
        let selected = raw.selected;
        match array.wrong {
            Wrong::NullArray if smp.is_ours => {
                // SAFETY: NULL is an answer to ours; the host passes it through.
                unsafe { sys::llama_sampler_apply(ptr.cast(), null_mut()) };
                return assert_reason();
            }
            Wrong::NullData if smp.is_ours && n > 0 => raw.data = null_mut(),
            Wrong::HugeSize if smp.is_ours => raw.size = usize::MAX,
            // Others believe the host.
            _ if n == 0 && !smp.is_ours => return,
            _ => {}
        }
        let (size, wrong) = (raw.size, raw.data.is_null() || raw.size > n);
        // SAFETY: the sampler lives; ours check the array, and the others get a good one.
        unsafe { sys::llama_sampler_apply(ptr.cast(), &raw mut raw) };
        if wrong && n > 0 {
            assert_reason();
            assert_eq!((raw.size, raw.selected), (size, selected));
            return;
        }
        if raw.size > n {
            return assert!(wrong);
        }
        assert!(raw.size > 0 || n == 0);
    }

    fn query(&self, ptr: *mut llama_sampler) -> (bool, Option<String>, usize) {
        let mut out = [-1; 4];
        // SAFETY: NULL or live, and the buffer has room.
        unsafe {
            let active = llama_sieve_trie_is_active(ptr);
            let leaf = llama_sieve_trie_leaf(ptr);
            let leaf =
                (!leaf.is_null()).then(|| CStr::from_ptr(leaf).to_str().expect("UTF-8").to_owned());
            let forced = llama_sieve_trie_forced(ptr, out.as_mut_ptr(), out.len());
            assert_eq!(llama_sieve_trie_forced(ptr, null_mut(), usize::MAX), forced);
            assert!(out[..forced.min(4)].iter().all(|&token| token >= 0));
            assert!(active || forced == 0);
            let allowed = llama_sieve_trie_allowed(ptr, out.as_mut_ptr(), out.len());
            assert_eq!(
                llama_sieve_trie_allowed(ptr, null_mut(), usize::MAX),
                allowed
            );
            assert!(out[..allowed.min(4)].iter().all(|&token| token >= 0));
            assert_eq!(allowed > 0, active);
            if !self.is_trie(ptr) {
                assert!(!active && leaf.is_none());
                assert_reason();
            }
            (active, leaf, forced)
        }
    }

    /// # Safety
    /// All objects live.
    unsafe fn trie_set(&mut self, which: u8, payload: &Payload, mode: i32) {
        let ptr = self.smp(which);
        let before = self.query(ptr);
        let json = payload.bytes();
        let (bytes, len) = json
            .as_ref()
            .map_or((null(), 3), |json| (json.as_ptr(), json.len()));
        // SAFETY: NULL or live, NULL or `len` bytes.
        let answer = unsafe { llama_sieve_trie_set(ptr, bytes.cast(), len, mode_of(mode)) };
        let done = assert_answer(answer, &[LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_INVALID]);
        assert!(!done || self.is_trie(ptr));
        self.assert_set(ptr, done, before);
    }

    fn assert_set(
        &self,
        ptr: *mut llama_sampler,
        done: bool,
        before: (bool, Option<String>, usize),
    ) {
        let after = self.query(ptr);
        match done {
            true => assert!(after.0 && after.1.is_none()),
            false => assert_eq!(after, before),
        }
    }

    /// # Safety
    /// All objects live.
    unsafe fn trie_activate(&mut self, which: u8, path: u8) {
        let ptr = self.smp(which);
        let before = self.query(ptr);
        let path = match path % 4 {
            0 => null(),
            1 => c"path 0".as_ptr(),
            2 => c"path 1".as_ptr(),
            _ => c"\xFF".as_ptr(),
        };
        // SAFETY: NULL or live, NULL or a C string.
        let answer = unsafe { llama_sieve_trie_activate(ptr, path) };
        let errors = [
            LLAMA_SIEVE_ERROR_NULL,
            LLAMA_SIEVE_ERROR_INVALID,
            LLAMA_SIEVE_ERROR_NOT_FOUND,
        ];
        let done = assert_answer(answer, &errors);
        self.assert_set(ptr, done, before);
    }

    /// # Safety
    /// All objects live.
    unsafe fn bind(&mut self, handle: u8, slot: Option<u8>) {
        let handle = usize::from(handle % 4);
        let ptr = slot.map_or(null_mut(), |which| self.smp(which));
        // SAFETY: NULL or live; the handle is never followed.
        let answer = unsafe { eliza_inference_bind_token_trie(handle as *mut c_void, ptr) };
        let errors = [
            LLAMA_SIEVE_ERROR_NULL,
            LLAMA_SIEVE_ERROR_INVALID,
            LLAMA_SIEVE_ERROR_NOT_FOUND,
        ];
        let done = assert_answer(answer, &errors);
        if ptr.is_null() {
            assert_eq!(done, self.bound.remove(&handle).is_some());
            return;
        }
        assert_eq!(done, handle != 0 && self.is_trie(ptr));
        if done {
            self.bound.insert(handle, ptr);
        }
    }

    /// # Safety
    /// All objects live.
    unsafe fn set_by_handle(&mut self, handle: u8, payload: &Payload, mode: i32) {
        let handle = usize::from(handle % 4);
        let json = payload.bytes();
        let (bytes, len) = json
            .as_ref()
            .map_or((null(), usize::MAX), |json| (json.as_ptr(), json.len()));
        let bound = self.bound.get(&handle).copied();
        let before = bound.map(|ptr| self.query(ptr));
        // SAFETY: NULL or `len` bytes; the handle is never followed.
        unsafe {
            eliza_inference_set_token_trie(handle as *mut c_void, bytes.cast(), len, mode_of(mode))
        };
        match (bound, before) {
            (Some(ptr), Some(before)) => {
                let done = last_error().is_empty();
                self.assert_set(ptr, done, before);
            }
            _ => assert_reason(),
        }
    }

    /// # Safety
    /// All objects live.
    unsafe fn call_sieve(&mut self, call: &Call) {
        let full = self.sieves.len() >= MOST_OBJECTS;
        // SAFETY: NULL or live, and arrays are as long as the calls are told.
        unsafe {
            match call {
                Call::SieveNew(changes) if !full => {
                    let params = changes.as_ref().map(|changes| CParams::new(changes));
                    let sieve =
                        llama_sieve_new(params.as_ref().map_or(null(), |p| &raw const p.raw));
                    assert_eq!(
                        sieve.is_null(),
                        !params.is_some_and(|params| params.is_valid())
                    );
                    self.keep_sieve(sieve);
                }
                Call::SieveClone(which) if !full => {
                    let sieve = self.sieve(*which);
                    let copy = llama_sieve_clone(sieve);
                    assert_eq!(copy.is_null(), sieve.is_null());
                    self.keep_sieve(copy);
                }
                Call::SieveFree(which) => {
                    let sieve = self.sieve(*which);
                    self.sieves.retain(|&s| s != sieve);
                    llama_sieve_free(sieve);
                }
                Call::SieveReset(which) => llama_sieve_reset(self.sieve(*which)),
                Call::SieveSet { which, changes } => {
                    let sieve = self.sieve(*which);
                    let params = changes.as_ref().map(|changes| CParams::new(changes));
                    let answer = llama_sieve_set_params(
                        sieve,
                        params.as_ref().map_or(null(), |p| &raw const p.raw),
                    );
                    let done = assert_answer(
                        answer,
                        &[
                            LLAMA_SIEVE_ERROR_NULL,
                            LLAMA_SIEVE_ERROR_PARAMS,
                            LLAMA_SIEVE_ERROR_SIZE,
                        ],
                    );
                    assert_eq!(
                        done,
                        !sieve.is_null() && params.is_some_and(|params| params.is_valid())
                    );
                }
                Call::SieveAccept { which, token } => {
                    llama_sieve_accept(self.sieve(*which), token.0)
                }
                Call::Sample {
                    which,
                    logits,
                    width,
                } => {
                    let (values, n) = logits.get();
                    let sieve = self.sieve(*which);
                    let halves: Option<Vec<u16>> = values
                        .as_ref()
                        .map(|v| v.iter().map(|x| (x.to_bits() >> 16) as u16).collect());
                    let half = halves.as_ref().map_or(null(), |halves| halves.as_ptr());
                    let token = match width % 3 {
                        0 => llama_sieve_sample(sieve, Logits::pointer(&values), n),
                        1 => llama_sieve_sample_f16(sieve, half, n),
                        _ => llama_sieve_sample_bf16(sieve, half, n),
                    };
                    assert_count(token, &OF_LOGITS);
                    assert!(token < n.max(0));
                    if !sieve.is_null() && n > 0 && values.is_some() {
                        assert_eq!(token >= 0, llama_sieve_candidates(sieve, null_mut(), 0) > 0);
                    }
                }
                Call::SampleCtx { which } => {
                    assert_eq!(
                        llama_sieve_sample_ctx(self.sieve(*which), null_mut(), -1),
                        LLAMA_SIEVE_ERROR_NULL
                    );
                    assert_reason();
                }
                Call::Batch {
                    which,
                    logits,
                    threads,
                } => self.batch(which, logits, *threads),
                Call::Candidates { which, cap } => {
                    let sieve = self.sieve(*which);
                    let mut out = vec![
                        TokenData {
                            id: -7,
                            ..TokenData::default()
                        };
                        usize::from(*cap)
                    ];
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
                        assert!(counts.is_sorted_by(|a, b| a >= b), "{stats:?}");
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
                Call::Top { logits, n, null } => {
                    let (values, n_vocab) = logits.get();
                    let n = n.0.min(500);
                    let mut out = vec![
                        TokenData {
                            id: -7,
                            ..TokenData::default()
                        };
                        usize::try_from(n).unwrap_or(0)
                    ];
                    let pointer = if *null { null_mut() } else { out.as_mut_ptr() };
                    let written =
                        llama_sieve_top_candidates(Logits::pointer(&values), n_vocab, n, pointer);
                    assert_count(written, &OF_LOGITS);
                    let count = usize::try_from(written).unwrap_or(0);
                    assert!(out[..count].iter().all(|c| (0..n_vocab).contains(&c.id)));
                    assert!(out[count..].iter().all(|c| c.id == -7));
                    assert!(out[..count].is_sorted_by(|a, b| a.logit >= b.logit));
                }
                Call::Greedy(logits) => {
                    let (values, n) = logits.get();
                    let token = llama_sieve_greedy(Logits::pointer(&values), n);
                    assert_count(token, &OF_LOGITS);
                    let mut best = None;
                    for (i, &x) in values
                        .iter()
                        .flatten()
                        .enumerate()
                        .filter(|(i, _)| (*i as i32) < n)
                    {
                        if x > best.map_or(f32::NEG_INFINITY, |(_, best)| best) {
                            best = Some((i as i32, x));
                        }
                    }
                    assert_eq!(best.map(|(i, _)| i), (token >= 0).then_some(token));
                }
                Call::Metrics {
                    logits,
                    token,
                    base,
                } => metrics(logits, token.0, i32::from(*base % 4)),
                Call::GetParams { which, wrong_size } => {
                    let sieve = self.sieve(*which);
                    let mut seen = llama_sieve_default_params();
                    seen.struct_size += usize::from(*wrong_size);
                    let answer = llama_sieve_get_params(sieve, &mut seen);
                    let errors = [LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_PARAMS];
                    if assert_answer(answer, &errors) {
                        // What is seen can be set, and changes nothing.
                        assert_eq!(llama_sieve_set_params(sieve, &seen), LLAMA_SIEVE_OK);
                    }
                }
                Call::Ask {
                    which,
                    token,
                    logit,
                    cap,
                } => ask(self.sieve(*which), token.0, logit.get(), (*cap).into()),
                Call::LoadWith {
                    which,
                    damage,
                    options,
                } => self.load_with(*which, *damage, i32::from(*options % 3)),
                Call::Reserve { which, n } => {
                    let sieve = self.sieve(*which);
                    let answer = llama_sieve_reserve(sieve, n.0.min(5000));
                    let done = assert_answer(
                        answer,
                        &[LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_SIZE],
                    );
                    assert_eq!(done, !sieve.is_null() && n.0 > 0);
                }
                Call::OfSampler(which) => {
                    let sieve = llama_sieve_of_sampler(self.smp(*which));
                    if sieve.is_null() {
                        assert_reason();
                    } else {
                        assert_eq!(last_error(), "");
                        ask(sieve, 3, 0.5, 4);
                        // Not the caller's: it stays.
                        llama_sieve_free(sieve);
                        assert!(llama_sieve_state_size(sieve) > 0);
                    }
                }
                _ => {}
            }
        }
    }

    /// # Safety
    /// All objects live.
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

    fn keep_sieve(&mut self, sieve: *mut Handle) {
        match sieve.is_null() {
            true => assert_reason(),
            false => {
                assert_eq!(last_error(), "");
                self.sieves.push(sieve);
            }
        }
    }

    /// # Safety
    /// All objects live.
    unsafe fn batch(&mut self, which: &[u8], logits: &Logits, threads: u8) {
        let (values, n) = logits.get();
        let sieves: Vec<*mut Handle> = which
            .iter()
            .take(6)
            .map(|&which| self.sieve(which))
            .collect();
        let arrays = vec![Logits::pointer(&values); sieves.len()];
        let mut out = vec![-77; sieves.len()];
        // SAFETY: sieves are NULL or live, the arrays have as many elements as the call is told.
        let answer = unsafe {
            llama_sieve_sample_batch(
                sieves.as_ptr(),
                arrays.as_ptr(),
                n,
                sieves.len(),
                out.as_mut_ptr(),
                i32::from(threads % 3),
            )
        };
        assert_count(answer, &OF_LOGITS);
        let untouched = out.iter().all(|&token| token == -77);
        let mut distinct = sieves.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let wrong = distinct.len() < sieves.len()
            || sieves.contains(&null_mut())
            || values.is_none()
            || n <= 0;
        assert!(wrong == untouched || sieves.is_empty());
        if wrong && !sieves.is_empty() {
            assert!(answer < 0);
        } else {
            assert!(out.iter().all(|&token| (-11..n.max(0)).contains(&token)));
            let first = out.iter().find(|&&token| token < 0);
            assert_eq!(answer, first.copied().unwrap_or(0));
        }
    }
}

/// Mostly the modes that there are.
fn mode_of(mode: i32) -> i32 {
    match mode {
        0..200 => [0, 1, 0x100, 0x101, 0x200, 0x201, 0x300, 0x301][mode as usize % 8],
        _ => mode,
    }
}

/// Takes a handle out that was bound; always true.
fn eliza_unbind(handle: &usize) -> bool {
    // SAFETY: NULL takes the handle out, which is never followed.
    let answer = unsafe { eliza_inference_bind_token_trie(*handle as *mut c_void, null_mut()) };
    assert_eq!(answer, LLAMA_SIEVE_OK);
    true
}

fn metrics(logits: &Logits, token: i32, base: i32) {
    let (values, n) = logits.get();
    let data: Vec<TokenData> = values
        .iter()
        .flatten()
        .enumerate()
        .map(|(i, &logit)| TokenData {
            id: i as i32,
            logit,
            p: 0.0,
        })
        .collect();
    let candidates = if values.is_some() {
        data.as_ptr()
    } else {
        null()
    };
    // SAFETY: NULL or as many elements as the calls are told.
    let (entropy, surprisal) = unsafe {
        (
            llama_sieve_entropy(Logits::pointer(&values), n, base),
            llama_sieve_surprisal(Logits::pointer(&values), n, token, base),
        )
    };
    let defined = values
        .iter()
        .flatten()
        .take(n.max(0) as usize)
        .any(|&x| x > f32::NEG_INFINITY)
        && n > 0;
    let good_base = base == 0 || base == 2;
    assert_eq!(!entropy.is_nan(), defined && good_base);
    assert!(entropy.is_nan() || entropy >= 0.0 && entropy <= (n as f32).log2() * 1.0001 + 1e-6);
    assert_eq!(
        !surprisal.is_nan(),
        defined && good_base && (0..n).contains(&token)
    );
    assert!(surprisal.is_nan() || surprisal >= 0.0, "{surprisal}");
    if entropy.is_nan() {
        assert_reason();
    }
    // SAFETY: as above.
    unsafe {
        let size = if values.is_some() { data.len() } else { 3 };
        llama_sieve_candidates_surprisal(candidates, size, token, base);
        let of_candidates = llama_sieve_candidates_entropy(candidates, size, base);
        if n > 0 && size == n as usize {
            assert!(of_candidates.is_nan() == entropy.is_nan());
        }
    }
}
