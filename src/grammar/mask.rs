//! Which tokens a state allows: a bit per token, found by going through the vocabulary's tree.

#![expect(
    clippy::indexing_slicing,
    reason = "ranks and tokens are numbers of the tree that the words were made for"
)]

use crate::grammar::compiled::Compiled;
use crate::grammar::elements::Element;
use crate::grammar::states::{NONE, StateId, States, TooMuch, takes};
use crate::grammar::utf8::{Partial, decode};
use crate::grammar::vocabulary_tree::{Kind, Step, VocabularyTree, char_bit};
use crate::token::{Token, TokenData};

/// A bit per token.
#[derive(Debug, PartialEq, Eq)]
pub struct Mask {
    words: Box<[u64]>,
}

impl Mask {
    /// Whether a token is allowed; false of one that there is not.
    #[inline]
    pub fn allows(&self, token: Token) -> bool {
        let word = self.words.get(token as usize / 64);
        word.is_some_and(|word| word >> (token as u32 % 64) & 1 != 0)
    }

    /// The bits, the lowest of the first word for token 0.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// How many tokens are allowed.
    pub fn count(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// The mask that allows every token.
    pub fn all(n_tokens: usize) -> Self {
        let mut words = vec![u64::MAX; n_tokens.div_ceil(64)].into_boxed_slice();
        if let (Some(last), rest @ 1..) = (words.last_mut(), n_tokens % 64) {
            *last = (1 << rest) - 1;
        }
        Self { words }
    }

    /// Gives minus infinity to the candidates that are not allowed.
    pub fn apply(&self, candidates: &mut [TokenData]) {
        for candidate in candidates {
            if !self.allows(candidate.id) {
                candidate.logit = f32::NEG_INFINITY;
            }
        }
    }

    /// The mask that allows only these tokens.
    pub fn only(n_tokens: usize, tokens: &[Token]) -> Self {
        let mut words = vec![0; n_tokens.div_ceil(64)].into_boxed_slice();
        for &token in tokens {
            words[token as usize / 64] |= 1 << (token % 64);
        }
        Self { words }
    }
}

/// Bits by rank.
struct Ranks(Vec<u64>);

impl Ranks {
    fn insert(&mut self, from: usize, to: usize) {
        if from >= to {
            return;
        }
        let (first, last) = (from / 64, (to - 1) / 64);
        let head = u64::MAX << (from % 64);
        let tail = u64::MAX >> (63 - (to - 1) % 64);
        if first == last {
            self.0[first] |= head & tail;
            return;
        }
        self.0[first] |= head;
        self.0[first + 1..last].fill(u64::MAX);
        self.0[last] |= tail;
    }
}

/// Whether `token` is allowed in `state`, when the text so far ends with `partial`.
///
/// A token that meets a token element on its way is decided by its number, whatever follows; one
/// with a character of code point 0 is looked at up to there only.
pub fn allows(
    states: &mut States,
    grammar: &Compiled,
    state: StateId,
    partial: Partial,
    token: Token,
    chars: &mut Vec<u32>,
) -> Result<bool, TooMuch> {
    match grammar.tree.kind(token) {
        None | Some(Kind::Blank) => return Ok(false),
        Some(Kind::EndOfGeneration) => return Ok(states.may_end(state)),
        Some(_) => {}
    }
    let end = decode(grammar.tree.text(token), partial, chars);
    let mut state = state;
    for &code_point in chars.iter().take_while(|&&code_point| code_point != 0) {
        if states.has_tokens(grammar, state) {
            states.spend(states.edges(state).len())?;
            if any_takes(states, grammar, state, token) {
                return Ok(true);
            }
        }
        state = states.step(grammar, state, grammar.group(code_point))?;
        if state == NONE {
            return Ok(false);
        }
    }
    may_stop(states, grammar, state, end)
}

fn any_takes(states: &States, grammar: &Compiled, state: StateId, token: Token) -> bool {
    let items = states
        .edges(state)
        .iter()
        .filter_map(|edge| grammar.first(edge.sequence));
    items.into_iter().any(|first| takes(first.item, token))
}

/// Whether a token may end in a state, with a part of a character at its end or without.
fn may_stop(
    states: &mut States,
    grammar: &Compiled,
    state: StateId,
    end: Partial,
) -> Result<bool, TooMuch> {
    if state == NONE {
        return Ok(false);
    }
    match u8::try_from(end.missing) {
        Ok(0) => Ok(true),
        Ok(missing) => {
            states.spend(states.edges(state).len())?;
            let firsts = states
                .edges(state)
                .iter()
                .filter_map(|edge| grammar.first(edge.sequence));
            let mut classes = firsts.filter_map(|first| grammar.class(first.item));
            Ok(classes.any(|class| class.may_have(end.bits, missing)))
        }
        Err(_) => Ok(false),
    }
}

/// The tokens that `state` allows, when the text so far ends with `partial`.
pub fn mask(
    states: &mut States,
    grammar: &Compiled,
    state: StateId,
    partial: Partial,
) -> Result<Mask, TooMuch> {
    let tree = &*grammar.tree;
    let ending: &[Token] = match states.may_end(state) {
        true => tree.end_of_generation(),
        false => &[],
    };
    let mut mask = Mask::only(tree.n_tokens(), ending);
    if state == NONE {
        return Ok(mask);
    }
    let mut one_by_one = tree.continues();
    if !partial.is_pending() {
        let mut walk = TreeWalk {
            states,
            grammar,
            tree,
            ranks: Ranks(vec![0; tree.ranked().len().div_ceil(64)]),
        };
        walk.run(state)?;
        let ranks = walk.ranks;
        add_ranked(&mut mask, tree, &ranks);
        one_by_one = tree.odd();
    }
    let mut chars = Vec::new();
    for &token in one_by_one {
        if allows(states, grammar, state, partial, token, &mut chars)? {
            mask.words[token as usize / 64] |= 1 << (token % 64);
        }
    }
    Ok(mask)
}

/// Sets the bits of tokens by their ranks; where most are set, it begins with all and takes the
/// others out.
fn add_ranked(mask: &mut Mask, tree: &VocabularyTree, ranks: &Ranks) {
    let ranked = tree.ranked();
    let count: usize = ranks.0.iter().map(|word| word.count_ones() as usize).sum();
    let most = count > ranked.len() / 2;
    if most {
        for (word, all) in mask.words.iter_mut().zip(tree.in_tree()) {
            *word |= all;
        }
    }
    for (tokens, &word) in ranked.chunks(64).zip(&ranks.0) {
        let mut bits = if most { !word } else { word };
        if tokens.len() < 64 {
            bits &= (1 << tokens.len()) - 1;
        }
        while bits != 0 {
            let token = tokens[bits.trailing_zeros() as usize] as usize;
            mask.words[token / 64] ^= 1 << (token % 64);
            bits &= bits - 1;
        }
    }
}

struct TreeWalk<'a> {
    states: &'a mut States,
    grammar: &'a Compiled,
    tree: &'a VocabularyTree,
    ranks: Ranks,
}

