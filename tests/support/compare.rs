//! The exactness contract as a comparison.
//!
//! Everything is compared bit for bit, `p` within 2 ulp. Among equal logits (or, for locally typical sampling, equal distances from the
//! entropy) the built-in leaves the order that its unstable sort happens to give; there, and only there, ids may stand in another order.

use std::collections::HashSet;

use vendor_llama_cpp::sys::llama_token_data;

use super::Array;

/// Compares what both sides made of `input`. `by_entropy`: the output is ordered by distance from the entropy.
pub fn same(input: &Array, ours: &Array, theirs: &Array, by_entropy: bool) -> Result<(), String> {
    if ours.sorted != theirs.sorted {
        return Err(format!("sorted {} != {}", ours.sorted, theirs.sorted));
    }
    if ours.selected != theirs.selected {
        return Err(format!("selected {} != {}", ours.selected, theirs.selected));
    }
    let distance = by_entropy.then(|| Distance::of(input)).flatten();
    if ours.data.len() != theirs.data.len() {
        return Err(format!("size {} != {}", ours.data.len(), theirs.data.len()));
    }
    for (i, (a, b)) in ours.data.iter().zip(&theirs.data).enumerate() {
        if a.id == b.id && same_bits(a.logit, b.logit) && same_p(a.p, b.p) {
            continue;
        }
        let tie = match &distance {
            Some(distance) => distance.from(a.p) == distance.from(b.p),
            None => same_bits(a.logit, b.logit) && same_p(a.p, b.p),
        };
        if !tie {
            return Err(format!("candidate {i}: {a:?} != {b:?}"));
        }
    }
    no_inventions(input, ours)
}

fn same_bits(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn same_p(a: f32, b: f32) -> bool {
    let ulps = (i64::from(a.to_bits()) - i64::from(b.to_bits())).abs();
    ulps <= 2 || (a.is_nan() && b.is_nan())
}

/// Every candidate of the output was in the input, once.
fn no_inventions(input: &Array, output: &Array) -> Result<(), String> {
    let known: HashSet<i32> = input.data.iter().map(|c| c.id).collect();
    let mut seen = HashSet::new();
    for candidate in &output.data {
        if !known.contains(&candidate.id) || !seen.insert(candidate.id) {
            return Err(format!("id {} is new or twice", candidate.id));
        }
    }
    Ok(())
}

/// The score of locally typical sampling, from its definition, in the precision of the built-in.
struct Distance {
    entropy: f32,
}

impl Distance {
    /// `None` where the entropy is not a number, and the order not by distance.
    fn of(input: &Array) -> Option<Self> {
        let mut data: Vec<llama_token_data> = input.data.clone();
        if !input.sorted {
            data.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        }
        let max = data[0].logit;
        let exponentials: Vec<f32> = data.iter().map(|c| (c.logit - max).exp()).collect();
        let sum = exponentials.iter().fold(0.0f32, |sum, e| sum + e);
        let entropy = exponentials.iter().fold(0.0f32, |entropy, e| {
            let p = e / sum;
            entropy - p * p.ln()
        });
        (!entropy.is_nan()).then_some(Self { entropy })
    }

    fn from(&self, p: f32) -> f32 {
        (-p.ln() - self.entropy).abs()
    }
}
