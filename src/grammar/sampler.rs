//! The grammar sampler: allows only tokens after which the text is still a prefix of a sentence of
//! the grammar.

use std::any::Any;
use std::ffi::CStr;
use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;

use crate::candidates::Candidates;
use crate::errors::{
    LLAMA_SIEVE_ERROR_GRAMMAR_END, LLAMA_SIEVE_ERROR_GRAMMAR_LIMIT,
    LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN, LLAMA_SIEVE_ERROR_INTERNAL,
};
use crate::fault;
use crate::grammar::cache::{self, Key};
use crate::grammar::choice;
use crate::grammar::compiled::Compiled;
use crate::grammar::elements::{About, Rules};
use crate::grammar::engine::Engine;
use crate::grammar::limits::{MAX_FORCED, MAX_ROLLBACK};
use crate::grammar::mask::Mask;
use crate::grammar::masks::have_grown;
use crate::grammar::parser::{ParseError, Repetitions};
use crate::grammar::pattern;
use crate::grammar::schema;
use crate::grammar::states::TooMuch;
use crate::grammar::tables::Text;
use crate::grammar::tags::Tags;
use crate::grammar::tracker::Tracker;
use crate::grammar::triggers::{Budget, Endless, Triggers, Waiting};
use crate::grammar::vocabulary_tree::{Kind as TextKind, VocabularyTree};
use crate::log;
use crate::pool::Pool;
use crate::quoted::quoted;
use crate::sampler::{self, Expected, Kind, MOST_FORCED, Sampler, Tell};
use crate::sync::Mutex;
use crate::token::{Token, TokenData};

/// The largest number of candidates that are tested one by one while the mask is unknown.
const FEW: usize = 96;

/// The reason why a constraint allows only the end of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dead {
    /// The host accepted a token that the grammar does not allow.
    NotAllowed,
    /// The generation ended where the grammar does not allow it.
    TooEarly,
    /// The grammar needed more work than its limits allow.
    Limit,
    /// An internal error.
    Internal,
}

impl Dead {
    /// Returns the error number.
    pub fn code(self) -> c_int {
        match self {
            Self::NotAllowed => LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN,
            Self::TooEarly => LLAMA_SIEVE_ERROR_GRAMMAR_END,
            Self::Limit => LLAMA_SIEVE_ERROR_GRAMMAR_LIMIT,
            Self::Internal => LLAMA_SIEVE_ERROR_INTERNAL,
        }
    }
}

/// The reason why a text was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// A description of the fault and its position.
    pub what: String,
    /// True if llama.cpp's own parser would hang or end the process.
    pub is_trap: bool,
}

impl Refused {
    fn trap(what: &str) -> Self {
        Self {
            what: what.into(),
            is_trap: true,
        }
    }
}

impl From<ParseError> for Refused {
    fn from(error: ParseError) -> Self {
        Self {
            is_trap: error.is_trap,
            what: error.to_string(),
        }
    }
}

/// A token that the grammar does not allow. It is kept for a host whose own sampler throws on such
/// a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The token.
    pub token: Token,
    /// The number of bytes of its text that precede the start of a lazy grammar.
    pub skipped: usize,
}

/// A constraint that keeps the text within a grammar.
///
/// A clone continues at the same position, with the same compiled grammar.
#[derive(Debug)]
pub struct Grammar {
    slot: Arc<Slot>,
}

/// The part of a grammar sampler that any thread may query.
#[derive(Debug)]
pub struct Slot {
    /// The state of the grammar; `None` if there is no grammar, and nothing is constrained.
    core: Mutex<Option<Core>>,
    n_tokens: usize,
}

#[derive(Clone)]
struct Core {
    tracker: Tracker,
    dead: Option<Dead>,
    /// The mask at the current position, once it has been computed.
    mask: Option<Arc<Mask>>,
    lazy: Option<Lazy>,
    /// True if the host itself reports tokens that are not allowed.
    hosted: bool,
    /// The last token that was not allowed.
    refusal: Option<Refusal>,
    /// The number of tokens accepted while the constraint was dead.
    dead_for: usize,
}

/// The triggers of a lazy grammar.
struct Lazy {
    triggers: Arc<Triggers>,
    tokens: Arc<[Token]>,
    /// The text so far, while the grammar waits for a trigger.
    waiting: Option<Waiting>,
    /// The text before the grammar began, as long as the tokens since then can be taken back.
    before: Option<Waiting>,
}

