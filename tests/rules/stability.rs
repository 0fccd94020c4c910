//! Checks that the current header still declares all functions, structs and constants of the first
//! release, as docs/stability.md promises: programs compiled with that header work with a later
//! library. Limits and version numbers may have risen, and structs that begin with `struct_size`
//! may have grown.

use std::collections::BTreeMap;

use crate::sources::{read, root};

/// The declarations of a header.
#[derive(Default)]
pub(crate) struct Header {
    /// The result and the types of the parameters of each function, by its name.
    functions: BTreeMap<String, String>,
    /// The fields of each struct in order, by its name.
    structs: BTreeMap<String, Vec<String>>,
    pub(crate) numbers: BTreeMap<String, String>,
}

fn released() -> Header {
    header(&read(&root().join("c-tests/first_version/llama_sieve.h")))
}

fn today() -> Header {
    header(&read(&root().join("include/llama_sieve.h")))
}

fn without_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    code + rest
}

pub(crate) fn header(text: &str) -> Header {
    let mut found = Header::default();
    let mut code = String::new();
    for line in without_comments(text).lines() {
        let line = line.split("//").next().unwrap_or_default();
        if let Some((name, value)) = line
            .strip_prefix("#define ")
            .and_then(|define| define.split_once(' '))
        {
            found
                .numbers
                .insert(name.to_owned(), value.trim().to_owned());
        } else if !line.starts_with('#') && !line.starts_with("extern \"C\"") {
            code.push_str(line);
            code.push(' ');
        }
    }
    let mut rest = code.as_str();
    while let Some(end) = rest.find([';', '{']) {
        let begin = rest[..end].trim();
        let mut behind = &rest[end + 1..];
        if rest[end..].starts_with('{') {
            let (fields, after) = behind.split_once('}').expect("a struct ends");
            let name = begin.rsplit(' ').next().unwrap_or_default();
            found.structs.insert(name.to_owned(), fields_of(fields));
            behind = after.split_once(';').expect("a typedef ends").1;
        } else if let Some((name, types)) = function(begin) {
            found.functions.insert(name, types);
        }
        rest = behind;
    }
    found
}

fn fields_of(text: &str) -> Vec<String> {
    let fields = text.split(';').map(words);
    fields.filter(|field| !field.is_empty()).collect()
}

/// Returns the text with one space between words, and none next to an asterisk.
fn words(text: &str) -> String {
    let spaced = text.replace('*', " * ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    words.join(" ").replace(" * ", "*").replace(" *", "*")
}

/// Returns the name and the types of a declaration, without the names of parameters, which may
/// change.
fn function(declaration: &str) -> Option<(String, String)> {
    if declaration.starts_with("typedef") {
        return None;
    }
    let (before, parameters) = declaration.split_once('(')?;
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let result = before.trim_end_matches(is_of_name);
    let parameters = parameters
        .trim_end_matches(')')
        .split(',')
        .map(|parameter| {
            let is_named = parameter.split_whitespace().count() > 1;
            let kind = if is_named {
                parameter.trim_end_matches(is_of_name)
            } else {
                parameter
            };
            words(kind)
        });
    let types: Vec<String> = parameters.collect();
    let name = before[result.len()..].to_owned();
    Some((name, format!("{}({})", words(result), types.join(", "))))
}

/// Returns the declarations that a program compiled with an earlier header would miss in a later
/// one.
fn broken(earlier: &Header, later: &Header) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, types) in &earlier.functions {
        if later.functions.get(name) != Some(types) {
            broken.push(format!("{name}: {types}"));
        }
    }
    for (name, fields) in &earlier.structs {
        let now = later.structs.get(name);
        // A struct may grow if the caller fills in its size. Others have a fixed size.
        let may_grow = fields
            .first()
            .is_some_and(|field| field == "size_t struct_size");
        let holds = now
            .is_some_and(|now| now.starts_with(fields) && (may_grow || now.len() == fields.len()));
        if !holds {
            broken.push(format!("struct {name}"));
        }
    }
    for (name, number) in &earlier.numbers {
        // A limit may be raised, and the version must be.
        if name.contains("_MAX_") || name.contains("_VERSION_") {
            continue;
        }
        if later.numbers.get(name) != Some(number) {
            broken.push(format!("{name} {number}"));
        }
    }
    broken
}

#[test]
fn what_was_released_is_in_todays_header() {
    let (released, today) = (released(), today());
    assert!(
        released.functions.len() > 60,
        "{}",
        released.functions.len()
    );
    assert!(released.structs.len() >= 3, "{}", released.structs.len());
    assert!(released.numbers.len() > 20, "{}", released.numbers.len());
    assert_eq!(broken(&released, &today), Vec::<String>::new());
}

#[test]
fn what_was_released_is_exported() {
    let exports = read(&root().join("tests/exports.txt"));
    for name in released().functions.keys() {
        assert!(exports.lines().any(|export| export == name), "{name}");
    }
}

#[test]
fn what_breaks_a_program_would_be_found() {
    let earlier = "#define LLAMA_A 1\n#define LLAMA_MAX_B 2\n\
        /* ; */ typedef struct grows { size_t struct_size; int32_t a; } grows;\n\
        typedef struct stays { float x; } stays;\n\
        typedef struct opaque opaque;\n\
        const char *f(struct s *p, size_t n);\nvoid g(void);\n";
    let changed = |from: &str, to: &str| {
        assert!(earlier.contains(from), "{from}");
        broken(&header(earlier), &header(&earlier.replace(from, to))).len()
    };
    for (from, to) in [
        ("size_t n)", "size_t count)"),
        ("int32_t a; }", "int32_t a; float b; }"),
        ("LLAMA_MAX_B 2", "LLAMA_MAX_B 3"),
        ("void g(void);", "void g(void);\nvoid h(void);"),
        ("struct s *p", "struct s * p"),
    ] {
        assert_eq!(changed(from, to), 0, "{to}");
    }
    for (from, to) in [
        ("size_t n)", "uint32_t n)"),
        ("const char *f", "char *f"),
        ("struct s *p, ", ""),
        ("void g(void);", ""),
        ("int32_t a; }", "int64_t a; }"),
        (
            "size_t struct_size; int32_t a;",
            "int32_t a; size_t struct_size;",
        ),
        ("float x; }", "float x; float y; }"),
        ("LLAMA_A 1", "LLAMA_A 2"),
    ] {
        assert_eq!(changed(from, to), 1, "{to}");
    }
}
