//! The layers of the house, read off the `use` lines: what a folder may import, and that no files
//! import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Each folder, and what of the crate its files may import beside each other.
const LAYERS: [(&str, &[&str]); 3] = [
    ("simd", &["token", "environment", "log"]),
    ("kernels", &["token", "simd"]),
    ("algorithms", &["token", "simd", "kernels"]),
];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every file below `folder`, by its path of modules from the root of the crate.
fn modules(folder: &Path, path: &[String], found: &mut BTreeMap<Vec<String>, String>) {
    for entry in std::fs::read_dir(folder).expect("the folder exists") {
        let file = entry.expect("readable").path();
        let name = file.file_stem().expect("a name").to_string_lossy();
        let mut path = path.to_vec();
        if name != "mod" {
            path.push(name.into_owned());
        }
        if file.is_dir() {
            modules(&file, &path, found);
        } else if file.extension().is_some_and(|e| e == "rs") {
            found.insert(path, std::fs::read_to_string(&file).expect("readable"));
        }
    }
}

/// The paths that a `use` statement names, with its braces opened.
fn opened(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else {
        return vec![tree.to_owned()];
    };
    let inner = rest.strip_suffix('}').expect("braces are closed");
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => (),
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts
        .flat_map(|part| opened(&format!("{head}{part}")))
        .collect()
}

/// The paths that a file imports, but for its tests.
fn imports(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next();
    let mut found = Vec::new();
    let mut lines = code.unwrap_or_default().lines();
    let mut for_tests = false;
    while let Some(line) = lines.next() {
        let line = line.trim();
        let statement = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
        let Some(tree) = statement.iter().find_map(|start| line.strip_prefix(start)) else {
            for_tests = line == "#[cfg(test)]";
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.ends_with(';') {
            tree += lines.next().expect("the statement ends").trim();
        }
        let tree: String = tree.chars().filter(|c| !" ;".contains(*c)).collect();
        if !for_tests {
            found.extend(opened(&tree));
        }
        for_tests = false;
    }
    found
}

/// The module file that a path in the file `of` belongs to; `None` if it is not of this crate.
fn file_of(
    path: &str,
    of: &[String],
    files: &BTreeMap<Vec<String>, String>,
) -> Option<Vec<String>> {
    let mut module = of.to_vec();
    let mut names: Vec<&str> = path.split("::").collect();
    match names[0] {
        "crate" => module.clear(),
        "self" => (),
        "super" => {
            while names.get(1) == Some(&"super") {
                names.remove(0);
                module.pop();
            }
            module.pop();
        }
        // A child of this module, if anything of ours.
        name if files.contains_key(&[of, &[name.to_owned()]].concat()) => names.insert(0, "self"),
        _ => return None,
    }
    let mut file = module.clone();
    for name in &names[1..] {
        module.push((*name).to_owned());
        if files.contains_key(&module) {
            file = module.clone();
        }
    }
    files.contains_key(&file).then_some(file)
}

/// What each file imports of the crate.
fn graph(files: &BTreeMap<Vec<String>, String>) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let edges = files.iter().map(|(file, source)| {
        let to = imports(source);
        let to = to.iter().filter_map(|path| file_of(path, file, files));
        (file.clone(), to.filter(|to| to != file).collect())
    });
    edges.collect()
}

/// A circle in the graph, if there is one.
fn circle(graph: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>) -> Option<Vec<String>> {
    let mut left = graph.clone();
    // What imports nothing that is left is no part of a circle.
    loop {
        let ends: Vec<_> = left
            .iter()
            .filter(|(_, to)| !to.iter().any(|to| left.contains_key(to)))
            .map(|(file, _)| file.clone())
            .collect();
        if ends.is_empty() {
            break;
        }
        ends.iter().for_each(|end| drop(left.remove(end)));
    }
    (!left.is_empty()).then(|| left.keys().map(|file| file.join("::")).collect())
}

fn crate_files() -> BTreeMap<Vec<String>, String> {
    let mut files = BTreeMap::new();
    modules(&sources(), &[], &mut files);
    // The root of the crate names everything.
    files.remove(&vec!["lib".to_owned()]);
    // What is compiled for tests only.
    files.retain(|path, _| {
        let last = path.last().map_or("", String::as_str);
        !last.starts_with("tests") && !last.starts_with("naive")
    });
    files
}

#[test]
fn each_layer_imports_only_what_is_below() {
    let files = crate_files();
    for (file, to) in graph(&files) {
        let Some((layer, below)) = LAYERS.iter().find(|(layer, _)| file[0] == *layer) else {
            continue;
        };
        for to in to {
            let folder = to[0].as_str();
            assert!(
                folder == *layer || below.contains(&folder),
                "{} imports {}",
                file.join("::"),
                to.join("::")
            );
        }
    }
}

#[test]
fn no_files_of_a_layer_import_each_other_in_a_circle() {
    let mut files = crate_files();
    files.retain(|path, _| LAYERS.iter().any(|(layer, _)| path[0] == *layer));
    assert!(files.len() > 30, "only {} files were found", files.len());
    assert_eq!(circle(&graph(&files)), None);
}

#[test]
fn a_circle_would_be_found() {
    let file = |source: &str| source.to_owned();
    let path = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
    let files = BTreeMap::from([
        (path("a"), file("pub use b::{\n    One,\n    Two,\n};\n")),
        (path("a::b"), file("use super::{c::{self, d}, e};\n")),
        (path("a::c"), file("use crate::a::Two;\n")),
        (path("a::e"), file("use std::path::Path;\n")),
    ]);
    let found = circle(&graph(&files)).expect("a, b and c are in one");
    assert_eq!(found, ["a", "a::b", "a::c"]);
}

/// The trait that every backend implements stays small.
#[test]
fn a_backend_has_few_methods_to_write() {
    let source = std::fs::read_to_string(sources().join("simd/vector.rs")).expect("readable");
    let body = source.split("pub trait Vector").nth(1).expect("the trait");
    let body = body.split("\n}\n").next().expect("it ends");
    let mut signatures = body.split("\n    fn ").skip(1);
    let is_required = |signature: &&str| match (signature.find(";\n"), signature.find("{\n")) {
        (Some(end), Some(body)) => end < body,
        (end, _) => end.is_some(),
    };
    let required = signatures.by_ref().filter(is_required).count();
    assert!((20..=38).contains(&required), "{required} methods");
}
