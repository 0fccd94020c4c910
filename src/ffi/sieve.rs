//! The sieve for C: `struct llama_sieve` ([`Handle`]), from parameters to the batch, and the sieve
//! as one sampler of a chain.

use std::ffi::c_int;

use half::slice::HalfBitsSliceExt;
use half::{bf16, f16};
use parking_lot::{Mutex, MutexGuard};

use crate::ffi::failure::{Failure, answer, made, usable, value};
use crate::ffi::guard::{Payload, attempt, guard, report};
use crate::ffi::host::{Host, host_function};
use crate::ffi::host_vocabulary::llama_vocab;
use crate::ffi::library::{
    LLAMA_SIEVE_ERROR_BUSY, LLAMA_SIEVE_ERROR_NO_HOST, LLAMA_SIEVE_ERROR_NO_LOGITS,
    LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_PARAMS, LLAMA_SIEVE_ERROR_SIZE,
    LLAMA_SIEVE_ERROR_STATE, LLAMA_SIEVE_OK,
};
use crate::ffi::llama_h::{llama_context, llama_logit_bias, llama_model, llama_sampler};
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::log;
use crate::memory::{reserve_exact, room};
use crate::sieve::{
    self, Logits, Method, Mode, Order, Params, RngKind, Sieve, SieveSampler, Stats,
};
use crate::simd;
use crate::token::{Token, TokenData};

/// The sieve as one sampler of a chain.
pub(super) static SIEVE: Vtable = vtable::<SieveSampler>();

/// Mode: the quickest arithmetic.
pub const LLAMA_SIEVE_MODE_FAST: i32 = 0;
/// Mode: what llama.cpp's chain of built-in samplers gives.
pub const LLAMA_SIEVE_MODE_PARITY: i32 = 1;
/// Generator: xoroshiro128+, seeded through SplitMix64.
pub const LLAMA_SIEVE_RNG_XOROSHIRO128PLUS: i32 = 0;
/// Generator: std::mt19937, llama.cpp's stream; takes the lower 32 bits of the seed.
pub const LLAMA_SIEVE_RNG_MT19937: i32 = 1;
/// Generator: none, but a hash of the seed and the number of accepted tokens, so that a position
/// can be replayed alone.
pub const LLAMA_SIEVE_RNG_POSITION: i32 = 2;
/// Draw: the inverse of the cumulative distribution.
pub const LLAMA_SIEVE_METHOD_CDF: i32 = 0;
/// Draw: the largest of logit / temperature + Gumbel noise.
pub const LLAMA_SIEVE_METHOD_GUMBEL: i32 = 1;
/// Temperature after all filters (tsampler, llama.cpp's default chain).
pub const LLAMA_SIEVE_ORDER_TEMP_LAST: i32 = 0;
/// Temperature right after the penalties (Akunu, transformers, vLLM).
pub const LLAMA_SIEVE_ORDER_TEMP_FIRST: i32 = 1;

/// A sampler of one sequence over raw logits. Made by llama_sieve_new, owned by the caller, used by
/// one thread at a time: a second one gets LLAMA_SIEVE_ERROR_BUSY.
#[derive(Debug)]
pub struct Handle {
    /// None after a call that panicked.
    state: Mutex<Option<Sieve>>,
}

/// The parameters of a sieve. Begin with llama_sieve_default_params, which fills struct_size, too.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct llama_sieve_params {
    /// sizeof(llama_sieve_params) of the caller. Another one than this library knows is an error.
    pub struct_size: usize,
    /// Divides the logits. Default 0.8; 1 changes nothing; below 0.001: the most probable token,
    /// without a draw, bias and penalties still applied.
    pub temperature: f32,
    /// Keeps that many of the largest logits. Default 40; disabled by <= 0; 1: the most probable
    /// token.
    pub top_k: i32,
    /// Keeps the fewest most probable tokens whose probabilities reach it. Default 0.95; disabled
    /// by >= 1; <= 0 keeps the most probable.
    pub top_p: f32,
    /// Keeps the tokens whose probability is at least this times the largest. Default 0.05;
    /// disabled by <= 0.
    pub min_p: f32,
    /// Keeps the tokens whose surprisal is nearest to the entropy until they exceed this
    /// probability. Default 1; disabled by >= 1.
    pub typical_p: f32,
    /// Keeps the logits within that many standard deviations of the largest. Default -1; disabled
    /// by <= 0.
    pub top_n_sigma: f32,
    /// Typical, top-p and min-p leave at least that many. Default 1.
    pub min_keep: usize,
    /// How many of the last accepted tokens are penalised. Default 64; disabled by <= 0.
    pub penalty_last_n: i32,
    /// Divides logits above 0, multiplies the others. Default 1.1; 1 disables; must be above 0.
    pub penalty_repeat: f32,
    /// Subtracted once per occurrence. Default 0, which disables.
    pub penalty_freq: f32,
    /// Subtracted once. Default 0, which disables.
    pub penalty_present: f32,
    /// Seed; 0xFFFFFFFF (LLAMA_DEFAULT_SEED), the default: a random one, another at each reset.
    pub seed: u64,
    /// LLAMA_SIEVE_MODE_*. Default FAST.
    pub mode: i32,
    /// LLAMA_SIEVE_RNG_*. Default XOROSHIRO128PLUS.
    pub rng: i32,
    /// LLAMA_SIEVE_METHOD_*. Default CDF.
    pub method: i32,
    /// LLAMA_SIEVE_ORDER_*. Default TEMP_LAST.
    pub order: i32,
    /// n_bias pairs of token and bias, added to the logits before the penalties; copied. Minus
    /// infinity bans a token. Default NULL.
    pub bias: *const llama_logit_bias,
    /// Default 0.
    pub n_bias: usize,
}

