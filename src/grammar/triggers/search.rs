//! The exact search: what `std::regex` finds, and which groups it remembers.
//!
//! It goes through the possibilities in `std::regex`'s order, oddities included: a group keeps what
//! an earlier round of a repetition has matched, a repetition goes around twice at one place and no
//! more, and what a look-ahead remembers stays when the way that asked for it is given up. Unlike
//! `std::regex` it keeps its ways in a list, not on the stack, and gives up after so many steps.
//! Where a pattern has neither look-ahead nor back reference nor empty repetitions, a place that
//! led nowhere once is not tried again, so that steps are at most places times instructions.

#![expect(
    clippy::indexing_slicing,
    reason = "addresses and positions come from the program and the text that are searched"
)]

use crate::grammar::limits::{MAX_TRIGGER_STEPS, MAX_TRIGGER_WAYS};
use crate::grammar::triggers::program::{Address, Inst, NO_SET, Pattern, Program};

/// The search takes more steps than are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endless;

/// After so many steps it is noted which places were tried.
const FORGETFUL: usize = 1 << 16;
/// The most bits for that.
const MOST_BITS: usize = 1 << 29;

/// What a group has matched.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    begin: u32,
    end: u32,
    is_set: bool,
}

/// What is to be tried, and what is to be undone, when a way is given up.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Go on here.
    Try { address: Address, at: u32 },
    /// Go around once more.
    Again { address: Address, at: u32 },
    /// The exits of a run from `high` down to `low`.
    Down {
        address: Address,
        low: u32,
        high: u32,
    },
    /// The exits of a run from here up.
    Up { address: Address, at: u32 },
    /// A group as it was.
    Group { group: u32, was: Group },
    /// A counter as it was.
    Counter { counter: u32, was: (u32, u8) },
}

/// A match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The whole, then the groups; `None` of one that takes no part.
    pub groups: Vec<Option<(usize, usize)>>,
}

impl Found {
    /// Where the grammar begins: at the first group that is not empty, or else with the match.
    pub fn grammar_begin(&self) -> usize {
        let mut groups = self.groups.iter().skip(1).flatten();
        let filled = groups.find(|(begin, end)| end > begin);
        let whole = self.groups.first().copied().flatten();
        filled.copied().or(whole).map_or(0, |(begin, _)| begin)
    }
}

/// Where the grammar begins in `text`, if the pattern is found in it.
pub fn find(program: &Program, pattern: &Pattern, text: &[u8]) -> Result<Option<usize>, Endless> {
    let mut found = None;
    if pattern.is_whole {
        found = matched(program, pattern, text, true, MAX_TRIGGER_STEPS)?;
    }
    if found.is_none() {
        found = matched(program, pattern, text, false, MAX_TRIGGER_STEPS)?;
    }
    Ok(found.map(|found| found.grammar_begin()))
}

/// The first match in `text`, or that of the whole of it, with no more than so many steps.
pub fn matched(
    program: &Program,
    pattern: &Pattern,
    text: &[u8],
    whole: bool,
    steps: usize,
) -> Result<Option<Found>, Endless> {
    let mut search = Search::new(program, pattern, text);
    search.steps = steps;
    if !pattern.forgets {
        return search.run(whole);
    }
    search.steps = steps.min(FORGETFUL);
    if let Ok(found) = search.run(whole) {
        return Ok(found);
    }
    search = Search::new(program, pattern, text);
    search.steps = steps;
    let bits = pattern.code.len().saturating_mul(text.len() + 1);
    if bits <= MOST_BITS {
        search.tried = vec![0; bits.div_ceil(64)];
    }
    search.run(whole)
}

struct Search<'a> {
    program: &'a Program,
    pattern: &'a Pattern,
    text: &'a [u8],
    /// Where the text begins for `^` and `\b`, and whether there is something before it.
    begin: usize,
    follows: bool,
    groups: Vec<Group>,
    /// Where each repetition went around last, and how often there.
    counters: Vec<(u32, u8)>,
    ways: Vec<Way>,
    steps: usize,
    /// A bit per instruction and place, or none.
    tried: Vec<u64>,
}

impl<'a> Search<'a> {
    fn new(program: &'a Program, pattern: &'a Pattern, text: &'a [u8]) -> Self {
        Self {
            program,
            pattern,
            text,
            begin: 0,
            follows: false,
            groups: vec![Group::default(); pattern.n_groups as usize + 1],
            counters: vec![(0, 0); pattern.n_counters as usize],
            ways: Vec::new(),
            steps: 0,
            tried: Vec::new(),
        }
    }

    fn run(&mut self, whole: bool) -> Result<Option<Found>, Endless> {
        if whole {
            let end = self.matches(self.pattern.entry, 0, true)?;
            return Ok(end.map(|end| self.found(0, end)));
        }
        for begin in 0..=self.text.len() {
            self.tick(1)?;
            if !self.may_begin(self.pattern.first, begin) {
                continue;
            }
            (self.begin, self.follows) = (begin, begin > 0);
            self.tick(self.groups.len() / 8)?;
            self.groups.fill(Group::default());
            if let Some(end) = self.matches(self.pattern.entry, begin, false)? {
                return Ok(Some(self.found(begin, end)));
            }
        }
        Ok(None)
    }

