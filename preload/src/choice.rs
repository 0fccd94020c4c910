//! Ours or the host's? Decided at each call; for one host and one constructor the answer never changes, since what goes into it does not.
//!
//! Why that matters: inside llama.cpp the clone functions of built-in samplers call these very constructors, and then write their own state
//! into what they got. A call that comes from inside llama.cpp therefore gets llama.cpp's own sampler. (One that ends its function may look as if
//! it came from that function's caller; but then nothing more is written into the sampler, and ours will do.)

use std::ffi::c_void;
use std::fmt::{self, Debug, Write as _};
use std::io::Write as _;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use llama_sieve::ffi::library::{LLAMA_SIEVE_OK, llama_sieve_bind_host};
use llama_sieve::ffi::llama_h::llama_sampler;
use llama_sieve::{last_error, log};

use crate::era::{self, Constructor};
use crate::host_constructors::{Address, Host, caller, meant};
use crate::settings::settings;

/// The host that our samplers are made for, and its build; or why they cannot be.
///
/// A second llama.cpp in the process keeps its own samplers: the library knows one host at a time.
struct Served {
    host: Host,
    build: Result<u32, String>,
}

/// The first llama.cpp that asked.
static SERVED: OnceLock<Served> = OnceLock::new();

/// The llama.cpp that a call from `caller` was meant for and its build, if ours may stand in for its samplers.
pub fn served(caller: Option<Address>) -> Result<(Host, u32), String> {
    let host = Host::of(caller).ok_or("no llama.cpp was found in this process")?;
    let served = SERVED.get().unwrap_or_else(|| serve(host));
    if !served.host.is(&host) {
        return Err("there are several llama.cpp in this process, and ours serve the first".into());
    }
    Ok((host, served.build.clone()?))
}

fn serve(host: Host) -> &'static Served {
    // Not inside the initialiser, for the same reason as in `Host::remembered`.
    let build = era::build_of(settings().host_build, |symbol| host.exports(symbol));
    let served = SERVED.get_or_init(|| Served { host, build });
    if served.build.is_ok() {
        // SAFETY: a live handle that is never closed.
        let bound = unsafe { llama_sieve_bind_host(served.host.handle()) };
        debug_assert_eq!(bound, LLAMA_SIEVE_OK, "its exports were looked at");
    }
    served
}

/// An argument of a constructor.
pub trait Argument: Debug {
    /// Whether ours give it the built-in's meaning: of numbers that are not finite, they make nothing.
    fn is_finite(&self) -> bool {
        true
    }
}

impl Argument for f32 {
    fn is_finite(&self) -> bool {
        f32::is_finite(*self)
    }
}

impl Argument for i32 {}
impl Argument for u32 {}
impl Argument for usize {}
impl<T> Argument for *const T {}

/// Why the host's own is made.
enum Reason {
    /// As asked for; nobody needs to be told.
    Wanted(&'static str),
    /// Not to be expected: told once per process.
    Unexpected(String),
}

fn decide(call: &Call<'_>, caller: Option<Address>) -> Result<u32, Reason> {
    let Call {
        constructor,
        arguments,
    } = call;
    if !settings().selects(constructor) {
        return Err(Reason::Wanted("LLAMA_SIEVE_PRELOAD says so"));
    }
    let (host, build) = served(caller).map_err(Reason::Unexpected)?;
    if caller.is_some_and(|caller| host.contains(caller)) {
        return Err(Reason::Wanted("called by llama.cpp itself"));
    }
    if !arguments.iter().all(|(_, value)| value.is_finite()) {
        return Err(Reason::Wanted("an argument is not finite"));
    }
    if build < constructor.since {
        return Err(Reason::Wanted(
            "it draws other random numbers in this build",
        ));
    }
    Ok(build)
}

/// Makes a sampler: with `ours`, which gets the host's build number, or with `theirs`, which gets the address of the host's constructor.
pub fn make(
    constructor: &Constructor,
    arguments: &[(&str, &dyn Argument)],
    ours: impl FnOnce(u32) -> *mut llama_sampler,
    theirs: impl FnOnce(*mut c_void) -> *mut llama_sampler,
) -> *mut llama_sampler {
    let caller = caller();
    let call = Call {
        constructor,
        arguments,
    };
    let reason = match decide(&call, caller) {
        Ok(build) => {
            let sampler = ours(build);
            if !sampler.is_null() {
                call.report(&"ours");
                return sampler;
            }
            last_error::get()
        }
        Err(Reason::Wanted(text)) => text.to_owned(),
        Err(Reason::Unexpected(text)) => {
            warn_once(&text);
            text
        }
    };
    let Some(address) = meant(constructor.symbol, caller) else {
        call.report(&format_args!(
            "none, llama.cpp's own was not found: {reason}"
        ));
        let symbol = constructor.symbol.to_string_lossy();
        log::error(&format!(
            "{symbol}: llama.cpp's own was not found ({reason})"
        ));
        return null_mut();
    };
    let sampler = theirs(address.as_ptr());
    call.report(&format_args!("llama.cpp's own: {reason}"));
    sampler
}

/// One warning per process: what is wrong is wrong for every sampler.
fn warn_once(text: &str) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        log::warn(&format!(
            "preload: llama.cpp's own samplers are used: {text}"
        ));
    }
}

/// What was asked for.
struct Call<'a> {
    constructor: &'a Constructor,
    arguments: &'a [(&'a str, &'a dyn Argument)],
}

impl Call<'_> {
    /// For `LLAMA_SIEVE_VERBOSE`.
    fn report(&self, outcome: &dyn fmt::Display) {
        if settings().verbose {
            // One write: lines of several threads stay whole. Not eprintln!, which panics where stderr is closed.
            let line = format!("llama-sieve: preload: {self}: {outcome}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.constructor.name)?;
        f.write_char('(')?;
        for (i, (name, value)) in self.arguments.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{name}={value:?}")?;
        }
        f.write_char(')')
    }
}
