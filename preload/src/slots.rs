//! The words of memory through which the libraries of the process call llama.cpp's sampler
//! functions. Attaching points them at the stand-ins, and detaching restores most of them.
//!
//! An import is pointed at a stand-in if the dynamic linker would have bound it to this library
//! under LD_PRELOAD. It must have a name that this library exports, and lead to the llama.cpp that
//! is served. A word that leads anywhere else belongs to other code, and is not changed.
//!
//! A word is written atomically, so a thread that calls through it gets either the old or the new
//! function. If the dynamic linker has made it read-only, its page is made writable during the
//! write.
//!
//! The list of libraries stays locked from the search for the words until their pages are read-only
//! again. The access rights of the pages are read under that lock, too. Otherwise a library could
//! be unloaded meanwhile, and memory that another library now has at its addresses would get the
//! old access rights.

use std::ffi::{CStr, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

mod memory;

use llama_sieve::errors::{
    LLAMA_SIEVE_ERROR_BUSY, LLAMA_SIEVE_ERROR_INTERNAL, LLAMA_SIEVE_ERROR_NO_HOST,
};
use llama_sieve::ffi::attach::NO_LIBRARY;
use llama_sieve::ffi::failure::Failure;
use llama_sieve::ffi::host::libraries::imports::Import;
use llama_sieve::ffi::host::libraries::{Address, Library, with_all};
use llama_sieve::ffi::host::scope::{permanent, scope};
use llama_sieve::last_error;
use llama_sieve::log;
use llama_sieve::quoted::listed;

use crate::host_constructors::{attach, contains_us, first_llama_cpp, function_of, is_copy};
use memory::{List, Memory};

/// True while the stand-ins pass every call on: during attaching, and from detaching until
/// attaching again.
static ARE_ASIDE: AtomicBool = AtomicBool::new(false);

/// True if the stand-ins are to pass on every call that still reaches them.
#[inline]
pub fn are_aside() -> bool {
    ARE_ASIDE.load(Ordering::SeqCst)
}

/// Makes the stand-ins pass every call on to the host, or decide on calls again.
pub fn step_aside(aside: bool) {
    ARE_ASIDE.store(aside, Ordering::SeqCst);
}

/// A word that was pointed at a stand-in.
#[derive(Debug)]
pub struct Bent {
    place: usize,
    /// The address that the word had before.
    before: usize,
}

/// The order in which the functions are pointed at the stand-ins.
///
/// A watched call needs every query of the host, and a call that is sampled straight from the
/// logits answers them. So the functions that sample are pointed at the stand-ins last, and
/// restored first. The functions that make samplers come before them: until then no chain has
/// members of this library. The functions that must recognise this library's samplers are first,
/// and are never restored: the samplers live on, and llama.cpp ends the process if one of them is
/// copied to a built-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Knowing,
    Others,
    Constructors,
    Sampling,
}

impl Turn {
    fn of(name: &CStr) -> Self {
        match name.to_bytes() {
            b"llama_sampler_copy" | b"llama_sampler_get_seed" => Self::Knowing,
            b"llama_sampler_sample" => Self::Sampling,
            name if name.starts_with(b"_Z21common_sampler_sample") => Self::Sampling,
            name if name.starts_with(b"llama_sampler_init_") => Self::Constructors,
            _ => Self::Others,
        }
    }
}

/// An import of a function that this library stands in for.
struct Slot<'l, 'a> {
    library: &'l Library<'a>,
    import: Import<'l>,
    ours: Address,
}

impl Slot<'_, '_> {
    fn is_ours(&self) -> bool {
        self.import.value() == self.ours.as_ptr()
    }

    /// Atomically replaces `from` with `to`, even if the word's page is read-only. Returns false,
    /// with nothing changed, if the word does not hold `from`.
    fn write(&self, from: *mut c_void, to: *mut c_void, memory: &Memory) -> io::Result<bool> {
        // SAFETY: the word may be written, and both addresses are functions of that name.
        let write = || unsafe { self.import.exchange(from, to) };
        let written = memory.while_writable(self.import.place(), write)?;
        Ok(written.unwrap_or(false))
    }
}

/// Returns the imports for which there are stand-ins, in order of `Turn`. Leaves out copies of this
/// library, and libraries that are not completely loaded.
fn slots<'l, 'a>(all: &'l [Library<'a>], memory: &Memory) -> Vec<Slot<'l, 'a>> {
    let Some(here) = all.iter().find(|library| contains_us(library)) else {
        return Vec::new();
    };
    let mut slots = Vec::new();
    for library in all.iter().filter(|l| !is_copy(l) && memory.is_loaded(l)) {
        slots.extend(library.imports().filter_map(|import| {
            let ours = stand_in(here, import.name)?;
            Some(Slot {
                library,
                import,
                ours,
            })
        }));
    }
    slots.sort_by_key(|slot| Turn::of(slot.import.name));
    slots
}

