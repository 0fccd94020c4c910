//! The text of the last thing that went wrong, one per thread.

use std::cell::RefCell;

thread_local! {
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps `text` until the next error or [`clear`].
pub fn set(text: &str) {
    // A thread that is ending has nowhere to keep it, and nobody to read it.
    let _ = TEXT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        kept.clear();
        kept.push_str(text);
    });
}

/// Forgets the text.
pub fn clear() {
    let _ = TEXT.try_with(|kept| kept.borrow_mut().clear());
}

/// The text; empty if there is none.
pub fn get() -> String {
    TEXT.try_with(|kept| kept.borrow().clone())
        .unwrap_or_default()
}
