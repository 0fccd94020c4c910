//! Reads the keywords of a schema that llama.cpp's converter uses, in its order of precedence.
//!
//! Only the first of these that is present counts: `$ref`; `oneOf`; `anyOf`; a list of types, each
//! an alternative; `const`; `enum`; the keywords of the type. Without a type, the first of these
//! counts: `properties` and `additionalProperties`; `allOf`; `items` and `prefixItems`; `pattern`,
//! lengths and `format`. All other keywords are ignored.

// In bounds: numbers of nodes are positions in a list that only grows.

use std::rc::Rc;

use llama_sieve_kernels::random::{HashMap, HashSet};

use super::literal::{Number, number};
use super::{refusal, spend};
use crate::grammar::schema::reader::{Document, Json, JsonId};
use crate::grammar::schema::refusal::Answer;
use crate::grammar::schema::work::Work;
use crate::quoted::quoted;

/// The id of a node.
pub type NodeId = u32;

/// The part of a schema that llama.cpp's converter uses.
#[derive(Clone, Debug)]
pub enum Node {
    /// Any value.
    Any,
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A number.
    Number,
    /// An integer between bounds, inclusive.
    Integer(Option<i64>, Option<i64>),
    /// A string.
    Text(Text),
    /// Only this value.
    Const(JsonId),
    /// One of these values.
    Enum(Rc<[JsonId]>),
    /// An array of elements of one kind.
    Array {
        /// The node of the elements.
        items: NodeId,
        /// The minimum number of elements.
        min: u32,
        /// The maximum number of elements.
        max: Option<u32>,
    },
    /// An array of these elements.
    Tuple(Rc<[NodeId]>),
    /// An object.
    Object {
        /// The named members, with true for those that are required.
        members: Rc<[(Rc<str>, NodeId, bool)]>,
        /// The other members, if allowed.
        others: Option<NodeId>,
    },
    /// A reference.
    Reference(Rc<str>),
    /// A value that satisfies at least one of these nodes.
    AnyOf(Rc<[NodeId]>),
    /// An object with the members of all of these nodes, or their common values.
    AllOf(Rc<[NodeId]>),
}

/// The keywords for strings that llama.cpp's converter uses.
#[derive(Clone, Debug)]
pub struct Text {
    /// A regular expression.
    pub pattern: Option<Rc<str>>,
    /// The rule of a format.
    pub format: Option<&'static str>,
    /// The minimum number of characters.
    pub min: u32,
    /// The maximum number of characters.
    pub max: Option<u32>,
}

/// The nodes of a schema.
#[derive(Debug, Default)]
pub struct Nodes {
    all: Vec<Node>,
    places: Vec<JsonId>,
    targets: HashMap<Rc<str>, NodeId>,
    /// The root node.
    pub root: NodeId,
}

impl Nodes {
    /// Reads a schema and the targets of its references.
    pub fn read(document: &Document, work: &Work) -> Answer<Self> {
        let mut reading = Reading {
            document,
            work,
            nodes: Self::default(),
            to_do: Vec::new(),
        };
        reading.nodes.root = reading.node(document.root, "", None)?;
        while let Some((reference, target)) = reading.to_do.pop() {
            let node = reading.node(target, "$ref", None)?;
            reading.nodes.targets.insert(reference, node);
        }
        Ok(reading.nodes)
    }

    /// Returns a node.
    pub fn get(&self, id: NodeId) -> &Node {
        &self.all[id as usize]
    }

    /// Returns the schema of a node.
    pub fn place(&self, id: NodeId) -> JsonId {
        self.places[id as usize]
    }

    /// Returns the target of a reference.
    pub fn target(&self, reference: &str) -> Option<NodeId> {
        self.targets.get(reference).copied()
    }

    /// Returns the number of different references.
    pub fn n_targets(&self) -> usize {
        self.targets.len()
    }
}

struct Reading<'a> {
    document: &'a Document,
    work: &'a Work,
    nodes: Nodes,
    /// References whose target must still be read.
    to_do: Vec<(Rc<str>, JsonId)>,
}

/// A schema being read: the value, and the type that replaces its own.
#[derive(Clone, Copy)]
struct Schema {
    id: JsonId,
    of_type: Option<JsonId>,
}