/// What the stages made of the last token's distribution. The caller sets struct_size.
///
/// The counts are of candidates with a probability left after each stage; they never rise.
/// Entropies and surprisal are in nats, and NaN unless llama_sieve_measure asked for them.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct llama_sieve_stats {
    /// sizeof(llama_sieve_stats) of the caller.
    pub struct_size: usize,
    /// Entropy of the raw logits.
    pub model_entropy: f32,
    /// Surprisal of the chosen token in the raw logits' distribution.
    pub surprisal: f32,
    /// Entropy of the distribution that was drawn from.
    pub sampling_entropy: f32,
    /// Size of the vocabulary.
    pub n_vocab: i32,
    /// Candidates after top-k.
    pub after_top_k: i32,
    /// Candidates after typical.
    pub after_typical: i32,
    /// Candidates after top-p.
    pub after_top_p: i32,
    /// Candidates after min-p.
    pub after_min_p: i32,
    /// Candidates after top-n-sigma, which are drawn from.
    pub after_top_n_sigma: i32,
}

impl Handle {
    fn boxed(sieve: Sieve) -> *mut Self {
        Box::into_raw(Box::new(Self {
            state: Mutex::new(Some(sieve)),
        }))
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<Sieve>>, Failure> {
        self.state.try_lock().ok_or_else(|| {
            let text = "the sieve is in use by another thread, or twice in one call; give each its own (llama_sieve_clone)";
            Failure::new(LLAMA_SIEVE_ERROR_BUSY, text)
        })
    }

    /// As another thread would have it that uses it.
    #[cfg(test)]
    pub(super) fn take_for_a_test(&self) -> impl Drop + '_ {
        self.state.lock()
    }

    fn enter(&self) -> Result<MutexGuard<'_, Option<Sieve>>, Failure> {
        let state = self.lock()?;
        if state.is_none() {
            return Err(out_of_use());
        }
        Ok(state)
    }
}

/// # Safety
/// `sieve` is NULL or alive.
unsafe fn handle<'a>(sieve: *const Handle) -> Result<&'a Handle, Failure> {
    usable("the sieve", sieve)?;
    // SAFETY: not NULL, and the caller guarantees that it is alive; its state is behind a lock.
    Ok(unsafe { &*sieve })
}

/// # Safety
/// `sieve` is NULL or alive.
unsafe fn entered<'a>(sieve: *const Handle) -> Result<MutexGuard<'a, Option<Sieve>>, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(sieve) }?.enter()
}

fn out_of_use() -> Failure {
    let text = "the sieve failed earlier and is out of use; make a new one";
    Failure::new(LLAMA_SIEVE_ERROR_BUSY, text)
}

/// Lets `body` look at the sieve, which stays in use whatever comes of that.
///
/// # Safety
/// `sieve` is NULL or alive.
unsafe fn look<T>(
    function: &str,
    sieve: *const Handle,
    body: impl FnOnce(&Sieve) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // SAFETY: the caller guarantees the sieve.
    let state = unsafe { entered(sieve) }?;
    let inner = state.as_ref().ok_or_else(out_of_use)?;
    guard(function, || Err(Failure::caught()), || body(inner))
}

/// Runs `body` on the sieve. After a panic the sieve is out of use: what it holds may be
/// inconsistent.
///
/// # Safety
/// `sieve` is NULL or alive.
unsafe fn with<T>(
    function: &str,
    sieve: *const Handle,
    body: impl FnOnce(&mut Sieve) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // SAFETY: the caller guarantees the sieve.
    let mut state = unsafe { entered(sieve) }?;
    let inner = state.as_mut().ok_or_else(out_of_use)?;
    match guard(function, || None, || Some(body(inner))) {
        Some(result) => result,
        None => {
            guard(function, || (), || *state = None);
            Err(Failure::caught())
        }
    }
}

fn one_of<T: Copy>(name: &str, number: i32, values: &[T]) -> Result<T, Failure> {
    let value = usize::try_from(number).ok().and_then(|i| values.get(i));
    value.copied().ok_or_else(|| {
        let last = values.len() - 1;
        let text = format!("{name} is {number}; it goes from 0 to {last}");
        Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text)
    })
}

