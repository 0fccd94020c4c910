//! The loaded modules of a Windows process, and what each says of itself in memory: its name, what
//! it needs, what it defines. What `libraries` is on Linux.
//!
//! Read there, and not asked of Windows, which takes a lock that another thread's `LoadLibrary`
//! holds while a library begins. A module is held while it is looked at.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

pub mod imports;

pub use super::linker::Address;
use crate::windows::{Held, modules, path, pinned};

/// The program or a loaded library, while it cannot be unloaded.
#[allow(missing_debug_implementations)] // Of what others have in memory.
pub struct Library<'a> {
    module: Held,
    /// Empty for the program.
    path: CString,
    held: PhantomData<&'a ()>,
}

/// Calls `look` with the program, which comes first, and all libraries in load order, and returns
/// its result. None of them goes meanwhile.
pub fn with_all<T: Default>(look: impl FnOnce(&[Library<'_>]) -> T) -> T {
    let all: Vec<Library<'_>> = modules()
        .into_iter()
        .enumerate()
        .filter_map(|(i, module)| Library::of(Held::new(module)?, i == 0))
        .collect();
    look(&all)
}

/// Returns the number of times that a library was loaded or unloaded, of which Windows tells
/// nothing: those that are found stay.
pub fn changes() -> u64 {
    0
}

/// Numbers of tables in a module's headers.
const EXPORTS: usize = 0;
const IMPORTS: usize = 1;
const DELAYED_IMPORTS: usize = 13;

/// The table of what a module exports.
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

    /// True if both are the same library.
    pub fn is(&self, other: &Self) -> bool {
        self.base() == other.base()
    }

    /// Returns the address it was loaded to: what its own addresses count from.
    pub fn base(&self) -> usize {
        self.module.module().as_ptr().addr()
    }

    /// Empty for the program.
    pub fn path(&self) -> &CStr {
        &self.path
    }

    /// True if the address lies in it.
    pub fn contains(&self, address: Address) -> bool {
        self.memory().contains(&address.as_ptr().addr())
    }

    /// Returns the ranges of memory that it occupies.
    pub fn segments(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        std::iter::once(self.memory())
    }

    /// Lets it stay until the process ends.
    pub fn keep(&self) {
        let _ = pinned(self.module.module());
    }

    /// Returns its own function of that name. What it passes on to another module is not its own.
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

    /// The functions that it exports: where each lies, and its name. No end is told.
    pub fn functions(&self) -> impl Iterator<Item = (Range<usize>, &CStr)> {
        let exports = self.exports();
        let n_names = exports.as_ref().map_or(0, |exports| exports.n_names);
        (0..n_names as usize).filter_map(move |at| {
            let exports = exports.as_ref()?;
            let start = self.exported(exports, at)?.as_ptr().addr();
            Some((start..start, self.name(exports, at)?))
        })
    }

    /// The name with this number; they are in order.
    fn name(&self, exports: &Exports, at: usize) -> Option<&CStr> {
        self.text(self.item(exports.names, at)?)
    }

    /// The function whose name has this number.
    fn exported(&self, exports: &Exports, at: usize) -> Option<Address> {
        let number: u16 = self.item(exports.numbers, at)?;
        let is_one = u32::from(number) < exports.n_functions;
        let offset: u32 = self.item(exports.functions, number.into())?;
        // What lies in the table itself is the name of another module's function.
        let (start, bytes) = self.directory(EXPORTS)?;
        let is_passed_on = (start..start.saturating_add(bytes)).contains(&offset);
        let found = NonNull::new(self.at::<u8>(offset)?.cast_mut().cast());
        found.filter(|_| is_one && !is_passed_on)
    }

    fn exports(&self) -> Option<Exports> {
        let (offset, _) = self.directory(EXPORTS)?;
        self.item(offset, 0)
    }

    /// True if a library that needs `name` means this one.
    pub(super) fn is_called(&self, name: &CStr) -> bool {
        let path = self.path.to_bytes();
        let file = path.rsplit(|&byte| byte == b'\\' || byte == b'/').next();
        file.is_some_and(|file| file.eq_ignore_ascii_case(name.to_bytes()))
    }

    /// The offset and size of the table with this number.
    fn directory(&self, number: usize) -> Option<(u32, u32)> {
        let headers = self.headers()?;
        let n: u32 = self.read(headers + 24 + 108)?;
        let at = headers + 24 + 112 + 8 * number;
        let offset: u32 = self.read(at)?;
        (number < n as usize && offset != 0).then_some((offset, self.read(at + 4)?))
    }

    /// The offset of the headers after those of old.
    fn headers(&self) -> Option<usize> {
        // SAFETY: each module begins with a header of 64 bytes.
        let offset = unsafe { ((self.base() + 0x3C) as *const u32).read_unaligned() };
        Some(offset as usize)
    }

    /// The range of memory that it occupies.
    fn memory(&self) -> Range<usize> {
        let Some(headers) = self.headers() else {
            return 0..0;
        };
        // SAFETY: the headers of a module that is loaded, whose size stands there.
        let bytes = unsafe { ((self.base() + headers + 24 + 56) as *const u32).read_unaligned() };
        self.base()..self.base().saturating_add(bytes as usize)
    }

    /// The address with this offset, if so much of it lies in the module.
    fn at<T>(&self, offset: u32) -> Option<*const T> {
        let start = self.base().checked_add(offset as usize)?;
        let end = start.checked_add(size_of::<T>())?;
        (end <= self.memory().end).then_some(start as *const T)
    }

    fn read<T: Copy>(&self, offset: usize) -> Option<T> {
        let at = self.at::<T>(u32::try_from(offset).ok()?)?;
        // SAFETY: numbers in the memory of the module, which is loaded; some linkers align none.
        Some(unsafe { at.read_unaligned() })
    }

    /// The item with this number of the table there.
    fn item<T: Copy>(&self, table: u32, at: usize) -> Option<T> {
        self.read(
            at.checked_mul(size_of::<T>())?
                .checked_add(table as usize)?,
        )
    }

    /// The C string there.
    fn text(&self, offset: u32) -> Option<&CStr> {
        let start = self.at::<u8>(offset)?;
        let most = self.memory().end - start.addr();
        // SAFETY: the rest of the module's memory.
        let rest = unsafe { slice::from_raw_parts(start, most) };
        CStr::from_bytes_until_nul(rest).ok()
    }
}
