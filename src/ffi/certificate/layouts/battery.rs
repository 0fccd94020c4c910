//! A sequence of steps that the host's sampler and this library's both perform. It is chosen so
//! that every argument has a visible effect.

use super::arguments::Arguments;
use crate::ffi::certificate::arrays::HISTORY;
use crate::ffi::certificate::compare::{
    CopyTo, Difference, Left, Pair, accept, apply, differ, name_of,
};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::host_vocabulary;
use crate::ffi::samplers::begin_breakers;
use crate::lcg::Lcg;
use crate::token::{Token, TokenData};
use crate::vocabulary::Vocabulary;

/// The maximum number of tokens that are accepted to determine the end of a window.
const MOST_ACCEPTED: usize = 1 << 17;

/// The maximum number of tokens of a repetition in a test.
const MOST_REPEATED: usize = 64;

/// The maximum number of tokens that begin breakers in a test.
const MOST_BREAKERS: usize = 12;

/// The maximum number of bytes of a token's text in a test of infill.
const LONGEST_PIECE: usize = 256;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Both samplers accept the token, as many times as the number says.
    Accept(Token, usize),
    /// Both samplers are applied to the array at this index.
    Apply(usize),
}

/// A sequence of steps. It is made before it runs, so that this library cannot fail between calls
/// of the host.
pub(super) struct Battery {
    steps: Vec<Step>,
    /// The steps for copies of the samplers after the first steps.
    of_copies: Vec<Step>,
    arrays: Vec<Vec<TokenData>>,
    /// True if the steps show every argument.
    is_whole: bool,
    work: [Vec<TokenData>; 2],
}

/// The outcome of a battery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Differs,
    /// The host's copies differ from this library's, or the samplers differ after a reset.
    CopiesDiffer,
    /// No difference was found, but not every argument could be tested.
    AsFarAsSeen,
    /// Neither sampler has changed anything.
    DoesNothing,
    Same,
}

impl Battery {
    fn new() -> Self {
        Self {
            steps: Vec::new(),
            of_copies: Vec::new(),
            arrays: Vec::new(),
            is_whole: true,
            work: [Vec::new(), Vec::new()],
        }
    }

    /// Makes the steps for these arguments; `ours` is this library's sampler with them.
    ///
    /// # Safety
    /// `ours` is NULL or a live sampler of this library with these arguments; a vocabulary among
    /// these is one of the bound host's.
    pub(super) unsafe fn of(arguments: &Arguments, ours: *mut llama_sampler) -> Self {
        let mut battery = Self::new();
        match arguments {
            Arguments::Penalties { last_n, .. } => battery.penalties(*last_n),
            Arguments::Dry {
                allowed_length,
                last_n,
                ..
            } => {
                // SAFETY: the caller guarantees the sampler.
                let breakers = unsafe { begin_breakers(ours, MOST_BREAKERS) };
                battery.dry(*allowed_length, *last_n, &breakers);
            }
            Arguments::LogitBias { biases, .. } => battery.logit_bias(biases),
            Arguments::Infill { vocab } => {
                // SAFETY: the caller guarantees the vocabulary.
                if let Ok(vocabulary) = unsafe { host_vocabulary(*vocab as *const _) } {
                    battery.infill(&vocabulary);
                }
            }
        }
        // A reset after the last step has much to clear.
        let all = 0..battery.arrays.len();
        let history = HISTORY.map(|token| Step::Accept(token, 1));
        battery.of_copies.extend(all.clone().map(Step::Apply));
        battery.of_copies.extend(history);
        battery.of_copies.extend(all.map(Step::Apply));
        let most = battery.arrays.iter().map(Vec::len).max().unwrap_or(0);
        battery.work = [Vec::with_capacity(most), Vec::with_capacity(most)];
        battery
    }

    fn accept(&mut self, token: Token) {
        self.steps.push(Step::Accept(token, 1));
    }

    fn accept_all(&mut self, tokens: &[Token]) {
        for &token in tokens {
            self.accept(token);
        }
    }

    fn accept_often(&mut self, token: Token, n: usize) {
        self.is_whole &= n <= MOST_ACCEPTED;
        self.steps.push(Step::Accept(token, n.min(MOST_ACCEPTED)));
    }

    /// Adds an array of candidates with the ids `ids`, and returns its index. The logits use all 24
    /// bits of a significand, except one, which is 0.
    fn array(&mut self, ids: impl IntoIterator<Item = Token>) -> usize {
        let mut lcg = Lcg(1_274_836_067);
        let candidate = |(i, id)| {
            let random = lcg.unit() * 16.0 - 8.0;
            let logit = if i == 2 { 0.0 } else { random };
            TokenData::new(id, logit)
        };
        let data = ids.into_iter().enumerate().map(candidate).collect();
        self.arrays.push(data);
        self.arrays.len() - 1
    }