/// Each struct has had one size so far. The first time that one grows, its older size becomes
/// known, too, and what such a caller does not have gets its default. A larger size stays an error:
/// what its caller asks for beyond the known members could not be done.
fn check_struct_size(name: &str, given: usize, known: usize) -> Result<(), Failure> {
    if given == known {
        return Ok(());
    }
    let text = format!(
        "struct_size of {name} is {given}; this library knows {known} (set it to sizeof({name}))"
    );
    Err(Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text))
}

/// # Safety
/// `params` is NULL or begins with a readable struct_size, behind which are that many bytes; `bias`
/// in it is NULL or `n_bias` elements.
unsafe fn params_of(params: *const llama_sieve_params) -> Result<Params, Failure> {
    usable("params", params)?;
    // SAFETY: not NULL, and the caller guarantees the first member.
    let size = unsafe { (&raw const (*params).struct_size).read() };
    check_struct_size("llama_sieve_params", size, size_of::<llama_sieve_params>())?;
    // SAFETY: the size is that of the whole struct, whose members are plain numbers and a pointer.
    let c = unsafe { params.read() };
    Ok(Params {
        temperature: c.temperature,
        top_k: c.top_k,
        top_p: c.top_p,
        min_p: c.min_p,
        typical_p: c.typical_p,
        top_n_sigma: c.top_n_sigma,
        min_keep: c.min_keep,
        penalty_last_n: c.penalty_last_n,
        penalty_repeat: c.penalty_repeat,
        penalty_freq: c.penalty_freq,
        penalty_present: c.penalty_present,
        seed: c.seed,
        mode: one_of("mode", c.mode, &[Mode::Fast, Mode::Parity])?,
        rng: one_of(
            "rng",
            c.rng,
            &[
                RngKind::Xoroshiro128Plus,
                RngKind::Mt19937,
                RngKind::Position,
            ],
        )?,
        method: one_of("method", c.method, &[Method::Cdf, Method::Gumbel])?,
        order: one_of("order", c.order, &[Order::TempLast, Order::TempFirst])?,
        // SAFETY: the caller guarantees the biases.
        bias: unsafe { biases(c.bias, c.n_bias) }?,
    })
}

/// # Safety
/// `bias` is NULL or `n` elements.
unsafe fn biases(bias: *const llama_logit_bias, n: usize) -> Result<Vec<(Token, f32)>, Failure> {
    if n == 0 {
        return Ok(Vec::new());
    }
    usable("bias, with n_bias above 0,", bias)?;
    if n > Token::MAX as usize {
        let text = format!("n_bias is {n}, more than there are tokens");
        return Err(Failure::new(LLAMA_SIEVE_ERROR_SIZE, text));
    }
    // SAFETY: the caller guarantees the elements.
    let biases = unsafe { std::slice::from_raw_parts(bias, n) };
    room(0)?;
    let mut pairs = Vec::new();
    reserve_exact(&mut pairs, n)?;
    pairs.extend(biases.iter().map(|b| (b.token, b.bias)));
    Ok(pairs)
}

/// # Safety
/// `logits` is NULL or `n_vocab` elements that nobody writes during `'a`.
unsafe fn logits_of<'a, T>(logits: *const T, n_vocab: i32) -> Result<&'a [T], Failure> {
    let n = usize::try_from(n_vocab).ok().filter(|&n| n > 0);
    let n = n.ok_or_else(|| {
        Failure::new(
            LLAMA_SIEVE_ERROR_SIZE,
            format!("n_vocab is {n_vocab}; it must be above 0"),
        )
    })?;
    usable("logits", logits)?;
    // SAFETY: the caller guarantees the elements; NULL and alignment were checked.
    Ok(unsafe { std::slice::from_raw_parts(logits, n) })
}

/// The defaults: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, penalty_repeat 1.1 over 64
/// tokens, everything else off; a random seed; FAST, xoroshiro128+, CDF, temperature last.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_default_params() -> llama_sieve_params {
    guard("llama_sieve_default_params", defaults, defaults)
}

fn defaults() -> llama_sieve_params {
    let p = Params::default();
    llama_sieve_params {
        struct_size: size_of::<llama_sieve_params>(),
        temperature: p.temperature,
        top_k: p.top_k,
        top_p: p.top_p,
        min_p: p.min_p,
        typical_p: p.typical_p,
        top_n_sigma: p.top_n_sigma,
        min_keep: p.min_keep,
        penalty_last_n: p.penalty_last_n,
        penalty_repeat: p.penalty_repeat,
        penalty_freq: p.penalty_freq,
        penalty_present: p.penalty_present,
        seed: p.seed,
        mode: LLAMA_SIEVE_MODE_FAST,
        rng: LLAMA_SIEVE_RNG_XOROSHIRO128PLUS,
        method: LLAMA_SIEVE_METHOD_CDF,
        order: LLAMA_SIEVE_ORDER_TEMP_LAST,
        bias: std::ptr::null(),
        n_bias: 0,
    }
}

