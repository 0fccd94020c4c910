//! Writes the names that an object does not list: all texts except the names of its properties.
//!
//! ```text
//! rest(node) = for each child:  its character, rest(child)
//!            | any other character, any text
//!            | nothing, unless the node ends a name
//! ```
//!
//! The nodes are those of a tree of the listed names. Equal rests share one rule, in all objects of
//! a schema: names often have common suffixes.

// In bounds: nodes are numbered by their positions in the tree, which only grows.

use crate::grammar::elements::Element;
use crate::grammar::hash::Map;
use crate::grammar::schema::automaton::{ALL, Span};
use crate::grammar::schema::ecma::{common, others};
use crate::grammar::schema::output::{Output, RAW, Spellings, is_in};
use crate::grammar::schema::refusal::Answer;

/// The characters that no common JSON serializer escapes: printable ASCII without `"&'/<=>\`.
const UNESCAPED: [Span; 6] = [
    (0x20, 0x21),
    (0x23, 0x25),
    (0x28, 0x2E),
    (0x30, 0x3B),
    (0x3F, 0x5B),
    (0x5D, 0x7E),
];

/// A child of a node: its character, and the rule for the rest of a name after it.
type Child = (u32, u32);

/// The rules of unlisted names.
#[derive(Debug, Default)]
pub struct OtherNames {
    /// The rules of nodes with one child. The keys are true if the node ends a name, and the child.
    with_one: Map<(bool, Child), Option<u32>>,
    /// The rules of other nodes.
    with_several: Map<(bool, Vec<Child>), Option<u32>>,
    /// The classes of unescaped characters except some ASCII characters, by the set of these, with
    /// a bit for each.
    unescaped: Map<u128, Element>,
    /// The spellings of characters that are not in [`UNESCAPED`].
    rare: Option<Spellings>,
    elements: Vec<Element>,
}

/// A node of a tree of names. Children have larger numbers than their parents.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// The character that leads to the node.
    code_point: u32,
    ends_name: bool,
    /// The node's last child, and the node's previous sibling; 0 if there is none.
    last_child: u32,
    previous: u32,
}

/// Returns the tree of these names. The root is the first node.
fn tree_of<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Node> {
    // Sorted, so that a name can only continue the last child of a node.
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    let mut tree = vec![Node::default()];
    for name in names {
        let mut at = 0;
        for character in name.chars() {
            let code_point = u32::from(character);
            let last = tree[at].last_child;
            at = match last != 0 && tree[last as usize].code_point == code_point {
                true => last as usize,
                false => {
                    let new = tree.len();
                    tree[at].last_child = new as u32;
                    tree.push(Node {
                        code_point,
                        previous: last,
                        ..Node::default()
                    });
                    new
                }
            };
        }
        tree[at].ends_name = true;
    }
    tree
}

impl OtherNames {
    /// Returns an element for the content of any name except `names`.
    ///
    /// After a proper prefix of a name in `names`, a character of `UNESCAPED` is accepted only
    /// without an escape. Almost all nodes then share the rules of escapes.
    pub fn all_but<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        output: &mut Output,
    ) -> Answer<Element> {
        let any = output.any_content(0, None)?;
        let tree = tree_of(names);
        let mut rules = vec![0; tree.len()];
        let mut children = Vec::new();
        for (at, node) in tree.iter().enumerate().rev() {
            children.clear();
            let mut child = node.last_child as usize;
            while child != 0 {
                children.push((tree[child].code_point, rules[child]));
                child = tree[child].previous as usize;
            }
            children.reverse();
            rules[at] = self.rest(node.ends_name, &children, &any, output)?;
        }
        Ok(Element::Rule(rules[0]))
    }

    /// Returns the rule for the rest of a name after a node, given its children, ascending.
    fn rest(
        &mut self,
        ends_name: bool,
        children: &[Child],
        any: &[Element],
        output: &mut Output,
    ) -> Answer<u32> {
        let known = match *children {
            [child] => self.with_one.entry((ends_name, child)).or_default(),
            _ => {
                let children = (ends_name, children.to_vec());
                self.with_several.entry(children).or_default()
            }
        };
        if let Some(known) = *known {
            // Counted again, since a mask needs a walk through all names, shared or not.
            output.count(3 * children.len() + 8)?;
            return Ok(known);
        }
        let rule = *known.insert(output.reserve());
        let mut elements = std::mem::take(&mut self.elements);
        elements.clear();
        for &(code_point, child) in children {
            let spans = [(code_point, code_point)];
            let spellings = match is_in(&UNESCAPED, code_point) {
                true => Spellings::unescaped(output.class(&spans)?),
                false => output.spellings(&spans)?,
            };
            spellings.add_alternatives(&[Element::Rule(child)], &mut elements);
        }
        self.others(children, output)?
            .add_alternatives(any, &mut elements);
        if !ends_name {
            elements.push(Element::Alternative);
        }
        output.define_as(rule, &elements)?;
        self.elements = elements;
        Ok(rule)
    }

    /// Returns the spellings of the characters that lead to no child.
    fn others(&mut self, children: &[Child], output: &mut Output) -> Answer<Spellings> {
        if children.is_empty() {
            return output.spellings(&ALL);
        }
        if children.iter().any(|child| !is_in(&UNESCAPED, child.0)) {
            let spans: Vec<_> = children.iter().map(|child| (child.0, child.0)).collect();
            let left = others(&spans);
            let rare = common(&others(&UNESCAPED), &left);
            return Ok(Spellings {
                raw: Some(output.class(&common(&RAW, &left))?),
                ..output.spellings(&rare)?
            });
        }
        let set = children
            .iter()
            .fold(0_u128, |set, child| set | 1 << child.0);
        let raw = match self.unescaped.get(&set) {
            Some(&known) => known,
            None => {
                let class = output.class(&raw_but(set))?;
                self.unescaped.insert(set, class);
                class
            }
        };
        let rare = match self.rare {
            Some(known) => known,
            None => output.spellings(&others(&UNESCAPED))?,
        };
        self.rare = Some(rare);
        Ok(Spellings {
            raw: Some(raw),
            ..rare
        })
    }
}

/// Returns the unescaped characters except those of a set of ASCII characters, none of which is a
/// control character or needs an escape.
fn raw_but(mut set: u128) -> Vec<Span> {
    let mut spans = Vec::with_capacity(RAW.len() + set.count_ones() as usize);
    for (mut from, last) in RAW {
        while from <= last && set != 0 && set.trailing_zeros() <= last {
            let excluded = set.trailing_zeros();
            if from < excluded {
                spans.push((from, excluded - 1));
            }
            from = excluded + 1;
            set &= set - 1;
        }
        if from <= last {
            spans.push((from, last));
        }
    }
    spans
}
