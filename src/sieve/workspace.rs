//! The buffers of a sieve. They grow by powers of two, never shrink, and are used again for every
//! token.

use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::kernels::packed::Packed;
use crate::memory::reserve;
use crate::sieve::nearest::Nearest;
use crate::sieve::source::Touched;
use crate::token::TokenData;

/// Candidates that are written out when they are asked for, into a buffer that is used again.
#[derive(Debug, Default)]
pub(super) struct OnRequest {
    written: OnceLock<Vec<TokenData>>,
    spare: Mutex<Spare>,
}

/// The buffers for that.
#[derive(Debug, Default)]
struct Spare {
    candidates: Vec<TokenData>,
    exponentials: crate::algorithms::Workspace,
}

impl OnRequest {
    /// `survivors` with their probabilities: 12 bytes each, written twice, and the exponentials.
    fn get(&self, survivors: &Packed) -> &[TokenData] {
        self.written.get_or_init(|| {
            let spare = &mut *self.spare.lock();
            let mut candidates = std::mem::take(&mut spare.candidates);
            candidates.clear();
            reserve(&mut candidates, survivors.len());
            survivors.write_to(&mut candidates);
            let sum = spare.exponentials.exponentiate_double(&candidates, false);
            spare.exponentials.write_p_divided(&mut candidates, sum);
            candidates
        })
    }

    pub(super) fn forget(&mut self) {
        if let Some(candidates) = self.written.take() {
            self.spare.get_mut().candidates = candidates;
        }
    }

    fn bytes(&self) -> usize {
        let written = self.written.get().map_or(0, Vec::capacity);
        let spare = self.spare.lock();
        (written + spare.candidates.capacity()) * size_of::<TokenData>()
            + spare.exponentials.bytes()
    }
}

impl Clone for OnRequest {
    fn clone(&self) -> Self {
        Self {
            written: self.written.clone(),
            spare: Mutex::default(),
        }
    }
}

/// Buffers; what is in them has meaning only within one call, but for the candidates.
#[derive(Clone, Debug, Default)]
pub(super) struct Workspace {
    /// What is left of the vocabulary.
    pub candidates: Vec<TokenData>,
    /// The same of many, not written out.
    pub survivors: Packed,
    /// Whether what is drawn from is there.
    pub apart: bool,
    /// Sums of exponentials, of blocks of them.
    pub sums: Vec<f64>,
    pub on_request: OnRequest,
    /// The same in another order.
    pub spare: Vec<TokenData>,
    /// Sort keys.
    pub keys: Vec<u64>,
    /// Tokens that bias or penalties change.
    pub touched: Vec<Touched>,
    /// The largest logit of each block.
    pub maxima: Vec<f32>,
    /// A sample of logits, or of their maxima.
    pub sample: Vec<f32>,
    /// Exponentials of many candidates.
    pub exponentials: crate::algorithms::Workspace,
    /// Logits out of a host's candidate array, or after very many biases.
    pub gathered: Vec<f32>,
    /// For typical, and top-p behind it.
    pub nearest: Nearest,
}

impl Workspace {
    /// What is drawn from.
    pub(super) fn drawn_from(&self) -> &[TokenData] {
        match self.apart {
            true => self.on_request.get(&self.survivors),
            false => &self.candidates,
        }
    }

    /// Nothing is drawn from.
    pub(super) fn clear(&mut self) {
        self.candidates.clear();
        self.apart = false;
        self.on_request.forget();
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        (self.candidates.capacity() + self.spare.capacity()) * size_of::<TokenData>()
            + self.keys.capacity() * size_of::<u64>()
            + self.touched.capacity() * size_of::<Touched>()
            + (self.gathered.capacity() + self.maxima.capacity() + self.sample.capacity())
                * size_of::<f32>()
            + self.exponentials.bytes()
            + self.survivors.bytes()
            + self.sums.capacity() * size_of::<f64>()
            + self.nearest.bytes()
            + self.on_request.bytes()
    }
}
