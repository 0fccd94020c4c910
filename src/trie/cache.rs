//! The process-wide cache of tries, which parses each payload once.
//!
//! The cache keeps at most [`CAPACITY`] tries, which occupy at most [`MAX_BYTES`] together with the
//! payloads that lead to them. It evicts the least recently used ones. A trie that alone exceeds
//! that size is not kept. A trie is first looked up by the bytes of a payload, which are hashed and
//! compared. If no cached payload has these bytes, the payload is parsed, and the trie is looked up
//! by the SHA-256 of the payload's canonical form, in which the order of values does not matter.
//! The cache then keeps the bytes as well.
//!
//! Tries are shared by `Arc`, so a trie in use survives its eviction. Any thread may use the cache.
//! Nothing is parsed under the lock.

use std::hash::BuildHasher;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use sha2::{Digest, Sha256};

use crate::fault;
use crate::memory;
use crate::random::ProcessState;
use crate::sync::Mutex;
use crate::token::Token;
use crate::trie::arena::{Trie, ascending, sorted_leaves};
use crate::trie::descriptor::Payload;

/// The maximum number of tries that are kept.
pub const CAPACITY: usize = 128;

/// The maximum size in bytes of the tries and of the payloads that lead to them.
pub const MAX_BYTES: usize = 16 << 20;

type Key = [u8; 32];

/// Counters since the start of the process, and the current contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// The number of lookups that found a trie.
    pub hits: u64,
    /// The number of lookups that found none.
    pub misses: u64,
    /// The number of tries evicted to make room for others.
    pub evictions: u64,
    /// The number of tries in the cache.
    pub entries: u64,
    /// The size in bytes of these tries and of the payloads by which they can be found.
    pub bytes: u64,
}

/// The maximum number of payloads whose bytes are kept.
const MOST_KNOWN: usize = 2 * CAPACITY;

/// A payload to be looked up: its hash finds an entry, and its bytes confirm it.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    hash: u64,
    json: &'a [u8],
}

impl<'a> Text<'a> {
    fn new(json: &'a [u8]) -> Self {
        // The hash has a different key in each process, so that nobody can construct payloads whose
        // hashes are equal, and which would evict each other.
        let hash = ProcessState::default().hash_one(json);
        Self { hash, json }
    }
}

/// The bytes of a payload that was parsed without an error, and the key of its trie.
struct Known {
    json: Box<[u8]>,
    key: Key,
}

impl Known {
    fn new(text: Text, key: Key) -> (u64, Self) {
        let json = memory::copied(text.json).into_boxed_slice();
        (text.hash, Self { json, key })
    }
}

struct Cache {
    /// The tries, by the canonical form of the payload.
    tries: LruCache<Key, Arc<Trie>, ProcessState>,
    /// Payloads of these tries, by their hash. Each is evicted with its trie, if not before.
    known: LruCache<u64, Known, ProcessState>,
    stats: CacheStats,
    reordered: u64,
}

/// Evicted tries and payloads, which are to be freed without the lock.
#[derive(Default)]
struct Removed {
    tries: Vec<Arc<Trie>>,
    payloads: Vec<Known>,
}

/// A cache that is shared by all threads.
pub(crate) struct Shared {
    capacity: NonZeroUsize,
    max_bytes: usize,
    /// The cache, made at the first use.
    cache: Mutex<Option<Cache>>,
}

static CACHE: Shared = Shared::new(const { NonZeroUsize::new(CAPACITY).unwrap() }, MAX_BYTES);

/// Returns the trie of the payload `json`, which is parsed if it is not cached. Fails, with a
/// description of the fault, if the payload is invalid, or if a token is not below `n_vocab`, the
/// size of the vocabulary (`None` if it is unknown).
pub fn trie_of(json: &[u8], n_vocab: Option<usize>) -> Result<Arc<Trie>, String> {
    CACHE.trie_of(json, n_vocab)
}

