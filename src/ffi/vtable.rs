//! From a [`Sampler`] to a `llama_sampler` that a host can hold.
//!
//! A vtable is a named `static`, filled by the generic [`vtable`]; its address is the sampler's identity (`llama_sampler_copy`
//! compares it). The host owns the shell (`struct llama_sampler`); we own what its `ctx` points to, a boxed [`Object`], and nothing else.
//!
//! Every entry runs inside the guard, and takes a lock that is never waited for: a sampler used by two threads at once, which would be
//! a data race, gets an error and the answer for failure instead. Cost per call: one uncontended atomic exchange.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::ptr::null_mut;

use parking_lot::{Mutex, MutexGuard};

use crate::candidates::Candidates;
use crate::ffi::guard::guard;
use crate::ffi::host::Host;
use crate::ffi::llama_h::{llama_sampler, llama_sampler_i, llama_token_data_array};
use crate::kernels;
use crate::last_error;
use crate::log;
use crate::sampler::{Kind, Sampler};
use crate::token::{Token, TokenData};

/// A vtable and room behind it: a host whose `llama_sampler_i` has more members reads NULL there.
#[repr(C)]
pub struct Vtable {
    iface: llama_sampler_i,
    spare: [usize; 12],
}

impl Vtable {
    /// What a host's `llama_sampler_init` takes. Its signature lacks the const, but no host writes there.
    fn as_iface(&'static self) -> *mut llama_sampler_i {
        (&raw const self.iface).cast_mut()
    }
}

/// The vtable of `S`. What `S` lacks is NULL.
pub const fn vtable<S: Sampler>() -> Vtable {
    Vtable {
        iface: llama_sampler_i {
            name: Some(name::<S>),
            accept: if S::ACCEPTS { Some(accept::<S>) } else { None },
            apply: Some(apply::<S>),
            reset: if S::RESETS { Some(reset::<S>) } else { None },
            clone: Some(clone::<S>),
            free: Some(free::<S>),
            backend_init: None,
            backend_accept: None,
            backend_apply: None,
            backend_set_input: None,
            backend_reset: None,
            copy_state: Some(copy_state::<S>),
        },
        spare: [0; 12],
    }
}

/// Gives the host a sampler: a shell of the host's around `sampler`. NULL, with an error, without a host.
pub fn into_host<S: Sampler>(vtable: &'static Vtable, sampler: S) -> *mut llama_sampler {
    let object = Object {
        name: sampler.name(),
        state: Mutex::new(Some(sampler)),
    };
    shell(vtable.as_iface(), object)
}

fn shell<S: Sampler>(iface: *mut llama_sampler_i, object: Object<S>) -> *mut llama_sampler {
    let host = match Host::get() {
        Ok(host) => host,
        Err(text) => {
            log::error(&text);
            return null_mut();
        }
    };
    let ctx = Box::into_raw(Box::new(object));
    // SAFETY: `iface` is one of our statics and `ctx` of the type it belongs to; the host keeps both as they are.
    let smpl = unsafe { (host.sampler_init)(iface, ctx.cast()) };
    if smpl.is_null() {
        // SAFETY: the host did not take it.
        drop(unsafe { Box::from_raw(ctx) });
        log::error("the host's llama_sampler_init returned NULL");
    }
    smpl
}

/// What `ctx` points to.
struct Object<S> {
    name: &'static CStr,
    /// None after a call that panicked: what the sampler held may be inconsistent, so it is not asked again.
    state: Mutex<Option<S>>,
}

/// Which call an error message speaks of.
struct Call<'a> {
    sampler: &'a CStr,
    function: &'a str,
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.sampler.to_string_lossy(), self.function)
    }
}

