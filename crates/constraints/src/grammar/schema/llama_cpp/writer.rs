//! Writes a rule for each node of a schema, in the order of llama.cpp's converter. The order
//! decides which rule gets a name that two rules compete for.

use std::collections::BTreeMap;
use std::rc::Rc;

use llama_sieve_kernels::random::{HashMap, HashSet};

use super::literal::{quoted, text_of};
use super::names::{Name, Names, escaped, joined, rule_name};
use super::node::{Node, NodeId, Nodes, Text};
use super::{keep, refusal, spend};
use crate::grammar::elements::{Element, Written, left_recursive};
use crate::grammar::parser::class_of;
use crate::grammar::schema::output::{Output, Sequence};
use crate::grammar::schema::productive::has_text;
use crate::grammar::schema::reader::{Document, JsonId};
use crate::grammar::schema::refusal::{Answer, Refusal};
use crate::grammar::schema::work::Work;

/// Writes the rules of a schema's nodes.
pub struct Writer<'a> {
    pub(super) document: &'a Document,
    nodes: Nodes,
    pub(super) work: Rc<Work>,
    pub(super) output: Output,
    pub(super) names: Names,
    /// The schema that each rule was made for.
    pub(super) places: HashMap<u32, JsonId>,
    /// The current schema.
    pub(super) place: JsonId,
    /// The element for white space.
    pub(super) space: Element,
    /// The rules without a name, by their contents.
    groups: HashMap<Vec<Sequence>, Element>,
    repetitions: HashMap<(Sequence, u32, Option<u32>), Sequence>,
    to_do: Vec<(NodeId, Step)>,
    /// The names of written rules that later steps need.
    made: Vec<Name>,
    /// References whose target is being written.
    open: HashSet<Rc<str>>,
    /// Patterns for which any string is accepted.
    pub(super) left_out: Vec<Refusal>,
}

/// A step of the work. All steps except `Node` and `Primitive` find the names of their parts in
/// `Writer::made`.
enum Step {
    /// Writes the rule of a node.
    Node(Name),
    /// Writes a fixed rule.
    Primitive(&'static str),
    /// Writes the rule of alternatives.
    AnyOf(Name, usize),
    /// Writes the rule of an array with this number of elements.
    Tuple(Name, usize),
    /// Writes the rule of an array with elements of one kind.
    Items(Name),
    /// Writes the rule of a reference, whose target has been written.
    Reference(Name, Rc<str>),
    /// Writes the rule of a member, given the name of the rule and that of the member.
    Member(Name, Rc<str>),
    /// Writes the rule of unnamed members.
    Others(Name, Rc<Members>),
    /// Writes the rule of an object.
    Object(Name, Rc<Members>),
}

/// The members of an object.
struct Members {
    /// The name of the object.
    whole: Name,
    /// The name of each member, and true if it is required. A name may occur twice.
    named: Vec<(Rc<str>, bool)>,
    has_others: bool,
}

/// The members and values that the parts of `allOf` name.
#[derive(Default)]
struct Found {
    /// The members, with repetitions.
    members: Vec<(Rc<str>, NodeId)>,
    required: HashSet<Rc<str>>,
    /// The texts of values, each with the number of lists that contain it.
    values: BTreeMap<String, usize>,
}

/// Represents the unnamed members in a list of names.
const OTHERS: &str = "*";

impl<'a> Writer<'a> {
    /// Returns a writer for the nodes of a schema.
    pub fn new(document: &'a Document, nodes: Nodes, work: Rc<Work>) -> Self {
        Self {
            document,
            nodes,
            work,
            output: Output::new(),
            names: Names::default(),
            places: HashMap::default(),
            place: document.root,
            space: Element::Alternative,
            groups: HashMap::default(),
            repetitions: HashMap::default(),
            to_do: Vec::new(),
            made: Vec::new(),
            open: HashSet::default(),
            left_out: Vec::new(),
        }
    }

