//! Determines the values that each keyword allows.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use llama_sieve_kernels::random::{HashMap, HashSet};

use crate::grammar::limits::{MAX_SCHEMA_CHAIN, MAX_SCHEMA_COMBINATIONS};
use crate::grammar::schema::decimal::Decimal;
use crate::grammar::schema::ecma::found_in;
use crate::grammar::schema::formats::automata_of;
use crate::grammar::schema::reader::{Json, JsonId, Members};
use crate::grammar::schema::references::Draft;
use crate::grammar::schema::refusal::{Answer, Refusal};
use crate::grammar::schema::shape::{
    ANY, Arrays, Bound, Compiler, Contains, Expr, ExprId, LangId, NEVER, Numbers, Objects, Rest,
    Scalar, Shape, Source, Strings, shape_of_scalar,
};
use crate::quoted::quoted;

/// The keywords that can add named members to the objects of a schema. If a schema has several of
/// them, the members are put in the order of the keywords in the text.
const NARROWING: [&str; 6] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "oneOf",
];

/// The members and elements that a schema and its in-place subschemas have evaluated, in the sense
/// of `unevaluatedProperties` and `unevaluatedItems`.
#[derive(Debug, Default)]
struct Evaluated {
    names: Vec<Rc<str>>,
    patterns: Vec<Rc<str>>,
    all_members: bool,
    n_elements: usize,
    all_elements: bool,
    /// True if the set of evaluated elements depends on the value.
    some_elements: bool,
}

impl Evaluated {
    fn is_nothing(&self) -> bool {
        self.names.is_empty()
            && self.patterns.is_empty()
            && !self.all_members
            && self.n_elements == 0
            && !self.all_elements
            && !self.some_elements
    }
}

impl Compiler {
    /// Records that the shape of an expression is being computed. Refuses a cycle, a chain that is
    /// too long, and too many expressions.
    pub(super) fn enter(&mut self, id: ExprId) -> Answer<()> {
        let at = self.place_of(id);
        if self.open.contains(&id) {
            let why = "the schema refers to itself for the same value; break the circle";
            return Err(self.refusal(at, "$ref", why));
        }
        if self.open.len() >= MAX_SCHEMA_CHAIN {
            return Err(self.refusal(
                at,
                "$ref",
                format!(
                    "more than LLAMA_SIEVE_JSON_MAX_CHAIN, {MAX_SCHEMA_CHAIN}, schemas follow each \
                     other for one value"
                ),
            ));
        }
        self.check_combinations(at)?;
        self.open.push(id);
        Ok(())
    }

    /// Returns an error if there are too many expressions.
    pub(super) fn check_combinations(&self, at: JsonId) -> Answer<()> {
        if !self.has_too_many() {
            return Ok(());
        }
        Err(self.refusal(
            at,
            "allOf",
            format!(
                "the subschemas have more combinations than LLAMA_SIEVE_JSON_MAX_COMBINATIONS, \
                 {MAX_SCHEMA_COMBINATIONS}"
            ),
        ))
    }

    /// Returns the shape that contains only the value `id` of the text.
    pub(super) fn shape_of_value(&mut self, id: JsonId) -> Shape {
        match self.document.get(id).clone() {
            Json::Null => shape_of_scalar(&Scalar::Null),
            Json::Bool(value) => shape_of_scalar(&Scalar::Bool(value)),
            Json::Number(number, _) => shape_of_scalar(&Scalar::Number(number)),
            Json::String(text) => shape_of_scalar(&Scalar::String(text)),
            Json::Array(elements) => Shape {
                arrays: vec![Arrays {
                    prefix: elements
                        .iter()
                        .map(|&element| self.value(element))
                        .collect(),
                    rest: NEVER,
                    min: elements.len() as u64,
                    max: Some(elements.len() as u64),
                    ..Arrays::default()
                }],
                ..Shape::default()
            },
            Json::Object(members) => {
                let named = members
                    .iter()
                    .map(|(name, value)| (Rc::clone(name), self.value(*value)));
                Shape {
                    objects: vec![Objects {
                        named: named.collect(),
                        required: members.iter().map(|(name, _)| Rc::clone(name)).collect(),
                        rests: vec![Rest {
                            patterns: Vec::new(),
                            others: NEVER,
                        }],
                        at: Some(id),
                        ..Objects::default()
                    }],
                    ..Shape::default()
                }
            }
        }
    }

    /// Returns the value of a keyword; `None` if the keyword is absent or was left out, or if the
    /// draft ignores it.
    fn member(&self, at: JsonId, keyword: &str) -> Option<JsonId> {
        let ignored = self.ignored.get(&at);
        if ignored.is_some_and(|all| all.iter().any(|ignored| ignored == keyword)) {
            return None;
        }
        self.references.keyword(&self.document, at, keyword)
    }

