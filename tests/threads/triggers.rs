//! Tests trigger patterns that threads share. Each thread must find the same matches as it would
//! alone, in as many steps, while others make states, drop them, and add new sets of patterns.
//!
//! `ci/sanitize tsan` runs this under ThreadSanitizer.

use llama_sieve::grammar::triggers::{Budget, Triggers, Waiting};

use crate::support::alone;
use crate::support::arrays::Rng;

const THREADS: usize = 8;
const PATTERNS: [&[u8]; 4] = [
    b"a[ab]{2000}c",
    b"\\b[ab]{3,9}c$",
    b"(a|b)\\1[ab]*cd(?=a)",
    b"^[\\s\\S]*?(<[ab]+>)[\\s\\S]*",
];

/// Reads texts of random pieces. Returns for each piece where a match is found, and the number of
/// steps.
fn work(triggers: &Triggers, seed: u64) -> Vec<(Option<usize>, usize)> {
    let mut rng = Rng(seed);
    let mut given = Vec::new();
    for _ in 0..6 {
        let mut waiting = Waiting::default();
        for token in 0..60 {
            let text: Vec<u8> = (0..20).map(|_| rng.pick(b"aaaaaaabbbbbbb cd")).collect();
            let mut budget = Budget::default();
            let found = waiting.accept_within(triggers, token, &text, &mut budget);
            let found = found.expect("few steps");
            given.push((found, budget.left()));
            if found.is_some() {
                break;
            }
        }
    }
    given
}

#[test]
fn threads_share_the_states_of_patterns() {
    let _alone = alone();
    let alone: Vec<_> = (0..THREADS as u64)
        .map(|seed| work(&Triggers::read(&PATTERNS).expect("patterns"), seed))
        .collect();
    let n_found = alone.iter().flatten().filter(|(found, _)| found.is_some());
    assert!(n_found.count() > THREADS);
    let threads: Vec<_> = (0..THREADS)
        .map(|i| {
            std::thread::spawn(move || {
                let triggers = Triggers::new(&PATTERNS).expect("patterns");
                for j in 0..10 {
                    let other = format!("{i} {j}");
                    Triggers::new(&[other.as_bytes()]).expect("a pattern");
                }
                work(&triggers, i as u64)
            })
        })
        .collect();
    for (thread, alone) in threads.into_iter().zip(alone) {
        assert_eq!(thread.join().expect("no panic"), alone);
    }
}
