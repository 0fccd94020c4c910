//! Observes the candidates of one token between the stages of its chain.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use super::options::Options;
use crate::kernels::layout::CHUNK;
use crate::kernels::logits::Logits;
use crate::kernels::scan::count_at_least;
use crate::metrics::Summary;
use crate::pool::Pool;
use crate::sampler::{About, Expected, Step, Tell};
use crate::token::{Token, TokenData, comparable};

/// The samplers that let only some tokens through, regardless of their logits.
pub(super) const CONSTRAINTS: [&str; 2] = ["grammar", "token-trie"];

/// The samplers that remove candidates by their logits, and change no logit.
pub(super) const TRUNCATIONS: [&str; 15] = [
    "top-k",
    "top-p",
    "min-p",
    "typical",
    "top-n-sigma",
    "xtc",
    "tail-free",
    "top-a",
    "epsilon-cutoff",
    "eta-cutoff",
    "p-less",
    "top-h",
    "min-k",
    "mirostat",
    "mirostat-v2",
];

/// A query to the observed stage.
pub type Ask<'a> = &'a dyn Fn(About, Tell<'_>);

/// The name of a stage.
pub type Name = Cow<'static, str>;

/// An observer of the stages by which a token is chosen.
pub trait Watch {
    /// Called before a stage with a function that describes the tokens it will let through, if it
    /// is a constraint.
    #[inline(always)]
    fn expects(&mut self, _of: impl FnOnce() -> Option<Expected>) {}

    /// Called before a stage runs.
    fn before(&mut self, ask: Ask<'_>);

    /// Called after a stage, with the pool in the state that it left.
    fn after(&mut self, name: impl FnOnce() -> Name, pool: &mut Pool<'_>, ask: Ask<'_>);

    /// Called when the token is chosen from the pool; `logits` are the raw ones.
    fn chosen(&mut self, token: Token, logits: Logits<'_>, pool: &mut Pool<'_>);
}

/// Runs `step` on the pool, and reports it to `watch`.
#[inline(always)]
pub(crate) fn watched(
    step: &mut (impl Step + ?Sized),
    pool: &mut Pool<'_>,
    watch: &mut impl Watch,
) {
    watch.expects(|| step.expected());
    watch.before(&|about, to| step.tell(about, to));
    step.narrow(pool);
    let name = || step.name().to_string_lossy();
    watch.after(name, pool, &|about, to| step.tell(about, to));
}

/// An observer that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Off;

impl Watch for Off {
    #[inline(always)]
    fn before(&mut self, _: Ask<'_>) {}

    #[inline(always)]
    fn after(&mut self, _: impl FnOnce() -> Name, _: &mut Pool<'_>, _: Ask<'_>) {}

    #[inline(always)]
    fn chosen(&mut self, _: Token, _: Logits<'_>, _: &mut Pool<'_>) {}
}

/// Numbers by name.
pub type Numbers = Vec<(&'static str, f64)>;

/// The record of one token's stages.
#[derive(Debug)]
pub struct Observer {
    pub(super) options: Options,
    /// The start of the observation.
    pub(super) began: Instant,
    /// The time that the stages took.
    pub(super) spent: Duration,
    stage_began: Instant,
    /// The distribution of the model.
    pub(super) raw: Summary,
    /// The distribution that the last stage has left.
    pub(super) last: Summary,
    pub(super) n_vocab: usize,
    pub(super) followed: Vec<Followed>,
    tokens: Vec<Token>,
    found: Vec<Option<f32>>,
    pub(super) stages: Vec<Stage>,
    /// The numbers that the running stage has reported.
    next: Numbers,
    /// A description of what the running stage lets through.
    expected: Option<String>,
    /// The bytes that the constraints leave as the only continuation.
    pub(super) forced: Vec<u8>,
    pub(super) chosen: Option<Chosen>,
    /// True if the line of this token replaces the previous line.
    pub(super) replaces: bool,
    /// If a grammar outside the chain has checked the token, true if that grammar waits for its
    /// trigger. `None` if there is no such grammar.
    pub(super) checked: Option<bool>,
}

/// A stage of the chain.
#[derive(Debug)]
pub(super) struct Stage {
    pub name: Name,
    pub parameters: Numbers,
    pub numbers: Numbers,
    /// A description of what a constraint let through.
    pub expected: Option<String>,
    pub took: Duration,
    /// The number of candidates above minus infinity that the stage left.
    pub left: usize,
    /// The share of the probability that the stage kept, if it removed candidates and changed no
    /// logits.
    pub kept: Option<f64>,
    /// The largest probability before the stage.
    pub largest: f64,
    /// The log-sum-exp of the logits that the stage left.
    pub log_sum_exp: f64,
}

/// One of the most probable candidates.
#[derive(Debug)]
pub(super) struct Followed {
    pub token: Token,
    pub raw: f32,
    /// The logit; `None` if the candidate was removed.
    pub logit: Option<f32>,
    /// The index of the stage that removed the candidate.
    pub out: Option<usize>,
    pub changes: Vec<Change>,
}

/// A stage that changed a logit.
#[derive(Debug)]
pub(super) struct Change {
    pub stage: usize,
    pub logit: f32,
    pub numbers: Numbers,
}

/// The token that the chain chose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub token: Token,
    pub raw: f32,
    /// The number of tokens with a larger raw logit.
    pub rank: usize,
    /// The token's logit among the candidates that the chain has left, if it is one of them.
    pub logit: Option<f32>,
}

impl Observer {
    pub(super) fn new(logits: Logits<'_>, options: Options) -> Self {
        let began = Instant::now();
        let mut top: Vec<TokenData> = Vec::new();
        let raw = Summary::with_most_probable(logits, options.n, true, &mut top);
        let followed = top.iter().map(|candidate| Followed {
            token: candidate.id,
            raw: candidate.logit,
            logit: Some(candidate.logit),
            out: None,
            changes: Vec::new(),
        });
        let followed: Vec<Followed> = followed.take(options.n).collect();
        let tokens: Vec<Token> = followed.iter().map(|followed| followed.token).collect();
        Self {
            options,
            began,
            spent: Duration::ZERO,
            stage_began: began,
            raw,
            last: raw,
            n_vocab: logits.len(),
            found: vec![None; tokens.len()],
            followed,
            tokens,
            stages: Vec::new(),
            next: Numbers::new(),
            expected: None,
            forced: Vec::new(),
            chosen: None,
            replaces: false,
            checked: None,
        }
    }

    /// Marks this token as the replacement for the refused token in the previous line of the same
    /// sequence.
    pub fn replace(&mut self) {
        self.replaces = true;
    }

    /// Records that a grammar outside the chain has checked the token. `waits` is true if that
    /// grammar allows all tokens until its trigger is complete. `of` describes what it lets
    /// through.
    pub fn check(&mut self, waits: bool, of: impl FnOnce() -> Option<Expected>) {
        self.checked = Some(waits);
        self.asked(of);
    }

    /// Returns a description of what a constraint lets through, and records the bytes that it
    /// forces.
    fn asked(&mut self, of: impl FnOnce() -> Option<Expected>) -> Option<String> {
        // Both depend on the text, and are omitted with it.
        let expected = self.options.text.then(of).flatten()?;
        // The longer of two constraints' continuations begins with the shorter one.
        if expected.forced.len() > self.forced.len() {
            self.forced = expected.forced;
        }
        Some(expected.words)
    }

    /// Returns the chosen token.
    pub fn token(&self) -> Option<Token> {
        self.chosen.map(|chosen| chosen.token)
    }

    fn rank(&self, raw: f32, logits: Logits<'_>) -> usize {
        let larger = |followed: &&Followed| followed.raw > raw;
        let before = self.followed.iter().filter(larger).count();
        match before < self.followed.len() {
            true => before,
            false => count_above(logits, raw),
        }
    }

    /// Returns the distribution after the logits of a few tokens have changed, computed from these
    /// logits alone; `None` if that is not possible.
    fn edited(&self, pool: &Pool<'_>) -> Option<Summary> {
        let mut edits = pool.edits()?.peekable();
        if edits.peek().is_none() {
            return Some(self.raw);
        }
        let edits: Vec<(Token, f32, f32)> = edits.collect();
        let is_edited = |token: Token| edits.binary_search_by_key(&token, |edit| edit.0).is_ok();
        let mut others = self.followed.iter();
        // The first unchanged one is the largest of all unchanged ones.
        let largest = others.find(|followed| !is_edited(followed.token))?.raw;
        let before = edits.iter().map(|&(_, before, _)| before);
        let mut left = self.raw.without(before, largest)?;
        let after: Vec<f32> = edits.iter().map(|&(.., after)| after).collect();
        left.merge(&Summary::of(&after[..]));
        Some(left)
    }

    /// Returns the distribution of the pool.
    fn summary(&self, name: &str, pool: &mut Pool<'_>) -> Summary {
        if let Some(edited) = self.edited(pool) {
            return edited;
        }
        // These samplers choose a token, and do not change the logits.
        if matches!(name, "dist" | "greedy") {
            return self.last;
        }
        let mut left = Summary::default();
        pool.visit_logits(|logits| left.add(Logits::F32(logits), &mut []));
        left
    }
}

/// Returns the number of logits that are larger than `logit`.
fn count_above(logits: Logits<'_>, logit: f32) -> usize {
    let (n, mut chunk) = (logits.len(), [0.0f32; CHUNK]);
    let of_chunk = |start| {
        let part = chunk.get_mut(..CHUNK.min(n - start)).unwrap_or_default();
        logits.widen(start, part);
        count_at_least(part, logit.next_up())
    };
    (0..n).step_by(CHUNK).map(of_chunk).sum()
}

impl Watch for Observer {
    fn expects(&mut self, of: impl FnOnce() -> Option<Expected>) {
        self.expected = self.asked(of);
    }

    fn before(&mut self, ask: Ask<'_>) {
        let next = &mut self.next;
        next.clear();
        ask(About::Next, &mut |name, value| next.push((name, value)));
        self.stage_began = Instant::now();
    }

    fn after(&mut self, name: impl FnOnce() -> Name, pool: &mut Pool<'_>, ask: Ask<'_>) {
        let took = self.stage_began.elapsed();
        let name = name();
        self.spent += took;
        let index = self.stages.len();
        pool.find(&self.tokens, &mut self.found);
        let mut are_same = true;
        for (followed, found) in self.followed.iter_mut().zip(&self.found) {
            let found = found.filter(|&logit| comparable(logit) > f32::NEG_INFINITY);
            let changed = match (followed.logit, found) {
                (None, None) => continue,
                // A constraint may put back what others have removed.
                (None, Some(logit)) => Some(logit),
                (Some(_), None) => None,
                (Some(before), Some(now)) => (before != now).then_some(now),
            };
            if found.is_none() {
                followed.out = Some(index);
            } else if followed.logit.is_none() {
                followed.out = None;
            }
            if let Some(logit) = changed {
                are_same = false;
                let mut numbers = Numbers::new();
                ask(About::Token(followed.token), &mut |name, value| {
                    numbers.push((name, value));
                });
                followed.changes.push(Change {
                    stage: index,
                    logit,
                    numbers,
                });
            }
            followed.logit = found;
        }
        let left = self.summary(&name, pool);
        let keeps = CONSTRAINTS
            .iter()
            .chain(&TRUNCATIONS)
            .any(|known| *known == name);
        let removes = left.unmasked() < self.last.unmasked() && are_same && keeps;
        let mut parameters = Numbers::new();
        ask(About::Parameters, &mut |name, value| {
            parameters.push((name, value))
        });
        self.stages.push(Stage {
            name,
            parameters,
            numbers: std::mem::take(&mut self.next),
            expected: self.expected.take(),
            took,
            left: left.unmasked(),
            kept: removes.then(|| {
                (left.log_sum_exp() - self.last.log_sum_exp())
                    .exp()
                    .min(1.0)
            }),
            largest: 1.0 / self.last.mass(),
            log_sum_exp: left.log_sum_exp(),
        });
        self.last = left;
    }

    fn chosen(&mut self, token: Token, logits: Logits<'_>, pool: &mut Pool<'_>) {
        let mut logit = [None];
        pool.find(&[token], &mut logit);
        let place = usize::try_from(token)
            .ok()
            .filter(|&place| place < logits.len());
        let raw = place.map_or(f32::NEG_INFINITY, |place| comparable(logits.at(place)));
        self.chosen = Some(Chosen {
            token,
            raw,
            rank: self.rank(raw, logits),
            logit: logit[0],
        });
    }
}
