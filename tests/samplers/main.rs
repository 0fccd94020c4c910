//! Compares each drop-in with llama.cpp's own sampler: everything must be equal.

mod ban_biases;
mod bans;
mod bans_beside;
mod breakers;
mod cuts;
mod definitions;
mod differential;
mod loops;
mod oracle;
mod orders;
mod rounded_logits;
mod seeds;
#[path = "../support/mod.rs"]
mod support;
mod undefined;
