//! The memory of the process, as the kernel lists it in `/proc/self/maps`: the access rights of
//! each range of pages, and the file to which it belongs.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Range;

/// A range of pages with the same access rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The addresses of the range.
    pub range: Range<usize>,
    /// True if it may be read.
    pub is_readable: bool,
    /// True if it may be written.
    pub is_writable: bool,
    /// True if code in it may run.
    pub is_executable: bool,
    /// The path of the file, as reported by the kernel; empty if there is none.
    pub file: String,
}

/// The kernel's list, open for reading.
#[derive(Debug)]
pub struct List(File);

impl List {
    /// Opens the list. Its contents are those at the time of reading.
    pub fn open() -> io::Result<Self> {
        Ok(Self(File::open("/proc/self/maps")?))
    }

    /// Returns all ranges as they are now, in the order of their addresses. Opens no file, so it
    /// may be called while the list of libraries is locked.
    pub fn read(&self) -> io::Result<Vec<Mapping>> {
        let mut file = &self.0;
        let mut text = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().filter_map(parsed).collect())
    }
}

/// Returns all ranges, in the order of their addresses.
pub fn mappings() -> io::Result<Vec<Mapping>> {
    List::open()?.read()
}

/// Returns the range that contains `address`.
pub fn containing(all: &[Mapping], address: usize) -> Option<&Mapping> {
    all.iter().find(|mapping| mapping.range.contains(&address))
}

/// Parses a line: addresses, access, offset, device, inode and, after spaces, the path.
fn parsed(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let access = fields.next()?;
    Some(Mapping {
        range: address(start)?..address(end)?,
        is_readable: access.contains('r'),
        is_writable: access.contains('w'),
        is_executable: access.contains('x'),
        file: fields.nth(3).unwrap_or_default().trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_the_kernel_writes_it() {
        let line = "7f12a0000000-7f12a0021000 r-xp 00001000 fd:01 1442   /usr/lib/a b.so (deleted)";
        let found = parsed(line).expect("a mapping");
        assert_eq!(found.range, 0x7f12_a000_0000..0x7f12_a002_1000);
        assert!(found.is_readable && !found.is_writable && found.is_executable);
        assert_eq!(found.file, "/usr/lib/a b.so (deleted)");
        let line = "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 ";
        let found = parsed(line).expect("a mapping");
        assert!(found.is_readable && found.is_writable && !found.is_executable);
        assert_eq!(found.file, "");
        for line in ["", "x", "12-34", "zz-34 r--p 0 0 0 "] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }

    #[test]
    fn a_list_is_that_of_the_moment_in_which_it_is_read() {
        let list = List::open().expect("the kernel lists it");
        let len = 1 << 16;
        let (access, kind) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let is_writable = || {
            let all = list.read().expect("the kernel lists it");
            containing(&all, start.addr()).map(|mapping| mapping.is_writable)
        };
        assert_eq!(is_writable(), Some(false));
        // SAFETY: the memory that was mapped above, to which no reference is left.
        unsafe {
            assert_eq!(libc::mprotect(start, len, access | libc::PROT_WRITE), 0);
            assert_eq!(is_writable(), Some(true));
            assert_eq!(libc::munmap(start, len), 0);
        }
    }

    #[test]
    fn what_is_constant_is_not_writable_and_what_is_not_is() {
        static CONSTANT: [u8; 4] = [1, 2, 3, 4];
        static CHANGING: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);
        let all = mappings().expect("the kernel lists them");
        let of = |address: usize| containing(&all, address).expect("it is memory");
        let constant = of((&raw const CONSTANT).addr());
        assert!(constant.is_readable && !constant.is_writable);
        assert!(of((&raw const CHANGING).addr()).is_writable);
        let code = of((mappings as fn() -> _ as *const ()).addr());
        assert!(code.is_executable && !code.is_writable);
        let program = std::env::current_exe().expect("a path");
        assert_eq!(code.file, program.display().to_string());
        assert_eq!(containing(&all, 0), None);
    }
}
