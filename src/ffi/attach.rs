//! The preload library in a running process: `llama_sieve_attach` loads it, or finds it where it is
//! loaded already, and makes it replace the functions that the libraries of the process import.
//!
//! The preload library makes all decisions, as under LD_PRELOAD. This module only loads it.

use std::ffi::c_int;

use crate::errors::LLAMA_SIEVE_ERROR_PARAMS;
use crate::ffi::failure::{Failure, answer};

/// The error text if there is nothing to attach to, which says what to do.
pub const NO_LIBRARY: &str = "no llama.cpp is loaded as a shared library: load it first, or \
    what brings it (an addon, a package, a plugin). One that is linked into the program itself \
    is not imported, and cannot be attached to: compile the program with llama_sieve_dropin.h";

/// Replaces llama.cpp's samplers with this library's in the running process, without LD_PRELOAD:
/// the sampler functions of llama.cpp that the program and its libraries import are redirected to
/// the preload library, `libllama_sieve_preload.so`, or `llama_sieve_preload.dll` on Windows. It is
/// loaded from the folder of this library if it is not yet in the process. The same samplers are
/// replaced, after the same comparisons and with the same environment variables, as under
/// LD_PRELOAD (docs/preload.md). On Windows the host's own sampling function calls these samplers.
/// It is not replaced by one that samples straight from the logits.
///
/// `flags` is 0. Existing samplers stay as they are. For libraries that are loaded later, call the
/// function again: it adds their imports and leaves the others unchanged. The function does not
/// affect function pointers that a program has got in another way, such as by dlsym or
/// GetProcAddress (Python's ctypes), or has kept from before; imports by ordinal instead of by
/// name; or a llama.cpp that is linked into the program. If several llama.cpps are loaded, it uses
/// the one that was loaded first.
///
/// Returns the number of imports that this call has redirected; 0 if all are redirected already, or
/// if the preload library was loaded by LD_PRELOAD. LLAMA_SIEVE_ERROR_PARAMS for other `flags`;
/// LLAMA_SIEVE_ERROR_NO_HOST if no llama.cpp is loaded as a shared library;
/// LLAMA_SIEVE_ERROR_NOT_FOUND if the preload library cannot be loaded, and on every system but
/// Linux with glibc or musl, on x86-64 and aarch64, and Windows on x86-64; LLAMA_SIEVE_ERROR_BUSY
/// if another thread is still loading llama.cpp, or takes more than two seconds to attach or to
/// detach; LLAMA_SIEVE_ERROR_INTERNAL if the system does not let the imports be written. After an
/// error no import has changed.
///
/// May be called from any thread, even while others sample. The first call waits while another
/// thread is inside dlopen. If several libraries export functions with the names of llama.cpp's
/// sampler functions, every call waits. The preload library stays loaded until the process ends. A
/// forked child is attached as its parent was. On Windows, no other thread may load a library that
/// imports llama.cpp's functions during the call, since Windows writes that library's import table
/// while it loads the library. The imports are found in the tables DT_JMPREL and DT_RELA of ELF
/// files, and in the import and delay-load import tables of PE files.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_attach(flags: u32) -> c_int {
    answer("llama_sieve_attach", || {
        if flags != 0 {
            let text = format!("flags is {flags:#x}, and no flag is known: pass 0");
            return Err(Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text));
        }
        door::attach()
    })
}

/// Undoes llama_sieve_attach: redirected imports are restored. Existing samplers of this library
/// continue to work, and are freed as always. New ones are llama.cpp's own, even if a pointer to a
/// function of the preload library was kept. An import that other code has redirected since is not
/// changed, and one line of the log says so. The imports of llama_sampler_get_seed and
/// llama_sampler_copy also stay redirected: llama.cpp's own llama_sampler_copy ends the process if
/// a sampler of this library is copied to a built-in.
///
/// Returns the number of restored imports, which the next llama_sieve_attach then returns; 0 if
/// nothing was attached, or if the preload library was loaded by LD_PRELOAD. LLAMA_SIEVE_ERROR_BUSY
/// if another thread attaches or detaches, or stays inside a call that samples, for two seconds, or
/// if this thread is inside such a call; then everything stays attached. May be called from any
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_detach() -> c_int {
    answer("llama_sieve_detach", door::detach)
}

