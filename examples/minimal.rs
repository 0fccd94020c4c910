//! The tokens of llama.cpp's default chain with seed 42, from the raw logits of a made-up model:
//! `cargo run --release --example minimal`.
//!
//! Prints: 739 240 529 330 589 405 499 450

use llama_sieve::sieve::{Error, Params, Sieve};

fn main() -> Result<(), Error> {
    let params = Params {
        seed: 42,
        ..Params::default()
    };
    let mut sieve = Sieve::new(&params)?;
    let mut token = 0;
    for _ in 0..8 {
        // This is the model.
        let logit = |i| ((i + token) * 7919 % 1024) as f32 / 16.0;
        let logits: Vec<f32> = (0..1000).map(logit).collect();
        token = sieve.sample(&logits)?;
        sieve.accept(token);
        print!("{token} ");
    }
    Ok(())
}