    fn apply(&mut self, array: usize) {
        self.steps.push(Step::Apply(array));
    }

    /// Adds steps for penalties: repetitions, and then tokens that leave the window one by one.
    fn penalties(&mut self, last_n: i32) {
        const FILLER: Token = 7;
        const MARKERS: [Token; 8] = [100, 101, 102, 103, 104, 105, 106, 107];
        let few = self.array(0..24);
        self.accept_all(&HISTORY);
        self.apply(few);
        let marked = self.array(MARKERS.into_iter().chain([FILLER, 1, 2, 3, 200]));
        for marker in MARKERS {
            self.accept(marker);
            self.apply(marked);
        }
        // The first marker is then the second token to leave the window. If the host's window does
        // not have the length that this argument list says, the arrays in between show that soon
        // after its end: its length may be the vocabulary's size.
        let window = usize::try_from(last_n).unwrap_or(0);
        let fillers = window.saturating_sub(MARKERS.len() + 1);
        self.is_whole &= fillers <= MOST_ACCEPTED;
        let fillers = fillers.min(MOST_ACCEPTED);
        let (mut accepted, mut next) = (0, 64);
        while accepted + next < fillers {
            self.accept_often(FILLER, next);
            self.apply(marked);
            accepted += next;
            next *= 2;
        }
        self.accept_often(FILLER, fillers - accepted);
        for _ in 0..MARKERS.len() + 4 {
            self.apply(marked);
            self.accept(FILLER);
        }
    }

    fn dry(&mut self, allowed_length: i32, last_n: i32, breakers: &[Token]) {
        let least = usize::try_from(allowed_length).unwrap_or(0).max(1);
        self.is_whole &= least <= MOST_REPEATED;
        let least = least.min(MOST_REPEATED);
        let window = usize::try_from(last_n).unwrap_or(0);
        let mut others = (0..).filter(|token| !breakers.contains(token));
        let filler = others.next().unwrap_or_default();
        let mut some = |n: usize| others.by_ref().take(n).collect::<Vec<Token>>();

        // Repetitions of all lengths around the minimum, and the tokens after them.
        let run = some(least + 3);
        let array = self.array(run.iter().copied().chain(some(4)));
        self.accept_all(&run);
        for &token in &run {
            self.accept(token);
            self.apply(array);
        }
        // A breaker within a repetition.
        for &breaker in breakers {
            let (before, after, behind) = (some(least), some(least), some(1));
            let run = [&before[..], &[breaker], &after].concat();
            let array = self.array(behind.iter().chain(&run).copied());
            self.accept_all(&run);
            self.accept_all(&behind);
            self.accept(filler);
            self.accept_all(&run);
            self.apply(array);
        }
        // Repetitions as far back as the window reaches, and one token farther.
        let (first, second, behind) = (some(least), some(least), some(2));
        let ids = behind.iter().chain(&first).chain(&second);
        let array = self.array(ids.chain([&filler]).copied());
        let runs = [&first, &second];
        if let Some(between) = window.checked_sub(3 * least + 1) {
            // When the first run is repeated, one of its tokens has left the window. When the
            // second run is repeated after that, all of its tokens are still in the window.
            for (run, behind) in runs.into_iter().zip(&behind) {
                self.accept_all(run);
                self.accept(*behind);
            }
            self.accept_often(filler, between);
            for run in runs {
                self.accept_all(run);
                self.apply(array);
            }
            return;
        }
        let between = window.checked_sub(2 * least + 1);
        self.is_whole &= between.is_some();
        for ((run, behind), farther) in runs.into_iter().zip(&behind).zip(0..) {
            self.accept_all(run);
            self.accept(*behind);
            self.accept_often(filler, between.unwrap_or(0) + farther);
            self.accept_all(run);
            self.apply(array);
        }
    }

    /// Adds steps for logit bias: candidates with biases, at their own indices and out of order.
    fn logit_bias(&mut self, biases: &[(i32, u32)]) {
        // Each candidate is compared with each bias.
        let most = (1 << 20) / biases.len().max(1);
        let most = most.clamp(8, 128);
        let spread = |i: usize| biases.get(i * (biases.len() - 1) / (most - 1).max(1));
        let mut ids: Vec<Token> = match biases.len() <= most {
            true => biases.iter().map(|&(token, _)| token).collect(),
            false => (0..most).filter_map(spread).map(|&(id, _)| id).collect(),
        };
        let in_place = self.array(0..most as Token);
        ids.extend(ids.clone().iter().map(|id| id.wrapping_add(1)));
        ids.sort_unstable();
        ids.dedup();
        let backward = self.array(ids.into_iter().rev());
        self.apply(in_place);
        self.apply(backward);
    }

