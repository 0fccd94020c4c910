//! Finds the functions that the stand-ins replace.
//!
//! A call arrives here because this library's definition of its name was found first. Without this
//! library, the call would reach the next definition in the linker's global order or, if it comes
//! from a library that was loaded with RTLD_LOCAL, the first one among that library's own
//! dependencies.
//!
//! The program's own libraries come first in that order, and stay loaded. If one of them has the
//! function, all calls go there. If exactly one library that was loaded later has it, they go there
//! as well, with RTLD_GLOBAL or without. Only if several later libraries have it must the linker be
//! queried, since only the linker knows which of them are global. The query takes the lock of
//! `dlopen`.
//!
//! In a process to which this library was attached, only imports that led to the first llama.cpp
//! lead here (`slots`), and all calls are passed on to that llama.cpp.

#[cfg(not(windows))]
use std::ffi::c_int;
use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use llama_sieve::ffi::host::libraries::{self, Address, Library, with_all};
use llama_sieve::ffi::host::scope::{containing, permanent, scope};
use llama_sieve::sync::OnceLock;
#[cfg(not(windows))]
use llama_sieve::sync::Section;
#[cfg(windows)]
use llama_sieve::windows;

use crate::callers::Functions;

/// The symbol that identifies a llama.cpp: every build with samplers exports it, and this library
/// does not.
pub const MARK: &CStr = c"llama_sampler_chain_init";

/// The symbol that identifies a copy of this library. Calls are never passed on to such a copy.
const OUR_MARK: &CStr = c"llama_sieve_preload_marker";

/// A function of the host, and the library that contains it.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub address: Address,
    /// The address at which the library is loaded.
    pub base: usize,
    /// True if that library is a llama.cpp.
    pub to_llama_cpp: bool,
}

impl Route {
    /// Returns the address to call.
    pub fn address(&self) -> *mut c_void {
        self.address.as_ptr()
    }
}

/// The destination that calls of a name would have without this library.
#[derive(Debug)]
pub enum Way {
    Nowhere,
    /// All calls take this route, until the process ends.
    OfAll(Route),
    /// All calls take this route as long as no library is loaded or unloaded.
    Only(Route),
    /// Calls may go to different libraries: [`asked`] returns the route of each call.
    Several,
}

/// True once imports that led to the first llama.cpp are pointed at the stand-ins.
static ATTACHED: AtomicBool = AtomicBool::new(false);

/// Makes all calls go to the first llama.cpp from now on.
pub fn attach() {
    ATTACHED.store(true, Ordering::Release);
}

/// True if the dynamic linker finds this library before any llama.cpp, as under LD_PRELOAD.
pub fn comes_first() -> bool {
    // On Windows each module names the library whose function it calls.
    !cfg!(windows)
        && with_all(|all| {
            let stay = permanent(all);
            let here = stay.iter().position(contains_us);
            let before_us = here.and_then(|here| stay.get(..here));
            before_us.is_some_and(|before| first_llama_cpp(before).is_none())
        })
}

/// True if the program was started with this library, as under LD_PRELOAD.
pub fn is_preloaded() -> bool {
    // On Windows no library is preloaded.
    !cfg!(windows) && with_all(|all| permanent(all).iter().any(contains_us))
}

