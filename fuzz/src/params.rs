//! The parameters of a sieve as a C caller may pass them, and the rule by which they are accepted.

use arbitrary::Arbitrary;
use llama_sieve::ffi::host::llama_h::llama_logit_bias;
use llama_sieve::ffi::sieve::{llama_sieve_default_params, llama_sieve_params};

use crate::logits::{Logit, Number, Whole};

/// One change of the defaults.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Change {
    Temperature(Number),
    TopK(Whole),
    TopP(Number),
    MinP(Number),
    TypicalP(Number),
    TopNSigma(Number),
    MinKeep(Whole),
    LastN(Whole),
    Repeat(Number),
    Freq(Number),
    Present(Number),
    Seed(u16),
    Mode(bool),
    Rng(u8),
    Method(bool),
    Order(bool),
    Bias(i16, Logit),
    /// A struct size. The library must reject it unless it is the right one, and must reject the
    /// variants below if their values are invalid.
    StructSize(u16),
    Enumeration(u8, Whole),
    NoBias(u8),
}

/// Parameters, and the biases that they point to.
pub struct CParams {
    pub raw: llama_sieve_params,
    biases: Vec<llama_logit_bias>,
    /// A count of biases with a NULL pointer, instead of the biases.
    no_bias: Option<u8>,
}

/// The maximum size of a window. It is limited since a state stores the window, and every load
/// hashes the state.
const LONGEST_WINDOW: i32 = 3000;

impl CParams {
    /// Returns the defaults with a fixed seed and these changes.
    pub fn new(changes: &[Change]) -> Self {
        let mut params = Self {
            raw: llama_sieve_default_params(),
            biases: Vec::new(),
            no_bias: None,
        };
        params.raw.seed = 7;
        for change in changes.iter().take(24) {
            params.change(*change);
        }
        if let Some(n) = params.no_bias {
            params.biases.clear();
            params.raw.n_bias = usize::from(n);
        } else if !params.biases.is_empty() {
            params.raw.n_bias = params.biases.len();
            params.raw.bias = params.biases.as_ptr();
        }
        params
    }

    /// Wraps these parameters, without biases.
    pub fn of(raw: llama_sieve_params) -> Self {
        Self {
            raw,
            biases: Vec::new(),
            no_bias: None,
        }
    }

    fn change(&mut self, change: Change) {
        let raw = &mut self.raw;
        match change {
            Change::Temperature(x) => raw.temperature = x.get(),
            Change::TopK(k) => raw.top_k = k.0,
            Change::TopP(x) => raw.top_p = x.get(),
            Change::MinP(x) => raw.min_p = x.get(),
            Change::TypicalP(x) => raw.typical_p = x.get(),
            Change::TopNSigma(x) => raw.top_n_sigma = x.get(),
            Change::MinKeep(n) => raw.min_keep = n.size(),
            Change::LastN(n) => raw.penalty_last_n = n.0.min(LONGEST_WINDOW),
            Change::Repeat(x) => raw.penalty_repeat = x.get(),
            Change::Freq(x) => raw.penalty_freq = x.get(),
            Change::Present(x) => raw.penalty_present = x.get(),
            Change::Seed(seed) => raw.seed = u64::from(seed),
            Change::Mode(parity) => raw.mode = i32::from(parity),
            Change::Rng(kind) => raw.rng = i32::from(kind % 3),
            Change::Method(gumbel) => raw.method = i32::from(gumbel),
            Change::Order(first) => raw.order = i32::from(first),
            Change::Bias(token, bias) => {
                let (token, bias) = (i32::from(token), bias.value());
                self.biases.push(llama_logit_bias { token, bias });
            }
            Change::StructSize(size) => raw.struct_size = usize::from(size),
            Change::Enumeration(which, number) => {
                let fields = [&mut raw.mode, &mut raw.rng, &mut raw.method, &mut raw.order];
                if let Some(field) = fields.into_iter().nth(usize::from(which % 4)) {
                    *field = number.0;
                }
            }
            Change::NoBias(n) => self.no_bias = Some(n),
        }
    }

    /// True if the library must accept the parameters by the rules of the header.
    pub fn is_valid(&self) -> bool {
        let raw = &self.raw;
        let numbers = [
            raw.temperature,
            raw.top_p,
            raw.min_p,
            raw.typical_p,
            raw.top_n_sigma,
            raw.penalty_repeat,
            raw.penalty_freq,
            raw.penalty_present,
        ];
        raw.struct_size == size_of::<llama_sieve_params>()
            && numbers.iter().all(|x| x.is_finite())
            && raw.penalty_repeat > 0.0
            && (0..2).contains(&raw.mode)
            && (0..3).contains(&raw.rng)
            && (0..2).contains(&raw.method)
            && (0..2).contains(&raw.order)
            && !(raw.bias.is_null() && raw.n_bias > 0)
            && self.biases.iter().all(|bias| !bias.bias.is_nan())
    }
}
