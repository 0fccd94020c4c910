//! The llama.cpp build of the host, if the host or the user states it.
//!
//! The arguments of some constructors have changed between builds. If a program calls them, its
//! calls prove the argument list (`certificate::layouts`), and the build only decides which list is
//! tested first. Without such a call, as in a trial with this library's arguments, the build has to
//! come from the user, from the version of a release, or from the build number that libllama-common
//! reports. A version that ends in "-dev" is not sufficient, since all builds between two releases
//! have it. A build number that is too small is not sufficient either: builds outside a complete
//! git checkout report such numbers.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::environment;
use crate::ffi::host::linker::{Name, host_name};
use crate::ffi::host::{Host, search};

/// A build number whose argument lists are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Build(u32);

/// The first build that accepts samplers that other libraries have made.
const OLDEST: Build = Build(4_662);

/// The build of release 0.6.0, with which this library was compared. Every constructor has its
/// newest argument list.
const RELEASE_0_6_0: Build = Build(11_434);

/// The first build whose penalties take `n_vocab`. Earlier builds, since b4335, take only the four
/// arguments after it.
const PENALTIES_TAKE_N_VOCAB: Build = Build(10_258);

/// The first build whose DRY no longer takes `n_ctx_train` as its second argument, as builds since
/// b4463 do.
const DRY_WITHOUT_N_CTX_TRAIN: Build = Build(10_273);

/// Functions whose export proves that a build number is at least this one, the newest function
/// first.
const SIGNS: [(Name, Build); 3] = [
    (host_name!(c"llama_version"), Build(10_394)),
    (host_name!(c"llama_sampler_copy"), Build(10_355)),
    (host_name!(c"llama_set_sampler"), Build(7_627)),
];

/// Releases, each with a build number that is not above its own.
const RELEASES: [(&CStr, Build); 2] = [(c"0.5.0", Build(10_394)), (c"0.6.0", RELEASE_0_6_0)];

/// Returns the build number in a text such as `10300` or `b10300`, or that of a known release, such
/// as `0.6.0` or `v0.6.0`.
pub fn number(text: &str) -> Option<u32> {
    let version = text.strip_prefix('v').unwrap_or(text).as_bytes();
    let release = RELEASES
        .iter()
        .find(|(known, _)| known.to_bytes() == version);
    let build = || text.strip_prefix('b').unwrap_or(text).parse().ok();
    release.map(|&(_, Build(build))| build).or_else(build)
}

/// Returns the build number that the user names (`LLAMA_SIEVE_HOST`).
pub fn named() -> Option<u32> {
    number(environment::variable("LLAMA_SIEVE_HOST")?.trim())
}

impl Build {
    /// A build with the newest argument list of every constructor.
    #[cfg(all(any(target_os = "linux", windows), not(miri)))]
    pub(in crate::ffi) const NEW_LISTS: Self = RELEASE_0_6_0;

    /// A build with the older argument list of every constructor that has two.
    #[cfg(all(any(target_os = "linux", windows), not(miri)))]
    pub(in crate::ffi) const OLD_LISTS: Self = OLDEST;

    /// Returns the build of `host`, or the reason why it is not known. `named` is the build that
    /// the user names.
    pub fn of(host: &Host, named: Option<u32>) -> Result<Self, String> {
        let proven = SIGNS.iter().find(|(sign, _)| host.function(*sign).is_ok());
        if let Some(named) = named {
            return Self(named).fits(proven);
        }
        let told = of_release(host)
            .or_else(|| number_told(host))
            .filter(|build| build.fits(proven).is_ok());
        told.ok_or_else(|| {
            "this llama.cpp does not tell its build number; if you know it, set LLAMA_SIEVE_HOST \
             to it"
                .to_owned()
        })
    }

    /// Returns this build if the host's exports do not exclude it and if it accepts samplers that
    /// other libraries have made; otherwise the reason why not.
    fn fits(self, proven: Option<&(Name, Self)>) -> Result<Self, String> {
        let Self(build) = self;
        if let Some((sign, since)) = proven.filter(|(_, since)| self < *since) {
            // A missing symbol may have other reasons than an old build, but an exported one proves
            // that the build is not older.
            return Err(format!(
                "this llama.cpp is said to be b{build}, but exports {}, which came with b{}",
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
        Ok(self)
    }

    /// Returns true if the arguments of the build's penalties begin with `n_vocab`.
    pub fn penalties_take_n_vocab(self) -> bool {
        self >= PENALTIES_TAKE_N_VOCAB
    }

    /// Returns true if the build's DRY takes `n_ctx_train` after the vocabulary.
    pub fn dry_takes_n_ctx_train(self) -> bool {
        self < DRY_WITHOUT_N_CTX_TRAIN
    }
}

/// Returns the build of the release whose version the host reports.
fn of_release(host: &Host) -> Option<Build> {
    type Version = unsafe extern "C" fn() -> *const c_char;
    let version = host.function(host_name!(c"llama_version")).ok()?;
    // SAFETY: the host's function of that name, which has no arguments and returns a literal.
    let version = unsafe {
        let version = std::mem::transmute::<*mut c_void, Version>(version.as_ptr())();
        (!version.is_null()).then(|| CStr::from_ptr(version))?
    };
    let known = RELEASES.iter().find(|(known, _)| *known == version);
    known.map(|&(_, build)| build)
}

/// Returns the build number that libllama-common reports. Its C++ functions have no arguments, so
/// they can be called like C functions. A library that was built outside a git checkout reports 0
/// or 1.
fn number_told(host: &Host) -> Option<Build> {
    const NAMES: [&CStr; 2] = [c"_Z18llama_build_numberv", c"llama_build_number"];
    type Number = unsafe extern "C" fn() -> c_int;
    let number = search::beside(host.address(), &NAMES)?;
    // SAFETY: a function of that name, which has no arguments and returns a number.
    let number = unsafe { std::mem::transmute::<*mut c_void, Number>(number.as_ptr())() };
    u32::try_from(number).ok().map(Build)
}

#[cfg(test)]
mod tests;
