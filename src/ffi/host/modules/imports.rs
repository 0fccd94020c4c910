//! The functions that a module calls in others. For each Windows writes the function's address into
//! a word of the module: when it is loaded or, for a separate table, at the first call.

use std::ffi::{CStr, c_void};
use std::sync::atomic::AtomicPtr;

pub use crate::ffi::host::import::Import;

use super::{DELAYED_IMPORTS, IMPORTS, Library};

/// The imports of a module from another.
#[derive(Clone, Copy)]
#[repr(C)]
struct Imported {
    names: u32,
    _stamps: [u32; 2],
    library: u32,
    words: u32,
}

/// The imports that are filled in at the first call.
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

/// The words that are filled in with functions of one module, and their names.
struct Table {
    words: u32,
    names: u32,
    is_call: bool,
}

impl Library<'_> {
    /// Returns the words with addresses of functions, by name.
    pub fn imports(&self) -> impl Iterator<Item = Import<'_>> {
        let at_once = self.descriptors::<Imported>(IMPORTS, |table| table.words != 0);
        let later = self.descriptors::<Delayed>(DELAYED_IMPORTS, |table| table.words != 0);
        // Some linkers write the names into the words alone, where they are no more.
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

    /// Returns the names of the modules that it needs.
    pub(in crate::ffi::host) fn needed(&self) -> impl Iterator<Item = &CStr> {
        let all = self.descriptors::<Imported>(IMPORTS, |table| table.words != 0);
        all.filter_map(|table| self.text(table.library))
    }

    /// Returns the entries of a table, up to the one that ends it.
    fn descriptors<T: Copy>(
        &self,
        table: usize,
        goes_on: fn(&T) -> bool,
    ) -> impl Iterator<Item = T> {
        // Of what is filled in at once Windows looks for the end alone.
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
        /// The flag of a function that has a number instead of a name.
        const BY_NUMBER: u64 = 1 << 63;
        const WORD: usize = size_of::<u64>();
        let each = move |i: usize| {
            let name: u64 = self.item(table.names, i)?;
            (name != 0).then_some((i, name))
        };
        let import = move |(i, name): (usize, u64)| {
            // After a hint of two bytes.
            let name = self.text(u32::try_from(name & !BY_NUMBER).ok()?.checked_add(2)?);
            let place = u32::try_from(table.words as usize + i * WORD).ok()?;
            let place = self.at::<*mut c_void>(place).filter(|p| p.is_aligned())?;
            Some(Import {
                name: name?,
                is_call: table.is_call,
                // SAFETY: an aligned word of the module, which is never written but in one step.
                place: unsafe { AtomicPtr::from_ptr(place.cast_mut()) },
            })
        };
        let named = |(_, name): &(usize, u64)| name & BY_NUMBER == 0;
        (0..).map_while(each).filter(named).filter_map(import)
    }
}
