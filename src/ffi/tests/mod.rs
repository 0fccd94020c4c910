//! Tests of the C border when something inside fails, and of its questions to a host.

mod faults;
mod memory;
pub(super) mod mock_host;
mod questions;
