//! Checks by trial that the host's own samplers equal this library's.
//!
//! Built-ins have changed: other random streams for the same seed, other orders, other rounding
//! where a compiler fuses multiplications and additions. So before this library's sampler replaces
//! one of them, both are made with the same arguments and applied to the same arrays, and all
//! results must be equal, bit for bit. The arrays distinguish the builds. They have one candidate,
//! for which older builds draw nothing; several draws in a row; ties, which reveal the order that a
//! sort leaves; products and sums that are rounded differently if they are fused, with a visible
//! effect; sizes on both sides of the kernels' thresholds; and probabilities without rounding,
//! which meet a bound exactly. The arguments include those at which a sampler changes its
//! behaviour. The comparison then continues with clones, copies and samplers after a reset.
//!
//! The host's functions are called outside the guard, so that their exceptions pass through.

mod arrays;
mod codes;
mod compare;
mod kinds;
#[cfg(all(any(target_os = "linux", windows), not(miri)))]
pub mod layouts;

use std::ffi::{c_char, c_int};

use crate::errors::{LLAMA_SIEVE_ERROR_INTERNAL, LLAMA_SIEVE_ERROR_NOT_FOUND, LLAMA_SIEVE_OK};
use crate::ffi::failure::{Failure, answer};
use crate::ffi::guard::guard;
use crate::ffi::host::build::{Build, named};
use crate::ffi::host::built_ins::{Free, free_of};
use crate::ffi::host::profile;
use crate::ffi::host::vocabulary::c_bytes;
use crate::ffi::host::{Address, Host, host_function};
use crate::host_profile::{HostProfile, Libm, Sort};
use crate::quoted::quoted;
use crate::token::TokenData;

use arrays::*;
pub use codes::*;
use compare::*;
use kinds::*;

/// Compares this library's sampler with the host's own sampler of the same name, as
/// llama_sieve_certify_build does for an unknown build.
///
/// # Safety
/// `sampler_name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_certify(sampler_name: *const c_char) -> c_int {
    // SAFETY: the caller guarantees the name.
    unsafe { certified("llama_sieve_certify", sampler_name, None) }
}

/// Compares this library's sampler with the host's own sampler of the same name on small arrays.
/// The name is the one that llama_sampler_name returns, such as "top-k". The result holds as long
/// as the host stays loaded.
///
/// Arguments of constructors depend on the host's build. `build` is its number, which is used
/// unless the host's exports rule it out. If it is 0 or less, the function tries to determine the
/// build. The environment variable LLAMA_SIEVE_HOST has precedence.
///
/// Returns LLAMA_SIEVE_OK if all results were equal, bit for bit; LLAMA_SIEVE_CERTIFY_* (above 0)
/// if not, or if the sampler could not be tested; or a negative LLAMA_SIEVE_ERROR_* if the name is
/// NULL or not that of a built-in sampler, if there is no host, or if the host has no such sampler.
/// llama_sieve_last_error says more. An exception that the host throws passes through.
///
/// # Safety
/// `sampler_name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_certify_build(
    sampler_name: *const c_char,
    build: c_int,
) -> c_int {
    let build = u32::try_from(build).ok().filter(|&build| build > 0);
    // SAFETY: the caller guarantees the name.
    unsafe { certified("llama_sieve_certify_build", sampler_name, build) }
}

/// Compares this library's sampler with the host's own sampler of the same name, as
/// [`llama_sieve_certify_build`] documents.
///
/// # Safety
/// `sampler_name` is NULL or a C string.
unsafe fn certified(call: &str, sampler_name: *const c_char, build: Option<u32>) -> c_int {
    let mut trials = None;
    let mut known = None;
    let prepared = answer(call, || {
        if sampler_name.is_null() {
            return Err(Failure::null("the name"));
        }
        // SAFETY: not NULL, and the caller guarantees a C string.
        let name = unsafe { c_bytes(sampler_name) };
        let name = String::from_utf8_lossy(name);
        let host = no_host(Host::get())?;
        let told = named().or(build);
        known = told.and_then(|told| Build::of(&host, Some(told)).ok());
        trials = Some(Trials::new(&name, &host, || {
            Build::of(&host, named().or(build))
        })?);
        Ok(())
    });
    let Some(mut trials) = trials.filter(|_| prepared == LLAMA_SIEVE_OK) else {
        return prepared;
    };
    if profile::settle(known).is_none() {
        return LLAMA_SIEVE_ERROR_INTERNAL;
    }
    // SAFETY: the host that was found is loaded.
    let verdict = unsafe { trials.run() };
    answer(call, || verdict)
}

fn no_host<T>(found: Result<T, String>) -> Result<T, Failure> {
    found.map_err(Failure::no_host)
}

