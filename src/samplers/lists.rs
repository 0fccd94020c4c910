//! Lists that the samplers of a thread have together.

use std::ops::{Deref, DerefMut};

use crate::algorithms::Workspace;
use crate::algorithms::scratch::room;
use crate::per_thread::lent_per_thread;
use crate::token::TokenData;

/// Gives each use a type, so that a thread keeps one for each.
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
    /// Candidates that are kept, or may be.
    Kept(Vec<TokenData>),
    /// The largest candidates.
    Head(Vec<TokenData>),
    /// A number for each candidate.
    Column(Vec<f32>),
    /// Places of candidates.
    Places(Vec<u32>),
    /// The numbers of those.
    Picked(Vec<f32>),
    /// Probabilities, or what becomes one.
    Ps(Vec<f32>),
    /// The exponentials of logits that were bent.
    Bent(Workspace),
}
