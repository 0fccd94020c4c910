//! Generates a value that satisfies a JSON Schema. Spans without a choice are appended, not
//! sampled.
//!
//! ```text
//! until the value ends:
//!     append the bytes that must follow, as tokens, to the batch
//!     let the model read the batch
//!     sample a token, and put it into the next batch
//! ```
//!
//! The last token of a span is left to the model, since a tokenizer may merge its bytes with later
//! text.

use std::ffi::CString;
use std::time::Instant;

use llama_sieve::ffi::grammar::between::{llama_sieve_grammar_accepts, llama_sieve_grammar_forced};
use llama_sieve::ffi::grammar::schema::{LLAMA_SIEVE_JSON_COMPACT, llama_sieve_init_json_schema};
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::last_error;
use vendor_llama_cpp::{Context, Model};

use crate::options::Options;
use crate::{Chain, Generated, prompt_of, whole};

/// The most tokens of a value.
const LONGEST: usize = 512;

pub struct Generator<'a> {
    options: &'a Options,
    model: &'a Model,
    context: Context<'a>,
    prompt: Vec<i32>,
    schema: CString,
}

/// A chain that begins with a schema's grammar.
struct SchemaChain {
    chain: Chain,
    /// The chain's first member.
    grammar: *mut llama_sampler,
}

impl<'a> Generator<'a> {
    pub fn new(
        options: &'a Options,
        model: &'a Model,
        prompt: &str,
        schema: &str,
    ) -> Result<Self, String> {
        let prompt = prompt_of(model, prompt)?;
        let n_ctx = u32::try_from(prompt.len() + LONGEST).map_err(|e| e.to_string())?;
        Ok(Self {
            context: Context::new(model, n_ctx, options.threads)?,
            options,
            model,
            prompt,
            schema: CString::new(schema).map_err(|e| format!("--schema: {e}"))?,
        })
    }

    /// Generates a value; with `skip`, forced tokens are appended in one batch.
    pub fn value(&mut self, seed: u32, skip: bool) -> Result<Generated, String> {
        let constrained = self.chain(seed)?;
        self.context.clear();
        self.context.decode(&self.prompt)?;
        let start = Instant::now();
        let (mut tokens, mut forced, mut forward_passes) = (Vec::new(), 0, 0);
        // The tokens that the model has not evaluated yet.
        let mut batch = Vec::new();
        loop {
            if skip {
                for token in self.forced(&constrained) {
                    constrained.chain.accept(token);
                    tokens.push(token);
                    batch.push(token);
                    forced += 1;
                }
            }
            if tokens.len() >= LONGEST {
                return Err(format!("the value has not ended after {LONGEST} tokens"));
            }
            if !batch.is_empty() {
                self.context.decode(&batch)?;
                batch.clear();
                forward_passes += 1;
            }
            let token = constrained.chain.sample(&self.context);
            if self.model.is_eog(token) {
                break;
            }
            tokens.push(token);
            batch.push(token);
        }
        Ok(Generated {
            tokens,
            name: None,
            forced,
            forward_passes,
            time: start.elapsed(),
        })
    }

    fn chain(&self, seed: u32) -> Result<SchemaChain, String> {
        // Compact: no choice of white space, so that more of the text is forced.
        // SAFETY: the vocabulary is the model's, and the schema is a C string.
        let grammar = unsafe {
            llama_sieve_init_json_schema(
                self.model.vocab().cast(),
                self.schema.as_ptr(),
                LLAMA_SIEVE_JSON_COMPACT,
            )
        };
        if grammar.is_null() {
            return Err(last_error::get());
        }
        let chain = Chain::new(grammar.cast(), self.options, seed)?;
        Ok(SchemaChain { chain, grammar })
    }

    /// Returns the tokens that must follow, except the last one; none if their texts, joined, are
    /// not the forced bytes.
    fn forced(&self, constrained: &SchemaChain) -> Vec<i32> {
        let bytes = constrained.forced();
        let Ok(text) = std::str::from_utf8(&bytes) else {
            return Vec::new();
        };
        let mut tokens = self.model.tokenize(text, false);
        let spelled = tokens.iter().flat_map(|&token| self.model.piece(token));
        if !spelled.eq(bytes.iter().copied()) {
            return Vec::new();
        }
        tokens.pop();
        tokens.truncate(constrained.accepts(&tokens));
        tokens
    }
}

impl SchemaChain {
    /// Returns the bytes that must follow.
    fn forced(&self) -> Vec<u8> {
        // SAFETY: the sampler lives in the chain, and the length is the buffer's.
        whole(|bytes: *mut u8, n| unsafe {
            llama_sieve_grammar_forced(self.grammar, bytes.cast(), n)
        })
    }

    /// Returns how many of these tokens are allowed, one after the other.
    fn accepts(&self, tokens: &[i32]) -> usize {
        // SAFETY: the sampler lives in the chain, and the length is the tokens'.
        unsafe { llama_sieve_grammar_accepts(self.grammar, tokens.as_ptr(), tokens.len()) }
    }
}
