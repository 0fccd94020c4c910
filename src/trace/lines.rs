//! The lines of the trace, as `docs/trace.schema.json` describes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::linter::{Link, findings};
use super::observer::{Change, Followed, Numbers, Observer, Stage};
use super::{Options, Pieces, VERSION};
use crate::host_profile::HostProfile;
use crate::simd;
use crate::token::Token;

/// A number, written with the fewest digits that round-trip. A number that is not finite becomes
/// `null`.
#[derive(Clone, Copy)]
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(x) = *self;
        let single = x as f32;
        if x.fract() == 0.0 && x.abs() < 1e15 {
            to.serialize_i64(x as i64)
        } else if f64::from(single) == x {
            to.serialize_f32(single)
        } else {
            to.serialize_f64(x)
        }
    }
}

/// Returns `x`, rounded to a `float`.
fn rounded(x: f64) -> Number {
    Number(f64::from(x as f32))
}

fn micros(time: Duration) -> Number {
    Number((time.as_nanos() as f64 / 10.0).round() / 100.0)
}

/// Numbers that are written as members of an object.
struct Members<'a>(&'a Numbers, Options);

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for &(name, value) in self.0 {
            // The length of a repetition depends on the text, and is omitted with it.
            if self.1.text || name != "run" {
                map.serialize_entry(name, &Number(value))?;
            }
        }
        map.end()
    }
}

/// A token: its id and its text, or the text's bytes if they are not UTF-8.
#[derive(Default, Serialize)]
struct Piece {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
}

impl Piece {
    fn of(token: Token, options: Options, pieces: Pieces<'_>) -> Self {
        let mut bytes = Vec::new();
        let piece = match options.text && pieces(token, &mut bytes) {
            true => Self::of_bytes(bytes),
            false => Self::default(),
        };
        Self {
            id: options.text.then_some(token),
            ..piece
        }
    }

    fn of_bytes(bytes: Vec<u8>) -> Self {
        let mut piece = Self::default();
        match String::from_utf8(bytes) {
            Ok(text) => piece.text = Some(text),
            Err(error) => piece.bytes = Some(error.into_bytes()),
        }
        piece
    }
}

/// The first line.
#[derive(Serialize)]
struct Start<'a> {
    kind: &'a str,
    version: u32,
    library: &'a str,
    program: String,
    pid: u32,
    simd: &'a str,
    profile: String,
    started: u64,
    n: usize,
    text: bool,
}

pub(super) fn start(options: Options) -> Vec<u8> {
    let program = std::env::current_exe();
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    line(&Start {
        kind: "start",
        version: VERSION,
        library: env!("CARGO_PKG_VERSION"),
        program: program.map_or_else(
            |_| String::new(),
            |path| path.to_string_lossy().into_owned(),
        ),
        pid: std::process::id(),
        simd: simd::instruction_set().to_str().unwrap_or_default(),
        profile: HostProfile::current().to_string(),
        started: since.map_or(0, |since| since.as_millis() as u64),
        n: options.n,
        text: options.text,
    })
}

/// The line before the first token of a sequence, and before the first token after a change of the
/// stages or their parameters.
#[derive(Serialize)]
struct Sequence<'a> {
    kind: &'a str,
    sequence: u64,
    n_vocab: usize,
    stages: Vec<Named<'a>>,
    /// The findings of the linter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<String>,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    parameters: Members<'a>,
}

pub(super) fn sequence(sequence: u64, of: &Observer) -> Vec<u8> {
    line(&Sequence {
        kind: "sequence",
        sequence,
        n_vocab: of.n_vocab,
        stages: of
            .stages
            .iter()
            .map(|stage| named(stage, of.options))
            .collect(),
        findings: findings(&of.stages.iter().map(link).collect::<Vec<_>>()),
    })
}

fn link(stage: &Stage) -> Link {
    Link {
        name: stage.name.to_string(),
        parameters: stage.parameters.clone(),
    }
}

fn named(stage: &Stage, options: Options) -> Named<'_> {
    Named {
        name: &stage.name,
        parameters: Members(&stage.parameters, options),
    }
}

/// The line of a token.
#[derive(Serialize)]
struct Line<'a> {
    kind: &'a str,
    sequence: u64,
    position: u64,
    /// Milliseconds since the first line.
    ms: Number,
    /// The time of all stages together, in microseconds; `trace_us` is that of the observation.
    us: Number,
    trace_us: Number,
    token: Chosen,
    log_sum_exp: Number,
    entropy: [Number; 2],
    stages: Vec<StageLine<'a>>,
    top: Vec<Candidate<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Piece>,
    /// The only continuation that the grammars leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    forced: Option<Forced>,
    /// The state of a grammar outside the chain that has checked the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    grammar: Option<&'a str>,
    /// True if this line replaces the previous one of the same sequence and position.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replaces: bool,
}

#[derive(Serialize)]
struct Forced {
    /// The number of bytes.
    n: usize,
    #[serde(flatten)]
    piece: Piece,
}

#[derive(Serialize)]
struct Chosen {
    #[serde(flatten)]
    piece: Piece,
    rank: usize,
    logit: Number,
    /// The surprisal of the token in the raw and in the final distribution.
    surprisal: [Number; 2],
}

#[derive(Serialize)]
struct StageLine<'a> {
    name: &'a str,
    us: Number,
    before: usize,
    after: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<Number>,
    largest: Number,
    log_sum_exp: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'a str>,
    #[serde(flatten)]
    numbers: Members<'a>,
}

