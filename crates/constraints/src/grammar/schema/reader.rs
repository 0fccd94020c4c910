//! Parses JSON. The parser keeps the order of members, detects repeated names, and reads numbers of
//! any length.
//!
//! `serde_json` does not report repeated names, and reads numbers as 64 bits, unless a feature
//! changes that for the whole program.

// In bounds: numbers of values are positions in a list that only grows.

use std::rc::Rc;

use llama_sieve_kernels::random::HashMap;

use crate::grammar::limits::{MAX_SCHEMA_DEPTH, MAX_SCHEMA_TEXT, MAX_SCHEMA_VALUES};
use crate::grammar::schema::decimal::Decimal;
use crate::grammar::schema::refusal::{Answer, Refusal};
use crate::quoted::quoted;

/// The id of a value.
pub type JsonId = u32;

/// The names and values of an object, in the order of the text.
pub type Members = Rc<[(Rc<str>, JsonId)]>;

/// A JSON value.
#[derive(Clone, Debug)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, and its text.
    Number(Decimal, Rc<str>),
    /// A string.
    String(Rc<str>),
    /// The elements of an array.
    Array(Rc<[JsonId]>),
    /// The members of an object, in the order of the text.
    Object(Members),
}

/// All values of a JSON text.
#[derive(Debug, Default)]
pub struct Document {
    values: Vec<Json>,
    /// The object or array that contains each value, and the value's name or index in it.
    parents: Vec<Option<(JsonId, Rc<str>)>>,
    /// The root value.
    pub root: JsonId,
}

impl Document {
    /// Returns an empty document, with memory for as many values as most texts of this length have.
    fn with_room_for(text: &str) -> Self {
        const BYTES_PER_VALUE: usize = 16;
        let n = (text.len() / BYTES_PER_VALUE).min(MAX_SCHEMA_VALUES);
        Self {
            values: Vec::with_capacity(n),
            parents: Vec::with_capacity(n),
            root: 0,
        }
    }

    /// Returns a value.
    pub fn get(&self, id: JsonId) -> &Json {
        &self.values[id as usize]
    }

    /// Returns the object or array that contains a value, and the value's name or index in it.
    pub fn parent(&self, id: JsonId) -> Option<(JsonId, &str)> {
        let (parent, step) = self.parents[id as usize].as_ref()?;
        Some((*parent, step))
    }

    /// Returns the value of an object's member.
    pub fn member(&self, id: JsonId, name: &str) -> Option<JsonId> {
        match self.get(id) {
            Json::Object(members) => members
                .iter()
                .find(|(other, _)| **other == *name)
                .map(|&(_, value)| value),
            _ => None,
        }
    }

    /// Returns the members of an object; none for any other value.
    pub fn members(&self, id: JsonId) -> Members {
        match self.get(id) {
            Json::Object(members) => Rc::clone(members),
            _ => Rc::new([]),
        }
    }

    /// Returns the JSON pointer to a value.
    pub fn pointer(&self, id: JsonId) -> String {
        let mut steps = Vec::new();
        let mut at = id;
        while let Some((parent, step)) = self.parent(at) {
            steps.push(step.replace('~', "~0").replace('/', "~1"));
            at = parent;
        }
        let steps = steps.iter().rev().map(|step| format!("/{step}"));
        steps.collect()
    }

    /// Returns the value at a JSON pointer relative to `id`.
    pub fn at_pointer(&self, id: JsonId, pointer: &str) -> Option<JsonId> {
        let mut at = id;
        if pointer.is_empty() {
            return Some(at);
        }
        for step in pointer.strip_prefix('/')?.split('/') {
            let step = step.replace("~1", "/").replace("~0", "~");
            at = match self.get(at) {
                // Only digits, without a leading 0.
                Json::Array(elements) => {
                    let index = step
                        .parse::<usize>()
                        .ok()
                        .filter(|n| n.to_string() == step)?;
                    *elements.get(index)?
                }
                _ => self.member(at, &step)?,
            };
        }
        Some(at)
    }