/// Returns the function that calls of `symbol` reach in `host`, a llama.cpp. It is llama.cpp's own
/// or, for a function of the common library that `host` lacks, that of a library that uses `host`.
pub fn function_of(all: &[Library<'_>], host: &Library<'_>, symbol: &CStr) -> Option<Route> {
    let exporter = |library| Some(route(library, foreign(library, symbol)?));
    exporter(host).or_else(|| {
        let mut exporters = all.iter().filter_map(exporter);
        match (exporters.next(), exporters.next()) {
            (only, None) => only,
            _ => {
                let uses = |l: &&Library<'_>| scope(all, l).iter().any(|other| other.is(host));
                all.iter().filter(uses).find_map(exporter)
            }
        }
    })
}

/// Returns the destination that calls of `symbol` would have without this library.
pub fn way_of(symbol: &CStr) -> Way {
    let way = with_all(|all| {
        let exporter = |library| Some(route(library, foreign(library, symbol)?));
        let stay = permanent(all);
        if ATTACHED.load(Ordering::Acquire)
            && let Some(host) = first_llama_cpp(all)
        {
            let route = function_of(all, host, symbol)?;
            let stays = stay.iter().any(|library| library.base() == route.base);
            return Some(if stays {
                Way::OfAll(route)
            } else {
                Way::Only(route)
            });
        }
        let here = stay.iter().position(contains_us);
        let behind_us = here.and_then(|here| stay.get(here + 1..));
        if let Some(route) = behind_us.unwrap_or_default().iter().find_map(exporter) {
            return Some(Way::OfAll(route));
        }
        let mut exporters = all.iter().filter_map(exporter);
        let first = exporters.next()?;
        Some(match exporters.next() {
            None => Way::Only(first),
            Some(_) => Way::Several,
        })
    });
    way.unwrap_or(Way::Nowhere)
}

/// Returns the route that the linker would have given to a call of `symbol` from `caller` without
/// this library.
pub fn asked(symbol: &CStr, caller: Option<Address>) -> Option<Route> {
    #[cfg(windows)]
    let next: Option<Address> = None;
    // SAFETY: RTLD_NEXT is no handle that could be closed. The linker identifies this library by
    // the return address.
    #[cfg(not(windows))]
    let next = NonNull::new(unsafe { libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr()) });
    with_all(|all| {
        let next = next.and_then(|next| Some(route(containing(all, next)?, next)));
        let next = next.filter(|next| !all.iter().any(|l| l.base() == next.base && is_copy(l)));
        let exporter = |library| Some(route(library, foreign(library, symbol)?));
        next.or_else(|| {
            let caller = caller.and_then(|caller| containing(all, caller));
            let scope = caller.map_or(Vec::new(), |caller| scope(all, caller));
            // Any library may export the function if the caller's code is in no library, as code
            // of a compiler at run time is, or if the caller got the address from a handle.
            scope.into_iter().chain(all).find_map(exporter)
        })
    })
}

fn route(library: &Library<'_>, address: Address) -> Route {
    #[cfg(windows)]
    library.keep();
    Route {
        address,
        base: library.base(),
        to_llama_cpp: is_llama_cpp(library),
    }
}

/// Returns the function named `symbol` in the first llama.cpp of the process.
pub fn own_of_any(symbol: &CStr) -> Option<Address> {
    with_all(|all| first_llama_cpp(all)?.symbol(symbol))
}

/// Returns the function named `symbol` in the llama.cpp that contains `caller` or, if `caller` is
/// in another library, in the first llama.cpp. Returns `None` if that other library has such a
/// function itself: it passes calls on, and would send them back to this library.
pub fn own_of(symbol: &CStr, caller: Address) -> Option<Address> {
    with_all(|all| {
        let library = containing(all, caller)?;
        if is_llama_cpp(library) {
            return library.symbol(symbol);
        }
        if library.symbol(symbol).is_some() {
            return None;
        }
        first_llama_cpp(all)?.symbol(symbol)
    })
}

/// Returns the segments of the library that is loaded at `base`, and its own function named
/// `symbol`.
pub fn library_at(base: usize, symbol: &CStr) -> (Vec<Range<usize>>, Option<Address>) {
    with_all(|all| {
        let library = all.iter().find(|library| library.base() == base);
        let segments = library.map_or(Vec::new(), |library| library.segments().collect());
        (segments, library.and_then(|library| library.symbol(symbol)))
    })
}

/// Returns the exported functions of the library that is loaded at `base`.
pub fn functions_at(base: usize) -> Functions {
    with_all(|all| {
        let library = all.iter().find(|library| library.base() == base);
        library.map(Functions::of).unwrap_or_default()
    })
}

/// Returns the path from which the first llama.cpp in the process was loaded.
pub fn path_of_any() -> Option<String> {
    with_all(|all| Some(first_llama_cpp(all)?.path().to_string_lossy().into_owned()))
}

/// Returns the first llama.cpp among these libraries.
pub fn first_llama_cpp<'a, 'b>(all: &'a [Library<'b>]) -> Option<&'a Library<'b>> {
    all.iter().find(|library| is_llama_cpp(library))
}

