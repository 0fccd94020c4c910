//! The samplers: any members with any parameters in one chain, on any logits. The invariants must
//! hold (no panic, no empty array, a selected index within it, and new ids only from infill and the
//! loop breaker). Where the result of the built-in is defined, every member's result must equal it
//! bit for bit, on the array that the members before it have left. Every case is also sampled
//! directly from its logits, with the same token and candidates.
#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use std::collections::HashSet;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use llama_sieve::errors::LLAMA_SIEVE_ERROR_NO_CANDIDATE;
use llama_sieve::ffi::bans::{LLAMA_SIEVE_BAN_FOLD_CASE, LLAMA_SIEVE_BAN_REGEX};
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::loops::{
    LLAMA_SIEVE_LOOP_BAN, LLAMA_SIEVE_LOOP_END, LLAMA_SIEVE_LOOP_FORCE,
    LLAMA_SIEVE_LOOP_TEMPERATURE, llama_sieve_init_loop_breaker, llama_sieve_loop_params,
};
use llama_sieve::ffi::samplers as sieve;
use llama_sieve_fuzz::logits::{Logit, Number, Whole};
use support::arrays::{Grid, Ids, Recipe, Rng, Shape};
use support::compare::same;
use support::family::{FAMILY, vocabulary};
use support::straight::Straight;
use support::{Array, HostSampler};
use vendor_llama_cpp::sys;

fuzz_target!(
    init: {
        llama_sieve_fuzz::silence();
        vocabulary();
    },
    |case: Case| case.run()
);

#[derive(Arbitrary, Debug)]
struct Case {
    members: Vec<Spec>,
    steps: Vec<Step>,
}

/// A sampler and its parameters.
#[derive(Arbitrary, Clone, Debug)]
enum Spec {
    Greedy,
    Dist(u16),
    TopK(Whole),
    TopP(Number, Whole),
    MinP(Number, Whole),
    Typical(Number, Whole),
    Temp(Number),
    TopNSigma(Number),
    TempExt(Number, Number, Number),
    Xtc(Number, Number, Whole, u16),
    Mirostat(Whole, u16, Number, Number, Whole),
    MirostatV2(u16, Number, Number),
    Penalties(Whole, Whole, Number, Number, Number),
    Dry(Number, Number, Whole, Whole, Vec<Breaker>),
    AdaptiveP(Number, Number, u16),
    LogitBias(Vec<(i16, Logit)>),
    Infill,
    TailFree(Number, Whole),
    Softmax,
    TopA(Number),
    EpsilonCutoff(Number),
    EtaCutoff(Number),
    PLess(bool),
    TopH(Number),
    Quadratic(Number, Number),
    MinK(Number),
    BanStrings(Vec<Banned>, Reading),
    BanStringsBias(Vec<Banned>, bool, i8),
    LoopBreaker(Loop),
}

/// A text of a single token of the vocabulary, of several tokens, or of none; or a pattern with
/// such matches.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Banned {
    Letter(u8),
    The,
    TheLord,
    Half,
    Nowhere,
}

/// How banned texts are read.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Reading {
    folds: bool,
    are_patterns: bool,
}

#[derive(Arbitrary, Clone, Debug)]
struct Loop {
    action: LoopAction,
    max_period: u8,
    min_tokens: u8,
}

