//! Builds automata of the texts of numbers, between bounds or with given divisors, digit by digit.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::grammar::schema::automaton::{Dfa, Shared, explore};
use crate::grammar::schema::decimal::Decimal;
use crate::grammar::schema::shape::{Bound, Compiler, Numbers};
use crate::grammar::schema::work::{TooLarge, Work};

/// A bound on the absolute value of a number.
struct Limit {
    whole: Vec<u8>,
    fraction: Vec<u8>,
    is_outside: bool,
}

/// A divisor whose multiples are required or excluded.
struct Multiple {
    /// The divisor as a whole number of units.
    units: u64,
    /// The number of digits after the decimal point in a unit, which is 10^-`places`.
    places: usize,
    is_wanted: bool,
}

/// Marks the remainder of a number that cannot become a multiple.
const NO_MULTIPLE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Start,
    Sign,
    Zero,
    Whole,
    Point,
    Fraction,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    phase: Phase,
    negative: bool,
    /// The number of digits in the current phase, counted only as far as it matters.
    n: usize,
    /// How the digits so far compare with those of the lower and the upper limit.
    lower: Ordering,
    upper: Ordering,
    remainders: Vec<u64>,
}

/// The lower and upper limit of the numbers of one sign; `None` if there are no such numbers.
type Limits = Option<(Option<Limit>, Option<Limit>)>;

fn limit(bound: (Decimal, bool)) -> Limit {
    let (whole, fraction) = bound.0.parts();
    Limit {
        whole,
        fraction,
        is_outside: bound.1,
    }
}

fn positive(min: &Bound, max: &Bound) -> Limits {
    let lower = min.clone().filter(|(min, _)| !min.is_negative());
    let upper = max.clone();
    if upper.as_ref().is_some_and(|(max, _)| max.is_negative()) {
        return None;
    }
    Some((lower.map(limit), upper.map(limit)))
}

/// Returns the limits of the negative numbers. They exclude zero, which is written without a sign.
fn negative(min: &Bound, max: &Bound) -> Limits {
    let upper = min.clone();
    if upper.as_ref().is_some_and(|(min, _)| !min.is_negative()) {
        return None;
    }
    let upper = upper.map(|(min, is_outside)| limit((min.negated(), is_outside)));
    let lower = match max.clone().filter(|(max, _)| max.is_negative()) {
        Some((max, is_outside)) => limit((max.negated(), is_outside)),
        None => limit((Decimal::zero(), true)),
    };
    Some((Some(lower), upper))
}

impl Limit {
    /// Compares a whole number of `n` digits with the limit. `so_far` is the comparison of their
    /// digits.
    fn of_whole(&self, n: usize, so_far: Ordering) -> Ordering {
        n.cmp(&self.whole.len()).then(so_far)
    }

    /// Compares a number that ends at `place` with the limit.
    fn at_end(&self, place: &Place, so_far: Ordering) -> Ordering {
        match place.phase {
            Phase::Fraction => {
                let is_longer = place.n < self.fraction.len();
                so_far.then(if is_longer {
                    Ordering::Less
                } else {
                    Ordering::Equal
                })
            }
            _ => {
                let is_longer = !self.fraction.is_empty();
                let whole = self.of_whole(place.n, so_far);
                whole.then(if is_longer {
                    Ordering::Less
                } else {
                    Ordering::Equal
                })
            }
        }
    }

    fn digit(&self, place: &Place, digit: u8, so_far: Ordering) -> Ordering {
        let digits = match place.phase {
            Phase::Point | Phase::Fraction => &self.fraction,
            _ => &self.whole,
        };
        match digits.get(place.n) {
            Some(other) => so_far.then(digit.cmp(other)),
            None if matches!(place.phase, Phase::Point | Phase::Fraction) => {
                so_far.then(digit.cmp(&0))
            }
            None => so_far,
        }
    }
}

