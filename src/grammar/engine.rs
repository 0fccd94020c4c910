//! A compiled grammar with the masks that were found so far, shared by its samplers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::grammar::compiled::Compiled;
use crate::grammar::hash::{Identity, Map};
use crate::grammar::limits::{MAX_IDLE_BYTES, MAX_MASK_BYTES};
use crate::grammar::mask::{Mask, Ranks};
use crate::grammar::states::TooMuch;
use crate::grammar::tracker::Bench;
use crate::grammar::utf8::Partial;
use crate::sync::Mutex;

/// A state, and what the text so far left of a character: a mask follows from these.
pub type MaskKey = (Identity, Partial);
/// The number of a band and a state: the band's allowed tokens follow from these.
pub type PartKey = (usize, Identity);

/// The allowed tokens of a band, and what it took to find them.
#[derive(Debug)]
pub struct Part {
    /// The tokens.
    pub ranks: Ranks,
    /// At most so many steps, if nothing had been known.
    pub cost: u64,
}

/// The known masks. Its lock is held for a look and for an insertion, never while one is made.
#[derive(Debug, Default)]
struct Masks {
    whole: Map<MaskKey, Result<Arc<Mask>, TooMuch>>,
    parts: Map<PartKey, Arc<Part>>,
    bytes: usize,
}

/// Bytes that all engines have kept since somebody has counted.
static GROWN: AtomicUsize = AtomicUsize::new(0);

/// True, once, if so much was kept, by any engine, that it is time to count.
pub fn have_grown() -> bool {
    const MUCH: usize = 1 << 20;
    GROWN.load(Ordering::Relaxed) >= MUCH && GROWN.swap(0, Ordering::Relaxed) >= MUCH
}

/// A compiled grammar, its masks, and the benches that no sampler works at.
#[derive(Debug)]
pub struct Engine {
    compiled: Arc<Compiled>,
    masks: Mutex<Masks>,
    idle: Mutex<Vec<Bench>>,
    /// Bytes of `compiled`.
    fixed_bytes: usize,
    bytes_of_masks: AtomicUsize,
    bytes_of_idle: AtomicUsize,
}

impl Engine {
    /// Without masks.
    pub fn new(compiled: Compiled) -> Self {
        Self {
            fixed_bytes: compiled.bytes(),
            compiled: Arc::new(compiled),
            masks: Mutex::default(),
            idle: Mutex::default(),
            bytes_of_masks: AtomicUsize::new(0),
            bytes_of_idle: AtomicUsize::new(0),
        }
    }

    /// The grammar.
    pub fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// Bytes that it occupies, the vocabulary and what samplers work at not counted.
    pub fn bytes(&self) -> usize {
        self.fixed_bytes
            + self.bytes_of_masks.load(Ordering::Relaxed)
            + self.bytes_of_idle.load(Ordering::Relaxed)
    }

    /// The mask that was found, or that it was too much to find; `None` if nobody has tried.
    pub fn known_mask(&self, key: MaskKey) -> Option<Result<Arc<Mask>, TooMuch>> {
        self.masks.lock().whole.get(&key).cloned()
    }

    /// Keeps what has come of making a mask.
    pub fn keep_mask(&self, key: MaskKey, mask: &Result<Arc<Mask>, TooMuch>) {
        let bytes = mask.as_ref().map_or(0, |mask| mask.bytes());
        self.keep(bytes + size_of::<MaskKey>() + 32, |masks| {
            masks.whole.insert(key, mask.clone());
        });
    }

    /// The allowed tokens of a band, if they are known.
    pub fn known_part(&self, key: PartKey) -> Option<Arc<Part>> {
        self.masks.lock().parts.get(&key).cloned()
    }

    /// Keeps the allowed tokens of a band.
    pub fn keep_part(&self, key: PartKey, part: &Arc<Part>) {
        let bytes = part.ranks.bytes() + size_of::<Part>() + size_of::<PartKey>() + 32;
        self.keep(bytes, |masks| {
            masks.parts.insert(key, Arc::clone(part));
        });
    }

    fn keep(&self, bytes: usize, insert: impl FnOnce(&mut Masks)) {
        let mut masks = self.masks.lock();
        let full = masks.bytes + bytes > MAX_MASK_BYTES;
        let forgotten = full.then(|| std::mem::take(&mut *masks));
        insert(&mut masks);
        masks.bytes += bytes;
        self.bytes_of_masks.store(masks.bytes, Ordering::Relaxed);
        drop(masks);
        GROWN.fetch_add(bytes, Ordering::Relaxed);
        // Freed without the lock.
        drop(forgotten);
    }

    /// A bench that a sampler has left, or a new one.
    pub fn bench(&self) -> Bench {
        let mut idle = self.idle.lock();
        let bench = idle.pop();
        if let Some(bench) = &bench {
            self.bytes_of_idle
                .fetch_sub(bench.bytes(), Ordering::Relaxed);
        }
        drop(idle);
        bench.unwrap_or_else(|| Bench::new(&self.compiled))
    }

    /// Keeps a bench for the next sampler, if there is room.
    pub fn leave(&self, bench: Bench) {
        let bytes = bench.bytes();
        let mut idle = self.idle.lock();
        if self.bytes_of_idle.load(Ordering::Relaxed) + bytes <= MAX_IDLE_BYTES {
            self.bytes_of_idle.fetch_add(bytes, Ordering::Relaxed);
            GROWN.fetch_add(bytes, Ordering::Relaxed);
            idle.push(bench);
        }
    }

    /// Forgets all that was found out.
    pub fn forget(&self) {
        let mut masks = self.masks.lock();
        let forgotten = std::mem::take(&mut *masks);
        self.bytes_of_masks.store(0, Ordering::Relaxed);
        drop(masks);
        let mut idle = self.idle.lock();
        let benches = std::mem::take(&mut *idle);
        self.bytes_of_idle.store(0, Ordering::Relaxed);
        drop(idle);
        drop((forgotten, benches));
    }
}
