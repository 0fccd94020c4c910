//! Which llama.cpp is this, and which of our samplers equal its own?
//!
//! What llama-sieve is exact against begins with build [`EXACT_SINCE`]. Older builds have other argument lists for two constructors,
//! and other random streams. No library says its build number, but what it exports bounds it from below.

use std::ffi::CStr;

/// From here on our samplers are the built-in ones' equals. What made the last difference: the draw samplers take a random number for
/// a single candidate, too.
pub const EXACT_SINCE: u32 = 10_355;

/// Without it, nobody else can make samplers.
const SAMPLER_INIT: &CStr = c"llama_sampler_init";

/// The first build that exports it.
const OLDEST: u32 = 4_662;

/// The first build whose penalties take `n_vocab`, before the four arguments they have had since b4335.
const PENALTIES_TAKE_N_VOCAB: u32 = 10_258;

/// The first build whose dry does not take `n_ctx_train` as second argument any more, as it has since b4463.
const DRY_WITHOUT_N_CTX_TRAIN: u32 = 10_273;

/// Exports that bound a build number from below, the youngest first.
const SIGNS: [(&CStr, u32); 3] = [
    (c"llama_version", 10_394),
    (c"llama_sampler_copy", EXACT_SINCE),
    (c"llama_set_sampler", 7_627),
];

/// One of the built-ins' constructors.
#[derive(Debug, PartialEq, Eq)]
pub struct Constructor {
    /// What `llama_sampler_name` reports for its samplers.
    pub name: &'static str,
    /// Its C name.
    pub symbol: &'static CStr,
    /// The first build whose sampler ours equals.
    pub since: u32,
}

/// A sampler without a random stream. What it keeps and changes has stayed the same as long as others can make samplers.
const fn filter(name: &'static str, symbol: &'static CStr) -> Constructor {
    Constructor {
        name,
        symbol,
        since: OLDEST,
    }
}

/// A sampler that draws random numbers. Older builds draw others from the same seed.
const fn drawing(name: &'static str, symbol: &'static CStr) -> Constructor {
    Constructor {
        name,
        symbol,
        since: EXACT_SINCE,
    }
}

pub static GREEDY: Constructor = filter("greedy", c"llama_sampler_init_greedy");
pub static DIST: Constructor = drawing("dist", c"llama_sampler_init_dist");
pub static TOP_K: Constructor = filter("top-k", c"llama_sampler_init_top_k");
pub static TOP_P: Constructor = filter("top-p", c"llama_sampler_init_top_p");
pub static MIN_P: Constructor = filter("min-p", c"llama_sampler_init_min_p");
pub static TYPICAL: Constructor = filter("typical", c"llama_sampler_init_typical");
pub static TEMP: Constructor = filter("temp", c"llama_sampler_init_temp");
pub static TEMP_EXT: Constructor = filter("temp-ext", c"llama_sampler_init_temp_ext");
pub static XTC: Constructor = drawing("xtc", c"llama_sampler_init_xtc");
pub static TOP_N_SIGMA: Constructor = filter("top-n-sigma", c"llama_sampler_init_top_n_sigma");
pub static MIROSTAT: Constructor = drawing("mirostat", c"llama_sampler_init_mirostat");
pub static MIROSTAT_V2: Constructor = drawing("mirostat-v2", c"llama_sampler_init_mirostat_v2");
pub static PENALTIES: Constructor = filter("penalties", c"llama_sampler_init_penalties");
pub static DRY: Constructor = filter("dry", c"llama_sampler_init_dry");
pub static ADAPTIVE_P: Constructor = drawing("adaptive-p", c"llama_sampler_init_adaptive_p");
pub static LOGIT_BIAS: Constructor = filter("logit-bias", c"llama_sampler_init_logit_bias");
pub static INFILL: Constructor = filter("infill", c"llama_sampler_init_infill");

/// All of them: the names that `LLAMA_SIEVE_PRELOAD` may list.
pub static ALL: [&Constructor; 17] = [
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
];

