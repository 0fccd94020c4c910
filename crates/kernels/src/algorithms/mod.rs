//! Algorithms that take several passes over the candidates and keep buffers.
//!
//! - [`host_order`]: the order in which the built-ins' sorts leave the candidates, ties included;
//! - [`top_k`], [`argsort`], [`kth_largest`]: descending order of all or of the largest;
//! - [`descending_sum`]: sums in descending order without sorting;
//! - [`descending_draw`]: draws in descending order, also without sorting;
//! - [`sigma_bounds`]: the threshold of top-n-sigma;
//! - [`workspace`], [`softmax`]: probabilities outside the array and in it;
//! - [`categorical`]: draws from a cumulative sum;
//! - [`scratch`]: buffers that are not cloned.

pub mod argsort;
pub mod categorical;
pub mod descending_draw;
pub mod descending_sum;
pub mod host_order;
pub mod kth_largest;
pub mod scratch;
pub mod sigma_bounds;
pub mod softmax;
pub mod top_k;
pub mod workspace;

pub use scratch::Scratch;
pub use softmax::Softmax;
pub use workspace::Workspace;
