//! Candidate arrays of every shape that a sampler meets.

use vendor_llama_cpp::sys::llama_token_data;

use super::HostSampler;

/// SplitMix64: small, seeded, good enough to make test inputs.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn range(&mut self, low: f64, high: f64) -> f32 {
        (low + self.unit() * (high - low)) as f32
    }

    /// About normal with mean 0 and deviation 1: the sum of four uniform numbers, plus low bits so that ties stay rare.
    pub fn normal(&mut self) -> f32 {
        let bits = self.next();
        let fine = self.next();
        let sum: f64 = (0..4)
            .map(|i| f64::from((bits >> (16 * i)) as u16) + 0.5)
            .sum();
        let sum = sum + (fine >> 40) as f64 / (1u64 << 24) as f64;
        ((sum / 65536.0 - 2.0) * 1.732_050_8) as f32
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

/// What a host passes to `apply`, owned.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub data: Vec<llama_token_data>,
    pub selected: i64,
    pub sorted: bool,
}

impl Array {
    pub fn of_logits(logits: impl IntoIterator<Item = f32>) -> Self {
        let data = logits.into_iter().enumerate();
        let data = data.map(|(i, logit)| llama_token_data {
            id: i as i32,
            logit,
            p: 0.0,
        });
        Self {
            data: data.collect(),
            selected: -1,
            sorted: false,
        }
    }

    pub fn ids(&self) -> Vec<i32> {
        self.data.iter().map(|c| c.id).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A language model that knows what comes next: a bulk of unlikely tokens, a few dozen far above it.
    Peaked,
    /// The bulk alone.
    Flat,
    /// All equal but for jitter.
    Jitter,
    /// Differences so large that probabilities underflow.
    Wide,
    /// Some candidates masked with minus infinity.
    Masked,
    /// All of them.
    AllMasked,
    /// Descending, and said to be.
    Sorted,
    /// Descending, and not said to be.
    SortedUnsaid,
    /// In no order of ids.
    Shuffled,
    /// What an earlier top-k left.
    TopK,
    /// What an earlier min-p left: cut, but not sorted.
    MinP,
    /// One logit is plus infinity.
    OneInfinite,
}

impl Shape {
    pub const ALL: [Shape; 12] = [
        Shape::Peaked,
        Shape::Flat,
        Shape::Jitter,
        Shape::Wide,
        Shape::Masked,
        Shape::AllMasked,
        Shape::Sorted,
        Shape::SortedUnsaid,
        Shape::Shuffled,
        Shape::TopK,
        Shape::MinP,
        Shape::OneInfinite,
    ];

    pub fn array(self, n: usize, rng: &mut Rng) -> Array {
        match self {
            Shape::Peaked => peaked(n, rng),
            Shape::Flat => Array::of_logits((0..n).map(|_| bulk(rng))),
            Shape::Jitter => Array::of_logits((0..n).map(|_| 3.0 + rng.range(0.0, 1e-3))),
            Shape::Wide => Array::of_logits((0..n).map(|_| rng.range(-300.0, 300.0))),
            Shape::Masked => masked(n, rng),
            Shape::AllMasked => Array::of_logits((0..n).map(|_| f32::NEG_INFINITY)),
            Shape::Sorted => sorted(n, rng, true),
            Shape::SortedUnsaid => sorted(n, rng, false),
            Shape::Shuffled => shuffled(n, rng),
            Shape::TopK => {
                let mut array = peaked(n, rng);
                let k = 1 + rng.below(2 * n);
                // SAFETY: a constructor without preconditions.
                let k = unsafe { vendor_llama_cpp::sys::llama_sampler_init_top_k(k as i32) };
                HostSampler::new(k).apply(&mut array);
                array
            }
            Shape::MinP => {
                let mut array = peaked(n, rng);
                let p = rng.pick(&[1e-9, 1e-6, 1e-3, 0.1]);
                // SAFETY: a constructor without preconditions.
                let min_p = unsafe { vendor_llama_cpp::sys::llama_sampler_init_min_p(p, 1) };
                HostSampler::new(min_p).apply(&mut array);
                array
            }
            Shape::OneInfinite => {
                let mut array = peaked(n, rng);
                array.data[rng.below(n)].logit = f32::INFINITY;
                array
            }
        }
    }
}

/// Mostly small sizes, some of a vocabulary's: what goes wrong at 200,000 mostly goes wrong at 2,000, and faster.
pub fn size(rng: &mut Rng) -> usize {
    let (low, high) = rng.pick(&[
        (1, 2),
        (2, 20),
        (20, 140),
        (20, 140),
        (140, 1030),
        (140, 1030),
        (1030, 6000),
        (1030, 6000),
        (6000, 33_000),
        (33_000, 200_001),
    ]);
    // The largest class is rare even so: it costs more than all others together.
    if low == 33_000 && !rng.chance(0.25) {
        return 1 + rng.below(256);
    }
    low + rng.below(high - low)
}

/// The bulk of a vocabulary, as measured on language models.
fn bulk(rng: &mut Rng) -> f32 {
    rng.normal() * 2.4 - 1.5
}

pub fn peaked(n: usize, rng: &mut Rng) -> Array {
    let mut array = Array::of_logits((0..n).map(|_| bulk(rng)));
    for i in 0..60.min(n) {
        let logit = 17.0 - 8.0 * i as f32 / 60.0 + rng.range(0.0, 0.1);
        array.data[rng.below(n)].logit = logit;
    }
    array
}

fn masked(n: usize, rng: &mut Rng) -> Array {
    let mut array = peaked(n, rng);
    let share = rng.pick(&[0.01, 0.5, 0.99]);
    for candidate in &mut array.data {
        if rng.chance(share) {
            candidate.logit = f32::NEG_INFINITY;
        }
    }
    array
}

fn sorted(n: usize, rng: &mut Rng, said: bool) -> Array {
    let mut array = peaked(n, rng);
    array.data.sort_by(|a, b| b.logit.total_cmp(&a.logit));
    array.sorted = said;
    array
}

fn shuffled(n: usize, rng: &mut Rng) -> Array {
    let mut array = peaked(n, rng);
    for i in (1..n).rev() {
        array.data.swap(i, rng.below(i + 1));
    }
    array
}
