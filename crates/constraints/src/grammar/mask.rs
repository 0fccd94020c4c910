//! Computes masks, which have a bit per token, set if a state allows the token. A walk through the
//! trees of the vocabulary finds the allowed tokens.

// In bounds: ranks and tokens belong to the tree that the words were made for.

use std::ops::Range;

use crate::grammar::compiled::Compiled;
use crate::grammar::elements::Element;
use crate::grammar::nodes::{CharSet, Node, Nodes, ROOT, Step};
use crate::grammar::states::{NONE, StateId, States, TooMuch, takes};
use crate::grammar::utf8::Partial;
use crate::grammar::vocabulary_tree::{Band, Kind, VocabularyTree};
use crate::kernels::bitmap::{count_bits, has, mask_tokens};
use crate::token::{Token, TokenData};

/// The allowed tokens, as one bit per token.
#[derive(Debug, PartialEq, Eq)]
pub struct Mask {
    words: Box<[u64]>,
    count: usize,
}

impl Mask {
    fn of(words: Vec<u64>) -> Self {
        Self {
            count: count_bits(&words),
            words: words.into_boxed_slice(),
        }
    }

    /// True if a token is allowed; false if there is no such token.
    #[inline]
    pub fn allows(&self, token: Token) -> bool {
        has(&self.words, token)
    }

    /// Returns the words of the mask. The lowest bit of the first word is for token 0.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Copies the bits to 32-bit words, as many as fit. Bits after the last token are 0.
    pub fn copy_to(&self, words: &mut [u32]) {
        let (pairs, odd) = words.as_chunks_mut();
        for (pair, &word) in pairs.iter_mut().zip(&self.words) {
            *pair = [word as u32, (word >> 32) as u32];
        }
        let written = pairs.len().min(self.words.len());
        pairs[written..].fill([0; 2]);
        if let [last] = odd {
            *last = self.words.get(written).map_or(0, |&word| word as u32);
        }
    }

    /// Returns the size of the mask in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of::<Self>()
    }

    /// Returns the number of allowed tokens.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the mask that allows every token.
    pub fn all(n_tokens: usize) -> Self {
        let mut words = vec![u64::MAX; n_tokens.div_ceil(64)];
        if let (Some(last), rest @ 1..) = (words.last_mut(), n_tokens % 64) {
            *last = (1 << rest) - 1;
        }
        Self::of(words)
    }

    /// Sets the logit of each candidate that is not allowed to minus infinity.
    pub fn apply(&self, candidates: &mut [TokenData]) {
        mask_tokens(candidates, &self.words);
    }

    /// Returns the mask that allows only `tokens`.
    pub fn only(n_tokens: usize, tokens: &[Token]) -> Self {
        Self::of(words_of(n_tokens, tokens))
    }
}

fn words_of(n_tokens: usize, tokens: &[Token]) -> Vec<u64> {
    let mut words = vec![0; n_tokens.div_ceil(64)];
    tokens.iter().for_each(|&token| set(&mut words, token));
    words
}

fn set(words: &mut [u64], token: Token) {
    words[token as usize / 64] |= 1 << (token % 64);
}

/// The allowed tokens of a band, as one bit per rank.
#[derive(Debug, PartialEq, Eq)]
pub struct Ranks(Vec<u64>);

impl Ranks {
    /// Returns the size of the bits in bytes.
    pub fn bytes(&self) -> usize {
        8 * self.0.capacity()
    }