/// Compares this library's sampler named `name` with the bound host's own; `build` is the host's
/// build, if it is known. The error describes the difference, or the reason why the two could not
/// be compared.
pub fn certify(name: &str, build: Option<Build>) -> Result<(), String> {
    // For other kinds `build` may be any build with the same argument list, so it shows nothing
    // about the host's arithmetic.
    let build_of_kind = build.filter(|_| name == "penalties");
    profile::settle(build_of_kind).ok_or("internal error")?;
    let prepared = guard(
        "certify",
        || Err("internal error".to_owned()),
        || {
            let build = || build.ok_or_else(|| "its build is not known".to_owned());
            let trials = Trials::new(name, &Host::get()?, build);
            trials.map_err(|failure| failure.text().to_owned())
        },
    );
    // SAFETY: the bound host is loaded.
    let verdict = unsafe { prepared?.run() };
    verdict.map_err(|failure| failure.text().to_owned())
}

fn copy_to(host: &Host) -> Result<CopyTo, String> {
    Ok(host_function!(host, c"llama_sampler_copy", CopyTo))
}

/// The samplers that sort, at least on some arrays, and leave ties in the order of the sort.
const SORTING: [&str; 8] = [
    "top-k",
    "top-p",
    "min-p",
    "typical",
    "temp-ext",
    "xtc",
    "mirostat",
    "mirostat-v2",
];

/// The samplers that need a vocabulary.
const WITH_VOCABULARY: [&str; 2] = ["infill", "grammar"];

/// Everything needed to test a kind, so that this library cannot fail between calls of the host.
struct Trials {
    kind: &'static Kind,
    constructor: Address,
    free: Free,
    /// The host's `llama_sampler_copy`; `None` for older hosts.
    copy: Option<CopyTo>,
    arrays: Vec<Array>,
    few: Vec<Array>,
    /// The candidates for the host's sampler, and those for this library's.
    work: [Vec<TokenData>; 2],
}

impl Trials {
    fn new(
        name: &str,
        host: &Host,
        build: impl Fn() -> Result<Build, String>,
    ) -> Result<Self, Failure> {
        if WITH_VOCABULARY.contains(&name) {
            let text = format!("{name} asks a vocabulary, and cannot be tried without one");
            return Err(Failure::new(LLAMA_SIEVE_CERTIFY_VOCABULARY, text));
        }
        let mut kinds = KINDS.iter().filter(|kind| kind.name == name).peekable();
        if kinds.peek().is_none() {
            let text = format!("no built-in sampler is named {}", quoted(name));
            return Err(Failure::new(LLAMA_SIEVE_ERROR_NOT_FOUND, text));
        }
        let mut kind = None;
        for one in kinds {
            let fits = match one.takes {
                None => true,
                Some(takes) => takes(build().map_err(|text| {
                    let text = format!("{name}: its arguments are not known: {text}");
                    Failure::new(LLAMA_SIEVE_CERTIFY_ARGUMENTS, text)
                })?),
            };
            if fits {
                kind = Some(one);
            }
        }
        let kind = kind.ok_or_else(Failure::caught)?;
        Ok(Self {
            kind,
            constructor: no_host(host.function(kind.constructor))?,
            free: no_host(free_of(host))?,
            copy: copy_to(host).ok(),
            arrays: shapes_for(name).map(Shape::array).collect(),
            few: FEW.map(Shape::array).into(),
            work: [Vec::with_capacity(LARGEST), Vec::with_capacity(LARGEST)],
        })
    }

    /// Runs all trials, up to the first difference.
    ///
    /// # Safety
    /// The host is loaded.
    unsafe fn run(&mut self) -> Result<(), Failure> {
        let name = self.kind.name;
        let current = HostProfile::current();
        let of_another = current.libm == Libm::Other;
        // A C library that differs in the last bit of one result in a thousand may not be noticed
        // on these arrays.
        if of_another && !profile::WITHOUT_LIBM.contains(&name) {
            let text = format!(
                "{name}: llama.cpp's own takes exponentials, logarithms or powers of another C \
                 library than this process has, and last bits differ"
            );
            return Err(Failure::new(LLAMA_SIEVE_CERTIFY_PROBABILITIES, text));
        }
        if SORTING.contains(&name) && current.sort == Sort::Stable {
            let text = format!("{name}: llama.cpp's own leaves ties in no order that is known");
            return Err(Failure::new(LLAMA_SIEVE_CERTIFY_IDS, text));
        }
        for trial in 0.. {
            // SAFETY: the kind's constructor, of a host that is loaded.
            let Some(made) = (unsafe { (self.kind.make)(self.constructor.as_ptr(), trial) }) else {
                break;
            };
            let pair = Pair {
                made,
                free: self.free,
            };
            let arrays = match trial {
                0 => &self.arrays,
                _ => &self.few,
            };
            // SAFETY: the samplers were just made, and the function is their host's.
            let found = unsafe { pair.compare(arrays, &self.few, self.copy, &mut self.work) };
            drop(pair);
            if let Err(found) = found {
                return Err(found.failure(self.kind.name));
            }
        }
        Ok(())
    }
}
