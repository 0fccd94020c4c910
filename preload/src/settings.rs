//! The settings from environment variables, which are read once. A setuid program ignores them.
//!
//! - `LLAMA_SIEVE_PRELOAD`: selects the samplers that are replaced: none with `off`; all with `on`
//!   or `all`, or if it is unset or empty. A list of names, as `llama_sampler_name` reports them or
//!   with underscores (`top-k,dist`), selects only these, and tokens are sampled straight from the
//!   logits only if `sample` is among them. Two words restrict nothing, alone or with any of these.
//!   With `verify`, llama.cpp samples every token, and this library's choice is compared with it.
//!   With `large-grammars`, grammars are accepted that llama.cpp refuses for the number of their
//!   repetitions.
//! - `LLAMA_SIEVE_HOST`: llama.cpp's build number (`10300` or `b10300`) or release (`0.6.0` or
//!   `v0.6.0`), for libraries that do not report theirs. Decides which argument list is tried
//!   first.
//! - `LLAMA_SIEVE_EXTRA`: members that every chain gets, separated by semicolons: see `extra`.
//! - `LLAMA_SIEVE_VERBOSE`: if set, and neither empty nor `0`, reports on stderr: a line when the
//!   library is loaded, one for each sampler made, one when sampling straight from the logits
//!   begins or ends, and at the end the number of tokens, and the reason if no sampler was made.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use llama_sieve::environment;
use llama_sieve::ffi::host::build;
use llama_sieve::log;
use llama_sieve::quoted::{listed, quoted};
use llama_sieve::sync::OnceLock;

use crate::constructors::{ALL, Constructor};

/// The name, in a list of samplers, of sampling straight from the logits.
const SAMPLE: &str = "sample";

/// The word that requests a comparison of every token.
const VERIFY: &str = "verify";

/// The word that allows more repetitions in grammars than llama.cpp does.
const LARGE_GRAMMARS: &str = "large-grammars";

const VERBOSE: &str = "LLAMA_SIEVE_VERBOSE";

/// The samplers that are to be replaced.
#[derive(Debug, PartialEq, Eq)]
enum Selection {
    All,
    Only(Vec<&'static str>),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Settings {
    selection: Selection,
    /// The build number that the user names.
    pub host_build: Option<u32>,
    /// True if llama.cpp is to sample every token, and its choice is to be compared with this
    /// library's.
    pub verifies: bool,
    /// True if grammars are accepted that llama.cpp refuses for the number of their repetitions.
    pub large_grammars: bool,
    /// True if every sampler is reported.
    pub verbose: bool,
}

impl Settings {
    /// True if the user wants this sampler to be replaced.
    pub fn selects(&self, constructor: &Constructor) -> bool {
        match &self.selection {
            Selection::All => true,
            Selection::Only(names) => names.contains(&constructor.name),
        }
    }

    /// True if the user wants tokens to be sampled straight from the logits.
    pub fn samples(&self) -> bool {
        match &self.selection {
            Selection::All => true,
            Selection::Only(names) => names.contains(&SAMPLE),
        }
    }

    /// True if no sampler is to be replaced.
    pub fn is_off(&self) -> bool {
        matches!(&self.selection, Selection::Only(names) if names.is_empty())
    }

    /// Returns the settings, and the faults in them. `variable` returns the value of a variable by
    /// name.
    fn parse(variable: impl Fn(&str) -> Option<String>) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let text = |name| variable(name).unwrap_or_default().trim().to_owned();
        let preload = text("LLAMA_SIEVE_PRELOAD");
        let (verifies, preload) = without(VERIFY, &preload);
        let (large_grammars, preload) = without(LARGE_GRAMMARS, &preload);
        let settings = Self {
            selection: selection(&preload, &mut warnings),
            verifies,
            large_grammars,
            host_build: host_build(&text("LLAMA_SIEVE_HOST"), &mut warnings),
            verbose: is_set(&text(VERBOSE)),
        };
        (settings, warnings)
    }
}

/// True if a switch with the value `text` is on.
fn is_set(text: &str) -> bool {
    !matches!(text.trim(), "" | "0")
}