    fn text(&self, id: JsonId) -> Option<Rc<str>> {
        match self.document.get(id) {
            Json::String(text) => Some(Rc::clone(text)),
            _ => None,
        }
    }

    fn expected(&self, at: JsonId, keyword: &str, what: &str) -> Refusal {
        self.refusal(at, keyword, format!("expected {what}"))
    }

    /// Returns the value of a keyword that must be a count.
    fn count(&self, at: JsonId, keyword: &str) -> Answer<Option<u64>> {
        let Some(id) = self.member(at, keyword) else {
            return Ok(None);
        };
        match self.document.get(id) {
            Json::Number(number, _) if number.is_integer() && !number.is_negative() => {
                // A count that no text reaches.
                Ok(Some(number.to_u64().unwrap_or(u64::MAX / 4)))
            }
            _ => Err(self.expected(at, keyword, "a whole number of at least 0")),
        }
    }

    fn number_of(&self, at: JsonId, keyword: &str) -> Answer<Option<Decimal>> {
        let Some(id) = self.member(at, keyword) else {
            return Ok(None);
        };
        match self.document.get(id) {
            Json::Number(number, _) => Ok(Some(number.clone())),
            _ => Err(self.expected(at, keyword, "a number")),
        }
    }

    fn list(&self, at: JsonId, keyword: &str) -> Answer<Option<Rc<[JsonId]>>> {
        let Some(id) = self.member(at, keyword) else {
            return Ok(None);
        };
        match self.document.get(id) {
            Json::Array(all) => Ok(Some(Rc::clone(all))),
            _ => Err(self.expected(at, keyword, "an array")),
        }
    }

    fn map(&self, at: JsonId, keyword: &str) -> Answer<Members> {
        let Some(id) = self.member(at, keyword) else {
            return Ok(Rc::new([]));
        };
        match self.document.get(id) {
            Json::Object(all) => Ok(Rc::clone(all)),
            _ => Err(self.expected(at, keyword, "an object")),
        }
    }

    fn sub(&mut self, at: JsonId, keyword: &str) -> Answer<Option<ExprId>> {
        let Some(id) = self.member(at, keyword) else {
            return Ok(None);
        };
        self.checked(at, keyword, id).map(Some)
    }

    /// Returns the expression of the schema `id`. Refuses a value that is not a schema.
    fn checked(&mut self, at: JsonId, keyword: &str, id: JsonId) -> Answer<ExprId> {
        match self.document.get(id) {
            Json::Bool(_) | Json::Object(_) => Ok(self.schema(id)),
            _ => Err(self.expected(at, keyword, "a schema: an object, true or false")),
        }
    }

    fn is_before(&self, draft: Draft) -> bool {
        self.references.are_before(draft)
    }

    /// Returns the value of "const", which is the only value that the schema can allow; `None` if
    /// the schema has no "const", or has "$ref".
    fn constant(&self, id: ExprId) -> Option<&Json> {
        let Expr::Schema(at) = *self.expr(id) else {
            return None;
        };
        if self.member(at, "$ref").is_some() {
            return None;
        }
        let value = self.member(at, "const")?;
        Some(self.document.get(value))
    }

    /// True if each of two schemas allows at most one value, and these are different scalars, or of
    /// different types, as is common in alternatives.
    pub(super) fn are_different_constants(&self, a: ExprId, b: ExprId) -> bool {
        match (self.constant(a), self.constant(b)) {
            (None, _) | (_, None) => false,
            (Some(Json::Number(a, _)), Some(Json::Number(b, _))) => a != b,
            (Some(Json::String(a)), Some(Json::String(b))) => a != b,
            (Some(Json::Bool(a)), Some(Json::Bool(b))) => a != b,
            (Some(a), Some(b)) => mem::discriminant(a) != mem::discriminant(b),
        }
    }

    /// True if a schema allows at most one value, and `others` allows all values except a different
    /// one.
    pub(super) fn is_another_constant(&self, id: ExprId, others: ExprId) -> bool {
        match *self.expr(others) {
            Expr::Minus(ANY, without) => self.are_different_constants(id, without),
            _ => false,
        }
    }

