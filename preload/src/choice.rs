//! Ours or the host's? Decided at each call; for one host and one constructor the answer never
//! changes, since what goes into it does not.
//!
//! Why that matters: inside llama.cpp the clone functions of built-in samplers call these very
//! constructors, and then write their own state into what they got. A call that comes from inside
//! llama.cpp's samplers therefore gets llama.cpp's own: see `callers`. (One that ends its function
//! may look as if it came from that function's caller; but then nothing more is written into the
//! sampler, and ours will do.)
//!
//! Ours is made where the host's own was found to do the same (`certificate`), and, where arguments
//! have changed or are pointers, where the host's build is known (`host_build`).
//!
//! Nothing of the host that could throw is called inside the guard.

use std::cell::{Cell, OnceCell};
use std::ffi::{CStr, c_void};
use std::fmt::{self, Debug, Write as _};
use std::io::Write as _;
use std::ops::Range;
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use llama_sieve::ffi::certificate::certify;
use llama_sieve::ffi::guard::guard;
use llama_sieve::ffi::host::Host;
use llama_sieve::ffi::host::build::Build;
use llama_sieve::ffi::host::libraries::Address;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::{last_error, log};

use crate::callers::Functions;
use crate::constructors::{ALL, Constructor};
use crate::host_constructors::{MARK, caller, functions_at, library_at, own_of, own_of_any};
use crate::presence;
use crate::proof::{self, Entry};
use crate::routes::{Function, Route};
use crate::settings::settings;

/// The llama.cpp that our samplers are made for.
///
/// A second one in the process keeps its own samplers: the library knows one at a time.
struct Served {
    /// Where it lies.
    base: usize,
    segments: Vec<Range<usize>>,
    /// What it exports, once somebody in it has called.
    functions: OnceLock<Functions>,
    /// `None` if it is older than those that take samplers of others.
    host: Option<Host>,
    /// Its build, or why that is not known.
    build: Result<Build, String>,
    /// What the trial of each constructor came to: nothing, or what differs.
    verdicts: [OnceLock<Option<String>>; ALL.len()],
}

/// The first llama.cpp that asked; if that was unloaded, the first one that asked afterwards. Never
/// freed, so that nobody takes a lock to look at it.
static SERVED: AtomicPtr<Served> = AtomicPtr::new(null_mut());

impl Served {
    /// The one that asked before, if it is still loaded.
    fn get() -> Option<&'static Self> {
        Self::last().filter(|served| served.host.is_none_or(|host| host.is_there()))
    }

    fn last() -> Option<&'static Self> {
        // SAFETY: NULL, or one that is never freed.
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
        }
    }

    /// Whether code of its samplers lies there, and not that of a program in the same library.
    fn samples_at(&self, address: Address) -> bool {
        let place = address.as_ptr() as usize;
        if !self.segments.iter().any(|part| part.contains(&place)) {
            return false;
        }
        let functions = self.functions.get_or_init(|| functions_at(self.base));
        functions.are_samplers_at(address)
    }
}

/// The llama.cpp that a call from `caller` was meant for, if it takes samplers of ours.
fn served(caller: Option<Address>) -> Result<&'static Served, String> {
    let way = MARK.route_from(caller);
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
    Ok(served)
}

fn serve(base: usize) -> &'static Served {
    let before = SERVED.load(Ordering::Acquire);
    // Two threads find the same.
    let new = Box::into_raw(Box::new(Served::new(base)));
    let (kept, lost) =
        match SERVED.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => (new, None),
            Err(other) => (other, Some(new)),
        };
    if let Some(lost) = lost {
        // SAFETY: made above, and seen by nobody.
        drop(unsafe { Box::from_raw(lost) });
    }
    // SAFETY: what was put there is never freed.
    unsafe { &*kept }
}

/// The llama.cpp that ours serve, if it lies there.
fn served_at(base: usize) -> Option<&'static Served> {
    Served::last().filter(|served| served.base == base)?;
    Served::get().filter(|served| served.base == base)
}

/// Whether calls that go this way reach the llama.cpp that ours serve.
pub fn is_served(way: Route) -> bool {
    served_at(way.base).is_some_and(|served| served.host.is_some())
}

/// Whether calls of this function that go this way may be sampled straight from the logits, as far
/// as that is known before their chain is looked at.
pub fn serves(way: Route, entry: Entry) -> bool {
    let takes_ours = |served: &Served| served.host.is_some();
    settings().samples() && proof::may(entry) && served_at(way.base).is_some_and(takes_ours)
}

/// The first question of a host that samples.
pub static SAMPLED_PROBS: Function = Function::new(c"llama_get_sampled_probs_ith");

/// Whether the host can tell what a backend has sampled.
pub fn tells_of_backends() -> bool {
    SAMPLED_PROBS.route().is_some()
}

