//! Lets the model choose one of several values: a token trie in a llama.cpp chain, with skip-ahead.
//!
//! ```text
//! cargo run --release --example constrained -- --choices "Moses,Aaron,the LORD" --prompt "And the LORD said unto"
//! cargo run --release --example constrained -- --choices "Moses,Aaron,the LORD" --record
//! cargo run --release --example constrained -- --schema examples/json.schema.json --record
//! ```
//!
//! The payload that describes the choices is made with the model's own tokenizer, or read from a
//! file. Where only one token can follow, it is not sampled: such a run is appended to the text as
//! one batch, together with the token that was sampled before it.
//!
//! `--record` also measures llama.cpp's grammar sampler on the same task: with the same choices,
//! prompt, temperature and seeds, in the same process. Neither side's time includes reading the
//! prompt or making the constraint. Both leave the value in the context, ready for what follows.
//! The grammar's run ends as soon as its text is a value that is not a prefix of another, so its
//! time then does not include a token that ends the text.
//!
//! With `--schema` the value is JSON that satisfies a schema. Forced text, such as keys, is
//! appended in one batch, too, and `--record` compares with a chain that samples each token.

mod options;
mod record;
mod schema;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use llama_sieve::ffi::samplers::{
    llama_sieve_init_dist, llama_sieve_init_greedy, llama_sieve_init_temp,
};
use llama_sieve::ffi::trie::*;
use llama_sieve::last_error;
use serde::{Deserialize, Serialize};
use vendor_llama_cpp::{Context, Model, sys};

use options::Options;

// The payload, with the field names that the library reads.

#[derive(Deserialize, Serialize)]
struct Payload {
    #[serde(rename = "modelId", default)]
    model_id: String,
    descriptors: Vec<Descriptor>,
}

#[derive(Deserialize, Serialize)]
struct Descriptor {
    path: String,
    leaves: Vec<Leaf>,
}

#[derive(Clone, Deserialize, Serialize)]
struct Leaf {
    name: String,
    tokens: Vec<i32>,
}

impl Payload {
    fn of_choices(options: &Options, prompt: &str, model: &Model) -> Self {
        let leaf = |name: String| {
            let tokens = tokens_behind(model, prompt, &name);
            Leaf { name, tokens }
        };
        let file = options.model.file_stem().unwrap_or_default();
        Self {
            model_id: file.to_string_lossy().into_owned(),
            descriptors: vec![Descriptor {
                path: "choice".to_owned(),
                leaves: options.choices().into_iter().map(leaf).collect(),
            }],
        }
    }
}

/// Returns the tokens of `value` where it follows `prompt` and a space.
///
/// The value is tokenized together with the prompt, since some tokenizers treat the beginning of a
/// text specially. It is tokenized alone only where a token would span the border between the two.
fn tokens_behind(model: &Model, prompt: &str, value: &str) -> Vec<i32> {
    let space = match prompt.is_empty() || prompt.ends_with(char::is_whitespace) {
        true => "",
        false => " ",
    };
    let together = model.tokenize(&format!("{prompt}{space}{value}"), true);
    match together.strip_prefix(&model.tokenize(prompt, true)[..]) {
        Some(tokens) => tokens.to_vec(),
        None => model.tokenize(&format!("{space}{value}"), false),
    }
}

/// The allowed values, in the notation of each of the two samplers.
struct Choices {
    json: String,
    leaves: Vec<Leaf>,
    /// The bytes of each value in the generated text.
    texts: Vec<Vec<u8>>,
}

