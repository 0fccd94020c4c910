//! From a [`Sampler`] to a `llama_sampler` that a host can hold.
//!
//! A vtable is a named `static`, filled by the generic [`vtable`]; its address is the sampler's
//! identity (`llama_sampler_copy` compares it). The host owns the shell (`struct llama_sampler`);
//! we own what its `ctx` points to, a boxed `Object`, and nothing else.
//!
//! Every entry runs inside the guard, and takes a lock that is never waited for: a sampler used by
//! two threads at once, which would be a data race, gets an error and the answer for failure
//! instead. (A constraint waits a little: its answer for failure is to allow nothing.) Cost per
//! call: one uncontended atomic exchange. What is only said when something is wrong is out of line,
//! so that the rest is one function: on 40 candidates the calls between its parts took as long as
//! dividing the logits.

use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use crate::built_in::InGraph;
use crate::candidates::Candidates;
use crate::ffi::exclusive::{Exclusive, Taken};
use crate::ffi::guard::guard;
use crate::ffi::host::Host;
use crate::ffi::host_built_ins::{Recipe, give_way};
use crate::ffi::llama_h::{llama_sampler, llama_sampler_i, llama_token_data_array};
use crate::kernels;
use crate::last_error;
use crate::log;
use crate::pool::Pool;
use crate::sampler::{Kind, Sampler};
use crate::token::{Token, TokenData};

/// A vtable and room behind it: a host whose `llama_sampler_i` has more members reads NULL there.
#[repr(C)]
pub struct Vtable {
    iface: llama_sampler_i,
    spare: [usize; 12],
    /// Not the host's: tells the seed of a sampler with this vtable.
    seed: unsafe fn(*const llama_sampler) -> Option<u32>,
    /// Nor this: how the built-in is made that can take its place.
    recipe: unsafe fn(*const llama_sampler) -> Option<Recipe>,
    /// Nor this: `apply` on a pool.
    narrow: unsafe fn(*mut llama_sampler, &mut Pool<'_>),
}

impl Vtable {
    /// What a host's `llama_sampler_init` takes. Its signature lacks the const, but no host writes
    /// there.
    fn as_iface(&'static self) -> *mut llama_sampler_i {
        (&raw const self.iface).cast_mut()
    }

    /// Whether `smpl` has this vtable.
    ///
    /// # Safety
    /// `smpl` is a live sampler of any kind.
    pub unsafe fn is_of(&'static self, smpl: *const llama_sampler) -> bool {
        // SAFETY: the caller guarantees it.
        unsafe { (*smpl).iface == self.as_iface() }
    }

    /// What a sampler with this vtable, made of an `S`, shares.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable, which is that of `S`.
    pub unsafe fn shared_of<S: Sampler>(
        &'static self,
        smpl: *const llama_sampler,
    ) -> Option<Arc<dyn Any + Send + Sync>> {
        // SAFETY: the caller guarantees it.
        unsafe { object::<S>(smpl) }?.shared.clone()
    }

    /// The seed that a sampler with this vtable uses, if it tells.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn seed_of(&'static self, smpl: *const llama_sampler) -> Option<u32> {
        // SAFETY: the caller guarantees it.
        unsafe { (self.seed)(smpl) }
    }

    /// How the built-in is made that does what a sampler with this vtable does.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn recipe_of(&'static self, smpl: *const llama_sampler) -> Option<Recipe> {
        // SAFETY: the caller guarantees it.
        unsafe { (self.recipe)(smpl) }
    }

    /// Does to a pool what the sampler's `apply` does to an array, failures included.
    ///
    /// # Safety
    /// `smpl` is a live sampler with this vtable.
    pub unsafe fn narrow(&'static self, smpl: *mut llama_sampler, pool: &mut Pool<'_>) {
        // SAFETY: the caller guarantees it.
        unsafe { (self.narrow)(smpl, pool) }
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
            backend_init: match S::IN_GRAPH {
                InGraph::Never => None,
                InGraph::AsBuiltIn => Some(backend_init::<S>),
                InGraph::PassedOver => Some(backend_pass_over),
            },
            backend_accept: None,
            backend_apply: None,
            backend_set_input: None,
            backend_reset: None,
            copy_state: Some(copy_state::<S>),
        },
        spare: [0; 12],
        seed: seed::<S>,
        recipe: recipe::<S>,
        narrow: narrow::<S>,
    }
}

