//! The immutable data of a grammar that has been prepared for a vocabulary.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use crate::grammar::elements::{Class, Element, Rules, Sequence};
use crate::grammar::hash::{Keys, Map};
use crate::grammar::nodes::{CharSet, Kinds};
use crate::grammar::utf8::{Partial, decode, decode_strictly};
use crate::grammar::vocabulary_tree::VocabularyTree;

/// The maximum number of groups beyond ASCII that are tested one by one, to find out if all of them
/// are accepted.
pub const MOST_BEYOND: usize = 64;

/// The number of ASCII characters.
const N_ASCII: u32 = 0x80;

/// Rules, a vocabulary, and a partition of the characters into groups. No class of the rules
/// distinguishes the characters of a group.
#[derive(Debug)]
pub struct Compiled {
    /// The rules.
    pub rules: Rules,
    /// The vocabulary.
    pub tree: Arc<VocabularyTree>,
    groups: Groups,
    /// For each class, the ASCII characters in it, except NUL. Bit 0 is set if the class may also
    /// have characters beyond ASCII, or match part of one.
    covers: Vec<CharSet>,
    /// For each class, the kinds of characters that it contains entirely.
    kinds: Vec<Kinds>,
}

/// A partition of the code points into groups: every class contains all of a group or none of it.
#[derive(Debug)]
struct Groups {
    /// The first code points of ranges beyond ASCII, ascending. Each range lies within one group.
    starts: Vec<u32>,
    /// The group of each range.
    group_of: Vec<u32>,
    /// One code point of each group.
    one_of: Vec<u32>,
    ascii: [u32; N_ASCII as usize],
    /// The groups with ASCII characters other than NUL, each with those characters.
    sets: Vec<(u32, CharSet)>,
    /// The groups with characters beyond ASCII.
    beyond: Vec<u32>,
}

impl Compiled {
    /// Prepares `rules` for the vocabulary of `tree`.
    pub fn new(rules: Rules, tree: Arc<VocabularyTree>) -> Self {
        let groups = Groups::new(&rules.classes);
        let covers: Vec<_> = rules.classes.iter().map(cover).collect();
        let kinds = rules.classes.iter().zip(&covers).map(|(class, cover)| {
            let mut beyond = groups.beyond.iter();
            let has_all = cover & 1 != 0
                && groups.beyond.len() <= MOST_BEYOND
                && beyond.all(|&group| class.has(groups.one_of[group as usize].max(0x80)));
            Kinds::within(cover & !CharSet::from(!has_all))
        });
        let kinds = kinds.collect();
        Self {
            rules,
            tree,
            groups,
            covers,
            kinds,
        }
    }

    /// Returns the class that an item refers to; `None` for an item that is not a class.
    pub fn class(&self, item: Element) -> Option<&Class> {
        match item {
            Element::Class(number) => self.rules.classes.get(number as usize),
            _ => None,
        }
    }

    /// Returns a sequence's first element and the sequence after it; `None` for the empty
    /// sequence.
    pub fn first(&self, sequence: u32) -> Option<Sequence> {
        self.rules.first(sequence)
    }

    /// Returns the alternatives of a rule.
    pub fn alternatives(&self, rule: u32) -> &[u32] {
        self.rules.alternatives.get(rule)
    }

    /// Decodes `piece` from the decoder's state `start`, and writes its code points to `chars`.
    /// Returns the decoder's state at its end. Bytes that are not UTF-8 are rejected by strict
    /// rules, and otherwise read as in llama.cpp.
    pub fn decode(&self, piece: &[u8], start: Partial, chars: &mut Vec<u32>) -> Partial {
        match self.rules.is_strict {
            true => decode_strictly(piece, start, chars),
            false => decode(piece, start, chars),
        }
    }

    /// True if the grammar has counted repetitions.
    pub fn has_counts(&self) -> bool {
        !self.rules.repeats.is_empty()
    }

