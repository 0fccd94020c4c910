//! Turns sets of values into rules. Each expression gets one rule, which is declared at the first
//! reference to it, so that compiling a recursive schema terminates.

// In bounds: indices of members and elements are smaller than the number of these.

use std::rc::Rc;

use llama_sieve_kernels::random::{HashMap, HashSet};

use crate::grammar::elements::{ENDLESS, Element, Unordered, Written, left_recursive};
use crate::grammar::hash::Map;
use crate::grammar::limits::{MAX_SCHEMA_ELEMENTS, MAX_SCHEMA_SPACE};
use crate::grammar::schema::automaton::{Dfa, Shared};
use crate::grammar::schema::names::OtherNames;
use crate::grammar::schema::output::{Output, Sequence};
use crate::grammar::schema::productive::prune;
use crate::grammar::schema::reader::JsonId;
use crate::grammar::schema::refusal::{Answer, Refusal};
use crate::grammar::schema::shape::{
    ANY, Arrays, Compiler, ExprId, LangId, NEVER, Numbers, Objects, Rest, Scalar, Shape, Strings,
};

/// The maximum number of properties of an object whose properties may come in any order, if each
/// set of properties already present is a state.
const MOST_IN_ANY_ORDER: usize = 10;
/// The maximum number of different values of the elements of an array whose elements must be
/// unique.
const MOST_UNIQUE: usize = 10;
/// The maximum number of unnamed members that one object may require.
const MOST_WITNESSES: usize = 3;
/// The maximum number of states of the members of one object, or of the elements of one array.
const MOST_STATES: u64 = 1 << 16;

/// Writes a grammar.
pub struct Emitter {
    /// The schema.
    pub compiler: Compiler,
    /// True if the grammar must not have unordered lists.
    as_text: bool,
    output: Output,
    other_names: OtherNames,
    rules: Map<ExprId, u32>,
    to_do: Vec<(ExprId, u32)>,
    space: Sequence,
    /// The elements for unrestricted numbers, and for unrestricted integers.
    free_numbers: [Option<Sequence>; 2],
}

/// A named member of an object.
#[derive(Clone)]
struct Member {
    name: Rc<str>,
    value: ExprId,
    is_required: bool,
}

/// The members that an object may have.
struct Members {
    named: Vec<Member>,
    /// The elements of any other member, if one is allowed.
    other: Option<Sequence>,
    /// The elements of other members, by two sets of witnesses: those found before the member, and
    /// those that the member itself is. Once a witness has been found, a member with one of its
    /// names must have its value, since a text may repeat a name.
    others: HashMap<(u64, u64), Sequence>,
    /// The witnesses: required members that may have any of several names, given by these names and
    /// the value.
    witnesses: Vec<(Shared, ExprId)>,
    min: u64,
    max: Option<u64>,
}

/// The members of an object so far.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SoFar {
    /// The named members: the set of those present if they come in any order, or else the number of
    /// those already passed.
    used: u64,
    /// The numbers of named and of other members, counted only as far as they matter.
    n: (u64, u64),
    /// The witnesses found among the named members, and among the others.
    witnesses: (u64, u64),
}

/// The rest of an object after some of its members.
#[derive(Clone, Default)]
struct Behind {
    /// The next member, without a comma before it, and everything after it.
    more: Option<Sequence>,
    /// The rest after a member, from the comma on, if there are already elements for it.
    tail: Option<Sequence>,
    /// True if the object may end here.
    may_end: bool,
}

impl Behind {
    /// True if the object can be completed.
    fn is_possible(&self) -> bool {
        self.may_end || self.more.is_some()
    }
}

impl Emitter {
    /// Returns the rules of the schema, and the keywords that were left out.
    pub fn rules_of(compiler: Compiler, as_text: bool) -> Answer<(Written, Vec<Refusal>)> {
        let mut emitter = Self {
            compiler,
            as_text,
            output: Output::new(),
            other_names: OtherNames::default(),
            rules: Map::default(),
            to_do: Vec::new(),
            space: Vec::new(),
            free_numbers: Default::default(),
        };
        if !emitter.compiler.options.compact {
            let spaces = vec![(9, 10), (13, 13), (32, 32)];
            let space = emitter.output.class(&spaces)?;
            emitter.space =
                emitter
                    .output
                    .times(vec![space], 0, Some(u64::from(MAX_SCHEMA_SPACE)))?;
        }
        let root = emitter.compiler.document.root;
        let root = emitter.compiler.schema(root);
        let value = emitter.value(root)?;
        let whole = [&*emitter.space, &[value], &*emitter.space].concat();
        let Element::Rule(whole) = emitter.output.rule(vec![whole])? else {
            return Err(Refusal::whole("an internal error: a rule is none"));
        };
        while let Some((expr, rule)) = emitter.to_do.pop() {
            let shape = emitter.compiler.shape(expr)?;
            let at = emitter.compiler.place_of(expr);
            let alternatives = emitter.alternatives(&shape, at)?;
            emitter.output.define(rule, alternatives)?;
        }
        emitter.compiler.check_work()?;
        let mut written = std::mem::take(&mut emitter.output.written);
        written.classes = emitter.output.take_classes();
        written.root = whole;
        if !prune(&mut written) {
            return Err(Refusal::whole("no value satisfies it"));
        }
        debug_assert_eq!(
            left_recursive(&written),
            None,
            "every rule begins with a character"
        );
        Ok((written, emitter.compiler.left_out))
    }

