use super::*;
use std::cell::Cell;

thread_local! {
    /// The instruction set that a test runs its kernels on.
    pub(super) static FORCED: Cell<Option<Isa>> = const { Cell::new(None) };
}

/// The instruction set that was forced before, restored when this is dropped.
#[must_use]
pub struct Forced(Option<Isa>);

impl Drop for Forced {
    fn drop(&mut self) {
        FORCED.set(self.0);
    }
}

impl Isa {
    /// Lets everything that this thread calls run with this instruction set, until what is returned
    /// is dropped.
    pub fn force(self) -> Forced {
        Forced(FORCED.replace(Some(self)))
    }
}

#[test]
fn every_instruction_set_agrees_with_the_c_library() {
    for isa in Isa::supported() {
        assert!(agrees(isa), "{isa:?}");
    }
}