/// Gives the host a sampler: a shell of the host's around `sampler`. NULL, with an error, without a
/// host.
pub fn into_host<S: Sampler>(vtable: &'static Vtable, sampler: S) -> *mut llama_sampler {
    match Host::get() {
        Ok(host) => Object::new(host, sampler.name(), Some(sampler)).into_shell(vtable.as_iface()),
        Err(text) => {
            log::error(&text);
            null_mut()
        }
    }
}

/// What `ctx` points to.
struct Object<S> {
    /// The host that made the shell. Clones are made by the same, which will free them.
    host: Host,
    name: &'static CStr,
    shared: Option<Arc<dyn Any + Send + Sync>>,
    /// None after a call that panicked while it changed something: what the sampler held may be
    /// inconsistent, so it is not asked again.
    state: Exclusive<Option<S>>,
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

/// How long a constraint waits for another thread that uses it, which only a mistake of the host
/// leads to. Other samplers do not wait: for them giving up is harmless.
const CONSTRAINT_PATIENCE: Duration = Duration::from_secs(1);

/// How long a clone waits for another thread that uses the sampler: longer than any call takes.
const CLONE_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });

impl<S: Sampler> Object<S> {
    fn new(host: Host, name: &'static CStr, sampler: Option<S>) -> Self {
        Self {
            host,
            name,
            shared: sampler.as_ref().and_then(Sampler::shared),
            state: Exclusive::new(sampler),
        }
    }

    fn into_shell(self, iface: *mut llama_sampler_i) -> *mut llama_sampler {
        let sampler_init = self.host.sampler_init;
        let ctx = Box::into_raw(Box::new(self));
        // SAFETY: `iface` is one of our statics and `ctx` of the type it belongs to; the host keeps
        // both as they are.
        let smpl = unsafe { sampler_init(iface, ctx.cast()) };
        if smpl.is_null() {
            // SAFETY: the host did not take it.
            drop(unsafe { Box::from_raw(ctx) });
            log::error("the host's llama_sampler_init returned NULL");
        }
        smpl
    }

    fn call<'a>(&self, function: &'a str) -> Call<'a> {
        Call {
            sampler: self.name,
            function,
        }
    }

    #[inline]
    fn enter(&self, function: &str) -> Option<Taken<'_, Option<S>>> {
        let state = match S::KIND {
            Kind::Constraint => self.state.take_within(CONSTRAINT_PATIENCE),
            Kind::Filter | Kind::Selector => self.state.take(),
        };
        if state.is_none() {
            self.say_in_use(function);
        }
        state
    }

    #[cold]
    fn say_in_use(&self, function: &str) {
        self.say(
            function,
            "the sampler is in use by another thread; give each thread its own (llama_sampler_clone)",
        );
    }

    /// Out of line, since on a small array every instruction before the first candidate counts.
    #[cold]
    #[inline(never)]
    fn say(&self, function: &str, what: &str) {
        last_error::set(&format!("{}: {what}", self.call(function)));
    }

    /// Runs `body` on the sampler, inside the guard. `None` if that was not possible, with the
    /// reason as last error.
    #[inline]
    fn run<T>(&self, function: &str, body: impl FnOnce(&mut S) -> T) -> Option<T> {
        let mut state = self.enter(function)?;
        let Some(sampler) = state.as_mut() else {
            self.say_out_of_use(function);
            return None;
        };
        let done = guard(self.call(function), || None, || Some(body(sampler)));
        // A constraint is still asked what it allows.
        if done.is_none() && S::KIND != Kind::Constraint {
            guard(self.call("drop"), || (), || *state = None);
        }
        done
    }

    /// The same for what only reads: it leaves the sampler in use, also when it panics.
    fn look<T>(&self, function: &str, body: impl FnOnce(&S) -> T) -> Option<T> {
        let state = self.enter(function)?;
        let Some(sampler) = state.as_ref() else {
            self.say_out_of_use(function);
            return None;
        };
        guard(self.call(function), || None, || Some(body(sampler)))
    }

    /// A second one of the sampler; waits for another thread that uses it. `None` if there is none,
    /// or if it cannot be copied.
    fn copied(&self) -> Option<S> {
        let Some(state) = self.state.take_within(CLONE_PATIENCE) else {
            self.say_in_use("clone");
            return None;
        };
        let Some(sampler) = state.as_ref() else {
            self.say_out_of_use("clone");
            return None;
        };
        guard(self.call("clone"), || None, || Some(sampler.clone()))
    }

    fn say_out_of_use(&self, function: &str) {
        self.say(
            function,
            "the sampler failed earlier and is out of use; make a new one",
        );
    }
}

