//! Access to the memory of the process and to its modules, which is what Windows calls the program
//! and its loaded libraries. Only this file declares functions of Windows for these.

use std::ffi::{CStr, OsString, c_void};
use std::io;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};

/// The handle of a module.
pub type Module = NonNull<c_void>;

type Handle = *mut c_void;

#[link(name = "kernel32")]
unsafe extern "system" {
    fn FreeLibrary(module: Handle) -> i32;
    safe fn GetCurrentProcess() -> Handle;
    fn GetModuleFileNameW(module: Handle, name: *mut u16, size: u32) -> u32;
    fn GetModuleHandleExW(flags: u32, name: *const u16, module: *mut Handle) -> i32;
    fn GetProcAddress(module: Handle, name: *const i8) -> Handle;
    fn K32EnumProcessModules(of: Handle, all: *mut Handle, bytes: u32, needed: *mut u32) -> i32;
    fn LoadLibraryExW(name: *const u16, reserved: Handle, flags: u32) -> Handle;
    fn ReadProcessMemory(
        of: Handle,
        from: *const c_void,
        to: *mut u8,
        bytes: usize,
        read: *mut usize,
    ) -> i32;
    fn RtlCaptureStackBackTrace(
        skip: u32,
        most: u32,
        addresses: *mut Handle,
        hash: *mut u32,
    ) -> u16;
    fn VirtualProtect(at: *const c_void, bytes: usize, access: u32, before: *mut u32) -> i32;
    fn VirtualQuery(at: *const c_void, region: *mut Region, bytes: usize) -> usize;
}

/// Pages with the same access, as Windows reports them.
#[repr(C)]
struct Region {
    start: Handle,
    allocation: Handle,
    allocation_access: u32,
    partition: u16,
    bytes: usize,
    state: u32,
    access: u32,
    kind: u32,
}

/// The access of a page that may be read and written.
const READ_WRITE: u32 = 0x04;
const EXECUTE_READ_WRITE: u32 = 0x40;
const EXECUTABLE: u32 = 0xF0;
const WRITABLE: u32 = 0xCC;
/// The state of a region whose pages are allocated.
const COMMITTED: u32 = 0x1000;

/// The flag that keeps a module loaded until the process ends.
const PIN: u32 = 1;
/// The flag for passing an address in the module in place of a name.
const BY_ADDRESS: u32 = 4;
/// The flag that searches only the system folder of Windows.
const OF_SYSTEM: u32 = 0x800;
/// The flag that searches the folder of a library first for the libraries that it needs.
const BESIDE_ITSELF: u32 = 0x8;

/// A module that stays loaded until this is dropped.
#[derive(Debug)]
pub struct Held(Module);

impl Held {
    /// Keeps this module loaded; `None` if it has been unloaded.
    pub fn new(module: Module) -> Option<Self> {
        found(BY_ADDRESS, module).map(Self)
    }

    /// Returns the module.
    pub fn module(&self) -> Module {
        self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: counted as used when it was found, and not used again.
        unsafe { FreeLibrary(self.0.as_ptr()) };
    }
}

/// Returns the path of the module's file; `None` if Windows does not report it.
pub fn path(module: Module) -> Option<PathBuf> {
    const MOST: usize = 1 << 15;
    let mut path = vec![0; MOST];
    // SAFETY: there is room for that many.
    let n = unsafe { GetModuleFileNameW(module.as_ptr(), path.as_mut_ptr(), MOST as u32) };
    let path = path.get(..n as usize).filter(|path| !path.is_empty())?;
    Some(PathBuf::from(OsString::from_wide(path)))
}

/// Loads the library with this path, which then stays loaded until the process ends.
pub fn load(path: &Path) -> io::Result<Module> {
    let name: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    // SAFETY: the name ends with a NUL.
    let module = unsafe { LoadLibraryExW(name.as_ptr(), null_mut(), BESIDE_ITSELF) };
    NonNull::new(module)
        .and_then(pinned)
        .ok_or_else(io::Error::last_os_error)
}

