//! Turns a description of tags into rules: free text, in which tags open constrained spans.
//!
//! The description is JSON, with the keys that `docs/grammar.md` lists. Free text is described by
//! the Aho-Corasick automaton of all begin tags. Each of its states becomes a rule:
//!
//! ```text
//! free(state):    a character that begins or continues a tag           free(the next state)
//!                 the last character of a tag                          its span, then free(start)
//!                 any other character                                  free(start)
//!                 a begin tag that is one token                        its span, then free(start)
//!                 nothing, where the text may end
//! ```
//!
//! If only one span is allowed, the text ends after it. A begin tag is never part of free text,
//! whichever tokens spell it. A tag that is given as a token is matched by the token's id, and that
//! token is never read as characters.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::grammar::builder::{Builder, TooLarge};
use crate::grammar::elements::{Element, Rules};
use crate::grammar::limits::{
    MAX_ELEMENTS, MAX_PATTERN_CLASSES, MAX_RULES, MAX_TAG_TEXT, MAX_TAG_TEXTS, MAX_TAGS, MAX_TEXT,
};
use crate::grammar::parser::{Repetitions, token_texts, unlinked};
use crate::grammar::pattern::{self, Extent, Plain};
use crate::grammar::schema::work::Work;
use crate::grammar::schema::{self, Options};
use crate::grammar::vocabulary_tree::{Kind, VocabularyTree};
use crate::quoted::quoted;
use crate::token::Token;

/// A parsed description of tags.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with \"tags\"")]
pub struct Tags {
    /// The text of the description.
    #[serde(skip)]
    json: Box<[u8]>,
    tags: Vec<Tag>,
    /// True if at least one span is required.
    #[serde(default)]
    required: bool,
    /// True if the text ends after the first span.
    #[serde(default)]
    once: bool,
}

#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with \"begin\", \"end\" and a content"
)]
struct Tag {
    begin: Mark,
    end: Option<Mark>,
    regex: Option<String>,
    grammar: Option<String>,
    json_schema: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text, or {\"token\": its number or its text}")]
