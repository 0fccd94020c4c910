//! Walks through random and realistic grammars on the vocabulary of a real tokenizer.

#[allow(dead_code, reason = "the bench says more of its grammars")]
#[path = "../../benches/all/grammar/texts.rs"]
mod texts;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::pair::Vocabulary;
use crate::realistic;
use crate::support::Rng;
use crate::{random, walk};

const STEPS: usize = 20;

/// Walks through `n` valid random grammars, and a third as many realistic ones.
pub fn grammars(vocabulary: &Vocabulary, n: usize, rng: &mut Rng) {
    let tokens = vocabulary.n_tokens;
    // The child processes inherit the vocabulary's tree.
    assert!(walk::read_alike(b"root ::= [a-z]", vocabulary));
    let (mut read, mut too_long, mut tried) = (0, 0, 0);
    while read < n {
        let text = random::grammar(rng, vocabulary);
        match walk_apart(&text, vocabulary, rng) {
            Some(was_read) => read += usize::from(was_read),
            None => too_long += 1,
        }
        tried += 1;
        assert!(tried < 10 * n + 100, "only {read} of {tried} can be read");
    }
    eprintln!("{tokens} tokens: {read} of {tried} random grammars walked through");
    let both = texts::all().into_iter().filter(|one| one.both);
    let written = both.map(|one| one.text);
    let written = written.chain(realistic::GRAMMARS.iter().map(|&text| text.to_owned()));
    let mut all: Vec<String> = written.collect();
    while all.len() < n.div_ceil(3) {
        all.push(match all.len() % 4 {
            0 => choice(vocabulary, rng),
            1 => call(vocabulary, rng),
            _ => schema(rng),
        });
    }
    // Shuffled, so that a small number has some of each kind.
    rng.shuffle(&mut all);
    all.truncate(n.div_ceil(3));
    for text in &all {
        let walked = walk_apart(text.as_bytes(), vocabulary, rng);
        assert_ne!(walked, Some(false), "{text}");
        too_long += usize::from(walked.is_none());
    }
    let others = all.len();
    eprintln!("{tokens} tokens: {others} others walked through; {too_long} walks took too long");
    assert!(10 * too_long < n + others, "{too_long} walks took too long");
}

/// Walks through a grammar in a separate process. Returns true if the grammar could be read, `None`
/// if the walk took too long. With an ambiguous grammar the built-in follows every path of a
/// token's characters, and real tokens have up to a hundred characters, for example spaces. Only a
/// process can be stopped in the middle of that work.
fn walk_apart(text: &[u8], vocabulary: &Vocabulary, rng: &mut Rng) -> Option<bool> {
    const SECONDS: u64 = 30;
    let mut rng = Rng(rng.next());
    // SAFETY: the child has this thread alone, which holds no lock; it ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "there is no process to be had");
    if child == 0 {
        let limit = libc::rlimit {
            rlim_cur: SECONDS,
            rlim_max: SECONDS,
        };
        // SAFETY: a limit of this process.
        unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) };
        let walked = catch_unwind(AssertUnwindSafe(|| {
            walk::walk(text, vocabulary, STEPS, &mut rng)
        }));
        let status = walked.map_or(2, |n_steps| i32::from(n_steps.is_none()));
        // SAFETY: ends the child, and nothing of its parent's.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: a child of this process, and room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        assert!([libc::SIGXCPU, libc::SIGKILL].contains(&signal), "{signal}");
        return None;
    }
    let shown = String::from_utf8_lossy(text);
    assert!(libc::WEXITSTATUS(status) < 2, "{shown}");
    Some(libc::WEXITSTATUS(status) == 0)
}

/// Returns bytes as a literal of GBNF, with escapes for bytes that are not text.
fn literal(text: &[u8]) -> String {
    let escaped = String::from_utf8_lossy(text).replace('\\', "\\\\");
    let escaped = escaped.replace('"', "\\\"").replace('\n', "\\n");
    format!(
        "\"{}\"",
        escaped.replace('\r', "\\r").replace('\0', "\\x00")
    )
}

