//! The call of `common_sampler_sample` that a thread is in, and what is answered during it.
//!
//! llama.cpp's common library samples like this: it asks whether a backend has sampled
//! (`llama_get_sampled_probs_ith`, `_logits_ith`, `_candidates_ith`), fills an array with the whole
//! vocabulary where none has, asks for the backend's token, and applies a reasoning budget, a
//! grammar if that comes first, and the chain. Where the chain is of ours alone, the chain is run
//! when that first question comes, straight from the logits, and what it leaves is the answer: a
//! backend sampler's few candidates, as far as the host can tell. When the host then applies the
//! chain, it is told which of them is selected, and nothing is run again. Its array is then what
//! its own chain would have left of the whole vocabulary: ids, order, logits, probabilities, what
//! is selected.
//!
//! That is exact only if nothing comes before the chain. So the first call with each chain is only
//! watched, and what was seen is noted with the chain's first member, which is freed with it. A
//! budget, or another order of questions than the above, and the chain stays with the host for
//! good. A call in which the grammar comes first must have been seen without a grammar.
//!
//! After a grammar has rejected the token, the host begins anew, now with the grammar before the
//! chain. Where the grammar is ours, both are run at that second question. Where it is the host's,
//! the host has the whole vocabulary.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use llama_sieve::Token;
use llama_sieve::ffi::chain::in_front::{self, Candidates};
use llama_sieve::ffi::host::llama_h::{llama_context, llama_sampler, llama_token_data_array};
use llama_sieve::per_thread::PerThread;

/// Notes of a chain: nothing precedes it where the grammar does not come first.
const NOTHING_BEFORE: u8 = 1;
/// Notes of a chain: nothing precedes it where the grammar comes first; so there is none.
const NOTHING_AT_ALL_BEFORE: u8 = 2;
/// Notes of a chain: the host does it all.
const ASIDE: u8 = 4;

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is the host's; what it does is noted.
    Watched,
    /// The chain is to be run at the first question.
    Waiting,
    /// The chain was run; questions are answered with what it left.
    Answering,
    /// The host has its candidates, and is to apply the chain.
    Answered,
    /// The chain was applied; a grammar may look at the token.
    Checked,
    /// A grammar of ours has rejected the token: it and the chain are to be run at the next
    /// question.
    Rejected,
    /// Everything else is the host's.
    Done,
}

/// What the host asks during a call, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Probs,
    Logits,
    Candidates,
    Token,
}

const QUESTIONS: u8 = 0b1111;

impl Question {
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What was seen of a call that is watched.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Bits of the questions.
    asked: u8,
    /// They came in another order.
    odd: bool,
    /// Something was applied before the chain.
    before: bool,
    /// The chain was applied. What follows is of no account: a grammar's look at the token, and,
    /// where it rejects that, all over again.
    chain: bool,
}

impl Seen {
    fn ask(&mut self, question: Question) {
        let earlier = question.bit() - 1;
        self.odd |= !self.chain && self.asked & earlier != earlier;
        self.asked |= question.bit();
    }

    fn apply(&mut self, is_chain: bool) {
        if self.chain {
            return;
        }
        if is_chain {
            self.odd |= self.asked != QUESTIONS;
            self.chain = true;
        } else {
            self.before = true;
        }
    }

    /// What is to be noted with the chain.
    fn note(self, grammar_first: bool) -> u8 {
        match (self.odd, self.before) {
            // A backend has sampled: nothing was seen.
            _ if !self.chain => 0,
            (true, _) => ASIDE,
            (false, false) if grammar_first => NOTHING_BEFORE | NOTHING_AT_ALL_BEFORE,
            (false, false) => NOTHING_BEFORE,
            // A grammar or a budget.
            (false, true) if grammar_first => 0,
            (false, true) => ASIDE,
        }
    }
}

/// A call that the calling thread is in.
struct Call {
    ctx: *mut llama_context,
    idx: i32,
    chain: *mut llama_sampler,
    grammar_first: bool,
    note: &'static AtomicU8,
    /// The grammar that has looked at the token, if it is ours.
    grammar: Option<*mut llama_sampler>,
    stage: Stage,
    seen: Seen,
    applied: Applied,
}

/// What the host is applying at the moment, which may apply others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applied {
    Nothing,
    /// A grammar of ours, to see whether it allows the token.
    Check(*mut llama_sampler),
    Other,
}

