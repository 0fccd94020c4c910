//! The stages of a sieve as a C caller may pass them, and the rule by which they are accepted.

use std::ptr::{null, without_provenance};

use arbitrary::Arbitrary;
use llama_sieve::ffi::sieve::*;

use crate::logits::{Number, Whole};

/// An order of stages, and the parameters of those that have any.
#[derive(Arbitrary, Clone, Debug)]
pub struct Stages {
    order: Vec<u8>,
    numbers: [Option<Number>; 10],
    wholes: [Option<Whole>; 3],
    /// The slots of samplers among the stages, each with its position.
    slots: Vec<(u8, u8)>,
    wrong: Wrong,
}

/// A fault in the stages, or none.
#[derive(Arbitrary, Clone, Debug)]
enum Wrong {
    Nothing,
    Number(Whole),
    StructSize(u16),
    NoArray(u8),
    Misaligned,
    Many(Whole),
    Good,
    AlsoGood,
}

/// Stages, and the order that they point to.
pub struct CStages {
    pub raw: llama_sieve_stages,
    pub order: Vec<i32>,
}

/// The number of slots that this target uses in orders.
pub const SLOTS: u8 = 4;

/// The maximum number of stages.
const MOST: usize = 13 + LLAMA_SIEVE_MAX_SAMPLERS;

/// The maximum window of DRY, which a state stores.
const LONGEST_WINDOW: i32 = 3000;

impl CStages {
    pub fn new(stages: &Stages) -> Self {
        let mut raw = llama_sieve_default_stages();
        // The length is at most the number of stages, so that orders are not always rejected for
        // their length.
        let mut order: Vec<i32> = Vec::new();
        for &stage in stages.order.iter().take(13) {
            let number = 1 + i32::from(stage % 13);
            // Duplicates are rare, since otherwise nearly every order would have one.
            if stage >= 250 || !order.contains(&number) {
                order.push(number);
            }
        }
        let numbers = [
            &mut raw.dry_multiplier,
            &mut raw.dry_base,
            &mut raw.xtc_probability,
            &mut raw.xtc_threshold,
            &mut raw.dynatemp_range,
            &mut raw.dynatemp_exponent,
            &mut raw.mirostat_tau,
            &mut raw.mirostat_eta,
            &mut raw.adaptive_target,
            &mut raw.adaptive_decay,
        ];
        for (number, given) in numbers.into_iter().zip(stages.numbers) {
            *number = given.map_or(*number, Number::get);
        }
        let wholes = [
            &mut raw.dry_allowed_length,
            &mut raw.dry_penalty_last_n,
            &mut raw.mirostat_m,
        ];
        for (whole, given) in wholes.into_iter().zip(stages.wholes) {
            *whole = given.map_or(*whole, |given| given.0);
        }
        raw.dry_penalty_last_n = raw.dry_penalty_last_n.min(LONGEST_WINDOW);
        // Stages that draw are mostly put at the end, where they must be.
        if !matches!(stages.wrong, Wrong::Good) {
            order.sort_by_key(|number| *number > LLAMA_SIEVE_STAGE_DYNAMIC_TEMPERATURE);
        }
        for &(slot, place) in stages.slots.iter().take(4) {
            let number = LLAMA_SIEVE_STAGE_SAMPLER + i32::from(slot % SLOTS);
            if !order.contains(&number) {
                order.insert(usize::from(place) % order.len().max(1), number);
            }
        }
        if let Wrong::Number(number) = stages.wrong {
            order.push(number.0);
        }
        (raw.stages, raw.n_stages) = (order.as_ptr(), order.len());
        match stages.wrong {
            Wrong::StructSize(size) => raw.struct_size = usize::from(size),
            Wrong::NoArray(n) => (raw.stages, raw.n_stages) = (null(), usize::from(n)),
            Wrong::Misaligned => raw.stages = without_provenance(raw.stages.addr() + 1),
            Wrong::Many(n) => raw.n_stages = order.len().max(MOST + 1).max(n.size()),
            _ => {}
        }
        Self { raw, order }
    }

    /// True if the library must accept the stages by the rules of the header.
    pub fn is_valid(&self) -> bool {
        let raw = &self.raw;
        if raw.struct_size != size_of::<llama_sieve_stages>() {
            return false;
        }
        if raw.n_stages == 0 {
            return true;
        }
        if raw.stages.is_null() || !raw.stages.is_aligned() || raw.n_stages > MOST {
            return false;
        }
        let numbers = |stage: i32| match stage {
            LLAMA_SIEVE_STAGE_DRY => [raw.dry_multiplier, raw.dry_base],
            LLAMA_SIEVE_STAGE_XTC => [raw.xtc_probability, raw.xtc_threshold],
            LLAMA_SIEVE_STAGE_DYNAMIC_TEMPERATURE => [raw.dynatemp_range, raw.dynatemp_exponent],
            LLAMA_SIEVE_STAGE_MIROSTAT | LLAMA_SIEVE_STAGE_MIROSTAT_V2 => {
                [raw.mirostat_tau, raw.mirostat_eta]
            }
            LLAMA_SIEVE_STAGE_ADAPTIVE_P => [raw.adaptive_target, raw.adaptive_decay],
            _ => [0.0; 2],
        };
        let mut seen = Vec::new();
        self.order.iter().enumerate().all(|(place, &stage)| {
            let draws =
                (LLAMA_SIEVE_STAGE_MIROSTAT..=LLAMA_SIEVE_STAGE_ADAPTIVE_P).contains(&stage);
            let known =
                (LLAMA_SIEVE_STAGE_PENALTIES..=LLAMA_SIEVE_STAGE_ADAPTIVE_P).contains(&stage);
            let slots = 0..LLAMA_SIEVE_MAX_SAMPLERS as i32;
            let is_slot = slots.contains(&stage.saturating_sub(LLAMA_SIEVE_STAGE_SAMPLER));
            let first = !seen.contains(&stage);
            seen.push(stage);
            let finite = numbers(stage).iter().all(|number| number.is_finite());
            (known || is_slot) && first && finite && (!draws || place + 1 == self.order.len())
        })
    }

    /// Returns true if `sieve` reports these stages.
    ///
    /// # Safety
    /// `sieve` is alive.
    pub unsafe fn are_of(&self, sieve: *const Handle) -> bool {
        let mut out = [-99; 32];
        // SAFETY: the caller says so, and there is room.
        let n = unsafe { llama_sieve_get_stages(sieve, out.as_mut_ptr(), out.len()) };
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        n == self.raw.n_stages && out[..n] == self.order[..n] && out[n..].iter().all(|&s| s == -99)
    }
}
