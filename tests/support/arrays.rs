//! Makes candidate arrays of every kind that a sampler may get: the inputs of all tests.

use half::{bf16, f16};
use llama_sieve::TokenData;
use vendor_llama_cpp::sys::llama_token_data;

use super::HostSampler;

/// The generator SplitMix64: small, seeded, and good enough for test inputs.
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

    /// Returns a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Returns a number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn range(&mut self, low: f64, high: f64) -> f32 {
        (low + self.unit() * (high - low)) as f32
    }

    /// Returns an approximately normally distributed number with mean 0 and standard deviation 1:
    /// the sum of four uniform numbers, with more low bits, so that ties are rare.
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

    /// Shuffles the items, with every order equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// An owned candidate array, as a host passes it to `apply`.
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

    /// True if the logit of the selected candidate is minus infinity or NaN. Functions of this
    /// library, such as `llama_sieve_chain_sample`, then return an error instead of that token.
    pub fn selects_none(&self) -> bool {
        let selected = usize::try_from(self.selected).ok();
        let chosen = selected.and_then(|i| self.data.get(i));
        chosen.is_some_and(|c| c.logit.is_nan() || c.logit == f32::NEG_INFINITY)
    }

    /// Returns the candidates in this library's type.
    pub fn tokens(&self) -> Vec<TokenData> {
        let token = |c: &llama_token_data| TokenData {
            id: c.id,
            logit: c.logit,
            p: c.p,
        };
        self.data.iter().map(token).collect()
    }

    /// Returns an array with `candidates`, and with the other fields of this array.
    pub fn with(&self, candidates: &[TokenData]) -> Self {
        let data = candidates.iter().map(|c| llama_token_data {
            id: c.id,
            logit: c.logit,
            p: c.p,
        });
        Self {
            data: data.collect(),
            ..*self
        }
    }

    /// Returns the selected candidate, which there must be.
    pub fn chosen(&self) -> llama_token_data {
        self.data[self.selected as usize]
    }

    pub fn logits(&self) -> Vec<f32> {
        self.data.iter().map(|c| c.logit).collect()
    }

    /// Returns the ids of the candidates above minus infinity.
    pub fn allowed(&self) -> Vec<i32> {
        let allowed = self.data.iter().filter(|c| c.logit > f32::NEG_INFINITY);
        allowed.map(|c| c.id).collect()
    }

    pub fn ids(&self) -> Vec<i32> {
        self.data.iter().map(|c| c.id).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A confident language model: a bulk of unlikely tokens, and a few dozen far above it.
    Peaked,
    /// Only the bulk.
    Flat,
    /// All equal, except for jitter.
    Jitter,
    /// Differences so large that probabilities underflow.
    Wide,
    /// Some candidates masked with minus infinity.
    Masked,
    /// All candidates masked with minus infinity.
    AllMasked,
    /// Descending, and marked as sorted.
    Sorted,
    /// Descending, but not marked as sorted.
    SortedUnsaid,
    /// With the ids in random order.
    Shuffled,
    /// Sorted and cut by an earlier top-k.
    TopK,
    /// Cut by an earlier min-p, but not sorted.
    MinP,
    /// One logit is plus infinity.
    OneInfinite,
    /// A few different values, each of many candidates.
    Few,
    Two,
    AllEqual,
    /// Two alternating values.
    Alternating,
    Ascending,
    /// All different, except for equal ones around a rank at which samplers and sorts cut.
    TiesAtCut,
    /// With zeros of both signs.
    Zeros,
    /// Some infinite, of both signs, and some too large for the buckets of the built-in's sort.
    Huge,
}

