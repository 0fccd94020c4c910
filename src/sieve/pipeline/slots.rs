//! The caller's samplers as stages of a sieve.

use std::ffi::CStr;
use std::fmt;

use super::stage::{MAX_SAMPLERS, SAMPLER};
use crate::sampler::Member;

/// The samplers, by slot.
#[derive(Default)]
pub(in crate::sieve) struct Slots([Option<Box<dyn Member>>; MAX_SAMPLERS]);

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|s| s.as_ref().map(|s| s.name()));
        f.debug_list().entries(names).finish()
    }
}

impl Clone for Slots {
    /// Returns slots whose samplers continue as the originals would.
    fn clone(&self) -> Self {
        let twin = |sampler: &Option<Box<dyn Member>>| sampler.as_ref().map(|s| s.twin());
        Self(self.0.each_ref().map(twin))
    }
}

impl Slots {
    /// Puts a sampler into a slot, replacing any other. Does nothing if there is no such slot.
    pub(in crate::sieve) fn put(&mut self, slot: usize, sampler: Option<Box<dyn Member>>) {
        if let Some(place) = self.0.get_mut(slot) {
            *place = sampler;
        }
    }

    /// Returns the sampler in a slot.
    pub(super) fn get(&mut self, slot: u8) -> Option<&mut (dyn Member + 'static)> {
        self.0.get_mut(usize::from(slot))?.as_deref_mut()
    }

    /// Calls `body` on each sampler.
    pub(super) fn each(&mut self, body: impl FnMut(&mut Box<dyn Member>)) {
        self.0.iter_mut().flatten().for_each(body);
    }

    /// Returns the samplers with a memory, each with the number of its stage.
    pub(super) fn that_remember(&self) -> impl Iterator<Item = (u32, &dyn Member)> {
        let all = (SAMPLER..).zip(&self.0);
        let there = all.filter_map(|(number, s)| Some((number, s.as_deref()?)));
        there.filter(|(_, sampler)| sampler.remembers())
    }

    /// Returns the samplers with a memory as mutable references, in the same order.
    pub(super) fn that_remember_mut(
        &mut self,
    ) -> impl Iterator<Item = (u32, &mut Box<dyn Member>)> {
        let all = (SAMPLER..).zip(&mut self.0);
        let there = all.filter_map(|(number, s)| Some((number, s.as_mut()?)));
        there.filter(|(_, sampler)| sampler.remembers())
    }

    /// Returns the name of a sampler whose memory cannot be saved, if there is one.
    pub(in crate::sieve) fn unsaved(&self) -> Option<&'static CStr> {
        let mut samplers = self.that_remember();
        let unsaved = samplers.find(|(_, sampler)| sampler.save_memory(&mut |_| {}).is_none());
        unsaved.map(|(_, sampler)| sampler.name())
    }
}
