//! Grammars that were made to do harm, and what is kept of grammars.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::candidates::Candidates;
use crate::chain::{Chain, ChainError};
use crate::fault::armed;
use crate::grammar::cache;
use crate::grammar::compiled::Compiled;
use crate::grammar::elements::{Element, Rules};
use crate::grammar::engine::Engine;
use crate::grammar::limits::{MAX_CACHE_BYTES, MAX_STACK, MAX_STATE_BYTES, MAX_STEP, MAX_WORK};
use crate::grammar::mask::{self, Mask, MaskWriter};
use crate::grammar::parser::{
    Repetitions::{AsLlamaCpp, Many},
    parse,
};
use crate::grammar::states::budget::Budget;
use crate::grammar::states::{States, TooMuch};
use crate::grammar::tracker::Tracker;
use crate::grammar::triggers::Triggers;
use crate::grammar::{Dead, Grammar, Refusal, VocabularyTree};
use crate::pool::{Buffers, Pool};
use crate::sampler::Sampler;
use crate::samplers::{Dist, Greedy, LogitBias, TopK};
use crate::token::{Token, TokenData};
use crate::vocabulary::Vocabulary;

/// Tokens with these texts; the first ends a generation.
#[derive(Debug)]
struct Texts(Vec<String>);

impl Vocabulary for Texts {
    fn n_tokens(&self) -> usize {
        self.0.len()
    }

    fn is_eog(&self, token: Token) -> bool {
        token == 0
    }

    fn end_token(&self) -> Option<Token> {
        Some(0)
    }

    fn piece(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clear();
        piece.extend_from_slice(self.0[token as usize].as_bytes());
    }

    fn detokenize(&self, token: Token, text: &mut Vec<u8>) {
        self.piece(token, text);
    }

    fn tokenize(&self, _: &[u8]) -> Vec<Token> {
        Vec::new()
    }
}

pub(super) fn tree(texts: impl IntoIterator<Item = String>) -> Arc<VocabularyTree> {
    let texts = [String::new()].into_iter().chain(texts).collect();
    Arc::new(VocabularyTree::new(&Texts(texts)))
}

fn rules(text: &str) -> Rules {
    parse(text.as_bytes(), b"root", AsLlamaCpp, |_| None).expect("a grammar")
}

fn compiled(text: &str) -> Compiled {
    Compiled::new(rules(text), tree([]))
}

fn grammar(text: &str, tree: &Arc<VocabularyTree>) -> Grammar {
    Grammar::new(text.as_bytes(), b"root", AsLlamaCpp, tree, |_| None).expect("a grammar")
}

/// True if the token is allowed.
fn accept(tracker: &mut Tracker, token: Token, text: &[u8]) -> Result<bool, TooMuch> {
    let refused = tracker.accept(std::iter::once((token, text)))?;
    Ok(refused.is_none())
}

/// `each` of 0, 1, and so on as alternatives.
fn alternatives(n: usize, each: impl Fn(usize) -> String) -> String {
    let all: Vec<String> = (0..n).map(each).collect();
    all.join(" | ")
}

#[test]
fn tops_that_are_characters_count_before_they_take_room() {
    let heads = alternatives(5000, |i| format!("\"a{i}\""));
    let tails = alternatives(60, |i| format!("b \"{i}\""));
    let many = compiled(&format!("root ::= {tails}\nb ::= {heads}\n"));
    assert_eq!(States::default().initial(&many), Err(TooMuch));
    // Ways to the same stacks do not multiply them.
    let below = alternatives(5000, |i| format!("\"a{i}\""));
    let empty = alternatives(60, |i| format!("e{i}"));
    let rules: String = (0..60).map(|i| format!("e{i} ::= \"\"\n")).collect();
    let many = compiled(&format!("root ::= ({empty}) b\nb ::= {below}\n{rules}"));
    assert!(States::default().initial(&many).is_ok());
    let few = compiled(&format!("root ::= b \"0\"\nb ::= {heads}\n"));
    assert!(States::default().initial(&few).is_ok());
}

#[test]
fn alternatives_that_are_alike_do_not_multiply() {
    let heads = alternatives(65, |i| format!("\"a{i}\""));
    let tails = alternatives(20_000, |i| format!("b \"{i}\""));
    let text = format!("root ::= {tails}\nb ::= {heads} {}\n", "|.".repeat(100_000));
    let compiled = compiled(&text);
    let most = compiled.rules.alternatives.iter().map(|heads| heads.len());
    assert_eq!(most.max(), Some(20_000));
    const { assert!(66 * 20_000 > MAX_STEP) };
    assert_eq!(States::default().initial(&compiled), Err(TooMuch));
}

