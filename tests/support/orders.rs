//! Makes logits in some order, or with few values, which are the best or the worst case of sorts.

use super::Rng;

/// A named shape.
pub struct Order {
    pub name: &'static str,
    /// The function that makes `n` logits.
    pub logits: fn(n: usize, rng: &mut Rng) -> Vec<f32>,
}

const fn order(name: &'static str, logits: fn(usize, &mut Rng) -> Vec<f32>) -> Order {
    Order { name, logits }
}

/// All shapes.
pub const ORDERS: &[Order] = &[
    order("random", bulk),
    order("peaked", |n, rng| peaks(bulk(n, rng), rng)),
    order("descending", descending),
    order("ascending", ascending),
    order("descending, peaked", |n, rng| {
        falling(peaks(bulk(n, rng), rng))
    }),
    order("ascending, peaked", |n, rng| {
        rising(peaks(bulk(n, rng), rng))
    }),
    order("ascending, steps alike", |n, _| {
        (0..n).map(|i| i as f32 * 16.0 / n as f32 - 8.0).collect()
    }),
    order("organ pipe", organ_pipe),
    order("valley", |n, rng| {
        let mut logits = organ_pipe(n, rng);
        logits.rotate_left(n / 2);
        logits
    }),
    order("rising teeth of 16", |n, rng| teeth(16, true, n, rng)),
    order("rising teeth of 1000", |n, rng| teeth(1000, true, n, rng)),
    order("rising teeth of a third", |n, rng| {
        teeth(n.div_ceil(3), true, n, rng)
    }),
    order("falling teeth of 16", |n, rng| teeth(16, false, n, rng)),
    order("falling teeth of 1000", |n, rng| teeth(1000, false, n, rng)),
    order("falling teeth of a third", |n, rng| {
        teeth(n.div_ceil(3), false, n, rng)
    }),
    order("descending, rotated", |n, rng| {
        let mut logits = descending(n, rng);
        logits.rotate_left(n / 3);
        logits
    }),
    order("ascending, rotated", |n, rng| {
        let mut logits = ascending(n, rng);
        logits.rotate_left(n / 3);
        logits
    }),
    order("descending, one in 100 astray", |n, rng| {
        astray(descending(n, rng), rng)
    }),
    order("ascending, one in 100 astray", |n, rng| {
        astray(ascending(n, rng), rng)
    }),
    order("one bucket", one_bucket),
    order("one bucket, descending", |n, rng| {
        falling(one_bucket(n, rng))
    }),
    order("one bucket, ascending", |n, rng| rising(one_bucket(n, rng))),
    order("1 value", |n, _| vec![1.0; n]),
    order("2 values", |n, rng| values(2, n, rng)),
    order("3 values", |n, rng| values(3, n, rng)),
    order("16 values", |n, rng| values(16, n, rng)),
    order("2 values in turn", |n, _| {
        (0..n).map(|i| (i % 2) as f32).collect()
    }),
    order("2 values, the larger first", |n, _| {
        (0..n).map(|i| f32::from(i < n / 2)).collect()
    }),
    order("2 values, the smaller first", |n, _| {
        (0..n).map(|i| f32::from(i >= n / 2)).collect()
    }),
    order("2 values of one bucket", |n, rng| {
        (0..n).map(|_| rng.pick(&[3.0, 3.0625])).collect()
    }),
    order("2 values, one in 100 larger", |n, rng| {
        (0..n).map(|_| f32::from(rng.chance(0.01))).collect()
    }),
    order("2 values, one in 100 smaller", |n, rng| {
        (0..n).map(|_| f32::from(rng.chance(0.99))).collect()
    }),
    order("16 values, descending", |n, rng| {
        falling(values(16, n, rng))
    }),
    order("16 values, ascending", |n, rng| rising(values(16, n, rng))),
    order("16 values in turn", |n, _| {
        (0..n).map(|i| (i % 16) as f32 - 8.0).collect()
    }),
    order("masked", |n, _| vec![f32::NEG_INFINITY; n]),
    order("masked but 1", |n, rng| masked_but(1, n, rng)),
    order("masked but 10", |n, rng| masked_but(10, n, rng)),
    order("masked but 1000", |n, rng| masked_but(1000, n, rng)),
    order("masked but half", |n, rng| masked_but(n / 2, n, rng)),
    order("masked but the first 1000", |n, rng| {
        let mut logits = bulk(n, rng);
        logits[1000.min(n)..].fill(f32::NEG_INFINITY);
        logits
    }),
    order("masked but the last 1000", |n, rng| {
        let mut logits = bulk(n, rng);
        logits[..n.saturating_sub(1000)].fill(f32::NEG_INFINITY);
        logits
    }),
];