    /// Returns the shape of the schema `at`.
    pub(super) fn shape_of_schema(&mut self, at: JsonId) -> Answer<Shape> {
        match self.document.get(at) {
            Json::Bool(true) => return Ok(Shape::any()),
            Json::Bool(false) => return Ok(Shape::default()),
            Json::Object(_) => {}
            _ => {
                let Some((place, step)) = self.document.parent(at) else {
                    return Err(Refusal::whole("it must be an object, true or false"));
                };
                let step = step.to_owned();
                return Err(self.expected(place, &step, "a schema: an object, true or false"));
            }
        }
        type Keyword = fn(&mut Compiler, JsonId, &Shape) -> Answer<Option<Shape>>;
        const IN_PLACE: [(&str, Keyword); 11] = [
            ("$ref", Compiler::reference),
            ("$dynamicRef", Compiler::dynamic_reference),
            ("$recursiveRef", Compiler::recursive_reference),
            ("allOf", Compiler::all),
            ("anyOf", Compiler::any),
            ("dependentRequired", Compiler::dependent_required),
            ("dependentSchemas", Compiler::dependent_schemas),
            ("dependencies", Compiler::dependencies),
            ("not", Compiler::not),
            ("oneOf", Compiler::one),
            ("if", Compiler::conditional),
        ];
        let is_reference_alone = self.is_before(Draft::Of2019) && self.member(at, "$ref").is_some();
        let mut shape = match is_reference_alone {
            true => Shape::any(),
            false => self.by_types(at)?,
        };
        for (keyword, values) in IN_PLACE {
            if self.member(at, keyword).is_none() {
                continue;
            }
            match values(self, at, &shape) {
                Ok(Some(narrower)) => shape = narrower,
                Ok(None) => {}
                Err(refusal) => self.leave_out(refusal)?,
            }
        }
        self.put_in_order(at, &mut shape);
        Ok(shape)
    }

    /// Returns the result of `read` on a schema. If the options allow it, a keyword that `read`
    /// refuses is left out, and the others are read.
    fn read<T: Default>(
        &mut self,
        at: JsonId,
        read: impl Fn(&mut Self, JsonId) -> Answer<T>,
    ) -> Answer<T> {
        loop {
            let refusal = match read(self, at) {
                Ok(value) => return Ok(value),
                Err(refusal) => refusal,
            };
            let keyword = refusal.keyword.clone();
            self.leave_out(refusal)?;
            if self.member(at, &keyword).is_none() {
                return Ok(T::default());
            }
            self.ignored.entry(at).or_default().push(keyword);
        }
    }

    fn lenient<T>(&mut self, answer: Answer<T>, otherwise: T) -> Answer<T> {
        match answer {
            Ok(value) => Ok(value),
            Err(refusal) => {
                self.leave_out(refusal)?;
                Ok(otherwise)
            }
        }
    }

    /// Returns the values that `type`, `enum`, `const` and the keywords for single types allow.
    fn by_types(&mut self, at: JsonId) -> Answer<Shape> {
        let numbers = self.read(at, Self::numbers)?;
        let strings = self.read(at, Self::strings)?;
        let arrays = self.read(at, Self::arrays)?;
        let objects = self.read(at, Self::objects)?;
        fn among<T>(types: &[T], one: T) -> Vec<T> {
            match types.is_empty() {
                true => Vec::new(),
                false => vec![one],
            }
        }
        let types = self.types(at)?.unwrap_or_else(Shape::any);
        let shape = Shape {
            null: true,
            no: true,
            yes: true,
            numbers: among(&types.numbers, numbers),
            strings: among(&types.strings, strings),
            arrays: among(&types.arrays, arrays),
            objects: among(&types.objects, objects),
        };
        // Done even without a type: `and` drops the types whose bounds contradict each other.
        let mut shape = self.and(&shape, &types)?;
        if let Some(values) = self.list(at, "enum")? {
            let mut all = Shape::default();
            for &value in values.iter() {
                let value = self.shape_of_value(value);
                self.spend(8 * (1 + all.n_ways()))?;
                all.add(value);
                self.check_ways(&all, "enum")?;
            }
            shape = self.and(&shape, &all)?;
        }
        if let Some(value) = self.member(at, "const") {
            let value = self.shape_of_value(value);
            shape = self.and(&shape, &value)?;
        }
        Ok(shape)
    }

    fn types(&self, at: JsonId) -> Answer<Option<Shape>> {
        let Some(id) = self.member(at, "type") else {
            return Ok(None);
        };
        let names = match self.document.get(id) {
            Json::String(_) => vec![id],
            Json::Array(all) => all.to_vec(),
            _ => return Err(self.expected(at, "type", "a name, or an array of names")),
        };
        let mut shape = Shape::default();
        for name in names {
            let name = self.text(name).unwrap_or_else(|| "".into());
            match &*name {
                "null" => shape.null = true,
                "boolean" => (shape.no, shape.yes) = (true, true),
                "integer" => shape.numbers.push(Numbers {
                    integer: Some(true),
                    ..Numbers::default()
                }),
                "number" => shape.numbers = vec![Numbers::default()],
                "string" => shape.strings = vec![Strings::default()],
                "array" => shape.arrays = vec![Arrays::default()],
                "object" => shape.objects = vec![Objects::default()],
                other => {
                    return Err(self.refusal(
                        at,
                        "type",
                        format!("\"{}\" is no type of JSON Schema", quoted(other)),
                    ));
                }
            }
        }
        if shape
            .numbers
            .iter()
            .any(|numbers| numbers.integer.is_none())
        {
            shape.numbers = vec![Numbers::default()];
        }
        Ok(Some(shape))
    }