/// The build number to go by, or why there is none. `named` is what the user says (`LLAMA_SIEVE_HOST`), `exports` asks the host's library.
pub fn build_of(named: Option<u32>, exports: impl Fn(&CStr) -> bool) -> Result<u32, String> {
    if !exports(SAMPLER_INIT) {
        return Err(too_old());
    }
    let proven = SIGNS.iter().find(|(sign, _)| exports(sign));
    let Some(build) = named else {
        return match proven {
            Some(&(_, build)) if build >= EXACT_SINCE => Ok(build),
            _ => Err(format!(
                "this llama.cpp is older than b{EXACT_SINCE}; if you know its build number, set LLAMA_SIEVE_HOST to it"
            )),
        };
    };
    if build < OLDEST {
        return Err(too_old());
    }
    match proven {
        // A symbol may be lacking for other reasons than age, but one that is there proves it.
        Some((sign, since)) if build < *since => Err(format!(
            "LLAMA_SIEVE_HOST says b{build}, but this llama.cpp exports {}, which came with b{since}",
            sign.to_string_lossy()
        )),
        _ => Ok(build),
    }
}

fn too_old() -> String {
    format!("this llama.cpp is older than b{OLDEST}, the first that takes samplers of others")
}

/// Whether that build's penalties begin with `n_vocab`.
pub fn penalties_take_n_vocab(build: u32) -> bool {
    build >= PENALTIES_TAKE_N_VOCAB
}

/// Whether that build's dry takes `n_ctx_train` after the vocabulary.
pub fn dry_takes_n_ctx_train(build: u32) -> bool {
    build < DRY_WITHOUT_N_CTX_TRAIN
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that exports these.
    fn host(symbols: &[&'static CStr]) -> impl Fn(&CStr) -> bool {
        move |symbol| symbols.contains(&symbol)
    }

    #[test]
    fn what_a_host_exports_dates_it() {
        let modern = [c"llama_sampler_init", c"llama_sampler_copy"];
        assert_eq!(build_of(None, host(&modern)), Ok(10_355));
        let newer = [
            c"llama_sampler_init",
            c"llama_sampler_copy",
            c"llama_version",
        ];
        assert_eq!(build_of(None, host(&newer)), Ok(10_394));
    }

    #[test]
    fn an_older_host_is_left_alone_unless_its_build_is_named() {
        let symbols = [c"llama_sampler_init", c"llama_set_sampler"];
        let error = build_of(None, host(&symbols)).unwrap_err();
        assert!(error.contains("b10355") && error.contains("LLAMA_SIEVE_HOST"));
        assert!(build_of(None, host(&symbols[..1])).is_err());
        assert_eq!(build_of(Some(10_300), host(&symbols)), Ok(10_300));
        // More than the symbols prove is the user's word.
        assert_eq!(build_of(Some(10_400), host(&symbols)), Ok(10_400));
    }

    #[test]
    fn a_name_that_the_symbols_disprove_counts_for_nothing() {
        let symbols = [c"llama_sampler_init", c"llama_sampler_copy"];
        let error = build_of(Some(9_000), host(&symbols)).unwrap_err();
        assert!(error.contains("b9000") && error.contains("llama_sampler_copy"));
    }

    #[test]
    fn a_host_that_takes_no_samplers_of_others_is_left_alone() {
        assert!(build_of(None, host(&[])).is_err());
        assert!(build_of(Some(10_400), host(&[])).is_err());
        let oldest = [c"llama_sampler_init"];
        assert!(build_of(Some(4_661), host(&oldest)).is_err());
        assert_eq!(build_of(Some(4_662), host(&oldest)), Ok(4_662));
    }

    #[test]
    fn argument_lists_change_where_they_did() {
        assert!(!penalties_take_n_vocab(10_257));
        assert!(penalties_take_n_vocab(10_258));
        assert!(dry_takes_n_ctx_train(10_272));
        assert!(!dry_takes_n_ctx_train(10_273));
    }

    #[test]
    fn samplers_that_draw_are_only_ours_where_the_streams_agree() {
        for constructor in ALL {
            let draws = ["dist", "xtc", "mirostat", "mirostat-v2", "adaptive-p"];
            let expected = if draws.contains(&constructor.name) {
                10_355
            } else {
                4_662
            };
            assert_eq!(constructor.since, expected, "{}", constructor.name);
        }
    }

    #[test]
    fn symbols_follow_from_names() {
        for constructor in ALL {
            let symbol = format!("llama_sampler_init_{}", constructor.name.replace('-', "_"));
            assert_eq!(constructor.symbol.to_str(), Ok(symbol.as_str()));
        }
    }
}