    /// Writes the rules. Returns them and the patterns that were left out.
    pub fn written(mut self) -> Answer<(Written, Vec<Refusal>)> {
        self.write_space()?;
        self.to_do.push((self.nodes.root, Step::Node("".into())));
        while let Some((node, step)) = self.to_do.pop() {
            self.place = self.nodes.place(node);
            let made = self.step(node, step)?;
            self.made.extend(made);
        }
        let mut written = std::mem::take(&mut self.output.written);
        written.classes = self.output.take_classes();
        written.root = self.names.root().unwrap_or_default();
        if let Some(rule) = self.names.missing() {
            let why = "it leads to a name that llama.cpp's converter gives to another rule";
            return Err(self.refused_rule(rule, why));
        }
        if let Some(rule) = left_recursive(&written) {
            let why = "the grammar of llama.cpp's converter begins with itself here, which \
                       llama.cpp refuses";
            return Err(self.refused_rule(rule, why));
        }
        match has_text(&written) {
            true => Ok((written, self.left_out)),
            false => Err(Refusal::whole("no value satisfies it")),
        }
    }

    fn refused_rule(&self, rule: u32, why: &str) -> Refusal {
        let place = self.places.get(&rule).copied();
        let place = place.unwrap_or(self.document.root);
        let keywords = ["$ref", "pattern", "oneOf", "anyOf", "allOf"];
        let mut keywords = keywords.into_iter();
        let keyword = keywords.find(|name| self.document.member(place, name).is_some());
        match keyword {
            Some(keyword) => refusal(self.document, place, keyword, why),
            None => Refusal::whole(why),
        }
    }

    pub(super) fn refused<T>(&self, keyword: &str, why: impl Into<String>) -> Answer<T> {
        Err(refusal(self.document, self.place, keyword, why))
    }

    fn write_space(&mut self) -> Answer<()> {
        let blank = self.output.raw(" ")?;
        let line = self.output.raw("\n")?;
        let indent = self.output.class(&[(9, 9), (0x20, 0x20)])?;
        let lines = self.times(line, 1, Some(2))?;
        let indents = self.times(vec![indent], 0, Some(20))?;
        let name = self.named("space", vec![Vec::new(), blank, [lines, indents].concat()])?;
        self.space = self.rule(&name);
        Ok(())
    }

    fn step(&mut self, node: NodeId, step: Step) -> Answer<Option<Name>> {
        const COST: usize = 16;
        spend(&self.work, COST)?;
        let made = match step {
            Step::Node(name) => return self.node(node, &name),
            Step::Primitive(primitive) => self.primitive(primitive)?,
            Step::AnyOf(name, n) => {
                let parts = self.last(n);
                let alternatives = parts.into_iter().map(|part| vec![part]).collect();
                self.named(&name, alternatives)?
            }
            Step::Tuple(name, n) => {
                let mut elements = Vec::new();
                for (i, part) in self.last(n).into_iter().enumerate() {
                    if i > 0 {
                        elements.extend(self.comma()?);
                    }
                    elements.push(part);
                }
                let array = self.enclosed(["[", "]"], elements)?;
                self.named(&name, vec![array])?
            }
            Step::Items(name) => self.items(node, &name)?,
            Step::Reference(name, reference) => {
                self.open.remove(&reference);
                let target = self.last(1);
                self.named(&name, vec![target])?
            }
            Step::Member(name, member) => {
                let name_text = self.output.raw(&quoted(&member))?;
                let colon = self.output.raw(":")?;
                let value = self.last(1);
                let space = [self.space];
                let member = [&*name_text, &space, &colon, &space, &value].concat();
                self.named(&name, vec![member])?
            }
            Step::Others(name, members) => self.others(&name, &members)?,
            Step::Object(name, members) => self.object(&name, &members)?,
        };
        Ok(Some(made))
    }