    fn numbers(&mut self, at: JsonId) -> Answer<Numbers> {
        let bound = |keyword: &str, exclusive: &str| -> Answer<Bound> {
            let bound = self.number_of(at, keyword)?.map(|number| (number, false));
            let Some(id) = self.member(at, exclusive) else {
                return Ok(bound);
            };
            match self.document.get(id) {
                Json::Bool(is_outside)
                    if !self.references.is_said || self.references.draft == Draft::Four =>
                {
                    Ok(bound.map(|(number, _)| (number, *is_outside)))
                }
                Json::Number(number, _) if !self.is_before(Draft::Six) => {
                    let other = (number.clone(), true);
                    let is_lower = keyword == "minimum";
                    Ok(Some(match bound {
                        None => other,
                        Some(bound) if bound.0 == other.0 => other,
                        Some(bound) if (bound.0 > other.0) == is_lower => bound,
                        Some(_) => other,
                    }))
                }
                _ => Err(self.expected(at, exclusive, "a number")),
            }
        };
        let min = bound("minimum", "exclusiveMinimum")?;
        let max = bound("maximum", "exclusiveMaximum")?;
        let mut multiples = Vec::new();
        if let Some(number) = self.number_of(at, "multipleOf")? {
            if number <= Decimal::zero() {
                return Err(self.expected(at, "multipleOf", "a number above 0"));
            }
            multiples.push(number);
        }
        Ok(Numbers {
            min,
            max,
            multiples,
            ..Numbers::default()
        })
    }

    fn strings(&mut self, at: JsonId) -> Answer<Strings> {
        let (min, max) = (self.count(at, "minLength")?, self.count(at, "maxLength")?);
        let mut langs = Vec::new();
        for keyword in ["pattern", "format"] {
            let Some(id) = self.member(at, keyword) else {
                continue;
            };
            let lang = match self.text(id) {
                None => Err(self.expected(at, keyword, "a string")),
                Some(text) if keyword == "pattern" => self.pattern(at, keyword, &text).map(Some),
                Some(text) => self.format(at, &text),
            };
            if let Some(lang) = self.lenient(lang, None)? {
                langs.push((lang, true));
            }
        }
        Ok(Strings {
            min: min.unwrap_or(0),
            max,
            langs,
            ..Strings::default()
        })
    }

    fn pattern(&mut self, at: JsonId, keyword: &str, pattern: &str) -> Answer<LangId> {
        let lang = self.lang(format!("pattern {pattern}"), |work| {
            found_in(pattern, work).map(Arc::new)
        });
        self.check_work()?;
        lang.map_err(|why| self.refusal(at, keyword, format!("\"{}\": {why}", quoted(pattern))))
    }

    fn format(&mut self, at: JsonId, format: &str) -> Answer<Option<LangId>> {
        let Some(automata) = automata_of(format) else {
            return Ok(None);
        };
        let lang = automata.and_then(|automata| {
            let lang = self.lang(format!("format {format}"), |_| Ok(automata.inner))?;
            if let Some(outer) = automata.outer {
                self.outer_langs.insert(lang, outer);
            }
            Ok(lang)
        });
        lang.map(Some)
            .map_err(|why| self.refusal(at, "format", format!("\"{}\": {why}", quoted(format))))
    }

    fn arrays(&mut self, at: JsonId) -> Answer<Arrays> {
        let mut arrays = Arrays {
            min: self.count(at, "minItems")?.unwrap_or(0),
            max: self.count(at, "maxItems")?,
            ..Arrays::default()
        };
        let items = self.member(at, "items");
        let is_list = items.is_some_and(|id| matches!(self.document.get(id), Json::Array(_)));
        if is_list && self.member(at, "prefixItems").is_some() {
            let why = "a list beside \"prefixItems\"; use one schema for the items after those";
            return Err(self.refusal(at, "items", why));
        }
        if is_list {
            for &item in self.list(at, "items")?.iter().flat_map(|all| all.iter()) {
                let item = self.checked(at, "items", item)?;
                arrays.prefix.push(item);
            }
            arrays.rest = self.sub(at, "additionalItems")?.unwrap_or(ANY);
        } else {
            let first = self.list(at, "prefixItems")?;
            for &item in first.iter().flat_map(|all| all.iter()) {
                let item = self.checked(at, "prefixItems", item)?;
                arrays.prefix.push(item);
            }
            arrays.rest = self.sub(at, "items")?.unwrap_or(ANY);
        }
        if let Some(what) = self.sub(at, "contains")? {
            arrays.contains.push(Contains {
                what,
                min: self.count(at, "minContains")?.unwrap_or(1),
                max: self.count(at, "maxContains")?,
            });
        }
        if let Some(id) = self.member(at, "uniqueItems") {
            match self.document.get(id) {
                Json::Bool(true) => arrays.unique = Some(at),
                Json::Bool(false) => {}
                _ => return Err(self.expected(at, "uniqueItems", "true or false")),
            }
        }
        if let Some(others) = self.sub(at, "unevaluatedItems")?
            && others != ANY
        {
            let evaluated = self.evaluated(at, 0).filter(|all| !all.some_elements);
            let Some(evaluated) = evaluated else {
                let why = "which items it is about depends on the value; use \"items\"";
                let refusal = self.refusal(at, "unevaluatedItems", why);
                self.leave_out(refusal)?;
                return Ok(arrays);
            };
            if !evaluated.all_elements {
                let n = evaluated.n_elements.max(arrays.prefix.len());
                arrays.prefix.resize(n, ANY);
                arrays.rest = others;
            }
        }
        Ok(arrays)
    }