impl Shape {
    pub const ALL: [Shape; 20] = [
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
        Shape::Few,
        Shape::Two,
        Shape::AllEqual,
        Shape::Alternating,
        Shape::Ascending,
        Shape::TiesAtCut,
        Shape::Zeros,
        Shape::Huge,
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
            Shape::Few => {
                let count = 2 + rng.below(60);
                let values: Vec<f32> = (0..count).map(|_| bulk(rng)).collect();
                Array::of_logits((0..n).map(|_| rng.pick(&values)))
            }
            Shape::Two => {
                let (values, share) = ([bulk(rng), bulk(rng)], rng.unit());
                Array::of_logits((0..n).map(|_| values[usize::from(rng.chance(share))]))
            }
            Shape::AllEqual => {
                let value = bulk(rng);
                Array::of_logits((0..n).map(|_| value))
            }
            Shape::Alternating => {
                let values = [bulk(rng), bulk(rng)];
                Array::of_logits((0..n).map(|i| values[i % 2]))
            }
            Shape::Ascending => {
                let mut array = sorted(n, rng, false);
                array.data.reverse();
                array
            }
            Shape::TiesAtCut => ties_at_cut(n, rng),
            Shape::Zeros => {
                let values = [0.0, -0.0, 0.0, -0.0, bulk(rng), bulk(rng)];
                Array::of_logits((0..n).map(|_| rng.pick(&values)))
            }
            Shape::Huge => huge(n, rng),
        }
    }
}

/// The precision that logits are rounded to before a sampler gets them. A model in half precision
/// gives many equal logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Grid {
    F32,
    F16,
    Bf16,
    Quarters,
}

impl Grid {
    pub const ALL: [Grid; 4] = [Grid::F32, Grid::F16, Grid::Bf16, Grid::Quarters];

    pub fn round(self, x: f32) -> f32 {
        match self {
            Grid::F32 => x,
            Grid::F16 => f16::from_f32(x).to_f32(),
            Grid::Bf16 => bf16::from_f32(x).to_f32(),
            Grid::Quarters => (x * 4.0).round() / 4.0,
        }
    }
}

/// The order of ids in the array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ids {
    /// As the shape makes them: usually every token at its index.
    Given,
    /// Every token, in random order.
    Shuffled,
    /// Some tokens of the vocabulary, ascending.
    Subset,
}

/// The parameters of an input. Tests draw them at random, and print them when something differs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    pub shape: Shape,
    pub grid: Grid,
    pub ids: Ids,
    /// True if half of the candidates are masked.
    pub half_masked: bool,
    /// True if an earlier sampler has left probabilities.
    pub with_p: bool,
    /// True if an earlier sampler has selected a candidate.
    pub with_choice: bool,
    /// True if the array is marked as sorted, rightly or wrongly.
    pub claims_order: bool,
}

impl Recipe {
    pub fn of_shape(shape: Shape) -> Self {
        Self {
            shape,
            grid: Grid::F32,
            ids: Ids::Given,
            half_masked: false,
            with_p: false,
            with_choice: false,
            claims_order: false,
        }
    }

    /// Returns a random recipe.
    pub fn random(rng: &mut Rng) -> Self {
        Self {
            shape: rng.pick(&Shape::ALL),
            grid: rng.pick(&[Grid::F32, Grid::F32, Grid::F16, Grid::Bf16, Grid::Quarters]),
            ids: rng.pick(&[
                Ids::Given,
                Ids::Given,
                Ids::Given,
                Ids::Shuffled,
                Ids::Subset,
            ]),
            half_masked: rng.chance(0.04),
            with_p: rng.chance(0.2),
            with_choice: rng.chance(0.1),
            claims_order: rng.chance(0.01),
        }
    }

    /// Returns `n` candidates of a vocabulary of at least as many tokens.
    pub fn array(self, n: usize, vocabulary: usize, rng: &mut Rng) -> Array {
        let mut array = self.shape.array(n, rng);
        let n = array.data.len();
        for candidate in &mut array.data {
            candidate.logit = self.grid.round(candidate.logit);
        }
        if self.half_masked {
            let from = if array.sorted { n / 2 } else { 0 };
            for candidate in &mut array.data[from..] {
                if array.sorted || rng.chance(0.5) {
                    candidate.logit = f32::NEG_INFINITY;
                }
            }
        }
        self.set_ids(&mut array, vocabulary, rng);
        if self.with_p {
            for candidate in &mut array.data {
                candidate.p = rng.range(0.0, 1.0);
            }
        }
        if self.with_choice {
            array.selected = rng.below(n) as i64;
        }
        array.sorted |= self.claims_order;
        array
    }

