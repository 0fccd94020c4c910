//! The memory that stages keep from token to token, in the format of a saved state.
//!
//! All numbers are little-endian. There is one part for each of the sieve's stages with a memory,
//! in the order of their numbers:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | the stage's number |
//! | 4..8 | n, the number of bytes that follow |
//! | the next n | dry: the tokens of its window, the oldest first |
//! | | xtc, which has a part only with mt19937: its words, 2496 bytes, the oldest first |
//! | | mirostat: with mt19937 its words, as for xtc; then the bound of the surprisal |
//! | | adaptive-p: with mt19937 its words; then the sum and the weight of its average and, if a chosen token is not yet accepted, that token and its probability |
//! | | a sampler in a slot: the length of its name, the name, and the bytes that the sampler itself writes |

use super::members::{Members, Selector};
use super::stage::{ADAPTIVE_P, DRY, MIROSTAT, MIROSTAT_V2, XTC};
use crate::rng::{Mt19937, SeededMt19937};
use crate::sampler::{Member, Sampler};
use crate::samplers::Average;
use crate::token::Token;

/// The size in bytes of the head of a part: the stage's number and the length.
const HEAD: usize = 8;

impl Members {
    /// Returns the number of bytes that [`save`](Self::save) writes.
    pub(in crate::sieve) fn saved_size(&self, mt19937: bool) -> usize {
        let mut size = 0;
        self.save(mt19937, &mut |bytes| size += bytes.len());
        size
    }

    /// Writes the memory of the stages, with their random streams if the generator is mt19937.
    pub(in crate::sieve) fn save(&self, mt19937: bool, put: &mut impl FnMut(&[u8])) {
        if let Some(dry) = &self.dry {
            let window = dry.window();
            put_head(DRY, 4 * window.len(), put);
            window.for_each(|token| put(&token.to_le_bytes()));
        }
        let words = if mt19937 { 4 * Mt19937::WORDS } else { 0 };
        if let Some(xtc) = self.xtc.as_ref().filter(|_| mt19937) {
            put_head(XTC, words, put);
            put_words(xtc.rng(), mt19937, put);
        }
        if let Some(selector) = self.selector.as_deref() {
            save_selector(selector, mt19937, put);
        }
        for (number, sampler) in self.slots.that_remember() {
            save_sampler(number, sampler, put);
        }
    }

    /// Restores the saved memory of the same stages. `None` if it belongs to other stages or is
    /// invalid; some stages may then have changed.
    pub(in crate::sieve) fn load(&mut self, mt19937: bool, mut bytes: &[u8]) -> Option<()> {
        let bytes = &mut bytes;
        if let Some(dry) = &mut self.dry {
            let (tokens, rest) = part(bytes, DRY)?.as_chunks();
            // A saved window cannot have more tokens than the one of these parameters.
            let places = dry.window_size();
            if !rest.is_empty() || tokens.len() > places {
                return None;
            }
            Sampler::reset(dry);
            for token in tokens {
                Sampler::accept(dry, Token::from_le_bytes(*token));
            }
        }
        if let Some(xtc) = self.xtc.as_mut().filter(|_| mt19937) {
            let rest = take_words(part(bytes, XTC)?, mt19937, xtc.rng_mut())?;
            rest.is_empty().then_some(())?;
        }
        if let Some(selector) = self.selector.as_deref_mut() {
            let number = match selector {
                Selector::Mirostat(_) => MIROSTAT,
                Selector::MirostatV2(_) => MIROSTAT_V2,
                Selector::AdaptiveP(_) => ADAPTIVE_P,
            };
            let rest = take_words(part(bytes, number)?, mt19937, selector.rng_mut())?;
            load_numbers(selector, rest)?;
        }
        for (number, sampler) in self.slots.that_remember_mut() {
            load_sampler(&mut **sampler, part(bytes, number)?)?;
        }
        bytes.is_empty().then_some(())
    }
}

