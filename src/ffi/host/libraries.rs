//! The loaded libraries, and the data of each in memory: its name, the libraries that it needs, and
//! its symbols.
//!
//! These data are read directly, without the functions of the dynamic linker. `dlsym`, `dladdr` and
//! `dlopen` take a lock that another thread's `dlopen` holds until all constructors of the library
//! have run. A call of this library would wait for these constructors, and forever if one of them
//! waits for the call. Moreover, while a process ends, `dlopen` with RTLD_NOLOAD may run the
//! initialisers of a library a second time, after its finalisers have begun. `dl_iterate_phdr`
//! takes another lock, that of the list, which the linker holds only while it adds or removes a
//! library.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

#[cfg(target_pointer_width = "32")]
use libc::{Elf32_Phdr as Header, Elf32_Sym as Symbol};
#[cfg(target_pointer_width = "64")]
use libc::{Elf64_Phdr as Header, Elf64_Sym as Symbol};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod imports;

pub use super::linker::Address;
use crate::ffi::guard::guard;
use crate::sync::Section;

/// The program or a loaded library, which is not unloaded while this object exists.
#[allow(missing_debug_implementations)] // It points to other libraries' memory.
pub struct Library<'a> {
    info: libc::dl_phdr_info,
    held: PhantomData<&'a ()>,
}

