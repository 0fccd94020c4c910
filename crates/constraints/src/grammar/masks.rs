//! The masks that were found so far, shared by all samplers of a grammar.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use llama_sieve_kernels::sync::Mutex;

use crate::grammar::hash::{Identity, Map};
use crate::grammar::limits::MAX_MASK_BYTES;
use crate::grammar::mask::{Mask, Ranks};
use crate::grammar::states::TooMuch;
use crate::grammar::utf8::Partial;

/// The key of a mask: the state, and the unfinished character at the end of the text.
pub type MaskKey = (Identity, Partial);
/// The key of a band's allowed tokens: the index of the band, and the state.
pub type PartKey = (usize, Identity);

/// The allowed tokens of a band, and the cost of finding them.
#[derive(Debug)]
pub struct Part {
    /// The allowed tokens.
    pub ranks: Ranks,
    /// An upper bound on the number of steps that finding them takes with empty tables.
    pub cost: u64,
}

#[derive(Debug, Default)]
struct Known {
    whole: Map<MaskKey, Result<Arc<Mask>, TooMuch>>,
    parts: Map<PartKey, Arc<Part>>,
    bytes: usize,
}

/// The known masks of a grammar. The lock is held during a look-up or an insertion, never while a
/// mask is made.
#[derive(Debug, Default)]
pub struct Masks {
    known: Mutex<Known>,
    bytes: AtomicUsize,
}

/// The number of bytes by which all grammars together have grown since they were last counted.
static GROWN: AtomicUsize = AtomicUsize::new(0);

/// True if all grammars together have grown enough to be counted again. The growth is then reset.
pub fn have_grown() -> bool {
    const MUCH: usize = 1 << 20;
    GROWN.load(Ordering::Relaxed) >= MUCH && GROWN.swap(0, Ordering::Relaxed) >= MUCH
}

/// Counts bytes by which a grammar has grown.
pub fn note_growth(bytes: usize) {
    GROWN.fetch_add(bytes, Ordering::Relaxed);
}

impl Masks {
    /// Returns the size of the masks in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the mask of a key, or the error that making it takes too much work; `None` if
    /// neither is known.
    pub fn whole(&self, key: MaskKey) -> Option<Result<Arc<Mask>, TooMuch>> {
        self.known.lock().whole.get(&key).cloned()
    }

    /// Stores the result of making a mask.
    pub fn keep(&self, key: MaskKey, mask: &Result<Arc<Mask>, TooMuch>) {
        let bytes = mask.as_ref().map_or(0, |mask| mask.bytes());
        self.insert(bytes + size_of::<MaskKey>() + 32, |masks| {
            masks.whole.insert(key, mask.clone());
        });
    }

    /// Returns the allowed tokens of a band, if they are known.
    pub fn part(&self, key: PartKey) -> Option<Arc<Part>> {
        self.known.lock().parts.get(&key).cloned()
    }

    /// Stores the allowed tokens of a band.
    pub fn keep_part(&self, key: PartKey, part: &Arc<Part>) {
        let bytes = part.ranks.bytes() + size_of::<Part>() + size_of::<PartKey>() + 32;
        self.insert(bytes, |masks| {
            masks.parts.insert(key, Arc::clone(part));
        });
    }

    fn insert(&self, bytes: usize, insert: impl FnOnce(&mut Known)) {
        let mut masks = self.known.lock();
        let full = masks.bytes + bytes > MAX_MASK_BYTES;
        let forgotten = full.then(|| std::mem::take(&mut *masks));
        insert(&mut masks);
        masks.bytes += bytes;
        self.bytes.store(masks.bytes, Ordering::Relaxed);
        drop(masks);
        note_growth(bytes);
        // Freed after the lock was released.
        drop(forgotten);
    }

    /// Drops all masks.
    pub fn forget(&self) {
        let mut known = self.known.lock();
        let forgotten = std::mem::take(&mut *known);
        self.bytes.store(0, Ordering::Relaxed);
        drop(known);
        // Freed after the lock was released.
        drop(forgotten);
    }
}
