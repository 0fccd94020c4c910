//! What the C border does when something inside fails.

mod faults;
mod memory;
pub(super) mod mock_host;