    /// Adds steps for infill: tokens from the whole vocabulary, some of which end a generation.
    fn infill(&mut self, vocabulary: &dyn Vocabulary) {
        const MOST: usize = 40;
        let n = vocabulary.n_tokens();
        let spread = (0..MOST).map(|i| (i * n / MOST) as Token);
        let ends = (0..n as Token).rev().filter(|&id| vocabulary.is_eog(id));
        let mut ids: Vec<Token> = spread.chain(ends.take(4)).chain(0..8).collect();
        // llama.cpp's own infill throws if a piece is too long.
        let mut piece = Vec::new();
        let mut is_short = |id: Token| {
            piece.clear();
            vocabulary.piece(id, &mut piece);
            piece.len() <= LONGEST_PIECE
        };
        ids.retain(|&id| (id as usize) < n && is_short(id));
        ids.sort_unstable();
        ids.dedup();
        for part in [ids.len(), 12, 3] {
            let array = self.array(ids.iter().rev().take(part).copied());
            self.apply(array);
        }
    }

    /// Runs the steps with both samplers, and then with their copies. `copy` is the host's
    /// `llama_sampler_copy`.
    ///
    /// # Safety
    /// The samplers are live or NULL, and used by no other code.
    pub(super) unsafe fn run(&mut self, pair: &Pair, copy: Option<CopyTo>) -> Outcome {
        let [theirs, ours] = pair.made;
        // SAFETY: both are live or NULL.
        let is_there =
            |smpl: *mut llama_sampler| unsafe { !smpl.is_null() && !(*smpl).iface.is_null() };
        if !is_there(theirs) || !is_there(ours) {
            return Outcome::AsFarAsSeen;
        }
        // SAFETY: both are live.
        if unsafe { name_of(theirs) != name_of(ours) } {
            return Outcome::Differs;
        }
        let (steps, arrays, work) = (&self.steps, &self.arrays, &mut self.work);
        // SAFETY: as above.
        let Ok(does_something) = (unsafe { gone_through(pair, steps, arrays, work) }) else {
            return Outcome::Differs;
        };
        let mut again = |pair: &Pair| {
            // SAFETY: both are live.
            let gone = unsafe { gone_through(pair, &self.of_copies, arrays, work) };
            gone.map(|_| ())
        };
        // SAFETY: both are live, and the function is their host's.
        if unsafe { pair.compare_copies(copy, &mut again) }.is_err() {
            return Outcome::CopiesDiffer;
        }
        match (self.is_whole, does_something) {
            (false, _) => Outcome::AsFarAsSeen,
            (true, false) => Outcome::DoesNothing,
            (true, true) => Outcome::Same,
        }
    }
}

/// Runs the steps with both samplers. If all results agree, returns true if a sampler has changed
/// an array.
///
/// # Safety
/// The samplers are live, and used by no other code.
unsafe fn gone_through(
    pair: &Pair,
    steps: &[Step],
    arrays: &[Vec<TokenData>],
    work: &mut [Vec<TokenData>; 2],
) -> Result<bool, Difference> {
    let [theirs, ours] = pair.made;
    let mut does_something = false;
    for &step in steps {
        let array = match step {
            Step::Accept(token, n) => {
                for smpl in pair.made {
                    for _ in 0..n {
                        // SAFETY: the caller guarantees the samplers.
                        unsafe { accept(smpl, token) };
                    }
                }
                continue;
            }
            Step::Apply(array) => array,
        };
        let Some(data) = arrays.get(array) else {
            continue;
        };
        let [of_theirs, of_ours] = &mut *work;
        let left = [(theirs, of_theirs), (ours, of_ours)].map(|(smpl, work)| {
            work.clear();
            work.extend_from_slice(data);
            // SAFETY: as above, and the array is this call's.
            unsafe { apply(smpl, work, false) }
        });
        let ([theirs, ours], [of_theirs, of_ours]) = (left, &*work);
        if let Some(code) = theirs.differs_from(of_theirs, &ours, of_ours) {
            return differ(code, data.len());
        }
        let before = Left::all(data.len());
        does_something |= before.differs_from(data, &ours, of_ours).is_some();
    }
    Ok(does_something)
}
