//! The llama.cpp of the process: finds it, and looks up the functions that this library needs.
//!
//! On Linux the search takes place when a host is first needed, in this order:
//! 1. the handle given to `llama_sieve_bind_host`;
//! 2. the linker: weak references, which are set if llama.cpp is linked into the same program or
//!    loaded before this library;
//! 3. the program and the libraries that it needs (a program linked with libllama.so);
//! 4. every other loaded library, even one that was opened with RTLD_LOCAL (Python, Node, Bun).
//!
//! All functions that may be needed are looked up together, directly in the library's memory (see
//! `libraries`), so that the search does not wait for the dynamic linker. A host that the program
//! itself does not need may be unloaded. For such a host each call checks whether libraries have
//! been loaded or unloaded since the last check, and if the host is gone, searches again. If no
//! host was found, the next call searches again.
//!
//! All functions are taken from the library that has `llama_sampler_init` and from those that it
//! needs, not from the process: another library may export the same names to replace them, as this
//! project's preload library does.
//!
//! On other systems `search` asks Windows or the dynamic linker.

pub mod build;
pub mod built_ins;
#[cfg(any(
    all(windows, target_pointer_width = "64"),
    all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(miri)
    )
))]
mod import;
#[cfg(all(target_os = "linux", not(miri)))]
pub mod libraries;
pub(in crate::ffi) mod linker;
pub mod llama_h;
#[cfg(all(target_os = "linux", not(miri)))]
pub mod mappings;
#[cfg(all(windows, target_pointer_width = "64"))]
pub mod modules;
pub(super) mod per_host;
pub mod profile;
#[cfg(any(
    all(windows, target_pointer_width = "64"),
    all(target_os = "linux", not(miri))
))]
pub mod scope;
mod search;
pub mod vocabulary;

#[cfg(all(windows, target_pointer_width = "64"))]
pub use modules as libraries;

use std::ffi::{CStr, c_void};
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

#[cfg(test)]
use crate::ffi::host::linker::NAMES;
use crate::ffi::host::linker::{Name, SAMPLER_INIT, symbol_of};
use crate::ffi::host::llama_h::SamplerInit;
use crate::ffi::host::search::Seen;
#[cfg(test)]
use crate::ffi::tests::mock_host;
use crate::host_profile::{HostProfile, Sort};
use crate::log;
use crate::sync::Mutex;

pub use crate::ffi::host::linker::Address;

/// A llama.cpp in the process.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// The host's function that makes a `llama_sampler`.
    pub sampler_init: SamplerInit,
    known: &'static Known,
}

/// The functions and properties of a llama.cpp.
#[derive(Debug)]
struct Known {
    seen: Seen,
    /// The count of loaded and unloaded libraries when a host that may be unloaded was last
    /// checked.
    as_of: AtomicU64,
    /// The bits of the host's profile, once it has been determined.
    profile: AtomicU32,
}

/// Flags in the bits of a profile: it has been determined, and the build was known at that time.
const FOUND: u32 = 1 << 16;
const WITH_BUILD: u32 = 1 << 17;

// SAFETY: the pointers are addresses of functions, which belong to no thread.
unsafe impl Send for Known {}
// SAFETY: as above.
unsafe impl Sync for Known {}

/// The host of the process, once it is known.
static BOUND: AtomicPtr<Known> = AtomicPtr::new(null_mut());

/// True once `llama_sieve_bind_host` has named a host. From then on only that function replaces the
/// host.
static IS_NAMED: AtomicBool = AtomicBool::new(false);

/// Every host that was ever found. If a host is found again, its entry is used again.
static ALL: Mutex<Vec<&'static Known>> = Mutex::new(Vec::new());

impl Host {
    /// Returns the host of this process, or the reason why there is none.
    pub fn get() -> Result<Self, String> {
        #[cfg(test)]
        if let Some(sampler_init) = mock_host::sampler_init() {
            return Ok(Self::mocked(sampler_init));
        }
        let bound = Self::bound();
        if let Some(host) = bound.filter(Self::is_there) {
            return Ok(host);
        }
        let seen = search::find().ok_or_else(|| {
            "no llama.cpp in this process: load libllama (build b4662 or later, which exports llama_sampler_init) first, \
             or pass its dlopen handle to llama_sieve_bind_host"
                .to_owned()
        })?;
        let found = Self::of(seen);
        // Two threads that search at once find the same host. But another thread may have bound a
        // different one meanwhile.
        let before = bound.map_or(null_mut(), |host| ptr::from_ref(host.known).cast_mut());
        let found_at = ptr::from_ref(found.known).cast_mut();
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let host = match BOUND.compare_exchange(before, found_at, order.0, order.1) {
            Ok(_) => found,
            Err(_) => Self::bound().unwrap_or(found),
        };
        host.tell_profile();
        Ok(host)
    }

