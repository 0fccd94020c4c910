//! The sum of terms in the descending order of their keys, binade by binade, without sorting them.
//!
//! While the sum stays in one binade, whose floats are the multiples of a unit, the terms can be
//! rounded to that unit and added in any order (see
//! [`sequential_sum`](crate::kernels::sequential_sum)). The exceptions are terms half-way between
//! two multiples: the rounding of each of these depends on the sum of the terms before it. So the
//! order matters only where the sum crosses into the next binade, and there only for the terms near
//! the crossing:
//!
//! - a few of the largest are sorted and added one by one: most crossings lie among these;
//! - if the remaining terms cannot reach the next binade, they are added in one pass;
//! - otherwise a sample brackets the key at which the sum crosses; the terms above the bracket are
//!   added in one pass, those inside are copied, and pivots narrow the bracket until few remain to
//!   be sorted and added one by one.
//!
//! A sample affects only the speed: every addition is checked to stay in its binade, and a bracket
//! that misses the crossing costs another pass. So does each different key of the half-way terms;
//! if there are many, the method gives up.

use super::sample::take_groups;
use super::terms::MANY;
use crate::algorithms::scratch::room;
use crate::kernels::compact::{pick, pick_at_least};
use crate::kernels::layout::binade;
use crate::kernels::rounding_test::Terms;
use crate::kernels::sequential_sum::{rounded_tail, sum};

/// Buffers for sums by binades.
#[derive(Clone, Debug, Default)]
pub(super) struct Binades {
    /// The largest keys, descending: all that are at or above `bound`.
    head: Vec<f32>,
    bound: f32,
    /// A sample of all keys, descending; empty if the head has all keys. `weight` is the number of
    /// keys that each element represents.
    sample: Vec<f32>,
    weight: f32,
    sample_terms: Vec<f32>,
    /// The keys and terms near a crossing.
    keys: Vec<f32>,
    terms: Vec<f32>,
    spare: Vec<f32>,
    pairs: Vec<(f32, f32)>,
    /// The sum before the keys near the last crossing.
    before: f32,
    halfway: Vec<u32>,
    words: Vec<u32>,
    #[cfg(test)]
    pub seen: super::tests::Seen,
}

/// The largest number of keys that are simply sorted.
const FEW: usize = 2048;
/// The size of a sample.
pub(super) const SIZE: usize = 512;
/// The number of adjacent keys in each group of a sample.
pub(super) const GROUP: usize = 8;
/// The index, in the descending sample, of the key down to which the head reaches at first.
const HEAD: usize = 3;
/// The largest number of keys near a crossing that are sorted.
const BESIDE: usize = 256;
/// The number of keys that a pivot is chosen from.
const PIVOTS: usize = 64;
/// The largest number of crossings that are computed, which is more than a sum usually has.
const STEPS: usize = 64;

/// A sum, and the least key whose term it includes.
#[derive(Clone, Copy)]
pub(super) struct Reached {
    pub sum: f32,
    pub bound: f32,
}

/// The range of keys in which a sum is estimated to leave its binade.
pub(super) struct Bracket {
    /// The key down to which the sum stays in its binade.
    pub high: f32,
    /// A key at which the sum has left its binade.
    pub low: f32,
    /// True if few keys are above the bracket.
    pub few: bool,
}

/// The result of adding terms to a sum.
enum Added {
    /// The sum, which stays in its binade.
    Within(f32),
    /// The sum leaves its binade, or reaches the target.
    Beyond,
}

/// The result of adding terms until a target is reached.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// The sum of all terms, which does not reach the target.
    All(f32),
    /// The term with which the sum reaches the target.
    Here(Reaching),
}

/// Terms by their keys. Both are numbers at or above 0.
#[derive(Clone, Copy)]
pub(super) struct Series<'a> {
    /// The keys that order the terms.
    pub keys: &'a [f32],
    /// The terms to add.
    pub values: &'a [f32],
    /// The kind of the terms, which determines how they are computed from the keys.
    pub terms: Terms,
    /// An approximate sum of the terms.
    pub total: f64,
    /// The target sum; infinity to add all terms.
    pub until: f32,
}

impl Series<'_> {
    /// Returns the number at which a sum leaves its binade or reaches the target.
    fn end(&self, sum: f32) -> f32 {
        (2.0 * binade(sum)).min(self.until)
    }

    /// Returns the distance of a sum from its [`end`](Self::end).
    fn gap(&self, sum: f32) -> f64 {
        f64::from(self.end(sum)) - f64::from(sum)
    }
}

/// The term with which a sum reaches its target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reaching {
    /// The key of the term.
    pub key: f32,
    /// The number of preceding terms with the same key.
    pub nth: usize,
}