    fn objects(&mut self, at: JsonId) -> Answer<Objects> {
        let mut patterns = Vec::new();
        let mut has_unknown_names = false;
        for (pattern, id) in self.map(at, "patternProperties")?.iter() {
            let expr = self.checked(at, "patternProperties", *id)?;
            match self.pattern(at, "patternProperties", pattern) {
                Ok(lang) => patterns.push((lang, expr)),
                Err(refusal) => {
                    self.leave_out(refusal)?;
                    has_unknown_names = true;
                }
            }
        }
        let matching = |compiler: &Self, name: &str| -> Vec<ExprId> {
            let is_in = |lang| compiler.lang_of(lang).accepts(name);
            let matching = patterns.iter().filter(|&&(lang, _)| is_in(lang));
            matching.map(|&(_, expr)| expr).collect()
        };
        let mut named = Vec::new();
        for (name, id) in self.map(at, "properties")?.iter() {
            let expr = self.checked(at, "properties", *id)?;
            let more = matching(self, name);
            named.push((Rc::clone(name), self.all_of([expr].into_iter().chain(more))));
        }
        let mut required: Vec<Rc<str>> = Vec::new();
        let mut known = HashSet::default();
        for &id in self.list(at, "required")?.iter().flat_map(|all| all.iter()) {
            let name = self.text(id);
            let name = name.ok_or_else(|| self.expected(at, "required", "names"))?;
            if known.insert(Rc::clone(&name)) {
                required.push(name);
            }
        }
        let mut others = self.sub(at, "additionalProperties")?;
        if has_unknown_names {
            // Any name may be one that a pattern allows.
            for keyword in ["additionalProperties", "unevaluatedProperties"] {
                if self.member(at, keyword).is_some() {
                    let why = "depends on a pattern of \"patternProperties\" that is left out";
                    let refusal = self.refusal(at, keyword, why);
                    self.leave_out(refusal)?;
                }
            }
            others = Some(ANY);
        }
        let mut rests = Vec::new();
        if others.is_none()
            && let Some(unevaluated) = self.sub(at, "unevaluatedProperties")?
            && unevaluated != ANY
        {
            match self.evaluated(at, 0) {
                Some(evaluated) if evaluated.all_members => {}
                Some(evaluated) => {
                    let mut more = patterns.clone();
                    for pattern in &evaluated.patterns {
                        let lang = self.pattern(at, "unevaluatedProperties", pattern)?;
                        if !more.iter().any(|&(other, _)| other == lang) {
                            more.push((lang, ANY));
                        }
                    }
                    let mut known: HashSet<Rc<str>> =
                        named.iter().map(|(name, _)| Rc::clone(name)).collect();
                    for name in evaluated.names {
                        if known.insert(Rc::clone(&name)) {
                            named.push((Rc::clone(&name), self.all_of(matching(self, &name))));
                        }
                    }
                    rests.push(Rest {
                        patterns: more,
                        others: unevaluated,
                    });
                }
                None => {
                    let why = "which properties it is about depends on the value; name them in \
                               \"properties\" and use \"additionalProperties\"";
                    let refusal = self.refusal(at, "unevaluatedProperties", why);
                    self.leave_out(refusal)?;
                    others = Some(ANY);
                }
            }
        }
        if rests.is_empty() && (others.is_some() || !patterns.is_empty()) {
            rests.push(Rest {
                patterns,
                others: others.unwrap_or(ANY),
            });
        }
        let names = self.sub(at, "propertyNames")?;
        let names = names.into_iter().filter(|&expr| expr != ANY).collect();
        Ok(Objects {
            named,
            required,
            rests,
            names,
            min: self.count(at, "minProperties")?.unwrap_or(0),
            max: self.count(at, "maxProperties")?,
            at: Some(at),
            ..Objects::default()
        })
    }