impl Choices {
    fn new(options: &Options, prompt: &str, model: &Model) -> Result<Self, String> {
        let (json, payload) = match &options.payload {
            Some(path) => {
                let json = std::fs::read_to_string(path);
                let json = json.map_err(|e| format!("--payload {}: {e}", path.display()))?;
                let payload: Payload = serde_json::from_str(&json)
                    .map_err(|e| format!("--payload {}: {e}", path.display()))?;
                (json, payload)
            }
            None => {
                let payload = Payload::of_choices(options, prompt, model);
                let json = serde_json::to_string(&payload).map_err(|e| e.to_string())?;
                (json, payload)
            }
        };
        if let Some(path) = &options.write_payload {
            std::fs::write(path, &json)
                .map_err(|e| format!("--write-payload {}: {e}", path.display()))?;
        }
        // The trie begins with the first descriptor that has values.
        let has_values = |d: &Descriptor| d.leaves.iter().any(|leaf| !leaf.tokens.is_empty());
        let first = payload.descriptors.into_iter().find(has_values);
        let first = first.ok_or("the payload has no values")?;
        let leaves: Vec<Leaf> = first
            .leaves
            .into_iter()
            .filter(|leaf| !leaf.tokens.is_empty())
            .collect();
        let in_vocabulary =
            |token: i32| usize::try_from(token).is_ok_and(|id| id < model.n_vocab());
        for leaf in &leaves {
            if let Some(token) = leaf.tokens.iter().find(|&&token| !in_vocabulary(token)) {
                return Err(format!(
                    "the payload's {:?} has token {token}, which is outside the vocabulary of {}",
                    leaf.name,
                    model.n_vocab()
                ));
            }
        }
        let text = |leaf: &Leaf| leaf.tokens.iter().flat_map(|&t| model.piece(t)).collect();
        let texts = leaves.iter().map(text).collect();
        Ok(Self {
            json,
            leaves,
            texts,
        })
    }

    /// Returns true if these tokens are a value or the beginning of one.
    fn begins_with(&self, tokens: &[i32]) -> bool {
        self.leaves
            .iter()
            .any(|leaf| leaf.tokens.starts_with(tokens))
    }

    /// Returns true if these tokens are a whole value.
    fn is_whole_leaf(&self, tokens: &[i32]) -> bool {
        self.leaves.iter().any(|leaf| leaf.tokens == tokens)
    }

    fn is_value(&self, text: &[u8]) -> bool {
        self.texts.iter().any(|value| value == text)
    }

    /// Returns true if this text is a value that is not a prefix of another value.
    fn is_whole_value(&self, text: &[u8]) -> bool {
        let longer = |value: &Vec<u8>| value.len() > text.len() && value.starts_with(text);
        self.is_value(text) && !self.texts.iter().any(longer)
    }

    /// Returns the length of the longest value in bytes, which no value exceeds in tokens.
    fn longest(&self) -> usize {
        self.texts.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Returns the values as a grammar: `root ::= " a" | " b"`.
    fn grammar(&self) -> Result<String, String> {
        let quoted = |text: &Vec<u8>| {
            let text = std::str::from_utf8(text)
                .map_err(|_| "a value is not UTF-8, which a grammar cannot express".to_owned())?;
            let escaped = text.chars().map(|c| match c {
                '"' | '\\' => format!("\\{c}"),
                c if c.is_ascii_control() => format!("\\x{:02X}", u32::from(c)),
                c => c.to_string(),
            });
            Ok(format!("\"{}\"", escaped.collect::<String>()))
        };
        let values: Result<Vec<String>, String> = self.texts.iter().map(quoted).collect();
        Ok(format!("root ::= {}\n", values?.join(" | ")))
    }
}

/// A llama.cpp chain.
struct Chain(*mut sys::llama_sampler);

impl Chain {
    /// Makes a chain that begins with `constraint`, so that the samplers after it choose among the
    /// allowed tokens. The chain owns the constraint.
    fn new(
        constraint: *mut sys::llama_sampler,
        options: &Options,
        seed: u32,
    ) -> Result<Self, String> {
        // SAFETY: constructors without preconditions; the chain frees its members.
        unsafe {
            let params = sys::llama_sampler_chain_default_params();
            let chain = Self(sys::llama_sampler_chain_init(params));
            sys::llama_sampler_chain_add(chain.0, constraint);
            let members = match options.greedy {
                true => vec![llama_sieve_init_greedy()],
                false => vec![
                    llama_sieve_init_temp(options.temp),
                    llama_sieve_init_dist(seed),
                ],
            };
            for member in members {
                if member.is_null() {
                    return Err(last_error::get());
                }
                sys::llama_sampler_chain_add(chain.0, member.cast());
            }
            Ok(chain)
        }
    }