/// A sieve without history, to be freed with llama_sieve_free. NULL, and an error text, if `params`
/// is NULL, of an unknown struct_size, or has a parameter that is not finite, of an unknown
/// enumeration, or out of its range (penalty_repeat <= 0, a bias that is NaN).
///
/// # Safety
/// `params` is NULL or as long as its struct_size says; its bias is NULL or n_bias elements, which
/// are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_new(params: *const llama_sieve_params) -> *mut Handle {
    made("llama_sieve_new", || {
        // SAFETY: the caller guarantees the parameters.
        let params = unsafe { params_of(params) }?;
        let sieve = Sieve::new(&params)?;
        Ok(Handle::boxed(sieve))
    })
}

/// A second sieve that goes on as this one would: the same parameters, history and generator. To be
/// freed by itself. NULL for NULL and for a sieve in use.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_clone(sieve: *const Handle) -> *mut Handle {
    made("llama_sieve_clone", || {
        // SAFETY: the caller guarantees the sieve.
        let copy = unsafe { look("llama_sieve_clone", sieve, |sieve| Ok(sieve.clone())) }?;
        Ok(Handle::boxed(copy))
    })
}

/// Frees the sieve. NULL is allowed. A sieve in use by another thread is not freed: an error is
/// logged, and its memory is leaked.
///
/// # Safety
/// `sieve` is NULL or came from llama_sieve_new or llama_sieve_clone, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_free(sieve: *mut Handle) {
    guard(
        "llama_sieve_free",
        || (),
        || {
            if sieve.is_null() {
                return;
            }
            // SAFETY: the caller guarantees that it is one of ours; its state is behind a lock.
            let Ok(state) = (unsafe { handle(sieve) }).and_then(Handle::lock) else {
                return log::error(
                    "llama_sieve_free: the sieve is in use by another thread, or no sieve; its \
                     memory is leaked, not pulled away",
                );
            };
            // Locked for good, so that nobody else gets it between here and its end.
            std::mem::forget(state);
            // SAFETY: as above, and nobody uses it any more.
            drop(unsafe { Box::from_raw(sieve) });
        },
    )
}

/// Back to the beginning: no history, the generator at its seed. Parameters and buffers stay.
///
/// # Safety
/// `sieve` is NULL (an error) or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_reset(sieve: *mut Handle) {
    value("llama_sieve_reset", (), || {
        let reset = |sieve: &mut Sieve| {
            sieve.reset();
            Ok(())
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { with("llama_sieve_reset", sieve, reset) }
    })
}

/// Other parameters from the next token on; history and generator stay. Another rng begins its
/// stream at seed; a new seed of the same rng takes effect at llama_sieve_reset; a smaller
/// penalty_last_n keeps the newest tokens. Allocates nothing if there is no bias.
///
/// LLAMA_SIEVE_OK, or a negative error; then the old parameters stay.
///
/// # Safety
/// `sieve` is NULL or alive; `params` as for llama_sieve_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_set_params(
    sieve: *mut Handle,
    params: *const llama_sieve_params,
) -> c_int {
    answer("llama_sieve_set_params", || {
        // SAFETY: the caller guarantees sieve and parameters.
        unsafe {
            let params = params_of(params)?;
            with("llama_sieve_set_params", sieve, |sieve| {
                sieve.set_params(&params)?;
                Ok(LLAMA_SIEVE_OK)
            })
        }
    })
}

/// Takes note of a token that has become part of the text, chosen by the sieve or not. A negative
/// one, such as an error of llama_sieve_sample, is not taken, and llama_sieve_last_error says so;
/// that a token is in the vocabulary is not checked.
///
/// # Safety
/// `sieve` is NULL (an error) or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_accept(sieve: *mut Handle, token: Token) {
    value("llama_sieve_accept", (), || {
        let accept = |sieve: &mut Sieve| {
            if token < 0 {
                return Err(Failure::from(format!("{token} is no token")));
            }
            sieve.accept(token);
            Ok(())
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { with("llama_sieve_accept", sieve, accept) }
    })
}

/// Chooses the next token of `n_vocab` raw logits, which are only read. The token is not accepted:
/// tell llama_sieve_accept.
///
/// NaN counts as minus infinity, a banned token; plus infinity wins (of several, the first).
/// Returns the token, 0 or above, or: LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_SIZE (`n_vocab` <=
/// 0), LLAMA_SIEVE_ERROR_NO_CANDIDATE (no logit above minus infinity; the random stream stays),
/// LLAMA_SIEVE_ERROR_BUSY, LLAMA_SIEVE_ERROR_INTERNAL. No allocation after the first tokens.
///
/// # Safety
/// `sieve` is NULL or alive; `logits` is NULL or `n_vocab` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_sample(
    sieve: *mut Handle,
    logits: *const f32,
    n_vocab: i32,
) -> Token {
    answer("llama_sieve_sample", || {
        // SAFETY: the caller guarantees sieve and logits.
        unsafe {
            let logits = logits_of(logits, n_vocab)?;
            with("llama_sieve_sample", sieve, |sieve| {
                Ok(sieve.sample(logits)?)
            })
        }
    })
}

