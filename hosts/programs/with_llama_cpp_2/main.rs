//! Generates with the crate llama-cpp-2, for hosts/llama_cpp_2.py: SMALL LARGE PROMPT.
//!
//! Texts are printed as token ids.

use std::num::NonZeroU32;
use std::time::Duration;

use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::sampling::LlamaSampler;

const TOKENS: usize = 96;

fn chain(setting: &str, n_vocab: i32) -> LlamaSampler {
    let top_p = LlamaSampler::top_p(0.95, 1);
    let end = [LlamaSampler::temp(0.8), LlamaSampler::dist(42)];
    let mut samplers = Vec::new();
    if setting == "penalties" {
        samplers.push(LlamaSampler::penalties(n_vocab, 64, 1.1, 0.1, 0.1));
    }
    if setting == "top-p alone" {
        samplers.push(top_p);
    } else {
        samplers.extend([LlamaSampler::top_k(40), top_p, LlamaSampler::min_p(0.05, 1)]);
    }
    samplers.extend(end);
    LlamaSampler::chain_simple(samplers)
}

/// Returns the processor time that the process has used so far.
fn processor() -> Duration {
    let mut spent = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `spent` is written.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut spent) };
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

/// Returns the tokens, and the tokens per second of processor time.
fn generate(
    backend: &LlamaBackend,
    model: &LlamaModel,
    prompt: &str,
    setting: &str,
) -> (String, f64) {
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(256))
        .with_n_threads(1)
        .with_n_threads_batch(1);
    let mut context = model.new_context(backend, params).expect("a context");
    let mut chain = chain(setting, model.n_vocab());
    let prompt = model.vocab().tokenize(prompt.as_bytes(), true, false);
    let mut batch = LlamaBatch::get_one(&prompt).expect("a prompt");
    context.decode(&mut batch).expect("room");
    let mut tokens = Vec::new();
    let mut begun = processor();
    for n in 0..TOKENS {
        // The first token is not timed, because some things are made at their first use.
        if n == 1 {
            begun = processor();
        }
        let token = [chain.sample(&context, -1)];
        tokens.push(token[0].0.to_string());
        context
            .decode(&mut LlamaBatch::get_one(&token).expect("a token"))
            .expect("room");
    }
    let rate = (TOKENS - 1) as f64 / (processor() - begun).as_secs_f64();
    (tokens.join(" "), rate)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, small, large, prompt] = &arguments[..] else {
        panic!("SMALL LARGE PROMPT");
    };
    let backend = LlamaBackend::init().expect("a backend");
    let (mut texts, mut rates) = (Vec::new(), Vec::new());
    for (name, path) in [("small", small), ("large", large)] {
        let params = LlamaModelParams::default();
        let model = LlamaModel::load_from_file(&backend, path, &params).expect("a model");
        for setting in ["defaults", "penalties", "top-p alone"] {
            let (text, rate) = generate(&backend, &model, prompt, setting);
            texts.push(format!(r#""{name}: {setting}": "{text}""#));
            rates.push(format!(r#""{name}: {setting}": {rate}"#));
        }
    }
    let (texts, rates) = (texts.join(", "), rates.join(", "));
    println!(r#"{{"texts": {{{texts}}}, "rates": {{{rates}}}}}"#);
}