    /// Returns the members and elements that a schema evaluates whatever the value is; `None` if
    /// they depend on the value.
    fn evaluated(&self, at: JsonId, depth: usize) -> Option<Evaluated> {
        const DEEPEST: usize = 20;
        if depth > DEEPEST {
            return None;
        }
        let mut all = Evaluated::default();
        let has = |keyword: &str| self.member(at, keyword).is_some();
        let names = |keyword: &str| {
            let members = self.member(at, keyword);
            let members = members.map(|id| self.document.members(id));
            let names = members.iter().flat_map(|members| members.iter());
            names.map(|(name, _)| Rc::clone(name)).collect::<Vec<_>>()
        };
        all.names = names("properties");
        all.patterns = names("patternProperties");
        all.all_members =
            has("additionalProperties") || (depth > 0 && has("unevaluatedProperties"));
        let list = |keyword: &str| match self.member(at, keyword) {
            Some(id) => match self.document.get(id) {
                Json::Array(all) => all.to_vec(),
                _ => Vec::new(),
            },
            None => Vec::new(),
        };
        let items = self.member(at, "items");
        let is_list = items.is_some_and(|id| matches!(self.document.get(id), Json::Array(_)));
        all.n_elements = list("prefixItems").len().max(list("items").len());
        all.all_elements = (items.is_some() && !is_list)
            || (is_list && has("additionalItems"))
            || (depth > 0 && has("unevaluatedItems"));
        // In 2019-09 `contains` checks elements, but they do not count as evaluated.
        all.some_elements = has("contains") && !self.is_before(Draft::Of2020);
        let mut in_place = list("allOf");
        let text = |keyword: &str| self.member(at, keyword).and_then(|id| self.text(id));
        if let Some(reference) = text("$ref") {
            in_place.push(
                self.references
                    .target(&self.document, at, &reference)
                    .ok()?,
            );
        }
        if let Some(reference) = text("$dynamicRef") {
            let target = self
                .references
                .dynamic_target(&self.document, at, &reference);
            in_place.push(target.ok()?);
        }
        if has("$recursiveRef") {
            in_place.push(self.references.recursive_target(&self.document, at).ok()?);
        }
        for id in in_place {
            let more = self.evaluated(id, depth + 1)?;
            all.names.extend(more.names);
            all.patterns.extend(more.patterns);
            all.all_members |= more.all_members;
            all.n_elements = all.n_elements.max(more.n_elements);
            all.all_elements |= more.all_elements;
            all.some_elements |= more.some_elements;
        }
        let mut depending = [list("anyOf"), list("oneOf")].concat();
        if has("if") {
            let parts = ["if", "then", "else"];
            depending.extend(parts.iter().filter_map(|keyword| self.member(at, keyword)));
        }
        for keyword in ["dependentSchemas", "dependencies"] {
            let Some(id) = self.member(at, keyword) else {
                continue;
            };
            depending.extend(self.document.members(id).iter().map(|&(_, id)| id));
        }
        for id in depending {
            if !self.evaluated(id, depth + 1)?.is_nothing() {
                return None;
            }
        }
        Some(all)
    }

    /// Returns the intersection of two shapes. The members are in the order in which the keyword
    /// and `properties` occur in the text.
    fn narrowed(&mut self, at: JsonId, keyword: &str, shape: &Shape, by: &Shape) -> Answer<Shape> {
        let members = self.document.members(at);
        let place = |wanted: &str| members.iter().position(|(name, _)| **name == *wanted);
        let own = place(keyword).unwrap_or(members.len());
        if NARROWING.iter().filter_map(|other| place(other)).count() > 1 {
            // Alternatives may have orders of their own.
            let counts = usize::from(by.objects.len() == 1);
            for objects in &by.objects {
                self.spend(objects.named.len())?;
                let names = objects.named.iter().enumerate();
                self.sources.extend(names.map(|(i, (name, _))| Source {
                    at,
                    place: (own, i * counts),
                    name: Rc::clone(name),
                }));
            }
        }
        match place("properties").is_none_or(|properties| own < properties) {
            true => self.and(by, shape),
            false => self.and(shape, by),
        }
    }

    /// Puts the members of objects in the order of the keywords that they come from, if several
    /// keywords of the schema have narrowed the shape. The keywords are not evaluated in the order
    /// of the text.
    fn put_in_order(&mut self, at: JsonId, shape: &mut Shape) {
        let first = self.sources.iter().position(|source| source.at == at);
        let sources = self.sources.split_off(first.unwrap_or(self.sources.len()));
        if sources.is_empty() {
            return;
        }
        let mut places: HashMap<Rc<str>, (usize, usize)> = HashMap::default();
        let mut add = |name: Rc<str>, place| {
            let first = places.entry(name).or_insert(place);
            *first = place.min(*first);
        };
        for source in sources {
            add(source.name, source.place);
        }
        for (i, (keyword, value)) in self.document.members(at).iter().enumerate() {
            if **keyword == *"properties" {
                let names = self.document.members(*value);
                let names = names.iter().enumerate();
                names.for_each(|(j, (name, _))| add(Rc::clone(name), (i, j)));
            }
        }
        for objects in &mut shape.objects {
            let place = |name: &Rc<str>| places.get(name).copied();
            objects
                .named
                .sort_by_key(|(name, _)| place(name).unwrap_or((usize::MAX, 0)));
        }
    }

