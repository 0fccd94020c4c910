//! The routes that calls would take without this library. Each is determined once, not at every
//! call.
//!
//! Most programs are linked with llama.cpp. Then the route is the same for all callers until the
//! process ends, and is kept with the function. Otherwise libraries may be loaded and unloaded, and
//! two callers may have different routes. Such a route is kept for each thread and caller, and is
//! valid until the dynamic linker loads or unloads a library.
//!
//! Nothing here waits for the dynamic linker, unless several libraries that may be unloaded have
//! the function: see `host_constructors`.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use llama_sieve::ffi::guard::guard;
use llama_sieve::ffi::host::libraries::{Address, changes};
use llama_sieve::per_thread::PerThread;

use crate::host_constructors::{Route, Way, asked, caller, way_of};

/// A function of the host that this library replaces.
#[derive(Debug)]
pub struct Function {
    pub symbol: &'static CStr,
    /// The permanent route of all callers; NULL if there is none or it is not yet known.
    address: AtomicPtr<c_void>,
    /// The base address of that route's library. It is written before `address`, and so is
    /// `to_llama_cpp`.
    base: AtomicUsize,
    to_llama_cpp: AtomicBool,
}

/// A known route.
struct Known {
    function: &'static Function,
    /// The caller; `None` if all callers take the same route.
    caller: Option<Address>,
    route: Route,
}

thread_local! {
    /// The routes found so far, valid for the value [`AS_OF`] of the dynamic linker's count of
    /// loads and unloads.
    static KNOWN: PerThread<RefCell<Vec<Known>>> = const { PerThread::new() };
    static AS_OF: Cell<u64> = const { Cell::new(0) };
}

impl Function {
    pub const fn new(symbol: &'static CStr) -> Self {
        Self {
            symbol,
            address: AtomicPtr::new(null_mut()),
            base: AtomicUsize::new(0),
            to_llama_cpp: AtomicBool::new(false),
        }
    }

    /// Returns the route of the current call, whose caller is determined from the stack.
    #[inline]
    pub fn route(&'static self) -> Option<Route> {
        self.kept().or_else(|| self.look(None))
    }

    /// Returns the route of a call from `caller`, if that is known.
    pub fn route_from(&'static self, caller: Option<Address>) -> Option<Route> {
        self.kept().or_else(|| self.look(Some(caller)))
    }

    /// Returns the permanent route of all callers, if it leads to a llama.cpp. Calls back from it
    /// cannot recurse forever.
    pub fn directly(&'static self) -> Option<Route> {
        let route = self.kept().or_else(|| {
            self.look(None);
            self.kept()
        });
        route.filter(|route| route.to_llama_cpp)
    }

    #[inline]
    fn kept(&self) -> Option<Route> {
        let address = NonNull::new(self.address.load(Ordering::Acquire))?;
        let base = self.base.load(Ordering::Relaxed);
        let to_llama_cpp = self.to_llama_cpp.load(Ordering::Relaxed);
        Some(Route {
            address,
            base,
            to_llama_cpp,
        })
    }

    fn keep(&self, route: Route) {
        self.base.store(route.base, Ordering::Relaxed);
        self.to_llama_cpp
            .store(route.to_llama_cpp, Ordering::Relaxed);
        self.address
            .store(route.address.as_ptr(), Ordering::Release);
    }

    /// Determines the route of a call from the caller `from`; for `None`, from the caller on the
    /// stack.
    #[cold]
    fn look(&'static self, from: Option<Option<Address>>) -> Option<Route> {
        guard(
            self.symbol.to_string_lossy(),
            || None,
            || {
                forget_what_is_old();
                if let Some(route) = known(self, None) {
                    return Some(route);
                }
                match way_of(self.symbol) {
                    Way::Nowhere => None,
                    Way::OfAll(route) => {
                        self.keep(route);
                        Some(route)
                    }
                    Way::Only(route) => {
                        remember(self, None, route);
                        Some(route)
                    }
                    Way::Several => self.asked(from.unwrap_or_else(caller)),
                }
            },
        )
    }

    fn asked(&'static self, caller: Option<Address>) -> Option<Route> {
        if caller.is_some()
            && let Some(route) = known(self, caller)
        {
            return Some(route);
        }
        let route = asked(self.symbol, caller)?;
        if caller.is_some() {
            remember(self, caller, route);
        }
        Some(route)
    }
}

fn remember(function: &'static Function, caller: Option<Address>, route: Route) {
    const MOST: usize = 256;
    let _ = PerThread::with(&KNOWN, |all| {
        let Ok(mut all) = all.try_borrow_mut() else {
            return;
        };
        if all.len() < MOST && all.try_reserve(1).is_ok() {
            all.push(Known {
                function,
                caller,
                route,
            });
        }
    });
}

fn known(function: &'static Function, caller: Option<Address>) -> Option<Route> {
    let look = |all: &RefCell<Vec<Known>>| {
        let all = all.try_borrow().ok()?;
        let is_it =
            |known: &&Known| std::ptr::eq(known.function, function) && known.caller == caller;
        Some(all.iter().find(is_it)?.route)
    };
    PerThread::with(&KNOWN, look).flatten()
}

fn forget_what_is_old() {
    let now = changes();
    if AS_OF.replace(now) != now {
        let _ = PerThread::with(&KNOWN, |all| {
            all.try_borrow_mut().map(|mut all| all.clear())
        });
    }
}
