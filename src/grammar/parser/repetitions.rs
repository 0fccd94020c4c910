//! Repetitions: `*`, `+`, `?` and `{m,n}` behind an item.

use super::{Fault, Frame, Parsed, Parser, fault};
use crate::grammar::elements::Element;
use crate::grammar::limits::MAX_REPETITIONS;

impl Parser<'_> {
    /// The numbers of `{m}`, `{m,}` or `{m,n}`.
    pub(super) fn bounds(&mut self, in_group: bool) -> Parsed<(u64, Option<u64>)> {
        self.at += 1;
        self.space(in_group);
        let at = self.at;
        let too_large = |number: Option<u64>| match number {
            Some(number) => Ok(number),
            None => fault(at, "the number of repetitions is too large"),
        };
        let min = self.integer()?;
        let min = too_large(min)?;
        self.space(in_group);
        let mut max = Some(min);
        match self.peek() {
            Some(b'}') => {}
            Some(b',') => {
                self.at += 1;
                self.space(in_group);
                max = None;
                if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                    let number = self.integer()?;
                    max = Some(too_large(number)?);
                    self.space(in_group);
                }
                if self.peek() != Some(b'}') {
                    return fault(self.at, "expected '}' behind the numbers of repetitions");
                }
            }
            _ => {
                return fault(
                    self.at,
                    "expected ',' or '}' behind the number of repetitions",
                );
            }
        }
        self.at += 1;
        self.space(in_group);
        if min > MAX_REPETITIONS {
            return fault(at, format!("more than {MAX_REPETITIONS} repetitions"));
        }
        // As the built-in has it: what is too many has no end.
        Ok((min, max.filter(|&max| max <= MAX_REPETITIONS)))
    }

    /// Repeats the last item `min` to `max` times: the item itself `min` times, then a chain of
    /// rules of which each is the item and the next, or nothing.
    pub(super) fn repeat(
        &mut self,
        frame: &mut Frame,
        rule: u32,
        at: usize,
        min: u64,
        max: Option<u64>,
    ) -> Parsed<()> {
        if frame.elements.len() <= frame.item_start {
            return fault(at, "expected an item before the repetition");
        }
        let total = max.filter(|&max| max > 0).unwrap_or(min.max(1));
        let n_rules = frame.item_rules.saturating_mul(total);
        if n_rules > MAX_REPETITIONS {
            return fault(
                at,
                format!("repetitions of repetitions make more than {MAX_REPETITIONS} rules"),
            );
        }
        if max.is_some_and(|max| max < min) {
            // The built-in would write rules until memory ends.
            return Err(Fault {
                at: Some(at),
                is_trap: true,
                ..Fault::nowhere("the most repetitions are fewer than the least")
            });
        }
        frame.item_rules = n_rules;
        if (min, max) == (1, Some(1)) {
            // The item as it stands: a copy of it, which nothing would count, is not needed.
            return Ok(());
        }
        let item = frame.elements.split_off(frame.item_start);
        if min > 0 {
            frame.elements.extend_from_slice(&item);
        }
        for _ in 1..min {
            self.grown(item.len())?;
            frame.elements.extend_from_slice(&item);
        }
        let n_optional = max.map_or(1, |max| max - min);
        let mut last = None;
        for _ in 0..n_optional {
            self.grown(item.len() + 2)?;
            let number = self.new_symbol(Some(rule), at)?;
            let mut elements = item.clone();
            let next = if max.is_none() { Some(number) } else { last };
            elements.extend(next.map(Element::Rule));
            elements.push(Element::Alternative);
            self.define(number, elements);
            last = Some(number);
        }
        if let Some(last) = last {
            self.push(frame, Element::Rule(last))?;
        }
        Ok(())
    }
}
