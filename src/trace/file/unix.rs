use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};

#[cfg(not(any(target_os = "linux", target_os = "android")))]
use libc::{fstat, ino_t, stat};
#[cfg(any(target_os = "linux", target_os = "android"))]
use libc::{fstat64 as fstat, ino64_t as ino_t, stat64 as stat};

use super::Refusal;

/// The device and the inode number of a file.
pub(super) type Identity = (libc::dev_t, ino_t);

/// Returns the identity of the file that the descriptor refers to now; an error if it is closed.
///
/// [`File::metadata`] calls `statx` instead, which system-call filters often forbid even if they
/// allow writing.
pub(super) fn identity(file: &File) -> io::Result<Identity> {
    let mut found = MaybeUninit::<stat>::uninit();
    // SAFETY: there is room for the result; a closed descriptor is an error.
    if unsafe { fstat(file.as_raw_fd(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has written it.
    let found = unsafe { found.assume_init() };
    Ok((found.st_dev, found.st_ino))
}

/// Opens a file for this user alone, without truncating it. Fails if another trace is being written
/// to it.
pub(super) fn open(path: &str) -> Result<File, Refusal> {
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // `O_NONBLOCK` avoids waiting for the reader of a pipe.
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
        let error = io::Error::last_os_error();
        return Err(match error.kind() {
            io::ErrorKind::WouldBlock => Refusal::InUse,
            _ => Refusal::Other(error),
        });
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}