/// Calls `look` with the program and then all libraries in load order, and returns the result of
/// `look`; the default value after an internal error. With glibc no library is loaded or unloaded
/// meanwhile: the list is locked, so `look` must not call other libraries. glibc unmaps a library
/// under the same lock. musl does not lock the list, but never unmaps a library.
pub fn with_all<T: Default>(look: impl FnOnce(&[Library<'_>]) -> T) -> T {
    let mut look = Some(look);
    let mut found = T::default();
    // The thread that has the lock may take it again.
    for_each(&mut |_| {
        let mut all = Vec::new();
        let is_complete = for_each(&mut |info| {
            all.push(Library {
                info: *info,
                held: PhantomData,
            });
            true
        });
        if let Some(look) = look.take().filter(|_| is_complete) {
            found = look(&all);
        }
        false
    });
    found
}

impl Library<'_> {
    /// Returns true if both are the same library.
    pub fn is(&self, other: &Self) -> bool {
        ptr::eq(self.info.dlpi_phdr, other.info.dlpi_phdr)
    }

    /// Returns the address at which the library is loaded. Addresses in its file are relative to
    /// that.
    pub fn base(&self) -> usize {
        self.info.dlpi_addr as usize
    }

    /// Returns the path; empty for the program.
    pub fn path(&self) -> &CStr {
        match self.info.dlpi_name.is_null() {
            true => c"",
            // SAFETY: a C string of the dynamic linker's, which stays as long as the library does.
            false => unsafe { CStr::from_ptr(self.info.dlpi_name) },
        }
    }

    /// Returns true if the address is in this library.
    pub fn contains(&self, address: Address) -> bool {
        let address = address.as_ptr() as usize;
        self.segments().any(|segment| segment.contains(&address))
    }

    /// Returns the ranges of memory that the library occupies.
    pub fn segments(&self) -> impl Iterator<Item = Range<usize>> {
        let loaded = self.headers().filter(|h| h.p_type == libc::PT_LOAD);
        loaded.map(|header| {
            let start = self.base().wrapping_add(header.p_vaddr as usize);
            start..start.saturating_add(header.p_memsz as usize)
        })
    }

    fn headers(&self) -> impl Iterator<Item = &Header> {
        let headers = match self.info.dlpi_phdr.is_null() {
            true => &[],
            // SAFETY: not NULL, and the dynamic linker passes the number of headers with them.
            false => unsafe {
                slice::from_raw_parts(self.info.dlpi_phdr, self.info.dlpi_phnum.into())
            },
        };
        headers.iter()
    }

    /// Returns the address of the symbol `name`, if the library itself defines it.
    pub fn symbol(&self, name: &CStr) -> Option<Address> {
        let symbols = self.symbols()?;
        let found = symbols.find(name)?;
        NonNull::new(self.base().wrapping_add(found.st_value as usize) as *mut c_void)
    }

    /// Returns the functions that the library exports: the address range and the name of each.
    pub fn functions(&self) -> impl Iterator<Item = (Range<usize>, &CStr)> {
        let symbols = self.symbols();
        let all = 0..symbols.as_ref().map_or(0, Symbols::len);
        all.filter_map(move |at| {
            // SAFETY: `at` is below the number of symbols.
            let (symbol, name) = unsafe { symbols.as_ref()?.exported(at) }?;
            let start = self.base().wrapping_add(symbol.st_value as usize);
            let end = start.saturating_add(symbol.st_size as usize);
            (symbol.st_info & 0xf == FUNCTION).then_some((start..end, name))
        })
    }

    /// Returns true if `name` is the name by which other libraries refer to this one.
    pub(super) fn is_called(&self, name: &CStr) -> bool {
        let path = self.path().to_bytes();
        let file = path.rsplit(|&byte| byte == b'/').next();
        let own = || self.texts(DT_SONAME).next();
        path == name.to_bytes() || file == Some(name.to_bytes()) || own() == Some(name)
    }

    pub(super) fn needed(&self) -> impl Iterator<Item = &CStr> {
        self.texts(DT_NEEDED)
    }

    fn texts(&self, tag: isize) -> impl Iterator<Item = &CStr> {
        let table = self.pointer::<c_char>(DT_STRTAB);
        let entries = self.entries().filter(move |entry| entry.tag == tag);
        entries.filter_map(move |entry| {
            // SAFETY: such an entry is the offset of a C string in the table.
            Some(unsafe { CStr::from_ptr(table?.add(entry.value)) })
        })
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let header = self.headers().find(|h| h.p_type == libc::PT_DYNAMIC);
        let entries: &[Entry] = header.map_or(&[], |header| {
            let start = self.base().wrapping_add(header.p_vaddr as usize) as *const Entry;
            // SAFETY: the section of that header, which is loaded and of that size.
            unsafe { slice::from_raw_parts(start, header.p_memsz as usize / size_of::<Entry>()) }
        });
        entries.iter().take_while(|entry| entry.tag != DT_NULL)
    }

    /// Returns the address in the entry of the dynamic section that is tagged `tag`.
    fn pointer<T>(&self, tag: isize) -> Option<*const T> {
        let value = self.entries().find(|entry| entry.tag == tag)?.value;
        // glibc has replaced the offset by an address, except in the kernel's own library. musl
        // leaves the offset.
        let is_address = value >= self.base();
        let address = if is_address {
            value
        } else {
            self.base() + value
        };
        Some(address as *const T)
    }

    fn symbols(&self) -> Option<Symbols> {
        Some(Symbols {
            table: self.pointer(DT_SYMTAB)?,
            names: self.pointer(DT_STRTAB)?,
            gnu_hash: self.pointer(DT_GNU_HASH),
            hash: self.pointer(DT_HASH),
        })
    }
}

/// An entry of the dynamic section.
#[repr(C)]
struct Entry {
    tag: isize,
    value: usize,
}

const DT_NULL: isize = 0;
const DT_NEEDED: isize = 1;
const DT_HASH: isize = 4;
const DT_STRTAB: isize = 5;
const DT_SYMTAB: isize = 6;
const DT_SONAME: isize = 14;
const DT_GNU_HASH: isize = 0x6fff_fef5;

/// The kind of a symbol that is a function.
const FUNCTION: u8 = 2;

/// A library's table of symbols, with one or both of its two indexes.
struct Symbols {
    table: *const Symbol,
    names: *const c_char,
    gnu_hash: Option<*const u32>,
    hash: Option<*const u32>,
}

impl Symbols {
    fn find(&self, name: &CStr) -> Option<&Symbol> {
        match (self.gnu_hash, self.hash) {
            // SAFETY: the library's own tables.
            (Some(index), _) => unsafe { self.find_by_hash(index, name) },
            // SAFETY: as above; the second number is the number of symbols.
            (None, Some(index)) => unsafe {
                let mut all = 0..*index.add(1);
                all.find_map(|at| self.defined(at, name))
            },
            (None, None) => None,
        }
    }

    /// Finds a symbol by the table DT_GNU_HASH: four numbers, the words of a Bloom filter, the
    /// first symbol of each bucket, and a hash for each symbol from `first` on. The lowest bit of a
    /// hash is set if its symbol is the last of a bucket.
    ///
    /// # Safety
    /// `index` is this library's index by GNU's hash.
    unsafe fn find_by_hash(&self, index: *const u32, name: &CStr) -> Option<&Symbol> {
        // SAFETY: the caller guarantees the index.
        let [buckets, first, words, _] = unsafe { *index.cast::<[u32; 4]>() };
        if buckets == 0 {
            return None;
        }
        let step = |hash: u32, &byte: &u8| hash.wrapping_mul(33).wrapping_add(byte.into());
        let wanted = name.to_bytes().iter().fold(5381, step);
        // SAFETY: as above: these are the index's parts, and a bucket that is not empty begins with
        // a symbol that has a hash.
        unsafe {
            let starts = index.add(4 + words as usize * (size_of::<usize>() / size_of::<u32>()));
            let hashes = starts.add(buckets as usize);
            let mut at = *starts.add((wanted % buckets) as usize);
            while at >= first {
                let hash = *hashes.add((at - first) as usize);
                if hash | 1 == wanted | 1
                    && let Some(found) = self.defined(at, name)
                {
                    return Some(found);
                }
                if hash & 1 == 1 {
                    return None;
                }
                at += 1;
            }
        }
        None
    }

    /// Returns the symbol at index `at`, if it is defined and its name is `name`.
    ///
    /// # Safety
    /// `at` is below the number of symbols.
    unsafe fn defined(&self, at: u32, name: &CStr) -> Option<&Symbol> {
        // SAFETY: the caller guarantees the symbol.
        let (symbol, own) = unsafe { self.exported(at) }?;
        (own == name).then_some(symbol)
    }

    /// Returns the symbol at index `at` and its name, if the symbol is defined.
    ///
    /// # Safety
    /// `at` is below the number of symbols.
    unsafe fn exported(&self, at: u32) -> Option<(&'static Symbol, &'static CStr)> {
        /// The kinds of symbols that have an address: untyped, data and function.
        const AT_AN_ADDRESS: Range<u8> = 0..3;
        // SAFETY: the caller guarantees the symbol, whose name lies in the table of names.
        unsafe {
            let symbol = &*self.table.add(at as usize);
            let is_it = symbol.st_shndx != 0 && AT_AN_ADDRESS.contains(&(symbol.st_info & 0xf));
            let name = CStr::from_ptr(self.names.add(symbol.st_name as usize));
            is_it.then_some((symbol, name))
        }
    }

    /// Returns the number of symbols.
    fn len(&self) -> u32 {
        match (self.gnu_hash, self.hash) {
            // SAFETY: the library's own table, whose second number is the number of symbols.
            (_, Some(index)) => unsafe { *index.add(1) },
            // SAFETY: as above.
            (Some(index), None) => unsafe { Self::len_by_hash(index) },
            (None, None) => 0,
        }
    }

    /// Returns the number of symbols by the table DT_GNU_HASH: the last symbol is the end of the
    /// bucket that begins last.
    ///
    /// # Safety
    /// `index` is a library's index by GNU's hash.
    unsafe fn len_by_hash(index: *const u32) -> u32 {
        // SAFETY: the caller guarantees the index, whose parts these are.
        unsafe {
            let [buckets, first, words, _] = *index.cast::<[u32; 4]>();
            let starts = index.add(4 + words as usize * (size_of::<usize>() / size_of::<u32>()));
            let hashes = starts.add(buckets as usize);
            let starts = slice::from_raw_parts(starts, buckets as usize);
            let Some(mut at) = starts.iter().copied().max().filter(|&at| at >= first) else {
                return first;
            };
            while *hashes.add((at - first) as usize) & 1 == 0 {
                at += 1;
            }
            at + 1
        }
    }
}

/// Calls `visit` with the program and the libraries in load order, as long as it returns true.
/// Returns false after an internal error, which ends the visits.
fn for_each(visit: &mut dyn FnMut(&libc::dl_phdr_info) -> bool) -> bool {
    type Visit<'a> = &'a mut dyn FnMut(&libc::dl_phdr_info) -> bool;
    /// The return value that ends the visits, as every value except 0 does.
    const STOP: c_int = 1;
    /// The return value that ends the visits after an internal error.
    const FAILED: c_int = 2;
    unsafe extern "C" fn pass_on(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        guard(
            "dl_iterate_phdr",
            || FAILED,
            || {
                // SAFETY: dl_iterate_phdr passes a valid entry, and the pointer to the reference,
                // which no other code uses.
                let (info, visit) = unsafe { (&*info, &mut *visit.cast::<Visit<'_>>()) };
                if visit(info) { 0 } else { STOP }
            },
        )
    }
    let mut visit: Visit<'_> = visit;
    // `dl_iterate_phdr` takes a lock of the dynamic linker.
    let _section = Section::enter();
    // SAFETY: the callback matches, and the reference outlives the call.
    let last = unsafe { libc::dl_iterate_phdr(Some(pass_on), (&raw mut visit).cast()) };
    last != FAILED
}

/// Returns the number of times that a library was loaded or unloaded.
pub fn changes() -> u64 {
    let mut changes = 0;
    for_each(&mut |info| {
        changes = info.dlpi_adds.wrapping_add(info.dlpi_subs);
        // Every entry has the same counters.
        false
    });
    changes
}

#[cfg(test)]
mod tests;
