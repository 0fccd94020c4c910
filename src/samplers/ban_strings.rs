//! Bans texts, or regular expressions: no token is chosen that would complete a banned text or a
//! match, whatever tokens spell it.
//!
//! The search for them is in [`bans`](llama_sieve_constraints::bans). While the accepted text does
//! not end with a prefix of a banned text, only tokens that contain a whole banned text are banned.

use std::ffi::CStr;
use std::sync::Arc;

use llama_sieve_constraints::bans::cursor::Cursor;
use llama_sieve_constraints::bans::order::{Order, ShownTexts};
use llama_sieve_constraints::bans::patterns::{self, Patterns};
use llama_sieve_constraints::bans::search::Search;
use llama_sieve_constraints::bans::{Bans, MAX_BYTES, MAX_TEXT_BYTES, MAX_TEXTS, clear};

use crate::algorithms::Scratch;
use crate::algorithms::scratch::Room;
use crate::candidates::Candidates;
use crate::fault;
use crate::memory;
use crate::per_thread::lent_per_thread;
use crate::pool::Whole;
use crate::quoted::quoted;
use crate::sampler::{Kind, Sampler, clone_by_field, scratch};
use crate::token::Token;
use crate::vocabulary::Vocabulary;

/// A constraint that bans texts.
#[derive(Debug)]
pub struct BanStrings {
    search: Search,
    ends: Arc<[Token]>,
    /// False once a call has failed. The position is then undefined, and only the end of the
    /// generation is allowed.
    is_sound: bool,
    words: Scratch<Words>,
}

clone_by_field!(BanStrings {
    search,
    ends,
    is_sound,
    words
});

/// A bitmap of tokens.
#[derive(Debug, Default)]
struct Words {
    allowed: Vec<u64>,
}

lent_per_thread!(Words);

impl Room for Words {
    fn warm_up(&mut self, n: usize) {
        self.allowed.warm_up(n.div_ceil(64));
    }
}

/// The displayed texts of a vocabulary in lexicographic order, and the tokens that end a
/// generation. It is made once per vocabulary.
#[derive(Clone, Debug)]
pub struct BanVocabulary {
    order: Arc<Order>,
    ends: Arc<[Token]>,
}

impl BanVocabulary {
    /// Returns the texts of `vocabulary`. If `folds` is true, letters that differ only in case are
    /// equal.
    pub fn new(vocabulary: &dyn Vocabulary, folds: bool) -> Self {
        let n = vocabulary.n_tokens();
        let mut ends = Vec::new();
        for token in (0..n as Token).filter(|&token| vocabulary.is_eog(token)) {
            memory::push(&mut ends, token);
        }
        Self {
            order: Arc::new(Order::new(&Shown(vocabulary), folds)),
            ends: ends.into(),
        }
    }

    /// Returns the texts.
    pub(super) fn order(&self) -> &Arc<Order> {
        &self.order
    }
}

struct Shown<'a>(&'a dyn Vocabulary);

impl ShownTexts for Shown<'_> {
    fn n_tokens(&self) -> usize {
        self.0.n_tokens()
    }

    fn shown(&self, token: Token, text: &mut Vec<u8>) {
        match self.0.is_eog(token) {
            true => text.clear(),
            false => self.0.piece(token, text),
        }
    }
}

/// Returns an error message if these texts cannot be banned.
pub(super) fn refused(texts: &[&[u8]], folds: bool) -> Option<String> {
    if texts.len() > MAX_TEXTS {
        let n = texts.len();
        return Some(format!("there are {n} texts; {MAX_TEXTS} may be banned"));
    }
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if bytes > MAX_BYTES {
        return Some(format!(
            "the texts have {bytes} bytes; all together may have {MAX_BYTES}"
        ));
    }
    for (i, text) in texts.iter().enumerate() {
        if text.is_empty() {
            return Some(format!(
                "text {i} is empty, and stands everywhere; leave it out"
            ));
        }
        if text.len() > MAX_TEXT_BYTES {
            return Some(format!(
                "text {i}, \"{}\", has more than {MAX_TEXT_BYTES} bytes",
                quoted(text)
            ));
        }
        if folds && std::str::from_utf8(text).is_err() {
            return Some(format!(
                "text {i}, \"{}\", is not UTF-8, so that its letters have no case",
                quoted(text)
            ));
        }
    }
    None
}

impl BanStrings {
    /// Returns a sampler that bans `texts`. `None` if there are no texts.
    ///
    /// # Errors
    /// Returns an error message if a banned text is empty or too long, if there are too many texts,
    /// if they are too long together, or if case is ignored and a text is not UTF-8.
    pub fn new(texts: &[&[u8]], vocabulary: &BanVocabulary) -> Result<Option<Self>, String> {
        if let Some(why) = refused(texts, vocabulary.order.folds()) {
            return Err(why);
        }
        if texts.is_empty() {
            return Ok(None);
        }
        let bans = Bans::new(texts, &vocabulary.order);
        let cursor = Cursor::new(&bans);
        let search = Search::Texts(Arc::new(bans), cursor);
        Ok(Some(Self::of(search, vocabulary)))
    }