#[derive(Arbitrary, Clone, Debug)]
enum LoopAction {
    Ban,
    Temperature(u8),
    Force(u16, Vec<u16>),
    End,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Breaker {
    Null,
    Newline,
    And,
    TheLord,
    Odd,
}

#[derive(Arbitrary, Debug)]
struct Step {
    input: Input,
    /// Repeats the logits up to the size of a vocabulary, for sampling directly from the logits.
    tiled: bool,
    accept: Accept,
    then: Between,
}

#[derive(Arbitrary, Debug)]
struct Input {
    shape: u8,
    size: u16,
    seed: u16,
    grid: u8,
    ids: u8,
    half_masked: bool,
    with_p: bool,
    changes: Vec<(u16, Logit)>,
    selected: i8,
    claims_order: bool,
}

#[derive(Arbitrary, Debug)]
enum Accept {
    /// The selected candidate, or the first.
    Selected,
    Nth(u8),
    Any(i32),
}

#[derive(Arbitrary, Debug)]
enum Between {
    Nothing,
    Reset,
    Clone,
    /// Makes a copy, lets the original accept this token, and copies the copy's state back to it.
    Copy(u8),
    /// Copies the state of another chain, whose penalties have this window and which has accepted
    /// the first tokens, and then accepts the others.
    Other(Whole, Vec<u8>, Vec<u8>),
}

/// A sampler of ours, with the built-in one as long as both are known to be in the same state.
struct Member {
    spec: Spec,
    ours: HostSampler,
    theirs: Option<HostSampler>,
    replaces: bool,
    selects: bool,
    accept_always: bool,
}

/// Returns true if the built-in's arithmetic is defined for these parameters.
fn tame(numbers: &[f32]) -> bool {
    numbers.iter().all(|x| x.is_finite())
}

/// The largest window with which the built-ins are compared, since they allocate all of it at once.
const LONGEST_WINDOW: i32 = 5000;

impl Spec {
    fn make(&self) -> Member {
        // Some samplers select a token whatever their parameters are.
        let selects = matches!(
            self,
            Spec::Greedy
                | Spec::Dist(_)
                | Spec::Mirostat(..)
                | Spec::MirostatV2(..)
                | Spec::AdaptiveP(..)
        );
        let (name, ours, theirs) = self.both();
        let row = FAMILY.iter().find(|row| row.name == name);
        Member {
            spec: self.clone(),
            ours: HostSampler::new(ours),
            theirs: theirs.map(HostSampler::new),
            replaces: matches!(name, "infill" | "loop_breaker"),
            selects,
            accept_always: row.is_some_and(|row| row.accept_always),
        }
    }

