//! Helpers that the differential tests share: a handle for samplers of both sides, candidate
//! arrays, their generator, and the comparison.
#![allow(dead_code, unused_imports, unused_macros)] // Each test binary uses its part.

pub mod arrays;
pub mod compare;
pub mod family;
pub mod orders;
pub mod sizes;
pub mod span;
pub mod straight;

use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::mem::ManuallyDrop;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use llama_sieve::ffi::bans::{llama_sieve_init_ban_strings, llama_sieve_init_ban_strings_bias};
use llama_sieve::ffi::chain::llama_sieve_chain_sample_logits;
use llama_sieve::ffi::samplers::llama_sieve_init_logit_bias;
use vendor_llama_cpp::sys;

pub use arrays::{Array, Grid, Rng};

/// A sampler, of this library or built-in, that is called through the host's functions.
pub struct HostSampler(*mut sys::llama_sampler);

impl HostSampler {
    /// Takes ownership of a sampler that a constructor of either side has returned.
    pub fn new<T>(smpl: *mut T) -> Self {
        assert!(
            !smpl.is_null(),
            "constructor gave NULL: {}",
            llama_sieve::last_error::get()
        );
        Self(smpl.cast())
    }

    pub fn chain(members: Vec<HostSampler>) -> Self {
        // SAFETY: a constructor without preconditions.
        unsafe {
            let chain = sys::llama_sampler_chain_init(sys::llama_sampler_chain_default_params());
            let chain = Self(chain);
            for member in members {
                chain.add(member);
            }
            chain
        }
    }

    /// Adds `member`, which the chain then owns.
    pub fn add(&self, member: HostSampler) {
        // SAFETY: this is a chain.
        unsafe { sys::llama_sampler_chain_add(self.0, member.into_raw()) };
    }

    /// Removes member `i` from this chain, and returns it.
    pub fn remove(&self, i: usize) -> HostSampler {
        // SAFETY: this is a chain; the member is the caller's now.
        Self::new(unsafe { sys::llama_sampler_chain_remove(self.0, i as i32) })
    }

    pub fn as_ptr(&self) -> *mut sys::llama_sampler {
        self.0
    }

    pub fn into_raw(self) -> *mut sys::llama_sampler {
        let smpl = self.0;
        std::mem::forget(self);
        smpl
    }

    pub fn name(&self) -> String {
        // SAFETY: the sampler lives; names are C strings that live as long.
        let name = unsafe { CStr::from_ptr(sys::llama_sampler_name(self.0)) };
        name.to_string_lossy().into_owned()
    }

    /// Applies only member `i` of this chain.
    pub fn apply_member(&self, i: usize, array: &mut Array) {
        // SAFETY: this is a chain, which owns the member, and has that many.
        let member = unsafe { sys::llama_sampler_chain_get(self.0, i as i32) };
        ManuallyDrop::new(Self::new(member)).apply(array);
    }

    pub fn apply(&self, array: &mut Array) {
        let mut raw = sys::llama_token_data_array {
            data: array.data.as_mut_ptr(),
            size: array.data.len(),
            selected: array.selected,
            sorted: array.sorted,
        };
        // SAFETY: the sampler lives, the array is valid.
        unsafe { sys::llama_sampler_apply(self.0, &raw mut raw) };
        // XTC moves the beginning of the array instead of its elements.
        // SAFETY: both pointers are into the array.
        let dropped = unsafe { raw.data.offset_from(array.data.as_mut_ptr()) };
        array
            .data
            .drain(..usize::try_from(dropped).expect("not before the array"));
        array.data.truncate(raw.size);
        array.selected = raw.selected;
        array.sorted = raw.sorted;
    }

    pub fn accept(&self, token: i32) {
        // SAFETY: the sampler lives.
        unsafe { sys::llama_sampler_accept(self.0, token) };
    }

    pub fn reset(&self) {
        // SAFETY: the sampler lives.
        unsafe { sys::llama_sampler_reset(self.0) };
    }

    pub fn copy_from(&self, src: &HostSampler) {
        // SAFETY: both live.
        unsafe { sys::llama_sampler_copy(src.0, self.0) };
    }

    /// Applies this chain to the logits, rounded to `grid`, and accepts the selected token. Returns
    /// that token, and the array that the chain left.
    pub fn sample_from(&self, logits: &[f32], grid: Grid) -> (i32, Array) {
        let mut array = Array::of_logits(logits.iter().map(|&logit| grid.round(logit)));
        self.apply(&mut array);
        let token = array.chosen().id;
        self.accept(token);
        (token, array)
    }

