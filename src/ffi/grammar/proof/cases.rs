//! Small grammars that together use every construct, and the tokens that each of them accepts in
//! the comparison.
//!
//! None of them repeats anything nullable, and no rule is left-recursive, since older builds of
//! llama.cpp hang on such grammars. Only tokens that both grammars allow are accepted, and lazy
//! grammars begin with a rule that allows every text, so that nothing throws.

use std::ffi::{CString, NulError};

use super::found::Part;
use super::samples::{RULER, Samples};
use crate::token::Token;

/// A grammar, and the plan for testing it.
pub(super) struct Case {
    pub(super) text: CString,
    pub(super) root: CString,
    pub(super) triggers: Triggers,
    pub(super) plan: Plan,
}

/// The triggers of a grammar.
pub(super) enum Triggers {
    /// The grammar is not lazy.
    None,
    Words(Vec<CString>),
    Patterns(Vec<CString>),
    Tokens(Vec<Token>),
}

/// The tokens that both grammars accept, and the points at which the two are compared.
pub(super) enum Plan {
    /// Compares all candidates and then accepts an allowed token, `n_steps` times. Also compares
    /// clones before the second token, and both grammars after a reset at the end.
    Walk { n_steps: usize, choice: Choice },
    /// Accepts `token` `n` times. Before each of the last two and after the last, compares the
    /// number of characters that the grammar still allows.
    Rounds { token: Token, n: usize },
    /// Accepts each of `tokens`, and then `letter` until it is no longer allowed. Each time
    /// compares the number of characters that the grammar still allows. If `copied` is true, also
    /// compares that number in clones and after a reset.
    Spelt {
        tokens: Vec<Token>,
        letter: Token,
        copied: bool,
    },
}

/// The allowed tokens among which a walk chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Any,
    /// Tokens that end within a character or continue one, if possible.
    Partial,
    /// Single characters. If a token element would begin within the text of a longer token,
    /// llama.cpp allows that token and then refuses to accept it.
    Characters,
}

