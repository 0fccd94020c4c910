//! The memory of the process that contains imports.

#[cfg(windows)]
pub use of_windows::{List, Memory};

#[cfg(not(windows))]
pub use of_linux::{List, Memory};

#[cfg(windows)]
mod of_windows {
    use std::io;

    use llama_sieve::ffi::failure::Failure;
    use llama_sieve::ffi::host::libraries::Library;
    use llama_sieve::windows;

    /// The list of the process's memory. On Windows nothing has to be opened for it.
    pub struct List;

    impl List {
        pub fn open() -> Result<Self, Failure> {
            Ok(Self)
        }

        pub fn read(&self) -> Result<Memory, Failure> {
            Ok(Memory)
        }
    }

    /// The memory of the process, which Windows reports page by page.
    pub struct Memory;

    impl Memory {
        /// Makes the page of this address writable, calls `write`, restores the page's access, and
        /// returns the result. Returns `None` without calling `write` if there is no memory at the
        /// address.
        pub fn while_writable<T>(
            &self,
            place: usize,
            write: impl FnOnce() -> T,
        ) -> io::Result<Option<T>> {
            windows::while_writable(place, write)
        }

        /// Returns true: a word that Windows has not yet filled in does not lead to a llama.cpp.
        pub fn is_loaded(&self, _: &Library<'_>) -> bool {
            true
        }
    }
}

#[cfg(not(windows))]
mod of_linux {
    use std::ffi::c_void;
    use std::io;

    use llama_sieve::errors::LLAMA_SIEVE_ERROR_INTERNAL;
    use llama_sieve::ffi::failure::Failure;
    use llama_sieve::ffi::host::libraries::Library;
    use llama_sieve::ffi::host::mappings::{self, Mapping};

    /// The kernel's list of the memory of the process.
    pub struct List(mappings::List);

    impl List {
        pub fn open() -> Result<Self, Failure> {
            mappings::List::open().map(Self).map_err(unreadable)
        }

        /// Returns the memory as it is now. The ranges of a library are valid only while the list
        /// of libraries is locked: later, other code may be at its addresses.
        pub fn read(&self) -> Result<Memory, Failure> {
            let all = self.0.read().map_err(unreadable)?;
            // SAFETY: the function only returns a number.
            let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
            let page = page.unwrap_or(4096);
            Ok(Memory { all, page })
        }
    }

    fn unreadable(error: io::Error) -> Failure {
        let text = format!("/proc/self/maps cannot be read: {error}");
        Failure::new(LLAMA_SIEVE_ERROR_INTERNAL, text)
    }

    /// The memory of the process, as listed by the kernel.
    pub struct Memory {
        all: Vec<Mapping>,
        page: usize,
    }

    impl Memory {
        /// Makes the page of this address writable, calls `write`, restores the page's access, and
        /// returns the result. Returns `None` without calling `write` if there is no memory at the
        /// address.
        pub fn while_writable<T>(
            &self,
            place: usize,
            write: impl FnOnce() -> T,
        ) -> io::Result<Option<T>> {
            let Some(mapping) = self.containing(place) else {
                return Ok(None);
            };
            if mapping.is_writable {
                return Ok(Some(write()));
            }
            let page = (place & !(self.page - 1)) as *mut c_void;
            let protect = |access| {
                // SAFETY: a page of a library that stays loaded meanwhile; no access right that it
                // has is removed.
                match unsafe { libc::mprotect(page, self.page, access) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            };
            let before = access(mapping);
            protect(before | libc::PROT_WRITE)?;
            let written = write();
            protect(before)?;
            Ok(Some(written))
        }

        fn containing(&self, address: usize) -> Option<&Mapping> {
            mappings::containing(&self.all, address)
        }

        /// True if the dynamic linker has completely loaded the library. Memory that it will make
        /// read-only is writable until then, and must not be made read-only earlier.
        pub fn is_loaded(&self, library: &Library<'_>) -> bool {
            let sealed = library.sealed(self.page);
            let is_sealed = |mapping: &Mapping| !mapping.is_writable;
            sealed.is_none_or(|sealed| self.containing(sealed.start).is_some_and(is_sealed))
        }
    }

    fn access(mapping: &Mapping) -> i32 {
        let bit = |is: bool, bit| if is { bit } else { 0 };
        bit(mapping.is_readable, libc::PROT_READ) | bit(mapping.is_executable, libc::PROT_EXEC)
    }
}
