//! The process-wide cache of compiled grammars, for later requests with the same grammar.
//!
//! The cache holds at most [`MAX_CACHED`] grammars, and evicts the least recently used ones. Above
//! [`MAX_CACHE_BYTES`] bytes it evicts those that are not in use. A grammar is looked up by the
//! SHA-256 of its source and by its vocabulary. A grammar grows while it is in use, and the code
//! that makes it grow calls [`trim`]. A grammar in use survives its eviction.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use sha2::{Digest, Sha256};

use crate::grammar::compiled::Compiled;
use crate::grammar::engine::Engine;
use crate::grammar::limits::{MAX_CACHE_BYTES, MAX_CACHED};
use crate::grammar::parser::{ParseError, Repetitions, parse};
use crate::grammar::vocabulary_tree::VocabularyTree;
use crate::random::ProcessState;
use crate::sync::Mutex;
use crate::token::Token;
use crate::trie::cache::CacheStats;

/// The key of a compiled grammar in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    digest: [u8; 32],
    /// The address of the vocabulary's tree, which lives at least as long as the grammar.
    tree: usize,
}

struct Cache {
    engines: LruCache<Key, Arc<Engine>, ProcessState>,
    hits: u64,
    misses: u64,
    evictions: u64,
}

static CACHE: Mutex<Option<Cache>> = Mutex::new(None);

const CAPACITY: NonZeroUsize = NonZeroUsize::new(MAX_CACHED).unwrap();

fn with<T>(look: impl FnOnce(&mut Cache) -> T) -> T {
    let mut cache = CACHE.lock();
    look(cache.get_or_insert_with(|| Cache {
        engines: LruCache::with_hasher(CAPACITY, ProcessState::default()),
        hits: 0,
        misses: 0,
        evictions: 0,
    }))
}

/// The kinds of sources from which grammars are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A text in GBNF, with llama.cpp's limit of repetitions, and the name of its root.
    HostGrammar,
    /// A text in GBNF, which may have more repetitions than llama.cpp allows, and the name of its
    /// root.
    Grammar,
    /// A regular expression.
    Pattern,
    /// Texts, one of which is chosen.
    Choice,
    /// A JSON Schema, and its options.
    Schema,
    /// A description of tags.
    Tags,
}

impl From<Repetitions> for Kind {
    fn from(repetitions: Repetitions) -> Self {
        match repetitions {
            Repetitions::AsLlamaCpp => Self::HostGrammar,
            Repetitions::Many => Self::Grammar,
        }
    }
}

impl Key {
    /// Returns the key of a grammar made from these parts for this vocabulary.
    pub fn of<'a>(
        kind: Kind,
        parts: impl IntoIterator<Item = &'a [u8]>,
        tree: &Arc<VocabularyTree>,
    ) -> Self {
        let mut hash = Sha256::new();
        hash.update([kind as u8]);
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self {
            digest: hash.finalize().into(),
            tree: Arc::as_ptr(tree).addr(),
        }
    }
}

/// Returns the grammar with the given text and root, and its key, if the grammar is cached.
pub fn cached(
    text: &[u8],
    root: &[u8],
    repetitions: Repetitions,
    tree: &Arc<VocabularyTree>,
) -> Option<(Key, Arc<Engine>)> {
    let key = Key::of(repetitions.into(), [root, text], tree);
    Some((key, found(key)?))
}

/// Returns the grammar cached under a key.
pub fn found(key: Key) -> Option<Arc<Engine>> {
    with(|cache| {
        let found = cache.engines.get(&key).cloned();
        match found {
            Some(_) => cache.hits += 1,
            None => cache.misses += 1,
        }
        found
    })
}

/// Compiles a grammar, without caching it. `token` returns the token of an element `<text>`. Fails
/// if the text cannot be parsed.
pub fn compiled(
    text: &[u8],
    root: &[u8],
    repetitions: Repetitions,
    tree: &Arc<VocabularyTree>,
    token: impl Fn(&[u8]) -> Option<Token>,
) -> Result<(Key, Arc<Engine>), ParseError> {
    let key = Key::of(repetitions.into(), [root, text], tree);
    let rules = parse(text, root, repetitions, token)?;
    let compiled = Compiled::new(rules, Arc::clone(tree));
    Ok((key, Arc::new(Engine::new(compiled))))
}

/// Caches a grammar.
pub fn keep(key: Key, engine: &Arc<Engine>) {
    let removed = with(|cache| {
        let mut removed = Vec::new();
        if let Some((other, engine)) = cache.engines.push(key, Arc::clone(engine)) {
            cache.evictions += u64::from(other != key);
            removed.push(engine);
        }
        cache.trim(&mut removed);
        removed
    });
    // The evicted grammars are freed after the lock is released.
    drop(removed);
}

/// Evicts grammars until the limit of bytes is met; called after a grammar has grown. Does not wait
/// for the lock: the thread that holds it is about to check the limit itself, or the next growth
/// will.
pub fn trim() {
    let Some(mut cache) = CACHE.try_lock() else {
        return;
    };
    let mut removed = Vec::new();
    if let Some(cache) = cache.as_mut() {
        cache.trim(&mut removed);
    }
    drop(cache);
    drop(removed);
}

/// Drops all grammars that belong to a vocabulary.
pub fn forget(tree: &Arc<VocabularyTree>) {
    let address = Arc::as_ptr(tree).addr();
    let removed: Vec<_> = with(|cache| {
        let keys = cache.engines.iter().map(|(key, _)| *key);
        let keys: Vec<Key> = keys.filter(|key| key.tree == address).collect();
        keys.iter()
            .filter_map(|key| cache.engines.pop(key))
            .collect()
    });
    drop(removed);
}

/// Returns the counters and the size of the current contents.
pub fn stats() -> CacheStats {
    with(|cache| CacheStats {
        hits: cache.hits,
        misses: cache.misses,
        evictions: cache.evictions,
        entries: cache.engines.len() as u64,
        bytes: cache.bytes() as u64,
    })
}

impl Cache {
    fn bytes(&self) -> usize {
        self.engines.iter().map(|(_, engine)| engine.bytes()).sum()
    }

    /// Evicts the least recently used grammars until the limit of bytes is met. Of grammars in use,
    /// only the masks and the unused tables of transitions are dropped.
    fn trim(&mut self, removed: &mut Vec<Arc<Engine>>) {
        let mut bytes = self.bytes();
        let mut unused = Vec::new();
        for (key, engine) in self.engines.iter().rev() {
            if bytes <= MAX_CACHE_BYTES {
                break;
            }
            bytes -= engine.bytes();
            if Arc::strong_count(engine) > 1 {
                engine.forget();
                bytes += engine.bytes();
            } else {
                unused.push(*key);
            }
        }
        self.evictions += unused.len() as u64;
        removed.extend(unused.iter().filter_map(|key| self.engines.pop(key)));
    }
}