/// The function that leads from the common library's sampler to its chain, for a call of
/// `common_sampler_sample` that goes this way; `None` where that is not to be looked at.
pub fn common_sampler_get(way: Route) -> Option<Route> {
    static GET: Function = Function::new(c"_Z18common_sampler_getPK14common_sampler");
    if Served::last().is_none() || !settings().samples() || !proof::may(Entry::Common) {
        return None;
    }
    let of_host = SAMPLED_PROBS.route_from(Some(way.address))?;
    let get = GET.route_from(Some(way.address))?;
    (serves(of_host, Entry::Common) && get.base == way.base).then_some(get)
}

/// An argument of a constructor.
pub trait Argument: Debug {
    /// Whether ours give it the built-in's meaning: of numbers that are not finite, they make
    /// nothing.
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
    /// As the arguments are; nobody needs to be told either.
    Refused(String),
    /// Not to be expected: told once per process, of every sampler.
    Unexpected(String),
    /// The same, once of each kind of sampler.
    OfThisKind(String),
}

impl Reason {
    fn internal() -> Self {
        Self::Unexpected(last_error::get())
    }

    fn text(&self) -> &str {
        match self {
            Self::Wanted(text) => text,
            Self::Refused(text) | Self::Unexpected(text) | Self::OfThisKind(text) => text,
        }
    }
}

/// Who has called, found when it is first asked for.
#[derive(Default)]
struct Caller(OnceCell<Option<Address>>);

impl Caller {
    fn get(&self) -> Option<Address> {
        *self.0.get_or_init(caller)
    }
}

/// The llama.cpp that ours is to be made for.
fn decide(call: &Call<'_, '_>, caller: &Caller) -> Result<Decided, Reason> {
    let Call {
        constructor,
        arguments,
        ..
    } = call;
    // Before anything is looked for.
    if !settings().selects(constructor) {
        return Err(Reason::Wanted("LLAMA_SIEVE_PRELOAD says so"));
    }
    let caller = caller.get();
    let served = served(caller).map_err(Reason::Unexpected)?;
    if caller.is_some_and(|caller| served.samples_at(caller)) {
        return Err(Reason::Wanted("called by llama.cpp itself"));
    }
    let decided = |build| Ok(Decided { served, build });
    let build = served.build.as_ref().ok().copied();
    if !arguments(build).iter().all(|(_, value)| value.is_finite()) {
        return Err(Reason::Wanted("an argument is not finite"));
    }
    match &served.build {
        Ok(build) => decided(Some(*build)),
        Err(text) if constructor.needs_build => Err(Reason::OfThisKind(text.clone())),
        Err(_) => decided(None),
    }
}

/// What ours is to be made for.
#[derive(Clone, Copy)]
struct Decided {
    served: &'static Served,
    build: Option<Build>,
}

/// Whether the host's own does what ours does: tried once. Not inside the guard, since the host may
/// throw.
fn tried(constructor: &Constructor, decided: Decided) -> Result<Option<Build>, Reason> {
    let Decided { served, build } = decided;
    let place = ALL.iter().position(|known| ptr::eq(*known, constructor));
    let place = place.and_then(|i| served.verdicts.get(i));
    let Some(place) = place.filter(|_| constructor.can_be_tried) else {
        return Ok(build);
    };
    let verdict = match place.get() {
        Some(verdict) => verdict,
        None => {
            // Outside of the initialiser: what is tried may call us. Two threads find the same.
            let verdict = certify(constructor.name, build).err();
            place.get_or_init(|| verdict)
        }
    };
    match verdict {
        Some(text) => Err(Reason::OfThisKind(text.clone())),
        None => Ok(build),
    }
}

/// What ours came to.
pub enum Ours {
    /// A sampler.
    Made(*mut llama_sampler),
    /// Nothing, which is not to be expected: the host's own is made. The last error says why.
    Failed,
    /// Nothing, of a text that a client has written: the host's own constructor is to judge it. The
    /// last error says why.
    Refused,
    /// Nothing, since the host's own was found to do something else: that is made.
    Otherwise(String),
    /// NULL is the answer. The last error says why.
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

/// What a constructor's stand-in is to do.
pub enum Chosen {
    /// Return this, which may be NULL.
    Made(*mut llama_sampler),
    /// Call the host's.
    Theirs(Theirs),
}

/// A function of the host's, which is to be called outside the guard.
pub struct Theirs {
    address: Address,
    /// What it calls is known to be called by it, where calls could come back for ever.
    _inside: Option<Inside>,
}

/// How deep chains may lie in chains.
const NESTED: usize = 1000;

impl Theirs {
    /// What to call.
    pub fn address(&self) -> *mut c_void {
        self.address.as_ptr()
    }

