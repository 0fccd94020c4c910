//! The constructors that this library replaces, and the facts about a host that each requires.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use llama_sieve::ffi::certificate::layouts::Changing;
use llama_sieve::ffi::host::libraries::Address;

use crate::routes::Function;

/// A constructor of a built-in.
#[derive(Debug)]
pub struct Constructor {
    /// The name that `llama_sampler_name` reports for its samplers.
    pub name: &'static str,
    /// The host's constructor.
    pub function: Function,
    /// Set if the argument list must be proven, because it has changed between builds or has
    /// pointers. `None` for grammars.
    pub changing: Option<Changing>,
    /// True if the sampler can be compared with the host's in a trial.
    pub can_be_tried: bool,
    /// True once a warning has reported that the host's own sampler is used.
    pub warned: AtomicBool,
    /// The host's function, if all calls are passed on to it without a report; otherwise NULL.
    aside: AtomicPtr<c_void>,
}

impl Constructor {
    /// Returns the host's function, if all calls are passed on to it.
    #[inline]
    pub fn aside(&self) -> Option<Address> {
        Address::new(self.aside.load(Ordering::Acquire))
    }

    /// Passes all calls on to `host` from now on.
    pub fn step_aside(&self, host: Address) {
        self.aside.store(host.as_ptr(), Ordering::Release);
    }
}

/// Describes a constructor whose arguments are all numbers, and have been the same in every build.
const fn plain(name: &'static str, symbol: &'static CStr) -> Constructor {
    constructor(name, symbol, None, true)
}

const fn changing(name: &'static str, symbol: &'static CStr, changing: Changing) -> Constructor {
    constructor(name, symbol, Some(changing), true)
}

const fn constructor(
    name: &'static str,
    symbol: &'static CStr,
    changing: Option<Changing>,
    can_be_tried: bool,
) -> Constructor {
    Constructor {
        name,
        function: Function::new(symbol),
        changing,
        can_be_tried,
        warned: AtomicBool::new(false),
        aside: AtomicPtr::new(null_mut()),
    }
}

/// Describes a constructor of a grammar, which is compared with the host's on the given vocabulary:
/// see `grammar::proof` of llama-sieve. The arguments, which include pointers, have been the same
/// in every build. The samplers of all three constructors report the same name.
const fn grammar(symbol: &'static CStr) -> Constructor {
    Constructor {
        name: "grammar",
        function: Function::new(symbol),
        changing: None,
        can_be_tried: false,
        warned: AtomicBool::new(false),
        aside: AtomicPtr::new(null_mut()),
    }
}

pub static GREEDY: Constructor = plain("greedy", c"llama_sampler_init_greedy");
pub static DIST: Constructor = plain("dist", c"llama_sampler_init_dist");
pub static TOP_K: Constructor = plain("top-k", c"llama_sampler_init_top_k");
pub static TOP_P: Constructor = plain("top-p", c"llama_sampler_init_top_p");
pub static MIN_P: Constructor = plain("min-p", c"llama_sampler_init_min_p");
pub static TYPICAL: Constructor = plain("typical", c"llama_sampler_init_typical");
pub static TEMP: Constructor = plain("temp", c"llama_sampler_init_temp");
pub static TEMP_EXT: Constructor = plain("temp-ext", c"llama_sampler_init_temp_ext");
pub static XTC: Constructor = plain("xtc", c"llama_sampler_init_xtc");
pub static TOP_N_SIGMA: Constructor = plain("top-n-sigma", c"llama_sampler_init_top_n_sigma");
pub static MIROSTAT: Constructor = plain("mirostat", c"llama_sampler_init_mirostat");
pub static MIROSTAT_V2: Constructor = plain("mirostat-v2", c"llama_sampler_init_mirostat_v2");
pub static PENALTIES: Constructor = changing(
    "penalties",
    c"llama_sampler_init_penalties",
    Changing::Penalties,
);
pub static DRY: Constructor = changing("dry", c"llama_sampler_init_dry", Changing::Dry);
pub static ADAPTIVE_P: Constructor = plain("adaptive-p", c"llama_sampler_init_adaptive_p");
pub static LOGIT_BIAS: Constructor = changing(
    "logit-bias",
    c"llama_sampler_init_logit_bias",
    Changing::LogitBias,
);
/// The constructor of infill, which is not tried: a trial would need a vocabulary whose tokens are
/// known.
pub static INFILL: Constructor = constructor(
    "infill",
    c"llama_sampler_init_infill",
    Some(Changing::Infill),
    false,
);

pub static GRAMMAR: Constructor = grammar(c"llama_sampler_init_grammar");
pub static GRAMMAR_LAZY: Constructor = grammar(c"llama_sampler_init_grammar_lazy");
pub static GRAMMAR_LAZY_PATTERNS: Constructor =
    grammar(c"llama_sampler_init_grammar_lazy_patterns");

/// One constructor for each name of a sampler that `LLAMA_SIEVE_PRELOAD` may list.
pub static ALL: [&Constructor; 18] = [
    &GREEDY,
    &DIST,
    &TOP_K,
    &TOP_P,
    &MIN_P,
    &TYPICAL,
    &TEMP,
    &TEMP_EXT,
    &XTC,
    &TOP_N_SIGMA,
    &MIROSTAT,
    &MIROSTAT_V2,
    &PENALTIES,
    &DRY,
    &ADAPTIVE_P,
    &LOGIT_BIAS,
    &INFILL,
    &GRAMMAR,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_pointers_or_has_changed_needs_a_proof() {
        for constructor in ALL {
            let changed = ["penalties", "dry", "logit-bias", "infill"];
            let expected = changed.contains(&constructor.name);
            let name = constructor.name;
            assert_eq!(constructor.changing.is_some(), expected, "{name}");
            let needs_vocabulary = ["infill", "grammar"].contains(&constructor.name);
            assert_eq!(constructor.can_be_tried, !needs_vocabulary);
        }
    }

    #[test]
    fn symbols_follow_from_names() {
        for constructor in ALL {
            let symbol = format!("llama_sampler_init_{}", constructor.name.replace('-', "_"));
            assert_eq!(constructor.function.symbol.to_str(), Ok(symbol.as_str()));
        }
    }
}
