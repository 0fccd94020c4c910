//! A second implementation of the payload of docs/token-tree-payload.schema.json: which bytes are
//! valid, and the values that they contain.

use std::fmt;

use crate::span::{Descriptor, Descriptors, LONGEST};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The verdict of the rules on some bytes.
#[derive(Debug)]
pub enum Verdict {
    Accepted(Descriptors),
    Refused(&'static str),
    /// Valid JSON that a parser may be unable to represent: a number outside every type, half a
    /// surrogate pair, or deep nesting. The payload may still be valid if that is in an ignored
    /// field.
    Unclear,
}

/// A JSON value that keeps duplicate keys.
enum Json {
    Other,
    Integer(i128),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Applies the rules to `bytes`. Tokens must be below `n_vocab`, if it is known.
pub fn judge(bytes: &[u8], n_vocab: Option<usize>) -> Verdict {
    if serde_json::from_slice::<IgnoredAny>(bytes).is_err() {
        return Verdict::Refused("no JSON");
    }
    let Ok(value) = serde_json::from_slice::<Json>(bytes) else {
        return Verdict::Unclear;
    };
    match descriptors_of(&value, n_vocab) {
        Ok(descriptors) => Verdict::Accepted(descriptors),
        Err(why) => Verdict::Refused(why),
    }
}

fn descriptors_of(value: &Json, n_vocab: Option<usize>) -> Result<Descriptors, &'static str> {
    if let Some(model) = field(value, "modelId")? {
        text(model)?;
    }
    let descriptors = array(required(value, "descriptors")?)?;
    let descriptors: Descriptors = descriptors
        .iter()
        .map(|descriptor| descriptor_of(descriptor, n_vocab))
        .collect::<Result<_, _>>()?;
    let mut leaves = descriptors.iter().flat_map(|d| &d.leaves);
    if leaves.all(|(_, tokens)| tokens.is_empty()) {
        return Err("nothing would be allowed");
    }
    Ok(descriptors)
}

fn descriptor_of(value: &Json, n_vocab: Option<usize>) -> Result<Descriptor, &'static str> {
    let path = text(required(value, "path")?)?.to_owned();
    let leaves = array(required(value, "leaves")?)?;
    let leaves = leaves.iter().map(|leaf| leaf_of(leaf, n_vocab));
    let terminators = match field(value, "terminators")? {
        Some(tokens) => tokens_of(array(tokens)?, n_vocab)?,
        None => Vec::new(),
    };
    Ok(Descriptor {
        path,
        leaves: leaves.collect::<Result<_, _>>()?,
        terminators,
    })
}

fn leaf_of(value: &Json, n_vocab: Option<usize>) -> Result<(String, Vec<i32>), &'static str> {
    let name = text(required(value, "name")?)?.to_owned();
    if name.contains('\0') {
        return Err("C cannot read the name");
    }
    let tokens = array(required(value, "tokens")?)?;
    if tokens.len() > LONGEST {
        return Err("a value is longer than a span");
    }
    Ok((name, tokens_of(tokens, n_vocab)?))
}

fn tokens_of(tokens: &[Json], n_vocab: Option<usize>) -> Result<Vec<i32>, &'static str> {
    let tokens = tokens.iter().map(|token| {
        let &Json::Integer(token) = token else {
            return Err("a token is no integer");
        };
        let token = i32::try_from(token).map_err(|_| "a token is out of range")?;
        let index = usize::try_from(token).map_err(|_| "a token is negative")?;
        match n_vocab {
            Some(n) if index >= n => Err("a token is outside the vocabulary"),
            _ => Ok(token),
        }
    });
    tokens.collect()
}

/// Returns a known field, which must not be repeated. Unknown fields may have any value, any number
/// of times.
fn field<'a>(value: &'a Json, name: &str) -> Result<Option<&'a Json>, &'static str> {
    let Json::Object(fields) = value else {
        return Err("not an object");
    };
    let mut found = fields.iter().filter(|(key, _)| key == name);
    let first = found.next();
    if found.next().is_some() {
        return Err("a field comes twice");
    }
    Ok(first.map(|(_, value)| value))
}

fn required<'a>(value: &'a Json, name: &str) -> Result<&'a Json, &'static str> {
    field(value, name)?.ok_or("a field is missing")
}

fn text(value: &Json) -> Result<&str, &'static str> {
    match value {
        Json::Text(text) => Ok(text),
        _ => Err("not a string"),
    }
}

fn array(value: &Json) -> Result<&[Json], &'static str> {
    match value {
        Json::Array(values) => Ok(values),
        _ => Err("not an array"),
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Integer(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Integer(number.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Json, A::Error> {
        let mut array = Vec::new();
        while let Some(value) = values.next_element()? {
            array.push(value);
        }
        Ok(Json::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(field) = fields.next_entry()? {
            object.push(field);
        }
        Ok(Json::Object(object))
    }
}
