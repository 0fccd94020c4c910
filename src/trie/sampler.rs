//! The sampler of a token trie, and the slot that holds its state.
//!
//! The state is in a [`Slot`], shared by the sampler and the code that sets it, perhaps on other
//! threads. A new trie takes effect between two tokens. The slot's lock is held for one `apply` at
//! most, and payloads are parsed before it is taken. Warnings are logged after it is released, so
//! that a log callback may call back.
//!
//! If a span is active, then after `apply` only tokens that may follow have a logit above minus
//! infinity. There is at least one, whatever earlier samplers have removed, unless all are banned:
//! tokens to which an earlier sampler has given minus infinity stay banned. If all tokens that may
//! follow are banned, only they stay in the array, so that any choice is still valid and no host
//! gets an empty array. Two things could undo this later in the chain. An array marked as sorted
//! could begin with a masked candidate, so masking clears the mark. A softmax would turn an
//! infinite logit into NaN, so a candidate with such a logit is kept alone.

use std::ffi::CStr;
use std::sync::Arc;

use crate::candidates::Candidates;
use crate::errors::LLAMA_SIEVE_ERROR_NO_CANDIDATE;
use crate::fault;
use crate::log;
use crate::quoted::{listed, quoted};
use crate::sampler::{Kind, Sampler};
use crate::sync::{Mutex, MutexGuard};
use crate::token::Token;
use crate::trie::arena::Trie;
use crate::trie::children::{Lack, Scratch};
use crate::trie::cursor::{Cursor, Notice};
use crate::trie::descriptor::SPAN_LIMIT;

/// The effect of a constraint on the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// True if the most probable valid token is selected; otherwise later samplers draw among the
    /// valid tokens.
    pub greedy: bool,
    /// True if the array shrinks to the valid tokens or, in greedy mode, to the selected one;
    /// otherwise all other tokens are masked. The only possible token, or a most probable one with
    /// an infinite logit, is kept alone in either case.
    pub compact: bool,
    /// True if a reset leaves a completed span idle; otherwise the span begins again.
    pub reset_idle: bool,
}

/// The mode in which the sampler selects the most probable valid token.
pub const GREEDY: i32 = 0;
/// The mode that leaves the draw to later samplers.
pub const SAMPLED: i32 = 1;
/// A flag of the mode: the array is reduced to the valid tokens.
pub const COMPACT: i32 = 0x100;
/// A flag of the mode: a reset leaves a completed span idle.
pub const RESET_IDLE: i32 = 0x200;

impl Mode {
    /// Converts a mode number of the C interface. Fails, with a description, for an unknown number.
    pub fn from_number(number: i32) -> Result<Self, String> {
        let compact = number & COMPACT != 0;
        let reset_idle = number & RESET_IDLE != 0;
        let greedy = match number & !(COMPACT | RESET_IDLE) {
            GREEDY => true,
            SAMPLED => false,
            _ => {
                return Err(format!(
                    "mode {number} is unknown: 0 is greedy, 1 sampled; to either may be added 256 \
                     for compact, 512 for a reset that leaves a complete span idle"
                ));
            }
        };
        Ok(Self {
            greedy,
            compact,
            reset_idle,
        })
    }
}

/// A trie, the position of the text in it, and the mode.
#[derive(Clone, Debug)]
struct Constraint {
    cursor: Cursor,
    mode: Mode,
    /// True if a warning about an accepted token has been logged. There is at most one per
    /// constraint.
    warned_of_leaving: bool,
    warned_of_cut: bool,
    warned_of_ban: bool,
}

/// A slot for a constraint. While it is empty, nothing is constrained.
#[derive(Debug, Default)]
pub struct Slot {
    constraint: Mutex<Option<Constraint>>,
    n_vocab: Option<usize>,
}

impl Slot {
    /// Returns an empty slot. `n_vocab` is the size of the vocabulary, if it is known.
    pub fn new(n_vocab: Option<usize>) -> Self {
        Self {
            constraint: Mutex::new(None),
            n_vocab,
        }
    }

    /// Returns the size of the vocabulary, if it is known.
    pub fn n_vocab(&self) -> Option<usize> {
        self.n_vocab
    }

    /// Sets the constraint to `trie`, from the next token on, at the root of its first descriptor.
    pub fn set(&self, trie: Arc<Trie>, mode: Mode) {
        let constraint = Constraint {
            cursor: Cursor::new(trie),
            mode,
            warned_of_leaving: false,
            warned_of_cut: false,
            warned_of_ban: false,
        };
        let replaced = self.constraint.lock().replace(constraint);
        // The replaced trie may be large, and is freed without the lock.
        drop(replaced);
    }

