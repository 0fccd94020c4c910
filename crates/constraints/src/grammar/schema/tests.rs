//! Tests schemas with texts that satisfy them and texts that do not.

use std::rc::Rc;
use std::sync::Arc;

use super::automaton::Dfa;
use super::decimal::Decimal;
use super::ecma::found_in;
use super::reader::{Document, Json, JsonId, Repeated, read};
use super::work::Work;
use super::{Options, compile, written_as};
use crate::grammar::compiled::Compiled;
use crate::grammar::elements::Rules;
use crate::grammar::engine::Engine;
use crate::grammar::limits::MAX_SCHEMA_DEPTH;
use crate::grammar::states::{NONE, StateId, States};
use crate::grammar::tests_texts::tree;
use crate::grammar::tracker::Tracker;
use crate::grammar::vocabulary_tree::VocabularyTree;
use llama_sieve_kernels::lcg::Lcg;
use llama_sieve_kernels::random::HashSet;
use test_crates::boon::{Compiler, Schemas};

fn compiled(schema: &str, options: Options) -> Result<Compiled, String> {
    let rules = compile(schema.as_bytes(), options).map_err(|refusal| refusal.to_string())?;
    Ok(Compiled::new(rules.0, Arc::new(VocabularyTree::default())))
}

/// Returns true if the grammar accepts `text`, and false if it accepts only longer texts that begin
/// with `text`. Returns `None` if no accepted text begins with `text`.
fn followed(grammar: &Compiled, text: &str) -> Option<bool> {
    let mut states = States::default();
    let start = states.initial(grammar).expect("within limits");
    let end = after(&mut states, grammar, start, text);
    (end != NONE).then(|| states.may_end(end))
}

/// Returns the state after `text`.
fn after(states: &mut States, grammar: &Compiled, from: StateId, text: &str) -> StateId {
    let mut at = from;
    for character in text.chars() {
        states.begin_call();
        let group = grammar.group(u32::from(character));
        at = states.step(grammar, at, group).expect("within limits");
        if at == NONE {
            break;
        }
    }
    at
}

fn accepts(grammar: &Compiled, text: &str) -> bool {
    followed(grammar, text) == Some(true)
}

/// Checks texts, one per line, against a schema: those after a `+` must be accepted, and those
/// after a `-` refused.
fn check_with(options: Options, schema: &str, texts: &str) {
    let grammar = compiled(schema, options).expect(schema);
    for line in texts.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (sign, text) = line.split_at(1);
        let text = text.strip_prefix(' ').unwrap_or(text);
        assert_eq!(accepts(&grammar, text), sign == "+", "{schema}: {text}");
    }
}

fn check(schema: &str, texts: &str) {
    check_with(Options::default(), schema, texts);
}

fn refused(schema: &str, pointer: &str, keyword: &str) {
    let refusal = compile(schema.as_bytes(), Options::default()).expect_err(schema);
    assert_eq!(
        (&*refusal.pointer, &*refusal.keyword),
        (pointer, keyword),
        "{refusal}"
    );
}