    /// Returns the ASCII characters that an item matches, except NUL, with bit 0 set if it may also
    /// match characters beyond ASCII, or part of one. Returns 0 unless the item is a class.
    pub fn cover(&self, item: Element) -> CharSet {
        match item {
            Element::Class(number) => self.covers.get(number as usize).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// Returns the kinds of characters that the class of an item contains entirely; none unless the
    /// item is a class.
    pub fn kinds(&self, item: Element) -> Kinds {
        match item {
            Element::Class(number) => self.kinds.get(number as usize).copied().unwrap_or_default(),
            _ => Kinds::default(),
        }
    }

    /// Returns the group of a code point.
    #[inline]
    pub fn group(&self, code_point: u32) -> u32 {
        if let Some(&group) = self.groups.ascii.get(code_point as usize) {
            return group;
        }
        self.groups.beyond_ascii(code_point)
    }

    /// Returns the group of the first character of a sequence's texts, if the sequence begins with
    /// a class of a single character.
    pub fn only_group(&self, sequence: u32) -> Option<u32> {
        let class = self.class(self.first(sequence)?.item)?;
        match *class.ranges {
            _ if class.negated => None,
            [(first, last)] if first == last => Some(self.group(first)),
            _ => None,
        }
    }

    /// Returns a code point of a group.
    pub fn one_of(&self, group: u32) -> u32 {
        self.groups.one_of.get(group as usize).copied().unwrap_or(0)
    }

    /// Returns the number of groups.
    pub fn n_groups(&self) -> usize {
        self.groups.one_of.len()
    }

    /// Returns the groups with ASCII characters other than NUL, each with those characters.
    pub fn ascii_groups(&self) -> impl Iterator<Item = (u32, CharSet)> {
        self.groups.sets.iter().copied()
    }

    /// Returns the groups with characters beyond ASCII that can occur in UTF-8.
    pub fn groups_beyond_ascii(&self) -> &[u32] {
        &self.groups.beyond
    }

    /// Returns the size of the grammar in bytes, without the vocabulary.
    pub fn bytes(&self) -> usize {
        self.rules.bytes()
            + self.covers.len() * (size_of::<CharSet>() + size_of::<Kinds>())
            + self.groups.starts.len() * 8
            + (self.groups.one_of.len() + self.groups.beyond.len()) * 4
            + self.groups.sets.len() * size_of::<(u32, CharSet)>()
            + size_of::<Self>()
    }
}

/// The exclusive or of the random keys of a set of classes. Two different sets have the same sum
/// with a probability of 2^-128.
type Sum = (u64, u64);

fn added(sum: Sum, other: Sum) -> Sum {
    (sum.0 ^ other.0, sum.1 ^ other.1)
}

impl Groups {
    fn new(classes: &[Class]) -> Self {
        // The code points at which the set of classes changes, and the change of its sum.
        let mut within_ascii = [(0, 0); N_ASCII as usize];
        let mut beyond = Vec::with_capacity(1 + 4 * classes.len());
        beyond.push((N_ASCII, sum_of(0)));
        let mut change = |at: u32, sum: Sum| match within_ascii.get_mut(at as usize) {
            Some(known) => *known = added(*known, sum),
            None => beyond.push((at, sum)),
        };
        for (number, class) in (1..).zip(classes) {
            let sum = sum_of(number);
            for (first, last) in apart(&class.ranges) {
                change(first, sum);
                if let Some(behind) = last.checked_add(1) {
                    change(behind, sum);
                }
            }
        }
        beyond.sort_unstable_by_key(|change| change.0);
        let mut numbers: Map<Sum, u32> = Map::default();
        let mut one_of = Vec::new();
        let mut group_of_sum = |sum: Sum, start: u32| {
            let n = one_of.len() as u32;
            let group = *numbers.entry(sum).or_insert(n);
            if group == n {
                one_of.push(start);
            }
            group
        };
        let mut sum = (0, 0);
        let mut ascii = [0; N_ASCII as usize];
        let mut group = 0;
        for ((code_point, change), place) in (0..).zip(within_ascii).zip(&mut ascii) {
            if change != (0, 0) || code_point == 0 {
                sum = added(sum, change);
                group = group_of_sum(sum, code_point);
            }
            *place = group;
        }
        let (mut starts, mut group_of) = (Vec::new(), Vec::new());
        for same in beyond.chunk_by(|a, b| a.0 == b.0) {
            sum = same.iter().fold(sum, |sum, change| added(sum, change.1));
            let start = same.first().map_or(0, |change| change.0);
            starts.push(start);
            group_of.push(group_of_sum(sum, start));
        }
        // Every ASCII character is in one of the first groups.
        let n_sets = ascii.iter().max().map_or(0, |&last| last + 1);
        let mut sets: Vec<(u32, CharSet)> = (0..n_sets).map(|group| (group, 0)).collect();
        for (code_point, &group) in ascii.iter().enumerate().skip(1) {
            if let Some((_, set)) = sets.get_mut(group as usize) {
                *set |= 1 << code_point;
            }
        }
        sets.retain(|&(_, set)| set != 0);
        let mut groups = Self {
            starts,
            group_of,
            one_of,
            ascii,
            sets,
            beyond: Vec::new(),
        };
        let ends = groups.starts.iter().skip(1).chain([&u32::MAX]);
        let ranges = groups.starts.iter().zip(ends).zip(&groups.group_of);
        // UTF-8 has no surrogates, and no code points after U+10FFFF.
        let is_beyond = |&((&start, &end), _): &((&u32, &u32), _)| {
            start < end.min(0xD800) || start.max(0xE000) < end.min(0x11_0000)
        };
        groups.beyond = ranges.filter(is_beyond).map(|range| *range.1).collect();
        groups.beyond.sort_unstable();
        groups.beyond.dedup();
        groups
    }

    /// Returns the group of a code point that is not ASCII.
    fn beyond_ascii(&self, code_point: u32) -> u32 {
        let range = self.starts.partition_point(|&start| start <= code_point);
        let range = range.saturating_sub(1);
        self.group_of.get(range).copied().unwrap_or(0)
    }
}

/// Returns disjoint ranges with the same code points: without inverted ranges, and each shared part
/// only in the first range that has it.
fn apart(ranges: &[(u32, u32)]) -> impl Iterator<Item = (u32, u32)> {
    let mut from = 0;
    ranges.iter().filter_map(move |&(first, last)| {
        let first = first.max(from);
        from = from.max(last.saturating_add(1));
        (first <= last).then_some((first, last))
    })
}

/// Returns the sum of the set that has only this class, from the random keys of the process.
fn sum_of(class: u32) -> Sum {
    let keys = Keys::default();
    let hash = |half| keys.hash_one((class, half));
    (hash(0_u32), hash(1_u32))
}

fn cover(class: &Class) -> CharSet {
    // The ASCII characters from `first` on.
    let from = |first: u32| CharSet::MAX.checked_shl(first).unwrap_or(0);
    let ranges = class.ranges.iter().filter(|(first, last)| first <= last);
    let sets = ranges.map(|&(first, last)| from(first) & !from(last.saturating_add(1)));
    let listed = sets.fold(0, |set, own| set | own);
    let ascii = match (class.any, class.negated) {
        (true, _) => CharSet::MAX,
        (_, true) => !listed,
        (_, false) => listed,
    } & !1;
    let beyond = |&(first, last): &(u32, u32)| first >= 0x80 || last >= 0x80;
    let may_be_beyond = class.any || class.negated || class.ranges.iter().any(beyond);
    ascii | CharSet::from(may_be_beyond)
}

#[cfg(test)]
mod tests {
    use super::{Class, Groups};

    /// Checks that a class has all characters of a group or none, even if it begins at NUL, ends
    /// before it begins, or crosses the end of ASCII.
    #[test]
    fn a_class_has_all_of_a_group_or_none() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut below = |n: u32| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u32 % n
        };
        for round in 0..500 {
            let most = [0x20, 0x80, 0x180, 0x11_0000][round % 4];
            let classes: Vec<_> = (0..1 + below(6))
                .map(|_| {
                    let mut ranges = Vec::new();
                    for _ in 0..below(5) {
                        let first = below(most) * below(4).min(1);
                        ranges.push((first, (first + below(20)).saturating_sub(2)));
                    }
                    Class::of(below(3) == 0, ranges)
                })
                .collect();
            let groups = Groups::new(&classes);
            for code_point in (0..0x1A0).chain((0..100).map(|n| n * 11_111)) {
                let ascii = groups.ascii.get(code_point as usize).copied();
                let group = ascii.unwrap_or_else(|| groups.beyond_ascii(code_point));
                let one = groups.one_of[group as usize];
                for class in &classes {
                    assert_eq!(
                        class.has(code_point),
                        class.has(one),
                        "{code_point:#x}, {one:#x}: {class:?}"
                    );
                }
                let in_set = groups.sets.iter().find(|&&(known, _)| known == group);
                if (1..0x80).contains(&code_point) {
                    assert!(in_set.is_some_and(|(_, set)| set >> code_point & 1 != 0));
                }
            }
        }
    }
}
