//! Grammars with a small step limit, only ours, in two vocabularies. The input has a byte whose
//! square is the limit, a grammar's text up to the first byte 255, and actions of two bytes each.
//! Whatever was called before, each result must equal that of a grammar with empty tables; a failed
//! call must free its allocations; and in the end no memory may be left.

use std::sync::{Arc, LazyLock};

use llama_sieve::grammar::cache;
use llama_sieve::grammar::compiled::Compiled;
use llama_sieve::grammar::engine::Engine;
use llama_sieve::grammar::parser::{Repetitions::Many, parse};
use llama_sieve::grammar::states::budget::Budget;
use llama_sieve::grammar::{Dead, Grammar, TokenTexts, VocabularyTree};
use llama_sieve::{Candidates, Sampler, Token, TokenData};

use crate::VOCABULARY;
use crate::counting_allocator::bytes_since;

const MOST_STEPS: usize = 10;
/// The number of bytes that a failed call may keep: an entry about the failure, in a table that may
/// grow for it.
const NOTE: isize = 4 << 10;

/// The vocabulary of the rest of this target with additional longer tokens, so that each range of
/// lengths has some.
#[derive(Debug)]
struct Texts(Vec<Vec<u8>>);

impl TokenTexts for Texts {
    fn n_tokens(&self) -> usize {
        self.0.len()
    }

    fn is_eog(&self, token: Token) -> bool {
        self.0[token as usize] == b"</s>"
    }

    fn written_out(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clone_from(&self.0[token as usize]);
    }
}

/// Two vocabularies with the same texts, but other token ids in the second.
static TREES: LazyLock<[Arc<VocabularyTree>; 2]> = LazyLock::new(|| {
    let mut texts = VOCABULARY.pieces.clone();
    texts[0] = b"</s>".to_vec();
    texts.extend([10, 20, 30].map(|n| b"ab".repeat(n)));
    texts.push(b"a".repeat(12));
    let turned = texts.iter().rev().cloned().collect();
    [texts, turned].map(|texts| Arc::new(VocabularyTree::new(&Texts(texts))))
});

pub fn prepare() {
    LazyLock::force(&TREES);
    TREES.iter().for_each(cache::forget);
    // From now on the buffer is large enough for every message, so that none allocates.
    llama_sieve::log::warn(&" ".repeat(1 << 16));
}

pub fn run(data: &[u8]) {
    let Some((&root_of_steps, rest)) = data.split_first() else {
        return;
    };
    let mut parts = rest.splitn(2, |&byte| byte == 255);
    let text = parts.next().unwrap_or_default();
    let steps = parts.next().unwrap_or_default();
    let before = bytes_since(0);
    let budget = Budget::of(usize::from(root_of_steps).pow(2));
    let subjects = TREES.each_ref().map(|tree| {
        let maker = Maker { text, tree, budget };
        maker.cached()
    });
    if let [Some(mut one), Some(mut other)] = subjects {
        for step in steps.chunks(2).take(MOST_STEPS) {
            let (what, which) = (step[0], step.get(1).copied().unwrap_or(0));
            let subject = if what < 128 { &mut one } else { &mut other };
            subject.step(what, which);
        }
    }
    TREES.iter().for_each(cache::forget);
    assert_eq!(bytes_since(before), 0);
}

/// Makes samplers of one grammar.
#[derive(Clone, Copy)]
struct Maker<'a> {
    text: &'a [u8],
    tree: &'a Arc<VocabularyTree>,
    budget: Budget,
}

impl<'a> Maker<'a> {
    /// Makes a new engine with empty tables.
    fn engine(self) -> Option<Arc<Engine>> {
        let rules = parse(self.text, b"root", Many, |_| Some(7)).ok()?;
        let engine = Engine::new(Compiled::new(rules, Arc::clone(self.tree)));
        Some(Arc::new(engine.within(self.budget)))
    }

    /// Makes a sampler of a grammar, which the cache keeps from now on.
    fn cached(self) -> Option<Subject<'a>> {
        let Self { text, tree, .. } = self;
        assert!(Grammar::cached(text, b"root", Many, tree).is_none());
        let (key, _) = cache::compiled(text, b"root", Many, tree, |_| Some(7)).ok()?;
        let (engine, cold) = (self.engine()?, Grammar::of(self.engine()?));
        cache::keep(key, &engine);
        let kept = || Grammar::cached(text, b"root", Many, tree).expect("it was kept");
        for _ in 0..2 {
            assert_eq!(kept().err(), cold.as_ref().err().cloned());
        }
        Some(Subject {
            maker: self,
            engine,
            grammar: kept().ok()?,
            accepted: Vec::new(),
        })
    }
}

/// A call to a sampler, with its argument.
enum Question {
    /// Calls `apply` with candidates of these tokens.
    Array(Vec<Token>),
    /// Calls `accept_for_host` with this token.
    Accept(Token),
}

#[derive(Debug, PartialEq)]
struct Answer {
    /// The remaining tokens, with the bits of their logits.
    left: Vec<(Token, u32)>,
    is_refused: bool,
    dead: Option<Dead>,
    is_complete: bool,
}

