//! The drop-in samplers, one file each: parameters, state, apply, unit tests.
//!
//! Each is exact: after `apply`, ids, order, length, `sorted`, `selected` and every logit are those of llama.cpp's built-in
//! sampler of the same name, and so are the random numbers drawn. Two rules fill what the built-ins leave undefined: equal logits keep
//! their input order, and NaN counts as minus infinity.
//!
//! `new` gives `None` where the built-in constructor makes an empty sampler; [`Disabled`] is ours.
#![forbid(unsafe_code)]

mod disabled;
mod dist;
mod greedy;
mod min_p;
mod penalties;
mod temp;
mod top_k;
mod top_n_sigma;
mod top_p;
mod typical;

pub use disabled::Disabled;
pub use dist::Dist;
pub use greedy::Greedy;
pub use min_p::MinP;
pub use penalties::Penalties;
pub use temp::Temp;
pub use top_k::TopK;
pub use top_n_sigma::TopNSigma;
pub use top_p::TopP;
pub use typical::Typical;
