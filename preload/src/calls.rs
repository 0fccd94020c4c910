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
//! That is exact only if nothing comes before the chain but a budget, of which is known what it
//! does: see `budget`. So the first call with each chain is only watched, and what was seen is
//! noted with the chain's first member, which is freed with it: see `watch`. Anything else before
//! the chain, and that stays with the host for good; another order of questions, or other
//! candidates than the logits, and all chains do. A call in which the grammar comes first
//! must have been seen without a grammar. Of later calls one now and then is watched again: see
//! `proof`.
//!
//! A watched host does not show how it takes the answers. So the first that it gets in a process
//! are those of copies of the chain. The chain itself is run when the host comes to apply
//! it to the candidates that it was told of. Where it does otherwise, it is called once more, and
//! samples itself.
//!
//! `llama_sampler_sample` is watched like that, too, in a call of its own. It is not answered
//! question by question, but as a whole.
//!
//! After a grammar has rejected the token, the host begins again, now with the grammar before the
//! chain. Where the grammar is ours, both are run at that second question. Where it is the host's,
//! the host has the whole vocabulary.

use std::cell::{Cell, RefCell};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use llama_sieve::Token;
use llama_sieve::ffi::chain::in_front::{self, Before, Candidates, First};
use llama_sieve::ffi::host::llama_h::{llama_context, llama_sampler, llama_token_data_array};
use llama_sieve::per_thread::PerThread;

use crate::budget::{self, Listed};
use crate::columns::Columns;
use crate::host_constructors::Route;
use crate::proof::{self, Difference, Entry};
use crate::slots;
use crate::watch::{self, Question, Seen, Verdict};

/// Notes of a chain: nothing precedes it where the grammar does not come first.
const NOTHING_BEFORE: u64 = 1;
/// Notes of a chain: nothing precedes it where the grammar comes first; so there is none.
const NOTHING_AT_ALL_BEFORE: u64 = 2;
/// Notes of a chain: the host does it all.
const ASIDE: u64 = 4;
/// Notes of a chain: the host does it all where the grammar comes first.
const ASIDE_BEHIND_GRAMMAR: u64 = 8;
/// Notes of a chain: `llama_sampler_sample` does with it what ours does.
const SAMPLED_ALIKE: u64 = 16;

/// The stage of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The call is the host's; what it does is noted.
    Watched,
    /// The chain is to be run at the first question.
    Waiting,
    /// The chain was run; questions are answered with what it left. At a trial, copies of it were.
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
    /// A trial has failed. Nothing is applied any more, and what the host returns is thrown away.
    Failed,
}

/// A call that the calling thread is in.
struct Call {
    entry: Entry,
    ctx: *mut llama_context,
    idx: i32,
    chain: *mut llama_sampler,
    grammar_first: bool,
    note: &'static AtomicU64,
    /// The notes that the chain gets when ours would have given the same.
    noted: u64,
    /// True if the chain has them already.
    is_known: bool,
    /// The host that is to show how it takes answers.
    trial: Option<usize>,
    /// The reasoning budget that the chain is known to have before it.
    budget: Option<*mut llama_sampler>,
    /// The grammar that has looked at the token, if it is ours.
    grammar: Option<*mut llama_sampler>,
    stage: Stage,
    seen: Seen,
    /// The difference between what the host does after ours have answered and what it does when it
    /// is watched.
    difference: Option<Difference>,
    applied: Applied,
}

/// The sampler that the host is applying at the moment, which may apply others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applied {
    Nothing,
    /// A grammar of ours, to see whether it allows the token.
    Check(*mut llama_sampler),
    /// The chain, which is watched.
    Chain,
    Other,
}

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
    static COLUMNS: PerThread<Cell<Option<Box<Columns>>>> = const { PerThread::new() };
}

/// True once a call was begun. Where this library is off or steps aside, none is, and whatever the
/// host asks costs a look at this.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// The number of calls that threads are in.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// True if this thread is in a call.
pub fn is_inside() -> bool {
    with_call(|_| Some(())).is_some()
}