room!(Binades: head, keys, terms, spare, words, halfway, sample, sample_terms, pairs);

impl Binades {
    /// Sorts the largest of `keys` and takes a sample.
    pub(super) fn prepare(&mut self, keys: &[f32]) {
        self.sample.clear();
        self.bound = 0.0;
        if keys.len() > FEW {
            take_groups(keys, SIZE, GROUP, &mut self.sample);
            self.weight = keys.len() as f32 / SIZE as f32;
            sort_descending(&mut self.sample, &mut self.words);
            self.bound = self.sample[HEAD];
        }
        self.take_head(keys);
    }

    /// Extends the head to at least the `n` largest of the prepared `keys`, or all.
    pub(super) fn deepen(&mut self, keys: &[f32], n: usize) {
        while self.head.len() < n.min(keys.len()) {
            let wanted = n as f32 / self.weight;
            let index = (wanted + 4.0 * wanted.sqrt() + 3.0) as usize;
            // The next head must be larger than the current one.
            let bound = self.sample.get(index).copied().unwrap_or(0.0);
            self.bound = if bound < self.bound { bound } else { 0.0 };
            self.take_head(keys);
        }
    }

    fn take_head(&mut self, keys: &[f32]) {
        self.head.clear();
        pick_at_least(keys, self.bound, &mut self.head);
        sort_descending(&mut self.head, &mut self.words);
    }

    /// Returns the largest keys, descending.
    pub(super) fn head(&self) -> &[f32] {
        &self.head
    }

    /// Returns a key that about `n` keys reach, or somewhat more.
    pub(super) fn key_for(&self, n: usize) -> f32 {
        if let Some(&key) = self.head.get(n.saturating_sub(1)) {
            return key;
        }
        let wanted = n as f32 / self.weight;
        let index = (wanted + 4.0 * wanted.sqrt() + 3.0) as usize;
        self.sample.get(index).copied().unwrap_or(0.0)
    }

    /// Returns the sum of all terms, added as `float`s in descending order of the prepared keys.
    /// `None` if they would have to be sorted.
    pub(super) fn sum(&mut self, series: Series<'_>) -> Option<f32> {
        match self.run(series)? {
            Outcome::All(sum) => Some(sum),
            Outcome::Here(_) => None,
        }
    }

    /// Returns the term with which the sum reaches `series.until`, or otherwise the sum of all.
    /// `None` if the terms would have to be sorted.
    pub(super) fn run(&mut self, series: Series<'_>) -> Option<Outcome> {
        let mut reached = Reached {
            sum: 0.0,
            bound: self.bound,
        };
        reached.sum = self.add_sorted_head(series.terms);
        if reached.sum >= series.until {
            let reaching = reaching(&self.head, &self.terms, 0.0, series.until);
            return reaching.map(Outcome::Here);
        }
        if self.head.len() == series.keys.len() {
            return Some(Outcome::All(reached.sum));
        }
        series.terms.of(&self.sample, &mut self.sample_terms);
        for crossings in 0..STEPS {
            if !(1e-30..1e30).contains(&reached.sum) {
                return None;
            }
            let left = series.total - f64::from(reached.sum);
            if left < series.gap(reached.sum)
                && let Added::Within(sum) = self.add(series, reached, 0.0)?
            {
                self.note_finish(crossings);
                return Some(Outcome::All(sum));
            }
            reached = self.cross(series, reached, left)?;
            if reached.sum >= series.until {
                let reaching = reaching(&self.keys, &self.terms, self.before, series.until);
                return reaching.map(Outcome::Here);
            }
            if reached.bound == 0.0 {
                return Some(Outcome::All(reached.sum));
            }
        }
        None
    }

    /// Counts, for the tests, a sum that ended with one pass after the given number of crossings.
    fn note_finish(&mut self, crossings: usize) {
        #[cfg(not(test))]
        let _ = crossings;
        #[cfg(test)]
        self.seen.finish(crossings, self.halfway.len());
    }

    /// Counts, for the tests, a bracket that began after the crossing.
    fn note_miss(&mut self) {
        #[cfg(test)]
        {
            self.seen.misses += 1;
        }
    }

    fn add_sorted_head(&mut self, terms: Terms) -> f32 {
        terms.of(&self.head, &mut self.terms);
        sum(0.0, &self.terms)
    }

    /// Adds the terms of all keys from `low` to below `reached.bound`. `None` if too many terms are
    /// half-way.
    fn add(&mut self, series: Series<'_>, reached: Reached, low: f32) -> Option<Added> {
        add_between(series, reached, low, &mut self.halfway)
    }