fn is_llama_cpp(library: &Library<'_>) -> bool {
    foreign(library, MARK).is_some()
}

/// Returns the library's own `symbol`; `None` for the program itself, and for a copy of this
/// library.
fn foreign(library: &Library<'_>, symbol: &CStr) -> Option<Address> {
    let address = library.symbol(symbol)?;
    let is_program = library.path().is_empty();
    (!is_program && !is_copy(library)).then_some(address)
}

/// True if the library is this one or a copy of it.
pub fn is_copy(library: &Library<'_>) -> bool {
    contains_us(library) || library.symbol(OUR_MARK).is_some()
}

/// True if the library is this one.
pub fn contains_us(library: &Library<'_>) -> bool {
    library.contains(NonNull::from(&HERE).cast())
}

/// A byte whose address is in this library.
static HERE: u8 = 0;

/// True if `address` is in this library.
pub fn is_ours(address: Address) -> bool {
    static OURS: OnceLock<Vec<Range<usize>>> = OnceLock::new();
    let ours = OURS.get_or_init(|| {
        libraries::with_all(|all| {
            let here = all.iter().find(|library| contains_us(library));
            here.map_or(Vec::new(), |here| here.segments().collect())
        })
    });
    let address = address.as_ptr() as usize;
    ours.iter().any(|segment| segment.contains(&address))
}

/// Returns an address in the code that called this library: the one before the return address.
///
/// Windows reads the return addresses, since it can unwind the frames of all modules.
#[cfg(windows)]
pub fn caller() -> Option<Address> {
    /// The most frames that are read: more than this library ever has on the stack.
    const MOST: usize = 62;
    let before = |address: *mut c_void| NonNull::new(address.wrapping_byte_sub(1));
    let mut callers = windows::return_addresses::<MOST>().filter_map(before);
    callers.find(|&address| !is_ours(address))
}

/// Returns an address in the code that called this library: the one before the return address.
///
/// The unwinder reads the return address. For that it only needs to unwind this library's own
/// frames.
#[cfg(not(windows))]
pub fn caller() -> Option<Address> {
    unsafe extern "C" {
        fn _Unwind_Backtrace(
            visit: unsafe extern "C" fn(frame: *mut c_void, found: *mut c_void) -> c_int,
            found: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    }
    const GO_ON: c_int = 0;
    /// The value of `_URC_NORMAL_STOP`; any number except 0 ends the walk.
    const STOP: c_int = 4;

    unsafe extern "C" fn visit(frame: *mut c_void, found: *mut c_void) -> c_int {
        // SAFETY: the unwinder passes its own frame, and the pointer to the variable below.
        let (address, found) = unsafe { (_Unwind_GetIP(frame), &mut *found.cast::<Found>()) };
        // A return address may be past the end of the calling function, but the address before it
        // is not.
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
    // The unwinder may take a lock of the dynamic linker.
    let _section = Section::enter();
    // SAFETY: the callback matches, and the variable outlives the call.
    unsafe { _Unwind_Backtrace(visit, (&raw mut found).cast()) };
    found
}

#[cfg(all(test, not(windows)))]
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
        let nowhere = |symbol| matches!(way_of(symbol), Way::Nowhere);
        assert!(nowhere(c"llama_sieve_preload_has_no_such_name") && nowhere(MARK));
        // Only this library defines the name, so the call must not come back here.
        assert!(nowhere(c"llama_sampler_init_greedy"));
        assert!(asked(c"llama_sampler_init_greedy", None).is_none());
    }

    #[test]
    fn a_name_in_no_dependency_is_looked_for_everywhere() {
        let found = asked(c"strlen", None);
        assert!(found.is_some_and(|route| !is_ours(route.address)));
    }

    #[test]
    fn the_caller_is_the_first_one_outside() {
        // On a new thread, the first caller outside of this library is the C library's function
        // that starts threads.
        let outside = std::thread::spawn(|| caller().is_some_and(|address| !is_ours(address)));
        assert!(outside.join().expect("no panic"));
    }
}
