//! The state of a sieve as bytes: generator, number of accepted tokens, window, parameters, and the
//! memory of custom stages.
//!
//! All numbers are little-endian. Without a memory of stages, a state has 136 bytes, 4 for each
//! token of the window, 8 for each bias and, with mt19937, another 2496:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | "LSST" |
//! | 4..8 | version: 4 if stages have a memory, else 3 |
//! | 8..12 | generator: 0 xoroshiro128+, 1 mt19937, 2 position |
//! | 12..16 | n, tokens in the window |
//! | 16..24 | seed in use |
//! | 24..32 | numbers drawn |
//! | 32..48 | state of xoroshiro128+; 0 for other generators |
//! | 48..56 | tokens accepted |
//! | 56..56 + 4 n | the window, oldest first |
//! | the next 2496 | the words of mt19937, the oldest first; other generators: nothing |
//! | the next 72 + 8 m | the parameters, [below](Saved), with m biases |
//! | up to the last 8 | the memory of the stages, see `pipeline/remembered.rs` |
//! | the last 8 | FNV-1a (64 bits) of all before |
//!
//! Earlier versions lack the parameters: version 2, for mt19937, and version 1, for the other
//! generators or for mt19937 without its words.
//!
//! The checksum detects damage, not malice, since anyone can compute it. The time to load a state
//! depends on its size. A state of mt19937 in version 1 has no words, so its draws are repeated, up
//! to a limit that takes little time. Parameters are read only when they are to be restored.

use crate::fault;
use crate::memory;
use crate::rng::Mt19937;
use crate::sieve::generator::{Generator, Place};
use crate::sieve::params::{Method, Mode, Order, Params, RngKind};
use crate::sieve::pipeline::Members;
use crate::sieve::{Error, Sieve};
use crate::token::Token;

const MAGIC: &[u8; 4] = b"LSST";
/// The version of states without the words of mt19937.
const VERSION: u32 = 1;
/// The version of states with the words of mt19937.
const VERSION_WORDS: u32 = 2;
/// The version of states that also have the parameters.
const VERSION_PARAMS: u32 = 3;
/// The version of states that also have the memory of the stages.
const VERSION_STAGES: u32 = 4;
/// The size in bytes of the parameters without biases.
const PARAMS: usize = 72;
const BIAS: usize = 8;
const HEAD: usize = 56;
const WORDS: usize = 4 * Mt19937::WORDS;
const SUM: usize = 8;

/// The contents of a saved state: generator, history, parameters, and memory of the stages.
#[derive(Debug)]
pub(super) struct State<I, P, S> {
    pub place: Place,
    pub accepted: u64,
    pub window: I,
    pub params: P,
    pub stages: S,
}

/// Returns the size in bytes of a state with a window of `n` tokens, with these parameters and
/// stages.
pub(super) fn size(n: usize, params: &Params, stages: &Members) -> usize {
    let mt19937 = params.rng == RngKind::Mt19937;
    let words = if mt19937 { WORDS } else { 0 };
    let stages = stages.saved_size(mt19937);
    HEAD + 4 * n + words + PARAMS + BIAS * params.bias.len() + stages + SUM
}

/// The generators, each at the index that is its number in a saved state.
const GENERATORS: [RngKind; 3] = [
    RngKind::Xoroshiro128Plus,
    RngKind::Mt19937,
    RngKind::Position,
];
const MODES: [Mode; 2] = [Mode::Fast, Mode::Parity];
const METHODS: [Method; 2] = [Method::Cdf, Method::Gumbel];
const ORDERS: [Order; 2] = [Order::TempLast, Order::TempFirst];

