//! Injects a fault at every point of every entry of a vtable.

use std::ffi::CStr;

use super::cases::*;
use super::exports::*;
use super::world::*;
use crate::fault::armed;
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::tests::mock_host;
use crate::last_error;

impl Answer {
    pub(super) fn is(self, after: &After) -> bool {
        let all = logits()
            .iter()
            .map(|logit| logit.to_bits())
            .collect::<Vec<_>>();
        match self {
            Filter => after.logits == all && after.selected == -1,
            Selector => after.logits == all && after.selected == i64::from(LARGEST),
            Constraint => after.ids.iter().all(|id| CHILDREN.contains(id)),
            Masking => self.is_allowed(after),
        }
    }
}

/// The entries of a vtable, by name.
pub(super) const ENTRIES: [&str; 7] = [
    "name",
    "accept",
    "apply",
    "reset",
    "clone",
    "free",
    "copy_state",
];

pub(super) fn faults_in_entries(constructor: &str) {
    let _turn = TURN.lock();
    mock_host::install();
    quiet();
    let maker = samplers()
        .into_iter()
        .find(|(name, _, _)| *name == constructor);
    let (_, make, kind) = maker.expect("it is known");
    let injected: usize = ENTRIES
        .iter()
        .map(|entry| {
            let what = format!("{entry} of {constructor}");
            each_point(&what, |points| {
                fault_in_entry(make, kind, entry, points, constructor)
            })
        })
        .sum();
    eprintln!("{injected} faults in the entries of {constructor}");
}

pub(super) fn make_one(world: &World, make: Make) -> *mut llama_sampler {
    assert_eq!(make(world), "an object", "{}", last_error::get());
    match world.made.borrow().last() {
        Some(Made::Sampler(smpl)) => *smpl,
        _ => unreachable!("it was just made"),
    }
}

/// Injects a fault at this point of an entry, and checks the consequences. Returns false if the
/// entry has no such point, and `None` if the vtable has no such entry.
pub(super) fn fault_in_entry(
    make: Make,
    kind: Answer,
    entry: &str,
    points: usize,
    constructor: &str,
) -> Option<bool> {
    let at = format!("{entry} of {constructor}, point {points}");
    let world = World::bare();
    let smpl = make_one(&world, make);
    let fresh = make_one(&world, make);
    // SAFETY: a live sampler of this library.
    let iface = unsafe { &*(*smpl).iface };
    // The sampler now has its buffers.
    let usual = apply(smpl);
    // SAFETY: live samplers of this library throughout; what is freed is not used again.
    unsafe {
        match entry {
            "name" => {
                let (name, fired) = armed::with(points, || iface.name.expect("named")(smpl));
                if fired {
                    assert_eq!(CStr::from_ptr(name), c"llama-sieve", "{at}");
                }
                Some(noted(fired, &at))
            }
            "accept" | "reset" => {
                let call: Box<dyn Fn()> = match (entry, iface.accept, iface.reset) {
                    ("accept", Some(accept), _) => Box::new(move || accept(smpl, 1)),
                    ("reset", _, Some(reset)) => Box::new(move || reset(smpl)),
                    _ => return None,
                };
                let ((), fired) = armed::with(points, call);
                let fired = noted(fired, &at);
                let after = apply(smpl);
                if fired && points > 0 && !kind.constrains() {
                    assert!(kind.is(&after), "{at}: {after:?}");
                    assert!(last_error::get().contains("out of use"), "{at}");
                }
                if fired && kind.constrains() {
                    assert!(kind.is_allowed(&after), "{at}: {after:?}");
                }
                Some(fired)
            }
            "apply" => {
                let (after, fired) = armed::with(points, || apply(fresh));
                let fired = noted(fired, &at);
                if fired {
                    assert!(kind.is(&after), "{at}: {after:?}");
                    let again = apply(fresh);
                    let stays = points > 0 && !kind.constrains() && kind.is(&again);
                    assert!(
                        stays || again == usual || kind == Masking && kind.is(&again),
                        "{at}: {again:?}, usually {usual:?}"
                    );
                } else {
                    assert_eq!(after, usual, "{at}");
                }
                Some(fired)
            }
            "clone" => {
                let clone = iface.clone.expect("always there");
                let (copy, fired) = armed::with(points, || clone(smpl));
                let fired = noted(fired, &at);
                // If a constraint cannot be cloned, the result is NULL, never a constraint that
                // allows nothing.
                assert_eq!(copy.is_null(), fired && kind.constrains(), "{at}");
                if !copy.is_null() {
                    let after = apply(copy);
                    assert!(!fired || kind.is(&after), "{at}: {after:?}");
                    mock_host::free(copy);
                }
                // The cloned sampler was only read, and can still be used.
                last_error::clear();
                apply(smpl);
                assert_eq!(last_error::get(), "", "{at}");
                Some(fired)
            }
            "free" => {
                let free = iface.free.expect("always there");
                let ((), fired) = armed::with(points, || free(smpl));
                let fired = noted(fired, &at);
                // Dropping the world frees it again, which frees what is left or does nothing.
                assert_eq!((*smpl).ctx.is_null(), !fired, "{at}");
                Some(fired)
            }
            "copy_state" => {
                let copy = iface.copy_state.expect("always there");
                let ((), fired) = armed::with(points, || copy(smpl, fresh));
                let fired = noted(fired, &at);
                let after = apply(fresh);
                if fired && kind.constrains() {
                    assert!(kind.is_allowed(&after), "{at}: {after:?}");
                }
                if fired && points > 0 && !kind.constrains() {
                    assert!(kind.is(&after), "{at}: {after:?}");
                }
                Some(fired)
            }
            _ => unreachable!("no such entry"),
        }
    }
}

impl Answer {
    /// Returns true if all candidates that are left and not masked are allowed.
    pub(super) fn is_allowed(self, after: &After) -> bool {
        let mut left = after.ids.iter().zip(&after.logits);
        let may = |id| CHILDREN.contains(id) || self == Masking && *id == mock_host::N_VOCAB - 1;
        left.all(|(id, logit)| may(id) || f32::from_bits(*logit) == f32::NEG_INFINITY)
    }

    /// Returns true if a fault must not make the sampler allow more than before.
    pub(super) fn constrains(self) -> bool {
        matches!(self, Constraint | Masking)
    }
}

pub(super) fn noted(fired: bool, at: &str) -> bool {
    if fired {
        let told = last_error::get();
        assert!(told.contains(armed::TEXT), "{at}: {told}");
        let entry = at.split(' ').next().unwrap_or_default();
        assert!(told.contains(entry), "{at}: {told}");
    }
    fired
}