#[test]
fn the_steps_of_one_mask_are_limited() {
    let letters: Vec<char> = ('A'..='Z').chain('a'..='z').collect();
    let tree = tree(letters.iter().map(|letter| format!("{letter}0")));
    let mut text = String::from("root ::= [A-Za-z] c0\n");
    // Each letter is a class of its own, and each leads through the chain.
    for (i, letter) in letters.iter().enumerate() {
        text += &format!("x{i} ::= \"{letter}\"\n");
    }
    for i in 0..1000 {
        text += &format!("c{i} ::= c{} nothing\n", i + 1);
    }
    text += "c1000 ::= \"0\"\nnothing ::= \"\"\n";
    let compiled = Compiled::new(rules(&text), Arc::clone(&tree));
    let mut states = States::default();
    let state = states.initial(&compiled).expect("a class");
    // A step leads through a thousand rules.
    states.begin_call();
    states.spend(MAX_WORK - 20_000).expect("as much is allowed");
    assert_eq!(
        mask::of_band(&mut states, &compiled, state, 0),
        Err(TooMuch)
    );
    states.begin_call();
    let ranks = mask::of_band(&mut states, &compiled, state, 0).expect("within the limit");
    let mut mask = MaskWriter::new(&compiled.tree, false);
    mask.add_band(0, &ranks);
    assert_eq!(mask.done().count(), letters.len());
}

#[test]
fn an_item_repeated_once_is_not_copied() {
    let text = format!(
        "root ::= \"{}\"{}",
        "a".repeat(100_000),
        "{1}".repeat(100_000)
    );
    let rules = rules(&text);
    assert_eq!(rules.sequences.len(), 100_001);
    assert!(matches!(rules.sequences[1].item, Element::Class(0)));
}

#[test]
fn many_alternatives_that_begin_alike_are_united_in_pairs() {
    let tails = alternatives(9000, |i| format!("ws \"{i}\""));
    let compiled = compiled(&format!("root ::= {tails}\nws ::= \" \"?\n"));
    let mut states = States::default();
    states.begin_call();
    let state = states.initial(&compiled).expect("few stacks");
    let behind = states.step(&compiled, state, compiled.group(0x20));
    let behind = behind.expect("few stacks");
    assert_eq!(states.edges(behind).len(), 9000);
}

/// A grammar that goes beyond the limits with the token 2, `bc`.
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
    let candidate = |id, logit| TokenData { id, logit, p: 0.0 };
    let mut data = [candidate(0, 1.5), candidate(1, 2.5), candidate(2, 3.5)];
    grammar.apply(&mut Candidates::new(&mut data, false));
    assert_eq!(grammar.slot().dead(), Some(Dead::Limit));
    let logits = data.map(|candidate| (candidate.id, candidate.logit));
    let never = f32::NEG_INFINITY;
    assert_eq!(logits, [(0, 1.5), (1, never), (2, never)]);
    // Without what is too much it goes on after a reset.
    grammar.reset();
    let mut data = [candidate(0, 1.5), candidate(1, 2.5)];
    grammar.apply(&mut Candidates::new(&mut data, false));
    assert_eq!(data.map(|candidate| candidate.logit), [never, 2.5]);
}