    /// Returns a reference to the rule of an expression's values.
    fn value(&mut self, expr: ExprId) -> Answer<Element> {
        if let Some(&rule) = self.rules.get(&expr) {
            return Ok(Element::Rule(rule));
        }
        let rule = self.output.reserve();
        self.rules.insert(expr, rule);
        self.to_do.push((expr, rule));
        Ok(Element::Rule(rule))
    }

    fn alternatives(&mut self, shape: &Shape, at: JsonId) -> Answer<Vec<Sequence>> {
        let mut all = Vec::new();
        for (is_there, word) in [
            (shape.null, "null"),
            (shape.no, "false"),
            (shape.yes, "true"),
        ] {
            if is_there {
                all.push(self.output.raw(word)?);
            }
        }
        for numbers in &shape.numbers {
            all.extend(self.numbers(numbers, at)?);
        }
        for strings in &shape.strings {
            all.extend(self.strings(strings, at)?);
        }
        for arrays in &shape.arrays {
            all.extend(self.array(arrays, at)?);
        }
        for objects in &shape.objects {
            all.extend(self.object(objects, at)?);
        }
        Ok(all)
    }

    fn too_large(&self, at: JsonId, keyword: &str) -> Refusal {
        if let Err(refusal) = self.compiler.check_work() {
            return refusal;
        }
        self.compiler.refusal(
            at,
            keyword,
            "the automaton exceeds LLAMA_SIEVE_JSON_MAX_STATES; use a simpler pattern, smaller \
             numbers or wider bounds",
        )
    }

    fn numbers(&mut self, numbers: &Numbers, at: JsonId) -> Answer<Vec<Sequence>> {
        let is_free = |integer| {
            *numbers
                == Numbers {
                    integer,
                    ..Numbers::default()
                }
        };
        if is_free(Some(true)) || is_free(None) {
            let number = self.free_number(numbers.integer == Some(true))?;
            return Ok(vec![number]);
        }
        let made = match &numbers.only {
            Some(_) => self.compiler.texts_of_numbers(numbers).map(Err),
            None => self.compiler.automaton_of_numbers(numbers).map(Ok),
        };
        match made {
            Ok(Err(texts)) => texts.iter().map(|text| self.output.raw(text)).collect(),
            Ok(Ok(dfa)) if dfa.is_empty() => Ok(Vec::new()),
            Ok(Ok(dfa)) => {
                let mut number = vec![self.output.automaton(&dfa, false)?];
                if numbers.is_by_sign() {
                    number.push(self.exponent()?);
                }
                Ok(vec![number])
            }
            Err(_) => {
                let keyword = match numbers {
                    Numbers { multiples, .. } if !multiples.is_empty() => "multipleOf",
                    Numbers { min: Some(_), .. } => "minimum",
                    _ => "maximum",
                };
                let refusal = self.too_large(at, keyword);
                self.compiler.leave_out(refusal)?;
                Ok(vec![self.free_number(numbers.integer == Some(true))?])
            }
        }
    }

    fn free_number(&mut self, is_integer: bool) -> Answer<Sequence> {
        let number = usize::from(is_integer);
        if let Some(known) = &self.free_numbers[number] {
            return Ok(known.clone());
        }
        let made = self.new_free_number(is_integer)?;
        self.free_numbers[number] = Some(made.clone());
        Ok(made)
    }

    fn new_free_number(&mut self, is_integer: bool) -> Answer<Sequence> {
        let digit = self.output.class(&[(0x30, 0x39)])?;
        let digits = self.output.times(vec![digit], 0, None)?;
        let not_zero = self.output.class(&[(0x31, 0x39)])?;
        let zero = self.output.raw("0")?;
        let minus = self.output.raw("-")?;
        let sign = self.output.rule(vec![minus, Vec::new()])?;
        let long = [&[not_zero], &*digits].concat();
        let whole = self.output.rule(vec![zero, long])?;
        if is_integer {
            return Ok(vec![sign, whole]);
        }
        let some = [&[digit], &*digits].concat();
        let fraction = [&*self.output.raw(".")?, &*some].concat();
        let fraction = self.output.rule(vec![fraction, Vec::new()])?;
        let exponent = self.exponent()?;
        Ok(vec![sign, whole, fraction, exponent])
    }

    /// Returns the exponent of a number, or nothing.
    fn exponent(&mut self) -> Answer<Element> {
        let signs = self.output.class(&[(0x2B, 0x2B), (0x2D, 0x2D)])?;
        let signs = self.output.rule(vec![vec![signs], Vec::new()])?;
        let e = self.output.class(&[(0x45, 0x45), (0x65, 0x65)])?;
        let digit = self.output.class(&[(0x30, 0x39)])?;
        // An exponent of more digits may be larger than most programs can read.
        let few = self.output.times(vec![digit], 1, Some(2))?;
        let exponent = [&[e, signs], &*few].concat();
        self.output.rule(vec![exponent, Vec::new()])
    }

    fn strings(&mut self, strings: &Strings, at: JsonId) -> Answer<Vec<Sequence>> {
        if let Some(texts) = &strings.only {
            let mut all = Vec::new();
            let mut seen = HashSet::default();
            for text in texts {
                let n = text.chars().count() as u64;
                let is_in = |&(lang, is_in): &(LangId, bool)| match is_in {
                    true => self.compiler.lang_of(lang).accepts(text),
                    false => !self.compiler.outer_lang_of(lang).accepts(text),
                };
                if n >= strings.min
                    && strings.max.is_none_or(|max| n <= max)
                    && strings.langs.iter().all(is_in)
                    && !strings.except.contains(text)
                    && seen.insert(text)
                {
                    let content = self.output.content(text)?;
                    all.push(self.output.quoted(content)?);
                }
            }
            return Ok(all);
        }
        let content = match self.content(strings) {
            Ok(content) => content?,
            Err(()) => {
                let keyword = match strings.max {
                    Some(_) => "maxLength",
                    None => "pattern",
                };
                let refusal = self.too_large(at, keyword);
                self.compiler.leave_out(refusal)?;
                self.output.any_content(strings.min, strings.max)?
            }
        };
        Ok(vec![self.output.quoted(content)?])
    }

