use super::*;
use crate::lcg::Lcg;
use crate::pool::{Buffers, Pool};
use crate::token::array_of;

const N: usize = 50;

fn breaker(min_tokens: usize, action: LoopAction) -> LoopBreaker {
    let params = LoopParams {
        min_tokens,
        action,
        ..LoopParams::default()
    };
    LoopBreaker::new(params).expect("good parameters")
}

/// Returns the repetition by its definition: the shortest period with three or more copies at the
/// end of the tokens, which have at least `min` tokens in all.
fn defined(tokens: &[Token], max_period: usize, min: usize) -> Option<(usize, usize)> {
    (1..=max_period).find_map(|period| {
        let n = tokens.len();
        let equal = (1..=n.saturating_sub(period))
            .take_while(|&back| tokens[n - back] == tokens[n - back - period]);
        let length = equal.count() + period;
        (length >= (3 * period).max(min)).then_some((period, length))
    })
}

#[test]
fn repetitions_are_found_by_their_definition() {
    let mut lcg = Lcg(3);
    let mut found = 0;
    for max_period in [1, 2, 3, 7, 20] {
        for min in [0, 3, 10, 30] {
            let mut repetitions = Repetitions::new(max_period, min);
            let mut tokens = Vec::new();
            for _ in 0..400 {
                let back = 1 + (lcg.bits() >> 20) as usize % 24;
                let again = lcg.unit() < 0.9 && tokens.len() >= back;
                let run = 1 + (lcg.bits() >> 20) as usize % 70;
                for _ in 0..run {
                    let random = (lcg.bits() >> 28) as Token % 3;
                    let token = match again {
                        true => tokens[tokens.len() - back],
                        false => random,
                    };
                    tokens.push(token);
                    let ours = repetitions.accept(token);
                    let definition = defined(&tokens, max_period, min);
                    assert_eq!(ours.map(|it| (it.period, it.length)), definition);
                    if let Some(it) = ours {
                        assert_eq!(it.next, tokens[tokens.len() - it.period]);
                        found += 1;
                    }
                }
            }
        }
    }
    assert!(found > 1000, "{found}");
}

/// Loops as users report them: a word, a list of few items, a sentence, a paragraph, a page of
/// reasoning.
#[test]
fn loops_are_found_as_the_third_copy_is_complete() {
    for period in [1, 4, 16, 100, 1000] {
        let mut breaker = breaker(0, LoopAction::Ban);
        // A text without repetitions comes first.
        for token in 0..3000 {
            breaker.accept(10_000 + token);
            assert_eq!(breaker.found, None);
        }
        for i in 0..4 * period {
            breaker.accept((i % period) as Token);
            let found = breaker.found;
            let expected = (i + 1 >= 3 * period).then_some((period, i + 1));
            assert_eq!(found.map(|it| (it.period, it.length)), expected);
        }
        breaker.accept(-5);
        assert_eq!(breaker.found, None);
    }
}

fn masked(breaker: &mut LoopBreaker, logits: &[f32]) -> Vec<TokenData> {
    let mut array = array_of(logits);
    breaker.apply(&mut Candidates::new(&mut array, false));
    let mut buffers = Buffers::default();
    let mut pool = Pool::new(logits, &mut buffers);
    breaker.narrow(&mut pool);
    assert_eq!(pool.array().0, array);
    array
}

fn left(candidates: &[TokenData]) -> Vec<Token> {
    let left = candidates.iter().filter(|c| c.logit > f32::NEG_INFINITY);
    left.map(|c| c.id).collect()
}

fn loop_of(breaker: &mut LoopBreaker, tokens: &[Token], copies: usize) {
    for _ in 0..copies {
        tokens.iter().for_each(|&token| breaker.accept(token));
    }
}

#[test]
fn what_goes_on_is_banned_and_nothing_else() {
    let logits: Vec<f32> = (0..N).map(|i| i as f32 / 7.0).collect();
    let mut breaker = breaker(0, LoopAction::Ban);
    loop_of(&mut breaker, &[3, 4], 2);
    assert_eq!(masked(&mut breaker, &logits), array_of(&logits));
    breaker.accept(3);
    assert_eq!(masked(&mut breaker, &logits), array_of(&logits));
    breaker.accept(4);
    let after = masked(&mut breaker, &logits);
    let mut expected = array_of(&logits);
    expected[3].logit = f32::NEG_INFINITY;
    assert_eq!(after, expected);
    // If it is the only candidate left, it stays.
    let mut only = vec![f32::NEG_INFINITY; N];
    only[3] = 2.0;
    assert_eq!(masked(&mut breaker, &only), array_of(&only));
    let mut one = [TokenData::new(3, 1.0)];
    breaker.apply(&mut Candidates::new(&mut one, true));
    assert_eq!(one[0].logit, 1.0);
    breaker.accept(9);
    assert_eq!(masked(&mut breaker, &logits), array_of(&logits));
}

