//! Compares samplers in the slots of a sieve with the same samplers in a chain of llama.cpp, and
//! tests their saved states.

use crate::stages::{built_in, random_logits, random_params};
use crate::states::seal;
use crate::support::arrays::{Array, Rng};
use crate::support::compare::same;
use crate::support::family::vocabulary;
use crate::support::{HostSampler, ban_strings, fresh_rng, number_from_env, replay};
use llama_sieve::errors::*;
use llama_sieve::ffi::bans::LLAMA_SIEVE_BAN_FOLD_CASE;
use llama_sieve::ffi::grammar::schema::{LLAMA_SIEVE_JSON_COMPACT, llama_sieve_init_json_schema};
use llama_sieve::ffi::loops::*;
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::sieve::*;
use llama_sieve::last_error;
use llama_sieve::samplers::{Greedy, LoopBreaker, LoopParams, TopA, TopH};
use llama_sieve::sieve::{Error, Params, RngKind, Sieve, Stage};
use llama_sieve::token::TokenData;
use vendor_llama_cpp::sys;

/// Returns the number of tokens in the test vocabulary.
fn n_vocab() -> usize {
    // SAFETY: a live vocabulary.
    unsafe { sys::llama_vocab_n_tokens(vocabulary()) as usize }
}

fn bans(flags: u32, bias: Option<f32>) -> HostSampler {
    ban_strings(
        vocabulary(),
        &["the", "e", "LORD", "and he", " a"],
        flags,
        bias,
    )
}

/// Returns a loop breaker for which three equal tokens are a repetition.
fn loop_breaker(action: i32, tokens: &[i32]) -> HostSampler {
    let params = llama_sieve_loop_params {
        struct_size: size_of::<llama_sieve_loop_params>(),
        action,
        max_period: 50,
        min_tokens: 1,
        temperature: 0.0,
        tokens: tokens.as_ptr(),
        n_tokens: tokens.len(),
        vocab: vocabulary().cast(),
    };
    // SAFETY: a struct of that size, with valid pointers.
    HostSampler::new(unsafe { llama_sieve_init_loop_breaker(&raw const params) })
}

/// Returns a sampler that llama.cpp does not have, with random parameters.
fn any_sampler(rng: &mut Rng) -> HostSampler {
    let p = rng.pick(&[3e-4, 0.02, 0.3]);
    match rng.below(13) {
        0 => HostSampler::new(llama_sieve_init_top_a(p)),
        1 => HostSampler::new(llama_sieve_init_epsilon_cutoff(p)),
        2 => HostSampler::new(llama_sieve_init_eta_cutoff(p)),
        3 => HostSampler::new(llama_sieve_init_p_less(rng.chance(0.5))),
        4 => HostSampler::new(llama_sieve_init_top_h(rng.pick(&[0.4, 0.9]))),
        5 => HostSampler::new(llama_sieve_init_min_k(rng.pick(&[0.0, 100.0]))),
        6 => HostSampler::new(llama_sieve_init_tail_free(0.9, 1)),
        7 => HostSampler::new(llama_sieve_init_quadratic(p, rng.pick(&[1.0, 2.0, 5.0]))),
        8 => bans(rng.pick(&[0, LLAMA_SIEVE_BAN_FOLD_CASE]), None),
        9 => bans(rng.pick(&[0, LLAMA_SIEVE_BAN_FOLD_CASE]), Some(-9.0)),
        10 => loop_breaker(rng.pick(&[0, 1]), &[]),
        11 => loop_breaker(LLAMA_SIEVE_LOOP_FORCE, &[3, 500, 7]),
        _ => loop_breaker(LLAMA_SIEVE_LOOP_END, &[]),
    }
}

/// A sieve that was made by the C interface.
struct Handled(*mut Handle);

impl Drop for Handled {
    fn drop(&mut self) {
        // SAFETY: it is alive until here.
        unsafe { llama_sieve_free(self.0) };
    }
}