    /// Adds terms until the sum has crossed into the next binade, and perhaps some more. `left` is
    /// approximately the sum of the remaining terms.
    fn cross(&mut self, series: Series<'_>, from: Reached, left: f64) -> Option<Reached> {
        let mut reached = from;
        let Bracket { high, mut low, few } = self.bracket(series, reached, left);
        // Few terms above the bracket are copied with it.
        if high < reached.bound && !few {
            match self.add(series, reached, high)? {
                Added::Within(sum) => reached = Reached { sum, bound: high },
                Added::Beyond => {
                    self.note_miss();
                    low = high;
                }
            }
        }
        self.keys.clear();
        let keys = series.keys;
        pick(keys, keys, low, reached.bound, &mut self.keys);
        series.terms.of(&self.keys, &mut self.terms);
        self.narrow(series, reached, low)
    }

    /// Returns keys between which the sum leaves its binade, estimated from the sample.
    // In bounds: the caller made a term of each key of the sample; what is indexed is not empty,
    // and positions are below its length.
    fn bracket(&self, series: Series<'_>, reached: Reached, left: f64) -> Bracket {
        let first = self.sample.partition_point(|&key| key >= reached.bound);
        let (keys, terms) = (&self.sample[first..], &self.sample_terms[first..]);
        let all: f64 = terms.iter().map(|&t| f64::from(t)).sum();
        if keys.is_empty() || all <= 0.0 {
            return Bracket {
                high: reached.bound,
                low: 0.0,
                few: true,
            };
        }
        // Scaled so that the sample adds up to the rest of the sum, which is known more accurately
        // than the sample gives it.
        let scale = if left > 0.0 {
            left / all
        } else {
            f64::from(self.weight)
        };
        let gap = series.gap(reached.sum) / scale;
        let at = |gap: f64| {
            let mut sum = 0.0;
            let reaches = |&t: &f32| {
                sum += f64::from(t);
                sum >= gap
            };
            terms.iter().position(reaches)
        };
        let crossing = at(gap).unwrap_or(terms.len());
        let share = (gap / all).min(SURE);
        let squares = |terms: &[f32]| -> f64 { terms.iter().map(|&t| f64::from(t * t)).sum() };
        let (before, after) = terms.split_at(crossing);
        let variance = (1.0 - share).powi(2) * squares(before) + share * share * squares(after);
        let next = f64::from(terms[crossing.min(terms.len() - 1)]);
        let margin = DEVIATIONS * variance.sqrt() + next + SLACK * all;
        let early = gap.min(all) - margin;
        let above = at(early).filter(|_| early > 0.0);
        Bracket {
            high: above.map_or(reached.bound, |i| keys[i]),
            low: at(gap + margin).map_or(0.0, |i| keys[i]),
            few: above.is_none_or(|i| i < ABOVE),
        }
    }

    /// Returns keys between which the sum leaves its binade or reaches the target, estimated from
    /// another sample of all keys, in descending order, and from the sum of all terms.
    pub(super) fn bracket_in(
        &mut self,
        sample: &mut Vec<f32>,
        series: Series<'_>,
        from: Reached,
    ) -> Bracket {
        std::mem::swap(&mut self.sample, sample);
        series.terms.of(&self.sample, &mut self.sample_terms);
        self.bracket(series, from, series.total - f64::from(from.sum))
    }

    /// Returns the term with which the sum reaches the target, if it is one of these: the next
    /// terms in descending order after those that add up to `sum`. `None` if it is not, or if the
    /// terms would have to be sorted.
    pub(super) fn run_on(&mut self, series: Series<'_>, sum: f32) -> Option<Reaching> {
        self.keys.clear();
        self.keys.extend_from_slice(series.keys);
        self.terms.clear();
        self.terms.extend_from_slice(series.values);
        let from = Reached {
            sum,
            bound: f32::INFINITY,
        };
        self.narrow(series, from, 0.0)?;
        reaching(&self.keys, &self.terms, self.before, series.until)
    }

    /// Adds copied terms up to a crossing, and some more. The copied terms are those of all keys
    /// from `low` to below `from.bound`.
    fn narrow(&mut self, all: Series<'_>, from: Reached, low: f32) -> Option<Reached> {
        let (mut reached, mut low) = (from, low);
        while self.keys.len() > BESIDE {
            let before = self.keys.len();
            let pivot = self.pivot(all.gap(reached.sum));
            let series = Series {
                keys: &self.keys,
                values: &self.terms,
                ..all
            };
            match add_between(series, reached, pivot, &mut self.halfway)? {
                Added::Within(sum) => reached = Reached { sum, bound: pivot },
                Added::Beyond => low = pivot,
            }
            self.retain(low, reached.bound);
            if self.keys.len() == before {
                break;
            }
        }
        sort_descending(&mut self.keys, &mut self.words);
        all.terms.of(&self.keys, &mut self.terms);
        self.before = reached.sum;
        Some(Reached {
            sum: sum(reached.sum, &self.terms),
            bound: low,
        })
    }