/// Waits until no thread is in a call. New ones [step aside](slots::are_aside). False if one does
/// not come out of it in time.
pub fn all_are_over(patience: Duration) -> bool {
    let started = Instant::now();
    // As the calls: either they see that they are to step aside, or this sees them.
    while RUNNING.load(Ordering::SeqCst) != 0 {
        if started.elapsed() > patience {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}

/// Returns what `look` gives for the call that this thread is in; `None` outside of calls.
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
    /// Begins a call of the common library's with this chain, whose note outlives it.
    pub fn common(
        host: Route,
        output: (*mut llama_context, i32),
        chain: *mut llama_sampler,
        grammar_first: bool,
        note: &'static AtomicU64,
    ) -> Self {
        let host = host.address() as usize;
        let known = known_of(chain, note);
        let listed = Listed::in_note(known as u32);
        let budget = listed.sampler();
        let (noted, aside) = match grammar_first {
            true => (
                NOTHING_BEFORE | NOTHING_AT_ALL_BEFORE,
                ASIDE | ASIDE_BEHIND_GRAMMAR,
            ),
            false => (NOTHING_BEFORE, ASIDE),
        };
        // Where the budget was freed, nothing is known any more.
        let is_known = known & noted == noted && listed.is_some() == budget.is_some();
        // While a model thinks, a lazy grammar that comes first is not applied: that none was seen
        // says nothing.
        let may_change = grammar_first && listed.is_some();
        let stage = match is_known {
            _ if known & aside != 0 || may_change => Stage::Done,
            true if !proof::is_due() => Stage::Waiting,
            _ => Stage::Watched,
        };
        Self::new(Call {
            grammar_first,
            is_known,
            trial: (!proof::takes_answers(host)).then_some(host),
            budget,
            stage,
            ..Call::watched(Entry::Common, output, chain, (note, noted))
        })
    }

    /// Begins a call of llama_sampler_sample that the host does itself; ours are to be
    /// [rehearsed](keep_rehearsed) at once.
    pub fn sampler(
        output: (*mut llama_context, i32),
        chain: *mut llama_sampler,
        note: &'static AtomicU64,
    ) -> Self {
        Self::new(Call {
            is_known: is_sampled_alike(note),
            ..Call::watched(Entry::Sampler, output, chain, (note, SAMPLED_ALIKE))
        })
    }

    /// In a call that is inside another nothing is ours, and none where ours step aside.
    #[inline]
    fn new(call: Call) -> Self {
        BEGUN.store(true, Ordering::Relaxed);
        RUNNING.fetch_add(1, Ordering::SeqCst);
        let before = exchange(Some(call));
        if before.is_some() || slots::are_aside() {
            with_call(|call| {
                call.stage = Stage::Done;
                Some(())
            });
        }
        Self { before }
    }

    /// The host has returned this token. True if it is to be called once more.
    pub fn finish(self, token: Token) -> bool {
        let finished = with_call(|call| Some((call.ctx, call.entry, call.finish(token))));
        let Some((ctx, entry, (again, difference))) = finished else {
            return false;
        };
        // SAFETY: the context of the call that ends here.
        unsafe { in_front::traced(ctx, (!again).then_some(token)) };
        if let Some(difference) = difference {
            proof::refuse(entry, difference);
        }
        again
    }
}

/// Bits of a note that tell which chain it is of.
const OF_CHAIN: u64 = !0xFFFF_FFFF;

/// The note, if it is of this chain: a host may have moved the member that it lives with to another
/// chain, of which nothing is known.
fn known_of(chain: *const llama_sampler, note: &AtomicU64) -> u64 {
    let known = note.load(Ordering::Relaxed);
    let of_chain = (chain.addr() as u64 >> 4) << u32::BITS;
    if known & OF_CHAIN == of_chain {
        return known;
    }
    note.store(of_chain, Ordering::Relaxed);
    of_chain
}

/// True if llama_sampler_sample was seen to do with a chain what ours does.
fn is_sampled_alike(note: &AtomicU64) -> bool {
    note.load(Ordering::Relaxed) & SAMPLED_ALIKE != 0
}

/// True if ours may sample in the place of llama_sampler_sample, with a chain of this note.
pub fn may_sample(note: &AtomicU64) -> bool {
    is_sampled_alike(note) && !proof::is_due()
}

impl Drop for Entered {
    fn drop(&mut self) {
        exchange(self.before.take());
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Puts a call in the place of the one that this thread is in.
#[inline]
fn exchange(call: Option<Call>) -> Option<Call> {
    let set = |slot: &RefCell<Option<Call>>| {
        let mut slot = slot.try_borrow_mut().ok()?;
        mem::replace(&mut *slot, call)
    };
    CALL.try_with(set).ok().flatten()
}

/// A chain to be run, and the samplers before it.
pub struct Now {
    pub before: Before,
    pub chain: *mut llama_sampler,
    /// The mode in which it is run.
    pub run: Run,
}

/// The mode of running a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// The chain itself, to answer with what it leaves.
    Itself,
    /// Copies of it, to answer with what they leave.
    Copies,
    /// Copies of it, to compare what they leave with what the host does.
    Rehearsal,
}

/// Returns the chain to be run now that the host has asked the first question about this output.
pub fn to_be_run(ctx: *mut llama_context, idx: i32) -> Option<Now> {
    with_call(|call| {
        if call.entry != Entry::Common || (call.ctx, call.idx) != (ctx, idx) {
            return None;
        }
        let run = match call.stage {
            // Whatever comes of it, it is not tried again.
            Stage::Waiting | Stage::Rejected => {
                call.stage = Stage::Done;
                match call.trial {
                    Some(_) => Run::Copies,
                    None => Run::Itself,
                }
            }
            Stage::Watched => {
                call.seen.begin(false);
                // The second time there is a grammar before the chain.
                let is_ours = match call.seen.chain {
                    true => call.grammar.is_some(),
                    false => call.seen.is_fresh(),
                };
                if !is_ours {
                    return None;
                }
                Run::Rehearsal
            }
            _ => return None,
        };
        Some(call.now(run))
    })
}

/// Keeps what ours made of the logits on copies of the chain, to be compared with what the host
/// does.
pub fn keep_rehearsed(logits: &[f32], begins: &[f32], left: Candidates<'_>) {
    if watch::keep(logits, begins, left) {
        with_call(|call| {
            call.seen.begin(true);
            Some(())
        });
    }
}

/// Takes this thread's columns, to be [put back](put_back).
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

/// Answers a question about this output from the columns; `None`: the host answers.
fn answer<T>(
    output: (*mut llama_context, i32),
    question: Option<Question>,
    from: impl FnOnce(&mut Columns) -> T,
) -> Option<T> {
    with_call(|call| {
        let of_call = (call.ctx, call.idx) == output;
        if let Some(question) = question {
            call.ask(question, of_call);
        }
        (call.stage == Stage::Answering && of_call).then_some(())
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
pub fn token(ctx: *mut llama_context, idx: i32) -> Option<Token> {
    with_call(|call| {
        call.ask(Question::Token, (call.ctx, call.idx) == (ctx, idx));
        if call.stage == Stage::Answering {
            call.stage = Stage::Answered;
        }
        None
    })
}

/// The treatment of a sampler that the host applies.
pub enum Apply {
    /// Nothing: its candidates are what the chain has left.
    Nothing,
    /// The chain is to be run from the logits of this output, and then [selects](chain_was_run):
    /// its candidates are what copies of it have left.
    Run(Now, (*mut llama_context, i32)),
    /// The host's function is to be called during this. Nothing else was applied since the
    /// candidates were filled in, and this is not the chain: it may be one that [`comes_first`].
    First(Applying),
    /// The host's function is to be called during this.
    Theirs(Applying),
}

/// Marks, while it lives, that samplers which are applied are members of another.
pub struct Applying {
    /// True if it is no member itself.
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
            match call.applied {
                Applied::Check(grammar) => {
                    // SAFETY: a check has found one candidate in it.
                    if unsafe { (*(*array).data).logit } == f32::NEG_INFINITY {
                        call.grammar = Some(grammar);
                        if call.stage == Stage::Checked {
                            call.stage = Stage::Rejected;
                        }
                    }
                }
                // SAFETY: the caller guarantees the array.
                Applied::Chain => unsafe { call.seen.leave(array) },
                Applied::Nothing | Applied::Other => {}
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
    /// Begins a call with a chain of which nothing is known, and which gets the notes `noted`.
    #[inline]
    fn watched(
        entry: Entry,
        (ctx, idx): (*mut llama_context, i32),
        chain: *mut llama_sampler,
        (note, noted): (&'static AtomicU64, u64),
    ) -> Self {
        Self {
            entry,
            ctx,
            idx,
            chain,
            grammar_first: false,
            note,
            noted,
            is_known: false,
            trial: None,
            budget: None,
            grammar: None,
            stage: Stage::Watched,
            seen: Seen::default(),
            difference: None,
            applied: Applied::Nothing,
        }
    }

    fn ask(&mut self, question: Question, of_call: bool) {
        if self.stage == Stage::Watched {
            self.seen.ask(self.entry, question, of_call);
        }
    }

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
        if self.is_tried() {
            // SAFETY: the caller guarantees the array.
            return Some(unsafe { self.try_answers(smpl, array) });
        }
        self.applied = Applied::Other;
        match self.stage {
            Stage::Watched => {
                let asks = self.entry == Entry::Common && self.seen.is_before_all() && !is_chain;
                // SAFETY: the caller guarantees sampler and array.
                self.applied = unsafe { self.watch(smpl, array) };
                if asks && !self.is_budget(smpl) {
                    return Some(Apply::First(Applying { outermost: true }));
                }
            }
            // The candidates are what it, among others, has left.
            Stage::Answering | Stage::Answered if self.is_budget(smpl) => {
                self.applied = Applied::Nothing;
                return Some(Apply::Nothing);
            }
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
                self.difference = Some(match is_chain {
                    true => Difference::Answers,
                    false => Difference::Before,
                });
            }
            // SAFETY: the caller guarantees sampler and array.
            Stage::Checked if unsafe { is_check(smpl, array) } => {
                self.applied = Applied::Check(smpl);
                // SAFETY: the caller guarantees the sampler.
                unsafe { in_front::checks(smpl) };
            }
            Stage::Waiting | Stage::Checked | Stage::Rejected | Stage::Done | Stage::Failed => {}
        }
        Some(Apply::Theirs(Applying { outermost: true }))
    }

    /// # Safety
    /// As for [`apply`].
    unsafe fn watch(
        &mut self,
        smpl: *mut llama_sampler,
        array: *const llama_token_data_array,
    ) -> Applied {
        let is_chain = smpl == self.chain;
        // SAFETY: the caller guarantees sampler and array.
        unsafe {
            if self.seen.chain && !is_chain && is_check(smpl, array) {
                return Applied::Check(smpl);
            }
            let kind = (is_chain, self.is_budget(smpl));
            self.seen.apply(self.entry, kind, array);
        }
        match is_chain {
            true => Applied::Chain,
            false => Applied::Other,
        }
    }

    /// True of the budget that the chain is known to have before it.
    fn is_budget(&self, smpl: *mut llama_sampler) -> bool {
        self.budget == Some(smpl)
    }

    /// Returns this chain, with the samplers before it, to be run like this.
    fn now(&self, run: Run) -> Now {
        let first = |sampler| First {
            sampler,
            edit: budget::edited,
        };
        Now {
            before: Before {
                first: self.budget.map(first),
                grammar: self.grammar,
            },
            chain: self.chain,
            run,
        }
    }

    /// True if the host has answers of copies of the chain, which itself was not run.
    fn is_tried(&self) -> bool {
        let answers = matches!(self.stage, Stage::Answering | Stage::Answered);
        self.stage == Stage::Failed || (answers && self.trial.is_some())
    }

    /// # Safety
    /// As for [`apply`].
    unsafe fn try_answers(
        &mut self,
        smpl: *mut llama_sampler,
        array: *mut llama_token_data_array,
    ) -> Apply {
        let is_chain = smpl == self.chain;
        if self.is_budget(smpl) {
            return Apply::Nothing;
        }
        if self.stage != Stage::Failed {
            // SAFETY: the caller guarantees the array.
            let taken = taken().map(|columns| unsafe {
                let taken = columns.were_taken_to(array);
                put_back(columns);
                taken
            });
            let difference = match (is_chain, taken) {
                (true, Some(true)) => {
                    return Apply::Run(self.now(Run::Itself), (self.ctx, self.idx));
                }
                (true, _) => Difference::Answers,
                (false, _) => Difference::Before,
            };
            self.difference = Some(difference);
            self.stage = Stage::Failed;
        }
        // SAFETY: as above.
        unsafe { select_any(array) };
        Apply::Nothing
    }

    /// The host has returned this token: whether it is to be called once more, and how it differs
    /// from ours, where it does.
    fn finish(&mut self, token: Token) -> (bool, Option<Difference>) {
        let difference = match self.stage {
            Stage::Watched => self.judge(token),
            Stage::Answering | Stage::Answered => Some(Difference::NotApplied),
            _ => self.difference,
        };
        (self.is_tried(), difference)
    }

    /// Notes what was seen with the chain. What shows that all chains are the host's is given.
    fn judge(&mut self, token: Token) -> Option<Difference> {
        let note = |bits| {
            self.note.fetch_or(bits, Ordering::Relaxed);
        };
        match self.seen.verdict(token) {
            Verdict::Nothing => {}
            Verdict::Same if self.grammar_first && self.seen.has_new_budget() => {
                note(ASIDE_BEHIND_GRAMMAR);
            }
            Verdict::Same => note(self.noted),
            // A grammar, or whatever it is, which some chains have and others do not.
            Verdict::Before if self.entry == Entry::Common && !self.is_known => {
                note(match self.grammar_first {
                    true => ASIDE_BEHIND_GRAMMAR,
                    false => ASIDE,
                });
            }
            Verdict::Before => return Some(Difference::Before),
            Verdict::Differs(difference) => return Some(difference),
        }
        None
    }
}

/// Notes that the host applies this budget first; `None`: it is none.
pub fn comes_first(budget: Option<Listed>) {
    with_call(|call| {
        let budget = budget?;
        let named = |note: u64| {
            let named = budget.noted(note as u32);
            Some(note & OF_CHAIN | u64::from(named))
        };
        let _ = call
            .note
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, named);
        call.seen.budget_is_found();
        Some(())
    });
}

/// The chain itself was run, after the host has taken what copies of it had left.
///
/// # Safety
/// As for [`apply`].
pub unsafe fn chain_was_run(was_run: bool, array: *mut llama_token_data_array) {
    with_call(|call| {
        // SAFETY: the caller guarantees the array.
        if was_run && unsafe { select(array) } {
            if let Some(host) = call.trial.take() {
                proof::has_taken_answers(host);
            }
            call.stage = Stage::Checked;
        } else {
            call.stage = Stage::Failed;
            // SAFETY: as above.
            unsafe { select_any(array) };
        }
        Some(())
    });
}

/// True if a grammar of ours looks at one token.
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
    let found = array.is_some_and(|array| columns.select(array));
    put_back(columns);
    found
}

/// Selects something, so that a host can go on with what is thrown away.
///
/// # Safety
/// As for [`apply`].
unsafe fn select_any(array: *mut llama_token_data_array) {
    // SAFETY: the caller guarantees the array.
    if let Some(array) = unsafe { array.as_mut() } {
        array.selected = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_counts_for_the_chain_that_it_is_of() {
        let mut chains = [0u64; 4];
        let [first, .., second] = chains.each_mut().map(|c| (&raw mut *c).cast_const().cast());
        let note = AtomicU64::new(0);
        let of_first = known_of(first, &note);
        assert_eq!(of_first as u32, 0);
        note.fetch_or(NOTHING_BEFORE, Ordering::Relaxed);
        assert_eq!(known_of(first, &note), of_first | NOTHING_BEFORE);
        // Its member is moved to another, and back.
        assert_eq!(known_of(second, &note) as u32, 0);
        assert_eq!(known_of(first, &note), of_first);
    }
}