impl Clone for Lazy {
    /// Returns a clone that cannot take back tokens accepted before it was made.
    fn clone(&self) -> Self {
        Self {
            triggers: Arc::clone(&self.triggers),
            tokens: Arc::clone(&self.tokens),
            waiting: self.waiting.clone(),
            before: None,
        }
    }
}

/// An error: the token would make the constraint dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NotAllowed;

impl Lazy {
    /// Accepts a token while the grammar waits. Returns true if the grammar has begun with it.
    fn look(
        &mut self,
        tracker: &mut Tracker,
        token: Token,
        piece: &[u8],
        budget: &mut Budget,
    ) -> Result<bool, NotAllowed> {
        let Some(waiting) = &mut self.waiting else {
            return Err(NotAllowed);
        };
        let accepted = if self.tokens.contains(&token) {
            tracker.accept(std::iter::once((token, piece)))
        } else {
            match waiting.accept_within(&self.triggers, token, piece, budget) {
                Ok(None) => return Ok(false),
                Ok(Some(begin)) => tracker.accept(waiting.since(begin)),
                Err(Endless) => return Err(NotAllowed),
            }
        };
        match accepted {
            Ok(None) => Ok(true),
            _ => Err(NotAllowed),
        }
    }
}

/// An error: only this many tokens can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFar(pub usize);

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("tracker", &self.tracker)
            .field("dead", &self.dead)
            .finish_non_exhaustive()
    }
}

impl Grammar {
    /// Returns a constraint by the grammar `text`, whose start rule is `root`, for the vocabulary
    /// of `tree`. `token` returns the token of an element `<text>`, given with its brackets.
    pub fn new(
        text: &[u8],
        root: &[u8],
        repetitions: Repetitions,
        tree: &Arc<VocabularyTree>,
        token: impl Fn(&[u8]) -> Option<Token>,
    ) -> Result<Self, Refused> {
        let (key, engine) = cache::compiled(text, root, repetitions, tree, token)?;
        let grammar = Self::of(Arc::clone(&engine))?;
        // Only a grammar that was accepted is cached.
        cache::keep(key, &engine);
        Ok(grammar)
    }

    /// Returns a constraint by a cached grammar; `None` if it is not cached.
    pub fn cached(
        text: &[u8],
        root: &[u8],
        repetitions: Repetitions,
        tree: &Arc<VocabularyTree>,
    ) -> Option<Result<Self, Refused>> {
        let (_, engine) = cache::cached(text, root, repetitions, tree)?;
        Some(Self::of(engine))
    }

    /// Returns a constraint by a regular expression, in the syntax of the crate `regex`. The whole
    /// text must match it.
    pub fn regex(pattern: &str, tree: &Arc<VocabularyTree>) -> Result<Self, Refused> {
        let key = Key::of(cache::Kind::Pattern, [pattern.as_bytes()], tree);
        Self::built(key, tree, || {
            pattern::rules(pattern).map_err(|pattern::Refused(what)| what)
        })
    }

    /// Returns a constraint by a choice: the whole text is one of `values`, spelled by any tokens.
    pub fn choice(values: &[&[u8]], tree: &Arc<VocabularyTree>) -> Result<Self, Refused> {
        let key = Key::of(cache::Kind::Choice, values.iter().copied(), tree);
        Self::built(key, tree, || choice::rules(values))
    }

    /// Returns a constraint by a JSON Schema: the text is JSON that satisfies the schema. Also
    /// returns the keywords that are ignored because the options allow it, unless the schema is
    /// found in the cache.
    pub fn of_schema(
        text: &[u8],
        options: schema::Options,
        tree: &Arc<VocabularyTree>,
    ) -> Result<(Self, Vec<schema::Refusal>), Refused> {
        let key = Key::of(
            cache::Kind::Schema,
            [&options.bits().to_le_bytes()[..], text],
            tree,
        );
        let mut left_out = Vec::new();
        let grammar = Self::built(key, tree, || {
            let (rules, without) =
                schema::compile(text, options).map_err(|refusal| refusal.to_string())?;
            left_out = without;
            Ok(rules)
        })?;
        Ok((grammar, left_out))
    }

