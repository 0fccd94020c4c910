//! Tests of malicious grammars, and of the cache.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::tests_texts::{alternatives, tree};
use crate::candidates::Candidates;
use crate::chain::{Chain, ChainError};
use crate::fault::armed;
use crate::grammar::cache;
use crate::grammar::compiled::Compiled;
use crate::grammar::engine::Engine;
use crate::grammar::limits::{MAX_CACHE_BYTES, MAX_WORK};
use crate::grammar::parser::{
    Repetitions::{AsLlamaCpp, Many},
    parse,
};
use crate::grammar::triggers::Triggers;
use crate::grammar::{Dead, Grammar, Refusal, VocabularyTree};
use crate::pool::{Buffers, Pool};
use crate::sampler::Sampler;
use crate::samplers::{Dist, Greedy, LogitBias, TopK};
use crate::token::{Token, TokenData};

fn grammar(text: &str, tree: &Arc<VocabularyTree>) -> Grammar {
    Grammar::new(text.as_bytes(), b"root", AsLlamaCpp, tree, |_| None).expect("a grammar")
}

/// The beginning of a grammar that exceeds the limits at token 2, `bc`.
const BEYOND: &str = "root ::= \"a\" | \"b\" p\n";

fn beyond() -> String {
    let p = alternatives(600, |i| format!("q \"{i}\""));
    let q = alternatives(600, |i| format!("\"c{i}\""));
    format!("{BEYOND}p ::= {p}\nq ::= {q}\n")
}

#[test]
fn a_limit_met_half_way_leaves_the_end_as_it_was() {
    let tree = tree(["a".into(), "bc".into()]);
    let mut grammar = grammar(&beyond(), &tree);
    let candidate = TokenData::new;
    let mut data = [candidate(0, 1.5), candidate(1, 2.5), candidate(2, 3.5)];
    grammar.apply(&mut Candidates::new(&mut data, false));
    assert_eq!(grammar.slot().dead(), Some(Dead::Limit));
    let logits = data.map(|candidate| (candidate.id, candidate.logit));
    let never = f32::NEG_INFINITY;
    assert_eq!(logits, [(0, 1.5), (1, never), (2, never)]);
    // After a reset the grammar allows texts without that part.
    grammar.reset();
    let mut data = [candidate(0, 1.5), candidate(1, 2.5)];
    grammar.apply(&mut Candidates::new(&mut data, false));
    assert_eq!(data.map(|candidate| candidate.logit), [never, 2.5]);
}

/// Returns constraints that are dead for each possible reason. The tokens are the end, which is 0,
/// "a" and "bc".
fn dead() -> Vec<(Dead, Grammar)> {
    let tree = tree(["a".into(), "bc".into()]);
    let of = |text: &str| grammar(text, &tree);
    let mut limit = of(&beyond());
    limit.accept(2);
    // The number of ways to match the text before the back reference is exponential.
    let pattern = format!("(bc){}\\1", "(?:a|a)".repeat(40));
    let triggers = Triggers::new(&[pattern.as_bytes()]).expect("a pattern");
    let mut search = of("root ::= \"a\"").lazy(triggers, &[]);
    search.accept(2);
    (0..40).for_each(|_| search.accept(1));
    let mut not_allowed = of("root ::= \"a\"");
    not_allowed.accept(2);
    let mut too_early = of("root ::= \"a\"");
    too_early.accept(0);
    let mut internal = of("root ::= \"a\"");
    internal.salvage(&mut Candidates::new(&mut [], false));
    let all = [
        (Dead::Limit, limit),
        (Dead::Limit, search),
        (Dead::NotAllowed, not_allowed),
        (Dead::TooEarly, too_early),
        (Dead::Internal, internal),
    ];
    for (i, (why, grammar)) in all.iter().enumerate() {
        assert_eq!(grammar.slot().dead(), Some(*why), "{i}");
    }
    all.into()
}