/// Dead of each cause there is, of the tokens "a", "bc" and the end, which is 0.
fn dead() -> Vec<(Dead, Grammar)> {
    let tree = tree(["a".into(), "bc".into()]);
    let of = |text: &str| grammar(text, &tree);
    let mut limit = of(&beyond());
    limit.accept(2);
    // As many ways to the back reference as there are halves.
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

/// Returns these tokens and logits as the grammar leaves them; all entry points must agree.
fn left_by_each_way(grammar: &mut Grammar, given: &[(Token, f32)]) -> Vec<(Token, f32)> {
    let candidate = |&(id, logit): &(Token, f32)| TokenData { id, logit, p: 0.0 };
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

/// A host asks so whether a token is allowed: it reads the logit, and goes on with the id it knows.
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
        // Of several one is, but for no end that is banned.
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

/// The accepted text is then unknown.
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

/// The end is all that may follow, and a bias bans it (`ignore_eos`).
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
    // Of one candidate, of whatever it is dead.
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

/// Into any room: less than there is, an odd number of words, and more.
#[test]
fn a_mask_is_copied_word_by_word() {
    const N: usize = 130;
    let tokens: Vec<Token> = (0..N as Token).filter(|token| token % 3 != 1).collect();
    let mask = Mask::only(N, &tokens);
    for room in 0..12 {
        let mut words = vec![u32::MAX; room];
        mask.copy_to(&mut words);
        for token in 0..32 * room {
            let is_set = words[token / 32] >> (token % 32) & 1 == 1;
            let allows = mask.allows(token as Token);
            assert_eq!(is_set, allows, "token {token} in {room} words");
        }
    }
}

/// The tokens that a sampler allows, without the one that ends the generation.
fn allowed(grammar: &Grammar) -> Vec<Token> {
    let mask = grammar.slot().allowed();
    let n = mask.words().len() * 64;
    (1..n as Token)
        .filter(|&token| mask.allows(token))
        .collect()
}

/// Token n of n characters.
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
            // The rounds that must come do not matter to whether a token goes on.
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

/// An optional end behind a recursion: the text so far may have opened any number of them.
#[test]
fn optional_ends_do_not_multiply() {
    let tree = tree(["a".into(), "ab".into(), " ".into(), "b ".into(), "x".into()]);
    for tail in ["[ ]*", "\"x\"?", "(\" \" | \"x\" \"x\")?"] {
        let text = format!("root ::= s\ns ::= \"\" | [a-z ] s {tail}\n");
        let engine = Engine::new(compiled_for(&text, &tree));
        let mut tracker = Tracker::new(Arc::new(engine))
            .expect("few steps")
            .expect("a text may follow");
        let mut bytes = Vec::new();
        for i in 0..2000 {
            let mask = tracker.mask().expect("few steps");
            assert!(mask.allows(1) && tracker.may_end());
            assert_eq!(
                accept(&mut tracker, 1 + i % 3, tree.text(1 + i % 3)),
                Ok(true)
            );
            bytes.push(tracker.bytes());
        }
        let (half, whole) = (bytes[999] - bytes[0], bytes[1999] - bytes[0]);
        assert!(
            whole <= half * 9 / 4,
            "{tail}: {half} bytes for half, {whole} for all"
        );
        assert!(whole < 4 << 20, "{tail}: {whole} bytes");
    }
}

fn compiled_for(text: &str, tree: &Arc<VocabularyTree>) -> Compiled {
    Compiled::new(rules(text), Arc::clone(tree))
}

/// While one sampler is in the midst of a call, another one of the same grammar does all it may.
#[test]
fn no_sampler_waits_for_another_one_of_its_grammar() {
    let tree = tree(["a".into(), "ab".into()]);
    for text in ["root ::= \"a\" [ab]*", "root ::= \"a\" [ab]{0,99}"] {
        let engine = Arc::new(Engine::new(compiled_for(text, &tree)));
        let new = || Tracker::new(Arc::clone(&engine)).map(|tracker| tracker.expect("a text"));
        let mut busy = new().expect("few steps");
        let others = busy.call(|_, _, _, _| {
            let mut other = new()?;
            assert!(other.mask()?.allows(1) && !other.may_end());
            assert!(accept(&mut other, 1, b"a")?);
            assert!(other.mask()?.allows(2) && other.may_end());
            assert!(other.clone().known_mask().is_some());
            other.reset()
        });
        assert_eq!(others, Ok(()), "{text}");
        assert!(busy.mask().expect("few steps").allows(1));
    }
}

/// The first and every later request has the same answer, and takes no more memory.
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

/// With whatever limit: also where it is met behind a band that was done.
#[test]
fn of_a_mask_that_takes_too_much_nothing_is_kept() {
    let tree = tree((1..30).map(|length| "ab".repeat(length)));
    let text = "root ::= ([ab] [a-c]){1,40} \"c\"";
    let mut n_failed = 0;
    for steps in 0.. {
        let engine = Engine::new(compiled_for(text, &tree)).within(Budget::of(steps));
        let engine = Arc::new(engine);
        let Ok(Some(mut tracker)) = Tracker::new(Arc::clone(&engine)) else {
            continue;
        };
        let before = engine.bytes();
        if tracker.mask().is_ok() {
            assert!(engine.bytes() > before + 64);
            break;
        }
        n_failed += 1;
        // That it takes too much is noted.
        assert!(engine.bytes() <= before + 64, "{steps} steps");
    }
    assert!(n_failed > 100, "{n_failed}");
}

/// Questions on the way do not change the tokens that are allowed behind it.
#[test]
fn a_deep_place_has_one_answer_however_it_was_reached() {
    let tree = tree(["a".into(), "aaaaaaaaaaaa".into(), "b".into()]);
    let texts = [
        "root ::= \"a\" root \"b\" | \"\"",
        "root ::= \"a\" root \"b\"{1,30} | \"\"",
        "root ::= \"a\" root [bc]{0,9} \"b\"{0,30} | \"c\"",
    ];
    let (mut n_answers, mut n_failed) = (0, 0);
    for (text, steps) in texts
        .iter()
        .flat_map(|text| (0..80).map(move |i| (text, 50 * i)))
    {
        let new = || {
            let engine = Engine::new(compiled_for(text, &tree)).within(Budget::of(steps));
            Tracker::new(Arc::new(engine))
        };
        let Ok(Some(mut asked)) = new() else {
            continue;
        };
        for depth in 1..10 {
            let mask = |tracker: &mut Tracker| tracker.mask().map(|mask| mask.words().to_vec());
            let mut cold = new().expect("as before").expect("a text");
            let accept = |tracker: &mut Tracker| accept(tracker, 2, tree.text(2));
            let accepted: Vec<_> = (0..depth).map(|_| accept(&mut cold)).collect();
            assert_eq!(Some(&accept(&mut asked)), accepted.last());
            if accepted.contains(&Err(TooMuch)) {
                break;
            }
            let mut copy = cold.clone();
            let answer = mask(&mut cold);
            assert_eq!(mask(&mut copy), answer, "{text}, {steps} steps, {depth}");
            assert_eq!(mask(&mut asked), answer, "{text}, {steps} steps, {depth}");
            n_answers += 1;
            n_failed += usize::from(answer.is_err());
        }
    }
    assert!(
        n_answers > 500 && n_failed > 30,
        "{n_failed} of {n_answers}"
    );
}

/// Not by what the tables hold, but by the place: so it does not matter what was asked on the way.
#[test]
fn a_stack_has_a_limit() {
    let open = "(".repeat(64);
    let tree = tree([open.clone(), ")".into(), "x".into()]);
    let wide = 100;
    let rules = (1..wide).map(|i| format!("r{i} ::= r{} \"]\"\n", i + 1));
    let rules: String = rules.collect();
    let side_by_side = (0..wide).map(|i| format!("s{i} ::= \"(\" s{i} \"{i}\" | \"x\"\n"));
    let side_by_side: String = side_by_side.collect();
    let beginnings = alternatives(wide, |i| format!("s{i}"));
    for (text, elements) in [
        ("root ::= \"(\" root \")\" | \"x\"".to_owned(), 64),
        // Many stacks that are not deep.
        (format!("root ::= {beginnings}\n{side_by_side}"), 64 * wide),
        ("root ::= \"(\" root \")\"{1,9} | \"x\"".to_owned(), 64),
        (
            format!("root ::= \"(\" r1 | \"x\"\n{rules}r{wide} ::= root \"]\""),
            64 * wide,
        ),
    ] {
        let engine = Arc::new(Engine::new(compiled_for(&text, &tree)));
        let new = || {
            Tracker::new(Arc::clone(&engine))
                .expect("small")
                .expect("a text")
        };
        let (mut alone, mut asked) = (new(), new());
        let accept = |tracker: &mut Tracker| accept(tracker, 1, open.as_bytes());
        let mut n_accepted = 0;
        while accept(&mut alone) == Ok(true) {
            assert_eq!(accept(&mut asked), Ok(true));
            assert!(asked.mask().expect("within the limits").allows(1));
            n_accepted += 1;
        }
        // Where what is below the tops has grown beyond it, up to what one character adds.
        let most = MAX_STACK + 2 * elements;
        assert!(
            (MAX_STACK - 2 * elements..most).contains(&(n_accepted * elements)),
            "{n_accepted}"
        );
        assert_eq!(accept(&mut asked), Err(TooMuch));
        assert_eq!(accept(&mut alone), Err(TooMuch));
        assert!(alone.bytes() <= 4 * MAX_STATE_BYTES);
    }
}

/// As behind a trigger, where a text goes through the grammar that was waited in.
#[test]
fn tokens_of_one_call_have_one_limit() {
    let tree = tree(["a".into()]);
    let engine = Engine::new(compiled_for("root ::= [a]{0,1999}", &tree));
    let engine = Arc::new(engine.within(Budget::of(4000)));
    let new = || Tracker::new(Arc::clone(&engine)).map(|tracker| tracker.expect("a text"));
    let tokens = |n| std::iter::repeat_n((1, b"a".as_slice()), n);
    let mut one_by_one = new().expect("few steps");
    for _ in 0..1000 {
        assert_eq!(one_by_one.accept(tokens(1)), Ok(None));
    }
    let mut together = new().expect("few steps");
    assert_eq!(together.accept(tokens(10)), Ok(None));
    assert_eq!(together.accept(tokens(1000)), Err(TooMuch));
    // Nor does it help that somebody has been there.
    drop(one_by_one);
    let mut again = new().expect("few steps");
    assert_eq!(again.accept(tokens(1000)), Err(TooMuch));
}

/// Each character of each candidate asks for a token element among many tops. The walk for a mask
/// looks once at what the tokens begin with.
#[test]
fn few_candidates_are_within_the_limits_where_their_mask_is() {
    const N: usize = 96;
    let tree = tree((0..N).map(|i| "a".repeat(1000 + i)));
    let classes = alternatives(120, |i| format!("[a\\u{:04X}]", 0x4e00 + i));
    let text = format!("root ::= ( <[200]> |  {classes} )*");
    let n_allowed = |grammar: &mut Grammar| {
        let mut data: Vec<TokenData> = (1..=N as Token)
            .map(|id| TokenData {
                id,
                logit: 1.0,
                p: 0.0,
            })
            .collect();
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
fn tables_that_a_panic_cut_short_are_not_used_again() {
    let tree = tree(["a".into()]);
    let engine = Arc::new(Engine::new(compiled_for("root ::= \"a\" \"b\"", &tree)));
    let mut tracker = Tracker::new(Arc::clone(&engine))
        .expect("few steps")
        .expect("a text");
    let mut cut = || tracker.call(|_, _, _, _| -> Result<(), TooMuch> { panic!("the fault") });
    assert!(catch_unwind(AssertUnwindSafe(&mut cut)).is_err());
    assert_eq!(tracker.mask().err(), Some(TooMuch));
    assert_eq!(tracker.clone().mask().err(), Some(TooMuch));
    tracker.reset().expect("new tables");
    assert!(tracker.mask().expect("few steps").allows(1));
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

/// Grammars that are made first and used afterwards.
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
        // Other tests grow, too.
        assert!(cache::stats().bytes < MAX_CACHE_BYTES as u64 + (4 << 20));
    }
    let of_masks = 80 * N * tree.n_tokens() / 8;
    assert!(of_masks > MAX_CACHE_BYTES + (16 << 20), "{of_masks}");
    cache::forget(&tree);
}

/// A grammar that llama.cpp refuses for its repetitions.
fn large(text: &str, tree: &Arc<VocabularyTree>) -> Grammar {
    assert!(Grammar::new(text.as_bytes(), b"root", AsLlamaCpp, tree, |_| None).is_err());
    Grammar::new(text.as_bytes(), b"root", Many, tree, |_| None).expect("a grammar")
}

/// The tokens that a grammar allows of 0 to 3.
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

/// Against counting on one's fingers: (a{1,60} b){2,50} c, which makes 3000 of two numbers.
#[test]
fn large_products_are_counted_as_their_parts() {
    const TEXTS: [&str; 7] = ["a", "b", "c", "ab", "aab", "abab", "bc"];
    let tree = tree(TEXTS.map(String::from));
    let mut grammar = large("root ::= (\"a\"{1,60} \"b\"){2,50} \"c\"", &tree);
    // How many rounds are complete, and the characters of the one that is not; and the end.
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

/// A number that llama.cpp takes for no end at all stays that, unless it refuses the text.
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
    // Beyond the largest number there is no end, or no grammar.
    let many = |text: &str| Grammar::new(text.as_bytes(), b"root", Many, &tree, |_| None);
    assert!(many("root ::= \"a\"{1000000,1000001}").is_ok());
    let refused = many("root ::= \"a\"{1000001}").expect_err("too many");
    assert!(
        refused.what.contains("more than 1000000 repetitions"),
        "{}",
        refused.what
    );
    assert!(!refused.is_trap);
    // Of what is wrong beside the numbers the place is told.
    let refused = many("root ::= \"a\"{2001} b").expect_err("no such rule");
    assert!(
        refused.what.contains("rule 'b' is not defined"),
        "{}",
        refused.what
    );
}

/// Neither time nor memory follows from the numbers.
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
