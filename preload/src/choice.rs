//! Decides for each call of a constructor whether this library's sampler or the host's is made.
//!
//! The clone functions of llama.cpp's built-in samplers call these constructors, and then write
//! their own state into the result. A call from llama.cpp's samplers therefore gets llama.cpp's
//! own: see `callers`. (A tail call appears to come from the caller of the function that makes it.
//! But such a function writes nothing more into the sampler, so this library's sampler can be
//! used.)
//!
//! This library's sampler is made if the host's own was found to compute the same results
//! (`certificate`). If the arguments have changed between builds or include pointers, the program's
//! calls must also have shown the argument list (`certificate::layouts`). Until then each call
//! first goes to the host's own constructor, and its sampler is replaced if that shows the list.
//! Grammars are instead compared on the given vocabulary (`grammar::proof`).
//!
//! No function of the host that could throw is called inside `guard`.

use std::cell::{Cell, OnceCell};
use std::ffi::{CStr, c_void};
use std::fmt::{self, Debug, Write as _};
use std::ops::Range;
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use llama_sieve::errors::LLAMA_SIEVE_ERROR_NO_HOST;
use llama_sieve::ffi::certificate::certify;
use llama_sieve::ffi::certificate::layouts::{self, Changing, Layouts, Settled, Verdict};
use llama_sieve::ffi::chain::switched_off;
use llama_sieve::ffi::guard::guard;
use llama_sieve::ffi::host::Host;
use llama_sieve::ffi::host::build::Build;
use llama_sieve::ffi::host::libraries::Address;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::host::profile;
use llama_sieve::last_error;
use llama_sieve::log;
use llama_sieve::sync::OnceLock;

use crate::callers::Functions;
use crate::constructors::{ALL, Constructor};
use crate::host_constructors::{
    MARK, Route, caller, functions_at, is_ours, library_at, own_of, own_of_any,
};
use crate::proof::{self, Entry};
use crate::routes::Function;
use crate::settings::{say, settings};
use crate::slots;
use crate::stubs::{Answer, Saved};
use crate::vocabularies;
use crate::watch::SAMPLED_PROBS;

/// The llama.cpp whose samplers are replaced.
///
/// If there is a second one in the process, it keeps its own samplers: this library serves one at a
/// time.
struct Served {
    /// The address at which this llama.cpp is loaded.
    base: usize,
    segments: Vec<Range<usize>>,
    /// The exported functions of this llama.cpp, determined at the first call from within it.
    functions: OnceLock<Functions>,
    /// The host, or `None` if this llama.cpp is too old to accept samplers of other libraries.
    host: Option<Host>,
    /// The build of this llama.cpp, or the reason why it is not known.
    build: Result<Build, String>,
    /// The result of each constructor's trial: equal samplers, or the difference.
    verdicts: [OnceLock<Result<(), String>>; ALL.len()],
    /// The argument lists that differ between builds, as far as the program's calls have shown
    /// them.
    layouts: [Layouts; Changing::all().len()],
}

/// The llama.cpp of the first call of [`served`] or, if that was unloaded, of the first one after
/// that. The object is never freed, so that reading it needs no lock.
static SERVED: AtomicPtr<Served> = AtomicPtr::new(null_mut());

impl Served {
    /// Returns the llama.cpp that is served, if it is still loaded.
    fn get() -> Option<&'static Self> {
        Self::last().filter(|served| served.host.is_none_or(|host| host.is_there()))
    }

    fn last() -> Option<&'static Self> {
        // SAFETY: NULL, or a pointer to an object that is never freed.
        unsafe { SERVED.load(Ordering::Acquire).as_ref() }
    }

    fn new(base: usize) -> Self {
        let (segments, sampler_init) = library_at(base, c"llama_sampler_init");
        let host = sampler_init.map(Host::bind_at);
        let build = match &host {
            Some(host) => Build::of(host, settings().host_build),
            None => Err(String::new()),
        };
        Self {
            base,
            segments,
            functions: OnceLock::new(),
            host,
            build,
            verdicts: [const { OnceLock::new() }; ALL.len()],
            layouts: Changing::all().map(Layouts::new),
        }
    }

    fn layouts(&self, changing: Changing) -> &Layouts {
        let [penalties, dry, logit_bias, infill] = &self.layouts;
        match changing {
            Changing::Penalties => penalties,
            Changing::Dry => dry,
            Changing::LogitBias => logit_bias,
            Changing::Infill => infill,
        }
    }

    /// True if the address is in the code of this llama.cpp's samplers, and not in that of a
    /// program in the same library.
    fn samples_at(&self, address: Address) -> bool {
        let place = address.as_ptr() as usize;
        if !self.segments.iter().any(|part| part.contains(&place)) {
            return false;
        }
        let functions = self.functions.get_or_init(|| functions_at(self.base));
        functions.are_samplers_at(address)
    }
}

