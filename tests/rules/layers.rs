//! Checks the layers within each crate by the paths that its modules import: no module imports from
//! a higher layer, and there are no cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::sources::{read, root, rust_files};

/// The crates with layers: the folder of each, and its modules from the lowest layer up. A module
/// may import from its own layer and from lower ones. Cargo enforces the layers of crates.
const CRATES: [(&str, &[&[&str]]); 4] = [
    (
        "crates/kernels/src",
        &[
            &[
                "environment",
                "host_profile",
                "lcg",
                "memory",
                "per_thread",
                "random",
                "sync",
                "token",
                "windows",
            ],
            &["simd"],
            &["kernels"],
            &["algorithms"],
        ],
    ),
    (
        "crates/constraints/src",
        &[&["quoted"], &["bans", "grammar", "trie"]],
    ),
    (
        "src",
        &[
            &[
                "errors",
                "fault",
                "last_error",
                "log",
                "sync",
                "write_signals",
            ],
            &["instruction_set", "vocabulary"],
            &["history", "rng"],
            &["candidates", "pool"],
            &[
                "built_in", "grammar", "metrics", "sampler", "samplers", "trie",
            ],
            &["trace"],
            &["chain"],
            &["sieve"],
            &["ffi"],
        ],
    ),
    (
        "preload/src",
        &[
            &["callers", "columns", "functions", "stubs", "thread_end"],
            &["host_constructors"],
            &["routes", "slots"],
            &["budget", "constructors", "vocabularies"],
            &["settings"],
            &["proof"],
            &["watch"],
            &["calls", "choice"],
            &["extra", "grammars"],
            &["presence"],
            &["attach", "sampling"],
        ],
    ),
];

type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns the modules of a crate by their paths, such as `a::b`, each with the modules that it
/// imports. Tests are left out, since they may import everything.
fn imports(folder: &str) -> Imports {
    let src = root().join(folder);
    let files = rust_files(&src);
    let sources: BTreeMap<String, String> = files
        .iter()
        .map(|file| (module(file.strip_prefix(&src).expect("inside")), read(file)))
        .filter(|(name, _)| !name.is_empty() && !is_of_tests(name))
        .collect();
    let known = |mut path: &str| loop {
        if sources.contains_key(path) {
            return Some(path.to_owned());
        }
        path = path.rsplit_once("::")?.0;
    };
    let of = |(name, source): (&String, &String)| {
        let paths = used(source)
            .into_iter()
            .filter_map(|path| absolute(name, &path));
        let mut modules: BTreeSet<String> = paths.filter_map(|path| known(&path)).collect();
        modules.remove(name);
        (name.clone(), modules)
    };
    sources.iter().map(of).collect()
}

fn is_of_tests(module: &str) -> bool {
    module == "models" || module == "denormals" || module.contains("tests")
}

/// Returns the path of a module: `a::b` for `a/b.rs` and for `a/b/mod.rs`, and the empty text for
/// the root.
fn module(file: &Path) -> String {
    let name = file
        .with_extension("")
        .display()
        .to_string()
        .replace('/', "::");
    if name == "lib" {
        return String::new();
    }
    name.strip_suffix("::mod").unwrap_or(&name).to_owned()
}

/// Returns the paths in all `use` declarations, and those in code that begin with `crate::`, except
/// in inline test modules.
fn used(source: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let source = source
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let source = source
        .split("#[cfg(all(test, not(miri)))]\nmod tests {")
        .next()
        .unwrap_or_default();
    let mut declaration: Option<String> = None;
    for line in source.lines().map(str::trim) {
        let begin = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
        let begins = begin.iter().find_map(|begin| line.strip_prefix(begin));
        match (&mut declaration, begins) {
            (None, Some(rest)) => declaration = Some(rest.to_owned()),
            (None, None) => {
                paths.extend(in_code(line));
                continue;
            }
            (Some(so_far), _) => so_far.push_str(line),
        }
        if let Some(whole) = declaration.take_if(|so_far| so_far.ends_with(';')) {
            expand("", whole.trim_end_matches(';'), &mut paths);
        }
    }
    paths
}

/// Returns the paths in a line of code that begin with `crate::`, except those of a macro's
/// `$crate` and of `pub(in crate::a)`, which are not imports.
fn in_code(line: &str) -> impl Iterator<Item = String> {
    let code = if line.starts_with("//") { "" } else { line };
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.match_indices("crate::").filter_map(move |(i, _)| {
        let (before, path) = code.split_at(i);
        let is_other = before.ends_with(|c| is_part(c) || c == '$') || before.ends_with("(in ");
        let end = path.find(|c| !is_part(c)).unwrap_or(path.len());
        (!is_other).then(|| path.split_at(end).0.to_owned())
    })
}

