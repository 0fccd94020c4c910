use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};

use super::super::last_breaker::LastBreaker;
use super::super::{Dry, DryParams};
use super::*;
use crate::candidates::Candidates;
use crate::lcg::Lcg;
use crate::sampler::Sampler;
use crate::token::array_of;

thread_local! {
    /// The number of tokens at which a breaker was searched for.
    pub(super) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
}

/// A vocabulary of these texts. Its tokenizer takes the longest token with which the rest of the
/// text begins, and skips bytes that no token has.
#[derive(Debug)]
struct Texts(Vec<Vec<u8>>);

impl Vocabulary for Texts {
    fn n_tokens(&self) -> usize {
        self.0.len()
    }

    fn is_eog(&self, _token: Token) -> bool {
        false
    }

    fn end_token(&self) -> Option<Token> {
        None
    }

    fn piece(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clone_from(&self.0[token as usize]);
    }

    fn detokenize(&self, token: Token, text: &mut Vec<u8>) {
        self.piece(token, text);
    }

    fn tokenize(&self, mut text: &[u8]) -> Vec<Token> {
        let mut tokens = Vec::new();
        while !text.is_empty() {
            let begins = |token: &usize| text.starts_with(&self.0[*token]);
            let fits = (0..self.0.len()).filter(begins);
            let longest = fits.max_by_key(|&token| self.0[token].len());
            let length = longest.map_or(0, |token| self.0[token].len());
            if length > 0 {
                tokens.extend(longest.map(|token| token as Token));
            }
            text = &text[length.max(1)..];
        }
        tokens
    }
}

type AllTails = HashMap<Token, Vec<Vec<Token>>>;

/// Returns the tails of all tokens, found by searching each text for each breaker as llama.cpp
/// does, and the texts that are tokenized for that.
fn all_tails(vocabulary: &Texts, breakers: &[&[u8]]) -> (AllTails, BTreeSet<Vec<u8>>) {
    let (mut all, mut asked) = (AllTails::new(), BTreeSet::new());
    for breaker in breakers {
        let breaker = &breaker[..breaker.len().min(40)];
        for (token, text) in vocabulary.0.iter().enumerate() {
            let mut add = |tail| all.entry(token as Token).or_default().push(tail);
            if breaker.is_empty() {
                continue;
            }
            if text.windows(breaker.len()).any(|part| part == breaker) {
                add(Vec::new());
                continue;
            }
            for begun in 1..breaker.len() {
                if text.ends_with(&breaker[..begun]) {
                    asked.insert(breaker[begun..].to_vec());
                    let mut tail = vocabulary.tokenize(&breaker[begun..]);
                    tail.truncate(20);
                    add(tail);
                }
            }
        }
    }
    (all, asked)
}

fn distance(all: &AllTails, reversed: &[Token]) -> usize {
    for (i, token) in reversed.iter().enumerate() {
        let following: Vec<Token> = reversed[..i].iter().rev().copied().collect();
        let tails = all.get(token).into_iter().flatten();
        let said = tails.filter(|tail| following.starts_with(tail));
        if let Some(longest) = said.map(Vec::len).max() {
            return i - longest;
        }
    }
    reversed.len()
}

/// Returns the distance that the implementation finds when no token is settled.
fn whole_distance(breakers: &Breakers, reversed: &[Token]) -> usize {
    let mut last = LastBreaker::default();
    reversed.iter().for_each(|_| last.accept());
    last.distance(breakers, reversed)
}

fn below(lcg: &mut Lcg, n: usize) -> usize {
    (lcg.bits() >> 8) as usize % n
}

fn text(lcg: &mut Lcg, longest: usize, letters: &[u8]) -> Vec<u8> {
    let length = below(lcg, longest + 1);
    let letters = (0..length).map(|_| letters[below(lcg, letters.len())]);
    letters.collect()
}

