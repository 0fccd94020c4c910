//! Removes unproductive rules, which match no text, so that no mask leads to a dead state.

// In bounds: numbers of rules and repetitions are positions in their lists.

use crate::grammar::elements::{Class, Element, Unordered, Written, WrittenRules};
use crate::grammar::lists::Lists;

/// True if the root matches a text.
pub fn has_text(written: &Written) -> bool {
    Productive::of(written).found[written.root as usize]
}

/// The rules, repetitions and unordered lists that are known to match a text.
struct Productive {
    /// A mark for each rule, then for each repetition, then for each unordered list.
    found: Vec<bool>,
    n_rules: usize,
    n_repeats: usize,
}

impl Productive {
    /// Returns the place of the mark of a rule, repetition or unordered list; `None` for any other
    /// element.
    fn place(&self, element: &Element) -> Option<usize> {
        match *element {
            Element::Rule(rule) => Some(rule as usize),
            Element::Repeat(repeat) => Some(self.n_rules + repeat as usize),
            Element::Unordered(list) => Some(self.n_rules + self.n_repeats + list as usize),
            Element::Class(_)
            | Element::Token(_)
            | Element::TokenNot(_)
            | Element::Occurred(_)
            | Element::Alternative => None,
        }
    }

    /// True if an element is known to match a text.
    fn leads_on(&self, element: &Element, classes: &[Class]) -> bool {
        if let Element::Class(class) = *element {
            let class = &classes[class as usize];
            return class.any || class.negated || !class.ranges.is_empty();
        }
        self.place(element).is_none_or(|place| self.found[place])
    }

    fn of(written: &Written) -> Self {
        /// The number of rounds over all rules. After these, each remaining rule waits for its
        /// dependencies.
        const ROUNDS: usize = 4;
        let (n_rules, n_repeats) = (written.rules.len(), written.repeats.len());
        let n = n_rules + n_repeats + written.unordered.len();
        let mut productive = Self {
            found: vec![false; n],
            n_rules,
            n_repeats,
        };
        // Most rules refer to later ones, and most of the remaining rules to earlier ones.
        let mut to_do: Vec<usize> = (0..n).collect();
        for _ in 0..ROUNDS {
            to_do.reverse();
            to_do.retain(|&at| !productive.find(written, at));
        }
        if !to_do.is_empty() {
            productive.find_waiting(written, to_do);
        }
        productive
    }

    /// Finds the remaining rules, each when its dependencies have been found.
    fn find_waiting(&mut self, written: &Written, mut to_do: Vec<usize>) {
        // What waits for each rule, repetition and unordered list.
        let waiting = Lists::of(self.found.len(), || {
            let items = written.repeats.iter().map(|repeat| &*repeat.item);
            let rules = (0..).zip(written.rules.iter().chain(items));
            let lists = (self.n_rules as u32 + self.n_repeats as u32..).zip(&written.unordered);
            let lists =
                lists.flat_map(|(at, list)| list.required().iter().map(move |item| (at, &**item)));
            rules.chain(lists).flat_map(|(at, elements)| {
                let places = elements.iter().filter_map(|element| self.place(element));
                places.map(move |of| (of as u32, at))
            })
        });
        while let Some(at) = to_do.pop() {
            if !self.found[at] && self.find(written, at) {
                to_do.extend(waiting.get(at as u32).iter().map(|&at| at as usize));
            }
        }
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

    /// Marks the rule, repetition or unordered list at `place`, and returns true, if it matches a
    /// text according to the marks so far.
    fn find(&mut self, written: &Written, place: usize) -> bool {
        let lead_on = |elements: &Vec<Element>| {
            let mut elements = elements.iter();
            elements.all(|element| self.leads_on(element, &written.classes))
        };
        let is_found = if let Some(rule) = written.rules.get(place) {
            self.has_alternative(rule, &written.classes)
        } else if let Some(repeat) = written.repeats.get(place - self.n_rules) {
            repeat.min == 0 || lead_on(&repeat.item)
        } else {
            let list = &written.unordered[place - self.n_rules - self.n_repeats];
            list.required().iter().all(lead_on)
        };
        self.found[place] = is_found;
        is_found
    }
}

fn is_end(element: &Element) -> bool {
    *element == Element::Alternative
}

/// Removes the alternatives that match no text. Returns false, and changes nothing, if the root
/// matches no text.
pub fn prune(written: &mut Written) -> bool {
    let productive = Productive::of(written);
    if !productive.found[written.root as usize] {
        return false;
    }
    let classes = &written.classes;
    let leads_on = |element: &Element| productive.leads_on(element, classes);
    let mut classes_alone = (0..classes.len() as u32).map(Element::Class);
    let has_all = productive.found.iter().all(|&is_found| is_found);
    if has_all && classes_alone.all(|class| leads_on(&class)) {
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
    let without_void = |item: &Vec<Element>| item.iter().copied().filter(keep).collect();
    let mut items: Vec<Vec<Element>> = Vec::with_capacity(is_void.len());
    for repeat in &written.repeats {
        items.push(without_void(&repeat.item));
    }
    let mut lists = Vec::with_capacity(written.unordered.len());
    for list in &written.unordered {
        let mut left = Unordered {
            separator: without_void(&list.separator),
            ..Unordered::default()
        };
        for (at, item) in list.items.iter().enumerate() {
            if !item.iter().all(leads_on) {
                continue;
            }
            left.n_required += usize::from(at < list.n_required);
            left.n_once += usize::from(at < list.n_once);
            left.items.push(without_void(item));
        }
        lists.push(left);
    }
    written.unordered = lists;
    written.rules = kept;
    for (repeat, item) in written.repeats.iter_mut().zip(items) {
        repeat.item = item;
    }
    true
}