    fn set_ids(self, array: &mut Array, vocabulary: usize, rng: &mut Rng) {
        let n = array.data.len();
        match self.ids {
            Ids::Given => {}
            Ids::Shuffled => {
                for i in (1..n).rev() {
                    let j = rng.below(i + 1);
                    let (a, b) = (array.data[i].id, array.data[j].id);
                    (array.data[i].id, array.data[j].id) = (b, a);
                }
            }
            Ids::Subset => {
                let mut left = vocabulary - n.min(vocabulary);
                let mut next = 0;
                for candidate in &mut array.data {
                    let skipped = rng.below(left.min(4) + 1);
                    left -= skipped;
                    next += skipped;
                    candidate.id = next as i32;
                    next += 1;
                }
            }
        }
    }
}

/// Returns a random size: usually a small one, since most bugs at 200,000 candidates also show at
/// 2,000, and faster; sometimes that of a vocabulary, or one near which the built-ins' sorts
/// change.
pub fn size(rng: &mut Rng) -> usize {
    if rng.chance(0.1) {
        return rng.pick(&[
            16, 17, 18, 32, 33, 128, 129, 130, 256, 257, 1024, 1025, 1026,
        ]);
    }
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
    // The largest class is made rarer still, since it takes longer than all others together.
    if low == 33_000 && !rng.chance(0.25) {
        return 1 + rng.below(256);
    }
    low + rng.below(high - low)
}

/// Returns a logit of the bulk of a vocabulary, as measured on language models.
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

/// Ranks at which samplers cut, or the built-ins choose another sort.
const CUTS: [usize; 9] = [1, 5, 16, 40, 128, 129, 256, 1000, 1024];

fn ties_at_cut(n: usize, rng: &mut Rng) -> Array {
    let mut array = sorted(n, rng, false);
    for _ in 0..1 + rng.below(3) {
        let cut = rng.pick(&CUTS).min(n - 1);
        let from = cut.saturating_sub(rng.below(20));
        let to = n.min(cut + 1 + rng.below(20));
        let logit = array.data[cut].logit;
        array.data[from..to]
            .iter_mut()
            .for_each(|c| c.logit = logit);
    }
    rng.shuffle(&mut array.data);
    // Every token is at its index again; only the logits are shuffled.
    for (candidate, id) in array.data.iter_mut().zip(0..) {
        candidate.id = id;
    }
    array
}

fn huge(n: usize, rng: &mut Rng) -> Array {
    let mut array = peaked(n, rng);
    let values = [
        f32::INFINITY,
        f32::NEG_INFINITY,
        3.3e8,
        3.4e8,
        -3.4e8,
        1e30,
        -1e30,
        f32::MAX,
        f32::MIN,
    ];
    for _ in 0..1 + rng.below(1 + n / 8) {
        array.data[rng.below(n)].logit = rng.pick(&values);
    }
    array
}

/// The sizes of vocabularies for [`odd_logits`].
pub const ODD_SIZES: [usize; 7] = [1, 2, 3, 5, 9, 30, 9000];

/// Returns logits of `n` tokens, many of which are NaN or infinite, and the same logits with minus
/// infinity in place of NaN. The others are small numbers and `large`.
pub fn odd_logits(n: usize, large: f32, rng: &mut Rng) -> [Vec<f32>; 2] {
    let odd = if n > 1000 { 0.02 } else { 0.6 };
    let infinite = rng.pick(&[0.0, 0.4]);
    let mut logit = || match rng.chance(odd) {
        true if rng.chance(infinite) => f32::INFINITY,
        true => rng.pick(&[f32::NAN, -f32::NAN, f32::NEG_INFINITY]),
        false => rng.pick(&[-3.0, 0.0, 0.5, 2.0, 2.25, 7.0, large]),
    };
    let logits: Vec<f32> = (0..n).map(|_| logit()).collect();
    let masked = |&x: &f32| if x.is_nan() { f32::NEG_INFINITY } else { x };
    let without: Vec<f32> = logits.iter().map(masked).collect();
    [logits, without]
}

fn shuffled(n: usize, rng: &mut Rng) -> Array {
    let mut array = peaked(n, rng);
    rng.shuffle(&mut array.data);
    array
}