/// A node on the way to the current one.
struct Above {
    /// The first node that is not below it.
    end: usize,
    state: StateId,
    cover: u128,
    /// How many characters lead to it.
    depth: usize,
}

impl TreeWalk<'_> {
    fn run(&mut self, state: StateId) -> Result<(), TooMuch> {
        let tree = self.tree;
        let n_nodes = tree.n_nodes();
        if self.whole(0, state)? {
            return Ok(());
        }
        let mut path = vec![self.enter(0, state, 0)?];
        let mut node = 1;
        while node < n_nodes {
            let Some(above) = path.last() else {
                break;
            };
            if node >= above.end {
                path.pop();
                continue;
            }
            let end = tree.end(node);
            let code_point = match tree.step(node) {
                Step::Complete(code_point) => code_point,
                Step::Within(partial) => {
                    if above.cover & 1 == 0 {
                        node = end;
                        continue;
                    }
                    let (state, cover, depth) = (above.state, above.cover, above.depth);
                    let (from, to) = (tree.first_rank(node), tree.first_rank(node + 1));
                    if from < to && may_stop(self.states, self.grammar, state, partial)? {
                        self.ranks.insert(from, to);
                    }
                    path.push(Above {
                        end,
                        state,
                        cover,
                        depth,
                    });
                    node += 1;
                    continue;
                }
            };
            if above.cover & char_bit(code_point) == 0 {
                node = end;
                continue;
            }
            let (from, depth) = (above.state, above.depth + 1);
            let next = self
                .states
                .step(self.grammar, from, self.grammar.group(code_point))?;
            if next == NONE {
                node = end;
                continue;
            }
            if end == node + 1 {
                self.ranks
                    .insert(tree.first_rank(node), tree.first_rank(end));
            } else if self.whole(node, next)? {
                node = end;
                continue;
            } else {
                self.ranks
                    .insert(tree.first_rank(node), tree.first_rank(node + 1));
                let above = self.enter(node, next, depth)?;
                path.push(above);
            }
            node += 1;
        }
        Ok(())
    }

    /// Takes all tokens at `node` and below where that can be told at once.
    fn whole(&mut self, node: usize, state: StateId) -> Result<bool, TooMuch> {
        /// For fewer nodes the steps themselves are as quick.
        const FEWEST: usize = 24;
        let tree = self.tree;
        let end = tree.end(node);
        if end - node < FEWEST {
            return Ok(false);
        }
        let cover = self.states.cover(self.grammar, state);
        if tree.below(node) & !cover != 0 {
            return Ok(false);
        }
        let height = tree.height(node);
        let taken = self
            .states
            .takes_all(self.grammar, state, tree.below(node), height)?;
        if taken {
            self.ranks
                .insert(tree.first_rank(node), tree.first_rank(end));
        }
        Ok(taken)
    }

    fn enter(&mut self, node: usize, state: StateId, depth: usize) -> Result<Above, TooMuch> {
        if self.states.has_tokens(self.grammar, state) {
            self.token_elements(node, state, depth)?;
        }
        Ok(Above {
            end: self.tree.end(node),
            state,
            cover: self.states.cover(self.grammar, state),
            depth,
        })
    }

    /// Takes the tokens below `node`, with a character more than leads there, that a token element
    /// takes.
    fn token_elements(&mut self, node: usize, state: StateId, depth: usize) -> Result<(), TooMuch> {
        let tree = self.tree;
        self.states.spend(self.states.edges(state).len())?;
        for i in 0..self.states.edges(state).len() {
            let edge = self.states.edges(state)[i];
            match self.grammar.first(edge.sequence).map(|first| first.item) {
                Some(Element::Token(token)) => {
                    let (from, to) = (tree.first_rank(node + 1), tree.first_rank(tree.end(node)));
                    if let Some(rank) = tree.rank_of(token)
                        && (from..to).contains(&rank)
                        && tree.n_chars(token) > depth
                    {
                        self.ranks.insert(rank, rank + 1);
                    }
                }
                Some(Element::TokenNot(token)) => self.all_below_but(node, tree.rank_of(token))?,
                _ => {}
            }
        }
        Ok(())
    }

    fn all_below_but(&mut self, node: usize, rank: Option<usize>) -> Result<(), TooMuch> {
        let tree = self.tree;
        let end = tree.end(node);
        let mut below = node + 1;
        while below < end {
            self.states.spend(1)?;
            if matches!(tree.step(below), Step::Within(_)) {
                below += 1;
                continue;
            }
            let (from, to) = (tree.first_rank(below), tree.first_rank(tree.end(below)));
            let gap = rank.filter(|rank| (from..to).contains(rank)).unwrap_or(to);
            self.ranks.insert(from, gap);
            self.ranks.insert(gap + 1, to);
            below = tree.end(below);
        }
        Ok(())
    }
}