    /// Removes the last `n` names from `made`. Returns references to their rules.
    fn last(&mut self, n: usize) -> Sequence {
        let parts = self.made.split_off(self.made.len().saturating_sub(n));
        parts.iter().map(|part| self.rule(part)).collect()
    }

    /// Writes the rule of a node and returns its name, or schedules the steps for it.
    fn node(&mut self, id: NodeId, name: &Name) -> Answer<Option<Name>> {
        keep(&self.work, name.len())?;
        let rule = rule_name(name);
        let made = match self.nodes.get(id).clone() {
            Node::Any => {
                let value = self.primitive("value")?;
                self.alias(&rule, &value)?
            }
            Node::Null => self.primitive_in(&rule, "null")?,
            Node::Boolean => self.primitive_in(&rule, "boolean")?,
            Node::Number => self.primitive_in(&rule, "number")?,
            Node::Integer(None, None) => self.primitive_in(&rule, "integer")?,
            Node::Integer(min, max) => {
                let alternatives = self.integers(min, max)?;
                self.named(&rule, alternatives)?
            }
            Node::Text(text) => self.text(&text, &rule)?,
            Node::Const(value) => {
                let constant = self.constant("const", value)?;
                self.named(&rule, vec![constant])?
            }
            Node::Enum(values) => {
                let constants = values.iter().map(|&value| self.constant("enum", value));
                let constants = constants.collect::<Answer<_>>()?;
                self.named(&rule, constants)?
            }
            Node::Array { items, min, max } => {
                let is_any = matches!(self.nodes.get(items), Node::Any);
                if is_any && (min, max) == (0, None) {
                    return self.primitive_in(&rule, "array").map(Some);
                }
                self.to_do.push((id, Step::Items(rule)));
                self.to_do.push((items, Step::Node(joined(name, "item"))));
                return Ok(None);
            }
            Node::Tuple(items) => {
                self.to_do.push((id, Step::Tuple(rule, items.len())));
                self.parts(&items, |i| joined(name, &format!("tuple-{i}")))?;
                return Ok(None);
            }
            Node::AnyOf(parts) => {
                self.to_do.push((id, Step::AnyOf(rule, parts.len())));
                let whole = if name.is_empty() { "alternative" } else { name };
                self.parts(&parts, |i| joined(whole, &i.to_string()))?;
                return Ok(None);
            }
            Node::Reference(reference) => return self.reference(id, &rule, &reference),
            Node::Object { members, others } => {
                let is_any = others.is_some_and(|id| matches!(self.nodes.get(id), Node::Any));
                if members.is_empty() && is_any {
                    let object = self.primitive("object")?;
                    return self.alias(&rule, &object).map(Some);
                }
                return self.members(id, name, rule, &members, others);
            }
            Node::AllOf(parts) => return self.all_of(id, name, rule, &parts),
        };
        Ok(Some(made))
    }

    /// Schedules the rules of some parts, to be written in order.
    fn parts(&mut self, parts: &[NodeId], name: impl Fn(usize) -> Name) -> Answer<()> {
        for (i, &part) in parts.iter().enumerate().rev() {
            let name = name(i);
            keep(&self.work, name.len())?;
            self.to_do.push((part, Step::Node(name)));
        }
        Ok(())
    }

    fn reference(&mut self, id: NodeId, rule: &Name, reference: &Rc<str>) -> Answer<Option<Name>> {
        let path = reference.strip_prefix('#').unwrap_or(reference);
        let name: Name = format!("ref{}", escaped(path)).into();
        let Some(target) = self.nodes.target(reference) else {
            return self.refused("$ref", "it leads nowhere");
        };
        if self.names.has(&name) || self.open.contains(reference) {
            return self.alias(rule, &name).map(Some);
        }
        self.open.insert(Rc::clone(reference));
        let step = Step::Reference(Rc::clone(rule), Rc::clone(reference));
        self.to_do.push((id, step));
        self.to_do.push((target, Step::Node(name)));
        Ok(None)
    }