#[cfg(any(
    all(windows, target_arch = "x86_64"),
    all(
        target_os = "linux",
        any(target_env = "gnu", target_env = "musl"),
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(miri)
    )
))]
mod door {
    use std::ffi::{CStr, c_char, c_int, c_void};
    use std::mem::transmute;
    use std::path::{Path, PathBuf};
    use std::ptr::null;

    use crate::errors::{LLAMA_SIEVE_ERROR_INTERNAL, LLAMA_SIEVE_ERROR_NOT_FOUND};
    use crate::ffi::failure::Failure;
    use crate::ffi::host::libraries::{Address, Library, with_all};
    use crate::ffi::host::linker::symbol_of;
    use crate::last_error;
    use crate::quoted::escaped;

    /// The file name of the preload library, and the functions that it exports for this library.
    const FILE: &str = if cfg!(windows) {
        "llama_sieve_preload.dll"
    } else {
        "libllama_sieve_preload.so"
    };
    const ATTACH: &CStr = c"llama_sieve_preload_attach";
    const DETACH: &CStr = c"llama_sieve_preload_detach";

    /// The type of both functions, which take a pointer for the text of an error, valid until the
    /// thread's next call.
    type Call = unsafe extern "C" fn(error: *mut *const c_char) -> c_int;

    pub(super) fn attach() -> Result<c_int, Failure> {
        let (call, has_host) = look(|all| (loaded(all, ATTACH), all.iter().any(is_llama_cpp)))?;
        match call {
            Some(call) => called(call),
            None if has_host => called(load(&beside()?)?),
            None => Err(Failure::no_host(super::NO_LIBRARY.to_owned())),
        }
    }

    pub(super) fn detach() -> Result<c_int, Failure> {
        look(|all| loaded(all, DETACH))?.map_or(Ok(0), called)
    }

