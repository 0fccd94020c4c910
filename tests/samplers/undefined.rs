//! Tests the samplers on inputs for which the built-ins are undefined: a test for each row of the
//! table in docs/exactness.md.

use std::collections::HashSet;
use std::sync::Arc;

use crate::support::arrays::{Array, Recipe, Rng, size};
use crate::support::compare::same;
use crate::support::family::{FAMILY, Member};
use crate::support::{HostSampler, fresh_rng, number_from_env, replay};
use llama_sieve::candidates::Candidates;
use llama_sieve::ffi::samplers as sieve;
use llama_sieve::sampler::Sampler;
use llama_sieve::samplers::Infill;
use llama_sieve::token::{Token, TokenData};
use llama_sieve::vocabulary::Vocabulary;
use vendor_llama_cpp::sys;

/// Each row of the table must have a test here, and each test a row.
#[test]
fn the_table_and_the_tests_name_the_same() {
    let table = include_str!("../../docs/exactness.md");
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|line| line.trim_end_matches(" |").rsplit("| ").next());
    let name = |cell: &'static str| cell.strip_prefix('`')?.strip_suffix('`');
    let named: HashSet<&str> = cells.filter_map(name).collect();
    let source = include_str!("undefined.rs").split("#[test]\nfn ").skip(2);
    let tests: HashSet<&str> = source.filter_map(|text| text.split('(').next()).collect();
    assert_eq!(named, tests);
}

fn our(member: &Member, rng: &mut Rng) -> (HostSampler, String) {
    let pair = (member.make)(rng, 200_000, true);
    (pair.ours, pair.label)
}

const SELECTORS: [&str; 5] = ["greedy", "dist", "mirostat", "mirostat_v2", "adaptive_p"];

#[test]
fn nan_logits() {
    llama_sieve::log::set_sink(Some(Arc::new(|_, _| {})));
    let mut rng = fresh_rng("nan_logits");
    for member in FAMILY {
        for _ in 0..number_from_env("LLAMA_SIEVE_TEST_ARRAYS", 20_000) / 40 {
            let (sampler, label) = our(member, &mut rng);
            let n = size(&mut rng).min(member.max_size);
            let mut array = Recipe::random(&mut rng).array(n, member.vocabulary, &mut rng);
            let share = rng.pick(&[0.01, 0.3, 1.0]);
            for candidate in &mut array.data {
                if rng.chance(share) {
                    candidate.logit = rng.pick(&[f32::NAN, -f32::NAN]);
                }
            }
            check_what_is_left(member, &sampler, array, &label);
        }
    }
}

/// Applies a sampler to candidates in no order, and checks that those it leaves were among them,
/// each once.
fn check_what_is_left(member: &Member, sampler: &HostSampler, mut array: Array, label: &str) {
    let came: HashSet<i32> = array.ids().into_iter().collect();
    let before = array.data.len();
    sampler.apply(&mut array);
    let what = format!("{label}, {}", replay());
    let left = array.ids();
    assert!(!left.is_empty() && left.len() <= before, "{what}");
    let distinct: HashSet<i32> = left.iter().copied().collect();
    assert_eq!(distinct.len(), left.len(), "{what}");
    // Infill may replace all candidates by the token that ends a text.
    let replaced = member.name == "infill" && left.len() == 1;
    assert!(replaced || distinct.is_subset(&came), "{what}");
    if SELECTORS.contains(&member.name) {
        assert!((0..left.len() as i64).contains(&array.selected), "{what}");
    }
    sampler.accept(left[0]);
}

/// Tests NaN that arises from finite logits, as it does in the built-ins.
#[test]
fn nan_that_a_chain_makes() {
    llama_sieve::log::set_sink(Some(Arc::new(|_, _| {})));
    let ours = |t: Option<f32>| {
        let temp = t.map(|t| HostSampler::new(sieve::llama_sieve_init_temp(t)));
        let bent = HostSampler::new(sieve::llama_sieve_init_adaptive_p(0.4, 0.9, 7));
        HostSampler::chain(temp.into_iter().chain([bent]).collect())
    };
    // SAFETY: constructors without preconditions.
    let theirs = |t: Option<f32>| unsafe {
        let temp = t.map(|t| HostSampler::new(sys::llama_sampler_init_temp(t)));
        let bent = HostSampler::new(sys::llama_sampler_init_adaptive_p(0.4, 0.9, 7));
        HostSampler::chain(temp.into_iter().chain([bent]).collect())
    };
    let mut rng = fresh_rng("nan_that_a_chain_makes");
    for member in FAMILY {
        // In the first case the divided logits are infinite. In the second the array is wrongly
        // marked as sorted, so that the first logit counts as the largest, and the exponentials of
        // larger ones are infinite.
        for (t, sorted) in [(Some(1e-10), false), (None, true)] {
            for n in [2, 17, 1000] {
                let mut made =
                    Array::of_logits((0..n).map(|i| if i % 3 == 1 { 1e30 } else { 0.0 }));
                made.sorted = sorted;
                let mut expected = made.clone();
                ours(t).apply(&mut made);
                theirs(t).apply(&mut expected);
                assert_eq!(same(&made, &expected), Ok(()));
                assert!(made.data.iter().any(|candidate| candidate.logit.is_nan()));
                let (sampler, label) = our(member, &mut rng);
                if n <= member.max_size {
                    check_what_is_left(member, &sampler, made, &label);
                }
            }
        }
    }
}

#[test]
fn an_empty_array() {
    let mut rng = fresh_rng("an_empty_array");
    for member in FAMILY {
        for sorted in [false, true] {
            let (sampler, label) = our(member, &mut rng);
            let mut array = Array::of_logits([]);
            array.sorted = sorted;
            sampler.apply(&mut array);
            assert!(array.data.is_empty(), "{label}");
            assert!(array.selected <= 0, "{label}");
            sampler.accept(5);
        }
    }
}

