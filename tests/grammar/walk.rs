//! Random walks through a grammar, by this library and the built-in at the same time.

use llama_sieve::grammar::elements::Written;
use llama_sieve::grammar::parser::{self, Repetitions::AsLlamaCpp};

use crate::left_recursion::is_left_recursive;
use crate::pair::{self, Pair, Vocabulary, quietly};
use crate::stacks::Stacks;
use crate::support::{Array, HostSampler, Rng, replay};

/// True if the built-in can read the text. Asserts that this library agrees.
pub fn read_alike(text: &[u8], vocabulary: &Vocabulary) -> bool {
    read(text, vocabulary).is_some()
}

/// Reads the text with both. If it is a grammar, returns both at the beginning of a walk.
fn read(text: &[u8], vocabulary: &Vocabulary) -> Option<Walk> {
    let shown = String::from_utf8_lossy(text);
    let ours = pair::ours(text, "root", vocabulary);
    let said = llama_sieve::last_error::get();
    if ours.is_null() && endless(text, vocabulary, &said) {
        return None;
    }
    let begun = written(text, vocabulary).map(Stacks::new);
    if let Some(None) = begun {
        // The built-in would store all initial stacks, until memory runs out.
        if !ours.is_null() {
            drop(HostSampler::new(ours));
        }
        return None;
    }
    let theirs = pair::theirs(text, "root", vocabulary);
    if has_too_many_repetitions(text, vocabulary) {
        // This library can read it.
        assert!(theirs.is_null(), "{shown}");
        if !ours.is_null() {
            drop(HostSampler::new(ours));
        }
        return None;
    }
    assert_eq!(
        ours.is_null(),
        theirs.is_null(),
        "{said}\n{shown}\n{}",
        replay()
    );
    if ours.is_null() {
        let placed = said.contains("line ") || said.contains("rule");
        assert!(placed, "no place in: {said}");
        return None;
    }
    let pair = Pair {
        ours: HostSampler::new(ours),
        theirs: HostSampler::new(theirs),
    };
    begun.flatten().map(|stacks| Walk { pair, stacks })
}

/// True if the built-in would never return, abort, or crash: with repetitions whose maximum is
/// below the minimum, or a left recursion that its check misses.
fn endless(text: &[u8], vocabulary: &Vocabulary, said: &str) -> bool {
    // The built-in reads out of bounds if the root is mentioned last and never defined.
    if said.contains("fewer than the least") || said.contains("there is no rule 'root'") {
        return true;
    }
    would_not_return(text, vocabulary)
}

fn token_of(_text: &[u8], _vocabulary: &Vocabulary) -> Option<i32> {
    Some(0)
}

/// True if the built-in would follow a rule forever.
pub fn would_not_return(text: &[u8], vocabulary: &Vocabulary) -> bool {
    let token = |text: &[u8]| token_of(text, vocabulary);
    parser::parse(text, b"root", AsLlamaCpp, token).is_ok_and(|rules| is_left_recursive(&rules))
}

/// Walks through a grammar with both samplers. Returns the number of steps; `None` if there is no
/// walk, since both refuse the text, or the built-in must not be called with it.
pub fn walk(text: &[u8], vocabulary: &Vocabulary, n_steps: usize, rng: &mut Rng) -> Option<usize> {
    if would_not_return(text, vocabulary) {
        return None;
    }
    let mut walk = read(text, vocabulary)?;
    let mut history = Vec::new();
    for i in 0..n_steps {
        if !walk.stacks.may_apply(&vocabulary.pieces) {
            return Some(i);
        }
        let step = one_step(&mut walk, vocabulary, &mut history, rng);
        match step {
            Ok(true) => {}
            Ok(false) => return Some(i + 1),
            Err(what) => {
                let text = String::from_utf8_lossy(text);
                let pieces: Vec<_> = history
                    .iter()
                    .map(|&token: &i32| String::from_utf8_lossy(&vocabulary.pieces[token as usize]))
                    .collect();
                panic!("{what}\n{text}\nafter {history:?} {pieces:?}\n{}", replay());
            }
        }
    }
    Some(n_steps)
}

/// Returns the built-in's stacks at the beginning of a text of the grammar `text`; `None` if `text`
/// is not a grammar, or if the built-in must not be called with it (see [`Stacks::new`]).
pub fn stacks(text: &[u8], vocabulary: &Vocabulary) -> Option<Stacks> {
    Stacks::new(written(text, vocabulary)?)
}