    /// Returns a constraint by tags that open constrained spans in free text. `token` returns the
    /// token of a text, which is given with its brackets.
    pub fn tags(
        tags: &Tags,
        tree: &Arc<VocabularyTree>,
        token: impl Fn(&[u8]) -> Option<Token>,
    ) -> Result<Self, Refused> {
        let key = Key::of(cache::Kind::Tags, [tags.json()], tree);
        Self::built(key, tree, || tags.rules(tree, &token))
    }

    /// Returns a constraint by the grammar that is cached under this key, or otherwise by these
    /// rules.
    fn built(
        key: Key,
        tree: &Arc<VocabularyTree>,
        rules: impl FnOnce() -> Result<Rules, String>,
    ) -> Result<Self, Refused> {
        if let Some(engine) = cache::found(key) {
            return Self::of(engine);
        }
        let rules = rules().map_err(|what| Refused {
            what,
            is_trap: false,
        })?;
        let engine = Arc::new(Engine::new(Compiled::new(rules, Arc::clone(tree))));
        let grammar = Self::of(Arc::clone(&engine))?;
        cache::keep(key, &engine);
        Ok(grammar)
    }

    /// Returns a constraint by a compiled grammar.
    pub fn of(engine: Arc<Engine>) -> Result<Self, Refused> {
        let n_tokens = engine.compiled().tree.n_tokens();
        let tracker = match Tracker::new(engine) {
            Ok(Some(tracker)) => tracker,
            Ok(None) => return Err(Refused::trap("no text can follow this grammar")),
            Err(TooMuch) => {
                let what = "what may come first exceeds the limits of a grammar's stacks";
                return Err(Refused::trap(what));
            }
        };
        let core = Core {
            tracker,
            dead: None,
            mask: None,
            lazy: None,
            hosted: false,
            refusal: None,
            dead_for: 0,
        };
        Ok(Self::with(Some(core), n_tokens))
    }

    /// Makes the grammar lazy: it constrains nothing before one of the tokens is accepted or one of
    /// the patterns is found in the text. The grammar then begins with that token, or at the
    /// position that the pattern determines.
    pub fn lazy(self, triggers: Arc<Triggers>, tokens: &[Token]) -> Self {
        if let Some(core) = self.slot.core.lock().as_mut() {
            core.lazy = Some(Lazy {
                triggers,
                tokens: tokens.into(),
                waiting: Some(Waiting::default()),
                before: None,
            });
        }
        self
    }

    /// Marks the grammar as one for a host that itself reports a token that is not allowed: see
    /// [`accept_for_host`](Self::accept_for_host).
    pub fn hosted(self) -> Self {
        if let Some(core) = self.slot.core.lock().as_mut() {
            core.hosted = true;
        }
        self
    }

    /// Accepts a token, like `accept`. Returns the token if llama.cpp's own sampler would throw on
    /// it. That includes a token outside the vocabulary, which changes nothing, and, after a token
    /// that was not allowed, every token that does not end the generation. After a limit or an
    /// internal error every token is returned, so that a truncated text is not mistaken for a
    /// finished one.
    pub fn accept_for_host(&mut self, token: Token) -> Option<Refusal> {
        let mut core = self.slot.core.lock();
        core.as_mut()?.change(|core| core.accept_for_host(token))
    }

    /// Returns a constraint that allows everything, for a vocabulary of `n_tokens` tokens.
    pub fn empty(n_tokens: usize) -> Self {
        Self::with(None, n_tokens)
    }

    fn with(core: Option<Core>, n_tokens: usize) -> Self {
        let core = Mutex::new(core);
        Self {
            slot: Arc::new(Slot { core, n_tokens }),
        }
    }

    /// True if the allowed first tokens can be computed within the limits. The result is kept with
    /// the compiled grammar.
    pub fn begins_within_limits(&self) -> bool {
        let mut core = self.slot.core.lock();
        core.as_mut().is_none_or(|core| core.tracker.mask().is_ok())
    }

    /// Returns the properties of the grammar's text that builds of llama.cpp treat differently;
    /// `None` without a grammar.
    pub fn about(&self) -> Option<About> {
        let core = self.slot.core.lock();
        let compiled = core.as_ref().map(|core| core.tracker.engine().compiled());
        compiled.map(|compiled| compiled.rules.about)
    }