impl<S: Sampler> Object<S> {
    /// Takes over the state of `from`; out of use if that is.
    fn copy_from(&self, from: &Self) {
        let Some(source) = from.enter("copy_state") else {
            return;
        };
        let Some(mut target) = self.enter("copy_state") else {
            return;
        };
        let copy = || {
            match (&*source, target.as_mut()) {
                // In place, since others may share what the target shares.
                (Some(source), Some(target)) => target.clone_from(source),
                (source, _) => target.clone_from(source),
            }
            true
        };
        if !guard(self.call("copy_state"), || false, copy) && S::KIND != Kind::Constraint {
            guard(self.call("drop"), || (), || *target = None);
        }
    }
}

/// The object behind a sampler; `None` for NULL.
///
/// # Safety
/// `smpl` is NULL or a live sampler with the vtable of `S`.
unsafe fn object<'a, S>(smpl: *const llama_sampler) -> Option<&'a Object<S>> {
    if smpl.is_null() || !smpl.is_aligned() {
        last_error::set("the sampler is NULL or not aligned");
        return None;
    }
    // SAFETY: not NULL, and the caller guarantees that it is alive.
    let shell = unsafe { &*smpl };
    // SAFETY: the `ctx` of such a sampler is ours, or NULL after a free. The object is shared
    // behind its lock.
    let object = unsafe { shell.ctx.cast::<Object<S>>().as_ref() };
    if object.is_none() {
        last_error::set("the sampler was freed");
    }
    object
}

/// The name where there is no sampler.
const NAMELESS: &CStr = c"llama-sieve";

// The entries of the vtable. Their common safety condition is the host's part of the interface:
// `smpl` is NULL or a live sampler with the vtable of `S`.

unsafe extern "C" fn name<S: Sampler>(smpl: *const llama_sampler) -> *const c_char {
    guard(
        "name",
        || NAMELESS.as_ptr(),
        || {
            // SAFETY: the host calls entries only on samplers that have them.
            let object = unsafe { object::<S>(smpl) };
            object.map_or(NAMELESS, |object| object.name).as_ptr()
        },
    )
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
        // SAFETY: the host passes NULL or a valid array that nobody else uses during the call.
        || guard("apply", || (), || unsafe { give_up::<S>(smpl, cur_p) }),
        || {
            // SAFETY: the host calls entries only on samplers that have them.
            let object = unsafe { object::<S>(smpl) };
            // SAFETY: the host passes NULL or a valid array that nobody else uses during the call.
            let mut array = match unsafe { CandidateArray::new(cur_p) } {
                Ok(array) => array,
                Err(unfit) => return unfit.say(object.map_or(NAMELESS, |object| object.name)),
            };
            let done = object.and_then(|object| {
                let mut candidates = array.candidates();
                object.run("apply", |sampler| sampler.apply(&mut candidates))?;
                Some(Outcome::of(&candidates))
            });
            match (done, S::KIND) {
                (Some(outcome), kind) => array.keep(outcome, kind),
                (None, Kind::Filter) => {}
                (None, Kind::Selector) => array.select_argmax(),
                (None, Kind::Constraint) => array.salvage(object),
            }
        },
    )
}

/// Leaves the candidates as a sampler of this kind must that failed before it could be asked.
///
/// # Safety
/// As for the entries, and `cur_p` is NULL or a valid array that nobody else uses during the call.
unsafe fn give_up<S: Sampler>(smpl: *mut llama_sampler, cur_p: *mut llama_token_data_array) {
    // SAFETY: the caller guarantees it.
    let Ok(mut array) = (unsafe { CandidateArray::new(cur_p) }) else {
        return;
    };
    match S::KIND {
        Kind::Filter => {}
        Kind::Selector => array.select_argmax(),
        // SAFETY: as above.
        Kind::Constraint => array.salvage::<S>(unsafe { object(smpl) }),
    }
}

unsafe extern "C" fn clone<S: Sampler>(smpl: *const llama_sampler) -> *mut llama_sampler {
    guard(
        "clone",
        || {
            let without = |_: &Object<S>| None;
            // SAFETY: the host calls entries only on samplers that have them.
            guard("clone", null_mut, || unsafe { clone_with(smpl, without) })
        },
        || {
            // SAFETY: as above.
            unsafe { clone_with::<S>(smpl, Object::copied) }
        },
    )
}

