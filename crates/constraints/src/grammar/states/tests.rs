use std::sync::Arc;

use super::budget::Budget;
use super::{NONE, States, TooMuch};
use crate::grammar::compiled::Compiled;
use crate::grammar::mask::{MaskWriter, allows, of_band};
use crate::grammar::nodes::{Kinds, ROOT, Summary, char_bit};
use crate::grammar::parser::{Repetitions::AsLlamaCpp, parse};
use crate::grammar::tests_texts::{tree, tree_of_bytes};
use crate::grammar::utf8::Partial;

/// A generator of pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % n
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

const TEXTS: [&str; 8] = [
    "a",
    "b",
    "ab",
    "aab",
    "bbbbbbbbb",
    "aaaaaaaaaaaaaaaaaaaa",
    "c",
    "abcabc",
];

/// Returns random alternatives for a rule. They may begin with any of `names`, and continue with
/// any rule.
fn alternatives(random: &mut Random, names: &[&str], depth: usize) -> String {
    let mut text = String::new();
    for i in 0..1 + random.below(3) {
        text += if i > 0 { " | " } else { "" };
        let n = random.below(4);
        for j in 0..n {
            let names = if j > 0 { &["x", "y", "z"] } else { names };
            match random.below(if depth < 2 { 6 } else { 4 }) {
                2 | 3 if !names.is_empty() => text += random.pick(names),
                4 | 5 => text += &format!("({})", alternatives(random, names, depth + 1)),
                0 | 2 => text += random.pick(&["\"a\"", "\"b\"", "\"ab\""]),
                _ => text += random.pick(&["[ab]", "[^c]", "."]),
            }
            text += random.pick(&["", "", "", "*", "?", "+", "{2}", "{0,9}", "{3,40}", "{5,}"]);
            text += " ";
        }
    }
    text
}

/// Returns random nested rules with two beginnings and many optional ends, so that different states
/// need the same unions.
fn ends(random: &mut Random) -> String {
    let optional = random.pick(&["?", "?", "*", ""]);
    let all = (0..20 + random.below(500)).map(|i| format!("x \"c{i}\"{optional}"));
    let all: Vec<String> = all.collect();
    let other = random.pick(&["[ab]* \"c\"", "x \"b\"", "x? x"]);
    format!(
        "root ::= \"a\" x | \"b\" x | \"b\" {other}\nx ::= \"a\" y | \"b\"\ny ::= {}\n",
        all.join(" | ")
    )
}

/// Returns a random grammar for a vocabulary of [`TEXTS`], if it is valid.
fn grammar(random: &mut Random) -> Option<Compiled> {
    let names = ["root", "x", "y", "z"];
    let mut text = String::new();
    if random.below(16) == 0 {
        text += &ends(random);
    } else {
        for (i, name) in names.iter().enumerate() {
            let alternatives = alternatives(random, &names[i + 1..], 0);
            text += &format!("{name} ::= {alternatives}\n");
        }
    }
    let rules = parse(text.as_bytes(), b"root", AsLlamaCpp, |_| None).ok()?;
    Some(Compiled::new(rules, tree(TEXTS.map(String::from))))
}

/// Runs a call on warm tables. Returns its result, and true if it took fewer steps than with empty
/// tables. Checks that the steps with empty tables do not exceed the bound.
fn bounded<T>(
    grammar: &Compiled,
    warm: &mut States,
    state: u32,
    call: impl Fn(&mut States, u32) -> Result<T, TooMuch>,
) -> Option<(T, bool)> {
    warm.begin_call();
    let result = call(warm, state).ok()?;
    let (bound, taken) = (warm.budget.bound(), warm.budget.taken());
    let mut fresh = States::default();
    fresh.begin_with(Budget::default().fresh());
    let state = fresh.import(grammar, warm, state).ok()?;
    let before = fresh.budget.taken();
    call(&mut fresh, state).ok()?;
    let alone = fresh.budget.taken() - before;
    assert!(
        alone <= bound,
        "{alone} steps alone, and a bound of {bound}"
    );
    Some((result, taken < alone))
}