/// Returns the return addresses of the calls that this thread is in, the innermost first, at most
/// `MOST`.
pub fn return_addresses<const MOST: usize>() -> impl Iterator<Item = *mut c_void> {
    let mut all = [null_mut(); MOST];
    // SAFETY: there is room for that many, and no hash is asked for.
    let n = unsafe { RtlCaptureStackBackTrace(0, MOST as u32, all.as_mut_ptr(), null_mut()) };
    all.into_iter().take(n.into())
}

/// Fills `bytes` from the memory at `address`. Returns false if some of it cannot be read.
pub fn read(address: usize, bytes: &mut [u8]) -> bool {
    let mut read = 0;
    // SAFETY: there is room for that many, and an address that cannot be read is an error.
    let done = unsafe {
        ReadProcessMemory(
            GetCurrentProcess(),
            address as *const c_void,
            bytes.as_mut_ptr(),
            bytes.len(),
            &raw mut read,
        )
    };
    done != 0 && read == bytes.len()
}

/// Makes the page with this address writable, calls `write`, restores the page's access, and
/// returns the result. Returns `None` without calling `write` if there is no such page. Returns an
/// error if Windows refuses to change the access, or to restore it after `write` has returned.
pub fn while_writable<T>(address: usize, write: impl FnOnce() -> T) -> io::Result<Option<T>> {
    let at = address as *const c_void;
    // SAFETY: zeros are a valid value.
    let mut region: Region = unsafe { std::mem::zeroed() };
    // SAFETY: there is room for it.
    let told = unsafe { VirtualQuery(at, &raw mut region, size_of::<Region>()) };
    if told == 0 || region.state != COMMITTED {
        return Ok(None);
    }
    if region.access & WRITABLE != 0 {
        return Ok(Some(write()));
    }
    let protect = |access| {
        let mut before = 0;
        // SAFETY: the page exists, and keeps every access that it has.
        match unsafe { VirtualProtect(at, 1, access, &raw mut before) } {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(before),
        }
    };
    let before = protect(match region.access & EXECUTABLE {
        0 => READ_WRITE,
        _ => EXECUTE_READ_WRITE,
    })?;
    let written = write();
    protect(before)?;
    Ok(Some(written))
}

/// Returns the function that the module exports as `name`; `None` if there is none, or if the
/// handle is invalid.
pub fn symbol(module: Module, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a C string; an invalid handle is an error.
    NonNull::new(unsafe { GetProcAddress(module.as_ptr(), name.as_ptr().cast()) })
}

/// Returns the program, which comes first, and the libraries in load order. Empty if Windows
/// reports an error.
pub fn modules() -> Vec<Module> {
    let mut all = vec![null_mut(); 256];
    loop {
        let bytes = all.len() * size_of::<Handle>();
        let mut needed = 0;
        // SAFETY: there is room for that many bytes.
        let told = unsafe {
            K32EnumProcessModules(
                GetCurrentProcess(),
                all.as_mut_ptr(),
                bytes as u32,
                &raw mut needed,
            )
        };
        if told == 0 {
            return Vec::new();
        }
        let n = needed as usize / size_of::<Handle>();
        if n <= all.len() {
            return all.into_iter().take(n).filter_map(NonNull::new).collect();
        }
        all.resize(2 * n, null_mut());
    }
}

/// Keeps the module that contains `address` loaded until the process ends, and returns it.
pub fn pinned(address: NonNull<c_void>) -> Option<Module> {
    found(PIN | BY_ADDRESS, address)
}

/// Calls `GetModuleHandleExW` with `flags`, which must include [`BY_ADDRESS`]. Returns the module
/// that contains `address`; `None` if there is none.
fn found(flags: u32, address: NonNull<c_void>) -> Option<Module> {
    let mut module = null_mut();
    let name = address.as_ptr().cast_const().cast();
    // SAFETY: a place for the handle; an address that is in no module is an error.
    let found = unsafe { GetModuleHandleExW(flags, name, &raw mut module) };
    NonNull::new(module).filter(|_| found != 0)
}