fn fits(trie: &Trie, n_vocab: Option<usize>) -> bool {
    n_vocab.is_none_or(|n_vocab| (trie.max_token() as usize) < n_vocab)
}

/// Returns the trie of a payload that was not made from JSON. The caller must have checked the
/// payload's tokens.
pub fn trie_of_payload(payload: &Payload) -> Arc<Trie> {
    CACHE.trie_of_payload(payload, None)
}

/// Returns the key of a payload's canonical form. Leaves are sorted within a descriptor, and equal
/// values appear once. The model's name, the order of the descriptors and the set of terminators of
/// each are significant.
fn canonical(payload: &Payload) -> Key {
    let mut hash = Sha256::new();
    // Each text comes after its length, so that two different payloads never give the same bytes.
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

/// Returns the counters.
pub fn stats() -> CacheStats {
    CACHE.stats()
}

/// Returns the counters, and the number of hits by canonical form alone: the cache did not have the
/// payload's bytes, but a payload with the same values.
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
        let text = Text::new(json);
        if let Some(trie) = self.with(|cache| cache.get(text))
            && fits(&trie, n_vocab)
        {
            return Ok(trie);
        }
        // The payload is also parsed if its cached trie was made for a larger vocabulary, since
        // parsing finds the token that does not fit.
        let payload = Payload::parse(json, n_vocab)?;
        Ok(self.trie_of_payload(&payload, Some(text)))
    }

    /// Returns the trie of a payload. `text` is its JSON, which was not found in the cache; `None`
    /// if the payload was not made from JSON.
    pub(crate) fn trie_of_payload(&self, payload: &Payload, text: Option<Text>) -> Arc<Trie> {
        let key = canonical(payload);
        let (found, is_known) = self.with(|cache| cache.get_canonical(&key, text));
        if let Some(trie) = &found
            && is_known
        {
            return Arc::clone(trie);
        }
        let trie = found.unwrap_or_else(|| Arc::new(Trie::new(payload)));
        self.keep(key, text, &trie);
        trie
    }

    /// Caches the trie if it fits into the cache, and the payload's bytes as well if there is room
    /// for both.
    fn keep(&self, key: Key, text: Option<Text>, trie: &Arc<Trie>) {
        let Some(room) = self.max_bytes.checked_sub(trie.bytes()) else {
            return;
        };
        let known = text.filter(|text| text.json.len() <= room);
        let known = known.map(|text| Known::new(text, key));
        let trie = Arc::clone(trie);
        drop(self.with(|cache| cache.put(key, known, trie, self.max_bytes)));
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
            tries: LruCache::with_hasher(self.capacity, ProcessState::default()),
            known: LruCache::unbounded_with_hasher(ProcessState::default()),
            stats: CacheStats::default(),
            reordered: 0,
        }))
    }

    /// Returns the number of the cached tries, and the size in bytes of the contents.
    #[cfg(test)]
    pub(crate) fn counted(&self) -> (u64, u64) {
        self.with(|cache| {
            let tries = cache.tries.iter().map(|(_, trie)| trie.bytes() as u64);
            let payloads = cache.known.iter().map(|(_, known)| known.json.len() as u64);
            let bytes = tries.sum::<u64>() + payloads.sum::<u64>();
            (cache.tries.len() as u64, bytes)
        })
    }
}

impl Cache {
    /// Finds a trie by the bytes of a payload.
    fn get(&mut self, text: Text) -> Option<Arc<Trie>> {
        fault::point();
        let found = self.key_of(text).and_then(|key| self.tries.get(&key));
        let found = found.cloned();
        match found {
            Some(_) => self.stats.hits += 1,
            None => self.stats.misses += 1,
        }
        found
    }

    /// Returns the key of the trie of a cached payload with the bytes of `text`. No other function
    /// compares bytes.
    fn key_of(&mut self, text: Text) -> Option<Key> {
        let known = self.known.get(&text.hash)?;
        (*known.json == *text.json).then_some(known.key)
    }

