//! Single passes over candidates, columns of floats and raw logits. Unless documented otherwise,
//! their results agree with the built-ins bit for bit. They have no state and no buffers.
//!
//! Each pass is written once, over any [`Vector`](crate::simd::Vector), and declared once, in the
//! same file, by `dispatched!`. A new pass is one file, a naive twin and a test.
//!
//! - [`layout`]: sizes that several passes share;
//! - [`scan`]: searches and counts; [`column`](mod@column): copies of the logits; [`compact`]:
//!   elements that pass a threshold; [`rewrite`], [`quotient`]: changes in place;
//! - [`sequential_sum`], [`sequential_sum_f64`], [`signed_sum`]: sums as if added one by one;
//!   [`moments`]: of squares; [`rounding_test`]: of terms that are known approximately;
//!   [`sums_f64`]: of exponentials in double precision;
//! - [`softmax`], [`entropy`]: exponentials and logarithms with their sums;
//! - [`sort_key`]: keys for sorting; [`bitmap`]: sets of tokens;
//! - [`logits`]: raw logits of three precisions, with [`block_maxima`], [`collect`] and
//!   [`online_softmax`] (relative to a [`reference`](mod@reference)). These do not repeat a
//!   built-in's rounding.

pub mod bitmap;
pub mod block_maxima;
pub mod collect;
pub mod column;
pub mod compact;
pub mod entropy;
pub mod layout;
pub mod logits;
pub mod moments;
#[cfg(test)]
mod naive;
#[cfg(test)]
mod naive_logits;
pub mod online_softmax;
pub mod quotient;
pub mod reference;
mod registers;
pub mod rewrite;
pub mod rounding_test;
pub mod scan;
pub mod sequential_sum;
pub mod sequential_sum_f64;
pub mod signed_sum;
pub mod softmax;
pub mod sort_key;
pub mod sums_f64;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_logits;
#[cfg(test)]
mod tests_rounding;
#[cfg(test)]
mod tests_sums;

pub use column::{Column, column, column_selecting};
pub use compact::{at_least, near_max, select};
pub use entropy::{entropies, fused_entropy, lns, nearness};
pub use quotient::{divide_p_double, write_quotients};
pub use rewrite::{
    Cubic, Curve, bend, bend_logits, cube, cube_logits, divide, divide_logits, mask_below, set_p,
    write_divided,
};
pub use rounding_test::softmax_sum;
pub use scan::{argmax, max_logit};
pub use sequential_sum::{sum, sum_above};
pub use softmax::{exp_sum, exponentiate};