    /// Removes the constraint from the next token on.
    pub fn clear(&self) {
        let cleared = self.constraint.lock().take();
        drop(cleared);
    }

    /// Begins the span of the descriptor whose path is `path`. Fails if no constraint is set, or if
    /// no descriptor has that path; the error then lists paths that exist.
    pub fn activate(&self, path: &str) -> Result<(), String> {
        let mut state = self.constraint.lock();
        fault::point();
        let Some(constraint) = state.as_mut() else {
            return Err("no constraint is set".to_owned());
        };
        if constraint.cursor.activate(path) {
            return Ok(());
        }
        // There may be many paths, so they are listed without the lock.
        let cursor = constraint.cursor.clone();
        drop(state);
        Err(format!(
            "no descriptor has the path \"{}\"; there are {}",
            quoted(path),
            listed(cursor.trie().paths())
        ))
    }

    /// True if a span is active.
    pub fn is_active(&self) -> bool {
        self.with_cursor(Cursor::is_active).unwrap_or(false)
    }

    /// Returns the name of the value that the last span completed; `None` if it has completed none,
    /// or if no constraint is set.
    pub fn leaf(&self) -> Option<String> {
        self.with_cursor(|cursor| cursor.leaf().map(str::to_owned))?
    }

    /// Writes the forced tokens, each of which is the only continuation, to `out` as far as there
    /// is room. Returns their total number.
    pub fn forced(&self, out: &mut [Token]) -> usize {
        let length = self.with_cursor(|cursor| {
            out.iter_mut()
                .zip(cursor.forced())
                .for_each(|(out, token)| *out = token);
            cursor.forced().count()
        });
        length.unwrap_or(0)
    }

    /// Writes the tokens that may follow to `out`, in ascending order and as far as there is room.
    /// Returns their total number.
    pub fn allowed(&self, out: &mut [Token]) -> usize {
        let mut merged = Vec::new();
        let number = self.with_cursor(|cursor| {
            let allowed = cursor.allowed(&mut merged);
            out.iter_mut()
                .zip(allowed)
                .for_each(|(out, token)| *out = *token);
            allowed.len()
        });
        number.unwrap_or(0)
    }

    fn with_cursor<T>(&self, read: impl FnOnce(&Cursor) -> T) -> Option<T> {
        self.constraint
            .lock()
            .as_ref()
            .map(|constraint| read(&constraint.cursor))
    }
}

/// A sampler that allows only the tokens that may follow.
#[derive(Debug)]
pub struct TrieSampler {
    slot: Arc<Slot>,
    scratch: Scratch,
    /// The merged children and terminators of a node.
    merged: Vec<Token>,
}

impl TrieSampler {
    /// Returns a sampler for the constraint in `slot`.
    pub fn new(slot: Arc<Slot>) -> Self {
        Self {
            slot,
            scratch: Scratch::default(),
            merged: Vec::new(),
        }
    }
}

impl Clone for TrieSampler {
    /// Copies the trie and the position into a new slot.
    fn clone(&self) -> Self {
        Self::new(Arc::new(Slot {
            constraint: Mutex::new(self.slot.constraint.lock().clone()),
            n_vocab: self.slot.n_vocab,
        }))
    }

    /// Copies into the existing slot, so that other code that has the slot still reaches the
    /// sampler.
    fn clone_from(&mut self, source: &Self) {
        let copy = source.slot.constraint.lock().clone();
        fault::point();
        let replaced = std::mem::replace(&mut *self.slot.constraint.lock(), copy);
        drop(replaced);
    }
}