    /// Finds a trie by the canonical form of a payload. `text` is the payload's JSON, which was not
    /// found before; `None` if the payload was not made from JSON. Also returns true if no bytes
    /// need to be recorded: there are none, or another thread has recorded them in the meantime.
    fn get_canonical(&mut self, key: &Key, text: Option<Text>) -> (Option<Arc<Trie>>, bool) {
        fault::point();
        let is_known = text.is_none_or(|text| self.key_of(text).is_some());
        let found = self.tries.get(key).cloned();
        match (&found, text) {
            (Some(_), Some(_)) => {
                self.stats.misses -= 1;
                self.stats.hits += 1;
                self.reordered += u64::from(!is_known);
            }
            (Some(_), None) => self.stats.hits += 1,
            (None, Some(_)) => {}
            (None, None) => self.stats.misses += 1,
        }
        (found, is_known)
    }

    /// Caches a trie, which may be cached already, and the payload `known`. An empty cache must
    /// have room for both. Returns what was evicted.
    #[must_use]
    fn put(
        &mut self,
        key: Key,
        known: Option<(u64, Known)>,
        trie: Arc<Trie>,
        max_bytes: usize,
    ) -> Removed {
        fault::point();
        let mut removed = Removed::default();
        self.stats.bytes += trie.bytes() as u64;
        match self.tries.push(key, trie) {
            // This is the same trie, or another thread has parsed the same payload in the meantime.
            Some((old_key, old)) if old_key == key => self.release(old, &mut removed),
            Some((old_key, old)) => self.evict(&old_key, old, &mut removed),
            None => {}
        }
        if let Some((hash, known)) = known {
            self.know(hash, known, &mut removed);
        }
        self.make_room(max_bytes, &mut removed);
        self.stats.entries = self.tries.len() as u64;
        removed
    }

    fn know(&mut self, hash: u64, known: Known, removed: &mut Removed) {
        self.stats.bytes += known.json.len() as u64;
        if let Some((_, same)) = self.known.push(hash, known) {
            self.forget(same, removed);
        }
        if self.known.len() > MOST_KNOWN
            && let Some((_, oldest)) = self.known.pop_lru()
        {
            self.forget(oldest, removed);
        }
    }

    /// Evicts the least recently used tries or, if only one trie is left, payloads, until the
    /// contents take at most `max_bytes`.
    fn make_room(&mut self, max_bytes: usize, removed: &mut Removed) {
        while self.stats.bytes > max_bytes as u64 {
            if self.tries.len() > 1
                && let Some((key, trie)) = self.tries.pop_lru()
            {
                self.evict(&key, trie, removed);
            } else if let Some((_, oldest)) = self.known.pop_lru() {
                self.forget(oldest, removed);
            } else {
                return;
            }
        }
    }

    /// Records that a trie was removed, and removes the payloads that lead to it.
    fn evict(&mut self, key: &Key, trie: Arc<Trie>, removed: &mut Removed) {
        self.stats.evictions += 1;
        self.release(trie, removed);
        let leads_to_it = |(hash, known): (&u64, &Known)| (known.key == *key).then_some(*hash);
        let hashes: Vec<u64> = self.known.iter().filter_map(leads_to_it).collect();
        for hash in hashes {
            if let Some(known) = self.known.pop(&hash) {
                self.forget(known, removed);
            }
        }
    }

    fn release(&mut self, trie: Arc<Trie>, removed: &mut Removed) {
        self.stats.bytes -= trie.bytes() as u64;
        removed.tries.push(trie);
    }

    fn forget(&mut self, known: Known, removed: &mut Removed) {
        self.stats.bytes -= known.json.len() as u64;
        removed.payloads.push(known);
    }
}

#[cfg(all(test, not(model)))]
mod tests;
