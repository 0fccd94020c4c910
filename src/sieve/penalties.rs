//! The three penalties on tokens that were accepted lately (Keskar et al. 2019; OpenAI's API), on
//! single logits and on a whole array.

use crate::history::History;

/// Repetition, frequency and presence penalty, applied in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Divides a logit above 0, multiplies one at or below 0, so that it always loses. 1 disables.
    pub repeat: f32,
    /// Subtracted once per occurrence. 0 disables.
    pub freq: f32,
    /// Subtracted once. 0 disables.
    pub present: f32,
}

impl Penalties {
    /// Whether they would change a logit.
    pub fn is_active(&self) -> bool {
        self.repeat != 1.0 || self.freq != 0.0 || self.present != 0.0
    }

    /// The logit of a token that occurs `count` times in the window; unchanged for 0.
    ///
    /// The operations and their order are llama.cpp's.
    #[inline]
    pub fn adjust(&self, logit: f32, count: u32) -> f32 {
        if count == 0 {
            return logit;
        }
        let scaled = match logit <= 0.0 {
            true => logit * self.repeat,
            false => logit / self.repeat,
        };
        scaled - (count as f32 * self.freq + self.present)
    }

    /// Penalises the tokens of `history` in `logits`, indexed by token. Costs O(distinct tokens of
    /// the window); tokens outside are ignored.
    pub fn apply(&self, logits: &mut [f32], history: &History) {
        for &(token, count) in history.distinct() {
            let index = usize::try_from(token).ok();
            if let Some(logit) = index.and_then(|i| logits.get_mut(i)) {
                *logit = self.adjust(*logit, count);
            }
        }
    }

    /// The repetition penalty alone.
    pub fn repetition(repeat: f32) -> Self {
        Self {
            repeat,
            freq: 0.0,
            present: 0.0,
        }
    }

    /// The frequency penalty alone.
    pub fn frequency(freq: f32) -> Self {
        Self {
            repeat: 1.0,
            freq,
            present: 0.0,
        }
    }

    /// The presence penalty alone.
    pub fn presence(present: f32) -> Self {
        Self {
            repeat: 1.0,
            freq: 0.0,
            present,
        }
    }
}
