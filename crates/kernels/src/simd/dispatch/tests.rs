use super::*;
use std::cell::Cell;

thread_local! {
    /// The instruction set that a test has forced on this thread.
    pub(super) static FORCED: Cell<Option<Isa>> = const { Cell::new(None) };
}

/// For each forced instruction set and each function, the instruction set that [`exact`] returns; 0
/// before the first query.
static EXACT: [[AtomicU8; 3]; 5] = [const { [const { AtomicU8::new(0) }; 3] }; 5];

/// Returns the result of [`Isa::exact`] while `isa` is forced.
pub(crate) fn exact(isa: Isa, function: Function) -> Isa {
    let known = &EXACT[isa.0 as usize][function as usize];
    if known.load(Ordering::Relaxed) == 0 {
        known.store(isa.if_agrees(function).0 as u8, Ordering::Relaxed);
    }
    Isa::chosen(known)
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
    /// Makes this thread use this instruction set until the returned value is dropped.
    pub fn force(self) -> Forced {
        Forced(FORCED.replace(Some(self)))
    }
}

/// The functions for which the vector forms differ from this C library.
const OTHERS: &[Function] = if cfg!(windows) { &Function::ALL } else { &[] };

#[test]
fn instruction_sets_agree_with_the_c_library_but_for_known_functions() {
    for isa in Isa::supported()
        .into_iter()
        .filter(|isa| *isa != Isa::SCALAR)
    {
        for function in Function::ALL {
            let (agrees, differs) = (agrees(isa, function), OTHERS.contains(&function));
            assert_eq!(agrees, !differs, "{isa:?} {function:?}");
        }
    }
}

/// Checks that the C library is called where a vector form differs from it, and that all else runs
/// on the best instruction set.
#[test]
fn each_function_has_its_own_instruction_set() {
    let isa = Isa::current();
    if crate::environment::variable("LLAMA_SIEVE_SIMD").is_none() {
        assert_eq!(Some(&isa), Isa::supported().last());
    }
    for function in Function::ALL {
        let expected = match OTHERS.contains(&function) {
            true => Isa::SCALAR,
            false => isa,
        };
        assert_eq!(Isa::exact(function), expected, "{function:?}");
    }
}

#[test]
fn names_say_which_functions_are_scalar() {
    let lasts = [
        "",
        ", scalar expf",
        ", scalar exp",
        ", scalar expf exp",
        ", scalar logf",
        ", scalar expf logf",
        ", scalar exp logf",
        ", scalar expf exp logf",
    ];
    for isa in Isa::supported() {
        for (name, last) in isa.names().iter().zip(lasts) {
            let (name, first) = (name.to_str().expect("ASCII"), isa.name().to_str());
            assert_eq!(
                Some(name),
                first.ok().map(|first| format!("{first}{last}")).as_deref()
            );
        }
    }
    let _forced = Isa::SCALAR.force();
    assert_eq!(instruction_set(), c"scalar");
}
