//! The process-wide cache of tries: the same payload is parsed once.
//!
//! 128 tries, least recently used, keyed by the SHA-256 of the payload's bytes. A hit costs the hash and a lookup. Tries are shared by `Arc`, so
//! one in use survives its eviction. Safe from any thread; nothing is parsed under the lock.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use sha2::{Digest, Sha256};

use crate::fault;
use crate::sync::Mutex;
use crate::trie::arena::Trie;
use crate::trie::descriptor::Payload;

/// How many tries are kept.
pub const CAPACITY: usize = 128;

type Key = [u8; 32];

/// Counters since the start of the process, and what is kept now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found a trie.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Tries that made room for others.
    pub evictions: u64,
    /// Tries that are kept.
    pub entries: u64,
    /// Bytes of the tries that are kept.
    pub bytes: u64,
}

struct Cache {
    tries: LruCache<Key, Arc<Trie>>,
    stats: CacheStats,
}

/// A cache that any thread may use.
pub(crate) struct Shared {
    capacity: NonZeroUsize,
    /// Made at the first use, under its own lock.
    cache: Mutex<Option<Cache>>,
}

static CACHE: Shared = Shared::new(const { NonZeroUsize::new(CAPACITY).unwrap() });

/// The trie of a payload, parsed if it is not cached. Tokens must be below `n_vocab`, if that is known.
pub fn trie_of(json: &[u8], n_vocab: Option<usize>) -> Result<Arc<Trie>, String> {
    CACHE.trie_of(json, n_vocab)
}

fn fits(trie: &Trie, n_vocab: Option<usize>) -> bool {
    n_vocab.is_none_or(|n_vocab| (trie.max_token() as usize) < n_vocab)
}

/// The counters.
pub fn stats() -> CacheStats {
    CACHE.stats()
}

impl Shared {
    pub(crate) const fn new(capacity: NonZeroUsize) -> Self {
        Self {
            capacity,
            cache: Mutex::new(None),
        }
    }

    pub(crate) fn trie_of(&self, json: &[u8], n_vocab: Option<usize>) -> Result<Arc<Trie>, String> {
        let key: Key = Sha256::digest(json).into();
        if let Some(trie) = self.with(|cache| cache.get(&key))
            && fits(&trie, n_vocab)
        {
            return Ok(trie);
        }
        // Also where the cached one was parsed for a larger vocabulary: parsing says which token does not fit.
        let trie = Arc::new(Trie::new(&Payload::parse(json, n_vocab)?));
        drop(self.with(|cache| cache.put(key, Arc::clone(&trie))));
        Ok(trie)
    }

    pub(crate) fn stats(&self) -> CacheStats {
        self.with(|cache| cache.stats)
    }

    fn with<T>(&self, look: impl FnOnce(&mut Cache) -> T) -> T {
        let mut cache = self.cache.lock();
        look(cache.get_or_insert_with(|| Cache {
            tries: LruCache::new(self.capacity),
            stats: CacheStats::default(),
        }))
    }

    /// Number and bytes of what is kept, counted.
    #[cfg(all(test, model))]
    pub(crate) fn counted(&self) -> (u64, u64) {
        self.with(|cache| {
            let bytes = cache.tries.iter().map(|(_, trie)| trie.bytes() as u64);
            (cache.tries.len() as u64, bytes.sum())
        })
    }
}

impl Cache {
    fn get(&mut self, key: &Key) -> Option<Arc<Trie>> {
        fault::point();
        let found = self.tries.get(key).cloned();
        match found {
            Some(_) => self.stats.hits += 1,
            None => self.stats.misses += 1,
        }
        found
    }

    /// Gives what had to go, to be freed without the lock.
    #[must_use]
    fn put(&mut self, key: Key, trie: Arc<Trie>) -> Option<Arc<Trie>> {
        fault::point();
        self.stats.bytes += trie.bytes() as u64;
        let removed = self.tries.push(key, trie);
        self.stats.entries = self.tries.len() as u64;
        let (removed_key, removed) = removed?;
        self.stats.bytes -= removed.bytes() as u64;
        // Another thread may have parsed the same payload in the meantime: that is replaced, not evicted.
        self.stats.evictions += u64::from(removed_key != key);
        Some(removed)
    }
}