/// Returns the number of a value in a saved state, which is its index among all values.
fn number_of<T: PartialEq>(value: T, among: &[T]) -> u32 {
    among.iter().position(|v| *v == value).unwrap_or(0) as u32
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

impl<I: ExactSizeIterator<Item = Token>> State<I, &Params, &Members> {
    /// Writes the state into `bytes`, which must have exactly its [`size`].
    // In bounds: `bytes` has the length of the written data.
    pub(super) fn write(self, bytes: &mut [u8]) {
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(MAGIC);
        let mt19937 = self.place.kind == RngKind::Mt19937;
        let version = match self.stages.saved_size(mt19937) {
            0 => VERSION_PARAMS,
            _ => VERSION_STAGES,
        };
        put(&version.to_le_bytes());
        put(&number_of(self.place.kind, &GENERATORS).to_le_bytes());
        put(&(self.window.len() as u32).to_le_bytes());
        put(&self.place.seed.to_le_bytes());
        put(&self.place.draws.to_le_bytes());
        put(&self.place.state[0].to_le_bytes());
        put(&self.place.state[1].to_le_bytes());
        put(&self.accepted.to_le_bytes());
        for token in self.window {
            put(&token.to_le_bytes());
        }
        for word in self.place.words.iter().flatten() {
            put(&word.to_le_bytes());
        }
        put_params(self.params, &mut put);
        self.stages.save(mt19937, &mut put);
        let sum = fnv1a(&bytes[..at]);
        bytes[at..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Writes the parameters in the order of [`Saved`].
fn put_params(params: &Params, put: &mut impl FnMut(&[u8])) {
    let floats = [
        params.temperature,
        params.top_p,
        params.min_p,
        params.typical_p,
        params.top_n_sigma,
        params.penalty_repeat,
        params.penalty_freq,
        params.penalty_present,
    ];
    for float in floats {
        put(&float.to_le_bytes());
    }
    put(&params.top_k.to_le_bytes());
    put(&params.penalty_last_n.to_le_bytes());
    put(&(params.min_keep as u64).to_le_bytes());
    put(&params.seed.to_le_bytes());
    put(&number_of(params.mode, &MODES).to_le_bytes());
    put(&number_of(params.method, &METHODS).to_le_bytes());
    put(&number_of(params.order, &ORDERS).to_le_bytes());
    put(&(params.bias.len() as u32).to_le_bytes());
    for (token, bias) in &params.bias {
        put(&token.to_le_bytes());
        put(&bias.to_le_bytes());
    }
}

/// The parameters of a state, as they were saved:
///
/// | bytes | what |
/// | --- | --- |
/// | 0..32 | temperature, top_p, min_p, typical_p, top_n_sigma, penalty_repeat, _freq, _present |
/// | 32..40 | top_k, penalty_last_n |
/// | 40..56 | min_keep, requested seed |
/// | 56..72 | mode, method and order, each as its number in C; m |
/// | 72..72 + 8 m | token and bias, m times |
#[derive(Debug)]
pub(super) struct Saved<'a> {
    rng: RngKind,
    bytes: &'a [u8],
}

impl Saved<'_> {
    /// Reads the parameters; fails if a sieve would not accept them.
    // In bounds: the bytes are not shorter than `PARAMS`, and the biases after them have the length
    // that is stated there.
    pub(super) fn read(&self) -> Result<Params, Error> {
        let bytes = self.bytes;
        let float = |at: usize| f32::from_bits(u32_at(bytes, at));
        let min_keep = u64_at(bytes, 40);
        let min_keep = usize::try_from(min_keep)
            .map_err(|_| Error::State(format!("min_keep of the state is {min_keep}")))?;
        let mut bias = Vec::new();
        let pairs = bytes[PARAMS..].chunks_exact(BIAS);
        memory::reserve_exact(&mut bias, pairs.len())?;
        let of_bits = |bits| f32::from_bits(bits);
        bias.extend(pairs.map(|pair| (u32_at(pair, 0) as Token, of_bits(u32_at(pair, 4)))));
        let params = Params {
            temperature: float(0),
            top_p: float(4),
            min_p: float(8),
            typical_p: float(12),
            top_n_sigma: float(16),
            penalty_repeat: float(20),
            penalty_freq: float(24),
            penalty_present: float(28),
            top_k: u32_at(bytes, 32) as i32,
            penalty_last_n: u32_at(bytes, 36) as i32,
            min_keep,
            seed: u64_at(bytes, 48),
            rng: self.rng,
            mode: one_of("mode", u32_at(bytes, 56), &MODES)?,
            method: one_of("method", u32_at(bytes, 60), &METHODS)?,
            order: one_of("order", u32_at(bytes, 64), &ORDERS)?,
            bias,
        };
        params
            .check()
            .map_err(|error| Error::State(format!("the state's parameters: {error}")))?;
        Ok(params)
    }
}

fn one_of<T: Copy>(name: &str, number: u32, values: &[T]) -> Result<T, Error> {
    let value = values.get(number as usize).copied();
    value.ok_or_else(|| Error::State(format!("{name} of the state is {number}")))
}

/// Reads a state that this or an earlier version wrote. Does not check the parameters, the memory
/// of stages, or the content of the random generator.
// In bounds: the bytes are not shorter than `HEAD` and `SUM`, and the length of the part between
// was checked.
pub(super) fn read(
    bytes: &[u8],
) -> Result<State<impl ExactSizeIterator<Item = Token> + '_, Option<Saved<'_>>, &[u8]>, Error> {
    let wrong = |text: String| Err(Error::State(text));
    let version = version(bytes)?;
    let number = u32_at(bytes, 8);
    let kind = GENERATORS.get(number as usize).copied();
    let has_words = match version {
        VERSION => false,
        VERSION_WORDS => true,
        _ => kind == Some(RngKind::Mt19937),
    };
    let words = if has_words { WORDS } else { 0 };
    let body = &bytes[HEAD..bytes.len() - SUM];
    let n = u32_at(bytes, 12) as usize;
    let Some([window, words, params, stages]) = parts(body, n, words, version) else {
        return wrong(format!(
            "{} bytes were given; a state of {n} tokens has another length",
            bytes.len()
        ));
    };
    if fnv1a(&bytes[..bytes.len() - SUM]) != u64_at(bytes, bytes.len() - SUM) {
        return wrong("the state is damaged: its check sum is another".to_owned());
    }
    let Some(kind) = kind else {
        return wrong(format!("the state is of an unknown generator, {number}"));
    };
    let state = [u64_at(bytes, 32), u64_at(bytes, 40)];
    if kind != RngKind::Xoroshiro128Plus && state != [0, 0] {
        return wrong(format!(
            "the state is of generator {kind:?}, and has one of xoroshiro128+ as well"
        ));
    }
    if has_words && kind != RngKind::Mt19937 {
        return wrong(format!(
            "the state is of generator {kind:?}, and has one of mt19937 as well"
        ));
    }
    Ok(State {
        place: Place {
            kind,
            seed: u64_at(bytes, 16),
            draws: u64_at(bytes, 24),
            state,
            words: has_words.then(|| words_of(words)),
        },
        accepted: u64_at(bytes, 48),
        window: window
            .chunks_exact(4)
            .map(|token| u32_at(token, 0) as Token),
        params: (version >= VERSION_PARAMS).then_some(Saved {
            rng: kind,
            bytes: params,
        }),
        stages,
    })
}

/// Returns the version of a saved state. Fails unless `bytes` has the head and the checksum of a
/// state.
fn version(bytes: &[u8]) -> Result<u32, Error> {
    let wrong = |text: String| Err(Error::State(text));
    let least = HEAD + SUM;
    if bytes.len() < least {
        return wrong(format!(
            "{} bytes are too few for a state, which has {least} or more",
            bytes.len()
        ));
    }
    if !bytes.starts_with(MAGIC) {
        return wrong("the bytes are no state of a sieve".to_owned());
    }
    let version = u32_at(bytes, 4);
    if !(VERSION..=VERSION_STAGES).contains(&version) {
        return wrong(format!(
            "the state has version {version}; this library reads versions {VERSION} to \
             {VERSION_STAGES}"
        ));
    }
    Ok(version)
}

/// Splits the bytes between head and checksum into window, words of mt19937, parameters and memory
/// of the stages; `None` if the length does not match.
fn parts(body: &[u8], n: usize, words: usize, version: u32) -> Option<[&[u8]; 4]> {
    let (window, rest) = body.split_at_checked(n.checked_mul(4)?)?;
    let (words, rest) = rest.split_at_checked(words)?;
    let mut size = 0;
    if version >= VERSION_PARAMS {
        let biases = rest.get(PARAMS - 4..PARAMS)?;
        let biases = u32_at(biases, 0) as usize;
        size = biases.checked_mul(BIAS)?.checked_add(PARAMS)?;
    }
    let (params, stages) = rest.split_at_checked(size)?;
    let has_stages = version == VERSION_STAGES;
    (has_stages != stages.is_empty()).then_some([window, words, params, stages])
}

fn words_of(bytes: &[u8]) -> [u32; Mt19937::WORDS] {
    let mut words = [0; Mt19937::WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32_at(bytes, 0);
    }
    words
}

// In bounds: the callers have checked the length.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

// In bounds: the callers have checked the length.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

impl Sieve {
    /// Returns the number of bytes that [`save`](Self::save) writes now.
    pub fn state_size(&self) -> usize {
        size(self.history.len(), &self.params, self.members())
    }

    /// Writes history, generator, parameters and the memory of the stages into the first
    /// [`state_size`](Self::state_size) bytes. Fails if there are fewer, or if a sampler in a slot
    /// has a memory that cannot be saved. Samplers without a memory, banned texts, biased texts and
    /// the loop breaker can be saved.
    pub fn save(&self, bytes: &mut [u8]) -> Result<(), Error> {
        self.check_saved()?;
        let (size, room) = (self.state_size(), bytes.len());
        let bytes = bytes.get_mut(..size).ok_or_else(|| {
            Error::State(format!(
                "the state has {size} bytes; there is room for {room}"
            ))
        })?;
        let state = State {
            place: self.generator.place(),
            accepted: self.accepted,
            window: self.history.tokens(),
            params: &self.params,
            stages: self.members(),
        };
        state.write(bytes);
        Ok(())
    }

    /// Fails if a sampler in a slot has a memory that cannot be saved.
    pub(crate) fn check_saved(&self) -> Result<(), Error> {
        match self.members().slots.unsaved() {
            None => Ok(()),
            Some(name) => Err(Error::State(format!(
                "the sampler {} remembers what no state holds; keep a clone of the sieve instead",
                name.to_string_lossy()
            ))),
        }
    }

    /// Restores a saved state, so that the sieve continues like the one that wrote `bytes`, but
    /// with its own parameters. A smaller window keeps the newest tokens. Fails, and changes
    /// nothing, if the bytes are not a state, are damaged, have an unknown version, or belong to a
    /// generator other than `rng` or to different stages that have a memory.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let state = read(bytes)?;
        let ours = self.generator.kind();
        if state.place.kind != ours {
            let theirs = state.place.kind;
            return Err(Error::State(format!(
                "the state is of generator {theirs:?}; the parameters ask for {ours:?}"
            )));
        }
        self.check_stages(ours, state.stages)?;
        self.generator.go_to(state.place).map_err(Error::State)?;
        self.load_stages(ours, state.stages);
        self.remember(state.accepted, state.window);
        Ok(())
    }

    /// Restores a saved state like [`load`](Self::load), but with the parameters of the sieve that
    /// wrote `bytes`, and thus with its generator. Also fails, and changes nothing, for a state of
    /// an earlier version, which has no parameters, and for parameters that [`new`](Self::new)
    /// would refuse.
    pub fn load_with_params(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let state = read(bytes)?;
        let Some(params) = state.params else {
            return Err(Error::State(
                "the state is of an earlier version, which has no parameters".to_owned(),
            ));
        };
        let params = params.read()?;
        self.check_stages(params.rng, state.stages)?;
        let generator = Generator::at(state.place, params.seed).map_err(Error::State)?;
        self.set_params(&params)?;
        self.generator = generator;
        self.load_stages(params.rng, state.stages);
        self.remember(state.accepted, state.window);
        Ok(())
    }

    /// Fails unless the memory of stages in a saved state can be [taken over](Self::load_stages) by
    /// the stages of this sieve. Also fails if there is too little memory to try it.
    fn check_stages(&self, rng: RngKind, bytes: &[u8]) -> Result<(), Error> {
        let mt19937 = rng == RngKind::Mt19937;
        let members = self.members();
        // The copy takes memory, as does its window of this many tokens.
        let size = members.saved_size(mt19937) + bytes.len();
        memory::room(16 * size)?;
        match members.clone().load(mt19937, bytes).is_some() {
            true => Ok(()),
            false => Err(Error::State(
                "the state is of a sieve with other stages that remember something; set the same ones first".to_owned(),
            )),
        }
    }

    fn load_stages(&mut self, rng: RngKind, bytes: &[u8]) {
        // This succeeds, since it was tried with a copy.
        let _ = self.pipeline.members.load(rng == RngKind::Mt19937, bytes);
    }

    /// Takes over the accepted tokens of a saved state.
    fn remember(&mut self, accepted: u64, window: impl Iterator<Item = Token>) {
        fault::point();
        self.accepted = accepted;
        self.history.clear();
        for token in window {
            self.history.accept(token);
        }
    }
}

#[cfg(test)]
mod tests;
