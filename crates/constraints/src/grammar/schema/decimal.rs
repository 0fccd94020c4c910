//! Decimal numbers of any size.

use std::cmp::Ordering;

/// The largest absolute value of the exponent of a number in a schema.
const MOST_EXPONENT: i64 = 1000;

/// A decimal number: its digits, times a power of ten.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    negative: bool,
    /// The digits. Neither the first nor the last is 0, and zero has none.
    digits: Box<[u8]>,
    scale: i64,
}

impl Decimal {
    /// Returns zero.
    pub fn zero() -> Self {
        Self::of(false, Vec::new(), 0)
    }

    /// Returns the number of significant digits.
    pub fn n_digits(&self) -> usize {
        self.digits.len()
    }

    fn of(negative: bool, mut digits: Vec<u8>, mut scale: i64) -> Self {
        let n_zeros = digits.iter().take_while(|&&digit| digit == 0).count();
        digits.drain(..n_zeros);
        while digits.last() == Some(&0) {
            digits.pop();
            scale += 1;
        }
        if digits.is_empty() {
            scale = 0;
        }
        Self {
            negative: negative && !digits.is_empty(),
            digits: digits.into(),
            scale,
        }
    }

    /// Reads a JSON number; `None` if its exponent exceeds the limit.
    pub fn read(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = whole.bytes().chain(fraction.bytes());
        let digits: Vec<u8> = digits.map(|digit| digit.wrapping_sub(b'0')).collect();
        if exponent.abs() > MOST_EXPONENT {
            return None;
        }
        Some(Self::of(negative, digits, exponent - fraction.len() as i64))
    }

    /// True if the number is below zero.
    pub fn is_negative(&self) -> bool {
        self.negative
    }

    /// True if the number is an integer.
    pub fn is_integer(&self) -> bool {
        self.scale >= 0
    }

    /// Returns the value as a `u64`, if it is one.
    pub fn to_u64(&self) -> Option<u64> {
        if self.negative || self.scale < 0 {
            return None;
        }
        let (whole, _) = self.parts();
        whole.iter().try_fold(0_u64, |value, &digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit))
        })
    }

    /// Returns the number with the opposite sign.
    pub fn negated(&self) -> Self {
        Self {
            negative: !self.negative && !self.digits.is_empty(),
            ..self.clone()
        }
    }

    /// Returns the digits before the decimal point, at least one, and those after it.
    pub fn parts(&self) -> (Vec<u8>, Vec<u8>) {
        let point = self.digits.len() as i64 + self.scale;
        let digit = |at: i64| usize::try_from(at).ok().and_then(|at| self.digits.get(at));
        let digits = |from, to| {
            (from..to)
                .map(|at| digit(at).copied().unwrap_or(0))
                .collect()
        };
        let whole: Vec<u8> = if point <= 0 {
            vec![0]
        } else {
            digits(0, point)
        };
        let fraction = digits(point, self.digits.len() as i64);
        (whole, fraction)
    }

    /// Returns the digits and the exponent of ten.
    pub fn scaled(&self) -> (&[u8], i64) {
        (&self.digits, self.scale)
    }

    /// Returns the number written without an exponent.
    pub fn plain(&self) -> String {
        let (whole, fraction) = self.parts();
        let mut text = String::new();
        if self.negative {
            text.push('-');
        }
        let digits = |digits: Vec<u8>| digits.into_iter().map(|digit| char::from(b'0' + digit));
        text.extend(digits(whole));
        if !fraction.is_empty() {
            text.push('.');
            text.extend(digits(fraction));
        }
        text
    }

    fn magnitude(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        let begin = |number: &Self| number.digits.len() as i64 + number.scale;
        begin(self)
            .cmp(&begin(other))
            .then_with(|| self.digits.cmp(&other.digits))
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.magnitude(other),
            (true, true) => other.magnitude(self),
        }
    }
}