/// Returns the loaded library named `name`. If there is none, loads it from the system folder of
/// Windows. The library stays loaded until the process ends.
pub fn library(name: &str) -> Option<Module> {
    let name: Vec<u16> = name.encode_utf16().chain([0]).collect();
    let mut module = null_mut();
    // SAFETY: the name ends with a NUL, and there is a place for the handle.
    let found = unsafe { GetModuleHandleExW(PIN, name.as_ptr(), &raw mut module) };
    if found != 0 {
        return NonNull::new(module);
    }
    // SAFETY: as above.
    NonNull::new(unsafe { LoadLibraryExW(name.as_ptr(), null_mut(), OF_SYSTEM) })
}

/// Keeps the library in the process once it is loaded, as a linker option does on Linux: live
/// samplers and this library's threads need its code.
#[used]
#[unsafe(link_section = ".CRT$XCU")]
static AT_LOADING: extern "C" fn() = {
    extern "C" fn stay() {
        static HERE: u8 = 0;
        // If that fails, the library can be unloaded like any other.
        let _ = pinned(NonNull::from(&HERE).cast());
    }
    stay
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_windows_is_found_in_its_module() {
        let kernel = library("kernel32.dll").expect("every process has it");
        assert!(modules().contains(&kernel));
        let found = symbol(kernel, c"GetProcAddress").expect("its own");
        assert_eq!(library("KERNEL32.DLL"), Some(kernel));
        assert_eq!(symbol(kernel, c"llama_sampler_init"), None);
        assert_eq!(library("llama-sieve-no-such-library.dll"), None);
        // The address may be in another module, to which an export was forwarded.
        assert!(pinned(found).is_some());
        assert_eq!(pinned(NonNull::dangling()), None);
    }

    #[test]
    fn the_program_comes_first() {
        let own = pinned(NonNull::from(&PIN).cast()).expect("this program");
        assert_eq!(modules().first(), Some(&own));
        assert_eq!(path(own), std::env::current_exe().ok());
        assert_eq!(path(NonNull::dangling()), None);
        assert_eq!(Held::new(own).expect("it is there").module(), own);
        assert!(Held::new(NonNull::dangling()).is_none());
        assert!(load(Path::new("llama-sieve-no-such-library.dll")).is_err());
    }

    #[test]
    fn only_what_is_there_is_read() {
        static HERE: [u8; 4] = [1, 2, 3, 4];
        let mut bytes = [0; 4];
        assert!(read((&raw const HERE).addr(), &mut bytes) && bytes == HERE);
        for address in [0, 8, usize::MAX - 1] {
            assert!(!read(address, &mut bytes), "{address:x}");
        }
    }

    #[test]
    fn what_is_read_only_can_be_written_for_a_while() {
        static CONSTANT: [u8; 4] = [1, 2, 3, 4];
        let access = || {
            // SAFETY: zeros are a valid value, and there is room for it.
            unsafe {
                let mut region: Region = std::mem::zeroed();
                let at = (&raw const CONSTANT).cast();
                assert_ne!(VirtualQuery(at, &raw mut region, size_of::<Region>()), 0);
                region.access
            }
        };
        let before = access();
        assert_eq!(before & WRITABLE, 0);
        let during = while_writable((&raw const CONSTANT).addr(), access);
        assert_ne!(
            during.expect("it can be").expect("it is there") & WRITABLE,
            0
        );
        assert_eq!(access(), before);
        let nothing = while_writable(8, || panic!("there is nothing"));
        assert!(matches!(nothing, Ok(None)));
    }

    #[test]
    fn the_caller_is_among_those_that_are_returned_to() {
        let own = pinned(NonNull::from(&PIN).cast());
        let mut all = return_addresses::<16>();
        assert!(all.any(|address| NonNull::new(address).and_then(pinned) == own));
    }
}