/// The same on logits in IEEE half precision.
///
/// # Safety
/// `sieve` is NULL or alive; `logits` is NULL or `n_vocab` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_sample_f16(
    sieve: *mut Handle,
    logits: *const u16,
    n_vocab: i32,
) -> Token {
    answer("llama_sieve_sample_f16", || {
        // SAFETY: the caller guarantees sieve and logits.
        unsafe {
            let logits: &[f16] = logits_of(logits, n_vocab)?.reinterpret_cast();
            with("llama_sieve_sample_f16", sieve, |sieve| {
                Ok(sieve.sample(logits)?)
            })
        }
    })
}

/// The same on logits in bfloat16.
///
/// # Safety
/// `sieve` is NULL or alive; `logits` is NULL or `n_vocab` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_sample_bf16(
    sieve: *mut Handle,
    logits: *const u16,
    n_vocab: i32,
) -> Token {
    answer("llama_sieve_sample_bf16", || {
        // SAFETY: the caller guarantees sieve and logits.
        unsafe {
            let logits: &[bf16] = logits_of(logits, n_vocab)?.reinterpret_cast();
            with("llama_sieve_sample_bf16", sieve, |sieve| {
                Ok(sieve.sample(logits)?)
            })
        }
    })
}

/// Chooses a token of the logits that a llama_context has for output `idx` (-1: the last), as
/// llama_get_logits_ith gives them, and accepts it.
///
/// Besides the errors of llama_sieve_sample: LLAMA_SIEVE_ERROR_NO_HOST, and
/// LLAMA_SIEVE_ERROR_NO_LOGITS where the context has none. (A llama.cpp built for debugging aborts
/// on an `idx` without logits.)
///
/// # Safety
/// `sieve` is NULL or alive; `ctx` is NULL or a context of the bound host, used by no other thread
/// during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_sample_ctx(
    sieve: *mut Handle,
    ctx: *mut llama_context,
    idx: i32,
) -> Token {
    answer("llama_sieve_sample_ctx", || {
        if ctx.is_null() {
            return Err(Failure::null("the context"));
        }
        // SAFETY: the caller guarantees sieve and context; logits of a context stay until it
        // decodes again.
        unsafe {
            let (logits, n_vocab) = context_logits(ctx, idx)?;
            let logits = logits_of(logits, n_vocab)?;
            with("llama_sieve_sample_ctx", sieve, |sieve| {
                let token = sieve.sample(logits)?;
                sieve.accept(token);
                Ok(token)
            })
        }
    })
}

type LogitsIth = unsafe extern "C" fn(*mut llama_context, i32) -> *mut f32;
type GetModel = unsafe extern "C" fn(*const llama_context) -> *const llama_model;
type GetVocab = unsafe extern "C" fn(*const llama_model) -> *const llama_vocab;
type NTokens = unsafe extern "C" fn(*const llama_vocab) -> i32;

/// The host's functions that lead to logits.
#[derive(Clone, Copy)]
struct ContextFunctions {
    logits_ith: LogitsIth,
    get_model: GetModel,
    get_vocab: GetVocab,
    n_tokens: NTokens,
}

/// Those of the host that was asked last: looking up names for every token would cost as much as
/// sampling from a small vocabulary.
static CONTEXT_FUNCTIONS: Mutex<Option<(Host, ContextFunctions)>> = Mutex::new(None);

impl ContextFunctions {
    fn of_host() -> Result<Self, String> {
        let host = Host::get()?;
        let mut known = CONTEXT_FUNCTIONS.lock();
        if let Some((of, functions)) = *known
            && of.is(&host)
        {
            return Ok(functions);
        }
        let functions = Self::looked_up(&host)?;
        *known = Some((host, functions));
        Ok(functions)
    }

    fn looked_up(host: &Host) -> Result<Self, String> {
        Ok(Self {
            logits_ith: host_function!(host, c"llama_get_logits_ith", LogitsIth),
            get_model: host_function!(host, c"llama_get_model", GetModel),
            get_vocab: host_function!(host, c"llama_model_get_vocab", GetVocab),
            n_tokens: host_function!(host, c"llama_vocab_n_tokens", NTokens),
        })
    }
}

