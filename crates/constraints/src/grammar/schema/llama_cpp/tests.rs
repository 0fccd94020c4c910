//! Tests refusals, and bounds on work and stack. `tests/schema` compares the language with
//! llama.cpp's own converter.

use super::literal::{Number, number, quoted};
use super::names::{escaped, joined, rule_name};
use crate::grammar::schema::{Options, compile};

const LLAMA_CPP: Options = Options {
    compact: false,
    closed: false,
    any_order: false,
    lenient: false,
    llama_cpp: true,
};

fn refused(schema: &str, pointer: &str, keyword: &str) {
    let refusal = compile(schema.as_bytes(), LLAMA_CPP).expect_err(schema);
    assert_eq!(
        (&*refusal.pointer, &*refusal.keyword),
        (pointer, keyword),
        "{refusal}"
    );
}

fn said(schema: &str) -> String {
    let refusal = compile(schema.as_bytes(), LLAMA_CPP);
    refusal.expect_err(schema).to_string()
}

#[test]
fn a_schema_is_refused_with_its_place_and_keyword() {
    refused("true", "", "");
    refused(
        r#"{"properties":{"a":true}}"#,
        "/properties/a",
        "properties",
    );
    refused(r#"{"items":[{},7]}"#, "/items/1", "items");
    refused(r#"{"anyOf":[]}"#, "", "anyOf");
    refused(r#"{"oneOf":{"a":1}}"#, "", "oneOf");
    refused(r#"{"type":[]}"#, "", "type");
    refused(
        r#"{"properties":{"a":{"type":"text"}}}"#,
        "/properties/a",
        "type",
    );
    refused(r#"{"enum":[]}"#, "", "enum");
    refused(r#"{"properties":[]}"#, "", "properties");
    refused(r#"{"additionalProperties":7}"#, "", "additionalProperties");
    refused(r#"{"type":"string","format":1}"#, "", "format");
    refused(r#"{"minLength":-1}"#, "", "minLength");
    refused(r#"{"type":"array","maxItems":2147483648}"#, "", "maxItems");
    refused(r#"{"minLength":3,"maxLength":2}"#, "", "maxLength");
    refused(r#"{"items":{},"minItems":3,"maxItems":2}"#, "", "maxItems");
    refused(
        r#"{"type":"integer","exclusiveMinimum":true}"#,
        "",
        "exclusiveMinimum",
    );
    refused(r#"{"type":"integer","minimum":1e30}"#, "", "minimum");
    refused(
        r#"{"type":"integer","exclusiveMinimum":9223372036854775807}"#,
        "",
        "exclusiveMinimum",
    );
    refused(
        r#"{"type":"integer","minimum":5,"maximum":4}"#,
        "",
        "maximum",
    );
    refused(
        r#"{"type":"integer","minimum":2000000000000000}"#,
        "",
        "minimum",
    );
    refused(r##"{"items":{"$ref":"other#/a"}}"##, "/items", "$ref");
    refused(r##"{"items":{"$ref":"#/$defs/a"}}"##, "/items", "$ref");
    refused(r##"{"$ref":"#/a","a":{"$ref":"#/a"}}"##, "/a", "$ref");
    refused(
        r##"{"allOf":[{"$ref":"#/a"}],"a":{"$ref":"#/a"}}"##,
        "",
        "allOf",
    );
    refused(r#"{"items":{"pattern":"^(a$"}}"#, "/items", "pattern");
    refused(r#"{"pattern":"^(a|)*$"}"#, "", "pattern");
    refused(r#"{"pattern":"^\u0000$"}"#, "", "pattern");
    refused(
        r#"{"properties":{"a]":{}},"additionalProperties":true}"#,
        "",
        "additionalProperties",
    );
    refused(r#"{"enum":[1e999]}"#, "", "enum");
}

#[test]
fn what_no_text_follows_is_refused() {
    let endless = r##"{"$ref":"#/a","a":{"properties":{"a":{"$ref":"#/a"}},"required":["a"]}}"##;
    assert!(said(endless).contains("no value satisfies it"));
}

#[test]
fn a_pattern_that_is_any_string_is_told() {
    let schema = r#"{"items":{"pattern":"^\\d$"}}"#;
    let (_, left_out) = compile(schema.as_bytes(), LLAMA_CPP).expect(schema);
    let [refusal] = &*left_out else {
        panic!("{left_out:?}");
    };
    assert_eq!(
        (&*refusal.pointer, &*refusal.keyword),
        ("/items", "pattern")
    );
    assert!(refusal.why.contains("any string"), "{refusal}");
}

#[test]
fn no_other_option_goes_with_it() {
    for (options, name) in [
        (
            Options {
                compact: true,
                ..LLAMA_CPP
            },
            "COMPACT",
        ),
        (
            Options {
                closed: true,
                ..LLAMA_CPP
            },
            "CLOSED",
        ),
        (
            Options {
                any_order: true,
                ..LLAMA_CPP
            },
            "ANY_ORDER",
        ),
        (
            Options {
                lenient: true,
                ..LLAMA_CPP
            },
            "LENIENT",
        ),
    ] {
        let said = compile(b"{}", options).expect_err(name).to_string();
        assert!(said.contains(name) && said.contains("LLAMA_CPP"), "{said}");
    }
}

/// Schemas on which llama.cpp's converter does not terminate, or needs memory without bound.
#[test]
fn work_is_bounded() {
    let steps = "LLAMA_SIEVE_JSON_MAX_STEPS";
    let endless =
        r##"{"allOf":[{"$ref":"#/b"}],"b":{"properties":{"x":{"allOf":[{"$ref":"#/b"}]}}}}"##;
    assert!(said(endless).contains(steps));
    let types = r#""type":["object","object","object","object"]"#;
    let wide = format!(
        "{}{{}}{}",
        format!("{{{types},\"properties\":{{\"a\":").repeat(20),
        "}}".repeat(20)
    );
    assert!(said(&wide).contains(steps));
    // Each name contains the name of the object around it.
    let long = format!("{{\"properties\":{{\"{}\":", "a".repeat(100_000));
    let long = format!("{}{{}}{}", long.repeat(60), "}}".repeat(60));
    assert!(said(&long).contains(steps));
    let deep = format!(r#"{{"pattern":"^a{}$"}}"#, "?{2}".repeat(1000));
    assert!(said(&deep).contains("LLAMA_SIEVE_JSON_MAX_GROUPS"));
    let many = format!(r#"{{"pattern":"^{}$"}}"#, "(ab){2}[cd]{3}".repeat(2000));
    assert!(compile(many.as_bytes(), LLAMA_CPP).is_ok());
    let counts = r#"{"items":{"maxLength":1000000},"minItems":3000,"maxItems":1000000}"#;
    assert!(compile(counts.as_bytes(), LLAMA_CPP).is_ok());
}

#[test]
fn deep_schemas_take_a_bounded_stack() {
    let nested =
        |n: usize, open: &str, close: &str| format!("{}{{}}{}", open.repeat(n), close.repeat(n));
    let mut schemas = vec![
        nested(120, "{\"items\":", "}"),
        nested(120, "{\"additionalProperties\":", "}"),
        nested(60, "{\"anyOf\":[", "]}"),
        nested(60, "{\"prefixItems\":[", "]}"),
        format!("{{\"const\":{}}}", nested(120, "[", "]")),
        format!(
            "{{\"type\":{}\"null\"{}}}",
            "[".repeat(120),
            "]".repeat(120)
        ),
        format!(
            "{{\"pattern\":\"^{}a{}$\"}}",
            "(".repeat(100),
            "){2}".repeat(100)
        ),
    ];
    // A long chain of references.
    let chain: Vec<String> = (0..20_000)
        .map(|i| format!("\"{i}\":{{\"items\":{{\"$ref\":\"#/$defs/{}\"}}}}", i + 1))
        .collect();
    schemas.push(format!(
        "{{\"$ref\":\"#/$defs/0\",\"$defs\":{{{},\"20000\":{{}}}}}}",
        chain.join(",")
    ));
    let stack = if cfg!(sanitized) { 4 << 20 } else { 512 << 10 };
    let read = std::thread::Builder::new()
        .stack_size(stack)
        .spawn(move || {
            for schema in schemas {
                if let Err(refusal) = compile(schema.as_bytes(), LLAMA_CPP) {
                    panic!("{refusal}");
                }
            }
        });
    read.expect("a thread").join().expect("no panic");
}

#[test]
fn names_are_made_of_letters_digits_and_dashes() {
    assert_eq!(escaped("a_b \u{e9}\u{65e5}-c"), "a-b--c");
    assert_eq!(&*joined("", "a"), "a");
    assert_eq!(&*joined("a", ""), "a-");
    assert_eq!(&*rule_name(&"".into()), "root");
    assert_eq!(&*rule_name(&"root".into()), "root-");
    assert_eq!(&*rule_name(&"date-time".into()), "date-time-");
    assert_eq!(&*rule_name(&"date_time".into()), "date_time");
}

#[test]
fn numbers_and_strings_are_those_of_json() {
    assert_eq!(number("-0"), Some(Number::Integer(0)));
    assert_eq!(
        number("18446744073709551615"),
        Some(Number::Integer(u64::MAX.into()))
    );
    assert_eq!(
        number("18446744073709551616"),
        Some(Number::Float(2_f64.powi(64)))
    );
    assert_eq!(number("1.0"), Some(Number::Float(1.0)));
    assert_eq!(number("1e400"), None);
    assert_eq!(
        quoted("\"\\/\n\u{1}\u{7f}\u{e9}"),
        "\"\\\"\\\\/\\n\\u0001\u{7f}\u{e9}\""
    );
}
