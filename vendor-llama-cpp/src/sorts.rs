//! The sorts of C++ libraries, each in a shared library of its own, which is compiled from
//! `c-tests/sorts.cpp` or, for a Windows library that it calls, from `c-tests/sorts_by_wine.c`.

use std::ffi::{CStr, CString, c_void};
use std::mem::transmute_copy;
use std::path::Path;
use std::{env, fs};

type SortFn = unsafe extern "C" fn(*const f32, usize, *mut u32);

/// The sorts of one C++ library. Their results are orders of the indices of keys, larger keys
/// first.
#[derive(Debug)]
pub struct Sorts {
    name: String,
    version: i32,
    sort: SortFn,
    partial_sort: unsafe extern "C" fn(*const f32, usize, usize, *mut u32),
    sort_numbers: SortFn,
    killer: Option<unsafe extern "C" fn(usize, *mut f32)>,
}

impl Sorts {
    /// Opens all shared libraries of the folder that an environment variable names, in the order
    /// of their names.
    ///
    /// # Panics
    /// If there is no such variable or folder, or if a library in the folder does not contain
    /// sorts.
    pub fn in_folder(variable: &str) -> Vec<Self> {
        let folder = env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set"));
        let files = fs::read_dir(folder).expect("a folder");
        let paths = files.map(|file| file.expect("a file").path());
        let is_library = |path: &Path| path.extension().is_some_and(|end| end == "so");
        let mut paths: Vec<_> = paths.filter(|path| is_library(path)).collect();
        paths.sort();
        paths.iter().map(|path| Self::open(path)).collect()
    }

    fn open(path: &Path) -> Self {
        let name = path.display().to_string();
        let path = CString::new(name.clone()).expect("no NUL");
        // SAFETY: a string. The library does nothing when it is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        assert!(
            !handle.is_null(),
            "{name}: is no library that can be opened"
        );
        let version: unsafe extern "C" fn() -> i32 = found(handle, c"sorts_version");
        Self {
            name,
            // SAFETY: it returns a number.
            version: unsafe { version() },
            sort: found(handle, c"sorts_sort"),
            partial_sort: found(handle, c"sorts_partial_sort"),
            sort_numbers: found(handle, c"sorts_sort_numbers"),
            killer: find(handle, c"sorts_killer"),
        }
    }

    /// Returns the path of the shared library.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the version of LLVM whose libc++ the library is; 0 for libstdc++, and -1 for
    /// Microsoft's library.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Returns the order in which `std::sort` leaves candidates with these keys.
    pub fn sort(&self, keys: &[f32]) -> Vec<u32> {
        Self::sorted_by(self.sort, keys)
    }

    /// Returns the order in which `std::sort` leaves numbers that are compared by these keys.
    pub fn sort_numbers(&self, keys: &[f32]) -> Vec<u32> {
        Self::sorted_by(self.sort_numbers, keys)
    }

    fn sorted_by(sort: SortFn, keys: &[f32]) -> Vec<u32> {
        let mut order = vec![0; keys.len()];
        // SAFETY: `order` has room for as many places as there are keys.
        unsafe { sort(keys.as_ptr(), keys.len(), order.as_mut_ptr()) };
        order
    }

    /// Returns the order in which `std::partial_sort` leaves candidates with these keys.
    ///
    /// # Panics
    /// If `k` is larger than the number of keys.
    pub fn partial_sort(&self, keys: &[f32], k: usize) -> Vec<u32> {
        assert!(k <= keys.len());
        let mut order = vec![0; keys.len()];
        // SAFETY: `order` has room for as many places as there are keys, and `k` is no more.
        unsafe { (self.partial_sort)(keys.as_ptr(), keys.len(), k, order.as_mut_ptr()) };
        order
    }

    /// Returns `n` keys on which `std::sort` exceeds its depth limit; `None` if the shared library
    /// has no function that makes them.
    pub fn killer(&self, n: usize) -> Option<Vec<f32>> {
        let killer = self.killer?;
        let mut keys = vec![0.0; n];
        // SAFETY: `keys` has room for exactly the `n` values that the function writes.
        unsafe { killer(n, keys.as_mut_ptr()) };
        Some(keys)
    }
}

/// Returns the function of this name. `F` must be its type in the library.
fn found<F>(handle: *mut c_void, name: &CStr) -> F {
    find(handle, name).unwrap_or_else(|| panic!("{name:?} is missing"))
}

/// Returns the function of this name, if there is one. `F` must be its type in the library.
fn find<F>(handle: *mut c_void, name: &CStr) -> Option<F> {
    // SAFETY: a live handle and a string.
    let function = unsafe { libc::dlsym(handle, name.as_ptr()) };
    // SAFETY: an address, as which the function is taken.
    (!function.is_null()).then(|| unsafe { transmute_copy(&function) })
}
