//! Leaves out what no text can follow, so that no mask leads into an end without way out.

// In bounds: numbers of rules and repetitions are positions in the lists of them.

use crate::grammar::elements::{Class, Element, Written};
use crate::grammar::lists::Lists;

/// True if a text follows the root.
pub fn has_text(written: &Written) -> bool {
    Productive::of(written).rules[written.root as usize]
}

/// The rules and repetitions that a text follows.
struct Productive {
    rules: Vec<bool>,
    repeats: Vec<bool>,
}

impl Productive {
    /// True if a text follows an element.
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
        let n_rules = written.rules.len();
        let mut found = Self {
            rules: vec![false; n_rules],
            repeats: vec![false; written.repeats.len()],
        };
        let node = |element: &Element| match *element {
            Element::Rule(rule) => Some(rule),
            Element::Repeat(repeat) => Some(n_rules as u32 + repeat),
            _ => None,
        };
        // Those that wait for a rule, or, behind these, for a repetition's item.
        let waiting = Lists::of(n_rules + written.repeats.len(), || {
            let items = written.repeats.iter().map(|repeat| &repeat.item);
            let all = (0..).zip(written.rules.iter().chain(items));
            all.flat_map(|(at, elements)| {
                let nodes = elements.iter().filter_map(node);
                nodes.map(move |of| (of, at))
            })
        });
        let mut to_do: Vec<usize> = (0..n_rules + written.repeats.len()).collect();
        while let Some(at) = to_do.pop() {
            let is_found = match at.checked_sub(n_rules) {
                None if found.rules[at] => false,
                None => written.rules[at]
                    .split(|element| *element == Element::Alternative)
                    .any(|all| {
                        all.iter()
                            .all(|element| found.leads_on(element, &written.classes))
                    }),
                Some(at) if found.repeats[at] => false,
                Some(at) => {
                    let repeat = &written.repeats[at];
                    let mut item = repeat.item.iter();
                    repeat.min == 0 || item.all(|element| found.leads_on(element, &written.classes))
                }
            };
            if is_found {
                match at.checked_sub(n_rules) {
                    None => found.rules[at] = true,
                    Some(at) => found.repeats[at] = true,
                }
                to_do.extend(waiting.get(at as u32).iter().map(|&at| at as usize));
            }
        }
        found
    }
}

/// Leaves out the alternatives that no text follows. False, with nothing changed, where no text
/// follows the root.
pub fn prune(written: &mut Written) -> bool {
    let productive = Productive::of(written);
    if !productive.rules[written.root as usize] {
        return false;
    }
    let classes = &written.classes;
    let leads_on = |element: &Element| productive.leads_on(element, classes);
    let items = written.repeats.iter().map(|repeat| &repeat.item);
    if written.rules.iter().chain(items).flatten().all(leads_on) {
        return true;
    }
    // Repetitions of what no text follows are nothing.
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
    let mut kept = Vec::with_capacity(written.rules.len());
    for rule in &written.rules {
        let mut elements = Vec::with_capacity(rule.len());
        let mut is_first = true;
        for all in rule.split(|element| *element == Element::Alternative) {
            if !all.iter().all(leads_on) {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                elements.push(Element::Alternative);
            }
            elements.extend(all.iter().copied().filter(keep));
        }
        kept.push(elements);
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
