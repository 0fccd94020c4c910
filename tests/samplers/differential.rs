//! Compares each drop-in with the vendored built-in: on random arrays of every kind, with random
//! parameters within and beyond their range, and with `accept`, `reset`, `clone` and
//! `llama_sampler_copy` in between. Everything must be equal, bit for bit.
//!
//! Runs 20,000 arrays per sampler; LLAMA_SIEVE_TEST_ARRAYS sets another number.

use crate::support::arrays::{Recipe, Rng, size};
use crate::support::compare::same;
use crate::support::family::{FAMILY, Member, Pair};
use crate::support::{Array, HostSampler, fresh_rng, number_from_env, replay};
use llama_sieve::ffi::samplers as sieve;
use vendor_llama_cpp::sys;

/// Returns a token to accept: usually one of the array, sometimes one outside any vocabulary.
fn token(member: &Member, array: &Array, rng: &mut Rng) -> i32 {
    if rng.chance(0.02) && !member.accept_always {
        return rng.pick(&[-1, i32::MIN, i32::MAX, 1_000_000]);
    }
    // One of a few, so that counts above 1 occur.
    let n = array.data.len().min(50);
    array.data[rng.below(n)].id
}

/// Does with both sides what a host may do between two tokens.
fn between_tokens(member: &Member, pair: &mut Pair, array: &Array, rng: &mut Rng) {
    for _ in 0..rng.below(4) {
        let token = token(member, array, rng);
        pair.ours.accept(token);
        pair.theirs.accept(token);
    }
    if rng.chance(0.03) {
        pair.ours.reset();
        pair.theirs.reset();
    }
    if rng.chance(0.1) {
        pair.ours = pair.ours.clone();
        pair.theirs = pair.theirs.clone();
    }
    if rng.chance(0.05) {
        // A clone accepts a token, and then its state is copied to the original.
        let (ours, theirs) = (pair.ours.clone(), pair.theirs.clone());
        let token = token(member, array, rng);
        ours.accept(token);
        theirs.accept(token);
        pair.ours.copy_from(&ours);
        pair.theirs.copy_from(&theirs);
    }
}

/// Accepts the selected token, as a host does, or sometimes another one, as a host with forced
/// tokens does.
fn accept_the_choice(member: &Member, pair: &Pair, array: &Array, rng: &mut Rng) {
    let Some(chosen) = array.data.get(array.selected as usize) else {
        return;
    };
    if !member.accept_always && rng.chance(0.2) {
        return;
    }
    let token = if rng.chance(0.2) {
        token(member, array, rng)
    } else {
        chosen.id
    };
    pair.ours.accept(token);
    pair.theirs.accept(token);
}

fn run(member: &Member, arrays: usize) {
    // Ids outside the vocabulary are accepted on purpose. Another test checks the warnings.
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    let mut rng = fresh_rng(member.name);
    let mut tried = 0;
    while tried < arrays {
        let mut pair = (member.make)(&mut rng, 200_000, true);
        assert_eq!(pair.ours.name(), pair.theirs.name(), "{}", pair.label);
        for _ in 0..1 + rng.below(8) {
            let recipe = Recipe::random(&mut rng);
            let n = size(&mut rng).min(member.max_size);
            let input = recipe.array(n, member.vocabulary, &mut rng);
            between_tokens(member, &mut pair, &input, &mut rng);
            let (mut ours, mut theirs) = (input.clone(), input.clone());
            pair.ours.apply(&mut ours);
            pair.theirs.apply(&mut theirs);
            if let Err(difference) = same(&ours, &theirs) {
                panic!(
                    "{}, array {tried} of {n}, {recipe:?}, {}: {difference}",
                    pair.label,
                    replay()
                );
            }
            accept_the_choice(member, &pair, &theirs, &mut rng);
            tried += 1;
        }
    }
}

fn run_named(name: &str) {
    let arrays = number_from_env("LLAMA_SIEVE_TEST_ARRAYS", 20_000);
    run(Member::named(name), arrays);
}

/// Compares two arrays, with the calls that a host may make before each.
fn compare_two(member: &Member, pair: &mut Pair, rng: &mut Rng, told: &str) {
    for _ in 0..2 {
        let recipe = Recipe::random(rng);
        let input = recipe.array(size(rng).min(300), member.vocabulary, rng);
        between_tokens(member, pair, &input, rng);
        let (mut ours, mut theirs) = (input.clone(), input);
        pair.ours.apply(&mut ours);
        pair.theirs.apply(&mut theirs);
        assert_eq!(same(&ours, &theirs), Ok(()), "{told}, {}", replay());
        accept_the_choice(member, pair, &theirs, rng);
    }
}

