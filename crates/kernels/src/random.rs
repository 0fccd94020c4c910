//! Makes hash keys and random seeds, on Linux without system calls that a filter may refuse, unless
//! the program has cleared the random bytes that the kernel gives each process.

use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A hash map for untrusted keys.
pub type HashMap<K, V> = std::collections::HashMap<K, V, ProcessState>;
/// A hash set for untrusted members.
pub type HashSet<T> = std::collections::HashSet<T, ProcessState>;

/// Makes hashers of the standard library's SipHash that begin with the process's key. std's
/// `RandomState` is similar, but gets its keys by a system call.
#[derive(Clone, Copy)]
pub struct ProcessState(u64);

impl std::fmt::Debug for ProcessState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProcessState")
    }
}

impl Default for ProcessState {
    fn default() -> Self {
        Self(process_key())
    }
}

impl BuildHasher for ProcessState {
    type Hasher = DefaultHasher;

    #[inline]
    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// Returns the random bytes that the kernel stores next to the arguments of a process; `None` if
/// they are all 0, since the Go runtime clears them.
#[cfg(all(target_os = "linux", not(miri)))]
fn bytes_of_process() -> Option<[u8; 16]> {
    // SAFETY: only reads a value that the kernel has given to the process.
    let address = unsafe { libc::getauxval(libc::AT_RANDOM) };
    let bytes = std::ptr::with_exposed_provenance::<[u8; 16]>(address as usize);
    // SAFETY: the kernel's pointer to 16 bytes, which stay for the life of the process; null if the
    // kernel provides none.
    let bytes = unsafe { bytes.as_ref() }.copied();
    bytes.filter(|bytes| bytes.iter().any(|&byte| byte != 0))
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn bytes_of_process() -> Option<[u8; 16]> {
    None
}

/// Returns random bytes from the operating system.
fn bytes_of_system() -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok().map(|()| bytes)
}

/// Returns the nanoseconds since 1970; 0 if the clock is set to an earlier time.
fn now() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos())
}

/// Returns an unpredictable number, which differs at each call and in each process, including
/// forked ones. It is not suitable as a cryptographic key.
pub fn random_number() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut hasher = ProcessState::default().build_hasher();
    hasher.write_u64(CALLS.fetch_add(1, Ordering::Relaxed));
    hasher.write_u128(now());
    hasher.write_u32(std::process::id());
    hasher.finish()
}

/// The process's key; 0 before it is chosen.
// An atomic, since a thread sanitizer does not see the synchronisation of `OnceLock`.
static KEY: AtomicU64 = AtomicU64::new(0);

/// Returns a number other than 0 that differs in each process, except that a forked child may have
/// its parent's: the key of hashes over untrusted values, so that collisions cannot be predicted.
#[inline]
pub fn process_key() -> u64 {
    match KEY.load(Ordering::Relaxed) {
        0 => choose_key(),
        known => known,
    }
}

/// Chooses the process's key. Two threads that choose at the same time agree on the first one.
#[cold]
fn choose_key() -> u64 {
    let chosen = key_of(bytes_of_process().or_else(bytes_of_system));
    let first = KEY.compare_exchange(0, chosen, Ordering::Relaxed, Ordering::Relaxed);
    first.err().unwrap_or(chosen)
}

/// Returns a one-way hash of random bytes, which must stay secret, since the C library's stack
/// protector uses the process's bytes. Without random bytes, returns a hash of the time.
fn key_of(bytes: Option<[u8; 16]>) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes.unwrap_or_else(|| now().to_ne_bytes()));
    hasher.finish() | 1
}

/// The output function of SplitMix64 (Steele, Lea and Flood 2014; constants of Stafford's variant
/// 13): every bit of `z` affects every bit of the result.
#[inline]
pub fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