    fn reference(&mut self, at: JsonId, shape: &Shape) -> Answer<Option<Shape>> {
        self.referred(at, shape, "$ref", |compiler, reference| {
            compiler
                .references
                .target(&compiler.document, at, reference)
        })
    }

    fn dynamic_reference(&mut self, at: JsonId, shape: &Shape) -> Answer<Option<Shape>> {
        self.referred(at, shape, "$dynamicRef", |compiler, reference| {
            compiler
                .references
                .dynamic_target(&compiler.document, at, reference)
        })
    }

    fn recursive_reference(&mut self, at: JsonId, shape: &Shape) -> Answer<Option<Shape>> {
        self.referred(at, shape, "$recursiveRef", |compiler, _| {
            compiler.references.recursive_target(&compiler.document, at)
        })
    }

    fn referred(
        &mut self,
        at: JsonId,
        shape: &Shape,
        keyword: &str,
        target: impl FnOnce(&Self, &str) -> Result<JsonId, String>,
    ) -> Answer<Option<Shape>> {
        let id = self.member(at, keyword);
        let Some(reference) = id.and_then(|id| self.text(id)) else {
            return Err(self.expected(at, keyword, "a string"));
        };
        let target = target(self, &reference).map_err(|why| self.refusal(at, keyword, why))?;
        let expr = self.checked(at, keyword, target)?;
        let other = self.shape(expr)?;
        self.narrowed(at, keyword, shape, &other).map(Some)
    }

    fn branches(&mut self, at: JsonId, keyword: &str) -> Answer<Vec<ExprId>> {
        let all = self.list(at, keyword)?.unwrap_or_else(|| Rc::new([]));
        if all.is_empty() {
            return Err(self.expected(at, keyword, "at least one schema"));
        }
        all.iter()
            .map(|&id| self.checked(at, keyword, id))
            .collect()
    }

    fn all(&mut self, at: JsonId, shape: &Shape) -> Answer<Option<Shape>> {
        let mut all = Shape::any();
        for branch in self.branches(at, "allOf")? {
            let branch = self.shape(branch)?;
            all = self.and(&all, &branch)?;
        }
        self.narrowed(at, "allOf", shape, &all).map(Some)
    }

    fn any(&mut self, at: JsonId, shape: &Shape) -> Answer<Option<Shape>> {
        let mut all = Shape::default();
        for branch in self.branches(at, "anyOf")? {
            let branch = self.shape(branch)?;
            self.spend(8 * branch.n_ways() * (1 + all.n_ways()))?;
            all.add((*branch).clone());
            self.check_ways(&all, "anyOf")?;
        }
        self.narrowed(at, "anyOf", shape, &all).map(Some)
    }

    fn one(&mut self, at: JsonId, shape: &Shape) -> Answer<Option<Shape>> {
        const LEVELS: usize = 5;
        let branches = self.branches(at, "oneOf")?;
        let mut shapes: Vec<Shape> = Vec::with_capacity(branches.len());
        for &branch in &branches {
            let branch = self.shape(branch)?;
            shapes.push(self.narrowed(at, "oneOf", shape, &branch)?);
        }
        let n = shapes.len();
        self.spend(n.saturating_mul(n))?;
        let mut are_apart = vec![false; n * n];
        for (i, shape) in shapes.iter().enumerate() {
            for (j, other) in shapes.iter().enumerate().skip(i + 1) {
                let both = self.and(shape, other)?;
                if self.has_none(&both, LEVELS) {
                    (are_apart[i * n + j], are_apart[j * n + i]) = (true, true);
                }
            }
        }
        let mut one = Shape::default();
        for (i, shape) in shapes.iter().enumerate() {
            let mut only = shape.clone();
            for (j, other) in shapes.iter().enumerate() {
                if i == j || are_apart[i * n + j] {
                    continue;
                }
                let both = self.and(&only, other)?;
                if self.has_none(&both, LEVELS) {
                    continue;
                }
                only = match self.difference(&only, other) {
                    Ok(only) => only,
                    Err(refusal) => {
                        let why = format!(
                            "a value may follow both {i} and {j} of it, and what follows only one \
                             is not found ({}); tell them apart by a type, a \"const\" or a \
                             required property, or use \"anyOf\"",
                            refusal.why
                        );
                        let refusal = self.refusal(at, "oneOf", why);
                        self.leave_out(refusal)?;
                        only
                    }
                };
            }
            self.spend(8 * only.n_ways() * (1 + one.n_ways()))?;
            one.add(only);
        }
        Ok(Some(one))
    }