    /// True if two values are equal by JSON Schema's rules.
    pub fn equal(&self, a: JsonId, b: JsonId) -> bool {
        match (self.get(a), self.get(b)) {
            (Json::Null, Json::Null) => true,
            (Json::Bool(a), Json::Bool(b)) => a == b,
            (Json::Number(a, _), Json::Number(b, _)) => a == b,
            (Json::String(a), Json::String(b)) => a == b,
            (Json::Array(a), Json::Array(b)) => {
                a.len() == b.len() && a.iter().zip(&**b).all(|(&a, &b)| self.equal(a, b))
            }
            (Json::Object(a), Json::Object(_)) => {
                a.len() == self.members(b).len()
                    && a.iter()
                        .all(|(name, a)| self.member(b, name).is_some_and(|b| self.equal(*a, b)))
            }
            _ => false,
        }
    }
}

/// The treatment of a repeated name in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// The text is refused.
    Refused,
    /// The member has the position of the first occurrence, and the value of the last.
    LastCounts,
}

/// Parses a JSON text.
pub fn read(text: &[u8], repeated: Repeated) -> Answer<Document> {
    if text.len() > MAX_SCHEMA_TEXT {
        return Err(Refusal::whole(format!(
            "{} bytes are more than LLAMA_SIEVE_JSON_MAX_TEXT, {MAX_SCHEMA_TEXT}",
            text.len()
        )));
    }
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            return Err(Refusal::whole(format!("byte {at} is no UTF-8")));
        }
    };
    let mut reader = Reader {
        text,
        at: 0,
        repeated,
        document: Document::with_room_for(text),
    };
    reader.space();
    let root = reader.value(0, None)?;
    reader.document.root = root;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.fault("expected the end of the text"));
    }
    Ok(reader.document)
}

/// The maximum number of members of an object that are compared one by one to find a repeated name.
const FEW_MEMBERS: usize = 16;

struct Reader<'a> {
    text: &'a str,
    at: usize,
    repeated: Repeated,
    document: Document,
}

impl<'a> Reader<'a> {
    fn fault(&self, what: &str) -> Refusal {
        Refusal::whole(format!("no JSON: {}: {what}", self.place()))
    }

