//! The values that a schema allows, by their types.
//!
//! A [`Shape`] has a union for each type: of numbers between bounds, of strings in languages, and
//! of arrays and objects, whose elements and members are in turn [`Expr`]s. `allOf` thus becomes an
//! intersection, `not` becomes a difference, and a recursive reference becomes the id of an
//! expression.

use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;

use llama_sieve_kernels::random::{HashMap, HashSet};

use crate::grammar::hash::Map;
use crate::grammar::limits::{MAX_SCHEMA_COMBINATIONS, MAX_SCHEMA_STEPS, MAX_SCHEMA_WAYS};
use crate::grammar::schema::automaton::{Dfa, Shared};
use crate::grammar::schema::decimal::Decimal;
use crate::grammar::schema::reader::{Document, Json, JsonId};
use crate::grammar::schema::references::References;
use crate::grammar::schema::refusal::{Answer, Options, Refusal};
use crate::grammar::schema::work::{TooLarge, Work};

/// The maximum number of alternatives with which a new alternative is compared. The new alternative
/// is dropped if one of them contains it.
const MOST_COMPARED: usize = 48;

/// The id of an expression.
pub type ExprId = u32;

/// A set of values: a schema, or a combination of schemas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// Every value.
    Any,
    /// No value.
    Never,
    /// The values that the schema at this position of the text allows.
    Schema(JsonId),
    /// Only the value at this position of the text.
    Value(JsonId),
    /// One value that is neither an array nor an object.
    Only(Scalar),
    /// The intersection of all of these.
    And(Vec<ExprId>),
    /// The values of the first that are not in the second.
    Minus(ExprId, ExprId),
}

/// The id of [`Expr::Any`].
pub const ANY: ExprId = 0;
/// The id of [`Expr::Never`].
pub const NEVER: ExprId = 1;

/// A value that is neither an array nor an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Decimal),
    /// A string.
    String(Rc<str>),
}

/// The id of a language, which is a set of strings.
pub type LangId = u32;

/// A set of values, by their types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// True if `null` is in the set.
    pub null: bool,
    /// True if `false` is in the set.
    pub no: bool,
    /// True if `true` is in the set.
    pub yes: bool,
    /// The numbers, as a union.
    pub numbers: Vec<Numbers>,
    /// The strings, as a union.
    pub strings: Vec<Strings>,
    /// The arrays, as a union.
    pub arrays: Vec<Arrays>,
    /// The objects, as a union.
    pub objects: Vec<Objects>,
}

/// A bound, if there is one, and true if it is exclusive.
pub type Bound = Option<(Decimal, bool)>;

/// A set of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// True for only integers, false for only numbers with a fraction, `None` for both.
    pub integer: Option<bool>,
    /// The lower bound.
    pub min: Bound,
    /// The upper bound.
    pub max: Bound,
    /// The numbers are multiples of all of these.
    pub multiples: Vec<Decimal>,
    /// The numbers are multiples of none of these.
    pub no_multiples: Vec<Decimal>,
    /// The only numbers allowed, if they are listed.
    pub only: Option<Vec<Decimal>>,
    /// Numbers that are excluded.
    pub except: Vec<Decimal>,
}

/// Returns the number of steps for combining two lists of these lengths: each is copied, and
/// searched for every element of the other list.
fn cost(a: usize, b: usize) -> usize {
    4 + 2 * (a + b) + a * b / 2
}

impl Numbers {
    /// Returns true if the sign of a number alone decides whether it is in the set: the only bounds
    /// are 0.
    pub fn is_by_sign(&self) -> bool {
        let is_zero = |bound: &Bound| {
            let number = bound.as_ref().map(|(number, _)| number);
            number.is_none_or(|number| *number == Decimal::zero())
        };
        let others = Self {
            min: None,
            max: None,
            ..self.clone()
        };
        is_zero(&self.min) && is_zero(&self.max) && others == Self::default()
    }

    fn len(&self) -> usize {
        let lists = [&self.multiples, &self.no_multiples, &self.except];
        let n: usize = lists.iter().map(|list| list.len()).sum();
        let bounds = [&self.min, &self.max].into_iter().flatten();
        let n_digits: usize = bounds.map(|(bound, _)| bound.n_digits()).sum();
        1 + n + self.only.as_ref().map_or(0, Vec::len) + n_digits / 16
    }

    fn cost(&self, other: &Self) -> usize {
        cost(self.len(), other.len())
    }
}

/// A set of strings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Strings {
    /// The minimum number of characters.
    pub min: u64,
    /// The maximum number of characters.
    pub max: Option<u64>,
    /// Languages, each with true if it must contain the strings, and false if its [outer
    /// language](Compiler::outer_lang_of) must not contain them.
    pub langs: Vec<(LangId, bool)>,
    /// The only strings allowed, if they are listed.
    pub only: Option<Vec<Rc<str>>>,
    /// Strings that are excluded.
    pub except: Vec<Rc<str>>,
}

impl Strings {
    fn len(&self) -> usize {
        1 + self.langs.len() + self.except.len() + self.only.as_ref().map_or(0, Vec::len)
    }

    fn cost(&self, other: &Self) -> usize {
        cost(self.len(), other.len())
    }
}

/// Bounds on the number of elements of some kind in an array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contains {
    /// The schema of such elements.
    pub what: ExprId,
    /// The minimum number of such elements.
    pub min: u64,
    /// The maximum number of such elements.
    pub max: Option<u64>,
}

/// A set of arrays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arrays {
    /// The schemas of the first elements.
    pub prefix: Vec<ExprId>,
    /// The schema of all elements after `prefix`.
    pub rest: ExprId,
    /// The minimum number of elements.
    pub min: u64,
    /// The maximum number of elements.
    pub max: Option<u64>,
    /// Bounds on the numbers of elements of some kinds.
    pub contains: Vec<Contains>,
    /// The schema that requires unique elements, if one does.
    pub unique: Option<JsonId>,
}

impl Arrays {
    fn cost(&self, other: &Self) -> usize {
        let len = |of: &Self| 1 + of.prefix.len() + of.contains.len();
        cost(len(self), len(other))
    }
}

impl Default for Arrays {
    fn default() -> Self {
        Self {
            prefix: Vec::new(),
            rest: ANY,
            min: 0,
            max: None,
            contains: Vec::new(),
            unique: None,
        }
    }
}

