//! The formats of strings that are enforced, as patterns. Every text that a pattern matches is
//! valid in its format. Some valid texts that are hard to recognize do not match. So a schema that
//! excludes a format needs a second pattern, which every valid text matches.

use std::sync::Arc;

use llama_sieve_kernels::sync::OnceLock;

use crate::grammar::schema::automaton::Shared;
use crate::grammar::schema::ecma::found_in;
use crate::grammar::schema::work::Work;

/// The formats that are enforced; all others are annotations.
pub const ENFORCED: [&str; 16] = [
    "date",
    "time",
    "date-time",
    "duration",
    "uuid",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uri-reference",
    "iri",
    "iri-reference",
    "uri-template",
    "json-pointer",
    "regex",
];

/// A format's automata.
#[derive(Clone)]
pub struct Format {
    /// Accepts only valid texts, but perhaps not all of them.
    pub inner: Shared,
    /// Accepts all valid texts, and others; `None` if `inner` accepts all valid texts.
    pub outer: Option<Shared>,
}

/// Returns the automata of a format, which are built once per process; `None` for a format that is
/// not enforced.
pub fn automata_of(format: &str) -> Option<Result<Format, String>> {
    static KNOWN: [OnceLock<Result<Format, String>>; ENFORCED.len()] =
        [const { OnceLock::new() }; ENFORCED.len()];
    let at = ENFORCED.iter().position(|known| *known == format)?;
    let make = || {
        let Some((pattern, most)) = pattern_of(format) else {
            return Err(format!("{format} has no pattern"));
        };
        let work = Work::default();
        let mut dfa = found_in(&pattern, &work)?;
        if most.is_some() {
            let short = dfa
                .of_length(0, most, &work)
                .map(|dfa| dfa.minimized(&work));
            dfa = short.map_err(|_| String::from("its automaton is too large"))?;
        }
        let outer = outer_pattern_of(format).map(|pattern| found_in(pattern, &work));
        Ok(Format {
            inner: Arc::new(dfa),
            outer: outer.transpose()?.map(Arc::new),
        })
    };
    Some(KNOWN.get(at)?.get_or_init(make).clone())
}

/// Returns the pattern of a format, and the maximum number of characters of its texts.
fn pattern_of(format: &str) -> Option<(String, Option<u64>)> {
    let (pattern, most) = match format {
        "date" => (date(), None),
        "time" => (time(), None),
        "date-time" => (format!("{}T{}", date(), time()), None),
        "duration" => (duration(), None),
        "uuid" => (
            "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}".into(),
            None,
        ),
        "email" => (
            format!(
                "[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~-]+)*@{}",
                hostname()
            ),
            Some(64),
        ),
        "hostname" => (hostname(), Some(63)),
        "ipv4" => (ipv4(), None),
        "ipv6" => (ipv6(), None),
        "uri" => (uri(), None),
        "uri-reference" => (format!("(?:{}|{})", uri(), relative()), None),
        "iri" => (international(&uri()), None),
        "iri-reference" => (
            international(&format!("(?:{}|{})", uri(), relative())),
            None,
        ),
        "uri-template" => (template(), None),
        "regex" => (regex(2), None),
        "json-pointer" => ("(?:/(?:[^~/]|~[01])*)*".into(), None),
        _ => return None,
    };
    Some((format!("^(?:{pattern})$"), most))
}

/// Returns a pattern that is found in every valid text of a format; `None` if [`pattern_of`]
/// matches all valid texts. The comments name valid texts that [`pattern_of`] leaves out.
fn outer_pattern_of(format: &str) -> Option<&'static str> {
    Some(match format {
        // Leap seconds, lowercase letters, and any number of digits after the point.
        "time" => "^[0-9]{2}:[0-9]{2}:[0-9]{2}",
        "date-time" => "^[0-9]{4}-[0-9]{2}-[0-9]{2}[^0-9][0-9]{2}:[0-9]{2}:[0-9]{2}",
        // Lowercase letters.
        "duration" => "^[Pp]",
        // Quoted local parts, addresses in brackets, and any length.
        "email" => "@",
        // Consecutive dashes, and any length.
        "hostname" => "^[A-Za-z0-9._-]*$",
        "ipv6" => "^[0-9A-Fa-f:.]*$",
        // Ports, future kinds of addresses, and empty parts.
        "uri" | "iri" => "^[A-Za-z][A-Za-z0-9+.-]*:",
        "uri-reference" | "iri-reference" | "uri-template" | "regex" => "",
        _ => return None,
    })
}

fn date() -> String {
    let leap = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
    format!(
        "(?:[0-9]{{4}}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|\
         (?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|{leap}-02-29)"
    )
}

