//! Compares the host's own grammars with this library's by testing both on the vocabulary in use.
//!
//! The syntax of a grammar's text, and its meaning, have changed from build to build of llama.cpp.
//! So before this library's grammar replaces the host's, both make small grammars that together use
//! every construct. Among a few hundred tokens both must allow the same, and leave candidates that
//! are equal bit for bit: while tokens are accepted, after a clone, and after a reset. The proof is
//! divided by the features of a text: see [`found::Part`]. If there is a difference, or if the host
//! refuses a text, the host makes its own grammars with that feature.
//!
//! Texts that should be refused are not tested: each text of a program is
//! [judged](crate::ffi::grammar::hosted) by the host's own constructor.
//!
//! No lock is held during the comparison. Two threads that make it at the same time reach equal
//! verdicts.

mod beside;
mod cases;
pub(in crate::ffi) mod found;
mod samples;

use std::sync::Arc;

use self::beside::{Beside, Unequal};
use self::cases::{Case, cases};
use self::found::{Part, Proofs, Verdict};
use self::samples::Samples;
use crate::ffi::failure::{Failure, part};
use crate::ffi::grammar::host_own::Functions;
use crate::ffi::grammar::lazy::Triggers;
use crate::ffi::host::Host;
use crate::ffi::host::vocabulary::{Tokenizer, llama_vocab};
use crate::grammar::VocabularyTree;
use crate::grammar::elements::About;
use crate::quoted::quoted;
use crate::sync::OnceLock;
use crate::token::Token;

/// The maximum number of repetitions that [`Part::Rules`] covers.
const FEW_REPETITIONS: u64 = 40;
/// The maximum number of repetitions that most builds allow.
const MANY_REPETITIONS: u64 = 2000;

/// Returns the parts that a text and its triggers need.
fn parts(about: About, triggers: Triggers) -> impl Iterator<Item = Part> {
    let most = about.most_repetitions;
    let (words, patterns, tokens) = match triggers {
        Triggers::None => (0, 0, 0),
        Triggers::Words((_, words), (_, tokens)) => (words, 0, tokens),
        Triggers::Patterns((_, patterns), (_, tokens)) => (0, patterns, tokens),
    };
    let needed = [
        (Part::Rules, true),
        (Part::Tokens, about.names_tokens),
        (Part::Dash, about.escapes_dash),
        (Part::Counts, most > FEW_REPETITIONS),
        (Part::Beyond, most > MANY_REPETITIONS),
        (Part::Words, words > 0),
        (Part::Patterns, patterns > 0),
        (Part::Triggers, tokens > 0),
    ];
    needed
        .into_iter()
        .filter_map(|(part, is_needed)| is_needed.then_some(part))
}

/// Returns `Ok` if the host's grammars behave as this library's do, for every part that the text
/// described by `about` and the triggers need; otherwise the difference.
///
/// # Safety
/// `functions` are those of the bound host, and `vocab` is its vocabulary, to which `proofs` and
/// `tree` belong.
pub(super) unsafe fn proven(
    functions: Functions,
    (vocab, proofs, tree): (*const llama_vocab, &Proofs, &Arc<VocabularyTree>),
    about: About,
    triggers: Triggers,
) -> Verdict {
    if about.root_is_made {
        return Err("the root is a rule that llama.cpp has made, and builds number these".into());
    }
    for part in parts(about, triggers) {
        let Some(place) = proofs.verdict(part) else {
            continue;
        };
        let verdict = match place.get() {
            Some(verdict) => verdict,
            None => {
                /// Keeps the verdict even if an exception passes.
                struct Noted<'a>(&'a OnceLock<Verdict>, Verdict);
                impl Drop for Noted<'_> {
                    fn drop(&mut self) {
                        // A second thread may have stored an equal verdict.
                        let _ = self.0.set(std::mem::replace(&mut self.1, Ok(())));
                    }
                }
                let mut noted = Noted(place, Err("it throws where ours does not".into()));
                // SAFETY: the caller guarantees functions and vocabulary.
                noted.1 = unsafe { tried(part, functions, (vocab, proofs, tree)) };
                drop(noted);
                match place.get() {
                    Some(verdict) => verdict,
                    None => continue,
                }
            }
        };
        verdict.clone()?;
    }
    Ok(())
}

/// Compares the host's grammars with this library's for the part `what`, and returns the verdict.
///
/// # Safety
/// The requirements of [`proven`] apply.
unsafe fn tried(
    what: Part,
    functions: Functions,
    (vocab, proofs, tree): (*const llama_vocab, &Proofs, &Arc<VocabularyTree>),
) -> Verdict {
    const CALL: &str = "grammar";
    let internal = |_| Err("internal error".to_owned());
    let prepared = part(CALL, || {
        // The samples are made outside `get_or_init`, so that no thread waits for another one,
        // which a forked child would not have.
        let found = proofs.samples.get().is_none().then(|| Samples::of(tree));
        let samples = proofs
            .samples
            .get_or_init(|| found.unwrap_or_else(|| Samples::of(tree)));
        let host = Host::get().map_err(Failure::no_host)?;
        // SAFETY: the caller guarantees the vocabulary.
        let tokenizer = unsafe { Tokenizer::of(&host, vocab) }.map_err(Failure::no_host)?;
        Ok((samples, tokenizer))
    });
    let (samples, tokenizer) = match prepared {
        Ok(prepared) => prepared,
        Err(code) => return internal(code),
    };
    let mut in_brackets: Option<(&[u8], Token)> = None;
    if what == Part::Tokens {
        for text in &samples.in_brackets {
            // SAFETY: the caller guarantees the vocabulary.
            let token = unsafe { tokenizer.one_token(vocab, text) };
            in_brackets = in_brackets.or(token.map(|token| (text.as_slice(), token)));
        }
    }
    let all = part(CALL, || {
        let text = in_brackets.map(|(text, _)| text);
        let invalid = |_| Failure::no_host("a text of ours has NUL in it".into());
        cases(what, samples, text).map_err(invalid)
    });
    let all = match all {
        Ok(all) => all,
        Err(code) => return internal(code),
    };
    if all.is_empty() {
        return Err("the vocabulary lacks what it takes to compare them".into());
    }
    for case in &all {
        let token = in_brackets.map(|(_, token)| token);
        // SAFETY: as above.
        let found = unsafe {
            Beside::new(functions, vocab, case, (samples, tree), token)
                .and_then(|mut beside| beside.follow(&case.plan))
        };
        match found {
            Ok(()) => {}
            Err(Unequal::Differs) => {
                let told = part(CALL, || Ok(told(case)));
                return Err(told.unwrap_or_default());
            }
            Err(Unequal::Internal) => return internal(0),
        }
    }
    Ok(())
}

/// Returns a description of the difference that `case` has shown.
fn told(case: &Case) -> String {
    let text = quoted(case.text.as_bytes());
    match &case.triggers {
        cases::Triggers::None => format!("it reads otherwise: {text}"),
        cases::Triggers::Words(texts) => {
            let words = texts.iter().map(|text| quoted(text.as_bytes()).to_string());
            format!(
                "it waits otherwise for the words {}",
                words.collect::<Vec<_>>().join(" ")
            )
        }
        cases::Triggers::Patterns(texts) => {
            let patterns = texts.iter().map(|text| quoted(text.as_bytes()).to_string());
            format!(
                "it waits otherwise for the patterns {}",
                patterns.collect::<Vec<_>>().join(" ")
            )
        }
        cases::Triggers::Tokens(_) => "it waits otherwise for tokens".to_owned(),
    }
}

#[cfg(test)]
mod tests;
