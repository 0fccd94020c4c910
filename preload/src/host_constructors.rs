//! Finding the constructors that we stand in front of.
//!
//! A call arrives here because our name was found first. Where it would have gone: to the next
//! definition in the linker's global order, or, for a library that was loaded with RTLD_LOCAL, to
//! one among that library's own dependencies.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{OnceLock, PoisonError, RwLock};

use crate::libraries::{self, Library};

pub use crate::libraries::Address;

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
        let address = meant(MARK, caller)?;
        let base = base_of(address)?;
        /// Those found before. They stay open, so that a base address always means the same
        /// library. The dynamic linker is never called with the lock held: it holds one of its own
        /// while a library's initialisers run, and these may call us. Readers wait for nobody, nor
        /// for one that a forked child lacks.
        static KNOWN: RwLock<Vec<Host>> = RwLock::new(Vec::new());
        let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = known.iter().find(|host| host.base == base) {
            return Some(*host);
        }
        drop(known);
        let handle = open(address)?;
        let host = Self { handle, base };
        KNOWN
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(host);
        Some(host)
    }

    /// For `llama_sieve_bind_host`. It stays open.
    pub fn handle(&self) -> *mut c_void {
        self.handle.as_ptr()
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
        libraries::with_all(|all| {
            let own = all.iter().find(|library| library.base() == self.base);
            own.is_some_and(|library| library.symbol(symbol).is_some())
        })
    }

    /// Whether `address` lies in the library.
    pub fn contains(&self, address: Address) -> bool {
        base_of(address) == Some(self.base)
    }
}

/// What a call of `symbol` from `caller` would have reached without us.
pub fn meant(symbol: &CStr, caller: Option<Address>) -> Option<Address> {
    next(symbol).or_else(|| {
        libraries::with_all(|all| {
            let caller = caller.and_then(|caller| libraries::position(all, caller));
            let scope = caller.map_or(Vec::new(), |caller| libraries::scope(all, caller));
            let in_scope = scope.into_iter().find_map(|i| foreign(&all[i], symbol));
            // For callers in memory of no library, as compilers at run time make them, or that have
            // the name from a handle.
            in_scope.or_else(|| all.iter().find_map(|library| foreign(library, symbol)))
        })
    })
}

/// What follows us in the linker's global order: for all callers the same.
pub fn next(symbol: &CStr) -> Option<Address> {
    // SAFETY: RTLD_NEXT is no handle that could be closed. The linker takes our library from the
    // return address.
    let found = NonNull::new(unsafe { libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr()) })?;
    let is_foreign = libraries::with_all(|all| {
        let library = libraries::position(all, found);
        library.is_none_or(|library| !is_copy(&all[library]))
    });
    is_foreign.then_some(found)
}

/// Where the library lies that `address` is in.
pub fn base_of(address: Address) -> Option<usize> {
    libraries::with_all(|all| Some(all[libraries::position(all, address)?].base()))
}

/// Whether what lies at `address` is there until the process ends: the program needs it.
pub fn stays(address: Address) -> bool {
    libraries::with_all(|all| {
        let library = libraries::position(all, address);
        library.is_some_and(|library| libraries::scope(all, 0).contains(&library))
    })
}

/// How many libraries have a `symbol` of their own, this one and copies of it not counted.
pub fn exporters(symbol: &CStr) -> usize {
    libraries::with_all(|all| {
        let exporters = all.iter().filter_map(|library| foreign(library, symbol));
        exporters.count()
    })
}

/// The function that the first llama.cpp in the process has of that name.
pub fn own_of_any(symbol: &CStr) -> Option<Address> {
    libraries::with_all(|all| first_llama_cpp(all)?.symbol(symbol))
}

/// The llama.cpp's function of that name which `caller` may be given again while it runs: of the
/// llama.cpp that it is in, or for code that calls llama.cpp, of the first. Not for a library that
/// has such a function itself and passes calls on: they would come back.
pub fn own_of(symbol: &CStr, caller: Address) -> Option<Address> {
    libraries::with_all(|all| {
        let library = &all[libraries::position(all, caller)?];
        if is_llama_cpp(library) {
            return library.symbol(symbol);
        }
        if library.symbol(symbol).is_some() {
            return None;
        }
        first_llama_cpp(all)?.symbol(symbol)
    })
}

/// Where the first llama.cpp in the process was loaded from.
pub fn path_of_any() -> Option<String> {
    libraries::with_all(|all| Some(first_llama_cpp(all)?.path().to_string_lossy().into_owned()))
}

fn first_llama_cpp<'a, 'b>(all: &'a [Library<'b>]) -> Option<&'a Library<'b>> {
    all.iter().find(|library| is_llama_cpp(library))
}

fn is_llama_cpp(library: &Library<'_>) -> bool {
    foreign(library, MARK).is_some()
}

/// The library's own `symbol`, if it is a library, and no copy of this one.
fn foreign(library: &Library<'_>, symbol: &CStr) -> Option<Address> {
    let address = library.symbol(symbol)?;
    let is_program = library.path().is_empty();
    (!is_program && !is_copy(library)).then_some(address)
}

/// Whether it is this library, or another copy of it.
fn is_copy(library: &Library<'_>) -> bool {
    let here = NonNull::from(&HERE).cast();
    library.contains(here) || library.symbol(OUR_MARK).is_some()
}

/// A handle of the library that `address` is in; `None` for the program itself. Only of one that is
/// in use: see `libraries`.
fn open(address: Address) -> Option<Address> {
    let path = libraries::with_all(|all| {
        let library = &all[libraries::position(all, address)?];
        Some(library.path().to_owned())
    });
    let path = path.filter(|path| !path.is_empty())?;
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: a C string; RTLD_NOLOAD only finds a library whose initialisers have run.
    NonNull::new(unsafe { libc::dlopen(path.as_ptr(), flags) })
}

/// Lies in this library.
static HERE: u8 = 0;

/// Whether `address` lies in this library.
fn is_ours(address: Address) -> bool {
    static OURS: OnceLock<Vec<Range<usize>>> = OnceLock::new();
    let ours = OURS.get_or_init(|| {
        libraries::with_all(|all| {
            let here = libraries::position(all, NonNull::from(&HERE).cast());
            here.map_or(Vec::new(), |here| all[here].segments().collect())
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_belong_to_what_they_are_in() {
        let here = NonNull::new(caller as *mut c_void).expect("a function");
        assert!(is_ours(here));
        // SAFETY: RTLD_DEFAULT is no handle that could be closed.
        let outside = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getenv".as_ptr()) };
        assert!(!is_ours(
            NonNull::new(outside).expect("the C library has it")
        ));
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
