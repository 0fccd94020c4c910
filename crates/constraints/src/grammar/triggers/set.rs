//! The trigger patterns of a grammar, read once for all samplers with the same patterns.

use std::num::NonZeroUsize;
use std::sync::Arc;

use llama_sieve_kernels::random::ProcessState;
use lru::LruCache;
use sha2::{Digest, Sha256};

use llama_sieve_kernels::sync::Mutex;

use crate::grammar::limits::{
    MAX_TRIGGER_CACHE, MAX_TRIGGER_STATES, MAX_TRIGGER_TEXT, MAX_TRIGGERS_CACHED,
};
use crate::grammar::triggers::automaton::{Automaton, Cursor, Hits};
use crate::grammar::triggers::budget::{Budget, Endless};
use crate::grammar::triggers::byte_set::ByteSet;
use crate::grammar::triggers::program::{Inst, Pattern, Program, Writer};
use crate::grammar::triggers::search::{self, Found};
use crate::grammar::triggers::syntax;
use crate::quoted::quoted;

/// The maximum number of sets of patterns that are cached.
const MOST: NonZeroUsize = NonZeroUsize::new(MAX_TRIGGERS_CACHED).unwrap();

type Digest32 = [u8; 32];

static CACHE: Mutex<Option<LruCache<Digest32, Arc<Triggers>, ProcessState>>> = Mutex::new(None);

/// The patterns that a lazy grammar waits for.
#[derive(Debug)]
pub struct Triggers {
    program: Program,
    automaton: Automaton,
}

impl Triggers {
    /// Reads patterns, or finds them in the cache. The order of the patterns matters: the first one
    /// that matches determines where the grammar begins.
    pub fn new(patterns: &[&[u8]]) -> Result<Arc<Self>, String> {
        check(patterns)?;
        let key = digest(patterns);
        if let Some(known) = kept(&key) {
            return Ok(known);
        }
        let triggers = Arc::new(Self::read(patterns)?);
        keep(key, &triggers);
        Ok(triggers)
    }

    /// Reads trigger words as the pattern that llama.cpp generates from them: any text, one of the
    /// words, any text.
    pub fn of_words(words: &[&[u8]]) -> Result<Arc<Self>, String> {
        if words.is_empty() {
            return Self::new(&[]);
        }
        check(words)?;
        let mut pattern = b"[\\s\\S]*?(".to_vec();
        for (i, word) in words.iter().enumerate() {
            if i > 0 {
                pattern.push(b'|');
            }
            for &byte in *word {
                if b".^$|()*+?[]{}\\".contains(&byte) {
                    pattern.push(b'\\');
                }
                pattern.push(byte);
            }
        }
        pattern.extend_from_slice(b")[\\s\\S]*");
        Self::new(&[&pattern])
    }

    /// Reads patterns, as [`new`](Self::new) does, without the cache.
    pub fn read(patterns: &[&[u8]]) -> Result<Self, String> {
        check(patterns)?;
        let mut writer = Writer::default();
        for (i, pattern) in patterns.iter().enumerate() {
            let tree = syntax::parse(pattern).map_err(|refusal| {
                format!(
                    "trigger pattern {i} (\"{}\") is no regular expression: before byte {}: {}",
                    quoted(pattern),
                    refusal.at,
                    refusal.what
                )
            })?;
            writer.add(pattern, &tree).map_err(|_| {
                format!("the trigger patterns have more than {MAX_TRIGGER_STATES} states together")
            })?;
        }
        let program = writer.finish();
        Ok(Self {
            automaton: Automaton::new(&program),
            program,
        })
    }

    /// Continues with `text`. Adds to `hits` the patterns that may have matched.
    pub fn stream(
        &self,
        cursor: &mut Cursor,
        text: &[u8],
        hits: &mut Hits,
        budget: &mut Budget,
    ) -> Result<(), Endless> {
        let program = &self.program;
        self.automaton.read(program, cursor, text, hits, budget)
    }

    /// Returns the offset in `text` at which the grammar begins, if the pattern numbered `pattern`
    /// is found.
    pub fn find(
        &self,
        pattern: u32,
        text: &[u8],
        budget: &mut Budget,
    ) -> Result<Option<usize>, Endless> {
        match self.program.patterns.get(pattern as usize) {
            Some(pattern) => search::find(&self.program, pattern, text, budget),
            None => Ok(None),
        }
    }

    /// Returns the first match in `text` of the pattern numbered `pattern`, or, if `whole`, its
    /// match of the whole text.
    pub fn matched(
        &self,
        pattern: u32,
        text: &[u8],
        whole: bool,
        mut budget: Budget,
    ) -> Result<Option<Found>, Endless> {
        match self.program.patterns.get(pattern as usize) {
            Some(pattern) => search::matched(&self.program, pattern, text, whole, &mut budget),
            None => Ok(None),
        }
    }

    /// Returns the number of patterns.
    pub fn n_patterns(&self) -> usize {
        self.program.patterns.len()
    }

    /// Returns the current size of the patterns in bytes.
    pub fn bytes(&self) -> usize {
        self.own_bytes() + self.automaton.bytes()
    }

    /// Returns the maximum size of the patterns in bytes, whatever texts are read.
    pub fn most_bytes(&self) -> usize {
        self.own_bytes() + self.automaton.most_bytes()
    }

    fn own_bytes(&self) -> usize {
        let program = &self.program;
        size_of::<Self>()
            + program.code.capacity() * size_of::<Inst>()
            + program.sets.capacity() * size_of::<ByteSet>()
            + program.patterns.capacity() * size_of::<Pattern>()
    }
}

fn check(texts: &[&[u8]]) -> Result<(), String> {
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if bytes > MAX_TRIGGER_TEXT {
        return Err(format!(
            "the triggers have {bytes} bytes, more than {MAX_TRIGGER_TEXT}"
        ));
    }
    Ok(())
}

fn digest(patterns: &[&[u8]]) -> Digest32 {
    let mut hash = Sha256::new();
    for pattern in patterns {
        hash.update((pattern.len() as u64).to_le_bytes());
        hash.update(pattern);
    }
    hash.finalize().into()
}

fn with<T>(look: impl FnOnce(&mut LruCache<Digest32, Arc<Triggers>, ProcessState>) -> T) -> T {
    look(
        CACHE
            .lock()
            .get_or_insert_with(|| LruCache::with_hasher(MOST, ProcessState::default())),
    )
}

fn kept(key: &Digest32) -> Option<Arc<Triggers>> {
    with(|cache| cache.get(key).cloned())
}

/// Caches a set of patterns. It is counted with its largest possible size: it grows while texts are
/// read, and no thread should then have to wait for the cache.
fn keep(key: Digest32, triggers: &Arc<Triggers>) {
    let removed = with(|cache| {
        let mut removed = Vec::new();
        removed.extend(cache.push(key, Arc::clone(triggers)));
        let mut bytes: usize = cache.iter().map(|(_, kept)| kept.most_bytes()).sum();
        while bytes > MAX_TRIGGER_CACHE
            && let Some(oldest) = cache.pop_lru()
        {
            bytes = bytes.saturating_sub(oldest.1.most_bytes());
            removed.push(oldest);
        }
        removed
    });
    // Freed after the lock was released.
    drop(removed);
}
