//! Removes unproductive rules, which match no text, so that no mask leads to a dead state.

// In bounds: numbers of rules and repetitions are positions in their lists.

use crate::grammar::elements::{Class, Element, Written, WrittenRules};
use crate::grammar::lists::Lists;

/// True if the root matches a text.
pub fn has_text(written: &Written) -> bool {
    Productive::of(written).rules[written.root as usize]
}

/// The rules and repetitions that are known to match a text.
struct Productive {
    rules: Vec<bool>,
    repeats: Vec<bool>,
}

impl Productive {
    /// True if an element is known to match a text.
    fn leads_on(&self, element: &Element, classes: &[Class]) -> bool {
        match *element {
            Element::Rule(rule) => self.rules[rule as usize],
            Element::Repeat(repeat) => self.repeats[repeat as usize],
            Element::Class(class) => {
                let class = &classes[class as usize];
                class.any || class.negated || !class.ranges.is_empty()
            }
            _ => true,
        }
    }

    fn of(written: &Written) -> Self {
        /// The number of rounds over all rules. After these, each remaining rule waits for its
        /// dependencies.
        const ROUNDS: usize = 4;
        let n_rules = written.rules.len();
        let mut found = Self {
            rules: vec![false; n_rules],
            repeats: vec![false; written.repeats.len()],
        };
        // Most rules refer to later ones, and most of the others to earlier ones.
        let mut to_do: Vec<usize> = (0..n_rules + written.repeats.len()).collect();
        for _ in 0..ROUNDS {
            to_do.reverse();
            to_do.retain(|&at| !found.find(written, at));
        }
        if !to_do.is_empty() {
            found.find_waiting(written, to_do);
        }
        found
    }

    /// Finds the remaining rules, each when its dependencies have been found.
    fn find_waiting(&mut self, written: &Written, mut to_do: Vec<usize>) {
        let n_rules = written.rules.len();
        let node = |element: &Element| match *element {
            Element::Rule(rule) => Some(rule),
            Element::Repeat(repeat) => Some(n_rules as u32 + repeat),
            _ => None,
        };
        // The rules that wait for each rule and, after these, for the item of each repetition.
        let waiting = Lists::of(n_rules + written.repeats.len(), || {
            let items = written.repeats.iter().map(|repeat| &*repeat.item);
            let all = (0..).zip(written.rules.iter().chain(items));
            all.flat_map(|(at, elements)| {
                let nodes = elements.iter().filter_map(node);
                nodes.map(move |of| (of, at))
            })
        });
        while let Some(at) = to_do.pop() {
            if !self.is_found(at) && self.find(written, at) {
                to_do.extend(waiting.get(at as u32).iter().map(|&at| at as usize));
            }
        }
    }

    fn is_found(&self, at: usize) -> bool {
        match at.checked_sub(self.rules.len()) {
            None => self.rules[at],
            Some(at) => self.repeats[at],
        }
    }

    /// True if every rule and every repetition matches a text.
    fn has_all(&self) -> bool {
        self.rules
            .iter()
            .chain(&self.repeats)
            .all(|&is_found| is_found)
    }

    /// True if an alternative of a rule is known to match a text.
    fn has_alternative(&self, rule: &[Element], classes: &[Class]) -> bool {
        let mut leads_on = true;
        for element in rule {
            if is_end(element) {
                if leads_on {
                    return true;
                }
                leads_on = true;
            } else {
                leads_on = leads_on && self.leads_on(element, classes);
            }
        }
        leads_on
    }

    /// Marks the rule or repetition `at`, and returns true, if it matches a text by the marks so
    /// far.
    fn find(&mut self, written: &Written, at: usize) -> bool {
        let lead_on = |elements: &[Element]| {
            let mut elements = elements.iter();
            elements.all(|element| self.leads_on(element, &written.classes))
        };
        match at.checked_sub(self.rules.len()) {
            None => {
                let rule = written.rules.get(at).unwrap_or_default();
                let is_found = self.has_alternative(rule, &written.classes);
                self.rules[at] = is_found;
                is_found
            }
            Some(at) => {
                let repeat = &written.repeats[at];
                let is_found = repeat.min == 0 || lead_on(&repeat.item);
                self.repeats[at] = is_found;
                is_found
            }
        }
    }
}

fn is_end(element: &Element) -> bool {
    *element == Element::Alternative
}

/// Removes the alternatives that match no text. Returns false, and changes nothing, if the root
/// matches no text.
pub fn prune(written: &mut Written) -> bool {
    let productive = Productive::of(written);
    if !productive.rules[written.root as usize] {
        return false;
    }
    let classes = &written.classes;
    let leads_on = |element: &Element| productive.leads_on(element, classes);
    let mut classes_alone = (0..classes.len() as u32).map(Element::Class);
    if productive.has_all() && classes_alone.all(|class| leads_on(&class)) {
        return true;
    }
    // A repetition whose item matches no text matches only the empty text.
    let is_void: Vec<bool> = written
        .repeats
        .iter()
        .map(|repeat| {
            let mut item = repeat.item.iter();
            !item.all(leads_on)
        })
        .collect();
    let keep = |element: &Element| match *element {
        Element::Repeat(repeat) => !is_void[repeat as usize],
        _ => true,
    };
    let (mut kept, mut elements) = (WrittenRules::default(), Vec::new());
    for rule in written.rules.iter() {
        elements.clear();
        let mut is_first = true;
        for all in rule.split(is_end) {
            if !all.iter().all(leads_on) {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                elements.push(Element::Alternative);
            }
            elements.extend(all.iter().copied().filter(keep));
        }
        let rule = kept.declare();
        kept.define(rule, &elements);
    }
    let mut items: Vec<Vec<Element>> = Vec::with_capacity(is_void.len());
    for repeat in &written.repeats {
        items.push(repeat.item.iter().copied().filter(keep).collect());
    }
    written.rules = kept;
    for (repeat, item) in written.repeats.iter_mut().zip(items) {
        repeat.item = item;
    }
    true
}
