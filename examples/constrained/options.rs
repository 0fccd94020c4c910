//! The command line.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::prelude::*;
use serde::Serialize;
use vendor_llama_cpp::sys;

pub const HELP: &str = "\
Lets the model choose one of several values, with llama-sieve's token trie in a llama.cpp chain.

  -c, --choices A,B,C        values to choose from (default \"Moses,Aaron,the LORD\")
  -p, --prompt TEXT          what the value continues (default \"And the LORD said unto\")
  -m, --model PATH           GGUF file (default: the trained model of the repository)
      --temp T               temperature (default 0.8)
  -s, --seed N               seed of the generator (default 4294967295: random); each further run has the next one
      --greedy               take the most probable value, token by token, instead of drawing
  -r, --runs N               values to generate (default 1; with --record 20)
  -t, --threads N            threads for the model (default 1)
      --payload FILE         read the values from a TokenTreePayload in JSON, made with this model's tokenizer
      --write-payload FILE   write the payload of --choices
      --schema FILE          instead of one of several values: JSON that follows this JSON Schema
      --prompts FILE         instead of --prompt: one prompt in each line, and --runs values behind each
      --record               print only one JSON record of what the runs took, beside llama.cpp's grammar sampler:
                               mode                          strict-trie-ffi, or strict-guided: see --mode
                               skip_ratio_mean, _std         (vocabulary - allowed tokens) / vocabulary, over the steps
                               forced_ratio_mean, _std       share of a value's tokens that were not sampled, over the runs
                               tokens_per_second             of values
                               tokens_per_second_vs_grammar  the same, divided by the grammar sampler's
                               token_accuracy                share of the tokens of the most probable values, one for each
                                                             prompt, that are the most probable under the grammar, too
                               value_accuracy                share of the runs whose result is one of the values
                               forward_passes_total          that the values would take one token at a time
                               forward_passes_saved          of these, by appending forced runs in one batch
                             with --schema: mode is strict-json-schema, there are no skip_ratio_* and token_accuracy, and
                               tokens_per_second_vs_sampled  stands in for _vs_grammar: beside sampling every token
                               value_accuracy                share of the runs whose result is JSON
      --json                 the same as --record
      --mode MODE            whose record: strict-trie-ffi (default), or strict-guided, the grammar's
      --output FILE          write the record there; implies --record
  -h, --help                 this text
";

pub struct Options {
    pub model: PathBuf,
    pub prompt: String,
    pub prompts: Option<PathBuf>,
    choices: Option<Vec<String>>,
    pub payload: Option<PathBuf>,
    pub write_payload: Option<PathBuf>,
    pub schema: Option<PathBuf>,
    pub temp: f32,
    pub seed: u32,
    pub greedy: bool,
    runs: Option<u32>,
    pub threads: i32,
    pub record: bool,
    pub mode: Mode,
    pub output: Option<PathBuf>,
}

/// The sampler that a record describes, as its field `mode` names it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Mode {
    #[serde(rename = "strict-trie-ffi")]
    Trie,
    #[serde(rename = "strict-guided")]
    Grammar,
}

impl FromStr for Mode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "strict-trie-ffi" => Ok(Self::Trie),
            "strict-guided" => Ok(Self::Grammar),
            _ => Err("must be strict-trie-ffi or strict-guided"),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-tiny.gguf");
        Self {
            model: model.into(),
            prompt: "And the LORD said unto".to_owned(),
            prompts: None,
            choices: None,
            payload: None,
            write_payload: None,
            schema: None,
            temp: 0.8,
            seed: sys::LLAMA_DEFAULT_SEED,
            greedy: false,
            runs: None,
            threads: 1,
            record: false,
            mode: Mode::Trie,
            output: None,
        }
    }
}

impl Options {
    pub fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.record { 20 } else { 1 })
    }

    pub fn choices(&self) -> Vec<String> {
        let default = || ["Moses", "Aaron", "the LORD"].map(str::to_owned).to_vec();
        self.choices.clone().unwrap_or_else(default)
    }
}

/// Returns the value of an option, or an error that names the option.
fn value<T: FromStr>(parser: &mut lexopt::Parser, option: &str) -> Result<T, lexopt::Error>
where
    T::Err: Display,
{
    let text = parser.value()?.string()?;
    text.parse()
        .map_err(|error| format!("{option} {text}: {error}").into())
}

/// Returns the value of an option that must be a number of at least 1, or an error that names it.
fn count<T: FromStr + PartialOrd + From<u8>>(
    parser: &mut lexopt::Parser,
    option: &str,
) -> Result<T, lexopt::Error>
where
    T::Err: Display,
{
    let number: T = value(parser, option)?;
    match number >= T::from(1) {
        true => Ok(number),
        false => Err(format!("{option} must be at least 1").into()),
    }
}

fn split_choices(text: &str) -> Result<Vec<String>, lexopt::Error> {
    let choices: Vec<String> = text
        .split(',')
        .map(|choice| choice.trim().to_owned())
        .collect();
    if choices.iter().any(String::is_empty) {
        return Err(format!("--choices {text:?}: an empty value is among them").into());
    }
    Ok(choices)
}

/// Reads the command line. `None` if only the help was requested.
pub fn parse() -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(option) = parser.next()? {
        match option {
            Short('c') | Long("choices") => {
                options.choices = Some(split_choices(&parser.value()?.string()?)?)
            }
            Short('p') | Long("prompt") => options.prompt = parser.value()?.string()?,
            Short('m') | Long("model") => options.model = parser.value()?.into(),
            Long("temp") => options.temp = value(&mut parser, "--temp")?,
            Short('s') | Long("seed") => options.seed = value(&mut parser, "--seed")?,
            Long("greedy") => options.greedy = true,
            Short('r') | Long("runs") => options.runs = Some(count(&mut parser, "--runs")?),
            Short('t') | Long("threads") => options.threads = count(&mut parser, "--threads")?,
            Long("payload") => options.payload = Some(parser.value()?.into()),
            Long("write-payload") => options.write_payload = Some(parser.value()?.into()),
            Long("schema") => options.schema = Some(parser.value()?.into()),
            Long("prompts") => options.prompts = Some(parser.value()?.into()),
            Long("record" | "json") => options.record = true,
            Long("mode") => options.mode = value(&mut parser, "--mode")?,
            Long("output") => {
                options.output = Some(parser.value()?.into());
                options.record = true;
            }
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(option.unexpected()),
        }
    }
    if !options.temp.is_finite() {
        return Err(format!("--temp {}: not a finite number", options.temp).into());
    }
    if options.payload.is_some() && (options.choices.is_some() || options.write_payload.is_some()) {
        return Err(
            "--payload has the values: --choices and --write-payload do not go with it".into(),
        );
    }
    let has_values = options.choices.is_some() || options.payload.is_some();
    if options.schema.is_some() && (has_values || options.write_payload.is_some()) {
        return Err(
            "--schema: not with --choices, --payload and --write-payload, which are about values"
                .into(),
        );
    }
    if options.schema.is_some() && options.mode == Mode::Grammar {
        return Err("--schema: its record has one mode; --mode is for values".into());
    }
    if options.prompts.is_some() && options.write_payload.is_some() {
        return Err(
            "--write-payload writes the values behind one prompt: not with --prompts".into(),
        );
    }
    Ok(Some(options))
}