/// A constraint on the unnamed members of an object, whose names are not in `Objects::named`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rest {
    /// Languages, each with the schema of the members whose names are in the language.
    pub patterns: Vec<(LangId, ExprId)>,
    /// The schema of all other unnamed members.
    pub others: ExprId,
}

/// A required member with one of several names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Witness {
    /// The possible names of the member.
    pub names: Strings,
    /// The schema of the member's value.
    pub value: ExprId,
}

/// A set of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Objects {
    /// The named members, in the order of the text.
    pub named: Vec<(Rc<str>, ExprId)>,
    /// The required names.
    pub required: Vec<Rc<str>>,
    /// Constraints on the unnamed members, all of which apply.
    pub rests: Vec<Rest>,
    /// Schemas for the names of members, all of which apply.
    pub names: Vec<ExprId>,
    /// Required members with one of several names.
    pub witnesses: Vec<Witness>,
    /// The minimum number of members.
    pub min: u64,
    /// The maximum number of members.
    pub max: Option<u64>,
    /// The position of a schema that constrains the object.
    pub at: Option<JsonId>,
}

impl Objects {
    fn cost(&self, other: &Self) -> usize {
        let len = |of: &Self| {
            let patterns: usize = of.rests.iter().map(|rest| 1 + rest.patterns.len()).sum();
            1 + of.named.len() + of.required.len() + of.names.len() + of.witnesses.len() + patterns
        };
        cost(len(self), len(other))
    }
}

impl Shape {
    /// Returns the shape of every value.
    pub fn any() -> Self {
        Self {
            null: true,
            no: true,
            yes: true,
            numbers: vec![Numbers::default()],
            strings: vec![Strings::default()],
            arrays: vec![Arrays::default()],
            objects: vec![Objects::default()],
        }
    }

    /// Adds the values of another shape.
    pub fn add(&mut self, other: Self) {
        fn extend<T: PartialEq>(all: &mut Vec<T>, more: Vec<T>) {
            for one in more {
                if !all.contains(&one) {
                    all.push(one);
                }
            }
        }
        self.null |= other.null;
        self.no |= other.no;
        self.yes |= other.yes;
        extend(&mut self.numbers, other.numbers);
        // Lists of strings are merged into one.
        for one in other.strings {
            let is_list = |of: &Strings| {
                of.only.is_some()
                    && of.langs.is_empty()
                    && of.except.is_empty()
                    && (of.min, of.max) == (0, None)
            };
            let list = self.strings.iter_mut().find(|of| is_list(of));
            match (list, is_list(&one)) {
                (Some(list), true) => {
                    if let (Some(texts), Some(more)) = (&mut list.only, one.only) {
                        texts.extend(more);
                    }
                }
                _ => extend(&mut self.strings, vec![one]),
            }
        }
        extend(&mut self.arrays, other.arrays);
        extend(&mut self.objects, other.objects);
    }

    /// Returns the number of alternatives.
    pub fn n_ways(&self) -> usize {
        self.numbers.len() + self.strings.len() + self.arrays.len() + self.objects.len()
    }
}

/// A schema being compiled.
#[derive(Debug)]
pub struct Compiler {
    /// The text.
    pub document: Document,
    /// The targets of the text's references.
    pub references: References,
    /// The caller's options.
    pub options: Options,
    /// The keywords that were left out.
    pub left_out: Vec<Refusal>,
    /// The keywords that are read as if they were absent, by schema.
    pub ignored: Map<JsonId, Vec<String>>,
    exprs: Vec<Expr>,
    numbers: HashMap<Expr, ExprId>,
    shapes: Map<ExprId, Rc<Shape>>,
    /// The expressions whose shapes are being computed.
    pub open: Vec<ExprId>,
    langs: Vec<Shared>,
    lang_numbers: HashMap<String, LangId>,
    /// For each language that lacks some of its format's texts, a larger language that contains all
    /// of them.
    pub outer_langs: HashMap<LangId, Shared>,
    /// For each expression that was examined, `None` if it has no value, or else the number of
    /// levels that were searched without finding that it has none.
    empty: Map<ExprId, Option<usize>>,
    /// The names of members that several keywords of one schema allow, for all schemas whose shapes
    /// are being computed.
    pub sources: Vec<Source>,
    /// The automata of strings that were built so far.
    string_automata: HashMap<Strings, Shared>,
    /// The automata that [`Compiler::outer_automaton_of_strings`] has built with outer languages.
    outer_string_automata: HashMap<Strings, Shared>,
    /// The automata of numbers that were built so far.
    pub number_automata: HashMap<Numbers, Shared>,
    /// The steps that are left.
    pub work: Rc<Work>,
}

/// The name of a member, and where it comes from.
#[derive(Debug)]
pub struct Source {
    /// The schema.
    pub at: JsonId,
    /// The index of the keyword among the keywords of the schema, and that of the name among the
    /// names that the keyword allows. The latter is 0 if the keyword has alternatives, since each
    /// may have an order of its own.
    pub place: (usize, usize),
    /// The name.
    pub name: Rc<str>,
}

/// Returns the tighter of two bounds. `is_beyond` returns true if its first argument is the tighter
/// one.
fn tighter(a: &Bound, b: &Bound, is_beyond: impl Fn(&Decimal, &Decimal) -> bool) -> Bound {
    match (a, b) {
        (None, bound) | (bound, None) => bound.clone(),
        (Some(a), Some(b)) if a.0 == b.0 => Some((a.0.clone(), a.1 || b.1)),
        (Some(a), Some(b)) => Some(if is_beyond(&a.0, &b.0) { a } else { b }.clone()),
    }
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (bound, None) | (None, bound) => bound,
    }
}

/// The largest length of a list that is searched linearly.
const FEW: usize = 16;

/// Returns the union of two lists, each element once. The first list must have no duplicates.
fn both<T: Clone + Eq + Hash>(a: &[T], b: &[T]) -> Vec<T> {
    let mut all = a.to_vec();
    if a.len() + b.len() <= FEW {
        for one in b {
            if !all.contains(one) {
                all.push(one.clone());
            }
        }
        return all;
    }
    let mut known: HashSet<&T> = a.iter().collect();
    all.extend(b.iter().filter(|one| known.insert(one)).cloned());
    all
}

