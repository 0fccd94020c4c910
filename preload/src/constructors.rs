//! What there is to stand in for, and what must be known of a host before.

use std::ffi::CStr;
use std::sync::atomic::AtomicBool;

use crate::routes::Function;

/// One of the built-ins' constructors.
#[derive(Debug)]
pub struct Constructor {
    /// What `llama_sampler_name` reports for its samplers.
    pub name: &'static str,
    /// The host's.
    pub function: Function,
    /// Whether its arguments have changed, or are pointers: then the host's build must be known.
    pub needs_build: bool,
    /// Whether ours can be tried against the host's.
    pub can_be_tried: bool,
    /// Whether it was said that the host's own is used.
    pub warned: AtomicBool,
}

/// One whose arguments have been the same, all numbers, in every build.
const fn plain(name: &'static str, symbol: &'static CStr) -> Constructor {
    constructor(name, symbol, false, true)
}

const fn of_known_build(name: &'static str, symbol: &'static CStr) -> Constructor {
    constructor(name, symbol, true, true)
}

const fn constructor(
    name: &'static str,
    symbol: &'static CStr,
    needs_build: bool,
    can_be_tried: bool,
) -> Constructor {
    Constructor {
        name,
        function: Function::new(symbol),
        needs_build,
        can_be_tried,
        warned: AtomicBool::new(false),
    }
}

/// Proven on the vocabulary that it is given: see `grammar::proof` of the library. The arguments,
/// pointers among them, have been the same in every build. All three have one name.
const fn grammar(symbol: &'static CStr) -> Constructor {
    Constructor {
        name: "grammar",
        function: Function::new(symbol),
        needs_build: false,
        can_be_tried: false,
        warned: AtomicBool::new(false),
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
pub static PENALTIES: Constructor = of_known_build("penalties", c"llama_sampler_init_penalties");
pub static DRY: Constructor = of_known_build("dry", c"llama_sampler_init_dry");
pub static ADAPTIVE_P: Constructor = plain("adaptive-p", c"llama_sampler_init_adaptive_p");
pub static LOGIT_BIAS: Constructor = of_known_build("logit-bias", c"llama_sampler_init_logit_bias");
/// A trial would need a vocabulary whose tokens are known.
pub static INFILL: Constructor = constructor("infill", c"llama_sampler_init_infill", true, false);

pub static GRAMMAR: Constructor = grammar(c"llama_sampler_init_grammar");
pub static GRAMMAR_LAZY: Constructor = grammar(c"llama_sampler_init_grammar_lazy");
pub static GRAMMAR_LAZY_PATTERNS: Constructor =
    grammar(c"llama_sampler_init_grammar_lazy_patterns");

/// All of them, one of each name: the names that `LLAMA_SIEVE_PRELOAD` may list.
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
    fn what_takes_pointers_or_has_changed_needs_a_known_build() {
        for constructor in ALL {
            let changed = ["penalties", "dry", "logit-bias", "infill"];
            let expected = changed.contains(&constructor.name);
            assert_eq!(constructor.needs_build, expected, "{}", constructor.name);
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