/// A second sampler around what `copy` gives.
///
/// A filter or selector that is out of use gives one out of use, and so does one that cannot be
/// copied: it passes all through, or takes the largest logit, where a chain would call through
/// NULL. A constraint that cannot be copied gives NULL: one out of use would allow nothing.
///
/// # Safety
/// As for the entries.
unsafe fn clone_with<S: Sampler>(
    smpl: *const llama_sampler,
    copy: impl FnOnce(&Object<S>) -> Option<S>,
) -> *mut llama_sampler {
    // SAFETY: the caller guarantees the sampler.
    let Some(object) = (unsafe { object::<S>(smpl) }) else {
        return null_mut();
    };
    // SAFETY: `object` came from `smpl`, which is therefore not NULL.
    let iface = unsafe { (*smpl).iface };
    let copy = copy(object);
    if copy.is_none() && S::KIND == Kind::Constraint {
        return null_mut();
    }
    Object::new(object.host, object.name, copy).into_shell(iface)
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
            // Taken for good, so that nobody else gets it between here and its end.
            let Some(taken) = object.state.take() else {
                log::error(
                    "free: the sampler is in use by another thread; its memory is leaked, not pulled away",
                );
                return;
            };
            std::mem::forget(taken);
            // SAFETY: `object` came from `smpl`, which is therefore not NULL; nobody uses it any
            // more, and `ctx` is not used again.
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
            // SAFETY: the host has compared the vtables, and calls entries only on samplers that
            // have them.
            let objects = unsafe { (object::<S>(src), object::<S>(dst)) };
            let (Some(from), Some(to)) = objects else {
                return;
            };
            if !std::ptr::eq(from, to) {
                to.copy_from(from);
            }
        },
    )
}

/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
unsafe fn seed<S: Sampler>(smpl: *const llama_sampler) -> Option<u32> {
    // SAFETY: the caller guarantees it.
    let object = unsafe { object::<S>(smpl) }?;
    object.look("seed", S::seed).flatten()
}

/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
unsafe fn recipe<S: Sampler>(smpl: *const llama_sampler) -> Option<Recipe> {
    // SAFETY: the caller guarantees it.
    let object = unsafe { object::<S>(smpl) }?;
    let built_in = object.look("backend_init", S::built_in).flatten()?;
    match Recipe::new(&object.host, built_in) {
        Ok(recipe) => Some(recipe),
        Err(text) => {
            object.say("backend_init", &text);
            None
        }
    }
}

/// # Safety
/// `smpl` is a live sampler with the vtable of `S`.
unsafe fn narrow<S: Sampler>(smpl: *mut llama_sampler, pool: &mut Pool<'_>) {
    let done = guard(
        "apply",
        || None,
        || {
            // SAFETY: the caller guarantees it.
            let object = unsafe { object::<S>(smpl) }?;
            object.run("apply", |sampler| sampler.narrow(pool))
        },
    );
    if done.is_none() && S::KIND != Kind::Filter {
        // SAFETY: as above.
        guard("apply", || (), || unsafe { give_up_pool::<S>(smpl, pool) });
    }
}

/// Leaves the candidates as a selector or constraint must that failed.
///
/// # Safety
/// As for [`narrow`].
unsafe fn give_up_pool<S: Sampler>(smpl: *mut llama_sampler, pool: &mut Pool<'_>) {
    if S::KIND == Kind::Selector {
        return pool.apply(|candidates| {
            let best = candidates.argmax();
            candidates.select(best);
        });
    }
    // SAFETY: the caller guarantees it.
    let object = unsafe { object::<S>(smpl) };
    let salvage = |sampler: &mut S| pool.apply(|candidates| sampler.salvage(candidates));
    let salvaged = object.and_then(|object| object.run("salvage", salvage));
    if salvaged.is_none() {
        let (data, _) = pool.array();
        for candidate in data {
            candidate.logit = f32::NEG_INFINITY;
        }
    }
}

/// Puts the built-in in the sampler's place, and lets it answer. False where that cannot be: then
/// the host samples with ours, after what it runs in its graph. What the host throws passes
/// through.
unsafe extern "C-unwind" fn backend_init<S: Sampler>(
    smpl: *mut llama_sampler,
    buffers: *mut c_void,
    n_outputs: u32,
) -> u8 {
    // SAFETY: the host calls entries only on samplers that have them.
    let recipe = guard("backend_init", || None, || unsafe { recipe::<S>(smpl) });
    // SAFETY: as above; the recipe was told by this sampler.
    let hook = recipe.and_then(|recipe| unsafe { give_way(smpl, &recipe) });
    // SAFETY: the hook of the built-in that now is there, with the arguments of the host.
    hook.map_or(0, |hook| unsafe { hook(smpl, buffers, n_outputs) })
}