    /// The function that a call of ours was meant for. Where other libraries may stand in front of
    /// llama.cpp as well, one that has come back here without having reached a llama.cpp goes
    /// straight to one, and if it comes back again, nowhere. What llama.cpp calls for each member
    /// of a chain comes back for chains in chains, and so does what a program's own samplers call
    /// for those that they hold.
    fn of(function: &'static Function, caller: &Caller) -> Option<Self> {
        if let Some(route) = function.directly() {
            return Some(Self {
                address: route.address,
                _inside: None,
            });
        }
        let symbol = function.symbol;
        let depth = Inside::depth_of(symbol);
        let nested = || own_of(symbol, caller.get().filter(|_| depth < NESTED)?);
        let address = match depth {
            0 => function.route_from(caller.get())?.address,
            1 => nested().or_else(|| own_of_any(symbol))?,
            _ => nested()?,
        };
        Some(Self {
            address,
            _inside: Some(Inside::enter(symbol)),
        })
    }
}

/// This thread is inside the host's function of a name. Ends also when the function throws.
struct Inside {
    before: (Option<&'static CStr>, usize),
}

thread_local! {
    /// The function that this thread is in, and how often it came back here from it.
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

/// An argument with the name that it has in llama.h.
pub type Named<'a> = (&'static str, &'a dyn Argument);

/// Makes a sampler with `ours`, which gets the host's build where it is known; or says which of the
/// host's is to be called. What the `arguments` are may follow from the build.
pub fn choose<'a, T: Into<Ours>>(
    constructor: &'static Constructor,
    arguments: &dyn Fn(Option<Build>) -> Vec<Named<'a>>,
    ours: impl FnOnce(Option<Build>) -> T,
) -> Chosen {
    presence::asked();
    let what = constructor.name;
    let caller = Caller::default();
    let call = Call {
        constructor,
        arguments,
    };
    let decided = guard(what, || Err(Reason::internal()), || decide(&call, &caller));
    let certified = decided.and_then(|decided| tried(constructor, decided));
    let made = certified.and_then(|build| {
        // Ours is guarded itself, but for what the host throws that it asks.
        match ours(build).into() {
            Ours::Made(sampler) => Ok(Some(sampler)),
            Ours::Nothing => Ok(None),
            Ours::Failed => Err(Reason::internal()),
            Ours::Refused => Err(Reason::Refused(last_error::get())),
            Ours::Otherwise(text) => Err(Reason::OfThisKind(text)),
        }
    });
    let nothing = || Chosen::Made(null_mut());
    guard(what, nothing, || match made {
        Ok(Some(sampler)) => {
            call.report(&"ours");
            Chosen::Made(sampler)
        }
        Ok(None) => {
            call.report(&format_args!("none: {}", last_error::get()));
            nothing()
        }
        Err(reason) => call.theirs(&reason, &caller),
    })
}

/// What the stand-in for another function than a constructor is to do.
pub enum Other {
    /// Look for samplers of ours; the host's function is this.
    Ours(Theirs),
    /// Call the host's: there are none of ours.
    Theirs(Theirs),
    /// There is no function of the host's.
    Nowhere,
}

/// For the function of that name.
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

/// A line about what is not to be expected, which is wrong for every sampler: once per process.
fn warn_once(text: &str) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        log::warn(&format!(
            "preload: llama.cpp's own samplers are used: {text}"
        ));
    }
}

/// What was asked for.
struct Call<'c, 'a> {
    constructor: &'static Constructor,
    arguments: &'c dyn Fn(Option<Build>) -> Vec<Named<'a>>,
}

impl Call<'_, '_> {
    /// Which of the host's is to be called, and why.
    fn theirs(&self, reason: &Reason, caller: &Caller) -> Chosen {
        let constructor = self.constructor;
        let text = reason.text();
        match reason {
            Reason::Wanted(_) | Reason::Refused(_) => {}
            Reason::Unexpected(text) => warn_once(text),
            Reason::OfThisKind(text) => self.warn_once_of_kind(text),
        }
        let Some(theirs) = Theirs::of(&constructor.function, caller) else {
            self.report(&format_args!("none, llama.cpp's own was not found: {text}"));
            let symbol = constructor.function.symbol.to_string_lossy();
            log::error(&format!("{symbol}: llama.cpp's own was not found ({text})"));
            return Chosen::Made(null_mut());
        };
        self.report(&format_args!("llama.cpp's own: {text}"));
        Chosen::Theirs(theirs)
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

    /// For `LLAMA_SIEVE_VERBOSE`.
    fn report(&self, outcome: &dyn fmt::Display) {
        say(format_args!("{self}: {outcome}"));
    }
}

/// A line for `LLAMA_SIEVE_VERBOSE`.
pub fn say(what: fmt::Arguments<'_>) {
    if settings().verbose {
        // One write: lines of several threads stay whole. Not eprintln!, which panics where stderr
        // is closed.
        let line = format!("llama-sieve: preload: {what}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Tells of the first token that was sampled in place of this function of the host's.
pub fn report_once(function: &'static str) {
    static REPORTED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    if !settings().verbose {
        return;
    }
    guard(
        function,
        || (),
        || {
            let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
            if !reported.contains(&function) {
                reported.push(function);
                say(format_args!("{function}(): ours"));
            }
        },
    );
}

impl fmt::Display for Call<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.constructor.name)?;
        f.write_char('(')?;
        let build = Served::last().and_then(|served| served.build.as_ref().ok());
        let arguments = (self.arguments)(build.copied());
        for (i, (name, value)) in arguments.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{name}={value:?}")?;
        }
        f.write_char(')')
    }
}