/// Returns the intersection of two lists. `None` is the list of everything.
fn lists<T: Clone + Eq + Hash>(a: &Option<Vec<T>>, b: &Option<Vec<T>>) -> Option<Vec<T>> {
    let (Some(a), Some(b)) = (a, b) else {
        return a.as_ref().or(b.as_ref()).cloned();
    };
    if b.len() <= FEW {
        return Some(a.iter().filter(|one| b.contains(one)).cloned().collect());
    }
    let known: HashSet<&T> = b.iter().collect();
    Some(
        a.iter()
            .filter(|one| known.contains(one))
            .cloned()
            .collect(),
    )
}

impl Compiler {
    /// Returns a compiler for the schema `document`.
    pub fn new(
        document: Document,
        references: References,
        options: Options,
        work: Rc<Work>,
    ) -> Self {
        /// The initial capacity of the maps. Most schemas have no more expressions.
        const USUAL: usize = 14;
        let mut compiler = Self {
            document,
            references,
            options,
            left_out: Vec::new(),
            ignored: Map::default(),
            exprs: Vec::new(),
            numbers: HashMap::with_capacity_and_hasher(USUAL, Default::default()),
            shapes: Map::with_capacity_and_hasher(USUAL, Default::default()),
            open: Vec::new(),
            langs: Vec::new(),
            lang_numbers: HashMap::default(),
            empty: Map::default(),
            sources: Vec::new(),
            string_automata: HashMap::default(),
            outer_langs: HashMap::default(),
            outer_string_automata: HashMap::default(),
            number_automata: HashMap::default(),
            work,
        };
        compiler.number(Expr::Any);
        compiler.number(Expr::Never);
        compiler
    }

    fn number(&mut self, expr: Expr) -> ExprId {
        if let Some(&number) = self.numbers.get(&expr) {
            return number;
        }
        // If no steps are left, the next check refuses the schema.
        let _ = self.work.spend(64);
        let number = self.exprs.len() as ExprId;
        self.exprs.push(expr.clone());
        self.numbers.insert(expr, number);
        number
    }

    /// Returns the expression with the id `id`.
    pub fn expr(&self, id: ExprId) -> &Expr {
        self.exprs.get(id as usize).unwrap_or(&Expr::Any)
    }

    /// True if there are too many expressions.
    pub fn has_too_many(&self) -> bool {
        self.exprs.len() > MAX_SCHEMA_COMBINATIONS
    }

    /// Returns the expression of the schema at this position.
    pub fn schema(&mut self, id: JsonId) -> ExprId {
        match self.document.get(id) {
            Json::Bool(true) => ANY,
            Json::Bool(false) => NEVER,
            Json::Object(members) if members.is_empty() => ANY,
            _ => self.number(Expr::Schema(id)),
        }
    }

    /// Returns the expression of the value at this position.
    pub fn value(&mut self, id: JsonId) -> ExprId {
        self.number(Expr::Value(id))
    }

    /// Returns the expression of a scalar.
    pub fn only(&mut self, scalar: Scalar) -> ExprId {
        self.number(Expr::Only(scalar))
    }

    /// Returns the intersection of all these expressions.
    pub fn all_of(&mut self, exprs: impl IntoIterator<Item = ExprId>) -> ExprId {
        let mut all = Vec::new();
        for expr in exprs {
            match self.expr(expr) {
                Expr::Any => {}
                Expr::Never => return NEVER,
                Expr::And(inner) => all.extend(inner.iter().copied()),
                _ => all.push(expr),
            }
        }
        all.sort_unstable();
        all.dedup();
        match *all {
            [] => ANY,
            [only] => only,
            [a, b] if self.are_different_constants(a, b) => NEVER,
            [a, b] if self.is_another_constant(a, b) => a,
            [a, b] if self.is_another_constant(b, a) => b,
            _ => self.number(Expr::And(all)),
        }
    }

    /// Returns the values of `expr` that are not in `without`.
    pub fn minus(&mut self, expr: ExprId, without: ExprId) -> ExprId {
        if expr == NEVER || without == ANY || expr == without {
            return NEVER;
        }
        if without == NEVER {
            return expr;
        }
        self.number(Expr::Minus(expr, without))
    }

    /// Returns the id of the language named `name`. `make` builds the language if it does not exist
    /// yet.
    pub fn lang(
        &mut self,
        name: String,
        make: impl FnOnce(&Work) -> Result<Shared, String>,
    ) -> Result<LangId, String> {
        if let Some(&number) = self.lang_numbers.get(&name) {
            return Ok(number);
        }
        let number = self.langs.len() as LangId;
        self.langs.push(make(&self.work)?);
        self.lang_numbers.insert(name, number);
        Ok(number)
    }

    /// Returns the automaton of a language.
    pub fn lang_of(&self, id: LangId) -> Shared {
        let lang = self.langs.get(id as usize).map(Arc::clone);
        lang.unwrap_or_else(|| Arc::new(Dfa::all()))
    }

    /// Returns the automaton of a language's outer language. This is the language itself, unless it
    /// is the language of a format and lacks some valid texts.
    pub fn outer_lang_of(&self, id: LangId) -> Shared {
        let outer = self.outer_langs.get(&id).map(Arc::clone);
        outer.unwrap_or_else(|| self.lang_of(id))
    }

    /// True if some of the languages of `strings` lack texts of their formats.
    fn are_inexact(&self, strings: &Strings) -> bool {
        let mut langs = strings.langs.iter();
        langs.any(|(lang, _)| self.outer_langs.contains_key(lang))
    }

    /// Returns the id of the language that consists of `names`.
    pub fn lang_of_names(&mut self, names: &Strings) -> Result<LangId, TooLarge> {
        let dfa = self.automaton_of_strings(names)?;
        // The automaton is kept, so its address identifies it.
        let address = Arc::as_ptr(&dfa).addr();
        let lang = self.lang(format!("names {address}"), |_| Ok(dfa));
        lang.map_err(|_| TooLarge)
    }

    /// Returns the values of an expression.
    pub fn shape(&mut self, id: ExprId) -> Answer<Rc<Shape>> {
        if let Some(shape) = self.shapes.get(&id) {
            return Ok(Rc::clone(shape));
        }
        let expr = self.expr(id).clone();
        self.enter(id)?;
        let shape = self.found(&expr);
        self.open.pop();
        let shape = Rc::new(shape?);
        self.shapes.insert(id, Rc::clone(&shape));
        Ok(shape)
    }