/// There is nothing to do in the graph: the host has no other hook to call.
unsafe extern "C-unwind" fn backend_pass_over(
    _smpl: *mut llama_sampler,
    _buffers: *mut c_void,
    _n_outputs: u32,
) -> u8 {
    1
}

/// What a sampler made of the candidates.
struct Outcome {
    dropped: usize,
    len: usize,
    sorted: bool,
    selected: Option<usize>,
}

impl Outcome {
    fn of(candidates: &Candidates<'_>) -> Self {
        Self {
            dropped: candidates.dropped(),
            len: candidates.len(),
            sorted: candidates.is_sorted(),
            selected: candidates.selected(),
        }
    }
}

/// Why a host's array cannot be used. No text yet: making one takes more code than all that is done
/// for an array that can.
enum Unfit {
    Null,
    /// Of this size.
    TooLarge(usize),
    WithoutData(usize),
}

impl Unfit {
    #[cold]
    fn say(self, sampler: &CStr) {
        let what = match self {
            Self::Null => "the candidate array is NULL or not aligned".into(),
            Self::TooLarge(size) => format!(
                "the candidate array has size {size}; token numbers end at {}",
                Token::MAX
            ),
            Self::WithoutData(size) => {
                format!("the candidate array has size {size} and NULL or unaligned data")
            }
        };
        last_error::set(&format!("{}: apply: {what}", sampler.to_string_lossy()));
    }
}

/// The host's array, checked.
struct CandidateArray<'a> {
    array: &'a mut llama_token_data_array,
    data: &'a mut [TokenData],
}

impl<'a> CandidateArray<'a> {
    /// # Safety
    /// `array` is NULL or valid, with `size` candidates behind `data` unless that is NULL, and
    /// unused by others during `'a`.
    #[inline]
    unsafe fn new(array: *mut llama_token_data_array) -> Result<Self, Unfit> {
        if array.is_null() || !array.is_aligned() {
            return Err(Unfit::Null);
        }
        // SAFETY: not NULL, and the caller guarantees that it is valid.
        let array = unsafe { &mut *array };
        if array.size > Token::MAX as usize {
            return Err(Unfit::TooLarge(array.size));
        }
        if array.size == 0 {
            return Ok(Self {
                array,
                data: &mut [],
            });
        }
        if array.data.is_null() || !array.data.is_aligned() {
            return Err(Unfit::WithoutData(array.size));
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
        // As the built-in XTC does it: the array then begins further on.
        self.array.data = self.array.data.wrapping_add(outcome.dropped);
        self.array.size = outcome.len;
        self.array.sorted = u8::from(outcome.sorted);
        // A constraint may select.
        if kind != Kind::Filter {
            self.array.selected = outcome.selected.map_or(-1, |index| index as i64);
        }
    }

    /// Leaves what a constraint allows that has failed. If it cannot say, every candidate stays,
    /// with minus infinity: hosts read beyond an array that is empty.
    fn salvage<S: Sampler>(&mut self, object: Option<&Object<S>>) {
        let mut candidates = self.candidates();
        let salvaged = object
            .and_then(|object| object.run("salvage", |sampler| sampler.salvage(&mut candidates)));
        if salvaged.is_some() {
            let outcome = Outcome::of(&candidates);
            return self.keep(outcome, Kind::Filter);
        }
        for candidate in &mut *self.data {
            candidate.logit = f32::NEG_INFINITY;
        }
    }

    fn select_argmax(&mut self) {
        self.array.selected = kernels::argmax(self.data).map_or(-1, |index| index as i64);
    }
}

// Not under Miri, which cannot call the host; `ffi::tests` drives every entry without one.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::ffi::CStr;
    use std::sync::mpsc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use vendor_llama_cpp::sys;

    use super::*;
    use crate::pool::Buffers;

