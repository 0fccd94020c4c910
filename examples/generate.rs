//! Generates text with our samplers in a llama.cpp chain.
//!
//! ```text
//! cargo run --release --example generate -- --prompt "In the beginning" --temp 0.7 --seed 42
//! cargo run --release --example generate -- --compare
//! ```
//!
//! Options are named as on llama.cpp's command line; `--help` lists them. `--compare` lets
//! llama.cpp's built-in chain sample from the same logits with the same seed, and reports the first
//! difference or "identical".

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use lexopt::prelude::*;
use llama_sieve::ffi::samplers::*;
use vendor_llama_cpp::{Context, Model, sys};

const HELP: &str = "\
Generates text with llama-sieve's samplers in a llama.cpp chain.

  -m, --model PATH           GGUF file (default: the trained model of the repository)
  -p, --prompt TEXT          text to continue
  -n N                       tokens to generate at most (default 128)
  -s, --seed N               seed of the generator (default -1: random)
      --temp T               temperature (default 0.8; 1 disables, 0 takes the most probable)
      --top-k K              (default 40; 0 disables)
      --top-p P              (default 0.95; 1 disables)
      --min-p P              (default 0.05; 0 disables)
      --typical P            (default 1, which disables)
      --top-nsigma N         (default -1, which disables)
      --repeat-penalty R     (default 1, which disables)
      --repeat-last-n N      tokens that the penalties look back on (default 64; 0 disables)
      --presence-penalty P   (default 0, which disables)
      --frequency-penalty P  (default 0, which disables)
  -t, --threads N            threads for the model (default 1)
      --compare              sample with the built-in chain, too, and compare every token
  -h, --help                 this text
";

/// The size of a vocabulary below which the times are too short to compare.
const LARGE_VOCABULARY: i32 = 16_000;

struct Options {
    model: PathBuf,
    prompt: String,
    n: usize,
    seed: u32,
    temp: f32,
    top_k: i32,
    top_p: f32,
    min_p: f32,
    typical: f32,
    top_n_sigma: f32,
    repeat_penalty: f32,
    repeat_last_n: i32,
    presence_penalty: f32,
    frequency_penalty: f32,
    threads: i32,
    compare: bool,
}

impl Default for Options {
    fn default() -> Self {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-tiny.gguf");
        Self {
            model: model.into(),
            prompt: "And the LORD said unto".to_owned(),
            n: 128,
            seed: sys::LLAMA_DEFAULT_SEED,
            temp: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical: 1.0,
            top_n_sigma: -1.0,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            threads: 1,
            compare: false,
        }
    }
}

/// Returns the value of an option, or an error that names the option and the kind that its value
/// `must` have.
fn value<T: FromStr>(
    parser: &mut lexopt::Parser,
    option: &str,
    must: &str,
    allowed: impl Fn(&T) -> bool,
) -> Result<T, lexopt::Error> {
    let text = parser.value()?.string()?;
    let value = text.parse().ok().filter(allowed);
    value.ok_or_else(|| format!("{option} is \"{text}\", but must be {must}").into())
}

fn number(parser: &mut lexopt::Parser, option: &str) -> Result<f32, lexopt::Error> {
    value(parser, option, "a finite number", |x: &f32| x.is_finite())
}

fn integer(parser: &mut lexopt::Parser, option: &str) -> Result<i32, lexopt::Error> {
    let must = "a whole number from -2147483648 to 2147483647";
    value(parser, option, must, |_| true)
}

fn count(parser: &mut lexopt::Parser, option: &str) -> Result<i32, lexopt::Error> {
    let must = "a whole number from 1 to 1000000";
    value(parser, option, must, |n| (1..=1_000_000).contains(n))
}

/// Returns a seed; -1 is the random one, as on llama.cpp's command line.
fn seed(parser: &mut lexopt::Parser) -> Result<u32, lexopt::Error> {
    let must = "a whole number from 0 to 4294967295, or -1 (random)";
    let seed: i64 = value(parser, "--seed", must, |&seed| {
        (-1..=i64::from(u32::MAX)).contains(&seed)
    })?;
    Ok(u32::try_from(seed).unwrap_or(sys::LLAMA_DEFAULT_SEED))
}