/// The budget relies on this: while the bound is within the limit, a call with empty tables is,
/// too.
#[test]
fn empty_tables_take_no_more_than_the_bound_of_full_ones() {
    let mut random = Random(7);
    let (mut compared, mut gained) = (0, 0);
    for _ in 0..6000 {
        let Some(grammar) = grammar(&mut random) else {
            continue;
        };
        let mut warm = States::default();
        // The second text uses the results of the first.
        for _ in 0..2 {
            let Ok(mut state) = warm.initial(&grammar) else {
                break;
            };
            for _ in 0..12 {
                if state == NONE {
                    break;
                }
                let mask = |states: &mut States, state| of_band(states, &grammar, state, 0);
                let Some((_, gains)) = bounded(&grammar, &mut warm, state, mask) else {
                    break;
                };
                compared += 1;
                gained += usize::from(gains);
                let chars: Vec<u32> = random.pick(&TEXTS).chars().map(u32::from).collect();
                let accept = |states: &mut States, state| states.accept(&grammar, state, 0, &chars);
                let Some((next, gains)) = bounded(&grammar, &mut warm, state, accept) else {
                    break;
                };
                gained += usize::from(gains);
                state = next;
            }
        }
    }
    assert!(compared > 500 && gained > 300, "{compared}, {gained}");
}

/// The states are compared by their identities, since they are in different tables.
#[test]
fn a_state_that_is_imported_has_the_stacks_that_it_had() {
    let mut random = Random(11);
    let mut compared = 0;
    for _ in 0..2000 {
        let Some(grammar) = grammar(&mut random) else {
            continue;
        };
        let mut states = States::default();
        let Ok(mut state) = states.initial(&grammar) else {
            continue;
        };
        let mut other = States::default();
        for _ in 0..6 {
            states.begin_call();
            other.begin_call();
            let imported = other.import(&grammar, &states, state).expect("few steps");
            assert_eq!(other.identity(imported), states.identity(state));
            // Imported back, it is the same state, not a copy.
            let back = states
                .import(&grammar, &other, imported)
                .expect("few steps");
            states.forget_imports();
            assert_eq!(back, state);
            // Some of these grammars read a text in too many ways.
            let Ok(next) = states.accept(&grammar, back, 0, &[0x61]) else {
                break;
            };
            if next == NONE {
                break;
            }
            compared += 1;
            state = next;
        }
    }
    assert!(compared > 200, "{compared}");
}

/// Two states lead to each other, so that the run reaches a state for which it was just stored.
#[test]
fn a_run_in_a_circle_is_no_longer_than_a_text() {
    let rules =
        parse(b"root ::= ([a-z] [a-z])*", b"root", AsLlamaCpp, |_| None).expect("a grammar");
    let grammar = Compiled::new(rules, tree(TEXTS.map(String::from)));
    let mut states = States::default();
    let state = states.initial(&grammar).expect("few steps");
    let texts = grammar.tree.bands()[2].trees[0].summary(ROOT);
    assert_eq!(texts.height, Some(20));
    for _ in 0..2 {
        assert_eq!(states.takes_all(&grammar, state, texts, true), Ok(true));
        let longest = states.facts.iter().map(|facts| facts.run.steps).max();
        assert_eq!(longest, Some(20));
    }
}