#[test]
fn the_temperature_rises_until_the_loop_ends() {
    let logits: Vec<f32> = (0..N).map(|i| i as f32 / 7.0).collect();
    let mut breaker = breaker(0, LoopAction::Temperature(2.0));
    loop_of(&mut breaker, &[3, 4], 3);
    for (token, heat) in [(3, 2.0), (4, 4.0), (3, 8.0)] {
        let after = masked(&mut breaker, &logits);
        assert!(after.iter().zip(&logits).all(|(c, x)| c.logit == x / heat));
        breaker.accept(token);
    }
    for _ in 0..100 {
        loop_of(&mut breaker, &[4, 3], 1);
    }
    assert_eq!(breaker.heat, MOST_HEAT);
    breaker.accept(7);
    assert_eq!(masked(&mut breaker, &logits), array_of(&logits));
}

#[test]
fn a_text_is_forced_token_by_token() {
    let logits: Vec<f32> = (0..N).map(|i| i as f32 / 7.0).collect();
    let mut breaker = breaker(0, LoopAction::Force([40, 41].into()));
    loop_of(&mut breaker, &[3, 4], 3);
    assert_eq!(left(&masked(&mut breaker, &logits)), [40]);
    breaker.accept(40);
    assert_eq!(left(&masked(&mut breaker, &logits)), [41]);
    // If an earlier sampler has removed the token, it is inserted. If an earlier sampler has banned
    // it, it stays banned.
    let mut cut = array_of(&logits[..5]);
    breaker.apply(&mut Candidates::new(&mut cut, true));
    assert_eq!(left(&cut), [41]);
    let mut banned = logits.clone();
    banned[41] = f32::NEG_INFINITY;
    assert_eq!(masked(&mut breaker, &banned), array_of(&banned));
    breaker.accept(41);
    assert_eq!(masked(&mut breaker, &logits), array_of(&logits));
    // After the forced text the repetition is counted from the start again.
    loop_of(&mut breaker, &[3, 4], 2);
    assert_eq!(masked(&mut breaker, &logits), array_of(&logits));
    loop_of(&mut breaker, &[3, 4], 1);
    assert_eq!(left(&masked(&mut breaker, &logits)), [40]);
    // The host accepts a token that is not the forced one.
    breaker.accept(9);
    assert_eq!(masked(&mut breaker, &logits), array_of(&logits));
}

#[test]
fn the_generation_is_ended() {
    let logits: Vec<f32> = (0..N).map(|i| i as f32 / 7.0).collect();
    let mut breaker = breaker(0, LoopAction::End([48, 49].into()));
    loop_of(&mut breaker, &[3], 3);
    assert_eq!(left(&masked(&mut breaker, &logits)), [48, 49]);
    let mut cut = array_of(&logits[..5]);
    breaker.apply(&mut Candidates::new(&mut cut, true));
    assert_eq!(left(&cut), [48]);
    let mut one = array_of(&logits[..1]);
    breaker.apply(&mut Candidates::new(&mut one, true));
    assert_eq!(one, array_of(&logits[..1]));
    breaker.accept(48);
    assert_eq!(masked(&mut breaker, &logits), array_of(&logits));
    breaker.reset();
    assert_eq!(masked(&mut breaker, &logits), array_of(&logits));
}

#[test]
fn parameters_out_of_their_range_are_refused_by_name() {
    let refusal = |params: LoopParams| LoopBreaker::new(params).expect_err("refused");
    for max_period in [0, 1025, usize::MAX] {
        let params = LoopParams {
            max_period,
            ..LoopParams::default()
        };
        assert!(refusal(params).contains("max_period"));
    }
    let of = |action| LoopParams {
        action,
        ..LoopParams::default()
    };
    for t in [1.0, 0.0, -2.0, f32::NAN, f32::INFINITY, 2e6] {
        assert!(refusal(of(LoopAction::Temperature(t))).contains("temperature"));
    }
    assert!(refusal(of(LoopAction::Force([].into()))).contains("no tokens"));
    assert!(refusal(of(LoopAction::Force(vec![1; 1025].into()))).contains("1025"));
    assert!(refusal(of(LoopAction::End([].into()))).contains("ends"));
    let min_tokens = MAX_LENGTH + 1;
    let params = LoopParams {
        min_tokens,
        ..LoopParams::default()
    };
    assert!(refusal(params).contains("min_tokens"));
}
