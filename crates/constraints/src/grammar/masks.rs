//! The masks of a grammar found so far, for all of its samplers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use llama_sieve_kernels::sync::Mutex;

use crate::grammar::hash::{Identity, Map};
use crate::grammar::limits::MAX_MASK_BYTES;
use crate::grammar::mask::{Mask, Ranks};
use crate::grammar::states::TooMuch;
use crate::grammar::utf8::Partial;

/// A state, and the unfinished character at the end of the text: these determine a mask.
pub type MaskKey = (Identity, Partial);
/// The number of a band and a state: these determine the band's allowed tokens.
pub type PartKey = (usize, Identity);

/// The allowed tokens of a band, and the cost of finding them.
#[derive(Debug)]
pub struct Part {
    /// The tokens.
    pub ranks: Ranks,
    /// A bound on the steps with empty tables.
    pub cost: u64,
}

#[derive(Debug, Default)]
struct Known {
    whole: Map<MaskKey, Result<Arc<Mask>, TooMuch>>,
    parts: Map<PartKey, Arc<Part>>,
    bytes: usize,
}

/// Known masks. The lock is held for a look-up and for an insertion, never while a mask is made.
#[derive(Debug, Default)]
pub struct Masks {
    known: Mutex<Known>,
    bytes: AtomicUsize,
}

/// The bytes by which all grammars have grown since the last count.
static GROWN: AtomicUsize = AtomicUsize::new(0);

/// True, once, if all grammars together have grown enough to be counted.
pub fn have_grown() -> bool {
    const MUCH: usize = 1 << 20;
    GROWN.load(Ordering::Relaxed) >= MUCH && GROWN.swap(0, Ordering::Relaxed) >= MUCH
}

/// Adds to the growth.
pub fn note_growth(bytes: usize) {
    GROWN.fetch_add(bytes, Ordering::Relaxed);
}

impl Masks {
    /// Returns the bytes that they occupy.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the mask, or the error that it takes too much; `None` if neither is known.
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
        // Freed without the lock.
        drop(forgotten);
    }

    /// Drops all of them.
    pub fn forget(&self) {
        let mut known = self.known.lock();
        let forgotten = std::mem::take(&mut *known);
        self.bytes.store(0, Ordering::Relaxed);
        drop(known);
        // Freed without the lock.
        drop(forgotten);
    }
}
