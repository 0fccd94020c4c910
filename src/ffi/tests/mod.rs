//! Tests of the C interface when something inside it fails, and of its queries of a host.

mod faults;
mod memory;
pub(super) mod mock_host;
mod questions;