    /// Draws a token, and lets the chain accept it.
    fn sample(&self, context: &Context<'_>) -> i32 {
        // SAFETY: chain and context live, and the context has logits.
        unsafe { sys::llama_sampler_sample(self.0, context.as_ptr(), -1) }
    }

    fn accept(&self, token: i32) {
        // SAFETY: the chain lives.
        unsafe { sys::llama_sampler_accept(self.0, token) };
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: the chain is owned by this handle alone.
        unsafe { sys::llama_sampler_free(self.0) };
    }
}

/// A chain that begins with a token trie.
struct TrieChain {
    chain: Chain,
    /// The chain's first member.
    trie: *mut llama_sieve::ffi::host::llama_h::llama_sampler,
}

impl TrieChain {
    fn new(model: &Model, choices: &Choices, options: &Options, seed: u32) -> Result<Self, String> {
        // Compact: the samplers after it see the allowed tokens only, instead of a vocabulary that
        // is mostly masked.
        let mode = LLAMA_SIEVE_TRIE_COMPACT
            | match options.greedy {
                true => LLAMA_SIEVE_TRIE_GREEDY,
                false => LLAMA_SIEVE_TRIE_SAMPLED,
            };
        // A slot can stay in its chain for many spans; here it is used for one.
        // SAFETY: the vocabulary is the model's.
        let trie = unsafe { llama_sieve_init_trie_slot(model.vocab().cast()) };
        if trie.is_null() {
            return Err(last_error::get());
        }
        let chain = Chain::new(trie.cast(), options, seed)?;
        let json = &choices.json;
        // SAFETY: the sampler lives in the chain, and the length is the text's.
        let code = unsafe { llama_sieve_trie_set(trie, json.as_ptr().cast(), json.len(), mode) };
        if code != llama_sieve::ffi::library::LLAMA_SIEVE_OK {
            return Err(last_error::get());
        }
        Ok(Self { chain, trie })
    }

    /// Returns the number of tokens that may follow in the span.
    fn n_allowed(&self) -> usize {
        // SAFETY: the sampler lives in the chain; nothing is written.
        unsafe { llama_sieve_trie_allowed(self.trie, std::ptr::null_mut(), 0) }
    }

    /// Returns the tokens that may follow in the span.
    fn allowed(&self) -> Vec<i32> {
        let mut tokens = vec![0; self.n_allowed()];
        // SAFETY: the sampler lives in the chain, and the length is the buffer's.
        unsafe { llama_sieve_trie_allowed(self.trie, tokens.as_mut_ptr(), tokens.len()) };
        tokens
    }

    fn is_active(&self) -> bool {
        // SAFETY: the sampler lives in the chain.
        unsafe { llama_sieve_trie_is_active(self.trie) }
    }

    /// Returns the tokens that are the only possible continuation.
    fn forced(&self) -> Vec<i32> {
        // SAFETY: the sampler lives in the chain, and the length is the buffer's.
        whole(|tokens, n| unsafe { llama_sieve_trie_forced(self.trie, tokens, n) })
    }

