//! Tests the memory of trigger patterns: while texts are read, and afterwards in the cache.

use std::sync::Arc;

use llama_sieve::grammar::limits::MAX_TRIGGER_CACHE;
use llama_sieve::grammar::triggers::{Triggers, Waiting};

use crate::counting_allocator::bytes_since;
use crate::support::alone;
use crate::support::arrays::Rng;

/// Returns the `i`-th set of patterns. Most sets have more states than are ever kept.
fn patterns(i: usize) -> Vec<String> {
    match i % 4 {
        0 => vec![format!("a[ab<]{{9000}}c{i}")],
        1 => (0..300)
            .map(|j| format!("a[ab]*<function=tool_{i}_{j}>$"))
            .collect(),
        2 => (0..30)
            .map(|j| format!("\\b[ab]{{{j}}}c{i}\\b|(a|b)\\1[ab]{{40}}d"))
            .collect(),
        _ => vec![format!("^[\\s\\S]*?(<tool_{i}>|a[ab]{{9}}c)[\\s\\S]*")],
    }
}

fn with<T>(i: usize, make: impl Fn(&[&[u8]]) -> Result<T, String>) -> T {
    let patterns = patterns(i);
    let patterns: Vec<&[u8]> = patterns.iter().map(String::as_bytes).collect();
    make(&patterns).expect("patterns")
}

/// Reads texts that lead through as many states as possible.
fn use_much(triggers: &Triggers, rng: &mut Rng) {
    let mut waiting = Waiting::default();
    for token in 0..100 {
        let text: Vec<u8> = (0..30).map(|_| rng.pick(b"aaaaabbbbb<")).collect();
        if waiting.accept(triggers, token, &text) != Ok(None) {
            break;
        }
    }
}

#[test]
fn patterns_occupy_what_is_counted() {
    let _alone = alone();
    let mut rng = Rng(5);
    for i in 0..4 {
        let before = bytes_since(0);
        let triggers = with(i, Triggers::read);
        let mut grown = 0;
        for _ in 0..20 {
            use_much(&triggers, &mut rng);
            let bytes = triggers.bytes();
            let held = bytes_since(before) as usize;
            assert!(held <= bytes, "{i}: {held} bytes, {bytes} are counted");
            assert!(2 * held > bytes, "{i}: {held} bytes, {bytes} are counted");
            assert!(bytes <= triggers.most_bytes(), "{i}: {bytes}");
            grown = grown.max(bytes);
        }
        assert!(grown > 40 << 10, "{i}: only {grown} bytes");
        drop(triggers);
        assert_eq!(bytes_since(before), 0);
    }
}

/// All sets of patterns are read first, and used afterwards.
#[test]
fn patterns_that_are_kept_have_a_limit() {
    let _alone = alone();
    let mut rng = Rng(6);
    let before = bytes_since(0);
    let mut sets: Vec<Arc<Triggers>> = (0..90).map(|i| with(4 * i, Triggers::new)).collect();
    for triggers in &sets {
        use_much(triggers, &mut rng);
    }
    let in_use = bytes_since(before);
    sets.clear();
    let kept = bytes_since(before);
    assert!(kept > 1 << 20 && kept < in_use, "{kept} of {in_use}");
    assert!(kept <= MAX_TRIGGER_CACHE as isize, "{kept} of {in_use}");
    // The last sets are still cached, until others take their place.
    let again = with(4 * 89, Triggers::new);
    assert_eq!(bytes_since(before), kept);
    drop(again);
    for i in 1000..1100 {
        with(4 * i + 3, Triggers::new);
    }
    let small = bytes_since(before);
    assert!(small < kept, "{small} of {kept}");
}