/// # Safety
/// `ctx` is a live context of the bound host.
unsafe fn context_logits(ctx: *mut llama_context, idx: i32) -> Result<(*const f32, i32), Failure> {
    let functions = ContextFunctions::of_host();
    let functions = functions.map_err(|text| Failure::new(LLAMA_SIEVE_ERROR_NO_HOST, text))?;
    // SAFETY: the caller guarantees the context; a context has a model, and a model a vocabulary.
    let (logits, n_vocab) = unsafe {
        let vocab = (functions.get_vocab)((functions.get_model)(ctx));
        (
            (functions.logits_ith)(ctx, idx),
            (functions.n_tokens)(vocab),
        )
    };
    if logits.is_null() {
        let text = format!("the context has no logits for output {idx}");
        return Err(Failure::new(LLAMA_SIEVE_ERROR_NO_LOGITS, text));
    }
    Ok((logits.cast_const(), n_vocab))
}

/// The distribution that the last token was drawn from: writes at most `cap` candidates with logits
/// after all stages and probabilities, which add up to 1 over all of them; returns how many there
/// are. With top-k on and typical off they descend. 0 before the first token and after a failure.
///
/// `out` may be NULL if `cap` is 0.
///
/// # Safety
/// `sieve` is NULL or alive; `out` has room for `cap` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_candidates(
    sieve: *const Handle,
    out: *mut TokenData,
    cap: usize,
) -> c_int {
    answer("llama_sieve_candidates", || {
        if cap > 0 {
            usable("out", out)?;
        }
        let copy = |sieve: &Sieve| {
            let candidates = sieve.candidates();
            let n = candidates.len().min(cap);
            if n > 0 {
                // SAFETY: the caller guarantees room for `cap`, of which `n` are used; ours is no
                // memory of the caller's.
                unsafe { std::ptr::copy_nonoverlapping(candidates.as_ptr(), out, n) };
            }
            Ok(candidates.len() as c_int)
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { look("llama_sieve_candidates", sieve, copy) }
    })
}

/// Whether llama_sieve_last_stats is to have entropies and surprisal, too. They cost a pass of
/// their own over the logits, four times as long as a mere maximum.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_measure(sieve: *mut Handle, measured: bool) -> c_int {
    answer("llama_sieve_measure", || {
        let measure = |sieve: &mut Sieve| {
            sieve.measure(measured);
            Ok(LLAMA_SIEVE_OK)
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { with("llama_sieve_measure", sieve, measure) }
    })
}

/// What the stages made of the last token's distribution. LLAMA_SIEVE_OK, or a negative error; then
/// `out` is as it was. Before the first token the counts are 0; what was not measured is NaN.
/// llama_sieve_measure counts from the next token on.
///
/// # Safety
/// `sieve` is NULL or alive; `out` is NULL or as long as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_last_stats(
    sieve: *const Handle,
    out: *mut llama_sieve_stats,
) -> c_int {
    answer("llama_sieve_last_stats", || {
        usable("out", out)?;
        // SAFETY: not NULL, and the caller guarantees the first member.
        let size = unsafe { (&raw const (*out).struct_size).read() };
        check_struct_size("llama_sieve_stats", size, size_of::<llama_sieve_stats>())?;
        // SAFETY: the caller guarantees the sieve.
        let stats = unsafe { look("llama_sieve_last_stats", sieve, |s| Ok(*s.stats())) }?;
        // SAFETY: the size is that of the whole struct.
        unsafe { out.write(stats_for_c(&stats)) };
        Ok(LLAMA_SIEVE_OK)
    })
}

fn stats_for_c(stats: &Stats) -> llama_sieve_stats {
    // Token numbers are 31 bits.
    let count = |n: usize| n as i32;
    llama_sieve_stats {
        struct_size: size_of::<llama_sieve_stats>(),
        model_entropy: stats.model_entropy,
        surprisal: stats.surprisal,
        sampling_entropy: stats.sampling_entropy,
        n_vocab: count(stats.n_vocab),
        after_top_k: count(stats.after_top_k),
        after_typical: count(stats.after_typical),
        after_top_p: count(stats.after_top_p),
        after_min_p: count(stats.after_min_p),
        after_top_n_sigma: count(stats.after_top_n_sigma),
    }
}

