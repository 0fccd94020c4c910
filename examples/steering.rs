//! Control at every token: the patterns of test-time alignment with the sieve, on the trained model
//! of the repository.
//!
//! ```text
//! cargo run --release --example steering -- adaptive
//! cargo run --release --example steering -- steering --prompt "In the beginning" -n 60 --seed 3
//! ```
//!
//! `--help` lists the patterns. Each is one function below, and shows what a program does between
//! the model's logits and the next token.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::*;
use llama_sieve::metrics::{self, Base, RollingPerplexity};
use llama_sieve::sieve::{Logits, Params, Sieve, greedy, top_candidates};
use llama_sieve::{Token, TokenData};
use vendor_llama_cpp::{Context, Model};

const HELP: &str = "\
Patterns of sampling with control at every token. Usage: steering PATTERN [options]

  deterministic   one seed, two generations: the same text
  creative        high temperature, nucleus without top-k, repetition penalty
  factual         greedy, no penalties
  adaptive        parameters follow the entropy of each distribution
  steering        vetoes and boosts: no \"LORD\", more \" God\"
  bursts          explores for one token wherever the model is uncertain
  perplexity      stops where the text became too surprising

  -m, --model PATH    GGUF file (default: the trained model of the repository)
  -p, --prompt TEXT   text to continue (default \"And the LORD said unto\")
  -n N                tokens to generate at most (default 80)
  -s, --seed N        seed (default 42)
  -t, --threads N     threads for the model (default 1, enough for the small one)
  -h, --help          this text
";

type Pattern = fn(&mut Session<'_>) -> Result<(), String>;

const PATTERNS: [(&str, Pattern); 7] = [
    ("deterministic", deterministic),
    ("creative", creative),
    ("factual", factual),
    ("adaptive", adaptive),
    ("steering", steering),
    ("bursts", bursts),
    ("perplexity", perplexity),
];

/// A fixed seed gives a fixed text, whatever else runs in the process.
fn deterministic(session: &mut Session<'_>) -> Result<(), String> {
    let params = session.params();
    let first = session.generate(&params, |_, _| Ok(Next::Sample))?;
    let second = session.generate(&params, |_, _| Ok(Next::Sample))?;
    eprintln!(
        "the two texts are {}",
        if first == second {
            "identical"
        } else {
            "different"
        }
    );
    (first == second)
        .then_some(())
        .ok_or_else(|| "one seed gave two texts".to_owned())
}

/// The nucleus decides how many tokens are candidates; repetition costs.
fn creative(session: &mut Session<'_>) -> Result<(), String> {
    let params = Params {
        temperature: 1.2,
        top_p: 0.95,
        top_k: 0,
        min_p: 0.02,
        penalty_repeat: 1.15,
        ..session.params()
    };
    session.generate(&params, |_, _| Ok(Next::Sample)).map(drop)
}

/// Without penalties greedy is the plain maximum, for which no sieve is needed.
fn factual(session: &mut Session<'_>) -> Result<(), String> {
    let params = Params {
        temperature: 0.1,
        top_k: 1,
        penalty_repeat: 1.0,
        ..session.params()
    };
    let check = |sieve: &mut Sieve, logits: &[f32]| {
        let token = sieve.sample(logits).map_err(|e| e.to_string())?;
        assert_eq!(Ok(token), greedy(logits));
        Ok(Next::Sample)
    };
    session.generate(&params, check).map(drop)
}

/// A collapsed distribution is widened, a flat one focused.
fn adaptive(session: &mut Session<'_>) -> Result<(), String> {
    let base = session.params();
    let widen = Params {
        top_k: 256,
        temperature: 1.5,
        top_p: 0.98,
        ..base.clone()
    };
    let focus = Params {
        top_k: 20,
        temperature: 0.5,
        top_p: 0.9,
        ..base.clone()
    };
    let (mut widened, mut focused) = (0, 0);
    let adapt = |sieve: &mut Sieve, logits: &[f32]| {
        let entropy = metrics::entropy(logits, Base::Nats).ok_or("no token has a probability")?;
        let params = match entropy {
            ..2.0 => {
                widened += 1;
                &widen
            }
            5.0.. => {
                focused += 1;
                &focus
            }
            _ => &base,
        };
        sieve.set_params(params).map_err(|e| e.to_string())?;
        Ok(Next::Sample)
    };
    let tokens = session.generate(&base, adapt)?.len();
    eprintln!(
        "{tokens} tokens: entropy below 2 nats at {widened} tokens (widened), above 5 at {focused} tokens (focused)"
    );
    Ok(())
}

/// A veto is a bias of minus infinity, a boost a positive one. The model's logits are not written.
fn steering(session: &mut Session<'_>) -> Result<(), String> {
    let (vetoed, boosted) = ("LORD", " God");
    let pieces = session.pieces();
    let with = |text: &str| -> Vec<Token> {
        let found = pieces.iter().filter(|(_, piece)| piece.contains(text));
        found.map(|&(token, _)| token).collect()
    };
    let mut params = session.params();
    params.bias.extend(
        with(vetoed)
            .into_iter()
            .map(|token| (token, f32::NEG_INFINITY)),
    );
    params
        .bias
        .extend(with(boosted).into_iter().map(|token| (token, 2.0)));
    let banned: HashSet<Token> = with(vetoed).into_iter().collect();
    let tokens = session.generate(&params, |_, _| Ok(Next::Sample))?;
    let text = session.text(&tokens);
    eprintln!(
        "{} token ids are banned; {boosted:?} occurs {} times",
        banned.len(),
        text.matches(boosted).count()
    );
    assert!(tokens.iter().all(|token| !banned.contains(token)));
    Ok(())
}

/// Where none of the five likeliest tokens has a probability of 0.15, one token is drawn from a
/// wider and hotter distribution.
fn bursts(session: &mut Session<'_>) -> Result<(), String> {
    let base = session.params();
    let explore = Params {
        top_k: 256,
        temperature: 1.3,
        typical_p: 0.9,
        ..base.clone()
    };
    let mut top: Vec<TokenData> = Vec::new();
    let mut n_bursts = 0;
    let burst = |sieve: &mut Sieve, logits: &[f32]| {
        top_candidates(logits, 5, &mut top).map_err(|e| e.to_string())?;
        let uncertain = top.iter().all(|candidate| candidate.p < 0.15);
        n_bursts += usize::from(uncertain);
        let params = if uncertain { &explore } else { &base };
        sieve.set_params(params).map_err(|e| e.to_string())?;
        Ok(Next::Sample)
    };
    let tokens = session.generate(&base, burst)?.len();
    eprintln!("{tokens} tokens, {n_bursts} bursts");
    Ok(())
}

/// The perplexity of what was generated, by the model's own distribution, and a gate at 50.
fn perplexity(session: &mut Session<'_>) -> Result<(), String> {
    const GATE: f32 = 50.0;
    let params = Params {
        temperature: 1.5,
        top_k: 0,
        top_p: 0.99,
        min_p: 0.0,
        ..session.params()
    };
    let mut perplexity = RollingPerplexity::default();
    let mut unexpected = 0;
    let mut last: Option<Vec<f32>> = None;
    let gate = |sieve: &mut Sieve, logits: &[f32]| {
        // The token before was chosen from the logits before.
        if let (Some(before), Some(token)) = (&last, sieve.history().tokens().last()) {
            let surprisal =
                metrics::surprisal(before, token, Base::Nats).ok_or("no distribution")?;
            unexpected += usize::from(surprisal > 8.0);
            perplexity.add(surprisal);
        }
        last = Some(logits.to_vec());
        let enough = perplexity.count() >= 10;
        Ok(if enough && perplexity.value() > GATE {
            Next::Stop
        } else {
            Next::Sample
        })
    };
    session.generate(&params, gate)?;
    eprintln!(
        "perplexity {:.1} after {} tokens, {unexpected} of them with more than 8 nats; {}",
        perplexity.value(),
        perplexity.count(),
        if perplexity.value() > GATE {
            "stopped at the gate"
        } else {
            "the gate stayed open"
        }
    );
    Ok(())
}

// What all patterns share.

/// What a pattern decides before a token.
enum Next {
    Sample,
    Stop,
}

struct Session<'m> {
    model: &'m Model,
    context: Context<'m>,
    prompt: Vec<Token>,
    options: &'m Options,
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
        })
    }

    /// The defaults, with the seed of the command line.
    fn params(&self) -> Params {
        Params {
            seed: self.options.seed,
            ..Params::default()
        }
    }

    /// Generates and prints; `before` sees the sieve and the raw logits of each position.
    fn generate(
        &mut self,
        params: &Params,
        mut before: impl FnMut(&mut Sieve, &[f32]) -> Result<Next, String>,
    ) -> Result<Vec<Token>, String> {
        let mut sieve = Sieve::new(params).map_err(|e| e.to_string())?;
        self.context.clear();
        self.context.decode(&self.prompt)?;
        let mut tokens = Vec::new();
        print!("{}", self.options.prompt);
        while tokens.len() < self.options.n {
            let logits = self.context.logits();
            if let Next::Stop = before(&mut sieve, logits)? {
                break;
            }
            let token = sieve
                .sample(Logits::F32(logits))
                .map_err(|e| e.to_string())?;
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

    /// Every token with its text.
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
    model: PathBuf,
    prompt: String,
    n: usize,
    seed: u64,
    threads: i32,
}

/// `None` if only the help was asked for.
fn parse_options() -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options {
        pattern: None,
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
            Short('n') => options.n = parser.value()?.parse()?,
            Short('s') | Long("seed") => options.seed = parser.value()?.parse()?,
            Short('t') | Long("threads") => options.threads = parser.value()?.parse()?,
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
    pattern(&mut session)
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
