//! Runs the official JSON-Schema-Test-Suite, from a folder with a draft's tests that
//! `ci/json-schema-suite` fetches. Each case must be right, refused by name, or listed here.

use std::fs::{read_dir, read_to_string};
use std::path::PathBuf;

use llama_sieve::grammar::Grammar;
use llama_sieve::grammar::schema::Options;
use llama_sieve::grammar::schema::formats::ENFORCED;
use serde_json::{Map, Value, json};

use crate::{accepts, grammar, tree};

/// Cases that differ from the suite: the file, the beginning of the description, and the reason.
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

/// Checks the suite's texts of formats: no invalid one is accepted as a text of the format, and no
/// valid one as a text that does not have the format.
#[test]
#[ignore = "ci/json-schema-suite gets the suite and runs it"]
fn the_suites_texts_of_formats() {
    let folder = std::env::var("LLAMA_SIEVE_JSON_FORMATS").expect("ci/json-schema-suite sets it");
    let tree = tree();
    let (mut n_valid, mut n_accepted, mut n_invalid) = (0, 0, 0);
    for format in ENFORCED {
        let file = PathBuf::from(&folder).join(format).with_extension("json");
        let text = read_to_string(&file).expect("the suite has each format");
        let groups: Vec<Value> = serde_json::from_str(&text).expect("the suite is JSON");
        let of = |schema: Value| grammar(&schema, Options::default(), &tree).ok().flatten();
        let inside = of(json!({ "type": "string", "format": format }));
        let outside = of(json!({ "type": "string", "not": { "format": format } }));
        let tests = groups.iter().flat_map(|group| group["tests"].as_array());
        for test in tests.flatten().filter(|test| test["data"].is_string()) {
            let text = test["data"].to_string();
            let accepted = |grammar: &Option<Grammar>| {
                grammar
                    .as_ref()
                    .is_some_and(|grammar| accepts(grammar, &text))
            };
            match test["valid"] == true {
                true => {
                    assert!(!accepted(&outside), "not {format}: {text}");
                    n_valid += 1;
                    n_accepted += usize::from(accepted(&inside));
                }
                false => {
                    assert!(!accepted(&inside), "{format}: {text}");
                    n_invalid += 1;
                }
            }
        }
    }
    println!("{n_accepted} of {n_valid} valid texts accepted, none of {n_invalid} invalid ones");
    assert!(2 * n_accepted > n_valid && n_invalid > 100);
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
