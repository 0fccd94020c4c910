//! The drop-ins, each against llama.cpp's own: equality of everything.

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
