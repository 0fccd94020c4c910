//! The arrays that both work on.

use crate::lcg::Lcg;
use crate::token::{Token, TokenData};

/// Every candidate of this place among so many has the logit of one before it: the order in which
/// ties are left belongs to what is compared.
pub(super) const TIED_EVERY: usize = 4;

/// The arrays in the order of their use; a generator's draws differ from the second on if it drew
/// more or less than ours for the one before.
pub(super) const ARRAYS: [Shape; 6] = [
    Shape::scattered(1),
    Shape::scattered(2),
    Shape::scattered(17),
    Shape {
        sorted: true,
        ids_backward: true,
        ..Shape::scattered(17)
    },
    Shape::scattered(129),
    Shape {
        scatter: 0.25,
        ..Shape::scattered(LARGEST)
    },
];

/// Which of them every trial but the first uses.
pub(super) const FEW: [usize; 2] = [2, 3];

pub(super) const LARGEST: usize = 1025;

/// The same for those that sort everything and look at each probability: large enough for the
/// buckets that the host puts before its sort, which begin above 128.
const LARGEST_SORTED: usize = 145;

/// The arrays for the kind of that name.
pub(super) fn shapes_for(name: &str) -> [Shape; ARRAYS.len()] {
    let most = match name {
        "typical" | "temp-ext" | "mirostat" | "mirostat-v2" => LARGEST_SORTED,
        _ => LARGEST,
    };
    ARRAYS.map(|shape| Shape {
        size: shape.size.min(most),
        ..shape
    })
}

/// Accepted before all else: repetitions of one to four tokens.
pub(super) const HISTORY: [Token; 14] = [3, 1, 2, 3, 1, 2, 3, 7, 1, 2, 3, 1, 2, 3];

#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) size: usize,
    /// Over how much of their range, from -8 to 8, the logits are random. The rest descends, so
    /// that sorting many takes less time.
    scatter: f32,
    pub(super) sorted: bool,
    ids_backward: bool,
}

impl Shape {
    const fn scattered(size: usize) -> Self {
        Self {
            size,
            scatter: 16.0,
            sorted: false,
            ids_backward: false,
        }
    }

    /// Fills `data` with its candidates.
    pub(super) fn fill(self, data: &mut Vec<TokenData>) {
        data.clear();
        let mut lcg = Lcg(FIRST_STATE);
        for i in 0..self.size {
            // Logits of all 24 bits, so that every rounding shows.
            let random = lcg.unit();
            let tied = (i % TIED_EVERY == TIED_EVERY - 1).then(|| data.get(i - 3));
            let descending = (16.0 - self.scatter) * (1.0 - i as f32 / self.size as f32);
            let logit = descending + random * self.scatter - 8.0;
            let logit = tied
                .flatten()
                .map_or(logit, |other: &TokenData| other.logit);
            let id = match self.ids_backward {
                true => self.size - 1 - i,
                false => i,
            };
            data.push(TokenData {
                id: id as Token,
                logit,
                p: 0.0,
            });
        }
        if self.sorted {
            data.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        }
    }
}

/// Where the random numbers of every array begin: one of those with which a build that fuses
/// multiplications and additions leaves other logits.
pub(super) const FIRST_STATE: u32 = 1_274_836_067;
