//! The library that contains an address, the libraries that a library needs, and those that are
//! never unloaded.

use super::libraries::{Address, Library};

/// Returns the library that contains `address`.
pub fn containing<'l, 'a>(all: &'l [Library<'a>], address: Address) -> Option<&'l Library<'a>> {
    all.iter().find(|library| library.contains(address))
}

/// Returns the library and its transitive dependencies, each once, in breadth-first order. This is
/// the order in which a symbol is searched.
pub fn scope<'l, 'a>(all: &'l [Library<'a>], library: &'l Library<'a>) -> Vec<&'l Library<'a>> {
    let mut scope = vec![library];
    let mut at = 0;
    while let Some(&library) = scope.get(at) {
        for name in library.needed() {
            let found = all.iter().find(|library| library.is_called(name));
            scope.extend(found.filter(|found| !scope.iter().any(|known| known.is(found))));
        }
        at += 1;
    }
    scope
}

/// Returns the libraries that stay until the process ends: the first ones, up to the last that the
/// program needs. Libraries loaded by `dlopen` come after these.
#[cfg(not(windows))]
pub fn permanent<'l, 'a>(all: &'l [Library<'a>]) -> &'l [Library<'a>] {
    let needed = all
        .first()
        .map_or(Vec::new(), |program| scope(all, program));
    let last = all
        .iter()
        .rposition(|library| needed.iter().any(|needed| needed.is(library)));
    last.and_then(|last| all.get(..=last)).unwrap_or_default()
}

/// Returns the libraries that stay until the process ends: all of them, since a library in which a
/// function is found is [kept](Library::keep).
#[cfg(windows)]
pub fn permanent<'l, 'a>(all: &'l [Library<'a>]) -> &'l [Library<'a>] {
    all
}