    fn found(&mut self, expr: &Expr) -> Answer<Shape> {
        Ok(match expr {
            Expr::Any => Shape::any(),
            Expr::Never => Shape::default(),
            Expr::Schema(id) => self.shape_of_schema(*id)?,
            Expr::Value(id) => self.shape_of_value(*id),
            Expr::Only(scalar) => shape_of_scalar(scalar),
            Expr::And(all) => {
                let mut shape = Shape::any();
                for &one in all {
                    let one = self.shape(one)?;
                    shape = self.and(&shape, &one)?;
                }
                shape
            }
            Expr::Minus(expr, without) => {
                let (expr, without) = (self.shape(*expr)?, self.shape(*without)?);
                self.difference(&expr, &without)?
            }
        })
    }

    /// Returns the position of an expression's schema, for messages.
    pub fn place_of(&self, id: ExprId) -> JsonId {
        match self.expr(id) {
            Expr::Schema(at) | Expr::Value(at) => *at,
            Expr::And(all) => all.first().map_or(0, |&first| self.place_of(first)),
            Expr::Minus(_, without) => self.place_of(*without),
            _ => 0,
        }
    }

    /// Refuses a shape with too many alternatives, and names the keyword.
    pub fn check_ways(&self, shape: &Shape, keyword: &str) -> Answer<()> {
        let at = self.open.last().map_or(0, |&id| self.place_of(id));
        self.check_combinations(at)?;
        match shape.n_ways() > MAX_SCHEMA_WAYS {
            false => Ok(()),
            true => Err(self.refusal(
                at,
                keyword,
                format!(
                    "the ways multiply to more than LLAMA_SIEVE_JSON_MAX_WAYS, \
                         {MAX_SCHEMA_WAYS}; say it with fewer alternatives"
                ),
            )),
        }
    }

    /// Subtracts steps from the remaining work, or refuses the schema.
    pub fn spend(&self, n: usize) -> Answer<()> {
        self.work.spend(n).map_err(|_| {
            Refusal::whole(format!(
                "it takes more than LLAMA_SIEVE_JSON_MAX_STEPS steps to find what its keywords \
                 allow together, {MAX_SCHEMA_STEPS}; use fewer alternatives, simpler patterns, or \
                 tell alternatives apart by a type or a \"const\""
            ))
        })
    }

    /// Refuses the schema if no steps are left.
    pub fn check_work(&self) -> Answer<()> {
        self.spend(usize::from(self.work.is_spent()))
    }

    /// Returns the intersection of two shapes.
    pub fn and(&mut self, a: &Shape, b: &Shape) -> Answer<Shape> {
        let mut shape = Shape {
            null: a.null && b.null,
            no: a.no && b.no,
            yes: a.yes && b.yes,
            ..Shape::default()
        };
        let pairs = |n: usize, m: usize| n.saturating_mul(m) > 4 * MAX_SCHEMA_WAYS;
        if pairs(a.objects.len(), b.objects.len())
            || pairs(a.arrays.len(), b.arrays.len())
            || pairs(a.strings.len(), b.strings.len())
            || pairs(a.numbers.len(), b.numbers.len())
        {
            let at = self.open.last().map_or(0, |&id| self.place_of(id));
            return Err(self.refusal(
                at,
                "allOf",
                format!(
                    "the ways multiply to more than LLAMA_SIEVE_JSON_MAX_WAYS, {MAX_SCHEMA_WAYS}; \
                     say it with fewer alternatives"
                ),
            ));
        }
        fn put<T: PartialEq>(all: &mut Vec<T>, one: T) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
        for x in &a.numbers {
            for y in &b.numbers {
                self.spend(x.cost(y) + shape.numbers.len())?;
                put(&mut shape.numbers, and_numbers(x, y));
            }
        }
        for x in &a.strings {
            for y in &b.strings {
                self.spend(x.cost(y) + shape.strings.len())?;
                put(&mut shape.strings, and_strings(x, y));
            }
        }
        for x in &a.arrays {
            for y in &b.arrays {
                self.spend(x.cost(y) + shape.arrays.len())?;
                let both = self.and_arrays(x, y);
                put(&mut shape.arrays, both);
            }
        }
        let is_one = a.objects.len() == 1 && b.objects.len() == 1;
        let mut seen = HashSet::default();
        for x in &a.objects {
            for y in &b.objects {
                self.spend(x.cost(y) + shape.objects.len())?;
                let both = self.and_objects(x, y);
                if is_one || seen.insert(both.clone()) {
                    shape.objects.push(both);
                }
            }
        }
        shape.numbers.retain(|numbers| !are_none(numbers));
        shape.strings.retain(|strings| !are_no_strings(strings));
        shape
            .arrays
            .retain(|arrays| arrays.max.is_none_or(|max| arrays.min <= max));
        shape.objects.retain(|objects| {
            objects.max.is_none_or(|max| objects.min <= max) && !objects.lacks_required()
        });
        self.check_ways(&shape, "anyOf")?;
        Ok(shape)
    }

    fn and_arrays(&mut self, a: &Arrays, b: &Arrays) -> Arrays {
        let n = a.prefix.len().max(b.prefix.len());
        let at = |of: &Arrays, i: usize| of.prefix.get(i).copied().unwrap_or(of.rest);
        Arrays {
            prefix: (0..n).map(|i| self.all_of([at(a, i), at(b, i)])).collect(),
            rest: self.all_of([a.rest, b.rest]),
            min: a.min.max(b.min),
            max: least(a.max, b.max),
            contains: both(&a.contains, &b.contains),
            unique: a.unique.or(b.unique),
        }
    }

    /// Returns the values that `objects` allows for the member `name`, which it does not list.
    pub fn unnamed(&mut self, objects: &Objects, name: &str) -> ExprId {
        let mut all = Vec::new();
        for rest in &objects.rests {
            let matching = rest
                .patterns
                .iter()
                .filter(|(lang, _)| self.lang_of(*lang).accepts(name));
            let matching: Vec<ExprId> = matching.map(|&(_, expr)| expr).collect();
            match matching.is_empty() {
                true => all.push(rest.others),
                false => all.extend(matching),
            }
        }
        self.all_of(all)
    }