impl Handled {
    fn new(params: &Params, samplers: &[HostSampler], order: &[i32]) -> Self {
        let mut c = llama_sieve_default_params();
        c.temperature = params.temperature;
        c.top_k = params.top_k;
        c.top_p = params.top_p;
        c.min_p = params.min_p;
        c.typical_p = params.typical_p;
        c.top_n_sigma = params.top_n_sigma;
        c.min_keep = params.min_keep;
        c.penalty_last_n = params.penalty_last_n;
        c.penalty_repeat = params.penalty_repeat;
        c.penalty_present = params.penalty_present;
        c.seed = params.seed;
        // SAFETY: whole parameters, and samplers that live.
        unsafe {
            let sieve = Self(llama_sieve_new(&raw const c));
            for (slot, sampler) in (0..).zip(samplers) {
                let smpl = sampler.as_ptr().cast();
                assert_eq!(llama_sieve_set_sampler(sieve.0, slot, smpl), 0);
            }
            sieve.set_order(order);
            sieve
        }
    }

    fn set_order(&self, order: &[i32]) {
        let mut stages = llama_sieve_default_stages();
        (stages.stages, stages.n_stages) = (order.as_ptr(), order.len());
        // SAFETY: a live sieve, and whole stages.
        let set = unsafe { llama_sieve_set_stages(self.0, &raw const stages) };
        assert_eq!(set, 0, "{}", last_error::get());
    }

    fn order(&self) -> Vec<i32> {
        let mut order = vec![0; 64];
        // SAFETY: a live sieve, and that much room.
        let n = unsafe { llama_sieve_get_stages(self.0, order.as_mut_ptr(), order.len()) };
        order.truncate(n as usize);
        order
    }

    fn sample(&self, logits: &[f32]) -> i32 {
        // SAFETY: a live sieve, and as many logits.
        unsafe { llama_sieve_sample(self.0, logits.as_ptr(), logits.len() as i32) }
    }

    fn accept(&self, token: i32) {
        // SAFETY: a live sieve.
        unsafe { llama_sieve_accept(self.0, token) };
    }

    fn candidates(&self) -> Vec<TokenData> {
        // SAFETY: a live sieve, and that much room.
        unsafe {
            let n = llama_sieve_candidates(self.0, std::ptr::null_mut(), 0) as usize;
            let mut out = vec![TokenData::default(); n];
            llama_sieve_candidates(self.0, out.as_mut_ptr(), n);
            out
        }
    }

    fn cloned(&self) -> Self {
        // SAFETY: a live sieve.
        Self(unsafe { llama_sieve_clone(self.0) })
    }

    fn saved(&self) -> Vec<u8> {
        // SAFETY: a live sieve, and as many bytes as it needs.
        unsafe {
            let mut bytes = vec![0; llama_sieve_state_size(self.0)];
            let code = llama_sieve_state_save(self.0, bytes.as_mut_ptr(), bytes.len());
            assert_eq!(code, 0, "{}", last_error::get());
            bytes
        }
    }

    fn load(&self, bytes: &[u8]) -> i32 {
        // SAFETY: a live sieve, and as many bytes as the call is told.
        unsafe { llama_sieve_state_load(self.0, bytes.as_ptr(), bytes.len()) }
    }
}

/// The built-in stages whose settings are those of the parameters.
const STAGES: [Stage; 7] = [
    Stage::Penalties,
    Stage::TopK,
    Stage::Typical,
    Stage::TopP,
    Stage::MinP,
    Stage::TopNSigma,
    Stage::Temperature,
];

