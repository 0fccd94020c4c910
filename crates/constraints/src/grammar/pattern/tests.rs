use super::*;
use crate::grammar::compiled::Compiled;
use crate::grammar::states::{NONE, States};
use crate::grammar::tests_texts::tree;
use llama_sieve_kernels::lcg::Lcg;
use test_crates::regex::Regex;

fn compiled(pattern: &str, extent: Extent) -> Result<Option<Compiled>, Refused> {
    let mut builder = Builder::default();
    let hir = parse(pattern)?;
    let Some(whole) = elements(&mut builder, &mut Plain, &hir, extent)? else {
        return Ok(None);
    };
    Ok(Some(Compiled::new(builder.rules(whole)?, tree([]))))
}

/// True if a text matches the grammar. Fails if a prefix of the text leads to a dead end: a state
/// in which the text may not end, and which accepts no character of `alphabet`.
fn follows(
    states: &mut States,
    compiled: &Compiled,
    text: &str,
    alphabet: &[char],
) -> Result<bool, String> {
    states.begin_call();
    let mut state = states.initial(compiled).expect("few steps");
    for (at, character) in text.char_indices() {
        state = states
            .accept(compiled, state, 1, &[character.into()])
            .expect("few steps");
        if state == NONE {
            return Ok(false);
        }
        let goes_on = alphabet.iter().any(|&next| {
            let next = states.accept(compiled, state, 1, &[next.into()]);
            next.expect("few steps") != NONE
        });
        if !goes_on && !states.may_end(state) {
            return Err(format!("nothing may follow byte {at}"));
        }
    }
    Ok(states.may_end(state))
}

const ALPHABET: [char; 5] = ['a', 'b', 'B', 'é', '\n'];

fn texts(most: usize) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut from = 0;
    for _ in 0..most {
        let to = texts.len();
        for i in from..to {
            for letter in ALPHABET {
                let text = format!("{}{letter}", texts[i]);
                texts.push(text);
            }
        }
        from = to;
    }
    texts
}

fn check(pattern: &str, extent: Extent, texts: &[String]) -> Result<(), Refused> {
    let compiled = compiled(pattern, extent)?;
    let regex = match extent {
        Extent::Whole => Regex::new(&format!(r"\A(?:{pattern})\z")),
        Extent::Anywhere => Regex::new(pattern),
    };
    let regex = regex.expect("a pattern");
    let mut states = States::default();
    for text in texts {
        let expected = regex.is_match(text);
        let found = compiled.as_ref().map_or(Ok(false), |compiled| {
            follows(&mut states, compiled, text, &ALPHABET)
        });
        assert_eq!(found, Ok(expected), "{pattern:?} {extent:?} {text:?}");
    }
    Ok(())
}

#[test]
fn patterns_have_the_language_of_the_crate_regex() {
    let texts = texts(4);
    for pattern in [
        "",
        "a",
        "ab",
        "a|b",
        "(a|b)*",
        "a*b+",
        "a?b??",
        "(?i)b",
        "(?i)ab|é",
        ".",
        "(?s).",
        "a.b",
        "[^a]",
        r"\w",
        r"\W",
        r"(?-u)\w",
        r"(?-u:a)b",
        r"[[:alpha:]]{2}",
        "a{2}",
        "a{1,3}",
        "a{2,}b{0,1}",
        "(a{0,2}b{0,2}){1,2}",
        "(a?){2,3}",
        "(a?)*",
        "(a*)*",
        "(a?|b)+",
        "((a?)*)+b",
        "(|a)(|b)",
        "a{0}b",
        "(a{0})*b",
        "()",
        "()*",
        "[a&&b]",
        "[a&&b]|b",
        "a[a&&b]|b",
        "(a[a&&b])*b",
        "(a[a&&b])+b",
        "(a?|[a&&b]){2}",
        "(a?|[a&&b]){2,}b",
        "([a&&b]?|ab){3}",
        "([a&&b]*|b)+",
        "(a|[a&&b]?)*b",
        "[a-b--b]",
        r"\p{Lu}",
        r"\n",
        "(?x) a  b ",
        "aa|ab|a|aab",
        "(a|aa){2}",
        "(aa|a)(b|ab)",
        "(?U)a*",
        r"\x61",
        "^a",
        "a$",
        "^a$",
        "^(a|b$)$",
        r"\Aa\z",
        "(^a|b)é",
        "^*a",
        "^{2}a",
        "(^|b)a",
        "(a$)?",
        "^$",
        "$^",
        "(a|^b)?",
    ] {
        check(pattern, Extent::Whole, &texts).expect(pattern);
    }
    for pattern in [
        "",
        "a",
        "^a",
        "a$",
        "^a$",
        "^ab|b$",
        "(^|b)a",
        "a(b|$)",
        "^",
        "$",
        "^$",
        "(^)?a",
        "a*",
        "(^a)?",
        "(^a$)?b?",
        "()^a",
        "a$()",
        "()",
        "^*",
        "^*a",
        "(^a|b)(a|b$)",
        "[a&&b]",
        "^[a&&b]|b",
        "a{2}",
        "(a|b){3}",
        "(?:)|a",
        "(a|^)b",
        "b(a|$)",
        "(^a|[a&&b]^)*",
        "(a|[a&&b]^)*b",
        "([a&&b]^|a)+",
        "(a|[a&&b]$){2}",
    ] {
        match check(pattern, Extent::Anywhere, &texts) {
            Ok(()) => {}
            Err(refused) => assert!(refused.0.contains("not supported"), "{pattern}: {refused}"),
        }
    }
}