    /// Returns the elements for the content of strings. Fails if the automaton is too large.
    fn content(&mut self, strings: &Strings) -> Result<Answer<Sequence>, ()> {
        if strings.langs.is_empty() && strings.except.is_empty() {
            return Ok(self.output.any_content(strings.min, strings.max));
        }
        let free = Strings {
            min: 0,
            max: None,
            ..strings.clone()
        };
        let dfa = self.compiler.automaton_of_strings(&free).map_err(|_| ())?;
        // Strings of one set of characters are counted, not written out.
        let only = dfa
            .states
            .first()
            .filter(|state| state.accepts && dfa.states.len() == 1 && !state.edges.is_empty());
        let more = dfa.states.get(1).filter(|state| {
            dfa.states.len() == 2
                && state.accepts
                && dfa
                    .states
                    .first()
                    .is_some_and(|first| !first.accepts && first.edges == state.edges)
                && state.edges.iter().all(|edge| edge.2 == 1)
        });
        if let Some(state) = only.or(more) {
            let spans = state.edges.iter().map(|&(a, b, _)| (a, b)).collect();
            let fewest = u64::from(only.is_none());
            let character = match self.output.character(spans) {
                Ok(character) => character,
                Err(refusal) => return Ok(Err(refusal)),
            };
            return Ok(self
                .output
                .times(vec![character], strings.min.max(fewest), strings.max));
        }
        let dfa = self
            .compiler
            .automaton_of_strings(strings)
            .map_err(|_| ())?;
        if dfa.is_empty() {
            return Ok(self.output.nothing().map(|nothing| vec![nothing]));
        }
        Ok(self
            .output
            .automaton(&dfa, true)
            .map(|content| vec![content]))
    }

    /// Returns `value` with white space after it.
    fn spaced(&mut self, value: ExprId) -> Answer<Sequence> {
        let value = self.value(value)?;
        Ok([&[value], &*self.space].concat())
    }

    /// Returns a comma with white space after it.
    fn comma(&mut self) -> Answer<Sequence> {
        let comma = self.output.one(',')?;
        Ok([&[comma], &*self.space].concat())
    }

    fn enclosed(&mut self, brackets: [char; 2], content: Sequence) -> Answer<Sequence> {
        let (open, close) = (self.output.one(brackets[0])?, self.output.one(brackets[1])?);
        Ok([&[open], &*self.space, &*content, &[close]].concat())
    }

    fn array(&mut self, arrays: &Arrays, at: JsonId) -> Answer<Vec<Sequence>> {
        if arrays.max.is_some_and(|max| max < arrays.min) {
            return Ok(Vec::new());
        }
        let is_unique = arrays.unique.is_some() && arrays.max.is_none_or(|max| max > 1);
        let content = if is_unique {
            match self.unique(arrays)? {
                Some(content) => content,
                None => {
                    let refusal = self.compiler.refusal(
                        arrays.unique.unwrap_or(at),
                        "uniqueItems",
                        format!(
                            "only where the items are of at most {MOST_UNIQUE} values of \"enum\", \
                             and no \"contains\" stands beside it"
                        ),
                    );
                    self.compiler.leave_out(refusal)?;
                    let arrays = Arrays {
                        unique: None,
                        ..arrays.clone()
                    };
                    return self.array(&arrays, at);
                }
            }
        } else if arrays.contains.is_empty() {
            self.elements(arrays)?
        } else {
            match self.containing(arrays)? {
                Some(content) => content,
                None => {
                    let refusal = self.compiler.refusal(
                        at,
                        "contains",
                        format!("the numbers of items multiply to more than {MOST_STATES}"),
                    );
                    self.compiler.leave_out(refusal)?;
                    let arrays = Arrays {
                        contains: Vec::new(),
                        ..arrays.clone()
                    };
                    return self.array(&arrays, at);
                }
            }
        };
        Ok(vec![self.enclosed(['[', ']'], content)?])
    }

    fn elements(&mut self, arrays: &Arrays) -> Answer<Sequence> {
        let n_first = arrays.prefix.len();
        let most = match arrays.rest {
            NEVER => Some(arrays.max.unwrap_or(u64::MAX).min(n_first as u64)),
            _ => arrays.max,
        };
        let n = match most {
            Some(most) => n_first.min(usize::try_from(most).unwrap_or(usize::MAX)),
            None => n_first,
        };
        // The bounds on the number of elements after those of `prefix`.
        let (min, max) = (
            arrays.min.saturating_sub(n as u64),
            most.map(|most| most.saturating_sub(n as u64)),
        );
        let comma = self.comma()?;
        let mut behind = if max == Some(0) {
            match min {
                0 => Vec::new(),
                _ => vec![self.output.nothing()?],
            }
        } else {
            let element = self.spaced(arrays.rest)?;
            let next = [&*comma, &*element].concat();
            match n {
                0 => {
                    let least = min.max(1) - 1;
                    let more = self.output.times(next, least, max.map(|max| max - 1))?;
                    let some = [element, more].concat();
                    match min {
                        0 => vec![self.output.rule(vec![some, Vec::new()])?],
                        _ => some,
                    }
                }
                _ => self.output.times(next, min, max)?,
            }
        };
        for i in (0..n).rev() {
            let element = self.spaced(arrays.prefix[i])?;
            let comma: &[Element] = if i == 0 { &[] } else { &comma };
            let some = [comma, &element, &behind].concat();
            let alternatives = match i as u64 >= arrays.min {
                true => vec![some, Vec::new()],
                false => vec![some],
            };
            behind = vec![self.output.rule(alternatives)?];
        }
        Ok(behind)
    }