    /// Returns the values that `objects` allows for the member `name`, whether or not it lists that
    /// name.
    pub fn of_name(&mut self, objects: &Objects, name: &str) -> ExprId {
        match objects.named(name) {
            Some(expr) => expr,
            None => self.unnamed(objects, name),
        }
    }

    fn and_objects(&mut self, a: &Objects, b: &Objects) -> Objects {
        if *b == Objects::default() {
            return a.clone();
        }
        if *a == Objects::default() {
            return b.clone();
        }
        let mut named = Vec::with_capacity(a.named.len() + b.named.len());
        for (name, expr) in &a.named {
            let other = self.of_name(b, name);
            named.push((Rc::clone(name), self.all_of([*expr, other])));
        }
        for (name, expr) in &b.named {
            if a.named(name).is_none() {
                let other = self.unnamed(a, name);
                named.push((Rc::clone(name), self.all_of([other, *expr])));
            }
        }
        Objects {
            named,
            required: both(&a.required, &b.required),
            rests: both(&a.rests, &b.rests),
            names: both(&a.names, &b.names),
            witnesses: both(&a.witnesses, &b.witnesses),
            min: a.min.max(b.min),
            max: least(a.max, b.max),
            at: a.at.or(b.at),
        }
    }

    /// Returns the values of `a` that are not in `b`.
    pub fn difference(&mut self, a: &Shape, b: &Shape) -> Answer<Shape> {
        let mut shape = Shape {
            null: a.null && !b.null,
            no: a.no && !b.no,
            yes: a.yes && !b.yes,
            ..a.clone()
        };
        for y in &b.numbers {
            let all = std::mem::take(&mut shape.numbers);
            for x in &all {
                for piece in minus_numbers(y) {
                    self.spend(x.cost(y) + shape.numbers.len())?;
                    let one = and_numbers(x, &piece);
                    if !are_none(&one) && !shape.numbers.contains(&one) {
                        shape.numbers.push(one);
                    }
                }
            }
            self.check_ways(&shape, "anyOf")?;
        }
        for y in &b.strings {
            let all = std::mem::take(&mut shape.strings);
            for x in &all {
                for piece in minus_strings(y) {
                    self.spend(x.cost(y) + shape.strings.len())?;
                    let one = and_strings(x, &piece);
                    if !are_no_strings(&one) && !shape.strings.contains(&one) {
                        shape.strings.push(one);
                    }
                }
            }
            self.check_ways(&shape, "anyOf")?;
        }
        for y in &b.arrays {
            let all = std::mem::take(&mut shape.arrays);
            for x in &all {
                for piece in self.minus_arrays(x, y)? {
                    self.spend(x.cost(y) + shape.arrays.len())?;
                    let one = self.and_arrays(x, &piece);
                    if one.max.is_none_or(|max| one.min <= max) && !shape.arrays.contains(&one) {
                        shape.arrays.push(one);
                    }
                }
            }
            self.check_ways(&shape, "anyOf")?;
        }
        for y in &b.objects {
            let all = std::mem::take(&mut shape.objects);
            for x in &all {
                self.check_ways(&shape, "anyOf")?;
                for piece in self.minus_objects(x, y)? {
                    let n_compared = shape.objects.len().min(MOST_COMPARED);
                    self.spend(x.cost(y) * (1 + n_compared / 8) + shape.objects.len())?;
                    let one = self.and_objects(x, &piece);
                    if one.max.is_none_or(|max| one.min <= max)
                        && !one.lacks_required()
                        && !shape.objects.contains(&one)
                    {
                        // Comparing with more objects would take too long.
                        let mut few = shape.objects.iter().take(MOST_COMPARED);
                        if few.any(|all| self.are_within(&one, all)) {
                            continue;
                        }
                        if shape.objects.len() <= MOST_COMPARED {
                            shape.objects.retain(|other| !self.are_within(other, &one));
                        }
                        shape.objects.push(one);
                    }
                }
            }
            self.check_ways(&shape, "anyOf")?;
        }
        self.check_ways(&shape, "anyOf")?;
        Ok(shape)
    }

    /// Returns expressions whose intersection is `expr`.
    fn parts<'a>(&'a self, expr: &'a ExprId) -> &'a [ExprId] {
        match self.expr(*expr) {
            Expr::Any => &[],
            Expr::And(all) => all,
            _ => std::slice::from_ref(expr),
        }
    }

    /// True only if all objects of `a` are in `b`. May return false even then, since the fields are
    /// compared without looking into expressions.
    fn are_within(&self, a: &Objects, b: &Objects) -> bool {
        let is_within = |a: &ExprId, b: &ExprId| {
            let a_parts = self.parts(a);
            *a == NEVER || self.parts(b).iter().all(|part| a_parts.contains(part))
        };
        fn has_all<T: PartialEq>(a: &[T], b: &[T]) -> bool {
            b.iter().all(|one| a.contains(one))
        }
        a.min >= b.min
            && b.max
                .is_none_or(|max| a.max.is_some_and(|least| least <= max))
            && has_all(&a.required, &b.required)
            && has_all(&a.rests, &b.rests)
            && has_all(&a.names, &b.names)
            && has_all(&a.witnesses, &b.witnesses)
            && b.named.iter().all(|(name, of_b)| {
                a.named(name)
                    .map_or(*of_b == ANY, |of_a| is_within(&of_a, of_b))
            })
            && (b.rests.is_empty() && !self.options.closed
                || a.named.iter().all(|(name, _)| b.named(name).is_some()))
            && (!self.options.closed || a.named.len() == b.named.len())
    }

    fn no_complement(&self, keyword: &str) -> Refusal {
        let at = self.open.last().map_or(0, |&id| self.place_of(id));
        self.refusal(
            at,
            "not",
            format!("\"{keyword}\" has no complement here; say what is allowed instead"),
        )
    }

