//! Leaves out what no text can follow, so that no mask leads into an end without way out.

// In bounds: numbers of rules and repetitions are positions in the lists of them.

use crate::grammar::elements::{Element, Written};

/// Leaves out the alternatives that no text follows. False, with nothing changed, where no text
/// follows the root.
pub fn prune(written: &mut Written) -> bool {
    let n_rules = written.rules.len();
    let mut rules = vec![false; n_rules];
    let mut repeats = vec![false; written.repeats.len()];
    // Those that wait for a rule, or, behind these, for a repetition's item.
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); n_rules + repeats.len()];
    let node = |element: &Element| match *element {
        Element::Rule(rule) => Some(rule as usize),
        Element::Repeat(repeat) => Some(n_rules + repeat as usize),
        _ => None,
    };
    for (at, rule) in written.rules.iter().enumerate() {
        rule.iter()
            .filter_map(node)
            .for_each(|of| waiting[of].push(at));
    }
    for (at, repeat) in written.repeats.iter().enumerate() {
        let items = repeat.item.iter().filter_map(node);
        items.for_each(|of| waiting[of].push(n_rules + at));
    }
    let classes = &written.classes;
    let leads_on = |element: &Element, rules: &[bool], repeats: &[bool]| match *element {
        Element::Rule(rule) => rules[rule as usize],
        Element::Repeat(repeat) => repeats[repeat as usize],
        Element::Class(class) => {
            let class = &classes[class as usize];
            class.any || class.negated || !class.ranges.is_empty()
        }
        _ => true,
    };
    let mut to_do: Vec<usize> = (0..n_rules + repeats.len()).collect();
    while let Some(at) = to_do.pop() {
        let found = match at.checked_sub(n_rules) {
            None if rules[at] => false,
            None => written.rules[at]
                .split(|element| *element == Element::Alternative)
                .any(|all| {
                    all.iter()
                        .all(|element| leads_on(element, &rules, &repeats))
                }),
            Some(at) if repeats[at] => false,
            Some(at) => {
                let repeat = &written.repeats[at];
                let mut item = repeat.item.iter();
                repeat.min == 0 || item.all(|element| leads_on(element, &rules, &repeats))
            }
        };
        if found {
            match at.checked_sub(n_rules) {
                None => rules[at] = true,
                Some(at) => repeats[at] = true,
            }
            to_do.append(&mut waiting[at]);
        }
    }
    if !rules[written.root as usize] {
        return false;
    }
    // Repetitions of what no text follows are nothing.
    let is_void: Vec<bool> = written
        .repeats
        .iter()
        .map(|repeat| {
            let mut item = repeat.item.iter();
            !item.all(|element| leads_on(element, &rules, &repeats))
        })
        .collect();
    let keep = |element: &Element| match *element {
        Element::Repeat(repeat) => !is_void[repeat as usize],
        _ => true,
    };
    let mut kept = Vec::with_capacity(n_rules);
    for rule in &written.rules {
        let mut elements = Vec::with_capacity(rule.len());
        let mut is_first = true;
        for all in rule.split(|element| *element == Element::Alternative) {
            if !all
                .iter()
                .all(|element| leads_on(element, &rules, &repeats))
            {
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