    /// Returns the name in the table of drop-ins, our sampler, and the built-in one if its result
    /// is defined.
    fn both(&self) -> Both {
        macro_rules! both {
            ($ours:ident, $theirs:ident, $defined:expr $(; $($argument:expr),*)?) => {{
                let name = stringify!($ours).trim_start_matches("llama_sieve_init_");
                // SAFETY: constructors without preconditions.
                let theirs = $defined.then(|| unsafe { sys::$theirs($($($argument),*)?) });
                (name, sieve::$ours($($($argument),*)?), theirs)
            }};
        }
        let seed = |seed: u16| u32::from(seed);
        match *self {
            Spec::Greedy => both!(llama_sieve_init_greedy, llama_sampler_init_greedy, true),
            Spec::Dist(s) => both!(llama_sieve_init_dist, llama_sampler_init_dist, true; seed(s)),
            Spec::TopK(k) => both!(llama_sieve_init_top_k, llama_sampler_init_top_k, true; k.0),
            Spec::TopP(p, keep) => both!(
                llama_sieve_init_top_p, llama_sampler_init_top_p, tame(&[p.0]); p.0, keep.size()
            ),
            Spec::MinP(p, keep) => both!(
                llama_sieve_init_min_p, llama_sampler_init_min_p, tame(&[p.0]); p.0, keep.size()
            ),
            Spec::Typical(p, keep) => both!(
                llama_sieve_init_typical, llama_sampler_init_typical, tame(&[p.0]); p.0, keep.size()
            ),
            Spec::Temp(t) => both!(
                llama_sieve_init_temp, llama_sampler_init_temp, tame(&[t.0]); t.0
            ),
            Spec::TopNSigma(n) => both!(
                llama_sieve_init_top_n_sigma, llama_sampler_init_top_n_sigma, tame(&[n.0]); n.0
            ),
            Spec::TempExt(t, d, e) => both!(
                llama_sieve_init_temp_ext, llama_sampler_init_temp_ext,
                tame(&[t.0, d.0, e.0]); t.0, d.0, e.0
            ),
            Spec::Xtc(p, t, keep, s) => both!(
                llama_sieve_init_xtc, llama_sampler_init_xtc,
                tame(&[p.0, t.0]); p.0, t.0, keep.size(), seed(s)
            ),
            Spec::Mirostat(n, s, tau, eta, m) => both!(
                // The built-in computes m - 1.
                llama_sieve_init_mirostat, llama_sampler_init_mirostat,
                tame(&[tau.0, eta.0]) && m.0 > i32::MIN; n.0, seed(s), tau.0, eta.0, m.0
            ),
            Spec::MirostatV2(s, tau, eta) => both!(
                llama_sieve_init_mirostat_v2, llama_sampler_init_mirostat_v2,
                tame(&[tau.0, eta.0]); seed(s), tau.0, eta.0
            ),
            Spec::Penalties(n, last, r, f, p) => both!(
                llama_sieve_init_penalties, llama_sampler_init_penalties,
                tame(&[r.0, f.0, p.0]) && last.0 <= LONGEST_WINDOW; n.0, last.0, r.0, f.0, p.0
            ),
            Spec::AdaptiveP(t, d, s) => both!(
                llama_sieve_init_adaptive_p, llama_sampler_init_adaptive_p,
                tame(&[t.0, d.0]); t.0, d.0, seed(s)
            ),
            Spec::TailFree(z, keep) => (
                "tail_free",
                sieve::llama_sieve_init_tail_free(z.0, keep.size()),
                None,
            ),
            Spec::Softmax => ("softmax", sieve::llama_sieve_init_softmax(), None),
            Spec::TopA(a) => ("top_a", sieve::llama_sieve_init_top_a(a.0), None),
            Spec::EpsilonCutoff(epsilon) => {
                let ours = sieve::llama_sieve_init_epsilon_cutoff(epsilon.0);
                ("epsilon_cutoff", ours, None)
            }
            Spec::EtaCutoff(eta) => (
                "eta_cutoff",
                sieve::llama_sieve_init_eta_cutoff(eta.0),
                None,
            ),
            Spec::PLess(normalised) => ("p_less", sieve::llama_sieve_init_p_less(normalised), None),
            Spec::TopH(alpha) => ("top_h", sieve::llama_sieve_init_top_h(alpha.0), None),
            Spec::MinK(tau) => ("min_k", sieve::llama_sieve_init_min_k(tau.0), None),
            Spec::Quadratic(factor, curve) => {
                let ours = sieve::llama_sieve_init_quadratic(factor.0, curve.0);
                ("quadratic", ours, None)
            }
            Spec::BanStrings(ref texts, reading) => {
                ("ban_strings", ban_strings(texts, reading, None), None)
            }
            Spec::BanStringsBias(ref texts, folds, bias) => {
                let reading = Reading {
                    folds,
                    are_patterns: false,
                };
                let ours = ban_strings(texts, reading, Some(f32::from(bias) / 8.0));
                ("ban_strings_bias", ours, None)
            }
            Spec::LoopBreaker(ref params) => ("loop_breaker", params.make(), None),
            Spec::Infill => {
                let vocab = vocabulary();
                // SAFETY: the vocabulary lives as long as the process.
                let (ours, theirs) = unsafe {
                    (
                        sieve::llama_sieve_init_infill(vocab.cast()),
                        sys::llama_sampler_init_infill(vocab),
                    )
                };
                ("infill", ours, Some(theirs))
            }
            Spec::LogitBias(ref biases) => logit_bias(biases),
            Spec::Dry(multiplier, base, allowed, last, ref breakers) => {
                dry(multiplier.0, base.0, allowed.0, last.0, breakers)
            }
        }
    }
}

type Both = (
    &'static str,
    *mut llama_sampler,
    Option<*mut sys::llama_sampler>,
);

impl Banned {
    fn text(self, folds: bool) -> Vec<u8> {
        match self {
            Banned::Letter(letter) => vec![b'a' + letter % 26],
            Banned::The => b" the".to_vec(),
            Banned::TheLord => b"he LORD said".to_vec(),
            // An incomplete character, which is rejected if case is ignored.
            Banned::Half if !folds => vec![0xC3],
            Banned::Half => "\u{C9}".into(),
            Banned::Nowhere => b"#+#+#+".to_vec(),
        }
    }