enum Mark {
    Text(String),
    Token(OneToken),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneToken {
    token: Name,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Name {
    Number(Token),
    Text(String),
}

impl Tag {
    fn marks(&self) -> impl Iterator<Item = &Mark> {
        std::iter::once(&self.begin).chain(&self.end)
    }

    /// Returns the length of the begin and end texts in bytes.
    fn text_bytes(&self) -> usize {
        let bytes = self.marks().map(|mark| match mark {
            Mark::Text(text) => text.len(),
            Mark::Token(_) => 0,
        });
        bytes.sum()
    }

    /// Returns the texts of the begin and end tokens.
    fn token_names(&self) -> impl Iterator<Item = &str> {
        self.marks().filter_map(|mark| match mark {
            Mark::Token(OneToken {
                token: Name::Text(text),
            }) => Some(text.as_str()),
            _ => None,
        })
    }
}

impl Tags {
    /// Reads a description.
    pub fn read(json: &[u8]) -> Result<Self, String> {
        if json.len() > MAX_TEXT {
            return Err(format!(
                "it has more than {MAX_TEXT} bytes (LLAMA_SIEVE_GRAMMAR_MAX_TEXT)"
            ));
        }
        let mut tags: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if tags.tags.is_empty() {
            return Err("\"tags\" is empty: there is nothing that could open a span".into());
        }
        if tags.tags.len() > MAX_TAGS {
            return Err(format!(
                "there are {} tags, more than {MAX_TAGS} (LLAMA_SIEVE_TAGS_MAX)",
                tags.tags.len()
            ));
        }
        let n_bytes: usize = tags.tags.iter().map(Tag::text_bytes).sum();
        if n_bytes > MAX_TAG_TEXTS {
            return Err(format!(
                "the begin and end tags have {n_bytes} bytes together, more than {MAX_TAG_TEXTS} \
                 (LLAMA_SIEVE_TAGS_MAX_TEXT)"
            ));
        }
        for (i, tag) in tags.tags.iter().enumerate() {
            for text in tag.token_names() {
                check(text).map_err(|what| format!("tag {i}: {what}"))?;
            }
        }
        tags.json = json.into();
        Ok(tags)
    }

    /// Returns the text of the description.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// Returns the texts of the tokens that [`rules`](Self::rules) looks up.
    pub fn token_texts(&self) -> Vec<Vec<u8>> {
        let mut texts = Vec::new();
        for tag in &self.tags {
            texts.extend(tag.token_names().map(|text| text.as_bytes().to_vec()));
            if let Some(grammar) = &tag.grammar {
                texts.extend(token_texts(grammar.as_bytes(), ROOT, Repetitions::Many));
            }
        }
        texts
    }

    /// Returns the rules for texts with these tags. `token` returns the token, special or not, that
    /// has the given text.
    pub fn rules(
        &self,
        tree: &VocabularyTree,
        token: &dyn Fn(&[u8]) -> Option<Token>,
    ) -> Result<Rules, String> {
        let mut making = Making {
            builder: Builder::default(),
            by_number: Vec::new(),
            work: Rc::default(),
            classes_left: MAX_PATTERN_CLASSES,
            tree,
            of_text: token,
        };
        // The rule for what comes after a span: more free text, or the end.
        let after = if self.once {
            None
        } else {
            Some(making.builder.declare().map_err(told)?)
        };
        let mut trie = Trie::default();
        let mut of_tokens = Vec::new();
        for (i, tag) in self.tags.iter().enumerate() {
            let of_tag = |what: String| format!("tag {i}: {what}");
            let mut span = making.content(tag).map_err(of_tag)?;
            if let Some(end) = &tag.end {
                span.extend(making.mark(end).map_err(of_tag)?);
            }
            span.extend(after.map(Element::Rule));
            // A rule, so that the span is one element however often it is used.
            let rule = making.builder.declare().map_err(told)?;
            making.builder.define(rule, span).map_err(told)?;
            let span = vec![Element::Rule(rule)];
            match &tag.begin {
                Mark::Text(text) => trie.add(text, i, span).map_err(of_tag)?,
                Mark::Token(token) => {
                    let token = making.token(token).map_err(of_tag)?;
                    of_tokens.push([vec![token], span].concat());
                }
            }
        }
        let automaton = trie.automaton(&self.tags)?;
        let whole = making
            .free(&automaton, &of_tokens, !self.required)
            .map_err(told)?;
        if let Some(after) = after {
            let free = match self.required {
                true => making.free(&automaton, &of_tokens, true).map_err(told)?,
                false => whole,
            };
            making
                .builder
                .define(after, vec![Element::Rule(free)])
                .map_err(told)?;
        }
        let mut rules = making
            .builder
            .rules(vec![Element::Rule(whole)])
            .map_err(told)?;
        making.by_number.sort_unstable();
        making.by_number.dedup();
        rules.by_number = making.by_number.into_boxed_slice();
        Ok(rules)
    }
}

/// The name of the start rule of a span's grammar.
const ROOT: &[u8] = b"root";

fn told(error: TooLarge) -> String {
    error.to_string()
}

struct Making<'a> {
    builder: Builder,
    by_number: Vec<Token>,
    /// The steps left for all schemas together, and the classes left for all patterns together.
    work: Rc<Work>,
    classes_left: usize,
    tree: &'a VocabularyTree,
    of_text: &'a dyn Fn(&[u8]) -> Option<Token>,
}

impl Making<'_> {
    fn content(&mut self, tag: &Tag) -> Result<Vec<Element>, String> {
        match (&tag.regex, &tag.grammar, &tag.json_schema) {
            (Some(pattern), None, None) => {
                let in_regex = |pattern::Refused(what)| format!("\"regex\": {what}");
                let hir = pattern::parse_within(pattern, &mut self.classes_left);
                let hir = hir.map_err(in_regex)?;
                pattern::elements(&mut self.builder, &mut Plain, &hir, Extent::Whole)
                    .map_err(in_regex)?
                    .ok_or_else(|| "\"regex\": there is no text that it matches".into())
            }
            (None, Some(grammar), None) => {
                let written = unlinked(grammar.as_bytes(), ROOT, Repetitions::Many, self.of_text);
                let written = written.map_err(|error| format!("\"grammar\": {error}"))?;
                let items = written.repeats.iter().map(|repeat| &*repeat.item);
                let is_not = |element: &Element| matches!(element, Element::TokenNot(_));
                if written.rules.iter().chain(items).flatten().any(is_not) {
                    // A mask would allow a token if `!<...>` comes next within the token's text,
                    // but such a token is then not accepted. llama.cpp's own grammars have this
                    // defect, too.
                    return Err(
                        "\"grammar\": !<...> is not supported in a tag: say what may \
                                come instead"
                            .into(),
                    );
                }
                self.builder.embed(written).map_err(told)
            }
            (None, None, Some(schema)) => {
                let (text, work) = (schema.get().as_bytes(), Rc::clone(&self.work));
                let written = schema::written_within(text, Options::default(), work);
                let (written, _) =
                    written.map_err(|refusal| format!("\"json_schema\": {refusal}"))?;
                self.builder.embed(written).map_err(told)
            }
            _ => Err(
                "it needs one of \"json_schema\", \"regex\" and \"grammar\" for its content".into(),
            ),
        }
    }