    /// Returns a sampler that bans every text in which one of these regular expressions matches, in
    /// the syntax of the crate `regex`. `None` if there are no expressions. If `ignores_case` is
    /// true, each is read as if it began with `(?i)`.
    ///
    /// # Errors
    /// Returns an error message in the cases of [`new`](Self::new). Also fails if an expression
    /// cannot be parsed, matches the empty text or depends on the following text, or if the
    /// automaton of all expressions is too large. The vocabulary must be one that does not fold
    /// case.
    pub fn patterns(
        texts: &[&[u8]],
        ignores_case: bool,
        vocabulary: &BanVocabulary,
    ) -> Result<Option<Self>, String> {
        if vocabulary.order.folds() {
            return Err("the vocabulary folds letters, which patterns do not need".into());
        }
        if let Some(why) = refused(texts, false) {
            return Err(why);
        }
        if texts.is_empty() {
            return Ok(None);
        }
        let patterns = Patterns::new(texts, ignores_case, &vocabulary.order)?;
        let search = Search::Patterns(Arc::new(patterns), patterns::Cursor::new());
        Ok(Some(Self::of(search, vocabulary)))
    }

    fn of(search: Search, vocabulary: &BanVocabulary) -> Self {
        Self {
            search,
            ends: Arc::clone(&vocabulary.ends),
            is_sound: true,
            words: Scratch::default(),
        }
    }

    /// Returns the number of accepted tokens since the beginning of the earliest banned text that
    /// one more token could complete; 0 if there is none. For regular expressions, if one more
    /// token could complete a match that has begun, returns the smallest number of newest tokens
    /// with the same begun matches, up to a limit.
    pub fn rewind(&self) -> usize {
        self.search.rewind()
    }

    /// True if a token may follow the accepted text.
    fn allows(&self, token: Token) -> bool {
        match self.is_sound {
            true => !self.search.bans(token),
            false => self.ends.binary_search(&token).is_ok(),
        }
    }

    fn mask_each(&self, candidates: &mut Candidates<'_>) {
        let mut masked = false;
        for candidate in candidates.as_mut_slice() {
            if !self.allows(candidate.id) {
                candidate.logit = f32::NEG_INFINITY;
                masked = true;
            }
        }
        if masked {
            candidates.set_sorted(false);
        }
    }

    /// Calls `ban` with each token that is banned now. A token may be passed more than once.
    fn each(&self, mut ban: impl FnMut(Token)) {
        self.search.whole().iter().for_each(|&token| ban(token));
        self.search.each(ban);
    }
}

/// The largest number of tokens of a vocabulary that are banned one by one. Banning one takes
/// longer than testing several candidates.
const FEW: usize = 64;

impl Sampler for BanStrings {
    const KIND: Kind = Kind::Constraint;
    const ACCEPTS: bool = true;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"ban-strings"
    }

    // In bounds: `index_in_place` returns indices of the array.
    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        fault::point();
        let n_banned = self.search.whole().len() + self.search.count();
        if n_banned == 0 && self.is_sound {
            return;
        }
        if !self.is_sound || n_banned > candidates.len() {
            return self.mask_each(candidates);
        }
        let (mut all_in_place, mut masked) = (true, false);
        self.each(|token| match candidates.index_in_place(token) {
            Some(i) => {
                candidates.as_mut_slice()[i].logit = f32::NEG_INFINITY;
                masked = true;
            }
            None => all_in_place = false,
        });
        if masked {
            candidates.set_sorted(false);
        }
        if !all_in_place {
            self.mask_each(candidates);
        }
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        if !self.is_sound {
            return false;
        }
        let n_banned = self.search.whole().len() + self.search.count();
        if n_banned <= FEW {
            self.each(|token| whole.expect(token));
            self.each(|token| whole.edit(token, |_| f32::NEG_INFINITY));
            return true;
        }
        // A bitmap would also mask the tokens after its end, which are not banned.
        if whole.n_vocab() > 64 * self.search.others().len() {
            return false;
        }
        if self.search.count() == 0 {
            whole.mask(self.search.others());
            return true;
        }
        let allowed = &mut self.words.allowed;
        allowed.clear();
        allowed.extend_from_slice(self.search.others());
        self.search.each(|token| clear(allowed, token));
        whole.mask(allowed);
        true
    }

    fn accept(&mut self, token: Token) {
        self.is_sound = false;
        self.search.accept(token);
        fault::point();
        self.is_sound = true;
    }

    fn reset(&mut self) {
        self.search.reset();
        self.is_sound = true;
    }

    fn save_memory(&self, put: &mut dyn FnMut(&[u8])) -> Option<()> {
        self.is_sound.then(|| self.search.save(put))
    }

    fn load_memory(&mut self, bytes: &[u8]) -> Option<()> {
        self.is_sound = false;
        self.search.load(bytes)?;
        self.is_sound = true;
        Some(())
    }

    /// Keeps only the tokens that end the generation.
    fn salvage(&mut self, candidates: &mut Candidates<'_>) {
        self.is_sound = false;
        self.mask_each(candidates);
    }

    scratch!(words);
}

#[cfg(test)]
pub(super) mod tests;