impl<S: Sampler> Object<S> {
    fn call<'a>(&self, function: &'a str) -> Call<'a> {
        Call {
            sampler: self.name,
            function,
        }
    }

    fn enter(&self, function: &str) -> Option<MutexGuard<'_, Option<S>>> {
        let state = self.state.try_lock();
        if state.is_none() {
            last_error::set(&format!(
                "{}: the sampler is in use by another thread; give each thread its own (llama_sampler_clone)",
                self.call(function)
            ));
        }
        state
    }

    /// Runs `body` on the sampler, inside the guard. `None` if that was not possible, with the reason as last error.
    fn run<T>(&self, function: &str, body: impl FnOnce(&mut S) -> T) -> Option<T> {
        let mut state = self.enter(function)?;
        let Some(sampler) = state.as_mut() else {
            last_error::set(&format!(
                "{}: the sampler failed earlier and is out of use; make a new one",
                self.call(function)
            ));
            return None;
        };
        let done = guard(self.call(function), || None, || Some(body(sampler)));
        if done.is_none() {
            guard(self.call("drop"), || (), || *state = None);
        }
        done
    }
}

/// The object behind a sampler; `None` for NULL.
///
/// # Safety
/// `smpl` is NULL or a live sampler with the vtable of `S`.
unsafe fn object<'a, S>(smpl: *const llama_sampler) -> Option<&'a Object<S>> {
    // SAFETY: the caller guarantees `smpl`; its `ctx` is then ours, or NULL after a free. The object is shared behind its lock.
    let object = unsafe {
        let ctx = smpl.as_ref()?.ctx;
        ctx.cast::<Object<S>>().as_ref()
    };
    if object.is_none() {
        last_error::set("the sampler was freed");
    }
    object
}

// The entries of the vtable. Their common safety condition is the host's part of the interface: `smpl` is NULL or a live sampler
// with the vtable of `S`.

unsafe extern "C" fn name<S: Sampler>(smpl: *const llama_sampler) -> *const c_char {
    let fallback = || c"llama-sieve".as_ptr();
    guard("name", fallback, || {
        // SAFETY: the host calls entries only on samplers that have them.
        let object = unsafe { object::<S>(smpl) };
        object.map_or_else(fallback, |object| object.name.as_ptr())
    })
}

unsafe extern "C" fn accept<S: Sampler>(smpl: *mut llama_sampler, token: Token) {
    guard(
        "accept",
        || (),
        || {
            // SAFETY: the host calls entries only on samplers that have them.
            if let Some(object) = unsafe { object::<S>(smpl) } {
                object.run("accept", |sampler| sampler.accept(token));
            }
        },
    )
}

unsafe extern "C" fn reset<S: Sampler>(smpl: *mut llama_sampler) {
    guard(
        "reset",
        || (),
        || {
            // SAFETY: the host calls entries only on samplers that have them.
            if let Some(object) = unsafe { object::<S>(smpl) } {
                object.run("reset", Sampler::reset);
            }
        },
    )
}

unsafe extern "C" fn apply<S: Sampler>(
    smpl: *mut llama_sampler,
    cur_p: *mut llama_token_data_array,
) {
    guard(
        "apply",
        || (),
        || {
            // SAFETY: the host passes NULL or a valid array that nobody else uses during the call.
            let array = unsafe { CandidateArray::new(cur_p) };
            let mut array = match array {
                Ok(array) => array,
                Err(text) => return last_error::set(&format!("apply: {text}")),
            };
            // SAFETY: the host calls entries only on samplers that have them.
            let object = unsafe { object::<S>(smpl) };
            let done = object.and_then(|object| {
                let mut candidates = array.candidates();
                object.run("apply", |sampler| sampler.apply(&mut candidates))?;
                Some(Outcome::of(&candidates))
            });
            match done {
                Some(outcome) => array.keep(outcome, S::KIND),
                None if S::KIND == Kind::Selector => array.select_argmax(),
                None => {}
            }
        },
    )
}

unsafe extern "C" fn clone<S: Sampler>(smpl: *const llama_sampler) -> *mut llama_sampler {
    guard("clone", null_mut, || {
        // SAFETY: the host calls entries only on samplers that have them.
        let Some(object) = (unsafe { object::<S>(smpl) }) else {
            return null_mut();
        };
        // A sampler out of use gives a clone out of use, never NULL: a chain would call through that.
        let copy = Object {
            name: object.name,
            state: Mutex::new(object.run("clone", |sampler| sampler.clone())),
        };
        // SAFETY: `object` came from `smpl`, which is therefore not NULL.
        let iface = unsafe { (*smpl).iface };
        shell(iface, copy)
    })
}

