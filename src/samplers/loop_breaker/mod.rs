//! Loop breaker: detects that the newest tokens repeat for the third time, and ends the repetition.
//!
//! A repetition is a period of 1 to 1,024 tokens whose newest copies, three or more, are equal and
//! have a minimum number of tokens in all. Candidates are not changed if there is no repetition,
//! and no token is banned if no other could be chosen.

mod repetitions;

use std::ffi::CStr;
use std::sync::Arc;

use crate::candidates::Candidates;
use crate::log;
use crate::pool::{InOrder, Whole};
use crate::sampler::{Sampler, clone_by_field};
use crate::samplers::temp::{scale, scale_whole};
use crate::token::{Token, TokenData, comparable};
pub(crate) use repetitions::{MAX_LENGTH, MAX_PERIOD};
use repetitions::{Repetition, Repetitions};

/// The maximum number of forced tokens.
pub(crate) const MAX_FORCED: usize = 1024;

/// How a repetition is ended.
#[derive(Clone, Debug, PartialEq)]
pub enum LoopAction {
    /// The token that would continue the repetition is banned.
    Ban,
    /// The logits are divided by this number, at the next token by its square, and so on, until a
    /// token is chosen that does not continue the repetition.
    Temperature(f32),
    /// These tokens follow, for example those that end a model's reasoning.
    Force(Arc<[Token]>),
    /// One of these tokens, which end a generation, follows.
    End(Arc<[Token]>),
}

/// Parameters of a loop breaker.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopParams {
    /// The longest period, from 1 to 1,024.
    pub max_period: usize,
    /// The minimum number of tokens in all copies together, including an incomplete one; at most
    /// 65,536.
    pub min_tokens: usize,
    /// How a repetition is ended.
    pub action: LoopAction,
}

impl Default for LoopParams {
    fn default() -> Self {
        Self {
            max_period: MAX_PERIOD,
            min_tokens: Self::MIN_TOKENS,
            action: LoopAction::Ban,
        }
    }
}

impl LoopParams {
    /// The default of [`LoopParams::min_tokens`].
    pub const MIN_TOKENS: usize = 128;

    fn refused(&self) -> Option<String> {
        let Self {
            max_period,
            min_tokens,
            action,
        } = self;
        if !(1..=MAX_PERIOD).contains(max_period) {
            return Some(format!(
                "max_period is {max_period}; it may be 1 to {MAX_PERIOD}"
            ));
        }
        if *min_tokens > MAX_LENGTH {
            return Some(format!(
                "min_tokens is {min_tokens}; it may be {MAX_LENGTH} at most"
            ));
        }
        match action {
            LoopAction::Temperature(t) if !(*t > 1.0 && *t <= MOST_HEAT) => Some(format!(
                "temperature is {t}; it must be above 1, and {MOST_HEAT} at most"
            )),
            LoopAction::Force(tokens) if tokens.is_empty() => {
                Some("there are no tokens to force".to_owned())
            }
            LoopAction::Force(tokens) if tokens.len() > MAX_FORCED => {
                let n = tokens.len();
                Some(format!(
                    "there are {n} tokens to force; {MAX_FORCED} may be"
                ))
            }
            LoopAction::End(tokens) if tokens.is_empty() => {
                Some("the vocabulary has no token that ends a generation".to_owned())
            }
            _ => None,
        }
    }
}

/// The largest number by which logits may be divided.
const MOST_HEAT: f32 = 1e6;

/// A sampler that ends repetitions.
#[derive(Debug)]
pub struct LoopBreaker {
    action: LoopAction,
    repetitions: Repetitions,
    found: Option<Repetition>,
    /// The number by which the logits are divided during a repetition.
    heat: f32,
    /// The number of tokens that were forced so far; `None` if no tokens are being forced.
    forced: Option<usize>,
}

clone_by_field!(LoopBreaker {
    action,
    repetitions,
    found,
    heat,
    forced
});

impl LoopBreaker {
    /// Returns a loop breaker.
    ///
    /// # Errors
    /// Returns an error message if a parameter is out of its range.
    pub fn new(params: LoopParams) -> Result<Self, String> {
        if let Some(why) = params.refused() {
            return Err(why);
        }
        Ok(Self {
            repetitions: Repetitions::new(params.max_period, params.min_tokens),
            action: params.action,
            found: None,
            heat: 1.0,
            forced: None,
        })
    }

    /// Logs the action taken for a new repetition.
    fn say(&self, found: Repetition) {
        let Repetition {
            period,
            length,
            next,
        } = found;
        let done = match &self.action {
            LoopAction::Ban => format!("token {next} is banned while it would go on"),
            LoopAction::Temperature(_) => "the temperature rises until it ends".to_owned(),
            LoopAction::Force(tokens) => format!("{} tokens are forced", tokens.len()),
            LoopAction::End(_) => "the generation is ended".to_owned(),
        };
        let text = format!(
            "loop-breaker: the last {length} tokens repeat with a period of {period}; {done}"
        );
        log::log(log::Level::Info, &text);
    }

    fn found(&mut self, found: Option<Repetition>) {
        if let (Some(found), None) = (found, self.found) {
            self.say(found);
        }
        self.found = found;
        match (&self.action, found) {
            (LoopAction::Temperature(t), Some(_)) => self.heat = (self.heat * t).min(MOST_HEAT),
            (LoopAction::Force(_), Some(_)) => self.forced = Some(0),
            _ => self.heat = 1.0,
        }
    }

