//! Where calls go that are made for every token: found once, not at each call.
//!
//! Most programs are linked with llama.cpp. Then the way is the same for all callers and for as
//! long as the process lives, and is kept with the function. Otherwise libraries may come and go,
//! and the ways of two callers may differ: what was found then holds until the dynamic linker has
//! counted another library, and is kept by thread and caller.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use llama_sieve::ffi::guard::guard;

use crate::host_constructors::{Address, base_of, caller, exporters, meant, next, stays};
use crate::libraries::changes;

/// A function of the host's, and the library that it is in.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub address: Address,
    /// Where that library lies.
    pub base: usize,
}

impl Route {
    /// What to call.
    pub fn address(&self) -> *mut c_void {
        self.address.as_ptr()
    }
}

/// A name of the host's that is called for every token.
pub struct Function {
    symbol: &'static CStr,
    /// The way for all callers and for ever; NULL if there is none, or none was found yet.
    address: AtomicPtr<c_void>,
    /// Written before that address.
    base: AtomicUsize,
}

/// A route that was found.
struct Known {
    function: &'static Function,
    /// Of the call; `None` where all callers go the same way.
    caller: Option<Address>,
    route: Route,
}

thread_local! {
    /// What was found when the dynamic linker had counted so far.
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
    static AS_OF: Cell<u64> = const { Cell::new(0) };
}

impl Function {
    pub const fn new(symbol: &'static CStr) -> Self {
        Self {
            symbol,
            address: AtomicPtr::new(null_mut()),
            base: AtomicUsize::new(0),
        }
    }

    /// The host's function that this call of ours was meant for.
    #[inline]
    pub fn route(&'static self) -> Option<Route> {
        self.kept().or_else(|| self.look(None))
    }

    /// The one that a call from `caller` is meant for.
    pub fn route_from(&'static self, caller: Address) -> Option<Route> {
        self.kept().or_else(|| self.look(Some(caller)))
    }

    #[inline]
    fn kept(&self) -> Option<Route> {
        let address = NonNull::new(self.address.load(Ordering::Acquire))?;
        let base = self.base.load(Ordering::Relaxed);
        Some(Route { address, base })
    }

    fn keep(&self, route: Route) {
        self.base.store(route.base, Ordering::Relaxed);
        self.address
            .store(route.address.as_ptr(), Ordering::Release);
    }

    #[cold]
    fn look(&'static self, from: Option<Address>) -> Option<Route> {
        guard(
            self.symbol.to_string_lossy(),
            || None,
            || {
                forget_what_is_old();
                let from = || from.or_else(caller);
                known(self, None).or_else(|| self.found(from()))
            },
        )
    }

    fn found(&'static self, caller: Option<Address>) -> Option<Route> {
        if let Some(route) = known(self, caller) {
            return Some(route);
        }
        let address = meant(self.symbol, caller)?;
        let route = Route {
            address,
            base: base_of(address)?,
        };
        if next(self.symbol) == Some(address) && stays(address) {
            self.keep(route);
            return Some(route);
        }
        // The routes may differ where several libraries have the function.
        let only_one = exporters(self.symbol) == 1;
        let caller = caller.filter(|_| !only_one);
        if only_one || caller.is_some() {
            remember(Known {
                function: self,
                caller,
                route,
            });
        }
        Some(route)
    }
}

fn remember(known: Known) {
    const MOST: usize = 256;
    let _ = KNOWN.try_with(|all| {
        let Ok(mut all) = all.try_borrow_mut() else {
            return;
        };
        if all.len() < MOST && all.try_reserve(1).is_ok() {
            all.push(known);
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
    KNOWN.try_with(look).ok().flatten()
}

fn forget_what_is_old() {
    let now = changes();
    let _ = AS_OF.try_with(|as_of| {
        if as_of.replace(now) != now {
            let _ = KNOWN.try_with(|all| all.try_borrow_mut().map(|mut all| all.clear()));
        }
    });
}
