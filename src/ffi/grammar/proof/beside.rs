//! Compares this library's grammar with the one that the host makes from the same text.
//!
//! The host's functions are called outside the guard, so that their exceptions pass through. This
//! library's code runs inside the guard.

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use super::cases::{Case, Choice, Plan, Triggers};
use super::samples::{RULER, Samples, candidate};
use crate::candidates::Candidates;
use crate::ffi::failure::{Failure, part};
use crate::ffi::grammar::host_own::{Functions, Owned};
use crate::ffi::host::llama_h::llama_token_data_array;
use crate::ffi::host::vocabulary::llama_vocab;
use crate::grammar::compiled::Compiled;
use crate::grammar::engine::Engine;
use crate::grammar::parser::{Repetitions, parse};
use crate::grammar::triggers;
use crate::grammar::{Grammar, VocabularyTree};
use crate::sampler::Sampler;
use crate::token::{Token, TokenData};

/// The reason why two grammars are not proven equal.
pub(super) enum Unequal {
    /// The two leave different candidates, or the host makes no grammar.
    Differs,
    /// This library's own code has failed.
    Internal,
}

/// This library's grammar and the host's, with the buffers of the comparison.
pub(super) struct Beside<'a> {
    functions: Functions,
    theirs: Owned,
    ours: Grammar,
    samples: &'a Samples,
    /// The candidates for the host's grammar, and for this library's.
    work: [Vec<TokenData>; 2],
    /// Tokens that both grammars allow.
    allowed: Vec<Token>,
    random: u64,
}

const CALL: &str = "grammar";

fn inside<T>(body: impl FnOnce() -> Result<T, Unequal>) -> Result<T, Unequal> {
    let caught = |_| Err(Unequal::Internal);
    part(CALL, || Ok::<_, Failure>(body())).unwrap_or_else(caught)
}