#[derive(Serialize)]
struct Candidate<'a> {
    #[serde(flatten)]
    piece: Piece,
    logit: Number,
    p: Number,
    /// The candidate's final probability; 0 if it was removed.
    #[serde(rename = "final")]
    last: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_by: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<ChangeLine<'a>>,
}

#[derive(Serialize)]
struct ChangeLine<'a> {
    stage: usize,
    logit: Number,
    #[serde(flatten)]
    numbers: Members<'a>,
}

/// The position of a line in the trace.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub sequence: u64,
    pub position: u64,
    pub since: Duration,
    /// The token that was refused before this one.
    pub refused: Option<Token>,
}

/// Returns the line of the chosen token; empty if none was chosen.
pub(super) fn token(place: Place, of: &Observer, pieces: Pieces<'_>) -> Vec<u8> {
    let Some(chosen) = of.chosen else {
        return Vec::new();
    };
    let piece = |token| Piece::of(token, of.options, pieces);
    let surprisal = |summary: &crate::metrics::Summary, logit: Option<f32>| {
        let nats = logit.and_then(|logit| summary.surprisal(logit));
        rounded(nats.unwrap_or(f64::NAN))
    };
    let entropy =
        |summary: &crate::metrics::Summary| rounded(summary.entropy().unwrap_or(f64::NAN));
    let mut before = of.raw.unmasked();
    let stages = of.stages.iter().map(|stage| {
        let line = stage_line(stage, before, of.options);
        before = stage.left;
        line
    });
    line(&Line {
        kind: "token",
        sequence: place.sequence,
        position: place.position,
        ms: Number((place.since.as_micros() as f64) / 1000.0),
        us: micros(of.spent),
        trace_us: micros(of.began.elapsed().saturating_sub(of.spent)),
        token: Chosen {
            piece: piece(chosen.token),
            rank: chosen.rank,
            logit: Number(f64::from(chosen.raw)),
            surprisal: [
                surprisal(&of.raw, Some(chosen.raw)),
                surprisal(&of.last, chosen.logit),
            ],
        },
        log_sum_exp: Number(of.raw.log_sum_exp()),
        entropy: [entropy(&of.raw), entropy(&of.last)],
        stages: stages.collect(),
        top: of
            .followed
            .iter()
            .map(|f| candidate(f, of, &piece))
            .collect(),
        refused: place.refused.map(piece),
        forced: forced(&of.forced),
        grammar: of
            .checked
            .map(|waits| if waits { "waits" } else { "checks" }),
        replaces: of.replaces,
    })
}

fn forced(bytes: &[u8]) -> Option<Forced> {
    let piece = || Forced {
        n: bytes.len(),
        piece: Piece::of_bytes(bytes.to_vec()),
    };
    (!bytes.is_empty()).then(piece)
}

/// The line of a token that the host has chosen itself.
#[derive(Serialize)]
struct Other<'a> {
    kind: &'a str,
    sequence: u64,
    position: u64,
    ms: Number,
    token: Piece,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Piece>,
}

/// Returns the line of a token that the host has accepted instead of the observed one.
pub(super) fn other(place: Place, token: Token, options: Options, pieces: Pieces<'_>) -> Vec<u8> {
    let piece = |token| Piece::of(token, options, pieces);
    line(&Other {
        kind: "other",
        sequence: place.sequence,
        position: place.position,
        ms: Number((place.since.as_micros() as f64) / 1000.0),
        token: piece(token),
        refused: place.refused.map(piece),
    })
}

fn stage_line(stage: &Stage, before: usize, options: Options) -> StageLine<'_> {
    StageLine {
        name: &stage.name,
        us: micros(stage.took),
        before,
        after: stage.left,
        kept: stage.kept.map(rounded),
        largest: rounded(stage.largest),
        log_sum_exp: rounded(stage.log_sum_exp),
        expected: stage
            .expected
            .as_deref()
            .map(|words| start_of(words, WORDS)),
        numbers: Members(&stage.numbers, options),
    }
}

/// The maximum length, in bytes, of a description of what a grammar expects.
const WORDS: usize = 400;

/// Returns the longest prefix of `text` that has at most `most` bytes and ends with a whole
/// character.
fn start_of(text: &str, most: usize) -> &str {
    let mut ends = (0..=most.min(text.len())).rev();
    let end = ends.find(|&end| text.is_char_boundary(end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

fn candidate<'a>(
    followed: &'a Followed,
    of: &Observer,
    piece: &dyn Fn(Token) -> Piece,
) -> Candidate<'a> {
    let p = |summary: &crate::metrics::Summary, logit: Option<f32>| {
        let nats = logit.and_then(|logit| summary.surprisal(logit));
        rounded(nats.map_or(0.0, |nats| (-nats).exp()))
    };
    let change = |change: &'a Change| ChangeLine {
        stage: change.stage,
        logit: Number(f64::from(change.logit)),
        numbers: Members(&change.numbers, of.options),
    };
    Candidate {
        piece: piece(followed.token),
        logit: Number(f64::from(followed.raw)),
        p: p(&of.raw, Some(followed.raw)),
        last: p(&of.last, followed.logit),
        removed_by: followed.out,
        changes: followed.changes.iter().map(change).collect(),
    }
}

/// Returns one line of JSON; empty if there is no memory for it.
fn line(of: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(of).unwrap_or_default();
    if !text.is_empty() {
        text.push(b'\n');
    }
    text
}
