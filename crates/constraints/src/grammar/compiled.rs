//! A grammar together with a vocabulary, as far as it never changes.

use std::sync::Arc;

use crate::grammar::elements::{Class, Element, Rules, Sequence};
use crate::grammar::nodes::CharSet;
use crate::grammar::vocabulary_tree::VocabularyTree;

/// Rules, the vocabulary they are for, and the characters in groups that no class tells apart.
#[derive(Debug)]
pub struct Compiled {
    /// The rules.
    pub rules: Rules,
    /// The vocabulary.
    pub tree: Arc<VocabularyTree>,
    groups: Groups,
    /// The ASCII characters in each class; bit 0 where one that is not ASCII, or part of one, may
    /// be.
    covers: Vec<CharSet>,
}

/// Code points in groups; every class has all of a group or none.
#[derive(Debug)]
struct Groups {
    /// The first code point of each group, ascending.
    starts: Vec<u32>,
    ascii: [u32; 128],
    /// The groups that have ASCII characters, and these. Bit 0 stands for all others where these
    /// are alike, parts of them included.
    sets: Vec<(u32, CharSet)>,
}

impl Compiled {
    /// Prepares `rules`.
    pub fn new(rules: Rules, tree: Arc<VocabularyTree>) -> Self {
        let groups = Groups::new(&rules.classes);
        let covers = rules.classes.iter().map(cover).collect();
        Self {
            rules,
            tree,
            groups,
            covers,
        }
    }

    /// The class of this number; `None` of an item that is none.
    pub fn class(&self, item: Element) -> Option<&Class> {
        match item {
            Element::Class(number) => self.rules.classes.get(number as usize),
            _ => None,
        }
    }

    /// Returns a sequence's first element and the sequence behind it; `None` for the empty
    /// sequence.
    pub fn first(&self, sequence: u32) -> Option<Sequence> {
        self.rules.first(sequence)
    }

    /// The alternatives of a rule.
    pub fn alternatives(&self, rule: u32) -> &[u32] {
        let alternatives = self.rules.alternatives.get(rule as usize);
        alternatives.map_or(&[], |alternatives| alternatives)
    }

    /// True if there are counted repetitions.
    pub fn has_counts(&self) -> bool {
        !self.rules.repeats.is_empty()
    }

    /// The characters of an item; empty of one that is no class.
    pub fn cover(&self, item: Element) -> CharSet {
        match item {
            Element::Class(number) => self.covers.get(number as usize).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// The group of a code point.
    #[inline]
    pub fn group(&self, code_point: u32) -> u32 {
        if let Some(&group) = self.groups.ascii.get(code_point as usize) {
            return group;
        }
        let starts = &self.groups.starts;
        starts.partition_point(|&start| start <= code_point) as u32 - 1
    }

    /// The group of a sequence that begins with one certain character.
    pub fn only_group(&self, sequence: u32) -> Option<u32> {
        let class = self.class(self.first(sequence)?.item)?;
        match *class.ranges {
            _ if class.negated => None,
            [(first, last)] if first == last => Some(self.group(first)),
            _ => None,
        }
    }

    /// A code point of a group.
    pub fn one_of(&self, group: u32) -> u32 {
        self.groups.starts.get(group as usize).copied().unwrap_or(0)
    }

    /// Returns the number of groups.
    pub fn n_groups(&self) -> usize {
        self.groups.starts.len()
    }

    /// The groups that have ASCII characters, and these. Bit 0 stands for all others where these
    /// are alike, parts of them included.
    pub fn ascii_groups(&self) -> impl Iterator<Item = (u32, CharSet)> {
        self.groups.sets.iter().copied()
    }

    /// Bytes that it occupies, without the vocabulary.
    pub fn bytes(&self) -> usize {
        self.rules.bytes()
            + self.covers.len() * size_of::<CharSet>()
            + self.groups.starts.len() * 4
            + self.groups.sets.len() * size_of::<(u32, CharSet)>()
            + size_of::<Self>()
    }
}

impl Groups {
    fn new(classes: &[Class]) -> Self {
        let mut starts = vec![0, 0x80];
        let mut plain = true;
        for &(first, last) in classes.iter().flat_map(|class| &class.ranges) {
            plain &= first < 0x80 && last < 0x80;
            starts.push(first);
            starts.extend(last.checked_add(1));
        }
        starts.sort_unstable();
        starts.dedup();
        let mut ascii = [0; 128];
        for (code_point, group) in (0..).zip(&mut ascii) {
            *group = starts.partition_point(|&start| start <= code_point) as u32 - 1;
        }
        let mut sets: Vec<(u32, CharSet)> = Vec::new();
        for (code_point, &group) in ascii.iter().enumerate().skip(1) {
            match sets.last_mut().filter(|(last, _)| *last == group) {
                Some((_, set)) => *set |= 1 << code_point,
                None => sets.push((group, 1 << code_point)),
            }
        }
        if plain {
            let group = starts.partition_point(|&start| start <= 0x80) as u32 - 1;
            sets.push((group, 1));
        }
        Self {
            starts,
            ascii,
            sets,
        }
    }
}

fn cover(class: &Class) -> CharSet {
    let ascii = (1..128).filter(|&code_point| class.has(code_point));
    let ascii = ascii.fold(0, |set, code_point| set | 1 << code_point);
    let beyond = |&(first, last): &(u32, u32)| first >= 0x80 || last >= 0x80;
    let may_be_beyond = class.any || class.negated || class.ranges.iter().any(beyond);
    ascii | CharSet::from(may_be_beyond)
}
