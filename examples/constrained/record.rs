//! A record of the runs, which compares the trie with llama.cpp's grammar sampler.

use std::time::Duration;

use serde::Serialize;
use serde::de::IgnoredAny;
use vendor_llama_cpp::{Model, sys};

use crate::options::{Mode, Options};
use crate::{Generated, Generator, TrieChain, generator, schema};

#[derive(Serialize)]
pub struct Record {
    mode: Mode,
    model: String,
    greedy: bool,
    prompts: usize,
    runs: u32,
    skip_ratio_mean: f64,
    skip_ratio_std: f64,
    forced_ratio_mean: f64,
    forced_ratio_std: f64,
    tokens_per_second: f64,
    tokens_per_second_vs_grammar: f64,
    token_accuracy: f64,
    value_accuracy: f64,
    forward_passes_saved: usize,
    forward_passes_total: usize,
}

#[derive(Serialize)]
pub struct SchemaRecord {
    mode: &'static str,
    model: String,
    greedy: bool,
    prompts: usize,
    runs: u32,
    forced_ratio_mean: f64,
    forced_ratio_std: f64,
    tokens_per_second: f64,
    tokens_per_second_vs_sampled: f64,
    value_accuracy: f64,
    forward_passes_saved: usize,
    forward_passes_total: usize,
}

/// Numbers whose mean and deviation are computed.
#[derive(Default)]
struct Numbers(Vec<f64>);

impl Numbers {
    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }

    fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares = self.0.iter().map(|x| (x - mean).powi(2));
        Self(squares.collect()).mean().sqrt()
    }
}

/// The results of one sampler, over all prompts and runs.
#[derive(Default)]
struct Side {
    skipped: Numbers,
    forced: Numbers,
    tokens: usize,
    time: Duration,
    forward_passes: usize,
    /// The number of runs whose result is one of the values.
    right: usize,
}

impl Side {
    fn add(&mut self, value: &Generated, is_value: bool) {
        let n = value.tokens.len();
        self.forced.0.push(value.forced as f64 / n.max(1) as f64);
        self.tokens += n;
        self.time += value.time;
        self.forward_passes += value.forward_passes;
        self.right += usize::from(is_value);
    }

    fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.time.as_secs_f64()
    }
}

/// The number of compared tokens that are the most probable ones on both sides.
#[derive(Default)]
struct Agreement {
    equal: usize,
    of: usize,
}

pub fn measure(options: &Options, model: &Model, prompts: &[String]) -> Result<Record, String> {
    let (mut trie, mut grammar) = (Side::default(), Side::default());
    let mut agreement = Agreement::default();
    for prompt in prompts {
        let mut generator = generator(options, model, prompt)?;
        let text = generator.choices.grammar()?;
        // A first run, so that no measured time includes work that happens once per process.
        generator.with_trie(options.seed)?;
        generator.with_grammar(&text, options.seed)?;
        for run in 0..options.runs() {
            // The samplers alternate, so that a machine that becomes slower does so for both.
            let seed = options.seed.wrapping_add(run);
            let value = generator.with_trie(seed)?;
            let is_value = generator.choices.is_value(&value.text(model));
            trie.add(&value, is_value && value.name.is_some());
            generator.skipped_by_trie(&value.tokens, &mut trie.skipped)?;
            let value = generator.with_grammar(&text, seed)?;
            grammar.add(&value, generator.choices.is_value(&value.text(model)));
            generator.skipped_by_grammar(&text, &value.tokens, &mut grammar.skipped)?;
        }
        generator.compare_choices(&text, &mut agreement)?;
    }
    let token_accuracy = match options.mode {
        Mode::Trie => agreement.equal as f64 / agreement.of.max(1) as f64,
        // The grammar is compared with itself.
        Mode::Grammar => 1.0,
    };
    let side = match options.mode {
        Mode::Trie => &trie,
        Mode::Grammar => &grammar,
    };
    let runs = prompts.len() as f64 * f64::from(options.runs());
    Ok(Record {
        mode: options.mode,
        model: name_of(options),
        greedy: options.greedy,
        prompts: prompts.len(),
        runs: options.runs(),
        skip_ratio_mean: side.skipped.mean(),
        skip_ratio_std: side.skipped.deviation(),
        forced_ratio_mean: side.forced.mean(),
        forced_ratio_std: side.forced.deviation(),
        tokens_per_second: side.tokens_per_second(),
        tokens_per_second_vs_grammar: side.tokens_per_second() / grammar.tokens_per_second(),
        token_accuracy,
        value_accuracy: side.right as f64 / runs,
        forward_passes_saved: side.tokens - side.forward_passes,
        forward_passes_total: side.tokens,
    })
}

fn name_of(options: &Options) -> String {
    let file = options.model.file_stem().unwrap_or_default();
    file.to_string_lossy().into_owned()
}

