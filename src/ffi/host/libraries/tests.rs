use super::*;
use crate::ffi::host::scope::{permanent, scope};

fn named<'a, 'b>(all: &'a [Library<'b>], part: &str) -> &'a Library<'b> {
    let found = all.iter().find(|library| path(library).contains(part));
    found.expect("it is loaded")
}

fn path(library: &Library<'_>) -> String {
    library.path().to_string_lossy().into_owned()
}

/// Checks that symbols have the addresses that the dynamic linker finds.
#[test]
fn symbols_are_where_the_linker_finds_them() {
    // The functions are those of the C library, since a sanitizer also has functions with these
    // names. SAFETY: a library that is loaded for as long as the process lives.
    let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY) };
    assert!(!library.is_null());
    for name in [c"getenv", c"qsort", c"stdout", c"dl_iterate_phdr", c"abort"] {
        // SAFETY: a handle that is open.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        let own = with_all(|all| named(all, "/libc.so").symbol(name));
        assert_eq!(own, NonNull::new(found), "{name:?}");
    }
}

#[test]
fn what_a_library_does_not_define_is_not_in_it() {
    with_all(|all| {
        let libc = named(all, "/libc.so");
        assert_eq!(libc.symbol(c"llama_sampler_init_top_k"), None);
        assert_eq!(libc.symbol(c""), None);
        // The C library imports this symbol, and another library defines it.
        assert_eq!(libc.symbol(c"__tls_get_addr"), None);
        for library in all {
            assert_eq!(library.symbol(c"no library has this"), None);
        }
    });
}

#[test]
fn the_program_needs_what_it_is_linked_with() {
    with_all(|all| {
        let scope = scope(all, &all[0]);
        let of = |part| scope.iter().any(|library| library.is(named(all, part)));
        assert!(of("/libc.so") && of("/ld-linux"));
        assert!(scope[0].is(&all[0]));
        let mut once: Vec<String> = scope.iter().map(|library| path(library)).collect();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), scope.len());
        // No library needs the kernel's own library.
        assert!(scope.len() < all.len());
    });
}

#[test]
fn a_library_that_comes_is_counted_and_does_not_stay() {
    let before = changes();
    // SAFETY: a library whose initialisers have no effect on the test.
    let handle = unsafe { libc::dlopen(c"libanl.so.1".as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null());
    assert_ne!(changes(), before);
    with_all(|all| {
        let permanent = permanent(all);
        let has = |part| permanent.iter().any(|l| path(l).contains(part));
        assert!(has("/libc.so") && !has("/libanl.so"));
    });
    let loaded = changes();
    // SAFETY: a handle that was just opened and is not used again.
    unsafe { libc::dlclose(handle) };
    assert_ne!(changes(), loaded);
}
