//! Predicts the work of llama.cpp's own grammar before that grammar is called. llama.cpp stores
//! each stack separately, and visits all of them for each character of a token. For some texts
//! there are too many stacks to wait for, and with some left recursions it never terminates.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use llama_sieve::grammar::elements::{Class, ENDLESS, Element, Repeat, Written, host_check_ends};
use llama_sieve::grammar::utf8::{Partial, counted, decode};

/// The indices of elements, the top of the stack last.
type Stack = Vec<u32>;

/// The most stacks that may be visited for one token, or for one array.
const MOST: usize = 20_000;
/// The most stacks after a character, since each is compared with all others.
const MOST_TOGETHER: usize = 1000;
/// The most stacks after a token.
const MOST_STACKS: usize = 40;
/// The most elements of a grammar, repetitions written out.
const MOST_ELEMENTS: usize = 20_000;

/// Returns the rules with counted repetitions expanded as in llama.cpp: the item as often as it is
/// required, and a rule for each optional repetition. Returns `None` if there would be more than
/// [`MOST_ELEMENTS`] elements.
fn written_out(written: &Written) -> Option<Vec<Vec<Element>>> {
    let mut rules = Vec::new();
    rules.resize_with(written.rules.len(), Vec::new);
    let mut out = WriteOut {
        written: Vec::new(),
        rules,
        left: MOST_ELEMENTS,
    };
    // A repetition inside an item precedes the repetition of that item.
    for repeat in &written.repeats {
        let item = out.elements(&repeat.item)?;
        let elements = out.repeat(&item, repeat)?;
        out.written.push(elements);
    }
    for (number, rule) in written.rules.iter().enumerate() {
        out.rules[number] = out.elements(rule)?;
    }
    Some(out.rules)
}

struct WriteOut {
    /// The elements of each repetition that was written out.
    written: Vec<Vec<Element>>,
    rules: Vec<Vec<Element>>,
    left: usize,
}

impl WriteOut {
    fn take(&mut self, n: usize) -> Option<()> {
        self.left = self.left.checked_sub(n)?;
        Some(())
    }

    fn elements(&mut self, elements: &[Element]) -> Option<Vec<Element>> {
        let mut all = Vec::new();
        for &element in elements {
            match element {
                Element::Repeat(number) => all.extend(&self.written[number as usize]),
                other => all.push(other),
            }
        }
        self.take(all.len() + 1)?;
        Some(all)
    }

    fn repeat(&mut self, item: &[Element], repeat: &Repeat<Vec<Element>>) -> Option<Vec<Element>> {
        let mut elements = Vec::new();
        for _ in 0..repeat.min {
            self.take(item.len())?;
            elements.extend_from_slice(item);
        }
        let mut last = None;
        let is_endless = repeat.max == ENDLESS;
        let rounds = if is_endless {
            1
        } else {
            repeat.max - repeat.min
        };
        for _ in 0..rounds {
            self.take(item.len() + 2)?;
            let number = self.rules.len() as u32;
            let mut rule = item.to_vec();
            let next = if is_endless { Some(number) } else { last };
            rule.extend(next.map(Element::Rule));
            rule.push(Element::Alternative);
            self.rules.push(rule);
            last = Some(number);
        }
        elements.extend(last.map(Element::Rule));
        Some(elements)
    }
}

/// The position of a text in a grammar, with each stack stored separately. Every method returns
/// `None` or `false` if the built-in must not be called.
#[derive(Clone, Debug)]
pub struct Stacks {
    classes: Vec<Class>,
    /// The elements of all rules, one after the other, each followed by an end.
    elements: Vec<Element>,
    /// The indices at which the alternatives of each rule begin.
    beginnings: Vec<Vec<u32>>,
    initial: Vec<Stack>,
    /// The stacks after the text so far.
    pub stacks: Vec<Stack>,
    /// The unfinished character at the end of the text.
    pub partial: Partial,
}

impl Stacks {
    /// Returns the stacks at the beginning of a text. Returns `None` if the built-in must not be
    /// called.
    pub fn new(written: Written) -> Option<Self> {
        if !host_check_ends(&written, MOST) {
            return None;
        }
        let rules = written_out(&written)?;
        let mut elements = Vec::new();
        let mut beginnings = Vec::new();
        for rule in &rules {
            let start = elements.len() as u32;
            let is_end = |element: &Element| *element == Element::Alternative;
            let ends = (start..).zip(rule).filter(|(_, element)| is_end(element));
            let behind = ends.map(|(place, _)| place + 1);
            beginnings.push(std::iter::once(start).chain(behind).collect());
            elements.extend_from_slice(rule);
            elements.push(Element::Alternative);
        }
        let mut stacks = Self {
            classes: written.classes,
            elements,
            beginnings,
            initial: Vec::new(),
            stacks: Vec::new(),
            partial: Partial::default(),
        };
        let mut left = MOST;
        let mut initial = Vec::new();
        for &begin in &stacks.beginnings[written.root as usize] {
            let stack = stacks.element(begin).into_iter().collect();
            stacks.close(stack, &mut initial, &mut left)?;
        }
        // For a grammar that no text can follow, the built-in is a sampler that aborts.
        if initial.is_empty() {
            return None;
        }
        stacks.initial = initial;
        stacks.reset();
        Some(stacks)
    }

