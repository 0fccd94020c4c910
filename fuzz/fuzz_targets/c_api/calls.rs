//! The calls that an input encodes. Reordering the variants would change the meaning of the corpus.

use std::ptr::null;

use arbitrary::Arbitrary;
use llama_sieve_fuzz::logits::{Logit, Number, Whole};
use llama_sieve_fuzz::params::Change;
use llama_sieve_fuzz::stages::Stages;

#[derive(Arbitrary, Debug)]
pub(crate) enum Call {
    Make(Maker),
    Chain(Vec<u8>),
    Apply {
        which: u8,
        array: Array,
    },
    Accept {
        which: u8,
        token: Whole,
    },
    Reset(u8),
    Clone(u8),
    Copy {
        from: u8,
        to: u8,
    },
    Free(u8),
    TrieSet {
        which: u8,
        payload: Payload,
        mode: Whole,
    },
    TrieClear(u8),
    TrieActivate {
        which: u8,
        path: u8,
    },
    Bind {
        handle: u8,
        slot: Option<u8>,
    },
    SetByHandle {
        handle: u8,
        payload: Payload,
        mode: Whole,
    },
    ClearByHandle(u8),
    CacheStats {
        null: bool,
    },
    SieveNew(Option<Vec<Change>>),
    SieveClone(u8),
    SieveFree(u8),
    SieveReset(u8),
    SieveSet {
        which: u8,
        changes: Option<Vec<Change>>,
    },
    SieveAccept {
        which: u8,
        token: Whole,
    },
    Sample {
        which: u8,
        logits: Logits,
        width: u8,
    },
    SampleCtx {
        which: u8,
    },
    Batch {
        which: Vec<u8>,
        logits: Logits,
        threads: u8,
    },
    Candidates {
        which: u8,
        cap: u8,
    },
    Measure {
        which: u8,
        on: bool,
    },
    Stats {
        which: u8,
        wrong_size: bool,
        null: bool,
    },
    Save {
        which: u8,
        short: u8,
    },
    Load {
        which: u8,
        damage: Option<(u16, u8)>,
    },
    Top {
        logits: Logits,
        n: Whole,
        null: bool,
    },
    Greedy(Logits),
    Metrics {
        logits: Logits,
        token: Whole,
        base: i8,
    },
    PplNew,
    PplClone(u8),
    PplAdd(u8, Number),
    PplReset(u8),
    PplFree(u8),
    Seed(u8),
    Library,
    Certify(Name),
    GetParams {
        which: u8,
        wrong_size: bool,
    },
    Ask {
        which: u8,
        token: Whole,
        logit: Number,
        cap: u8,
    },
    LoadWith {
        which: u8,
        damage: Option<(u16, u8)>,
        options: i8,
    },
    OfSampler(u8),
    Reserve {
        which: u8,
        n: Whole,
    },
    ChainSample {
        which: u8,
        other: u8,
        logits: Logits,
        width: u8,
        cap: u8,
    },
    ChainSampleCtx {
        which: u8,
        idx: Whole,
    },
    ChainBatch {
        which: Vec<u8>,
        logits: Logits,
        threads: i8,
        null: u8,
    },
    AskGrammar {
        which: u8,
        n_words: u8,
    },
    GrammarStats {
        null: bool,
    },
    VocabForget(u8),
    LogSet {
        null: bool,
    },
    Trace {
        null: bool,
        options: u8,
    },
    SetSampler {
        which: u8,
        in_sampler: bool,
        slot: u8,
        sampler: u8,
    },
    SetStages {
        which: u8,
        in_sampler: bool,
        stages: Option<Stages>,
        breakers: Option<u8>,
        vocab: bool,
    },
}