/// Returns the tokens and logits `given` as the grammar leaves them. Checks that all entry points
/// give the same result.
fn left_by_each_way(grammar: &mut Grammar, given: &[(Token, f32)]) -> Vec<(Token, f32)> {
    let candidate = |&(id, logit): &(Token, f32)| TokenData::new(id, logit);
    let given: Vec<TokenData> = given.iter().map(candidate).collect();
    let left = |data: &[TokenData]| -> Vec<(Token, f32)> {
        data.iter()
            .map(|candidate| (candidate.id, candidate.logit))
            .collect()
    };
    let mut applied = given.clone();
    grammar.apply(&mut Candidates::new(&mut applied, false));
    let mut salvaged = given.clone();
    grammar
        .clone()
        .salvage(&mut Candidates::new(&mut salvaged, false));
    assert_eq!(left(&salvaged), left(&applied));
    let mut buffers = Buffers::default();
    let mut pool = Pool::new(&[0.0f32; 3][..], &mut buffers);
    pool.keep(&given, false);
    grammar.narrow(&mut pool);
    assert_eq!(left(pool.array().0), left(&applied));
    left(&applied)
}

/// A host passes a single candidate to check a token: it reads the logit, and continues with the id
/// that it knows.
#[test]
fn in_an_array_of_one_the_dead_exchange_no_id() {
    const NEVER: f32 = f32::NEG_INFINITY;
    for (why, mut grammar) in dead() {
        let mut left = |given: &[(Token, f32)]| left_by_each_way(&mut grammar, given);
        assert_eq!(left(&[(1, 2.5)]), [(1, NEVER)], "{why:?}");
        assert_eq!(left(&[(2, 2.5)]), [(2, NEVER)], "{why:?}");
        assert_eq!(left(&[(7, 2.5)]), [(7, NEVER)], "{why:?}");
        assert_eq!(left(&[(0, 2.5)]), [(0, 2.5)], "{why:?}");
        assert_eq!(left(&[(0, NEVER)]), [(0, NEVER)], "{why:?}");
        assert_eq!(left(&[]), [], "{why:?}");
        // If there are several candidates and the end token is not among them, it replaces the
        // first one. An end token with minus infinity counts as present.
        assert_eq!(
            left(&[(1, 2.5), (2, 3.5)]),
            [(0, 0.0), (2, NEVER)],
            "{why:?}"
        );
        assert_eq!(
            left(&[(1, 2.5), (0, 3.5)]),
            [(1, NEVER), (0, 3.5)],
            "{why:?}"
        );
        assert_eq!(
            left(&[(1, 2.5), (0, NEVER)]),
            [(1, NEVER), (0, NEVER)],
            "{why:?}"
        );
    }
}

/// Checks that after a panic during a change, when the accepted text is unknown, only the end is
/// allowed.
#[test]
fn a_change_that_panics_leaves_nothing_allowed_but_the_end() {
    type Change = fn(&mut Grammar);
    let changes: [Change; 3] = [
        |grammar| grammar.accept(1),
        |grammar| assert_eq!(grammar.accept_for_host(1), None),
        Sampler::reset,
    ];
    for change in changes {
        let mut grammar = grammar("root ::= \"a\" \"bc\"", &tree(["a".into(), "bc".into()]));
        let fault = || catch_unwind(AssertUnwindSafe(|| change(&mut grammar))).is_err();
        assert_eq!(armed::with(0, fault), (true, true));
        assert_eq!(grammar.slot().dead(), Some(Dead::Internal));
        assert_eq!(grammar.slot().allowed().words(), [1]);
        grammar.reset();
        assert_eq!(grammar.slot().dead(), None);
        assert_eq!(grammar.slot().allowed().words(), [2]);
    }
}

#[test]
fn the_host_is_to_refuse_what_comes_after_a_limit_the_end_included() {
    for (why, grammar) in dead() {
        let mut refused = |token| {
            let refusal = grammar.clone().accept_for_host(token);
            let whole = |refusal: Refusal| (refusal.token, refusal.skipped) == (token, 0);
            assert!(refusal.is_none_or(whole), "{why:?}, {token}");
            refusal.is_some()
        };
        assert!([1, 2, -1, 3].map(&mut refused) == [true; 4], "{why:?}");
        let is_cut_off = matches!(why, Dead::Limit | Dead::Internal);
        assert_eq!(refused(0), is_cut_off, "{why:?}");
        let mut reset = grammar.clone();
        reset.reset();
        assert_eq!(reset.accept_for_host(1), None, "{why:?}");
    }
}