/// Runs 1,000 orders; LLAMA_SIEVE_TEST_CHAINS sets another number.
#[test]
fn samplers_in_slots_are_members_of_a_chain() {
    let cases = number_from_env("LLAMA_SIEVE_TEST_CHAINS", 1_000);
    let mut rng = fresh_rng("samplers in slots");
    let n = n_vocab();
    let (mut tokens, mut none) = (0, 0);
    for case in 0..cases {
        let params = random_params(&mut rng);
        let samplers: Vec<HostSampler> = (0..1 + rng.below(4))
            .map(|_| any_sampler(&mut rng))
            .collect();
        let mut order: Vec<Stage> = STAGES.to_vec();
        rng.shuffle(&mut order);
        order.truncate(rng.below(order.len()));
        order.extend((0..samplers.len() as u8).map(Stage::Sampler));
        rng.shuffle(&mut order);
        let numbers: Vec<i32> = order.iter().map(|stage| stage.number() as i32).collect();
        let mut members: Vec<HostSampler> = order
            .iter()
            .map(|stage| match *stage {
                Stage::Sampler(slot) => samplers[usize::from(slot)].clone(),
                ref stage => built_in(stage, &params, n as i32),
            })
            .collect();
        // SAFETY: a constructor without preconditions.
        let dist = unsafe { sys::llama_sampler_init_dist(params.seed as u32) };
        members.push(HostSampler::new(dist));
        let chain = HostSampler::chain(members);
        let mut sieve = Handled::new(&params, &samplers, &numbers);
        assert_eq!(sieve.order(), numbers);
        for step in 0..12 {
            let logits = random_logits(&mut rng, n);
            let mut array = Array::of_logits(logits.iter().copied());
            let names: Vec<String> = samplers.iter().map(HostSampler::name).collect();
            let what = format!(
                "{}, case {case}, step {step}, {names:?}, {order:?}",
                replay()
            );
            if logits.iter().all(|&logit| logit == f32::NEG_INFINITY) {
                break;
            }
            chain.apply(&mut array);
            let theirs = array.chosen();
            if array.selects_none() || theirs.logit == f32::NEG_INFINITY {
                let code = sieve.sample(&logits);
                assert_eq!(code, LLAMA_SIEVE_ERROR_NO_CANDIDATE, "{what}");
                none += 1;
                break;
            }
            match rng.below(8) {
                0 => sieve = sieve.cloned(),
                1 => {
                    let bytes = sieve.saved();
                    sieve = Handled::new(&params, &samplers, &numbers);
                    assert_eq!(sieve.load(&bytes), 0, "{what}: {}", last_error::get());
                    assert_eq!(sieve.saved(), bytes);
                }
                2 => sieve.set_order(&numbers),
                _ => {}
            }
            let token = sieve.sample(&logits);
            let left = array.with(&sieve.candidates());
            assert_eq!(same(&left, &array), Ok(()), "{what}");
            assert_eq!(token, theirs.id, "{what}");
            // Repetitions for the loop breaker, and tokens of texts for the bans.
            let others = [rng.below(2) as i32, rng.below(n) as i32];
            let accepted = match rng.chance(0.6) {
                true => vec![7; 3],
                false => vec![token, others[0], others[1]],
            };
            for token in accepted {
                sieve.accept(token);
                chain.accept(token);
            }
            tokens += 1;
        }
    }
    eprintln!("{cases} orders, {tokens} tokens, {none} without a candidate");
    assert!(tokens > 5 * cases, "{tokens}");
}

/// Returns logits that favour the token that loops.
fn logits_at(position: u64) -> Vec<f32> {
    let mut rng = Rng(position + 7);
    let mut logits: Vec<f32> = (0..n_vocab()).map(|_| 3.0 * rng.normal()).collect();
    logits[7] = 11.0;
    logits
}

/// Samples the tokens at `positions`, and accepts them or, at some positions, a token that loops.
/// Returns the tokens.
fn text(sieve: &Handled, positions: std::ops::Range<u64>) -> Vec<i32> {
    let token = |position: u64| {
        let token = sieve.sample(&logits_at(position));
        assert!(token >= 0, "{}", last_error::get());
        sieve.accept(if position % 20 < 9 { 7 } else { token });
        token
    };
    positions.map(token).collect()
}