    /// Returns one of the copied keys, near the one at which the sum has grown by `gap`.
    // In bounds: more than `BESIDE` keys, each with a term, give `PIVOTS` pairs.
    fn pivot(&mut self, gap: f64) -> f32 {
        let stride = self.keys.len() / PIVOTS;
        let all = self.keys.iter().copied().zip(self.terms.iter().copied());
        self.pairs.clear();
        self.pairs.extend(all.step_by(stride).take(PIVOTS));
        self.pairs.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let gap = gap / stride as f64;
        let mut added = 0.0;
        let reached = self.pairs.iter().position(|&(_, term)| {
            added += f64::from(term);
            added >= gap
        });
        // Not the last pair: its key may be the least of all, which would exclude nothing.
        self.pairs[reached.unwrap_or(PIVOTS).min(PIVOTS - 2)].0
    }

    /// Drops the copied keys outside the range, and their terms.
    fn retain(&mut self, low: f32, high: f32) {
        self.spare.clear();
        pick(&self.keys, &self.terms, low, high, &mut self.spare);
        std::mem::swap(&mut self.terms, &mut self.spare);
        self.spare.clear();
        pick(&self.keys, &self.keys, low, high, &mut self.spare);
        std::mem::swap(&mut self.keys, &mut self.spare);
    }
}

/// The half width of the bracket, in standard deviations of the sample.
const DEVIATIONS: f64 = 2.5;
/// If fewer keys of the sample than this are above the bracket, the keys above the bracket are
/// copied with it.
const ABOVE: usize = 32;
/// The share of the remaining sum above which the variance is estimated as if it were this.
const SURE: f64 = 0.99;
/// The error that rounding may add, relative to the sum of the sample's terms.
const SLACK: f64 = 1e-4;

/// Returns the term with which the sum of sorted terms after `before` reaches `until`.
// In bounds: there is a term for each key.
fn reaching(keys: &[f32], terms: &[f32], before: f32, until: f32) -> Option<Reaching> {
    let mut sum = before;
    let place = terms.iter().position(|term| {
        sum += term;
        sum >= until
    })?;
    let key = keys[place];
    let first = keys.partition_point(|&other| other > key);
    Some(Reaching {
        key,
        nth: place - first,
    })
}

/// Adds the terms of all keys from `low` to below `reached.bound`, as if in descending order.
/// `None` if too many terms are half-way.
// In bounds: `rounded_tail` returns indices of `keys`, and asserts that there are as many values;
// no chunk is empty.
fn add_between(
    series: Series<'_>,
    reached: Reached,
    low: f32,
    halfway: &mut Vec<u32>,
) -> Option<Added> {
    let c = binade(reached.sum);
    let end = series.end(reached.sum);
    let Series { keys, values, .. } = series;
    let rounded = |above: f32, halfway: Option<&mut Vec<u32>>| {
        rounded_tail(keys, values, above, reached.bound, c, halfway)
    };
    halfway.clear();
    let sum = reached.sum + rounded(low.next_down(), Some(halfway));
    if sum >= end {
        return Some(Added::Beyond);
    }
    let key = |&i: &u32| keys[i as usize];
    halfway.sort_unstable_by(|a, b| key(b).total_cmp(&key(a)));
    let mut resolved = 0.0;
    for (n, equals) in halfway.chunk_by(|a, b| key(a) == key(b)).enumerate() {
        if n == MANY {
            return None;
        }
        let larger = rounded(key(&equals[0]), None);
        for &i in equals {
            // The addition to this sum rounds a half-way term up or down.
            let before = reached.sum + larger + resolved;
            resolved += (before + values[i as usize]) - before;
        }
    }
    let sum = sum + resolved;
    Some(if sum < end {
        Added::Within(sum)
    } else {
        Added::Beyond
    })
}

/// Sorts numbers at or above 0 in descending order, as integers, which takes half the time of
/// comparing floats.
pub(super) fn sort_descending(xs: &mut [f32], words: &mut Vec<u32>) {
    words.clear();
    words.extend(xs.iter().map(|x| !x.to_bits()));
    words.sort_unstable();
    for (x, word) in xs.iter_mut().zip(words) {
        *x = f32::from_bits(!*word);
    }
}
