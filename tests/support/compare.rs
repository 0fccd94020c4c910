//! The exactness contract as a comparison.
//!
//! Everything is compared bit for bit, `p` within 2 ulp. Among equal logits (or, for locally typical sampling, equal distances from the
//! entropy) the built-in leaves the order that its unstable sort happens to give; there, and only there, ids may stand in another order.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};

use vendor_llama_cpp::sys::llama_token_data;

use super::Array;

/// How the output of a sampler relates to its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Candidates of the input, in its order or by logit.
    Logit,
    /// Candidates of the input by distance from the entropy.
    Entropy,
    /// As `Logit`, but one may have been put in place of all.
    Replaced,
}

/// Compares what both sides made of `input`.
pub fn same(input: &Array, ours: &Array, theirs: &Array, order: Order) -> Result<(), String> {
    if ours.sorted != theirs.sorted {
        return Err(format!("sorted {} != {}", ours.sorted, theirs.sorted));
    }
    if ours.selected != theirs.selected {
        return Err(format!("selected {} != {}", ours.selected, theirs.selected));
    }
    if order != Order::Replaced {
        no_inventions(input, ours)?;
    }
    let by_entropy = (order == Order::Entropy).then(|| Distance::of(input));
    if let Some(distance) = by_entropy.flatten() {
        return same_by_distance(&distance, ours, theirs);
    }
    same_length(ours, theirs, 0)?;
    let logits = LazyCell::new(|| tied_logits(input));
    same_candidates(ours, theirs, |a, b| {
        let tied = logits.contains_key(&a.id) && logits.get(&a.id) == logits.get(&b.id);
        if tied && same_bits(a.logit, b.logit) && same_p(a.p, b.p) {
            return Tie::Exchanged;
        }
        if same_bits(a.logit, b.logit) {
            Tie::Moved
        } else {
            Tie::None
        }
    })
}

/// Candidates at equal distance have different probabilities, so their order also moves the rounding of the sum, and with it the cut,
/// by at most one. Where no two are at equal distance nothing is allowed.
fn same_by_distance(distance: &Distance, ours: &Array, theirs: &Array) -> Result<(), String> {
    same_length(ours, theirs, usize::from(distance.has_ties))?;
    same_candidates(ours, theirs, |a, b| {
        if distance.from(a.p) == distance.from(b.p) {
            Tie::Moved
        } else {
            Tie::None
        }
    })
}

/// How two candidates at one place may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tie {
    None,
    /// They came in with equal logits, and what was made of them depends on the place alone.
    Exchanged,
    /// They are equal here, and each is elsewhere what it is here.
    Moved,
}

/// The bits of the logits that more than one candidate came in with.
fn tied_logits(input: &Array) -> HashMap<i32, u32> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for candidate in &input.data {
        *counts.entry(candidate.logit.to_bits()).or_default() += 1;
    }
    let tied = input.data.iter();
    let tied = tied.filter(|c| counts[&c.logit.to_bits()] > 1);
    tied.map(|c| (c.id, c.logit.to_bits())).collect()
}

fn same_length(ours: &Array, theirs: &Array, allowed: usize) -> Result<(), String> {
    let (ours, theirs) = (ours.data.len(), theirs.data.len());
    if ours.abs_diff(theirs) > allowed {
        return Err(format!("size {ours} != {theirs}"));
    }
    Ok(())
}

fn same_candidates(
    ours: &Array,
    theirs: &Array,
    tie: impl Fn(&llama_token_data, &llama_token_data) -> Tie,
) -> Result<(), String> {
    let same = |a: &llama_token_data, b: &llama_token_data| {
        a.id == b.id && same_bits(a.logit, b.logit) && same_p(a.p, b.p)
    };
    let mut others = HashMap::new();
    for (i, (a, b)) in ours.data.iter().zip(&theirs.data).enumerate() {
        if same(a, b) {
            continue;
        }
        match tie(a, b) {
            _ if a.id == b.id => return Err(format!("candidate {i}: {a:?} != {b:?}")),
            Tie::None => return Err(format!("candidate {i}: {a:?} != {b:?}")),
            Tie::Exchanged => {}
            Tie::Moved => drop(others.insert(b.id, b)),
        }
    }
    if others.is_empty() {
        return Ok(());
    }
    // What stands elsewhere must be the same there.
    for a in &ours.data {
        if let Some(b) = others.get(&a.id).filter(|b| !same(a, b)) {
            return Err(format!("candidate {a:?} != {b:?}, in another place"));
        }
    }
    Ok(())
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
    has_ties: bool,
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
        if entropy.is_nan() {
            return None;
        }
        let mut distance = Self {
            entropy,
            has_ties: false,
        };
        let mut distances: Vec<f32> = exponentials
            .iter()
            .map(|e| distance.from(e / sum))
            .collect();
        distances.sort_by(f32::total_cmp);
        distance.has_ties = distances.windows(2).any(|pair| pair[0] == pair[1]);
        Some(distance)
    }

    fn from(&self, p: f32) -> f32 {
        (-p.ln() - self.entropy).abs()
    }
}
