//! Reads environment variables, unless they cannot be trusted.

/// Returns the value of the variable; `None` if it is not set or empty. On Linux also `None` in a
/// program that runs with more rights than its user has (setuid, capabilities), since the user
/// controls its environment.
pub fn variable(name: &str) -> Option<String> {
    if is_elevated() {
        return None;
    }
    let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
    Some(value.to_string_lossy().into_owned())
}

#[cfg(all(target_os = "linux", not(miri)))]
fn is_elevated() -> bool {
    // SAFETY: only reads a value that the kernel has given to the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn is_elevated() -> bool {
    false
}