/// The grammar allows only the end, and a bias bans the end (`ignore_eos`).
#[test]
fn a_grammar_that_has_ended_and_may_not_end_gives_no_token() {
    let tree = tree(["a".into(), "bc".into()]);
    for lowest in [0.0, f32::NEG_INFINITY] {
        let mut ended = grammar("root ::= \"a\"", &tree);
        ended.accept(1);
        let mut chain = Chain::new()
            .with(LogitBias::new(&[(0, f32::NEG_INFINITY)]))
            .with(Some(ended))
            .with(Some(Dist::new(7)));
        let logits = [3.0, lowest, 1.0];
        assert_eq!(chain.sample(&logits[..]), Err(ChainError::NoCandidate));
    }
    // A single candidate, for every reason for which a constraint is dead.
    for (why, dead) in dead() {
        let mut chain = Chain::new()
            .with(TopK::new(1))
            .with(Some(dead))
            .with(Some(Greedy));
        let sampled = chain.sample(&[1.0f32, 3.0, 2.0][..]);
        assert_eq!(sampled, Err(ChainError::NoCandidate), "{why:?}");
        assert_eq!(chain.sample(&[4.0f32, 3.0, 2.0][..]), Ok(0), "{why:?}");
    }
}

#[test]
fn what_was_forgotten_does_not_come_back() {
    let (text, tree) = ("root ::= \"a\" \"c\"", tree(["a".into()]));
    let mut used = grammar(text, &tree);
    let find = || cache::cached(text.as_bytes(), b"root", AsLlamaCpp, &tree);
    assert!(find().is_some());
    cache::forget(&tree);
    used.accept(1);
    used.reset();
    assert!(used.slot().allowed().allows(1));
    assert!(find().is_none());
}

/// Returns the allowed tokens, without the one that ends the generation.
fn allowed(grammar: &Grammar) -> Vec<Token> {
    let mask = grammar.slot().allowed();
    let n = mask.words().len() * 64;
    (1..n as Token)
        .filter(|&token| mask.allows(token))
        .collect()
}

/// Returns a vocabulary of `n` texts, in which the text of token i has i characters.
fn tree_of_lengths(n: usize) -> Arc<VocabularyTree> {
    tree((1..=n).map(|length| "a".repeat(length)))
}

#[test]
fn one_mask_serves_all_counts_above_the_longest_token() {
    const LONGEST: usize = 30;
    let tree = tree_of_lengths(LONGEST);
    for (text, most) in [
        ("root ::= [ab]{0,300} \"c\"", 300),
        ("root ::= [ab]{90,1999}", 1999),
    ] {
        let mut grammar = grammar(text, &tree);
        let first = grammar.slot().allowed();
        for left in (1..=most).rev() {
            let lengths: Vec<Token> = (1..=left.min(LONGEST) as Token).collect();
            assert_eq!(allowed(&grammar), lengths, "{left} left");
            // The minimum number of repetitions does not affect whether a token is allowed.
            let is_first = Arc::ptr_eq(&first, &grammar.slot().allowed());
            assert!(
                is_first || left < LONGEST || most - left > 59,
                "{left} left"
            );
            grammar.accept(1);
        }
        assert!(allowed(&grammar).is_empty());
        assert!(grammar.slot().is_complete() == (most == 1999));
    }
}

#[test]
fn what_a_count_takes_does_not_depend_on_its_size() {
    let tree = tree_of_lengths(30);
    let taken = |most: usize| {
        let text = format!("root ::= \"a\"{{0,{most}}} [b-z]{{7,{most}}}");
        let mut grammar = grammar(&text, &tree);
        let (_, engine) =
            cache::cached(text.as_bytes(), b"root", AsLlamaCpp, &tree).expect("it is kept");
        let rules = engine.compiled().bytes();
        for _ in 0..100 {
            grammar.slot().allowed();
            grammar.accept(1);
        }
        (rules, engine.bytes())
    };
    assert_eq!(taken(500), taken(1999));
}

/// The first request and every later one have the same result, and later ones take no more memory.
#[test]
fn what_is_beyond_the_limits_is_so_again() {
    let tree = tree(["a".into(), "bc".into()]);
    let text = beyond();
    let mut bytes = Vec::new();
    for _ in 0..5 {
        let mut grammar = grammar(&text, &tree);
        grammar.slot().allowed();
        assert_eq!(grammar.slot().dead(), Some(Dead::Limit));
        grammar.reset();
        grammar.accept(2);
        assert_eq!(grammar.slot().dead(), Some(Dead::Limit));
        drop(grammar);
        let (_, engine) =
            cache::cached(text.as_bytes(), b"root", AsLlamaCpp, &tree).expect("it is kept");
        bytes.push(engine.bytes());
        assert!(engine.bytes() < 1 << 20);
    }
    assert!(
        bytes[1..].iter().all(|&later| later <= bytes[0]),
        "{bytes:?}"
    );
}

