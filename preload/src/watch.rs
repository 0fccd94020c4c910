//! Observes a call in which the host does the sampling, and compares its result with that of this
//! library on copies of the chain.

use std::cell::Cell;
use std::mem;

use llama_sieve::Token;
use llama_sieve::ffi::chain::in_front::Candidates;
use llama_sieve::ffi::host::llama_h::llama_token_data_array;
use llama_sieve::per_thread::PerThread;

use crate::columns::{Columns, are_logits_in, selected_in};
use crate::proof::{Difference, Entry};
use crate::routes::Function;

/// A query about a backend's results, by a host that samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Probs,
    Logits,
    Candidates,
    Token,
}

impl Question {
    /// Returns all queries of a function, in their order.
    fn asked_by(entry: Entry) -> [Self; 4] {
        match entry {
            Entry::Common => [Self::Probs, Self::Logits, Self::Candidates, Self::Token],
            Entry::Sampler => [Self::Token, Self::Probs, Self::Logits, Self::Candidates],
        }
    }
}

/// The first function that `common_sampler_sample` queries, and one of those that
/// `llama_sampler_sample` queries.
pub static SAMPLED_PROBS: Function = Function::new(c"llama_get_sampled_probs_ith");

/// True if the host has functions that return the results of a backend.
fn tells_of_backends() -> bool {
    SAMPLED_PROBS.route().is_some()
}

/// The result of this library on the logits, computed before the host samples.
#[derive(Default)]
struct Rehearsed {
    /// The logits at that time.
    logits: Vec<f32>,
    /// The logits that the chain began with, if they differ.
    others: Vec<f32>,
    left: Columns,
}

impl Rehearsed {
    /// Returns the logits that the chain began with.
    fn begins(&self) -> &[f32] {
        match self.others.is_empty() {
            true => &self.logits,
            false => &self.others,
        }
    }
}

thread_local! {
    /// The result of the last rehearsal on this thread.
    static REHEARSED: PerThread<Cell<Option<Box<Rehearsed>>>> = const { PerThread::new() };
}

/// Keeps the candidates that copies of the chain left, and the logits of the output at that time.
/// `begins` are the logits that the chain began with. Returns false if there is too little memory.
pub fn keep(logits: &[f32], begins: &[f32], left: Candidates<'_>) -> bool {
    let kept = PerThread::with(&REHEARSED, Cell::take).flatten();
    let mut rehearsed = kept.unwrap_or_default();
    let others = match std::ptr::eq(logits, begins) {
        true => &[],
        false => begins,
    };
    let kept = refill(&mut rehearsed.logits, logits)
        && refill(&mut rehearsed.others, others)
        && rehearsed.left.fill(left);
    put_back(rehearsed);
    kept
}

/// Replaces the contents of a buffer. Returns false if there is too little memory.
fn refill(kept: &mut Vec<f32>, logits: &[f32]) -> bool {
    kept.clear();
    let has_room = kept.try_reserve_exact(logits.len()).is_ok();
    if has_room {
        kept.extend_from_slice(logits);
    }
    has_room
}

fn put_back(rehearsed: Box<Rehearsed>) {
    let _ = PerThread::with(&REHEARSED, |place| place.set(Some(rehearsed)));
}

/// Returns the result of `look` on the last rehearsal on this thread; false if there is none.
fn is_rehearsed(look: impl FnOnce(&Rehearsed) -> bool) -> bool {
    let kept = PerThread::with(&REHEARSED, Cell::take).flatten();
    kept.is_some_and(|rehearsed| {
        let is = look(&rehearsed);
        put_back(rehearsed);
        is
    })
}

/// The observations of a watched call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The number of queries so far.
    asked: usize,
    /// True if the queries were not the expected ones.
    odd: bool,
    /// True if copies of the chain have run, and the host has not yet run the chain.
    rehearsed: bool,
    /// True if copies of the chain had run when the host applied the chain.
    compared: bool,
    /// True if a sampler was applied since the candidates were filled in.
    applied: bool,
    /// True if a sampler that is not a budget was applied before the chain.
    before: bool,
    /// True if a budget that was not known when the copies ran was applied before the chain.
    new_budget: bool,
    /// True once the chain has been applied. A grammar may then check the token. If it rejects the
    /// token, the same steps follow once more.
    pub chain: bool,
    /// The token that the chain selected.
    token: Option<Token>,
    difference: Option<Difference>,
}

/// The conclusion from a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, because a backend has sampled, or the copies could not be run or compared.
    Nothing,
    /// This library would have given the same result.
    Same,
    /// Another sampler comes before the chain.
    Before,
    Differs(Difference),
}

