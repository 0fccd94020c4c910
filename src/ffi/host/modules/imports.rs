//! The functions of other modules that a module calls. Windows writes the address of each into a
//! word of the module, either when the module is loaded or, for a separate table, at the first
//! call.

use std::ffi::{CStr, c_void};
use std::sync::atomic::AtomicPtr;

pub use crate::ffi::host::import::Import;

use super::{DELAYED_IMPORTS, IMPORTS, Library};

/// The imports of a module from one other module.
#[derive(Clone, Copy)]
#[repr(C)]
struct Imported {
    names: u32,
    _stamps: [u32; 2],
    library: u32,
    words: u32,
}

/// Imports from one other module that are filled in at the first call.
#[derive(Clone, Copy)]
#[repr(C)]
struct Delayed {
    /// 1 if the following fields are offsets, as in every 64-bit module.
    attributes: u32,
    _library: u32,
    _handle: u32,
    words: u32,
    names: u32,
    _others: [u32; 3],
}

/// The names of functions of one module, and the words into which their addresses are written.
struct Table {
    words: u32,
    names: u32,
    is_call: bool,
}

impl Library<'_> {
    /// Returns the words that hold the addresses of imported functions, each with the function's
    /// name.
    pub fn imports(&self) -> impl Iterator<Item = Import<'_>> {
        let at_once = self.descriptors::<Imported>(IMPORTS, |table| table.words != 0);
        let later = self.descriptors::<Delayed>(DELAYED_IMPORTS, |table| table.words != 0);
        // Some linkers write the names only into the words themselves, where addresses have
        // replaced them.
        let at_once = at_once.filter(|table| table.names != 0).map(|table| Table {
            words: table.words,
            names: table.names,
            is_call: false,
        });
        let later = later
            .filter(|table| table.attributes & 1 != 0)
            .map(|table| Table {
                words: table.words,
                names: table.names,
                is_call: true,
            });
        at_once.chain(later).flat_map(|table| self.words(table))
    }

    /// Returns the names of the modules that this module needs.
    pub(in crate::ffi::host) fn needed(&self) -> impl Iterator<Item = &CStr> {
        let all = self.descriptors::<Imported>(IMPORTS, |table| table.words != 0);
        all.filter_map(|table| self.text(table.library))
    }

    /// Returns the entries of a table, up to its end.
    fn descriptors<T: Copy>(
        &self,
        table: usize,
        goes_on: fn(&T) -> bool,
    ) -> impl Iterator<Item = T> {
        // The table of imports that are filled in at once has an end mark, and Windows ignores its
        // size.
        let (start, bytes) = self.directory(table).unzip();
        let most = match table {
            DELAYED_IMPORTS => bytes.unwrap_or(0) as usize / size_of::<T>(),
            _ => usize::MAX,
        };
        (0..most)
            .map_while(move |at| self.item::<T>(start?, at))
            .take_while(move |entry| goes_on(entry))
    }

    fn words(&self, table: Table) -> impl Iterator<Item = Import<'_>> {
        /// The flag of a function that is imported by ordinal, not by name.
        const BY_NUMBER: u64 = 1 << 63;
        const WORD: usize = size_of::<u64>();
        let each = move |i: usize| {
            let name: u64 = self.item(table.names, i)?;
            (name != 0).then_some((i, name))
        };
        let import = move |(i, name): (usize, u64)| {
            // The name comes after a hint of two bytes.
            let name = self.text(u32::try_from(name & !BY_NUMBER).ok()?.checked_add(2)?);
            let place = u32::try_from(table.words as usize + i * WORD).ok()?;
            let place = self.at::<*mut c_void>(place).filter(|p| p.is_aligned())?;
            Some(Import {
                name: name?,
                is_call: table.is_call,
                // SAFETY: an aligned word of the module, which is only ever written atomically.
                place: unsafe { AtomicPtr::from_ptr(place.cast_mut()) },
            })
        };
        let named = |(_, name): &(usize, u64)| name & BY_NUMBER == 0;
        (0..).map_while(each).filter(named).filter_map(import)
    }
}