/// Chooses a token for each of `n` independent sequences, on the calling thread and at most
/// `n_threads` - 1 of a pool of the library's own, which is made at first need and has at most a
/// thread for each processor. Where no thread can be started, and in the child of a process that
/// has forked after a batch, the calling thread does all the work. The tokens do not depend on the
/// number of threads. They are not accepted.
///
/// `out[i]` is the token of `sieves[i]` and `logits[i]`, or its negative error. Returns
/// LLAMA_SIEVE_OK, or the first error in `out`; or, with `out` as it was, an error of the call: an
/// array or sieve that is NULL, `n_vocab` <= 0, a sieve that is in use or twice in the batch. After
/// an internal error (LLAMA_SIEVE_ERROR_INTERNAL in `out`) that sieve alone is out of use.
///
/// # Safety
/// `sieves`, `logits` and `out` are NULL or `n` elements; each sieve is alive; each element of
/// `logits` is NULL or `n_vocab` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_sample_batch(
    sieves: *const *mut Handle,
    logits: *const *const f32,
    n_vocab: i32,
    n: usize,
    out: *mut Token,
    n_threads: c_int,
) -> c_int {
    answer("llama_sieve_sample_batch", || {
        if n == 0 {
            return Ok(LLAMA_SIEVE_OK);
        }
        // SAFETY: the caller guarantees arrays of `n` elements.
        let (sieves, logits) =
            unsafe { (array("sieves", sieves, n)?, array("logits", logits, n)?) };
        // SAFETY: as above; only written to.
        let out = unsafe { array_mut(out, n) }?;
        let threads = usize::try_from(n_threads).unwrap_or(0);
        // SAFETY: the caller guarantees sieves and logits.
        unsafe { sample_batch(sieves, logits, n_vocab, out, threads) }
    })
}

/// # Safety
/// `elements` is NULL or `n` elements.
unsafe fn array<'a, T>(name: &str, elements: *const T, n: usize) -> Result<&'a [T], Failure> {
    // SAFETY: the caller guarantees the elements.
    unsafe { crate::ffi::metrics::slice(name, elements, n) }
        .map_err(|text| Failure::new(LLAMA_SIEVE_ERROR_NULL, text))
}

/// # Safety
/// `out` is NULL or `n` elements that nobody else uses, and `n` is as `array` has checked.
unsafe fn array_mut<'a>(out: *mut Token, n: usize) -> Result<&'a mut [Token], Failure> {
    usable("out", out)?;
    // SAFETY: the caller guarantees the elements.
    Ok(unsafe { std::slice::from_raw_parts_mut(out, n) })
}

/// One sequence of a batch.
struct Entry<'a> {
    state: &'a mut Option<Sieve>,
    logits: Logits<'a>,
    token: Result<Result<Token, Failure>, Payload>,
}

impl Entry<'_> {
    /// On whatever thread: what a panic says is the calling one's to tell.
    fn run(&mut self) {
        let Some(sieve) = self.state.as_mut() else {
            self.token = Ok(Err(out_of_use()));
            return;
        };
        self.token = attempt(|| sieve.sample(self.logits).map_err(Failure::from));
    }
}

/// # Safety
/// Each sieve is NULL or alive; each element of `logits` is NULL or `n_vocab` floats.
unsafe fn sample_batch(
    sieves: &[*mut Handle],
    logits: &[*const f32],
    n_vocab: i32,
    out: &mut [Token],
    threads: usize,
) -> Result<c_int, Failure> {
    // All are locked before the first one runs, so that what is wrong with the call is found before
    // anything changes.
    let mut states = Vec::new();
    states.try_reserve_exact(sieves.len())?;
    for (i, sieve) in sieves.iter().enumerate() {
        // SAFETY: the caller guarantees the sieves.
        let state = unsafe { handle(*sieve) }.and_then(Handle::enter);
        states.push(state.map_err(|failure| failure.of(&format!("sieve {i}")))?);
    }
    let mut jobs = Vec::new();
    jobs.try_reserve_exact(sieves.len())?;
    for (state, &logits) in states.iter_mut().zip(logits) {
        // SAFETY: the caller guarantees the logits.
        let logits: &[f32] = unsafe { logits_of(logits, n_vocab) }?;
        jobs.push(Entry {
            state,
            logits: Logits::from(logits),
            token: Ok(Err(out_of_use())),
        });
    }
    // The instructions are chosen here: a helper must not be the one to have a message for that.
    simd::instruction_set();
    sieve::share(&mut jobs, threads, Entry::run);
    let mut first = None;
    for (i, (job, out)) in jobs.into_iter().zip(out).enumerate() {
        let token = job.token.unwrap_or_else(|payload| {
            report(&format!("llama_sieve_sample_batch: sequence {i}"), payload);
            // What it holds may be inconsistent. The others have sampled as if it were not there.
            guard("llama_sieve_sample_batch", || (), || *job.state = None);
            Err(Failure::caught())
        });
        *out = token.unwrap_or_else(|failure| {
            let failure = failure.of(&format!("sequence {i}"));
            let code = failure.code();
            first.get_or_insert(failure);
            code
        });
    }
    match first {
        Some(failure) => Err(failure),
        None => Ok(LLAMA_SIEVE_OK),
    }
}

/// The whole sieve as one sampler of a chain, on whatever candidates earlier samplers have left; it
/// selects. Afterwards the array holds what was drawn from, with probabilities. NULL for the errors
/// of llama_sieve_new, and without a host.
///
/// # Safety
/// `params` as for llama_sieve_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_init_sampler(
    params: *const llama_sieve_params,
) -> *mut llama_sampler {
    made("llama_sieve_init_sampler", || {
        // SAFETY: the caller guarantees the parameters.
        let params = unsafe { params_of(params) }?;
        let sampler = SieveSampler::new(&params)?;
        Ok(into_host(&SIEVE, sampler))
    })
}

