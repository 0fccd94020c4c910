use super::*;
use crate::sieve::plain;
use crate::sieve::select::{collect_packed, scan};
use crate::sieve::source::Logits;

/// So that little of it need be sorted.
#[test]
fn a_histogram_divides_its_range() {
    const N: usize = 8 * BINS;
    let mut survivors = Packed::default();
    let logits: Vec<f32> = (0..N).map(|i| 2.0 * i as f32 / N as f32 - 4.0).collect();
    let source = plain(Logits::F32(&logits)).expect("some logits");
    let mut maxima = Vec::new();
    let max = scan(&source, &mut maxima);
    collect_packed(&source, &maxima, (max, f32::MIN), &mut survivors);
    let mut cut = Cut {
        keys: &mut Vec::new(),
        band: &mut Vec::new(),
        exponentials: &mut crate::algorithms::Workspace::default(),
    };
    let histogram = Histogram::of((-4.0, f32::INFINITY), max, &survivors, &mut cut);
    let ns = histogram.bins.iter().map(|bin| bin.n);
    assert_eq!(ns.clone().sum::<usize>(), N);
    assert!(ns.max() <= Some(16));
}
