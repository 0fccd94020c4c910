//! Finds a llama.cpp in the process, and looks up all of its functions that may be needed.

use std::ffi::CStr;

use crate::ffi::host::linker::{Address, NAMES};
#[cfg(not(windows))]
use crate::ffi::host::linker::{SAMPLER_INIT, index, linked};

/// The symbol of a constructor of `std::locale` in libstdc++.
const LOCALE_OF_LIBSTDCXX: &CStr = c"_ZNSt6localeC1Ev";
/// The symbol of a constructor of `std::__1::locale` in libc++.
const LOCALE_OF_LIBCXX: &CStr = c"_ZNSt3__16localeC1Ev";

/// The functions and properties of a llama.cpp that can be found in the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub sampler_init: Address,
    /// The functions of [`NAMES`], in their order.
    pub functions: [Option<Address>; NAMES.len()],
    /// True if the llama.cpp stays loaded until the process ends.
    pub stays: bool,
    /// True if the llama.cpp uses a shared libc++.
    pub has_libcxx: bool,
}

/// Returns the `llama_sampler_init` to which the linker has bound the weak reference.
#[cfg(not(windows))]
fn linked_one() -> Option<Address> {
    index(SAMPLER_INIT).and_then(|i| *linked().get(i)?)
}

/// Returns the functions of [`NAMES`] that `look` finds.
fn functions(look: impl Fn(&CStr) -> Option<Address>) -> [Option<Address>; NAMES.len()] {
    let mut text = Vec::new();
    NAMES.map(|name| {
        text.clear();
        text.extend_from_slice(name.as_bytes());
        text.push(0);
        look(CStr::from_bytes_with_nul(&text).ok()?)
    })
}

/// Returns the llama.cpp with this `llama_sampler_init`, which the caller keeps loaded, and whose
/// other functions `look` finds.
pub(super) fn kept(sampler_init: Address, look: impl Fn(&CStr) -> Option<Address>) -> Seen {
    Seen {
        sampler_init,
        functions: functions(&look),
        stays: true,
        has_libcxx: has_libcxx(look),
    }
}

fn has_libcxx(look: impl Fn(&CStr) -> Option<Address>) -> bool {
    look(LOCALE_OF_LIBCXX).is_some() && look(LOCALE_OF_LIBSTDCXX).is_none()
}

#[cfg(all(target_os = "linux", not(miri)))]
mod by_reading {
    use std::ffi::CStr;
    use std::ptr::NonNull;

    use crate::ffi::host::libraries::{Library, with_all};
    use crate::ffi::host::linker::{Address, NAMES, SAMPLER_INIT, linked};
    use crate::ffi::host::scope::{containing, permanent, scope};
    use crate::ffi::host::search::{Seen, functions, has_libcxx, linked_one};

    pub(in super::super) use crate::ffi::host::libraries::changes;

    /// A byte in this library, for its address.
    static HERE: u8 = 0;

    /// Returns the llama.cpp of the process.
    pub(in super::super) fn find() -> Option<Seen> {
        with_all(|all| {
            if let Some(sampler_init) = linked_one() {
                // A library to which a weak reference is bound stays loaded.
                return Some(seen(all, sampler_init, true));
            }
            let program = all
                .first()
                .map_or(Vec::new(), |program| scope(all, program));
            let mut any = program.into_iter().chain(all);
            let found = any.find_map(|library| library.symbol(SAMPLER_INIT))?;
            Some(seen(all, found, false))
        })
    }

    /// Returns the llama.cpp with this `llama_sampler_init`.
    pub(in super::super) fn at(sampler_init: Address) -> Seen {
        let seen = with_all(|all| Some(seen(all, sampler_init, false)));
        seen.unwrap_or_else(|| nothing(sampler_init))
    }

    /// Returns true if this llama.cpp is still loaded.
    pub(in super::super) fn is_there(known: &Seen) -> bool {
        with_all(|all| {
            let library = containing(all, known.sampler_init);
            let own = library.and_then(|library| library.symbol(SAMPLER_INIT));
            own == Some(known.sampler_init) && seen(all, known.sampler_init, false) == *known
        })
    }