/// The name of a sampler, for the certificate.
#[derive(Arbitrary, Debug)]
pub(crate) enum Name {
    Null,
    OfBuiltIn(u8),
    Bytes(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
pub(crate) enum Maker {
    Greedy,
    Dist(u32),
    TopK(Whole),
    TopP(Number, Whole),
    MinP(Number, Whole),
    Typical(Number, Whole),
    Temp(Number),
    TopNSigma(Number),
    TempExt(Number, Number, Number),
    Xtc(Number, Number, Whole, u32),
    Mirostat(Whole, u32, Number, Number, Whole),
    MirostatV2(u32, Number, Number),
    Penalties(Whole, Whole, Number, Number, Number),
    Dry {
        vocab: bool,
        numbers: (Number, Number, Whole, Whole),
        breakers: Option<u8>,
    },
    AdaptiveP(Number, Number, u32),
    LogitBias {
        biases: Option<Vec<(i16, Logit)>>,
        n: Whole,
    },
    Infill {
        vocab: bool,
    },
    TailFree(Number, Whole),
    Softmax,
    TopA(Number),
    EpsilonCutoff(Number),
    EtaCutoff(Number),
    PLess(bool),
    TopH(Number),
    Quadratic(Number, Number),
    MinK(Number),
    Bans {
        vocab: bool,
        texts: Option<Vec<[u8; 3]>>,
        flags: u8,
        /// A bias in place of the bans.
        bias: Option<Number>,
    },
    Loops {
        numbers: [Whole; 3],
        temperature: Number,
        tokens: Option<Vec<i32>>,
        vocab: bool,
    },
    Trie {
        vocab: bool,
        payload: Payload,
        mode: Whole,
    },
    Slot {
        vocab: bool,
    },
    Sieve(Option<Vec<Change>>),
    BuiltIn,
    TrieStrings {
        vocab: bool,
        first: u8,
        n: Option<u8>,
        mode: Whole,
    },
    Grammar {
        vocab: bool,
        text: Text,
        root: Text,
        lazy: Option<Lazy>,
    },
    Schema {
        vocab: bool,
        text: Text,
        flags: u32,
    },
}

/// A grammar's text, or the name of its root.
#[derive(Arbitrary, Debug)]
pub(crate) enum Text {
    Null,
    /// One of a fixed list. Most of the grammars in it are valid, and have rules with the names in
    /// the list of roots.
    Good(u8),
    Bytes(Vec<u8>),
}

/// The triggers of a lazy grammar. `None` stands for NULL.
#[derive(Arbitrary, Debug)]
pub(crate) struct Lazy {
    pub(crate) words: bool,
    pub(crate) first: u8,
    pub(crate) n: Option<u8>,
    pub(crate) tokens: Option<Vec<Whole>>,
}

#[derive(Arbitrary, Debug)]
pub(crate) enum Payload {
    Null,
    /// Some values, made of few different tokens.
    Values(Vec<Vec<u8>>),
    Large(i32),
    Bytes(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
pub(crate) struct Array {
    pub(crate) logits: Vec<Logit>,
    pub(crate) first_id: i16,
    pub(crate) step: i8,
    pub(crate) sorted: bool,
    pub(crate) selected: i16,
    pub(crate) wrong: Wrong,
}

#[derive(Arbitrary, Debug)]
pub(crate) enum Wrong {
    Nothing,
    NullArray,
    NullData,
    HugeSize,
}

#[derive(Arbitrary, Debug)]
pub(crate) enum Logits {
    Null,
    NoVocabulary(Vec<Logit>),
    NegativeSize,
    Some(Vec<Logit>),
    Many(u16, Logit),
}

impl Payload {
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Payload::Null => None,
            Payload::Values(values) => {
                let leaves = values.iter().take(8).map(|tokens| {
                    let tokens: Vec<u8> = tokens.iter().take(8).map(|token| token % 8).collect();
                    serde_json::json!({"name": format!("{tokens:?}"), "tokens": tokens})
                });
                let leaves: Vec<_> = leaves.collect();
                let json = serde_json::json!({"descriptors": [
                    {"path": "path 0", "leaves": leaves},
                    {"path": "path 1", "leaves": [{"name": "x\0y", "tokens": [3]}]},
                ]});
                Some(json.to_string().into_bytes())
            }
            Payload::Large(token) => Some(
                format!(r#"{{"descriptors":[{{"path":"path 0","leaves":[{{"name":"n","tokens":[1,{token}]}}]}}]}}"#)
                    .into_bytes(),
            ),
            Payload::Bytes(bytes) => Some(bytes.clone()),
        }
    }
}

impl Logits {
    /// Returns the logits, and the number that the call gets as their count.
    pub(crate) fn get(&self) -> (Option<Vec<f32>>, i32) {
        let values = |logits: &[Logit]| -> Vec<f32> { logits.iter().map(|l| l.value()).collect() };
        match self {
            Logits::Null => (None, 5),
            Logits::NoVocabulary(logits) => (Some(values(logits)), 0),
            Logits::NegativeSize => (Some(vec![1.0]), -1),
            Logits::Some(logits) => {
                let logits = values(&logits[..logits.len().min(300)]);
                let n = logits.len() as i32;
                (Some(logits), n)
            }
            Logits::Many(n, last) => {
                let n = usize::from(*n) % 3000;
                let mut logits: Vec<f32> = (0..n).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
                logits.push(last.value());
                (Some(logits), n as i32 + 1)
            }
        }
    }

    pub(crate) fn pointer(values: &Option<Vec<f32>>) -> *const f32 {
        values.as_ref().map_or(null(), |values| values.as_ptr())
    }

    /// Returns the upper 16 bits of each number, which are valid in both half precisions.
    pub(crate) fn halves(values: &Option<Vec<f32>>) -> Option<Vec<u16>> {
        let upper = |x: &f32| (x.to_bits() >> 16) as u16;
        Some(values.as_ref()?.iter().map(upper).collect())
    }
}
