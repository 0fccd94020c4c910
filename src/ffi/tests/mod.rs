//! What the C border does when something inside fails, and what it asks of a host.

mod faults;
mod memory;
pub(super) mod mock_host;
mod questions;
