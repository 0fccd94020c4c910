//! Built-in samplers that can run in place of this library's.

use crate::token::Token;

/// A built-in sampler of llama.cpp, described by its constructor's arguments and its later history.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the arguments have their names in llama.h")]
pub enum BuiltIn {
    /// `llama_sampler_init_greedy`.
    Greedy,
    /// `llama_sampler_init_dist`, after `draws` draws.
    Dist { seed: u32, draws: u64 },
    /// `llama_sampler_init_top_k`.
    TopK { k: i32 },
    /// `llama_sampler_init_top_p`.
    TopP { p: f32, min_keep: usize },
    /// `llama_sampler_init_min_p`.
    MinP { p: f32, min_keep: usize },
    /// `llama_sampler_init_temp`.
    Temp { t: f32 },
    /// `llama_sampler_init_temp_ext`.
    TempExt { t: f32, delta: f32, exponent: f32 },
    /// `llama_sampler_init_penalties`, after accepting the tokens in `accepted`.
    Penalties {
        n_vocab: i32,
        last_n: i32,
        repeat: f32,
        freq: f32,
        present: f32,
        accepted: Vec<Token>,
    },
    /// `llama_sampler_init_logit_bias`.
    LogitBias {
        n_vocab: i32,
        biases: Vec<(Token, f32)>,
    },
}

/// How a host treats a sampler whose chain it runs in its graph (`llama_set_sampler`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InGraph {
    /// The sampler does not run in the graph, and neither do the members of the chain after it.
    Never,
    /// The corresponding built-in runs instead of the sampler.
    AsBuiltIn,
    /// The graph skips the sampler, which does nothing.
    PassedOver,
}