impl Question {
    /// Makes the call. Returns its result, and the number of additional bytes that are allocated
    /// after it.
    fn put_to(&self, grammar: &mut Grammar) -> (Answer, isize) {
        let tokens: &[Token] = match self {
            Self::Array(tokens) => tokens,
            Self::Accept(_) => &[],
        };
        let candidate = |&id: &Token| TokenData::new(id, 1.0 + id as f32 / 8.0);
        let mut array: Vec<TokenData> = tokens.iter().map(candidate).collect();
        let mut is_refused = false;
        let before = bytes_since(0);
        match *self {
            Self::Array(_) => grammar.apply(&mut Candidates::new(&mut array, false)),
            Self::Accept(token) => is_refused = grammar.accept_for_host(token).is_some(),
        }
        let grown = bytes_since(before);
        let left = array.iter().map(|left| (left.id, left.logit.to_bits()));
        let answer = Answer {
            left: left.collect(),
            is_refused,
            dead: grammar.slot().dead(),
            is_complete: grammar.slot().is_complete(),
        };
        (answer, grown)
    }
}

/// A sampler that has received calls of all kinds.
struct Subject<'a> {
    maker: Maker<'a>,
    engine: Arc<Engine>,
    grammar: Grammar,
    accepted: Vec<Token>,
}

impl Subject<'_> {
    /// Returns `other`, a sampler at the beginning, after it has accepted the tokens that this one
    /// has.
    fn lead(&self, mut other: Grammar) -> Grammar {
        for &token in &self.accepted {
            other.accept(token);
            assert_eq!(other.slot().dead(), None);
        }
        other
    }

    fn begin_again(&mut self) {
        self.grammar.reset();
        assert_eq!(self.grammar.slot().dead(), None);
        for &token in &self.accepted {
            self.grammar.accept(token);
            assert_eq!(self.grammar.slot().dead(), None);
        }
    }

    fn step(&mut self, what: u8, which: u8) {
        let n = self.maker.tree.n_tokens() as Token;
        let any = (Token::from(which) + 16 * Token::from(what / 16)) % n;
        // A single candidate is checked by itself while no mask has been computed.
        self.ask(Question::Array(vec![any]));
        let some = (0..n).skip(what.into()).step_by(17);
        self.ask(Question::Array(some.collect()));
        let answer = self.ask(Question::Array((0..n).collect()));
        let never = f32::NEG_INFINITY.to_bits();
        let allowed = answer.left.iter().filter(|&&(_, logit)| logit != never);
        let allowed: Vec<Token> = allowed.map(|&(token, _)| token).collect();
        match what % 16 {
            0 => self.accept(any),
            1 => {
                self.accepted.clear();
                self.begin_again();
            }
            2 => self.grammar = self.grammar.clone(),
            3 => {
                let Maker { text, tree, .. } = self.maker;
                let another = Grammar::cached(text, b"root", Many, tree).expect("it is kept");
                self.grammar = self.lead(another.expect("as before"));
            }
            4 => self.engine.forget(),
            _ if allowed.is_empty() => self.accept(any),
            _ => self.accept(allowed[usize::from(which) % allowed.len()]),
        }
    }

    fn accept(&mut self, token: Token) {
        let answer = self.ask(Question::Accept(token));
        if answer.dead.is_none() {
            self.accepted.push(token);
        }
    }

    /// Makes a call, and returns its result. Checks that a sampler with new tables gives the same
    /// result, and that a call that fails gives it again.
    fn ask(&mut self, question: Question) -> Answer {
        let cold = Grammar::of(self.maker.engine().expect("it is a grammar"));
        let (expected, _) = question.put_to(&mut self.lead(cold.expect("as before")));
        let kept = self.engine.bytes();
        let (answer, grown) = question.put_to(&mut self.grammar);
        assert_eq!(answer, expected);
        if answer.dead.is_none() {
            return answer;
        }
        let is_limit = answer.dead == Some(Dead::Limit);
        assert!(!is_limit || grown <= NOTE, "{grown} bytes");
        assert!(!is_limit || self.engine.bytes() <= kept + 64, "{kept}");
        let [once, twice] = [(); 2].map(|()| {
            self.begin_again();
            assert_eq!(question.put_to(&mut self.grammar).0, expected);
            bytes_since(0)
        });
        assert!(!is_limit || twice <= once, "{once} bytes, then {twice}");
        self.check_dead();
        self.begin_again();
        answer
    }

    /// Checks a dead sampler: it allows only tokens that end the generation, keeps the token of an
    /// array of one, and rejects a host's tokens.
    fn check_dead(&self) {
        let mut grammar = self.grammar.clone();
        let why = grammar.slot().dead();
        let (n, end) = (
            self.maker.tree.n_tokens() as Token,
            self.maker.tree.end_of_generation(),
        );
        let tokens = (-1..=n).step_by(23).chain(end.iter().copied());
        for token in tokens {
            let (answer, _) = Question::Array(vec![token]).put_to(&mut grammar);
            let is_end = end.contains(&token);
            let logit = match is_end {
                true => 1.0 + token as f32 / 8.0,
                false => f32::NEG_INFINITY,
            };
            assert_eq!(answer.left, [(token, logit.to_bits())], "{why:?}");
            let (answer, _) = Question::Accept(token).put_to(&mut grammar);
            // On an end that is not allowed, llama.cpp's own sampler would abort the process.
            let is_refused = !is_end || why == Some(Dead::Limit);
            assert_eq!(answer.is_refused, is_refused, "{why:?}, {token}");
            assert_eq!((answer.dead, answer.is_complete), (why, false));
        }
    }
}