    /// Returns the result of `look` on the libraries of the process.
    fn look<T>(look: impl FnOnce(&[Library<'_>]) -> T) -> Result<T, Failure> {
        with_all(|all| Some(look(all)))
            .ok_or_else(|| Failure::new(LLAMA_SIEVE_ERROR_INTERNAL, last_error::get()))
    }

    /// Returns the function `name` of the preload library, if that library is in the process.
    fn loaded(all: &[Library<'_>], name: &CStr) -> Option<Address> {
        all.iter().find_map(|library| library.symbol(name))
    }

    fn is_llama_cpp(library: &Library<'_>) -> bool {
        let is_program = library.path().is_empty();
        !is_program && library.symbol(c"llama_sampler_chain_init").is_some()
    }

    fn called(call: Address) -> Result<c_int, Failure> {
        let mut error = null();
        // SAFETY: the preload library's function of that name, with a place for the text.
        let code = unsafe { transmute::<*mut c_void, Call>(call.as_ptr())(&mut error) };
        if code >= 0 {
            return Ok(code);
        }
        let text = match error.is_null() {
            true => c"internal error",
            // SAFETY: a C string that is valid until the next call.
            false => unsafe { CStr::from_ptr(error) },
        };
        Err(Failure::new(code, text.to_string_lossy()))
    }

    /// Returns the path of the preload library in the folder of this one.
    fn beside() -> Result<PathBuf, Failure> {
        let here = system::own_path()?;
        let folder = here.as_deref().and_then(Path::parent);
        let folder = folder.filter(|folder| folder.is_absolute());
        folder.map(|folder| folder.join(FILE)).ok_or_else(|| {
            let text = format!("the folder of this library, where {FILE} should be, is not known");
            Failure::new(LLAMA_SIEVE_ERROR_NOT_FOUND, text)
        })
    }

    /// Loads the preload library at `path`, which then stays loaded until the process ends, and
    /// returns its function [`ATTACH`].
    fn load(path: &Path) -> Result<Address, Failure> {
        let not_found = |why: &str| {
            let text = format!(
                "{} cannot be loaded: {}; it belongs in the folder of the library that is called, \
                 and `cargo build --release -p llama-sieve-preload` makes it",
                escaped(path.as_os_str().as_encoded_bytes()),
                escaped(why)
            );
            Failure::new(LLAMA_SIEVE_ERROR_NOT_FOUND, text)
        };
        let handle = system::loaded(path).map_err(|why: String| not_found(&why))?;
        // SAFETY: a handle that is never closed.
        unsafe { symbol_of(handle.as_ptr(), ATTACH) }.ok_or_else(|| {
            let name = ATTACH.to_string_lossy();
            not_found(&format!("it is another library, without {name}"))
        })
    }

    /// A byte whose address is in this library.
    static HERE: u8 = 0;

    #[cfg(not(windows))]
    mod system {
        use std::ffi::{CStr, CString, c_int};
        use std::path::{Path, PathBuf};
        use std::ptr::NonNull;

        use super::{Address, Failure, HERE, LLAMA_SIEVE_ERROR_INTERNAL};
        use crate::ffi::host::mappings::{containing, mappings};

        /// Returns the path of this library from the kernel's list: the path that the dynamic
        /// linker has may be relative to an earlier working directory.
        pub(super) fn own_path() -> Result<Option<PathBuf>, Failure> {
            let all = mappings().map_err(|error| {
                let text = format!("/proc/self/maps cannot be read: {error}");
                Failure::new(LLAMA_SIEVE_ERROR_INTERNAL, text)
            })?;
            let here = containing(&all, (&raw const HERE).addr());
            Ok(here.map(|here| PathBuf::from(&here.file)))
        }

        /// Loads the library at `path`, which then stays loaded until the process ends. The error
        /// says why it cannot be loaded.
        pub(super) fn loaded(path: &Path) -> Result<Address, String> {
            let name = CString::new(path.as_os_str().as_encoded_bytes());
            let name = name.map_err(|_| "its path has a NUL".to_owned())?;
            const MODE: c_int = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
            // SAFETY: this project's own library, whose constructor reads the environment.
            let handle = NonNull::new(unsafe { libc::dlopen(name.as_ptr(), MODE) });
            handle.ok_or_else(|| {
                // SAFETY: NULL, or a C string that is valid until this thread's next call of the
                // dynamic linker.
                let why = NonNull::new(unsafe { libc::dlerror() })
                    .map(|why| unsafe { CStr::from_ptr(why.as_ptr()) }.to_string_lossy());
                why.unwrap_or_default().into_owned()
            })
        }
    }

    #[cfg(windows)]
    mod system {
        use std::path::{Path, PathBuf};
        use std::ptr::NonNull;

        use super::{Address, Failure, HERE};
        use crate::windows::{load, path, pinned};

        /// Returns the path of this library.
        pub(super) fn own_path() -> Result<Option<PathBuf>, Failure> {
            Ok(pinned(NonNull::from(&HERE).cast()).and_then(path))
        }

        /// Loads the library at `path`, which then stays loaded until the process ends. The error
        /// says why it cannot be loaded.
        pub(super) fn loaded(path: &Path) -> Result<Address, String> {
            load(path).map_err(|error| error.to_string())
        }
    }
}

#[cfg(not(any(
    all(windows, target_arch = "x86_64"),
    all(
        target_os = "linux",
        any(target_env = "gnu", target_env = "musl"),
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(miri)
    )
)))]
mod door {
    use std::ffi::c_int;

    use crate::errors::LLAMA_SIEVE_ERROR_NOT_FOUND;
    use crate::ffi::failure::Failure;

    pub(super) fn attach() -> Result<c_int, Failure> {
        let text = "not supported on this system, but on Linux with glibc or musl, on x86-64 and \
            aarch64, and on Windows on x86-64";
        Err(Failure::new(LLAMA_SIEVE_ERROR_NOT_FOUND, text))
    }

    pub(super) fn detach() -> Result<c_int, Failure> {
        Ok(0)
    }
}
