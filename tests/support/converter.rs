//! Compiles llama.cpp's own converter from JSON Schema to a grammar, from its common library.
#![allow(dead_code)] // Each test binary uses its part.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use vendor_llama_cpp::paths;

use crate::toolchain::{Build, Link, compile_common, root};

/// The sources of llama.cpp's common library that turn a JSON Schema into a grammar.
const SOURCES: [&str; 5] = [
    "json-schema-to-grammar.cpp",
    "json-schema.cpp",
    "json.cpp",
    "trie.cpp",
    "unicode.cpp",
];

/// The three functions that these sources need from the rest of the common library, which is not
/// compiled.
const STRINGS: &str = "c-tests/common_strings.cpp";

/// Returns the compiled objects, which are kept, since compiling takes long.
fn objects() -> Vec<PathBuf> {
    let version = vendor_llama_cpp::model::version();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("common-{version}"));
    std::fs::create_dir_all(&folder).expect("the target directory is not writable");
    let common = paths::source_dir().join("common");
    let sources = SOURCES.iter().map(|name| common.join(name));
    std::thread::scope(|scope| {
        let compile = |source: PathBuf| {
            let object = folder.join(source.with_extension("o").file_name().expect("a file"));
            scope.spawn(move || {
                compile(&source, &object);
                object
            })
        };
        let running: Vec<_> = sources.chain([root().join(STRINGS)]).map(compile).collect();
        let objects = running.into_iter().map(|one| one.join());
        objects.map(|one| one.expect("it compiles")).collect()
    })
}

fn compile(source: &Path, object: &Path) {
    let is_ours = source.starts_with(root());
    if object.exists() && !is_ours {
        return;
    }
    let made = object.with_extension("made");
    compile_common(source, &["-O0"], &made);
    std::fs::rename(made, object).expect("it was just made");
}

/// Adds the converter to a program.
pub fn added_to(mut program: Build) -> Build {
    program = program
        .flag("-isystem")
        .flag(paths::source_dir().join("common"));
    for object in objects() {
        program = program.flag(object);
    }
    program
}

/// The converter in a separate process, since some schemas make it crash.
pub struct Converter {
    program: PathBuf,
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

fn started(program: &Path) -> (Child, ChildStdin, BufReader<ChildStdout>) {
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // The converter prints notes to stderr about patterns that it does not support.
    let mut process = command.stderr(Stdio::null()).spawn().expect("it starts");
    let input = process.stdin.take().expect("a pipe");
    let output = BufReader::new(process.stdout.take().expect("a pipe"));
    (process, input, output)
}

impl Converter {
    /// Compiles and starts the converter. Tests run in parallel, so each needs its own `name`.
    pub fn new(name: &str) -> Self {
        let program = added_to(Build::new(name, "c-tests/convert_schemas.cpp"));
        let program = program.with_llama(Link::Static).build();
        let program = program.path().to_owned();
        let (process, input, output) = started(&program);
        Self {
            program,
            process,
            input,
            output,
        }
    }

    /// Returns the grammar of a schema, whose bytes need not be UTF-8, or the reason why the schema
    /// is refused.
    pub fn convert(&mut self, schema: &str) -> Result<Vec<u8>, String> {
        let answer = self.answer(schema);
        answer.unwrap_or_else(|error| {
            let _ = self.process.wait();
            (self.process, self.input, self.output) = started(&self.program);
            Err(format!("the converter ended: {error}"))
        })
    }

    fn answer(&mut self, schema: &str) -> std::io::Result<Result<Vec<u8>, String>> {
        writeln!(self.input, "{}", schema.len())?;
        self.input.write_all(schema.as_bytes())?;
        self.input.flush()?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let (what, n) = line.trim_end().split_once(' ').unwrap_or_default();
        let n = n.parse().map_err(std::io::Error::other)?;
        let mut text = vec![0; n];
        self.output.read_exact(&mut text)?;
        Ok(match what {
            "grammar" => Ok(text),
            _ => Err(String::from_utf8_lossy(&text).into_owned()),
        })
    }
}

impl Drop for Converter {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