/// No text contains surrogates, so a class without them can have all characters beyond ASCII.
#[test]
fn characters_beyond_ascii_are_taken_together() {
    let texts = ["a", "\u{e9}", "\u{65e5}\u{672c}", "\u{1f600}"].map(String::from);
    for (class, all) in [
        (r#"[^"\\\x01-\x1F\uD800-\uDFFF]"#, true),
        (r#"[^"\\\x01-\x1F\u672C]"#, false),
        (r#"[\x20-\x7F]"#, false),
    ] {
        let text = format!("root ::= {class}* | [\\u00E8-\\u00EA] [0-9]");
        let rules = parse(text.as_bytes(), b"root", AsLlamaCpp, |_| None).expect("a grammar");
        let grammar = Compiled::new(rules, tree(texts.clone()));
        let mut states = States::default();
        let state = states.initial(&grammar).expect("few steps");
        let state = states.step(&grammar, state, grammar.group(0x61));
        let texts = grammar.tree.bands()[0].trees[0].summary(ROOT);
        let taken = states.takes_all(&grammar, state.expect("few steps"), texts, true);
        assert_eq!(taken, Ok(all), "{class}");
    }
}

/// Grammars with counted classes: alone, among alternatives, and next to others that accept the
/// same characters.
const COUNTED: [&str; 13] = [
    "root ::= [ \\t]{0,64} \"a\"",
    "root ::= [ \\t]{3,64} \"a\"",
    "root ::= [ ]{0,20} [ ]{0,30} \"a\"",
    "root ::= ([ ] | \"b\"){0,20} ([ ]{0,9} | \"a\")",
    "root ::= ([ ] | \"b\" \"c\"){2,20} [\\n]?",
    "root ::= ([ ] | \"b\"?){2,20} \"a\"",
    "root ::= ([ ]{0,3} | \"b\"){0,20}",
    "root ::= \"a\"? [ ]{0,12} | [ ]{0,20} \"b\"",
    "root ::= [ ]{0,} \"\\n\"",
    "root ::= [ ]{0,64} \"a\"",
    "root ::= ([ ] | \"b\" \"c\"){0,40} \"a\"",
    "root ::= [ ]{2,64} \"\\n\"",
    "root ::= ([ ] | \"b\" \"c\"){0,40} \"\\n\"?",
];

fn counted(text: &str) -> (Compiled, States, u32) {
    let rules = parse(text.as_bytes(), b"root", AsLlamaCpp, |_| None).expect("a grammar");
    let grammar = Compiled::new(rules, tree(TEXTS.map(String::from)));
    let mut states = States::default();
    let state = states.initial(&grammar).expect("few steps");
    (grammar, states, state)
}

#[test]
fn rounds_in_one_go_lead_where_rounds_one_by_one_lead() {
    let space = Kinds::within(char_bit(0x20));
    for text in COUNTED {
        let (grammar, mut states, first) = counted(text);
        for most in 0..70 {
            let (n, end) = states.run(&grammar, first, space, most).expect("few steps");
            let mut state = first;
            for _ in 0..n {
                state = states
                    .step(&grammar, state, grammar.group(0x20))
                    .expect("few steps");
            }
            assert_eq!(state, end, "{text}, {n} of {most}");
        }
    }
    // The rounds do not each make a state.
    let (grammar, mut states, first) = counted(COUNTED[0]);
    let n_before = states.all.len();
    let (n, _) = states.run(&grammar, first, space, 60).expect("few steps");
    assert_eq!(n, 60);
    assert!(states.all.len() < n_before + 8, "{}", states.all.len());
}

/// Checks `takes_all` with texts of spaces, and `leads_to_no_control` with a line feed after such
/// texts.
#[test]
fn rounds_say_which_texts_are_taken_and_what_is_not() {
    let kinds = Kinds::within(char_bit(0x20));
    let (mut n_taken, mut n_without) = (0, 0);
    for text in COUNTED {
        let (grammar, mut states, first) = counted(text);
        let step = |states: &mut States, state, code_point| {
            let group = grammar.group(code_point);
            states.step(&grammar, state, group).expect("few steps")
        };
        let mut place = first;
        for _ in 0..4 {
            for height in 1..70 {
                let texts = Summary {
                    kinds,
                    height: Some(height),
                };
                states.begin_walk();
                let all = states.takes_all(&grammar, place, texts, true);
                let without = states.leads_to_no_control(&grammar, place, texts, true);
                let (all, without) = (all.expect("few steps"), without.expect("few steps"));
                let mut state = place;
                for n in 0..height {
                    let behind = step(&mut states, state, 0x0A);
                    assert!(!without || behind == NONE, "{text}, {n} of {height}");
                    state = step(&mut states, state, 0x20);
                    assert!(!all || state != NONE, "{text}, {n} of {height}");
                }
                n_taken += usize::from(all);
                n_without += usize::from(without);
            }
            place = step(&mut states, place, 0x20);
            if place == NONE {
                break;
            }
        }
    }
    assert!(n_taken > 500 && n_without > 300, "{n_taken} {n_without}");
}

#[test]
fn texts_of_a_length_are_taken_and_longer_ones_are_not() {
    let texts = Summary {
        kinds: Kinds::within(char_bit(0x20)),
        height: Some(70),
    };
    let mut found = Vec::new();
    for text in COUNTED {
        let (grammar, mut states, first) = counted(text);
        let mut place = first;
        for _ in 0..4 {
            states.begin_walk();
            let longest = states.longest_taken(&grammar, place, texts);
            let longest = longest.expect("few steps");
            let mut state = place;
            let mut n = 0;
            while state != NONE && n < 70 {
                state = states
                    .step(&grammar, state, grammar.group(0x20))
                    .expect("few steps");
                n += usize::from(state != NONE);
            }
            assert!(longest.is_none_or(|longest| longest == n), "{text}: {n}");
            found.extend(longest);
            place = states
                .step(&grammar, place, grammar.group(0x20))
                .expect("few steps");
            if place == NONE {
                break;
            }
        }
    }
    assert!(found.contains(&64) && found.contains(&61), "{found:?}");
    assert!(found.len() > 12, "{found:?}");
}

/// Compares the mask at each position of a string with the tokens tested one at a time.
#[test]
fn a_band_has_the_tokens_that_a_string_has_room_for() {
    let accents = (1..40).map(|n| "\u{e9}".repeat(n));
    let letters = (1..40).map(|n| "a".repeat(n));
    let parts = (1..20).map(|n| [&[b'a'; 20][..n], b"\xE2\x82"].concat());
    let ends = (0..20).map(|n| [&"a".repeat(n), "\""].concat());
    let texts = accents.chain(letters).chain(ends).map(String::into_bytes);
    let tree = tree_of_bytes(texts.chain(parts));
    let text = br#"root ::= "\"" ([^"\\\x01-\x1F] | "\\" [a-z]){0,38} "\"""#;
    let rules = parse(text, b"root", AsLlamaCpp, |_| None).expect("a grammar");
    let grammar = Compiled::new(rules, tree);
    let mut states = States::default();
    let state = states.initial(&grammar).expect("few steps");
    let mut state = states
        .step(&grammar, state, grammar.group(0x22))
        .expect("few steps");
    let mut chars = Vec::new();
    for left in (0..=38).rev() {
        let mut writer = MaskWriter::new(&grammar.tree, false);
        for band in 0..grammar.tree.bands().len() {
            let ranks = of_band(&mut states, &grammar, state, band).expect("few steps");
            writer.add_band(band, &ranks);
        }
        let mask = writer.done();
        for token in 1..grammar.tree.n_tokens() as i32 {
            let alone = allows(
                &mut states,
                &grammar,
                state,
                Partial::default(),
                token,
                &mut chars,
            );
            assert_eq!(Ok(mask.allows(token)), alone, "{left} left, token {token}");
        }
        state = states
            .step(&grammar, state, grammar.group(0x61))
            .expect("few steps");
    }
    assert_eq!(state, NONE);
}

/// Counts up to the length of the longest text are exact, and larger ones are unbounded.
#[test]
fn counts_are_numbers_up_to_the_longest_text() {
    let text = b"root ::= [a]{2,1000} \"b\"";
    let rules = parse(text, b"root", AsLlamaCpp, |_| None).expect("a grammar");
    let grammar = Compiled::new(rules, Arc::clone(&tree(TEXTS.map(String::from))));
    let mut states = States::default();
    let mut state = states.initial(&grammar).expect("few steps");
    let mut short = States::new(20);
    let mut identities = Vec::new();
    for _ in 0..1000 {
        states.begin_call();
        short.begin_call();
        let imported = short.import(&grammar, &states, state).expect("few steps");
        identities.push(short.identity(imported));
        state = states
            .step(&grammar, state, grammar.group(0x61))
            .expect("few steps");
        assert_ne!(state, NONE);
    }
    // Two states for the required rounds, one for all large counts, and twenty for the last rounds.
    identities.dedup();
    assert_eq!(identities.len(), 2 + 1 + 20);
}