    /// Returns the name of the completed value.
    fn name(&self) -> Option<String> {
        // SAFETY: the sampler lives in the chain; the name is copied before another call.
        unsafe {
            let name = llama_sieve_trie_leaf(self.trie);
            (!name.is_null()).then(|| {
                std::ffi::CStr::from_ptr(name)
                    .to_string_lossy()
                    .into_owned()
            })
        }
    }
}

/// Returns all elements that `write` provides. `write` fills the buffer as far as there is room,
/// and returns the number of all elements.
fn whole<T: Clone + Default>(write: impl Fn(*mut T, usize) -> usize) -> Vec<T> {
    let mut all = vec![T::default(); 64];
    loop {
        let n = write(all.as_mut_ptr(), all.len());
        let complete = n <= all.len();
        all.resize(n, T::default());
        if complete {
            return all;
        }
    }
}

/// One generated value.
struct Generated {
    tokens: Vec<i32>,
    /// The name of the value in the trie.
    name: Option<String>,
    /// The number of tokens that were forced instead of sampled.
    forced: usize,
    forward_passes: usize,
    time: Duration,
}

impl Generated {
    fn text(&self, model: &Model) -> Vec<u8> {
        self.tokens
            .iter()
            .flat_map(|&token| model.piece(token))
            .collect()
    }
}

struct Generator<'a> {
    options: &'a Options,
    model: &'a Model,
    context: Context<'a>,
    prompt: Vec<i32>,
    choices: Choices,
}

impl Generator<'_> {
    fn begin(&mut self) -> Result<Instant, String> {
        self.context.clear();
        self.context.decode(&self.prompt)?;
        Ok(Instant::now())
    }

    fn with_trie(&mut self, seed: u32) -> Result<Generated, String> {
        let trie = TrieChain::new(self.model, &self.choices, self.options, seed)?;
        let start = self.begin()?;
        let (mut tokens, mut forced, mut forward_passes) = (Vec::new(), 0, 0);
        // The tokens that the model has not evaluated yet.
        let mut batch = Vec::new();
        loop {
            for token in trie.forced() {
                trie.chain.accept(token);
                tokens.push(token);
                batch.push(token);
                forced += 1;
            }
            if !batch.is_empty() {
                self.context.decode(&batch)?;
                batch.clear();
                forward_passes += 1;
            }
            if !trie.is_active() {
                break;
            }
            let token = trie.chain.sample(&self.context);
            tokens.push(token);
            // If one value is a prefix of another, any token may follow it. This token then belongs
            // to the text after the value.
            if !self.choices.begins_with(&tokens) {
                tokens.pop();
                break;
            }
            batch.push(token);
        }
        Ok(Generated {
            tokens,
            name: trie.name(),
            forced,
            forward_passes,
            time: start.elapsed(),
        })
    }

    /// Generates a value with llama.cpp's grammar sampler instead of the trie.
    fn with_grammar(&mut self, grammar: &str, seed: u32) -> Result<Generated, String> {
        let sampler = self.grammar_sampler(grammar)?;
        let chain = Chain::new(sampler, self.options, seed)?;
        let start = self.begin()?;
        let (mut tokens, mut text) = (Vec::new(), Vec::new());
        while !self.choices.is_whole_value(&text) {
            let token = chain.sample(&self.context);
            if self.model.is_eog(token) {
                break;
            }
            tokens.push(token);
            text.extend(self.model.piece(token));
            self.context.decode(&[token])?;
        }
        Ok(Generated {
            forward_passes: tokens.len(),
            tokens,
            name: None,
            forced: 0,
            time: start.elapsed(),
        })
    }

    /// Makes llama.cpp's own grammar sampler.
    fn grammar_sampler(&self, grammar: &str) -> Result<*mut sys::llama_sampler, String> {
        let c_grammar = std::ffi::CString::new(grammar).map_err(|e| e.to_string())?;
        // SAFETY: the vocabulary is the model's, and the texts are C strings.
        let sampler = unsafe {
            sys::llama_sampler_init_grammar(
                self.model.vocab(),
                c_grammar.as_ptr(),
                c"root".as_ptr(),
            )
        };
        match sampler.is_null() {
            true => Err(format!("llama.cpp does not take the grammar {grammar:?}")),
            false => Ok(sampler),
        }
    }
}

