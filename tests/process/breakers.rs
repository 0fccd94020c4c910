//! Tests the memory for DRY's sequence breakers, which a client can choose.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::counting_allocator::bytes_since;
use crate::support::alone;
use llama_sieve::Token;
use llama_sieve::samplers::Breakers;
use llama_sieve::vocabulary::Vocabulary;

/// A vocabulary in which every token ends with " -", the common prefix of the breakers. It counts
/// the tokenised texts.
#[derive(Debug)]
struct Dashes {
    n_tokens: usize,
    asked: AtomicUsize,
}

impl Vocabulary for Dashes {
    fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    fn is_eog(&self, _token: Token) -> bool {
        false
    }

    fn end_token(&self) -> Option<Token> {
        None
    }

    fn piece(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clear();
        piece.extend_from_slice(format!("{token} -").as_bytes());
    }

    fn detokenize(&self, token: Token, text: &mut Vec<u8>) {
        self.piece(token, text);
    }

    fn tokenize(&self, text: &[u8]) -> Vec<Token> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        text.iter().map(|&byte| Token::from(byte)).collect()
    }
}

/// The memory grows with the sum of the breakers and the tokens, not with their product.
#[test]
fn breakers_take_memory_as_their_bytes_and_as_the_tokens() {
    let _alone = alone();
    for (n_tokens, n) in [(500, 500), (500, 1000), (4000, 500), (4000, 1000)] {
        let vocabulary = Dashes {
            n_tokens,
            asked: AtomicUsize::new(0),
        };
        // Each breaker twice.
        let texts: Vec<String> = (0..2 * n)
            .map(|i| format!(" -{:04}{:034}", i % n, 0))
            .collect();
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let before = bytes_since(0);
        let breakers = Breakers::new(&vocabulary, &texts);
        let held = bytes_since(before).unsigned_abs();
        // For each breaker 20 tokens of 4 bytes with their positions, as much again for a growing
        // vector, and a slot in a hash table that is a quarter full.
        let bound = 150 * n + 100 * n_tokens;
        assert!(held < bound, "{n} for {n_tokens} tokens: {held} bytes");
        drop(breakers);
        // Each is tokenised without the two bytes that all begin with.
        assert_eq!(vocabulary.asked.into_inner(), n);
    }
}