    fn not(&mut self, at: JsonId, shape: &Shape) -> Answer<Option<Shape>> {
        let Some(expr) = self.sub(at, "not")? else {
            return Ok(None);
        };
        let other = self.shape(expr)?;
        match self.difference(shape, &other) {
            Ok(shape) => Ok(Some(shape)),
            Err(refusal) => Err(self.refusal(at, "not", refusal.why)),
        }
    }

    fn conditional(&mut self, at: JsonId, shape: &Shape) -> Answer<Option<Shape>> {
        let Some(condition) = self.sub(at, "if")? else {
            return Ok(None);
        };
        let (then, otherwise) = (self.sub(at, "then")?, self.sub(at, "else")?);
        if then.is_none() && otherwise.is_none() {
            return Ok(None);
        }
        self.either(at, "if", shape, condition, [then, otherwise])
            .map(Some)
    }

    /// Returns the values of `shape` that are in `condition` and `then`, or in `otherwise` but not
    /// in `condition`. A missing alternative allows every value.
    fn either(
        &mut self,
        at: JsonId,
        keyword: &str,
        shape: &Shape,
        condition: ExprId,
        [then, otherwise]: [Option<ExprId>; 2],
    ) -> Answer<Shape> {
        let condition = self.shape(condition)?;
        let mut all = self.and(shape, &condition)?;
        if let Some(then) = then {
            let then = self.shape(then)?;
            all = self.and(&all, &then)?;
        }
        let mut not = match self.difference(shape, &condition) {
            Ok(not) => not,
            Err(refusal) => return Err(self.refusal(at, keyword, refusal.why)),
        };
        if let Some(otherwise) = otherwise {
            let otherwise = self.shape(otherwise)?;
            not = self.and(&not, &otherwise)?;
        }
        all.add(not);
        Ok(all)
    }

    /// Returns the values of `shape` that have no member `name` or are in `then`.
    fn dependent(&mut self, shape: &Shape, name: &Rc<str>, then: &Shape) -> Answer<Shape> {
        let without = Shape {
            objects: vec![Objects {
                named: vec![(Rc::clone(name), NEVER)],
                ..Objects::default()
            }],
            ..Shape::any()
        };
        let with = Shape {
            objects: vec![Objects {
                required: vec![Rc::clone(name)],
                ..Objects::default()
            }],
            ..Shape::default()
        };
        let with = self.and(&with, then)?;
        let mut all = self.and(shape, &without)?;
        let with = self.and(shape, &with)?;
        all.add(with);
        Ok(all)
    }

    fn dependent_names(
        &mut self,
        at: JsonId,
        keyword: &str,
        shape: &Shape,
        name: &Rc<str>,
        names: &[JsonId],
    ) -> Answer<Shape> {
        let names: Option<Vec<Rc<str>>> = names.iter().map(|&id| self.text(id)).collect();
        let Some(required) = names else {
            return Err(self.expected(at, keyword, "names"));
        };
        let then = Shape {
            objects: vec![Objects {
                required,
                ..Objects::default()
            }],
            ..Shape::any()
        };
        self.dependent(shape, name, &then)
    }

    fn dependent_required(&mut self, at: JsonId, shape: &Shape) -> Answer<Option<Shape>> {
        const KEYWORD: &str = "dependentRequired";
        let mut shape = shape.clone();
        for (name, names) in self.map(at, KEYWORD)?.iter() {
            let Json::Array(names) = self.document.get(*names).clone() else {
                return Err(self.expected(at, KEYWORD, "arrays of names"));
            };
            shape = self.dependent_names(at, KEYWORD, &shape, name, &names)?;
        }
        Ok(Some(shape))
    }

    fn dependent_schemas(&mut self, at: JsonId, shape: &Shape) -> Answer<Option<Shape>> {
        const KEYWORD: &str = "dependentSchemas";
        let mut shape = shape.clone();
        for (name, then) in self.map(at, KEYWORD)?.iter() {
            let then = self.checked(at, KEYWORD, *then)?;
            let then = self.shape(then)?;
            shape = self.dependent(&shape, name, &then)?;
        }
        Ok(Some(shape))
    }

    fn dependencies(&mut self, at: JsonId, shape: &Shape) -> Answer<Option<Shape>> {
        const KEYWORD: &str = "dependencies";
        let mut shape = shape.clone();
        for (name, then) in self.map(at, KEYWORD)?.iter() {
            shape = match self.document.get(*then).clone() {
                Json::Array(names) => self.dependent_names(at, KEYWORD, &shape, name, &names)?,
                _ => {
                    let then = self.checked(at, KEYWORD, *then)?;
                    let then = self.shape(then)?;
                    self.dependent(&shape, name, &then)?
                }
            };
        }
        Ok(Some(shape))
    }
}
