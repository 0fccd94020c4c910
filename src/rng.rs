//! Random number generators whose streams are reproducible from their seeds.
//!
//! [`Mt19937`] is llama.cpp's generator: std::mt19937 (the reference Mersenne Twister, Matsumoto
//! and Nishimura 1998) with libstdc++'s conversion to a `double`, which takes two 32-bit outputs.
//! Its state has 2504 bytes.
//!
//! [`Xoroshiro128Plus`] (Blackman and Vigna 2018, from the crate `rand_xoshiro`) is an alternative
//! for the sieve. Its state has 16 bytes, which can be saved and restored. [`at_position`] has no
//! state: it hashes a seed and a position, so that the draw at any position can be replayed alone.

pub use llama_sieve_kernels::random::{mix, process_key};
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::algorithms::{Softmax, Workspace};
use crate::host_profile::HostProfile;
use crate::random::random_number;
use crate::token::TokenData;

/// The seed value that requests a random seed: llama.h's `LLAMA_DEFAULT_SEED`.
pub const DEFAULT_SEED: u32 = 0xFFFF_FFFF;

/// Returns `seed` itself, or a new random seed for [`DEFAULT_SEED`].
pub fn resolve_seed(seed: u32) -> u32 {
    if seed != DEFAULT_SEED {
        return seed;
    }
    random_number() as u32
}

/// Returns the 64-bit `seed` itself, or a new random seed for [`DEFAULT_SEED`].
pub fn resolve_seed_64(seed: u64) -> u64 {
    if seed != u64::from(DEFAULT_SEED) {
        return seed;
    }
    random_number()
}

/// The generator std::mt19937 as compiled against libstdc++.
///
/// This library has its own implementation, since the state must be saved, and published crates do
/// not expose it. The tests compare it with std::mt19937 itself.
#[derive(Clone, Debug)]
pub struct Mt19937 {
    /// The last 624 numbers of the recurrence, in a ring buffer.
    words: [u32; Self::WORDS],
    /// The index of the oldest number, which the next one replaces.
    oldest: usize,
}

const TWO_32: f64 = 4_294_967_296.0;

impl Mt19937 {
    /// The number of words in the state.
    pub const WORDS: usize = 624;
    /// The position, counted from the oldest word, of the word that the recurrence XORs with the
    /// mix of the two oldest.
    const MIDDLE: usize = 397;

    /// Returns the generator in its state after `seed(seed)`.
    pub fn new(seed: u32) -> Self {
        let mut made = Self {
            words: [0; Self::WORDS],
            oldest: 0,
        };
        made.reseed(seed);
        made
    }

    /// Restarts with the stream of `seed`.
    pub fn reseed(&mut self, seed: u32) {
        let mut word = seed;
        for (place, to) in (1u32..).zip(&mut self.words) {
            *to = word;
            let mixed = (word ^ (word >> 30)).wrapping_mul(1_812_433_253);
            word = mixed.wrapping_add(place);
        }
        self.oldest = 0;
    }

    /// Returns the state, the oldest word first.
    pub fn state(&self) -> [u32; Self::WORDS] {
        let mut words = self.words;
        words.rotate_left(self.oldest);
        words
    }

    /// Returns a generator that continues from a [saved state](Self::state). `None` for the state
    /// that produces only zeros, which no seed gives.
    pub fn from_state(words: [u32; Self::WORDS]) -> Option<Self> {
        let [oldest, younger @ ..] = &words;
        // Only the highest bit of the oldest word has an effect.
        let lives = oldest >> 31 != 0 || younger.iter().any(|&word| word != 0);
        lives.then_some(Self { words, oldest: 0 })
    }

    /// Returns the next output of the generator.
    #[inline]
    // In bounds: places are taken modulo the number of words.
    fn next_u32(&mut self) -> u32 {
        let at = self.oldest;
        let in_ring = |place: usize| match place < Self::WORDS {
            true => place,
            false => place - Self::WORDS,
        };
        let next = in_ring(at + 1);
        let joined = (self.words[at] & 1 << 31) | (self.words[next] & !(1 << 31));
        let twist = if joined & 1 == 1 { 0x9908_B0DF } else { 0 };
        let word = self.words[in_ring(at + Self::MIDDLE)] ^ (joined >> 1) ^ twist;
        self.words[at] = word;
        self.oldest = next;
        temper(word)
    }

