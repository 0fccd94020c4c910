//! Recognizes grammars on which the built-in never terminates.

use llama_sieve::grammar::elements::{Element, Rules};

/// True if a rule can begin with itself, perhaps after something that can be empty.
pub fn is_left_recursive(rules: &Rules) -> bool {
    let n = rules.alternatives.len();
    let items = |mut sequence: u32| {
        std::iter::from_fn(move || {
            let first = rules.first(sequence)?;
            sequence = first.rest;
            Some(first.item)
        })
    };
    let mut empty = vec![false; n];
    loop {
        let mut changed = false;
        for rule in 0..n {
            let is_empty = |item| matches!(item, Element::Rule(to) if empty[to as usize]);
            let mut alternatives = rules.alternatives.get(rule as u32).iter();
            if !empty[rule] && alternatives.any(|&head| items(head).all(is_empty)) {
                (empty[rule], changed) = (true, true);
            }
        }
        if !changed {
            break;
        }
    }
    // For each rule the rules that it may begin with, directly or indirectly.
    let mut begins = vec![vec![false; n]; n];
    for (rule, begins) in begins.iter_mut().enumerate() {
        for &head in rules.alternatives.get(rule as u32) {
            for item in items(head) {
                let Element::Rule(to) = item else {
                    break;
                };
                begins[to as usize] = true;
                if !empty[to as usize] {
                    break;
                }
            }
        }
    }
    for middle in 0..n {
        for from in 0..n {
            if begins[from][middle] {
                let further = begins[middle].clone();
                for (to, further) in begins[from].iter_mut().zip(further) {
                    *to |= further;
                }
            }
        }
    }
    (0..n).any(|rule| begins[rule][rule])
}