    fn found(&self, begin: usize, end: usize) -> Found {
        let span = |group: &Group| {
            let span = (group.begin as usize, group.end as usize);
            group.is_set.then_some(span)
        };
        let groups = self.groups.iter().skip(1).map(span);
        Found {
            groups: std::iter::once(Some((begin, end))).chain(groups).collect(),
        }
    }

    fn tick(&mut self, steps: usize) -> Result<(), Endless> {
        self.steps = self.steps.checked_sub(steps).ok_or(Endless)?;
        Ok(())
    }

    /// Whether the byte at this place, if there is one, is in the set, if that is known.
    fn may_begin(&self, set: u32, at: usize) -> bool {
        set == NO_SET
            || self
                .text
                .get(at)
                .is_some_and(|&byte| self.program.sets[set as usize].has(byte))
    }

    fn has(&self, set: u32, at: usize) -> bool {
        let byte = self.text.get(at);
        byte.is_some_and(|&byte| self.program.sets[set as usize].has(byte))
    }

    /// Whether this instruction was tried at this place before; from now on it was.
    fn was_tried(&mut self, address: Address, at: usize) -> bool {
        if self.tried.is_empty() {
            return false;
        }
        let local = (address - self.pattern.code.start) as usize;
        let bit = local * (self.text.len() + 1) + at;
        let word = &mut self.tried[bit / 64];
        let was = *word >> (bit % 64) & 1 != 0;
        *word |= 1 << (bit % 64);
        was
    }

    fn push(&mut self, way: Way) -> Result<(), Endless> {
        if self.ways.len() >= MAX_TRIGGER_WAYS {
            return Err(Endless);
        }
        self.ways.push(way);
        Ok(())
    }

    /// Where a match from here ends: with the text, if it is to be whole. What the groups have
    /// matched is then in `groups`.
    fn matches(
        &mut self,
        entry: Address,
        at: usize,
        whole: bool,
    ) -> Result<Option<usize>, Endless> {
        let base = self.ways.len();
        let (mut address, mut at) = (entry, at);
        loop {
            self.tick(1)?;
            if let Inst::Accept { .. } = self.program.code[address as usize]
                && (!whole || at == self.text.len())
            {
                self.forget_ways(base);
                return Ok(Some(at));
            }
            let (next, next_at) = match self.step(address, at)? {
                Some(next) => next,
                None => match self.give_up(base)? {
                    Some(next) => next,
                    None => return Ok(None),
                },
            };
            (address, at) = (next, next_at);
        }
    }

    /// Counters go back to what they were; what the groups have matched stays.
    fn forget_ways(&mut self, base: usize) {
        while self.ways.len() > base {
            if let Some(Way::Counter { counter, was }) = self.ways.pop() {
                self.counters[counter as usize] = was;
            }
        }
    }

    /// Where to go on behind an instruction; `None` if this way leads nowhere.
    fn step(&mut self, address: Address, at: usize) -> Result<Option<(Address, usize)>, Endless> {
        let here = |next: Address| Ok(Some((next, at)));
        match self.program.code[address as usize] {
            Inst::Byte { set, next } => Ok(self.has(set, at).then_some((next, at + 1))),
            Inst::Run { set, lazy, .. } => self.begin_run(address, set, lazy, at),
            Inst::Split { first, second } => {
                if self.was_tried(address, at) {
                    return Ok(None);
                }
                self.push(Way::Try {
                    address: second,
                    at: at as u32,
                })?;
                here(first)
            }
            Inst::Repeat { .. } if self.was_tried(address, at) => Ok(None),
            Inst::Repeat { exit, lazy, .. } if lazy => {
                self.push(Way::Again {
                    address,
                    at: at as u32,
                })?;
                here(exit)
            }
            Inst::Repeat {
                body,
                exit,
                counter,
                ..
            } => {
                self.push(Way::Try {
                    address: exit,
                    at: at as u32,
                })?;
                Ok(self.again(counter, at)?.then_some((body, at)))
            }
            Inst::Open { group, next } => {
                self.remember(group)?;
                self.groups[group as usize].begin = at as u32;
                here(next)
            }
            Inst::Close { group, next } => {
                self.remember(group)?;
                let group = &mut self.groups[group as usize];
                (group.end, group.is_set) = (at as u32, true);
                here(next)
            }
            Inst::Begin { next } => Ok((at == self.begin && !self.follows).then_some((next, at))),
            Inst::End { next } => Ok((at == self.text.len()).then_some((next, at))),
            Inst::Word { negated, next } => {
                Ok((self.is_border(at) != negated).then_some((next, at)))
            }
            Inst::Look {
                body,
                negated,
                next,
            } => Ok((self.looks(body, at)? != negated).then_some((next, at))),
            Inst::Backreference { group, next } => self.refer_back(group, next, at),
            Inst::Accept { .. } => Ok(None),
        }
    }