/// True if every sampler is to be reported. Reads no other setting, and so logs no warning about
/// one.
pub fn verbose() -> bool {
    environment::variable(VERBOSE).is_some_and(|text| is_set(&text))
}

/// Returns true if the list `text` has the word `wanted`, and the list without that word.
fn without(wanted: &str, text: &str) -> (bool, String) {
    let words = text.split(',').map(str::trim);
    let (found, others): (Vec<&str>, Vec<&str>) = words
        .filter(|word| !word.is_empty())
        .partition(|&word| word.replace('_', "-") == wanted);
    match found.is_empty() {
        true => (false, text.to_owned()),
        false => (true, others.join(",")),
    }
}

fn selection(text: &str, warnings: &mut Vec<String>) -> Selection {
    match text {
        "" | "on" | "all" => return Selection::All,
        "off" => return Selection::Only(Vec::new()),
        _ => {}
    }
    let mut known = Vec::new();
    let mut unknown = Vec::new();
    for name in text.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        let mut names = ALL.iter().map(|c| c.name).chain([SAMPLE]);
        match names.find(|&known| known == name.replace('_', "-")) {
            Some(name) => known.push(name),
            None => unknown.push(name),
        }
    }
    if !unknown.is_empty() {
        let allowed = ALL.iter().map(|constructor| constructor.name);
        let allowed: Vec<&str> = allowed.chain([SAMPLE]).collect();
        warnings.push(format!(
            "LLAMA_SIEVE_PRELOAD: no sampler of ours is named {}; allowed are on, all or off alone, or a list of {}; {VERIFY} and {LARGE_GRAMMARS} may be added to any of these",
            listed(unknown.iter()),
            allowed.join(", ")
        ));
    }
    Selection::Only(known)
}

fn host_build(text: &str, warnings: &mut Vec<String>) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    let build = build::number(text);
    if build.is_none() {
        warnings.push(format!(
            "LLAMA_SIEVE_HOST: {} is neither a build number of llama.cpp, as 10300 or b10300 is, nor a release that is known, as 0.6.0 is; it is ignored",
            quoted(text)
        ));
    }
    build
}

/// Returns the settings of this process.
pub fn settings() -> &'static Settings {
    static PARSED: OnceLock<(Settings, Vec<String>)> = OnceLock::new();
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let (settings, warnings) = PARSED.get_or_init(|| Settings::parse(environment::variable));
    // Warnings are logged after parsing, since their receiver may call this library.
    if !REPORTED.load(Ordering::Relaxed) && !REPORTED.swap(true, Ordering::Relaxed) {
        for warning in warnings {
            log::warn(warning);
        }
    }
    settings
}