    /// What a faulty sampler panics in.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        Apply,
        ApplyAndDrop,
        Accept,
        Reset,
        Clone,
        Nothing,
    }

    struct Faulty<const SELECTOR: bool>(Fault);

    impl<const SELECTOR: bool> Clone for Faulty<SELECTOR> {
        fn clone(&self) -> Self {
            assert!(self.0 != Fault::Clone, "clone fails");
            Self(self.0)
        }
    }

    impl<const SELECTOR: bool> Drop for Faulty<SELECTOR> {
        fn drop(&mut self) {
            assert!(self.0 != Fault::ApplyAndDrop, "drop fails");
        }
    }

    impl<const SELECTOR: bool> Sampler for Faulty<SELECTOR> {
        const KIND: Kind = if SELECTOR {
            Kind::Selector
        } else {
            Kind::Filter
        };
        const ACCEPTS: bool = true;
        const RESETS: bool = true;

        fn name(&self) -> &'static CStr {
            c"faulty"
        }

        fn apply(&mut self, candidates: &mut Candidates<'_>) {
            let faulty = matches!(self.0, Fault::Apply | Fault::ApplyAndDrop);
            assert!(!faulty, "apply fails");
            candidates.truncate(1);
        }

        fn accept(&mut self, _token: Token) {
            assert!(self.0 != Fault::Accept, "accept fails");
        }

        fn reset(&mut self) {
            assert!(self.0 != Fault::Reset, "reset fails");
        }
    }

    /// Allows token 1 alone; panics in `apply`, and on demand when it is asked afterwards.
    #[derive(Clone)]
    struct FaultyConstraint {
        salvages: bool,
    }

    impl Sampler for FaultyConstraint {
        const KIND: Kind = Kind::Constraint;

        fn name(&self) -> &'static CStr {
            c"faulty constraint"
        }

        fn apply(&mut self, _candidates: &mut Candidates<'_>) {
            panic!("apply fails");
        }

        fn salvage(&mut self, candidates: &mut Candidates<'_>) {
            assert!(self.salvages, "salvage fails");
            candidates.truncate(1);
        }
    }

    #[test]
    fn a_constraint_that_panics_fails_closed() {
        static CONSTRAINT: Vtable = vtable::<FaultyConstraint>();
        let smpl: *mut sys::llama_sampler =
            into_host(&CONSTRAINT, FaultyConstraint { salvages: true }).cast();
        assert_eq!(apply(smpl), (1, -1));
        // It is asked again at each token.
        assert_eq!(apply(smpl), (1, -1));
        free(smpl);
    }

    #[test]
    fn a_constraint_that_cannot_say_what_it_allows_bans_every_candidate_and_removes_none() {
        static CONSTRAINT: Vtable = vtable::<FaultyConstraint>();
        let faulty = FaultyConstraint { salvages: false };
        let smpl: *mut sys::llama_sampler = into_host(&CONSTRAINT, faulty).cast();
        let mut data = [1.0, 2.0, 9.0, f32::NAN].map(|logit| sys::llama_token_data {
            id: 5,
            logit,
            p: 0.0,
        });
        let mut array = sys::llama_token_data_array {
            data: data.as_mut_ptr(),
            size: data.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: a live sampler and a valid array.
        unsafe { sys::llama_sampler_apply(smpl, &raw mut array) };
        assert_eq!((array.size, array.selected), (4, -1));
        assert!(data.iter().all(|c| c.logit == f32::NEG_INFINITY));
        assert!(last_error::get().contains("salvage fails"));
        free(smpl);
    }

    static FILTER: Vtable = vtable::<Faulty<false>>();
    static SELECTOR: Vtable = vtable::<Faulty<true>>();

    fn filter(fault: Fault) -> *mut sys::llama_sampler {
        into_host(&FILTER, Faulty::<false>(fault)).cast()
    }

    fn selector(fault: Fault) -> *mut sys::llama_sampler {
        into_host(&SELECTOR, Faulty::<true>(fault)).cast()
    }

    /// Size and selection after `apply` through the host, on logits whose largest is the third of
    /// four.
    fn apply(smpl: *mut sys::llama_sampler) -> (usize, i64) {
        let logits = [1.0, 2.0, 9.0, f32::NAN];
        let mut data = logits.map(|logit| sys::llama_token_data {
            id: 5,
            logit,
            p: 0.0,
        });
        let before = data;
        let mut array = sys::llama_token_data_array {
            data: data.as_mut_ptr(),
            size: data.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: a live sampler and a valid array.
        unsafe { sys::llama_sampler_apply(smpl, &raw mut array) };
        for (a, b) in data.iter().zip(&before) {
            assert_eq!((a.id, a.logit.to_bits()), (b.id, b.logit.to_bits()));
        }
        (array.size, array.selected)
    }

    fn free(smpl: *mut sys::llama_sampler) {
        // SAFETY: a live sampler, not used again.
        unsafe { sys::llama_sampler_free(smpl) };
    }

    #[test]
    fn a_filter_that_panics_passes_the_candidates_through() {
        let smpl = filter(Fault::Apply);
        assert_eq!(apply(smpl), (4, -1));
        assert!(last_error::get().contains("faulty: apply"));
        assert!(last_error::get().contains("apply fails"));
        // It stays out of use, and says so.
        assert_eq!(apply(smpl), (4, -1));
        assert!(last_error::get().contains("out of use"));
        free(smpl);
    }

    #[test]
    fn a_selector_that_panics_selects_the_largest_logit() {
        let smpl = selector(Fault::Apply);
        assert_eq!(apply(smpl), (4, 2));
        assert_eq!(apply(smpl), (4, 2));
        free(smpl);
    }

    #[test]
    fn a_destructor_that_panics_after_that_is_survived() {
        let smpl = filter(Fault::ApplyAndDrop);
        assert_eq!(apply(smpl), (4, -1));
        free(smpl);
        let smpl = filter(Fault::ApplyAndDrop);
        free(smpl);
    }

    #[test]
    fn accept_and_reset_that_panic_take_the_sampler_out_of_use() {
        let smpl = filter(Fault::Accept);
        assert_eq!(apply(smpl), (1, -1));
        // SAFETY: a live sampler.
        unsafe { sys::llama_sampler_accept(smpl, 7) };
        assert!(last_error::get().contains("accept fails"));
        assert_eq!(apply(smpl), (4, -1));
        free(smpl);

        let smpl = filter(Fault::Reset);
        // SAFETY: a live sampler.
        unsafe { sys::llama_sampler_reset(smpl) };
        assert!(last_error::get().contains("reset fails"));
        assert_eq!(apply(smpl), (4, -1));
        free(smpl);
    }

    #[test]
    fn a_clone_that_panics_is_a_sampler_out_of_use_never_null() {
        let smpl = selector(Fault::Clone);
        // SAFETY: a live sampler.
        let copy = unsafe { sys::llama_sampler_clone(smpl) };
        assert!(!copy.is_null());
        assert!(last_error::get().contains("clone fails"));
        assert_eq!(apply(copy), (4, 2));
        free(copy);
        // What was to be cloned was only read, and stays in use.
        assert_eq!(apply(smpl), (1, -1));
        free(smpl);
    }

    #[test]
    fn copying_takes_over_the_state_and_nothing_else() {
        let (src, dst) = (filter(Fault::Nothing), filter(Fault::Apply));
        // SAFETY: two live samplers of one kind.
        unsafe { sys::llama_sampler_copy(src, dst) };
        assert_eq!(apply(dst), (1, -1));
        free(src);
        free(dst);
    }

    /// Waits inside `apply` until it is told to go on.
    #[derive(Clone)]
    struct Slow(Arc<Mutex<(mpsc::Sender<()>, mpsc::Receiver<()>)>>);

    impl Sampler for Slow {
        fn name(&self) -> &'static CStr {
            c"slow"
        }

        fn apply(&mut self, candidates: &mut Candidates<'_>) {
            let (entered, go_on) = &*self.0.lock();
            entered.send(()).expect("the test listens");
            go_on
                .recv_timeout(Duration::from_secs(60))
                .expect("the test goes on");
            candidates.truncate(1);
        }
    }

    #[test]
    fn a_second_thread_gets_an_error_instead_of_a_data_race() {
        static SLOW: Vtable = vtable::<Slow>();
        let (entered, wait_for_entry) = mpsc::channel();
        let (go_on, wait_to_go_on) = mpsc::channel();
        let channels = Arc::new(Mutex::new((entered, wait_to_go_on)));
        let smpl: *mut sys::llama_sampler = into_host(&SLOW, Slow(channels)).cast();
        let address = smpl as usize;
        let first = std::thread::spawn(move || apply(address as *mut sys::llama_sampler));
        wait_for_entry.recv().expect("the first thread enters");
        assert_eq!(apply(smpl), (4, -1));
        assert!(last_error::get().contains("in use by another thread"));
        go_on.send(()).expect("the first thread waits");
        assert_eq!(first.join().expect("no panic"), (1, -1));
        free(smpl);
    }

    /// The same as a constraint that is at work.
    #[derive(Clone)]
    struct SlowConstraint(Slow);

    impl Sampler for SlowConstraint {
        const KIND: Kind = Kind::Constraint;

        fn name(&self) -> &'static CStr {
            c"slow constraint"
        }

        fn apply(&mut self, candidates: &mut Candidates<'_>) {
            self.0.apply(candidates);
        }
    }

    #[test]
    fn a_clone_waits_for_a_sampler_at_work_and_is_none_that_allows_nothing() {
        static SLOW: Vtable = vtable::<SlowConstraint>();
        let (entered, wait_for_entry) = mpsc::channel();
        let (go_on, wait_to_go_on) = mpsc::channel();
        let channels = Arc::new(Mutex::new((entered, wait_to_go_on)));
        let slow = SlowConstraint(Slow(channels));
        let smpl: *mut sys::llama_sampler = into_host(&SLOW, slow).cast();
        let address = smpl as usize;
        let at_work = || {
            let thread = std::thread::spawn(move || apply(address as *mut sys::llama_sampler));
            wait_for_entry.recv().expect("the thread enters");
            thread
        };
        let first = at_work();
        // SAFETY: a live sampler, whose state is behind a lock.
        let copy = unsafe { sys::llama_sampler_clone(smpl) };
        assert!(copy.is_null());
        assert!(last_error::get().contains("in use by another thread"));
        go_on.send(()).expect("the first thread waits");
        assert_eq!(first.join().expect("no panic"), (1, -1));

        let second = at_work();
        let later = go_on.clone();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            later.send(()).expect("the second thread waits");
        });
        // SAFETY: as above.
        let copy = unsafe { sys::llama_sampler_clone(smpl) };
        assert!(!copy.is_null());
        ends.join().expect("no panic");
        assert_eq!(second.join().expect("no panic"), (1, -1));
        go_on.send(()).expect("the copy listens");
        assert_eq!(apply(copy), (1, -1));
        free(copy);
        free(smpl);
    }

    /// How many are left of a pool of four, and which is selected.
    fn narrow(vtable: &'static Vtable, smpl: *mut sys::llama_sampler) -> (usize, Option<usize>) {
        let logits = [1.0f32, 2.0, 9.0, f32::NAN];
        let mut buffers = Buffers::default();
        let mut pool = Pool::new(&logits[..], &mut buffers);
        // SAFETY: a live sampler with this vtable.
        unsafe { vtable.narrow(smpl.cast(), &mut pool) };
        (pool.len(), pool.selected())
    }

    #[test]
    fn a_failure_leaves_of_a_pool_what_it_leaves_of_an_array() {
        let smpl = filter(Fault::Nothing);
        assert_eq!(narrow(&FILTER, smpl), (1, None));
        free(smpl);
        let smpl = filter(Fault::Apply);
        assert_eq!(narrow(&FILTER, smpl), (4, None));
        assert!(last_error::get().contains("faulty: apply"));
        assert_eq!(narrow(&FILTER, smpl), (4, None));
        assert!(last_error::get().contains("out of use"));
        free(smpl);
        let smpl = selector(Fault::Apply);
        assert_eq!(narrow(&SELECTOR, smpl), (4, Some(2)));
        free(smpl);
        static CONSTRAINT: Vtable = vtable::<FaultyConstraint>();
        for (salvages, left) in [(true, 1), (false, 4)] {
            let smpl = into_host(&CONSTRAINT, FaultyConstraint { salvages }).cast();
            assert_eq!(narrow(&CONSTRAINT, smpl), (left, None));
            free(smpl);
        }
    }

    #[test]
    fn what_a_sampler_lacks_is_null() {
        #[derive(Clone)]
        struct Plain;
        impl Sampler for Plain {
            fn name(&self) -> &'static CStr {
                c"plain"
            }
            fn apply(&mut self, _candidates: &mut Candidates<'_>) {}
        }
        let plain = vtable::<Plain>().iface;
        assert!(plain.accept.is_none() && plain.reset.is_none());
        assert!(plain.backend_init.is_none() && plain.backend_apply.is_none());
        assert!(plain.name.is_some() && plain.apply.is_some());
        assert!(plain.clone.is_some() && plain.free.is_some());
    }

    #[test]
    fn null_is_an_answer_in_every_entry() {
        let entries = &FILTER.iface;
        // SAFETY: NULL is allowed by the entries' own condition.
        unsafe {
            let name = entries.name.expect("has a name")(std::ptr::null());
            assert_eq!(CStr::from_ptr(name), c"llama-sieve");
            entries.accept.expect("accepts")(null_mut(), 1);
            entries.apply.expect("applies")(null_mut(), null_mut());
            entries.reset.expect("resets")(null_mut());
            assert!(entries.clone.expect("clones")(std::ptr::null()).is_null());
            entries.free.expect("frees")(null_mut());
            entries.copy_state.expect("copies")(std::ptr::null(), null_mut());
        }
    }
}
