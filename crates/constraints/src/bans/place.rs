//! The position of a growing text in the automaton of banned texts.

use super::automaton::{ROOT, State};
use super::fold::Pending;
use super::{Bans, counted};
use crate::token::Token;

/// The longest prefix of a banned text that is a suffix of the text so far, and the bytes of an
/// unfinished character after it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub(super) state: State,
    pub(super) pending: Pending,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            state: ROOT,
            pending: Pending::default(),
        }
    }
}

impl Place {
    /// Accepts a token, and returns the number of units that begin in it. A token outside the
    /// vocabulary has no text.
    #[inline]
    pub fn accept(&mut self, bans: &Bans, token: Token) -> usize {
        if bans.order().rank(token).is_none() {
            return 0;
        }
        let automaton = bans.automaton();
        if !bans.order().folds() {
            // Every byte is a unit.
            let text = bans.order().text(token);
            self.state = automaton.run(self.state, text);
            return text.len();
        }
        let began_before = usize::from(!self.pending.is_empty());
        let mut units = 0;
        let state = &mut self.state;
        bans.order().feed(token, &mut self.pending, |unit| {
            *state = automaton.run(*state, unit);
            units += 1;
        });
        units += usize::from(!self.pending.is_empty());
        units - began_before.min(units)
    }

    /// Passes the position to `put`, in parts: a digest of the banned texts, the matched prefix,
    /// and the bytes of an unfinished character.
    pub fn save(&self, bans: &Bans, put: &mut dyn FnMut(&[u8])) {
        put(bans.automaton().digest());
        let begun = bans.automaton().bytes_of(self.state);
        for bytes in [&begun, self.pending.bytes()] {
            put(&(bytes.len() as u32).to_le_bytes());
            put(bytes);
        }
    }

    /// Returns a position that was saved with the same texts, and the bytes after it. Returns
    /// `None` if the position was saved with other texts or is invalid.
    pub fn load<'a>(bans: &Bans, bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let rest = bytes.strip_prefix(bans.automaton().digest())?;
        let (begun, rest) = counted(rest)?;
        let (pending, rest) = counted(rest)?;
        let automaton = bans.automaton();
        let state = automaton.run(ROOT, begun);
        (automaton.bytes_of(state) == begun).then_some(())?;
        let pending = Pending::of(pending, bans.order().folds())?;
        Some((Self { state, pending }, rest))
    }
}
