//! The names that llama.cpp's converter gives to rules.

use std::rc::Rc;

use llama_sieve_kernels::random::{HashMap, HashSet};

/// The name of a rule.
pub type Name = Rc<str>;

/// The names of the fixed rules, each with the names of the rules that it refers to.
pub const PRIMITIVES: [(&str, &[&str]); 18] = [
    ("boolean", &[]),
    ("decimal-part", &[]),
    ("integral-part", &[]),
    ("number", &["integral-part", "decimal-part"]),
    ("integer", &["integral-part"]),
    (
        "value",
        &["object", "array", "string", "number", "boolean", "null"],
    ),
    ("object", &["string", "value"]),
    ("array", &["value"]),
    ("uuid", &[]),
    ("char", &[]),
    ("string", &["char"]),
    ("null", &[]),
    ("date", &[]),
    ("time", &[]),
    ("date-time", &["date", "time"]),
    ("date-string", &["date"]),
    ("time-string", &["time"]),
    ("date-time-string", &["date-time"]),
];

/// Rules by name.
#[derive(Debug, Default)]
pub struct Names {
    /// The number of each rule that was mentioned.
    pub rules: HashMap<Name, u32>,
    /// The numbers of the rules that were written.
    pub written: HashSet<u32>,
    /// The names under which the fixed rules were written.
    pub primitives: HashMap<&'static str, Name>,
}

impl Names {
    /// True if a rule named `name` has been written.
    pub fn has(&self, name: &str) -> bool {
        let rule = self.rules.get(name);
        rule.is_some_and(|rule| self.written.contains(rule))
    }

    /// Returns the number of the rule named `root`, if it was mentioned.
    pub fn root(&self) -> Option<u32> {
        self.rules.get("root").copied()
    }

    /// Returns the number of a rule that was mentioned, but not written.
    pub fn missing(&self) -> Option<u32> {
        let mut rules = self.rules.values();
        rules.find(|rule| !self.written.contains(rule)).copied()
    }
}

/// Returns a name with each run of characters other than letters, digits and dashes replaced by a
/// dash.
pub fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    let mut is_replaced = false;
    for character in name.chars() {
        let is_kept = character.is_ascii_alphanumeric() || character == '-';
        if is_kept {
            escaped.push(character);
        } else if !is_replaced {
            escaped.push('-');
        }
        is_replaced = !is_kept;
    }
    escaped
}

/// Returns the name of a part, given the name of the whole.
pub fn joined(name: &str, part: &str) -> Name {
    match name.is_empty() {
        true => part.into(),
        false => format!("{name}-{part}").into(),
    }
}

/// Returns the name of the rule for a node.
pub fn rule_name(name: &Name) -> Name {
    let is_primitive = PRIMITIVES
        .iter()
        .any(|(primitive, _)| **primitive == **name);
    if is_primitive || &**name == "root" {
        return format!("{name}-").into();
    }
    match name.is_empty() {
        true => "root".into(),
        false => Rc::clone(name),
    }
}
