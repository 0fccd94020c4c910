//! The command `schema`: converts JSON Schema to GBNF.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::Read;

use lexopt::prelude::*;

use crate::failure::{Failure, USAGE};
use crate::library::Sieve;
use crate::{help, output, wrong};

/// The exit code if the library refuses the schema.
const REFUSED: u8 = 1;

/// The largest number of bytes that are read; the library's own limit is lower.
const LONGEST: u64 = 64 << 20;

/// The options with their LLAMA_SIEVE_JSON_* flags.
const FLAGS: [(&str, u32); 5] = [
    ("llama-cpp", 1),
    ("compact", 2),
    ("closed", 4),
    ("any-order", 8),
    ("lenient", 16),
];

pub fn command(parser: &mut lexopt::Parser) -> Result<u8, Failure> {
    let (mut flags, mut file) = (0, None);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Short('h') | Long("help") => return output::print(help::SCHEMA),
            Value(name) if file.is_none() => file = Some(name),
            Long(name) if flag(name).is_some() => flags |= flag(name).unwrap_or(0),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let Some(file) = file else {
        return Err(Failure::usage(
            "schema: which file? - is the standard input",
        ));
    };
    let schema = read(&file)?;
    let gbnf = Sieve::load()?.json_schema_to_gbnf(&schema, flags);
    let gbnf = gbnf.map_err(|why| Failure::new(REFUSED, format!("schema: {why}")))?;
    output::print(&gbnf)
}

fn flag(name: &str) -> Option<u32> {
    let found = FLAGS.iter().find(|(known, _)| *known == name);
    found.map(|(_, bit)| *bit)
}

/// Returns the text of the file, or of the standard input.
fn read(file: &OsString) -> Result<CString, Failure> {
    let name = file.to_string_lossy();
    let failed = |why: String| Failure::new(USAGE, format!("schema: {name}: {why}"));
    let mut text = Vec::new();
    let done = if file == "-" {
        std::io::stdin().take(LONGEST + 1).read_to_end(&mut text)
    } else {
        let open = File::open(file).map_err(|error| failed(error.to_string()))?;
        open.take(LONGEST + 1).read_to_end(&mut text)
    };
    done.map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > LONGEST {
        return Err(failed(format!("it is longer than {LONGEST} bytes")));
    }
    CString::new(text).map_err(|_| failed("a NUL byte is in the text".to_owned()))
}
