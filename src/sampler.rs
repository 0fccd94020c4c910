//! The trait that every sampler implements.

use std::any::Any;
use std::ffi::CStr;
use std::sync::Arc;

use crate::built_in::{BuiltIn, InGraph};
use crate::candidates::Candidates;
use crate::pool::{Form, InOrder, Pool, Whole};
use crate::token::Token;

/// The answer that a host gets when a sampler fails (a caught panic), fixed by the kind of sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Removes or rewrites candidates. On failure they pass through unchanged.
    Filter,
    /// Chooses a candidate. On failure it is the one with the largest logit, since a host aborts
    /// when nothing is selected.
    Selector,
    /// Lets only some tokens through. On failure it fails closed: [`Sampler::salvage`] decides, and
    /// if that fails as well, every candidate gets minus infinity.
    Constraint,
}

/// The question that a trace asks a sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Its parameters, by the names that llama.h gives them.
    Parameters,
    /// The numbers that decide its next call: the one that it will draw, a running target.
    Next,
    /// The numbers for which its last call has changed the logit of this token.
    Token(Token),
}

/// Receives a number of a sampler by its name.
pub type Tell<'a> = &'a mut dyn FnMut(&'static str, f64);

/// A sampler: parameters, state, and what it does to the candidates of one token position.
///
/// `Clone` keeps the whole state, generators included. A sampler is used from one thread at a time,
/// but may move between threads. After the first tokens of a thread (warm-up) neither `apply` nor
/// `accept` allocates.
pub trait Sampler: Clone + Send + 'static {
    /// The kind, which fixes the answer to a failure.
    const KIND: Kind = Kind::Filter;
    /// True if [`accept`](Self::accept) does anything; if not, the vtable slot stays NULL.
    const ACCEPTS: bool = false;
    /// True if [`reset`](Self::reset) does anything; if not, the vtable slot stays NULL.
    const RESETS: bool = false;

    /// The use that a host makes of it when it runs its chain in its graph.
    const IN_GRAPH: InGraph = InGraph::Never;

    /// The name that `llama_sampler_name` reports: the built-in's.
    fn name(&self) -> &'static CStr;

    /// Filters, rewrites or selects.
    fn apply(&mut self, candidates: &mut Candidates<'_>);

    /// Does to a pool what [`apply`](Self::apply) does to an array of the same candidates. Where
    /// there is no quicker way the pool becomes that array.
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

    /// Does to all tokens of a vocabulary what [`apply`](Self::apply) does to an array of them.
    /// Returns false, with nothing done, where it takes the array.
    fn narrow_whole(&mut self, _whole: Whole<'_, '_>) -> bool {
        false
    }

    /// Does to tokens in descending order what [`apply`](Self::apply) does to an array of them.
    /// Returns false, with nothing done, where it takes the array.
    fn narrow_in_order(&mut self, _tokens: InOrder<'_, '_>) -> bool {
        false
    }

    /// Makes room in the buffers for whatever `n` candidates can take: however few of them are
    /// kept, an array of this size has warmed up.
    fn warm_up(&mut self, _n: usize) {}

    /// Gives the buffers of the last call back to the thread, which lent them.
    fn rest(&mut self) {}

    /// Takes note of a token that has become part of the text.
    fn accept(&mut self, _token: Token) {}

    /// Goes back to the state after construction.
    fn reset(&mut self) {}

    /// Copies the state of `source`, as `llama_sampler_copy` does. Built-ins with hooks for the
    /// graph keep their parameters.
    fn copy_state(&mut self, source: &Self) {
        if Self::IN_GRAPH != InGraph::AsBuiltIn {
            self.clone_from(source);
        }
    }

    /// Returns a copy that goes on as this one does, also where a clone begins its generator again,
    /// as the built-in's clone does.
    fn twin(&self) -> Self {
        self.clone()
    }

    /// Leaves, after `apply` of a constraint has panicked, only what is allowed, whatever state the
    /// candidates are in, and at least one candidate.
    fn salvage(&mut self, candidates: &mut Candidates<'_>) {
        for candidate in candidates.as_mut_slice() {
            candidate.logit = f32::NEG_INFINITY;
        }
    }

    /// Returns the part that others may use while the sampler itself is at work, perhaps on another
    /// thread.
    fn shared(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// The built-in that does from here on what this sampler would do, if it has
    /// [`InGraph::AsBuiltIn`].
    fn built_in(&self) -> Option<BuiltIn> {
        None
    }

    /// Tells the numbers that a trace asks for.
    fn tell(&self, _about: About, _to: Tell<'_>) {}

    /// Names in words what a constraint lets through next; `None` where it does not know, or lets
    /// everything through.
    fn expected(&self) -> Option<String> {
        None
    }

    /// The seed of the stream in use, of the samplers whose built-in counterpart tells it.
    fn seed(&self) -> Option<u32> {
        None
    }

    /// Gives `put` the bytes of what it remembers of the text, from which another one that was made
    /// alike [goes on](Self::load_memory). `None` if it remembers what is not given.
    fn save_memory(&self, _put: &mut dyn FnMut(&[u8])) -> Option<()> {
        (!Self::ACCEPTS && !Self::RESETS).then_some(())
    }

    /// Remembers what was saved. `None` if that was of another one, or is no such thing; what it
    /// remembers may then be any.
    fn load_memory(&mut self, bytes: &[u8]) -> Option<()> {
        (!Self::ACCEPTS && !Self::RESETS && bytes.is_empty()).then_some(())
    }
}

/// A sampler whose type is not known. What it does gives the buffers back to the thread.
pub(crate) trait Member: Send {
    fn kind(&self) -> Kind;
    /// True if it remembers something from token to token.
    fn remembers(&self) -> bool;
    fn narrow(&mut self, pool: &mut Pool<'_>);
    fn warm_up(&mut self, n: usize);
    fn name(&self) -> &'static CStr;
    fn tell(&self, about: About, to: Tell<'_>);
    fn expected(&self) -> Option<String>;
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

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        Sampler::narrow(self, pool);
        self.rest();
    }

    fn warm_up(&mut self, n: usize) {
        Sampler::warm_up(self, n);
        self.rest();
    }

    fn name(&self) -> &'static CStr {
        Sampler::name(self)
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        Sampler::tell(self, about, to);
    }

    fn expected(&self) -> Option<String> {
        Sampler::expected(self)
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

/// Implements `Clone` field by field, so that `clone_from` keeps the buffers: hosts copy the state
/// of one chain to another, which goes on sampling. (A derived `clone_from` replaces the whole.)
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

/// Implements `Sampler::warm_up` and `Sampler::rest` by those of each buffer.
macro_rules! scratch {
    ($($field:ident),* $(,)?) => {
        fn warm_up(&mut self, n: usize) {
            #[allow(unused_imports)] // Of a field that is a part of a sampler.
            use crate::algorithms::scratch::Room;
            $(self.$field.warm_up(n);)*
        }

        fn rest(&mut self) {
            $(self.$field.rest();)*
        }
    };
}
pub(crate) use scratch;