/// Returns a GBNF literal of the concatenated texts of one to three random tokens.
fn words(vocabulary: &Vocabulary, rng: &mut Rng) -> String {
    let picked = (0..1 + rng.below(3)).map(|_| &vocabulary.pieces[rng.below(vocabulary.n_tokens)]);
    literal(&picked.flatten().copied().collect::<Vec<u8>>())
}

/// Makes a grammar for one of a list of names, or for several of them.
fn choice(vocabulary: &Vocabulary, rng: &mut Rng) -> String {
    let names: Vec<String> = (0..2 + rng.below(60))
        .map(|_| words(vocabulary, rng))
        .collect();
    let end = rng.pick(&["name", "name (\", \" name)*", "\"- \" name \"\\n\" root?"]);
    format!("root ::= {end}\nname ::= {}\n", names.join(" | "))
}

/// Makes a grammar for calls in tags, between two random tokens. The value of a call is nearly any
/// text, or a single token.
fn call(vocabulary: &Vocabulary, rng: &mut Rng) -> String {
    let (open, close) = (
        rng.below(vocabulary.n_tokens),
        rng.below(vocabulary.n_tokens),
    );
    let names: Vec<String> = (0..1 + rng.below(9))
        .map(|_| words(vocabulary, rng))
        .collect();
    format!(
        "root ::= <[{open}]> call+ <[{close}]>\ncall ::= \"<\" name \">\" value \"</call>\"\n\
         name ::= {}\nvalue ::= ([^<] | \"<\" [^/])* | !<[{close}]>\n",
        names.join(" | ")
    )
}

/// Makes a grammar like those into which JSON Schemas are converted.
fn schema(rng: &mut Rng) -> String {
    let mut text = String::from(texts::SCHEMA);
    let mut rules = 0;
    let root = value(&mut text, &mut rules, 0, rng);
    text + "root ::= " + &root + "\n"
}

/// Returns the name of a rule for a random JSON value. Unless it is one of the rules in
/// [`texts::SCHEMA`], appends it to `text`, after the rules that it refers to.
fn value(text: &mut String, rules: &mut usize, depth: usize, rng: &mut Rng) -> String {
    let kind = if depth == 0 { 7 } else { rng.below(9) };
    let body = match kind {
        0 => "\"\\\"\" char{1,40} \"\\\"\" space".to_owned(),
        1 => "(\"\\\"red\\\"\" | \"\\\"green\\\"\" | \"\\\"blue\\\"\" | \"null\") space".to_owned(),
        2 => "(\"-\"? ([0-9] | [1-9] [0-9]{0,3})) space".to_owned(),
        3 => {
            let item = value(text, rules, depth + 1, rng);
            let least = rng.below(3);
            format!("\"[\" space {item} (\",\" space {item}){{{least},9}} \"]\" space")
        }
        4 => {
            let (one, other) = (
                value(text, rules, depth + 1, rng),
                value(text, rules, depth + 1, rng),
            );
            format!("{one} | {other}")
        }
        5..8 if depth < 3 => object(text, rules, depth, rng),
        _ => {
            let known = ["string", "integer", "number", "boolean", "array"];
            return rng.pick(&known).to_owned();
        }
    };
    *rules += 1;
    let name = format!("value-{rules}");
    *text += &format!("{name} ::= {body}\n");
    name
}

/// Returns the body of an object's rule: the required properties, and then the optional ones.
/// Appends the rules of their values to `text`.
fn object(text: &mut String, rules: &mut usize, depth: usize, rng: &mut Rng) -> String {
    let (required, optional) = (1 + rng.below(4), rng.below(5));
    let mut pairs = Vec::new();
    for i in 0..required + optional {
        let of = value(text, rules, depth + 1, rng);
        pairs.push(format!("\"\\\"key_{i}\\\"\" space \":\" space {of}"));
    }
    let must = pairs[..required].join(" \",\" space ");
    let mut may = String::new();
    for pair in pairs[required..].iter().rev() {
        may = format!("(\",\" space {pair})? {may}");
    }
    format!("\"{{\" space {must} {may} \"}}\" space")
}
