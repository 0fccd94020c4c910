//! The process-wide cache of compiled grammars: the next request with the same grammar starts warm.
//!
//! Least recently used, within [`MAX_CACHED`] grammars and [`MAX_CACHE_BYTES`] bytes, keyed by the
//! SHA-256 of root and text, and by the vocabulary. A grammar grows while it is in use; what is
//! kept is counted anew whenever one is added or replaced. One in use survives its eviction.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use sha2::{Digest, Sha256};

use crate::grammar::compiled::Compiled;
use crate::grammar::engine::Engine;
use crate::grammar::limits::{MAX_CACHE_BYTES, MAX_CACHED};
use crate::grammar::parser::{ParseError, parse};
use crate::grammar::vocabulary_tree::VocabularyTree;
use crate::sync::Mutex;
use crate::token::Token;
use crate::trie::cache::CacheStats;

/// What a compiled grammar is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    digest: [u8; 32],
    /// The address of the vocabulary's tree, which lives as long as the grammar does.
    tree: usize,
}

struct Cache {
    engines: LruCache<Key, Arc<Engine>>,
    hits: u64,
    misses: u64,
    evictions: u64,
}

static CACHE: Mutex<Option<Cache>> = Mutex::new(None);

const CAPACITY: NonZeroUsize = NonZeroUsize::new(MAX_CACHED).unwrap();

fn with<T>(look: impl FnOnce(&mut Cache) -> T) -> T {
    let mut cache = CACHE.lock();
    look(cache.get_or_insert_with(|| Cache {
        engines: LruCache::new(CAPACITY),
        hits: 0,
        misses: 0,
        evictions: 0,
    }))
}

fn key(text: &[u8], root: &[u8], tree: &Arc<VocabularyTree>) -> Key {
    let mut hash = Sha256::new();
    hash.update((root.len() as u64).to_le_bytes());
    hash.update(root);
    hash.update(text);
    Key {
        digest: hash.finalize().into(),
        tree: Arc::as_ptr(tree).addr(),
    }
}

/// The grammar of this text, if it is cached.
pub fn cached(text: &[u8], root: &[u8], tree: &Arc<VocabularyTree>) -> Option<(Key, Arc<Engine>)> {
    let key = key(text, root, tree);
    let found = with(|cache| {
        let found = cache.engines.get(&key).cloned();
        match found {
            Some(_) => cache.hits += 1,
            None => cache.misses += 1,
        }
        found
    });
    let mut engine = found?;
    if !engine.is_sound() {
        engine = Arc::new(Engine::new(Arc::clone(engine.compiled())));
        replace(key, &engine);
    }
    Some((key, engine))
}

/// Compiles a grammar and keeps it. `token` gives the token that `<text>` stands for.
pub fn compiled(
    text: &[u8],
    root: &[u8],
    tree: &Arc<VocabularyTree>,
    token: impl Fn(&[u8]) -> Option<Token>,
) -> Result<(Key, Arc<Engine>), ParseError> {
    let key = key(text, root, tree);
    let rules = parse(text, root, token)?;
    let compiled = Compiled::new(rules, Arc::clone(tree));
    let engine = Arc::new(Engine::new(Arc::new(compiled)));
    keep(key, &engine, true);
    Ok((key, engine))
}

/// Keeps `engine` in the place of the one with this key. One that was forgotten is not replaced.
pub fn replace(key: Key, engine: &Arc<Engine>) {
    keep(key, engine, false);
}

fn keep(key: Key, engine: &Arc<Engine>, is_new: bool) {
    let removed = with(|cache| {
        let mut removed = Vec::new();
        if !is_new && !cache.engines.contains(&key) {
            return removed;
        }
        if let Some((other, engine)) = cache.engines.push(key, Arc::clone(engine)) {
            cache.evictions += u64::from(other != key);
            removed.push(engine);
        }
        cache.trim(&mut removed);
        removed
    });
    // Freed without the lock.
    drop(removed);
}

/// The grammar with this key, if it is still kept and sound.
pub fn kept(key: Key) -> Option<Arc<Engine>> {
    let found = with(|cache| cache.engines.peek(&key).cloned());
    found.filter(|engine| engine.is_sound())
}

/// Forgets all grammars of a vocabulary.
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

/// The counters, and what is kept now.
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

    fn trim(&mut self, removed: &mut Vec<Arc<Engine>>) {
        while self.engines.len() > 1
            && self.bytes() > MAX_CACHE_BYTES
            && let Some((_, engine)) = self.engines.pop_lru()
        {
            self.evictions += 1;
            removed.push(engine);
        }
    }
}