/// Returns the stand-in for the function named `name`, if there is one.
fn stand_in(here: &Library<'_>, name: &CStr) -> Option<Address> {
    let is_own = name.to_bytes().starts_with(b"llama_sieve_");
    (!is_own).then(|| here.symbol(name))?
}

/// The globally visible functions with those of this library's names that several other libraries
/// define. Only the dynamic linker knows which functions these are. The linker is queried before
/// the list of libraries is locked, since it may be waiting for that lock.
struct Global(Vec<Address>);

impl Global {
    /// Returns no functions: on Windows nothing is globally visible.
    #[cfg(windows)]
    fn ask() -> Self {
        Self(Vec::new())
    }

    #[cfg(not(windows))]
    fn ask() -> Self {
        let mut names = Vec::new();
        with_all(|all| {
            let here = all.iter().find(|library| contains_us(library));
            let own = here.iter().flat_map(|here| here.functions());
            let has =
                |library: &&Library<'_>, name| !is_copy(library) && library.symbol(name).is_some();
            let several = |name| all.iter().filter(|l| has(l, name)).count() > 1;
            let several = own.map(|(_, name)| name).filter(|name| several(name));
            names.extend(several.map(CStr::to_owned));
        });
        let found = names.iter().filter_map(|name| {
            // SAFETY: RTLD_DEFAULT is no handle that could be closed.
            NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
        });
        Self(found.collect())
    }
}

