//! Random numbers with the streams that users know by their seeds.
//!
//! [`Mt19937`] is llama.cpp's generator: std::mt19937 (the reference Mersenne Twister, Matsumoto and Nishimura 1998) with
//! libstdc++'s conversion to a `double`. 2504 bytes of state; a draw costs two 32-bit outputs.

use crate::kernels::Workspace;

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

const TWO_32: f64 = 4_294_967_296.0;

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
        let low = f64::from(self.0.next_u32());
        let high = f64::from(self.0.next_u32());
        let draw = (low + high * TWO_32) / (TWO_32 * TWO_32);
        if draw < 1.0 {
            return draw;
        }
        // The sum can round up to 2^64.
        1.0f64.next_down()
    }

    /// A draw of `uniform_real_distribution<float>(0, 1)`: one output / 2^32, always below 1.
    #[inline]
    pub fn uniform_f32(&mut self) -> f32 {
        let draw = self.0.next_u32() as f32 / TWO_32 as f32;
        if draw < 1.0 {
            return draw;
        }
        // The output can round up to 2^32.
        1.0f32.next_down()
    }

    /// A draw of `discrete_distribution<int>` with the values of `weights`: their running sum, normalised in `double`, reaches a uniform draw.
    ///
    /// Fewer than two weights give 0 and cost no draw. Weights that are NaN, or all 0, give 0.
    ///
    /// One sum over the weights, 4 bytes each. Only where rounding could decide is each divided by it, and added one by one.
    pub fn discrete(&mut self, weights: &mut Workspace) -> usize {
        if weights.values().len() < 2 {
            return 0;
        }
        let draw = self.uniform();
        let sum = weights.sum_double();
        weights.choose(sum, draw, |weights| one_by_one(weights, draw))
    }
}

fn one_by_one(weights: &[f32], draw: f64) -> usize {
    let sum = weights.iter().fold(0.0f64, |sum, &w| sum + f64::from(w));
    let mut running = 0.0f64;
    for (i, &weight) in weights.iter().enumerate() {
        running += f64::from(weight) / sum;
        // Written as libstdc++'s lower bound compares: NaN ends the search, too.
        let below = running < draw;
        if !below {
            return i;
        }
    }
    // The last sum stands for 1, whatever rounding made of it.
    weights.len() - 1
}

/// A generator with the seed that it was asked for, which a reset goes back to.
#[derive(Clone, Debug)]
pub struct SeededMt19937 {
    seed: u32,
    current: u32,
    /// The stream.
    pub stream: Mt19937,
}

impl SeededMt19937 {
    /// `seed` [`DEFAULT_SEED`] takes a random seed, another at each [`restart`](Self::restart).
    pub fn new(seed: u32) -> Self {
        let current = resolve_seed(seed);
        Self {
            seed,
            current,
            stream: Mt19937::new(current),
        }
    }

    /// Begins the stream anew.
    pub fn restart(&mut self) {
        self.current = resolve_seed(self.seed);
        self.stream.reseed(self.current);
    }

    /// A generator as `new` gave it: the same seed if one was asked for, a new random one if not.
    pub fn begun_anew(&self) -> Self {
        Self::new(self.seed)
    }

    /// The seed that the current stream began with.
    pub fn current_seed(&self) -> u32 {
        self.current
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
