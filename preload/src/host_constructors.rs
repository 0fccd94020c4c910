//! Finding the constructors that we stand in front of.
//!
//! A call arrives here because our name was found first. Where it would have gone: to the next
//! definition in the linker's global order, or, for a library that was loaded with RTLD_LOCAL, to
//! one among that library's own dependencies.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

/// An address that the dynamic linker gave.
pub type Address = NonNull<c_void>;

/// What makes a library a llama.cpp: every build with samplers exports it, and we do not.
const MARK: &CStr = c"llama_sampler_chain_init";

/// What makes a library a copy of this one. It is never what we stand in front of.
const OUR_MARK: &CStr = c"llama_sieve_preload_marker";

/// A loaded library that is a llama.cpp.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    handle: Address,
    base: usize,
}

// SAFETY: handles of the dynamic linker belong to no thread.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

impl Host {
    /// The llama.cpp that a call from `caller` was meant for.
    pub fn of(caller: Option<Address>) -> Option<Self> {
        Self::at(meant(MARK, caller)?)
    }

    /// The one that `address` is in.
    fn at(address: Address) -> Option<Self> {
        let library = Library::of(address)?;
        let known = Self::remembered(|known| {
            let same = known.iter().find(|host| host.base == library.base);
            same.copied()
        });
        if known.is_some() {
            return known;
        }
        let host = Self {
            handle: library.open()?,
            base: library.base,
        };
        Self::remembered(|known| known.push(host));
        Some(host)
    }

    /// Any llama.cpp of the process.
    pub fn any() -> Option<Self> {
        Self::at(anywhere(MARK)?)
    }

    /// Its own function of that name.
    pub fn own(&self, symbol: &CStr) -> Option<Address> {
        // SAFETY: the handle is never closed.
        let found = unsafe { symbol_of(self.handle.as_ptr(), symbol) };
        // The handle also stands for the library's dependencies.
        found.filter(|&address| self.contains(address))
    }

