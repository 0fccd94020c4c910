use std::fs::{File, OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};

use super::Refusal;

/// Opens a file for this user alone, without truncating it, unless another process writes it.
pub(super) fn open(path: &str) -> Result<File, Refusal> {
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // Without waiting for the reader of a pipe.
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => Refusal::Link,
        Some(libc::ENXIO) => Refusal::Device,
        _ => Refusal::Other(error),
    })?;
    let metadata = file.metadata()?;
    // SAFETY: has no preconditions.
    let user = unsafe { libc::geteuid() };
    if !metadata.is_file() {
        return Err(Refusal::NoFile);
    }
    if metadata.uid() != user || metadata.nlink() != 1 {
        return Err(Refusal::Foreign);
    }
    // SAFETY: the file is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return Err(Refusal::InUse);
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}