    /// Returns the arrays of `x` that are not in `y`, as a union.
    fn minus_arrays(&mut self, x: &Arrays, y: &Arrays) -> Answer<Vec<Arrays>> {
        /// The maximum number of indices of an array that are handled one by one.
        const MOST: u64 = 32;
        let mut pieces = Vec::new();
        if y.unique.is_some() && x.max.is_none_or(|max| max > 1) {
            return Err(self.no_complement("uniqueItems"));
        }
        let mut some = |i: u64, arrays: &[ExprId], what: ExprId| {
            if what == NEVER || x.max.is_some_and(|max| max <= i) {
                return;
            }
            let mut prefix = arrays.to_vec();
            prefix.push(what);
            pieces.push(Arrays {
                prefix,
                min: i + 1,
                ..Arrays::default()
            });
        };
        for (i, &expr) in y.prefix.iter().enumerate() {
            let what = self.minus(ANY, expr);
            some(i as u64, &vec![ANY; i], what);
        }
        if y.rest != ANY {
            let what = self.minus(ANY, y.rest);
            match (y.prefix.len() as u64, x.max) {
                (0, _) => pieces.push(Arrays {
                    contains: vec![Contains {
                        what,
                        min: 1,
                        max: None,
                    }],
                    ..Arrays::default()
                }),
                (n, Some(max)) if max <= MOST => {
                    (n..max).for_each(|i| some(i, &vec![ANY; i as usize], what));
                }
                (n, _) if y.rest == NEVER => pieces.push(Arrays {
                    min: n + 1,
                    ..Arrays::default()
                }),
                _ => return Err(self.no_complement("items")),
            }
        }
        if y.min > 0 {
            pieces.push(Arrays {
                max: Some(y.min - 1),
                ..Arrays::default()
            });
        }
        if let Some(max) = y.max {
            pieces.push(Arrays {
                min: max + 1,
                ..Arrays::default()
            });
        }
        for contains in &y.contains {
            let mut add = |min, max| {
                pieces.push(Arrays {
                    contains: vec![Contains {
                        what: contains.what,
                        min,
                        max,
                    }],
                    ..Arrays::default()
                });
            };
            if contains.min > 0 {
                add(0, Some(contains.min - 1));
            }
            if let Some(max) = contains.max {
                add(max + 1, None);
            }
        }
        Ok(pieces)
    }

    /// Returns the objects of `x` that are not in `y`, as a union.
    fn minus_objects(&mut self, x: &Objects, y: &Objects) -> Answer<Vec<Objects>> {
        let (mut pieces, mut witnesses) = (Vec::new(), Vec::new());
        let mut add = |piece: Objects| pieces.push(Objects { at: y.at, ..piece });
        for name in &y.required {
            add(Objects {
                named: vec![(Rc::clone(name), NEVER)],
                ..Objects::default()
            });
        }
        let mut with = |name: &Rc<str>, what: ExprId| {
            if what != NEVER {
                add(Objects {
                    named: vec![(Rc::clone(name), what)],
                    required: vec![Rc::clone(name)],
                    ..Objects::default()
                });
            }
        };
        for (name, expr) in &y.named {
            let what = self.minus(ANY, *expr);
            with(name, what);
        }
        let says_something =
            |rest: &Rest| rest.others != ANY || rest.patterns.iter().any(|&(_, e)| e != ANY);
        if y.rests.iter().any(says_something) {
            // An unnamed member violates the constraint. The cases are enumerated by name if `x`
            // allows only named members.
            let is_closed = x
                .rests
                .iter()
                .any(|rest| rest.others == NEVER && rest.patterns.iter().all(|&(_, e)| e == NEVER));
            for (name, _) in x.named.iter().filter(|_| is_closed) {
                if y.named(name).is_none() {
                    let expr = self.unnamed(y, name);
                    let what = self.minus(ANY, expr);
                    with(name, what);
                }
            }
            for rest in y.rests.iter().filter(|_| !is_closed) {
                let others = rest
                    .patterns
                    .iter()
                    .map(|&(lang, _)| (lang, false))
                    .collect();
                let patterns = rest.patterns.iter();
                let mut kinds: Vec<_> = patterns.map(|&(l, e)| (vec![(l, true)], e)).collect();
                kinds.push((others, rest.others));
                for (langs, expr) in kinds {
                    let names = Strings {
                        langs,
                        except: y.named.iter().map(|(name, _)| Rc::clone(name)).collect(),
                        ..Strings::default()
                    };
                    witnesses.push((names, self.minus(ANY, expr)));
                }
            }
        }
        for &names in &y.names {
            let mut strings = Shape::any();
            let names = self.shape(names)?;
            strings = self.difference(&strings, &names)?;
            witnesses.extend(strings.strings.into_iter().map(|names| (names, ANY)));
        }
        for (names, value) in witnesses.into_iter().filter(|&(_, value)| value != NEVER) {
            pieces.push(Objects {
                witnesses: vec![Witness { names, value }],
                at: y.at,
                ..Objects::default()
            });
        }
        for Witness { names, value } in &y.witnesses {
            if self.are_inexact(names) {
                return Err(self.no_complement("propertyNames"));
            }
            let Ok(lang) = self.lang_of_names(names) else {
                return Err(self.no_complement("patternProperties"));
            };
            pieces.push(Objects {
                rests: vec![Rest {
                    patterns: vec![(lang, self.minus(ANY, *value))],
                    others: ANY,
                }],
                at: y.at,
                ..Objects::default()
            });
        }
        if y.min > 0 {
            pieces.push(Objects {
                max: Some(y.min - 1),
                at: y.at,
                ..Objects::default()
            });
        }
        if let Some(max) = y.max {
            pieces.push(Objects {
                min: max + 1,
                at: y.at,
                ..Objects::default()
            });
        }
        Ok(pieces)
    }

    /// True only if an expression has no value. May return false even then.
    pub fn is_empty(&mut self, id: ExprId) -> bool {
        self.is_empty_within(id, 6)
    }

    fn is_empty_within(&mut self, id: ExprId, levels: usize) -> bool {
        match self.empty.get(&id) {
            Some(None) => return true,
            // Fewer levels cannot find out more.
            Some(&Some(looked_at)) if levels <= looked_at => return false,
            _ => {}
        }
        let looked_at = levels;
        let Some(levels) = levels.checked_sub(1) else {
            return false;
        };
        // A keyword that cannot be enforced is reported elsewhere, where its schema is used.
        let n_left_out = self.left_out.len();
        let shape = self.shape(id);
        if shape.is_err() {
            self.left_out.truncate(n_left_out);
        }
        let is_empty = shape.is_ok_and(|shape| self.has_none(&shape, levels));
        self.empty.insert(id, (!is_empty).then_some(looked_at));
        is_empty
    }