    /// Returns the part that other threads may query.
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }
}

impl Clone for Grammar {
    fn clone(&self) -> Self {
        let core = self.slot.core.lock().clone();
        Self::with(core, self.slot.n_tokens)
    }

    fn clone_from(&mut self, source: &Self) {
        if Arc::ptr_eq(&self.slot, &source.slot) {
            return;
        }
        let core = source.slot.core.lock().clone();
        if self.slot.n_tokens != source.slot.n_tokens {
            *self = Self::with(core, source.slot.n_tokens);
            return;
        }
        let replaced = std::mem::replace(&mut *self.slot.core.lock(), core);
        drop(replaced);
    }
}

impl Slot {
    /// Returns the tokens that are allowed now.
    pub fn allowed(&self) -> Arc<Mask> {
        match self.core.lock().as_mut() {
            Some(core) => core.allowed(),
            None => Arc::new(Mask::all(self.n_tokens)),
        }
    }

    /// True if the text so far, without an unfinished character at its end, is a sentence of the
    /// grammar. Tokens that end the generation are then allowed. False without a grammar, while a
    /// lazy grammar waits for its trigger, and once the constraint is dead.
    pub fn is_complete(&self) -> bool {
        let core = self.core.lock();
        core.as_ref().is_some_and(Core::is_complete)
    }

    /// Takes back the last `n` accepted tokens, and restores the allowed tokens and the states
    /// complete, dead and waiting. Fails, and changes nothing, if fewer than `n` are kept: at most
    /// the last [`MAX_ROLLBACK`] since the constraint was made, reset or cloned. Also fails after
    /// an internal error.
    pub fn rollback(&self, n: usize) -> Result<(), TooFar> {
        match self.core.lock().as_mut() {
            Some(core) if n > 0 => core.change(|core| core.rollback(n)),
            _ => Ok(()),
        }
    }

    /// Returns the number of leading tokens in this sequence that the grammar allows. Changes
    /// nothing. Without a grammar all tokens of the vocabulary are allowed.
    pub fn accepts(&self, tokens: &[Token]) -> usize {
        match self.core.lock().as_mut() {
            _ if tokens.is_empty() => 0,
            Some(core) => core.change(|core| core.accepts(tokens)),
            None => {
                let has = |&&token: &&Token| (token as usize) < self.n_tokens;
                tokens.iter().take_while(has).count()
            }
        }
    }

    /// Returns the bytes that must follow, whichever tokens spell them. The first bytes may be the
    /// rest of a character that has begun. No character begins after the first [`MAX_FORCED`]
    /// bytes. Empty if the text may end, if a token element may follow, or if nothing is
    /// constrained.
    pub fn forced(&self) -> Vec<u8> {
        if let Some(core) = self.core.lock().as_mut()
            && core.dead.is_none()
            && !core.is_waiting()
        {
            return core.tracker.forced(MAX_FORCED);
        }
        Vec::new()
    }

    /// Returns the reason why the constraint is dead, if it is.
    pub fn dead(&self) -> Option<Dead> {
        self.core.lock().as_ref().and_then(|core| core.dead)
    }
}

impl Core {
    fn is_complete(&self) -> bool {
        self.dead.is_none() && !self.is_waiting() && self.tracker.may_end()
    }

    fn is_waiting(&self) -> bool {
        let lazy = self.lazy.as_ref();
        lazy.is_some_and(|lazy| lazy.waiting.is_some())
    }

    fn tree(&self) -> &VocabularyTree {
        &self.tracker.engine().compiled().tree
    }

    fn allowed(&mut self) -> Arc<Mask> {
        if self.dead.is_none() && self.is_waiting() {
            return Arc::new(Mask::all(self.tree().n_tokens()));
        }
        if self.dead.is_none()
            && let Ok(mask) = self.current_mask()
        {
            return mask;
        }
        let tree = self.tree();
        Arc::new(Mask::only(tree.n_tokens(), tree.end_of_generation()))
    }

    /// Returns the mask at the current position. If that takes too much work, the constraint
    /// becomes dead.
    fn current_mask(&mut self) -> Result<Arc<Mask>, TooMuch> {
        if let Some(mask) = &self.mask {
            return Ok(Arc::clone(mask));
        }
        match self.tracker.mask() {
            Ok(mask) => {
                self.mask = Some(Arc::clone(&mask));
                if have_grown() {
                    cache::trim();
                }
                Ok(mask)
            }
            Err(error) => {
                self.exceeds();
                Err(error)
            }
        }
    }