/// Reads the command line. `None` if only the help was requested.
fn parse_options() -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(option) = parser.next()? {
        match option {
            Short('m') | Long("model") => options.model = parser.value()?.into(),
            Short('p') | Long("prompt") => options.prompt = parser.value()?.string()?,
            Short('n') => options.n = count(&mut parser, "-n")? as usize,
            Short('s') | Long("seed") => options.seed = seed(&mut parser)?,
            Long("temp") => options.temp = number(&mut parser, "--temp")?,
            Long("top-k") => options.top_k = integer(&mut parser, "--top-k")?,
            Long("top-p") => options.top_p = number(&mut parser, "--top-p")?,
            Long("min-p") => options.min_p = number(&mut parser, "--min-p")?,
            Long("typical") => options.typical = number(&mut parser, "--typical")?,
            Long("top-nsigma") => options.top_n_sigma = number(&mut parser, "--top-nsigma")?,
            Long("repeat-penalty") => {
                options.repeat_penalty = number(&mut parser, "--repeat-penalty")?
            }
            Long("repeat-last-n") => {
                options.repeat_last_n = integer(&mut parser, "--repeat-last-n")?
            }
            Long("presence-penalty") => {
                options.presence_penalty = number(&mut parser, "--presence-penalty")?
            }
            Long("frequency-penalty") => {
                options.frequency_penalty = number(&mut parser, "--frequency-penalty")?
            }
            Short('t') | Long("threads") => options.threads = count(&mut parser, "--threads")?,
            Long("compare") => options.compare = true,
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(option.unexpected()),
        }
    }
    Ok(Some(options))
}

/// A llama.cpp chain, and the time spent sampling with it.
struct Chain {
    chain: *mut sys::llama_sampler,
    sampling: Duration,
}

impl Chain {
    /// Makes a chain, which owns the members.
    fn new(members: &[*mut sys::llama_sampler]) -> Result<Self, String> {
        if members.iter().any(|member| member.is_null()) {
            return Err(llama_sieve::last_error::get());
        }
        // SAFETY: the members are samplers that nobody else frees.
        let chain = unsafe {
            let chain = sys::llama_sampler_chain_init(sys::llama_sampler_chain_default_params());
            for &member in members {
                sys::llama_sampler_chain_add(chain, member);
            }
            chain
        };
        Ok(Self {
            chain,
            sampling: Duration::ZERO,
        })
    }

    /// Returns a chain of our samplers in the order of llama.cpp's default chain.
    fn of_ours(options: &Options, n_vocab: i32) -> Result<Self, String> {
        let members = [
            llama_sieve_init_penalties(
                n_vocab,
                options.repeat_last_n,
                options.repeat_penalty,
                options.frequency_penalty,
                options.presence_penalty,
            ),
            llama_sieve_init_top_n_sigma(options.top_n_sigma),
            llama_sieve_init_top_k(options.top_k),
            llama_sieve_init_typical(options.typical, 1),
            llama_sieve_init_top_p(options.top_p, 1),
            llama_sieve_init_min_p(options.min_p, 1),
            llama_sieve_init_temp(options.temp),
            llama_sieve_init_dist(options.seed),
        ];
        Self::new(&members.map(|member| member.cast()))
    }

    /// Returns a chain of llama.cpp's built-ins in that order.
    fn of_built_ins(options: &Options, n_vocab: i32) -> Result<Self, String> {
        // SAFETY: constructors without preconditions.
        let members = unsafe {
            [
                sys::llama_sampler_init_penalties(
                    n_vocab,
                    options.repeat_last_n,
                    options.repeat_penalty,
                    options.frequency_penalty,
                    options.presence_penalty,
                ),
                sys::llama_sampler_init_top_n_sigma(options.top_n_sigma),
                sys::llama_sampler_init_top_k(options.top_k),
                sys::llama_sampler_init_typical(options.typical, 1),
                sys::llama_sampler_init_top_p(options.top_p, 1),
                sys::llama_sampler_init_min_p(options.min_p, 1),
                sys::llama_sampler_init_temp(options.temp),
                sys::llama_sampler_init_dist(options.seed),
            ]
        };
        Self::new(&members)
    }

