//! The process-wide cache of tries: the same payload is parsed once.
//!
//! At most 128 tries that together occupy at most 16 MiB, least recently used. A trie that is
//! larger than that alone is not kept. It is found by the SHA-256 of the payload's bytes, which
//! costs that and a lookup, or by that of the payload's canonical form: then the payload has been
//! parsed, but the same set in another order is the same trie, and its bytes are known from then
//! on.
//!
//! Tries are shared by `Arc`, so one in use survives its eviction. Safe from any thread; nothing is
//! parsed under the lock.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use sha2::{Digest, Sha256};

use crate::fault;
use crate::sync::Mutex;
use crate::token::Token;
use crate::trie::arena::{Trie, ascending, sorted_leaves};
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

/// The most payloads whose bytes are known.
const MOST_BYTES_KNOWN: usize = 2 * CAPACITY;

struct Cache {
    /// By the canonical form of the payload.
    tries: LruCache<Key, Arc<Trie>>,
    /// The canonical form of payloads by their bytes; its trie may be gone.
    known: LruCache<Key, Key>,
    stats: CacheStats,
    reordered: u64,
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

/// The trie of a payload that was made, not parsed; its tokens were checked.
pub fn trie_of_payload(payload: &Payload) -> Arc<Trie> {
    CACHE.trie_of_payload(payload, None)
}

/// The key of a payload's canonical form: what the trie is made of, in the order in which it is
/// made. Leaves are sorted within a descriptor, and equal values stand once; the order of
/// descriptors, their terminators and the model's name count.
fn canonical(payload: &Payload) -> Key {
    let mut hash = Sha256::new();
    // Each with its length, so that nothing can be taken for something else.
    let text = |hash: &mut Sha256, text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    let tokens = |hash: &mut Sha256, tokens: &[Token]| {
        hash.update((tokens.len() as u64).to_le_bytes());
        for token in tokens {
            hash.update(token.to_le_bytes());
        }
    };
    text(&mut hash, &payload.model_id);
    for descriptor in &payload.descriptors {
        let leaves = sorted_leaves(descriptor);
        if leaves.is_empty() {
            continue;
        }
        text(&mut hash, &descriptor.path);
        tokens(&mut hash, &ascending(&descriptor.terminators));
        hash.update((leaves.len() as u64).to_le_bytes());
        for leaf in leaves {
            text(&mut hash, &leaf.name);
            tokens(&mut hash, &leaf.tokens);
        }
    }
    hash.finalize().into()
}

/// The counters.
pub fn stats() -> CacheStats {
    CACHE.stats()
}

/// The counters, and how many of the hits were of a payload whose bytes were not known, but another
/// with the same sets.
pub fn stats_and_reordered() -> (CacheStats, u64) {
    CACHE.stats_and_reordered()
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
        let payload = Payload::parse(json, n_vocab)?;
        Ok(self.trie_of_payload(&payload, Some(key)))
    }

    /// The trie of a payload that was looked for by its bytes, if it has any.
    pub(crate) fn trie_of_payload(&self, payload: &Payload, bytes: Option<Key>) -> Arc<Trie> {
        let key = canonical(payload);
        if let Some(trie) = self.with(|cache| cache.get_canonical(&key, bytes)) {
            return trie;
        }
        let trie = Arc::new(Trie::new(payload));
        if trie.bytes() <= self.max_bytes {
            let kept = Arc::clone(&trie);
            drop(self.with(|cache| cache.put(key, bytes, kept, self.max_bytes)));
        }
        trie
    }

    pub(crate) fn stats(&self) -> CacheStats {
        self.with(|cache| cache.stats)
    }

