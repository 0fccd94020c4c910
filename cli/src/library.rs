//! The shared libraries: their locations, and the functions that this program calls.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::Library;

const FILE: &str = if cfg!(windows) {
    "llama_sieve.dll"
} else if cfg!(target_os = "macos") {
    "libllama_sieve.dylib"
} else {
    "libllama_sieve.so"
};

/// The name by which the dynamic linker finds an installed library.
const SONAME: &str = if cfg!(all(unix, not(target_os = "macos"))) {
    "libllama_sieve.so.0"
} else {
    FILE
};

const PRELOAD: &str = if cfg!(windows) {
    "llama_sieve_preload.dll"
} else {
    "libllama_sieve_preload.so"
};

/// The preload library's function that returns the address of a function of llama-sieve by its
/// name.
const GIVE: &[u8] = b"llama_sieve_preload_function";

/// The environment variable that names a library other than the one next to this program, as for
/// Python and Node.
const VARIABLE: &str = "LLAMA_SIEVE_LIBRARY";

/// Returns the folders in which a package may have put the libraries: that of this program, as
/// cargo and the wheel do, or a library folder beside `bin`, as an archive or an installation
/// does.
fn folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().and_then(std::fs::canonicalize);
    let Some(own) = program.ok().and_then(|p| p.parent().map(Path::to_owned)) else {
        return Vec::new();
    };
    let lib = own.join("../lib");
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    vec![own, lib.clone(), lib.join(multiarch), lib.join("../lib64")]
}

fn find(name: &str) -> Option<PathBuf> {
    let files = folders().into_iter().map(|folder| folder.join(name));
    let found = files.into_iter().find(|file| file.is_file())?;
    std::fs::canonicalize(found).ok()
}

/// Returns the library for LD_PRELOAD: next to the library that the environment names, or otherwise
/// in one of the [`folders`].
pub fn preload() -> Result<PathBuf, String> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let beside = named.and_then(|file| std::fs::canonicalize(file.parent()?.join(PRELOAD)).ok());
    beside.or_else(|| find(PRELOAD)).ok_or_else(|| {
        let places: Vec<String> = folders().iter().map(|f| f.display().to_string()).collect();
        format!(
            "{PRELOAD} is not in {}: install it beside this program, or let {VARIABLE} name the \
             libllama_sieve.so that lies beside it",
            places.join(", ")
        )
    })
}

/// The size of the first buffer for a grammar, in bytes. A longer grammar takes a second call.
const USUAL_GRAMMAR: usize = 1 << 20;

/// The loaded library, which stays loaded until the process ends.
pub struct Sieve {
    library: Library,
    pub path: PathBuf,
}

impl Sieve {
    /// Loads the library. The error lists the places that were searched.
    pub fn load() -> Result<Self, String> {
        let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        let path = named
            .map(PathBuf::from)
            .or_else(|| find(FILE))
            .or_else(|| find(PRELOAD))
            .unwrap_or_else(|| SONAME.into());
        // SAFETY: the initialisers that run are those of this project's library, or of a library
        // that the user has named.
        let library = unsafe { Library::new(&path) }.map_err(|error| {
            format!(
                "{} cannot be loaded: {error}. It belongs beside this program, or in lib beside \
                 its bin; {VARIABLE} names another",
                path.display()
            )
        })?;
        Ok(Self { library, path })
    }

    /// Returns the function named `name`.
    ///
    /// # Safety
    /// `T` is the type that the header declares for the function.
    unsafe fn function<T: Copy>(&self, name: &str) -> Result<T, String> {
        // SAFETY: the caller guarantees the type.
        let found = unsafe { self.library.get::<T>(name.as_bytes()) };
        let found = found.ok().map(|function| *function);
        // SAFETY: as above.
        let found = found.or_else(|| unsafe { self.given(name) });
        found.ok_or_else(|| {
            format!(
                "{} has no {name}: it is another library, or older than this program",
                self.path.display()
            )
        })
    }

    /// Returns the function named `name` from the preload library, which exports none of
    /// llama-sieve's functions itself.
    ///
    /// # Safety
    /// `T` is the type that the header declares for the function.
    unsafe fn given<T: Copy>(&self, name: &str) -> Option<T> {
        type Give = unsafe extern "C" fn(*const c_char) -> *const c_void;
        // SAFETY: the type with which the preload library defines the function.
        let give = unsafe { self.library.get::<Give>(GIVE) }.ok()?;
        let name = CString::new(name).ok()?;
        // SAFETY: a C string.
        let address = NonNull::new(unsafe { give(name.as_ptr()) }.cast_mut())?;
        const { assert!(size_of::<T>() == size_of::<NonNull<c_void>>()) };
        // SAFETY: the address of a function, whose type the caller guarantees.
        Some(unsafe { std::mem::transmute_copy(&address) })
    }

