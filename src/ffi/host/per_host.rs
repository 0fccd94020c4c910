//! A cache for values that are looked up in a host, so that they are not looked up for every token.
//! It is valid as long as that host is in use.

use crate::ffi::failure::{Failure, part};
use crate::ffi::host::Host;
use crate::sync::RwLock;
use std::ffi::c_int;

/// The value that was looked up last, with its host.
#[derive(Debug)]
pub(in crate::ffi) struct PerHost<T>(RwLock<Option<(Host, T)>>);

impl<T: Copy> PerHost<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(None))
    }

    /// Returns the cached value, if it belongs to `host`.
    pub(in crate::ffi) fn known(&self, host: &Host) -> Option<T> {
        let known = *self.0.read();
        known.filter(|(of, _)| of.is(host)).map(|(_, value)| value)
    }

    pub(in crate::ffi) fn keep(&self, host: Host, value: T) {
        *self.0.write() = Some((host, value));
    }

    /// Returns the cached value for the host of this process, or otherwise the one that `look_up`
    /// finds. The error says why there is none.
    pub(crate) fn of_host(&self, look_up: fn(&Host) -> Result<T, String>) -> Result<T, String> {
        let host = Host::get()?;
        if let Some(known) = self.known(&host) {
            return Ok(known);
        }
        let value = look_up(&host)?;
        self.keep(host, value);
        Ok(value)
    }

    /// Returns the cached value for the host of this process, or otherwise the result of `ask` on
    /// what `look_up` has found; on failure the error number that the call must return. The host's
    /// code runs only in `ask`, outside the guard: its exceptions pass through, and nothing is
    /// cached then.
    pub(crate) fn asked<L>(
        &self,
        call: &str,
        look_up: fn(&Host) -> Result<L, String>,
        ask: impl FnOnce(L) -> T,
    ) -> Result<T, c_int> {
        let (host, known) = part(call, || {
            let host = Host::get().map_err(Failure::no_host)?;
            Ok((host, self.known(&host)))
        })?;
        if let Some(known) = known {
            return Ok(known);
        }
        let value = ask(part(call, || look_up(&host).map_err(Failure::no_host))?);
        part(call, || {
            self.keep(host, value);
            Ok(value)
        })
    }
}
