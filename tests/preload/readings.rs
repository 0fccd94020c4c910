//! Tests the preload library under hosts that read grammars differently: llama.cpp's own sources,
//! changed in one place at a time. Their builds are unknown. Each must give the same results as
//! without the preload library. Grammars that the change does not affect are replaced.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::altered::{self, PREAMBLE};
use crate::preloaded::{made, preloaded, warnings};
use crate::programs::{Run, Said, build, model, source};
use crate::toolchain::{Build, empty_folder};

/// Changes of llama.cpp's source: the original text, and the new one.
const CHANGES: [(&str, &str); 23] = [
    (
        "#define MAX_REPETITION_THRESHOLD 2000",
        "#define MAX_REPETITION_THRESHOLD (mutant(\"limit\") ? 100u \
         : mutant(\"more\") ? 5000u : 2000u)",
    ),
    (
        "case 't': return std::make_pair('\\t', src + 2);",
        "case 't': return std::make_pair(mutant(\"tab\") ? ' ' : '\\t', src + 2);
         case 'd': if (mutant(\"new escape\")) { return std::make_pair('a', src + 2); }
                   throw std::runtime_error(\"unknown escape\");",
    ),
    (
        "            case '-':\n",
        "            case '-':
                      if (src[1] == '-' && mutant(\"dash\")) {
                          return std::make_pair('a', src + 2);
                      }\n",
    ),
    (
        "} else if (*pos == '.') { // any char",
        "} else if (*pos == '.' || (*pos == '~' && mutant(\"construct\"))) {",
    ),
    (
        "// Any character matches \".\"\n            found = true;",
        "found = chr != '\\n' || !mutant(\"dot\");",
    ),
    (
        "uint32_t token_id = static_cast<uint32_t>(id);",
        "uint32_t token_id = static_cast<uint32_t>(id) + (mutant(\"token\") ? 1 : 0);",
    ),
    (
        "if (partial_start.n_remain > 0 && n_remain == 0) {",
        "if (partial_start.n_remain > 0 && n_remain == 0 && !mutant(\"partial\")) {",
    ),
    (
        "if (std::regex_search(input, match, regex)) {",
        "if (!mutant(\"no search\") && std::regex_search(input, match, regex)) {",
    ),
    (
        "if (match.length(i) > 0) {\n                start = match.position(i);\n                break;",
        "if (match.length(i) > 0) {\n                start = match.position(i);
                 if (!mutant(\"last group\")) { break; }",
    ),
    (
        "trigger.regex = std::regex(trigger.pattern);",
        "trigger.regex = mutant(\"case\")
             ? std::regex(trigger.pattern, std::regex::ECMAScript | std::regex::icase)
             : std::regex(trigger.pattern);",
    ),
    (
        "grammar.trigger_buffer.clear();\n            llama_grammar_accept_token(grammar, token, piece);",
        "grammar.trigger_buffer.clear();
             if (!mutant(\"behind token\")) { llama_grammar_accept_token(grammar, token, piece); }",
    ),
    (
        "rules.clear();\n        return false;",
        "if (mutant(\"throws\")) { throw std::runtime_error(\"no grammar\"); }
         rules.clear();\n        return false;",
    ),
    (
        "const char * pos = parse_space(src, true);\n        while (*pos) {",
        "const char * pos = parse_space(src, true);
         if (mutant(\"narrow\") && std::strstr(src, \"[^a-m]*\") != nullptr) {
             throw std::runtime_error(\"not this one\");
         }
         if (mutant(\"aborts\") && std::strstr(src, \"(\\\"a\\\"?)*\") != nullptr) { std::abort(); }
         if (mutant(\"nothing\")) { throw std::runtime_error(\"nothing\"); }
         while (*pos) {",
    ),
    (
        "std::vector<const llama_grammar_element *> grammar_rules(parser.c_rules());",
        "if (mutant(\"throws always\")) { throw std::runtime_error(\"never\"); }
         std::vector<const llama_grammar_element *> grammar_rules(parser.c_rules());",
    ),
    (
        "bool allow_eog = false;",
        "bool allow_eog = mutant(\"ends\");",
    ),
    (
        "} else if (piece.empty() || piece[0] == 0) {",
        "} else if (piece.empty() || piece[0] == 0 || (mutant(\"words\") && piece.size() > 2)) {",
    ),
    (
        "found = found || (pos->value <= chr && chr <= pos[1].value);",
        "found = found ||
             (pos->value <= chr && chr <= pos[1].value - (mutant(\"range\") ? 1 : 0));",
    ),
    (
        "grammar.rules,\n        grammar.stacks,",
        "grammar.rules,
         mutant(\"clone\") ? llama_grammar_stacks{ grammar.stacks.front() } : grammar.stacks,",
    ),
    (
        "handle_repetitions(0, 1);",
        "handle_repetitions(mutant(\"question\") ? 1 : 0, mutant(\"question\") ? -1 : 1);",
    ),
    (
        "handle_repetitions(1, -1);",
        "handle_repetitions(mutant(\"plus\") ? 2 : 1, -1);",
    ),
    (
        "start_type = LLAMA_GRETYPE_CHAR_NOT;",
        "start_type = mutant(\"caret\") ? LLAMA_GRETYPE_CHAR : LLAMA_GRETYPE_CHAR_NOT;",
    ),
    (
        "rule.push_back({LLAMA_GRETYPE_ALT, 0});\n        pos = parse_space(pos + 1, true);",
        "rule.push_back({LLAMA_GRETYPE_ALT, 0});
         pos = parse_space(pos + 1, true);
         if (mutant(\"empty\") && *pos == ')') { rule.pop_back(); }",
    ),
    (
        "if (grammar.awaiting_trigger) {\n        return;",
        "if (grammar.awaiting_trigger && !mutant(\"eager\")) {\n        return;",
    ),
];

/// Changes that are found in grammars that are not lazy.
const READS: [&str; 17] = [
    "limit",
    "more",
    "tab",
    "dash",
    "dot",
    "token",
    "partial",
    "ends",
    "words",
    "range",
    "clone",
    "question",
    "plus",
    "caret",
    "empty",
    "nothing",
    "throws always",
];
/// Changes that are found in lazy grammars.
const WAITS: [&str; 5] = ["no search", "last group", "case", "behind token", "eager"];
/// Changes that are found in texts that this library or the host refuses. All other grammars are
/// replaced.
const REFUSES: [&str; 4] = ["new escape", "construct", "throws", "narrow"];

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = empty_folder("c_programs/readings_library");
        let changed = altered::changed("src/llama-grammar.cpp", &CHANGES);
        let text = format!("{PREAMBLE}#include <stdexcept>\n{changed}");
        let library = altered::library(&folder, "llama-grammar.cpp", &text, &[]);
        let program = Build::new("readings", &source("readings.cpp")).flag(&library);
        let program = program.flag(format!("-Wl,-rpath,{}", folder.display()));
        build(program.flag("-pthread").with_llama_h())
    })
}

fn said(run: Run<'_>, mutant: &str) -> Said {
    let run = run.env("MUTANT", mutant).env("LLAMA_SIEVE_VERBOSE", 1);
    run.arg(model()).said()
}

/// Returns the number of grammars that were replaced, and the number of those that stayed the
/// host's own because the host differs.
fn counts(said: &Said) -> (usize, usize) {
    let made = made(said);
    let of = |text: &str| {
        let counts = made.iter().filter(|(key, _)| key.contains(text));
        counts.map(|(_, count)| count).sum()
    };
    let otherwise = ["llama.cpp's own: it ", "llama.cpp's own: llama.cpp's"];
    (of("grammar: ours"), otherwise.map(of).iter().sum())
}

#[test]
fn a_host_of_an_unknown_build_that_reads_alike_has_ours() {
    let alone = said(Run::of(program()), "");
    let ours = said(preloaded(program()), "");
    assert_eq!(ours.out, alone.out);
    let (n_ours, n_otherwise) = counts(&ours);
    assert_eq!((n_ours, n_otherwise), (18, 0), "{}", ours.err);
    assert_eq!(warnings(&ours), Vec::<&str>::new());
    // The trials print nothing that is not printed without the preload library.
    let theirs = |said: &Said| {
        let lines = said
            .err
            .lines()
            .filter(|line| !line.starts_with("llama-sieve: "));
        lines.map(String::from).collect::<Vec<_>>()
    };
    assert!(
        theirs(&ours)
            .iter()
            .all(|line| theirs(&alone).contains(line)),
        "{}",
        ours.err
    );
}

/// One line reports the difference.
#[test]
fn a_host_that_reads_otherwise_does_so() {
    let original = said(Run::of(program()), "");
    for mutant in READS.iter().chain(&WAITS) {
        let alone = said(Run::of(program()), mutant);
        assert_ne!(alone.out, original.out, "{mutant} does not show");
        let ours = said(preloaded(program()), mutant);
        assert_eq!(ours.out, alone.out, "{mutant}: {}", ours.err);
        let (n_ours, n_otherwise) = counts(&ours);
        assert!(n_otherwise > 0, "{mutant}: {}", ours.err);
        assert!(
            !WAITS.contains(mutant) || n_ours > 10,
            "{mutant}: {}",
            ours.err
        );
        let told = warnings(&ours);
        let [told] = told[..] else {
            panic!("{mutant}: {told:?}");
        };
        assert!(
            told.contains("own grammar is used: it "),
            "{mutant}: {told}"
        );
    }
}

/// If the host's constructor refuses or throws, so does the replacement. A text that only the host
/// can read stays the host's own.
#[test]
fn what_the_host_judges_otherwise_follows_its_judgement() {
    let original = said(Run::of(program()), "");
    for mutant in REFUSES {
        let alone = said(Run::of(program()), mutant);
        assert_ne!(alone.out, original.out, "{mutant} does not show");
        let ours = said(preloaded(program()), mutant);
        assert_eq!(ours.out, alone.out, "{mutant}: {}", ours.err);
        assert_eq!(counts(&ours).1, 0, "{mutant}: {}", ours.err);
        assert!(counts(&ours).0 >= 13, "{mutant}: {}", ours.err);
    }
}

/// With `large-grammars`, texts with more repetitions than the host accepts are read; every other
/// text is read as before.
#[test]
fn with_a_word_more_repetitions_are_read_than_the_host_takes() {
    let alone = said(Run::of(program()), "");
    let ours = preloaded(program()).env("LLAMA_SIEVE_PRELOAD", "large-grammars");
    let ours = said(ours, "");
    let (alone, large) = (alone.out.lines(), ours.out.lines());
    let refused = |line: &str| line.ends_with(": NULL");
    let pairs: Vec<_> = alone
        .zip(large)
        .filter(|(alone, large)| alone != large)
        .collect();
    assert_eq!(pairs.len(), 2, "{pairs:?}");
    for (alone, large) in pairs {
        assert!(
            refused(alone) && !refused(large) && alone.contains('{'),
            "{alone}\n{large}"
        );
    }
    assert_eq!(counts(&ours), (20, 0), "{}", ours.err);
}

/// Older builds overflow the stack on a repetition of something that may be empty.
#[test]
fn what_the_host_may_not_come_back_from_is_not_asked_of_it() {
    let original = said(Run::of(program()), "");
    let ours = said(preloaded(program()), "aborts");
    assert_eq!(ours.out, original.out, "{}", ours.err);
}

/// Several threads that start at the same time each get the same result as one alone.
#[test]
fn threads_that_begin_at_once_have_what_one_has() {
    for mutant in ["", "dot", "case"] {
        let run = |run: Run<'static>| {
            let run = run.env("MUTANT", mutant).arg(model()).arg(4);
            run.said().out
        };
        assert_eq!(
            run(preloaded(program())),
            run(Run::of(program())),
            "{mutant}"
        );
    }
}
