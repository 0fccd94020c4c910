//! Which build of llama.cpp the host is, where that can be known.
//!
//! The arguments of some constructors have changed, and a wrong guess reads an integer as a
//! pointer. So a build counts only if it has been tested, or lies between tested ones: by its
//! release's version, by the build number that libllama-common tells, by the build id of a library
//! that was tried, or because the user names it. The version of anything but a release ends in
//! "-dev" and says nothing: it is that of all builds until the next release.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;

use crate::environment;
use crate::ffi::host::linker::{Name, host_name};
use crate::ffi::host::{Host, search};

/// A build number whose argument lists are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Build(u32);

/// The first build that takes samplers of others.
const OLDEST: Build = Build(4_662);

/// The newest build that was tested, which is release 0.6.0.
const NEWEST: Build = Build(11_434);

/// The first build whose penalties take `n_vocab`, before the four arguments they have had since
/// b4335.
const PENALTIES_TAKE_N_VOCAB: Build = Build(10_258);

/// The first build whose dry does not take `n_ctx_train` as second argument any more, as it has
/// since b4463.
const DRY_WITHOUT_N_CTX_TRAIN: Build = Build(10_273);

/// Exports that bound a build number from below, the youngest first.
const SIGNS: [(Name, Build); 3] = [
    (host_name!(c"llama_version"), Build(10_394)),
    (host_name!(c"llama_sampler_copy"), Build(10_355)),
    (host_name!(c"llama_set_sampler"), Build(7_627)),
];

/// The releases that were tested, and a build number that is no larger than theirs.
const RELEASES: [(&CStr, Build); 2] = [(c"0.5.0", Build(10_394)), (c"0.6.0", NEWEST)];

/// Libraries that were tested, by the build id that their linker gave them: those that Node's
/// prebuilt packages of node-llama-cpp 3.22.1 and 3.20.0 hold for x86-64.
const LIBRARIES: [([u8; 20], Build); 2] = [
    (
        [
            0x3b, 0x71, 0xad, 0x7d, 0x7c, 0x18, 0x48, 0x2d, 0x74, 0xc4, 0x53, 0xdc, 0x90, 0xea,
            0x6e, 0xa2, 0x95, 0x8d, 0xa5, 0x2a,
        ],
        Build(10_394),
    ),
    (
        [
            0x85, 0xc9, 0xeb, 0xaf, 0x21, 0x9f, 0x0d, 0xda, 0x26, 0xb7, 0xf1, 0xa3, 0x06, 0xa4,
            0xe1, 0x17, 0xed, 0xdb, 0xee, 0xe1,
        ],
        Build(10_361),
    ),
];

/// The build number in a text like `10300` or `b10300`, or that of a tested release, as `0.6.0` or
/// `v0.6.0`.
pub fn number(text: &str) -> Option<u32> {
    let version = text.strip_prefix('v').unwrap_or(text).as_bytes();
    let release = RELEASES
        .iter()
        .find(|(known, _)| known.to_bytes() == version);
    let build = || text.strip_prefix('b').unwrap_or(text).parse().ok();
    release.map(|&(_, Build(build))| build).or_else(build)
}

/// The build number that the user names (`LLAMA_SIEVE_HOST`).
pub fn named() -> Option<u32> {
    number(environment::variable("LLAMA_SIEVE_HOST")?.trim())
}

impl Build {
    /// The build of `host`, or why its argument lists are not known. `named` is what the user says.
    pub fn of(host: &Host, named: Option<u32>) -> Result<Self, String> {
        let proven = SIGNS.iter().find(|(sign, _)| host.function(*sign).is_ok());
        if let Some(named) = named {
            return Self(named).fits(proven);
        }
        let told = of_release(host)
            .or_else(|| number_told(host))
            .filter(|build| build.fits(proven).is_ok());
        told.or_else(|| of_library(host)).ok_or_else(|| {
            "this llama.cpp is none of those that were tested; if you know its build number, set \
             LLAMA_SIEVE_HOST to it"
                .to_owned()
        })
    }

    /// Whether a host that exports this sign may be this build, and whether it is a known one.
    fn fits(self, proven: Option<&(Name, Self)>) -> Result<Self, String> {
        let Self(build) = self;
        if let Some((sign, since)) = proven.filter(|(_, since)| self < *since) {
            // A symbol may be lacking for other reasons than age, but one that is there proves it.
            return Err(format!(
                "LLAMA_SIEVE_HOST says b{build}, but this llama.cpp exports {}, which came with \
                 b{}",
                sign.text.to_string_lossy(),
                since.0
            ));
        }
        if self < OLDEST {
            return Err(format!(
                "b{build} is older than b{}, the first that takes samplers of others",
                OLDEST.0
            ));
        }
        if self > NEWEST {
            return Err(format!(
                "b{build} is newer than b{}, the last that was tested",
                NEWEST.0
            ));
        }
        Ok(self)
    }

