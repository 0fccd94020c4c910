//! The file that the record is written to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};

use crate::quoted::quoted;
use crate::write_signals::Blocked;

/// A file of which every line is whole, as far as it was written.
#[derive(Debug)]
pub(super) struct LineFile {
    file: File,
    /// The length of the whole lines.
    length: u64,
}

impl LineFile {
    /// Opens a file for this user alone, and empties it. Fails, with the reason, for a link, for
    /// what is no file, for a file of somebody else's, and for one that is being written.
    pub(super) fn open(path: &str) -> Result<Self, String> {
        let of = |text: &str| format!("{}: {text}", quoted(path));
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // Without waiting for the reader of a pipe.
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(path);
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => of("is a link; name the file itself"),
            Some(libc::ENXIO) => of("is a pipe or a device; name a file"),
            _ => of(&error.to_string()),
        })?;
        let metadata = file.metadata().map_err(|error| of(&error.to_string()))?;
        // SAFETY: has no preconditions.
        let user = unsafe { libc::geteuid() };
        if !metadata.is_file() {
            return Err(of("is no file; name one"));
        }
        if metadata.uid() != user || metadata.nlink() != 1 {
            return Err(of(
                "belongs to another user, or has several names; name a new file",
            ));
        }
        // SAFETY: the file is open.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(of(
                "is being written by another process or library; put %p into the name, which \
                 stands for the number of the process",
            ));
        }
        let private = std::fs::Permissions::from_mode(0o600);
        let emptied = file.set_permissions(private).and_then(|()| file.set_len(0));
        emptied.map_err(|error| of(&error.to_string()))?;
        Ok(Self { file, length: 0 })
    }

    /// Appends a line. Where that fails, what was written of it is taken back, if it can be.
    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let _blocked = Blocked::now();
        if let Err(error) = self.file.write_all(line) {
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += line.len() as u64;
        Ok(())
    }
}

/// Returns the name of this process's file: `%p` stands for the number of the process, `%%` for a
/// percent sign.
pub(super) fn of_process(pattern: &str, process: u32) -> String {
    let mut name = String::new();
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('%', Some('p')) => name.push_str(&process.to_string()),
            ('%', Some('%')) => name.push('%'),
            _ => {
                name.push(character);
                continue;
            }
        }
        characters.next();
    }
    name
}

/// True if every process has a file of its own by this name.
pub(super) fn is_of_process(pattern: &str) -> bool {
    of_process(pattern, 1) != of_process(pattern, 2)
}
