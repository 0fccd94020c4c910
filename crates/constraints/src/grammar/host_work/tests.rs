//! Tests which texts llama.cpp's constructor is called for.

use crate::grammar::parser::{Repetitions, parse};

/// True if llama.cpp's constructor may be called with this text.
fn is_asked(text: &str) -> bool {
    let rules = parse(text.as_bytes(), b"root", Repetitions::AsLlamaCpp, |_| {
        Some(0)
    })
    .expect("ours reads it");
    rules.about.host_comes_back
}

#[test]
fn grammars_that_programs_use_are_judged() {
    let names = |n: usize| (0..n).map(|i| format!("\"name {i}\"")).collect::<Vec<_>>();
    let properties = |n: usize| {
        let one = |i| format!("p{i} ::= \"\\\"p{i}\\\":\" (\"x\"{{0,100}} | \"null\")\n");
        let all = (0..n).map(|i| format!("(\",\" p{i})?"));
        let rules = (0..n).map(one).collect::<String>();
        format!(
            "root ::= \"{{\" {} \"}}\"\n{rules}",
            all.collect::<Vec<_>>().join(" ")
        )
    };
    for text in [
        "root ::= \"a\"".to_owned(),
        format!("root ::= {}", names(4000).join(" | ")),
        "root ::= [a-z]{0,2000} (\"b\" [c]{2,}){3,600}".to_owned(),
        "root ::= (\"a\" | \"b\"?) \"c\"* (\"d\" | )".to_owned(),
        "root ::= \"(\" root \")\" | \"x\"".to_owned(),
        properties(500),
        format!("root ::= {}\"x\"{}", "(".repeat(900), ")".repeat(900)),
    ] {
        assert!(is_asked(&text), "{}", &text[..text.len().min(200)]);
    }
}

#[test]
fn what_the_host_may_not_come_back_from_is_not() {
    let chain = |n: usize| {
        let rules = (0..n).map(|i| format!("r{i} ::= r{} \"x\"\n", i + 1));
        format!("root ::= r0\n{}r{n} ::= \"y\"", rules.collect::<String>())
    };
    // Each rule begins with the next in two ways.
    let twice = |n: usize| {
        let rules = (0..n).map(|i| format!("r{i} ::= r{0} \"x\" | r{0} \"y\"\n", i + 1));
        format!("root ::= r0\n{}r{n} ::= \"y\"", rules.collect::<String>())
    };
    for text in [
        format!("root ::= {}\"x\"{}", "(".repeat(1001), ")".repeat(1001)),
        chain(1000),
        twice(13),
        // A repetition of something that may be empty: older builds never return.
        "root ::= (\"a\"?)*".to_owned(),
        "root ::= (\"a\"?){2,3}".to_owned(),
        "root ::= a+\na ::= b c\nb ::= \"x\"?\nc ::= | \"y\"".to_owned(),
        // Needs memory without bound.
        format!("root ::= \"{}\"{{2000}}", "a".repeat(1000)),
        format!("root ::= \"{}\"{{0,2000}}", "a".repeat(600)),
        format!(
            "root ::= {}",
            (0..5000)
                .map(|i| format!("\"{i}\""))
                .collect::<Vec<_>>()
                .join(" | ")
        ),
    ] {
        assert!(!is_asked(&text), "{}", &text[..text.len().min(200)]);
    }
    assert!(is_asked(&chain(990)));
    assert!(is_asked(&twice(12)));
}