/// Tests each sampler that remembers tokens, in a slot before top-k and temperature.
#[test]
fn samplers_go_on_where_they_were() {
    let samplers = [
        bans(0, None),
        bans(LLAMA_SIEVE_BAN_FOLD_CASE, None),
        bans(0, Some(-9.0)),
        bans(LLAMA_SIEVE_BAN_FOLD_CASE, Some(-9.0)),
        loop_breaker(LLAMA_SIEVE_LOOP_BAN, &[]),
        loop_breaker(LLAMA_SIEVE_LOOP_TEMPERATURE, &[]),
        loop_breaker(LLAMA_SIEVE_LOOP_FORCE, &[3, 4, 5, 6, 8, 9, 10]),
    ];
    for (i, sampler) in samplers.iter().enumerate() {
        let params = Params {
            seed: 5,
            ..Params::default()
        };
        let (one, order) = (std::slice::from_ref(sampler), [64, 3, 9]);
        let sieve = Handled::new(&params, one, &order);
        let plain = Handled::new(&params, &[], &order);
        assert_ne!(text(&sieve, 0..60), text(&plain, 0..60), "{i} does nothing");
        // In the midst of a loop, in the midst of forced tokens, and elsewhere.
        for middle in [4, 5, 6, 7, 8, 12, 19] {
            // SAFETY: a live sieve.
            unsafe { llama_sieve_reset(sieve.0) };
            let beginning = text(&sieve, 0..middle);
            let state = sieve.saved();
            let copy = sieve.cloned();
            let rest = text(&sieve, middle..60);
            assert_eq!(text(&copy, middle..60), rest, "{i} at {middle}");
            assert_eq!(sieve.load(&state), 0);
            assert_eq!(sieve.saved(), state);
            assert_eq!(text(&sieve, middle..60), rest, "{i} at {middle}");
            let fresh = Handled::new(&params, one, &order);
            assert_eq!(fresh.load(&state), 0);
            assert_eq!(text(&fresh, middle..60), rest, "{i} at {middle}");
            // SAFETY: a live sieve.
            unsafe { llama_sieve_reset(fresh.0) };
            assert_eq!(text(&fresh, 0..middle), beginning);
        }
    }
}

/// A state with other banned texts, another period, another sampler or none is refused.
#[test]
fn a_state_of_other_samplers_is_refused() {
    let params = Params::default();
    let of = |sampler: Option<HostSampler>| {
        let samplers: Vec<HostSampler> = sampler.into_iter().collect();
        Handled::new(&params, &samplers, &[64])
    };
    let one_text = || ban_strings(vocabulary(), &["the"], 0, None);
    let all = [
        of(None),
        of(Some(bans(0, None))),
        of(Some(bans(LLAMA_SIEVE_BAN_FOLD_CASE, None))),
        of(Some(bans(0, Some(-9.0)))),
        of(Some(one_text())),
        of(Some(loop_breaker(0, &[]))),
        // SAFETY: NULL is allowed.
        of(Some(HostSampler::new(unsafe {
            llama_sieve_init_loop_breaker(std::ptr::null())
        }))),
    ];
    for (i, writer) in all.iter().enumerate() {
        for (j, reader) in all.iter().enumerate() {
            let before = reader.saved();
            let code = reader.load(&writer.saved());
            let expected = if i == j { 0 } else { LLAMA_SIEVE_ERROR_STATE };
            assert_eq!(code, expected, "{i} into {j}");
            assert_eq!(reader.saved(), before);
        }
    }
}