    fn seen(all: &[Library<'_>], sampler_init: Address, kept: bool) -> Seen {
        let program = all.first();
        let Some(library) = containing(all, sampler_init).or(program) else {
            return nothing(sampler_init);
        };
        let scope = scope(all, library);
        let own = |name: &CStr| scope.iter().find_map(|library| library.symbol(name));
        let mut functions = functions(own);
        if program.is_some_and(|program| library.is(program)) {
            // Functions that a program does not export are known only to the linker. In the preload
            // library the linker has bound these names to the stand-ins, which are not a host's.
            let ours = containing(all, NonNull::from(&HERE).cast());
            let ours = ours.filter(|ours| !ours.is(library));
            let is_ours = |address: &Address| ours.is_some_and(|ours| ours.contains(*address));
            for (function, linked) in functions.iter_mut().zip(linked()) {
                *function = linked.filter(|linked| !is_ours(linked)).or(*function);
            }
        }
        Seen {
            sampler_init,
            functions,
            stays: kept || permanent(all).iter().any(|other| other.is(library)),
            has_libcxx: has_libcxx(own),
        }
    }

    /// Returns the facts that are known if no library is found.
    fn nothing(sampler_init: Address) -> Seen {
        Seen {
            sampler_init,
            functions: [None; NAMES.len()],
            stays: true,
            has_libcxx: false,
        }
    }

    /// Returns the first function with one of these names in a library of the same llama.cpp as
    /// `sampler_init`: a library which, together with those that it needs, has both.
    pub(in super::super) fn beside(sampler_init: Address, names: &[&CStr]) -> Option<Address> {
        let any = |of: &Library<'_>| names.iter().find_map(|name| of.symbol(name));
        with_all(|all| {
            all.iter().find_map(any)?;
            all.iter().find_map(|start| {
                let scope = scope(all, start);
                let own = scope
                    .iter()
                    .find_map(|library| library.symbol(SAMPLER_INIT));
                let is_of_it = start.contains(sampler_init) || own == Some(sampler_init);
                scope.into_iter().filter(|_| is_of_it).find_map(any)
            })
        })
    }
}

#[cfg(not(any(all(target_os = "linux", not(miri)), windows)))]
mod by_asking {
    use std::ffi::CStr;

    use crate::ffi::host::linker::{Address, SAMPLER_INIT, index, linked, symbol_of};
    use crate::ffi::host::search::{Seen, kept, linked_one};

    fn global(name: &CStr) -> Option<Address> {
        // SAFETY: RTLD_DEFAULT is no handle that could be closed.
        unsafe { symbol_of(libc::RTLD_DEFAULT, name) }
    }

    /// Returns 0, since this module does not count loaded and unloaded libraries.
    pub(in super::super) fn changes() -> u64 {
        0
    }

    /// Returns the llama.cpp of the process.
    pub(in super::super) fn find() -> Option<Seen> {
        linked_one().or_else(|| global(SAMPLER_INIT)).map(at)
    }

    /// Returns the llama.cpp with this `llama_sampler_init`.
    pub(in super::super) fn at(sampler_init: Address) -> Seen {
        let linked = linked();
        let own = |name: &CStr| index(name).and_then(|i| linked[i]).or_else(|| global(name));
        kept(sampler_init, own)
    }

    /// Returns true: this module takes a llama.cpp that was found as one that stays loaded.
    pub(in super::super) fn is_there(_: &Seen) -> bool {
        true
    }

    /// Returns the first function of the process with one of these names.
    pub(in super::super) fn beside(_: Address, names: &[&CStr]) -> Option<Address> {
        names.iter().find_map(|name| global(name))
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
pub(super) use by_reading::*;

#[cfg(not(any(all(target_os = "linux", not(miri)), windows)))]
pub(super) use by_asking::*;

#[cfg(windows)]
mod by_modules;
#[cfg(windows)]
pub(super) use by_modules::*;
