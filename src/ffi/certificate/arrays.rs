//! The arrays on which the host's samplers are compared with this library's.

use std::f32::consts::LN_2;

use crate::lcg::Lcg;
use crate::token::{Token, TokenData};

/// The tokens that are accepted before the first array: repetitions of one to four tokens.
pub(super) const HISTORY: [Token; 14] = [3, 1, 2, 3, 1, 2, 3, 7, 1, 2, 3, 1, 2, 3];

/// The first arrays of every kind, in the order of their use. If a generator drew more or fewer
/// numbers than this library's for one array, its draws differ for the next.
const ARRAYS: [Shape; 6] = [
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

/// The shapes of the arrays of every trial but the first, and of those for the copies of every
/// trial's samplers. Equal candidates and halves come first: their probabilities have no rounding,
/// so that they reveal a bound that is met exactly by sums, by differences or by a sampler's
/// initial values.
pub(super) const FEW: [Shape; 7] = [
    Shape::halves(4, 0.0),
    Shape::halves(2, 0.0),
    Shape::halves(2, 1.0),
    Shape::halves(8, 1.0),
    Shape {
        sorted: true,
        ..Shape::halves(4, 0.0)
    },
    ARRAYS[2],
    ARRAYS[3],
];

pub(super) const LARGEST: usize = 1025;

/// The largest array of kinds that sort everything and read each probability: large enough for the
/// buckets that the host uses before its sort, which begin above 128.
const LARGEST_SORTED: usize = 145;

/// Returns the arrays for the kind with this name: those of every kind, and then some on which a
/// build that fuses multiplications and additions gives another result.
pub(super) fn shapes_for(name: &str) -> impl Iterator<Item = Shape> {
    let most = match name {
        "typical" | "temp-ext" | "mirostat" | "mirostat-v2" => LARGEST_SORTED,
        _ => LARGEST,
    };
    let of_every_kind = ARRAYS.map(|shape| Shape {
        size: shape.size.min(most),
        ..shape
    });
    of_every_kind.into_iter().chain(rounded_otherwise(name))
}

/// Returns arrays on which a fused build gives another result. The seed of each array was found by
/// a search among up to two million, with llama.cpp 0.6.0's source compiled by gcc 12 (-O2 and -O3,
/// -mfma) and clang 14 (-O3, -mfma -ffp-contract=on): all three give the same result, which differs
/// from the unfused one.
///
/// Penalties, dynamic temperature and adaptive-p need none: a logit or a probability differs in a
/// large share of arrays (see `docs/exactness.md`), and in some of those of every kind.
fn rounded_otherwise(name: &str) -> impl Iterator<Item = Shape> {
    let (size, tied, beginnings): (_, _, &[u32]) = match name {
        // A fused build puts a candidate into another bucket, where it is sorted with other
        // candidates, which leaves ties in another order.
        "top-k" | "top-p" | "xtc" => (LARGEST, true, &[2_303_054_050]),
        // A fused build computes another entropy, and so another one of two candidates at nearly
        // equal distances comes first.
        "typical" => (LARGEST_SORTED, false, &[398_943_628]),
        // A fused build computes another threshold.
        "top-n-sigma" => (LARGEST, false, &[571_452_355]),
        // A fused build keeps another number of candidates, because of its estimate. The second
        // array changes the bound in a different way, and the third one shows it.
        "mirostat" => (
            LARGEST_SORTED,
            false,
            &[1_028_260_591, 2_010_485_657, 1_695_543_622],
        ),
        // A fused build keeps candidates up to another surprisal. The first array changes the bound
        // in a different way, and the second one shows it.
        "mirostat-v2" => (LARGEST_SORTED, false, &[3_009_769_502, 1_666_888_718]),
        _ => (0, false, &[]),
    };
    beginnings.iter().map(move |&beginning| Shape {
        tied,
        beginning,
        ..Shape::scattered(size)
    })
}

#[derive(Clone, Copy)]
pub(super) struct Shape {
    size: usize,
    /// The width of the random part of a logit. The rest of the range from -8 to 8 is a part that
    /// descends from candidate to candidate, so that the array is sorted faster.
    scatter: f32,
    /// True if every fourth candidate has the logit of an earlier one, so the order of ties is also
    /// compared.
    tied: bool,
    sorted: bool,
    ids_backward: bool,
    /// The initial state of the random number generator.
    beginning: u32,
    /// If set, nothing is random: each candidate has the probability of the previous one, halved
    /// this many times.
    halved: Option<f32>,
}

impl Shape {
    const fn scattered(size: usize) -> Self {
        Self {
            size,
            scatter: 16.0,
            tied: true,
            sorted: false,
            ids_backward: false,
            // This state gives one of the arrays on which a fused build leaves other logits.
            beginning: 1_274_836_067,
            halved: None,
        }
    }

    const fn halves(size: usize, times: f32) -> Self {
        Self {
            halved: Some(times),
            ..Self::scattered(size)
        }
    }

    /// Returns the candidates.
    pub(super) fn array(self) -> Array {
        let mut data: Vec<TokenData> = Vec::with_capacity(self.size);
        let mut lcg = Lcg(self.beginning);
        for i in 0..self.size {
            // Logits use all 24 bits of a significand, so that every rounding has an effect.
            let random = lcg.unit();
            let descending = (16.0 - self.scatter) * (1.0 - i as f32 / self.size as f32);
            let equal = (self.tied && i % 4 == 3).then(|| data.get(i - 3));
            let scattered = equal.flatten().map_or(
                descending + random * self.scatter - 8.0,
                |other: &TokenData| other.logit,
            );
            let halved = |times: f32| -times * i as f32 * LN_2;
            let logit = self.halved.map_or(scattered, halved);
            let id = match self.ids_backward {
                true => self.size - 1 - i,
                false => i,
            };
            data.push(TokenData::new(id as Token, logit));
        }
        if self.sorted {
            data.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        }
        Array {
            data,
            sorted: self.sorted,
        }
    }
}

/// Candidates, and a flag that is true if they are passed as sorted.
pub(super) struct Array {
    pub(super) data: Vec<TokenData>,
    pub(super) sorted: bool,
}