/// A changed byte with a corrected checksum either is an error that changes nothing, or gives
/// another valid state.
#[test]
fn every_sealed_change_is_an_error_or_another_state() {
    let forced = [3, 4, 5];
    let samplers = [
        bans(LLAMA_SIEVE_BAN_FOLD_CASE, None),
        loop_breaker(LLAMA_SIEVE_LOOP_FORCE, &forced),
    ];
    let params = Params {
        rng: RngKind::Mt19937,
        seed: 3,
        ..Params::default()
    };
    let (mut taken, mut refused) = (0, 0);
    for n in [5, 9] {
        let sieve = Handled::new(&params, &samplers, &[64, 65]);
        text(&sieve, 0..n);
        let bytes = sieve.saved();
        // The states of the slots come last.
        let name = bytes
            .windows(11)
            .position(|window| window == b"ban-strings");
        let begin = name.expect("the name is there") - 12;
        for at in begin..bytes.len() - 8 {
            for other in [1, 2, 0x80, 0xFF] {
                let mut changed = bytes.clone();
                changed[at] ^= other;
                assert_eq!(sieve.load(&changed), LLAMA_SIEVE_ERROR_STATE);
                seal(&mut changed);
                let reader = Handled::new(&params, &samplers, &[64, 65]);
                let before = reader.saved();
                match reader.load(&changed) {
                    0 => {
                        assert_eq!(reader.saved(), changed);
                        text(&reader, 0..3);
                        taken += 1;
                    }
                    _ => {
                        assert_eq!(reader.saved(), before);
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(taken > 100 && refused > 100, "{taken}, {refused}");
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    let params = Params::default();
    let sieve = Handled::new(&params, &[], &[]);
    let top_a = HostSampler::new(llama_sieve_init_top_a(0.2));
    let dist = HostSampler::new(llama_sieve_init_dist(1));
    let chain = HostSampler::chain(vec![top_a.clone()]);
    // SAFETY: a constructor without preconditions.
    let theirs = HostSampler::new(unsafe { sys::llama_sampler_init_top_k(3) });
    let set = |sieve: *mut Handle, slot, sampler: &HostSampler| {
        // SAFETY: NULL or a live sieve, and a live sampler.
        let code = unsafe { llama_sieve_set_sampler(sieve, slot, sampler.as_ptr().cast()) };
        (code, last_error::get())
    };
    let null = std::ptr::null_mut();
    for (sieve, slot, sampler, code, told) in [
        (sieve.0, 15, &top_a, LLAMA_SIEVE_OK, ""),
        (sieve.0, 16, &top_a, LLAMA_SIEVE_ERROR_PARAMS, "slot"),
        (sieve.0, -1, &top_a, LLAMA_SIEVE_ERROR_PARAMS, "slot"),
        (sieve.0, i32::MIN, &top_a, LLAMA_SIEVE_ERROR_PARAMS, "slot"),
        (sieve.0, 0, &dist, LLAMA_SIEVE_ERROR_PARAMS, "dist draws"),
        (sieve.0, 0, &chain, LLAMA_SIEVE_ERROR_INVALID, "none of"),
        (sieve.0, 0, &theirs, LLAMA_SIEVE_ERROR_INVALID, "none of"),
        (null, 0, &top_a, LLAMA_SIEVE_ERROR_NULL, "sieve is NULL"),
    ] {
        let (answer, text) = set(sieve, slot, sampler);
        assert_eq!(answer, code, "{text}");
        assert!(text.contains(told), "{text}");
    }
    // SAFETY: a live sieve; NULL empties a slot.
    unsafe {
        assert_eq!(llama_sieve_set_sampler(sieve.0, 15, std::ptr::null()), 0);
        assert_eq!(llama_sieve_set_sampler(sieve.0, 3, std::ptr::null()), 0);
        let odd = std::ptr::without_provenance(1);
        let code = llama_sieve_set_sampler(sieve.0, 3, odd);
        assert_eq!(code, LLAMA_SIEVE_ERROR_NULL, "{}", last_error::get());
    }
    for bad in [63, 80, 14, i32::MAX] {
        let mut stages = llama_sieve_default_stages();
        (stages.stages, stages.n_stages) = (&raw const bad, 1);
        // SAFETY: a live sieve, and whole stages.
        let code = unsafe { llama_sieve_set_stages(sieve.0, &raw const stages) };
        assert_eq!(code, LLAMA_SIEVE_ERROR_PARAMS);
        assert!(last_error::get().contains("from 64 on"));
    }
    let mut sieve = Sieve::default();
    assert!(matches!(
        sieve.set_stages(Some(&[Stage::Sampler(16)])),
        Err(Error::Parameter(_))
    ));
    assert!(sieve.set_sampler(16, TopA::new(0.2)).is_err());
    assert!(sieve.set_sampler(0, Some(Greedy)).is_err());
    sieve
        .set_sampler(0, TopH::new(1.0))
        .expect("one that is off");
}

/// A sieve is not saved if a sampler remembers more than a state can hold. Its clone continues all
/// the same.
#[test]
fn a_grammar_in_a_slot_is_cloned_and_not_saved() {
    let schema = c"{\"enum\": [\"the LORD\", \"he was\"]}";
    let vocab = vocabulary().cast();
    // SAFETY: a live vocabulary, and a C string.
    let grammar = HostSampler::new(unsafe {
        llama_sieve_init_json_schema(vocab, schema.as_ptr(), LLAMA_SIEVE_JSON_COMPACT)
    });
    let params = Params {
        seed: 8,
        ..Params::default()
    };
    let sieve = Handled::new(&params, &[grammar], &[64, 9]);
    let mut bytes = [0; 4096];
    // SAFETY: a live sieve, and that much room.
    let code = unsafe { llama_sieve_state_save(sieve.0, bytes.as_mut_ptr(), bytes.len()) };
    assert_eq!(code, LLAMA_SIEVE_ERROR_STATE);
    assert!(last_error::get().contains("the sampler grammar remembers"));
    let mut written = Vec::new();
    let mut sieve = sieve;
    for position in 0..40 {
        let token = sieve.sample(&logits_at(position));
        assert!(token >= 0, "{}", last_error::get());
        // SAFETY: a live vocabulary, and a buffer of that length.
        unsafe {
            if sys::llama_vocab_is_eog(vocabulary(), token) {
                break;
            }
            let mut piece = vec![0_u8; 64];
            let out = piece.as_mut_ptr().cast();
            let n = sys::llama_token_to_piece(vocabulary(), token, out, 64, 0, false);
            written.extend_from_slice(&piece[..n as usize]);
        }
        sieve.accept(token);
        sieve = sieve.cloned();
    }
    let written = String::from_utf8(written).expect("text");
    assert!(
        ["\"the LORD\"", "\"he was\""].contains(&written.as_str()),
        "{written}"
    );
}

/// A sampler in a slot that no stage names does nothing, and neither does a stage without a
/// sampler. A sampler that is put into a slot begins anew.
#[test]
fn a_slot_counts_where_a_stage_names_it() {
    let params = Params {
        seed: 2,
        ..Params::default()
    };
    let logits = logits_at(1);
    let sampled = |sieve: &mut Sieve| {
        let token = sieve.sample(&logits).expect("a candidate");
        (token, sieve.candidates().len())
    };
    let mut sieve = Sieve::new(&params).expect("good parameters");
    sieve.set_stages(Some(&[Stage::TopK])).expect("good stages");
    let plain = sampled(&mut sieve.clone());
    sieve.set_sampler(4, TopA::new(1.0)).expect("a slot");
    assert_eq!(sampled(&mut sieve.clone()), plain);
    let stages = [Stage::TopK, Stage::Sampler(4), Stage::Sampler(5)];
    sieve.set_stages(Some(&stages)).expect("good stages");
    assert!(sampled(&mut sieve.clone()).1 < plain.1);
    sieve.set_sampler(4, None::<TopA>).expect("a slot");
    assert_eq!(sampled(&mut sieve.clone()), plain);
    // The sampler forgets the tokens that it has accepted before it was put into the slot.
    let mut breaker = LoopBreaker::new(LoopParams {
        min_tokens: 1,
        ..LoopParams::default()
    })
    .expect("good parameters");
    let best = sampled(&mut sieve.clone()).0;
    (0..2).for_each(|_| llama_sieve::Sampler::accept(&mut breaker, best));
    sieve.set_sampler(5, Some(breaker)).expect("a slot");
    assert_eq!(sampled(&mut sieve.clone()), plain);
    sieve.accept(best);
    sieve.sample(&logits).expect("a candidate");
    let has_best = |sieve: &mut Sieve| {
        let there = sieve.candidates().iter();
        there
            .clone()
            .any(|c| c.id == best && c.logit > f32::NEG_INFINITY)
    };
    assert!(!has_best(&mut sieve));
    sieve.reset();
    sieve.sample(&logits).expect("a candidate");
    assert!(has_best(&mut sieve));
}
