//! The loaded modules of a Windows process, and the data of each in memory: its name, the modules
//! that it needs, and its symbols. On Linux `libraries` does this.
//!
//! All but the names are read directly. Functions of Windows would take a lock that another
//! thread's `LoadLibrary` holds while a library is initialised. A module is kept loaded while it is
//! read.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

pub mod imports;

pub use super::linker::Address;
use crate::windows::{Held, modules, path, pinned};

/// The program or a loaded library, which is not unloaded while this object exists.
#[allow(missing_debug_implementations)] // It points to other modules' memory.
pub struct Library<'a> {
    module: Held,
    /// The path; empty for the program.
    path: CString,
    held: PhantomData<&'a ()>,
}

/// Calls `look` with the program and then all libraries in load order, and returns its result. None
/// of them is unloaded meanwhile.
pub fn with_all<T: Default>(look: impl FnOnce(&[Library<'_>]) -> T) -> T {
    let all: Vec<Library<'_>> = modules()
        .into_iter()
        .enumerate()
        .filter_map(|(i, module)| Library::of(Held::new(module)?, i == 0))
        .collect();
    look(&all)
}

/// Returns 0, since Windows does not report how often a library was loaded or unloaded. Libraries
/// that are found stay loaded.
pub fn changes() -> u64 {
    0
}

/// The index of the export directory among the data directories in a module's headers.
const EXPORTS: usize = 0;
const IMPORTS: usize = 1;
const DELAYED_IMPORTS: usize = 13;

/// The export directory of a module.
#[derive(Clone, Copy)]
#[repr(C)]
struct Exports {
    _unused: [u32; 5],
    n_functions: u32,
    n_names: u32,
    functions: u32,
    names: u32,
    numbers: u32,
}

impl<'a> Library<'a> {
    fn of(module: Held, is_program: bool) -> Option<Self> {
        let path = match is_program {
            true => None,
            false => path(module.module()),
        };
        let path = path.unwrap_or_default();
        Some(Self {
            module,
            path: CString::new(path.as_os_str().as_encoded_bytes()).ok()?,
            held: PhantomData,
        })
    }

    /// Returns true if both are the same library.
    pub fn is(&self, other: &Self) -> bool {
        self.base() == other.base()
    }

    /// Returns the address at which the library is loaded. Addresses in its file are relative to
    /// that.
    pub fn base(&self) -> usize {
        self.module.module().as_ptr().addr()
    }

    /// Returns the path; empty for the program.
    pub fn path(&self) -> &CStr {
        &self.path
    }

    /// Returns true if the address is in this library.
    pub fn contains(&self, address: Address) -> bool {
        self.memory().contains(&address.as_ptr().addr())
    }

    /// Returns the ranges of memory that the library occupies.
    pub fn segments(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        std::iter::once(self.memory())
    }

    /// Keeps the library loaded until the process ends.
    pub fn keep(&self) {
        let _ = pinned(self.module.module());
    }

    /// Returns the address of the export `name`, if the library itself defines it. An export that
    /// is forwarded to a different module does not count.
    pub fn symbol(&self, name: &CStr) -> Option<Address> {
        let exports = self.exports()?;
        let (mut from, mut to) = (0, exports.n_names as usize);
        while from < to {
            let middle = usize::midpoint(from, to);
            match self.name(&exports, middle)?.cmp(name) {
                Less => from = middle + 1,
                Equal => return self.exported(&exports, middle),
                Greater => to = middle,
            }
        }
        None
    }

    /// Returns the functions that the library exports: the address and the name of each. The ends
    /// of the functions are unknown.
    pub fn functions(&self) -> impl Iterator<Item = (Range<usize>, &CStr)> {
        let exports = self.exports();
        let n_names = exports.as_ref().map_or(0, |exports| exports.n_names);
        (0..n_names as usize).filter_map(move |at| {
            let exports = exports.as_ref()?;
            let start = self.exported(exports, at)?.as_ptr().addr();
            Some((start..start, self.name(exports, at)?))
        })
    }

    /// Returns the name at index `at`; the names are sorted.
    fn name(&self, exports: &Exports, at: usize) -> Option<&CStr> {
        self.text(self.item(exports.names, at)?)
    }

    /// Returns the function whose name is at index `at`, unless it is forwarded to a different
    /// module.
    fn exported(&self, exports: &Exports, at: usize) -> Option<Address> {
        let number: u16 = self.item(exports.numbers, at)?;
        let is_one = u32::from(number) < exports.n_functions;
        let offset: u32 = self.item(exports.functions, number.into())?;
        // An address within the table of exports is that of a text: the name of another module's
        // function, to which the export is forwarded.
        let (start, bytes) = self.directory(EXPORTS)?;
        let is_passed_on = (start..start.saturating_add(bytes)).contains(&offset);
        let found = NonNull::new(self.at::<u8>(offset)?.cast_mut().cast());
        found.filter(|_| is_one && !is_passed_on)
    }

    fn exports(&self) -> Option<Exports> {
        let (offset, _) = self.directory(EXPORTS)?;
        self.item(offset, 0)
    }

    /// Returns true if `name` is the name by which other libraries refer to this one.
    pub(super) fn is_called(&self, name: &CStr) -> bool {
        let path = self.path.to_bytes();
        let file = path.rsplit(|&byte| byte == b'\\' || byte == b'/').next();
        file.is_some_and(|file| file.eq_ignore_ascii_case(name.to_bytes()))
    }

    /// Returns the offset and size of the data directory with the index `number`, if the module has
    /// it.
    fn directory(&self, number: usize) -> Option<(u32, u32)> {
        let headers = self.headers()?;
        let n: u32 = self.read(headers + 24 + 108)?;
        let at = headers + 24 + 112 + 8 * number;
        let offset: u32 = self.read(at)?;
        (number < n as usize && offset != 0).then_some((offset, self.read(at + 4)?))
    }

    /// Returns the offset of the headers after the DOS header.
    fn headers(&self) -> Option<usize> {
        // SAFETY: each module begins with a header of 64 bytes.
        let offset = unsafe { ((self.base() + 0x3C) as *const u32).read_unaligned() };
        Some(offset as usize)
    }

    /// Returns the range of memory that the module occupies.
    fn memory(&self) -> Range<usize> {
        let Some(headers) = self.headers() else {
            return 0..0;
        };
        // SAFETY: the headers of a loaded module, which contain its size.
        let bytes = unsafe { ((self.base() + headers + 24 + 56) as *const u32).read_unaligned() };
        self.base()..self.base().saturating_add(bytes as usize)
    }

    /// Returns a pointer to the `T` at `offset`, if all of it is in the module.
    fn at<T>(&self, offset: u32) -> Option<*const T> {
        let start = self.base().checked_add(offset as usize)?;
        let end = start.checked_add(size_of::<T>())?;
        (end <= self.memory().end).then_some(start as *const T)
    }

    fn read<T: Copy>(&self, offset: usize) -> Option<T> {
        let at = self.at::<T>(u32::try_from(offset).ok()?)?;
        // SAFETY: the bytes are in the memory of the module, which is loaded. The read is
        // unaligned, since some linkers do not align these numbers.
        Some(unsafe { at.read_unaligned() })
    }

    /// Returns the item at index `at` of the table at the offset `table`.
    fn item<T: Copy>(&self, table: u32, at: usize) -> Option<T> {
        self.read(
            at.checked_mul(size_of::<T>())?
                .checked_add(table as usize)?,
        )
    }

    /// Returns the C string at `offset`.
    fn text(&self, offset: u32) -> Option<&CStr> {
        let start = self.at::<u8>(offset)?;
        let most = self.memory().end - start.addr();
        // SAFETY: the rest of the module's memory.
        let rest = unsafe { slice::from_raw_parts(start, most) };
        CStr::from_bytes_until_nul(rest).ok()
    }
}