/// Returns the function to which the first call of `name` from `library` will lead.
fn first_call(
    all: &[Library<'_>],
    library: &Library<'_>,
    name: &CStr,
    global: &Global,
) -> Option<Address> {
    let own = |library: &Library<'_>| library.symbol(name).filter(|_| !is_copy(library));
    let mut exporters = all.iter().filter_map(own);
    let first = exporters.next()?;
    if exporters.next().is_none() {
        return Some(first);
    }
    let of_program = permanent(all).iter().find_map(own);
    let of_all = || {
        let mut exporters = all.iter().filter_map(own);
        exporters.find(|exporter| global.0.contains(exporter))
    };
    of_program
        .or_else(of_all)
        .or_else(|| scope(all, library).into_iter().find_map(own))
}

/// Calls `look` with the libraries of the process and with the process's memory, and returns the
/// result. None of these libraries is unloaded meanwhile. Returns an error without calling `look`
/// if the libraries or the memory cannot be listed.
fn with_memory<T>(look: impl FnOnce(&[Library<'_>], &Memory) -> T) -> Result<T, Failure> {
    // Other libraries may replace the function that opens a file, so it is called first.
    let list = List::open()?;
    let found = with_all(|all| Some(list.read().map(|memory| look(all, &memory))));
    found.unwrap_or_else(|| {
        let text = last_error::get();
        Err(Failure::new(LLAMA_SIEVE_ERROR_INTERNAL, text))
    })
}

/// The result of one pass over the libraries of the process.
#[derive(Default)]
struct Look {
    /// True if there is a llama.cpp.
    found: bool,
    /// True if the dynamic linker has completely loaded it.
    is_loaded: bool,
    /// The number of imports that were pointed at the stand-ins.
    bent: usize,
    /// The system's error, if an import could not be written.
    refused: Option<io::Error>,
}

/// Points the imports that lead to llama.cpp at the stand-ins, and returns the number of those that
/// were not pointed there before. After an error none is changed.
pub fn bend(bent: &mut Vec<Bent>) -> Result<usize, Failure> {
    let global = Global::ask();
    let first = with_memory(|all, memory| {
        forget_what_is_gone(all, memory, bent);
        look(all, memory, &global, bent)
    })?;
    if !first.found {
        return Err(Failure::new(LLAMA_SIEVE_ERROR_NO_HOST, NO_LIBRARY));
    }
    if !first.is_loaded {
        let text = "another thread is still loading llama.cpp";
        return Err(Failure::new(LLAMA_SIEVE_ERROR_BUSY, text));
    }
    if let Some(error) = first.refused {
        let text = format!("an import cannot be written: {error}");
        if bent.is_empty() {
            return Err(Failure::new(LLAMA_SIEVE_ERROR_INTERNAL, text));
        }
        log::warn(&format!("attach: {text}"));
    }
    // A second pass finds words that the dynamic linker wrote during the first one, because another
    // thread was calling through them for the first time.
    let second = with_memory(|all, memory| look(all, memory, &global, bent));
    Ok(first.bent + second.map_or(0, |second| second.bent))
}

fn look(all: &[Library<'_>], memory: &Memory, global: &Global, bent: &mut Vec<Bent>) -> Look {
    let mut look = Look::default();
    let Some(host) = first_llama_cpp(all) else {
        return look;
    };
    look.found = true;
    look.is_loaded = memory.is_loaded(host);
    if !look.is_loaded {
        return look;
    }
    attach();
    for slot in slots(all, memory) {
        let name = slot.import.name;
        let Some(theirs) = function_of(all, host, name).map(|route| route.address) else {
            continue;
        };
        let value = slot.import.value();
        let is_open = slot.import.is_call
            && NonNull::new(value).is_some_and(|value| slot.library.contains(value));
        let leads_there = value == theirs.as_ptr()
            || (is_open && first_call(all, slot.library, name, global) == Some(theirs));
        if !leads_there {
            continue;
        }
        match slot.write(value, slot.ours.as_ptr(), memory) {
            Ok(true) => look.bent += usize::from(note(bent, slot.import.place(), value)),
            Ok(false) => {}
            Err(error) => look.refused = Some(error),
        }
    }
    look
}

/// Forgets the words of libraries that have been unloaded, even if they have been loaded again at
/// the same address.
fn forget_what_is_gone(all: &[Library<'_>], memory: &Memory, bent: &mut Vec<Bent>) {
    let slots = slots(all, memory);
    bent.retain(|bent| {
        let slot = slots.iter().find(|slot| slot.import.place() == bent.place);
        slot.is_some_and(|slot| slot.import.value().addr() != bent.before)
    });
}

/// Records the old value of a word. Returns false if this replaced an earlier record of the word.
fn note(bent: &mut Vec<Bent>, place: usize, before: *mut c_void) -> bool {
    let before = before.addr();
    if let Some(known) = bent.iter_mut().find(|known| known.place == place) {
        known.before = before;
        return false;
    }
    bent.push(Bent { place, before });
    true
}

/// Restores the imports, beginning with those of functions that sample, and returns their number.
/// Imports of functions that must recognise this library's samplers stay. Imports that other code
/// has changed since are not touched, and are reported.
pub fn unbend(bent: &mut Vec<Bent>) -> Result<usize, Failure> {
    let (mut count, mut others, mut refused) = (0, Vec::new(), None);
    with_memory(|all, memory| {
        forget_what_is_gone(all, memory, bent);
        let slots = slots(all, memory);
        let go = |slot: &&Slot<'_, '_>| Turn::of(slot.import.name) != Turn::Knowing;
        for slot in slots.iter().rev().filter(go) {
            let place = slot.import.place();
            let Some(at) = bent.iter().position(|bent| bent.place == place) else {
                continue;
            };
            let before = bent.swap_remove(at).before as *mut c_void;
            if !slot.is_ours() {
                let name = slot.import.name;
                let value = slot.import.value();
                // A library that was unloaded and loaded again at the same address was never
                // pointed at the stand-ins.
                let is_new = value == before
                    || NonNull::new(value).is_some_and(|value| slot.library.contains(value))
                    || first_llama_cpp(all)
                        .and_then(|host| function_of(all, host, name))
                        .is_some_and(|route| route.address.as_ptr() == value);
                if !is_new {
                    others.push(name.to_owned());
                }
                continue;
            }
            match slot.write(slot.ours.as_ptr(), before, memory) {
                Ok(true) => count += 1,
                Ok(false) => others.push(slot.import.name.to_owned()),
                Err(error) => refused = Some(error),
            }
        }
    })?;
    if !others.is_empty() {
        let names = listed(others.iter().map(|name| name.to_bytes()));
        log::warn(&format!(
            "detach: imports that somebody else has pointed elsewhere are left alone: {names}"
        ));
    }
    if let Some(error) = refused {
        log::warn(&format!(
            "detach: an import cannot be written, and stays: {error}"
        ));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_samples_comes_last() {
        let mut names = [
            c"llama_sampler_sample",
            c"llama_sampler_init_dist",
            c"_Z21common_sampler_sampleP14common_samplerP13llama_contextib",
            c"llama_get_sampled_probs_ith",
            c"llama_sampler_init_top_k",
            c"llama_sampler_copy",
            c"llama_sampler_apply",
            c"llama_sampler_get_seed",
        ];
        names.sort_by_key(|name| Turn::of(name));
        let turns = names.map(Turn::of);
        assert_eq!(turns[..2], [Turn::Knowing; 2]);
        assert_eq!(turns[2..4], [Turn::Others; 2]);
        assert_eq!(turns[4..6], [Turn::Constructors; 2]);
        assert_eq!(turns[6..], [Turn::Sampling; 2]);
    }

    #[test]
    fn a_word_is_noted_once_with_what_it_held_last() {
        let mut bent = Vec::new();
        assert!(note(&mut bent, 8, 100 as *mut c_void));
        assert!(note(&mut bent, 16, 200 as *mut c_void));
        assert!(!note(&mut bent, 8, 300 as *mut c_void));
        assert_eq!(
            bent.iter().map(|b| b.before).collect::<Vec<_>>(),
            [300, 200]
        );
    }
}
