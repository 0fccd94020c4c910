//! Compares the biases after random texts with their definition, which searches the whole text.

use std::sync::Arc;

use llama_sieve_kernels::lcg::Lcg;
use test_crates::regex::bytes::RegexBuilder;

use super::*;
use crate::bans::tests::{CHARACTERS, Random, text, vocabulary};

/// A unit of a text, which is a byte or a folded character, and its offset.
#[derive(Clone, Copy, Debug)]
struct Unit {
    start: usize,
    class: u32,
}

/// Splits texts into units.
struct Units {
    folds: bool,
    /// Each character with the first that equals it in the crate `regex` when case is ignored.
    classes: Vec<(char, char)>,
}

impl Units {
    fn new(folds: bool) -> Self {
        let characters = || CHARACTERS.iter().flat_map(|text| text.chars());
        let first = |character: char| {
            let mut text = [0; 4];
            let text = character.encode_utf8(&mut text);
            let equal = |other: &char| {
                let mut pattern = RegexBuilder::new(&format!(r"\x{{{:x}}}", u32::from(*other)));
                let pattern = pattern.case_insensitive(true).build().expect("a literal");
                pattern.is_match(text.as_bytes())
            };
            characters().find(equal).expect("itself")
        };
        Self {
            folds,
            classes: characters()
                .map(|character| (character, first(character)))
                .collect(),
        }
    }

    /// Returns the units of a text. An unfinished character is a unit that is equal to no other.
    fn of(&self, text: &[u8]) -> Vec<Unit> {
        if !self.folds {
            let unit = |(start, &byte)| Unit {
                start,
                class: u32::from(byte),
            };
            return text.iter().enumerate().map(unit).collect();
        }
        let (mut units, mut at) = (Vec::new(), 0);
        for chunk in text.utf8_chunks() {
            for (offset, character) in chunk.valid().char_indices() {
                // Other characters, which bytes of several tokens form, are equal to none of these.
                let known = self.classes.iter().find(|(known, _)| *known == character);
                units.push(Unit {
                    start: at + offset,
                    class: known.map_or(character, |&(_, first)| first).into(),
                });
            }
            at += chunk.valid().len();
            if !chunk.invalid().is_empty() {
                units.push(Unit {
                    start: at,
                    class: u32::MAX,
                });
                at += chunk.invalid().len();
            }
        }
        units
    }
}

fn are_equal(a: &[Unit], b: &[Unit]) -> bool {
    a.iter()
        .map(|unit| unit.class)
        .eq(b.iter().map(|unit| unit.class))
}

/// Returns the largest share of `wanted` that matches at the end of `text` and begins before
/// `from`. Returns 1 if a match of all of `wanted` ends after `from`.
fn share(wanted: &[Unit], text: &[Unit], from: usize) -> f64 {
    let is_new = |end: usize| text.get(end).is_none_or(|next| next.start > from);
    let mut windows = text.windows(wanted.len()).enumerate();
    if windows.any(|(i, window)| is_new(i + wanted.len()) && are_equal(window, wanted)) {
        return 1.0;
    }
    let begun = |&m: &usize| {
        let at_end = &text[text.len() - m..];
        at_end[0].start < from && are_equal(at_end, &wanted[..m])
    };
    let most = text.len().min(wanted.len() - 1);
    let longest = (1..=most).rev().find(begun).unwrap_or(0);
    longest as f64 / wanted.len() as f64
}

/// Compares one random run. Returns the number of tokens with a part of the bias, and the number of
/// tokens with all of it.
fn compare(random: &mut Random, folds: bool) -> (usize, usize) {
    // With only two different characters, a suffix of a text is often a prefix of another text.
    let few = [2, 3, 5, 12][random.below(4)];
    let bias = [-8.0, 3.0, -0.7][random.below(3)];
    let vocabulary = vocabulary(random, few);
    let texts: Vec<Vec<u8>> = (0..1 + random.below(12))
        .map(|_| text(random, few, 9))
        .collect();
    let order = Arc::new(Order::new(&vocabulary, folds));
    let as_slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let biases = Biases::new(&as_slices, bias, &order);
    let units = Units::new(folds);
    let wanted: Vec<Vec<Unit>> = texts.iter().map(|text| units.of(text)).collect();
    let (mut place, mut buffer) = (Place::default(), Vec::new());
    let mut written: Vec<u8> = Vec::new();
    let (mut parts, mut wholes) = (0, 0);
    for _ in 0..40 {
        let list = biases.after(place, &mut buffer);
        assert!(list.is_sorted_by(|(a, _), (b, _)| a < b), "{list:?}");
        for (token, piece) in (0..).zip(&vocabulary.0) {
            let with = units.of(&[&written[..], piece].concat());
            let shares = wanted.iter().map(|text| match piece.is_empty() {
                true => 0.0,
                false => share(text, &with, written.len()),
            });
            let share = shares.fold(0.0, f64::max);
            parts += usize::from(share > 0.0 && share < 1.0);
            wholes += usize::from(share == 1.0);
            let whole = biases.whole().contains(&token).then_some(bias);
            let known = list.iter().find(|addend| addend.0 == token);
            let known = known.map(|&(_, addend)| addend);
            assert!(whole.is_none() || known.is_none(), "{token}");
            let expected = (f64::from(bias) * share) as f32;
            let about = (&texts, &written, token);
            assert_eq!(
                whole.or(known).unwrap_or(0.0),
                expected,
                "{share} {about:x?}"
            );
        }
        let next = random.below(vocabulary.0.len());
        place.accept(biases.bans(), next as Token);
        written.extend_from_slice(&vocabulary.0[next]);
    }
    (parts, wholes)
}

fn compare_many(seed: u32, folds: bool) {
    let mut random = Random(Lcg(seed));
    let (mut parts, mut wholes) = (0, 0);
    for _ in 0..60 {
        let (more_parts, more_wholes) = compare(&mut random, folds);
        parts += more_parts;
        wholes += more_wholes;
    }
    eprintln!("{parts} tokens with a part of the bias, {wholes} with all");
    assert!(parts > 2000 && wholes > 2000, "{parts} {wholes}");
}

#[test]
fn biases_are_their_definition() {
    compare_many(1, false);
}

#[test]
fn biases_without_case_are_their_definition() {
    compare_many(2, true);
}

/// Checks that lists beyond the limit on kept lists are found again, with the same result.
#[test]
fn lists_that_are_not_kept_are_the_same() {
    let mut random = Random(Lcg(3));
    let vocabulary = vocabulary(&mut random, 3);
    let order = Arc::new(Order::new(&vocabulary, false));
    let texts: Vec<Vec<u8>> = (0..9).map(|_| text(&mut random, 3, 9)).collect();
    let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let of_room = |room: usize| {
        let mut biases = Biases::new(&texts, -2.0, &order);
        biases.kept = Kept::with_limit(biases.bans.automaton().n_states(), room);
        biases
    };
    let (kept, found_again) = (of_room(usize::MAX), of_room(0));
    let (mut place, mut buffer, mut n) = (Place::default(), Vec::new(), 0);
    for _ in 0..400 {
        let expected = kept.after(place, &mut Vec::new()).to_vec();
        for _ in 0..2 {
            assert_eq!(found_again.after(place, &mut buffer), expected);
        }
        n += expected.len();
        place.accept(kept.bans(), random.below(vocabulary.0.len()) as Token);
    }
    assert!(n > 400, "{n}");
    assert!(
        found_again
            .kept
            .get(place.state)
            .is_none_or(<[_]>::is_empty)
    );
}
