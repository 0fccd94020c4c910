//! Control at every token: the patterns of test-time alignment with the sieve, on the trained model
//! of the repository.
//!
//! ```text
//! cargo run --release --example steering -- adaptive
//! cargo run --release --example steering -- steering --prompt "In the beginning" -n 60 --seed 3
//! cargo run --release --example steering -- plain --preset akunu-creative
//! cargo run --release --example steering -- adaptive --plot adaptive.svg
//! ```
//!
//! `--help` lists the patterns and presets. Each pattern is one function of `patterns.rs`, and
//! shows the work of a program between the model's logits and the next token. `--plot` plots the
//! entropy of the model and of the sampled distribution at each token.

mod patterns;
mod plot;
mod presets;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use lexopt::prelude::*;
use llama_sieve::Token;
use llama_sieve::sieve::{Params, Sieve};
use vendor_llama_cpp::{Context, Model};

use patterns::{PATTERNS, Pattern};
use plot::Point;

const HELP: &str = "\
Patterns of sampling with control at every token. Usage: steering PATTERN [options]

  plain           the parameters of the preset, nothing else
  deterministic   one seed, two generations: the same text
  creative        high temperature, nucleus without top-k, repetition penalty
  factual         greedy, no penalties
  concise         a chain of one's own: few candidates, cut twice
  adaptive        parameters follow the entropy of each distribution
  steering        vetoes and boosts: no \"LORD\", more \" God\"
  validation      what may come next follows from the text so far
  constrained     the token trie lets one of some names through, then the text goes on freely
  bursts          explores for one token wherever the model is uncertain
  guard           penalties rise while the text repeats itself
  growth          parameters that need more memory for some tokens
  perplexity      stops where the text became too surprising
  replay          draws some positions of a text again, alone, by their numbers

  -m, --model PATH    GGUF file (default: the trained model of the repository)
  -p, --prompt TEXT   text to continue (default \"And the LORD said unto\")
      --preset NAME   the parameters to begin with: tsampler (default), tsampler-creative,
                      tsampler-factual, tsampler-concise; akunu, akunu-factual, akunu-balanced,
                      akunu-creative, akunu-very-creative, akunu-code
      --plot FILE     draw entropy and surprisal of each token of the last text, as SVG
  -n N                tokens to generate at most (default 80)
  -s, --seed N        seed (default 42)
  -t, --threads N     threads for the model (default 1, enough for the small one)
  -h, --help          this text
";

// The types and the session that all patterns share.

/// The decision of a pattern before a token.
enum Next {
    /// The sieve draws from the model's logits.
    Sample,
    /// The sieve draws from these logits instead.
    SampleOf(Vec<f32>),
    /// This token is taken, without a draw.
    Take(Token),
    Stop,
}

struct Session<'m> {
    model: &'m Model,
    context: Context<'m>,
    prompt: Vec<Token>,
    options: &'m Options,
    /// The points of the last generated text.
    trace: Vec<Point>,
}

impl<'m> Session<'m> {
    fn new(model: &'m Model, options: &'m Options) -> Result<Self, String> {
        let prompt = model.tokenize(&options.prompt, true);
        if prompt.is_empty() {
            return Err("--prompt is empty".to_owned());
        }
        let n_ctx = u32::try_from(prompt.len() + options.n).map_err(|_| "-n is too large")?;
        Ok(Self {
            model,
            context: Context::new(model, n_ctx, options.threads)?,
            prompt,
            options,
            trace: Vec::new(),
        })
    }

    /// Returns the parameters of the preset, with the seed of the command line.
    fn params(&self) -> Params {
        Params {
            seed: self.options.seed,
            ..self.options.preset.clone()
        }
    }

    /// Generates a text and prints it. `before` is called at each position with the sieve and the
    /// raw logits.
    fn generate(
        &mut self,
        params: &Params,
        mut before: impl FnMut(&mut Sieve, &[f32]) -> Result<Next, String>,
    ) -> Result<Vec<Token>, String> {
        let mut sieve = Sieve::new(params).map_err(|e| e.to_string())?;
        sieve.measure(self.options.plot.is_some());
        self.trace.clear();
        self.context.clear();
        self.context.decode(&self.prompt)?;
        let mut tokens = Vec::new();
        print!("{}", self.options.prompt);
        while tokens.len() < self.options.n {
            let logits = self.context.logits();
            let sampled = match before(&mut sieve, logits)? {
                Next::Sample => sieve.sample(logits),
                Next::SampleOf(logits) => sieve.sample(&logits),
                Next::Take(token) => Ok(token),
                Next::Stop => break,
            };
            let token = sampled.map_err(|e| e.to_string())?;
            if self.options.plot.is_some() {
                let text = String::from_utf8_lossy(&self.model.piece(token)).into_owned();
                self.trace.push(Point::new(text, logits, token, &sieve));
            }
            sieve.accept(token);
            tokens.push(token);
            if self.model.is_eog(token) {
                break;
            }
            show(&self.model.piece(token))?;
            self.context.decode(&[token])?;
        }
        show(b"\n")?;
        Ok(tokens)
    }