impl Seen {
    /// Records a query of the host; `of_call` is true if it is about the output of the call.
    pub fn ask(&mut self, entry: Entry, question: Question, of_call: bool) {
        if !self.chain {
            let expected = Question::asked_by(entry).get(self.asked) == Some(&question);
            self.odd |= !expected || !of_call;
            self.asked += 1;
        }
    }

    /// True if there has been no query yet.
    pub fn is_fresh(&self) -> bool {
        self.asked == 0
    }

    /// Records that the host begins with all candidates; `rehearsed` is true if copies of the chain
    /// have run.
    pub fn begin(&mut self, rehearsed: bool) {
        (self.rehearsed, self.applied) = (rehearsed, false);
    }

    /// True if no sampler has been applied yet.
    pub fn is_before_all(&self) -> bool {
        !self.applied && !self.chain
    }

    /// Records that the sampler applied before the chain is a budget.
    pub fn budget_is_found(&mut self) {
        (self.before, self.new_budget) = (false, true);
    }

    /// True if a new budget was found in this call.
    pub fn has_new_budget(&self) -> bool {
        self.new_budget
    }

    /// Records that the host applies the chain, a known budget, or another sampler.
    ///
    /// # Safety
    /// `array` is NULL or valid.
    pub unsafe fn apply(
        &mut self,
        entry: Entry,
        (is_chain, is_budget): (bool, bool),
        array: *const llama_token_data_array,
    ) {
        let is_first = !mem::replace(&mut self.applied, true);
        // SAFETY: the caller guarantees the array.
        let is_raw = |kept: &Rehearsed| unsafe { are_logits_in(&kept.logits, array) };
        if is_first && self.rehearsed && !is_rehearsed(is_raw) {
            self.differs(Difference::Logits);
        }
        if self.chain {
            return;
        }
        // SAFETY: as above.
        let begins = |kept: &Rehearsed| unsafe { are_logits_in(kept.begins(), array) };
        if is_chain && !is_first && self.rehearsed && !is_rehearsed(begins) {
            match self.new_budget {
                // The budget, which was not known when the copies ran, forces a token.
                true => self.rehearsed = false,
                false => self.differs(Difference::Before),
            }
        }
        if is_chain {
            // Older hosts, without functions for the results of backends, make no queries.
            let all = match entry {
                Entry::Sampler if !tells_of_backends() => 0,
                Entry::Common | Entry::Sampler => Question::asked_by(entry).len(),
            };
            self.odd |= self.asked != all;
            (self.chain, self.compared) = (true, self.rehearsed);
        } else if !is_budget {
            self.before = true;
        }
    }

    /// Records that the host has applied the chain.
    ///
    /// # Safety
    /// `array` is NULL or valid.
    pub unsafe fn leave(&mut self, array: *const llama_token_data_array) {
        // SAFETY: the caller guarantees the array.
        let is_same = |kept: &Rehearsed| unsafe { kept.left.are_in(array) };
        if self.rehearsed && !is_rehearsed(is_same) {
            self.differs(Difference::Candidates);
        }
        self.rehearsed = false;
        // SAFETY: as above.
        self.token = unsafe { selected_in(array) };
    }

    /// Records a difference; only the first one counts.
    fn differs(&mut self, difference: Difference) {
        self.difference.get_or_insert(difference);
    }