/// Some built-ins copy only the history and keep their parameters, and others copy everything.
/// Three samplers of one kind are copied onto each other in any order, with many tokens in between.
/// Penalties with different windows must then count the same tokens as the built-in. If only one of
/// two is switched off, they cannot be copied: the built-ins abort.
#[test]
fn a_copy_of_one_with_other_parameters() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    let mut rng = fresh_rng("copies");
    for member in FAMILY.iter().flat_map(|member| [member; 60]) {
        let first = (member.make)(&mut rng, 200_000, true);
        let name = first.theirs.name();
        let mut three = vec![first];
        while three.len() < 3 {
            let pair = (member.make)(&mut rng, 200_000, true);
            if pair.theirs.name() == name {
                three.push(pair);
            }
        }
        let mut told: String = three
            .iter()
            .map(|pair| format!("{}\n", pair.label))
            .collect();
        for _ in 0..12 {
            let [from, to] = [rng.below(3), rng.below(3)];
            told += &format!("{from} to {to}, ");
            let (source, target) = (&three[from], &three[to]);
            target.ours.copy_from(&source.ours);
            target.theirs.copy_from(&source.theirs);
            compare_two(member, &mut three[to], &mut rng, &told);
            let other = rng.below(3);
            accept_some(member, &three[other], &mut rng);
            compare_two(member, &mut three[other], &mut rng, &told);
            if rng.chance(0.1) {
                told += &format!("{to} reset, ");
                three[to].ours.reset();
                three[to].theirs.reset();
                compare_two(member, &mut three[to], &mut rng, &told);
            }
        }
    }
}

/// Built-ins that are switched off are all of one kind, and can be copied onto each other.
#[test]
fn a_copy_of_one_that_is_switched_off_has_its_name() {
    let mut rng = fresh_rng("switched off");
    let off = |pair: &Pair| pair.theirs.name().starts_with('?');
    let mut all: Vec<Pair> = Vec::new();
    for member in FAMILY.iter().flat_map(|member| [member; 50]) {
        let pair = (member.make)(&mut rng, 200_000, true);
        if off(&pair)
            && all
                .iter()
                .all(|one| one.theirs.name() != pair.theirs.name())
        {
            all.push(pair);
        }
    }
    let kinds = all.len();
    assert!(kinds > 5, "only {kinds} that can be switched off");
    for _ in 0..200 {
        let (source, target) = (&all[rng.below(kinds)], &all[rng.below(kinds)]);
        target.ours.copy_from(&source.ours);
        target.theirs.copy_from(&source.theirs);
        assert_eq!(target.ours.name(), target.theirs.name());
        let clones = (target.ours.clone(), target.theirs.clone());
        assert_eq!(clones.0.name(), clones.1.name());
    }
}

/// Accepts at most as many tokens as the shorter window holds, out of a few different ones.
fn accept_some(member: &Member, pair: &Pair, rng: &mut Rng) {
    if member.accept_always {
        return;
    }
    let few = 1 + rng.below(20);
    for _ in 0..rng.below(80) {
        let token = rng.below(few) as i32;
        pair.ours.accept(token);
        pair.theirs.accept(token);
    }
}

/// Arrays that random tests hardly ever make.
#[test]
fn what_once_differed() {
    // The nucleus ends exactly at the end of a bucket of the built-in's sort.
    let upper = (0..256).map(|i| i as f32 * 0.0005);
    let lower = (0..1744).map(|i| -5.0 - i as f32 * 0.001);
    let edge = Array::of_logits(upper.chain(lower));
    // All other probabilities are 0, below a logit so large that the next floats are far apart.
    let far = Array::of_logits((0..600).map(|i| if i == 77 { 1e8 } else { 1e8 - 104.0 }));
    // SAFETY: constructors without preconditions.
    let (top_p, typical) = unsafe {
        (
            sys::llama_sampler_init_top_p(0.5, 256),
            sys::llama_sampler_init_typical(0.9, 1),
        )
    };
    // Probabilities around the cut that are hardly above 0, and so coarsely rounded.
    let faint = Array::of_logits((0..600).map(|i| if i == 77 { 95.0 } else { i as f32 * -0.015 }));
    let mut pairs = vec![
        (sieve::llama_sieve_init_top_p(0.5, 256), top_p, edge),
        (sieve::llama_sieve_init_typical(0.9, 1), typical, far),
    ];
    pairs.extend([65.0, 70.0, 72.5, 73.0, 74.0].map(|tau| {
        let ours = sieve::llama_sieve_init_mirostat_v2(7, tau, 0.1);
        // SAFETY: a constructor without preconditions.
        let theirs = unsafe { sys::llama_sampler_init_mirostat_v2(7, tau, 0.1) };
        (ours, theirs, faint.clone())
    }));
    for (ours, theirs, input) in pairs {
        let (mut a, mut b) = (input.clone(), input);
        HostSampler::new(ours).apply(&mut a);
        HostSampler::new(theirs).apply(&mut b);
        assert_eq!(same(&a, &b), Ok(()));
    }
}

macro_rules! differential {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            run_named(stringify!($name));
        }
    )*

    #[test]
    fn the_table_and_the_tests_name_the_same_samplers() {
        let tested = [$(stringify!($name)),*];
        let table: Vec<_> = FAMILY.iter().map(|member| member.name).collect();
        assert_eq!(table, tested);
    }
    };
}

differential!(
    greedy dist top_k top_p min_p typical temp top_n_sigma penalties
    temp_ext xtc mirostat mirostat_v2 dry adaptive_p logit_bias infill
);