    pub(crate) fn stats_and_reordered(&self) -> (CacheStats, u64) {
        self.with(|cache| (cache.stats, cache.reordered))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Cache) -> T) -> T {
        let mut cache = self.cache.lock();
        look(cache.get_or_insert_with(|| Cache {
            tries: LruCache::new(self.capacity),
            known: LruCache::unbounded(),
            stats: CacheStats::default(),
            reordered: 0,
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
    /// By the bytes of a payload.
    fn get(&mut self, bytes: &Key) -> Option<Arc<Trie>> {
        fault::point();
        let key = self.known.get(bytes);
        let found = key.and_then(|key| self.tries.get(key)).cloned();
        match found {
            Some(_) => self.stats.hits += 1,
            None => self.stats.misses += 1,
        }
        found
    }

    /// By the canonical form, after its bytes, if it has any, were looked for in vain.
    fn get_canonical(&mut self, key: &Key, bytes: Option<Key>) -> Option<Arc<Trie>> {
        fault::point();
        let found = self.tries.get(key).cloned();
        match (&found, bytes) {
            (Some(_), Some(bytes)) => {
                self.stats.misses -= 1;
                self.stats.hits += 1;
                self.reordered += 1;
                self.know(bytes, *key);
            }
            (Some(_), None) => self.stats.hits += 1,
            (None, Some(_)) => {}
            (None, None) => self.stats.misses += 1,
        }
        found
    }

    fn know(&mut self, bytes: Key, key: Key) {
        self.known.put(bytes, key);
        if self.known.len() > MOST_BYTES_KNOWN {
            self.known.pop_lru();
        }
    }

    /// Gives what had to go, to be freed without the lock.
    #[must_use]
    fn put(
        &mut self,
        key: Key,
        bytes: Option<Key>,
        trie: Arc<Trie>,
        max_bytes: usize,
    ) -> Vec<Arc<Trie>> {
        fault::point();
        if let Some(bytes) = bytes {
            self.know(bytes, key);
        }
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

    /// One descriptor with its leaves as they stand.
    fn of_leaves(model: &str, path: &str, leaves: &[&str], terminators: &str) -> String {
        let leaves = leaves.join(",");
        format!(
            r#"{{"modelId":"{model}","descriptors":[{{"path":"{path}","leaves":[{leaves}],"terminators":[{terminators}]}}]}}"#
        )
    }

    #[test]
    fn the_same_set_in_another_order_is_the_same_trie() {
        let cache = Shared::new(NonZeroUsize::new(4).expect("not 0"), MAX_BYTES);
        let (a, b) = (
            r#"{"name":"a","tokens":[1,2]}"#,
            r#"{"name":"b","tokens":[3]}"#,
        );
        let (c, empty) = (
            r#"{"name":"c","tokens":[3]}"#,
            r#"{"name":"x","tokens":[]}"#,
        );
        let of = |json: &str| cache.trie_of(json.as_bytes(), None).expect("it is good");
        let counts = || {
            let (stats, reordered) = cache.stats_and_reordered();
            (stats.hits, reordered, stats.misses, stats.entries)
        };
        let first = of(&of_leaves("m", "p", &[a, b], "5, 4"));
        assert_eq!(counts(), (0, 0, 1, 1));
        // Another order, spaces, a value twice with a later name, one without tokens.
        let others = [
            of_leaves("m", "p", &[b, a], "5, 4"),
            of_leaves("m", "p", &[a, b], "4,5,4"),
            of_leaves("m", "p", &[c, b, empty, a], "5,4"),
        ];
        for (i, json) in (1u64..).zip(&others) {
            assert!(Arc::ptr_eq(&first, &of(json)));
            assert_eq!(counts(), (i, i, 1, 1), "{json}");
        }
        // Their bytes are known now.
        for (i, json) in (4u64..).zip(&others) {
            assert!(Arc::ptr_eq(&first, &of(json)));
            assert_eq!(counts(), (i, 3, 1, 1));
        }
        // Another model, path, name, token, terminator: another trie.
        let different = [
            of_leaves("n", "p", &[a, b], "5,4"),
            of_leaves("m", "q", &[a, b], "5,4"),
            of_leaves("m", "p", &[a, c], "5,4"),
            of_leaves("m", "p", &[a], "5,4"),
            of_leaves("m", "p", &[a, b], "5"),
        ];
        for json in &different {
            assert!(!Arc::ptr_eq(&first, &of(json)), "{json}");
        }
        assert_eq!(cache.stats().misses, 6);
        // Gone, and known by its bytes all the same: made anew.
        let again = of(&others[0]);
        assert!(!Arc::ptr_eq(&first, &again));
        assert_eq!((cache.stats().misses, cache.stats().entries), (7, 4));
        // What was made without bytes is found, too.
        let payload = Payload::parse(others[1].as_bytes(), None).expect("it is good");
        assert!(Arc::ptr_eq(&again, &cache.trie_of_payload(&payload, None)));
    }

    #[test]
    fn the_order_of_descriptors_counts() {
        let of = |json: &str| canonical(&Payload::parse(json.as_bytes(), None).expect("good"));
        let one =
            |path: &str| format!(r#"{{"path":"{path}","leaves":[{{"name":"a","tokens":[1]}}]}}"#);
        let both = |a: &str, b: &str| format!(r#"{{"descriptors":[{},{}]}}"#, one(a), one(b));
        assert_ne!(of(&both("p", "q")), of(&both("q", "p")));
        assert_ne!(of(&both("p", "q")), of(&both("pq", "")));
        assert_eq!(of(&both("p", "q")), of(&format!(" {}", both("p", "q"))));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no pointers, and minutes")]
    fn what_is_known_of_bytes_is_bounded() {
        let cache = Shared::new(NonZeroUsize::new(2).expect("not 0"), MAX_BYTES);
        for spaces in 0..3 * MOST_BYTES_KNOWN {
            let json = " ".repeat(spaces) + &payload(1, 3);
            assert!(cache.trie_of(json.as_bytes(), None).is_ok());
        }
        assert_eq!(cache.with(|cache| cache.known.len()), MOST_BYTES_KNOWN);
        assert_eq!(cache.stats().entries, 1);
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
