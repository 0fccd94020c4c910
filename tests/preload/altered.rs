//! Builds hosts from changed sources of llama.cpp.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::toolchain::{compile_common, succeed};
use vendor_llama_cpp::paths;

/// Precedes each changed source. The environment variable `MUTANT` selects the change that is
/// active.
pub const PREAMBLE: &str = r#"
#include <cstdlib>
#include <cstring>
static bool is_chosen(const char * name) {
    const char * chosen = std::getenv("MUTANT");
    return chosen != nullptr && std::strcmp(chosen, name) == 0;
}
#define mutant(name) ([] { static const bool is = is_chosen(name); return is; }())
"#;

/// Returns a source file of llama.cpp.
pub fn original(file: &str) -> String {
    let file = paths::source_dir().join(file);
    std::fs::read_to_string(file).expect("llama.cpp's source is there")
}

/// Returns a source file of llama.cpp with the first occurrence of each text replaced.
pub fn changed(file: &str, changes: &[(&str, &str)]) -> String {
    let mut source = original(file);
    for (from, to) in changes {
        assert!(source.contains(from), "{file}: {from}");
        source = source.replacen(from, to, 1);
    }
    source
}

/// Builds a libllama.so in `folder`, with `source` in place of llama.cpp's file `name`. Returns its
/// path.
pub fn library(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, source).expect("a writable folder");
    let (object, library) = (file.with_extension("o"), folder.join("libllama.so"));
    let include = paths::source_dir().join("src").display().to_string();
    let flags = [&["-O1", "-fPIC"], flags, &["-I", &include]].concat();
    compile_common(&file, &flags, &object);
    // Linked in place of the object in the library.
    let mut link = Command::new(paths::cxx_compiler());
    link.arg("-shared").arg(&object).arg("-Wl,-z,muldefs");
    link.arg("-Wl,--whole-archive").arg(paths::static_library());
    link.args(["-Wl,--no-whole-archive", "-ldl", "-pthread", "-o"]);
    succeed(link.arg(&library));
    library
}
