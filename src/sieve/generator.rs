//! The random numbers of a sieve: one number of 64 bits per drawn token, whatever the generator and the method.

use crate::rng::{
    Mt19937, Xoroshiro128Plus, at_position, resolve_seed_64, unit, unit_of_libstdcxx,
};
use crate::sieve::params::RngKind;

#[derive(Clone, Debug)]
enum Stream {
    Xoroshiro128Plus(Xoroshiro128Plus),
    /// Boxed: it is 2.5 KB.
    Mt19937(Box<Mt19937>),
    Position,
}

/// A generator with the seed that was asked for and the one in use.
#[derive(Clone, Debug)]
pub(super) struct Generator {
    kind: RngKind,
    asked: u64,
    seed: u64,
    /// Numbers taken from the stream so far.
    draws: u64,
    stream: Stream,
}

/// One random number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// For Gumbel noise.
    pub bits: u64,
    /// In [0, 1), for the inverse of the cumulative distribution.
    pub uniform: f64,
}

/// Where a generator is, to be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub kind: RngKind,
    pub seed: u64,
    pub draws: u64,
    /// Of xoroshiro128+; zeros for the others.
    pub state: [u64; 2],
}

/// Restoring mt19937 repeats its draws. This many take about ten seconds; nobody generates as many tokens in one text.
const MT19937_REPEATED: u64 = 1 << 31;

fn begin(kind: RngKind, seed: u64) -> Stream {
    match kind {
        RngKind::Xoroshiro128Plus => Stream::Xoroshiro128Plus(Xoroshiro128Plus::new(seed)),
        RngKind::Mt19937 => Stream::Mt19937(Box::new(Mt19937::new(seed as u32))),
        RngKind::Position => Stream::Position,
    }
}

impl Generator {
    pub fn new(kind: RngKind, asked: u64) -> Self {
        let seed = resolve_seed_64(asked);
        Self {
            kind,
            asked,
            seed,
            draws: 0,
            stream: begin(kind, seed),
        }
    }

    /// Back to the beginning; a seed that was to be random is drawn anew.
    pub fn restart(&mut self) {
        self.seed = resolve_seed_64(self.asked);
        self.draws = 0;
        // In place, so that a reset does not allocate.
        match &mut self.stream {
            Stream::Mt19937(mt) => mt.reseed(self.seed as u32),
            stream => *stream = begin(self.kind, self.seed),
        }
    }

    pub fn kind(&self) -> RngKind {
        self.kind
    }

    /// The seed in use.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What a restart goes back to.
    pub fn ask(&mut self, seed: u64) {
        self.asked = seed;
    }

    /// The number for the next token, of which `accepted` came before.
    pub fn draw(&mut self, accepted: u64) -> Draw {
        // A loaded place may say any number.
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
        Draw { bits, uniform }
    }

    pub fn place(&self) -> Place {
        let state = match &self.stream {
            Stream::Xoroshiro128Plus(stream) => stream.state(),
            _ => [0, 0],
        };
        Place {
            kind: self.kind,
            seed: self.seed,
            draws: self.draws,
            state,
        }
    }

    /// Goes to a place of the same kind of generator.
    pub fn go_to(&mut self, place: Place) -> Result<(), String> {
        let stream = match place.kind {
            RngKind::Xoroshiro128Plus => {
                let stream = Xoroshiro128Plus::from_state(place.state);
                let stream = stream.ok_or("the state of xoroshiro128+ is zero")?;
                Stream::Xoroshiro128Plus(stream)
            }
            RngKind::Mt19937 => {
                if place.draws > MT19937_REPEATED {
                    let draws = place.draws;
                    return Err(format!("{draws} draws of mt19937 are too many to repeat"));
                }
                let mut mt = Box::new(Mt19937::new(place.seed as u32));
                for _ in 0..place.draws {
                    mt.next_u64();
                }
                Stream::Mt19937(mt)
            }
            RngKind::Position => Stream::Position,
        };
        self.kind = place.kind;
        self.seed = place.seed;
        self.draws = place.draws;
        self.stream = stream;
        Ok(())
    }
}