    /// Whether its penalties begin with `n_vocab`.
    pub fn penalties_take_n_vocab(self) -> bool {
        self >= PENALTIES_TAKE_N_VOCAB
    }

    /// Whether its dry takes `n_ctx_train` after the vocabulary.
    pub fn dry_takes_n_ctx_train(self) -> bool {
        self < DRY_WITHOUT_N_CTX_TRAIN
    }
}

/// By the version of a release.
fn of_release(host: &Host) -> Option<Build> {
    type Version = unsafe extern "C" fn() -> *const c_char;
    let version = host.function(host_name!(c"llama_version")).ok()?;
    // SAFETY: the host's function of that name, which takes nothing and returns a literal.
    let version = unsafe {
        let version = std::mem::transmute::<*mut c_void, Version>(version.as_ptr())();
        (!version.is_null()).then(|| CStr::from_ptr(version))?
    };
    let known = RELEASES.iter().find(|(known, _)| *known == version);
    known.map(|&(_, build)| build)
}

/// By the number that libllama-common tells: C++ functions that take nothing, so that they are
/// called as those of C are. One that was built outside a git checkout tells 0 or 1.
fn number_told(host: &Host) -> Option<Build> {
    const NAMES: [&CStr; 2] = [c"_Z18llama_build_numberv", c"llama_build_number"];
    type Number = unsafe extern "C" fn() -> c_int;
    let number = search::beside(host.address(), &NAMES)?;
    // SAFETY: a function of that name, which takes nothing and returns a number.
    let number = unsafe { std::mem::transmute::<*mut c_void, Number>(number.as_ptr())() };
    u32::try_from(number).ok().map(Build)
}

/// By the build id of the library itself.
fn of_library(host: &Host) -> Option<Build> {
    let id = build_id(host.sampler_init as usize)?;
    let known = LIBRARIES.iter().find(|(known, _)| *known == id);
    known.map(|&(_, build)| build)
}

/// The build id of what `address` is in, if it is one of 20 bytes.
#[cfg(target_os = "linux")]
fn build_id(address: usize) -> Option<[u8; 20]> {
    struct Search {
        address: usize,
        found: Option<[u8; 20]>,
    }
    /// What the program headers of this architecture look like.
    #[cfg(target_pointer_width = "64")]
    type Header = libc::Elf64_Phdr;
    #[cfg(target_pointer_width = "32")]
    type Header = libc::Elf32_Phdr;
    unsafe extern "C" fn collect(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid entry, and back the pointer to the search below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: not NULL, and the dynamic linker passes as many headers as it says.
        let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let start =
            |header: &Header| (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let holds = |header: &&Header| {
            let offset = search.address.wrapping_sub(start(header));
            header.p_type == libc::PT_LOAD && offset < header.p_memsz as usize
        };
        if !headers.iter().any(|header| holds(&header)) {
            return 0;
        }
        for header in headers.iter().filter(|h| h.p_type == libc::PT_NOTE) {
            // SAFETY: a segment of a loaded library, which stays loaded during the callback.
            let notes = unsafe {
                slice::from_raw_parts(start(header) as *const u8, header.p_memsz as usize)
            };
            search.found = search.found.or_else(|| build_id_in(notes));
        }
        1
    }
    let mut search = Search {
        address,
        found: None,
    };
    // SAFETY: the callback matches, and the search outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut search).cast()) };
    search.found
}

#[cfg(not(target_os = "linux"))]
fn build_id(_address: usize) -> Option<[u8; 20]> {
    None
}

/// The first build id among ELF notes: sizes of name and content, type, and both padded to 4 bytes.
#[cfg_attr(not(target_os = "linux"), expect(dead_code))]
fn build_id_in(mut notes: &[u8]) -> Option<[u8; 20]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut take = |n: usize| {
        let (taken, rest) = notes.split_at_checked(n)?;
        notes = rest.get((n.next_multiple_of(4) - n).min(rest.len())..)?;
        Some(taken)
    };
    loop {
        let mut word = || Some(u32::from_ne_bytes(take(4)?.try_into().ok()?));
        let (name, content, kind) = (word()?, word()?, word()?);
        let name = take(name as usize)?;
        let content = take(content as usize)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return content.try_into().ok();
        }
    }
}

#[cfg(test)]
mod tests;
