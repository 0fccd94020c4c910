//! The call of `common_sampler_sample` that a thread is in, and the answers to the host's queries
//! during it.
//!
//! llama.cpp's common library samples as follows. It queries the results of a backend sampler
//! (`llama_get_sampled_probs_ith`, `_logits_ith`, `_candidates_ith`). If there are none, it fills
//! an array with the whole vocabulary. It queries the backend's token, and then applies a reasoning
//! budget, a grammar if that comes first, and the chain. If all members of the chain are this
//! library's, the first query runs the chain, straight from the logits, and is answered with the
//! candidates that it leaves. The host treats these as a backend sampler's few candidates. When the
//! host then applies the chain, only the selected index and the mark as sorted are set, and nothing
//! is run again. The array then has the contents that the host's own chain would have left of the
//! whole vocabulary: ids, order, logits, probabilities and selected index.
//!
//! This is exact only if nothing comes before the chain except a budget, whose effect is known: see
//! `budget`. So the first call with each chain is only watched. The findings are noted with the
//! chain's first member, which is freed with it: see `watch`. If anything else comes before the
//! chain, the chain is left to the host for good; if the grammar was to come first, only in such
//! calls. If the queries come in a different order, or the candidates are not the logits, all
//! chains are left to the host. A call in which the grammar comes first must have been observed
//! without a grammar. Some later calls are watched again: see `proof`.
//!
//! Watching does not show how the host uses the answers. So the first answers in a process are the
//! candidates that copies of the chain left. The chain itself is run when the host applies it to
//! these candidates. If the host does something else, its function is called once more, and does
//! the sampling.
//!
//! `llama_sampler_sample` is watched in the same way, in a call of its own. It is answered as a
//! whole, not query by query.
//!
//! After a grammar has rejected the token, the host samples again, now with the grammar before the
//! chain. If the grammar is this library's, the next query runs both. If it is the host's, the host
//! gets the whole vocabulary.

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

/// A flag in the note of a chain: nothing precedes the chain when the grammar does not come first.
const NOTHING_BEFORE: u64 = 1;
/// A flag in the note of a chain: nothing precedes the chain when the grammar would come first, so
/// there is no grammar.
const NOTHING_AT_ALL_BEFORE: u64 = 2;
/// A flag in the note of a chain: the chain is left to the host.
const ASIDE: u64 = 4;
/// A flag in the note of a chain: the chain is left to the host when the grammar comes first.
const ASIDE_BEHIND_GRAMMAR: u64 = 8;
/// A flag in the note of a chain: `llama_sampler_sample` gives the same result with it as this
/// library.
const SAMPLED_ALIKE: u64 = 16;

/// The stage of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The host does the sampling, and its steps are recorded.
    Watched,
    /// The first query is to run the chain.
    Waiting,
    /// The chain has run (in a trial, copies of it have), and queries are answered with the
    /// candidates that it left.
    Answering,
    /// The host has the candidates, and is expected to apply the chain.
    Answered,
    /// The chain has been applied; a grammar may check the token.
    Checked,
    /// A grammar of this library has rejected the token: the next query is to run the grammar and
    /// the chain.
    Rejected,
    /// Everything further is left to the host.
    Done,
    /// A trial has failed. Nothing more is applied, and the host's result is discarded.
    Failed,
}

/// The call of `common_sampler_sample` or `llama_sampler_sample` that a thread is in.
struct Call {
    entry: Entry,
    ctx: *mut llama_context,
    idx: i32,
    chain: *mut llama_sampler,
    grammar_first: bool,
    note: &'static AtomicU64,
    /// The flags that are added to the chain's note if this library would have given the same
    /// token.
    noted: u64,
    /// True if the note already has these flags, and they still hold.
    is_known: bool,
    /// The address of the host's function if this is a trial of how it uses answers.
    trial: Option<usize>,
    /// The reasoning budget that is known to come before the chain.
    budget: Option<*mut llama_sampler>,
    /// The grammar that has checked the token, if it is this library's.
    grammar: Option<*mut llama_sampler>,
    stage: Stage,
    seen: Seen,
    /// The first difference between the host's steps after an answer and its steps in a watched
    /// call.
    difference: Option<Difference>,
    applied: Applied,
}

