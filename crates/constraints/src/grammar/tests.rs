//! Tests with malicious grammars.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::tests_texts::{alternatives, tree};
use crate::grammar::VocabularyTree;
use crate::grammar::compiled::Compiled;
use crate::grammar::elements::{Element, Rules};
use crate::grammar::engine::Engine;
use crate::grammar::limits::{MAX_STACK, MAX_STATE_BYTES, MAX_STEP, MAX_WORK};
use crate::grammar::mask::{self, Mask, MaskWriter};
use crate::grammar::parser::{Repetitions::AsLlamaCpp, parse};
use crate::grammar::states::budget::Budget;
use crate::grammar::states::{States, TooMuch};
use crate::grammar::tracker::Tracker;
use crate::token::Token;

fn rules(text: &str) -> Rules {
    parse(text.as_bytes(), b"root", AsLlamaCpp, |_| None).expect("a grammar")
}

fn compiled(text: &str) -> Compiled {
    Compiled::new(rules(text), tree([]))
}

/// Accepts a token. Returns true if it was allowed.
fn accept(tracker: &mut Tracker, token: Token, text: &[u8]) -> Result<bool, TooMuch> {
    let refused = tracker.accept(std::iter::once((token, text)))?;
    Ok(refused.is_none())
}

#[test]
fn tops_that_are_characters_count_before_they_take_room() {
    let heads = alternatives(5000, |i| format!("\"a{i}\""));
    let tails = alternatives(60, |i| format!("b \"{i}\""));
    let many = compiled(&format!("root ::= {tails}\nb ::= {heads}\n"));
    assert_eq!(States::default().initial(&many), Err(TooMuch));
    // Reaching the same stacks in several ways does not multiply them.
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
    // Every letter is a separate class, and each leads through all rules of the chain.
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

/// Copies to buffers of any size: shorter than the mask, of an odd number of words, and longer.
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

/// With an optional end after a recursion, the text so far may have opened any number of ends.
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

/// While one sampler is in the midst of a call, another of the same grammar can make every call.
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

/// Every limit is tried, so that the call also fails after some bands were done.
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
        // Only the note that the mask takes too much work is stored.
        assert!(engine.bytes() <= before + 64, "{steps} steps");
    }
    assert!(n_failed > 100, "{n_failed}");
}

/// Queries along the way do not change the tokens that are allowed in the end.
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

/// The limit applies to the stacks of the current position, not to the tables, so earlier queries
/// do not matter.
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
        // Many stacks, none of them deep.
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
        // It stops when the elements below the tops exceed the limit, within the number that one
        // token adds.
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

/// After a trigger, the text since its beginning is accepted in one call.
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
    // It does not help that another sampler has read the same text before.
    drop(one_by_one);
    let mut again = new().expect("few steps");
    assert_eq!(again.accept(tokens(1000)), Err(TooMuch));
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
