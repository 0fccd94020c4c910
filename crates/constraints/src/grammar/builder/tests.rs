use super::*;

fn alternatives(texts: &[&str]) -> Rules {
    let mut builder = Builder::default();
    let texts = texts.iter().map(|text| builder.text(text).expect("few"));
    let texts: Vec<_> = texts.collect();
    let whole = builder.alternatives(texts).expect("few");
    builder.rules(whole).expect("few")
}

#[test]
fn what_alternatives_begin_with_is_written_once() {
    let rules = alternatives(&["abcd", "abce", "abd", "ab", "abcd"]);
    // The root, the rest after "ab", and the rest after "abc".
    assert_eq!(rules.alternatives.len(), 3);
    let few = rules.sequences.len();
    assert!(few <= 9, "{few}");
    let n = 1000;
    let texts: Vec<String> = (0..n).map(|i| format!("the same beginning {i}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let many = alternatives(&texts);
    assert!(many.sequences.len() < 1300, "{}", many.sequences.len());
}

#[test]
fn alternatives_nest_as_deep_as_texts_are_long() {
    let text = "a".repeat(3000);
    let texts: Vec<&str> = (0..3000).map(|n| &text[..n]).collect();
    let rules = alternatives(&texts);
    assert!(rules.may_be_empty(rules.alternatives.get(rules.root)[0]));
}

#[test]
fn limits_are_told_by_their_names() {
    let mut builder = Builder::default();
    let item = builder.text("a").expect("few");
    let too_many = builder.repeat(item, false, (0, Some(MAX_REPETITIONS + 1)));
    assert_eq!(too_many, Err(TooLarge::Repetitions));
    let text = TooLarge::Repetitions.to_string();
    assert!(
        text.contains("LLAMA_SIEVE_GRAMMAR_MAX_REPETITIONS"),
        "{text}"
    );
    let long = "b".repeat(MAX_ELEMENTS);
    let long = builder.text(&long).expect("one class");
    assert_eq!(builder.optional(long), Err(TooLarge::Elements));
    for _ in 0..MAX_RULES {
        if builder.declare().is_err() {
            return;
        }
    }
    assert_eq!(builder.declare(), Err(TooLarge::Rules));
}