fn time() -> String {
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?\
     (?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
        .into()
}

fn duration() -> String {
    let time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
    let days = "[0-9]+D";
    let months = format!("[0-9]+M(?:{days})?");
    let years = format!("[0-9]+Y(?:{months})?");
    format!("P(?:[0-9]+W|(?:{years}|{months}|{days})(?:{time})?|{time})")
}

/// Returns the pattern of a hostname: labels of letters, digits and single dashes.
fn hostname() -> String {
    let label = "[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*";
    format!("{label}(?:\\.{label})*")
}

fn ipv4() -> String {
    let byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    format!("{byte}(?:\\.{byte}){{3}}")
}

fn ipv6() -> String {
    let group = "[0-9A-Fa-f]{1,4}";
    let mut ways = vec![
        format!("(?:{group}:){{7}}{group}"),
        format!("(?:{group}:){{6}}{}", ipv4()),
    ];
    // Groups before "::" and after it, at most seven together.
    for before in 0..=7_usize {
        let first = match before {
            0 => String::new(),
            n => format!("{group}(?::{group}){{{}}}", n - 1),
        };
        let behind = 7 - before;
        ways.push(match behind {
            0 => format!("{first}::"),
            n => format!("{first}::(?:{group}(?::{group}){{0,{}}})?", n - 1),
        });
        if behind >= 2 {
            ways.push(format!(
                "{first}::(?:{group}:){{0,{}}}{}",
                behind - 2,
                ipv4()
            ));
        }
    }
    format!("(?:{})", ways.join("|"))
}

const PCHAR: &str = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";

fn authority() -> String {
    let user = "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@";
    let name = "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*";
    format!("(?:{user})?(?:{name}|\\[{}\\])(?::[0-9]{{0,4}})?", ipv6())
}

fn behind_path() -> String {
    let rest = format!("(?:{PCHAR}|[/?])*");
    format!("(?:\\?{rest})?(?:#{rest})?")
}

fn uri() -> String {
    format!(
        "[A-Za-z][A-Za-z0-9+.-]*:(?://{}(?:/{PCHAR}*)*|/(?:{PCHAR}+(?:/{PCHAR}*)*)?|\
         {PCHAR}+(?:/{PCHAR}*)*|){}",
        authority(),
        behind_path()
    )
}

fn relative() -> String {
    let first = "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+";
    let name = "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+";
    format!(
        "(?://(?:{name}|\\[{}\\])(?:/{PCHAR}*)*|/(?:{PCHAR}+(?:/{PCHAR}*)*)?|{first}(?:/{PCHAR}*)*|){}",
        ipv6(),
        behind_path()
    )
}

/// Returns the pattern of an IRI: characters beyond ASCII are allowed wherever a URI has letters,
/// digits and `._~`.
fn international(uri: &str) -> String {
    uri.replace(
        "A-Za-z0-9._~",
        "A-Za-z0-9._~\u{a0}-\u{d7ff}\u{f900}-\u{fdcf}\u{fdf0}-\u{ffef}",
    )
}

/// Returns the pattern of a URI template, which has expressions in braces.
fn template() -> String {
    let letter = "(?:[A-Za-z0-9_]|%[0-7][0-9A-Fa-f])";
    let name = format!("{letter}(?:\\.?{letter})*(?:\\*|:[1-9][0-9]{{0,3}})?");
    let literal = "[^\\x00-\\x20\"'%<>\\\\\\^`{|}\\x7f-\\x9f]|%[0-7][0-9A-Fa-f]";
    format!("(?:{literal}|\\{{[+#./;?&]?{name}(?:,{name})*\\}})*")
}

/// Returns a pattern that matches regular expressions of ECMA-262 with groups nested at most
/// `depth` deep.
fn regex(depth: usize) -> String {
    let ranges = "a-[b-z]|A-[B-Z]|0-[1-9]|1-[2-9]";
    let escape = "\\\\(?:[dDwWsStnrfv^$\\\\.*+?()\\[\\]{}|/]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})";
    let one = format!("(?:{ranges}|[^\\]\\\\^\\[-]|{escape}|\\\\-)");
    let class = format!("\\[\\^?(?:-?{one}+-?|-)\\]");
    let (digit, more) = ("[0-9]", "[1-9][0-9]");
    let up = (0..=9).map(|from| format!("{from},[{from}-9]"));
    let up = up.collect::<Vec<_>>().join("|");
    let counts = format!("{digit}{{1,3}},?|{up}|{digit},{more}{{1,2}}|{more},{more}{{2}}");
    let times = format!("(?:(?:[*+?]|\\{{(?:{counts})\\}})\\??)?");
    let mut atom = format!("[^\\^$\\\\*+?()\\[\\]{{}}|]|{escape}|{class}");
    let mut at = "[\\^$]|\\\\[bB]".to_owned();
    let sequence = |atom: &str, at: &str| format!("(?:(?:{atom}){times}|{at})*");
    for _ in 0..depth {
        let inner = sequence(&atom, &at);
        let group = format!("{inner}(?:\\|{inner})*\\)");
        atom = format!("[^\\^$\\\\*+?()\\[\\]{{}}|]|{escape}|{class}|\\((?:\\?:)?{group}");
        at = format!("[\\^$]|\\\\[bB]|\\(\\?[=!]{group}");
    }
    let whole = sequence(&atom, &at);
    format!("{whole}(?:\\|{whole})*")
}