    /// Returns to the initial state.
    pub fn reset(&mut self) {
        self.stacks.clone_from(&self.initial);
        self.partial = Partial::default();
    }

    /// Returns `place`, or `None` if the element there ends an alternative.
    fn element(&self, place: u32) -> Option<u32> {
        (self.elements[place as usize] != Element::Alternative).then_some(place)
    }

    /// Adds to `out` the stacks that `stack` becomes when each rule reference on its top is
    /// replaced by the rule's alternatives. Returns `None` if that takes more work than is left in
    /// `left`.
    fn close(&self, stack: Stack, out: &mut Vec<Stack>, left: &mut usize) -> Option<()> {
        let mut seen = BTreeSet::new();
        let mut to_do = vec![stack];
        while let Some(stack) = to_do.pop() {
            *left = left.checked_sub(1 + stack.len() / 8)?;
            if !seen.insert(stack.clone()) {
                continue;
            }
            let rule = match stack.last().map(|&top| (top, self.elements[top as usize])) {
                Some((top, Element::Rule(rule))) => Some((top, rule)),
                _ => None,
            };
            let Some((top, rule)) = rule else {
                if !out.contains(&stack) {
                    out.push(stack);
                }
                continue;
            };
            for &begin in &self.beginnings[rule as usize] {
                let mut next = stack[..stack.len() - 1].to_vec();
                next.extend(self.element(top + 1));
                next.extend(self.element(begin));
                to_do.push(next);
            }
        }
        Some(())
    }

    /// Returns the stacks that `stack` becomes once its top element has matched. Returns `None` if
    /// that takes more work than is left in `left`.
    fn behind(&self, stack: &[u32], left: &mut usize) -> Option<Vec<Stack>> {
        let mut out = Vec::new();
        if let Some((&top, below)) = stack.split_last() {
            let mut next = below.to_vec();
            next.extend(self.element(top + 1));
            self.close(next, &mut out, left)?;
        }
        Some(out)
    }

    fn takes(&self, stack: &[u32], code_point: u32) -> bool {
        match stack.last().map(|&top| self.elements[top as usize]) {
            Some(Element::Class(class)) => self.classes[class as usize].has(code_point),
            _ => false,
        }
    }

    /// True if the built-in can find out, without too much work, which of `pieces` are allowed now.
    pub fn may_apply(&self, pieces: &[Vec<u8>]) -> bool {
        let mut known = HashMap::new();
        let mut left = MOST;
        let mut chars = Vec::new();
        pieces.iter().all(|piece| {
            decode(piece, self.partial, &mut chars);
            let mut each = self.stacks.iter();
            each.all(|stack| self.goes_through(stack, &chars, &mut known, &mut left))
        })
    }

    fn goes_through(
        &self,
        stack: &Stack,
        chars: &[u32],
        known: &mut HashMap<Stack, Rc<[Stack]>>,
        left: &mut usize,
    ) -> bool {
        *left = left.saturating_sub(1);
        if *left == 0 {
            return false;
        }
        // The built-in computes the stacks after each top, even if no token reaches them.
        let behind = match known.get(stack) {
            Some(behind) => Rc::clone(behind),
            None => {
                let Some(behind) = self.behind(stack, left) else {
                    return false;
                };
                let behind: Rc<[Stack]> = behind.into();
                known.insert(stack.clone(), Rc::clone(&behind));
                behind
            }
        };
        let Some((&first, rest)) = chars.split_first() else {
            return true;
        };
        !self.takes(stack, first)
            || behind
                .iter()
                .all(|stack| self.goes_through(stack, rest, known, left))
    }

    /// Accepts a token. Returns true if the built-in can do so without too much work. Token
    /// elements are assumed to match any token.
    pub fn accept(&mut self, piece: &[u8]) -> bool {
        let mut chars = Vec::new();
        let partial = decode(counted(piece), self.partial, &mut chars);
        let Some(stacks) = self.accepted(&chars) else {
            return false;
        };
        (self.stacks, self.partial) = (stacks, partial);
        self.stacks.len() <= MOST_STACKS
    }

    fn accepted(&self, chars: &[u32]) -> Option<Vec<Stack>> {
        let mut left = MOST;
        let mut all = Vec::new();
        for stack in &self.stacks {
            let top = stack.last().map(|&top| self.elements[top as usize]);
            let mut current = vec![stack.clone()];
            if let Some(Element::Token(_) | Element::TokenNot(_)) = top {
                current = self.behind(stack, &mut left)?;
            } else {
                for &code_point in chars {
                    let mut next = Vec::new();
                    for stack in current {
                        if self.takes(&stack, code_point) {
                            next.append(&mut self.behind(&stack, &mut left)?);
                        }
                    }
                    left = left.checked_sub(next.len())?;
                    if next.len() > MOST_TOGETHER {
                        return None;
                    }
                    current = next;
                }
            }
            for stack in current {
                if !all.contains(&stack) {
                    all.push(stack);
                }
            }
        }
        Some(all)
    }
}