/// Returns a random pattern of at most `levels` levels, over the letters of the tests.
fn random(lcg: &mut Lcg, levels: u32) -> String {
    let mut below = |n: u32| (lcg.bits() >> 16) % n;
    let leaf = below(3) == 0 || levels == 0;
    if leaf {
        const LEAVES: [&str; 16] = [
            "a",
            "b",
            "é",
            ".",
            "[ab]",
            "[^a]",
            "(?i:b)",
            r"\w",
            "ab",
            "",
            "^",
            "$",
            "(?s:.)",
            r"(?i:[a-b])",
            "[a&&b]",
            r"\n",
        ];
        return LEAVES[below(16) as usize].into();
    }
    let kind = below(8);
    let counts = (below(3), below(3));
    let mut part = || random(lcg, levels - 1);
    match kind {
        0..3 => format!("{}{}", part(), part()),
        3 => format!("(?:{}|{})", part(), part()),
        4 => format!("(?:{})*", part()),
        5 => format!("(?:{})+", part()),
        6 => format!("(?:{})?", part()),
        _ => format!("(?:{}){{{},{}}}", part(), counts.0, counts.0 + counts.1),
    }
}

#[test]
fn random_patterns_have_the_language_of_the_crate_regex() {
    let texts = texts(3);
    let mut lcg = Lcg(17);
    let mut accepted = 0;
    for _ in 0..1500 {
        let pattern = random(&mut lcg, 4);
        for extent in [Extent::Whole, Extent::Anywhere] {
            match check(&pattern, extent, &texts) {
                Ok(()) => accepted += 1,
                Err(refused) => {
                    let is_named = refused.0.contains("not supported");
                    assert!(
                        is_named && pattern.contains(['^', '$']),
                        "{pattern}: {refused}"
                    );
                }
            }
        }
    }
    assert!(accepted > 2000, "{accepted}");
}

#[test]
fn refusals_name_what_is_wrong() {
    let long = "a".repeat(MAX_PATTERN_TEXT + 1);
    let deep = format!("{}a{}", "(".repeat(200), ")".repeat(200));
    let many = r"\w".repeat(MAX_PATTERN_CLASSES + 1);
    for (pattern, told) in [
        (r"a\b", r"a word boundary (\b)"),
        (r"a\Bb", r"(\B)"),
        ("a^b", "the beginning of the text (^ or \\A)"),
        ("a$b", "the end of the text ($ or \\z)"),
        ("(?m)^a", "the beginning of a line"),
        ("(^a)*", "the beginning of the text"),
        (r"(?-u:\xFF)", "UTF-8"),
        (r"(?-u)[^a]", "UTF-8"),
        ("a(", "byte 1, \"(\": unclosed group"),
        (r"(a)\1", "backreferences are not supported"),
        ("(?=a)", "look-around"),
        ("a{1000001}", "LLAMA_SIEVE_GRAMMAR_MAX_REPETITIONS"),
        (&long, "LLAMA_SIEVE_PATTERN_MAX_TEXT"),
        (&deep, "LLAMA_SIEVE_PATTERN_MAX_DEPTH"),
        (&many, "LLAMA_SIEVE_PATTERN_MAX_CLASSES"),
    ] {
        let refused = compiled(pattern, Extent::Whole).err();
        let told_is = refused.as_ref().map(Refused::to_string).unwrap_or_default();
        assert!(told_is.contains(told), "{pattern:.20}: {told_is}");
    }
}

#[test]
fn patterns_of_others_are_bounded_too() {
    let mut hir = Hir::literal(*b"a");
    for _ in 0..10_000 {
        hir = Hir::capture(regex_syntax::hir::Capture {
            index: 1,
            name: None,
            sub: Box::new(hir),
        });
    }
    let refused = elements(&mut Builder::default(), &mut Plain, &hir, Extent::Whole);
    assert_eq!(refused, Err(too_deep()));
    let bytes = Hir::literal(*b"\xFF");
    let refused = elements(&mut Builder::default(), &mut Plain, &bytes, Extent::Whole);
    assert_eq!(refused, Err(Refused(NOT_UTF8.into())));
}

#[test]
fn no_text_has_nul_or_surrogates() {
    let compiled = |pattern| compiled(pattern, Extent::Whole).expect("a pattern");
    assert!(compiled(r"\x00").is_none());
    assert!(compiled(r"[\x00&&a]").is_none());
    let any = compiled(r"(?s)[\x00-\x{10FFFF}]").expect("characters");
    let mut states = States::default();
    assert_eq!(follows(&mut states, &any, "a", &[]), Ok(true));
    let state = states.initial(&any).expect("few steps");
    for no_character in [0, 0xD800, 0xDFFF, 0x11_0000] {
        let next = states.accept(&any, state, 1, &[no_character]);
        assert_eq!(next, Ok(NONE), "{no_character:x}");
    }
}

/// Reads the most deeply nested patterns that are accepted, of several kinds, on a stack of 64 KiB.
#[test]
fn nested_patterns_are_read_on_a_small_stack() {
    let kinds = [
        ("(", ")"),
        ("(", ")+"),
        ("(a|", ")"),
        ("(?:b", "c)?"),
        ("(?i:", ")*"),
        ("[a", "]"),
        ("[^a&&", "]"),
    ];
    let stack = match cfg!(sanitized) || cfg!(debug_assertions) {
        true => 4 << 20,
        false => 64 << 10,
    };
    let depths = move || {
        kinds.map(|(open, close)| {
            let nested = |n: usize| format!("{}x{}", open.repeat(n), close.repeat(n));
            let deepest = (1..200).rev().find(|&n| rules(&nested(n)).is_ok());
            deepest.unwrap_or_default()
        })
    };
    let thread = std::thread::Builder::new().stack_size(stack).spawn(depths);
    let depths = thread.expect("a thread").join().expect("no panic");
    assert!(
        depths.iter().all(|&n| (32..=128).contains(&n)),
        "{depths:?}"
    );
}