    /// True only if a shape has no value. May return false even then.
    pub fn has_none(&mut self, shape: &Shape, levels: usize) -> bool {
        self.work.spend(1 + shape.n_ways()).is_ok()
            && !shape.null
            && !shape.no
            && !shape.yes
            && shape.numbers.iter().all(|numbers| self.no_number(numbers))
            && shape.strings.iter().all(|strings| self.no_string(strings))
            && shape
                .arrays
                .iter()
                .all(|arrays| self.no_array(arrays, levels))
            && shape
                .objects
                .iter()
                .all(|objects| self.no_object(objects, levels))
    }

    fn no_number(&mut self, numbers: &Numbers) -> bool {
        let only_list = Numbers {
            only: None,
            ..numbers.clone()
        } == Numbers::default();
        are_none(numbers)
            || !(only_list && numbers.only.is_some())
                && self
                    .automaton_of_numbers(numbers)
                    .is_ok_and(|dfa| dfa.is_empty())
    }

    fn no_string(&mut self, strings: &Strings) -> bool {
        match strings {
            Strings {
                min: 0,
                max: None,
                only: Some(texts),
                langs,
                except,
            } if langs.is_empty() && except.is_empty() => texts.is_empty(),
            _ => self
                .outer_automaton_of_strings(strings)
                .is_ok_and(|dfa| dfa.is_empty()),
        }
    }

    fn no_array(&mut self, arrays: &Arrays, levels: usize) -> bool {
        if arrays.max.is_some_and(|max| max < arrays.min) {
            return true;
        }
        let at = |i: usize| arrays.prefix.get(i).copied().unwrap_or(arrays.rest);
        // All elements after `prefix` have the same schema.
        let n = arrays.min.min(arrays.prefix.len() as u64 + 1) as usize;
        (0..n).any(|i| self.is_empty_within(at(i), levels))
    }

    fn no_object(&mut self, objects: &Objects, levels: usize) -> bool {
        if objects.max.is_some_and(|max| max < objects.min) {
            return true;
        }
        let n = objects.required.len() * (1 + objects.named.len());
        if self.work.spend(n / 2).is_err() {
            return false;
        }
        let lacks = objects.required.iter().any(|name| {
            let expr = self.of_name(objects, name);
            self.is_empty_within(expr, levels)
        });
        lacks
            || objects
                .witnesses
                .iter()
                .any(|one| self.no_witness(objects, one, levels))
    }

    fn no_witness(&mut self, objects: &Objects, witness: &Witness, levels: usize) -> bool {
        let n = objects.rests.len() + objects.named.len();
        if self.work.spend(8 * n).is_err() {
            return false;
        }
        let Ok(names) = self.outer_automaton_of_strings(&witness.names) else {
            return false;
        };
        // Members with other names, as far as their values do not depend on the name.
        let others = objects.rests.iter().filter(|rest| rest.patterns.is_empty());
        let others = others.map(|rest| rest.others);
        let others = self.all_of(others.chain([witness.value]));
        let mut values = vec![others];
        for (_, expr) in objects.named.iter().filter(|(name, _)| names.accepts(name)) {
            values.push(self.all_of([*expr, witness.value]));
        }
        values
            .into_iter()
            .all(|value| self.is_empty_within(value, levels))
    }

    /// Returns an automaton that accepts only strings of a set. Where a format's language and its
    /// outer language differ, it may lack strings of the set.
    pub fn automaton_of_strings(&mut self, strings: &Strings) -> Result<Shared, TooLarge> {
        self.known_automaton(strings, false)
    }

    /// Returns an automaton that accepts all strings of a set, and perhaps others.
    fn outer_automaton_of_strings(&mut self, strings: &Strings) -> Result<Shared, TooLarge> {
        let outer = self.are_inexact(strings);
        self.known_automaton(strings, outer)
    }

    fn known_automaton(&mut self, strings: &Strings, outer: bool) -> Result<Shared, TooLarge> {
        let known = match outer {
            true => &self.outer_string_automata,
            false => &self.string_automata,
        };
        if let Some(dfa) = known.get(strings) {
            return Ok(Arc::clone(dfa));
        }
        if let (
            [(lang, true)],
            Strings {
                min: 0,
                max: None,
                only: None,
                except,
                ..
            },
        ) = (&*strings.langs, strings)
            && except.is_empty()
        {
            return Ok(self.estimate_of(*lang, outer));
        }
        let dfa = self.made_automaton(strings, outer)?;
        let known = match outer {
            true => &mut self.outer_string_automata,
            false => &mut self.string_automata,
        };
        known.insert(strings.clone(), Arc::clone(&dfa));
        Ok(dfa)
    }

    /// Returns the outer language of `lang` if `outer` is set, or else `lang` itself.
    fn estimate_of(&self, lang: LangId, outer: bool) -> Shared {
        match outer {
            true => self.outer_lang_of(lang),
            false => self.lang_of(lang),
        }
    }

    /// Builds the automaton of a set of strings. If `outer` is set, it requires outer languages and
    /// excludes the languages themselves. Otherwise it requires the languages themselves and
    /// excludes outer languages.
    fn made_automaton(&self, strings: &Strings, outer: bool) -> Result<Shared, TooLarge> {
        let mut dfa = match &strings.only {
            Some(texts) => Dfa::of_texts(texts.iter().map(|text| &**text))?,
            None => Dfa::all(),
        };
        for &(lang, is_in) in &strings.langs {
            let lang = self.estimate_of(lang, outer == is_in);
            dfa = match is_in {
                true => dfa.and(&lang, &self.work)?,
                false => dfa.minus(&lang, &self.work)?,
            };
        }
        if !strings.except.is_empty() {
            let except = Dfa::of_texts(strings.except.iter().map(|text| &**text))?;
            dfa = dfa.minus(&except, &self.work)?;
        }
        dfa = dfa.minimized(&self.work);
        let is_within = dfa.shortest() >= strings.min
            && (strings
                .max
                .is_none_or(|max| dfa.longest().is_some_and(|n| n <= max)));
        if !is_within {
            dfa = dfa.of_length(strings.min, strings.max, &self.work)?;
            dfa = dfa.minimized(&self.work);
        }
        Ok(Arc::new(dfa))
    }