/// Grammars whose possible meanings can be distinguished by texts of any vocabulary. If llama.cpp
/// cannot read one, it prints the text: the first line of the first one names this library.
const RULES: [(&str, Plan); 17] = [
    // Escapes, in strings and in classes.
    (
        r#"# llama-sieve compares llama.cpp's grammars with its own
root ::= "\t" | "\n" | "\r" | "\"" | "\\" | "\[" | "\]" | "\x41" | "\u0042" | "\U00000043" |
"#,
        walk(1),
    ),
    (
        r#"root ::= [\t\n\r\"\\\[\]\x41-\x43\u00e9\u00DF-\u00df\U0001F600] |
"\x7a" "é€😀" | "\u20AC" "#,
        walk(3),
    ),
    (
        r#"root ::= [^\n\]\x20-\x2f\u0041-\u005A] [^"\\\x00-\x1F] [^é-ÿ😀]"#,
        walk(4),
    ),
    // Any character, including the end of a line.
    ("root ::= . . | \"a\" .", walk(3)),
    (
        "root ::= [a-c-] | [x-z0-9_-] \"a\" | [-+] [^-a] | [z-a] | [^^a] [.*+?]",
        walk(3),
    ),
    // Empty texts.
    (
        "root ::= \"\" [a-c] [] [d-f] | \"x\" \"\" | [^] \"y\"",
        walk(3),
    ),
    // Repetitions.
    ("root ::= \"a\"* \"b\"+ \"c\"? [d-f]* [^a-f]", walk(6)),
    (
        "root ::= [a-c]{2} [d-f]{1,} | [g-i]{1,3} \"g\" | [j-l]{0} \"m\" | [n-p]{0,2} | [q-z]{3,}",
        walk(6),
    ),
    (
        "root ::= ((\"a\" | [b-m]){1,2} [ ,n-z]){2,3} | ([A-Z]+ [ a-z]){2} \".\"",
        walk(8),
    ),
    ("root ::= [^ ]{0,40} | \"  \"{1,4}", walk(4)),
    // References, groups, alternatives, some of which are empty, and rules that refer to
    // themselves.
    (
        r#"root ::= list | "(" root ")" | pair
list ::= "[" (item ("," item)*)? "]"
item ::= word | list | [ -+]
word ::= [a-z] word | [0-9]+
pair ::= (word | "x" |) ":" ("y" |) | " " ( | "z") root-2
root-2 ::= [A-Z] root | "."
"#,
        walk(8),
    ),
    (
        "root ::= \"never\"\nstart-1 ::= \"a\" root | [b-z] start-1 | (\" \" | start-2) [^a]\n\
         start-2 ::= [A-Z]",
        walk(4),
    ),
    // Comments and ends of lines.
    (
        "# a \"comment\" | ::=\r\n\n root ::= # more\r\n\t [a-m] ( \"b\" # (\n | \"c\"\r\n\n | \
         [d-z] ) \
         tail # end\n\n\ttail::=\n[^b] | \"b\"\ttail #",
        walk(5),
    ),
    // Characters that are split over several tokens.
    (
        "root ::= [é-ÿ] | [€-₯] \"x\"? | [😀-😏] | \"ß\" . | \
         [^à-ÿ\\U0001F600-\\U0001FFFF] [^é] . | .",
        walk_by(5, Choice::Partial),
    ),
    (
        "root ::= ([^a-z] | [中€’] [^\\x80-\\u07ff])+",
        walk_by(8, Choice::Partial),
    ),
    // Grammars as programs typically have them.
    (
        r#"root ::= [{] ws (pair ("," ws pair)*)? "}" | string | number
pair ::= string ":" ws (string | number | root | "true" | "null")
string ::= "\"" ([^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9] [0-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#,
        walk(9),
    ),
    ("root ::= [A-Z]? [a-z ]+ ([.,;] [^.,;]*)?", walk(6)),
];

const fn walk(n_steps: usize) -> Plan {
    walk_by(n_steps, Choice::Any)
}

const fn walk_by(n_steps: usize, choice: Choice) -> Plan {
    Plan::Walk { n_steps, choice }
}

/// Patterns, and the texts in which each is searched. The letters a to d and B in the texts, and
/// those after a percent sign in the patterns, are replaced by letters of the vocabulary.
const PATTERNS: [(&[&str], &str); 26] = [
    (&["%b"], "aabcd"),
    (&["%d", "%b", "%c"], "abcd"),
    (&["[\\s\\S]*?(%b%c)[\\s\\S]*"], "abcd"),
    (&["^%a[\\s\\S]*(%c)$"], "abcd"),
    (&["^%b", "%c$"], "abcd"),
    (&["(%d)|(%b)"], "abcd"),
    (&["(?:%a%b|%a)(%c|%b%c%d)"], "abcd"),
    (&["(%b*)(%c)"], "aac"),
    (&["(%a)?(%b)?(%c)"], "bbc"),
    (&["%b*?%c"], "abbc"),
    (&["%b{2,3}%c"], "abbbbc"),
    (&["%a(?=%b)"], "aabc"),
    (&["(?!%a)[%a%b]"], "aab"),
    (&["(%a)\\1"], "baab"),
    (&["((%a)|(%b))*%d"], "abad"),
    (&["[^%a-%c]"], "abcd"),
    (&["[%b-]%c"], "abc"),
    (&["%a.%c+"], "babcc"),
    (&["\\d", "\\s", "\\W", "[[:alpha:]]%c"], "abc"),
    (&["%b\\b"], "ab b"),
    (&["%b\\B."], "b bcd"),
    (&["(%b)$", "(%a)\\s%b"], "aa b"),
    (&[".%b"], "\nbab"),
    (&["[^%a]%b"], "ab\nb"),
    (&["%b"], "Bab"),
    (&["^[\\s\\S]{2}([\\s\\S]+)$"], "abcd"),
];

/// Characters with a special meaning in a pattern, and none in a word.
const SPECIAL: &str = ".^$|()*+?[]{}\\";

/// Returns a grammar that matches every text of 1 to [`RULER`] characters without NUL.
fn measuring() -> Result<CString, NulError> {
    CString::new(format!(
        "# llama-sieve compares llama.cpp's lazy grammars with its own\n\
         root ::= [^\\x00]{{1,{RULER}}}"
    ))
}

/// Returns the grammars that are compared for a part; none if the vocabulary lacks the tokens for
/// them.
pub(super) fn cases(
    part: Part,
    samples: &Samples,
    in_brackets: Option<&[u8]>,
) -> Result<Vec<Case>, NulError> {
    let plain = |text: &str, plan| {
        Ok(Case {
            root: CString::new(if text.contains("start-1") {
                "start-1"
            } else {
                "root"
            })?,
            text: CString::new(text)?,
            triggers: Triggers::None,
            plan,
        })
    };
    let Some(letters) = samples.letters else {
        return Ok(Vec::new());
    };
    let [(a, token_a), (_, token_b), (_, token_c), _] = letters;
    let rounds = |text: String, n| plain(&text, Plan::Rounds { token: token_a, n });
    match part {
        Part::Rules => RULES
            .into_iter()
            .map(|(text, plan)| plain(text, plan))
            .collect(),
        Part::Tokens => {
            let [x, y, z] = [token_a, token_b, token_c];
            let mut all = vec![
                plain(
                    &format!("root ::= <[{x}]> [{a}-z] | !<[{y}]> . | [a-z] <[{z}]>"),
                    walk_by(3, Choice::Characters),
                )?,
                plain(
                    &format!("root ::= (!<[{x}]> | <[{y}]> .){{1,3}} <[{x}]> | ."),
                    walk_by(5, Choice::Characters),
                )?,
            ];
            if let Some(text) = in_brackets.and_then(|text| std::str::from_utf8(text).ok()) {
                all.push(plain(
                    &format!("root ::= {text} . | . !{text} | {text}? \"a\""),
                    walk_by(3, Choice::Characters),
                )?);
            }
            Ok(all)
        }
        Part::Dash => Ok(vec![plain(
            "root ::= \"\\-\" | [+\\-/] | [a\\-c] \"a\"",
            walk(2),
        )?]),
        Part::Counts => Ok(vec![
            rounds(format!("root ::= [{a}]{{0,1999}}"), 1999)?,
            rounds(format!("root ::= [{a}]{{65}}"), 65)?,
        ]),
        Part::Beyond => Ok(vec![rounds(format!("root ::= [{a}]{{3,2001}}"), 2001)?]),
        Part::Words => words(samples),
        Part::Patterns => patterns(samples),
        Part::Triggers => Ok(vec![lazy(
            Triggers::Tokens(vec![token_c, token_b]),
            vec![token_a, token_a, token_b, token_c, token_a],
            token_a,
        )?]),
    }
}

fn lazy(triggers: Triggers, tokens: Vec<Token>, letter: Token) -> Result<Case, NulError> {
    // Only some cases use copies, since copying does not depend on the trigger.
    let copied = tokens.len() % 2 == 1;
    Ok(Case {
        text: measuring()?,
        root: CString::new("root")?,
        triggers,
        plan: Plan::Spelt {
            tokens,
            letter,
            copied,
        },
    })
}

/// Returns the text with the letters a to d, and the capital B, replaced by letters of the
/// vocabulary.
fn with_letters(text: &str, samples: &Samples) -> String {
    let letters = samples.letters.iter().flatten();
    let letter = |place: usize| letters.clone().nth(place).map(|&(letter, _)| letter);
    let exchanged = text.chars().map(|character| match character {
        'a'..='d' => letter(character as usize - 'a' as usize).unwrap_or(character),
        'B' => letter(1).unwrap_or('b').to_ascii_uppercase(),
        other => other,
    });
    exchanged.collect()
}

/// Returns the pattern with each percent sign and the letter after it replaced by a letter of the
/// vocabulary.
fn pattern(text: &str, samples: &Samples) -> Result<CString, NulError> {
    let mut parts = text.split('%');
    let mut pattern = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (letter, rest) = part.split_at_checked(1).unwrap_or_default();
        pattern += &with_letters(letter, samples);
        pattern += rest;
    }
    CString::new(pattern)
}

fn patterns(samples: &Samples) -> Result<Vec<Case>, NulError> {
    let Some([(_, letter), ..]) = samples.letters else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for (patterns, text) in PATTERNS {
        // The vocabulary may lack blanks, ends of lines and capitals.
        let Some(tokens) = samples.spelt(&with_letters(text, samples)) else {
            continue;
        };
        let patterns: Result<_, _> = patterns.iter().map(|text| pattern(text, samples)).collect();
        all.push(lazy(Triggers::Patterns(patterns?), tokens, letter)?);
    }
    if let Some((word, token)) = &samples.word {
        let inner = word.trim_start();
        let (first, second) = (inner.get(1..2), inner.get(2..3));
        if let (Some(first), Some(second)) = (first, second) {
            let both = [second, first].map(CString::new);
            let both = both.into_iter().collect::<Result<_, _>>()?;
            let tokens = vec![letter, *token];
            all.push(lazy(Triggers::Patterns(both), tokens, letter)?);
        }
    }
    Ok(all)
}

fn words(samples: &Samples) -> Result<Vec<Case>, NulError> {
    let Some([(a, letter), (b, token_b), (c, _), (d, _)]) = samples.letters else {
        return Ok(Vec::new());
    };
    let words = |texts: &[String]| {
        let words = texts.iter().map(|text| CString::new(text.as_str()));
        words.collect::<Result<Vec<_>, _>>().map(Triggers::Words)
    };
    let mut all = Vec::new();
    for (texts, text) in [
        ([format!("{b}{c}"), format!("{c}{d}")], "abcd"),
        ([format!("{b}{c}{d}"), format!("{b}")], "abcd"),
        ([format!("{a}.{c}"), format!("{c}{a}")], "abca"),
    ] {
        if let Some(tokens) = samples.spelt(&with_letters(text, samples)) {
            all.push(lazy(words(&texts)?, tokens, letter)?);
        }
    }
    let specials: Vec<String> = SPECIAL
        .chars()
        .map(|special| format!("{special}{a}"))
        .collect();
    for special in SPECIAL.chars() {
        if let Some(tokens) = samples.spelt(&format!("{b}{special}{a}")) {
            all.push(lazy(words(&specials)?, tokens, letter)?);
        }
    }
    if let Some((word, token)) = &samples.word
        && let Some(inner) = word.get(2..word.len() - 1)
    {
        let tokens = vec![token_b, *token];
        all.push(lazy(words(&[inner.to_owned()])?, tokens, letter)?);
    }
    Ok(all)
}