    /// Forgets all tokens. A repetition must then begin again to be found.
    fn begin_anew(&mut self) {
        self.repetitions.clear();
        (self.found, self.heat, self.forced) = (None, 1.0, None);
    }

    /// Returns the only tokens that may follow, or `None` if any may. The first one is inserted if
    /// all are absent.
    fn wanted(&self) -> Option<&[Token]> {
        match (&self.action, self.forced, self.found) {
            (LoopAction::Force(tokens), Some(n), _) => tokens.get(n..=n),
            (LoopAction::End(ends), _, Some(_)) => Some(ends),
            _ => None,
        }
    }
}

fn is_there(candidate: &TokenData) -> bool {
    comparable(candidate.logit) > f32::NEG_INFINITY
}

/// Bans `token`, unless no other token is left.
fn ban(candidates: &mut Candidates<'_>, token: Token) {
    let others = |candidate: &TokenData| candidate.id != token && is_there(candidate);
    if !candidates.as_slice().iter().any(others) {
        return;
    }
    let banned = candidates.as_mut_slice().iter_mut();
    for candidate in banned.filter(|candidate| candidate.id == token) {
        candidate.logit = f32::NEG_INFINITY;
    }
    candidates.set_sorted(false);
}

/// Masks all candidates except the tokens in `wanted`. If no wanted token is a candidate, the first
/// wanted token replaces the first candidate. Does nothing if another sampler has banned all wanted
/// tokens, or for a single candidate, with which a host checks whether a token is allowed.
fn leave_alone(candidates: &mut Candidates<'_>, wanted: &[Token]) {
    let is_wanted = |candidate: &TokenData| wanted.contains(&candidate.id);
    let slice = candidates.as_mut_slice();
    if slice.len() < 2 {
        return;
    }
    let (mut is_among, mut is_free) = (false, false);
    for candidate in slice.iter().filter(|candidate| is_wanted(candidate)) {
        is_among = true;
        is_free |= is_there(candidate);
    }
    if is_among && !is_free {
        return;
    }
    if let (false, [first, ..], Some(&id)) = (is_among, &mut *slice, wanted.first()) {
        (first.id, first.logit) = (id, 0.0);
    }
    for candidate in slice.iter_mut().filter(|candidate| !is_wanted(candidate)) {
        candidate.logit = f32::NEG_INFINITY;
    }
    candidates.set_sorted(false);
}

impl Sampler for LoopBreaker {
    const ACCEPTS: bool = true;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"loop-breaker"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if let Some(wanted) = self.wanted() {
            return leave_alone(candidates, wanted);
        }
        let Some(found) = self.found else {
            return;
        };
        match self.action {
            LoopAction::Ban => ban(candidates, found.next),
            LoopAction::Temperature(_) => scale(candidates, self.heat),
            LoopAction::Force(_) | LoopAction::End(_) => {}
        }
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        let Some(found) = self.found else {
            return self.forced.is_none();
        };
        match self.action {
            LoopAction::Ban => {
                let mut before = None;
                whole.edit(found.next, |logit| {
                    before = Some(logit);
                    f32::NEG_INFINITY
                });
                if let (f32::NEG_INFINITY, Some(before)) = (whole.max(), before) {
                    whole.edit(found.next, |_| before);
                }
            }
            LoopAction::Temperature(_) => scale_whole(whole, self.heat),
            LoopAction::Force(_) | LoopAction::End(_) => return false,
        }
        true
    }

    fn narrow_in_order(&mut self, tokens: InOrder<'_, '_>) -> bool {
        match (self.found, &self.action) {
            (None, _) => self.forced.is_none(),
            (Some(_), LoopAction::Temperature(_)) => tokens.divide(self.heat, false),
            (Some(_), _) => false,
        }
    }

    fn accept(&mut self, token: Token) {
        let Some(n) = self.forced else {
            let found = self.repetitions.accept(token);
            return self.found(found);
        };
        let LoopAction::Force(tokens) = &self.action else {
            return;
        };
        match tokens.get(n) == Some(&token) && n + 1 < tokens.len() {
            true => self.forced = Some(n + 1),
            false => self.begin_anew(),
        }
    }

    fn reset(&mut self) {
        self.begin_anew();
    }

    /// Writes the tokens with their runs, the number by which logits are divided, and the number of
    /// forced tokens, which is `u32::MAX` while none are forced.
    fn save_memory(&self, put: &mut dyn FnMut(&[u8])) -> Option<()> {
        self.repetitions.save(put);
        put(&self.heat.to_le_bytes());
        let forced = self.forced.map_or(u32::MAX, |n| n as u32);
        put(&forced.to_le_bytes());
        Some(())
    }

    fn load_memory(&mut self, bytes: &[u8]) -> Option<()> {
        let rest = self.repetitions.load(bytes)?;
        let ([heat, forced], []) = rest.as_chunks() else {
            return None;
        };
        let heat = f32::from_le_bytes(*heat);
        (1.0..=MOST_HEAT).contains(&heat).then_some(())?;
        let forced = match u32::from_le_bytes(*forced) {
            u32::MAX => None,
            n => Some(n as usize),
        };
        let is_forced = |n| match &self.action {
            LoopAction::Force(tokens) => n < tokens.len(),
            _ => false,
        };
        forced.is_none_or(is_forced).then_some(())?;
        self.found = self.repetitions.shortest();
        (self.heat, self.forced) = (heat, forced);
        Some(())
    }
}

#[cfg(test)]
mod tests;