#[test]
fn breakers_are_those_that_looking_for_each_finds() {
    let mut lcg = Lcg(11);
    let (mut shortened, mut contained, mut cut, mut settled) = (0, 0, 0, 0);
    // All cases would take minutes under Miri.
    for case in 0..if cfg!(miri) { 4 } else { 400 } {
        let letters: &[u8] = [&b"ab"[..], b"abc", b"a"][case % 3];
        let n_tokens = 1 + below(&mut lcg, 30);
        let of_token = [2, 6][case % 2];
        let vocabulary = Texts(
            (0..n_tokens)
                .map(|_| text(&mut lcg, of_token, letters))
                .collect(),
        );
        let of_breaker = [3, 8, 60][below(&mut lcg, 3)];
        let n_breakers = 1 + below(&mut lcg, 20);
        // Breakers may also have a letter that no token has, so a rest may have no tokens.
        let letters = [letters, b"z"].concat();
        let all: Vec<Vec<u8>> = (0..n_breakers)
            .map(|_| text(&mut lcg, of_breaker, &letters[case % 2..]))
            .collect();
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let (naive, asked) = all_tails(&vocabulary, &all);
        let mut found = FoundBreakers::new(&vocabulary, &all);
        let mut texts = Vec::new();
        found.for_each_tail(|text, tokens| {
            texts.push(text.to_vec());
            *tokens = vocabulary.tokenize(text);
        });
        // The tokenizer must get the same texts, each once, since a host's may throw at any of
        // them.
        texts.sort();
        assert!(texts.iter().eq(&asked), "{case}: {texts:?}, {asked:?}");
        let ours = found.into_breakers();
        contained += ours.contained.len();
        for token in 0..n_tokens as Token {
            let tails = naive.get(&token).into_iter().flatten();
            cut += tails.clone().filter(|tail| tail.len() == 20).count();
            let is_whole = tails.into_iter().any(Vec::is_empty);
            assert_eq!(ours.is_whole_breaker(token), is_whole, "{case}: {token}");
        }
        let (mut last, mut reversed) = (LastBreaker::default(), Vec::new());
        for _ in 0..40 {
            let mut said: Vec<Token> = Vec::new();
            for _ in 0..below(&mut lcg, 4) {
                // After some token comes a breaker, from a random position on.
                said.push(below(&mut lcg, n_tokens) as Token);
                let breaker = all[below(&mut lcg, all.len())];
                let from = below(&mut lcg, breaker.len() + 1);
                said.extend(vocabulary.tokenize(&breaker[from..]));
            }
            said.reverse();
            let expected = distance(&naive, &said);
            assert_eq!(
                whole_distance(&ours, &said),
                expected,
                "{case}: {all:?}, {vocabulary:?}, {said:?}"
            );
            shortened += usize::from(expected < said.len());
            // The same check after each token, in a window that begins in the tokens of earlier
            // rounds.
            if said.len() % 8 == 7 {
                last.forget();
            }
            let window = 1 + below(&mut lcg, 100);
            for (i, token) in said.iter().rev().enumerate() {
                reversed.insert(0, *token);
                reversed.truncate(window);
                last.accept();
                if i % 3 == 0 {
                    let expected = distance(&naive, &reversed);
                    let found = last.distance(&ours, &reversed);
                    assert_eq!(
                        found, expected,
                        "{case}: {all:?}, {vocabulary:?}, {reversed:?}"
                    );
                    settled += usize::from((20..reversed.len()).contains(&expected));
                }
            }
        }
    }
    assert!(cfg!(miri) || shortened > 1000 && contained > 100 && cut > 100 && settled > 100);
}

/// A token that contains a breaker ends it, even if the token also ends with a prefix of that
/// breaker. Another breaker that begins in the same way still needs its rest.
#[test]
fn nothing_need_follow_a_breaker_that_a_token_contains() {
    let vocabulary = Texts([&b"aba"[..], b"ba", b"ca", b"-"].map(<[u8]>::to_vec).into());
    let breakers = Breakers::new(&vocabulary, &[b"aba", b"aca"]);
    // The newest token comes first.
    assert_eq!(whole_distance(&breakers, &[3, 1, 0]), 2);
    assert_eq!(whole_distance(&breakers, &[3, 2, 0]), 1);
    assert_eq!(whole_distance(&breakers, &[3, 1, 2]), 1);
    assert!(breakers.is_whole_breaker(0) && !breakers.is_whole_breaker(1));
}

/// Tails are kept once per beginning, not once for each token that ends with it.
#[test]
fn tails_are_kept_once_for_each_beginning() {
    let numbers: Vec<String> = (0..300).map(|n| format!(" -{n:03}")).collect();
    let breakers: Vec<&[u8]> = numbers.iter().map(String::as_bytes).collect();
    for n_tokens in [10, 1000] {
        let ends = [" ", " -", "- ", "-"];
        let texts = (0..n_tokens).map(|n| format!("x{n}{}", ends[n % 4]).into_bytes());
        let vocabulary = Texts(texts.collect());
        for n in [100, 300, 300] {
            let mut asked = 0;
            // Each breaker occurs twice.
            let twice = [&breakers[..n], &breakers[..n]].concat();
            let mut found = FoundBreakers::new(&vocabulary, &twice[..]);
            found.for_each_tail(|_, tokens| {
                tokens.clear();
                asked += 1;
            });
            let kept = found.into_breakers();
            // There are tails after " " and after " -", with which all breakers begin.
            assert_eq!((kept.tails.len(), asked), (2 * n, 2 * n));
            assert_eq!(kept.beginnings.len(), 3);
            assert_eq!(
                kept.heads.len(),
                (0..n_tokens).filter(|n| n % 4 != 3).count()
            );
        }
    }
}

