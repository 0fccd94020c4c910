//! Random numbers with the streams that users know by their seeds.
//!
//! [`Mt19937`] is llama.cpp's generator: std::mt19937 (the reference Mersenne Twister, Matsumoto and Nishimura 1998) with
//! libstdc++'s conversion to a `double`. 2504 bytes of state; a draw costs two 32-bit outputs.

/// The seed that asks for a random one: llama.h's `LLAMA_DEFAULT_SEED`.
pub const DEFAULT_SEED: u32 = 0xFFFF_FFFF;

/// What `seed` stands for: itself, or for [`DEFAULT_SEED`] a new random one from the operating system.
pub fn resolve_seed(seed: u32) -> u32 {
    if seed != DEFAULT_SEED {
        return seed;
    }
    // A system that gives no random numbers still gets a different seed at each call.
    getrandom::u32().unwrap_or_else(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |since| since.as_nanos() as u32)
    })
}

/// std::mt19937 as compiled against libstdc++.
#[derive(Clone, Debug)]
pub struct Mt19937(rand_mt::Mt);

impl Mt19937 {
    /// The generator after `seed(seed)`.
    pub fn new(seed: u32) -> Self {
        Self(rand_mt::Mt::new(seed))
    }

    /// Starts the stream of `seed` anew.
    pub fn reseed(&mut self, seed: u32) {
        self.0.reseed(seed);
    }

    /// A draw of `uniform_real_distribution<double>(0, 1)`: (a + b * 2^32) / 2^64 of two outputs, always below 1.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        const TWO_32: f64 = 4_294_967_296.0;
        let low = f64::from(self.0.next_u32());
        let high = f64::from(self.0.next_u32());
        let draw = (low + high * TWO_32) / (TWO_32 * TWO_32);
        if draw < 1.0 {
            return draw;
        }
        // The sum can round up to 2^64.
        1.0f64.next_down()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_libstdcxx() {
        for seed in [0, 1, 42, 4_294_967_294] {
            let expected = vendor_llama_cpp::reference::std_uniform_double(seed, 5000);
            let mut rng = Mt19937::new(seed);
            for (i, &value) in expected.iter().enumerate() {
                assert_eq!(
                    rng.uniform().to_bits(),
                    value.to_bits(),
                    "seed {seed}, draw {i}"
                );
            }
        }
    }

    #[test]
    fn only_the_default_seed_is_replaced() {
        assert_eq!(resolve_seed(0), 0);
        assert_eq!(resolve_seed(42), 42);
        let drawn: Vec<u32> = (0..4).map(|_| resolve_seed(DEFAULT_SEED)).collect();
        assert!(
            drawn.iter().any(|&s| s != drawn[0]),
            "four random seeds are equal"
        );
    }
}
