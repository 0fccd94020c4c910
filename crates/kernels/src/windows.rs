//! The modules of the process, which is what Windows calls the program and the libraries that it
//! has loaded: the only place that declares functions of Windows for them.

use std::ffi::{CStr, c_void};
use std::ptr::{NonNull, null_mut};

/// The handle of a module.
pub type Module = NonNull<c_void>;

type Handle = *mut c_void;

#[link(name = "kernel32")]
unsafe extern "system" {
    safe fn GetCurrentProcess() -> Handle;
    fn GetModuleHandleExW(flags: u32, name: *const u16, module: *mut Handle) -> i32;
    fn GetProcAddress(module: Handle, name: *const i8) -> Handle;
    fn K32EnumProcessModules(of: Handle, all: *mut Handle, bytes: u32, needed: *mut u32) -> i32;
    fn LoadLibraryExW(name: *const u16, reserved: Handle, flags: u32) -> Handle;
}

/// The module stays until the process ends.
const PIN: u32 = 1;
/// The name is an address in the module.
const BY_ADDRESS: u32 = 4;
/// A library is looked for among those of Windows alone.
const OF_SYSTEM: u32 = 0x800;

/// Returns the module's own function of that name; `None` also for what is no handle.
pub fn symbol(module: Module, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a C string; a handle that is none is an error.
    NonNull::new(unsafe { GetProcAddress(module.as_ptr(), name.as_ptr().cast()) })
}

/// Returns the program, which comes first, and the libraries in load order. Empty where Windows
/// does not tell.
pub fn modules() -> Vec<Module> {
    let mut all = vec![null_mut(); 256];
    loop {
        let bytes = all.len() * size_of::<Handle>();
        let mut needed = 0;
        // SAFETY: there is room for so many bytes.
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

/// Keeps the module that `address` lies in loaded until the process ends, and returns it.
pub fn pinned(address: NonNull<c_void>) -> Option<Module> {
    let mut module = null_mut();
    // SAFETY: a place for the handle; an address that is in no module is an error.
    let found = unsafe {
        GetModuleHandleExW(
            PIN | BY_ADDRESS,
            address.as_ptr().cast_const().cast(),
            &raw mut module,
        )
    };
    NonNull::new(module).filter(|_| found != 0)
}

/// Returns the library of that name which the process has; else that of Windows, loaded now. It
/// stays until the process ends.
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

/// Called as the library is loaded: it stays, as the linker provides for on Linux. Samplers that
/// live have code here, and so have our threads.
#[used]
#[unsafe(link_section = ".CRT$XCU")]
static AT_LOADING: extern "C" fn() = {
    extern "C" fn stay() {
        static HERE: u8 = 0;
        // Or it can be unloaded, as any other.
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
        // It may be an entry that leads on to another module.
        assert!(pinned(found).is_some());
        assert_eq!(pinned(NonNull::dangling()), None);
    }

    #[test]
    fn the_program_comes_first() {
        let own = pinned(NonNull::from(&PIN).cast()).expect("this program");
        assert_eq!(modules().first(), Some(&own));
    }
}
