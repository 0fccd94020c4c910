//! Turns a choice of texts into rules.

use crate::grammar::builder::Builder;
use crate::grammar::elements::Rules;
use crate::grammar::limits::{MAX_CHOICES, MAX_TEXT};
use crate::quoted::quoted;

/// Returns rules that match the texts `values` and no other text. The error is a message for the
/// caller.
pub fn rules(values: &[&[u8]]) -> Result<Rules, String> {
    if values.is_empty() {
        return Err("there is no value to choose from".into());
    }
    if values.len() > MAX_CHOICES {
        return Err(format!(
            "there are {} values, more than {MAX_CHOICES} (LLAMA_SIEVE_CHOICE_MAX_VALUES)",
            values.len()
        ));
    }
    let n_bytes: usize = values.iter().map(|value| value.len()).sum();
    if n_bytes > MAX_TEXT {
        return Err(format!(
            "the values have more than {MAX_TEXT} bytes together (LLAMA_SIEVE_GRAMMAR_MAX_TEXT)"
        ));
    }
    let mut builder = Builder::default();
    let mut alternatives = Vec::new();
    for (i, value) in values.iter().enumerate() {
        let Ok(text) = std::str::from_utf8(value) else {
            return Err(format!("value {i}, \"{}\", is not UTF-8", quoted(value)));
        };
        if text.contains('\0') {
            return Err(format!("value {i}, \"{}\", has NUL in it", quoted(value)));
        }
        alternatives.push(builder.text(text).map_err(|error| error.to_string())?);
    }
    let rules = builder.alternatives(alternatives);
    let rules = rules.and_then(|whole| builder.rules(whole));
    rules.map_err(|error| error.to_string())
}