impl Sampler for TrieSampler {
    const KIND: Kind = Kind::Constraint;
    const ACCEPTS: bool = true;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"token-trie"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        let mut state = self.slot.constraint.lock();
        fault::point();
        let Some(constraint) = state.as_mut() else {
            return;
        };
        let lack = constraint.apply(candidates, &mut self.scratch, &mut self.merged);
        fault::point();
        let lack = lack.filter(|&lack| constraint.is_first(lack));
        MutexGuard::unlock_fair(state);
        match lack {
            Some(Lack::Cut) => log::warn(
                "token-trie: earlier samplers have cut or banned every token that may follow; \
                 those that are cut are put back with logit 0. \
                 Put the trie before the samplers that truncate",
            ),
            Some(Lack::Banned) => log::error(
                LLAMA_SIEVE_ERROR_NO_CANDIDATE,
                "token-trie: every token that may follow is banned: an earlier sampler (a bias, \
                 a grammar) has left each with logit minus infinity. They stay in the array so",
            ),
            None => {}
        }
    }

    fn accept(&mut self, token: Token) {
        let mut state = self.slot.constraint.lock();
        let Some(constraint) = state.as_mut() else {
            return;
        };
        fault::point();
        let notice = constraint.cursor.accept(token);
        let warned = &mut constraint.warned_of_leaving;
        let notice = notice.filter(|_| !std::mem::replace(warned, true));
        MutexGuard::unlock_fair(state);
        match notice {
            Some(Notice::LeftTrie(token)) => log::warn(&format!(
                "token-trie: token {token} was accepted, which may not follow here; nothing is constrained until the next span. \
                 (llama_sampler_sample accepts by itself: was it accepted twice?)"
            )),
            Some(Notice::TooLong) => {
                log::warn(&format!(
                    "token-trie: the span was closed, since {SPAN_LIMIT} tokens did not complete it"
                ));
            }
            None => {}
        }
    }

    fn reset(&mut self) {
        let mut state = self.slot.constraint.lock();
        let Some(constraint) = state.as_mut() else {
            return;
        };
        if constraint.mode.reset_idle && constraint.cursor.is_complete() {
            return;
        }
        constraint.cursor.restart();
    }

    fn salvage(&mut self, candidates: &mut Candidates<'_>) {
        let state = self.slot.constraint.lock();
        let Some(constraint) = state.as_ref() else {
            return;
        };
        // A failed `apply` may have left these buffers in any state.
        (self.scratch, self.merged) = Default::default();
        let allowed = constraint.cursor.allowed(&mut self.merged);
        if allowed.is_empty() {
            return;
        }
        match self.scratch.find(candidates, allowed).best {
            Some(_) => self.scratch.compact(candidates),
            None => drop(self.scratch.fall_back(candidates, allowed)),
        }
    }

    fn shared(&self) -> Option<Arc<dyn std::any::Any + Send + Sync>> {
        Some(Arc::<Slot>::clone(&self.slot))
    }
}

impl Constraint {
    /// Records that this lack is reported. Returns true the first time.
    fn is_first(&mut self, lack: Lack) -> bool {
        let told = match lack {
            Lack::Cut => &mut self.warned_of_cut,
            Lack::Banned => &mut self.warned_of_ban,
        };
        !std::mem::replace(told, true)
    }

    /// Allows only the tokens that may follow. If none of them is a candidate with a logit above
    /// minus infinity, returns the reason.
    // In bounds: `find` returns an index of the candidates.
    fn apply(
        &mut self,
        candidates: &mut Candidates<'_>,
        scratch: &mut Scratch,
        merged: &mut Vec<Token>,
    ) -> Option<Lack> {
        if !self.cursor.is_active() || (self.cursor.is_open() && !self.goes_on(candidates)) {
            return None;
        }
        let allowed = self.cursor.allowed(merged);
        let found = scratch.find(candidates, allowed);
        let Some(best) = found.best else {
            let lack = scratch.fall_back(candidates, allowed)?;
            if self.mode.greedy {
                candidates.select(Some(0));
            }
            return Some(lack);
        };
        let alone = found.possible == 1 || candidates.as_slice()[best].logit == f32::INFINITY;
        if alone || (self.mode.greedy && self.mode.compact) {
            let only = candidates.as_slice()[best];
            candidates.replace(&[only]);
            if self.mode.greedy {
                candidates.select(Some(0));
            }
            return None;
        }
        if self.mode.compact {
            scratch.compact(candidates);
            return None;
        }
        scratch.mask(candidates);
        if self.mode.greedy {
            candidates.select(Some(best));
        }
        None
    }

    /// Returns true if the candidates are to be constrained at a node where one value ends, others
    /// continue, and any token may follow. That is so only in greedy mode, and only if the token
    /// with the largest logit continues a value. If it does not, this function completes the span.
    // In bounds: `argmax` returns an index of the candidates.
    fn goes_on(&mut self, candidates: &Candidates<'_>) -> bool {
        if !self.mode.greedy {
            return false;
        }
        let (Some(node), Some(best)) = (self.cursor.node(), candidates.argmax()) else {
            return false;
        };
        let favourite = candidates.as_slice()[best].id;
        if self.cursor.trie().child(node, favourite).is_some() {
            return true;
        }
        self.cursor.complete();
        false
    }
}

#[cfg(test)]
mod tests;