    /// Returns the token that this chain selects straight from the logits, or an error.
    pub fn sample_logits(&self, logits: &[f32]) -> i32 {
        let (chain, n) = (self.0.cast(), logits.len() as i32);
        // SAFETY: a live chain and `n` logits.
        unsafe { llama_sieve_chain_sample_logits(chain, logits.as_ptr(), n) }
    }

    pub fn sample(&self, ctx: *mut sys::llama_context) -> i32 {
        // SAFETY: the sampler and the context live, and the context has logits.
        unsafe { sys::llama_sampler_sample(self.0, ctx, -1) }
    }
}

impl Clone for HostSampler {
    fn clone(&self) -> Self {
        // SAFETY: the sampler lives.
        Self::new(unsafe { sys::llama_sampler_clone(self.0) })
    }
}

impl Drop for HostSampler {
    fn drop(&mut self) {
        // SAFETY: owned by this handle alone.
        unsafe { sys::llama_sampler_free(self.0) };
    }
}

/// Returns a sampler that bans texts or patterns, or adds a bias to texts.
pub fn ban_strings(
    vocab: *const sys::llama_vocab,
    texts: &[impl AsRef<[u8]>],
    flags: u32,
    bias: Option<f32>,
) -> HostSampler {
    let texts = texts.iter().map(|text| CString::new(text.as_ref()));
    let texts: Vec<CString> = texts.map(|text| text.expect("no NUL")).collect();
    let pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
    let (vocab, strings, n) = (vocab.cast(), pointers.as_ptr(), pointers.len());
    // SAFETY: a live vocabulary, and as many strings as the calls are told.
    HostSampler::new(unsafe {
        match bias {
            Some(bias) => llama_sieve_init_ban_strings_bias(vocab, strings, n, flags, bias),
            None => llama_sieve_init_ban_strings(vocab, strings, n, flags),
        }
    })
}

/// Returns both sides of a logit bias.
pub fn logit_biases(n_vocab: i32, biases: &[(i32, f32)]) -> [HostSampler; 2] {
    let biases = biases.iter();
    let to_host = |&(token, bias): &(i32, f32)| sys::llama_logit_bias { token, bias };
    let biases: Vec<_> = biases.map(to_host).collect();
    let (n, first) = (biases.len() as i32, biases.as_ptr());
    // SAFETY: `n` biases, copied by both.
    unsafe {
        [
            HostSampler::new(llama_sieve_init_logit_bias(n_vocab, n, first.cast())),
            HostSampler::new(sys::llama_sampler_init_logit_bias(n_vocab, n, first)),
        ]
    }
}

/// Calls a constructor of both sides with the same arguments.
macro_rules! both {
    ($ours:ident, $theirs:ident $(; $($argument:expr),*)?) => {
        [
            $crate::support::HostSampler::new(
                llama_sieve::ffi::samplers::$ours($($($argument),*)?)
            ),
            // SAFETY: a constructor without preconditions.
            $crate::support::HostSampler::new(unsafe {
                vendor_llama_cpp::sys::$theirs($($($argument),*)?)
            }),
        ]
    };
}
pub(crate) use both;

/// Returns a lock that a test holds while it sets, limits or measures something of the whole
/// process, since the tests of a binary otherwise run in parallel.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A failed test leaves no state that other tests rely on.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number in an environment variable, or `default`.
pub fn number_from_env(name: &str, default: usize) -> usize {
    let Ok(text) = std::env::var(name) else {
        return default;
    };
    text.parse()
        .unwrap_or_else(|_| panic!("{name}={text} is not a number"))
}

/// The seed of this run: a new one, or that of LLAMA_SIEVE_TEST_SEED. It is printed even by tests
/// that pass, whose output is otherwise not shown.
static RUN_SEED: LazyLock<u64> = LazyLock::new(|| {
    let fresh = RandomState::new().build_hasher().finish() as u32 as usize;
    let seed = number_from_env("LLAMA_SIEVE_TEST_SEED", fresh);
    let told = writeln!(std::io::stderr(), "LLAMA_SIEVE_TEST_SEED={seed}");
    told.expect("stderr is open");
    seed as u64
});

/// Returns a generator for the test `name`, whose numbers differ from run to run.
pub fn fresh_rng(name: &str) -> Rng {
    let mix = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    Rng(name.bytes().fold(*RUN_SEED, mix))
}

/// Returns the setting of the environment variable that repeats this run.
pub fn replay() -> String {
    format!("LLAMA_SIEVE_TEST_SEED={}", *RUN_SEED)
}

/// Returns the path of the repository's trained model. The crate in fuzz/ uses it, too.
pub fn trained_model() -> std::path::PathBuf {
    let folders = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut models = folders.map(|folder| folder.join("models/kjv-tiny.gguf"));
    models
        .find(|model| model.exists())
        .expect("the repository has its model")
}
