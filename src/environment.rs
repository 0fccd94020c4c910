//! The environment variables that the library reads.

/// The variable `name`, if it is set, and text. None in a process with more rights than who started
/// it (a setuid program): there the environment is a stranger's.
pub(crate) fn variable(name: &str) -> Option<String> {
    system::variable(name)
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::ffi::{CStr, CString, c_char};

    unsafe extern "C" {
        fn secure_getenv(name: *const c_char) -> *const c_char;
    }

    pub(super) fn variable(name: &str) -> Option<String> {
        let name = CString::new(name).ok()?;
        // SAFETY: a C string. That nobody changes the environment meanwhile is the program's to see
        // to, as for every library that reads it.
        let value = unsafe { secure_getenv(name.as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: not NULL, so a C string of the environment; it is copied.
        let value = unsafe { CStr::from_ptr(value) };
        value.to_str().ok().map(str::to_owned)
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    pub(super) fn variable(name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}