/// Frees `ctx`; the shell is the host's.
unsafe extern "C" fn free<S: Sampler>(smpl: *mut llama_sampler) {
    guard(
        "free",
        || (),
        || {
            // SAFETY: the host calls entries only on samplers that have them.
            let Some(object) = (unsafe { object::<S>(smpl) }) else {
                return;
            };
            if object.state.is_locked() {
                log::error(
                    "free: the sampler is in use by another thread; its memory is leaked, not pulled away",
                );
                return;
            }
            // SAFETY: `object` came from `smpl`, which is therefore not NULL; nobody uses it any more, and `ctx` is not used again.
            unsafe {
                let ctx = std::mem::replace(&mut (*smpl).ctx, null_mut::<c_void>());
                drop(Box::from_raw(ctx.cast::<Object<S>>()));
            }
        },
    )
}

unsafe extern "C" fn copy_state<S: Sampler>(src: *const llama_sampler, dst: *mut llama_sampler) {
    guard(
        "copy_state",
        || (),
        || {
            // SAFETY: the host has compared the vtables, and calls entries only on samplers that have them.
            let objects = unsafe { (object::<S>(src), object::<S>(dst)) };
            let (Some(from), Some(to)) = objects else {
                return;
            };
            if std::ptr::eq(from, to) {
                return;
            }
            let copy = from.run("copy_state", |sampler| sampler.clone());
            if let Some(mut state) = to.enter("copy_state") {
                *state = copy;
            }
        },
    )
}

/// What a sampler made of the candidates.
struct Outcome {
    len: usize,
    sorted: bool,
    selected: Option<usize>,
}

impl Outcome {
    fn of(candidates: &Candidates<'_>) -> Self {
        Self {
            len: candidates.len(),
            sorted: candidates.is_sorted(),
            selected: candidates.selected(),
        }
    }
}

/// The host's array, checked.
struct CandidateArray<'a> {
    array: &'a mut llama_token_data_array,
    data: &'a mut [TokenData],
}

impl<'a> CandidateArray<'a> {
    /// # Safety
    /// `array` is NULL or valid, with `size` candidates behind `data` unless that is NULL, and unused by others during `'a`.
    unsafe fn new(array: *mut llama_token_data_array) -> Result<Self, String> {
        // SAFETY: the caller guarantees it.
        let array = unsafe { array.as_mut() }.ok_or("the candidate array is NULL")?;
        if array.size > Token::MAX as usize {
            return Err(format!(
                "the candidate array has size {}; token numbers end at {}",
                array.size,
                Token::MAX
            ));
        }
        if array.size == 0 {
            return Ok(Self {
                array,
                data: &mut [],
            });
        }
        if array.data.is_null() || !array.data.is_aligned() {
            return Err(format!(
                "the candidate array has size {} and NULL or unaligned data",
                array.size
            ));
        }
        // SAFETY: the caller guarantees `size` candidates; size, NULL and alignment were checked.
        let data = unsafe { std::slice::from_raw_parts_mut(array.data, array.size) };
        Ok(Self { array, data })
    }

    fn candidates(&mut self) -> Candidates<'_> {
        let selected = usize::try_from(self.array.selected).ok();
        Candidates::new(self.data, self.array.sorted != 0).with_selected(selected)
    }

    fn keep(&mut self, outcome: Outcome, kind: Kind) {
        self.array.size = outcome.len;
        self.array.sorted = u8::from(outcome.sorted);
        if kind == Kind::Selector {
            self.array.selected = outcome.selected.map_or(-1, |index| index as i64);
        }
    }

    fn select_argmax(&mut self) {
        self.array.selected = kernels::argmax(self.data).map_or(-1, |index| index as i64);
    }
}