    /// Those found before. They stay open, so that a base address always means the same library.
    /// The dynamic linker is never called from inside here: it holds a lock of its own while a
    /// library's initialisers run, and these may call us.
    fn remembered<T>(look: impl FnOnce(&mut Vec<Host>) -> T) -> T {
        static KNOWN: Mutex<Vec<Host>> = Mutex::new(Vec::new());
        look(&mut KNOWN.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// For `llama_sieve_bind_host`. It stays open.
    pub fn handle(&self) -> *mut c_void {
        self.handle.as_ptr()
    }

    /// Where it was loaded from.
    pub fn path(&self) -> Option<String> {
        let all = Library::all();
        let library = all.iter().find(|library| library.base == self.base)?;
        Some(library.path.to_string_lossy().into_owned())
    }

    /// Whether it is the library that lies there.
    pub fn lies_at(&self, base: usize) -> bool {
        self.base == base
    }

    /// Whether both are the same library; their handles may differ.
    pub fn is(&self, other: &Self) -> bool {
        self.base == other.base
    }

    /// Whether the library itself exports `symbol`.
    pub fn exports(&self, symbol: &CStr) -> bool {
        self.own(symbol).is_some()
    }

    /// Whether `address` lies in the library.
    pub fn contains(&self, address: Address) -> bool {
        Library::of(address).is_some_and(|library| library.base == self.base)
    }
}

/// What a call of `symbol` from `caller` would have reached without us.
pub fn meant(symbol: &CStr, caller: Option<Address>) -> Option<Address> {
    // SAFETY: RTLD_NEXT is no handle that could be closed. The linker takes our library from the
    // return address.
    let next = unsafe { symbol_of(libc::RTLD_NEXT, symbol) };
    next.filter(|&address| is_foreign(address))
        .or_else(|| in_dependencies(symbol, caller?))
        .or_else(|| anywhere(symbol))
}

/// Where the library lies that `address` is in.
pub fn base_of(address: Address) -> Option<usize> {
    Library::of(address).map(|library| library.base)
}

/// How many libraries have a `symbol` of their own, this one and copies of it not counted.
pub fn exporters(symbol: &CStr) -> usize {
    let all = Library::all();
    let exports = |library: &&Library| {
        let found = library.open().and_then(|handle| in_library(symbol, handle));
        // The handle also stands for dependencies.
        found.and_then(base_of) == Some(library.base)
    };
    all.iter().filter(exports).count()
}

/// In the library that `caller` is in, or what it was linked with.
fn in_dependencies(symbol: &CStr, caller: Address) -> Option<Address> {
    in_library(symbol, Library::of(caller)?.open()?)
}

/// In any loaded library, in load order. For callers in memory of no library, as compilers at run
/// time make them.
fn anywhere(symbol: &CStr) -> Option<Address> {
    let all = Library::all();
    all.iter()
        .find_map(|library| in_library(symbol, library.open()?))
}

/// Takes the handle over.
fn in_library(symbol: &CStr, handle: Address) -> Option<Address> {
    // SAFETY: the handle was just opened, and is closed only here; the library stays loaded, since
    // that handle was not the first.
    unsafe {
        let found = symbol_of(handle.as_ptr(), symbol);
        libc::dlclose(handle.as_ptr());
        found.filter(|&address| is_foreign(address))
    }
}

/// Whether `address` lies neither in this library nor in another copy of it.
fn is_foreign(address: Address) -> bool {
    if is_ours(address) {
        return false;
    }
    let library = Library::of(address);
    let Some(handle) = library.as_ref().and_then(Library::open) else {
        return true;
    };
    // SAFETY: the handle was just opened, and is closed only here; the library stays loaded, since
    // that handle was not the first.
    let mark = unsafe {
        let mark = symbol_of(handle.as_ptr(), OUR_MARK);
        libc::dlclose(handle.as_ptr());
        mark
    };
    // The handle also stands for dependencies.
    let of_mark = mark.and_then(Library::of);
    of_mark.is_none_or(|of_mark| library.is_none_or(|library| library.base != of_mark.base))
}

/// Whether `address` lies in this library.
fn is_ours(address: Address) -> bool {
    static OURS: OnceLock<Vec<Range<usize>>> = OnceLock::new();
    static HERE: u8 = 0;
    let ours = OURS.get_or_init(|| {
        let here = &raw const HERE as usize;
        let mut ours = Vec::new();
        for_each_library(|info| {
            if segments(info).any(|segment| segment.contains(&here)) {
                ours = segments(info).collect();
            }
        });
        ours
    });
    let address = address.as_ptr() as usize;
    ours.iter().any(|segment| segment.contains(&address))
}

/// The address behind the first call from outside this library, of those that led here: who called
/// us.
///
/// The return address is read by the unwinder, which needs to know our own frames only.
pub fn caller() -> Option<Address> {
    unsafe extern "C" {
        fn _Unwind_Backtrace(
            visit: unsafe extern "C" fn(frame: *mut c_void, found: *mut c_void) -> c_int,
            found: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    }
    const GO_ON: c_int = 0;
    /// `_URC_NORMAL_STOP`; any number but 0 ends the walk.
    const STOP: c_int = 4;

    unsafe extern "C" fn visit(frame: *mut c_void, found: *mut c_void) -> c_int {
        // SAFETY: the unwinder passes its frame, and back the pointer to the variable below.
        let (address, found) = unsafe { (_Unwind_GetIP(frame), &mut *found.cast::<Found>()) };
        // A return address may lie behind the end of the calling function, but not the address
        // before it.
        let Some(address) = NonNull::new(address.wrapping_sub(1) as *mut c_void) else {
            return STOP;
        };
        if is_ours(address) {
            return GO_ON;
        }
        *found = Some(address);
        STOP
    }

    type Found = Option<Address>;
    let mut found: Found = None;
    // SAFETY: the callback matches, and the variable outlives the call.
    unsafe { _Unwind_Backtrace(visit, (&raw mut found).cast()) };
    found
}

/// The program or a loaded library.
struct Library {
    base: usize,
    /// Empty for the program.
    path: CString,
}

impl Library {
    /// The one that `address` is in. Not by dladdr, which also looks through all symbols for the
    /// nearest.
    fn of(address: Address) -> Option<Self> {
        let address = address.as_ptr() as usize;
        let mut found = None;
        for_each_library(|info| {
            if found.is_none() && segments(info).any(|segment| segment.contains(&address)) {
                found = Some(Self::new(info));
            }
        });
        found
    }

    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for_each_library(|info| all.push(Self::new(info)));
        all
    }

    fn new(info: &libc::dl_phdr_info) -> Self {
        let path = match info.dlpi_name.is_null() {
            true => CString::default(),
            // SAFETY: a C string of the dynamic linker, copied during its callback.
            false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned(),
        };
        Self {
            base: info.dlpi_addr as usize,
            path,
        }
    }

    /// A handle; `None` for the program itself.
    fn open(&self) -> Option<Address> {
        if self.path.is_empty() {
            return None;
        }
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: a C string; RTLD_NOLOAD runs no code of the library, it only finds it.
        NonNull::new(unsafe { libc::dlopen(self.path.as_ptr(), flags) })
    }
}

/// Where a library lies in memory.
fn segments(info: &libc::dl_phdr_info) -> impl Iterator<Item = Range<usize>> {
    let headers = match info.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: not NULL, and the dynamic linker passes as many headers as it says.
        false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
    };
    let loaded = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    loaded.map(|header| {
        let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        start..start.saturating_add(header.p_memsz as usize)
    })
}

/// In load order.
fn for_each_library(mut visit: impl FnMut(&libc::dl_phdr_info)) {
    unsafe extern "C" fn pass_on<F: FnMut(&libc::dl_phdr_info)>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid entry, and back the pointer to the closure, which
        // nobody else uses.
        let (info, visit) = unsafe { (&*info, &mut *visit.cast::<F>()) };
        visit(info);
        0
    }
    fn call<F: FnMut(&libc::dl_phdr_info)>(visit: &mut F) {
        // SAFETY: the callback matches the closure's type, and the closure outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(pass_on::<F>), (&raw mut *visit).cast()) };
    }
    call(&mut visit);
}