/// Returns the prompts of the file, or the single one of the command line.
fn prompts(options: &Options) -> Result<Vec<String>, String> {
    let Some(path) = &options.prompts else {
        return Ok(vec![options.prompt.clone()]);
    };
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|e| format!("--prompts {}: {e}", path.display()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let prompts: Vec<String> = lines.map(str::to_owned).collect();
    match prompts.is_empty() {
        true => Err(format!("--prompts {}: there is no prompt", path.display())),
        false => Ok(prompts),
    }
}

/// Returns the tokens of a prompt.
fn prompt_of(model: &Model, prompt: &str) -> Result<Vec<i32>, String> {
    let prompt = model.tokenize(prompt, true);
    // A prompt without tokens (no text, and no token that begins one) leaves nothing to continue.
    match prompt.is_empty() {
        true => Err("--prompt is empty, and this model has no token that begins a text".to_owned()),
        false => Ok(prompt),
    }
}

fn generator<'a>(
    options: &'a Options,
    model: &'a Model,
    prompt: &str,
) -> Result<Generator<'a>, String> {
    let choices = Choices::new(options, prompt, model)?;
    let prompt = prompt_of(model, prompt)?;
    let n_ctx = u32::try_from(prompt.len() + choices.longest()).map_err(|e| e.to_string())?;
    Ok(Generator {
        context: Context::new(model, n_ctx, options.threads)?,
        options,
        model,
        prompt,
        choices,
    })
}

fn show(bytes: &[u8]) -> Result<(), String> {
    let mut out = std::io::stdout();
    let shown = out.write_all(bytes).and_then(|()| out.flush());
    shown.map_err(|e| format!("cannot write to stdout: {e}"))
}

fn run(options: &Options) -> Result<(), String> {
    let model = Model::load(&options.model)?;
    let prompts = prompts(options)?;
    if let Some(path) = &options.schema {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|e| format!("--schema {}: {e}", path.display()))?;
        return by_schema(options, &model, &prompts, &text);
    }
    if options.record {
        return write(options, &record::measure(options, &model, &prompts)?);
    }
    for prompt in &prompts {
        let mut generator = generator(options, &model, prompt)?;
        for run in 0..options.runs() {
            let value = generator.with_trie(options.seed.wrapping_add(run))?;
            let name = format!("{:?}", value.name.as_deref().unwrap_or("no value"));
            show_value(prompt, &value.text(&model), &name, &value)?;
        }
    }
    Ok(())
}

fn by_schema(
    options: &Options,
    model: &Model,
    prompts: &[String],
    text: &str,
) -> Result<(), String> {
    if options.record {
        return write(
            options,
            &record::measure_schema(options, model, prompts, text)?,
        );
    }
    for prompt in prompts {
        let mut generator = schema::Generator::new(options, model, prompt, text)?;
        for run in 0..options.runs() {
            let value = generator.value(options.seed.wrapping_add(run), true)?;
            show_value(prompt, &value.text(model), "JSON", &value)?;
        }
    }
    Ok(())
}

/// Writes a record to the output that the options name.
fn write(options: &Options, record: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(record).map_err(|e| e.to_string())? + "\n";
    let Some(path) = &options.output else {
        return show(line.as_bytes());
    };
    std::fs::write(path, line).map_err(|e| format!("--output {}: {e}", path.display()))
}

fn show_value(prompt: &str, text: &[u8], name: &str, value: &Generated) -> Result<(), String> {
    show(prompt.as_bytes())?;
    show(text)?;
    show(b"\n")?;
    eprintln!(
        "{name}: {} tokens, {} of them forced, {} forward passes",
        value.tokens.len(),
        value.forced,
        value.forward_passes
    );
    Ok(())
}

fn main() -> ExitCode {
    let mut options = match options::parse() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("constrained: {error}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    // Both samplers need the same seed, and every run a different one, so a random seed is drawn
    // here.
    options.seed = llama_sieve::rng::resolve_seed(options.seed);
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("constrained: {error}");
            ExitCode::FAILURE
        }
    }
}