#[test]
fn values_of_every_type() {
    check(
        "true",
        "+ null\n+ [1, {\"a\": [ ] }]\n+ \"\\u00e9\\n\"\n- nul\n- [1,]\n- {\"a\":1,}\n- 01",
    );
    check(
        "{}",
        "+ 1.5e3\n+ -0\n- .5\n- 1.\n- +1\n- \"\\x\"\n- \"\\ud800\"\n+ \"\\uD83D\\uDE00\"",
    );
    check(
        r#"{"type":["string","null"]}"#,
        "+ null\n+ \"a\"\n- 1\n- true",
    );
    check(r#"{"type":"integer"}"#, "+ 0\n+ -17\n- 1.0\n- 01\n- 1e2");
    check(
        r#"{"enum":["a",1,null,[1,{"b":false}],{"c":"\"\\/\u00e9"}]}"#,
        "+ \"a\"\n+ 1\n+ null\n+ [1,{\"b\": false}]\n- [1]\n- {}\n+ {\"c\":\"\\\"\\\\/\\u00E9\"}\n- 2",
    );
}

#[test]
fn members_and_elements() {
    check(
        r#"{"properties":{"a":{"type":"integer"},"b":{}},"required":["b"],"additionalProperties":false}"#,
        "+ {\"a\":1,\"b\":2}\n+ {\"b\":[]}\n- {\"a\":1}\n+ {\"b\":1,\"a\":1}\n- {\"b\":1,\"c\":1}\n+ 7",
    );
    // A name is the same however it is escaped.
    check(
        r#"{"type":"object","properties":{"ab":{"type":"null"}}}"#,
        "+ {\"ab\":null}\n- {\"ab\":1}\n- {\"\\u0061b\":1}\n- {\"a\\u0062\":1}\n+ {\"abc\":1}\n+ {\"a\":1}\n+ {\"\":1}",
    );
    check(
        r#"{"prefixItems":[{"type":"null"},{"type":"integer"}],"items":false,"minItems":1,"type":"array"}"#,
        "+ [null]\n+ [null,1]\n- []\n- [null,1,2]\n- [1]",
    );
    check(
        r#"{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3}"#,
        "+ [1,2]\n+ [1 , 2,3]\n- [1]\n- [1,2,3,4]\n- []",
    );
    check(
        r#"{"type":"object","minProperties":1,"maxProperties":2,"properties":{"a":{},"b":{},"c":{}},"additionalProperties":false}"#,
        "- {}\n+ {\"b\":1}\n+ {\"a\":1,\"c\":1}\n- {\"a\":1,\"b\":1,\"c\":1}",
    );
    // The member that `minProperties` demands in addition may have any name.
    check(
        r#"{"type":"object","properties":{"a":{},"b":{}},"required":["b"],"minProperties":2}"#,
        "- {}\n- {\"b\":1}\n- {\"a\":1}\n+ {\"a\":1,\"b\":1}\n+ {\"b\":1,\"c\":1}\n- {\"c\":1,\"d\":1}",
    );
    check(
        r#"{"type":"object","patternProperties":{"^x":{"type":"integer"},"y$":{"minimum":5}},"additionalProperties":{"type":"null"}}"#,
        "+ {\"x\":1}\n- {\"x\":null}\n+ {\"y\":5}\n- {\"y\":4}\n+ {\"xy\":5}\n- {\"xy\":4}\n- {\"xy\":5.5}\n+ {\"a\":null}\n- {\"a\":1}",
    );
    check(
        r#"{"type":"object","propertyNames":{"maxLength":2},"properties":{"abc":true,"ab":true}}"#,
        "+ {\"ab\":1}\n- {\"abc\":1}\n+ {\"c\":1}\n- {\"cde\":1}",
    );
    check(
        r#"{"type":"array","contains":{"const":1},"minContains":2,"maxContains":3}"#,
        "- [1]\n+ [1,0,1]\n+ [1,1,1]\n- [1,1,1,1]\n- []\n+ [0,1,2,1]",
    );
    check(
        r#"{"type":"array","items":{"enum":["a","b",1]},"uniqueItems":true,"minItems":1}"#,
        "+ [\"a\"]\n+ [1,\"b\",\"a\"]\n- [1,1]\n- []",
    );
    check(
        r#"{"type":"array","prefixItems":[{"type":"boolean"},{"enum":[true,1]}],"items":{"enum":[1,2]},"uniqueItems":true}"#,
        "+ []\n+ [true,1]\n- [true,true]\n+ [false,true,1,2]\n- [false,true,1,1]\n- [1]\n- [false,1,1]",
    );
}

#[test]
fn members_come_as_the_schema_writes_them_or_the_required_ones_first() {
    const ABC: &str = r#""properties":{"a":{},"b":{},"c":{}}"#;
    check(
        &format!(r#"{{{ABC},"required":["c","b"]}}"#),
        "+ {\"a\":1,\"b\":1,\"c\":1}\n+ {\"c\":1,\"b\":1,\"a\":1,\"d\":1}\n+ {\"b\":1,\"c\":1}
        + {\"c\":1,\"b\":1}\n- {\"b\":1,\"a\":1,\"c\":1}\n- {\"c\":1,\"a\":1,\"b\":1}\n- {\"a\":1,\"c\":1,\"b\":1}
        - {\"c\":1,\"a\":1}\n- {\"d\":1,\"c\":1,\"b\":1}",
    );
    // Members come in the order in which the text has the keywords that contain them.
    const D: &str = r#"[{"properties":{"d":{},"b":{}}}]"#;
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let texts = "{\"d\":1,\"b\":1,\"a\":1}\n? {\"a\":1,\"b\":1,\"d\":1}";
        for (schema, signs) in [
            (format!(r#"{{"{keyword}":{D},{ABC}}}"#), ["+", "-"]),
            (format!(r#"{{{ABC},"{keyword}":{D}}}"#), ["-", "+"]),
        ] {
            check(
                &schema,
                &format!("{} {}", signs[0], texts.replace('?', signs[1])),
            );
        }
    }
}

#[test]
fn a_member_without_a_name_may_be_asked_for() {
    check(
        r#"{"type":"object","not":{"additionalProperties":{"type":"integer"}},"properties":{"n":{}}}"#,
        r#"+ {"a":""}
        - {"a":1}
        - {}
        + {"n":""}
        + {"a":1,"b":"","c":""}
        - {"b":"","b":1}
        + {"b":"","b":null}"#,
    );
    check(
        r#"{"type":"object","not":{"patternProperties":{"^x":{"type":"integer"}}},"properties":{"x1":{},"y":{}},"maxProperties":2}"#,
        r#"+ {"x1":""}
        - {"x1":1}
        + {"x1":1,"x":""}
        + {"y":1,"x":""}
        - {"x":"","x":1}
        + {"x1":"","x":1}
        - {"x1":"","y":1,"z":1}
        - {"y":1,"z":1}"#,
    );
    check(
        r#"{"type":"object","not":{"propertyNames":{"pattern":"a"}}}"#,
        r#"+ {"b":1}
        - {"a":1}
        + {"a":1,"b":1,"a":2}"#,
    );
    check(
        r#"{"oneOf":[{"type":"object","additionalProperties":{"type":"string"}},{"type":"object","additionalProperties":{"maxLength":1}}]}"#,
        r#"+ {"a":"bc"}
        + {"a":1}
        - {"a":"b"}
        - {}
        - {"a":"bc","b":1}"#,
    );
}

#[test]
fn lengths_count_characters_and_escapes_once() {
    check(
        r#"{"type":"string","minLength":2,"maxLength":3}"#,
        "- \"a\"\n+ \"ab\"\n+ \"a\\u00e9\\n\"\n- \"abcd\"\n+ \"\u{1F600}\u{1F600}\u{1F600}\"\n+ \"\\uD83D\\uDE00x\"\n- \"\\uD83D\\uDE00\"",
    );
}

/// The examples are from RFC 6570, RFC 3987, and the patterns of real schemas.
#[test]
fn formats_are_known_by_their_texts() {
    for (format, texts) in [
        (
            "uri-template",
            r#"+ "http://example.com/~{username}/{+path:6}/here{?q,lang*}{#x,hello}"
            + "{;x,y,empty}{/var:1,var}{.dom*}{&x,y}?fixed=yes"
            + "/dictionary/{term:1}/{term}"
            - "http://example.com/resource/{"
            - "{a b}"
            - "{}"
            - "}"
            - "{x:0}"
            - "{{x}}""#,
        ),
        (
            "iri",
            r#"+ "http://ƒøø.ßår/?∂=π#b"
            + "tag:x,2005:y"
            - "not-an-iri"
            - "/âππ"
            - "http:// x"
            - """#,
        ),
        (
            "iri-reference",
            r##"+ "/âππ"
            + ""
            + "#ƒrägmênt"
            - "a b""##,
        ),
        (
            "regex",
            r#"+ "^[a-zA-Z0-9._%+-]+@([a-z]{2,}|\\d{1,3}\\.)(?:com|org)$"
            + "(?=a)[^\\]a-]*?\\u00e9|"
            + ".*"
            + "^([0-9a-f]{2}:){5}([0-9a-f]{2})$"
            - "*"
            - "\\"
            - "a**"
            - "(a"
            - "a)"
            - "[a"
            - "[z-a]"
            - "a{2,1}"
            - "^*""#,
        ),
    ] {
        check(
            &format!(r#"{{"type":"string","format":"{format}"}}"#),
            texts,
        );
    }
}

/// A format's pattern lacks some valid texts. A schema that excludes the format excludes these,
/// too.
#[test]
fn a_format_that_is_excluded_takes_all_its_texts_along() {
    let not = |format: &str| format!(r#"{{"type":"string","not":{{"format":"{format}"}}}}"#);
    for (format, texts) in [
        (
            "time",
            "- \"23:59:60Z\"\n- \"10:00:00z\"\n+ \"10:00\"\n+ \"\"",
        ),
        (
            "date-time",
            "- \"1998-12-31T23:59:60Z\"\n- \"2020-01-01t00:00:00z\"\n+ \"2020-01-01\"",
        ),
        ("duration", "- \"p1d\"\n+ \"1D\""),
        (
            "email",
            "- \"\\\"a b\\\"@example.com\"\n- \"a@[127.0.0.1]\"\n+ \"a b\"",
        ),
        ("hostname", "- \"a--b.com\"\n+ \"a b\"\n+ \"a/b\""),
        ("ipv4", "- \"1.2.3.4\"\n+ \"1.2.3\"\n+ \"256.1.1.1\""),
        ("ipv6", "- \"::\"\n+ \"g::\""),
        ("uri", "- \"http://a:65535\"\n- \"x:\"\n+ \"x\""),
        ("date", "- \"2024-02-29\"\n+ \"2023-02-29\""),
    ] {
        check(&not(format), texts);
    }
    let long = format!("- \"{}com\"", "a.".repeat(40));
    check(&not("hostname"), &long);
    // No text is certain to be invalid in these formats.
    for format in ["uri-reference", "iri-reference", "uri-template", "regex"] {
        assert!(compiled(&not(format), Options::default()).is_err());
    }
    for (schema, texts) in [
        (
            r#"{"type":"string","oneOf":[{"format":"hostname"},{"format":"uri-reference"}]}"#,
            "- \"a--b.com\"\n- \"a.b\"\n+ \"/a\"",
        ),
        (
            r#"{"type":"string","oneOf":[{"format":"email"},{"minLength":1}]}"#,
            "- \"\\\"a b\\\"@example.com\"\n- \"a@b\"\n+ \"a\"",
        ),
        // The two patterns have no text in common, but the format has one with the second pattern.
        (
            r#"{"type":"string","oneOf":[{"format":"time"},{"pattern":":60Z$"}]}"#,
            "- \"23:59:60Z\"\n+ \"23:59:59Z\"\n+ \"a:60Z\"",
        ),
        (
            r#"{"type":"string","if":{"format":"email"},"then":false}"#,
            "- \"\\\"a b\\\"@example.com\"\n+ \"a\"",
        ),
        (
            r#"{"type":"array","contains":{"type":"string","format":"hostname"},"maxContains":1,"maxItems":2}"#,
            "- [\"a.b\",\"a--b.c\"]\n+ [\"a.b\",\"/\"]",
        ),
        (
            r#"{"type":"object","propertyNames":{"not":{"format":"email"}}}"#,
            "- {\"\\\"a b\\\"@example.com\":1}\n+ {\"a\":1}",
        ),
        // A double negation leaves the format itself, with the texts that are certain to be valid.
        (
            r#"{"type":"string","not":{"not":{"format":"time"}}}"#,
            "- \"23:59:60Z\"\n- \"a\"\n+ \"23:59:59Z\"",
        ),
        (
            r#"{"enum":["a--b.com","/","a.b"],"not":{"format":"hostname"}}"#,
            "- \"a--b.com\"\n- \"a.b\"\n+ \"/\"",
        ),
        (
            r#"{"not":{"required":["a"],"properties":{"a":{"format":"email","maxLength":2}}},"properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}"#,
            "- {\"a\":\"@b\"}\n+ {\"a\":\"a@b\"}\n+ {\"a\":\"ab\"}",
        ),
    ] {
        check(schema, texts);
    }
    refused(
        r#"{"type":"object","not":{"not":{"type":"object","propertyNames":{"format":"email"}}}}"#,
        "",
        "not",
    );
}

/// Compares numbers with exponents with their values in double precision.
#[test]
fn numbers_whose_only_bounds_are_zero_may_have_exponents() {
    type Holds = fn(&f64) -> bool;
    let bounds: [(&str, Holds); 5] = [
        (r#""minimum":0"#, |&x| x >= 0.0),
        (r#""exclusiveMinimum":0.0"#, |&x| x > 0.0),
        (r#""maximum":0e3"#, |&x| x <= 0.0),
        (r#""exclusiveMaximum":-0"#, |&x| x < 0.0),
        (r#""not":{"minimum":0}"#, |&x| x < 0.0),
    ];
    let texts = [
        "0", "0.0", "0e5", "0.00E-7", "1e-10", "1.5E+3", "0.25e00", "7", "-1e5", "-0.5e-7", "-2E1",
        "-3",
    ];
    for (bound, holds) in bounds {
        let schema = format!("{{\"type\":\"number\",{bound}}}");
        let grammar = compiled(&schema, Options::default()).expect(&schema);
        for text in texts {
            let number: f64 = text.parse().expect("a number");
            assert_eq!(accepts(&grammar, text), holds(&number), "{schema}: {text}");
        }
        for text in ["1e", "1e100", "-0e1", "1e+", "e5"] {
            assert!(!accepts(&grammar, text), "{schema}: {text}");
        }
    }
    check(r#"{"type":"number","minimum":1}"#, "+ 10\n- 1e1");
    check(
        r#"{"type":"number","minimum":0,"multipleOf":2}"#,
        "+ 10\n- 1e1",
    );
    check(
        r#"{"type":"number","minimum":0,"maximum":0}"#,
        "+ 0\n+ 0E1\n- 1e1\n- -1e1",
    );
    check(r#"{"type":"integer","minimum":0}"#, "+ 10\n- 1e1");
}

#[test]
fn an_exponent_that_is_not_read_is_named() {
    for number in ["1e1001", "-1E-1001"] {
        let schema = format!(r#"{{"type":"string","default":{number}}}"#);
        let said = compiled(&schema, Options::default()).expect_err(&schema);
        assert!(
            said.contains("the exponent of a number is beyond 1000"),
            "{said}"
        );
        assert!(!said.contains("no JSON"), "{said}");
    }
    assert!(compiled(r#"{"type":"string","default":1e1000}"#, Options::default()).is_ok());
}

/// Checks that all escapes of a character, as one or two UTF-16 code units, are accepted wherever
/// the character is.
#[test]
fn escapes_stand_for_their_characters() {
    let class = r"^[ab\u0009\u001f-\u0022\/\u00ff-\u0100\ud7ff\ue000-\uffff\u{10000}\u{103ff}-\u{10400}\u{10bff}-\u{20001}\u{10ffff}]$";
    let dfa = found_in(class, &Work::default()).expect(class);
    let pattern = class.replace('\\', "\\\\");
    let schema = format!(r#"{{"type":"string","pattern":"{pattern}"}}"#);
    let grammar = compiled(&schema, Options::default()).expect(&schema);
    let any = compiled(
        r#"{"type":"string","minLength":1,"maxLength":1}"#,
        Options::default(),
    );
    let any = any.expect("any");
    let edges = [
        0, 8, 0x1E, 0x20, 0x22, 0x2E, 0x5B, 0x60, 0xFE, 0x101, 0xD7FE, 0xDFFF, 0xFFFE, 0x10000,
        0x10001, 0x103FE, 0x10401, 0x107FF, 0x10BFE, 0x10C00, 0x1FFFF, 0x20001, 0x10FBFF, 0x10FFFE,
    ];
    let near = edges
        .iter()
        .flat_map(|&edge: &u32| edge.saturating_sub(1)..=edge + 1);
    for character in near.filter_map(char::from_u32) {
        let is_in = dfa.accepts(&character.to_string());
        let mut units = [0; 2];
        let units = character.encode_utf16(&mut units);
        let lower: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
        let upper: String = units.iter().map(|unit| format!("\\u{unit:04X}")).collect();
        for text in [
            lower,
            upper,
            serde_json::Value::from(character.to_string()).to_string(),
        ] {
            let text = if text.starts_with('"') {
                text
            } else {
                format!("\"{text}\"")
            };
            assert!(accepts(&any, &text), "{text}");
            assert_eq!(accepts(&grammar, &text), is_in, "{text}");
        }
    }
    for half in [
        "\"\\ud800\"",
        "\"\\udfff\"",
        "\"\\ud800\\ud800\"",
        "\"\\udc00\\ud800\"",
    ] {
        assert!(!accepts(&any, half), "{half}");
    }
}

#[test]
fn bounds_that_contradict_each_other_leave_nothing() {
    check(
        r#"{"minLength":2,"maxLength":1}"#,
        "- \"\"\n- \"a\"\n- \"ab\"\n+ 1",
    );
    check(
        r#"{"minItems":2,"maxItems":1}"#,
        "- []\n- [1]\n- [1,2]\n+ 1",
    );
    check(
        r#"{"minProperties":2,"maxProperties":1}"#,
        "- {}\n- {\"a\":1}\n+ 1",
    );
    check(r#"{"minimum":2,"maximum":1}"#, "- 1\n- 2\n+ \"\"");
}

#[test]
fn patterns_are_those_of_ecma() {
    check(
        r#"{"type":"string","pattern":"^[a-c]+\\d{2}$"}"#,
        "+ \"a12\"\n- \"a1\"\n- \"xa12\"\n+ \"\\u0061\\u00312\"\n- \"a١٢\"",
    );
    check(
        r#"{"type":"string","pattern":"b|^c"}"#,
        "+ \"abc\"\n+ \"cx\"\n- \"xc\"\n- \"\"",
    );
    check(
        r#"{"type":"string","pattern":"^a*$","minLength":1,"maxLength":3}"#,
        "- \"\"\n+ \"a\"\n+ \"aaa\"\n- \"aaaa\"",
    );
    for (pattern, yes, no) in [
        (r"^\s$", "\u{FEFF}", "\u{180E}"),
        (r"^\w$", "_", "é"),
        (r"^[^\d]$", "é", "7"),
        (r"^.$", "a", "\u{2028}"),
        (r"^[\]\-&&[]$", "&", "a"),
        (r"^\u{1F600}$", "\u{1F600}", "u"),
        (r"^a{,3}$", "a{,3}", "aa"),
        (r"^(?:a|bc){2,3}?$", "abca", "a"),
        (r"^\p{Lu}$", "É", "é"),
        (r"^[^]$", "\n", ""),
        (r"^\cJ\x41\/$", "\nA/", "A/"),
    ] {
        let dfa = found_in(pattern, &Work::default()).expect(pattern);
        assert!(dfa.accepts(yes) && !dfa.accepts(no), "{pattern}");
    }
    for (pattern, why) in [
        ("(?=a)", "look-ahead"),
        ("(?<!a)", "look-behind"),
        (r"(a)\1", "back references"),
        (r"\bx", "word boundaries"),
        ("(?i)a", "flags"),
        (r"\Z", "no escape"),
        ("a**", "nothing to repeat"),
        ("(a", "without ')'"),
        ("[b-a]", "out of order"),
        ("(?:a{1000}){1000}", "LLAMA_SIEVE_JSON_MAX_PATTERN"),
        ("(.*a.{15})", "LLAMA_SIEVE_JSON_MAX_STATES"),
    ] {
        let said = found_in(pattern, &Work::default()).expect_err(pattern);
        assert!(said.contains(why), "{pattern}: {said}");
    }
}

#[test]
fn references_lead_to_schemas_of_the_text() {
    check(
        r##"{"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#/$defs/n"}},"required":["v"],"additionalProperties":false}},"$ref":"#/$defs/n"}"##,
        "+ {\"v\":1}\n+ {\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3}}}\n- {\"v\":1,\"next\":{}}",
    );
    check(
        r##"{"$id":"http://a/b/c.json","properties":{"x":{"$ref":"d.json#y"},"z":{"$ref":"/e"}},"$defs":{"1":{"$id":"d.json","$defs":{"q":{"$anchor":"y","const":1}}},"2":{"$id":"http://a/e","const":2}}}"##,
        "+ {\"x\":1,\"z\":2}\n- {\"x\":2}\n- {\"z\":1}",
    );
    check(
        r##"{"properties":{"a/b%~":{"const":1},"c":{"$ref":"#/properties/a~1b%25~0"}}}"##,
        "+ {\"c\":1}\n- {\"c\":2}",
    );
    // A reference to an identifier that several schemas have is refused.
    let twice = r##"{"properties":{"x":{"$id":"a","const":1},"y":{"$id":"a","const":2},"z":REF}}"##;
    check(
        &twice.replace("REF", "{}"),
        "+ {\"x\":1,\"y\":2}\n- {\"x\":2}",
    );
    refused(
        &twice.replace("REF", r#"{"$ref":"a"}"#),
        "/properties/z",
        "$ref",
    );
    // Since 2019-09 other keywords in a schema with "$ref" count, too.
    let schema = r##"{"$schema":"DRAFT","definitions":{"a":{"type":"integer"}},"properties":{"x":{"$ref":"#/definitions/a","minimum":5}}}"##;
    check(
        &schema.replace("DRAFT", "http://json-schema.org/draft-07/schema#"),
        "+ {\"x\":1}",
    );
    check(
        &schema.replace("DRAFT", "https://json-schema.org/draft/2020-12/schema"),
        "- {\"x\":1}\n+ {\"x\":5}",
    );
    refused(
        r#"{"properties":{"a":{"$ref":"http://b/c"}}}"#,
        "/properties/a",
        "$ref",
    );
    refused(r##"{"$ref":"#/none"}"##, "", "$ref");
    refused(r##"{"$ref":"#"}"##, "", "$ref");
    refused(r##"{"allOf":[{"$ref":"#"}]}"##, "", "$ref");
}

const DRAFTS: [&str; 5] = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

/// Keywords, each with the index in `DRAFTS` of the first and the last draft that has it.
const KEYWORDS: [(&str, usize, usize); 40] = [
    (r#""prefixItems":[{}]"#, 4, 4),
    (
        r#""prefixItems":[{"const":1}],"items":{"type":"integer"}"#,
        4,
        4,
    ),
    (r#""prefixItems":[{}],"additionalItems":false"#, 4, 4),
    (r#""items":[{}]"#, 0, 3),
    (
        r#""items":[{"type":"integer"}],"prefixItems":[{},{}]"#,
        0,
        3,
    ),
    (r#""items":[{}],"additionalItems":{"type":"integer"}"#, 0, 3),
    (r#""additionalItems":false"#, 0, 4),
    (r#""items":{"type":"integer"}"#, 0, 4),
    (r#""contains":{"enum":[1]}"#, 1, 4),
    (r#""contains":{"enum":[1]},"minContains":2"#, 1, 4),
    (r#""contains":{"enum":[1]},"minContains":0"#, 1, 4),
    (r#""contains":{"type":"integer"},"maxContains":1"#, 1, 4),
    (r#""minContains":2,"maxContains":1"#, 3, 4),
    (r#""const":[2]"#, 1, 4),
    (r#""const":{"a":2}"#, 1, 4),
    (r#""propertyNames":{"maxLength":0}"#, 1, 4),
    (r#""propertyNames":{"enum":["a"]}"#, 1, 4),
    (r#""properties":{"a":{"type":"integer"}}"#, 0, 4),
    (r#""patternProperties":{"^a":{"type":"integer"}}"#, 0, 4),
    (r#""additionalProperties":{"type":"integer"}"#, 0, 4),
    (
        r#""if":{"type":"array"},"then":{"minItems":1},"else":{"minProperties":1}"#,
        2,
        4,
    ),
    (
        r#""if":{"required":["a"]},"then":{"properties":{"b":{}}}"#,
        2,
        4,
    ),
    (r#""then":{"properties":{"a":{}},"items":{}}"#, 2, 4),
    (r#""dependentRequired":{"a":["b"]}"#, 3, 4),
    (r#""dependentSchemas":{"a":{"required":["b"]}}"#, 3, 4),
    (
        r#""dependentSchemas":{"a":{"properties":{"a":{},"b":{}}}}"#,
        3,
        4,
    ),
    (r#""dependencies":{"a":["b"]}"#, 0, 2),
    (
        r#""dependencies":{"a":{"properties":{"a":{},"b":{}},"required":["b"]}}"#,
        0,
        2,
    ),
    (
        r##""definitions":{"x":{"minItems":1}},"$ref":"#/definitions/x","maxItems":1"##,
        0,
        4,
    ),
    (
        r##""definitions":{"x":{"properties":{"a":{}}}},"$ref":"#/definitions/x","items":[{}]"##,
        0,
        3,
    ),
    (
        r##""$defs":{"x":{"required":["a"]}},"$ref":"#/$defs/x","maxProperties":1"##,
        0,
        4,
    ),
    (r##""items":{"$recursiveRef":"#"}"##, 3, 3),
    (r##""properties":{"a":{"$recursiveRef":"#"}}"##, 3, 3),
    (
        r##""$dynamicRef":"#/$defs/x","$defs":{"x":{"properties":{"a":{}},"prefixItems":[{}]}}"##,
        4,
        4,
    ),
    (
        r##""$defs":{"x":{"$anchor":"q","maxItems":1}},"$ref":"#q""##,
        3,
        4,
    ),
    (
        r##""$defs":{"x":{"$dynamicAnchor":"q","maxItems":1}},"$dynamicRef":"#q""##,
        4,
        4,
    ),
    (
        r#""divisibleBy":2,"disallow":"array","extends":{"type":"integer"}"#,
        5,
        5,
    ),
    (r#""exclusiveMinimum":1"#, 1, 4),
    (r#""minimum":1,"exclusiveMinimum":true"#, 0, 0),
    (r#""not":{"type":"integer"}"#, 0, 4),
];

const BESIDE: [&str; 7] = [
    "",
    r#","unevaluatedItems":false"#,
    r#","unevaluatedItems":{"const":2}"#,
    r#","unevaluatedProperties":false"#,
    r#","unevaluatedProperties":{"const":2}"#,
    r#","unevaluatedItems":false,"unevaluatedProperties":false"#,
    r#","unevaluatedItems":7"#,
];

const INSTANCES: [&str; 21] = [
    "0",
    "1",
    "2",
    "\"a\"",
    "[]",
    "[1]",
    "[2]",
    "[1,1]",
    "[1,2]",
    "[2,1]",
    "[\"a\"]",
    "[1,\"a\"]",
    "[[]]",
    "{}",
    "{\"a\":1}",
    "{\"a\":2}",
    "{\"a\":{}}",
    "{\"a\":1,\"b\":1}",
    "{\"b\":1}",
    "{\"b\":2}",
    "{\"a\":2,\"b\":2}",
];

/// Compares a schema with the validator on every instance, and adds those that differ to `differ`.
/// Returns `None` if the schema is refused, or is not valid in its draft.
fn compared(schema: &str, has_keyword: bool, differ: &mut Vec<String>) -> Option<()> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let value = serde_json::from_str(schema).expect(schema);
    compiler.add_resource("http://host/s.json", value).ok()?;
    let index = compiler.compile("http://host/s.json", &mut schemas).ok()?;
    let grammar = match compiled(schema, Options::default()) {
        Ok(grammar) => grammar,
        Err(why) => {
            // A keyword that the draft does not have must not cause a refusal.
            if !has_keyword {
                differ.push(format!("{schema}: {why}"));
            }
            return None;
        }
    };
    for text in INSTANCES {
        let value = serde_json::from_str(text).expect(text);
        let is_valid = schemas.validate(&value, index).is_ok();
        if accepts(&grammar, text) != is_valid {
            differ.push(format!("{schema}: {text}: valid is {is_valid}"));
        }
    }
    Some(())
}

#[test]
fn keywords_that_a_draft_does_not_have_are_without_effect() {
    let (mut n, mut differ) = (0, Vec::new());
    for (place, draft) in DRAFTS.iter().enumerate() {
        for (keyword, first, last) in KEYWORDS {
            let has_keyword = (first..=last).contains(&place);
            // The validator enforces these keywords in later drafts, too.
            if place > last && (keyword.contains("dependencies") || keyword.contains("recursive")) {
                continue;
            }
            for beside in BESIDE {
                let schemas = [
                    format!(r#"{{"$schema":"{draft}",{keyword}{beside}}}"#),
                    format!(r#"{{"$schema":"{draft}","allOf":[{{{keyword}}}]{beside}}}"#),
                ];
                // In the second schema a reference would not find its target.
                let n_schemas = if keyword.contains("#/") { 1 } else { 2 };
                for schema in &schemas[..n_schemas] {
                    n += usize::from(compared(schema, has_keyword, &mut differ).is_some());
                }
            }
        }
    }
    assert!(
        differ.is_empty(),
        "{} differ:\n{}",
        differ.len(),
        differ.join("\n")
    );
    assert!(n > 1500, "{n} schemas were compared");
}

#[test]
fn schemas_are_combined() {
    check(
        r#"{"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"minimum":3},"b":{"type":"null"}}}],"type":"object"}"#,
        "+ {\"a\":3}\n+ {\"a\":4,\"b\":null}\n- {\"a\":2}\n- {\"a\":3,\"b\":1}\n- {}",
    );
    check(
        r#"{"oneOf":[{"multipleOf":2,"type":"integer"},{"multipleOf":3,"type":"integer"}]}"#,
        "+ 2\n+ 9\n- 6\n- 1\n- 0\n+ -4",
    );
    check(
        r#"{"type":"object","properties":{"k":{"enum":["a","b"]}},"required":["k"],"if":{"properties":{"k":{"const":"a"}}},"then":{"required":["x"]},"else":{"properties":{"x":false}}}"#,
        "+ {\"k\":\"a\",\"x\":1}\n- {\"k\":\"a\"}\n+ {\"k\":\"b\"}\n- {\"k\":\"b\",\"x\":1}",
    );
    check(
        r#"{"type":"object","properties":{"a":{},"b":{}},"dependentRequired":{"a":["b"]},"dependentSchemas":{"b":{"properties":{"c":{"type":"null"}}}}}"#,
        "+ {}\n- {\"a\":1}\n+ {\"a\":1,\"b\":2}\n+ {\"b\":2}\n+ {\"b\":1,\"c\":null}\n- {\"b\":1,\"c\":1}\n+ {\"c\":1}",
    );
    check(
        r#"{"not":{"type":["object","array","string"]}}"#,
        "+ 1\n+ null\n- \"\"\n- []",
    );
    check(
        r#"{"type":"string","not":{"anyOf":[{"pattern":"^a"},{"const":"bb"},{"maxLength":1}]}}"#,
        "+ \"bc\"\n- \"ab\"\n- \"bb\"\n- \"b\"\n- \"\\u0062b\"",
    );
    check(
        r#"{"oneOf":[{"properties":{"t":{"const":1}},"required":["t"]},{"properties":{"t":{"const":2}},"required":["t"]}],"type":"object"}"#,
        "+ {\"t\":1}\n+ {\"t\":2,\"u\":3}\n- {\"t\":3}\n- {}",
    );
    refused(r#"{"not":{"uniqueItems":true}}"#, "", "not");
    refused(
        r#"{"x":1,"items":{"uniqueItems":true,"type":"array"}}"#,
        "/items",
        "uniqueItems",
    );
    refused(
        r#"{"type":"object","anyOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}],"unevaluatedProperties":false}"#,
        "",
        "unevaluatedProperties",
    );
    let never = compile(br#"{"type":"string","enum":[1]}"#, Options::default());
    assert!(
        never
            .expect_err("nothing")
            .to_string()
            .contains("no value satisfies it")
    );
}

#[test]
fn options_change_what_is_allowed() {
    let schema =
        r#"{"type":"object","properties":{"a":{"type":"object","properties":{"b":{}}},"c":{}}}"#;
    let with = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        options
    };
    check_with(
        with(|options| options.compact = true),
        schema,
        "+ {\"a\":{\"b\":[1,2]}}\n- {\"a\": 1}\n- { }\n-  {}",
    );
    check_with(
        with(|options| options.closed = true),
        schema,
        "+ {\"a\":{\"b\":1}}\n- {\"d\":1}\n- {\"a\":{\"d\":1}}\n+ {\"c\":{\"d\":1}}",
    );
    check_with(
        with(|options| options.any_order = true),
        schema,
        "+ {\"c\":1,\"a\":{}}\n+ {\"d\":1,\"c\":1,\"a\":{}}\n- {\"c\":1,\"c\":1}\n- {\"a\":1}",
    );
    // If the minimum number of properties is not enforced, objects that reach it are still
    // accepted.
    let any = |options: &mut Options| (options.lenient, options.any_order) = (true, true);
    check_with(
        with(any),
        r#"{"type":"object","properties":{"a":{},"b":{}},"required":["b"],"minProperties":4}"#,
        "+ {\"b\":1,\"x\":1,\"y\":1,\"z\":1}\n+ {\"x\":1,\"a\":1,\"b\":1,\"y\":1}\n- {\"b\":1}",
    );
    let lenient = with(|options| options.lenient = true);
    let (_, left_out) = compile(br#"{"items":{"pattern":"(?=a)b"}}"#, lenient).expect("left out");
    assert_eq!(left_out.len(), 1);
    assert_eq!(
        (&*left_out[0].pointer, &*left_out[0].keyword),
        ("/items", "pattern")
    );
    check(
        schema,
        "+ {\"a\": { } , \"c\" :\t1}\n+  {}\n- {\"c\":1,\"a\":{}}",
    );
    let spaces = |n: usize| format!("+ [{}]\n- [{}]", " ".repeat(n), " ".repeat(n + 1));
    check(r#"{"type":"array"}"#, &spaces(64));
}

/// The other keywords of a schema are enforced if one is left out.
#[test]
fn only_what_is_refused_is_left_out() {
    let lenient = || Options {
        lenient: true,
        ..Options::default()
    };
    for (schema, names, texts) in [
        (
            r#"{"type":"object","properties":{"a":{"type":"null"},"xb":{"type":"null"}},
                "patternProperties":{"^x(?=b)":{"type":"number"},"^y$":{"type":"boolean"}},
                "required":["a"],"additionalProperties":false}"#,
            &["patternProperties", "additionalProperties"][..],
            "+ {\"a\":null}\n+ {\"a\":null,\"xb\":null}\n+ {\"a\":null,\"xbc\":\"s\"}\n- {}\n\
             - {\"a\":1}\n- {\"a\":null,\"y\":null}\n+ {\"a\":null,\"y\":true}",
        ),
        (
            r#"{"type":"array","prefixItems":[{"type":"null"}],"items":[{}],"minItems":2,
                "maxItems":3}"#,
            &["items"],
            "+ [null,1]\n+ [null,\"a\",{}]\n- [null]\n- [1,1]\n- [null,1,1,1]",
        ),
        (
            r#"{"type":"integer","minimum":3,"maximum":"5","multipleOf":2}"#,
            &["maximum"],
            "+ 4\n+ 600\n- 2\n- 5",
        ),
        (
            r#"{"type":"string","minLength":"1","maxLength":2,"pattern":"^a"}"#,
            &["minLength"],
            "+ \"a\"\n+ \"ab\"\n- \"abc\"\n- \"b\"",
        ),
        (
            r#"{"type":"object","properties":{"a":{"type":"null","required":true}},
                "required":"a","minProperties":1,"additionalProperties":false}"#,
            &["required", "required"],
            "+ {\"a\":null}\n- {}\n- {\"a\":1}\n- {\"b\":1}",
        ),
    ] {
        let (_, left_out) = compile(schema.as_bytes(), lenient()).expect("left out");
        let mut told: Vec<&str> = left_out.iter().map(|left| &*left.keyword).collect();
        told.sort_by_key(|told| names.iter().position(|name| name == told));
        assert_eq!(told, names, "{schema}");
        check_with(lenient(), schema, texts);
        assert!(
            compile(schema.as_bytes(), Options::default()).is_err(),
            "{schema}"
        );
    }
}

#[test]
fn texts_that_are_no_schema_are_refused_with_their_place() {
    for (text, why) in [
        ("", "line 1, column 1"),
        (
            "{\"a\":1,\n \"a\":2}",
            "line 2, column 5: the name \"a\" comes twice",
        ),
        ("[1", "expected ',' or ']'"),
        ("{\"type\":\"str\"}", "no type"),
        (
            "{\"minLength\":-1}",
            "keyword \"minLength\": expected a whole number",
        ),
        ("{\"$schema\":\"http://x\"}", "keyword \"$schema\""),
        (
            "{\"type\":\"string\",\"pattern\":\"(\"}",
            "keyword \"pattern\"",
        ),
        ("\"\\ud800\"", "half of a surrogate pair"),
        ("{} x", "expected the end"),
        ("7", "the schema: it must be an object"),
        (
            "{\"prefixItems\":[{}],\"items\":{\"$ref\":\"#/prefixItems/00\"}}",
            "keyword \"$ref\"",
        ),
    ] {
        let refusal = compile(text.as_bytes(), Options::default()).expect_err(text);
        assert!(refusal.to_string().contains(why), "{text}: {refusal}");
    }
    let deep = "{\"not\":".repeat(300);
    let said = compile(deep.as_bytes(), Options::default())
        .expect_err("deep")
        .to_string();
    assert!(said.contains("LLAMA_SIEVE_JSON_MAX_DEPTH"), "{said}");
    assert!(compile(b"\xFF", Options::default()).is_err());
}

#[test]
fn what_is_too_large_among_numbers_is_named() {
    let digits = "1".repeat(100_000);
    for keyword in ["minimum", "maximum", "multipleOf"] {
        let schema = format!(r#"{{"type":"number","{keyword}":{digits}}}"#);
        let refusal = compile(schema.as_bytes(), Options::default()).expect_err(keyword);
        assert_eq!(refusal.keyword, keyword, "{}", refusal.why);
    }
}

#[test]
fn work_on_a_schema_is_bounded() {
    let n = 14;
    let any: Vec<String> = (0..n)
        .map(|i| format!(r#"{{"anyOf":[{{"required":["a{i}"]}},{{"required":["b{i}"]}}]}}"#))
        .collect();
    let wide = format!(r#"{{"type":"object","allOf":[{}]}}"#, any.join(","));
    let said = compile(wide.as_bytes(), Options::default())
        .expect_err("wide")
        .to_string();
    assert!(said.contains("LLAMA_SIEVE_JSON_MAX_WAYS"), "{said}");
    // Complements multiply the alternatives, too.
    let one: Vec<String> = (2..40)
        .map(|n| format!(r#"{{"multipleOf":{n},"minimum":{n},"pattern":"{n}"}}"#))
        .collect();
    let not = format!(r#"{{"not":{{"anyOf":[{}]}}}}"#, one.join(","));
    let said = compile(not.as_bytes(), Options::default()).expect_err("many");
    assert!(
        said.to_string().contains("LLAMA_SIEVE_JSON_MAX_WAYS"),
        "{said}"
    );
    // Names are found by their hashes. Comparing each with all others would take minutes.
    let names: Vec<String> = (0..500_000).map(|n| format!("\"r{n}\"")).collect();
    let names = names.join(",");
    for (schema, limit) in [
        (format!(r#"{{"required":[{names}]}}"#), "ELEMENTS"),
        (format!(r#"{{"not":{{"enum":[{names}]}}}}"#), "STATES"),
        (
            format!(r#"{{"propertyNames":{{"not":{{"enum":[{names}]}}}}}}"#),
            "STATES",
        ),
    ] {
        let said = compile(schema.as_bytes(), Options::default()).expect_err("names");
        let limit = format!("LLAMA_SIEVE_JSON_MAX_{limit}");
        assert!(said.to_string().contains(&limit), "{said}");
    }
    let counts = r#"{"type":"string","pattern":"^(ab|c)+$","maxLength":100000}"#;
    let said = compile(counts.as_bytes(), Options::default())
        .expect_err("long")
        .to_string();
    assert!(said.contains("\"maxLength\""), "{said}");
    // A long repetition is counted, not written out.
    let long = r#"{"type":"string","pattern":"^[a-z]+$","maxLength":1000000}"#;
    assert!(compile(long.as_bytes(), Options::default()).is_ok());
    let many =
        r#"{"type":"array","maxItems":1000000,"items":{"type":"string","maxLength":1000000}}"#;
    assert!(compile(many.as_bytes(), Options::default()).is_ok());
}

/// Compares the order of members with that of the keywords that name them.
#[test]
fn members_are_in_the_order_of_the_keywords() {
    let mut rng = Lcg(24);
    let mut below = |n: usize| ((u64::from(rng.bits()) * n as u64) >> 32) as usize;
    let object = |names: &str| {
        let members: Vec<_> = names.chars().map(|c| format!("\"{c}\":{{}}")).collect();
        format!("{{\"properties\":{{{}}}}}", members.join(","))
    };
    for _ in 0..200 {
        let mut keywords = vec![
            ("ab", "\"properties\":{\"a\":{},\"b\":{}}".to_owned()),
            ("cd", "\"$ref\":\"#/$defs/x\"".to_owned()),
            ("ef", format!("\"allOf\":[{},{}]", object("e"), object("f"))),
            ("gh", format!("\"anyOf\":[{}]", object("gh"))),
            ("ij", format!("\"oneOf\":[{}]", object("ij"))),
        ];
        for i in (1..keywords.len()).rev() {
            keywords.swap(i, below(i + 1));
        }
        keywords.truncate(1 + below(5));
        let order: String = keywords.iter().map(|(names, _)| *names).collect();
        let keywords: Vec<&str> = keywords.iter().map(|(_, keyword)| &**keyword).collect();
        let schema = format!(
            "{{\"type\":\"object\",{},\"$defs\":{{\"x\":{}}}}}",
            keywords.join(","),
            object("cd")
        );
        let grammar = compiled(&schema, Options::default()).expect(&schema);
        let text = |names: &[char]| {
            let members: Vec<_> = names.iter().map(|c| format!("\"{c}\":1")).collect();
            format!("{{{}}}", members.join(","))
        };
        let mut names: Vec<char> = order.chars().filter(|_| below(3) > 0).collect();
        assert!(accepts(&grammar, &text(&names)), "{schema}: {names:?}");
        if names.len() > 1 {
            let i = below(names.len() - 1);
            names.swap(i, i + 1);
            assert!(!accepts(&grammar, &text(&names)), "{schema}: {names:?}");
        }
    }
}

/// Compares the members of random objects with the definition of any order, in both forms: an
/// unordered list, and for GBNF a rule for each set of members.
#[test]
fn members_in_any_order_occur_at_most_once() {
    let options = Options {
        any_order: true,
        ..Options::default()
    };
    let mut rng = Lcg(23);
    let mut below = |n: usize| ((u64::from(rng.bits()) * n as u64) >> 32) as usize;
    let (mut n_accepted, mut n_refused) = (0, 0);
    for round in 0..80 {
        let n = match round % 2 {
            0 => below(6) + 1,
            _ => below(190) + 10,
        };
        let required: Vec<bool> = (0..n).map(|_| below(4) == 0).collect();
        let is_open = below(2) == 0;
        let mut properties: serde_json::Map<_, _> = (0..n)
            .map(|k| (format!("p{k}"), serde_json::json!({"type": "integer"})))
            .collect();
        // Can never be completed, so it is not begun.
        properties.insert(
            "endless".into(),
            serde_json::json!({"$ref": "#/$defs/endless"}),
        );
        let names = (0..n).filter(|&k| required[k]).map(|k| format!("p{k}"));
        let endless = serde_json::json!({"type": "array", "minItems": 1,
            "items": {"$ref": "#/$defs/endless"}});
        let schema = serde_json::json!({"type": "object", "properties": properties,
            "required": names.collect::<Vec<_>>(), "additionalProperties": is_open,
            "$defs": {"endless": endless}})
        .to_string();
        let mut grammars = vec![compiled(&schema, options).expect(&schema)];
        let as_text = written_as(schema.as_bytes(), options, Rc::default(), true);
        assert_eq!(as_text.is_ok(), n < 10, "{schema}");
        if let Ok((written, _)) = as_text {
            let rules = Rules::link(written).expect("small");
            grammars.push(Compiled::new(rules, Arc::new(VocabularyTree::default())));
        }
        for _ in 0..30 {
            let mut members: Vec<usize> =
                (0..n).filter(|&k| required[k] || below(2) == 0).collect();
            for i in (1..members.len()).rev() {
                members.swap(i, below(i + 1));
            }
            if below(3) == 0 && !members.is_empty() {
                match below(3) {
                    0 => drop(members.remove(below(members.len()))),
                    1 => members.push(members[below(members.len())]),
                    _ => members.insert(below(members.len()), n),
                }
            }
            let names: HashSet<usize> = members.iter().copied().collect();
            let is_accepted = names.len() == members.len()
                && (0..n).all(|k| !required[k] || names.contains(&k))
                && (is_open || !names.contains(&n));
            let members: Vec<String> = members.iter().map(|k| format!("\"p{k}\": 1")).collect();
            let text = format!("{{{}}}", members.join(", "));
            for grammar in &grammars {
                assert_eq!(accepts(grammar, &text), is_accepted, "{schema}: {text}");
                let is_begun = followed(grammar, "{\"endless\"").is_some();
                assert!(!is_begun, "{schema}");
            }
            let count = if is_accepted {
                &mut n_accepted
            } else {
                &mut n_refused
            };
            *count += 1;
        }
    }
    assert!(
        n_accepted > 1000 && n_refused > 200,
        "{n_accepted}, {n_refused}"
    );
    let many = (0..11).map(|k| (format!("p{k}"), serde_json::json!(true)));
    let many = serde_json::json!({"properties": many.collect::<serde_json::Map<_, _>>(),
        "minProperties": 3});
    let refusal = compile(many.to_string().as_bytes(), options).expect_err("11 properties");
    assert!(
        refusal.to_string().contains("at most 10 properties"),
        "{refusal}"
    );
}

/// Compares masks, for which tokens of each band of lengths are followed in tables of their own,
/// with following each token's text from the beginning.
#[test]
fn masks_of_long_tokens_are_those_of_their_characters_in_any_order() {
    const N: usize = 80;
    let options = Options {
        any_order: true,
        ..Options::default()
    };
    let properties: serde_json::Map<_, _> = (0..N)
        .map(|k| (format!("p{k}"), serde_json::json!({"type": "integer"})))
        .collect();
    let schema = serde_json::json!({"type": "object", "properties": properties,
        "required": ["p7", "p70"], "additionalProperties": false});
    let mut rng = Lcg(29);
    let mut below = |n: usize| ((u64::from(rng.bits()) * n as u64) >> 32) as usize;
    let mut texts: Vec<String> = (b' '..=b'~').map(|byte| char::from(byte).into()).collect();
    for i in 0..400 {
        let members: Vec<String> = (0..1 + i % 9)
            .map(|_| format!("\"p{}\": {}", below(N), below(20)))
            .collect();
        texts.push(members.join(", ")[i % 3..].into());
        texts.push(format!(", {}", members.join(", ")));
    }
    let tree = tree(texts.clone());
    assert!(tree.bands().len() > 2, "{}", tree.bands().len());
    let rules = compile(schema.to_string().as_bytes(), options).expect("a schema");
    let engine = Arc::new(Engine::new(Compiled::new(rules.0, tree)));
    let (mut n_allowed, mut n_masks) = (0, 0);
    for _ in 0..20 {
        let mut tracker = Tracker::new(Arc::clone(&engine))
            .expect("within limits")
            .expect("a text");
        let (grammar, mut states) = (engine.compiled(), States::default());
        let mut at = states.initial(grammar).expect("within limits");
        let mut next = Some((1 + i32::from(b'{' - b' '), "{"));
        for _ in 0..12 {
            let Some((token, text)) = next else { break };
            assert_eq!(
                tracker.accept([(token, text.as_bytes())].into_iter()),
                Ok(None)
            );
            at = after(&mut states, grammar, at, text);
            let mask = tracker.mask().expect("within limits");
            let mut allowed = Vec::new();
            for (token, text) in (1..).zip(&texts) {
                let is_allowed = after(&mut states, grammar, at, text) != NONE;
                assert_eq!(mask.allows(token), is_allowed, "{text}");
                if is_allowed {
                    allowed.push((token, text.as_str()));
                }
            }
            n_masks += 1;
            n_allowed += allowed.len();
            // Long tokens first, so that the text does not stay within one member.
            allowed.sort_by_key(|(_, text)| std::cmp::Reverse(text.len()));
            next = allowed.get(below(allowed.len().clamp(1, 40))).copied();
        }
    }
    assert!(n_masks > 100 && n_allowed > 1000, "{n_masks}, {n_allowed}");
}

/// Compares names in random spellings with the names that a JSON reader finds in them.
#[test]
fn other_names_are_those_that_no_property_has() {
    const CHARACTERS: [char; 9] = ['a', 'b', ' ', '<', '/', '"', '\u{1F}', 'é', '\u{1F600}'];
    // The characters whose escapes are accepted only where the name can no longer be that of a
    // property.
    let is_plain = |character: char| matches!(character, 'a' | 'b' | ' ');
    let mut rng = Lcg(22);
    let mut below = |n: usize| ((u64::from(rng.bits()) * n as u64) >> 32) as usize;
    let (mut n_others, mut n_properties) = (0, 0);
    for _ in 0..60 {
        let mut name = |most: usize| -> String {
            let length = below(most + 1);
            (0..length)
                .map(|_| CHARACTERS[below(CHARACTERS.len())])
                .collect()
        };
        let names: Vec<String> = (0..6).map(|_| name(3)).collect();
        let others: Vec<String> = (0..40).map(|_| name(4)).collect();
        let properties: serde_json::Map<_, _> = names
            .iter()
            .map(|name| (name.clone(), serde_json::json!({"type": "null"})))
            .collect();
        let schema = serde_json::json!({"type": "object", "properties": properties});
        let grammar = compiled(&schema.to_string(), Options::default()).expect("valid");
        for name in names.iter().chain(&others) {
            let mut spelled = String::new();
            let mut is_accepted = !names.contains(name);
            for (at, character) in name.char_indices() {
                let is_prefix = |other: &String| other.len() > at && other.starts_with(&name[..at]);
                let may_be_a_property = names.iter().any(is_prefix);
                let needs_escape = matches!(character, '"' | '\u{1F}');
                if !needs_escape && below(4) > 0 {
                    spelled.push(character);
                    continue;
                }
                is_accepted &= !(is_plain(character) && may_be_a_property);
                for unit in character.encode_utf16(&mut [0; 2]) {
                    spelled += &format!("\\u{unit:04x}");
                }
            }
            let text = format!("{{\"{spelled}\":1}}");
            let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert!(read.get(name).is_some(), "{text}");
            assert_eq!(accepts(&grammar, &text), is_accepted, "{schema}: {text}");
            n_others += usize::from(is_accepted);
            n_properties += usize::from(names.contains(name));
        }
    }
    assert!(
        n_others > 500 && n_properties > 100,
        "{n_others}, {n_properties}"
    );
}

/// Compares numbers of a few digits with Rust's integers.
#[test]
fn numbers_are_within_their_bounds() {
    let mut rng = Lcg(7);
    let mut below = |n: u64| (u64::from(rng.bits()) * n) >> 32;
    for _ in 0..60 {
        // The bounds, in hundredths.
        let a = below(4000) as i64 - 2000;
        let b = a + below(3000) as i64;
        let shown = |n: i64| {
            let sign = if n < 0 { "-" } else { "" };
            format!("{sign}{}.{:02}", n.abs() / 100, n.abs() % 100)
        };
        let (low, high) = match below(4) {
            0 => ("minimum", "maximum"),
            1 => ("exclusiveMinimum", "maximum"),
            2 => ("minimum", "exclusiveMaximum"),
            _ => ("exclusiveMinimum", "exclusiveMaximum"),
        };
        let step = [0, 1, 5, 25, 30, 100, 300][below(7) as usize];
        let multiple = match step {
            0 => String::new(),
            step => format!(r#","multipleOf":{}"#, shown(step)),
        };
        let kind = ["integer", "number"][below(2) as usize];
        let schema = format!(
            r#"{{"type":"{kind}","{low}":{},"{high}":{}{multiple}}}"#,
            shown(a),
            shown(b)
        );
        let is_in = |n: i64| {
            (if low == "minimum" { n >= a } else { n > a })
                && (if high == "maximum" { n <= b } else { n < b })
                && (step == 0 || n % step == 0)
        };
        let compiled = compiled(&schema, Options::default());
        let Ok(grammar) = compiled else {
            let none = (-3000..6000).filter(|n| kind == "number" || n % 100 == 0);
            assert!(!none.into_iter().any(is_in), "{schema}");
            continue;
        };
        for n in -2100..5100 {
            let text = shown(n);
            let is_number = kind == "number" && is_in(n) && !(n == 0 && text.starts_with('-'));
            assert_eq!(accepts(&grammar, &text), is_number, "{schema}: {text}");
            if n % 100 == 0 {
                let text = (n / 100).to_string();
                assert_eq!(accepts(&grammar, &text), is_in(n), "{schema}: {text}");
            }
        }
    }
    check(
        r#"{"type":"integer","minimum":123456789012345678901234567890,"maximum":123456789012345678901234567899}"#,
        "+ 123456789012345678901234567890\n- 123456789012345678901234567889\n- 1234567890123456789012345678900",
    );
}

#[test]
fn decimals_compare_as_numbers_do() {
    let texts = [
        "0", "-0.0", "1", "1.0", "10e-1", "0.1", "-0.1", "100", "1e2", "99.99", "-5", "1E1",
    ];
    for a in texts {
        for b in texts {
            let (x, y) = (Decimal::read(a).expect(a), Decimal::read(b).expect(b));
            let expected = a.parse::<f64>().expect(a).partial_cmp(&b.parse().expect(b));
            assert_eq!(Some(x.cmp(&y)), expected, "{a} {b}");
        }
        let plain = Decimal::read(a).expect(a).plain();
        assert_eq!(
            plain.parse::<f64>(),
            a.parse::<f64>().map(|n| n + 0.0),
            "{a}"
        );
    }
}

/// Converts a value to a value of `serde_json`.
fn as_serde(document: &Document, id: JsonId) -> serde_json::Value {
    match document.get(id) {
        Json::Null => serde_json::Value::Null,
        Json::Bool(value) => (*value).into(),
        Json::Number(_, text) => serde_json::from_str(text).expect("a number"),
        Json::String(text) => (**text).into(),
        Json::Array(all) => all.iter().map(|&id| as_serde(document, id)).collect(),
        Json::Object(all) => {
            let members = all
                .iter()
                .map(|(name, id)| (name.to_string(), as_serde(document, *id)));
            serde_json::Value::Object(members.collect())
        }
    }
}

/// Damaged texts are read as `serde_json` reads them, except for repeated names.
#[test]
fn texts_are_read_as_serde_json_reads_them() {
    let text = r#" {"a": [1, -2.5e+3, 0, true, false, null, "x\n\u00e9\uD83D\uDE00\\\/\""], "b": {} , "":[]} "#;
    let mut rng = Lcg(3);
    let mut below = |n: usize| ((u64::from(rng.bits()) * n as u64) >> 32) as usize;
    let mut n_read = 0;
    for _ in 0..20_000 {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..below(3) {
            let at = below(bytes.len());
            match below(3) {
                0 => {
                    bytes.remove(at);
                }
                1 => bytes[at] = b"{}[]\",:\\0e1-. unt"[below(17)],
                _ => bytes.insert(at, b"{}[]\",:\\0e1-. unt"[below(17)]),
            }
        }
        let theirs = serde_json::from_slice::<serde_json::Value>(&bytes);
        match read(&bytes, Repeated::Refused) {
            Ok(document) => {
                n_read += 1;
                let shown = String::from_utf8_lossy(&bytes);
                // `serde_json` refuses numbers that are too large for it.
                match theirs {
                    Ok(theirs) => assert_eq!(as_serde(&document, document.root), theirs, "{shown}"),
                    Err(error) => assert!(error.to_string().contains("out of range"), "{shown}"),
                }
            }
            Err(refusal) => {
                let why = refusal.to_string();
                let is_ours = why.contains("comes twice");
                assert!(
                    theirs.is_err() || is_ours,
                    "{}: {why}",
                    String::from_utf8_lossy(&bytes)
                );
            }
        }
    }
    assert!(n_read > 5000, "{n_read} were read");
}

#[test]
fn automata_are_closed_under_what_is_done_with_them() {
    let texts = ["", "a", "b", "ab", "aab", "abab", "bbb", "ba"];
    let patterns = ["^a*b*$", "ab", "^(ab)*$", "b$", "^.{2,3}$"];
    let work = &Work::default();
    let of = |pattern: &str| found_in(pattern, work).expect(pattern);
    for x in patterns {
        for y in patterns {
            let (both, either) = (of(x).and(&of(y), work), of(x).or(&of(y), work));
            let (without, long) = (of(x).minus(&of(y), work), of(x).of_length(1, Some(3), work));
            for text in texts {
                let (a, b) = (of(x).accepts(text), of(y).accepts(text));
                let has = |dfa: &Result<Dfa, _>| dfa.as_ref().expect("small").accepts(text);
                let has_minimized = |dfa: &Result<Dfa, _>| {
                    dfa.clone().expect("small").minimized(work).accepts(text)
                };
                for has in [
                    &has as &dyn Fn(&Result<Dfa, super::work::TooLarge>) -> bool,
                    &has_minimized,
                ] {
                    assert_eq!(has(&both), a && b, "{x} {y} {text}");
                    assert_eq!(has(&either), a || b, "{x} {y} {text}");
                    assert_eq!(has(&without), a && !b, "{x} {y} {text}");
                    assert_eq!(has(&long), a && (1..=3).contains(&text.len()), "{x} {text}");
                }
            }
        }
    }
}

/// Schemas of a few hundred bytes that would otherwise take minutes, or gigabytes of memory.
#[test]
fn what_takes_too_many_steps_is_refused() {
    let letters = "abcdefghijklmnopqrstuvwxyzABCDEF";
    let by_letter = |schema: &dyn Fn(usize) -> String| {
        let patterns = letters.chars().enumerate();
        let patterns: Vec<String> = patterns
            .map(|(i, c)| format!("\"{c}\":{}", schema(i)))
            .collect();
        format!("{{\"patternProperties\":{{{}}}}}", patterns.join(","))
    };
    let of_each = |n: usize, schema: &dyn Fn(usize) -> String| {
        (0..n).map(schema).collect::<Vec<_>>().join(",")
    };
    let tagged =
        |i: usize| format!("{{\"properties\":{{\"k\":{{\"const\":{i}}}}},\"required\":[\"k\"]}}");
    // Each definition refers to the next one a hundred times.
    let levels = of_each(8, &|level| {
        let next = of_each(100, &|i| {
            format!("\"p{i}\":{{\"$ref\":\"#/$defs/{}\"}}", level + 1)
        });
        let names = of_each(100, &|i| format!("\"p{i}\""));
        format!(
            "\"{level}\":{{\"type\":\"object\",\"properties\":{{{next}}},\"required\":[{names}]}}"
        )
    });
    for (schema, is_made) in [
        (by_letter(&|i| format!("{{\"const\":{i}}}")), false),
        (by_letter(&|i| format!("{{\"minimum\":{i}}}")), false),
        (format!("{{\"oneOf\":[{}]}}", of_each(500, &tagged)), true),
        (format!("{{\"oneOf\":[{}]}}", of_each(2000, &tagged)), false),
        (
            format!(
                "{{\"oneOf\":[{}]}}",
                of_each(1000, &|i| format!("{{\"enum\":[{i},{},{}]}}", i + 1, i + 2))
            ),
            false,
        ),
        (
            format!("{{\"anyOf\":[{}]}}", of_each(20_000, &tagged)),
            false,
        ),
        (
            format!(
                "{{\"$defs\":{{{levels},\"8\":{{\"type\":\"null\"}}}},\"oneOf\":[{{\"$ref\":\"#/$defs/0\"}},{{\"$ref\":\"#/$defs/0\"}}]}}"
            ),
            false,
        ),
    ] {
        let start = &schema[..schema.len().min(100)];
        match compile(schema.as_bytes(), Options::default()) {
            Ok(_) => assert!(is_made, "{start}"),
            Err(refusal) => {
                assert!(!is_made, "{start}: {refusal}");
                assert!(
                    refusal.why.contains("LLAMA_SIEVE_JSON_MAX_"),
                    "{start}: {refusal}"
                );
            }
        }
    }
}

/// Schemas that nest, or refer to each other, as deep as the limits allow, on a stack of the size
/// that the header names. With a sanitizer, functions need several times as much.
#[test]
fn deep_schemas_take_a_bounded_stack() {
    let nested =
        |n: usize, open: &str, close: &str| format!("{}true{}", open.repeat(n), close.repeat(n));
    const DEPTH: usize = MAX_SCHEMA_DEPTH - 1;
    let mut schemas: Vec<String> = [
        "items",
        "not",
        "additionalProperties",
        "propertyNames",
        "if",
    ]
    .iter()
    .map(|keyword| nested(DEPTH, &format!("{{\"{keyword}\":"), "}"))
    .collect();
    for keyword in ["allOf", "anyOf", "oneOf", "prefixItems"] {
        schemas.push(nested(DEPTH / 2, &format!("{{\"{keyword}\":["), "]}"));
    }
    // These need the most stack.
    let then = ",\"then\":{\"type\":\"null\"}}";
    schemas.push(nested(
        DEPTH / 2,
        "{\"if\":{\"propertyNames\":",
        &format!("}}{then}"),
    ));
    schemas.push(nested(
        DEPTH / 4,
        "{\"propertyNames\":{\"if\":{\"if\":{\"if\":",
        &format!("{}}}", then.repeat(3)),
    ));
    schemas.push(format!("{{\"const\":{}}}", nested(DEPTH - 1, "[", "]")));
    schemas.push("[".repeat(300));
    let chain: Vec<String> = (0..99)
        .map(|i| format!("\"{i}\":{{\"$ref\":\"#/$defs/{}\"}}", i + 1))
        .collect();
    schemas.push(format!(
        "{{\"$ref\":\"#/$defs/0\",\"$defs\":{{{},\"99\":{{\"type\":\"null\"}}}}}}",
        chain.join(",")
    ));
    let stack = if cfg!(sanitized) { 4 << 20 } else { 512 << 10 };
    let read = std::thread::Builder::new()
        .stack_size(stack)
        .spawn(move || {
            let made = schemas
                .iter()
                .map(|schema| compile(schema.as_bytes(), Options::default()));
            made.filter(Result::is_ok).count()
        });
    assert!(read.expect("a thread").join().expect("no panic") >= 5);
}