/// There must be room for the tokens before the host is called, since nothing may be allocated
/// then.
#[test]
fn what_follows_a_breaker_has_room_for_its_tokens() {
    let vocabulary = Texts(
        [&b"xabc"[..], b"a", b"-abcd-", b"bcd", b"-abc"]
            .map(<[u8]>::to_vec)
            .into(),
    );
    let mut found = FoundBreakers::new(&vocabulary, &[b"abcd"]);
    let (all, ends) = (found.breakers.tokens.capacity(), found.places.capacity());
    assert!(all >= 2 * 20 && ends >= 2);
    let mut asked = Vec::new();
    found.for_each_tail(|text, tokens| {
        // Eight tokens per byte, and eight for the end of the text.
        asked.push((text.to_vec(), tokens.capacity() >= 8 * (text.len() + 1)));
        tokens.clear();
        tokens.resize(tokens.capacity(), 7);
    });
    assert_eq!(asked, [(b"bcd".to_vec(), true), (b"d".to_vec(), true)]);
    let left = (found.breakers.tokens.capacity(), found.places.capacity());
    assert_eq!(left, (all, ends));
    assert_eq!(found.places, [(0, 20), (20, 40)]);
}

/// If several tails match, the longest one is part of the breaker.
#[test]
fn what_is_behind_a_breaker_begins_after_its_tail() {
    let vocabulary = Texts((0..10).map(|n| vec![b'0' + n]).collect());
    let breakers = Breakers::new(&vocabulary, &[b"5", b"51", b"512"]);
    for (newest_first, distance) in [
        (&[9, 8, 2, 1, 5, 3][..], 2),
        (&[2, 1, 5], 0),
        (&[9, 1, 5], 1),
        (&[9, 8, 7, 5], 3),
        (&[9, 8, 7], 3),
    ] {
        assert_eq!(whole_distance(&breakers, newest_first), distance);
    }
}

/// Only the newest tokens are searched, however many there are in the window.
#[test]
fn breakers_are_looked_for_at_the_newest_tokens_alone() {
    // A breaker may begin at each token, but none is complete.
    let vocabulary = Texts(vec![b"aaa".to_vec(), b"b".to_vec()]);
    let breakers = Breakers::new(&vocabulary, &[b"aaab", b"aab", b"ab"]);
    let looked_at = || LOOKED_AT.replace(0);
    let (mut last, mut reversed) = (LastBreaker::default(), Vec::new());
    for n in 1..200 {
        reversed.resize(n, 0);
        last.accept();
        looked_at();
        assert_eq!(last.distance(&breakers, &reversed), n);
        assert!(looked_at() <= 21, "{n}");
    }
    reversed.resize(229, 0);
    (0..30).for_each(|_| last.accept());
    assert_eq!(last.distance(&breakers, &reversed), 229);
    assert_eq!(looked_at(), 50);
    last.forget();
    assert_eq!(last.distance(&breakers, &reversed), 229);
    assert_eq!(looked_at(), 229);
}

/// After a change of breakers the whole window is searched, even the tokens that were settled for
/// the earlier ones.
#[test]
fn other_breakers_are_looked_for_in_all_of_the_window() {
    let vocabulary = Texts((0..10).map(|n| vec![b'0' + n]).collect());
    let params = DryParams {
        multiplier: 0.8,
        base: 1.1,
        allowed_length: 1,
        last_n: 200,
    };
    let said = [[1, 5].repeat(3), [2, 3].repeat(30)].concat().repeat(2);
    let fresh = || {
        let mut dry = Dry::new(params).expect("the parameters enable it");
        said.iter().for_each(|&token| dry.accept(token));
        dry
    };
    let logit = |dry: &mut Dry| {
        let mut data = array_of(&[1.0; 4]);
        dry.apply(&mut Candidates::new(&mut data, false));
        data[1].logit
    };
    let of = |text: &[u8]| Breakers::new(&vocabulary, &[text]);
    let mut changed = fresh();
    let mut found = Vec::new();
    for text in [b"9", b"5", b"9"] {
        changed.set_breakers(of(text));
        let mut other = fresh();
        other.set_breakers(of(text));
        found.push(logit(&mut changed));
        assert_eq!(found.last(), Some(&logit(&mut other)));
    }
    assert!(found[0] < found[1] && found[0] == found[2], "{found:?}");
}
