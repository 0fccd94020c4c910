//! A key of POSIX threads, whose value is a thread's list of headers.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Header;

/// The value of `KEY` before the key is made.
const NONE: u64 = u64::MAX;
/// The value of `KEY` while this code is being unloaded.
const GONE: u64 = u64::MAX - 1;

static KEY: AtomicU64 = AtomicU64::new(NONE);

fn get() -> Option<libc::pthread_key_t> {
    let known = KEY.load(Ordering::Acquire);
    if known == GONE {
        return None;
    }
    if known != NONE {
        return Some(known as libc::pthread_key_t);
    }
    let mut made: libc::pthread_key_t = 0;
    // SAFETY: a valid place for the key, and a destructor of the right type.
    if unsafe { libc::pthread_key_create(&raw mut made, Some(end_all)) } != 0 {
        return None;
    }
    // The key is a number of 32 bits, signed on Android, or of 64 bits.
    match KEY.compare_exchange(NONE, made as u64, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(made),
        Err(other) => {
            // SAFETY: just made, and no thread has a value for it.
            unsafe { libc::pthread_key_delete(made) };
            (other != GONE).then_some(other as libc::pthread_key_t)
        }
    }
}

/// Registers the value with this header to be dropped when the calling thread ends.
pub(super) fn keep(header: NonNull<Header>) {
    let Some(key) = get() else { return };
    // SAFETY: the key is live, and its values are headers of this thread.
    unsafe {
        (*header.as_ptr()).next = libc::pthread_getspecific(key).cast();
        libc::pthread_setspecific(key, header.as_ptr().cast());
    }
}

unsafe extern "C" fn end_all(list: *mut c_void) {
    // SAFETY: a list of this thread's headers, which has been taken off the key.
    unsafe { super::end_all(list.cast()) };
}

/// Deletes the key when a library with this code is closed before the process ends. No thread may
/// call this code afterwards, so the values that threads keep are never freed.
#[cfg(all(target_os = "linux", not(miri)))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_UNLOADING: extern "C" fn() = {
    extern "C" fn unload() {
        let key = KEY.swap(GONE, Ordering::AcqRel);
        if let Ok(key) = libc::pthread_key_t::try_from(key) {
            // SAFETY: made above, and not used again.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
    unload
};
