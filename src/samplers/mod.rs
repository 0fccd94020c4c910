//! The samplers, one file each, with parameters, state and `apply`. The two versions of mirostat
//! share a file. DRY, locally typical sampling and the loop breaker have more files in their
//! folders. `lists`, `running` and `threshold` serve several samplers. Unit tests are in
//! `<name>/tests.rs`, and those that concern many samplers in `tests.rs`.
//!
//! A sampler that llama.cpp also has is exact: after `apply`, ids, order, length, `sorted`,
//! `selected`, every logit and every probability are those of llama.cpp's built-in sampler of the
//! same name, bit for bit, and so are the random numbers drawn. Equal logits are in the order of
//! the built-in's sorts (see [`host_order`](crate::algorithms::host_order)). `docs/exactness.md`
//! lists cases that the built-ins leave undefined: for example, NaN counts as minus infinity.
//!
//! Tail-free and softmax, which llama.cpp no longer has, follow their published definitions. So do
//! top-h, min-k, quadratic and the four rules of `threshold`, which it never had.
//!
//! `CONTRIBUTING.md` lists the steps for a new sampler.
//!
//! `new` returns `None` for parameters for which the built-in's constructor makes a sampler that
//! does nothing. [`Disabled`] takes its place.
#![forbid(unsafe_code)]

mod adaptive_p;
pub(crate) mod ban_strings;
mod ban_strings_bias;
mod disabled;
pub(crate) mod dist;
mod dry;
mod epsilon_cutoff;
mod eta_cutoff;
mod greedy;
mod infill;
mod lists;
mod logit_bias;
pub(crate) mod loop_breaker;
mod min_k;
pub(crate) mod min_p;
mod mirostat;
mod p_less;
pub(crate) mod penalties;
mod quadratic;
pub(crate) mod running;
mod softmax;
mod tail_free;
pub(crate) mod temp;
mod temp_ext;
#[cfg(test)]
mod tests;
mod threshold;
mod top_a;
mod top_h;
mod top_k;
mod top_n_sigma;
pub(crate) mod top_p;
pub(crate) mod typical;
mod xtc;

pub use adaptive_p::AdaptiveP;
pub(crate) use adaptive_p::Average;
pub use ban_strings::{BanStrings, BanVocabulary};
pub use ban_strings_bias::BanStringsBias;
pub use disabled::{Disabled, DisabledSelector};
pub use dist::Dist;
pub use dry::{Breakers, Dry, DryParams};
pub(crate) use dry::{FoundBreakers, MAX_BREAKER_BYTES};
pub use epsilon_cutoff::EpsilonCutoff;
pub use eta_cutoff::EtaCutoff;
pub use greedy::Greedy;
pub use infill::Infill;
pub use logit_bias::LogitBias;
pub use loop_breaker::{LoopAction, LoopBreaker, LoopParams};
pub use min_k::MinK;
pub use min_p::MinP;
pub use mirostat::{Mirostat, MirostatV2};
pub use p_less::PLess;
pub use penalties::Penalties;
pub use quadratic::Quadratic;
pub use softmax::Softmax;
pub use tail_free::TailFree;
pub use temp::Temp;
pub use temp_ext::TempExt;
pub use top_a::TopA;
pub use top_h::TopH;
pub use top_k::TopK;
pub use top_n_sigma::TopNSigma;
pub use top_p::TopP;
pub use typical::Typical;
pub use xtc::Xtc;
