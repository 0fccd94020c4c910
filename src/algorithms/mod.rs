//! What takes several passes over the candidates, with buffers of its own.
//!
//! - [`host_order`]: the order in which the built-ins' sorts leave the candidates, ties included.

pub mod host_order;
