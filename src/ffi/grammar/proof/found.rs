//! The verdicts on the host's grammars. They are kept with the vocabulary for which they were made.

use std::num::NonZeroUsize;

use lru::LruCache;

use crate::ffi::grammar::proof::samples::Samples;
use crate::grammar::limits::MAX_CACHED;
use crate::random::ProcessState;
use crate::sync::{Mutex, OnceLock};

/// A feature of grammars in which builds of llama.cpp differ. Each part is compared when a grammar
/// first needs it. So a build without token elements, for example, is not tested with them unless a
/// program uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The syntax that every build has.
    Rules,
    /// The elements `<text>` and `<[7]>`.
    Tokens,
    /// The escape `\-`.
    Dash,
    /// More repetitions than the grammars of [`Rules`](Part::Rules) contain.
    Counts,
    /// More than 2000 repetitions, which count as unbounded.
    Beyond,
    /// Grammars that wait for words.
    Words,
    /// Grammars that wait for patterns.
    Patterns,
    /// Grammars that wait for tokens.
    Triggers,
}

const N_PARTS: usize = Part::Triggers as usize + 1;

/// The findings about the host's grammars for one vocabulary: the verdicts by part, each empty
/// until that part is compared, and the arguments that the host's constructor has accepted.
#[derive(Debug, Default)]
pub(in crate::ffi) struct Proofs {
    pub(super) samples: OnceLock<Samples>,
    verdicts: [OnceLock<Verdict>; N_PARTS],
    /// The digests of the arguments that the host's constructor has accepted.
    accepted: Mutex<Option<LruCache<Digest, (), ProcessState>>>,
}

/// The SHA-256 of a constructor's arguments.
pub(in crate::ffi::grammar) type Digest = [u8; 32];

/// The maximum number of digests that are kept: as many as compiled grammars are cached.
const MOST_ACCEPTED: NonZeroUsize = NonZeroUsize::new(MAX_CACHED).unwrap();

/// `Ok` if the grammars behave equally; otherwise the difference.
pub(super) type Verdict = Result<(), String>;

impl Proofs {
    /// Returns the place of the verdict on `part`, which is empty until the part is compared. Two
    /// threads that compare it at the same time reach equal verdicts.
    pub(super) fn verdict(&self, part: Part) -> Option<&OnceLock<Verdict>> {
        self.verdicts.get(part as usize)
    }

    /// Returns true if the host's constructor has accepted the arguments of `digest` before.
    pub(in crate::ffi::grammar) fn is_accepted(&self, digest: &Digest) -> bool {
        let mut accepted = self.accepted.lock();
        accepted
            .as_mut()
            .is_some_and(|accepted| accepted.get(digest).is_some())
    }

    /// Records that the host's constructor has accepted the arguments of `digest`.
    pub(in crate::ffi::grammar) fn accept(&self, digest: Digest) {
        let mut accepted = self.accepted.lock();
        let accepted = accepted
            .get_or_insert_with(|| LruCache::with_hasher(MOST_ACCEPTED, ProcessState::default()));
        accepted.put(digest, ());
    }
}