impl Multiple {
    fn of(number: &Decimal, is_wanted: bool) -> Result<Self, TooLarge> {
        const MOST: u64 = 1 << 40;
        let (digits, scale) = number.scaled();
        let zeros = usize::try_from(scale.max(0)).unwrap_or(0);
        let digits = digits.iter().copied().chain(std::iter::repeat_n(0, zeros));
        let mut units = 0;
        for digit in digits {
            units = 10 * units + u64::from(digit);
            if units > MOST {
                return Err(TooLarge);
            }
        }
        Ok(Self {
            units: units.max(1),
            places: usize::try_from((-scale).max(0)).unwrap_or(0),
            is_wanted,
        })
    }

    fn digit(&self, place: &Place, digit: u8, so_far: u64) -> u64 {
        let is_fraction = matches!(place.phase, Phase::Point | Phase::Fraction);
        if so_far == NO_MULTIPLE || is_fraction && place.n >= self.places {
            return match digit {
                0 => so_far,
                _ => NO_MULTIPLE,
            };
        }
        (10 * so_far + u64::from(digit)) % self.units
    }

    fn is_at_end(&self, place: &Place, so_far: u64) -> bool {
        if so_far == NO_MULTIPLE {
            return false;
        }
        let n_read = match place.phase {
            Phase::Fraction => place.n,
            _ => 0,
        };
        let left = self.places.saturating_sub(n_read);
        (0..left).fold(so_far, |units, _| 10 * units % self.units) % self.units == 0
    }
}

fn digits_of(numbers: &Numbers, work: &Work) -> Result<Dfa, TooLarge> {
    let signs = [
        positive(&numbers.min, &numbers.max),
        negative(&numbers.min, &numbers.max),
    ];
    let mut multiples = Vec::new();
    for number in &numbers.multiples {
        multiples.push(Multiple::of(number, true)?);
    }
    for number in &numbers.no_multiples {
        multiples.push(Multiple::of(number, false)?);
    }
    if numbers.integer == Some(false) {
        multiples.push(Multiple {
            units: 1,
            places: 0,
            is_wanted: false,
        });
    }
    let limits = || {
        let signs = signs.iter().flatten();
        signs.flat_map(|(lower, upper)| lower.iter().chain(upper))
    };
    // More digits than these make no difference.
    let most_whole = limits().map(|limit| limit.whole.len()).max().unwrap_or(0) + 1;
    let most_fraction = limits().map(|limit| limit.fraction.len());
    let most_fraction = most_fraction
        .chain(multiples.iter().map(|multiple| multiple.places))
        .max()
        .unwrap_or(0);
    let of_sign = |place: &Place| {
        signs
            .get(usize::from(place.negative))
            .and_then(Option::as_ref)
    };
    let accepts = |place: &Place| {
        if !matches!(place.phase, Phase::Zero | Phase::Whole | Phase::Fraction) {
            return false;
        }
        let Some((lower, upper)) = of_sign(place) else {
            return false;
        };
        let is_above = lower.as_ref().is_none_or(|limit| {
            let order = limit.at_end(place, place.lower);
            order.is_gt() || order.is_eq() && !limit.is_outside
        });
        let is_below = upper.as_ref().is_none_or(|limit| {
            let order = limit.at_end(place, place.upper);
            order.is_lt() || order.is_eq() && !limit.is_outside
        });
        let mut remainders = multiples.iter().zip(&place.remainders);
        is_above
            && is_below
            && remainders
                .all(|(multiple, &so_far)| multiple.is_at_end(place, so_far) == multiple.is_wanted)
    };
    let start = Place {
        phase: Phase::Start,
        negative: false,
        n: 0,
        lower: Ordering::Equal,
        upper: Ordering::Equal,
        remainders: vec![0; multiples.len()],
    };
    let edges = |place: &Place, next: &mut Vec<(u32, u32, Place)>| {
        let mut go = |at: u8, to: Place| next.push((u32::from(at), u32::from(at), to));
        if place.phase == Phase::Start && signs[1].is_some() {
            go(
                b'-',
                Place {
                    phase: Phase::Sign,
                    negative: true,
                    ..place.clone()
                },
            );
        }
        let Some((lower, upper)) = of_sign(place) else {
            return;
        };
        if matches!(place.phase, Phase::Zero | Phase::Whole) && numbers.integer != Some(true) {
            let order = |limit: &Option<Limit>, so_far| match limit {
                Some(limit) => limit.of_whole(place.n, so_far),
                None => Ordering::Equal,
            };
            go(
                b'.',
                Place {
                    phase: Phase::Point,
                    n: 0,
                    lower: order(lower, place.lower),
                    upper: order(upper, place.upper),
                    ..place.clone()
                },
            );
        }
        if place.phase == Phase::Zero {
            return;
        }
        if work.spend(40 * multiples.len()).is_err() {
            return;
        }
        for digit in 0..10 {
            let phase = match place.phase {
                Phase::Start | Phase::Sign if digit == 0 => Phase::Zero,
                Phase::Start | Phase::Sign | Phase::Whole | Phase::Zero => Phase::Whole,
                Phase::Point | Phase::Fraction => Phase::Fraction,
            };
            let order = |limit: &Option<Limit>, so_far| match limit {
                Some(limit) => limit.digit(place, digit, so_far),
                None => Ordering::Equal,
            };
            let remainders = multiples.iter().zip(&place.remainders);
            let remainders: Vec<u64> = remainders
                .map(|(multiple, &so_far)| multiple.digit(place, digit, so_far))
                .collect();
            let is_lost = multiples
                .iter()
                .zip(&remainders)
                .any(|(multiple, &so_far)| multiple.is_wanted && so_far == NO_MULTIPLE);
            if is_lost {
                continue;
            }
            let most = match phase {
                Phase::Fraction => most_fraction,
                _ => most_whole,
            };
            go(
                b'0' + digit,
                Place {
                    phase,
                    negative: place.negative,
                    n: (place.n + 1).min(most),
                    lower: order(lower, place.lower),
                    upper: order(upper, place.upper),
                    remainders,
                },
            );
        }
    };
    Ok(explore(work, start, accepts, edges)?.minimized(work))
}

