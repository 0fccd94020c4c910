//! Compares whole generations: 200 tokens for each of 50 seeds on each model, sampled by a chain of
//! this library and a chain of built-ins from the same logits of a real context. The tokens must be
//! identical. If the logits are rounded first, as those of a model in half precision are, the
//! candidates that the chains leave must be identical, too.

use std::path::Path;

use crate::support::compare::same;
use crate::support::{Grid, HostSampler, both, fresh_rng, replay, trained_model};
use vendor_llama_cpp::{Context, Model, test_model};

const SEEDS: u32 = 50;
const TOKENS: usize = 200;

/// The sampler options of one generation. Every sampler is switched on for some seeds.
struct Options {
    top_k: i32,
    top_p: f32,
    min_p: f32,
    typical: f32,
    n_sigma: f32,
    temp: f32,
    repeat: f32,
    seed: u32,
}

impl Options {
    fn of_seed(seed: u32) -> Self {
        let pick = |values: &[f32], shift: u32| values[(seed >> shift) as usize % values.len()];
        Self {
            top_k: [40, 0, 1000, 5][seed as usize % 4],
            top_p: pick(&[0.95, 1.0, 0.5], 1),
            min_p: pick(&[0.05, 0.0, 0.01], 0),
            typical: pick(&[1.0, 1.0, 0.9], 1),
            n_sigma: pick(&[-1.0, 1.5], 2),
            temp: pick(&[0.8, 1.0, 1.7, 0.0], 1),
            repeat: pick(&[1.1, 1.0], 0),
            seed,
        }
    }

    /// Returns the chain of this library's samplers, and that of built-ins.
    fn both(&self, n_vocab: i32) -> [HostSampler; 2] {
        let mut sides = [vec![], vec![]];
        for members in [
            both!(
                llama_sieve_init_penalties, llama_sampler_init_penalties;
                n_vocab, 64, self.repeat, 0.0, 0.1
            ),
            both!(llama_sieve_init_top_n_sigma, llama_sampler_init_top_n_sigma; self.n_sigma),
            both!(llama_sieve_init_top_k, llama_sampler_init_top_k; self.top_k),
            both!(llama_sieve_init_typical, llama_sampler_init_typical; self.typical, 1),
            both!(llama_sieve_init_top_p, llama_sampler_init_top_p; self.top_p, 1),
            both!(llama_sieve_init_min_p, llama_sampler_init_min_p; self.min_p, 1),
            both!(llama_sieve_init_temp, llama_sampler_init_temp; self.temp),
            both!(llama_sieve_init_dist, llama_sampler_init_dist; self.seed),
        ] {
            for (side, member) in sides.iter_mut().zip(members) {
                side.push(member);
            }
        }
        sides.map(HostSampler::chain)
    }
}

fn generate_and_compare(model: &Path) {
    let model = Model::load(model).expect("the model loads");
    let n_vocab = model.n_vocab() as i32;
    let prompt = model.tokenize("And the LORD said", true);
    let n_ctx = (prompt.len() + TOKENS) as u32;
    let mut context = Context::new(&model, n_ctx, 1).expect("a context");
    let mut texts = std::collections::HashSet::new();
    let mut rng = fresh_rng("generations");
    for i in 0..SEEDS {
        // Consecutive seeds switch on every option in turn.
        let seed = rng.below(1 << 20) as u32 * SEEDS + i;
        let grid = Grid::ALL[rng.below(Grid::ALL.len())];
        let options = Options::of_seed(seed);
        let [ours, theirs] = options.both(n_vocab);
        context.clear();
        context.decode(&prompt).expect("the prompt fits");
        let mut tokens = Vec::new();
        for position in 0..TOKENS {
            let what = format!("{}, seed {seed}, {grid:?}, token {position}", replay());
            let token = match grid {
                Grid::F32 => {
                    let token = ours.sample(context.as_ptr());
                    assert_eq!(token, theirs.sample(context.as_ptr()), "{what}");
                    token
                }
                _ => {
                    let (token, array) = ours.sample_from(context.logits(), grid);
                    let (_, expected) = theirs.sample_from(context.logits(), grid);
                    assert_eq!(same(&array, &expected), Ok(()), "{what}");
                    token
                }
            };
            tokens.push(token);
            context.decode(&[token]).expect("there is room");
        }
        texts.insert(tokens);
    }
    // Chains that ignore their seed would also be identical.
    assert!(
        texts.len() > SEEDS as usize / 2,
        "only {} different texts",
        texts.len()
    );
}

#[test]
fn the_trained_model() {
    generate_and_compare(&trained_model());
}

#[test]
fn a_random_model_with_the_vocabulary_of_a_large_one() {
    generate_and_compare(&test_model::cached(32_000, 1));
}