    /// Returns the conclusion from the call, which returned this token.
    pub fn verdict(&self, token: Token) -> Verdict {
        match self {
            Self {
                chain: false,
                rehearsed: true,
                ..
            } => Verdict::Differs(Difference::NotApplied),
            Self { chain: false, .. } => Verdict::Nothing,
            Self { odd: true, .. } => Verdict::Differs(Difference::Questions),
            Self { before: true, .. } => Verdict::Before,
            Self {
                compared: false, ..
            } => Verdict::Nothing,
            Self {
                difference: Some(difference),
                ..
            } => Verdict::Differs(*difference),
            Self { token: last, .. } if *last != Some(token) => Verdict::Differs(Difference::Token),
            _ => Verdict::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llama_sieve::TokenData;
    use llama_sieve::token::array_of;

    const LOGITS: [f32; 3] = [0.5, 2.0, -1.0];

    /// Returns all candidates, as a host fills them in.
    fn raw() -> Vec<TokenData> {
        array_of(&LOGITS)
    }

    /// Returns the candidates that the chain leaves of these.
    fn left() -> Vec<TokenData> {
        let of = |id, p| TokenData {
            id,
            logit: LOGITS[id as usize],
            p,
        };
        vec![of(1, 0.75), of(0, 0.25)]
    }

    /// An array that a host passes to samplers.
    struct Array(Vec<TokenData>, i64, bool);

    impl Array {
        fn as_host(&mut self) -> llama_token_data_array {
            llama_token_data_array {
                data: self.0.as_mut_ptr(),
                size: self.0.len(),
                selected: self.1,
                sorted: u8::from(self.2),
            }
        }
    }

    /// A correct call of a host, which a test can change.
    struct Call {
        entry: Entry,
        questions: Vec<(Question, bool)>,
        rehearsed: bool,
        /// The samplers applied: true for the chain.
        applied: Vec<bool>,
        begins: Array,
        leaves: Array,
        token: Token,
    }

    impl Call {
        fn usual() -> Self {
            Self {
                entry: Entry::Common,
                questions: Question::asked_by(Entry::Common).map(|q| (q, true)).into(),
                rehearsed: true,
                applied: vec![true],
                begins: Array(raw(), -1, false),
                leaves: Array(left(), 1, true),
                token: 0,
            }
        }

        fn verdict(mut self) -> Verdict {
            let mut seen = Seen::default();
            let ours = left();
            let ours = Candidates {
                data: &ours,
                sorted: true,
                selected: 1,
            };
            if self.rehearsed {
                assert!(keep(&LOGITS, &LOGITS, ours));
            }
            seen.begin(self.rehearsed);
            for (question, of_call) in self.questions {
                seen.ask(self.entry, question, of_call);
            }
            for is_chain in self.applied {
                // SAFETY: both arrays are valid.
                unsafe {
                    seen.apply(self.entry, (is_chain, false), &self.begins.as_host());
                    if is_chain {
                        seen.leave(&self.leaves.as_host());
                    }
                }
            }
            seen.verdict(self.token)
        }
    }

    fn with(change: impl FnOnce(&mut Call)) -> Verdict {
        let mut call = Call::usual();
        change(&mut call);
        call.verdict()
    }

    fn differs(difference: Difference, change: impl FnOnce(&mut Call)) {
        assert_eq!(with(change), Verdict::Differs(difference));
    }

    #[test]
    fn a_chain_alone_is_seen_to_be_alike() {
        assert_eq!(with(|_| {}), Verdict::Same);
    }

    #[test]
    fn a_grammar_after_the_chain_and_all_over_again_is_of_no_account() {
        let again = vec![true, false, false, true];
        assert_eq!(with(|call| call.applied = again), Verdict::Same);
    }

    #[test]
    fn what_is_applied_before_the_chain_is_seen() {
        assert_eq!(
            with(|call| call.applied = vec![false, true]),
            Verdict::Before
        );
    }

    #[test]
    fn other_questions_are_seen() {
        differs(Difference::Questions, |call| call.questions.swap(0, 1));
        differs(Difference::Questions, |call| call.questions.clear());
        differs(Difference::Questions, |call| call.questions.truncate(3));
        differs(Difference::Questions, |call| {
            call.questions.push((Question::Probs, true));
        });
        differs(Difference::Questions, |call| call.questions[2].1 = false);
        // The other function begins with the query of the token.
        differs(Difference::Questions, |call| call.entry = Entry::Sampler);
    }

    #[test]
    fn other_candidates_than_the_logits_are_seen() {
        for change in [
            (|array| array.0[1].logit = 2.0f32.next_up()) as fn(&mut Array),
            |array| array.0[1].id = 2,
            |array| array.0[1].p = 0.5,
            |array| array.0.swap(0, 1),
            |array| array.0.truncate(2),
            |array| array.1 = 0,
            |array| array.2 = true,
            |array| array.0.clear(),
        ] {
            differs(Difference::Logits, |call| change(&mut call.begins));
        }
    }

    #[test]
    fn what_the_chain_leaves_otherwise_is_seen() {
        for change in [
            (|array| array.0[1].logit = 0.0) as fn(&mut Array),
            |array| array.0[1].id = 2,
            |array| array.0[1].p = 0.0,
            |array| array.0.swap(0, 1),
            |array| array.0.truncate(1),
            |array| array.1 = 0,
            |array| array.2 = false,
        ] {
            differs(Difference::Candidates, |call| change(&mut call.leaves));
        }
    }

    #[test]
    fn a_token_that_the_chain_has_not_selected_is_seen() {
        differs(Difference::Token, |call| call.token = 1);
    }

    #[test]
    fn without_a_rehearsal_nothing_is_known() {
        assert_eq!(with(|call| call.rehearsed = false), Verdict::Nothing);
        // This is the state of a call in which a backend has sampled.
        let sampled = |call: &mut Call| {
            call.rehearsed = false;
            call.applied.clear();
        };
        assert_eq!(with(sampled), Verdict::Nothing);
        differs(Difference::NotApplied, |call| call.applied.clear());
    }
}
