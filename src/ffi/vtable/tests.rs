//! Tests of faulty and slow samplers in a real host.

use std::ffi::CStr;
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::Mutex;
use vendor_llama_cpp::sys;

use crate::candidates::Candidates;
use crate::last_error;
use crate::sampler::{Kind, Sampler};
use crate::token::Token;
use std::sync::Arc;

use super::*;
use crate::pool::Buffers;

/// The function in which a faulty sampler panics.
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

/// A constraint that allows only the first candidate. It panics in `apply`, and in `salvage` if
/// `salvages` is false.
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
    // At the next token it is called again.
    assert_eq!(apply(smpl), (1, -1));
    free(smpl);
}

#[test]
fn a_constraint_that_cannot_say_what_it_allows_bans_every_candidate_and_removes_none() {
    static CONSTRAINT: Vtable = vtable::<FaultyConstraint>();
    let faulty = FaultyConstraint { salvages: false };
    let smpl: *mut sys::llama_sampler = into_host(&CONSTRAINT, faulty).cast();
    let (data, left) = applied(smpl);
    assert_eq!(left, (4, -1));
    assert!(data.iter().all(|c| c.logit == f32::NEG_INFINITY));
    assert!(last_error::get().contains("salvage fails"));
    free(smpl);
}

/// Checks that a clone has this library's vtable even if the host has given the original a
/// different one, which the host may free before the clone.
#[test]
fn a_clone_has_the_vtable_of_its_kind() {
    let smpl: *mut llama_sampler = filter(Fault::Nothing).cast();
    // SAFETY: a live sampler, whose vtable is a copy of its own while it is cloned.
    unsafe {
        let own = (*smpl).iface;
        let mut wrapper = own.read();
        (*smpl).iface = &raw mut wrapper;
        let clone: *mut llama_sampler = sys::llama_sampler_clone(smpl.cast()).cast();
        assert_eq!((*clone).iface, own);
        (*smpl).iface = own;
        free(clone.cast());
    }
    free(smpl.cast());
}

static FILTER: Vtable = vtable::<Faulty<false>>();
static SELECTOR: Vtable = vtable::<Faulty<true>>();

fn filter(fault: Fault) -> *mut sys::llama_sampler {
    into_host(&FILTER, Faulty::<false>(fault)).cast()
}

fn selector(fault: Fault) -> *mut sys::llama_sampler {
    into_host(&SELECTOR, Faulty::<true>(fault)).cast()
}

/// Logits of which the third is the largest.
const LOGITS: [f32; 4] = [1.0, 2.0, 9.0, f32::NAN];