    fn constant(&mut self, keyword: &str, value: JsonId) -> Answer<Sequence> {
        let Some(text) = text_of(self.document, value) else {
            return self.refused(keyword, "a number is beyond 64 bits");
        };
        spend(&self.work, text.len())?;
        self.output.raw(&text)
    }

    fn text(&mut self, text: &Text, rule: &Name) -> Answer<Name> {
        if let Some(pattern) = &text.pattern {
            return self.pattern(pattern, rule);
        }
        if text.format == Some("uuid") {
            return self.primitive_in(rule, "uuid");
        }
        if let Some(format) = text.format {
            let format = self.primitive(format)?;
            return self.alias(rule, &format);
        }
        if (text.min, text.max) == (0, None) {
            return self.primitive_in(rule, "string");
        }
        let character = self.primitive("char")?;
        let character = self.rule(&character);
        let Some(content) = self.counted(vec![character], text.min, text.max)? else {
            return self.refused("maxLength", "it is less than \"minLength\"");
        };
        let text = self.output.quoted(content)?;
        self.named(rule, vec![text])
    }

    fn items(&mut self, id: NodeId, rule: &Name) -> Answer<Name> {
        let Node::Array { min, max, .. } = *self.nodes.get(id) else {
            return Ok(Rc::clone(rule));
        };
        let item = self.last(1);
        // With at most one element no count is needed.
        if max.is_some_and(|max| max > 1 && max < min) {
            return self.refused("maxItems", "it is less than \"minItems\"");
        }
        let items = self.separated(item, min, max)?;
        let array = self.enclosed(["[", "]"], items)?;
        self.named(rule, vec![array])
    }

    /// Schedules the rules of an object's members, and then the rule of the object.
    fn members(
        &mut self,
        id: NodeId,
        name: &Name,
        rule: Name,
        members: &[(Rc<str>, NodeId, bool)],
        others: Option<NodeId>,
    ) -> Answer<Option<Name>> {
        let named = members.iter();
        let named = named.map(|(member, _, is_required)| (Rc::clone(member), *is_required));
        let all = Rc::new(Members {
            whole: Rc::clone(name),
            named: named.collect(),
            has_others: others.is_some(),
        });
        self.to_do.push((id, Step::Object(rule, Rc::clone(&all))));
        let mut steps = Vec::new();
        for (member, node, _) in members {
            keep(&self.work, 2 * (name.len() + member.len()))?;
            let part = joined(name, member);
            let member_rule = format!("{part}-kv").into();
            steps.push((*node, Step::Node(part)));
            steps.push((id, Step::Member(member_rule, Rc::clone(member))));
        }
        if let Some(others) = others {
            let part = joined(name, "additional");
            let step = match self.nodes.get(others) {
                Node::Any => Step::Primitive("value"),
                _ => Step::Node(joined(&part, "value")),
            };
            steps.push((others, step));
            steps.push((id, Step::Others(part, all)));
        }
        self.to_do.extend(steps.into_iter().rev());
        Ok(None)
    }

    /// Schedules the rule of an `allOf`: the common values of its lists if it has any, or else an
    /// object with all members that its parts name. A member is required if a part that is not an
    /// `anyOf` names it.
    fn all_of(
        &mut self,
        id: NodeId,
        name: &Name,
        rule: Name,
        parts: &[NodeId],
    ) -> Answer<Option<Name>> {
        let mut found = Found::default();
        for &part in parts {
            match self.nodes.get(part).clone() {
                Node::AnyOf(alternatives) => {
                    for &one in alternatives.iter() {
                        self.find(one, false, &mut found)?;
                    }
                }
                _ => self.find(part, true, &mut found)?,
            }
        }
        let values = found.values.iter().filter(|(_, n)| **n == parts.len());
        let values: Vec<Sequence> = values
            .map(|(text, _)| self.output.raw(text))
            .collect::<Answer<_>>()?;
        if !values.is_empty() {
            return self.named(&rule, values).map(Some);
        }
        let required = found.required;
        let members = found.members.into_iter();
        let members = members.map(|(name, node)| {
            let is_required = required.contains(&name);
            (name, node, is_required)
        });
        let members: Vec<(Rc<str>, NodeId, bool)> = members.collect();
        self.members(id, name, rule, &members, None)
    }