/// True if the only fault of the text is that it has too many repetitions.
fn has_too_many_repetitions(text: &[u8], vocabulary: &Vocabulary) -> bool {
    let token = |text: &[u8]| token_of(text, vocabulary);
    let read = parser::written(text, b"root", token);
    read.is_err_and(|error| error.is_of_number)
}

fn written(text: &[u8], vocabulary: &Vocabulary) -> Option<Written> {
    let token = |text: &[u8]| token_of(text, vocabulary);
    parser::written(text, b"root", token).ok()
}

/// Both samplers, and the stacks that the built-in has.
struct Walk {
    pair: Pair,
    stacks: Stacks,
}

/// Compares the tokens that both allow, and accepts one. Returns false at the end of the walk.
fn one_step(
    walk: &mut Walk,
    vocabulary: &Vocabulary,
    history: &mut Vec<i32>,
    rng: &mut Rng,
) -> Result<bool, String> {
    let Walk { pair, stacks } = walk;
    let n = vocabulary.n_tokens;
    // Single tokens first, while no mask is known.
    for _ in 0..4 {
        let token = rng.below(n) as i32;
        pair.apply(&array([token], rng))?;
    }
    let few: Vec<i32> = (0..rng.below(60)).map(|_| rng.below(n) as i32).collect();
    pair.apply(&array(few, rng))?;
    let full = pair.apply(&array(0..n as i32, rng))?;
    let mut shuffled: Vec<i32> = (0..n as i32).collect();
    rng.shuffle(&mut shuffled);
    shuffled.truncate(rng.below(n) + 1);
    pair.apply(&array(shuffled, rng))?;

    let allowed: Vec<i32> = full
        .data
        .iter()
        .filter(|candidate| candidate.logit != f32::NEG_INFINITY)
        .map(|candidate| candidate.id)
        .collect();
    if pair::mask(&pair.ours, n) != allowed {
        return Err("the mask is not what apply leaves".into());
    }
    let may_end = allowed.iter().any(|token| vocabulary.eog.contains(token));
    if !vocabulary.eog.is_empty() && pair::is_complete(&pair.ours) != may_end {
        return Err("complete and not ending, or ending and not complete".into());
    }
    if rng.chance(0.1) {
        *pair = pair.clone();
    }
    if rng.chance(0.03) {
        pair.reset();
        stacks.reset();
        history.clear();
        return Ok(true);
    }
    let token = if allowed.is_empty() || rng.chance(0.05) {
        rng.below(n) as i32
    } else {
        rng.pick(&allowed)
    };
    history.push(token);
    if vocabulary.eog.contains(&token) && !may_end {
        // The built-in would abort.
        pair.ours.accept(token);
        return check_dead(pair, vocabulary).map(|()| false);
    }
    if !stacks.accept(&vocabulary.pieces[token as usize]) {
        return Ok(false);
    }
    match pair.accept(token)? {
        true => Ok(true),
        false => {
            check_dead(pair, vocabulary)?;
            if rng.chance(0.5) {
                pair.reset();
                stacks.reset();
                history.clear();
                return Ok(true);
            }
            Ok(false)
        }
    }
}

/// Checks that this library's sampler, which is dead, leaves only tokens that end the generation.
pub fn check_dead(pair: &Pair, vocabulary: &Vocabulary) -> Result<(), String> {
    if pair::error(&pair.ours) == 0 {
        return Err("not dead".into());
    }
    if pair::mask(&pair.ours, vocabulary.n_tokens) != vocabulary.eog {
        return Err("dead, and something other than the end is allowed".into());
    }
    let others = (0..vocabulary.n_tokens as i32).filter(|token| !vocabulary.eog.contains(token));
    let mut rng = Rng(1);
    let mut left = array(others.take(3), &mut rng);
    pair.ours.apply(&mut left);
    let finite = left.allowed();
    if finite != vocabulary.eog[..1] {
        return Err(format!("dead, and {finite:?} is left of others"));
    }
    // A copy of a dead sampler is dead.
    if pair::error(&quietly(|| pair.ours.clone())) == 0 {
        return Err("the clone lives".into());
    }
    Ok(())
}

pub fn array(tokens: impl IntoIterator<Item = i32>, rng: &mut Rng) -> Array {
    let tokens: Vec<i32> = tokens.into_iter().collect();
    let mut array = Array::of_logits(tokens.iter().map(|_| rng.range(-5.0, 5.0)));
    for (candidate, &id) in array.data.iter_mut().zip(&tokens) {
        candidate.id = id;
        candidate.p = rng.range(0.0, 1.0);
    }
    array.sorted = rng.chance(0.3);
    array.selected = rng.below(tokens.len() + 1) as i64 - 1;
    array
}
