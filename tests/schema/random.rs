//! Makes random schemas and random values from few names and texts, so that they often match.

use serde_json::{Map, Value, json};

/// Returns a random number below its argument.
pub type Below<'a> = dyn FnMut(usize) -> usize + 'a;

const NAMES: [&str; 4] = ["a", "b", "ab", "c"];
const TEXTS: [&str; 8] = ["", "a", "ab", "b", "ba", "abc", "\u{e9}\"", "7"];
/// Patterns without `.`, whose meaning in the validator's regular expressions differs from
/// ECMA-262.
const PATTERNS: [&str; 6] = ["^a", "b$", "^[a-c]*$", "^[^x]{2}$", "a|\\d", "^(ab|b)+$"];

fn one<'a, T: ?Sized>(below: &mut Below<'_>, all: &[&'a T]) -> &'a T {
    all[below(all.len())]
}

/// Returns a random JSON value.
pub fn value(below: &mut Below<'_>, depth: usize) -> Value {
    match below(if depth == 0 { 6 } else { 9 }) {
        0 => Value::Null,
        1 => json!(below(2) == 0),
        2 => json!(below(14) as i64 - 3),
        3 => json!((below(40) as f64 - 8.0) / 4.0 + 0.125),
        4 | 5 => json!(one(below, &TEXTS)),
        6 => (0..below(4)).map(|_| value(below, depth - 1)).collect(),
        _ => {
            let mut members = Map::new();
            for _ in 0..below(4) {
                let name = one(below, &NAMES).to_owned();
                members.insert(name, value(below, depth - 1));
            }
            Value::Object(members)
        }
    }
}

fn names(below: &mut Below<'_>) -> Value {
    let mut all: Vec<&str> = (0..below(3)).map(|_| one(below, &NAMES)).collect();
    all.sort_unstable();
    all.dedup();
    json!(all)
}

fn sub(below: &mut Below<'_>, depth: usize) -> Value {
    match below(8) {
        0 => json!(true),
        1 => json!(false),
        2 => json!({ "$ref": format!("#/$defs/{}", below(2)) }),
        _ => schema(below, depth),
    }
}

fn map(below: &mut Below<'_>, depth: usize, keys: &[&str]) -> Value {
    let mut all = Map::new();
    for _ in 0..=below(3) {
        let key = one(below, keys).to_owned();
        all.insert(key, sub(below, depth));
    }
    Value::Object(all)
}

fn list(below: &mut Below<'_>, depth: usize) -> Value {
    (0..=below(2)).map(|_| sub(below, depth)).collect()
}

/// Returns a random schema without definitions.
pub fn schema(below: &mut Below<'_>, depth: usize) -> Value {
    const TYPES: [&str; 7] = [
        "null", "boolean", "integer", "number", "string", "array", "object",
    ];
    let mut all = Map::new();
    for _ in 0..=below(4) {
        let (keyword, value) = match below(if depth == 0 { 12 } else { 31 }) {
            0 => ("type", json!(one(below, &TYPES))),
            1 => ("type", json!([one(below, &TYPES), "null"])),
            2 => (
                "enum",
                json!([value(below, 1), value(below, 0), value(below, 1)]),
            ),
            3 => ("const", value(below, 1)),
            4 => ("minimum", json!(below(9) as f64 - 2.5)),
            5 => ("maximum", json!(below(9) as i64)),
            6 => ("exclusiveMinimum", json!(below(6) as i64 - 2)),
            7 => ("multipleOf", json!([1.0, 0.5, 2.0, 3.0][below(4)])),
            8 => ("minLength", json!(below(3))),
            9 => ("maxLength", json!(below(4))),
            10 => ("pattern", json!(one(below, &PATTERNS))),
            11 => ("required", names(below)),
            12 | 13 => ("properties", map(below, depth - 1, &NAMES)),
            14 => ("patternProperties", map(below, depth - 1, &PATTERNS)),
            15 | 16 => ("additionalProperties", sub(below, depth - 1)),
            17 => ("propertyNames", json!({ "pattern": one(below, &PATTERNS) })),
            18 => ("minProperties", json!(below(3))),
            19 => ("maxProperties", json!(below(3))),
            20 => ("items", sub(below, depth - 1)),
            21 => ("prefixItems", list(below, depth - 1)),
            22 => ("minItems", json!(below(3))),
            23 => ("maxItems", json!(below(4))),
            24 => ("contains", sub(below, depth - 1)),
            25 => ("maxContains", json!(1 + below(2))),
            26 => ("allOf", list(below, depth - 1)),
            27 => ("anyOf", list(below, depth - 1)),
            28 => ("oneOf", list(below, depth - 1)),
            29 => ("not", sub(below, depth - 1)),
            _ => {
                all.insert("then".into(), sub(below, depth - 1));
                if below(2) == 0 {
                    all.insert("else".into(), sub(below, depth - 1));
                }
                if below(3) == 0 {
                    let dependent = json!({ one(below, &NAMES): names(below) });
                    ("dependentRequired", dependent)
                } else {
                    ("if", sub(below, depth - 1))
                }
            }
        };
        all.insert(keyword.into(), value);
    }
    Value::Object(all)
}

/// Returns a random schema with two definitions. Its subschemas, and those of the definitions, may
/// refer to the definitions.
pub fn whole(below: &mut Below<'_>) -> Value {
    let mut schema = schema(below, 2);
    if let Value::Object(members) = &mut schema {
        let definitions = json!({ "0": self::schema(below, 1), "1": self::schema(below, 1) });
        members.insert("$defs".into(), definitions);
    }
    schema
}
