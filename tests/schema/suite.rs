//! Runs the official JSON-Schema-Test-Suite, from a folder with a draft's tests that
//! `ci/json-schema-suite` fetches. Each case must be right, refused by name, or listed here.

use std::fs::{read_dir, read_to_string};
use std::path::PathBuf;

use llama_sieve::grammar::Grammar;
use llama_sieve::grammar::schema::Options;
use serde_json::{Map, Value};

use crate::{accepts, grammar, tree};

/// Cases that differ from the suite, by the file and the beginnings of their descriptions.
const LISTED: [(&str, &str, &str); 2] = [
    ("format.json", "", "formats are enforced: users expect it"),
    (
        "type.json",
        "integer type matches integers: a float with zero fractional part",
        "programs read integers without a point",
    ),
];

/// Returns the texts of a value with the members of its objects in every order.
pub fn orders(value: &Value) -> Vec<String> {
    const MOST: usize = 5000;
    fn joined(
        parts: &[(String, Vec<String>)],
        used: &mut Vec<usize>,
        all: &mut Vec<String>,
        text: &str,
    ) {
        if used.len() == parts.len() {
            all.push(text.to_owned());
        }
        for (i, (name, values)) in parts.iter().enumerate() {
            if used.contains(&i) || all.len() > MOST {
                continue;
            }
            used.push(i);
            for value in values {
                let comma = if text.is_empty() { "" } else { "," };
                joined(parts, used, all, &format!("{text}{comma}{name}{value}"));
            }
            used.pop();
        }
    }
    let members = |members: &Map<String, Value>| -> Vec<(String, Vec<String>)> {
        let name = |name: &str| format!("{}:", Value::from(name));
        members
            .iter()
            .map(|(key, value)| (name(key), orders(value)))
            .collect()
    };
    match value {
        Value::Object(all) if !all.is_empty() => {
            let mut texts = Vec::new();
            joined(&members(all), &mut Vec::new(), &mut texts, "");
            texts.iter().map(|text| format!("{{{text}}}")).collect()
        }
        Value::Array(all) => {
            let mut texts = vec![String::new()];
            for (i, element) in all.iter().enumerate() {
                let comma = if i == 0 { "" } else { "," };
                let elements = orders(element);
                texts = texts
                    .iter()
                    .flat_map(|text| {
                        elements
                            .iter()
                            .map(move |more| format!("{text}{comma}{more}"))
                    })
                    .take(MOST)
                    .collect();
            }
            texts.iter().map(|text| format!("[{text}]")).collect()
        }
        other => vec![other.to_string()],
    }
}

#[test]
#[ignore = "ci/json-schema-suite gets the suite and runs it"]
fn the_official_suite() {
    let folder = std::env::var("LLAMA_SIEVE_JSON_SUITE").expect("ci/json-schema-suite sets it");
    let draft = std::env::var("LLAMA_SIEVE_JSON_DRAFT").expect("ci/json-schema-suite sets it");
    let entries = read_dir(folder).expect("the folder of a draft's tests");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("listed").path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "json"));
    files.sort();
    let tree = tree();
    let (mut n_right, mut n_refused, mut n_listed, mut wrong) = (0, 0, 0, Vec::new());
    for file in files {
        let name = file
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        let text = read_to_string(&file).expect("the suite is read");
        let groups: Vec<Value> = serde_json::from_str(&text).expect("the suite is JSON");
        for group in groups {
            let mut schema = group["schema"].clone();
            if let (false, Some(members)) = (draft.is_empty(), schema.as_object_mut()) {
                let said = Value::from(&*draft);
                members.entry("$schema").or_insert(said);
            }
            let tests = group["tests"].as_array().expect("tests");
            let Ok(grammar) = grammar(&schema, Options::default(), &tree) else {
                n_refused += tests.len();
                continue;
            };
            for test in tests {
                let is_valid = test["valid"] == true;
                let texts = orders(&test["data"]);
                let any = |text: &String| grammar.as_ref().is_some_and(|g| accepts(g, text));
                if texts.iter().any(any) == is_valid {
                    n_right += 1;
                    continue;
                }
                let what = format!(
                    "{}: {}",
                    group["description"].as_str().unwrap_or_default(),
                    test["description"].as_str().unwrap_or_default()
                );
                let is_listed = |(in_file, begin, _): &(&str, &str, &str)| {
                    *in_file == name && what.starts_with(begin)
                };
                // Only valid instances may be listed.
                match is_valid && LISTED.iter().any(is_listed) {
                    true => n_listed += 1,
                    false => wrong.push(format!("{name}: {what}: {}", test["data"])),
                }
            }
        }
    }
    println!(
        "{n_right} right, {n_refused} refused, {n_listed} listed, {} wrong",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        4 * n_right > 3 * (n_right + n_refused),
        "too many are refused"
    );
}

/// Each published schema becomes a grammar, or is refused with a location and keyword, or as a
/// whole.
#[test]
#[ignore = "ci/json-schema-suite gets the schemas and runs it"]
fn published_schemas_become_grammars_or_are_refused_by_name() {
    let folder = std::env::var("LLAMA_SIEVE_SCHEMAS").expect("a folder of schemas");
    let tree = tree();
    let (mut n_made, mut n_refused) = (0, 0);
    for entry in read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        let text = std::fs::read(&path).expect("readable");
        match Grammar::of_schema(&text, Options::default(), &tree) {
            Ok(_) => n_made += 1,
            Err(refused) => {
                let is_named = refused.what.starts_with("the schema: ")
                    || refused.what.starts_with("the schema at \"#")
                        && refused.what.contains("keyword \"");
                assert!(is_named, "{}: {}", path.display(), refused.what);
                n_refused += 1;
            }
        }
    }
    println!("{n_made} schemas become grammars, {n_refused} are refused");
    assert!(n_made > n_refused, "{n_made} {n_refused}");
}