    fn mark(&mut self, mark: &Mark) -> Result<Vec<Element>, String> {
        match mark {
            Mark::Text(text) => {
                check(text)?;
                self.builder.text(text).map_err(told)
            }
            Mark::Token(token) => Ok(vec![self.token(token)?]),
        }
    }

    fn token(&mut self, OneToken { token }: &OneToken) -> Result<Element, String> {
        let token = match token {
            Name::Number(token) => *token,
            Name::Text(text) => (self.of_text)(text.as_bytes()).ok_or_else(|| {
                format!("\"{}\" is not one token of the vocabulary", quoted(text))
            })?,
        };
        if matches!(self.tree.kind(token), None | Some(Kind::EndOfGeneration)) {
            return Err(format!(
                "token {token} is none of the vocabulary's, or ends the generation: what ends it \
                 needs no \"end\""
            ));
        }
        self.by_number.push(token);
        Ok(Element::Token(token as u32))
    }

    /// Writes the rules of free text. Returns the number of the start rule.
    fn free(
        &mut self,
        automaton: &Automaton,
        of_tokens: &[Vec<Element>],
        may_end: bool,
    ) -> Result<u32, TooLarge> {
        let mut rules = Vec::new();
        for _ in &automaton.states {
            rules.push(self.builder.declare()?);
        }
        let rule_of = |state: usize| rules.get(state).map(|&rule| Element::Rule(rule));
        for (state, rule) in automaton.states.iter().zip(&rules) {
            let mut elements = Vec::new();
            let mut others = vec![(1, 0xD7FF), (0xE000, 0x10_FFFF)];
            for (&letter, next) in &state.next {
                take_out(&mut others, letter.into());
                let one = self.builder.class(vec![(letter.into(), letter.into())])?;
                match next {
                    Next::State(next) => {
                        elements.push(one);
                        elements.extend(rule_of(*next));
                        elements.push(Element::Alternative);
                    }
                    Next::Spans(spans) => {
                        for span in spans {
                            elements.push(one);
                            elements.extend(span);
                            elements.push(Element::Alternative);
                        }
                    }
                }
            }
            elements.push(self.builder.class(others)?);
            elements.extend(rule_of(0));
            for span in of_tokens {
                elements.push(Element::Alternative);
                elements.extend(span);
            }
            if may_end {
                elements.push(Element::Alternative);
            }
            self.builder.define(*rule, elements)?;
        }
        Ok(rules.first().copied().unwrap_or_default())
    }
}

/// Fails for a text that is too long or contains NUL.
fn check(text: &str) -> Result<(), String> {
    if text.len() > MAX_TAG_TEXT {
        return Err(format!(
            "\"{}\" has more than {MAX_TAG_TEXT} bytes (LLAMA_SIEVE_TAGS_MAX_BYTES)",
            quoted(text)
        ));
    }
    match text.contains('\0') {
        true => Err(format!("\"{}\" has NUL in it", quoted(text))),
        false => Ok(()),
    }
}

/// Removes a code point from ranges.
fn take_out(ranges: &mut Vec<(u32, u32)>, code_point: u32) {
    let at = ranges
        .iter()
        .position(|&(first, last)| (first..=last).contains(&code_point));
    let Some(at) = at else {
        return;
    };
    let (first, last) = ranges.remove(at);
    let parts = [(first, code_point.wrapping_sub(1)), (code_point + 1, last)];
    let parts = parts
        .into_iter()
        .filter(|(first, last)| first <= last && *last != u32::MAX);
    ranges.splice(at..at, parts);
}

/// The begin tags, as a trie of characters.
#[derive(Default)]
struct Trie {
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    next: BTreeMap<char, usize>,
    /// The first tag that ends at this node. `spans` has the spans of all tags that end there.
    tag: Option<usize>,
    spans: Vec<Vec<Element>>,
}

/// The states of free text. In the first state no tag has begun.
struct Automaton {
    states: Vec<State>,
}