    #[inline]
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

/// True if `token` is allowed in `state` when the text so far ends with `partial`.
///
/// If a token element may come next, before or within the text of the token, and matches the
/// token's id, the token is allowed, whatever the rest of its text. A text is read up to its first
/// NUL.
pub fn allows(
    states: &mut States,
    grammar: &Compiled,
    state: StateId,
    partial: Partial,
    token: Token,
    chars: &mut Vec<u32>,
) -> Result<bool, TooMuch> {
    if grammar.rules.is_by_number(token) {
        states.spend(states.edges(state).len())?;
        return Ok(takes_by_number(states, grammar, state, partial, token));
    }
    match grammar.tree.kind(token) {
        None | Some(Kind::Blank) => return Ok(false),
        Some(Kind::EndOfGeneration) => return Ok(states.may_end(state)),
        Some(_) => {}
    }
    let end = grammar.decode(grammar.tree.text(token), partial, chars);
    let mut state = state;
    for &code_point in chars.iter().take_while(|&&code_point| code_point != 0) {
        if states.has_tokens(grammar, state)? {
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

/// True if a token that is matched only by its id is allowed in `state` when the text so far ends
/// with `partial`.
pub fn takes_by_number(
    states: &States,
    grammar: &Compiled,
    state: StateId,
    partial: Partial,
    token: Token,
) -> bool {
    !partial.is_pending() && any_takes(states, grammar, state, token)
}

fn any_takes(states: &States, grammar: &Compiled, state: StateId, token: Token) -> bool {
    let items = states
        .edges(state)
        .iter()
        .filter_map(|edge| grammar.first(edge.sequence));
    items.into_iter().any(|first| takes(first.item, token))
}

/// True if a token may end in a state, perhaps within a character.
pub fn may_stop(
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

/// Returns the tokens of a band that `state` allows. The text so far must not end within a
/// character.
pub fn of_band(
    states: &mut States,
    grammar: &Compiled,
    state: StateId,
    band: usize,
) -> Result<Ranks, TooMuch> {
    states.begin_walk();
    let Band { ranked, trees, .. } = &grammar.tree.bands()[band];
    let mut ranks = Ranks(vec![0; ranked.len().div_ceil(64)]);
    if state == NONE {
        return Ok(ranks);
    }
    for nodes in trees {
        let mut walk = TreeWalk {
            states,
            grammar,
            band,
            nodes,
            ranks,
        };
        walk.run(state)?;
        ranks = walk.ranks;
    }
    Ok(ranks)
}

/// Builds a mask.
pub struct MaskWriter<'a> {
    tree: &'a VocabularyTree,
    words: Vec<u64>,
}

impl<'a> MaskWriter<'a> {
    /// Returns a writer whose mask does not allow any tokens yet, except those that end the
    /// generation if `may_end` is set.
    pub fn new(tree: &'a VocabularyTree, may_end: bool) -> Self {
        let ending: &[Token] = match may_end {
            true => tree.end_of_generation(),
            false => &[],
        };
        let words = words_of(tree.n_tokens(), ending);
        Self { tree, words }
    }

    /// Adds the allowed tokens of a band.
    pub fn add_band(&mut self, band: usize, ranks: &Ranks) {
        add_ranked(&mut self.words, &self.tree.bands()[band], ranks);
    }

    /// Adds the allowed tokens that are in no band. If the text so far ends within a character,
    /// these are the tokens that begin within a character.
    pub fn add_others(
        &mut self,
        states: &mut States,
        grammar: &Compiled,
        state: StateId,
        partial: Partial,
    ) -> Result<(), TooMuch> {
        if state == NONE {
            return Ok(());
        }
        let tokens = match partial.is_pending() {
            true => self.tree.continues(),
            false => self.tree.odd(),
        };
        states.begin_walk();
        let mut chars = Vec::new();
        for &token in tokens {
            if allows(states, grammar, state, partial, token, &mut chars)? {
                set(&mut self.words, token);
            }
        }
        Ok(())
    }

    /// Adds or removes a token.
    pub fn put(&mut self, token: Token, is_allowed: bool) {
        let (word, bit) = (token as usize / 64, 1 << (token % 64));
        self.words[word] &= !bit;
        self.words[word] |= if is_allowed { bit } else { 0 };
    }

    /// Returns the mask.
    pub fn done(self) -> Mask {
        Mask::of(self.words)
    }
}

/// Sets the bits of tokens that are given by rank. If most of a tree's tokens are allowed, the bits
/// of all its tokens are set first, and those of the tokens that are not allowed are then cleared.
fn add_ranked(words: &mut [u64], band: &Band, ranks: &Ranks) {
    for (nodes, has) in band.trees.iter().zip(&band.has) {
        let Range { start, end } = nodes.ranks();
        let held_by = start / 64..end.div_ceil(64);
        let of_tree = &ranks.0[held_by.clone()];
        // An estimate: the first and last words may include a few ranks outside the tree.
        let most = count_bits(of_tree) > (end - start) / 2;
        if most {
            for (word, all) in words.iter_mut().zip(has) {
                *word |= all;
            }
        }
        let flipped = if most { u64::MAX } else { 0 };
        let mut first_rank = 64 * held_by.start;
        for some in of_tree.chunks(8) {
            // In most chunks all bits are equal.
            if some.iter().fold(0, |any, set| any | (set ^ flipped)) == 0 {
                first_rank += 64 * some.len();
                continue;
            }
            for &set in some {
                let mut bits = set ^ flipped;
                bits &= u64::MAX << start.saturating_sub(first_rank);
                bits &= u64::MAX >> (first_rank + 64).saturating_sub(end);
                while bits != 0 {
                    let rank = first_rank + bits.trailing_zeros() as usize;
                    let token = band.ranked[rank] as usize;
                    words[token / 64] ^= 1 << (token % 64);
                    bits &= bits - 1;
                }
                first_rank += 64;
            }
        }
    }
}

/// The number of nodes on a path for which memory is reserved.
const USUAL_DEPTH: usize = 16;

struct TreeWalk<'a> {
    states: &'a mut States,
    grammar: &'a Compiled,
    band: usize,
    nodes: &'a Nodes,
    ranks: Ranks,
}

/// A node on the path to the current node.
#[derive(Clone)]
struct Above {
    /// The children of the node that are still to be visited.
    children: Range<usize>,
    /// The first rank after those at the node and below it.
    end: usize,
    state: StateId,
    /// The start of the state's transitions.
    row: usize,
    cover: CharSet,
    /// The number of characters on the path to the node.
    depth: usize,
}

impl TreeWalk<'_> {
    fn run(&mut self, state: StateId) -> Result<(), TooMuch> {
        let (nodes, end) = (self.nodes, self.nodes.end());
        if self.whole(ROOT, end, state)? || self.by_length(state)? {
            return Ok(());
        }
        let mut path = Vec::with_capacity(USUAL_DEPTH);
        self.enter(&mut path, nodes.at(ROOT), end, (state, 0))?;
        while let Some(above) = path.last_mut() {
            let Some(child) = nodes.next_in(above.children.clone(), above.cover) else {
                path.pop();
                continue;
            };
            let end = nodes.end_of(child, &above.children, above.end);
            above.children.start = child + 1;
            match nodes.at(child).step() {
                Step::Complete(code_point) => {
                    let group = self.grammar.group(code_point);
                    let next = match self.states.known_step(above.row, group) {
                        Some(next) => next,
                        None => self.states.step(self.grammar, above.state, group)?,
                    };
                    let depth = above.depth + 1;
                    self.character(&mut path, child, end, (next, depth))?;
                }
                // The texts below continue with characters that are not ASCII. If the state accepts
                // all of these, it also accepts part of one.
                Step::Within(_)
                    if !nodes.at(child).children().is_empty()
                        && self.whole(child, end, above.state)? => {}
                Step::Within(partial) => {
                    let above = Above {
                        children: nodes.at(child).children(),
                        end,
                        ..above.clone()
                    };
                    self.part_of_character(nodes.at(child), end, above.state, partial)?;
                    path.push(above);
                }
            }
        }
        Ok(())
    }

    /// If the length of a token alone determines whether it is allowed, allows the tokens that are
    /// short enough and returns true. Otherwise returns false. A string with a maximum length has a
    /// state for every number of remaining characters.
    fn by_length(&mut self, state: StateId) -> Result<bool, TooMuch> {
        let (nodes, ranks) = (self.nodes, self.nodes.ranks());
        let texts = nodes.summary(ROOT);
        let longest = self.states.longest_taken(self.grammar, state, texts)?;
        // The exact length of longer tokens is not known.
        let longest = longest.and_then(|longest| u8::try_from(longest).ok());
        let Some(longest) = longest.filter(|&longest| longest < u8::MAX) else {
            return Ok(false);
        };
        self.states.spend(ranks.len() / 64)?;
        let n_chars = &self.grammar.tree.bands()[self.band].n_chars;
        for word in ranks.start / 64..ranks.end.div_ceil(64) {
            let (first, end) = (ranks.start.max(64 * word), ranks.end.min(64 * word + 64));
            let of_word = n_chars[first..end].iter().rev();
            let short = of_word.fold(0, |bits, &n| bits << 1 | u64::from(n <= longest));
            self.ranks.0[word] |= short << (first % 64);
        }
        Ok(true)
    }

    /// Allows the tokens that end at `node`, whose character leads to `state`. Adds the node to the
    /// path if the nodes below it must be visited.
    #[inline]
    fn character(
        &mut self,
        path: &mut Vec<Above>,
        node: usize,
        end: usize,
        (state, depth): (StateId, usize),
    ) -> Result<(), TooMuch> {
        if state == NONE {
            return Ok(());
        }
        let at = self.nodes.at(node);
        if at.children().is_empty() {
            self.ranks.insert(at.first_rank(), end);
            return Ok(());
        }
        if self.whole(node, end, state)? {
            return Ok(());
        }
        let (node, state, depth) = self.down_a_chain(node, state, depth)?;
        let at = self.nodes.at(node);
        self.ranks
            .insert(at.first_rank(), self.nodes.end_of_own(at, end));
        self.enter(path, at, end, (state, depth))
    }

    /// Allows the tokens along a chain of nodes with one repeated character, as far as the states
    /// permit. Returns the last allowed node, its state and its depth. Vocabularies have runs of a
    /// hundred spaces or dashes.
    #[inline]
    fn down_a_chain(
        &mut self,
        node: usize,
        state: StateId,
        depth: usize,
    ) -> Result<(usize, StateId, usize), TooMuch> {
        /// The minimum number of steps for which one look-up is faster than single steps.
        const LONG: usize = 8;
        let (kind, most) = self.nodes.chain(node);
        if most < LONG {
            return Ok((node, state, depth));
        }
        let (n, state) = self.states.run(self.grammar, state, kind, most)?;
        let Some(last) = n.checked_sub(1) else {
            return Ok((node, state, depth));
        };
        let at = self.nodes.at(node);
        let last = at.children().start + last;
        self.ranks
            .insert(at.first_rank(), self.nodes.at(last).first_rank());
        Ok((last, state, depth + n))
    }

    /// Allows the tokens that end at `node`, which is within a character, if a token may end there.
    fn part_of_character(
        &mut self,
        node: &Node,
        end: usize,
        state: StateId,
        partial: Partial,
    ) -> Result<(), TooMuch> {
        let own = node.first_rank()..self.nodes.end_of_own(node, end);
        if !own.is_empty() && may_stop(self.states, self.grammar, state, partial)? {
            self.ranks.insert(own.start, own.end);
        }
        Ok(())
    }

    /// Decides whether all tokens at `node` and below it, up to the rank `end`, are allowed, or
    /// none of them. Returns false, and allows none, if the nodes must be visited to find out.
    #[inline]
    fn whole(&mut self, node: usize, end: usize, state: StateId) -> Result<bool, TooMuch> {
        /// The minimum number of tokens for which new facts are computed.
        const MANY: usize = 16;
        let first_rank = self.nodes.at(node).first_rank();
        let texts = self.nodes.summary(node);
        let finds_out = end - first_rank >= MANY;
        let taken = self
            .states
            .takes_all(self.grammar, state, texts, finds_out)?;
        if taken {
            self.ranks.insert(first_rank, end);
            return Ok(true);
        }
        match self.nodes.before_controls(node) {
            Some(texts) => self
                .states
                .leads_to_no_control(self.grammar, state, texts, finds_out),
            None => Ok(false),
        }
    }

    /// Adds a node to the path.
    fn enter(
        &mut self,
        path: &mut Vec<Above>,
        node: &Node,
        end: usize,
        (state, depth): (StateId, usize),
    ) -> Result<(), TooMuch> {
        if self.states.has_tokens(self.grammar, state)? {
            self.token_elements(node, end, state, depth)?;
        }
        path.push(Above {
            children: node.children(),
            end,
            state,
            row: self.states.row(self.grammar, state)?,
            cover: self.states.cover(self.grammar, state)?,
            depth,
        });
        Ok(())
    }

    /// Allows the tokens that a token element matches, of those below `node` with at least one more
    /// complete character.
    fn token_elements(
        &mut self,
        node: &Node,
        end: usize,
        state: StateId,
        depth: usize,
    ) -> Result<(), TooMuch> {
        let tree = &*self.grammar.tree;
        let below = self.nodes.end_of_own(node, end)..end;
        self.states.spend(self.states.edges(state).len())?;
        for i in 0..self.states.edges(state).len() {
            let edge = self.states.edges(state)[i];
            match self.grammar.first(edge.sequence).map(|first| first.item) {
                Some(Element::Token(token)) => {
                    if let Some(rank) = tree.rank_in(self.band, token)
                        && below.contains(&rank)
                        && tree.n_chars(token) > depth
                    {
                        self.ranks.insert(rank, rank + 1);
                    }
                }
                Some(Element::TokenNot(token)) => {
                    self.all_below_but(node, end, tree.rank_in(self.band, token))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Allows the tokens below `node` with at least one more complete character, except the token
    /// with the rank `rank`.
    fn all_below_but(
        &mut self,
        node: &Node,
        end: usize,
        rank: Option<usize>,
    ) -> Result<(), TooMuch> {
        let mut pending = vec![(node.children(), end)];
        while let Some((children, end)) = pending.pop() {
            self.states.spend(children.len())?;
            for child in children.clone() {
                let node = self.nodes.at(child);
                let (from, to) = (node.first_rank(), self.nodes.end_of(child, &children, end));
                if matches!(node.step(), Step::Within(_)) {
                    pending.push((node.children(), to));
                    continue;
                }
                let gap = rank.filter(|rank| (from..to).contains(rank)).unwrap_or(to);
                self.ranks.insert(from, gap);
                self.ranks.insert(gap + 1, to);
            }
        }
        Ok(())
    }
}
