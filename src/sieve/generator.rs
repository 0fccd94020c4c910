//! The random numbers of a sieve: one 64-bit number per draw, with every generator and method.

use crate::rng::{
    Mt19937, Xoroshiro128Plus, at_position, resolve_seed_64, unit, unit_of_libstdcxx,
};
use crate::sieve::params::RngKind;

#[derive(Clone, Debug)]
enum Stream {
    Xoroshiro128Plus(Xoroshiro128Plus),
    /// Boxed, since it takes 2.5 KB.
    Mt19937(Box<Mt19937>),
    Position,
}

/// A generator, with the seed of the parameters and the seed in use.
#[derive(Clone, Debug)]
pub(super) struct Generator {
    kind: RngKind,
    asked: u64,
    seed: u64,
    /// The number of random numbers taken from the stream so far.
    draws: u64,
    stream: Stream,
}

/// The random number of one token, in two forms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random {
    /// All 64 bits, which seed Gumbel noise and, except with mt19937, the streams of stages.
    pub bits: u64,
    /// A number in [0, 1), for the inverse of the cumulative distribution.
    pub uniform: f64,
}

/// The position of a generator in its random stream, in the form in which it is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub kind: RngKind,
    pub seed: u64,
    pub draws: u64,
    /// The state of xoroshiro128+; zeros for the other generators.
    pub state: [u64; 2],
    /// The words of mt19937. A saved state of version 1 lacks them, and its draws are then
    /// repeated.
    pub words: Option<[u32; Mt19937::WORDS]>,
}

/// The maximum number of draws of mt19937 that are repeated for a saved state of version 1.
/// Repeating them takes only milliseconds.
const MT19937_REPEATED: u64 = 1 << 20;

fn begin(kind: RngKind, seed: u64) -> Stream {
    match kind {
        RngKind::Xoroshiro128Plus => Stream::Xoroshiro128Plus(Xoroshiro128Plus::new(seed)),
        RngKind::Mt19937 => Stream::Mt19937(Box::new(Mt19937::new(seed as u32))),
        RngKind::Position => Stream::Position,
    }
}

impl Generator {
    pub(super) fn new(kind: RngKind, asked: u64) -> Self {
        let seed = resolve_seed_64(asked);
        Self {
            kind,
            asked,
            seed,
            draws: 0,
            stream: begin(kind, seed),
        }
    }

    /// Restarts the stream. If the seed is random, a new one is drawn.
    pub(super) fn restart(&mut self) {
        self.seed = resolve_seed_64(self.asked);
        self.draws = 0;
        // In place, so that a reset allocates nothing.
        match &mut self.stream {
            Stream::Mt19937(mt) => mt.reseed(self.seed as u32),
            stream => *stream = begin(self.kind, self.seed),
        }
    }

    pub(super) fn kind(&self) -> RngKind {
        self.kind
    }

    /// Returns the seed in use.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Sets the seed for the next [`restart`](Self::restart).
    pub(super) fn ask(&mut self, seed: u64) {
        self.asked = seed;
    }

    /// Returns the random number for the next token, which comes after `accepted` tokens.
    pub(super) fn next(&mut self, accepted: u64) -> Random {
        // A restored state may contain any number.
        self.draws = self.draws.wrapping_add(1);
        let bits = match &mut self.stream {
            Stream::Xoroshiro128Plus(stream) => stream.next_u64(),
            Stream::Mt19937(stream) => stream.next_u64(),
            Stream::Position => at_position(self.seed, accepted),
        };
        let uniform = match self.kind {
            RngKind::Mt19937 => unit_of_libstdcxx(bits),
            _ => unit(bits),
        };
        Random { bits, uniform }
    }

    pub(super) fn place(&self) -> Place {
        let (state, words) = match &self.stream {
            Stream::Xoroshiro128Plus(stream) => (stream.state(), None),
            Stream::Mt19937(stream) => ([0, 0], Some(stream.state())),
            Stream::Position => ([0, 0], None),
        };
        Place {
            kind: self.kind,
            seed: self.seed,
            draws: self.draws,
            state,
            words,
        }
    }

    /// Returns a generator at a saved position. A restart uses the seed `asked`.
    pub(super) fn at(place: Place, asked: u64) -> Result<Self, String> {
        let mut generator = Self {
            kind: RngKind::Position,
            asked,
            seed: 0,
            draws: 0,
            stream: Stream::Position,
        };
        generator.go_to(place)?;
        Ok(generator)
    }

    /// Restores a saved position of any kind of generator. On failure nothing changes.
    pub(super) fn go_to(&mut self, place: Place) -> Result<(), String> {
        let stream = match place.kind {
            RngKind::Xoroshiro128Plus => {
                let stream = Xoroshiro128Plus::from_state(place.state);
                let stream = stream.ok_or("the state of xoroshiro128+ is zero")?;
                Stream::Xoroshiro128Plus(stream)
            }
            RngKind::Mt19937 => Stream::Mt19937(Box::new(mt19937_at(&place)?)),
            RngKind::Position => Stream::Position,
        };
        self.kind = place.kind;
        self.seed = place.seed;
        self.draws = place.draws;
        self.stream = stream;
        Ok(())
    }
}

fn mt19937_at(place: &Place) -> Result<Mt19937, String> {
    if let Some(words) = place.words {
        let stream = Mt19937::from_state(words);
        return stream.ok_or_else(|| "the state of mt19937 is zero".to_owned());
    }
    let draws = place.draws;
    if draws > MT19937_REPEATED {
        return Err(format!(
            "the state is of version 1, after {draws} draws of mt19937; at most \
             {MT19937_REPEATED} are repeated"
        ));
    }
    let mut stream = Mt19937::new(place.seed as u32);
    for _ in 0..draws {
        stream.next_u64();
    }
    Ok(stream)
}