/// When candidates are tested one by one, each of their characters is tested against many elements
/// of the grammar. The walk that computes a mask tests the common prefixes of tokens only once.
#[test]
fn few_candidates_are_within_the_limits_where_their_mask_is() {
    const N: usize = 96;
    let tree = tree((0..N).map(|i| "a".repeat(1000 + i)));
    let classes = alternatives(120, |i| format!("[a\\u{:04X}]", 0x4e00 + i));
    let text = format!("root ::= ( <[200]> |  {classes} )*");
    let n_allowed = |grammar: &mut Grammar| {
        let mut data: Vec<TokenData> = (1..=N as Token).map(|id| TokenData::new(id, 1.0)).collect();
        grammar.apply(&mut Candidates::new(&mut data, false));
        data.iter().filter(|token| token.logit == 1.0).count()
    };
    const { assert!(N * 1000 * 120 > MAX_WORK) };
    let mut first = grammar(&text, &tree);
    assert_eq!((n_allowed(&mut first), first.slot().dead()), (N, None));
    let mut second = grammar(&text, &tree);
    second.slot().allowed();
    assert_eq!((n_allowed(&mut second), second.slot().dead()), (N, None));
}

#[test]
fn a_text_that_is_refused_is_not_kept() {
    let tree = tree(["a".into()]);
    let heads = alternatives(5000, |i| format!("\"a{i}\""));
    let tails = alternatives(60, |i| format!("b \"{i}\""));
    let text = format!("root ::= {tails}\nb ::= {heads}\n");
    assert!(Grammar::new(text.as_bytes(), b"root", AsLlamaCpp, &tree, |_| None).is_err());
    assert!(cache::cached(text.as_bytes(), b"root", AsLlamaCpp, &tree).is_none());
}

/// The grammars are all made before any of them is used.
#[test]
fn the_cache_counts_what_has_grown() {
    const N: usize = 40;
    let tree = tree((0..400_000).map(|i| format!("a{i:06}")).chain(["a".into()]));
    let a = 400_001;
    let text = |i: usize| format!("root ::= \"a\" root \"b\" | \"c{i}\"");
    let mut all: Vec<Grammar> = (0..N).map(|i| grammar(&text(i), &tree)).collect();
    for _ in 0..80 {
        for grammar in &mut all {
            grammar.slot().allowed();
            grammar.accept(a);
        }
        // Grammars of other tests grow as well.
        assert!(cache::stats().bytes < MAX_CACHE_BYTES as u64 + (4 << 20));
    }
    let of_masks = 80 * N * tree.n_tokens() / 8;
    assert!(of_masks > MAX_CACHE_BYTES + (16 << 20), "{of_masks}");
    cache::forget(&tree);
}

/// Returns a grammar that llama.cpp refuses because of its number of repetitions.
fn large(text: &str, tree: &Arc<VocabularyTree>) -> Grammar {
    assert!(Grammar::new(text.as_bytes(), b"root", AsLlamaCpp, tree, |_| None).is_err());
    Grammar::new(text.as_bytes(), b"root", Many, tree, |_| None).expect("a grammar")
}

/// Returns, for each of the tokens 0 to 3, true if the grammar allows it.
fn of_four(grammar: &mut Grammar) -> [bool; 4] {
    let mask = grammar.slot().allowed();
    [0, 1, 2, 3].map(|token| mask.allows(token))
}

#[test]
fn large_numbers_are_counted_to_the_end() {
    let tree = tree(["a", "b", "c"].map(String::from));
    let mut grammar = large("root ::= [ab]{3000,3002} \"c\"", &tree);
    for n in 0..=3002 {
        let [end, a, b, c] = of_four(&mut grammar);
        assert_eq!((end, a, b), (false, n < 3002, n < 3002), "{n}");
        assert_eq!(c, n >= 3000, "{n}");
        grammar.accept(1 + n % 2);
    }
    assert_eq!(
        grammar.slot().dead(),
        Some(Dead::NotAllowed),
        "one too many"
    );
}