    fn text_of(&self, name: &str) -> Result<String, String> {
        // SAFETY: the header declares this type for every function whose name is passed.
        let ask: unsafe extern "C" fn() -> *const c_char = unsafe { self.function(name) }?;
        // SAFETY: the text is never NULL, and valid until this thread calls that function again.
        let text = unsafe { CStr::from_ptr(ask()) };
        Ok(text.to_string_lossy().into_owned())
    }

    pub fn version(&self) -> Result<String, String> {
        self.text_of("llama_sieve_version")
    }

    /// Returns the instruction set that the library uses on this machine.
    pub fn simd(&self) -> Result<String, String> {
        self.text_of("llama_sieve_simd")
    }

    /// Returns the profile of the bound host: its arithmetic, where builds differ.
    pub fn host_profile(&self) -> Result<String, String> {
        self.text_of("llama_sieve_host_profile")
    }

    pub fn last_error(&self) -> String {
        self.text_of("llama_sieve_last_error")
            .unwrap_or_else(|why| why)
    }

    /// Binds the library to the llama.cpp of a handle from dlopen, which is never closed.
    pub fn bind_host(&self, handle: *mut c_void) -> Result<(), String> {
        // SAFETY: the header's type.
        let bind: unsafe extern "C" fn(*mut c_void) -> c_int =
            unsafe { self.function("llama_sieve_bind_host") }?;
        // SAFETY: the handle stays open.
        match unsafe { bind(handle) } {
            0 => Ok(()),
            _ => Err(self.last_error()),
        }
    }

    /// Compares a kind of sampler with the bound host's own. Returns 0 if both are equal, otherwise
    /// a code and the reason.
    pub fn certify(&self, kind: &str, build: i32) -> Result<(i32, String), String> {
        // SAFETY: the header's type; a host's exception passes through, hence the ABI.
        let compare: unsafe extern "C-unwind" fn(*const c_char, c_int) -> c_int =
            unsafe { self.function("llama_sieve_certify_build") }?;
        let name = CString::new(kind).map_err(|error| error.to_string())?;
        // SAFETY: a C string.
        let code = unsafe { compare(name.as_ptr(), build) };
        let reason = if code == 0 {
            String::new()
        } else {
            self.last_error()
        };
        Ok((code, reason))
    }

    /// Returns the grammar of a JSON Schema in GBNF, or the reason why the schema is refused.
    pub fn json_schema_to_gbnf(&self, schema: &CStr, flags: u32) -> Result<String, String> {
        // SAFETY: the header's type.
        let convert: unsafe extern "C" fn(*const c_char, u32, *mut c_char, usize) -> usize =
            unsafe { self.function("llama_sieve_json_schema_to_gbnf") }?;
        let mut text = vec![0u8; USUAL_GRAMMAR];
        let write = |text: &mut Vec<u8>| {
            // SAFETY: a C string, and room for as many bytes as the number that is passed.
            unsafe { convert(schema.as_ptr(), flags, text.as_mut_ptr().cast(), text.len()) }
        };
        // The buffer has room for most grammars, since each further call would repeat the messages
        // about what a lenient conversion leaves out.
        let mut size = write(&mut text);
        if size > text.len() {
            text.resize(size, 0);
            size = write(&mut text);
        }
        if size == 0 || size > text.len() {
            let why = self.last_error();
            let why = why.strip_prefix("llama_sieve_json_schema_to_gbnf: ");
            return Err(why.map_or_else(|| self.last_error(), str::to_owned));
        }
        // The text ends with a NUL, which is removed.
        text.truncate(size - 1);
        String::from_utf8(text).map_err(|error| error.to_string())
    }
}

/// Returns the line of `--version`, with the library's version if there is one.
pub fn versions() -> String {
    let own = env!("CARGO_PKG_VERSION");
    let library = Sieve::load().and_then(|sieve| {
        let (version, simd) = (sieve.version()?, sieve.simd()?);
        Ok(format!(
            "library {version} ({simd}), {}",
            sieve.path.display()
        ))
    });
    let library = library.unwrap_or_else(|why| format!("no library: {why}"));
    crate::output::printable(&format!("llama-sieve {own}; {library}")) + "\n"
}