/// Writes a line for `LLAMA_SIEVE_VERBOSE`.
pub fn say(what: fmt::Arguments<'_>) {
    if settings().verbose {
        log::write_to_stderr(format_args!("llama-sieve: preload: {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constructors::{DIST, TOP_K};

    fn parse(variables: &[(&str, &str)]) -> (Settings, Vec<String>) {
        Settings::parse(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_any_setting_all_samplers_are_ours() {
        for variables in [
            &[][..],
            &[("LLAMA_SIEVE_PRELOAD", "")],
            &[("LLAMA_SIEVE_PRELOAD", "on")],
            &[("LLAMA_SIEVE_PRELOAD", " all ")],
        ] {
            let (settings, warnings) = parse(variables);
            assert_eq!(warnings, Vec::<String>::new());
            assert!(ALL.iter().all(|constructor| settings.selects(constructor)));
            assert!(!settings.is_off() && !settings.verbose);
            assert_eq!(settings.host_build, None);
        }
    }

    #[test]
    fn off_leaves_all_samplers_to_the_host() {
        let (settings, warnings) = parse(&[("LLAMA_SIEVE_PRELOAD", "off")]);
        assert!(settings.is_off() && warnings.is_empty());
        assert!(!ALL.iter().any(|constructor| settings.selects(constructor)));
    }

    #[test]
    fn a_list_selects_what_it_names() {
        let (settings, warnings) = parse(&[("LLAMA_SIEVE_PRELOAD", "top-k, dist,,")]);
        assert!(warnings.is_empty());
        let chosen = ALL
            .iter()
            .filter(|constructor| settings.selects(constructor));
        let mut chosen: Vec<&str> = chosen.map(|constructor| constructor.name).collect();
        chosen.sort_unstable();
        assert_eq!(chosen, [DIST.name, TOP_K.name]);
        // Underscores are accepted, as in the names of constructors.
        assert_eq!(parse(&[("LLAMA_SIEVE_PRELOAD", "top_k,dist")]).0, settings);
    }

    #[test]
    fn unknown_names_are_reported_once_with_the_allowed_ones() {
        let (settings, warnings) = parse(&[("LLAMA_SIEVE_PRELOAD", "topk,dist,llg")]);
        assert!(settings.selects(&DIST) && !settings.selects(&TOP_K));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("named \"topk\", \"llg\";"));
        assert!(warnings[0].contains("top-k") && warnings[0].contains("penalties"));
        let many = vec!["x".repeat(1000); 1000].join(",");
        let (_, warnings) = parse(&[("LLAMA_SIEVE_PRELOAD", &many)]);
        assert!(warnings[0].contains("...\" and 992 more;") && warnings[0].len() < 2000);
        // A list without any known name is not the same as no list.
        assert!(parse(&[("LLAMA_SIEVE_PRELOAD", "topk")]).0.is_off());
    }

    #[test]
    fn words_add_and_restrict_nothing() {
        let words = [("verify", false), ("large-grammars", true)];
        for (word, is_large) in words {
            let (settings, warnings) = parse(&[("LLAMA_SIEVE_PRELOAD", word)]);
            let expected = (!is_large, is_large, &Selection::All, 0);
            let found = (
                settings.verifies,
                settings.large_grammars,
                &settings.selection,
                warnings.len(),
            );
            assert_eq!(found, expected);
        }
        let both = "large_grammars,top-k,verify";
        let (settings, _) = parse(&[("LLAMA_SIEVE_PRELOAD", both)]);
        assert!(settings.verifies && settings.large_grammars);
        assert!(settings.selects(&TOP_K) && !settings.selects(&DIST));
        for (text, without) in [
            ("verify", ""),
            (" verify ,,", ""),
            ("verify,all", "all"),
            ("on, verify", "on"),
            ("off,verify", "off"),
            ("top-k,verify,dist", "top-k,dist"),
        ] {
            let (settings, warnings) = parse(&[("LLAMA_SIEVE_PRELOAD", text)]);
            assert_eq!(warnings, Vec::<String>::new());
            assert!(settings.verifies, "{text}");
            let (other, _) = parse(&[("LLAMA_SIEVE_PRELOAD", without)]);
            assert!(!other.verifies);
            assert_eq!(settings.selection, other.selection, "{text}");
        }
        // An unknown word causes a warning, and does not affect the other words.
        let (settings, warnings) = parse(&[("LLAMA_SIEVE_PRELOAD", "verify,verfy,dist")]);
        assert!(settings.verifies && settings.selects(&DIST) && !settings.selects(&TOP_K));
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].contains("named \"verfy\";")
                && warnings[0].contains("verify and large-grammars may be")
        );
    }

    #[test]
    fn a_build_number_may_have_its_letter() {
        for text in ["10300", "b10300", " 10300 "] {
            let (settings, warnings) = parse(&[("LLAMA_SIEVE_HOST", text)]);
            assert_eq!(settings.host_build, Some(10_300));
            assert!(warnings.is_empty());
        }
        for text in ["new", "-1", "10300x", "99999999999"] {
            let (settings, warnings) = parse(&[("LLAMA_SIEVE_HOST", text)]);
            assert_eq!(settings.host_build, None);
            assert_eq!(warnings.len(), 1);
            assert!(warnings[0].contains(text));
        }
    }

    #[test]
    fn verbose_is_a_switch() {
        for (text, expected) in [("1", true), ("yes", true), ("0", false), ("", false)] {
            assert_eq!(parse(&[("LLAMA_SIEVE_VERBOSE", text)]).0.verbose, expected);
        }
    }
}
