//! The functions of other libraries that a library calls. The dynamic linker writes the address of
//! each into a word of the library.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::slice;
use std::sync::atomic::AtomicPtr;

pub use crate::ffi::host::import::Import;

use super::{DT_STRTAB, DT_SYMTAB, Library, Symbol};

/// A relocation with an addend: the address of a word, the type, and the index of a symbol.
#[repr(C)]
struct Relocation {
    place: usize,
    kind: u32,
    symbol: u32,
    _addend: isize,
}

/// The types of the relocations that write the address of a symbol: `R_*_GLOB_DAT`, for a word that
/// the code reads, and `R_*_JUMP_SLOT`, for one through which it calls a function.
#[cfg(target_arch = "x86_64")]
const KINDS: [u32; 2] = [6, 7];
#[cfg(target_arch = "aarch64")]
const KINDS: [u32; 2] = [1025, 1026];

const DT_PLTRELSZ: isize = 2;
const DT_RELA: isize = 7;
const DT_RELASZ: isize = 8;
const DT_JMPREL: isize = 23;

impl Library<'_> {
    /// Returns the words that relocations of the types `R_*_JUMP_SLOT` and `R_*_GLOB_DAT` fill in,
    /// each with the name of its symbol.
    pub fn imports(&self) -> impl Iterator<Item = Import<'_>> {
        let tables = [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)];
        let entries = tables.map(|(table, size)| self.relocations(table, size));
        entries
            .into_iter()
            .flatten()
            .filter_map(|entry| self.import(entry))
    }

    fn relocations(&self, table: isize, size: isize) -> &[Relocation] {
        let bytes = self.entries().find(|entry| entry.tag == size);
        match (self.pointer::<Relocation>(table), bytes) {
            (Some(table), Some(bytes)) => {
                let len = bytes.value / size_of::<Relocation>();
                // SAFETY: the library's own table, of that many bytes; on these machines its
                // entries have an addend.
                unsafe { slice::from_raw_parts(table, len) }
            }
            _ => &[],
        }
    }

    fn import(&self, entry: &Relocation) -> Option<Import<'_>> {
        let kind = KINDS.iter().position(|&kind| kind == entry.kind)?;
        let symbols = self.pointer::<Symbol>(DT_SYMTAB)?;
        let names = self.pointer::<c_char>(DT_STRTAB)?;
        let place = self.base().wrapping_add(entry.place) as *mut *mut c_void;
        // SAFETY: the dynamic linker has processed the relocation. It refers to a named symbol of
        // the library, and to a word of the library's memory, which is only ever written
        // atomically.
        unsafe {
            let symbol = &*symbols.add(entry.symbol as usize);
            Some(Import {
                name: CStr::from_ptr(names.add(symbol.st_name as usize)),
                is_call: kind == 1,
                place: AtomicPtr::from_ptr(place),
            })
        }
    }

    /// Returns the memory that the dynamic linker makes read-only when it has filled in the imports
    /// (RELRO), in whole pages of `page` bytes; `None` if there is none.
    pub fn sealed(&self, page: usize) -> Option<Range<usize>> {
        let header = self
            .headers()
            .find(|header| header.p_type == libc::PT_GNU_RELRO)?;
        let start = self.base().wrapping_add(header.p_vaddr as usize);
        let end = start.wrapping_add(header.p_memsz as usize);
        let range = start - start % page..end - end % page;
        (!range.is_empty()).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::host::libraries::with_all;
    use crate::ffi::host::mappings::{containing, mappings};

    /// Checks that each import holds the function that the dynamic linker finds, except those that
    /// are looked up at the first call.
    #[test]
    fn imports_hold_what_the_linker_finds() {
        let looked_up = [c"getenv", c"mprotect", c"dl_iterate_phdr", c"abort"];
        // SAFETY: RTLD_DEFAULT is no handle that could be closed.
        let found = looked_up.map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
        let compared = with_all(|all| {
            let program = &all[0];
            let mut compared = 0;
            for import in program.imports() {
                let Some(at) = looked_up.iter().position(|&name| name == import.name) else {
                    continue;
                };
                let value = std::ptr::NonNull::new(import.value()).expect("filled in");
                assert!(value.as_ptr() == found[at] || program.contains(value));
                assert!(program.segments().any(|s| s.contains(&import.place())));
                compared += 1;
            }
            compared
        });
        assert!(compared > 0, "none of {looked_up:?} is imported");
    }

    /// Checks that sealed memory cannot be written: Rust programs are linked so that everything is
    /// filled in and sealed before they run.
    #[test]
    fn what_is_sealed_cannot_be_written() {
        // SAFETY: the call only returns a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let all_memory = mappings().expect("the kernel lists it");
        with_all(|all| {
            let sealed = all[0].sealed(page).expect("it has such memory");
            let inside = |import: &Import<'_>| sealed.contains(&import.place());
            let imports: Vec<_> = all[0].imports().filter(inside).collect();
            assert!(!imports.is_empty());
            for import in imports {
                let mapping = containing(&all_memory, import.place()).expect("memory");
                assert!(mapping.is_readable && !mapping.is_writable);
            }
        });
    }
}
