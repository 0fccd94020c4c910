//! FNV-1a, a hash that is the same in every Rust release, unlike the standard library's.

/// The hash of all texts so far.
pub struct Fnv(u64);

impl Fnv {
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a text and an end mark, so that "ab" + "c" and "a" + "bc" differ.
    pub fn text(&mut self, text: &str) {
        for &byte in text.as_bytes().iter().chain(&[0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub fn finish(&self) -> u64 {
        self.0
    }
}