    fn exceeds(&mut self) {
        self.die(
            Dead::Limit,
            "what may follow exceeds the limits of a grammar's stacks and steps",
        );
    }

    fn die(&mut self, why: Dead, what: &str) {
        if self.dead.is_some() {
            return;
        }
        self.dead = Some(why);
        let text = format!(
            "grammar: {what}; only tokens that end the generation are allowed until the sampler is \
             reset"
        );
        log::error(why.code(), &text);
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if self.dead.is_some() {
            return self.end_only(candidates);
        }
        if self.is_waiting() {
            return;
        }
        if self.mask.is_none() && candidates.len() <= FEW {
            self.mask = self.tracker.known_mask();
            // If tests one by one take too many steps, the mask may still take fewer, since it
            // examines common prefixes only once. So the mask decides. Otherwise the result would
            // depend on earlier queries.
            if self.mask.is_none() && self.one_by_one(candidates.as_mut_slice()).is_ok() {
                return;
            }
        }
        match self.current_mask() {
            Ok(mask) => mask.apply(candidates.as_mut_slice()),
            Err(TooMuch) => self.end_only(candidates),
        }
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        if self.dead.is_none() && self.is_waiting() {
            return;
        }
        if self.dead.is_none()
            && let Some(mut whole) = pool.whole()
            && let Ok(mask) = self.current_mask()
        {
            return whole.mask(mask.words());
        }
        pool.apply(|candidates| self.apply(candidates));
    }

    /// Tests the candidates one by one. If that takes too many steps, changes nothing.
    fn one_by_one(&mut self, candidates: &mut [TokenData]) -> Result<(), TooMuch> {
        let ids = candidates.iter().map(|candidate| candidate.id);
        let allowed = self.tracker.test(ids)?;
        for (candidate, is_allowed) in candidates.iter_mut().zip(allowed) {
            if !is_allowed {
                candidate.logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    /// Keeps only the tokens that end the generation. If none of several candidates is such a
    /// token, one of these tokens replaces the first candidate. A single candidate is not replaced:
    /// a host passes one to check whether a token is allowed, and reads only its logit.
    fn end_only(&self, candidates: &mut Candidates<'_>) {
        let tree = self.tree();
        let ends =
            |candidate: &TokenData| tree.kind(candidate.id) == Some(TextKind::EndOfGeneration);
        let slice = candidates.as_mut_slice();
        let mut some = false;
        for candidate in slice.iter_mut() {
            if ends(candidate) {
                some = true;
            } else {
                candidate.logit = f32::NEG_INFINITY;
            }
        }
        if let (false, [first, _, ..], Some(&id)) = (some, slice, tree.end_of_generation().first())
        {
            (first.id, first.logit) = (id, 0.0);
        }
    }

    /// Returns the result of `change`. If `change` panics, the constraint becomes dead, since the
    /// position is then undefined.
    fn change<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        struct Unfinished<'a>(&'a mut Core);
        impl Drop for Unfinished<'_> {
            fn drop(&mut self) {
                self.0.dead = Some(Dead::Internal);
            }
        }
        let unfinished = Unfinished(self);
        let done = change(&mut *unfinished.0);
        fault::point();
        std::mem::forget(unfinished);
        done
    }

    /// Records a token after which no lazy grammar waits any more.
    fn note(&mut self) {
        self.dead_for += usize::from(self.dead.is_some());
        if !self.tracker.keep()
            && let Some(lazy) = &mut self.lazy
        {
            lazy.before = None;
        }
    }

