//! Writes a tiny model with random weights:
//! `write_test_model --vocab 32000 --seed 1 --out model.gguf`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use vendor_llama_cpp::TestModel;

const USAGE: &str = "usage: write_test_model --vocab TOKENS --out FILE [--seed NUMBER] [--f16]";

fn main() -> ExitCode {
    match run() {
        Ok(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, String> {
    let mut vocab = None;
    let mut out = None;
    let mut seed = 1;
    let mut f16 = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--vocab" => vocab = Some(number(&arg, args.next())?),
            "--seed" => seed = number(&arg, args.next())?,
            "--out" => out = args.next().map(PathBuf::from),
            "--f16" => f16 = true,
            "--help" | "-h" => return Ok(String::from(USAGE)),
            _ => return Err(format!("unknown argument {arg:?}\n{USAGE}")),
        }
    }
    let vocab = vocab.ok_or_else(|| format!("--vocab is missing\n{USAGE}"))?;
    let out = out.ok_or_else(|| format!("--out is missing\n{USAGE}"))?;

    let mut model = TestModel::new(vocab, seed);
    model.f16 = f16;
    model.write(&out)?;
    Ok(format!("wrote {} ({vocab} tokens)", out.display()))
}

fn number<T: FromStr>(name: &str, value: Option<String>) -> Result<T, String> {
    let text = value.ok_or_else(|| format!("{name} needs a number\n{USAGE}"))?;
    text.parse()
        .map_err(|_| format!("{name} needs a number, not {text:?}"))
}
