//! Writes constants as llama.cpp does: without white space, and with members in the order of the
//! schema.

use std::fmt::Write;

use crate::grammar::schema::reader::{Document, Json, JsonId};

/// A number as llama.cpp reads it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A 64-bit integer, written without a point or an exponent.
    Integer(i128),
    /// Any other number.
    Float(f64),
}

/// Reads the text of a number; `None` if the value overflows a 64-bit float.
pub fn number(text: &str) -> Option<Number> {
    let has_fraction = text.contains(['.', 'e', 'E']);
    if let (false, Ok(integer)) = (has_fraction, text.parse::<i128>())
        && (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&integer)
    {
        return Some(Number::Integer(integer));
    }
    let float: f64 = text.parse().ok()?;
    float.is_finite().then_some(Number::Float(float))
}

/// Returns the text of a value; `None` if a number in it overflows a 64-bit float.
pub fn text_of(document: &Document, id: JsonId) -> Option<String> {
    let mut text = String::new();
    write_value(&mut text, document, id)?;
    Some(text)
}

fn write_value(text: &mut String, document: &Document, id: JsonId) -> Option<()> {
    match document.get(id) {
        Json::Null => text.push_str("null"),
        Json::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Json::Number(_, written) => match number(written)? {
            Number::Integer(integer) => text.push_str(&integer.to_string()),
            Number::Float(float) => text.push_str(&float_text(float)),
        },
        Json::String(content) => text.push_str(&quoted(content)),
        Json::Array(elements) => {
            text.push('[');
            for (i, &element) in elements.iter().enumerate() {
                text.push_str(if i > 0 { "," } else { "" });
                write_value(text, document, element)?;
            }
            text.push(']');
        }
        Json::Object(members) => {
            text.push('{');
            for (i, (name, value)) in members.iter().enumerate() {
                text.push_str(if i > 0 { "," } else { "" });
                text.push_str(&quoted(name));
                text.push(':');
                write_value(text, document, *value)?;
            }
            text.push('}');
        }
    }
    Some(())
}

/// Returns the content as a JSON string, with only the escapes that JSON requires.
pub fn quoted(content: &str) -> String {
    let mut text = String::from("\"");
    for character in content.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\0'..='\u{1f}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            _ => text.push(character),
        }
    }
    text.push('"');
    text
}

/// Returns the shortest text that is read back as the same number: plain from 0.0001 up to fifteen
/// digits before the point, otherwise with an exponent of at least two digits.
fn float_text(number: f64) -> String {
    const MOST_WHOLE: i32 = 15;
    const MOST_ZEROS: i32 = 3;
    let sign = if number.is_sign_negative() { "-" } else { "" };
    if number == 0.0 {
        return format!("{sign}0.0");
    }
    let shortest = format!("{:e}", number.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits = mantissa.replace('.', "");
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let n_digits = digits.len() as i32;
    if (0..MOST_WHOLE).contains(&exponent) {
        let n_whole = exponent as usize + 1;
        if n_digits <= exponent + 1 {
            return format!("{sign}{digits:0<n_whole$}.0");
        }
        let (whole, fraction) = digits.split_at(n_whole);
        return format!("{sign}{whole}.{fraction}");
    }
    if (-MOST_ZEROS - 1..0).contains(&exponent) {
        let zeros = "0".repeat((-exponent - 1) as usize);
        return format!("{sign}0.{zeros}{digits}");
    }
    let (first, more) = digits.split_at(1);
    let point = if more.is_empty() { "" } else { "." };
    let minus = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{more}e{minus}{:02}", exponent.abs())
}