/// The clone then chooses what the original would choose if its draws began again, too.
#[test]
fn adaptive_p_cloned_before_accept() {
    let mut rng = fresh_rng("adaptive_p_cloned_before_accept");
    for _ in 0..200 {
        let make = || HostSampler::new(sieve::llama_sieve_init_adaptive_p(0.4, 0.9, 7));
        let input = Array::of_logits((0..100).map(|_| rng.range(-3.0, 3.0)));
        let (sampler, accepted_first) = (make(), make());
        let mut array = input.clone();
        sampler.apply(&mut array);
        accepted_first.apply(&mut input.clone());
        let token = array.chosen().id;
        let clone = sampler.clone();
        clone.accept(token);
        accepted_first.accept(token);
        // A clone's draws begin again.
        let expected = accepted_first.clone();
        let (mut a, mut b) = (input.clone(), input.clone());
        clone.apply(&mut a);
        expected.apply(&mut b);
        assert_eq!(same(&a, &b), Ok(()), "{}", replay());
    }
}

#[test]
fn adaptive_p_accepts_no_token() {
    let make = || HostSampler::new(sieve::llama_sieve_init_adaptive_p(0.4, 0.9, 7));
    let (told, untold) = (make(), make());
    told.accept(-1);
    let input = Array::of_logits((0..100).map(|i| i as f32 / 30.0));
    let (mut a, mut b) = (input.clone(), input);
    told.apply(&mut a);
    untold.apply(&mut b);
    assert_eq!(same(&a, &b), Ok(()));
}

/// A vocabulary of these pieces. The one at `end` ends a text.
#[derive(Debug)]
struct Pieces {
    pieces: Vec<Vec<u8>>,
    end: Option<Token>,
}

impl Vocabulary for Pieces {
    fn n_tokens(&self) -> usize {
        self.pieces.len()
    }

    fn is_eog(&self, token: Token) -> bool {
        self.end == Some(token)
    }

    fn end_token(&self) -> Option<Token> {
        self.end
    }

    fn piece(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clear();
        piece.extend_from_slice(self.pieces.get(token as usize).map_or(&[], |piece| piece));
    }

    fn detokenize(&self, token: Token, text: &mut Vec<u8>) {
        self.piece(token, text);
    }

    fn tokenize(&self, _: &[u8]) -> Vec<Token> {
        vec![]
    }
}

#[test]
fn infill_without_an_end() {
    // The probability of every text is less than a fifth.
    let candidate = |id| TokenData::new(id, 1.0);
    let mut data: Vec<TokenData> = (0..8).map(candidate).collect();
    let mut candidates = Candidates::new(&mut data, false);
    // Eight letters, none of which ends a text.
    let pieces = (b'a'..=b'h').map(|letter| vec![letter]).collect();
    Infill::new(Arc::new(Pieces { pieces, end: None })).apply(&mut candidates);
    let mut left: Vec<Token> = candidates.as_slice().iter().map(|c| c.id).collect();
    left.sort_unstable();
    assert_eq!(left, (0..8).collect::<Vec<Token>>());
}

fn infilled(logits: &[(Token, f32)]) -> Vec<Token> {
    let candidate = |&(id, logit): &(Token, f32)| TokenData::new(id, logit);
    let mut data: Vec<TokenData> = logits.iter().map(candidate).collect();
    let mut candidates = Candidates::new(&mut data, false);
    // The first two share their first 600 bytes, and the third ends a text.
    let pieces = vec![vec![b'a'; 600], [&[b'a'; 600][..], b"b"].concat(), vec![]];
    let end = Some(2);
    Infill::new(Arc::new(Pieces { pieces, end })).apply(&mut candidates);
    candidates.as_slice().iter().map(|c| c.id).collect()
}

#[test]
fn dry_with_an_allowed_length_that_overflows() {
    for allowed_length in [i32::MIN, i32::MIN + 1, -5] {
        // SAFETY: without breakers, nothing is asked of a vocabulary.
        let dry = unsafe {
            sieve::llama_sieve_init_dry(
                std::ptr::null(),
                0.8,
                1.75,
                allowed_length,
                64,
                std::ptr::null_mut(),
                0,
            )
        };
        let dry = HostSampler::new(dry);
        for token in [1, 0, 1] {
            dry.accept(token);
        }
        let mut array = Array::of_logits([2.0, 1.0, 3.0]);
        dry.apply(&mut array);
        let penalty = 0.8 * 1.75f32.powi(1i32.saturating_sub(allowed_length).min(120));
        assert!(array.data[0].logit <= 2.0 - 0.99 * penalty, "{array:?}");
        // No repetition leads to this token.
        assert_eq!(array.data[2].logit, 3.0);
    }
}

#[test]
fn infill_with_a_long_piece() {
    // Merged into the more probable one.
    assert_eq!(infilled(&[(0, 1.0), (1, 1.5)]), [1]);
    assert_eq!(infilled(&[(0, 1.5), (1, 1.0)]), [0]);
}

#[test]
fn infill_with_a_foreign_id() {
    let vocabulary = crate::support::family::vocabulary();
    // SAFETY: the vocabulary lives as long as the process.
    let infill = unsafe { sieve::llama_sieve_init_infill(vocabulary.cast()) };
    let infill = HostSampler::new(infill);
    for id in [-1, i32::MIN, 10_000_000, i32::MAX] {
        let mut array = Array::of_logits([1.0, 1.1]);
        array.data[1].id = id;
        infill.apply(&mut array);
        assert_eq!(array.ids(), [id, 0]);
    }
}
