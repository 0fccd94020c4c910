//! Memory that is read only if the kernel confirms that it is readable.
//!
//! The test is the system call `rt_sigprocmask`, which every thread library uses. It reads a set of
//! signals before it checks the requested operation, which is an invalid one. So nothing changes,
//! and the error code shows whether the set could be read. System calls that are meant for reading
//! memory, such as `process_vm_readv`, may end a process whose filter of system calls does not
//! allow them. On Windows the test is a system function that reads memory.

#[cfg(not(windows))]
use std::ptr::null_mut;

/// The size of the pieces that are tested, which divides the size of every page.
const PIECE: usize = 4096;

/// Returns true if the kernel can read a set of signals at `address`.
#[cfg(not(windows))]
fn can_be_read(address: usize) -> bool {
    const NOTHING: libc::c_int = libc::c_int::MAX;
    const BYTES: usize = size_of::<u64>();
    // SAFETY: the kernel only reads `BYTES` bytes. It returns an error for an address that cannot
    // be read, and for the invalid operation.
    let code = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            NOTHING,
            address,
            null_mut::<u8>(),
            BYTES,
        )
    };
    let error = std::io::Error::last_os_error().raw_os_error();
    code != 0 && error == Some(libc::EINVAL)
}

/// Returns true if a number can be read at `address`.
#[cfg(windows)]
fn can_be_read(address: usize) -> bool {
    crate::windows::read(address, &mut [0; size_of::<u64>()])
}

/// Calls `take` with each of the `most` bytes at `address`, until it returns false. Returns false
/// if a byte cannot be read, or if the kernel gives no answer.
fn each(address: usize, most: usize, mut take: impl FnMut(u8) -> bool) -> bool {
    // An emulator may check the operation first, and then the error proves nothing. It is
    // recognised by an address in the first page, which is never readable.
    if can_be_read(PIECE / 2) {
        return false;
    }
    for i in 0..most {
        let Some(place) = address.checked_add(i) else {
            return false;
        };
        let is_new = i == 0 || place % PIECE == 0;
        if is_new && !can_be_read(place - place % PIECE) {
            return false;
        }
        // SAFETY: the kernel has just read from this page. The read is volatile, so that the
        // compiler does not turn the loop into a call of a function such as `strnlen`, which
        // another library may have replaced by one that checks the bounds of objects.
        let byte = unsafe { (place as *const u8).read_volatile() };
        if !take(byte) {
            return true;
        }
    }
    true
}

/// Fills `bytes` from the memory at `address`. Returns false if a byte cannot be read, or if the
/// kernel gives no answer.
pub fn read(address: usize, bytes: &mut [u8]) -> bool {
    let most = bytes.len();
    let mut to = bytes.iter_mut();
    each(address, most, |byte| {
        to.next().map(|to| *to = byte).is_some()
    })
}

/// Returns the C string at `address` without its final NUL, cut to `most` bytes; `None` if it
/// cannot be read.
pub(super) fn text(address: usize, most: usize) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(most);
    let is_read = each(address, most, |byte| {
        if byte != 0 {
            text.push(byte);
        }
        byte != 0
    });
    is_read.then_some(text)
}

#[cfg(all(test, not(windows)))]
mod tests {
    use super::*;

    /// Returns the boundary between two pages, the second of which cannot be read.
    fn edge() -> *mut u8 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new pages, which are never freed.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let pages = libc::mmap(std::ptr::null_mut(), 2 * page, access, flags, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(
                libc::mprotect(pages.byte_add(page), page, libc::PROT_NONE),
                0
            );
            pages.byte_add(page).cast()
        }
    }

    #[test]
    fn what_can_be_read_is_read() {
        let bytes: Vec<u8> = (0..3 * PIECE).map(|i| i as u8).collect();
        let mut copy = vec![0; bytes.len()];
        assert!(read(bytes.as_ptr() as usize, &mut copy));
        assert_eq!(copy, bytes);
        assert!(read(8, &mut []));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let mut bytes = [0; 16];
        for address in [
            0,
            8,
            1 << 20,
            usize::MAX - 3,
            usize::MAX / 2 + 1,
            edge() as usize - 15,
        ] {
            assert!(!read(address, &mut bytes), "{address:x}");
        }
        assert!(read(edge() as usize - 16, &mut bytes));
    }

    #[test]
    fn a_text_ends_where_it_does() {
        let text = |address: *const u8, most| super::text(address as usize, most);
        assert_eq!(text(c"abc".as_ptr().cast(), 40), Some(b"abc".to_vec()));
        assert_eq!(text(c"abc".as_ptr().cast(), 2), Some(b"ab".to_vec()));
        assert_eq!(text(c"".as_ptr().cast(), 40), Some(Vec::new()));
        let edge = edge();
        // SAFETY: the byte before the boundary is in a page that can be read.
        let last = unsafe { edge.sub(1) };
        assert_eq!(text(last, 40), Some(Vec::new()));
        // SAFETY: as above.
        unsafe { last.write(b'x') };
        assert_eq!(text(last, 40), None);
        assert_eq!(text(last, 1), Some(b"x".to_vec()));
    }
}
