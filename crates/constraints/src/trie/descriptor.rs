//! The JSON payload that describes a constraint, as hosts send it
//! (`docs/token-tree-payload.schema.json`).
//!
//! ```json
//! {"modelId": "m", "descriptors": [{"path": "action", "leaves": [
//!     {"name": "THINK", "tokens": [100, 101]}]}]}
//! ```
//!
//! Unknown fields are ignored, and `modelId` may be missing. Errors name the line and column, or
//! the path of the element, as in `descriptors[0].leaves[2].tokens[1]`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

use crate::memory;
use crate::quoted::quoted;
use crate::token::Token;

/// The maximum number of tokens of a value, and of a span.
pub const SPAN_LIMIT: usize = 500;

/// A small valid payload, which messages about an invalid one show.
const SMALL: &str = r#"{"descriptors":[{"path":"p","leaves":[{"name":"yes","tokens":[1,2]}]}]}"#;

/// A parsed payload.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(remote = "Self")]
pub struct Payload {
    /// The model that the tokens belong to. It is ignored.
    #[serde(rename = "modelId", default, deserialize_with = "text")]
    pub model_id: String,
    /// The spans that can be constrained.
    #[serde(deserialize_with = "elements")]
    pub descriptors: Vec<Descriptor>,
}

/// A kind of span, with its allowed values.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(remote = "Self")]
pub struct Descriptor {
    /// The name by which a span is activated.
    #[serde(deserialize_with = "text")]
    pub path: String,
    /// The allowed values.
    #[serde(deserialize_with = "elements")]
    pub leaves: Vec<Leaf>,
    /// The tokens that may follow where a value ends and another continues. If there are none, any
    /// token may.
    #[serde(default, deserialize_with = "tokens")]
    pub terminators: Vec<Token>,
}

/// One allowed value.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(remote = "Self")]
pub struct Leaf {
    /// The name of the value. It contains no NUL, which would end it in C.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// The tokens of the value, in order, at most [`SPAN_LIMIT`]. A value without tokens is
    /// skipped.
    #[serde(deserialize_with = "tokens")]
    pub tokens: Vec<Token>,
}

/// Returns the error for a text where another type is expected. serde's own error would quote the
/// whole text.
fn no_text<E: Error, V>(text: &str, expected: &dyn serde::de::Expected) -> Result<V, E> {
    let text = format!("string \"{}\"", quoted(text));
    Err(E::invalid_type(Unexpected::Other(&text), expected))
}

/// Reads a `T` from an object only. serde's derived code would also accept an array of the fields,
/// which the schema does not allow.
struct Object<T>(PhantomData<T>);

macro_rules! from_object {
    ($($type:ident)*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Object::<Self>(PhantomData))
            }
        }

        impl<'de> Visitor<'de> for Object<$type> {
            type Value = $type;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<$type, E> {
                no_text(text, &self)
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<$type, A::Error> {
                $type::deserialize(MapAccessDeserializer::new(fields))
            }
        }
    )*};
}

from_object!(Payload Descriptor Leaf);

/// Reads an array of any length. Running out of memory unwinds.
fn elements<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_any(Elements(|element: T| element))
}

/// Reads an array of tokens. Running out of memory unwinds.
fn tokens<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Token>, D::Error> {
    from.deserialize_any(Elements(|Number(token)| token))
}

/// Reads an array of `R` and converts each element to a `T`.
struct Elements<R, T>(fn(R) -> T);

impl<'de, R: Deserialize<'de>, T> Visitor<'de> for Elements<R, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = from.next_element::<R>()? {
            memory::push(&mut all, (self.0)(element));
        }
        Ok(all)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        no_text(text, &self)
    }
}

/// A token in a payload.
struct Number(Token);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ANumber)
    }
}

struct ANumber;

impl Visitor<'_> for ANumber {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("i32")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Number, E> {
        let token = Token::try_from(number).map(Number);
        token.map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Number, E> {
        let token = Token::try_from(number).map(Number);
        token.map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
        no_text(text, &self)
    }
}

/// Reads a text of any length. Running out of memory unwinds.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    struct Text;

    impl Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(memory::text(text))
        }
    }

    from.deserialize_str(Text)
}

impl Payload {
    /// Parses and checks `json`. Tokens must be at least 0 and, if `n_vocab` is given, below it. At
    /// least one value must have tokens, and none may have more than [`SPAN_LIMIT`]. No name may
    /// contain NUL.
    pub fn parse(json: &[u8], n_vocab: Option<usize>) -> Result<Self, String> {
        let payload: Self = serde_json::from_slice(json)
            .map_err(|error| format!("the payload is not valid: {error}; a small one: {SMALL}"))?;
        payload.check(n_vocab)?;
        Ok(payload)
    }

    /// Checks a payload that was not parsed from JSON, by the rules of [`parse`](Self::parse).
    pub fn check(&self, n_vocab: Option<usize>) -> Result<(), String> {
        let mut empty = true;
        for (i, descriptor) in self.descriptors.iter().enumerate() {
            for (j, leaf) in descriptor.leaves.iter().enumerate() {
                leaf.check(n_vocab)
                    .map_err(|text| format!("descriptors[{i}].leaves[{j}].{text}"))?;
                empty &= leaf.tokens.is_empty();
            }
            for (k, &token) in descriptor.terminators.iter().enumerate() {
                check_token(token, n_vocab)
                    .map_err(|text| format!("descriptors[{i}].terminators[{k}]: {text}"))?;
            }
        }
        if empty {
            return Err("the payload has no leaf with tokens: nothing would be allowed".to_owned());
        }
        Ok(())
    }
}

impl Leaf {
    fn check(&self, n_vocab: Option<usize>) -> Result<(), String> {
        if self.name.contains('\0') {
            return Err(format!(
                "name: \"{}\" holds NUL, at which C would end it",
                quoted(&self.name)
            ));
        }
        let n = self.tokens.len();
        if n > SPAN_LIMIT {
            return Err(format!(
                "tokens: the value has {n} tokens, and a span at most {SPAN_LIMIT} \
                 (LLAMA_SIEVE_TRIE_SPAN_LIMIT)"
            ));
        }
        for (k, &token) in self.tokens.iter().enumerate() {
            check_token(token, n_vocab).map_err(|text| format!("tokens[{k}]: {text}"))?;
        }
        Ok(())
    }
}

fn check_token(token: Token, n_vocab: Option<usize>) -> Result<(), String> {
    let Ok(index) = usize::try_from(token) else {
        return Err(format!("token {token} is negative"));
    };
    match n_vocab {
        Some(n_vocab) if index >= n_vocab => Err(format!(
            "token {token} is outside the vocabulary of {n_vocab}"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