/// The sampler that the host is currently applying, which may apply others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applied {
    Nothing,
    /// A grammar of this library, which checks the token.
    Check(*mut llama_sampler),
    /// The watched chain.
    Chain,
    Other,
}

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
    static COLUMNS: PerThread<Cell<Option<Box<Columns>>>> = const { PerThread::new() };
}

/// True once a call has begun. If this library is off or passes all calls on, it stays false, and
/// each query of the host costs only a read of this flag.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// The number of calls of all threads that are in progress.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// True if this thread is in a call.
pub fn is_inside() -> bool {
    with_call(|_| Some(())).is_some()
}

/// Waits until no thread is in a call. The stand-ins must already [pass new calls
/// on](slots::step_aside). Returns false if a call does not end within `patience`.
pub fn all_are_over(patience: Duration) -> bool {
    let started = Instant::now();
    // Sequentially consistent, as in [`Entered::new`]: either the call sees that it is to be passed
    // on, or this loop sees the call.
    while RUNNING.load(Ordering::SeqCst) != 0 {
        if started.elapsed() > patience {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}

/// Returns the result of `look` on the call that this thread is in; `None` outside of calls.
#[inline]
fn with_call<T>(look: impl FnOnce(&mut Call) -> Option<T>) -> Option<T> {
    // A thread that is in a call has set the flag itself.
    if !BEGUN.load(Ordering::Relaxed) {
        return None;
    }
    let look = |call: &RefCell<Option<Call>>| look(call.try_borrow_mut().ok()?.as_mut()?);
    CALL.try_with(look).ok().flatten()
}

/// A guard that ends the call when it is dropped, even if the host throws.
pub struct Entered {
    before: Option<Call>,
}

impl Entered {
    /// Begins a call of `common_sampler_sample` with `chain`. The note of the chain outlives the
    /// call.
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
        // If the budget was freed, the findings about it no longer hold.
        let is_known = known & noted == noted && listed.is_some() == budget.is_some();
        // While a model thinks, a lazy grammar that comes first is not applied. So a call in which
        // no grammar was applied proves nothing.
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

    /// Begins a call of llama_sampler_sample that the host performs itself; copies of the chain are
    /// to be [rehearsed](keep_rehearsed) at once.
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

    /// Begins a call. A call within another one is left to the host, and so are all calls while the
    /// stand-ins pass calls on.
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

    /// Ends the call with the token that the host returned. Returns true if the host is to be
    /// called once more.
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

/// The bits of a note that identify its chain.
const OF_CHAIN: u64 = !0xFFFF_FFFF;

/// Returns the note if it belongs to this chain. A new note does not, nor one whose member the host
/// has moved here from another chain: it is reset, since nothing is known about this chain.
fn known_of(chain: *const llama_sampler, note: &AtomicU64) -> u64 {
    let known = note.load(Ordering::Relaxed);
    let of_chain = (chain.addr() as u64 >> 4) << u32::BITS;
    if known & OF_CHAIN == of_chain {
        return known;
    }
    note.store(of_chain, Ordering::Relaxed);
    of_chain
}

/// True if llama_sampler_sample has been observed to give the same result with this chain as this
/// library.
fn is_sampled_alike(note: &AtomicU64) -> bool {
    note.load(Ordering::Relaxed) & SAMPLED_ALIKE != 0
}

/// True if this library may replace llama_sampler_sample for a chain with this note.
pub fn may_sample(note: &AtomicU64) -> bool {
    is_sampled_alike(note) && !proof::is_due()
}

impl Drop for Entered {
    fn drop(&mut self) {
        exchange(self.before.take());
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Replaces the call that this thread is in, and returns the previous one.
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
    /// The mode in which the chain is run.
    pub run: Run,
}

/// The mode of running a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// The chain itself is run, to answer with the candidates that it leaves.
    Itself,
    /// Copies of the chain are run, to answer with the candidates that they leave.
    Copies,
    /// Copies of the chain are run, to compare the result with the host's.
    Rehearsal,
}

/// Returns the chain to be run when the host has made the first query about output `idx` of `ctx`;
/// `None` if none is to be run.
pub fn to_be_run(ctx: *mut llama_context, idx: i32) -> Option<Now> {
    with_call(|call| {
        if call.entry != Entry::Common || (call.ctx, call.idx) != (ctx, idx) {
            return None;
        }
        let run = match call.stage {
            // Whether this run succeeds or not, it is not repeated.
            Stage::Waiting | Stage::Rejected => {
                call.stage = Stage::Done;
                match call.trial {
                    Some(_) => Run::Copies,
                    None => Run::Itself,
                }
            }
            Stage::Watched => {
                call.seen.begin(false);
                // When the host samples again after a rejection, the grammar comes before the
                // chain.
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

/// Keeps the candidates that copies of the chain have left, to be compared with the host's.
pub fn keep_rehearsed(logits: &[f32], begins: &[f32], left: Candidates<'_>) {
    if watch::keep(logits, begins, left) {
        with_call(|call| {
            call.seen.begin(true);
            Some(())
        });
    }
}

/// Takes this thread's columns, which are to be [put back](put_back); `None` if there are none.
fn taken() -> Option<Box<Columns>> {
    PerThread::with(&COLUMNS, Cell::take).flatten()
}

fn put_back(columns: Box<Columns>) {
    let _ = PerThread::with(&COLUMNS, |place| place.set(Some(columns)));
}

/// Keeps the candidates that the chain left, to answer queries with them. Returns false if they
/// cannot be kept.
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

/// Answers a query about `output` from the columns; `None` if the host is to answer.
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

/// Answers `llama_get_sampled_probs_ith`.
pub fn probs(ctx: *mut llama_context, idx: i32) -> Option<*mut f32> {
    answer((ctx, idx), Some(Question::Probs), |c| c.probs.as_mut_ptr())
}

/// Answers `llama_get_sampled_logits_ith`.
pub fn logits(ctx: *mut llama_context, idx: i32) -> Option<*mut f32> {
    answer((ctx, idx), Some(Question::Logits), |c| {
        c.logits.as_mut_ptr()
    })
}

/// Answers `llama_get_sampled_candidates_ith`.
pub fn candidates(ctx: *mut llama_context, idx: i32) -> Option<*mut Token> {
    answer((ctx, idx), Some(Question::Candidates), |c| {
        c.ids.as_mut_ptr()
    })
}

/// Answers `llama_get_sampled_probs_count_ith` and the two similar functions.
pub fn count(ctx: *mut llama_context, idx: i32) -> Option<u32> {
    answer((ctx, idx), None, |c| u32::try_from(c.ids.len()).ok())?
}

/// Records a call of `llama_get_sampled_token_ith`, which the host answers. Until it samples again,
/// later queries are left to the host, too.
pub fn token(ctx: *mut llama_context, idx: i32) -> Option<Token> {
    with_call(|call| {
        call.ask(Question::Token, (call.ctx, call.idx) == (ctx, idx));
        if call.stage == Stage::Answering {
            call.stage = Stage::Answered;
        }
        None
    })
}

/// How an applied sampler is handled.
pub enum Apply {
    /// Nothing is applied: the candidates are already those that the chain left.
    Nothing,
    /// The chain is to be run from the logits of this output, and then [selects](chain_was_run) a
    /// token. The candidates are those that copies of the chain left.
    Run(Now, (*mut llama_context, i32)),
    /// The host's function is to be called while this guard exists. The sampler is the first one
    /// applied since the candidates were filled in, and is not the chain: it may be one that
    /// [`comes_first`].
    First(Applying),
    /// The host's function is to be called while this guard exists.
    Theirs(Applying),
}

/// A guard: samplers that are applied while it exists are members of another sampler.
pub struct Applying {
    /// True if the sampler is not a member of another sampler that is being applied.
    outermost: bool,
}

impl Applying {
    /// Records that the host has applied the sampler.
    ///
    /// # Safety
    /// `array` is the array that the sampler was applied to.
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

/// Handles a call of `llama_sampler_apply`.
///
/// # Safety
/// `smpl` is NULL or a live sampler, `array` NULL or a valid array that no other code uses during
/// the call.
pub unsafe fn apply(smpl: *mut llama_sampler, array: *mut llama_token_data_array) -> Apply {
    // SAFETY: the caller guarantees sampler and array.
    let of_call = with_call(|call| unsafe { call.apply(smpl, array) });
    of_call.unwrap_or(Apply::Theirs(Applying { outermost: false }))
}

impl Call {
    /// Begins a watched call with a chain, whose note gets the flags `noted`.
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

    /// Returns how a sampler that the host applies is handled; `None` for NULL, and for a sampler
    /// that is applied by another one.
    ///
    /// # Safety
    /// The requirements of [`apply`] apply.
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
            // The copies or the chain have already run after the budget, so the candidates include
            // its effect.
            Stage::Answering | Stage::Answered if self.is_budget(smpl) => {
                self.applied = Applied::Nothing;
                return Some(Apply::Nothing);
            }
            Stage::Answering | Stage::Answered => {
                // The grammar ran before the chain. When the host samples again, it does not query
                // the backend's token.
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

    /// Records that the host applies the sampler, and returns how it is handled.
    ///
    /// # Safety
    /// The requirements of [`apply`] apply.
    unsafe fn watch(
        &mut self,
        smpl: *mut llama_sampler,
        array: *const llama_token_data_array,
    ) -> Applied {
        let is_chain = smpl == self.chain;
        // SAFETY: the caller guarantees sampler and array.
        unsafe {
            if self.seen.chain && !is_chain && is_check(smpl, array) {
                in_front::checks(smpl);
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

    /// True if the sampler is the budget that is known to come before the chain.
    fn is_budget(&self, smpl: *mut llama_sampler) -> bool {
        self.budget == Some(smpl)
    }

    /// Returns this chain, with the samplers before it, to be run in this mode.
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

    /// True if the host has received answers from copies of the chain, and the chain itself has not
    /// run.
    fn is_tried(&self) -> bool {
        let answers = matches!(self.stage, Stage::Answering | Stage::Answered);
        self.stage == Stage::Failed || (answers && self.trial.is_some())
    }

    /// Handles a sampler that the host applies after answers from copies of the chain.
    ///
    /// # Safety
    /// The requirements of [`apply`] apply.
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

    /// Ends the call with the host's token. Returns true if the host is to be called once more, and
    /// the difference from this library's result, if any.
    fn finish(&mut self, token: Token) -> (bool, Option<Difference>) {
        let difference = match self.stage {
            Stage::Watched => self.judge(token),
            Stage::Answering | Stage::Answered => Some(Difference::NotApplied),
            _ => self.difference,
        };
        (self.is_tried(), difference)
    }

    /// Writes the findings to the chain's note. Returns a difference if it means that all chains
    /// are to be left to the host.
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
            // Something comes before the chain that only some chains have, such as a grammar.
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

/// Records that the host applies this budget first. `None` stands for a sampler that is not a
/// budget, and records nothing.
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

/// Records whether the chain itself has run, after the host has taken the candidates that copies of
/// it left.
///
/// # Safety
/// The requirements of [`apply`] apply.
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

/// True if a grammar of this library is applied to a single token, as a check.
///
/// # Safety
/// The requirements of [`apply`] apply.
unsafe fn is_check(smpl: *const llama_sampler, array: *const llama_token_data_array) -> bool {
    // SAFETY: the caller guarantees sampler and array.
    unsafe {
        let is_one = |array: &llama_token_data_array| array.size == 1 && !array.data.is_null();
        array.as_ref().is_some_and(is_one) && in_front::is_grammar(smpl)
    }
}

/// Sets the selected index and the mark as sorted in the host's array to those that the chain left.
/// Returns false if the array has a different number of candidates.
///
/// # Safety
/// The requirements of [`apply`] apply.
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

/// Selects any candidate, so that the host can continue with a result that will be discarded.
///
/// # Safety
/// The requirements of [`apply`] apply.
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
        // The chain's first member is moved to another chain, and back.
        assert_eq!(known_of(second, &note) as u32, 0);
        assert_eq!(known_of(first, &note), of_first);
    }
}