impl<'a> Beside<'a> {
    /// Makes both grammars of `case`. Returns an error if the host makes none, or if this library's
    /// code fails.
    ///
    /// # Safety
    /// The functions are those of the bound host, and `vocab` is a vocabulary of that host.
    pub(super) unsafe fn new(
        functions: Functions,
        vocab: *const llama_vocab,
        case: &Case,
        (samples, tree): (&'a Samples, &Arc<VocabularyTree>),
        in_brackets: Option<Token>,
    ) -> Result<Self, Unequal> {
        let (ours, strings) = inside(|| {
            let ours = ours(case, tree, in_brackets).ok_or(Unequal::Internal)?;
            let strings: Vec<*const c_char> = match &case.triggers {
                Triggers::Words(texts) | Triggers::Patterns(texts) => {
                    texts.iter().map(|text| text.as_ptr()).collect()
                }
                Triggers::None | Triggers::Tokens(_) => Vec::new(),
            };
            Ok((ours, strings))
        })?;
        let (text, root) = (case.text.as_ptr(), case.root.as_ptr());
        let n = strings.len();
        // SAFETY: the caller guarantees functions and vocabulary; the strings outlive the calls.
        let theirs = unsafe {
            match &case.triggers {
                Triggers::None => (functions.plain)(vocab, text, root),
                Triggers::Words(_) => {
                    let words = functions.words.ok_or(Unequal::Differs)?;
                    words(vocab, text, root, strings.as_ptr(), n, [].as_ptr(), 0)
                }
                Triggers::Patterns(_) => {
                    let none = [].as_ptr();
                    (functions.patterns)(vocab, text, root, strings.as_ptr(), n, none, 0)
                }
                Triggers::Tokens(tokens) => {
                    let (tokens, n) = (tokens.as_ptr(), tokens.len());
                    (functions.patterns)(vocab, text, root, [].as_ptr(), 0, tokens, n)
                }
            }
        };
        let theirs = Owned(theirs, functions.free);
        if theirs.0.is_null() {
            return Err(Unequal::Differs);
        }
        inside(|| {
            let room = || Vec::with_capacity(samples.all.len().max(samples.ruler.len()));
            Ok(Self {
                functions,
                theirs,
                ours,
                samples,
                work: [room(), room()],
                allowed: Vec::with_capacity(samples.all.len()),
                random: 1,
            })
        })
    }

    /// Carries out `plan` with both grammars, and fails at the first difference.
    ///
    /// # Safety
    /// The host whose functions [`new`](Self::new) was given is still loaded.
    pub(super) unsafe fn follow(&mut self, plan: &Plan) -> Result<(), Unequal> {
        let samples = self.samples;
        // SAFETY: the caller guarantees the host.
        unsafe {
            match plan {
                &Plan::Walk { n_steps, choice } => {
                    self.compare(&samples.all)?;
                    for step in 0..n_steps {
                        if step == 1 {
                            self.exchange()?;
                            self.compare(&samples.all)?;
                        }
                        let Some(token) = self.chosen(choice)? else {
                            break;
                        };
                        self.accept(token)?;
                        self.compare(&samples.all)?;
                    }
                    self.reset()?;
                    self.compare(&samples.ruler)
                }
                &Plan::Rounds { token, n } => {
                    for round in 0..n {
                        if round + 2 >= n {
                            self.compare(&samples.ruler)?;
                        }
                        if !self.they_allow(token) {
                            return Err(Unequal::Differs);
                        }
                        self.accept(token)?;
                    }
                    self.compare(&samples.ruler)
                }
                Plan::Spelt {
                    tokens,
                    letter,
                    copied,
                } => {
                    self.compare(&samples.ruler)?;
                    for (step, &token) in tokens.iter().enumerate() {
                        if step == 1 && *copied {
                            self.exchange()?;
                            self.compare(&samples.ruler)?;
                        }
                        self.accept(token)?;
                        self.compare(&samples.ruler)?;
                    }
                    for _ in 0..=RULER {
                        if !self.allowed.contains(letter) {
                            break;
                        }
                        self.accept(*letter)?;
                        self.compare(&samples.ruler)?;
                    }
                    if *copied {
                        self.reset()?;
                        self.compare(&samples.ruler)?;
                        self.accept(*letter)?;
                        self.compare(&samples.ruler)?;
                    }
                    Ok(())
                }
            }
        }
    }

    /// Applies both grammars to the candidates, and records the tokens that both allow. Returns an
    /// error if the two leave different candidates.
    ///
    /// # Safety
    /// The requirements of [`follow`](Self::follow) apply.
    unsafe fn compare(&mut self, candidates: &[TokenData]) -> Result<(), Unequal> {
        inside(|| {
            for work in &mut self.work {
                work.clear();
                work.extend_from_slice(candidates);
            }
            Ok(())
        })?;
        let [theirs, ours] = &mut self.work;
        for chunk in Samples::chunks(theirs) {
            let mut array = llama_token_data_array {
                data: chunk.as_mut_ptr(),
                size: chunk.len(),
                selected: -1,
                sorted: 0,
            };
            // SAFETY: the caller guarantees the host; the array is this call's.
            unsafe { (self.functions.apply)(self.theirs.0, &raw mut array) };
            let is_whole = array.data == chunk.as_mut_ptr() && array.size == chunk.len();
            if !is_whole || array.selected != -1 || array.sorted != 0 {
                return Err(Unequal::Differs);
            }
        }
        let grammar = &mut self.ours;
        let allowed = &mut self.allowed;
        inside(|| {
            for chunk in Samples::chunks(ours) {
                grammar.apply(&mut Candidates::new(chunk, false));
            }
            let bits = |one: &TokenData| (one.id, one.logit.to_bits(), one.p.to_bits());
            if !theirs.iter().map(bits).eq(ours.iter().map(bits)) {
                return Err(Unequal::Differs);
            }
            let left = ours.iter().filter(|one| one.logit != f32::NEG_INFINITY);
            allowed.clear();
            allowed.extend(left.map(|one| one.id));
            Ok(())
        })
    }

    /// Returns true if the host's grammar allows `token`.
    ///
    /// # Safety
    /// The requirements of [`follow`](Self::follow) apply.
    unsafe fn they_allow(&self, token: Token) -> bool {
        let mut candidate = candidate(token);
        let mut array = llama_token_data_array {
            data: &raw mut candidate,
            size: 1,
            selected: -1,
            sorted: 0,
        };
        // SAFETY: the caller guarantees the host; the array is this call's.
        unsafe { (self.functions.apply)(self.theirs.0, &raw mut array) };
        candidate.logit != f32::NEG_INFINITY
    }

    /// Returns a random token among those that both grammars allow, that do not end the generation,
    /// and that `choice` admits; `None` if there is no such token.
    fn chosen(&mut self, choice: Choice) -> Result<Option<Token>, Unequal> {
        let (samples, allowed) = (self.samples, &self.allowed);
        let random = &mut self.random;
        inside(|| {
            let mut may: Vec<Token> = allowed.clone();
            may.retain(|&token| !samples.ends(token));
            match choice {
                Choice::Any => {}
                Choice::Partial => {
                    if may.iter().any(|&token| samples.is_partial(token)) {
                        may.retain(|&token| samples.is_partial(token));
                    }
                }
                Choice::Characters => may.retain(|&token| samples.is_character(token)),
            }
            *random = random.wrapping_mul(6_364_136_223_846_793_005);
            *random = random.wrapping_add(1_442_695_040_888_963_407);
            let place = (*random >> 33).checked_rem(may.len() as u64);
            Ok(place.and_then(|place| may.get(place as usize).copied()))
        })
    }

    /// Makes both grammars accept a token. Returns an error if this library's grammar refuses it.
    ///
    /// # Safety
    /// The requirements of [`follow`](Self::follow) apply.
    unsafe fn accept(&mut self, token: Token) -> Result<(), Unequal> {
        // SAFETY: the caller guarantees the host.
        unsafe { (self.functions.accept)(self.theirs.0, token) };
        let ours = &mut self.ours;
        inside(|| match ours.accept_for_host(token) {
            None => Ok(()),
            Some(_) => Err(Unequal::Internal),
        })
    }

    /// Replaces both grammars with their clones.
    ///
    /// # Safety
    /// The requirements of [`follow`](Self::follow) apply.
    unsafe fn exchange(&mut self) -> Result<(), Unequal> {
        // SAFETY: the caller guarantees the host.
        let clone = unsafe { (self.functions.clone)(self.theirs.0) };
        let clone = Owned(clone, self.functions.free);
        if clone.0.is_null() {
            return Err(Unequal::Differs);
        }
        self.theirs = clone;
        let ours = &mut self.ours;
        inside(|| {
            *ours = ours.clone();
            Ok(())
        })
    }

    /// Resets both grammars.
    ///
    /// # Safety
    /// The requirements of [`follow`](Self::follow) apply.
    unsafe fn reset(&mut self) -> Result<(), Unequal> {
        // SAFETY: the caller guarantees the host.
        unsafe { (self.functions.reset)(self.theirs.0) };
        let ours = &mut self.ours;
        inside(|| {
            ours.reset();
            Ok(())
        })
    }
}

/// Returns this library's grammar for `case`, without caching it; `None` if this library refuses
/// it.
fn ours(case: &Case, tree: &Arc<VocabularyTree>, in_brackets: Option<Token>) -> Option<Grammar> {
    let (text, root) = (case.text.as_bytes(), case.root.as_bytes());
    let rules = parse(text, root, Repetitions::AsLlamaCpp, |_| in_brackets).ok()?;
    let compiled = Compiled::new(rules, Arc::clone(tree));
    let grammar = Grammar::of(Arc::new(Engine::new(compiled))).ok()?.hosted();
    let bytes = |texts: &[std::ffi::CString]| -> Vec<Vec<u8>> {
        texts
            .iter()
            .map(|text| text.as_c_str())
            .map(CStr::to_bytes)
            .map(Into::into)
            .collect()
    };
    let (triggers, tokens) = match &case.triggers {
        Triggers::None => return Some(grammar),
        Triggers::Words(words) => {
            let words = bytes(words);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            (triggers::Triggers::of_words(&words).ok()?, &[][..])
        }
        Triggers::Patterns(patterns) => {
            let patterns = bytes(patterns);
            let patterns: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
            (Arc::new(triggers::Triggers::read(&patterns).ok()?), &[][..])
        }
        Triggers::Tokens(tokens) => {
            let none = triggers::Triggers::read(&[]).ok()?;
            (Arc::new(none), tokens.as_slice())
        }
    };
    Some(grammar.lazy(triggers, tokens))
}