/// The transitions of a state by the characters that continue or begin a tag. All other characters
/// lead to the first state.
struct State {
    next: BTreeMap<char, Next>,
}

#[derive(Clone)]
enum Next {
    State(usize),
    Spans(Vec<Vec<Element>>),
}

impl Trie {
    fn add(&mut self, text: &str, tag: usize, span: Vec<Element>) -> Result<(), String> {
        check(text)?;
        if text.is_empty() {
            return Err("\"begin\" is empty: it could open anywhere".into());
        }
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut at = 0;
        for letter in text.chars() {
            let n = self.nodes.len();
            let Some(node) = self.nodes.get_mut(at) else {
                break;
            };
            at = *node.next.entry(letter).or_insert(n);
            if at == n {
                if n > MAX_RULES / 4 {
                    return Err(TooLarge::Rules.to_string());
                }
                self.nodes.push(Node::default());
            }
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.tag.get_or_insert(tag);
            node.spans.push(span);
        }
        Ok(())
    }

    /// Returns the automaton. Fails if one begin tag contains another, which would be ambiguous.
    fn automaton(mut self, tags: &[Tag]) -> Result<Automaton, String> {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let n = self.nodes.len();
        // The failure link of each node: the node of the longest proper suffix of its text.
        let mut shorter = vec![0; n];
        let mut states: Vec<Option<State>> = (0..n).map(|_| None).collect();
        let mut number_of = vec![0; n];
        let mut n_states = 0;
        let mut n_next = 0;
        let mut queue = VecDeque::from([0]);
        let mut order = Vec::new();
        let mut all_next: Vec<BTreeMap<char, usize>> = vec![BTreeMap::new(); n];
        while let Some(at) = queue.pop_front() {
            let (Some(node), Some(&short)) = (self.nodes.get(at), shorter.get(at)) else {
                break;
            };
            let within = self.nodes.get(short).and_then(|node| node.tag);
            let nested = match node.tag {
                Some(tag) if !node.next.is_empty() => self.below(at).map(|outer| (tag, outer)),
                tag => within.map(|inner| (inner, tag.or_else(|| self.below(at)).unwrap_or(inner))),
            };
            if let Some((inner, outer)) = nested {
                return Err(format!(
                    "tag {outer}: its begin \"{}\" has that of tag {inner}, \"{}\", in it: no \
                     begin may stand within another",
                    begin_of(tags, outer),
                    begin_of(tags, inner)
                ));
            }
            let mut next = match at {
                0 => BTreeMap::new(),
                _ => all_next.get(short).cloned().unwrap_or_default(),
            };
            for (&letter, &child) in &node.next {
                let short = next.insert(letter, child).unwrap_or(0);
                if let Some(place) = shorter.get_mut(child) {
                    *place = short;
                }
                queue.push_back(child);
            }
            n_next += next.len();
            if n_next > MAX_ELEMENTS / 4 {
                return Err(TooLarge::Elements.to_string());
            }
            if node.tag.is_none() {
                if let Some(number) = number_of.get_mut(at) {
                    *number = n_states;
                }
                n_states += 1;
                order.push(at);
            }
            if let Some(place) = all_next.get_mut(at) {
                *place = next;
            }
        }
        let to = |child: usize| {
            let node = self.nodes.get(child).filter(|node| node.tag.is_some());
            match node {
                Some(node) => Next::Spans(node.spans.clone()),
                None => Next::State(number_of.get(child).copied().unwrap_or_default()),
            }
        };
        for &at in &order {
            if let (Some(place), Some(next)) = (states.get_mut(at), all_next.get(at)) {
                let next = next.iter().map(|(&letter, &child)| (letter, to(child)));
                *place = Some(State {
                    next: next.collect(),
                });
            }
        }
        let states = order.iter().filter_map(|&at| states.get_mut(at)?.take());
        Ok(Automaton {
            states: states.collect(),
        })
    }

    /// Returns a tag that ends at a node below `at`.
    fn below(&self, at: usize) -> Option<usize> {
        let mut at = *self.nodes.get(at)?.next.values().next()?;
        loop {
            let node = self.nodes.get(at)?;
            if let Some(tag) = node.tag {
                return Some(tag);
            }
            at = *node.next.values().next()?;
        }
    }
}

fn begin_of(tags: &[Tag], tag: usize) -> String {
    match tags.get(tag).map(|tag| &tag.begin) {
        Some(Mark::Text(text)) => quoted(text).to_string(),
        _ => String::new(),
    }
}