    /// Returns the automaton of the union of sets of strings.
    pub fn automaton_of_any(&mut self, all: &[Strings]) -> Result<Dfa, TooLarge> {
        let mut any = Dfa::of_texts([])?;
        for strings in all {
            let dfa = self.automaton_of_strings(strings)?;
            any = any.or(&dfa, &self.work)?;
        }
        Ok(any.minimized(&self.work))
    }

    /// Returns the refusal of a keyword.
    pub fn refusal(&self, at: JsonId, keyword: &str, why: impl Into<String>) -> Refusal {
        Refusal {
            pointer: self.document.pointer(at),
            keyword: keyword.into(),
            why: why.into(),
        }
    }

    /// Leaves a keyword out if the options allow it; otherwise refuses it.
    pub fn leave_out(&mut self, refusal: Refusal) -> Answer<()> {
        if !self.options.lenient {
            return Err(refusal);
        }
        if !self.left_out.contains(&refusal) {
            self.left_out.push(refusal);
        }
        Ok(())
    }
}

impl Objects {
    /// True if no value is possible for a required member.
    fn lacks_required(&self) -> bool {
        let mut never = self.named.iter().filter(|&&(_, expr)| expr == NEVER);
        never.any(|(name, _)| self.required.contains(name))
    }

    /// Returns the values of the member `name`; `None` if the object does not list that name.
    pub fn named(&self, name: &str) -> Option<ExprId> {
        let named = self.named.iter().find(|(other, _)| **other == *name);
        named.map(|&(_, expr)| expr)
    }
}

/// Returns the shape that has only this scalar.
pub fn shape_of_scalar(scalar: &Scalar) -> Shape {
    let mut shape = Shape::default();
    match scalar {
        Scalar::Null => shape.null = true,
        Scalar::Bool(true) => shape.yes = true,
        Scalar::Bool(false) => shape.no = true,
        Scalar::Number(number) => shape.numbers.push(Numbers {
            only: Some(vec![number.clone()]),
            ..Numbers::default()
        }),
        Scalar::String(text) => shape.strings.push(Strings {
            only: Some(vec![Rc::clone(text)]),
            ..Strings::default()
        }),
    }
    shape
}

/// True only if a set of numbers is empty. May return false even then.
fn are_none(numbers: &Numbers) -> bool {
    let is_in = |list: &[Decimal], all: &[Decimal]| all.iter().all(|one| list.contains(one));
    if matches!(&numbers.only, Some(only) if is_in(&numbers.except, only)) {
        return true;
    }
    if numbers
        .multiples
        .iter()
        .any(|number| numbers.no_multiples.contains(number))
    {
        return true;
    }
    match (&numbers.min, &numbers.max) {
        (Some((min, without_min)), Some((max, without_max))) => {
            min > max || (min == max && (*without_min || *without_max))
        }
        _ => false,
    }
}

/// True only if a set of strings is empty. May return false even then.
fn are_no_strings(strings: &Strings) -> bool {
    let is_contrary = |&(lang, is_in): &(LangId, bool)| strings.langs.contains(&(lang, !is_in));
    strings
        .only
        .as_ref()
        .is_some_and(|only| only.iter().all(|text| strings.except.contains(text)))
        || strings.max.is_some_and(|max| max < strings.min)
        || strings.langs.iter().any(is_contrary)
}

fn and_numbers(a: &Numbers, b: &Numbers) -> Numbers {
    let is_contrary = matches!((a.integer, b.integer), (Some(a), Some(b)) if a != b);
    let only = lists(&a.only, &b.only);
    Numbers {
        integer: a.integer.or(b.integer),
        min: tighter(&a.min, &b.min, |a, b| a > b),
        max: tighter(&a.max, &b.max, |a, b| a < b),
        multiples: both(&a.multiples, &b.multiples),
        no_multiples: both(&a.no_multiples, &b.no_multiples),
        only: if is_contrary { Some(Vec::new()) } else { only },
        except: both(&a.except, &b.except),
    }
}

fn and_strings(a: &Strings, b: &Strings) -> Strings {
    Strings {
        min: a.min.max(b.min),
        max: least(a.max, b.max),
        langs: both(&a.langs, &b.langs),
        only: lists(&a.only, &b.only),
        except: both(&a.except, &b.except),
    }
}

/// Returns all numbers that are not in a set, as a union.
fn minus_numbers(numbers: &Numbers) -> Vec<Numbers> {
    let mut pieces = Vec::new();
    let mut add = |piece| pieces.push(piece);
    if let Some(integer) = numbers.integer {
        add(Numbers {
            integer: Some(!integer),
            ..Numbers::default()
        });
    }
    if let Some((min, without)) = &numbers.min {
        add(Numbers {
            max: Some((min.clone(), !without)),
            ..Numbers::default()
        });
    }
    if let Some((max, without)) = &numbers.max {
        add(Numbers {
            min: Some((max.clone(), !without)),
            ..Numbers::default()
        });
    }
    for number in &numbers.multiples {
        add(Numbers {
            no_multiples: vec![number.clone()],
            ..Numbers::default()
        });
    }
    for number in &numbers.no_multiples {
        add(Numbers {
            multiples: vec![number.clone()],
            ..Numbers::default()
        });
    }
    if let Some(only) = &numbers.only {
        add(Numbers {
            except: only.clone(),
            ..Numbers::default()
        });
    }
    if !numbers.except.is_empty() {
        add(Numbers {
            only: Some(numbers.except.clone()),
            ..Numbers::default()
        });
    }
    pieces
}

/// Returns all strings that are not in a set, as a union.
fn minus_strings(strings: &Strings) -> Vec<Strings> {
    let mut pieces = Vec::new();
    let mut add = |piece| pieces.push(piece);
    if strings.min > 0 {
        add(Strings {
            max: Some(strings.min - 1),
            ..Strings::default()
        });
    }
    if let Some(max) = strings.max {
        add(Strings {
            min: max + 1,
            ..Strings::default()
        });
    }
    for &(lang, is_in) in &strings.langs {
        add(Strings {
            langs: vec![(lang, !is_in)],
            ..Strings::default()
        });
    }
    if let Some(only) = &strings.only {
        add(Strings {
            except: only.clone(),
            ..Strings::default()
        });
    }
    if !strings.except.is_empty() {
        add(Strings {
            only: Some(strings.except.clone()),
            ..Strings::default()
        });
    }
    pieces
}
