//! Reads the repetitions `*`, `+`, `?` and `{m,n}` after an item.
//!
//! llama.cpp expands a repetition to the item, as often as it is required, and a rule for each
//! optional round. This parser also turns `*`, `+`, `?` and equivalent repetitions in braces into
//! such rules. It stores other repetitions as counts, in an [`Element::Repeat`]. The numbers
//! that llama.cpp would give to its rules for these are skipped, since the names of later generated
//! rules continue the same numbering.
//!
//! llama.cpp limits the expansion. A stored count has the same cost whatever its size, so a text
//! that exceeds llama.cpp's limit may be read again with a larger limit. The names of the rules
//! that llama.cpp would have generated are then unknown.

use super::{Fault, Frame, Parsed, Parser, Repetitions, fault};
use crate::grammar::elements::{ENDLESS, Element, Repeat};
use crate::grammar::limits::{MAX_HOST_REPETITIONS, MAX_REPETITIONS};

impl Parser<'_> {
    /// Reads the numbers of `{m}`, `{m,}` or `{m,n}`.
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
                    return self.expected("'}' behind the numbers of repetitions");
                }
            }
            _ => {
                return self.expected("',' or '}' behind the number of repetitions");
            }
        }
        self.at += 1;
        self.space(in_group);
        let largest = max.unwrap_or(min).max(min);
        self.about.most_repetitions = self.about.most_repetitions.max(largest);
        let most = match self.repetitions {
            Repetitions::AsLlamaCpp => MAX_HOST_REPETITIONS,
            Repetitions::Many => MAX_REPETITIONS,
        };
        if min > most {
            return too_many(at, format!("more than {most} repetitions"));
        }
        // As in llama.cpp, a maximum that is too large means no maximum.
        Ok((min, max.filter(|&max| max <= most)))
    }

    /// Repeats the last item `min` to `max` times, or at least `min` times if `max` is `None`.
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
        if n_rules > MAX_HOST_REPETITIONS && self.repetitions == Repetitions::AsLlamaCpp {
            let what = "repetitions of repetitions make more than";
            return too_many(at, format!("{what} {MAX_HOST_REPETITIONS} rules"));
        }
        if max.is_some_and(|max| max < min) {
            // llama.cpp would generate rules until memory runs out.
            return Err(Fault {
                at: Some(at),
                is_trap: true,
                ..Fault::nowhere("the most repetitions are fewer than the least")
            });
        }
        frame.item_rules = n_rules;
        if (min, max) == (1, Some(1)) {
            // An item repeated exactly once stays as it is.
            return Ok(());
        }
        let mut item = frame.elements.split_off(frame.item_start);
        match (min, max) {
            (_, Some(0)) => Ok(()),
            (0, Some(1)) => {
                let number = self.new_symbol(Some(rule), at)?;
                item.push(Element::Alternative);
                self.optional(frame, number, item)
            }
            (0 | 1, None) => {
                let number = self.new_symbol(Some(rule), at)?;
                if min == 1 {
                    frame.elements.extend_from_slice(&item);
                }
                item.extend([Element::Rule(number), Element::Alternative]);
                self.optional(frame, number, item)
            }
            _ => {
                let number = self.repeats.len() as u32;
                // llama.cpp generates one rule for unbounded rounds, and otherwise one for each
                // optional round.
                self.skip(
                    rule,
                    number,
                    match self.repetitions {
                        Repetitions::AsLlamaCpp => max.map_or(1, |max| max - min),
                        Repetitions::Many => 0,
                    },
                );
                self.repeats.push(Repeat {
                    item,
                    min: bounded(min),
                    max: max.map_or(ENDLESS, bounded),
                });
                self.push(frame, Element::Repeat(number))
            }
        }
    }

    fn optional(&mut self, frame: &mut Frame, rule: u32, elements: Vec<Element>) -> Parsed<()> {
        self.grown(elements.len())?;
        self.define(rule, elements);
        self.push(frame, Element::Rule(rule))
    }
}

fn too_many<T>(at: usize, what: String) -> Parsed<T> {
    Err(Fault {
        at: Some(at),
        is_of_number: true,
        ..Fault::nowhere(what)
    })
}

fn bounded(rounds: u64) -> u32 {
    u32::try_from(rounds).map_or(ENDLESS - 1, |rounds| rounds.min(ENDLESS - 1))
}