/// Writes the surprisal bound or the average of a selector, with its stream if the generator is
/// mt19937.
fn save_selector(selector: &Selector, mt19937: bool, put: &mut impl FnMut(&[u8])) {
    let words = if mt19937 { 4 * Mt19937::WORDS } else { 0 };
    let (number, numbers, pending) = match selector {
        Selector::Mirostat(s) => (MIROSTAT, [Some(s.mu()), None], None),
        Selector::MirostatV2(s) => (MIROSTAT_V2, [Some(s.mu()), None], None),
        Selector::AdaptiveP(s) => {
            let average = s.average();
            let sums = [average.weighted_sum, average.total_weight];
            (ADAPTIVE_P, sums.map(Some), average.pending)
        }
    };
    let numbers = numbers.into_iter().flatten();
    let n = 4 * numbers.clone().count() + if pending.is_some() { 8 } else { 0 };
    put_head(number, words + n, put);
    put_words(selector.rng(), mt19937, put);
    numbers.for_each(|number| put(&number.to_le_bytes()));
    if let Some((token, p)) = pending {
        put(&token.to_le_bytes());
        put(&p.to_le_bytes());
    }
}

/// Writes the memory of a sampler in a slot.
fn save_sampler(number: u32, sampler: &dyn Member, put: &mut impl FnMut(&[u8])) {
    let name = sampler.name().to_bytes();
    let mut n = 4 + name.len();
    // A sampler that saves only a part is not saved at all: see `Slots::unsaved`.
    let _ = sampler.save_memory(&mut |bytes| n += bytes.len());
    put_head(number, n, put);
    put(&(name.len() as u32).to_le_bytes());
    put(name);
    let _ = sampler.save_memory(put);
}

/// Loads the memory of a sampler with the same name into the sampler in a slot.
fn load_sampler(sampler: &mut dyn Member, bytes: &[u8]) -> Option<()> {
    let (n, rest) = bytes.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*n) as usize)?;
    (name == sampler.name().to_bytes()).then_some(())?;
    sampler.load_memory(rest)
}

fn load_numbers(selector: &mut Selector, bytes: &[u8]) -> Option<()> {
    let (numbers, []) = bytes.as_chunks() else {
        return None;
    };
    let float = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    match (selector, numbers) {
        (Selector::Mirostat(s), [mu]) => s.set_mu(float(mu)),
        (Selector::MirostatV2(s), [mu]) => s.set_mu(float(mu)),
        (Selector::AdaptiveP(s), [sum, weight, pending @ ..]) => s.set_average(Average {
            weighted_sum: float(sum),
            total_weight: float(weight),
            pending: match pending {
                [] => None,
                [token, p] => Some((Token::from_le_bytes(*token), float(p))),
                _ => return None,
            },
        }),
        _ => return None,
    }
    Some(())
}

fn put_head(number: u32, n: usize, put: &mut impl FnMut(&[u8])) {
    put(&number.to_le_bytes());
    put(&(n as u32).to_le_bytes());
}

fn put_words(rng: &SeededMt19937, mt19937: bool, put: &mut impl FnMut(&[u8])) {
    if mt19937 {
        rng.stream
            .state()
            .iter()
            .for_each(|word| put(&word.to_le_bytes()));
    }
}

/// Takes the next part from `bytes`. `None` unless it belongs to the stage numbered `number`.
fn part<'b>(bytes: &mut &'b [u8], number: u32) -> Option<&'b [u8]> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let (head, _) = head.as_chunks();
    let [theirs, n] = head else {
        return None;
    };
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*n) as usize)?;
    *bytes = rest;
    (u32::from_le_bytes(*theirs) == number).then_some(part)
}

/// Sets `rng` to the words at the start of `bytes` if `mt19937` is true. Returns the rest.
fn take_words<'b>(bytes: &'b [u8], mt19937: bool, rng: &mut SeededMt19937) -> Option<&'b [u8]> {
    if !mt19937 {
        return Some(bytes);
    }
    let (words, rest) = bytes.split_at_checked(4 * Mt19937::WORDS)?;
    let mut state = [0; Mt19937::WORDS];
    for (word, bytes) in state.iter_mut().zip(words.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    rng.stream = Mt19937::from_state(state)?;
    Some(rest)
}