    fn pattern(self) -> Vec<u8> {
        match self {
            Banned::Letter(letter) => format!("{}[^a-z]", char::from(b'a' + letter % 26)).into(),
            Banned::The => b" +the".to_vec(),
            Banned::TheLord => b"(?m:^)[A-Z].*the\\s(LORD|king)".to_vec(),
            Banned::Half => "[\u{C9}\u{3B1}-\u{3C9}]{2,3}".into(),
            Banned::Nowhere => b"^#".to_vec(),
        }
    }
}

/// Returns a sampler that bans texts, or biases them.
fn ban_strings(texts: &[Banned], reading: Reading, bias: Option<f32>) -> *mut llama_sampler {
    let text = |text: &Banned| match reading.are_patterns {
        true => text.pattern(),
        false => text.text(reading.folds),
    };
    let texts: Vec<Vec<u8>> = texts.iter().take(8).map(text).collect();
    let flags = u32::from(reading.folds) * LLAMA_SIEVE_BAN_FOLD_CASE
        + u32::from(reading.are_patterns) * LLAMA_SIEVE_BAN_REGEX;
    support::ban_strings(vocabulary(), &texts, flags, bias)
        .into_raw()
        .cast()
}

impl Loop {
    fn make(&self) -> *mut llama_sampler {
        let mut forced = Vec::new();
        let (action, temperature) = match &self.action {
            LoopAction::Ban => (LLAMA_SIEVE_LOOP_BAN, 0.0),
            LoopAction::Temperature(by) => (LLAMA_SIEVE_LOOP_TEMPERATURE, 1.1 + f32::from(*by)),
            LoopAction::Force(first, others) => {
                forced.push(i32::from(*first));
                forced.extend(others.iter().take(8).map(|&token| i32::from(token)));
                (LLAMA_SIEVE_LOOP_FORCE, 0.0)
            }
            LoopAction::End => (LLAMA_SIEVE_LOOP_END, 0.0),
        };
        let params = llama_sieve_loop_params {
            struct_size: size_of::<llama_sieve_loop_params>(),
            action,
            max_period: self.max_period.into(),
            // Most steps accept a single token, so the minimum must be small to be reached.
            min_tokens: i32::from(self.min_tokens % 8),
            temperature,
            tokens: forced.as_ptr(),
            n_tokens: forced.len(),
            vocab: vocabulary().cast(),
        };
        // SAFETY: a struct of its size; the tokens live during the call, the vocabulary longer.
        unsafe { llama_sieve_init_loop_breaker(&params) }
    }
}

fn logit_bias(biases: &[(i16, Logit)]) -> Both {
    let biases = biases.iter();
    let biases: Vec<(i32, f32)> = biases
        .map(|&(token, bias)| (token.into(), bias.value()))
        .collect();
    let [ours, theirs] = support::logit_biases(0, &biases).map(HostSampler::into_raw);
    ("logit_bias", ours.cast(), Some(theirs))
}

fn dry(multiplier: f32, base: f32, allowed: i32, last_n: i32, breakers: &[Breaker]) -> Both {
    let breakers = breakers.iter().take(4).map(|breaker| match breaker {
        Breaker::Null => std::ptr::null(),
        Breaker::Newline => c"\n".as_ptr(),
        Breaker::And => c"and".as_ptr(),
        Breaker::TheLord => c"the LORD".as_ptr(),
        Breaker::Odd => c"\xC3\xA9\xFF".as_ptr(),
    });
    let mut breakers: Vec<_> = breakers.collect();
    let (pointer, n) = (breakers.as_mut_ptr(), breakers.len());
    let vocab = vocabulary();
    // The built-in adds to the length, which may overflow, and allocates the whole window at once.
    let defined =
        tame(&[multiplier, base]) && last_n <= LONGEST_WINDOW && allowed.unsigned_abs() < 1 << 30;
    // SAFETY: the vocabulary lives as long as the process, the breakers during the calls.
    unsafe {
        let theirs = defined.then(|| {
            sys::llama_sampler_init_dry(vocab, multiplier, base, allowed, last_n, pointer, n)
        });
        (
            "dry",
            sieve::llama_sieve_init_dry(
                vocab.cast(),
                multiplier,
                base,
                allowed,
                last_n,
                pointer,
                n,
            ),
            theirs,
        )
    }
}

/// The size of the vocabulary: larger than the number of candidates, and smaller than the model's
/// vocabulary.
const VOCABULARY: usize = 2048;

impl Input {
    fn array(&self, largest: usize) -> Array {
        // Mostly few candidates, sometimes more than the built-ins' thresholds of 128 and 1024.
        let classes = [1, 2, 8, 20, 64, 64, 200, 1500];
        let class = classes[usize::from(self.size & 7)];
        let n = (1 + usize::from(self.size >> 3) % class).min(largest);
        let ids = [Ids::Given, Ids::Shuffled, Ids::Subset];
        let recipe = Recipe {
            grid: Grid::ALL[usize::from(self.grid) % Grid::ALL.len()],
            ids: ids[usize::from(self.ids) % ids.len()],
            half_masked: self.half_masked,
            with_p: self.with_p,
            ..Recipe::of_shape(Shape::ALL[usize::from(self.shape) % Shape::ALL.len()])
        };
        let mut array = recipe.array(n, VOCABULARY, &mut Rng(u64::from(self.seed)));
        for &(index, logit) in &self.changes {
            let index = usize::from(index) % array.data.len();
            array.data[index].logit = logit.value();
        }
        let descends = array.data.is_sorted_by(|a, b| a.logit >= b.logit);
        array.sorted = descends && array.sorted || self.claims_order;
        array.selected = i64::from(self.selected).clamp(-1, array.data.len() as i64 - 1);
        array
    }
}

impl Case {
    fn run(&self) {
        let specs = &self.members[..self.members.len().min(5)];
        let mut members: Vec<Member> = specs.iter().map(Spec::make).collect();
        let mut chain =
            HostSampler::chain(members.iter().map(|member| member.ours.clone()).collect());
        let infill = specs.iter().any(|spec| matches!(spec, Spec::Infill));
        let largest = if infill { 60 } else { usize::MAX };
        for step in self.steps.iter().take(6) {
            let input = step.input.array(largest);
            both_ways(&chain, &input, step.tiled && !infill);
            let output = apply_all(&mut members, &input);
            let mut of_chain = input.clone();
            chain.apply(&mut of_chain);
            assert_eq!(bits(&output), bits(&of_chain), "a chain is its members");
            accept(&mut members, &chain, &output, &step.accept);
            between(&mut members, &mut chain, &step.then);
        }
    }
}

/// Checks that a copy of the chain, sampling straight from the logits, selects the same token and
/// leaves the same candidates as another copy that is applied to an array of the logits. The array
/// has minus infinity in place of NaN.
fn both_ways(chain: &HostSampler, input: &Array, tiled: bool) {
    const TILED: usize = 5000;
    let given = input.data.len();
    let n = if tiled { given.max(TILED) } else { given };
    let logits: Vec<f32> = input.data.iter().map(|c| c.logit).cycle().take(n).collect();
    let (one, other) = (chain.clone(), chain.clone());
    let masked = |&x: &f32| if x.is_nan() { f32::NEG_INFINITY } else { x };
    let mut array = Array::of_logits(logits.iter().map(masked));
    one.apply(&mut array);
    let straight = Straight::new(&logits, Grid::F32);
    let token = straight.sample(&other);
    let selected = usize::try_from(array.selected).ok();
    let Some(chosen) = selected.and_then(|i| array.data.get(i)) else {
        return assert!(token < 0, "{token}, and the array has no choice");
    };
    if array.selects_none() {
        return assert_eq!(token, LLAMA_SIEVE_ERROR_NO_CANDIDATE, "of {n} logits");
    }
    assert_eq!(token, chosen.id, "of {n} logits");
    let left = straight.left(&other, &array);
    if let Err(difference) = same(&left, &array) {
        panic!("from logits: {difference}");
    }
}

fn apply_all(members: &mut [Member], input: &Array) -> Array {
    let mut array = input.clone();
    for member in members {
        let before = array.clone();
        member.ours.apply(&mut array);
        if let Err(wrong) = invariants(member, &before, &array) {
            panic!("{:?}: {wrong}\n{before:?}\n{array:?}", member.spec);
        }
        if !is_defined(&before) {
            member.theirs = None;
        }
        let Some(theirs) = &member.theirs else {
            continue;
        };
        let mut expected = before.clone();
        theirs.apply(&mut expected);
        if let Err(difference) = same(&array, &expected) {
            panic!("{:?}: {difference}\n{before:?}", member.spec);
        }
    }
    array
}

/// Checks the invariants that hold for any input.
fn invariants(member: &Member, before: &Array, after: &Array) -> Result<(), String> {
    let (n, left) = (before.data.len(), after.data.len());
    if left > n || (left == 0 && n > 0) {
        return Err(format!("{n} candidates became {left}"));
    }
    let known: HashSet<i32> = before.data.iter().map(|c| c.id).collect();
    let mut seen = HashSet::new();
    for candidate in &after.data {
        let known = known.contains(&candidate.id) || member.replaces;
        if !known || !seen.insert(candidate.id) {
            return Err(format!("id {} is new or twice", candidate.id));
        }
    }
    if member.selects {
        let within = usize::try_from(after.selected).is_ok_and(|index| index < left);
        if !within && n > 0 {
            return Err(format!("selected {} of {left}", after.selected));
        }
    } else if after.selected != before.selected {
        return Err("a filter selects".to_owned());
    }
    // NaN has no order, and the built-in's sort puts values outside the range of its buckets into
    // the lowest.
    let unordered = |c: &sys::llama_token_data| !c.logit.is_finite() || c.logit.abs() > 1e8;
    let ordered = before.data.iter().chain(&after.data).any(unordered)
        || after.data.is_sorted_by(|a, b| a.logit >= b.logit);
    if after.sorted && !before.sorted && !ordered {
        return Err("said to be sorted, and is not".to_owned());
    }
    Ok(())
}

/// True if the built-in's result for this array is defined: it aborts on an empty array, and NaN
/// has no order.
fn is_defined(array: &Array) -> bool {
    !array.data.is_empty() && !array.data.iter().any(|c| c.logit.is_nan())
}

fn accept(members: &mut [Member], chain: &HostSampler, output: &Array, how: &Accept) {
    // Some built-ins abort on an invalid token, or read out of bounds if they are cloned after
    // selecting a token and before accepting it.
    let needs_token = members
        .iter()
        .any(|member| member.accept_always && member.theirs.is_some());
    let nth = |n: usize| output.data.get(n % output.data.len().max(1)).map(|c| c.id);
    let selected = usize::try_from(output.selected).unwrap_or(0);
    let token = match *how {
        Accept::Selected => nth(selected),
        Accept::Nth(n) => nth(usize::from(n)),
        Accept::Any(_) if needs_token => nth(0),
        Accept::Any(token) => Some(token),
    };
    let Some(token) = token else {
        members.iter_mut().for_each(|member| member.theirs = None);
        return;
    };
    chain.accept(token);
    for member in members {
        member.ours.accept(token);
        if let Some(theirs) = &member.theirs {
            theirs.accept(token);
        }
    }
}

fn between(members: &mut [Member], chain: &mut HostSampler, what: &Between) {
    match what {
        Between::Nothing => {}
        Between::Reset => {
            chain.reset();
            members
                .iter()
                .for_each(|member| member.each(HostSampler::reset));
        }
        Between::Clone => {
            *chain = chain.clone();
            for member in members {
                member.ours = member.ours.clone();
                member.theirs = member.theirs.clone();
            }
        }
        Between::Copy(token) => {
            let apart = |sampler: &HostSampler| {
                let copy = sampler.clone();
                sampler.accept(i32::from(*token));
                sampler.copy_from(&copy);
            };
            apart(chain);
            members.iter().for_each(|member| member.each(apart));
        }
        Between::Other(window, before, after) => {
            let others: Vec<Member> = members.iter().map(|m| m.with_window(*window)).collect();
            let ours = others.iter().map(|other| other.ours.clone());
            let other_chain = HostSampler::chain(ours.collect());
            for token in before.iter().map(|&token| i32::from(token)) {
                other_chain.accept(token);
                let all = others.iter();
                all.for_each(|other| other.each(|sampler| sampler.accept(token)));
            }
            chain.copy_from(&other_chain);
            for (member, other) in members.iter_mut().zip(&others) {
                member.ours.copy_from(&other.ours);
                match (&member.theirs, &other.theirs) {
                    (Some(to), Some(from)) => to.copy_from(from),
                    _ => member.theirs = None,
                }
            }
            for token in after.iter().map(|&token| i32::from(token)) {
                chain.accept(token);
                let all = members.iter();
                all.for_each(|member| member.each(|sampler| sampler.accept(token)));
            }
        }
    }
}

impl Member {
    /// Returns new penalties with this window, if this member is penalties, and the window leaves
    /// them enabled, or disabled, as they are. Otherwise returns a clone of this member.
    fn with_window(&self, window: Whole) -> Self {
        let other = match self.spec {
            Spec::Penalties(n, _, r, f, p) => Spec::Penalties(n, window, r, f, p).make(),
            _ => self.spec.make(),
        };
        if matches!(self.spec, Spec::Penalties(..)) && other.ours.name() == self.ours.name() {
            return other;
        }
        Self {
            ours: self.ours.clone(),
            theirs: self.theirs.clone(),
            ..other
        }
    }

    fn each(&self, act: impl Fn(&HostSampler)) {
        act(&self.ours);
        if let Some(theirs) = &self.theirs {
            act(theirs);
        }
    }
}

fn bits(array: &Array) -> (Vec<(i32, u32, u32)>, i64, bool) {
    let data = array.data.iter();
    let data = data.map(|c| (c.id, c.logit.to_bits(), c.p.to_bits()));
    (data.collect(), array.selected, array.sorted)
}
