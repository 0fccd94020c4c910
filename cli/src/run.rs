//! The command `run`: replaces itself with a program that has the preload library.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use lexopt::prelude::*;

use crate::failure::Failure;
use crate::{elf, help, library, output, wrong};

/// The exit code for a failure of this command itself, as for `env`, `nice` and `timeout`.
const OWN_FAULT: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

pub fn command(parser: &mut lexopt::Parser) -> Result<u8, Failure> {
    let mut variables = Vec::new();
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Short('h') | Long("help") => return output::print(help::RUN),
            Long("verbose") => variables.push(("LLAMA_SIEVE_VERBOSE", "1".into())),
            Long("only") => {
                let kinds = parser.value().map_err(wrong)?;
                variables.push(("LLAMA_SIEVE_PRELOAD", kinds));
            }
            Value(program) => {
                // The following arguments are the program's.
                let rest = parser.raw_args().map_err(wrong)?;
                return run(&program, rest.collect(), variables);
            }
            other => return Err(wrong(other.unexpected())),
        }
    }
    Err(Failure::usage(
        "run: which program? (run -- PROGRAM arguments)",
    ))
}

fn run(
    program: &OsStr,
    arguments: Vec<OsString>,
    mut variables: Vec<(&'static str, OsString)>,
) -> Result<u8, Failure> {
    let preload = library::preload().map_err(|why| Failure::new(OWN_FAULT, why))?;
    let earlier = std::env::var_os("LD_PRELOAD");
    let list = preload_list(&preload, earlier.as_deref());
    let list = list.map_err(|why| Failure::new(OWN_FAULT, why))?;
    variables.push(("LD_PRELOAD", list));
    let name = program.to_string_lossy();
    let path = which(program)
        .ok_or_else(|| Failure::new(NOT_FOUND, format!("{name}: no such program")))?;
    if let Some(why) = elf::out_of_reach(&path) {
        Failure::usage(&format!("{name} gets nothing of ours: {why}")).tell();
    }
    let error = become_program(program, &path, arguments, variables);
    let text = format!("{name} cannot be run: {error}");
    Err(Failure::new(CANNOT_RUN, text))
}

/// Returns the value of LD_PRELOAD: the library, followed by the earlier value.
fn preload_list(preload: &Path, earlier: Option<&OsStr>) -> Result<OsString, String> {
    let separates = |byte: &u8| matches!(byte, b' ' | b':' | b'\t' | b'\n');
    if preload.as_os_str().as_encoded_bytes().iter().any(separates) {
        return Err(format!(
            "LD_PRELOAD cannot name {}: its path has a space or a colon",
            preload.display()
        ));
    }
    let mut list = preload.as_os_str().to_owned();
    if let Some(earlier) = earlier.filter(|earlier| !earlier.is_empty()) {
        list.push(":");
        list.push(earlier);
    }
    Ok(list)
}

/// Returns the file of a program, searched in PATH if the name has no slash.
pub fn which(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return path.exists().then_some(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let files: Vec<_> = std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .collect();
    // Like a shell, this takes the first executable file. If there is none, it takes any file of
    // this name, so that the error can say why that cannot be run.
    let may_run = files.iter().find(|file| is_executable(file));
    may_run
        .or_else(|| files.iter().find(|file| file.is_file()))
        .cloned()
}

#[cfg(unix)]
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let metadata = std::fs::metadata(file);
    metadata.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(file: &Path) -> bool {
    file.is_file()
}

/// Replaces this process with the program. Returns only if that fails.
#[cfg(unix)]
fn become_program(
    name: &OsStr,
    path: &Path,
    arguments: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
) -> std::io::Error {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new(path);
    command.arg0(name).args(arguments).envs(variables).exec()
}

#[cfg(not(unix))]
fn become_program(
    _name: &OsStr,
    _path: &Path,
    _arguments: Vec<OsString>,
    _variables: Vec<(&'static str, OsString)>,
) -> std::io::Error {
    std::io::Error::other("this system preloads no libraries")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_stays() {
        let ours = Path::new("/a/p.so");
        let list = |earlier: Option<&str>| preload_list(ours, earlier.map(OsStr::new));
        assert_eq!(list(None), Ok("/a/p.so".into()));
        assert_eq!(list(Some("")), Ok("/a/p.so".into()));
        assert_eq!(list(Some("b.so c.so")), Ok("/a/p.so:b.so c.so".into()));
    }

    #[test]
    fn a_path_that_would_be_taken_for_two_is_refused() {
        for path in ["/a b/p.so", "/a:b/p.so", "/a\tb/p.so"] {
            let refused = preload_list(Path::new(path), None).expect_err("it would be cut");
            assert!(refused.contains("space or a colon"), "{refused}");
        }
    }
}