    fn remember(&mut self, group: u32) -> Result<(), Endless> {
        let was = self.groups[group as usize];
        self.push(Way::Group { group, was })
    }

    /// Whether a repetition may go around at this place; takes note that it does.
    fn again(&mut self, counter: u32, at: usize) -> Result<bool, Endless> {
        let was = self.counters[counter as usize];
        let now = match was {
            (place, 1) if place == at as u32 => (place, 2),
            (place, 2) if place == at as u32 => return Ok(false),
            _ => (at as u32, 1),
        };
        self.push(Way::Counter { counter, was })?;
        self.counters[counter as usize] = now;
        Ok(true)
    }

    /// All exits of a run are tried by giving up.
    fn begin_run(
        &mut self,
        address: Address,
        set: u32,
        lazy: bool,
        at: usize,
    ) -> Result<Option<(Address, usize)>, Endless> {
        if self.was_tried(address, at) {
            return Ok(None);
        }
        let low = at as u32;
        if lazy {
            self.push(Way::Up { address, at: low })?;
            return Ok(None);
        }
        let mut high = at;
        while self.has(set, high) && !self.was_tried(address, high + 1) {
            high += 1;
        }
        self.tick((high - at) / 16)?;
        self.push(Way::Down {
            address,
            low,
            high: high as u32,
        })?;
        Ok(None)
    }

    fn is_border(&self, at: usize) -> bool {
        use crate::grammar::triggers::byte_set::is_word;
        let has_left = at != self.begin || self.follows;
        let left = has_left && at > 0 && is_word(self.text[at - 1]);
        let right = self.text.get(at).is_some_and(|&byte| is_word(byte));
        left != right
    }

    /// A look-ahead is a search of its own, for which the text begins here.
    fn looks(&mut self, body: Address, at: usize) -> Result<bool, Endless> {
        self.tick(self.groups.len() / 8)?;
        let groups = self.groups.clone();
        let begin = std::mem::replace(&mut self.begin, at);
        let found = self.matches(body, at, false)?.is_some();
        self.begin = begin;
        if !found {
            self.groups = groups;
        }
        Ok(found)
    }

    fn refer_back(
        &mut self,
        group: u32,
        next: Address,
        at: usize,
    ) -> Result<Option<(Address, usize)>, Endless> {
        let group = self.groups[group as usize];
        if !group.is_set {
            return Ok(None);
        }
        let said = self.text.get(group.begin as usize..group.end as usize);
        let said = said.unwrap_or_default();
        self.tick(said.len() / 16)?;
        let follows = self.text[at..].starts_with(said);
        Ok(follows.then_some((next, at + said.len())))
    }

    /// The next way to try, with everything undone that was done behind it.
    fn give_up(&mut self, base: usize) -> Result<Option<(Address, usize)>, Endless> {
        while self.ways.len() > base {
            let Some(way) = self.ways.pop() else {
                break;
            };
            self.tick(1)?;
            match way {
                Way::Try { address, at } => return Ok(Some((address, at as usize))),
                Way::Again { address, at } => {
                    if let Inst::Repeat { body, counter, .. } = self.program.code[address as usize]
                        && self.again(counter, at as usize)?
                    {
                        return Ok(Some((body, at as usize)));
                    }
                }
                Way::Down { address, low, high } => {
                    if let Some(next) = self.down(address, low, high)? {
                        return Ok(Some(next));
                    }
                }
                Way::Up { address, at } => {
                    if let Some(next) = self.up(address, at)? {
                        return Ok(Some(next));
                    }
                }
                Way::Group { group, was } => self.groups[group as usize] = was,
                Way::Counter { counter, was } => self.counters[counter as usize] = was,
            }
        }
        Ok(None)
    }

    fn down(
        &mut self,
        address: Address,
        low: u32,
        high: u32,
    ) -> Result<Option<(Address, usize)>, Endless> {
        let Inst::Run { exit, first, .. } = self.program.code[address as usize] else {
            return Ok(None);
        };
        let mut places = (low..=high).rev();
        let found = places.find(|&at| self.may_begin(first, at as usize));
        self.tick((high - found.unwrap_or(low)) as usize / 16)?;
        let Some(at) = found else {
            return Ok(None);
        };
        if at > low {
            self.push(Way::Down {
                address,
                low,
                high: at - 1,
            })?;
        }
        Ok(Some((exit, at as usize)))
    }

    fn up(&mut self, address: Address, from: u32) -> Result<Option<(Address, usize)>, Endless> {
        let Inst::Run {
            set, exit, first, ..
        } = self.program.code[address as usize]
        else {
            return Ok(None);
        };
        let mut at = from as usize;
        let found = loop {
            if self.may_begin(first, at) {
                break true;
            }
            if !self.has(set, at) || self.was_tried(address, at + 1) {
                break false;
            }
            at += 1;
        };
        self.tick((at - from as usize) / 16)?;
        if !found {
            return Ok(None);
        }
        if self.has(set, at) && !self.was_tried(address, at + 1) {
            self.push(Way::Up {
                address,
                at: at as u32 + 1,
            })?;
        }
        Ok(Some((exit, at)))
    }
}