    /// Returns the line and column of the next character, for messages.
    fn place(&self) -> String {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        format!("line {line}, column {column}")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn value(&mut self, depth: usize, parent: Option<(JsonId, Rc<str>)>) -> Answer<JsonId> {
        if depth > MAX_SCHEMA_DEPTH {
            return Err(self.fault(&format!(
                "nested deeper than LLAMA_SIEVE_JSON_MAX_DEPTH, {MAX_SCHEMA_DEPTH}"
            )));
        }
        if self.document.values.len() >= MAX_SCHEMA_VALUES {
            return Err(self.fault(&format!(
                "more values than LLAMA_SIEVE_JSON_MAX_VALUES, {MAX_SCHEMA_VALUES}"
            )));
        }
        let id = self.document.values.len() as JsonId;
        self.document.values.push(Json::Null);
        self.document.parents.push(parent);
        let value = match self.peek() {
            Some(b'{') => self.object(id, depth)?,
            Some(b'[') => self.array(id, depth)?,
            Some(b'"') => Json::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        self.document.values[id as usize] = value;
        Ok(id)
    }

    fn word(&mut self) -> Answer<Json> {
        for (word, value) in [
            ("null", Json::Null),
            ("true", Json::Bool(true)),
            ("false", Json::Bool(false)),
        ] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.fault("expected a value"))
    }

    fn array(&mut self, id: JsonId, depth: usize) -> Answer<Json> {
        self.at += 1;
        let mut elements = Vec::new();
        self.space();
        if self.eat(b']') {
            return Ok(Json::Array(elements.into()));
        }
        loop {
            let step = elements.len().to_string().into();
            elements.push(self.value(depth + 1, Some((id, step)))?);
            self.space();
            if self.eat(b']') {
                return Ok(Json::Array(elements.into()));
            }
            if !self.eat(b',') {
                return Err(self.fault("expected ',' or ']'"));
            }
            self.space();
        }
    }

    fn object(&mut self, id: JsonId, depth: usize) -> Answer<Json> {
        self.at += 1;
        let mut members: Vec<(Rc<str>, JsonId)> = Vec::new();
        let mut places: HashMap<Rc<str>, usize> = HashMap::default();
        self.space();
        if self.eat(b'}') {
            return Ok(Json::Object(members.into()));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.fault("expected a name in quotation marks"));
            }
            let name = self.string()?;
            let place = match members.len() {
                0..FEW_MEMBERS => members.iter().position(|(known, _)| *known == name),
                _ => {
                    let known = members.iter().skip(places.len()).zip(places.len()..);
                    places.extend(known.map(|((name, _), place)| (Rc::clone(name), place)));
                    places.get(&name).copied()
                }
            };
            let place = place.unwrap_or(members.len());
            if place < members.len() && self.repeated == Repeated::Refused {
                return Err(self.fault(&format!("the name \"{}\" comes twice", quoted(&*name))));
            }
            self.space();
            if !self.eat(b':') {
                return Err(self.fault("expected ':'"));
            }
            self.space();
            let value = self.value(depth + 1, Some((id, Rc::clone(&name))))?;
            match members.get_mut(place) {
                Some(before) => before.1 = value,
                None => members.push((name, value)),
            }
            self.space();
            if self.eat(b'}') {
                return Ok(Json::Object(members.into()));
            }
            if !self.eat(b',') {
                return Err(self.fault("expected ',' or '}'"));
            }
            self.space();
        }
    }

    fn digits(&mut self) -> Answer<()> {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        match self.at > from {
            true => Ok(()),
            false => Err(self.fault("expected a digit")),
        }
    }

    fn number(&mut self) -> Answer<Json> {
        let from = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        let text = &self.text[from..self.at];
        match Decimal::read(text) {
            Some(number) => Ok(Json::Number(number, text.into())),
            None => Err(Refusal::whole(format!(
                "{}: the exponent of a number is beyond 1000, the most that is read",
                self.place()
            ))),
        }
    }

    fn string(&mut self) -> Answer<Rc<str>> {
        self.at += 1;
        let plain = self.plain();
        if self.eat(b'"') {
            return Ok(plain.into());
        }
        let mut text = String::from(plain);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text.into());
                }
                Some(b'\\') => {
                    self.at += 1;
                    text.push(self.escape()?);
                }
                Some(_) => return Err(self.fault("a control character in a string")),
                None => return Err(self.fault("the string has no end")),
            }
            text.push_str(self.plain());
        }
    }

    /// Reads the characters up to the next one that ends the string, begins an escape, or is not
    /// allowed in a string. Returns them.
    fn plain(&mut self) -> &'a str {
        let rest: &'a str = self.text.get(self.at..).unwrap_or_default();
        let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..0x20);
        let n = rest.bytes().take_while(is_plain).count();
        self.at += n;
        rest.get(..n).unwrap_or_default()
    }

    fn escape(&mut self) -> Answer<char> {
        let escaped = self.peek();
        let is = match escaped {
            Some(letter @ (b'"' | b'\\' | b'/')) => letter,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => 10,
            Some(b'r') => 13,
            Some(b't') => 9,
            Some(b'u') => {
                self.at += 1;
                return self.unit_pair();
            }
            _ => return Err(self.fault("no escape of JSON")),
        };
        self.at += 1;
        Ok(char::from(is))
    }

    fn unit(&mut self) -> Answer<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let text = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(unit) = text.and_then(|text| u32::from_str_radix(text, 16).ok()) else {
            return Err(self.fault("expected four hexadecimal digits"));
        };
        self.at += 4;
        Ok(unit)
    }

    fn unit_pair(&mut self) -> Answer<char> {
        let mut code_point = self.unit()?;
        if (0xD800..0xDC00).contains(&code_point) && self.eat(b'\\') && self.eat(b'u') {
            let low = self.unit()?;
            if (0xDC00..0xE000).contains(&low) {
                code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
            }
        }
        char::from_u32(code_point).ok_or_else(|| self.fault("half of a surrogate pair"))
    }
}
