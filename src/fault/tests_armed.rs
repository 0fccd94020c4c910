use std::cell::Cell;

thread_local! {
    /// The number of points that this thread may still pass before one fails; `None` while no
    /// point is to fail.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The text of the panic.
pub const TEXT: &str = "an injected fault";

pub(super) fn pass() {
    let Some(left) = LEFT.get() else {
        return;
    };
    LEFT.set(left.checked_sub(1));
    assert!(left > 0, "{TEXT}");
}

/// True if a fault is to come.
pub fn is_armed() -> bool {
    LEFT.get().is_some()
}

/// Runs `body`, in which the point after the first `passed` ones fails. Also returns true if that
/// point was reached.
pub fn with<T>(passed: usize, body: impl FnOnce() -> T) -> (T, bool) {
    LEFT.set(Some(passed));
    let result = body();
    (result, LEFT.take().is_none())
}
