//! The command `certify`: compares samplers with the built-ins of a llama.cpp.

use std::path::PathBuf;

use lexopt::prelude::*;
use serde::Serialize;

use crate::failure::Failure;
use crate::probe::{Trial, try_all};
use crate::{help, output, wrong};

/// The name by which the dynamic linker finds libllama.
const INSTALLED: &str = "libllama.so";

/// The exit code if not all samplers are equal.
const DIFFERENT: u8 = 1;

#[derive(Serialize)]
struct Certificate {
    library: PathBuf,
    version: Option<String>,
    profile: Option<String>,
    kinds: Vec<Trial>,
}

pub fn command(parser: &mut lexopt::Parser) -> Result<u8, Failure> {
    let (mut json, mut library) = (false, None);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Short('h') | Long("help") => return output::print(help::CERTIFY),
            Long("json") => json = true,
            Value(name) if library.is_none() => library = Some(PathBuf::from(name)),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let certificate = certificate(library)?;
    if json {
        output::print_json(&certificate)?;
    } else {
        output::print(&text(&certificate))?;
    }
    let all_equal = certificate.kinds.iter().all(|trial| trial.code == 0);
    Ok(if all_equal { 0 } else { DIFFERENT })
}

fn certificate(library: Option<PathBuf>) -> Result<Certificate, Failure> {
    let library = match library {
        // dlopen searches for a name without a slash in the folders of installed libraries.
        Some(file) => std::fs::canonicalize(&file)
            .map_err(|error| Failure::usage(&format!("certify: {}: {error}", file.display())))?,
        None => INSTALLED.into(),
    };
    let answer = try_all(&library);
    if let Some(problem) = answer.problem {
        let text = format!("certify: {}: {problem}", library.display());
        return Err(Failure::usage(&text));
    }
    Ok(Certificate {
        library,
        version: answer.version,
        profile: answer.profile,
        // Infill is left out, since it was not compared.
        kinds: answer
            .kinds
            .into_iter()
            .filter(|trial| trial.kind != "infill")
            .collect(),
    })
}

fn text(certificate: &Certificate) -> String {
    let mut text = format!("llama.cpp: {}\n", certificate.library.display());
    for (name, value) in [
        ("version", &certificate.version),
        ("computes with", &certificate.profile),
    ] {
        if let Some(value) = value {
            text += &format!("  {name}: {value}\n");
        }
    }
    for trial in &certificate.kinds {
        let verdict = if trial.code == 0 {
            "equal"
        } else {
            &trial.reason
        };
        text += &format!("  {}: {verdict}\n", trial.kind);
    }
    output::printable(&text)
}