/// Expands `a::{b, c::{d, e}}` to `a::b`, `a::c::d` and `a::c::e`.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((before, inside)) = tree.split_once('{') else {
        return paths.push(format!("{prefix}{}", tree.trim()));
    };
    let prefix = format!("{prefix}{}", before.trim());
    let inside = inside.strip_suffix('}').expect("the brace ends the tree");
    let (mut depth, mut start) = (0, 0);
    for (i, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inside.get(start..i).unwrap_or_default().trim();
                if !part.is_empty() {
                    expand(&prefix, part, paths);
                }
                start = i + 1;
            }
            _ => {}
        }
    }
}

/// Returns the path from the root of the crate; `None` for a path into another crate.
fn absolute(module: &str, path: &str) -> Option<String> {
    if let Some(path) = path.strip_prefix("crate::") {
        return Some(path.to_owned());
    }
    if let Some(path) = path.strip_prefix("self::") {
        return Some(format!("{module}::{path}"));
    }
    let (mut base, mut path) = (module, path);
    path.starts_with("super::").then(|| {
        while let Some(rest) = path.strip_prefix("super::") {
            (base, path) = (base.rsplit_once("::").map_or("", |(up, _)| up), rest);
        }
        format!("{base}::{path}")
            .trim_start_matches("::")
            .to_owned()
    })
}

fn first(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

fn layer(layers: &[&[&str]], module: &str) -> usize {
    let found = layers
        .iter()
        .position(|layer| layer.contains(&first(module)));
    found.unwrap_or_else(|| panic!("{module} is in no layer: name its folder in CRATES"))
}

/// Returns all modules that `from` imports, and those that these import.
fn reached<'a>(imports: &'a Imports, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        for import in imports.get(module).into_iter().flatten() {
            if seen.insert(import.as_str()) {
                next.push(import);
            }
        }
    }
    seen
}

#[test]
fn nobody_imports_from_above() {
    let mut found = 0;
    for (folder, layers) in CRATES {
        for (module, imported) in &imports(folder) {
            found += 1;
            let own = layer(layers, module);
            for import in imported {
                assert!(
                    layer(layers, import) <= own,
                    "{folder}: {module} imports {import}, which is above it"
                );
            }
        }
    }
    assert!(found > 80, "only {found} modules were found");
}

#[test]
fn no_module_imports_itself_through_others() {
    for (folder, _) in CRATES {
        let imports = imports(folder);
        for module in imports.keys() {
            let reached = reached(&imports, module);
            if reached.contains(module.as_str()) {
                let back = |other: &&&str| self::reached(&imports, other).contains(module.as_str());
                let circle: Vec<_> = reached.iter().filter(back).collect();
                panic!("{folder}: {module} is in a circle of imports: {circle:?}");
            }
        }
    }
}

#[test]
fn imports_are_read_as_the_compiler_reads_them() {
    let source = "use std::fmt;\nuse crate::a::{\n    b, c::{d,\n    e},\n};\npub use super::x::*;\n\
                  fn f(x: &crate::f::F) { $crate::g::g!() }\npub(in crate::h) fn g() {}\n\
                  // crate::i\n#[cfg(test)]\nmod tests {\n    use crate::never;\n}\n";
    let paths = used(source);
    assert_eq!(
        paths,
        [
            "std::fmt",
            "crate::a::b",
            "crate::a::c::d",
            "crate::a::c::e",
            "super::x::*",
            "crate::f::F"
        ]
    );
    assert_eq!(absolute("m::n", "super::x::*").as_deref(), Some("m::x::*"));
    assert_eq!(absolute("m", "super::x").as_deref(), Some("x"));
    assert_eq!(absolute("m", "std::fmt"), None);
}

/// The trait that every instruction set implements stays small.
#[test]
fn a_backend_has_few_methods_to_write() {
    let source = read(&root().join("crates/kernels/src/simd/vector.rs"));
    let body = source.split("pub trait Vector").nth(1).expect("the trait");
    let body = body.split("\n}\n").next().expect("it ends");
    let is_required = |signature: &&str| match (signature.find(";\n"), signature.find("{\n")) {
        (Some(end), Some(body)) => end < body,
        (end, _) => end.is_some(),
    };
    let required = body.split("\n    fn ").skip(1).filter(is_required).count();
    assert!((20..=38).contains(&required), "{required} methods");
}