/// Returns the automaton of the integers from `min` to `max`, inclusive.
pub(super) fn integers_between(min: u64, max: u64, work: &Work) -> Result<Dfa, TooLarge> {
    let bound = |number: u64| Decimal::read(&number.to_string()).map(|number| (number, false));
    let integers = Numbers {
        integer: Some(true),
        min: bound(min),
        max: bound(max),
        ..Numbers::default()
    };
    digits_of(&integers, work)
}

impl Compiler {
    /// Returns the automaton of the texts of `numbers`, without exponents.
    pub fn automaton_of_numbers(&mut self, numbers: &Numbers) -> Result<Shared, TooLarge> {
        if let Some(dfa) = self.number_automata.get(numbers) {
            return Ok(Arc::clone(dfa));
        }
        let dfa = match &numbers.only {
            Some(_) => {
                let texts = self.texts_of_numbers(numbers)?;
                Dfa::of_texts(texts.iter().map(String::as_str))?
            }
            None => {
                let mut dfa = digits_of(numbers, &self.work)?;
                for number in &numbers.except {
                    let bound = Some((number.clone(), false));
                    let same = Numbers {
                        min: bound.clone(),
                        max: bound,
                        ..Numbers::default()
                    };
                    dfa = dfa.minus(&digits_of(&same, &self.work)?, &self.work)?;
                }
                dfa.minimized(&self.work)
            }
        };
        let dfa = Arc::new(dfa);
        self.number_automata
            .insert(numbers.clone(), Arc::clone(&dfa));
        Ok(dfa)
    }

    /// Returns the texts of the numbers that `numbers` lists one by one, except those that its
    /// other fields exclude.
    pub fn texts_of_numbers(&mut self, numbers: &Numbers) -> Result<Vec<String>, TooLarge> {
        let all = Numbers {
            only: None,
            ..numbers.clone()
        };
        let is_free = all == Numbers::default();
        let dfa = match is_free {
            true => None,
            false => Some(self.automaton_of_numbers(&all)?),
        };
        let mut texts = Vec::new();
        for number in numbers.only.iter().flatten() {
            let text = number.plain();
            if dfa.as_ref().is_some_and(|dfa| !dfa.accepts(&text)) || texts.contains(&text) {
                continue;
            }
            if number.is_integer() && numbers.integer != Some(true) {
                texts.push(format!("{text}.0"));
            }
            texts.push(text);
        }
        Ok(texts)
    }
}
