//! Finds a llama.cpp among the modules of a Windows process: the program and the libraries that it
//! has loaded.
//!
//! The module that is found stays loaded until the process ends. Its functions are looked up by
//! `GetProcAddress`, not read from its memory. A llama.cpp that is linked into a program is found
//! if the program exports it.

use std::ffi::CStr;

use crate::ffi::host::linker::{Address, SAMPLER_INIT};
use crate::ffi::host::search::{Seen, kept};
use crate::windows::{Module, modules, pinned, symbol};

/// Returns 0, since loaded and unloaded libraries need not be counted: a host is never unloaded.
pub(in super::super) fn changes() -> u64 {
    0
}

/// Returns the llama.cpp of the process: that of the program, or the one that was loaded first.
pub(in super::super) fn find() -> Option<Seen> {
    modules().into_iter().find_map(|module| {
        let sampler_init = symbol(module, SAMPLER_INIT)?;
        // A module that was unloaded in the meantime is not found any more.
        Some(of(pinned(sampler_init)?, sampler_init))
    })
}

/// Returns the llama.cpp with this `llama_sampler_init`.
pub(in super::super) fn at(sampler_init: Address) -> Seen {
    match pinned(sampler_init) {
        Some(module) => of(module, sampler_init),
        None => kept(sampler_init, |_| None),
    }
}

fn of(module: Module, sampler_init: Address) -> Seen {
    kept(sampler_init, |name| symbol(module, name))
}

/// Returns true, since a host that was found stays loaded.
pub(in super::super) fn is_there(_: &Seen) -> bool {
    true
}

/// Returns the first function with one of these names, in a process with one llama.cpp.
pub(in super::super) fn beside(sampler_init: Address, names: &[&CStr]) -> Option<Address> {
    let all = modules();
    let mut hosts = all
        .iter()
        .filter_map(|&module| symbol(module, SAMPLER_INIT));
    if !hosts.all(|host| host == sampler_init) {
        return None;
    }
    let any = |&module: &Module| names.iter().find_map(|name| symbol(module, name));
    all.iter().find_map(any)
}
