//! A fast hash function for numbers that this crate assigns, such as those of states.
//!
//! A client's text determines the numbers, so the keys of the hash are drawn at random, once per
//! process: a client cannot predict collisions. Bits are mixed by a folded multiplication, as in
//! `wyhash`, in a tenth of the time of the standard library's hash function.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

use llama_sieve_kernels::random::{mix, process_key};

/// A hash map whose keys are numbers that this crate assigns.
pub type Map<K, V> = HashMap<K, V, Keys>;
/// A hash set of numbers that this crate assigns.
pub type Set<K> = HashSet<K, Keys>;

/// The random keys of the hash function.
#[derive(Clone, Copy)]
pub struct Keys([u64; 2]);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl Default for Keys {
    fn default() -> Self {
        let key = process_key();
        Self([key, mix(key)])
    }
}

impl BuildHasher for Keys {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        let Self([state, key]) = *self;
        Folded { state, key }
    }
}

/// The state of the hash function: all input so far, folded into one number.
#[derive(Clone, Copy)]
pub struct Folded {
    state: u64,
    key: u64,
}

impl std::fmt::Debug for Folded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Folded")
    }
}

/// Returns the exclusive or of the two halves of the 128-bit product.
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher for Folded {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, &byte) in word.iter_mut().zip(chunk) {
                *to = byte;
            }
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // The factor is odd, so it is not zero.
        self.state = folded(self.state ^ number, self.key | 1);
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        folded(self.state, 0x9E37_79B9_7F4A_7C15)
    }
}

/// Identifies a set of stacks in any table, by two hashes of 64 bits with different keys. The
/// chance that any two of 10^9 sets collide is less than one in 10^20.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity([u64; 2]);

impl Identity {
    /// Returns the identity of a set without members. `may_end` is true if the text may end there.
    pub fn of_end(may_end: bool) -> Self {
        Self([u64::from(may_end), 0])
    }

    /// Returns the identity of a set with these members, whose order does not matter. A member is a
    /// sequence, two counts, and the set below it. `may_end` is true if the text may end there.
    pub fn of(may_end: bool, members: impl Iterator<Item = (u32, (u32, u32), Self)>) -> Self {
        let Keys([state, key]) = Keys::default();
        let mixed = mix(key);
        let hashers = [
            Folded { state, key },
            Folded {
                state: mixed,
                key: mix(state ^ mixed),
            },
        ];
        let Self(mut sums) = Self::of_end(may_end);
        for (sequence, counts, below) in members {
            for (sum, mut hasher) in sums.iter_mut().zip(hashers) {
                hasher.write_u64(u64::from(sequence) << 32 | u64::from(counts.0));
                hasher.write_u32(counts.1);
                hasher.write_u64(below.0[0]);
                hasher.write_u64(below.0[1]);
                *sum = sum.wrapping_add(hasher.finish());
            }
        }
        Self(sums)
    }
}

#[cfg(test)]
mod tests;