    /// Generates a text with constant parameters.
    fn draw(&mut self, params: &Params) -> Result<Vec<Token>, String> {
        self.generate(params, |_, _| Ok(Next::Sample))
    }

    /// Generates a text; before each token, `choose` returns the parameters with which the token is
    /// drawn.
    fn steer<'p>(
        &mut self,
        params: &Params,
        mut choose: impl FnMut(&Sieve, &[f32]) -> Result<&'p Params, String>,
    ) -> Result<Vec<Token>, String> {
        self.generate(params, |sieve, logits| {
            let params = choose(sieve, logits)?;
            sieve.set_params(params).map_err(|e| e.to_string())?;
            Ok(Next::Sample)
        })
    }

    /// Returns every token with its text.
    fn pieces(&self) -> Vec<(Token, String)> {
        let tokens = 0..self.model.n_vocab() as Token;
        let piece = |token| String::from_utf8_lossy(&self.model.piece(token)).into_owned();
        tokens.map(|token| (token, piece(token))).collect()
    }

    fn text(&self, tokens: &[Token]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&t| self.model.piece(t)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn show(bytes: &[u8]) -> Result<(), String> {
    let mut out = std::io::stdout();
    let shown = out.write_all(bytes).and_then(|()| out.flush());
    shown.map_err(|e| format!("cannot write to stdout: {e}"))
}

struct Options {
    pattern: Option<Pattern>,
    preset: Params,
    plot: Option<PathBuf>,
    model: PathBuf,
    prompt: String,
    n: usize,
    seed: u64,
    threads: i32,
}

/// Returns the value of an option: an integer of at least `least`.
fn number<T: FromStr + PartialOrd + From<u8>>(
    parser: &mut lexopt::Parser,
    option: &str,
    least: u8,
) -> Result<T, lexopt::Error> {
    let text = parser.value()?.string()?;
    let number = text.parse().ok().filter(|number| *number >= T::from(least));
    number.ok_or_else(|| format!("{option} {text}: must be a whole number from {least} on").into())
}

/// Reads the command line. `None` if only the help was requested.
fn parse_options() -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options {
        pattern: None,
        preset: Params::tsampler(),
        plot: None,
        model: concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-tiny.gguf").into(),
        prompt: "And the LORD said unto".to_owned(),
        n: 80,
        seed: 42,
        threads: 1,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(option) = parser.next()? {
        match option {
            Short('m') | Long("model") => options.model = parser.value()?.into(),
            Short('p') | Long("prompt") => options.prompt = parser.value()?.string()?,
            Long("preset") => options.preset = presets::named(&parser.value()?.string()?)?,
            Long("plot") => options.plot = Some(parser.value()?.into()),
            Short('n') => options.n = number(&mut parser, "-n", 1)?,
            Short('s') | Long("seed") => options.seed = number(&mut parser, "--seed", 0)?,
            Short('t') | Long("threads") => options.threads = number(&mut parser, "--threads", 1)?,
            Short('h') | Long("help") => return Ok(None),
            Value(name) if options.pattern.is_none() => {
                let name = name.string()?;
                let found = PATTERNS.iter().find(|(known, _)| *known == name);
                let (_, pattern) = found.ok_or_else(|| format!("there is no pattern {name:?}"))?;
                options.pattern = Some(*pattern);
            }
            _ => return Err(option.unexpected()),
        }
    }
    Ok(Some(options))
}

fn run(options: &Options, pattern: Pattern) -> Result<(), String> {
    let model = Model::load(&options.model)?;
    let mut session = Session::new(&model, options)?;
    pattern(&mut session)?;
    let Some(path) = &options.plot else {
        return Ok(());
    };
    std::fs::write(path, plot::draw(&session.trace))
        .map_err(|e| format!("--plot {}: {e}", path.display()))
}

fn main() -> ExitCode {
    let options = match parse_options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("steering: {error}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    let Some(pattern) = options.pattern else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    match run(&options, pattern) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("steering: {error}");
            ExitCode::FAILURE
        }
    }
}