/// What a chain has left, in the columns that the host asks for.
#[derive(Default)]
struct Columns {
    ids: Vec<Token>,
    logits: Vec<f32>,
    probs: Vec<f32>,
    selected: i64,
    sorted: bool,
}

impl Columns {
    /// False without memory.
    fn fill(&mut self, left: Candidates<'_>) -> bool {
        self.ids.clear();
        self.logits.clear();
        self.probs.clear();
        let n = left.data.len();
        let room = self.ids.try_reserve(n).is_ok()
            && self.logits.try_reserve(n).is_ok()
            && self.probs.try_reserve(n).is_ok();
        if room {
            self.ids.extend(left.data.iter().map(|c| c.id));
            self.logits.extend(left.data.iter().map(|c| c.logit));
            self.probs.extend(left.data.iter().map(|c| c.p));
            (self.selected, self.sorted) = (left.selected, left.sorted);
        }
        room
    }
}

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
    static COLUMNS: PerThread<Cell<Option<Box<Columns>>>> = const { PerThread::new() };
}

/// Whether a call was ever begun. Where this library is off or steps aside, none is, and whatever
/// the host asks costs a look at this.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// What `look` gives of the call that this thread is in, if it is in one.
#[inline]
fn with_call<T>(look: impl FnOnce(&mut Call) -> Option<T>) -> Option<T> {
    // A thread that is in a call has written it itself.
    if !BEGUN.load(Ordering::Relaxed) {
        return None;
    }
    let look = |call: &RefCell<Option<Call>>| look(call.try_borrow_mut().ok()?.as_mut()?);
    CALL.try_with(look).ok().flatten()
}

/// Ends the call when it is dropped, also where the host throws.
pub struct Entered {
    before: Option<Call>,
}

impl Entered {
    /// Begins a call with this chain, whose note outlives it.
    pub fn new(
        (ctx, idx): (*mut llama_context, i32),
        chain: *mut llama_sampler,
        grammar_first: bool,
        note: &'static AtomicU8,
    ) -> Self {
        let known = note.load(Ordering::Relaxed);
        let needed = match grammar_first {
            true => NOTHING_AT_ALL_BEFORE,
            false => NOTHING_BEFORE,
        };
        let stage = match known {
            known if known & ASIDE != 0 => Stage::Done,
            known if known & needed == needed => Stage::Waiting,
            _ => Stage::Watched,
        };
        let call = Call {
            ctx,
            idx,
            chain,
            grammar_first,
            note,
            grammar: None,
            stage,
            seen: Seen::default(),
            applied: Applied::Nothing,
        };
        BEGUN.store(true, Ordering::Relaxed);
        Self {
            before: exchange(Some(call)),
        }
    }

    /// The host has returned.
    pub fn finish(self) {
        with_call(|call| {
            if call.stage == Stage::Watched {
                let note = call.seen.note(call.grammar_first);
                call.note.fetch_or(note, Ordering::Relaxed);
            }
            Some(())
        });
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        exchange(self.before.take());
    }
}

fn exchange(call: Option<Call>) -> Option<Call> {
    let set = |slot: &RefCell<Option<Call>>| slot.try_borrow_mut().ok().map(|mut s| (*s).take());
    let before = CALL.try_with(set).ok().flatten().flatten();
    let _ = CALL.try_with(|slot| slot.try_borrow_mut().map(|mut slot| *slot = call));
    before
}

/// What is to be run.
pub struct Now {
    /// Before the chain.
    pub grammar: Option<*mut llama_sampler>,
    pub chain: *mut llama_sampler,
}

/// What is to be run now, as the host has asked the first question about this output.
pub fn to_be_run(ctx: *mut llama_context, idx: i32) -> Option<Now> {
    with_call(|call| {
        let waits = matches!(call.stage, Stage::Waiting | Stage::Rejected);
        let now = waits && (call.ctx, call.idx) == (ctx, idx);
        // Whatever comes of it, it is not tried again.
        if now {
            call.stage = Stage::Done;
        }
        let (grammar, chain) = (call.grammar, call.chain);
        now.then_some(Now { grammar, chain })
    })
}

/// What this thread keeps in columns, to be [put back](put_back).
fn taken() -> Option<Box<Columns>> {
    PerThread::with(&COLUMNS, Cell::take).flatten()
}

