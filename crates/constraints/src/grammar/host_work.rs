//! Predicts whether llama.cpp's own grammar constructor would return in good time, before it is
//! called.
//!
//! The constructor expands counted repetitions, and stores each initial stack separately. Its check
//! for left recursion is recursive, and visits a rule again on every path to it. On some texts that
//! this library reads at once, it hangs or overflows the thread's stack. Builds before 0.6.0 also
//! do so if a repetition repeats something that may be empty.

use crate::grammar::elements::{ENDLESS, Element, Repeat, Written, host_check_ends};

/// A depth of recursion that leaves llama.cpp far from the end of a thread's stack.
pub const DEEP: usize = 1000;
/// The maximum number of rules that llama.cpp's check for left recursion may visit. That many take
/// no noticeable time.
pub const MOST_CHECKED: usize = 1 << 20;
/// The maximum number of elements that llama.cpp may store. Each takes 8 bytes, in three copies.
const MOST_ELEMENTS: usize = 1 << 20;
/// The maximum number of initial stacks. Each is compared with all others.
const MOST_STACKS: u32 = 1 << 12;
/// The maximum number of passes over the rules that determine which may be empty.
const PASSES: usize = 32;

/// True if the constructor of any build of llama.cpp is certain to return for these rules, in no
/// noticeable time. `nested` is the depth of their parentheses.
pub fn host_comes_back(written: &Written, nested: usize) -> bool {
    let behind_root = |empty| {
        let empty = &empty;
        Ways { written, empty }.behind_root()
    };
    nested <= DEEP
        && n_elements(written) <= MOST_ELEMENTS
        && Empty::of(written)
            .and_then(behind_root)
            .is_some_and(|behind| behind.n_stacks <= MOST_STACKS)
        && host_check_ends(written, MOST_CHECKED)
}

/// Returns the number of elements after repetitions are expanded to the required rounds of the item
/// and a rule for each optional round.
fn n_elements(written: &Written) -> usize {
    let mut of_repeats: Vec<usize> = Vec::with_capacity(written.repeats.len());
    let mut of_rounds: usize = 0;
    let count = |of_repeats: &[usize], elements: &[Element]| {
        let each = elements.iter().map(|element| match *element {
            Element::Repeat(number) => of_repeats.get(number as usize).copied().unwrap_or(1),
            _ => 1,
        });
        each.fold(0, usize::saturating_add)
    };
    // A repetition within an item has a smaller number, so it has been counted already.
    for repeat in &written.repeats {
        let item = count(&of_repeats, &repeat.item);
        let rounds = match repeat.max {
            ENDLESS => 1,
            max => max.saturating_sub(repeat.min) as usize,
        };
        let must = item.saturating_mul(repeat.min as usize).saturating_add(1);
        of_rounds = of_rounds.saturating_add(rounds.saturating_mul(item.saturating_add(2)));
        of_repeats.push(must);
    }
    let rules = written.rules.iter().map(|rule| count(&of_repeats, rule));
    rules.fold(of_rounds, usize::saturating_add)
}

/// The rules and counted repetitions that may be empty.
struct Empty {
    rules: Vec<bool>,
    repeats: Vec<bool>,
}

impl Empty {
    /// Finds the rules and repetitions that may be empty; `None` if that takes more than [`PASSES`]
    /// passes.
    fn of(written: &Written) -> Option<Self> {
        let mut empty = Self {
            rules: vec![false; written.rules.len()],
            repeats: vec![false; written.repeats.len()],
        };
        for _ in 0..PASSES {
            let mut changed = false;
            for (number, repeat) in written.repeats.iter().enumerate() {
                let may_be = repeat.min == 0 || empty.all(&repeat.item);
                changed |= mark(&mut empty.repeats, number, may_be);
            }
            for (number, rule) in written.rules.iter().enumerate() {
                let may_be = alternatives(rule).any(|elements| empty.all(elements));
                changed |= mark(&mut empty.rules, number, may_be);
            }
            if !changed {
                return Some(empty);
            }
        }
        None
    }

    fn all(&self, elements: &[Element]) -> bool {
        elements.iter().all(|&element| self.may_be(element))
    }

    fn may_be(&self, element: Element) -> bool {
        let marks = match element {
            Element::Rule(rule) => self.rules.get(rule as usize),
            Element::Repeat(repeat) => self.repeats.get(repeat as usize),
            _ => None,
        };
        marks == Some(&true)
    }
}