/// The `n` most probable tokens in descending order, with their probabilities over the whole
/// vocabulary: what servers need for log-probabilities. One pass over the logits, and a sort of
/// `n`.
///
/// Returns how many were written: `n`, or fewer if fewer tokens have a probability; or a negative
/// error: `out` or `logits` NULL, `n` < 0, `n_vocab` <= 0, no logit above minus infinity.
///
/// # Safety
/// `logits` is NULL or `n_vocab` floats; `out` is NULL or has room for `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_top_candidates(
    logits: *const f32,
    n_vocab: i32,
    n: i32,
    out: *mut TokenData,
) -> c_int {
    answer("llama_sieve_top_candidates", || {
        // SAFETY: the caller guarantees the logits.
        let logits = unsafe { logits_of(logits, n_vocab) }?;
        let n = usize::try_from(n).map_err(|_| {
            Failure::new(
                LLAMA_SIEVE_ERROR_SIZE,
                format!("n is {n}; it must not be negative"),
            )
        })?;
        usable("out", out)?;
        let mut top = Vec::new();
        sieve::top_candidates(logits, n, &mut top)?;
        // SAFETY: the caller guarantees room for `n`, and there are at most as many.
        unsafe { std::ptr::copy_nonoverlapping(top.as_ptr(), out, top.len()) };
        Ok(top.len() as c_int)
    })
}

/// The token with the largest logit, the first of equals: no bias, no penalties, no object needed.
/// Errors as for llama_sieve_sample.
///
/// # Safety
/// `logits` is NULL or `n_vocab` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_greedy(logits: *const f32, n_vocab: i32) -> Token {
    answer("llama_sieve_greedy", || {
        // SAFETY: the caller guarantees the logits.
        let logits = unsafe { logits_of(logits, n_vocab) }?;
        Ok(sieve::greedy(logits)?)
    })
}

/// How many bytes llama_sieve_state_save writes now; 0, and an error text, for NULL or a sieve in
/// use. Grows with the accepted tokens up to 64 + 4 * penalty_last_n, with mt19937 another 2496.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_state_size(sieve: *const Handle) -> usize {
    value("llama_sieve_state_size", 0, || {
        let size = |sieve: &Sieve| Ok(sieve.state_size());
        // SAFETY: the caller guarantees the sieve.
        unsafe { look("llama_sieve_state_size", sieve, size) }
    })
}

/// Writes history and generator (not the parameters) into the first llama_sieve_state_size bytes of
/// `bytes`, in a format that is the same on every machine.
///
/// LLAMA_SIEVE_OK, or a negative error: NULL, LLAMA_SIEVE_ERROR_STATE if `size` is too small. Then
/// nothing is written.
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
        let save = |sieve: &Sieve| {
            // Only as many as are needed, whatever the caller says of the rest.
            let used = size.min(sieve.state_size());
            // SAFETY: the caller guarantees the bytes. They need not be initialised, so they are
            // before they become a slice.
            let bytes = unsafe {
                if used == sieve.state_size() {
                    bytes.write_bytes(0, used);
                    std::slice::from_raw_parts_mut(bytes, used)
                } else {
                    let needed = sieve.state_size();
                    let text = format!("the state has {needed} bytes; there is room for {size}");
                    return Err(Failure::new(LLAMA_SIEVE_ERROR_STATE, text));
                }
            };
            sieve.save(bytes)?;
            Ok(LLAMA_SIEVE_OK)
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { look("llama_sieve_state_save", sieve, save) }
    })
}

/// Goes on where the sieve that saved `bytes` was: same parameters, same logits, same tokens.
/// `size` is exactly what llama_sieve_state_size said when they were saved. The state carries the
/// random stream, whatever the parameters' seed; llama_sieve_reset goes back to that. A smaller
/// penalty_last_n keeps the newest tokens.
///
/// LLAMA_SIEVE_OK, or, with nothing changed, a negative error: NULL, or LLAMA_SIEVE_ERROR_STATE for
/// bytes that are no state, damaged, of another version, or of another generator than the
/// parameters'. States of earlier versions are read; one of mt19937 that lacks the generator itself
/// (version 1) up to 1,048,576 draws, which are repeated. The time is bounded by `size`.
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
        if bytes.is_null() {
            return Err(Failure::null("bytes"));
        }
        if size > isize::MAX as usize {
            let text = format!("{size} bytes are more than there is memory");
            return Err(Failure::new(LLAMA_SIEVE_ERROR_STATE, text));
        }
        // SAFETY: the caller guarantees the bytes.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, size) };
        room(0)?;
        let load = |sieve: &mut Sieve| {
            sieve.load(bytes)?;
            Ok(LLAMA_SIEVE_OK)
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { with("llama_sieve_state_load", sieve, load) }
    })
}
