use super::*;
use crate::lcg::Lcg;

/// The same by counting the last `capacity` tokens anew each time.
fn naive_count(tokens: &[Token], capacity: usize, token: Token) -> u32 {
    let start = tokens.len().saturating_sub(capacity);
    tokens[start..].iter().filter(|&&t| t == token).count() as u32
}

#[test]
fn counts_are_those_of_the_last_n_tokens() {
    for capacity in [0, 1, 2, 7, 64] {
        let mut history = History::new(capacity);
        let mut tokens = Vec::new();
        let mut random = Lcg(1);
        // Miri takes minutes for all of them.
        for _ in 0..if cfg!(miri) { 50 } else { 500 } {
            let token = (random.bits() >> 28) as Token - 3;
            tokens.push(token);
            history.accept(token);
            for t in -3..13 {
                assert_eq!(history.count(t), naive_count(&tokens, capacity, t));
            }
            assert_eq!(history.len(), tokens.len().min(capacity));
            let total: u32 = history.distinct().iter().map(|&(_, n)| n).sum();
            assert_eq!(total as usize, history.len());
        }
        history.clear();
        assert!(history.is_empty() && history.distinct().is_empty());
    }
}

#[test]
fn a_resized_window_keeps_the_newest_tokens() {
    let mut history = History::new(8);
    for token in [1, 2, 3, 1, 2, 1] {
        history.accept(token);
    }
    history.resize(3);
    assert!(history.tokens().eq([1, 2, 1]));
    assert_eq!((history.count(1), history.count(2)), (2, 1));
    assert!(!history.contains(3));
    history.resize(4);
    for token in [5, 6] {
        history.accept(token);
    }
    assert!(history.tokens().eq([2, 1, 5, 6]));
    history.resize(0);
    assert!(history.is_empty() && history.distinct().is_empty());
    history.accept(1);
    assert_eq!((history.len(), history.capacity()), (0, 0));
}

/// Tokens that an unseeded multiplication brings to one of 65536 buckets.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn nobody_can_choose_tokens_that_collide() {
    let buckets = |hash: fn(u64) -> u64| {
        let mut taken = std::collections::HashSet::new();
        let tokens = (0..1u64 << 26).filter(|x| {
            let product = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (product ^ (product >> 32)) & 0xFFFF == 7
        });
        let tokens: Vec<u64> = tokens.collect();
        taken.extend(tokens.iter().map(|&token| hash(token) & 0xFFFF));
        (tokens.len(), taken.len())
    };
    let (tokens, taken) = buckets(|token| TokenHashes::default().hash_one(token as Token));
    assert!(
        tokens > 900 && taken > tokens / 2,
        "{taken} buckets of {tokens} tokens"
    );
}

#[test]
fn a_huge_window_costs_nothing_before_it_is_used() {
    let mut history = History::new(usize::MAX);
    history.accept(3);
    assert_eq!(history.count(3), 1);
}