/// Returns the llama.cpp that a call from `caller` was meant for, or the reason why its samplers
/// cannot be replaced.
fn served(caller: Option<Address>) -> Result<&'static Served, String> {
    static CHAIN_INIT: Function = Function::new(MARK);
    let way = CHAIN_INIT.route_from(caller);
    let way = way.ok_or("no llama.cpp was found in this process")?;
    let served = Served::get().unwrap_or_else(|| serve(way.base));
    if served.base != way.base {
        return Err("there are several llama.cpp in this process, and ours serve the first".into());
    }
    if served.host.is_none() {
        return Err(
            "this llama.cpp is older than b4662, the first that takes samplers of others".into(),
        );
    }
    // A call of `llama_sieve_bind_host` may have named another llama.cpp, since packages may have
    // only this library.
    if served.host.is_some_and(|host| host.gives_way()) {
        return Err(
            "llama_sieve_bind_host has named another llama.cpp, and ours serve that one".into(),
        );
    }
    Ok(served)
}

fn serve(base: usize) -> &'static Served {
    let before = SERVED.load(Ordering::Acquire);
    // Two threads that do this at once get equal results.
    let new = Box::into_raw(Box::new(Served::new(base)));
    let (kept, lost) =
        match SERVED.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => (new, None),
            Err(other) => (other, Some(new)),
        };
    if let Some(lost) = lost {
        // SAFETY: made above, and not yet known to any other code.
        drop(unsafe { Box::from_raw(lost) });
    }
    // SAFETY: the object to which the pointer leads is never freed.
    unsafe { &*kept }
}

/// Returns the llama.cpp that is served, if it is loaded at this address.
fn served_at(base: usize) -> Option<&'static Served> {
    Served::last().filter(|served| served.base == base)?;
    Served::get().filter(|served| served.base == base)
}

/// True if calls that take this route reach the llama.cpp that is served.
pub fn is_served(way: Route) -> bool {
    served_at(way.base).is_some_and(|served| served.host.is_some())
}

/// True if calls of `entry` that take the route `way` may be sampled straight from the logits,
/// provided that their chain allows it.
pub fn serves(way: Route, entry: Entry) -> bool {
    let takes_ours = |served: &Served| served.host.is_some();
    // On Windows this library can be called only from outside the host's library, so it does not
    // see the calls within that library by which sampling is watched.
    !cfg!(windows)
        && settings().samples()
        && !slots::are_aside()
        && proof::may(entry)
        && served_at(way.base).is_some_and(takes_ours)
}

/// Returns the function that leads from the common library's sampler to its chain, for a call of
/// `common_sampler_sample` that takes this route; `None` if the call is to be passed on.
pub fn common_sampler_get(way: Route) -> Option<Route> {
    static GET: Function = Function::new(c"_Z18common_sampler_getPK14common_sampler");
    if Served::last().is_none() || slots::are_aside() {
        return None;
    }
    if !settings().samples() || !proof::may(Entry::Common) {
        return None;
    }
    let of_host = SAMPLED_PROBS.route_from(Some(way.address))?;
    let get = GET.route_from(Some(way.address))?;
    (serves(of_host, Entry::Common) && get.base == way.base).then_some(get)
}

/// An argument of a constructor.
pub trait Argument: Debug {
    /// True if the argument is not a number that is infinite or NaN. This library's samplers reject
    /// such numbers, which the built-ins accept.
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

/// The reason why the host's own sampler is used.
enum Reason {
    /// The user has excluded this kind of sampler.
    Unwanted,
    /// The call itself requires the host's sampler, or does not show enough to replace it. This
    /// needs no message.
    Wanted(&'static str),
    /// The sampler is made for a trial, not for the program.
    OfATrial,
    /// The arguments require the host's sampler. This needs no message either.
    Refused(String),
    /// An unexpected failure: reported once per process, whatever the sampler.
    Unexpected(String),
    /// An unexpected failure: reported once for each kind of sampler.
    OfThisKind(String),
    /// An unexpected failure that is reported like `OfThisKind`, but does not apply to all calls.
    OfSuchCalls(String),
}

impl Reason {
    fn internal() -> Self {
        Self::Unexpected(last_error::get())
    }

