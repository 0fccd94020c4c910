//! Lists that serve as buffers, which the samplers of a thread share.

use std::ops::{Deref, DerefMut};

use llama_sieve_constraints::bans::bias::Addend;

use crate::algorithms::Workspace;
use crate::algorithms::scratch::room;
use crate::per_thread::lent_per_thread;
use crate::token::TokenData;

/// Defines a type for each use, so that a thread keeps one list per use.
macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident($of:ty),)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Default)]
            pub(super) struct $name($of);

            impl Deref for $name {
                type Target = $of;

                #[inline]
                fn deref(&self) -> &$of {
                    &self.0
                }
            }

            impl DerefMut for $name {
                #[inline]
                fn deref_mut(&mut self) -> &mut $of {
                    &mut self.0
                }
            }
        )*
        $(room!($name: 0);)*
        lent_per_thread!($($name),*);
    };
}

lists! {
    /// A list of candidates that are kept, or that may be kept.
    Kept(Vec<TokenData>),
    /// A list of the largest candidates.
    Head(Vec<TokenData>),
    /// A list with a number for each candidate.
    Column(Vec<f32>),
    /// A list of indices of candidates.
    Places(Vec<u32>),
    /// A list of the logits of some candidates.
    Picked(Vec<f32>),
    /// A list of probabilities, or of numbers from which they are computed.
    Ps(Vec<f32>),
    /// A list of tokens with the numbers that are added to their logits.
    Addends(Vec<Addend>),
    /// The exponentials of transformed logits.
    Bent(Workspace),
}