    /// Returns two outputs as one number, the first in the lower half.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let low = u64::from(self.next_u32());
        low | u64::from(self.next_u32()) << 32
    }

    /// Draws from `uniform_real_distribution<double>(0, 1)`: (a + b * 2^32) / 2^64 for two outputs
    /// a and b, always below 1.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        let low = f64::from(self.next_u32());
        let high = f64::from(self.next_u32());
        let draw = (low + high * TWO_32) / (TWO_32 * TWO_32);
        if draw < 1.0 {
            return draw;
        }
        // The sum can round up to 2^64.
        1.0f64.next_down()
    }

    /// Draws from `uniform_real_distribution<float>(0, 1)`: one output divided by 2^32, always
    /// below 1.
    #[inline]
    pub fn uniform_f32(&mut self) -> f32 {
        let draw = self.next_u32() as f32 / TWO_32 as f32;
        if draw < 1.0 {
            return draw;
        }
        // The output can round up to 2^32.
        1.0f32.next_down()
    }

    /// Draws from `discrete_distribution<int>` with the values of `weights`. The result is the
    /// index at which their running sum, normalised in `double`, reaches a uniform draw.
    ///
    /// With fewer than two weights the result is 0, and the host's profile decides whether that
    /// takes a uniform draw. If a weight is NaN, or all are 0, the result is 0.
    ///
    /// Sums the weights, of 4 bytes each, once. Only if rounding could affect the result, it also
    /// divides each weight by the sum, and adds the quotients one by one.
    pub fn discrete(&mut self, weights: &mut Workspace) -> usize {
        if weights.values().len() < 2 {
            return self.only();
        }
        let draw = self.uniform();
        let sum = weights.sum_double();
        let exactly = |weights: &[f32]| one_by_one(weights, |&weight| weight, draw);
        weights.choose(sum, draw, exactly)
    }

    /// Returns the index of the only candidate.
    fn only(&mut self) -> usize {
        if HostProfile::current().one_candidate_draw.discrete {
            self.uniform();
        }
        0
    }

    /// Draws from `discrete_distribution<int>` with the probabilities of `data`.
    /// [`Softmax::divide`] has just computed them, and returned `sum`.
    pub fn discrete_in_place(&mut self, softmax: &Softmax, data: &[TokenData], sum: f64) -> usize {
        if data.len() < 2 {
            return self.only();
        }
        let draw = self.uniform();
        let exactly = |data: &[TokenData]| one_by_one(data, |c| c.p, draw);
        softmax.choose(data, sum, draw, exactly)
    }
}

/// Returns the output of mt19937 for a word of its state.
#[inline]
fn temper(mut word: u32) -> u32 {
    word ^= word >> 11;
    word ^= (word << 7) & 0x9D2C_5680;
    word ^= (word << 15) & 0xEFC6_0000;
    word ^ (word >> 18)
}

fn one_by_one<T>(weights: &[T], weight: impl Fn(&T) -> f32, draw: f64) -> usize {
    let doubles = || weights.iter().map(|w| f64::from(weight(w)));
    let sum = doubles().fold(0.0f64, |sum, w| sum + w);
    let mut running = 0.0f64;
    for (i, weight) in doubles().enumerate() {
        running += weight / sum;
        // The comparison is that of libstdc++'s lower bound: NaN also ends the search.
        let below = running < draw;
        if !below {
            return i;
        }
    }
    // The last sum counts as 1, whatever rounding made of it.
    weights.len() - 1
}

/// A generator, and the seed that was requested, to which a reset returns.
#[derive(Clone, Debug)]
pub struct SeededMt19937 {
    seed: u32,
    current: u32,
    /// The stream.
    pub stream: Mt19937,
}

impl SeededMt19937 {
    /// Returns a generator with the stream of `seed`. [`DEFAULT_SEED`] means a random seed, which
    /// changes at each [`restart`](Self::restart).
    pub fn new(seed: u32) -> Self {
        let current = resolve_seed(seed);
        Self {
            seed,
            current,
            stream: Mt19937::new(current),
        }
    }

    /// Restarts the stream: with the requested seed, or with a new random one if none was
    /// requested.
    pub fn restart(&mut self) {
        self.current = resolve_seed(self.seed);
        self.stream.reseed(self.current);
    }

