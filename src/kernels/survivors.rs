//! What a large nucleus leaves of a vocabulary: too many to make candidates of unless someone asks.
//!
//! A bit for each token of the vocabulary, and the logits of those whose bit is set: 16 KB and 4
//! bytes each, where candidates take 12. The bytes count: buffers of hundreds of kilobytes are cold
//! by the time that a model has computed the next logits. A cut and a temperature are remembered,
//! not applied. What lost: tokens beside the logits, of which a cut was taken out in place (28
//! instead of 16 times a plain maximum over the vocabulary, for a nucleus of 29,000).

use super::floats::{BLOCK, ROOM};
use super::table::current;
use crate::token::{Token, TokenData};

/// Of how many logits [`Survivors::masses`] gives a sum.
pub const SUMMED: usize = 512;

/// At how many thresholds [`masses_above`] divides.
pub const THRESHOLDS: usize = 8;

/// Many tokens of a vocabulary with their logits, in order of the tokens. Grows by powers of two,
/// never shrinks.
#[derive(Clone, Debug)]
pub struct Survivors {
    /// A bit for each token, a word for each block of the vocabulary.
    marks: Vec<u64>,
    logits: Vec<f32>,
    /// How many of the logits are in use.
    len: usize,
    /// What is below is left out.
    threshold: f32,
    /// What is left is divided by this.
    divisor: f32,
    /// The largest of the logits, undivided.
    max: f32,
}

impl Default for Survivors {
    fn default() -> Self {
        Self {
            marks: Vec::new(),
            logits: Vec::new(),
            len: 0,
            threshold: f32::MIN,
            divisor: 1.0,
            max: f32::NEG_INFINITY,
        }
    }
}

impl Survivors {
    /// Forgets all; the vocabulary has `n` tokens, the largest logit is `max`.
    pub fn clear(&mut self, n: usize, max: f32) {
        let blocks = n.div_ceil(BLOCK);
        self.marks.clear();
        if self.marks.capacity() < blocks {
            self.marks.reserve_exact(blocks.next_power_of_two());
        }
        self.marks.resize(blocks, 0);
        self.len = 0;
        self.threshold = f32::MIN;
        self.divisor = 1.0;
        self.max = max;
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.marks.capacity() * size_of::<u64>() + self.logits.capacity() * size_of::<f32>()
    }

    /// How many places there are; some may be left out.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Their logits, undivided, also of those left out.
    #[expect(clippy::indexing_slicing, reason = "`room` made room for `len`")]
    pub fn logits(&self) -> &[f32] {
        &self.logits[..self.len]
    }

    /// Leaves out the one at `place`, which is below [`len`](Self::len).
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: a place is below `len`, and `room` made room for that"
    )]
    pub fn leave_out(&mut self, place: usize) {
        self.logits[place] = f32::NEG_INFINITY;
    }

    /// Leaves out those below `threshold`, which is above minus infinity; gives how many are left.
    /// Reads 4 bytes each.
    pub fn cut(&mut self, threshold: f32) -> usize {
        self.threshold = threshold;
        (current().floats.count_from)(self.logits(), threshold)
    }

    /// Divides all by `divisor`, if it is the first.
    pub fn divide(&mut self, divisor: f32) {
        self.divisor = divisor;
    }

    /// The largest logit, divided.
    pub fn max(&self) -> f32 {
        self.max / self.divisor
    }

    /// The logit at `place`, which is below [`len`](Self::len), divided; `None` if it is left out.
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: a place is below `len`, and `room` made room for that"
    )]
    pub fn at(&self, place: usize) -> Option<f32> {
        let logit = self.logits[place];
        (logit >= self.threshold).then_some(logit / self.divisor)
    }

    /// What is remembered is applied. Reads and writes 4 bytes each.
    #[expect(clippy::indexing_slicing, reason = "`room` made room for `len`")]
    pub fn settle(&mut self) -> &[f32] {
        for place in 0..self.len {
            self.logits[place] = self.at(place).unwrap_or(f32::NEG_INFINITY);
        }
        self.max /= self.divisor;
        self.threshold = f32::MIN;
        self.divisor = 1.0;
        self.logits()
    }

    /// The running sum of e^(x - the largest), x divided, of those up to the end of each
    /// [`SUMMED`]; right within 5e-7. Reads 4 bytes each. The largest, divided, must be finite.
    pub fn masses(&self, to: &mut Vec<f64>) {
        let blocks = self.len.div_ceil(SUMMED);
        to.clear();
        if to.capacity() < blocks {
            to.reserve_exact(blocks.next_power_of_two());
        }
        to.resize(blocks, 0.0);
        (current().floats.kept_masses)(self, to);
    }

    /// The token at `place`. Reads up to 8 bytes per block.
    pub fn token(&self, place: usize) -> Token {
        let mut left = place;
        for (block, &word) in self.marks.iter().enumerate() {
            let here = word.count_ones() as usize;
            if left >= here {
                left -= here;
                continue;
            }
            let rest = (0..left).fold(word, |word, _| word & (word - 1));
            return (block * BLOCK) as Token + rest.trailing_zeros() as Token;
        }
        0
    }

    /// Appends those that are not left out to `to`, without probabilities.
    pub fn write_to(&self, to: &mut Vec<TokenData>) {
        let mut place = 0;
        for (block, &word) in self.marks.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                let id = (block * BLOCK) as Token + word.trailing_zeros() as Token;
                word &= word - 1;
                if let Some(logit) = self.at(place) {
                    to.push(TokenData { id, logit, p: 0.0 });
                }
                place += 1;
            }
        }
    }

    /// The threshold, and what the rest is divided by.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(super) fn kept(&self) -> (f32, f32) {
        (self.threshold, self.divisor)
    }

    /// [`ROOM`] behind the last logit.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "just grown")]
    pub(super) fn room(&mut self) -> &mut [f32; ROOM] {
        let end = self.len + ROOM;
        if self.logits.len() < end {
            self.grow(end);
        }
        let (room, _) = self.logits[self.len..].split_at_mut(ROOM);
        room.try_into().unwrap_or_else(|_| std::process::abort())
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        let n = end.next_power_of_two();
        self.logits.reserve_exact(n - self.logits.len());
        self.logits.resize(n, 0.0);
    }

    /// As many logits as `marks`, those of the tokens of the block from `first` on, have been
    /// written.
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: a token of the vocabulary, each block of which has marks"
    )]
    pub(super) fn keep(&mut self, first: u32, marks: u64) {
        self.marks[first as usize / BLOCK] = marks;
        self.len += marks.count_ones() as usize;
    }
}

/// The sums of e^(x - max), of all finite numbers and of those at or above each threshold; `max` is
/// finite, and no number above it. Right within 5e-7. Reads 4 bytes per number.
pub fn masses_above(xs: &[f32], max: f32, thresholds: &[f32; THRESHOLDS]) -> [f64; 1 + THRESHOLDS] {
    (current().floats.masses_above)(xs, max, thresholds)
}

/// Appends the numbers of `range`, without its upper end, to `to`, as candidates with their indices
/// as tokens and themselves as logits. Reads 4 bytes per number.
pub fn between(xs: &[f32], range: (f32, f32), to: &mut Vec<TokenData>) {
    (current().floats.between)(xs, range, to);
}
