//! Random bytes of the operating system, and keys of hashes that are made of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that the operating system has drawn.
///
/// On Linux by the system call: the crate first looks for the C library's function, for which the
/// dynamic linker's lock is taken.
#[cfg(all(target_os = "linux", not(miri)))]
fn random() -> Option<[u8; 8]> {
    let mut bytes = [0; 8];
    // SAFETY: the kernel writes at most so many bytes there.
    let written = unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    if usize::try_from(written) == Ok(bytes.len()) {
        return Some(bytes);
    }
    getrandom::fill(&mut bytes).ok().map(|()| bytes)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn random() -> Option<[u8; 8]> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).ok().map(|()| bytes)
}

/// Returns a number that the operating system has drawn. One that gives no random numbers still
/// gives a different one at each call.
pub fn random_number() -> u64 {
    random().map(u64::from_ne_bytes).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |since| since.as_nanos() as u64)
    })
}

/// The process's key; 0 before it is chosen.
// An atomic and no `OnceLock`, whose synchronisation a thread sanitizer does not see.
static KEY: AtomicU64 = AtomicU64::new(0);

/// A number other than 0, another one in each process: the key of hashes over values that a
/// stranger may choose, so that their collisions cannot be foreseen.
#[inline]
pub fn process_key() -> u64 {
    match KEY.load(Ordering::Relaxed) {
        0 => choose_key(),
        known => known,
    }
}

/// Two threads that choose at once agree on the first.
#[cold]
fn choose_key() -> u64 {
    let chosen = random_number() | 1;
    let first = KEY.compare_exchange(0, chosen, Ordering::Relaxed, Ordering::Relaxed);
    first.err().unwrap_or(chosen)
}

/// The output function of SplitMix64 (Steele, Lea and Flood 2014; constants of Stafford's variant
/// 13): every bit of `z` moves every bit of the result.
#[inline]
pub fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