    /// Returns the host that was found or bound last.
    fn bound() -> Option<Self> {
        // SAFETY: NULL, or a pointer to an object that is never freed.
        let known = unsafe { BOUND.load(Ordering::Acquire).as_ref() }?;
        Some(Self::new(known))
    }

    /// Binds the llama.cpp whose `dlopen` handle is `handle`. Returns an error if that library does
    /// not export `llama_sampler_init`. Waits while another thread is inside `dlopen`.
    ///
    /// # Safety
    /// `handle` is a handle that `dlopen` has returned, and stays open.
    pub unsafe fn bind(handle: Address) -> Result<(), String> {
        // SAFETY: the caller guarantees the handle.
        let found = |name: &CStr| unsafe { symbol_of(handle.as_ptr(), name) };
        let sampler_init = found(SAMPLER_INIT).ok_or(
            "the library exports no llama_sampler_init (it is not libllama, or older than b4662)",
        )?;
        Self::of(search::kept(sampler_init, found)).keep();
        IS_NAMED.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns the host that `llama_sieve_bind_host` has named, if it is still loaded.
    pub fn named() -> Option<Self> {
        let named = IS_NAMED.load(Ordering::Acquire).then(Self::bound);
        named.flatten().filter(Self::is_there)
    }

    /// Returns the llama.cpp whose `llama_sampler_init` is at `sampler_init`. Makes it the host,
    /// unless `llama_sieve_bind_host` has named a different one.
    pub fn bind_at(sampler_init: Address) -> Self {
        let named = Self::named();
        if let Some(same) = named.filter(|named| named.is_at(sampler_init)) {
            return same;
        }
        let host = Self::of(search::at(sampler_init));
        if named.is_none() {
            host.keep();
        }
        host
    }

    /// Returns true if `sampler_init` is the address of the host's `llama_sampler_init`.
    fn is_at(&self, sampler_init: Address) -> bool {
        self.known.seen.sampler_init == sampler_init
    }

    /// Returns true if `llama_sieve_bind_host` has named a different llama.cpp.
    pub fn gives_way(&self) -> bool {
        Self::named().is_some_and(|named| !named.is_at(self.known.seen.sampler_init))
    }

    fn keep(self) {
        BOUND.store(ptr::from_ref(self.known).cast_mut(), Ordering::Release);
        self.tell_profile();
    }

    /// Returns the host for a llama.cpp that was just found.
    fn of(seen: Seen) -> Self {
        let now = search::changes();
        let mut all = ALL.lock();
        let known = all.iter().copied().find(|known| known.seen == seen);
        let known = known.unwrap_or_else(|| {
            let as_of = AtomicU64::new(now);
            let profile = AtomicU32::new(0);
            let known: &'static Known = Box::leak(Box::new(Known {
                seen,
                as_of,
                profile,
            }));
            all.push(known);
            known
        });
        known.as_of.store(now, Ordering::Relaxed);
        Self::new(known)
    }

    /// Returns true if the host is still loaded.
    pub fn is_there(&self) -> bool {
        let known = self.known;
        if known.seen.stays {
            return true;
        }
        let now = search::changes();
        if known.as_of.load(Ordering::Relaxed) == now {
            return true;
        }
        let is_there = search::is_there(&known.seen);
        if is_there {
            known.as_of.store(now, Ordering::Relaxed);
        }
        is_there
    }

    /// Sets the arithmetic of this library's samplers to the host's profile, or to
    /// [`first_profile`](Self::first_profile) if that has not been determined.
    fn tell_profile(&self) {
        match self.known.profile.load(Ordering::Relaxed) {
            0 => self.first_profile().set(),
            found => {
                let profile = HostProfile::from_bits(found);
                self.warn_of(profile);
                profile.set();
            }
        }
    }

    /// Returns the profile that is assumed until that of the host has been determined.
    ///
    /// A host that uses libc++ (macOS) loads that library, which is recognised by the namespace of
    /// its symbols. A statically linked libc++ is only detected by the trial. On Windows most hosts
    /// are built with Microsoft's library.
    fn first_profile(&self) -> HostProfile {
        HostProfile {
            sort: match self.known.seen.has_libcxx || cfg!(windows) {
                true => Sort::Stable,
                false => Sort::Libstdcxx,
            },
            ..HostProfile::UNFUSED
        }
    }

    /// Returns true if the host's profile has yet to be determined. That includes a profile that
    /// was determined without the build, if the build is now known (`with_build`).
    fn asks_profile(&self, with_build: bool) -> bool {
        let found = self.known.profile.load(Ordering::Relaxed);
        found & FOUND == 0 || (with_build && found & WITH_BUILD == 0)
    }

    fn keep_profile(&self, profile: HostProfile, with_build: bool) {
        let with_build = if with_build { WITH_BUILD } else { 0 };
        let found = profile.to_bits() | FOUND | with_build;
        let before = self.known.profile.swap(found, Ordering::Relaxed);
        if HostProfile::from_bits(before) != profile || before & FOUND == 0 {
            self.warn_of(profile);
        }
        if Self::bound().is_some_and(|bound| bound.is(self)) {
            profile.set();
        }
    }

    fn warn_of(&self, profile: HostProfile) {
        if self.known.seen.has_libcxx && profile.sort == Sort::Stable {
            log::warn(
                "the host's C++ library is libc++, and the order in which it leaves ties is none \
                 that is known: tied candidates keep input order, which may not be that of the \
                 built-in samplers",
            );
        }
    }

    /// Returns true if both are the same llama.cpp.
    pub fn is(&self, other: &Self) -> bool {
        ptr::eq(self.known, other.known)
            && self.sampler_init as usize == other.sampler_init as usize
    }

    /// Returns the host's function `name`, or an error that names it.
    pub(in crate::ffi) fn function(&self, name: Name) -> Result<Address, String> {
        let Name { index, text } = name;
        #[cfg(test)]
        if let Some(found) = mock_host::function(text) {
            return found.ok_or_else(|| Self::lacks(text));
        }
        let found = self.known.seen.functions.get(index).copied().flatten();
        found.ok_or_else(|| Self::lacks(text))
    }

    /// Returns the address of the host's `llama_sampler_init`.
    pub(super) fn address(&self) -> Address {
        self.known.seen.sampler_init
    }

    fn lacks(name: &CStr) -> String {
        let name = name.to_string_lossy();
        format!("the llama.cpp of this process has no {name}: it is too old, or was stripped of it")
    }

    fn new(known: &'static Known) -> Self {
        // SAFETY: found under the name llama_sampler_init, whose signature is the same in every
        // llama.cpp that exports it.
        let sampler_init = unsafe {
            std::mem::transmute::<*mut c_void, SamplerInit>(known.seen.sampler_init.as_ptr())
        };
        Self {
            sampler_init,
            known,
        }
    }

    #[cfg(test)]
    fn mocked(sampler_init: SamplerInit) -> Self {
        static NOTHING: Known = Known {
            seen: Seen {
                sampler_init: Address::dangling(),
                functions: [None; NAMES.len()],
                stays: true,
                has_libcxx: false,
            },
            as_of: AtomicU64::new(0),
            profile: AtomicU32::new(0),
        };
        Self {
            sampler_init,
            known: &NOTHING,
        }
    }
}

/// Evaluates to the host's function with this name, as a function pointer of this type; returns the
/// error if the host lacks it. A name that is not one of [`linker::NAMES`] does not compile.
///
/// The type must be the function's signature in every llama.cpp that has it.
macro_rules! host_function {
    ($host:expr, $name:literal, $signature:ty) => {{
        let name = $crate::ffi::host::linker::host_name!($name);
        let address: std::ptr::NonNull<std::ffi::c_void> = $host.function(name)?;
        // SAFETY: the host's function of that name, whose signature does not change.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, $signature>(address.as_ptr()) }
    }};
}
pub(crate) use host_function;
