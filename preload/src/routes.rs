//! Where calls go that are made for every token: found once for each caller, not at each call.
//!
//! What was found holds as long as no library comes or goes, which the dynamic linker counts.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int, c_void};

use crate::host_constructors::{Address, base_of, caller, exporters, meant};

/// A function of the host's, and the library that it is in.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub address: Address,
    /// Where that library lies.
    pub base: usize,
}

/// A route that was found.
struct Known {
    symbol: &'static CStr,
    /// Of the call; `None` where all callers go the same way.
    caller: Option<Address>,
    route: Route,
}

thread_local! {
    /// What was found when the dynamic linker had counted so far.
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
    static AS_OF: Cell<u64> = const { Cell::new(0) };
}

/// The function that this call of `symbol` was meant for.
pub fn route(symbol: &'static CStr) -> Option<Route> {
    forget_what_is_old();
    if let Some(route) = known(symbol, None) {
        return Some(route);
    }
    found(symbol, caller())
}

/// The function that a call of `symbol` from `caller` is meant for.
pub fn route_of(symbol: &'static CStr, caller: Address) -> Option<Route> {
    forget_what_is_old();
    known(symbol, None).or_else(|| found(symbol, Some(caller)))
}

fn found(symbol: &'static CStr, caller: Option<Address>) -> Option<Route> {
    if let Some(route) = known(symbol, caller) {
        return Some(route);
    }
    let address = meant(symbol, caller)?;
    let route = Route {
        address,
        base: base_of(address)?,
    };
    // The routes may differ where several libraries have the function.
    let only_one = exporters(symbol) == 1;
    let caller = caller.filter(|_| !only_one);
    if only_one || caller.is_some() {
        keep(Known {
            symbol,
            caller,
            route,
        });
    }
    Some(route)
}

fn keep(known: Known) {
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

fn known(symbol: &'static CStr, caller: Option<Address>) -> Option<Route> {
    let look = |all: &RefCell<Vec<Known>>| {
        let all = all.try_borrow().ok()?;
        let is_it = |known: &&Known| {
            std::ptr::eq(known.symbol.as_ptr(), symbol.as_ptr()) && known.caller == caller
        };
        Some(all.iter().find(is_it)?.route)
    };
    KNOWN.try_with(look).ok().flatten()
}

fn forget_what_is_old() {
    let now = linker_count();
    let _ = AS_OF.try_with(|as_of| {
        if as_of.replace(now) != now {
            let _ = KNOWN.try_with(|all| all.try_borrow_mut().map(|mut all| all.clear()));
        }
    });
}

/// How often libraries have come and gone.
fn linker_count() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        count: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid entry, and back the pointer to the variable below.
        unsafe {
            let counted = (*info).dlpi_adds.wrapping_add((*info).dlpi_subs);
            *count.cast::<u64>() = counted;
        }
        // Every entry tells the same.
        1
    }
    let mut count = 0u64;
    // SAFETY: the callback matches, and the variable outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}