    /// Adds the members that a part of `allOf` names, or the values that it lists.
    fn find(&mut self, part: NodeId, is_required: bool, found: &mut Found) -> Answer<()> {
        let mut part = part;
        for _ in 0..=self.nodes.n_targets() {
            spend(&self.work, 1)?;
            match self.nodes.get(part).clone() {
                Node::Reference(reference) => match self.nodes.target(&reference) {
                    Some(target) => part = target,
                    None => break,
                },
                Node::Object { members, .. } => {
                    spend(&self.work, members.len())?;
                    for (name, node, _) in members.iter() {
                        found.members.push((Rc::clone(name), *node));
                        if is_required {
                            found.required.insert(Rc::clone(name));
                        }
                    }
                    return Ok(());
                }
                Node::Enum(values) => {
                    for &value in values.iter() {
                        let Some(text) = text_of(self.document, value) else {
                            return self.refused("allOf", "a number is beyond 64 bits");
                        };
                        spend(&self.work, text.len())?;
                        *found.values.entry(text).or_default() += 1;
                    }
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
        self.refused("allOf", "a reference leads back to itself")
    }

    /// Writes the rule of an unnamed member. Returns its name.
    fn others(&mut self, name: &Name, members: &Members) -> Answer<Name> {
        let value = self.last(1);
        let key = match members.named.is_empty() {
            true => self.primitive("string")?,
            false => {
                let key = self.other_names(members)?;
                self.named(&joined(name, "k"), vec![key])?
            }
        };
        let key = self.rule(&key);
        let colon = self.output.raw(":")?;
        let member = [&[key], &*colon, &[self.space], &value].concat();
        self.named(&joined(name, "kv"), vec![member])
    }

    /// Returns the elements for a name, in quotation marks, that no member has. As in llama.cpp,
    /// nonempty proper prefixes of the members' names are left out, and the first character that
    /// differs from these names may be anything but a quotation mark, even a character that must be
    /// escaped. Names with `^` or `-` are treated as llama.cpp's classes happen to treat them: see
    /// below, and [`Branches::others`].
    fn other_names(&mut self, members: &Members) -> Answer<Sequence> {
        let n_bytes: usize = members.named.iter().map(|(name, _)| name.len()).sum();
        self.output.room_for(n_bytes)?;
        let mut tree = vec![Branches::default()];
        for (name, _) in &members.named {
            self.check_name(name)?;
            let mut at = 0;
            for character in name.chars() {
                let next = tree.len();
                let branch = &mut tree[at];
                at = *branch.next.entry(character).or_insert(next);
                if at == next {
                    tree.push(Branches::default());
                }
            }
            tree[at].is_name = true;
        }
        let may_be_empty = !tree[0].is_name;
        let character = self.primitive("char")?;
        let character = self.rule(&character);
        let more = self.times(vec![character], 0, None)?;
        let some = self.times(vec![character], 1, None)?;
        // From the leaves to the root, since the children of a branch have higher numbers.
        let mut contents: Vec<Sequence> = vec![Vec::new(); tree.len()];
        for (at, branch) in tree.iter().enumerate().rev() {
            let mut alternatives = Vec::new();
            for (&character, &next) in &branch.next {
                // llama.cpp writes each character in brackets, where a lone "^" is not a character.
                let mut alternative = match character {
                    '^' => Vec::new(),
                    _ => self.output.raw(character.encode_utf8(&mut [0; 4]))?,
                };
                match tree[next].next.is_empty() {
                    true => alternative.extend_from_slice(&some),
                    false => alternative.append(&mut contents[next]),
                }
                alternatives.push(alternative);
            }
            if !branch.next.is_empty() {
                let mut others = self.bracketed(&branch.others())?;
                others.extend_from_slice(&more);
                alternatives.push(others);
                contents[at] = vec![self.group(alternatives)?];
            }
        }
        let mut content = contents.swap_remove(0);
        if may_be_empty {
            content = self.times(content, 0, Some(1))?;
        }
        self.output.quoted(content)
    }

    /// Refuses a name with a character that would end, or change, the class that llama.cpp's
    /// converter writes.
    fn check_name(&self, name: &str) -> Answer<()> {
        match name.contains(['\0', '\\', ']']) {
            false => Ok(()),
            true => self.refused(
                "additionalProperties",
                "llama.cpp's converter takes no other properties beside one with ']', '\\' or a \
                 zero in its name",
            ),
        }
    }

    /// Returns the elements for a class in brackets, read as in a grammar; none for empty brackets.
    pub(super) fn bracketed(&mut self, text: &str) -> Answer<Sequence> {
        match class_of(text.as_bytes()) {
            Ok(Some(class)) => Ok(vec![self.output.set(class)?]),
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(Refusal::whole(error)),
        }
    }

    /// Writes the rule of an object, after the rules of its members: the required members, then any
    /// of the other members.
    fn object(&mut self, rule: &Name, members: &Members) -> Answer<Name> {
        let n_others = usize::from(members.has_others);
        let made = self.last(members.named.len() + n_others);
        let names = members.named.iter().map(|(name, _)| &**name);
        let names = names.chain(members.has_others.then_some(OTHERS));
        // Members that share a name all get the rule of the last one.
        let by_name: HashMap<&str, Element> = names.zip(made).collect();
        let required: HashSet<&str> = members
            .named
            .iter()
            .filter(|(_, is_required)| *is_required)
            .map(|(name, _)| &**name)
            .collect();
        let (first, mut rest): (Vec<&str>, Vec<&str>) = members
            .named
            .iter()
            .map(|(name, _)| &**name)
            .partition(|name| required.contains(name));
        rest.extend(members.has_others.then_some(OTHERS));
        if first.is_empty() && rest.is_empty() {
            let (open, close) = (self.output.raw("{")?, self.output.raw("}")?);
            return self.named(rule, vec![[&*open, &[self.space], &*close].concat()]);
        }
        let space = self.space;
        let member = |name: &str| by_name.get(name).copied().unwrap_or(space);
        let mut content = Vec::new();
        for (i, name) in first.iter().enumerate() {
            if i > 0 {
                content.extend(self.comma()?);
            }
            content.push(member(name));
        }
        if !rest.is_empty() {
            let rest: Vec<(&str, Element)> =
                rest.iter().map(|name| (*name, member(name))).collect();
            let mut optional = self.optional(&members.whole, &rest)?;
            if !first.is_empty() {
                let begun = self.comma()?;
                optional = [&*begun, &optional].concat();
            }
            content.extend(self.times(optional, 0, Some(1))?);
        }
        let object = self.enclosed(["{", "}"], content)?;
        self.named(rule, vec![object])
    }

    /// Returns the elements for at least one of the optional members, in order. `whole` is the name
    /// of the object.
    fn optional(&mut self, whole: &Name, members: &[(&str, Element)]) -> Answer<Sequence> {
        let comma = self.comma()?;
        let mut behind: Sequence = Vec::new();
        let mut alternatives = Vec::new();
        for (i, &(name, member)) in members.iter().enumerate().rev() {
            let again = [&*comma, &[member]].concat();
            let (most, more) = match name == OTHERS {
                true => (None, self.times(again.clone(), 0, None)?),
                false => (Some(1), Vec::new()),
            };
            alternatives.push([&[member], &*more, &behind].concat());
            if let Some((before, _)) = i.checked_sub(1).and_then(|i| members.get(i)) {
                let content = [self.times(again, 0, most)?, behind].concat();
                let name = joined(whole, &format!("{before}-rest"));
                let rest = self.named(&name, vec![content])?;
                behind = vec![self.rule(&rest)];
            }
        }
        alternatives.reverse();
        Ok(vec![self.group(alternatives)?])
    }

    /// Returns a reference to a rule without a name. Equal alternatives share a rule.
    pub(super) fn group(&mut self, alternatives: Vec<Sequence>) -> Answer<Element> {
        if let Some(&known) = self.groups.get(&alternatives) {
            return Ok(known);
        }
        let group = self.output.rule(alternatives.clone())?;
        if let Element::Rule(rule) = group {
            self.places.insert(rule, self.place);
        }
        self.groups.insert(alternatives, group);
        Ok(group)
    }

    /// Returns a repeated sequence in the form that llama.cpp gives it where this makes a
    /// difference: an optional sequence is a rule with an empty alternative.
    pub(super) fn times(&mut self, item: Sequence, min: u32, max: Option<u32>) -> Answer<Sequence> {
        let key = (item, min, max);
        if let Some(known) = self.repetitions.get(&key) {
            return Ok(known.clone());
        }
        let item = key.0.clone();
        let made = match (min, max) {
            (0, Some(1)) => vec![self.group(vec![item, Vec::new()])?],
            (1, None) => [item.clone(), self.times(item, 0, None)?].concat(),
            _ => self.output.times(item, min.into(), max.map(u64::from))?,
        };
        self.repetitions.insert(key, made.clone());
        Ok(made)
    }

    /// Returns a repeated sequence; `None` if the maximum is below the minimum and not 0.
    pub(super) fn counted(
        &mut self,
        item: Sequence,
        min: u32,
        max: Option<u32>,
    ) -> Answer<Option<Sequence>> {
        match max {
            Some(0) => Ok(Some(Vec::new())),
            Some(max) if max < min => Ok(None),
            _ => self.times(item, min, max).map(Some),
        }
    }

    /// Returns a sequence repeated with commas in between; once if the maximum is below the minimum
    /// and not 0.
    pub(super) fn separated(
        &mut self,
        item: Sequence,
        min: u32,
        max: Option<u32>,
    ) -> Answer<Sequence> {
        match (min, max) {
            (_, Some(0)) => return Ok(Vec::new()),
            (0, Some(1)) => return self.times(item, 0, max),
            _ => {}
        }
        let again = [&*self.comma()?, &item].concat();
        let (fewer, less) = (min.saturating_sub(1), max.map(|max| max - 1));
        let more = self.counted(again, fewer, less)?.unwrap_or_default();
        let all = [item, more].concat();
        match min {
            0 => self.times(all, 0, Some(1)),
            _ => Ok(all),
        }
    }

    fn comma(&mut self) -> Answer<Sequence> {
        let comma = self.output.raw(",")?;
        Ok([&*comma, &[self.space]].concat())
    }

    pub(super) fn enclosed(&mut self, brackets: [&str; 2], content: Sequence) -> Answer<Sequence> {
        let (open, close) = (self.output.raw(brackets[0])?, self.output.raw(brackets[1])?);
        let space = [self.space];
        Ok([&*open, &space, &*content, &space, &*close].concat())
    }
}

/// A node of a trie of names: the characters that come next after a common prefix.
#[derive(Default)]
struct Branches {
    next: BTreeMap<char, usize>,
    /// True if a name ends at this node.
    is_name: bool,
}

impl Branches {
    /// Returns the class of all other characters, in brackets as llama.cpp's converter writes them:
    /// a dash between two characters then makes a range.
    fn others(&self) -> String {
        let mut text = String::from("[^\"");
        text.extend(self.next.keys());
        text.push(']');
        text
    }
}
