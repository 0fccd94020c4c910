//! The trait that every sampler implements.

use std::any::Any;
use std::ffi::CStr;
use std::sync::Arc;

use crate::built_in::{BuiltIn, InGraph};
use crate::candidates::Candidates;
use crate::pool::{Form, InOrder, Pool, Whole};
use crate::token::Token;

/// The kind of a sampler. It decides the result that a host gets if the sampler fails with a panic,
/// which is caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Removes or rewrites candidates. After a failure the array keeps its size, and what was
    /// already rewritten stays.
    Filter,
    /// Chooses a candidate. After a failure it chooses the one with the largest logit, since a host
    /// aborts if none is selected.
    Selector,
    /// Allows only some tokens. It fails closed: after a failure [`Sampler::salvage`] decides what
    /// is allowed, and if that fails as well, every candidate gets minus infinity.
    Constraint,
}

/// The numbers of a sampler that a trace requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The parameters.
    Parameters,
    /// The numbers on which the next call depends, such as the random number that it will draw or a
    /// running target.
    Next,
    /// The numbers from which the last call computed its change to the logit of this token.
    Token(Token),
}

/// The continuations of the text that a constraint allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// A description of what the constraint allows.
    pub words: String,
    /// The first bytes of the only continuation; empty if there are several.
    pub forced: Vec<u8>,
}

/// The length of [`Expected::forced`], in bytes, from which on no further character begins.
pub const MOST_FORCED: usize = 64;