/// Returns logits like the bulk of a language model's, without outstanding ones: N(-1.5, 2.4).
pub fn bulk(n: usize, rng: &mut Rng) -> Vec<f32> {
    let normal = |rng: &mut Rng| {
        let (u, v) = (rng.unit().max(1e-300), rng.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    (0..n).map(|_| (normal(rng) * 2.4 - 1.5) as f32).collect()
}

/// Adds logits that stand out: 60 of them, which fall from 17 to 9.
pub fn peaks(mut logits: Vec<f32>, rng: &mut Rng) -> Vec<f32> {
    for i in 0..60.min(logits.len()) {
        let at = rng.below(logits.len());
        logits[at] = (17.0 - 8.0 * i as f64 / 60.0) as f32;
    }
    logits
}

/// Returns the logits sorted in descending order.
fn falling(mut logits: Vec<f32>) -> Vec<f32> {
    logits.sort_by(|a, b| b.total_cmp(a));
    logits
}

/// Returns the logits sorted in ascending order.
fn rising(mut logits: Vec<f32>) -> Vec<f32> {
    logits.sort_by(f32::total_cmp);
    logits
}

fn descending(n: usize, rng: &mut Rng) -> Vec<f32> {
    falling(bulk(n, rng))
}

fn ascending(n: usize, rng: &mut Rng) -> Vec<f32> {
    rising(bulk(n, rng))
}

/// Returns logits that rise to the middle and then fall.
fn organ_pipe(n: usize, rng: &mut Rng) -> Vec<f32> {
    let mut pipes = vec![0.0; n];
    for (i, x) in ascending(n, rng).into_iter().enumerate() {
        pipes[if i % 2 == 0 { i / 2 } else { n - 1 - i / 2 }] = x;
    }
    pipes
}

/// Returns a sawtooth: runs of `len` logits, each rising or falling.
fn teeth(len: usize, rising: bool, n: usize, rng: &mut Rng) -> Vec<f32> {
    let mut logits = bulk(n, rng);
    for tooth in logits.chunks_mut(len.max(1)) {
        tooth.sort_by(f32::total_cmp);
        if !rising {
            tooth.reverse();
        }
    }
    logits
}

/// Exchanges one logit in a hundred with another.
fn astray(mut logits: Vec<f32>, rng: &mut Rng) -> Vec<f32> {
    let n = logits.len();
    for _ in 0..n / 200 {
        logits.swap(rng.below(n), rng.below(n));
    }
    logits
}

/// Returns logits that are all in one of the buckets of the built-ins' sort.
fn one_bucket(n: usize, rng: &mut Rng) -> Vec<f32> {
    (0..n).map(|_| rng.range(3.0, 3.1)).collect()
}

/// Returns logits with `count` different values.
fn values(count: usize, n: usize, rng: &mut Rng) -> Vec<f32> {
    let values = bulk(count, rng);
    (0..n).map(|_| rng.pick(&values)).collect()
}

/// Returns logits that are minus infinity except for `count`, anywhere.
fn masked_but(count: usize, n: usize, rng: &mut Rng) -> Vec<f32> {
    let mut logits = vec![f32::NEG_INFINITY; n];
    for x in bulk(count.min(n), rng) {
        logits[rng.below(n)] = x;
    }
    logits
}