    fn text(&self) -> &str {
        match self {
            Self::Unwanted => "LLAMA_SIEVE_PRELOAD says so",
            Self::Wanted(text) => text,
            Self::OfATrial => "for a trial",
            Self::Refused(text)
            | Self::Unexpected(text)
            | Self::OfThisKind(text)
            | Self::OfSuchCalls(text) => text,
        }
    }
}

/// The caller's address, determined at its first use.
#[derive(Default)]
struct Caller(OnceCell<Option<Address>>);

impl Caller {
    fn get(&self) -> Option<Address> {
        *self.0.get_or_init(caller)
    }
}

/// Returns the llama.cpp for which this library's sampler is to be made, or the reason to make the
/// host's.
fn decide(call: &Call<'_>, (caller, by_host): (&Caller, bool)) -> Result<&'static Served, Reason> {
    let constructor = call.constructor;
    // During a trial nothing else is looked up.
    if TRYING.get() {
        return Err(Reason::OfATrial);
    }
    if slots::are_aside() {
        return Err(Reason::Wanted("llama_sieve_detach was called"));
    }
    if !settings().selects(constructor) {
        return Err(Reason::Unwanted);
    }
    let caller = caller.get();
    let served = served(caller).map_err(Reason::Unexpected)?;
    if by_host || caller.is_some_and(|caller| served.samples_at(caller)) {
        return Err(Reason::Wanted("called by llama.cpp itself"));
    }
    if !call.are_finite {
        return Err(Reason::Wanted("an argument is not finite"));
    }
    Ok(served)
}

/// Succeeds if this library's sampler gives the same results as the host's own, with the argument
/// list of this build, or if it cannot be tried. The trial is made once, outside the guard, since
/// the host may throw.
fn tried(constructor: &Constructor, served: &Served, build: Option<Build>) -> Result<(), Reason> {
    let place = ALL.iter().position(|known| ptr::eq(*known, constructor));
    let place = place.and_then(|i| served.verdicts.get(i));
    let Some(place) = place.filter(|_| constructor.can_be_tried) else {
        return Ok(());
    };
    let verdict = match place.get() {
        Some(verdict) => verdict,
        None => {
            // The trial is not made inside the initialiser of the cell, since the host's functions
            // in a trial may call this library. Two threads that make it at the same time get equal
            // results.
            let trying = Trying::begin();
            let verdict = certify(constructor.name, build);
            drop(trying);
            place.get_or_init(|| verdict)
        }
    };
    let aside = |text: &String| Reason::OfThisKind(text.clone());
    verdict.as_ref().map(|_| ()).map_err(aside)
}

/// Makes this library use the host's arithmetic. Must be called outside the guard, since the host
/// may throw.
fn settle() {
    let trying = Trying::begin();
    profile::settle(None);
    drop(trying);
}

/// The outcome of a call of a constructor.
enum Made {
    Ours(*mut llama_sampler),
    /// The result is NULL.
    Nothing,
    /// The host's sampler, which has already been made.
    Theirs(*mut llama_sampler, Reason),
}

thread_local! {
    static TRYING: Cell<bool> = const { Cell::new(false) };
}

/// A guard: while it exists, this thread's calls of constructors are part of a trial, and are
/// passed on to the host.
struct Trying {
    before: bool,
}

impl Trying {
    fn begin() -> Self {
        Self {
            before: TRYING.replace(true),
        }
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        TRYING.set(self.before);
    }
}

/// Returns the reason for a host that has none of the known argument lists.
fn of_no_known_list() -> Reason {
    let text = "its calls have none of the argument lists that are known";
    Reason::OfThisKind(text.into())
}

/// Returns the reason for a host whose samplers differ from this library's after a copy or a reset.
fn of_other_copies() -> Reason {
    let text = "its clones, or what is left of it after a reset, are something else than ours";
    Reason::OfThisKind(text.into())
}

/// Makes this library's sampler by the argument list of the host's constructor, if that list is
/// known or this call shows it. Otherwise returns the host's sampler, or the reason to make that.
/// Must be called outside the guard: it calls the host, which may throw.
fn made_by_list(
    call: &Call<'_>,
    (served, changing): (&Served, Changing),
    caller: &Caller,
    ours: &dyn Fn(usize) -> Result<Made, Reason>,
) -> Result<Made, Reason> {
    let layouts = served.layouts(changing);
    let proven = |list| tried(call.constructor, served, Some(changing.build_with(list)));
    match layouts.settled() {
        Settled::Proven(list) => {
            proven(list)?;
            return ours(list);
        }
        Settled::Refused => return Err(of_no_known_list()),
        Settled::CopiedOtherwise => return Err(of_other_copies()),
        Settled::Open => {}
    }
    let registers = call.saved.registers();
    let read = || Some(layouts.read(&registers, &vocabularies::is_one));
    let (read, known) = guard(call.constructor.name, || None, read).ok_or_else(Reason::internal)?;
    if let Some(list) = known {
        return ours(list);
    }
    let way = || Theirs::of(&call.constructor.function, caller);
    let Some(way) = guard(call.constructor.name, || None, way) else {
        return Err(Reason::Unexpected("llama.cpp's own was not found".into()));
    };
    let trying = Trying::begin();
    // SAFETY: the function that the call was meant for.
    let theirs = unsafe { call.saved.call(way.address) };
    drop(way);
    let kept = |text| Ok(Made::Theirs(theirs, Reason::Wanted(text)));
    if theirs.is_null() {
        return kept("it is NULL");
    }
    // SAFETY: just made.
    if unsafe { switched_off(theirs) } == Some(true) {
        return kept("switched off");
    }
    let named = served.build.as_ref().map(|&build| changing.list_of(build));
    // SAFETY: just made of this call.
    let verdict = unsafe { layouts.judge(&registers, &read, named.unwrap_or(0), theirs) };
    drop(trying);
    let ours = match verdict {
        Verdict::Ours(ours) => ours,
        Verdict::Undecided => return kept("its arguments do not show which list it has"),
        Verdict::Refused => return Ok(Made::Theirs(theirs, of_no_known_list())),
        Verdict::CopiedOtherwise => return Ok(Made::Theirs(theirs, of_other_copies())),
    };
    let differs = match layouts.settled() {
        Settled::Proven(list) => proven(list).err(),
        Settled::Open | Settled::Refused | Settled::CopiedOtherwise => None,
    };
    let (unwanted, made) = match differs {
        None => (theirs, Made::Ours(ours)),
        Some(reason) => (ours, Made::Theirs(theirs, reason)),
    };
    // SAFETY: made above, and not yet known to any other code.
    unsafe { layouts::free(unwanted) };
    Ok(made)
}

/// The outcome of making one of this library's samplers.
pub enum Ours {
    /// This library's sampler.
    Made(*mut llama_sampler),
    /// An unexpected failure, after which the host's own sampler is made. The last error says why.
    Failed,
    /// A refused grammar or pattern, which may come from a client of the program: the host's own
    /// constructor is to decide. The last error says why.
    Refused,
    /// The host's own sampler differs or may differ, and is made.
    Otherwise(String),
    /// A refusal, for which the result is NULL. The last error says why.
    Nothing,
}

impl From<*mut llama_sampler> for Ours {
    fn from(sampler: *mut llama_sampler) -> Self {
        match sampler.is_null() {
            true => Self::Failed,
            false => Self::Made(sampler),
        }
    }
}

/// A function of the host, which is to be called outside the guard.
pub struct Theirs {
    address: Address,
    /// True if this is llama.cpp's own function, whose calls back to this library cannot recurse
    /// forever.
    is_of_llama_cpp: bool,
    /// Counts the calls from the function back to this library, if they could recurse forever.
    _inside: Option<Inside>,
}

/// The deepest nesting of calls of one function, as for chains in chains, that is passed on.
const NESTED: usize = 1000;

impl Theirs {
    /// Returns the address to call.
    pub fn address(&self) -> *mut c_void {
        self.address.as_ptr()
    }

    /// Returns the function that a call of a stand-in was meant for; `None` if there is none.
    ///
    /// Other libraries may also intercept llama.cpp's functions, and pass a call back to this
    /// library. A call that comes back without having reached a llama.cpp is sent straight to one;
    /// if it comes back again, the result is `None`. Some calls come back legitimately: llama.cpp
    /// calls some functions for each member of a chain, which may be a chain itself, and a
    /// program's own samplers may call them for the samplers that they contain.
    fn of(function: &'static Function, caller: &Caller) -> Option<Self> {
        if let Some(route) = function.directly() {
            return Some(Self {
                address: route.address,
                is_of_llama_cpp: true,
                _inside: None,
            });
        }
        let symbol = function.symbol;
        let depth = Inside::depth_of(symbol);
        let nested = || own_of(symbol, caller.get().filter(|_| depth < NESTED)?);
        let (address, is_of_llama_cpp) = match depth {
            0 => {
                let route = function.route_from(caller.get())?;
                (route.address, route.to_llama_cpp)
            }
            1 => (nested().or_else(|| own_of_any(symbol))?, true),
            _ => (nested()?, true),
        };
        Some(Self {
            address,
            is_of_llama_cpp,
            _inside: Some(Inside::enter(symbol)),
        })
    }
}

/// A guard: while it exists, this thread is inside the host's function that was named to
/// [`enter`](Self::enter). It is dropped even if the function throws.
struct Inside {
    before: (Option<&'static CStr>, usize),
}

thread_local! {
    /// The function that this thread is in, and the number of calls of it that have not returned.
    static INSIDE: Cell<(Option<&'static CStr>, usize)> = const { Cell::new((None, 0)) };
}

impl Inside {
    fn depth_of(symbol: &CStr) -> usize {
        match INSIDE.get() {
            (Some(inside), depth) if inside == symbol => depth,
            _ => 0,
        }
    }

    fn enter(symbol: &'static CStr) -> Self {
        let before = INSIDE.get();
        INSIDE.set((Some(symbol), Self::depth_of(symbol) + 1));
        Self { before }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// An argument with its name in llama.h.
pub type Named<'a> = (&'static str, &'a dyn Argument);

/// A call of a constructor.
pub struct Call<'a> {
    pub constructor: &'static Constructor,
    pub saved: &'a Saved,
    /// Returns the arguments and their names, by the argument list with this index. `None` means
    /// that the list is unknown: integers whose names depend on it are left out.
    pub arguments: &'a dyn Fn(Option<usize>) -> Vec<Named<'a>>,
    /// True if this library's sampler treats the arguments as the built-in does.
    pub are_finite: bool,
}

/// True once a constructor was called.
static ASKED: AtomicBool = AtomicBool::new(false);

/// True once a constructor was called, whether it made this library's sampler or the host's.
pub fn was_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Decides on a call. Returns the sampler that `ours` makes, given the index of the argument list;
/// the host's function, if the call is to be passed on; or the sampler that the host's function has
/// already made.
pub fn choose<T: Into<Ours>>(call: &Call<'_>, ours: impl Fn(usize) -> T) -> Answer {
    if let Some(host) = call.constructor.aside() {
        return Answer::theirs(host);
    }
    ASKED.store(true, Ordering::Relaxed);
    let what = call.constructor.name;
    let from = call.saved.caller();
    // This library calls none of the constructors. So a return address in it belongs to a function
    // of the host's that this library has called, and that ends in a tail call of the constructor.
    let by_host = from.is_some_and(is_ours);
    let caller = match by_host {
        true => Caller::default(),
        false => Caller(OnceCell::from(from)),
    };
    let decided = guard(
        what,
        || Err(Reason::internal()),
        || decide(call, (&caller, by_host)),
    );
    // `ours` has a guard of its own, but calls functions of the host that may throw.
    let ours = |list| match ours(list).into() {
        Ours::Made(sampler) => Ok(Made::Ours(sampler)),
        Ours::Nothing => Ok(Made::Nothing),
        Ours::Failed => Err(Reason::internal()),
        Ours::Refused => Err(Reason::Refused(last_error::get())),
        Ours::Otherwise(text) => Err(Reason::OfSuchCalls(text)),
    };
    let made = decided.inspect(|_| settle());
    let made = made.and_then(|served| match call.constructor.changing {
        Some(changing) => made_by_list(call, (served, changing), &caller, &ours),
        None => tried(call.constructor, served, None).and_then(|()| ours(0)),
    });
    let nothing = Answer::made(null_mut());
    let chosen = guard(
        what,
        || Ok(nothing),
        || match made {
            Ok(Made::Ours(sampler)) => {
                call.report(&"ours");
                Ok(Answer::made(sampler))
            }
            Ok(Made::Nothing) => {
                call.report(&format_args!("none: {}", last_error::get()));
                Ok(nothing)
            }
            Ok(Made::Theirs(sampler, reason)) => {
                call.tell_theirs(&reason);
                Ok(Answer::made(sampler))
            }
            Err(reason) => match Theirs::of(&call.constructor.function, &caller) {
                Some(theirs) => {
                    call.tell_theirs(&reason);
                    call.step_aside(&reason);
                    Err(theirs)
                }
                None => {
                    call.tell_nowhere(&reason);
                    Ok(nothing)
                }
            },
        },
    );
    match chosen {
        Ok(answer) => answer,
        // The function that is called may call this library before it has reached a llama.cpp.
        Err(theirs) if !theirs.is_of_llama_cpp => {
            // SAFETY: the function that the call was meant for.
            Answer::made(unsafe { call.saved.call(theirs.address) })
        }
        Err(theirs) => Answer::theirs(theirs.address),
    }
}

/// How the stand-in for a function that is not a constructor handles a call.
pub enum Other {
    /// Samplers of this library are handled here, all others by this function of the host.
    Ours(Theirs),
    /// Call the host's function: no sampler is this library's.
    Theirs(Theirs),
    /// The host has no such function.
    Nowhere,
}

/// Decides how the stand-in for `function`, which is not a constructor, handles a call.
pub fn other(function: &'static Function) -> Other {
    guard(
        function.symbol.to_string_lossy(),
        || Other::Nowhere,
        || {
            let caller = Caller::default();
            let ours = !settings().is_off() && served(caller.get()).is_ok();
            match Theirs::of(function, &caller) {
                Some(theirs) if ours => Other::Ours(theirs),
                Some(theirs) => Other::Theirs(theirs),
                None => Other::Nowhere,
            }
        },
    )
}

/// Reports an unexpected condition that concerns every sampler, once per process.
fn warn_once(text: &str) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        log::warn(&format!(
            "preload: llama.cpp's own samplers are used: {text}"
        ));
    }
}

impl Call<'_> {
    /// Makes all calls go to the host's function, if the reason holds for all of them and no report
    /// is requested.
    fn step_aside(&self, reason: &Reason) {
        let directly = || self.constructor.function.directly();
        let is_for_all = match reason {
            Reason::Unwanted => true,
            Reason::OfThisKind(_) => Served::get()
                .zip(directly())
                .is_some_and(|(served, route)| served.base == route.base),
            _ => false,
        };
        if is_for_all
            && !settings().verbose
            && let Some(route) = directly()
        {
            self.constructor.step_aside(route.address);
        }
    }

    /// Reports that the host's own sampler is used, and the reason.
    fn tell_theirs(&self, reason: &Reason) {
        self.warn(reason);
        if !matches!(reason, Reason::OfATrial) {
            self.report(&format_args!("llama.cpp's own: {}", reason.text()));
        }
    }

    fn tell_nowhere(&self, reason: &Reason) {
        self.warn(reason);
        let text = reason.text();
        self.report(&format_args!("none, llama.cpp's own was not found: {text}"));
        let symbol = self.constructor.function.symbol.to_string_lossy();
        let text = format!("{symbol}: llama.cpp's own was not found ({text})");
        log::error(LLAMA_SIEVE_ERROR_NO_HOST, &text);
    }

    fn warn(&self, reason: &Reason) {
        match reason {
            Reason::Unwanted | Reason::Wanted(_) | Reason::OfATrial | Reason::Refused(_) => {}
            Reason::Unexpected(text) => warn_once(text),
            Reason::OfThisKind(text) | Reason::OfSuchCalls(text) => self.warn_once_of_kind(text),
        }
    }

    fn warn_once_of_kind(&self, text: &str) {
        // Several constructors may have one name.
        let mut of_name = ALL.into_iter();
        let of_name = of_name.find(|known| known.name == self.constructor.name);
        let Constructor { name, warned, .. } = of_name.unwrap_or(self.constructor);
        if !warned.swap(true, Ordering::Relaxed) {
            log::warn(&format!("preload: llama.cpp's own {name} is used: {text}"));
        }
    }

    /// Reports the outcome, for `LLAMA_SIEVE_VERBOSE`.
    fn report(&self, outcome: &dyn fmt::Display) {
        say(format_args!("{self}: {outcome}"));
    }
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.constructor.name)?;
        f.write_char('(')?;
        let served = Served::last();
        let layouts = self
            .constructor
            .changing
            .and_then(|changing| Some(served?.layouts(changing)));
        let arguments = (self.arguments)(layouts.and_then(Layouts::only));
        for (i, (name, value)) in arguments.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{name}={value:?}")?;
        }
        f.write_char(')')
    }
}
