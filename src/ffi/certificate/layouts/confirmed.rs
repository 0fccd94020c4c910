//! Memory that is read only as far as the kernel confirms that it can be.

/// Smaller than any page, and a divisor of every page's size.
const PIECE: usize = 4096;

/// Fills `bytes` with what lies at `address`. False if some of it cannot be read, or if the kernel
/// does not say.
pub fn read(address: usize, bytes: &mut [u8]) -> bool {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let Some(start) = address.checked_add(done) else {
            return false;
        };
        // The kernel need not read a part of what crosses into a page that cannot be read.
        let n = rest.len().min(PIECE - start % PIECE);
        let local = libc::iovec {
            iov_base: rest.as_mut_ptr().cast(),
            iov_len: n,
        };
        let remote = libc::iovec {
            iov_base: start as *mut _,
            iov_len: n,
        };
        // SAFETY: the kernel writes at most `n` bytes to `rest`, and answers an address that cannot
        // be read with an error.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if read != n as isize {
            return false;
        }
        done += n;
    }
    true
}

/// The C string at `address` without its end, cut to `most` bytes; `None` if it cannot be read so
/// far.
pub(super) fn text(address: usize, most: usize) -> Option<Vec<u8>> {
    let mut text = vec![0; most];
    let mut done = 0;
    while done < most {
        let start = address.checked_add(done)?;
        let n = (most - done).min(PIECE - start % PIECE);
        let part = text.get_mut(done..done + n)?;
        if !read(start, part) {
            return None;
        }
        if let Some(end) = part.iter().position(|&byte| byte == 0) {
            text.truncate(done + end);
            return Some(text);
        }
        done += n;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages, of which the second cannot be read.
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
        // SAFETY: the byte before the edge is there.
        let last = unsafe { edge.sub(1) };
        assert_eq!(text(last, 40), Some(Vec::new()));
        // SAFETY: as above.
        unsafe { last.write(b'x') };
        assert_eq!(text(last, 40), None);
        assert_eq!(text(last, 1), Some(b"x".to_vec()));
    }
}