    fn rollback(&mut self, n: usize) -> Result<(), TooFar> {
        let n_kept = self.tracker.n_kept();
        let waiting = self.lazy.as_ref();
        let waiting = waiting.and_then(|lazy| lazy.before.as_ref().or(lazy.waiting.as_ref()));
        let waited = waiting.map_or(0, Waiting::n_tokens);
        let most = n_kept + waiting.map_or(0, Waiting::reach);
        let most = most.min(MAX_ROLLBACK);
        if n > most || self.dead == Some(Dead::Internal) {
            return Err(TooFar(if n > most { most } else { 0 }));
        }
        self.mask = None;
        self.refusal = None;
        if n > self.dead_for {
            (self.dead, self.dead_for) = (None, 0);
        } else {
            self.dead_for -= n;
        }
        self.tracker.back(n.min(n_kept));
        if n < n_kept {
            return Ok(());
        }
        if let Some(lazy) = &mut self.lazy {
            if let Some(before) = lazy.before.take() {
                lazy.waiting = Some(before);
            }
            if let Some(waiting) = &mut lazy.waiting {
                let n_tokens = waited - (n - n_kept);
                if waiting.back_to(&lazy.triggers, n_tokens).is_err() {
                    self.dead = Some(Dead::Internal);
                }
            }
        }
        Ok(())
    }

    fn accepts(&mut self, tokens: &[Token]) -> usize {
        if self.dead.is_some() {
            return 0;
        }
        let Self { tracker, lazy, .. } = self;
        let engine = Arc::clone(tracker.engine());
        let tree = &engine.compiled().tree;
        let waiting = |lazy: &Lazy| lazy.waiting.as_ref().map(Waiting::n_tokens);
        let n_waited = lazy.as_ref().and_then(waiting);
        let n = tracker.ahead(|tracker| {
            let mut n = 0;
            if let (Some(lazy), Some(_)) = (lazy.as_mut(), n_waited) {
                let mut budget = Budget::default();
                let mut is_waiting = true;
                while is_waiting && let Some(&token) = tokens.get(n) {
                    let known = tree.kind(token).ok_or(NotAllowed);
                    let look = |_| lazy.look(tracker, token, tree.piece(token), &mut budget);
                    match known.and_then(look) {
                        Ok(has_begun) => is_waiting = !has_begun,
                        Err(NotAllowed) => return n,
                    }
                    n += 1;
                }
            }
            n + tracker.accepted(tokens.get(n..).unwrap_or_default())
        });
        if let (Some(lazy), Some(n_waited)) = (lazy, n_waited)
            && let Some(waiting) = &mut lazy.waiting
            && waiting.back_to(&lazy.triggers, n_waited).is_err()
        {
            self.dead = Some(Dead::Internal);
        }
        n
    }

    fn accept(&mut self, token: Token) {
        if self.dead.is_some() {
            return self.note();
        }
        let kind = self.tree().kind(token);
        match kind {
            None => {
                self.note();
                if let Some(lazy) = &mut self.lazy
                    && let Some(waiting) = lazy.waiting.take()
                {
                    lazy.before = Some(waiting);
                }
                self.die(
                    Dead::NotAllowed,
                    &format!("token {token} is not in the vocabulary"),
                );
            }
            Some(_) if self.is_waiting() => self.wait(token),
            Some(TextKind::EndOfGeneration) => {
                self.note();
                if !self.tracker.may_end() {
                    let expected = self.tracker.expected();
                    self.die(
                        Dead::TooEarly,
                        &format!("token {token} ends the generation, but expected is {expected}"),
                    );
                }
            }
            Some(_) => {
                self.note();
                let engine = Arc::clone(self.tracker.engine());
                let text = engine.compiled().tree.text(token);
                self.follow(std::iter::once((token, text)));
            }
        }
    }

    fn accept_for_host(&mut self, token: Token) -> Option<Refusal> {
        let refusal = Refusal { token, skipped: 0 };
        let Some(kind) = self.tree().kind(token) else {
            return Some(refusal);
        };
        let is_end = kind == TextKind::EndOfGeneration;
        if self.dead.is_some() {
            self.note();
        }
        match self.dead {
            None => {
                self.refusal = None;
                self.accept(token);
                // After the end there is no further token that could be refused.
                let is_cut_off = is_end && self.dead == Some(Dead::Limit);
                self.refusal.take().or(is_cut_off.then_some(refusal))
            }
            // The end token is not reported: llama.cpp's own sampler would end the process.
            Some(Dead::NotAllowed | Dead::TooEarly) => (!is_end).then_some(refusal),
            Some(Dead::Limit | Dead::Internal) => Some(refusal),
        }
    }

