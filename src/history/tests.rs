use super::*;
use crate::lcg::Lcg;

/// Returns the number of times that `token` occurs among the last `capacity` tokens, counted from
/// the start each time.
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
        // All rounds would take minutes under Miri.
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

/// The built-in's rule, step by step. A token that is absent from `counts` is not penalised at all.
#[derive(Clone)]
struct Naive {
    last_n: usize,
    capacity: usize,
    window: Vec<Token>,
    counts: HashMap<Token, i32>,
}

impl Naive {
    fn accept(&mut self, token: Token) {
        *self.counts.entry(token).or_default() += 1;
        if self.window.len() >= self.last_n {
            let oldest = self.window[0];
            *self.counts.entry(oldest).or_default() -= 1;
            if self.counts[&oldest] == 0 {
                self.counts.remove(&oldest);
            }
        }
        if self.window.len() == self.capacity {
            self.window.remove(0);
        }
        self.window.push(token);
    }
}

#[test]
fn one_that_goes_on_from_another_window_counts_as_the_built_in() {
    let mut random = Lcg(2);
    let mut below = |n: u32| (random.bits() >> 8) % n;
    let mut owing = 0;
    for _ in 0..if cfg!(miri) { 3 } else { 300 } {
        let windows = [(); 3].map(|()| 1 + below(9) as usize);
        let mut histories = windows.map(History::new);
        let mut naive = windows.map(|n| Naive {
            last_n: n,
            capacity: n,
            window: Vec::new(),
            counts: HashMap::new(),
        });
        let tokens = 1 + below(6);
        for _ in 0..100 {
            let i = below(3) as usize;
            match below(20) {
                0 => {
                    histories[i].clear();
                    naive[i].window.clear();
                    naive[i].counts.clear();
                }
                1 | 2 => {
                    let (from, last_n) = (below(3) as usize, naive[i].last_n);
                    let source = histories[from].clone();
                    histories[i].go_on_from(&source);
                    naive[i] = Naive {
                        last_n,
                        ..naive[from].clone()
                    };
                }
                _ => {
                    let token = below(tokens) as Token;
                    histories[i].accept(token);
                    naive[i].accept(token);
                }
            }
            let (history, naive) = (&histories[i], &naive[i]);
            assert!(history.tokens().eq(naive.window.iter().copied()));
            assert_eq!(history.nominal(), naive.last_n);
            let counted = history.distinct().iter().map(|&(t, n)| (t, n as i32));
            let counts: HashMap<_, _> = counted.chain(history.owing()).collect();
            assert_eq!(counts, naive.counts);
            assert!(
                history
                    .distinct()
                    .iter()
                    .all(|&(t, n)| history.count(t) == n && n > 0)
            );
            owing += usize::from(history.owing().is_some());
        }
    }
    assert!(owing > 0 || cfg!(miri));
}

/// These tokens would all be in one of 65536 buckets if the multiplication had no key.
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