    /// Returns the grammar's elements for the content of an array that must contain given numbers
    /// of elements of some kinds; `None` if that needs too many states, or there are more than four
    /// kinds.
    fn containing(&mut self, arrays: &Arrays) -> Answer<Option<Sequence>> {
        let first = arrays.prefix.len() as u64;
        // At least one, since the first element differs from the others: it has no comma before it.
        let last = arrays.max.unwrap_or(0).max(arrays.min).max(first).max(1);
        let counted: Vec<u64> = arrays
            .contains
            .iter()
            .map(|contains| {
                contains
                    .max
                    .map_or(contains.min, |max| max.max(contains.min))
            })
            .collect();
        let n_states = counted
            .iter()
            .try_fold(last.saturating_add(1), |n, most| n.checked_mul(most + 1));
        if n_states.is_none_or(|n| n > MOST_STATES) || arrays.contains.len() > 4 {
            return Ok(None);
        }
        let comma = self.comma()?;
        let mut rules: HashMap<(u64, Vec<u64>), u32> = HashMap::default();
        let start = (0, vec![0; counted.len()]);
        let rule = self.output.reserve();
        rules.insert(start.clone(), rule);
        let mut to_do = vec![start];
        while let Some((i, counts)) = to_do.pop() {
            let rule = rules[&(i, counts.clone())];
            let mut alternatives = Vec::new();
            let pairs = || arrays.contains.iter().zip(&counts);
            if i >= arrays.min && pairs().all(|(contains, &count)| count >= contains.min) {
                alternatives.push(Vec::new());
            }
            let may_go_on = arrays.max.is_none_or(|max| i < max);
            let element = match arrays.prefix.get(i as usize) {
                Some(&element) => element,
                None => arrays.rest,
            };
            // A bit for each kind, set if the element is of that kind. Where that makes no
            // difference, the two cases are not distinguished.
            let ways = if may_go_on { 1_u32 << counts.len() } else { 0 };
            'ways: for way in 0..ways {
                let mut exprs = vec![element];
                let mut next = counts.clone();
                for (k, (contains, &count)) in pairs().enumerate() {
                    let is_of = way >> k & 1 == 1;
                    if is_of {
                        if contains.max == Some(count)
                            || contains.max.is_none() && count >= contains.min
                        {
                            continue 'ways;
                        }
                        exprs.push(contains.what);
                        next[k] = (count + 1).min(counted[k]);
                    } else if contains.max.is_some() {
                        exprs.push(self.compiler.minus(ANY, contains.what));
                    }
                }
                let expr = self.compiler.all_of(exprs);
                if expr == NEVER {
                    continue;
                }
                let key = ((i + 1).min(last), next);
                let target = match rules.get(&key) {
                    Some(&rule) => rule,
                    None => {
                        let rule = self.output.reserve();
                        rules.insert(key.clone(), rule);
                        to_do.push(key);
                        rule
                    }
                };
                let element = self.spaced(expr)?;
                let comma: &[Element] = if i == 0 { &[] } else { &comma };
                alternatives.push([comma, &element, &[Element::Rule(target)]].concat());
            }
            self.output.define(rule, alternatives)?;
        }
        Ok(Some(vec![Element::Rule(rule)]))
    }

    /// Returns all values of an expression, if there are few and none is an array or an object.
    fn finite(&mut self, expr: ExprId) -> Answer<Option<Vec<Scalar>>> {
        let shape = self.compiler.shape(expr)?;
        if !shape.arrays.is_empty() || !shape.objects.is_empty() {
            return Ok(None);
        }
        let mut all = Vec::new();
        let words = [
            (shape.null, Scalar::Null),
            (shape.no, Scalar::Bool(false)),
            (shape.yes, Scalar::Bool(true)),
        ];
        all.extend(words.into_iter().filter(|word| word.0).map(|word| word.1));
        for numbers in &shape.numbers {
            match &numbers.only {
                Some(only) => all.extend(only.iter().cloned().map(Scalar::Number)),
                None => return Ok(None),
            }
        }
        for strings in &shape.strings {
            match &strings.only {
                Some(only) => all.extend(only.iter().cloned().map(Scalar::String)),
                None => return Ok(None),
            }
        }
        let mut seen = Vec::new();
        for one in all {
            if !seen.contains(&one) {
                seen.push(one);
            }
        }
        Ok((seen.len() <= MOST_UNIQUE).then_some(seen))
    }

    /// Returns the grammar elements of the content of an array whose items must be unique, without
    /// the brackets. Returns `None` if the array has a `contains`, or if its items are not limited
    /// to at most [`MOST_UNIQUE`] different scalar values.
    fn unique(&mut self, arrays: &Arrays) -> Answer<Option<Sequence>> {
        if !arrays.contains.is_empty() {
            return Ok(None);
        }
        let n_first = arrays.prefix.len();
        let has_more = arrays.max.is_none_or(|max| max > n_first as u64);
        let of_place = |i: usize| arrays.prefix.get(i).copied().unwrap_or(arrays.rest);
        let mut values: Vec<Scalar> = Vec::new();
        for i in 0..n_first + usize::from(has_more) {
            let Some(all) = self.finite(of_place(i))? else {
                return Ok(None);
            };
            values.extend(
                all.into_iter()
                    .filter(|one| !values.contains(one))
                    .collect::<Vec<_>>(),
            );
        }
        let n = values.len();
        if n > MOST_UNIQUE {
            return Ok(None);
        }
        let comma = self.comma()?;
        // Other constraints on the element at this index apply, too.
        let mut elements: Vec<Vec<Sequence>> = Vec::with_capacity(n);
        for value in values {
            let value = self.compiler.only(value);
            let mut places = Vec::new();
            for i in 0..=n_first {
                let value = self.compiler.all_of([of_place(i), value]);
                places.push(self.spaced(value)?);
            }
            elements.push(places);
        }
        let rules: Vec<u32> = (0..1 << n).map(|_| self.output.reserve()).collect();
        for (used, &rule) in rules.iter().enumerate() {
            let n_used = u64::from(used.count_ones());
            let mut alternatives = Vec::new();
            if n_used >= arrays.min {
                alternatives.push(Vec::new());
            }
            for (k, places) in elements.iter().enumerate() {
                let element = &places[n_first.min(n_used as usize)];
                if used >> k & 1 == 1 || arrays.max.is_some_and(|max| n_used >= max) {
                    continue;
                }
                let comma: &[Element] = if used == 0 { &[] } else { &comma };
                let next = Element::Rule(rules[used | 1 << k]);
                alternatives.push([comma, element, &[next]].concat());
            }
            self.output.define(rule, alternatives)?;
        }
        Ok(Some(vec![Element::Rule(rules[0])]))
    }

    fn object(&mut self, objects: &Objects, at: JsonId) -> Answer<Vec<Sequence>> {
        let at = objects.at.unwrap_or(at);
        if objects.max.is_some_and(|max| max < objects.min) {
            return Ok(Vec::new());
        }
        let Some(members) = self.members(objects, at)? else {
            return Ok(Vec::new());
        };
        let n_required = members
            .named
            .iter()
            .filter(|member| member.is_required)
            .count() as u64;
        let most = match members.other {
            None => Some(members.named.len() as u64),
            Some(_) => None,
        };
        let members = Members {
            min: if members.min <= n_required {
                0
            } else {
                members.min
            },
            max: members
                .max
                .filter(|&max| most.is_none_or(|most| max < most)),
            ..members
        };
        if self.compiler.options.any_order && !members.named.is_empty() {
            let is_list = !self.as_text
                && (members.min, members.max) == (0, None)
                && members.witnesses.is_empty();
            let content = match is_list {
                true => self.unordered(&members)?,
                false => self.by_states(&members, at, true)?,
            };
            return Ok(vec![self.enclosed(['{', '}'], content)?]);
        }
        let mut all = Vec::new();
        let content = self.in_order(&members, at)?;
        all.push(self.enclosed(['{', '}'], content)?);
        // Alternatively, the required properties come first, in the order of the schema's
        // `required`.
        let required = objects.required.iter().enumerate();
        let places: HashMap<&Rc<str>, usize> = required.map(|(at, name)| (name, at)).collect();
        let place = |member: &Member| places.get(&member.name).copied();
        let mut named = members.named.clone();
        named.sort_by_key(|member| place(member).unwrap_or(usize::MAX));
        if !named
            .iter()
            .map(|m| &m.name)
            .eq(members.named.iter().map(|m| &m.name))
        {
            let content = self.in_order(&Members { named, ..members }, at)?;
            all.push(self.enclosed(['{', '}'], content)?);
        }
        Ok(all)
    }

    /// Returns the members of an object; `None` if a required member is impossible.
    fn members(&mut self, objects: &Objects, at: JsonId) -> Answer<Option<Members>> {
        let mut all: Vec<Member> = Vec::new();
        let required: HashSet<&Rc<str>> = objects.required.iter().collect();
        let is_required = |name: &Rc<str>| required.contains(name);
        let named: HashSet<&Rc<str>> = objects.named.iter().map(|(name, _)| name).collect();
        for (name, value) in &objects.named {
            all.push(Member {
                name: Rc::clone(name),
                value: *value,
                is_required: is_required(name),
            });
        }
        let is_closed =
            self.compiler.options.closed && objects.rests.is_empty() && !objects.named.is_empty();
        for name in &objects.required {
            if !named.contains(name) {
                let value = match is_closed {
                    true => NEVER,
                    false => self.compiler.unnamed(objects, name),
                };
                all.push(Member {
                    name: Rc::clone(name),
                    value,
                    is_required: true,
                });
            }
        }
        let names = match objects.names.is_empty() {
            true => None,
            false => {
                let names = self.compiler.all_of(objects.names.iter().copied());
                let strings = self.compiler.shape(names)?.strings.clone();
                let dfa = self.compiler.automaton_of_any(&strings);
                Some(dfa.map_err(|_| self.too_large(at, "propertyNames"))?)
            }
        };
        for member in &mut all {
            if names
                .as_ref()
                .is_some_and(|names| !names.accepts(&member.name))
            {
                member.value = NEVER;
            }
        }
        if all
            .iter()
            .any(|member| member.is_required && member.value == NEVER)
        {
            return Ok(None);
        }
        let other = match is_closed
            || objects.rests.iter().any(|rest| {
                rest.others == NEVER && rest.patterns.iter().all(|&(_, expr)| expr == NEVER)
            }) {
            true => None,
            false => self.other_member(objects, &all, names.as_ref(), at)?,
        };
        let mut witnesses = Vec::new();
        let mut rests = Vec::new();
        for witness in &objects.witnesses {
            let lang = self.compiler.lang_of_names(&witness.names);
            let lang = lang.map_err(|_| self.too_large(at, "not"))?;
            witnesses.push((self.compiler.lang_of(lang), witness.value));
            rests.push(move |others| Rest {
                patterns: vec![(lang, witness.value)],
                others,
            });
        }
        let mut is_told_apart = witnesses.len() <= MOST_WITNESSES;
        for (i, (names, value)) in witnesses.iter().enumerate() {
            for (other_names, other) in witnesses.iter().take(if is_told_apart { i } else { 0 }) {
                let (without, of_other) = (
                    self.compiler.minus(*value, *other),
                    self.compiler.minus(*other, *value),
                );
                is_told_apart &= names
                    .and(other_names, &self.compiler.work)
                    .is_ok_and(|both| both.is_empty())
                    || self.compiler.is_empty(without)
                    || self.compiler.is_empty(of_other);
            }
        }
        if !is_told_apart {
            // Otherwise the name of a witness could occur again with the value of another.
            let refusal = self.compiler.refusal(
                at,
                "not",
                format!(
                    "it asks for more than {MOST_WITNESSES} members, or for several of other values \
                     whose names may be the same; say what is allowed instead"
                ),
            );
            self.compiler.leave_out(refusal)?;
            witnesses.clear();
        }
        let mut others = HashMap::default();
        let all_witnesses = (1_u64 << witnesses.len()) - 1;
        for before in 0..=all_witnesses {
            for now in (0..=all_witnesses).filter(|now| other.is_some() && now & before == 0) {
                let mut objects = objects.clone();
                for (i, rest) in rests.iter().enumerate() {
                    if before >> i & 1 == 1 {
                        objects.rests.push(rest(ANY));
                    } else if now >> i & 1 == 1 {
                        objects.rests.push(rest(NEVER));
                    }
                }
                let member = match before | now {
                    0 => other.clone(),
                    _ => self.other_member(&objects, &all, names.as_ref(), at)?,
                };
                others.extend(member.map(|member| ((before, now), member)));
            }
        }
        all.retain(|member| member.value != NEVER);
        Ok(Some(Members {
            named: all,
            other,
            others,
            witnesses,
            min: objects.min,
            max: objects.max,
        }))
    }

    /// Returns a member with a name that the object does not list; `None` if no such member is
    /// possible.
    fn other_member(
        &mut self,
        objects: &Objects,
        named: &[Member],
        names: Option<&Dfa>,
        at: JsonId,
    ) -> Answer<Option<Sequence>> {
        let texts = named.iter().map(|member| &*member.name);
        if names.is_none() && objects.rests.iter().all(|rest| rest.patterns.is_empty()) {
            let values = objects.rests.iter().map(|rest| rest.others);
            let value = self.compiler.all_of(values);
            if value == NEVER {
                return Ok(None);
            }
            let content = match named.is_empty() {
                true => self.output.any_content(0, None)?,
                false => vec![self.other_names.all_but(texts, &mut self.output)?],
            };
            return Ok(Some(self.member(content, value)?));
        }
        let regions = (|| {
            let work = &self.compiler.work;
            let names = names.cloned().unwrap_or_else(Dfa::all);
            let dfa = match named.is_empty() {
                true => names,
                false => names.minus(&Dfa::of_texts(texts)?, work)?,
            };
            let mut regions = vec![(dfa, Vec::new())];
            for rest in &objects.rests {
                let mut next = Vec::new();
                for (dfa, exprs) in regions {
                    let mut parts = vec![(dfa, exprs, false)];
                    for &(lang, expr) in &rest.patterns {
                        let lang = self.compiler.lang_of(lang);
                        let mut split = Vec::new();
                        for (dfa, exprs, matches) in parts {
                            let work = &self.compiler.work;
                            let (inside, outside) =
                                (dfa.and(&lang, work)?, dfa.minus(&lang, work)?);
                            let mut more = exprs.clone();
                            more.push(expr);
                            split.push((inside.minimized(work), more, true));
                            split.push((outside.minimized(work), exprs, matches));
                        }
                        split.retain(|(dfa, _, _)| !dfa.is_empty());
                        parts = split;
                    }
                    for (dfa, mut exprs, matches) in parts {
                        if !matches {
                            exprs.push(rest.others);
                        }
                        next.push((dfa, exprs));
                    }
                }
                regions = next;
            }
            Ok::<_, crate::grammar::schema::work::TooLarge>(regions)
        })();
        let Ok(regions) = regions else {
            let refusal = self.too_large(at, "patternProperties");
            self.compiler.leave_out(refusal)?;
            let content = self.output.any_content(0, None)?;
            return Ok(Some(self.member(content, ANY)?));
        };
        let mut by_value: Vec<(ExprId, Dfa)> = Vec::new();
        for (dfa, exprs) in regions {
            let expr = self.compiler.all_of(exprs);
            if expr == NEVER || dfa.is_empty() {
                continue;
            }
            match by_value.iter_mut().find(|(other, _)| *other == expr) {
                Some((_, all)) => {
                    let work = &self.compiler.work;
                    let both = all.or(&dfa, work).map(|all| all.minimized(work));
                    *all = both.map_err(|_| self.too_large(at, "patternProperties"))?;
                }
                None => by_value.push((expr, dfa)),
            }
        }
        let mut alternatives = Vec::new();
        for (expr, dfa) in by_value {
            let content = match dfa == Dfa::all() {
                true => self.output.any_content(0, None)?,
                false => vec![self.output.automaton(&Shared::new(dfa), true)?],
            };
            alternatives.push(self.member(content, expr)?);
        }
        Ok(match alternatives.len() {
            0 => None,
            1 => alternatives.pop(),
            _ => Some(vec![self.output.rule(alternatives)?]),
        })
    }

    /// Returns a member whose name has this content, with white space after it.
    fn member(&mut self, name: Sequence, value: ExprId) -> Answer<Sequence> {
        let (mark, colon) = (self.output.one('"')?, self.output.one(':')?);
        let value = self.value(value)?;
        let space = &*self.space;
        Ok([
            &[mark],
            &*name,
            &[mark],
            space,
            &[colon],
            space,
            &[value],
            space,
        ]
        .concat())
    }

    /// Returns the rest of an object with only unnamed members, after `n` members.
    fn others(&mut self, members: &Members, at: JsonId, n: u64) -> Answer<Behind> {
        let min = members.min.saturating_sub(n);
        let max = members.max.map(|max| max.saturating_sub(n));
        let more = match &members.other {
            Some(member) if max != Some(0) => member,
            _ => {
                return Ok(Behind {
                    may_end: min == 0,
                    ..Behind::default()
                });
            }
        };
        if min > 1 {
            self.same_names(at)?;
        }
        let next = [&*self.comma()?, &**more].concat();
        let rest = self
            .output
            .times(next, min.max(1) - 1, max.map(|max| max - 1))?;
        Ok(Behind {
            more: Some([more, &*rest].concat()),
            tail: (min == 0 && max.is_none()).then_some(rest),
            may_end: min == 0,
        })
    }

    /// Returns the elements of the rest of an object. `before` comes first if there are more
    /// members.
    fn written(&mut self, behind: &Behind, before: &[Element]) -> Answer<Sequence> {
        let more = behind.more.as_ref().map(|more| [before, more].concat());
        match (more, behind.may_end) {
            (Some(more), true) => Ok(vec![self.output.rule(vec![more, Vec::new()])?]),
            (Some(more), false) => Ok(more),
            (None, true) => Ok(Vec::new()),
            (None, false) => Ok(vec![self.output.nothing()?]),
        }
    }

    fn same_names(&mut self, at: JsonId) -> Answer<()> {
        let refusal = self.compiler.refusal(
            at,
            "minProperties",
            "members that are not named in \"properties\" may have one name, so that they are not \
             counted; name them, or require at most one more",
        );
        self.compiler.leave_out(refusal)
    }

    fn too_many_members(&self, at: JsonId, keyword: &str) -> Refusal {
        self.compiler.refusal(
            at,
            keyword,
            format!("the numbers of members multiply to more than {MOST_STATES}"),
        )
    }

    fn in_order(&mut self, members: &Members, at: JsonId) -> Answer<Sequence> {
        if !members.witnesses.is_empty() {
            return self.by_states(members, at, false);
        }
        let n = members.named.len();
        // True if the number of members so far must be known.
        let counts = members.min > 0 || members.max.is_some();
        if counts && (n as u64).saturating_mul(n as u64) > MOST_STATES {
            let keyword = if members.max.is_some() {
                "maxProperties"
            } else {
                "minProperties"
            };
            return Err(self.too_many_members(at, keyword));
        }
        let comma = self.comma()?;
        let mut written = Vec::with_capacity(n);
        for member in &members.named {
            let name = self.output.content(&member.name)?;
            written.push(self.member(name, member.value)?);
        }
        // The rests of the object after the last named member, then after the last but one, and so
        // on. If the number of members so far matters, the rests are indexed by it.
        let n_states = if counts { n + 1 } else { 1 };
        // The minimum number of members before the current named member: that of the required ones.
        let mut least = members.named.iter().filter(|one| one.is_required).count();
        let states = |least: usize, most: usize| if counts { least..=most } else { 0..=0 };
        let mut behind: Vec<Behind> = vec![Behind::default(); n_states];
        for so_far in states(least, n) {
            if members.max.is_none_or(|max| so_far as u64 <= max) {
                behind[so_far] = self.others(members, at, so_far as u64)?;
            }
        }
        for i in (0..n).rev() {
            let is_required = members.named[i].is_required;
            least -= usize::from(is_required);
            let mut next = vec![Behind::default(); n_states];
            for so_far in states(least, i) {
                let after = &behind[if counts { so_far + 1 } else { 0 }];
                let mut alternatives = Vec::new();
                if after.is_possible() {
                    // The comma and the space after it are written once, before all members that
                    // may follow.
                    let tail = match &after.tail {
                        Some(tail) => tail.clone(),
                        None => self.written(after, &comma)?,
                    };
                    alternatives.push([&*written[i], &*tail].concat());
                }
                let place = &mut next[so_far];
                if !is_required {
                    alternatives.extend(behind[so_far].more.clone());
                    place.may_end = behind[so_far].may_end;
                }
                if !alternatives.is_empty() {
                    place.more = Some(vec![self.output.rule(alternatives)?]);
                }
            }
            behind = next;
        }
        self.written(&behind[0], &[])
    }

    /// Returns the members of an object in any order, as an unordered list.
    fn unordered(&mut self, members: &Members) -> Answer<Sequence> {
        let mut items = Vec::with_capacity(members.named.len() + 1);
        let named = members.named.iter();
        let (required, optional): (Vec<_>, Vec<_>) = named.partition(|member| member.is_required);
        let n_required = required.len();
        for member in required.into_iter().chain(optional) {
            let name = self.output.content(&member.name)?;
            items.push(self.member(name, member.value)?);
        }
        items.extend(members.other.clone());
        let separator = self.comma()?;
        self.output.unordered(Unordered {
            items,
            separator,
            n_required,
            n_once: members.named.len(),
        })
    }

    /// Returns the members of an object, in the order of the schema or in any order, with a rule
    /// for each state of the members so far.
    fn by_states(&mut self, members: &Members, at: JsonId, any_order: bool) -> Answer<Sequence> {
        let n = members.named.len();
        if any_order && n > MOST_IN_ANY_ORDER {
            return Err(self.compiler.refusal(
                at,
                "properties",
                format!(
                    "LLAMA_SIEVE_JSON_ANY_ORDER takes at most {MOST_IN_ANY_ORDER} properties of one \
                     object if their number is bounded, if another keyword requires a property \
                     that is not named, or if the grammar is written as text; take the order of \
                     the schema"
                ),
            ));
        }
        let n_required = members
            .named
            .iter()
            .filter(|member| member.is_required)
            .count() as u64;
        let mut min = members.min;
        if members.other.is_some() && min > n_required + 1 {
            self.same_names(at)?;
            min = n_required + 1;
        }
        let all_witnesses = (1_u64 << members.witnesses.len()) - 1;
        // Larger numbers need not be distinguished.
        let most = members.max.unwrap_or(0).max(min).max(1);
        let comma = self.comma()?;
        let start = SoFar {
            used: 0,
            n: (0, 0),
            witnesses: (0, 0),
        };
        let mut rules: HashMap<SoFar, u32> = HashMap::default();
        let mut written: HashMap<(usize, u64), Sequence> = HashMap::default();
        let mut to_do = vec![start];
        let first = self.output.reserve();
        rules.insert(start, first);
        while let Some(so_far) = to_do.pop() {
            if rules.len() as u64 > MOST_STATES {
                return Err(self.too_many_members(at, "properties"));
            }
            let rule = rules[&so_far];
            let mut alternatives = Vec::new();
            let mut go_on = |emitter: &mut Self, member: &[Element], next: SoFar| {
                let rule = *rules.entry(next).or_insert_with(|| {
                    to_do.push(next);
                    emitter.output.reserve()
                });
                alternatives.push([member, &[Element::Rule(rule)]].concat());
            };
            let SoFar {
                used,
                n: (n_named, n_others),
                witnesses: (named, others),
            } = so_far;
            let comma: &[Element] = if (n_named, n_others) == (0, 0) {
                &[]
            } else {
                &comma
            };
            let may_go_on = members.max.is_none_or(|max| n_named + n_others < max);
            let is_left = |k: usize| match any_order {
                true => used >> k & 1 == 0,
                false => used == k as u64,
            };
            for k in (0..n).filter(|&k| is_left(k)) {
                let next = SoFar {
                    used: if any_order { used | 1 << k } else { used + 1 },
                    ..so_far
                };
                if !any_order && !members.named[k].is_required {
                    go_on(self, &[], next);
                }
                let accepts = |i: usize| members.witnesses[i].0.accepts(&members.named[k].name);
                let set = (0..members.witnesses.len()).filter(|&i| accepts(i));
                let set = set.fold(0, |set, i| set | 1 << i) & !named & !others;
                for now in (0..=set).filter(|now| may_go_on && now & !set == 0) {
                    let member = match written.get(&(k, now)) {
                        Some(member) => member.clone(),
                        None => {
                            let values = (0..members.witnesses.len()).filter(|i| now >> i & 1 == 1);
                            let values = values.map(|i| members.witnesses[i].1);
                            let values = values.chain([members.named[k].value]);
                            let value = self.compiler.all_of(values);
                            let name = self.output.content(&members.named[k].name)?;
                            let member = self.member(name, value)?;
                            written.insert((k, now), member.clone());
                            member
                        }
                    };
                    let member = [comma, &member].concat();
                    let next = SoFar {
                        n: ((n_named + 1).min(most), n_others),
                        witnesses: (named | now, others),
                        ..next
                    };
                    go_on(self, &member, next);
                }
            }
            if !any_order && used < n as u64 {
                self.output.define(rule, alternatives)?;
                continue;
            }
            for now in (0..=all_witnesses).filter(|now| may_go_on && now & (named | others) == 0) {
                if let Some(member) = members.others.get(&(others, now)) {
                    let most = if members.max.is_some() { most } else { 1 };
                    let next = SoFar {
                        n: (n_named, (n_others + 1).min(most)),
                        witnesses: (named, others | now),
                        ..so_far
                    };
                    go_on(self, &[comma, member].concat(), next);
                }
            }
            let lacks = |(k, member): (usize, &Member)| {
                any_order && member.is_required && used >> k & 1 == 0
            };
            // Other members that have the same name count as one.
            if !members.named.iter().enumerate().any(lacks)
                && n_named + n_others.min(1) >= min
                && named | others == all_witnesses
            {
                alternatives.push(Vec::new());
            }
            self.output.define(rule, alternatives)?;
        }
        Ok(vec![Element::Rule(first)])
    }
}

const _: () = assert!(MAX_SCHEMA_ELEMENTS < ENDLESS as usize);
