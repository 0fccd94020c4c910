//! Compares the tokens that are banned after random texts with those that a search of the whole
//! text finds.

use std::sync::Arc;

use llama_sieve_kernels::lcg::Lcg;
use test_crates::regex::bytes::{Regex, RegexBuilder};

use crate::bans::Bans;
use crate::bans::cursor::Cursor;
use crate::bans::order::Order;
use crate::bans::tests::{Random, text, vocabulary};
use crate::token::Token;

/// A search for banned texts in the whole text.
enum Search {
    Bytes(Vec<Vec<u8>>),
    Folded(Vec<Regex>),
}

impl Search {
    fn new(texts: &[Vec<u8>], folds: bool) -> Self {
        if !folds {
            return Self::Bytes(texts.to_vec());
        }
        let of = |text: &Vec<u8>| {
            let text = std::str::from_utf8(text).expect("whole characters");
            let escaped = test_crates::regex::escape(text);
            let mut pattern = RegexBuilder::new(&escaped);
            pattern.case_insensitive(true).build().expect("a literal")
        };
        Self::Folded(texts.iter().map(of).collect())
    }

    /// Returns the offsets in `text` of the banned texts that end after `end`.
    fn begins(&self, text: &[u8], end: usize) -> Vec<usize> {
        let mut begins = Vec::new();
        match self {
            Self::Bytes(banned) => {
                for banned in banned {
                    let found = text.windows(banned.len()).enumerate();
                    let found =
                        found.filter(|(at, window)| window == banned && at + banned.len() > end);
                    begins.extend(found.map(|(at, _)| at));
                }
            }
            Self::Folded(banned) => {
                for banned in banned {
                    let mut from = 0;
                    while let Some(found) = banned.find_at(text, from) {
                        if found.end() > end {
                            begins.push(found.start());
                        }
                        from = found.start() + 1;
                    }
                }
            }
        }
        begins
    }
}

/// Compares one random run. Returns the number of positions at which a banned text had begun.
fn compare(random: &mut Random, folds: bool) -> usize {
    // With only two different characters, a suffix of a text is often a prefix of another text.
    let few = [2, 3, 5, 12][random.below(4)];
    let vocabulary = vocabulary(random, few);
    let n = vocabulary.0.len() as Token;
    let banned: Vec<Vec<u8>> = (0..1 + random.below(12))
        .map(|_| text(random, few, 9))
        .collect();
    let order = Arc::new(Order::new(&vocabulary, folds));
    let as_slices: Vec<&[u8]> = banned.iter().map(Vec::as_slice).collect();
    let bans = Bans::new(&as_slices, &order);
    let search = Search::new(&banned, folds);
    let mut cursor = Cursor::new(&bans);
    let (mut written, mut tokens): (Vec<u8>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut begun = 0;
    for _ in 0..60 {
        let mut longest = 0;
        let mut allowed = Vec::new();
        let mut masked = vec![false; n as usize];
        cursor.each(&bans, |token| masked[token as usize] = true);
        for &token in bans.whole() {
            masked[token as usize] = true;
        }
        for token in 0..n {
            let mut with = written.clone();
            with.extend_from_slice(&vocabulary.0[token as usize]);
            let begins = search.begins(&with, written.len());
            let is_banned = cursor.bans(&bans, token);
            let about = (&banned, &written, token);
            assert_eq!(is_banned, !begins.is_empty(), "{about:x?}");
            assert_eq!(masked[token as usize], is_banned, "{about:x?}");
            for begin in begins.into_iter().filter(|&begin| begin < written.len()) {
                let first = tokens.iter().rposition(|&start| start <= begin);
                longest = longest.max(tokens.len() - first.expect("one of them"));
            }
            if !is_banned {
                allowed.push(token);
            }
        }
        assert_eq!(cursor.rewind(&bans), longest, "{banned:x?} {written:x?}");
        begun += usize::from(longest > 0);
        // Now and then a banned token: a host may accept one in spite of the ban.
        let next = match random.below(20) {
            0 => random.below(n as usize) as Token,
            _ if allowed.is_empty() => break,
            _ => allowed[random.below(allowed.len())],
        };
        cursor.accept(&bans, next);
        tokens.push(written.len());
        written.extend_from_slice(&vocabulary.0[next as usize]);
    }
    begun
}

#[test]
fn tokens_are_banned_that_a_search_of_bytes_finds() {
    let mut random = Random(Lcg(1));
    let begun: usize = (0..60).map(|_| compare(&mut random, false)).sum();
    assert!(begun > 300, "{begun}");
}

#[test]
fn tokens_are_banned_that_a_search_without_case_finds() {
    let mut random = Random(Lcg(2));
    let begun: usize = (0..60).map(|_| compare(&mut random, true)).sum();
    assert!(begun > 300, "{begun}");
}