/// Compares appending forced spans with sampling every token. With the same seed the two sides may
/// give different values, since each sampled token uses a random number.
pub fn measure_schema(
    options: &Options,
    model: &Model,
    prompts: &[String],
    text: &str,
) -> Result<SchemaRecord, String> {
    let (mut appended, mut sampled) = (Side::default(), Side::default());
    for prompt in prompts {
        let mut generator = schema::Generator::new(options, model, prompt, text)?;
        // A first run, so that no measured time includes work that happens once per process.
        generator.value(options.seed, true)?;
        for run in 0..options.runs() {
            let seed = options.seed.wrapping_add(run);
            for (side, skip) in [(&mut appended, true), (&mut sampled, false)] {
                let value = generator.value(seed, skip)?;
                let text = value.text(model);
                side.add(&value, serde_json::from_slice::<IgnoredAny>(&text).is_ok());
            }
        }
    }
    Ok(SchemaRecord {
        mode: "strict-json-schema",
        model: name_of(options),
        greedy: options.greedy,
        prompts: prompts.len(),
        runs: options.runs(),
        forced_ratio_mean: appended.forced.mean(),
        forced_ratio_std: appended.forced.deviation(),
        tokens_per_second: appended.tokens_per_second(),
        tokens_per_second_vs_sampled: appended.tokens_per_second() / sampled.tokens_per_second(),
        value_accuracy: appended.right as f64 / (prompts.len() as f64 * f64::from(options.runs())),
        forward_passes_saved: appended.tokens - appended.forward_passes,
        forward_passes_total: appended.tokens,
    })
}

/// A sampler by itself.
struct Alone(*mut sys::llama_sampler);

impl Alone {
    /// Applies the sampler to candidates with these logits. Returns those that are left.
    fn apply(&self, logits: &[f32]) -> Vec<sys::llama_token_data> {
        let candidates = (0..).zip(logits);
        let candidates = candidates.map(|(id, &logit)| sys::llama_token_data { id, logit, p: 0.0 });
        let mut data: Vec<_> = candidates.collect();
        let mut array = sys::llama_token_data_array {
            data: data.as_mut_ptr(),
            size: data.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: the sampler lives, and the array is that of the vector; a grammar sampler leaves
        // it where it is, and masks.
        unsafe { sys::llama_sampler_apply(self.0, &raw mut array) };
        data.retain(|candidate| candidate.logit > f32::NEG_INFINITY);
        data
    }

    fn accept(&self, token: i32) {
        // SAFETY: the sampler lives.
        unsafe { sys::llama_sampler_accept(self.0, token) };
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // SAFETY: the sampler is owned by this handle alone.
        unsafe { sys::llama_sampler_free(self.0) };
    }
}

/// Returns the token with the largest logit, the first of equals.
fn largest(candidates: impl Iterator<Item = (i32, f32)>) -> Option<i32> {
    let larger = |a: (i32, f32), b: (i32, f32)| if b.1 > a.1 { b } else { a };
    candidates.reduce(larger).map(|(token, _)| token)
}

impl Generator<'_> {
    /// Adds the share of the vocabulary that the trie excluded at each step of a value.
    fn skipped_by_trie(&self, tokens: &[i32], to: &mut Numbers) -> Result<(), String> {
        let trie = TrieChain::new(self.model, &self.choices, self.options, 0)?;
        let full = self.model.n_vocab();
        for (i, &token) in tokens.iter().enumerate() {
            // After a value with which another begins, any token may follow.
            let ends = self.choices.is_whole_leaf(&tokens[..i]);
            let valid = if ends { full } else { trie.n_allowed() };
            to.0.push((full - valid) as f64 / full as f64);
            trie.chain.accept(token);
        }
        Ok(())
    }

    /// Adds the share of the vocabulary that the grammar excluded at each step of a value.
    fn skipped_by_grammar(
        &self,
        grammar: &str,
        tokens: &[i32],
        to: &mut Numbers,
    ) -> Result<(), String> {
        let grammar = Alone(self.grammar_sampler(grammar)?);
        let full = self.model.n_vocab();
        let logits = vec![0.0; full];
        for &token in tokens {
            let valid = grammar.apply(&logits).len();
            to.0.push((full - valid) as f64 / full as f64);
            grammar.accept(token);
        }
        Ok(())
    }

    /// Generates the most probable value with the trie, as far as it is constrained, and counts how
    /// many of its tokens are the most probable ones under the grammar as well.
    fn compare_choices(&mut self, grammar: &str, to: &mut Agreement) -> Result<(), String> {
        let trie = TrieChain::new(self.model, &self.choices, self.options, 0)?;
        let grammar = Alone(self.grammar_sampler(grammar)?);
        self.begin()?;
        let mut tokens = Vec::new();
        while trie.is_active() && !self.choices.is_whole_leaf(&tokens) {
            let logits = self.context.logits();
            let of_trie = trie
                .allowed()
                .into_iter()
                .map(|id| (id, logits[id as usize]));
            let token = largest(of_trie).ok_or("the trie allows no token")?;
            let of_grammar = grammar.apply(logits).into_iter().map(|c| (c.id, c.logit));
            to.equal += usize::from(largest(of_grammar) == Some(token));
            to.of += 1;
            trie.chain.accept(token);
            grammar.accept(token);
            tokens.push(token);
            self.context.decode(&[token])?;
        }
        Ok(())
    }
}