impl Reading<'_> {
    /// Reads the schema `id`, the value of the keyword `of`, with its type replaced if `of_type` is
    /// given.
    fn node(&mut self, id: JsonId, of: &str, of_type: Option<JsonId>) -> Answer<NodeId> {
        const COST: usize = 32;
        spend(self.work, COST + self.document.members(id).len())?;
        if !matches!(self.document.get(id), Json::Object(_)) {
            let why = "llama.cpp's converter takes no schema but an object";
            return Err(refusal(self.document, id, of, why));
        }
        let schema = Schema {
            id,
            of_type: of_type.or_else(|| self.document.member(id, "type")),
        };
        let node = self.read(schema)?;
        Ok(self.add(node, id))
    }

    fn add(&mut self, node: Node, place: JsonId) -> NodeId {
        self.nodes.all.push(node);
        self.nodes.places.push(place);
        self.nodes.all.len() as NodeId - 1
    }

    fn read(&mut self, schema: Schema) -> Answer<Node> {
        let document = self.document;
        let has = |keyword| document.member(schema.id, keyword);
        if let Some(reference) = has("$ref") {
            return self.reference(schema, reference);
        }
        if has("oneOf").is_some() || has("anyOf").is_some() {
            let keyword = if has("oneOf").is_some() {
                "oneOf"
            } else {
                "anyOf"
            };
            return Ok(Node::AnyOf(self.alternatives(schema, keyword)?));
        }
        let type_name = match schema.of_type.map(|id| self.document.get(id).clone()) {
            Some(Json::Array(types)) => return self.types(schema, &types),
            Some(Json::String(name)) => Some(name),
            None | Some(Json::Null) => None,
            Some(_) if has("const").is_some() || has("enum").is_some() => None,
            Some(_) => {
                return self.refused(schema, "type", "expected a string, or a list of strings");
            }
        };
        if let Some(value) = has("const") {
            return Ok(Node::Const(value));
        }
        if let Some(values) = has("enum") {
            return match self.document.get(values) {
                Json::Array(values) if !values.is_empty() => Ok(Node::Enum(Rc::clone(values))),
                _ => self.refused(schema, "enum", "expected a list of at least one value"),
            };
        }
        match type_name.as_deref() {
            None | Some("") => self.without_type(schema),
            Some(name) => self.of_type(schema, name),
        }
    }

    fn refused<T>(&self, schema: Schema, keyword: &str, why: &str) -> Answer<T> {
        Err(refusal(self.document, schema.id, keyword, why))
    }

    fn reference(&mut self, schema: Schema, reference: JsonId) -> Answer<Node> {
        let Json::String(reference) = self.document.get(reference) else {
            return self.refused(schema, "$ref", "expected a string");
        };
        let reference = Rc::clone(reference);
        if !reference.starts_with("#/") {
            let why = "llama.cpp's converter follows references that begin with \"#/\" alone";
            return self.refused(schema, "$ref", why);
        }
        if !self.nodes.targets.contains_key(&reference) {
            let Some(target) = self.resolved(&reference) else {
                let why = format!(
                    "\"{}\" leads nowhere; llama.cpp's converter reads each step as it is, without \
                     escapes",
                    quoted(&*reference)
                );
                return self.refused(schema, "$ref", &why);
            };
            // Marks the target as read, so that it is read only once. The placeholder is replaced
            // before it is used.
            self.nodes.targets.insert(Rc::clone(&reference), 0);
            self.to_do.push((Rc::clone(&reference), target));
        }
        Ok(Node::Reference(reference))
    }

    fn resolved(&self, reference: &str) -> Option<JsonId> {
        let mut at = self.document.root;
        for step in reference.split('/').skip(1) {
            at = match self.document.get(at) {
                Json::Array(elements) => *elements.get(step.parse::<usize>().ok()?)?,
                _ => self.document.member(at, step)?,
            };
        }
        Some(at)
    }

    fn list(&self, schema: Schema, keyword: &str) -> Answer<Rc<[JsonId]>> {
        let list = self.document.member(schema.id, keyword);
        match list.map(|list| self.document.get(list)) {
            Some(Json::Array(all)) if !all.is_empty() => Ok(Rc::clone(all)),
            _ => self.refused(schema, keyword, "expected a list of at least one schema"),
        }
    }

    fn alternatives(&mut self, schema: Schema, keyword: &str) -> Answer<Rc<[NodeId]>> {
        let all = self.list(schema, keyword)?;
        all.iter()
            .map(|&one| self.node(one, keyword, None))
            .collect()
    }

    /// Reads a schema with a list of types as alternatives, one for each type, with all other
    /// keywords.
    fn types(&mut self, schema: Schema, types: &[JsonId]) -> Answer<Node> {
        if types.is_empty() {
            return self.refused(schema, "type", "expected at least one type");
        }
        let each = types.iter();
        let each = each.map(|&one| self.node(schema.id, "type", Some(one)));
        Ok(Node::AnyOf(each.collect::<Answer<_>>()?))
    }

    /// True if a schema without a type is read as the schema of an object.
    fn has_members(&self, schema: Schema) -> bool {
        let others = self.document.member(schema.id, "additionalProperties");
        let are_any = |id| matches!(self.document.get(id), Json::Bool(true));
        self.document.member(schema.id, "properties").is_some()
            || others.is_some_and(|others| !are_any(others))
    }

    fn without_type(&mut self, schema: Schema) -> Answer<Node> {
        let document = self.document;
        let has = |keyword| document.member(schema.id, keyword).is_some();
        if self.has_members(schema) {
            return self.object(schema);
        }
        if has("allOf") {
            return Ok(Node::AllOf(self.alternatives(schema, "allOf")?));
        }
        if has("items") || has("prefixItems") {
            return self.array(schema);
        }
        let is_text = ["pattern", "minLength", "maxLength"].into_iter().any(has);
        if is_text || self.format(schema)?.is_some() {
            return self.text(schema);
        }
        Ok(Node::Any)
    }

    fn of_type(&mut self, schema: Schema, name: &str) -> Answer<Node> {
        let has_all_of = self.document.member(schema.id, "allOf").is_some();
        match name {
            "object" if has_all_of && !self.has_members(schema) => {
                Ok(Node::AllOf(self.alternatives(schema, "allOf")?))
            }
            "string" if has_all_of => Ok(Node::AllOf(self.alternatives(schema, "allOf")?)),
            "object" => self.object(schema),
            "string" => self.text(schema),
            "array" => self.array(schema),
            "integer" => self.integer(schema),
            "number" => Ok(Node::Number),
            "boolean" => Ok(Node::Boolean),
            "null" => Ok(Node::Null),
            _ => {
                let why = format!("\"{}\" is no type", quoted(name));
                self.refused(schema, "type", &why)
            }
        }
    }

    fn object(&mut self, schema: Schema) -> Answer<Node> {
        let document = self.document;
        let properties = document.member(schema.id, "properties");
        let mut members = Vec::new();
        if let Some(properties) = properties {
            let Json::Object(all) = document.get(properties) else {
                return self.refused(schema, "properties", "expected an object");
            };
            let required = required(document, schema);
            for (name, value) in all.iter() {
                let node = self.node(*value, "properties", None)?;
                members.push((Rc::clone(name), node, required.contains(&**name)));
            }
        }
        let others = match document.member(schema.id, "additionalProperties") {
            Some(others) => match document.get(others) {
                Json::Bool(false) => None,
                Json::Bool(true) => Some(self.add(Node::Any, others)),
                Json::Object(_) => Some(self.node(others, "additionalProperties", None)?),
                _ => {
                    let why = "expected true, false or a schema";
                    return self.refused(schema, "additionalProperties", why);
                }
            },
            None if properties.is_none() => Some(self.add(Node::Any, schema.id)),
            None => None,
        };
        Ok(Node::Object {
            members: members.into(),
            others,
        })
    }

    fn array(&mut self, schema: Schema) -> Answer<Node> {
        let (keyword, items) = match self.document.member(schema.id, "items") {
            Some(items) => ("items", Some(items)),
            None => (
                "prefixItems",
                self.document.member(schema.id, "prefixItems"),
            ),
        };
        let items = match items {
            Some(items) => {
                if let Json::Array(all) = self.document.get(items) {
                    let all = Rc::clone(all);
                    let nodes = all.iter().map(|&one| self.node(one, keyword, None));
                    return Ok(Node::Tuple(nodes.collect::<Answer<_>>()?));
                }
                self.node(items, keyword, None)?
            }
            None => self.add(Node::Any, schema.id),
        };
        Ok(Node::Array {
            items,
            min: self.count(schema, "minItems")?.unwrap_or(0),
            max: self.most(schema, "maxItems")?,
        })
    }

    fn text(&mut self, schema: Schema) -> Answer<Node> {
        let pattern = self.document.member(schema.id, "pattern");
        let pattern = match pattern.map(|pattern| self.document.get(pattern)) {
            None => None,
            Some(Json::String(pattern)) => Some(Rc::clone(pattern)),
            Some(_) => return self.refused(schema, "pattern", "expected a string"),
        };
        Ok(Node::Text(Text {
            pattern: pattern.filter(|pattern| !pattern.is_empty()),
            format: self.format(schema)?,
            min: self.count(schema, "minLength")?.unwrap_or(0),
            max: self.most(schema, "maxLength")?,
        }))
    }

    /// Returns the name of a format's rule; `None` if llama.cpp's converter ignores the format.
    fn format(&self, schema: Schema) -> Answer<Option<&'static str>> {
        let format = self.document.member(schema.id, "format");
        let format = match format.map(|format| self.document.get(format)) {
            None => return Ok(None),
            Some(Json::String(format)) => format,
            Some(_) => return self.refused(schema, "format", "expected a string"),
        };
        Ok(match &**format {
            "date" => Some("date-string"),
            "time" => Some("time-string"),
            "date-time" => Some("date-time-string"),
            "uuid" | "uuid1" | "uuid2" | "uuid3" | "uuid4" | "uuid5" => Some("uuid"),
            _ => None,
        })
    }

    /// Reads a number of characters or elements, truncated to 32 bits.
    fn count(&self, schema: Schema, keyword: &str) -> Answer<Option<u32>> {
        let count = self.document.member(schema.id, keyword);
        let count = match count.map(|count| self.document.get(count)) {
            None => return Ok(None),
            Some(Json::Number(_, text)) => number(text),
            Some(_) => None,
        };
        match count {
            Some(Number::Integer(count)) if count as i32 >= 0 => Ok(Some(count as u32)),
            _ => self.refused(schema, keyword, "expected an integer of 31 bits, 0 or more"),
        }
    }

    /// Reads a maximum; `None` for the largest signed 32-bit number, which means no maximum.
    fn most(&self, schema: Schema, keyword: &str) -> Answer<Option<u32>> {
        let most = self.count(schema, keyword)?;
        Ok(most.filter(|&most| most < i32::MAX as u32))
    }

    fn integer(&mut self, schema: Schema) -> Answer<Node> {
        let min = match self.bound(schema, "minimum", f64::ceil, 0)? {
            None => self.bound(schema, "exclusiveMinimum", f64::floor, 1)?,
            min => min,
        };
        let max = match self.bound(schema, "maximum", f64::floor, 0)? {
            None => self.bound(schema, "exclusiveMaximum", f64::ceil, -1)?,
            max => max,
        };
        let (min, max) = (
            min.filter(|&min| min > i64::MIN),
            max.filter(|&max| max < i64::MAX),
        );
        if min.zip(max).is_some_and(|(min, max)| min > max) {
            let keyword = match self.document.member(schema.id, "maximum") {
                Some(_) => "maximum",
                None => "exclusiveMaximum",
            };
            return self.refused(schema, keyword, "no integer is between the bounds");
        }
        Ok(Node::Integer(min, max))
    }

    /// Reads a bound, rounds it with `rounded`, and adds `by`.
    fn bound(
        &self,
        schema: Schema,
        keyword: &str,
        rounded: impl Fn(f64) -> f64,
        by: i64,
    ) -> Answer<Option<i64>> {
        let bound = self.document.member(schema.id, keyword);
        let bound = match bound.map(|bound| self.document.get(bound)) {
            None => return Ok(None),
            Some(Json::Number(_, text)) => number(text),
            Some(_) => return self.refused(schema, keyword, "expected a number"),
        };
        let whole = match bound {
            Some(Number::Integer(integer)) => i64::try_from(integer).ok(),
            // Both ends of the range are exact as floats: the smallest 64-bit integer, and the
            // largest plus 1.
            Some(Number::Float(float))
                if (-2_f64.powi(63)..2_f64.powi(63)).contains(&rounded(float)) =>
            {
                Some(rounded(float) as i64)
            }
            _ => None,
        };
        match whole.and_then(|whole| whole.checked_add(by)) {
            Some(whole) => Ok(Some(whole)),
            None => self.refused(
                schema,
                keyword,
                "the bound is beyond 64 bits; llama.cpp's converter makes another number of it",
            ),
        }
    }
}

/// Returns the names in `required`. Values that are not strings are ignored.
fn required(document: &Document, schema: Schema) -> HashSet<&str> {
    let names = document.member(schema.id, "required");
    let Some(Json::Array(names)) = names.map(|names| document.get(names)) else {
        return HashSet::default();
    };
    let name = |&name: &JsonId| match document.get(name) {
        Json::String(name) => Some(&**name),
        _ => None,
    };
    names.iter().filter_map(name).collect()
}
