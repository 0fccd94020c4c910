//! The exactness contract as a comparison: everything must be equal, bit for bit.

use vendor_llama_cpp::sys::llama_token_data;

use super::Array;

/// Compares two arrays. The error says where they differ. NaN equals NaN, whatever its bits.
pub fn same(ours: &Array, theirs: &Array) -> Result<(), String> {
    if ours.data.len() != theirs.data.len() {
        let (ours, theirs) = (ours.data.len(), theirs.data.len());
        return Err(format!("size {ours} != {theirs}"));
    }
    if ours.sorted != theirs.sorted {
        return Err(format!("sorted {} != {}", ours.sorted, theirs.sorted));
    }
    if ours.selected != theirs.selected {
        return Err(format!("selected {} != {}", ours.selected, theirs.selected));
    }
    let mut pairs = ours.data.iter().zip(&theirs.data).enumerate();
    match pairs.find(|(_, (a, b))| !same_candidate(a, b)) {
        Some((i, (a, b))) => Err(format!("candidate {i}: {a:?} != {b:?}")),
        None => Ok(()),
    }
}

fn same_candidate(a: &llama_token_data, b: &llama_token_data) -> bool {
    a.id == b.id && same_bits(a.logit, b.logit) && same_bits(a.p, b.p)
}

pub fn same_bits(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}