/// Sets a mark if `value` is true. Returns true if it was not set before.
fn mark(marks: &mut [bool], number: usize, value: bool) -> bool {
    let changed = marks.get_mut(number).filter(|mark| value && !**mark);
    changed.is_some_and(|mark| {
        *mark = true;
        true
    })
}

fn alternatives(rule: &[Element]) -> impl Iterator<Item = &[Element]> {
    rule.split(|element| *element == Element::Alternative)
}

/// The depth and the number of paths from a rule or a counted repetition to its first characters.
#[derive(Clone, Copy)]
struct Behind {
    /// The length of the longest path, in rules.
    depth: usize,
    /// The number of paths, including those that end without a character.
    n_stacks: u32,
}

/// The rules and repetitions that a rule or a counted repetition can begin with.
struct Beginning {
    /// The numbers of the nodes, with duplicates. Rules are numbered first, then counted
    /// repetitions.
    nodes: Vec<usize>,
    /// The number of paths that reach a character, or the end, without another rule or repetition.
    n_ends: u32,
}

/// Searches for the paths from rules and counted repetitions to the characters that they begin
/// with.
struct Ways<'a> {
    written: &'a Written,
    empty: &'a Empty,
}

impl Ways<'_> {
    /// Returns the depth and the number of the paths from the root; `None` if a path in the grammar
    /// is a cycle or too deep.
    fn behind_root(&self) -> Option<Behind> {
        let n = self.written.rules.len() + self.written.repeats.len();
        let mut known: Vec<Option<Behind>> = vec![None; n];
        let mut is_open = vec![false; n];
        let mut path: Vec<(usize, Beginning, usize)> = Vec::new();
        for start in 0..n {
            let mut entered = known.get(start)?.is_none().then_some(start);
            loop {
                if let Some(node) = entered.take() {
                    if std::mem::replace(is_open.get_mut(node)?, true) || path.len() > DEEP {
                        return None;
                    }
                    path.push((node, self.beginning(node)?, 0));
                }
                let Some((node, beginning, done)) = path.last_mut() else {
                    break;
                };
                if let Some(&next) = beginning.nodes.get(*done) {
                    *done += 1;
                    entered = known.get(next)?.is_none().then_some(next);
                    continue;
                }
                let mut behind = Behind {
                    depth: 0,
                    n_stacks: beginning.n_ends,
                };
                for &next in &beginning.nodes {
                    let next = (*known.get(next)?)?;
                    behind.depth = behind.depth.max(next.depth);
                    behind.n_stacks = behind.n_stacks.saturating_add(next.n_stacks);
                }
                behind.depth += 1;
                *known.get_mut(*node)? = Some(behind).filter(|behind| behind.depth <= DEEP);
                known.get(*node)?.as_ref()?;
                *is_open.get_mut(*node)? = false;
                path.pop();
            }
        }
        *known.get(self.written.root as usize)?
    }

    /// Returns the nodes that a node can begin with; `None` if a repetition repeats something that
    /// may be empty.
    fn beginning(&self, node: usize) -> Option<Beginning> {
        let mut beginning = Beginning {
            nodes: Vec::new(),
            n_ends: 0,
        };
        if let Some(rule) = self.written.rules.get(node) {
            for elements in alternatives(rule) {
                self.add(elements, &mut beginning);
            }
            return Some(beginning);
        }
        let repeat = node.checked_sub(self.written.rules.len())?;
        let Repeat { item, min, max } = self.written.repeats.get(repeat)?;
        if *max > 1 && self.empty.all(item) {
            return None;
        }
        self.add(item, &mut beginning);
        beginning.n_ends += u32::from(*min == 0);
        Some(beginning)
    }

    fn add(&self, elements: &[Element], beginning: &mut Beginning) {
        let n_rules = self.written.rules.len();
        for &element in elements {
            match element {
                Element::Rule(rule) => beginning.nodes.push(rule as usize),
                Element::Repeat(repeat) => beginning.nodes.push(n_rules + repeat as usize),
                _ => break,
            }
            if !self.empty.may_be(element) {
                return;
            }
        }
        beginning.n_ends = beginning.n_ends.saturating_add(1);
    }
}

#[cfg(test)]
mod tests;