/// # Safety
/// `handle` is live, or one of the RTLD_ constants.
unsafe fn symbol_of(handle: *mut c_void, symbol: &CStr) -> Option<Address> {
    // SAFETY: the caller guarantees the handle, the type the string.
    NonNull::new(unsafe { libc::dlsym(handle, symbol.as_ptr()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_belong_to_what_they_are_in() {
        let here = NonNull::new(caller as *mut c_void).expect("a function");
        assert!(is_ours(here));
        // SAFETY: RTLD_DEFAULT is no handle that could be closed.
        let outside = unsafe { symbol_of(libc::RTLD_DEFAULT, c"strlen") };
        assert!(!is_ours(outside.expect("the C library has it")));
    }

    #[test]
    fn what_no_library_has_is_not_found() {
        assert_eq!(meant(c"llama_sieve_preload_has_no_such_name", None), None);
        assert!(Host::of(None).is_none());
        // A name that only we define: not a way back to ourselves.
        assert_eq!(meant(c"llama_sampler_init_greedy", None), None);
    }

    #[test]
    fn a_name_in_no_dependency_is_looked_for_everywhere() {
        assert!(meant(c"strlen", None).is_some_and(|address| !is_ours(address)));
    }

    #[test]
    fn the_caller_is_the_first_one_outside() {
        // On a thread of its own, the first caller outside is the C library's start of threads.
        let outside = std::thread::spawn(|| caller().is_some_and(|address| !is_ours(address)));
        assert!(outside.join().expect("no panic"));
    }
}
