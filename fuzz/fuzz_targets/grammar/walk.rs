//! Compares our grammar with llama.cpp's along walks. The input has a grammar's text up to the
//! first byte 255, and actions of two bytes each.

use llama_sieve::grammar::parser;

use crate::pair::{self, Pair};
use crate::stacks::Stacks;
use crate::support::HostSampler;
use crate::{VOCABULARY, apply, array, check_dead};

const MOST_STEPS: usize = 10;

pub fn run(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == 255);
    let text = parts.next().unwrap_or_default();
    let steps = parts.next().unwrap_or_default();
    if text.first().is_none_or(|&byte| byte == 0) {
        return;
    }
    let ours = pair::ours(text, "root", &VOCABULARY);
    let said = llama_sieve::last_error::get();
    let ours = (!ours.is_null()).then(|| HostSampler::new(ours));
    // Texts in angle brackets name tokens; their ids make no difference here.
    let written = match parser::written(text, b"root", |_| Some(0)) {
        Ok(written) => written,
        Err(error) => {
            // Our parser also reads repetition counts that llama.cpp rejects as too large.
            assert!(ours.is_none() || error.is_of_number, "{error}");
            if !error.is_trap && !is_limit(&error.what) {
                let theirs = pair::theirs(text, "root", &VOCABULARY);
                assert!(theirs.is_null(), "{error}");
            }
            return;
        }
    };
    let Some(stacks) = Stacks::new(written) else {
        return;
    };
    let theirs = pair::theirs(text, "root", &VOCABULARY);
    let theirs = (!theirs.is_null()).then(|| HostSampler::new(theirs));
    assert_eq!(ours.is_some(), theirs.is_some(), "{said}");
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        let pair = Pair { ours, theirs };
        Walk { pair, stacks }.steps(steps);
    }
}

/// True if this error means a limit of ours, beyond which llama.cpp may still accept the text.
fn is_limit(what: &str) -> bool {
    what.contains("the grammar has more than") || what.contains("too many different")
}

struct Walk {
    pair: Pair,
    stacks: Stacks,
}

impl Walk {
    fn steps(&mut self, steps: &[u8]) {
        for step in steps.chunks(2).take(MOST_STEPS) {
            if !self.stacks.may_apply(&VOCABULARY.pieces) {
                return;
            }
            let (what, which) = (step[0], step.get(1).copied().unwrap_or(0));
            if !self.step(what, which) {
                return;
            }
        }
    }

    /// Does one action. Returns false if the built-in must not be called any more.
    fn step(&mut self, what: u8, which: u8) -> bool {
        let n = VOCABULARY.n_tokens as i32;
        let any = (i32::from(which) + 16 * i32::from(what / 16)) % n;
        // A single candidate is checked by itself while no mask has been computed.
        apply(&self.pair, &array([any], what));
        apply(
            &self.pair,
            &array((0..n).skip(what.into()).step_by(17), which),
        );
        let allowed = apply(&self.pair, &array(0..n, which));
        apply(&self.pair, &array((any..n).rev(), what));
        assert_eq!(pair::mask(&self.pair.ours, VOCABULARY.n_tokens), allowed);
        let may_end = allowed.iter().any(|token| VOCABULARY.eog.contains(token));
        assert_eq!(pair::is_complete(&self.pair.ours), may_end);
        assert_eq!(pair::error(&self.pair.ours), 0);
        match what % 16 {
            0 => self.accept(any, &allowed),
            1 => {
                self.reset();
                true
            }
            2 => {
                // The copies must be independent of the originals.
                let copy = self.pair.clone();
                self.pair.reset();
                self.pair = copy;
                true
            }
            _ if allowed.is_empty() => self.accept(any, &allowed),
            _ => self.accept(allowed[usize::from(which) % allowed.len()], &allowed),
        }
    }

    fn reset(&mut self) {
        self.pair.reset();
        self.stacks.reset();
    }

    fn accept(&mut self, token: i32, allowed: &[i32]) -> bool {
        let is_end = VOCABULARY.eog.contains(&token);
        if is_end {
            // The built-in aborts on an end where the text may not end.
            let is_allowed = allowed.contains(&token);
            self.pair.ours.accept(token);
            assert_eq!(pair::error(&self.pair.ours) == 0, is_allowed);
            if is_allowed {
                self.pair.theirs.accept(token);
            } else {
                check_dead(&self.pair);
                self.reset();
            }
            return true;
        }
        if !self.stacks.accept(&VOCABULARY.pieces[token as usize]) {
            return false;
        }
        let accepted = self.pair.accept(token);
        if !accepted.unwrap_or_else(|what| panic!("{what}")) {
            check_dead(&self.pair);
            self.reset();
        }
        true
    }
}