fn put_back(columns: Box<Columns>) {
    let _ = PerThread::with(&COLUMNS, |place| place.set(Some(columns)));
}

/// Keeps what the chain has left, to answer with it. False if that cannot be kept.
pub fn keep(left: Candidates<'_>) -> bool {
    let mut columns = taken().unwrap_or_default();
    let kept = columns.fill(left);
    put_back(columns);
    let answer = |call: &mut Call| {
        call.stage = Stage::Answering;
        Some(())
    };
    kept && with_call(answer).is_some()
}

/// What the columns answer to a question about this output; `None`: the host answers.
fn answer<T>(
    (ctx, idx): (*mut llama_context, i32),
    question: Option<Question>,
    from: impl FnOnce(&mut Columns) -> T,
) -> Option<T> {
    with_call(|call| {
        if call.stage == Stage::Watched
            && let Some(question) = question
        {
            call.seen.ask(question);
        }
        let answers = call.stage == Stage::Answering && (call.ctx, call.idx) == (ctx, idx);
        answers.then_some(())
    })?;
    let mut columns = taken()?;
    let value = from(&mut columns);
    put_back(columns);
    Some(value)
}

/// `llama_get_sampled_probs_ith`.
pub fn probs(ctx: *mut llama_context, idx: i32) -> Option<*mut f32> {
    answer((ctx, idx), Some(Question::Probs), |c| c.probs.as_mut_ptr())
}

/// `llama_get_sampled_logits_ith`.
pub fn logits(ctx: *mut llama_context, idx: i32) -> Option<*mut f32> {
    answer((ctx, idx), Some(Question::Logits), |c| {
        c.logits.as_mut_ptr()
    })
}

/// `llama_get_sampled_candidates_ith`.
pub fn candidates(ctx: *mut llama_context, idx: i32) -> Option<*mut Token> {
    answer((ctx, idx), Some(Question::Candidates), |c| {
        c.ids.as_mut_ptr()
    })
}

/// `llama_get_sampled_probs_count_ith` and the two like it.
pub fn count(ctx: *mut llama_context, idx: i32) -> Option<u32> {
    answer((ctx, idx), None, |c| u32::try_from(c.ids.len()).ok())?
}

/// `llama_get_sampled_token_ith`, which the host answers: from here on the candidates are its own.
pub fn token(_: *mut llama_context, _: i32) -> Option<Token> {
    with_call(|call| {
        match call.stage {
            Stage::Watched => call.seen.ask(Question::Token),
            Stage::Answering => call.stage = Stage::Answered,
            _ => {}
        }
        None
    })
}

/// What is to be done with a sampler that the host applies.
pub enum Apply {
    /// Nothing: its candidates are what the chain has left.
    Nothing,
    /// The host's function is to be called during this.
    Theirs(Applying),
}

/// While this lives, samplers that are applied are members of another.
pub struct Applying {
    /// It is no member itself.
    outermost: bool,
}

impl Applying {
    /// The host has applied it.
    ///
    /// # Safety
    /// `array` is what was applied to.
    pub unsafe fn finish(self, array: *const llama_token_data_array) {
        if !self.outermost {
            return;
        }
        with_call(|call| {
            if let Applied::Check(grammar) = call.applied
                && call.stage == Stage::Checked
                // SAFETY: a check has found one candidate in it.
                && unsafe { (*(*array).data).logit } == f32::NEG_INFINITY
            {
                (call.stage, call.grammar) = (Stage::Rejected, Some(grammar));
            }
            Some(())
        });
    }
}

impl Drop for Applying {
    fn drop(&mut self) {
        if self.outermost {
            with_call(|call| {
                call.applied = Applied::Nothing;
                Some(())
            });
        }
    }
}

/// `llama_sampler_apply`.
///
/// # Safety
/// `smpl` is NULL or a live sampler, `array` NULL or a valid array that nobody else uses during the
/// call.
pub unsafe fn apply(smpl: *mut llama_sampler, array: *mut llama_token_data_array) -> Apply {
    // SAFETY: the caller guarantees sampler and array.
    let of_call = with_call(|call| unsafe { call.apply(smpl, array) });
    of_call.unwrap_or(Apply::Theirs(Applying { outermost: false }))
}