/// The grammar (a{1,60} b){2,50} c, with up to 3000 repetitions in two nested counts, is compared
/// with a direct count.
#[test]
fn large_products_are_counted_as_their_parts() {
    const TEXTS: [&str; 7] = ["a", "b", "c", "ab", "aab", "abab", "bc"];
    let tree = tree(TEXTS.map(String::from));
    let mut grammar = large("root ::= (\"a\"{1,60} \"b\"){2,50} \"c\"", &tree);
    // The state is the number of complete rounds, the number of letters in the current round, and
    // true after the end.
    let step = |(rounds, run, over): (u32, u32, bool), character: char| match character {
        'a' if run < 60 && rounds < 50 && !over => Some((rounds, run + 1, over)),
        'b' if run > 0 && !over => Some((rounds + 1, 0, over)),
        'c' if run == 0 && (2..=50).contains(&rounds) && !over => Some((rounds, run, true)),
        _ => None,
    };
    let mut chosen = 7u32;
    for _ in 0..20 {
        let mut at = (0, 0, false);
        grammar.reset();
        for _ in 0..400 {
            let after = |token: Token| TEXTS[token as usize - 1].chars().try_fold(at, step);
            let mask = grammar.slot().allowed();
            for token in 1..8 {
                assert_eq!(
                    mask.allows(token),
                    after(token).is_some(),
                    "{at:?}, {token}"
                );
            }
            assert_eq!(mask.allows(0), at.2, "{at:?}");
            let choices: Vec<Token> = (1..8).filter(|&token| after(token).is_some()).collect();
            chosen = chosen.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let choice = (chosen >> 16) as usize % choices.len().max(1);
            let Some(&token) = choices.get(choice) else {
                break;
            };
            at = after(token).expect("it is a choice");
            grammar.accept(token);
        }
    }
}

/// llama.cpp treats a large upper bound as no bound, and so does this library, unless llama.cpp
/// refuses the text.
#[test]
fn what_llama_cpp_takes_means_the_same() {
    let tree = tree(["a", "b"].map(String::from));
    let text = "root ::= \"a\"{0,5000} \"b\"";
    let mut endless = Grammar::new(text.as_bytes(), b"root", Many, &tree, |_| None).expect("one");
    let mut counted = large(&format!("{text} \"b\"{{2001}}"), &tree);
    for _ in 0..5000 {
        endless.accept(1);
        counted.accept(1);
    }
    let [of_endless, of_counted] = [&mut endless, &mut counted].map(|grammar| of_four(grammar)[1]);
    assert_eq!((of_endless, of_counted), (true, false));
    // Beyond the largest number, an upper bound is no bound, and a lower bound is refused.
    let many = |text: &str| Grammar::new(text.as_bytes(), b"root", Many, &tree, |_| None);
    assert!(many("root ::= \"a\"{1000000,1000001}").is_ok());
    let refused = many("root ::= \"a\"{1000001}").expect_err("too many");
    assert!(
        refused.what.contains("more than 1000000 repetitions"),
        "{}",
        refused.what
    );
    assert!(!refused.is_trap);
    // Another fault of such a text is reported with its position.
    let refused = many("root ::= \"a\"{2001} b").expect_err("no such rule");
    assert!(
        refused.what.contains("rule 'b' is not defined"),
        "{}",
        refused.what
    );
}

/// Time and memory do not grow with the numbers of repetitions.
#[test]
fn the_largest_numbers_cost_what_small_ones_do() {
    let tree = tree(["a", "b", "aaaaaaaa"].map(String::from));
    let cost = |text: &str| {
        let rules = parse(text.as_bytes(), b"root", Many, |_| None).expect("a grammar");
        let engine = Arc::new(Engine::new(Compiled::new(rules, Arc::clone(&tree))));
        let mut grammar = Grammar::of(Arc::clone(&engine)).expect("a constraint");
        for _ in 0..200 {
            grammar.slot().allowed();
            grammar.accept(1);
        }
        assert_eq!(grammar.slot().dead(), None);
        engine.bytes()
    };
    let small = cost("root ::= (([ab]{1,300} | \"c\"){1,300} \"d\"){1,300}");
    let largest = cost("root ::= (([ab]{1,1000000} | \"c\"){1,1000000} \"d\"){1,1000000}");
    assert!(largest <= small + small / 10, "{largest} bytes, {small}");
}