/// Returns the candidates, and the size and the selected index, after `apply` through the host.
fn applied(smpl: *mut sys::llama_sampler) -> ([sys::llama_token_data; 4], (usize, i64)) {
    let mut data = LOGITS.map(|logit| sys::llama_token_data {
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
    let left = (array.size, array.selected);
    (data, left)
}

/// Returns the size and the selected index after `apply`, which must change no candidate.
fn apply(smpl: *mut sys::llama_sampler) -> (usize, i64) {
    let (data, left) = applied(smpl);
    for (candidate, logit) in data.iter().zip(LOGITS) {
        let (id, bits) = (candidate.id, candidate.logit.to_bits());
        assert_eq!((id, bits), (5, logit.to_bits()));
    }
    left
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
    // The sampler stays disabled, and reports that.
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
    // The source was only read, and stays in use.
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

/// A sampler that waits inside `apply` until the test lets it continue.
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

/// A slow sampler that several threads use at once, with channels to wait for it and to let it
/// continue.
struct SharedSlow {
    smpl: *mut sys::llama_sampler,
    wait_for_entry: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

impl SharedSlow {
    fn new() -> Self {
        static SLOW: Vtable = vtable::<Slow>();
        Self::of(&SLOW, |slow| slow)
    }

    /// Returns the sampler that `make` makes from a slow one.
    fn of<S: Sampler>(vtable: &'static Vtable, make: impl FnOnce(Slow) -> S) -> Self {
        let (entered, wait_for_entry) = mpsc::channel();
        let (go_on, wait_to_go_on) = mpsc::channel();
        let channels = Arc::new(Mutex::new((entered, wait_to_go_on)));
        Self {
            smpl: into_host(vtable, make(Slow(channels))).cast(),
            wait_for_entry,
            go_on,
        }
    }

    /// Returns a thread that is inside `apply`.
    fn at_work(&self) -> std::thread::JoinHandle<(usize, i64)> {
        let address = self.smpl as usize;
        let thread = std::thread::spawn(move || apply(address as *mut sys::llama_sampler));
        self.wait_for_entry.recv().expect("the thread enters");
        thread
    }
}

#[test]
fn a_second_thread_waits_for_the_first() {
    let slow = SharedSlow::new();
    let first = slow.at_work();
    let later = slow.go_on.clone();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        later.send(()).expect("the first thread waits");
        later.send(()).expect("the second thread waits");
    });
    assert_eq!(apply(slow.smpl), (1, -1));
    assert_eq!(first.join().expect("no panic"), (1, -1));
    ends.join().expect("no panic");
    free(slow.smpl);
}

#[test]
fn a_second_thread_that_has_waited_long_gets_an_error_instead_of_a_data_race() {
    let slow = SharedSlow::new();
    let first = slow.at_work();
    assert_eq!(apply(slow.smpl), (4, -1));
    assert!(last_error::get().contains("in use by another thread"));
    slow.go_on.send(()).expect("the first thread waits");
    assert_eq!(first.join().expect("no panic"), (1, -1));
    free(slow.smpl);
}

#[test]
fn copies_in_both_directions_take_both_samplers_in_one_order() {
    let mut pair = [SharedSlow::new(), SharedSlow::new()];
    // SAFETY: live samplers.
    pair.sort_by_key(|slow| unsafe { (*slow.smpl.cast::<llama_sampler>()).ctx } as usize);
    let [low, high] = &pair;
    let first = low.at_work();
    let addresses = [low.smpl as usize, high.smpl as usize];
    let copies = [(0, 1), (1, 0)].map(|(from, to)| {
        std::thread::spawn(move || {
            let (from, to) = (addresses[from] as *const _, addresses[to] as *mut _);
            // SAFETY: two live samplers of one kind.
            unsafe { sys::llama_sampler_copy(from, to) };
        })
    });
    std::thread::sleep(Duration::from_millis(100));
    // Both copies wait for the sampler at work, and neither of them holds the other sampler.
    high.go_on.send(()).expect("it listens");
    assert_eq!(apply(high.smpl), (1, -1));
    low.go_on.send(()).expect("the first thread waits");
    assert_eq!(first.join().expect("no panic"), (1, -1));
    for copy in copies {
        copy.join().expect("no panic");
    }
    for slow in &pair {
        free(slow.smpl);
    }
}

/// A constraint that waits inside `apply`.
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
    let slow = SharedSlow::of(&SLOW, SlowConstraint);
    let smpl = slow.smpl;
    let first = slow.at_work();
    // SAFETY: a live sampler, whose state is behind a lock.
    let copy = unsafe { sys::llama_sampler_clone(smpl) };
    assert!(copy.is_null());
    assert!(last_error::get().contains("in use by another thread"));
    slow.go_on.send(()).expect("the first thread waits");
    assert_eq!(first.join().expect("no panic"), (1, -1));

    let second = slow.at_work();
    let later = slow.go_on.clone();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        later.send(()).expect("the second thread waits");
    });
    // SAFETY: as above.
    let copy = unsafe { sys::llama_sampler_clone(smpl) };
    assert!(!copy.is_null());
    ends.join().expect("no panic");
    assert_eq!(second.join().expect("no panic"), (1, -1));
    slow.go_on.send(()).expect("the copy listens");
    assert_eq!(apply(copy), (1, -1));
    free(copy);
    free(smpl);
}

/// Applies the sampler to a pool of four candidates. Returns the number of candidates that are
/// left, and the selected index.
fn narrow(vtable: &'static Vtable, smpl: *mut sys::llama_sampler) -> (usize, Option<usize>) {
    let mut buffers = Buffers::default();
    let mut pool = Pool::new(&LOGITS[..], &mut buffers);
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
