//! Compiles regular expressions to the instructions of an NFA over bytes.
//!
//! Each expression is compiled from its end, since an instruction contains the addresses of its
//! successors.

// In bounds: addresses are positions in a list that only grows.

use regex_syntax::hir::{Class, Hir, HirKind, Look};
use regex_syntax::utf8::{Utf8Range, Utf8Sequences};

use crate::grammar::hash::Map;
use crate::grammar::limits::MAX_PATTERN_CLASSES;
use crate::grammar::pattern::{name_of, parse_with};
use crate::memory::{grow_map, push};
use crate::quoted::quoted;

/// The position of an instruction.
pub(super) type Address = u32;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inst {
    /// Matches a byte of this range.
    Byte { range: (u8, u8), next: Address },
    /// Continues at both addresses.
    Split { first: Address, second: Address },
    /// Matches at the beginning of the text, or, with `of_line`, of a line.
    Begin { of_line: bool, next: Address },
    /// A match ends here.
    Match,
    /// Never matches.
    Fail,
}

/// The maximum number of instructions of all patterns, with repetitions expanded. Compiling them
/// may take four times as many steps.
const MAX_INSTRUCTIONS: usize = 1 << 18;

/// Patterns that are searched for together.
#[derive(Debug)]
pub(super) struct Program {
    /// The instructions.
    pub(super) code: Vec<Inst>,
    /// The first instruction of each pattern.
    pub(super) entries: Vec<Address>,
    steps: usize,
    /// The [`Byte`](Inst::Byte) instructions by range and next address. Classes whose characters
    /// end in equal bytes share them.
    shared: Map<((u8, u8), Address), Address>,
}

const MATCH: Address = 0;
const FAIL: Address = 1;

impl Program {
    /// Returns the program of the patterns `texts`, in the syntax of the crate `regex`. With
    /// `ignores_case`, each pattern is read as if it began with `(?i)`.
    ///
    /// # Errors
    /// Returns a message for the caller, which names the pattern, if a pattern cannot be banned.
    pub(super) fn new(texts: &[&[u8]], ignores_case: bool) -> Result<Self, String> {
        let mut program = Self {
            code: vec![Inst::Match, Inst::Fail],
            entries: Vec::new(),
            steps: 0,
            shared: Map::default(),
        };
        let mut classes_left = MAX_PATTERN_CLASSES;
        for (i, text) in texts.iter().enumerate() {
            let entry = program.entry(text, ignores_case, &mut classes_left);
            let entry = entry.map_err(|why| format!("text {i}, \"{}\": {why}", quoted(text)))?;
            push(&mut program.entries, entry);
        }
        Ok(program)
    }