    /// Begins the stream of `seed`, even if that is [`DEFAULT_SEED`]. A later
    /// [`restart`](Self::restart) treats `seed` as [`new`](Self::new) does.
    pub fn begin(&mut self, seed: u32) {
        self.seed = seed;
        self.current = seed;
        self.stream.reseed(seed);
    }

    /// Continues the stream of `other`, but keeps its own seed for a restart.
    pub fn take_stream_of(&mut self, other: &Self) {
        let seed = self.seed;
        self.clone_from(other);
        self.seed = seed;
    }

    /// Returns a generator at the start of its stream: with the requested seed, or with a new
    /// random one if none was requested.
    pub fn begun_anew(&self) -> Self {
        Self::new(self.seed)
    }

    /// Returns the seed that was requested; [`DEFAULT_SEED`] means a random one.
    pub fn asked_seed(&self) -> u32 {
        self.seed
    }

    /// Returns the seed with which the current stream began.
    pub fn current_seed(&self) -> u32 {
        self.current
    }
}

/// The increment of SplitMix64: 2^64 divided by the golden ratio, as an odd number.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The generator xoroshiro128+ with the rotations of 2018 (24, 16, 37), as in `rand_xoshiro`. Its
/// period is 2^128 - 1. Its lowest bits are weak, and [`unit()`] does not use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xoroshiro128Plus(rand_xoshiro::Xoroshiro128Plus);

/// The state, in the form in which the crate's `serde` feature serializes it.
#[derive(serde::Deserialize)]
struct Words {
    s0: u64,
    s1: u64,
}

/// The size in bytes of the buffer for the serialized state, which consists of two numbers and
/// their names. It is larger than the longest text.
const TEXT_OF_STATE: usize = 64;

impl Xoroshiro128Plus {
    /// Returns a generator with the stream of `seed`. The initial state is two outputs of
    /// SplitMix64.
    pub fn new(seed: u64) -> Self {
        Self(SeedableRng::seed_from_u64(seed))
    }

    /// Returns the state.
    pub fn state(&self) -> [u64; 2] {
        // The text is on the stack, so that saving a state allocates nothing.
        let mut text = [0; TEXT_OF_STATE];
        let mut rest = &mut text[..];
        let written = serde_json::to_writer(&mut rest, &self.0);
        let left = rest.len();
        let text = text.get(..TEXT_OF_STATE - left).unwrap_or_default();
        let words = written.and_then(|()| serde_json::from_slice::<Words>(text));
        // There is always enough room. If there were not, loading this state would fail, since it
        // belongs to no stream.
        words.map_or([0, 0], |words| [words.s0, words.s1])
    }

    /// Returns a generator that continues from a [saved state](Self::state). `None` for two zeros,
    /// which are in no stream.
    pub fn from_state(state: [u64; 2]) -> Option<Self> {
        let [s0, s1] = state.map(u64::to_le_bytes);
        let mut seed = [0; 16];
        let (first, second) = seed.split_at_mut(8);
        first.copy_from_slice(&s0);
        second.copy_from_slice(&s1);
        (state != [0, 0]).then(|| Self(SeedableRng::from_seed(seed)))
    }

    /// Returns the next output of the generator.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// Returns the random number at `position` of the stream of `seed`. No state is needed.
#[inline]
pub fn at_position(seed: u64, position: u64) -> u64 {
    // The seed is hashed first, since otherwise the streams of neighbouring seeds would be shifted
    // copies of one stream.
    mix(mix(seed ^ GOLDEN).wrapping_add(position.wrapping_add(1).wrapping_mul(GOLDEN)))
}

/// Returns 64 random bits as a number in [0, 1): the upper 53 bits divided by 2^53.
#[inline]
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Converts 64 random bits to a `double` below 1 as libstdc++ converts two outputs of mt19937
/// ([`Mt19937::uniform`]): divided by 2^64.
#[inline]
pub fn unit_of_libstdcxx(bits: u64) -> f64 {
    let draw = bits as f64 / (TWO_32 * TWO_32);
    if draw < 1.0 {
        return draw;
    }
    // The number can round up to 2^64.
    1.0f64.next_down()
}

#[cfg(test)]
mod tests;
