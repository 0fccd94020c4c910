//! Integers between bounds, as llama.cpp's converter writes them.
//!
//! With two bounds, exactly the integers between them are allowed, and, if the lower bound is
//! negative and the upper is not, also `-0`. With only one bound, only integers between it and zero
//! may have more than sixteen digits. The digits of a lower bound are then compared one by one,
//! without the zeros after the first, so some smaller numbers are allowed, too.

use std::sync::Arc;

use super::writer::Writer;
use crate::grammar::elements::Element;
use crate::grammar::schema::numbers::integers_between;
use crate::grammar::schema::output::Sequence;
use crate::grammar::schema::refusal::Answer;

/// The maximum number of digits of a number with only one bound.
const MOST_DIGITS: u32 = 16;

impl Writer<'_> {
    /// Writes the integers between bounds, at least one of which is given.
    pub(super) fn integers(&mut self, min: Option<i64>, max: Option<i64>) -> Answer<Vec<Sequence>> {
        let minus = self.output.raw("-")?;
        let mut all = Vec::new();
        let size = i64::unsigned_abs;
        match (min, max) {
            (Some(min), Some(max)) if max < 0 => {
                let below = self.between(size(max), size(min))?;
                all.push([&*minus, &[below]].concat());
            }
            (Some(min), Some(max)) => {
                if min < 0 {
                    let below = self.between(0, size(min))?;
                    all.push([&*minus, &[below]].concat());
                }
                all.push(vec![self.between(min.max(0).unsigned_abs(), size(max))?]);
            }
            (Some(min), None) if min < 0 => {
                let below = self.between(0, size(min))?;
                all.push([&*minus, &[below]].concat());
                all.extend(self.at_least("minimum", 0, MOST_DIGITS, true)?);
            }
            (Some(min), None) => {
                all = self.at_least("minimum", size(min), MOST_DIGITS, true)?;
            }
            (None, Some(max)) if max < 0 => {
                let below = self.at_least("maximum", size(max), MOST_DIGITS, false)?;
                all.push([&*minus, &[self.group(below)?]].concat());
            }
            (None, max) => {
                let first = self.digit(1, 9)?;
                let more = self.digits(0, MOST_DIGITS - 1)?;
                all.push([&*minus, &[first], &more].concat());
                all.push(vec![self.between(0, max.unwrap_or(0).unsigned_abs())?]);
            }
        }
        Ok(all)
    }

    /// Writes the integers from `min` to `max`, neither of which is negative.
    fn between(&mut self, min: u64, max: u64) -> Answer<Element> {
        let dfa = integers_between(min, max, &self.work).map_err(|_| super::too_long())?;
        self.output.automaton(&Arc::new(dfa), false)
    }

    fn digit(&mut self, first: u32, last: u32) -> Answer<Element> {
        self.output.class(&[(0x30 + first, 0x30 + last)])
    }

    fn digits(&mut self, min: u32, max: u32) -> Answer<Sequence> {
        let digit = self.digit(0, 9)?;
        self.times(vec![digit], min, Some(max))
    }

    /// Writes the digits that llama.cpp's converter accepts for a number of at least `least`, with
    /// at most `most` digits. `is_whole` is true if no digits precede them. After a first digit
    /// smaller than that of `least`, more digits must follow than in `least`. After a greater first
    /// digit, at least as many must follow. After an equal first digit, the following digits must
    /// be at least the rest of `least`.
    fn at_least(
        &mut self,
        keyword: &str,
        least: u64,
        most: u32,
        is_whole: bool,
    ) -> Answer<Vec<Sequence>> {
        let n_behind = least.checked_ilog10().unwrap_or(0);
        let unit = 10_u64.pow(n_behind);
        let first = (least / unit) as u32;
        let more = (most - 1).max(1);
        let lowest = u32::from(is_whole);
        if least == 0 {
            if !is_whole {
                return Ok(vec![self.digits(1, most)?]);
            }
            let behind = [&[self.digit(1, 9)?], &*self.digits(0, more)?].concat();
            return Ok(vec![self.output.raw("0")?, behind]);
        }
        let may_be_less = first > if n_behind == 0 { lowest } else { 1 };
        let may_be_more = n_behind > 0 && first < 9;
        if may_be_less && n_behind + 1 > more || may_be_more && n_behind > more {
            return self.refused(
                keyword,
                "llama.cpp does not come to an end with what its converter writes for a bound of so \
                 many digits; give one on the other side, too",
            );
        }
        let mut all = Vec::new();
        if may_be_less {
            let smaller = self.digit(lowest, first - 1)?;
            all.push([&[smaller], &*self.digits(n_behind + 1, more)?].concat());
        }
        if n_behind == 0 {
            let same = self.digit(first, 9)?;
            all.push([&[same], &*self.digits(0, more)?].concat());
            return Ok(all);
        }
        let same = self.digit(first, first)?;
        let rest = self.at_least(keyword, least % unit, more, false)?;
        all.push(vec![same, self.group(rest)?]);
        if may_be_more {
            let greater = self.digit(first + 1, 9)?;
            all.push([&[greater], &*self.digits(n_behind, more)?].concat());
        }
        Ok(all)
    }
}
