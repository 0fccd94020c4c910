//! The process-wide cache of tries: the same payload is parsed once.
//!
//! At most 128 tries that together occupy at most 16 MiB, least recently used, keyed by the SHA-256
//! of the payload's bytes. A trie that is larger than that alone is not kept. A hit costs the hash
//! and a lookup. Tries are shared by `Arc`, so one in use survives its eviction. Safe from any
//! thread; nothing is parsed under the lock.

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

/// How many bytes these may occupy together.
pub const MAX_BYTES: usize = 16 << 20;

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
    max_bytes: usize,
    /// Made at the first use, under its own lock.
    cache: Mutex<Option<Cache>>,
}

static CACHE: Shared = Shared::new(const { NonZeroUsize::new(CAPACITY).unwrap() }, MAX_BYTES);

/// The trie of a payload, parsed if it is not cached. Tokens must be below `n_vocab`, if that is
/// known.
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
    pub(crate) const fn new(capacity: NonZeroUsize, max_bytes: usize) -> Self {
        Self {
            capacity,
            max_bytes,
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
        // Also where the cached one was parsed for a larger vocabulary: parsing says which token
        // does not fit.
        let trie = Arc::new(Trie::new(&Payload::parse(json, n_vocab)?));
        if trie.bytes() <= self.max_bytes {
            drop(self.with(|cache| cache.put(key, Arc::clone(&trie), self.max_bytes)));
        }
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
    fn put(&mut self, key: Key, trie: Arc<Trie>, max_bytes: usize) -> Vec<Arc<Trie>> {
        fault::point();
        let mut removed = Vec::new();
        self.stats.bytes += trie.bytes() as u64;
        if let Some((removed_key, trie)) = self.tries.push(key, trie) {
            // Another thread may have parsed the same payload in the meantime: that is replaced,
            // not evicted.
            self.remove(trie, removed_key != key, &mut removed);
        }
        while self.stats.bytes > max_bytes as u64
            && let Some((_, trie)) = self.tries.pop_lru()
        {
            self.remove(trie, true, &mut removed);
        }
        self.stats.entries = self.tries.len() as u64;
        removed
    }

    fn remove(&mut self, trie: Arc<Trie>, evicted: bool, removed: &mut Vec<Arc<Trie>>) {
        self.stats.bytes -= trie.bytes() as u64;
        self.stats.evictions += u64::from(evicted);
        removed.push(trie);
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    fn payload(token: usize, n_leaves: usize) -> String {
        let leaves: Vec<String> = (0..n_leaves)
            .map(|i| format!(r#"{{"name":"n{i}","tokens":[{token},{i}]}}"#))
            .collect();
        let leaves = leaves.join(",");
        format!(r#"{{"descriptors":[{{"path":"p","leaves":[{leaves}]}}]}}"#)
    }

    fn bytes_of(json: &str) -> usize {
        let payload = Payload::parse(json.as_bytes(), None).expect("the payload is good");
        Trie::new(&payload).bytes()
    }

    #[test]
    fn entries_are_bounded() {
        let json = payload(1, 10);
        let cache = Shared::new(NonZeroUsize::new(1).expect("not 0"), bytes_of(&json));
        // As large as all together may be.
        for (token, evictions) in [(1, 0), (1, 0), (2, 1), (3, 2)] {
            let trie = cache.trie_of(payload(token, 10).as_bytes(), None);
            assert!(trie.is_ok());
            let stats = cache.stats();
            assert_eq!((stats.entries, stats.evictions), (1, evictions));
            assert_eq!(stats.bytes, bytes_of(&json) as u64);
        }
        assert_eq!((cache.stats().hits, cache.stats().misses), (1, 3));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no pointers, and minutes")]
    fn bytes_are_bounded_like_entries() {
        let small = bytes_of(&payload(1, 10));
        let cache = Shared::new(NonZeroUsize::new(5).expect("not 0"), 3 * small);
        let get = |token, n_leaves| {
            let json = payload(token, n_leaves);
            let trie = cache.trie_of(json.as_bytes(), None);
            assert_eq!(trie.expect("the payload is good").n_nodes(), n_leaves + 2);
        };
        let expect = |entries: u64, evictions: u64| {
            let stats = cache.stats();
            assert_eq!((stats.entries, stats.evictions), (entries, evictions));
            assert_eq!(stats.bytes, entries * small as u64);
        };
        for token in 1..=3 {
            get(token, 10);
            expect(token as u64, 0);
        }
        // The first is used again, so that the second goes.
        get(1, 10);
        get(4, 10);
        expect(3, 1);
        get(1, 10);
        assert_eq!(cache.stats().hits, 2);
        get(2, 10);
        expect(3, 2);
        // One that takes the place of all.
        let fits = |n_leaves: &usize| bytes_of(&payload(9, *n_leaves)) <= 3 * small;
        let n_leaves = (10..100).rev().find(fits).expect("10 are small");
        let large = bytes_of(&payload(9, n_leaves));
        assert!(large > 2 * small);
        get(9, n_leaves);
        let stats = cache.stats();
        assert_eq!((stats.entries, stats.evictions), (1, 5));
        assert_eq!(stats.bytes, large as u64);
        // One that does not fit changes nothing.
        get(9, 100);
        assert_eq!(cache.stats().entries, 1);
        get(9, n_leaves);
        assert_eq!((cache.stats().hits, cache.stats().misses), (3, 7));
    }
}