    fn sample(&mut self, context: &Context<'_>) -> i32 {
        let start = Instant::now();
        // SAFETY: chain and context live, and the context has logits.
        let token = unsafe { sys::llama_sampler_sample(self.chain, context.as_ptr(), -1) };
        self.sampling += start.elapsed();
        token
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: the chain is owned by this handle alone.
        unsafe { sys::llama_sampler_free(self.chain) };
    }
}

/// The first token at which the two chains differed.
struct Difference {
    position: usize,
    ours: i32,
    built_in: i32,
}

fn generate(options: &Options) -> Result<Option<Difference>, String> {
    let model = Model::load(&options.model)?;
    let n_vocab = i32::try_from(model.n_vocab()).map_err(|e| e.to_string())?;
    let prompt = model.tokenize(&options.prompt, true);
    // A prompt without tokens (no text, and no token that begins one) leaves nothing to continue.
    if prompt.is_empty() {
        return Err("--prompt is empty, and this model has no token that begins a text".to_owned());
    }
    let n_ctx = u32::try_from(prompt.len() + options.n).map_err(|_| "-n is too large")?;
    let mut context = Context::new(&model, n_ctx, options.threads)?;
    let mut ours = Chain::of_ours(options, n_vocab)?;
    let mut built_in = match options.compare {
        true => Some(Chain::of_built_ins(options, n_vocab)?),
        false => None,
    };

    let mut out = std::io::stdout();
    let mut show = |bytes: &[u8]| {
        let shown = out.write_all(bytes).and_then(|()| out.flush());
        shown.map_err(|e| format!("cannot write to stdout: {e}"))
    };
    show(options.prompt.as_bytes())?;
    let mut difference = None;
    let mut generated = 0;
    let start = Instant::now();
    context.decode(&prompt)?;
    while generated < options.n {
        let token = ours.sample(&context);
        let reference = built_in.as_mut().map(|chain| chain.sample(&context));
        if let Some(built_in) = reference.filter(|&reference| reference != token) {
            difference = Some(Difference {
                position: generated,
                ours: token,
                built_in,
            });
            break;
        }
        generated += 1;
        if model.is_eog(token) {
            break;
        }
        show(&model.piece(token))?;
        if generated < options.n {
            context.decode(&[token])?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    show(b"\n")?;

    let per_token = |time: Duration| time.as_secs_f64() * 1e6 / generated.max(1) as f64;
    eprintln!(
        "\n{generated} tokens, {:.1} tokens per second, sampling {:.1} microseconds per token",
        generated as f64 / seconds,
        per_token(ours.sampling)
    );
    if let Some(built_in) = &built_in {
        eprintln!(
            "built-in samplers: {:.1} microseconds per token",
            per_token(built_in.sampling)
        );
        if n_vocab < LARGE_VOCABULARY {
            eprintln!(
                "This model has {n_vocab} tokens, of which sampling costs next to nothing. What a \
                 large vocabulary gains: cargo bench -- --quick"
            );
        }
    }
    Ok(difference)
}

fn main() -> ExitCode {
    let mut options = match parse_options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("generate: {error}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    if options.compare && options.seed == sys::LLAMA_DEFAULT_SEED {
        // Both chains need the same seed, so the random one is drawn here.
        options.seed = llama_sieve::rng::resolve_seed(options.seed);
        eprintln!("seed {}", options.seed);
    }
    match generate(&options) {
        Ok(None) => {
            if options.compare {
                eprintln!("identical");
            }
            ExitCode::SUCCESS
        }
        Ok(Some(difference)) => {
            eprintln!(
                "first difference at token {}: ours {}, built-in {}",
                difference.position, difference.ours, difference.built_in
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("generate: {error}");
            ExitCode::FAILURE
        }
    }
}