    fn entry(
        &mut self,
        text: &[u8],
        ignores_case: bool,
        classes_left: &mut usize,
    ) -> Result<Address, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
        let parsed = parse_with(text, classes_left, ignores_case);
        let hir = parsed.map_err(|refused| refused.to_string())?;
        if matches_empty(&hir) {
            return Err("it matches the empty text, which stands everywhere".into());
        }
        self.part(&hir, MATCH)
    }

    fn push(&mut self, inst: Inst) -> Result<Address, String> {
        if self.code.len() >= MAX_INSTRUCTIONS {
            return Err(format!(
                "with repetitions written out, the patterns have more than {MAX_INSTRUCTIONS} parts"
            ));
        }
        push(&mut self.code, inst);
        Ok(self.code.len() as Address - 1)
    }

    /// Compiles an expression that continues at `next`. Returns its address.
    fn part(&mut self, hir: &Hir, next: Address) -> Result<Address, String> {
        self.steps += 1;
        if self.steps > 4 * MAX_INSTRUCTIONS {
            return Err("with repetitions written out, the patterns are too long".into());
        }
        match hir.kind() {
            HirKind::Empty => Ok(next),
            HirKind::Literal(literal) => {
                let bytes = literal.0.iter().rev();
                bytes.into_iter().try_fold(next, |next, &byte| {
                    let range = (byte, byte);
                    self.push(Inst::Byte { range, next })
                })
            }
            HirKind::Class(class) => self.class(class, next),
            HirKind::Look(look) => match look {
                Look::Start | Look::StartLF => {
                    let of_line = *look == Look::StartLF;
                    self.push(Inst::Begin { of_line, next })
                }
                look => Err(format!(
                    "it asks for {}, which no ban can: say with classes what stands there",
                    name_of(*look)
                )),
            },
            HirKind::Capture(capture) => self.part(&capture.sub, next),
            HirKind::Concat(parts) => {
                let parts = parts.iter().rev();
                parts
                    .into_iter()
                    .try_fold(next, |next, part| self.part(part, next))
            }
            HirKind::Alternation(parts) => {
                let mut all = FAIL;
                for part in parts {
                    let first = self.part(part, next)?;
                    all = self.either(first, all)?;
                }
                Ok(all)
            }
            HirKind::Repetition(repetition) => {
                let bounds = (repetition.min, repetition.max);
                self.repetition(&repetition.sub, bounds, next)
            }
        }
    }

    fn either(&mut self, first: Address, second: Address) -> Result<Address, String> {
        match second {
            FAIL => Ok(first),
            _ => self.push(Inst::Split { first, second }),
        }
    }

    fn repetition(
        &mut self,
        sub: &Hir,
        (mut min, mut max): (u32, Option<u32>),
        next: Address,
    ) -> Result<Address, String> {
        if sub.properties().maximum_len() == Some(0) {
            // The item matches only the empty text, so once is as good as any number of times.
            (min, max) = (min.min(1), Some(max.map_or(1, |max| max.min(1))));
        }
        let mut first = next;
        match max {
            None => {
                // The loop's instruction is written first, since its body leads back to it.
                let second = next;
                let all = self.push(Inst::Split { first, second })?;
                let first = self.part(sub, all)?;
                self.code[all as usize] = Inst::Split { first, second };
                // The loop itself contains one round.
                if min > 0 {
                    return (1..min).try_fold(first, |first, _| self.part(sub, first));
                }
                return Ok(all);
            }
            Some(max) => {
                for _ in min..max {
                    let once = self.part(sub, first)?;
                    first = self.push(Inst::Split {
                        first: once,
                        second: next,
                    })?;
                }
            }
        }
        (0..min).try_fold(first, |first, _| self.part(sub, first))
    }

    fn class(&mut self, class: &Class, next: Address) -> Result<Address, String> {
        let mut all = FAIL;
        match class {
            Class::Bytes(class) => {
                for range in class.ranges() {
                    let one = self.byte((range.start(), range.end()), next)?;
                    all = self.either(one, all)?;
                }
            }
            Class::Unicode(class) => {
                for range in class.ranges() {
                    for sequence in Utf8Sequences::new(range.start(), range.end()) {
                        let mut ranges = sequence.as_slice().iter().rev();
                        let one = ranges.try_fold(next, |next, &Utf8Range { start, end }| {
                            self.byte((start, end), next)
                        })?;
                        all = self.either(one, all)?;
                    }
                }
            }
        }
        Ok(all)
    }

    /// Returns the instruction that matches a byte of this range and continues at `next`. Equal
    /// instructions are shared.
    fn byte(&mut self, range: (u8, u8), next: Address) -> Result<Address, String> {
        if let Some(&known) = self.shared.get(&(range, next)) {
            return Ok(known);
        }
        let address = self.push(Inst::Byte { range, next })?;
        grow_map(&mut self.shared);
        self.shared.insert((range, next), address);
        Ok(address)
    }
}

/// True if the expression matches the empty text wherever its anchors hold. `regex-syntax` reports
/// no minimum length for an expression with a part that cannot match, such as `[a&&b]`.
fn matches_empty(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => true,
        HirKind::Literal(_) | HirKind::Class(_) => false,
        HirKind::Repetition(repetition) => repetition.min == 0 || matches_empty(&repetition.sub),
        HirKind::Capture(capture) => matches_empty(&capture.sub),
        HirKind::Concat(parts) => parts.iter().all(matches_empty),
        HirKind::Alternation(parts) => parts.iter().any(matches_empty),
    }
}