/// A callback that receives a sampler's numbers with their names.
pub type Tell<'a> = &'a mut dyn FnMut(&'static str, f64);

/// A sampler: its parameters, its state, and its effect on the candidates of one token position.
///
/// `Clone` keeps the whole state, but may restart a generator if the built-in's clone does (see
/// [`twin`](Self::twin)). A sampler is used from one thread at a time, but may move between
/// threads. After the first tokens of a thread (warm-up) neither `apply` nor `accept` allocates,
/// with the exceptions of promise 12 in `docs/reliability.md`.
pub trait Sampler: Clone + Send + 'static {
    /// The kind, which decides the result of a failure.
    const KIND: Kind = Kind::Filter;
    /// True if [`accept`](Self::accept) has an effect; otherwise the entry of the vtable is NULL.
    const ACCEPTS: bool = false;
    /// True if [`reset`](Self::reset) has an effect; otherwise the entry of the vtable is NULL.
    const RESETS: bool = false;

    /// How a host treats the sampler when its graph runs the chain.
    const IN_GRAPH: InGraph = InGraph::Never;

    /// The name that `llama_sampler_name` reports, which is the built-in's.
    fn name(&self) -> &'static CStr;

    /// Filters, rewrites or selects candidates.
    fn apply(&mut self, candidates: &mut Candidates<'_>);

    /// Applies the sampler to a pool, with the result that [`apply`](Self::apply) gives on an array
    /// of the same candidates. If there is no faster method, the pool becomes that array.
    fn narrow(&mut self, pool: &mut Pool<'_>) {
        let is_done = match pool.form() {
            Form::Whole(whole) => self.narrow_whole(whole),
            Form::InOrder(tokens) => self.narrow_in_order(tokens),
            Form::Array => false,
        };
        if !is_done {
            pool.apply(|candidates| self.apply(candidates));
        }
    }

    /// Applies the sampler to all tokens of a vocabulary. Returns false, and changes nothing, if
    /// that requires the array. Otherwise the result is that of [`apply`](Self::apply) on an array
    /// of these tokens.
    fn narrow_whole(&mut self, _whole: Whole<'_, '_>) -> bool {
        false
    }

    /// Applies the sampler to tokens in descending order. Returns false, and changes nothing, if
    /// that requires the array. Otherwise the result is that of [`apply`](Self::apply) on an array
    /// of these tokens.
    fn narrow_in_order(&mut self, _tokens: InOrder<'_, '_>) -> bool {
        false
    }

    /// Reserves the most memory that the buffers can need for `n` candidates, even if few of them
    /// are kept. Sampling from a first array of this size has the same effect.
    fn warm_up(&mut self, _n: usize) {}

    /// Returns to the thread the buffers that the last call borrowed.
    fn rest(&mut self) {}

    /// Updates the state with a token that has become part of the text.
    fn accept(&mut self, _token: Token) {}

    /// Restores the initial state.
    fn reset(&mut self) {}

    /// Copies the state of `source`, like `llama_sampler_copy`. By default, copies everything or,
    /// for a sampler with [`InGraph::AsBuiltIn`], nothing: such a built-in keeps its parameters.
    fn copy_state(&mut self, source: &Self) {
        if Self::IN_GRAPH != InGraph::AsBuiltIn {
            self.clone_from(source);
        }
    }

    /// Returns a copy with the whole state, which continues as the original would. It differs from
    /// a clone if the clone, like the built-in's, restarts a generator.
    fn twin(&self) -> Self {
        self.clone()
    }

    /// Keeps only allowed candidates, and at least one candidate, after `apply` of a constraint has
    /// panicked. The candidates may be in any state. By default, bans every candidate.
    fn salvage(&mut self, candidates: &mut Candidates<'_>) {
        for candidate in candidates.as_mut_slice() {
            candidate.logit = f32::NEG_INFINITY;
        }
    }

    /// Returns the part of the sampler that other code may use while the sampler runs, perhaps on
    /// another thread.
    fn shared(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Returns the built-in that can replace this sampler in its current state, if the sampler has
    /// [`InGraph::AsBuiltIn`].
    fn built_in(&self) -> Option<BuiltIn> {
        None
    }

    /// Passes the numbers that `about` requests to `to`, each with its name.
    fn tell(&self, _about: About, _to: Tell<'_>) {}

    /// Returns a description of what a constraint allows next. `None` if there is no description,
    /// or if everything is allowed.
    fn expected(&self) -> Option<Expected> {
        None
    }

    /// Returns the seed of the current stream, if `llama_sieve_get_seed` reports it.
    fn seed(&self) -> Option<u32> {
        None
    }

    /// Passes the sampler's memory of the text to `put`, as bytes that a sampler with the same
    /// parameters can [load](Self::load_memory). `None` if the memory cannot be saved.
    fn save_memory(&self, _put: &mut dyn FnMut(&[u8])) -> Option<()> {
        (!Self::ACCEPTS && !Self::RESETS).then_some(())
    }

    /// Loads a saved memory. `None` if it belongs to another sampler or is invalid; the sampler's
    /// memory is then undefined.
    fn load_memory(&mut self, bytes: &[u8]) -> Option<()> {
        (!Self::ACCEPTS && !Self::RESETS && bytes.is_empty()).then_some(())
    }
}

/// A step from the logits to a token: a sampler, or another stage of a sieve, such as its bias.
pub(crate) trait Step {
    fn name(&self) -> &'static CStr;
    fn tell(&self, about: About, to: Tell<'_>);
    fn expected(&self) -> Option<Expected> {
        None
    }
    /// Changes the candidates, and returns the buffers to the thread.
    fn narrow(&mut self, pool: &mut Pool<'_>);
}

impl<S: Sampler> Step for S {
    fn name(&self) -> &'static CStr {
        Sampler::name(self)
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        Sampler::tell(self, about, to);
    }

    fn expected(&self) -> Option<Expected> {
        Sampler::expected(self)
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        Sampler::narrow(self, pool);
        self.rest();
    }
}

/// The object-safe form of [`Sampler`]. `warm_up` also returns the buffers to the thread.
pub(crate) trait Member: Step + Send {
    fn kind(&self) -> Kind;
    /// True if the sampler remembers something from token to token.
    fn remembers(&self) -> bool;
    fn warm_up(&mut self, n: usize);
    fn accept(&mut self, token: Token);
    fn reset(&mut self);
    fn cloned(&self) -> Box<dyn Member>;
    fn twin(&self) -> Box<dyn Member>;
    fn save_memory(&self, put: &mut dyn FnMut(&[u8])) -> Option<()>;
    fn load_memory(&mut self, bytes: &[u8]) -> Option<()>;
}

impl<S: Sampler> Member for S {
    fn kind(&self) -> Kind {
        S::KIND
    }

    fn remembers(&self) -> bool {
        S::ACCEPTS || S::RESETS
    }

    fn warm_up(&mut self, n: usize) {
        Sampler::warm_up(self, n);
        self.rest();
    }

    fn accept(&mut self, token: Token) {
        Sampler::accept(self, token);
    }

    fn reset(&mut self) {
        Sampler::reset(self);
    }

    fn cloned(&self) -> Box<dyn Member> {
        Box::new(self.clone())
    }

    fn twin(&self) -> Box<dyn Member> {
        Box::new(Sampler::twin(self))
    }

    fn save_memory(&self, put: &mut dyn FnMut(&[u8])) -> Option<()> {
        Sampler::save_memory(self, put)
    }

    fn load_memory(&mut self, bytes: &[u8]) -> Option<()> {
        Sampler::load_memory(self, bytes)
    }
}

/// Implements `Clone` field by field, so that `clone_from` keeps the buffers. (A derived
/// `clone_from` replaces the whole value.) Hosts copy the state of one chain to another, which then
/// continues to sample.
macro_rules! clone_by_field {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl Clone for $name {
            fn clone(&self) -> Self {
                Self { $($field: self.$field.clone()),* }
            }

            fn clone_from(&mut self, source: &Self) {
                $(self.$field.clone_from(&source.$field);)*
            }
        }
    };
}
pub(crate) use clone_by_field;

/// Implements `Sampler::warm_up` and `Sampler::rest` by calling these methods of each buffer.
macro_rules! scratch {
    ($($field:ident),* $(,)?) => {
        fn warm_up(&mut self, n: usize) {
            #[allow(unused_imports)] // A field may have a method of this name.
            use crate::algorithms::scratch::Room;
            $(self.$field.warm_up(n);)*
        }

        fn rest(&mut self) {
            $(self.$field.rest();)*
        }
    };
}
pub(crate) use scratch;