impl Call {
    /// `None` for a member of what is being applied.
    ///
    /// # Safety
    /// As for [`apply`].
    unsafe fn apply(
        &mut self,
        smpl: *mut llama_sampler,
        array: *mut llama_token_data_array,
    ) -> Option<Apply> {
        if self.applied != Applied::Nothing || smpl.is_null() {
            return None;
        }
        let is_chain = smpl == self.chain;
        self.applied = Applied::Other;
        match self.stage {
            Stage::Watched => self.seen.apply(is_chain),
            Stage::Answering | Stage::Answered => {
                // It was run before the chain. The second time nobody asks for the backend's token.
                let was_run = self.grammar == Some(smpl);
                // SAFETY: the caller guarantees the array.
                let selects = !was_run && is_chain && unsafe { select(array) };
                self.stage = match (was_run, selects, self.grammar) {
                    (true, ..) => Stage::Answered,
                    (_, true, None) => Stage::Checked,
                    _ => Stage::Done,
                };
                if was_run || selects {
                    self.applied = Applied::Nothing;
                    return Some(Apply::Nothing);
                }
            }
            // SAFETY: the caller guarantees sampler and array.
            Stage::Checked if unsafe { is_check(smpl, array) } => {
                self.applied = Applied::Check(smpl);
            }
            Stage::Waiting | Stage::Checked | Stage::Rejected | Stage::Done => {}
        }
        Some(Apply::Theirs(Applying { outermost: true }))
    }
}

/// Whether a grammar of ours looks at one token.
///
/// # Safety
/// As for [`apply`].
unsafe fn is_check(smpl: *const llama_sampler, array: *const llama_token_data_array) -> bool {
    // SAFETY: the caller guarantees sampler and array.
    unsafe {
        let is_one = |array: &llama_token_data_array| array.size == 1 && !array.data.is_null();
        array.as_ref().is_some_and(is_one) && in_front::is_grammar(smpl)
    }
}

/// Marks in the host's array what the chain has selected. False if it is not what the chain left.
///
/// # Safety
/// As for [`apply`].
unsafe fn select(array: *mut llama_token_data_array) -> bool {
    let Some(columns) = taken() else {
        return false;
    };
    // SAFETY: the caller guarantees the array.
    let array = unsafe { array.as_mut() };
    let array = array.filter(|array| array.size == columns.ids.len());
    let found = array.is_some();
    if let Some(array) = array {
        array.selected = columns.selected;
        array.sorted = u8::from(columns.sorted);
    }
    put_back(columns);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a call with the usual questions, where these were applied: whether it is the chain.
    fn seen(applied: &[bool]) -> Seen {
        let mut seen = Seen::default();
        for question in [
            Question::Probs,
            Question::Logits,
            Question::Candidates,
            Question::Token,
        ] {
            seen.ask(question);
        }
        for &is_chain in applied {
            seen.apply(is_chain);
        }
        seen
    }

    #[test]
    fn a_chain_alone_is_served() {
        let alone = seen(&[true]);
        assert_eq!(alone.note(false), NOTHING_BEFORE);
        assert_eq!(alone.note(true), NOTHING_BEFORE | NOTHING_AT_ALL_BEFORE);
    }

    #[test]
    fn a_grammar_after_the_chain_and_all_over_again_is_of_no_account() {
        assert_eq!(
            seen(&[true, false, false, true]).note(false),
            NOTHING_BEFORE
        );
    }

    #[test]
    fn what_is_applied_before_the_chain_keeps_it_with_the_host() {
        assert_eq!(seen(&[false, true]).note(false), ASIDE);
        // That may be the grammar, which says nothing of calls where it does not come first.
        assert_eq!(seen(&[false, true]).note(true), 0);
    }

    #[test]
    fn other_questions_keep_it_with_the_host() {
        let mut odd = Seen::default();
        odd.ask(Question::Logits);
        odd.ask(Question::Probs);
        odd.ask(Question::Candidates);
        odd.ask(Question::Token);
        odd.apply(true);
        assert_eq!(odd.note(false), ASIDE);
        let mut none = Seen::default();
        none.apply(true);
        assert_eq!(none.note(false), ASIDE);
    }

    #[test]
    fn where_a_backend_has_sampled_nothing_is_noted() {
        assert_eq!(seen(&[]).note(false), 0);
        assert_eq!(seen(&[]).note(true), 0);
    }
}
