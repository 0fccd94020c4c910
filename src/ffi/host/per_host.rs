//! What was looked up in a host, for as long as that host is asked: names are looked up once, not
//! for every token. A forked child does not wait for readers that it lacks.

use std::sync::{PoisonError, RwLock};

use super::Host;

/// What was last looked up, and in which host.
#[derive(Debug)]
pub(in crate::ffi) struct PerHost<T>(RwLock<Option<(Host, T)>>);

impl<T: Copy> PerHost<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(None))
    }

    /// What is known of this host.
    pub(crate) fn known(&self, host: &Host) -> Option<T> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.filter(|(of, _)| of.is(host)).map(|(_, value)| value)
    }

    pub(crate) fn keep(&self, host: Host, value: T) {
        let known = self.0.write();
        *known.unwrap_or_else(PoisonError::into_inner) = Some((host, value));
    }

    /// What is known of the host of this process, or what `look_up` finds; or why there is none.
    pub(crate) fn of_host(&self, look_up: fn(&Host) -> Result<T, String>) -> Result<T, String> {
        let host = Host::get()?;
        if let Some(known) = self.known(&host) {
            return Ok(known);
        }
        let value = look_up(&host)?;
        self.keep(host, value);
        Ok(value)
    }
}
