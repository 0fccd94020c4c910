//! Biases tokens that continue given texts: a soft ban. The bias grows with the length of the
//! matched part.
//!
//! [`bias`](llama_sieve_constraints::bans::bias) finds the tokens. While the accepted text does not
//! end with a prefix of one of the given texts, only tokens that contain a whole text are changed.

use std::ffi::CStr;
use std::sync::Arc;

use llama_sieve_constraints::bans::bias::{Addend, Biases};
use llama_sieve_constraints::bans::place::Place;

use crate::algorithms::Scratch;
use crate::candidates::Candidates;
use crate::fault;
use crate::pool::Whole;
use crate::sampler::{About, Sampler, Tell, clone_by_field, scratch};
use crate::samplers::ban_strings::{BanVocabulary, refused};
use crate::samplers::lists::Addends;
use crate::token::Token;

/// Adds a bias to the logits of tokens that continue given texts.
#[derive(Debug)]
pub struct BanStringsBias {
    biases: Arc<Biases>,
    place: Place,
    addends: Scratch<Addends>,
}

clone_by_field!(BanStringsBias {
    biases,
    place,
    addends
});

impl BanStringsBias {
    /// Returns a sampler that adds `bias` to the logit of a token that completes one of `texts`,
    /// and a part of `bias` to that of a token that continues one. `None` if there are no texts, or
    /// if `bias` is 0.
    ///
    /// # Errors
    /// Returns an error message if `bias` is not finite, and in the cases of
    /// [`BanStrings::new`](super::BanStrings::new).
    pub fn new(
        texts: &[&[u8]],
        bias: f32,
        vocabulary: &BanVocabulary,
    ) -> Result<Option<Self>, String> {
        if !bias.is_finite() {
            return Err(format!("bias is {bias}; it must be finite"));
        }
        if let Some(why) = refused(texts, vocabulary.order().folds()) {
            return Err(why);
        }
        if texts.is_empty() || bias == 0.0 {
            return Ok(None);
        }
        Ok(Some(Self {
            biases: Arc::new(Biases::new(texts, bias, vocabulary.order())),
            place: Place::default(),
            addends: Scratch::default(),
        }))
    }
}

/// Adds `addend` to the logits of the candidates that are not at the index of their token, or of
/// all candidates if `all` is true. Returns true if a logit has changed.
// In bounds: `i` runs below the number of candidates.
fn add_by_search(
    candidates: &mut Candidates<'_>,
    all: bool,
    addend: impl Fn(Token) -> Option<f32>,
) -> bool {
    let mut changed = false;
    for i in 0..candidates.len() {
        let id = candidates.as_slice()[i].id;
        let Some(addend) = addend(id) else {
            continue;
        };
        if all || candidates.index_in_place(id).is_none() {
            candidates.as_mut_slice()[i].logit += addend;
            changed = true;
        }
    }
    changed
}

impl Sampler for BanStringsBias {
    const ACCEPTS: bool = true;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"ban-strings-bias"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("bias", f64::from(self.biases.bias()));
        }
    }

    // In bounds: `index_in_place` returns indices of the array.
    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        fault::point();
        let (whole, bias) = (self.biases.whole(), self.biases.bias());
        let some = self.biases.after(self.place, &mut self.addends);
        let addend = |token: Token| match some.binary_search_by_key(&token, |&(token, _)| token) {
            Ok(place) => some.get(place).map(|&(_, addend)| addend),
            Err(_) => whole.binary_search(&token).is_ok().then_some(bias),
        };
        if whole.len() + some.len() > candidates.len() {
            if add_by_search(candidates, true, addend) {
                candidates.set_sorted(false);
            }
            return;
        }
        let (mut all_in_place, mut changed) = (true, false);
        for (token, addend) in whole_and(whole, bias, some) {
            match candidates.index_in_place(token) {
                Some(i) => {
                    candidates.as_mut_slice()[i].logit += addend;
                    changed = true;
                }
                None => all_in_place = false,
            }
        }
        if !all_in_place {
            changed |= add_by_search(candidates, false, addend);
        }
        if changed {
            candidates.set_sorted(false);
        }
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        let bias = self.biases.bias();
        let always = self.biases.whole();
        let some = self.biases.after(self.place, &mut self.addends);
        whole.add(always.iter().map(|&token| (token, bias)));
        whole.add(some.iter().copied());
        true
    }

    fn accept(&mut self, token: Token) {
        fault::point();
        self.place.accept(self.biases.bans(), token);
    }

    fn reset(&mut self) {
        self.place = Place::default();
    }

    fn save_memory(&self, put: &mut dyn FnMut(&[u8])) -> Option<()> {
        self.place.save(self.biases.bans(), put);
        Some(())
    }

    fn load_memory(&mut self, bytes: &[u8]) -> Option<()> {
        let (place, []) = Place::load(self.biases.bans(), bytes)? else {
            return None;
        };
        self.place = place;
        Some(())
    }

    scratch!(addends);
}

/// Returns the tokens that always get the full bias, and those in `some` with their addends.
fn whole_and(whole: &[Token], bias: f32, some: &[Addend]) -> impl Iterator<Item = Addend> {
    let whole = whole.iter().map(move |&token| (token, bias));
    whole.chain(some.iter().copied())
}

#[cfg(test)]
mod tests;