    /// Accepts a token while the lazy grammar waits. The grammar may begin with this token.
    fn wait(&mut self, token: Token) {
        let engine = Arc::clone(self.tracker.engine());
        let piece = engine.compiled().tree.piece(token);
        let Some(lazy) = &mut self.lazy else {
            return;
        };
        let Some(mut waiting) = lazy.waiting.take() else {
            return;
        };
        let n_tokens = waiting.n_tokens();
        if lazy.tokens.contains(&token) {
            self.note();
            self.has_waited(waiting, n_tokens);
            self.follow(std::iter::once((token, piece)));
            return;
        }
        match waiting.accept(&lazy.triggers, token, piece) {
            Ok(None) => lazy.waiting = Some(waiting),
            Ok(Some(begin)) => {
                self.note();
                let refused = self.follow(waiting.since(begin));
                if let (Some((token, text)), Some(refusal)) = (refused, &mut self.refusal) {
                    refusal.skipped = engine.compiled().tree.piece(token).len() - text.len();
                }
                self.has_waited(waiting, n_tokens);
            }
            Err(Endless) => {
                self.note();
                self.has_waited(waiting, n_tokens);
                self.die(
                    Dead::Limit,
                    "the search for a trigger exceeds the limits of steps",
                );
            }
        }
    }

    /// Keeps the text of the `n` tokens before the grammar began.
    fn has_waited(&mut self, mut waiting: Waiting, n: usize) {
        if let Some(lazy) = &mut self.lazy
            && waiting.back_to(&lazy.triggers, n).is_ok()
        {
            lazy.before = Some(waiting);
        }
    }

    /// Accepts tokens. If one is not allowed, the constraint becomes dead, and that token is
    /// returned.
    fn follow<'t>(&mut self, tokens: impl Iterator<Item = Text<'t>> + Clone) -> Option<Text<'t>> {
        self.mask = None;
        let refused = match self.tracker.accept(tokens) {
            Ok(refused) => refused?,
            Err(TooMuch) => {
                self.exceeds();
                return None;
            }
        };
        let (token, text) = refused;
        self.refusal = Some(Refusal { token, skipped: 0 });
        if self.hosted {
            self.dead = Some(Dead::NotAllowed);
            return Some(refused);
        }
        let expected = self.tracker.expected();
        let text = quoted(text);
        self.die(
            Dead::NotAllowed,
            &format!("token {token} (\"{text}\") is not allowed, expected is {expected}"),
        );
        Some(refused)
    }

    fn reset(&mut self) {
        self.mask = None;
        self.dead = None;
        self.dead_for = 0;
        if let Some(lazy) = &mut self.lazy {
            lazy.waiting = Some(Waiting::default());
            lazy.before = None;
        }
        if self.tracker.reset().is_err() {
            self.exceeds();
        }
    }
}

impl Sampler for Grammar {
    const KIND: Kind = Kind::Constraint;
    const ACCEPTS: bool = true;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"grammar"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if let Some(core) = self.slot.core.lock().as_mut() {
            core.apply(candidates);
        }
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        if let Some(core) = self.slot.core.lock().as_mut() {
            core.narrow(pool);
        }
    }

    fn accept(&mut self, token: Token) {
        if let Some(core) = self.slot.core.lock().as_mut() {
            core.change(|core| core.accept(token));
        }
    }

    fn reset(&mut self) {
        if let Some(core) = self.slot.core.lock().as_mut() {
            core.change(Core::reset);
        }
    }

    fn salvage(&mut self, candidates: &mut Candidates<'_>) {
        if let Some(core) = self.slot.core.lock().as_mut() {
            core.dead = Some(Dead::Internal);
            core.end_only(candidates);
        }
    }

    fn tell(&self, about: sampler::About, to: Tell<'_>) {
        if let (sampler::About::Next, Some(core)) = (about, self.slot.core.lock().as_ref())
            && core.is_waiting()
        {
            to("waits", 1.0);
        }
    }

    fn expected(&self) -> Option<Expected> {
        let mut core = self.slot.core.lock();
        let core = core.as_mut()?;
        let is_at_work = core.dead.is_none() && !core.is_waiting();
        let words = is_at_work.then(|| core.tracker.expected())?;
        let expected = |words| Expected {
            words,
            forced: core.tracker.forced(MOST_FORCED),
        };
        (!words.is_empty()).then_some(words).map(expected)
    }

    fn shared(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.slot) as _)
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
