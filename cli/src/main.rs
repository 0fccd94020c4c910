//! The command line of llama-sieve.
//!
//! The program contains no sampler, but loads `libllama_sieve` (see [`library`]) and calls it. So
//! it is small, and reports on the library that other programs use.

mod certify;
mod doctor;
mod elf;
mod failure;
mod help;
mod library;
mod output;
mod probe;
mod run;
mod schema;

use std::ffi::OsString;
use std::process::ExitCode;

use lexopt::prelude::*;

use failure::{Failure, USAGE};

fn main() -> ExitCode {
    match command(std::env::args_os().skip(1).collect()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code)
        }
    }
}

/// Runs the command of the arguments, and returns the exit code.
fn command(arguments: Vec<OsString>) -> Result<u8, Failure> {
    let mut parser = lexopt::Parser::from_args(arguments);
    match parser.next().map_err(wrong)? {
        Some(Short('h') | Long("help")) => output::print(help::ALL),
        Some(Short('V') | Long("version")) => output::print(&library::versions()),
        Some(Value(name)) => subcommand(&name.to_string_lossy(), &mut parser),
        Some(other) => Err(wrong(other.unexpected())),
        None => Err(Failure::usage("which command? see llama-sieve --help")),
    }
}

fn subcommand(name: &str, parser: &mut lexopt::Parser) -> Result<u8, Failure> {
    match name {
        "run" => run::command(parser),
        "doctor" => doctor::command(parser),
        "certify" => certify::command(parser),
        "schema" => schema::command(parser),
        probe::NAME => probe::command(parser),
        doctor::TELL => doctor::tell_given(parser),
        "help" => output::print(help::ALL),
        _ => Err(Failure::usage(&format!(
            "there is no command \"{name}\"; see llama-sieve --help"
        ))),
    }
}

/// Returns the failure for arguments that the command does not accept.
fn wrong(error: lexopt::Error) -> Failure {
    Failure::new(USAGE, format!("{error}; see llama-sieve --help"))
}
