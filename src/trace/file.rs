//! The file that receives the trace.

use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;

use crate::quoted::quoted;
use crate::write_signals::without_signals;

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

/// The reason why a file is refused.
#[derive(Debug)]
enum Refusal {
    Link,
    Device,
    NoFile,
    /// The file belongs to another user, or has several names.
    Foreign,
    /// Another process, or another copy of the library, is writing a trace to the file.
    InUse,
    Other(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Other(error)
    }
}

/// A file that contains only complete lines.
#[derive(Debug)]
pub(super) struct LineFile {
    /// Closed on drop only if [`LineFile::is_open`] returns true.
    file: ManuallyDrop<File>,
    identity: system::Identity,
    /// The length of the complete lines in bytes.
    length: u64,
}

impl LineFile {
    /// Opens or creates a file, and empties it. Except on Windows, only this user can then read or
    /// write it. Fails, with the reason, for a link, for anything but a file, for a file with
    /// several names, and for one to which another trace is being written; except on Windows also
    /// for another user's file.
    pub(super) fn open(path: &str) -> Result<Self, String> {
        let of = |text: &str| format!("{}: {text}", quoted(path));
        let file = system::open(path).map_err(|refusal| match refusal {
            Refusal::Link => of("is a link; name the file itself"),
            Refusal::Device => of("is a pipe or a device; name a file"),
            Refusal::NoFile => of("is no file; name one"),
            Refusal::Foreign => {
                of("belongs to another user, or has several names; name a new file")
            }
            Refusal::InUse => of(
                "is being written by another process or library; put %p into the name, which \
                 stands for the number of the process",
            ),
            Refusal::Other(error) => of(&error.to_string()),
        })?;
        let identity = system::identity(&file).map_err(|error| of(&error.to_string()))?;
        file.set_len(0).map_err(|error| of(&error.to_string()))?;
        Ok(Self {
            file: ManuallyDrop::new(file),
            identity,
            length: 0,
        })
    }

    /// True if the descriptor still refers to the file that was opened. A program that closes all
    /// descriptors, as daemons do, may have opened a file of its own under this number.
    fn is_open(&self) -> bool {
        system::identity(&self.file).is_ok_and(|identity| identity == self.identity)
    }

    /// Appends a line. If that fails, the written part is removed, if possible. Fails, and changes
    /// no file, if the program has closed the descriptor.
    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if !self.is_open() {
            return Err(io::Error::other("the program has closed its descriptor"));
        }
        if let Err(error) = without_signals(|| self.file.write_all(line)) {
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += line.len() as u64;
        Ok(())
    }
}

impl Drop for LineFile {
    fn drop(&mut self) {
        if self.is_open() {
            // SAFETY: the file is not used again.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// Returns the name of the file of a process: `%p` becomes the process id, `process`, and `%%` a
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

/// True if `pattern` gives every process a file of its own.
pub(super) fn is_of_process(pattern: &str) -> bool {
    of_process(pattern, 1) != of_process(pattern, 2)
}
