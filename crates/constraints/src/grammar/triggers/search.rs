//! The exact search, which finds the same match and groups as `std::regex`.
//!
//! It tries alternatives in the order of `std::regex`, with all oddities: a group keeps its match
//! from an earlier round of a repetition, a repetition makes at most two rounds at one position,
//! and the groups of a look-ahead stay set when the path through it fails. Unlike `std::regex` it
//! keeps all backtracking points in a list, not on the stack, and it fails when a [`Budget`] is
//! spent.
//!
//! If a pattern has no look-aheads, back references or empty repetitions, a long search records the
//! instructions that it begins at each position, and does not begin them there again. The number of
//! its steps is then at most proportional to the number of positions times the number of
//! instructions, unless the record reaches its maximum size. This memoization is correct because
//! the result of an instruction depends only on the position: no instruction depends on the groups,
//! and no repetition makes two rounds at one position, since a path reads a byte between two visits
//! of an instruction. For the same reason, an earlier visit has ended, and failed, before a later
//! visit begins. An instruction must be recorded when it is begun, not when it is deferred, since
//! instructions that lead to a deferred instruction may be begun before it.

// In bounds: addresses and positions come from the program and the text that are searched.

use crate::grammar::limits::MAX_TRIGGER_WAYS;
use crate::grammar::triggers::budget::{Budget, Endless};
use crate::grammar::triggers::program::{Address, Inst, NO_SET, Pattern, Program};

/// The maximum number of words that the record of visited positions may have.
const MOST_WORDS: usize = 1 << 22;
/// The number of bytes read, or of groups or words written, that count as one step.
const AT_ONCE: usize = 8;

/// The range of the text that a group has matched.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    begin: u32,
    end: u32,
    is_set: bool,
}

/// A backtracking entry: an alternative to try, or a change to undo when a path fails.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Continue at this instruction and position.
    Try { address: Address, at: u32 },
    /// Begin one more round of this repetition.
    Again { address: Address, at: u32 },
    /// Try the exits of a run, from `high` down to `low`.
    Down {
        address: Address,
        low: u32,
        high: u32,
    },
    /// Try the exits of a run, from this position up.
    Up { address: Address, at: u32 },
    /// Restore the earlier value of a group.
    Group { group: u32, was: Group },
    /// Restore the earlier value of a counter.
    Counter { counter: u32, was: (u32, u8) },
    /// The look-ahead at this address has not matched at this position. `begin` is the start of the
    /// text for the enclosing search.
    Look {
        address: Address,
        at: u32,
        begin: u32,
    },
}

/// A match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The range of the whole match, then those of the groups; `None` for a group that takes no
    /// part in the match.
    pub groups: Vec<Option<(usize, usize)>>,
}

impl Found {
    /// Returns the offset at which the grammar begins: the start of the first group that is not
    /// empty, or else of the match.
    pub fn grammar_begin(&self) -> usize {
        let mut groups = self.groups.iter().skip(1).flatten();
        let filled = groups.find(|(begin, end)| end > begin);
        let whole = self.groups.first().copied().flatten();
        filled.copied().or(whole).map_or(0, |(begin, _)| begin)
    }
}

/// Returns the offset in `text` at which the grammar begins, if the pattern is found.
pub fn find(
    program: &Program,
    pattern: &Pattern,
    text: &[u8],
    budget: &mut Budget,
) -> Result<Option<usize>, Endless> {
    let mut found = None;
    if pattern.is_whole {
        found = matched(program, pattern, text, true, budget)?;
    }
    if found.is_none() {
        found = matched(program, pattern, text, false, budget)?;
    }
    Ok(found.map(|found| found.grammar_begin()))
}

/// Returns the first match in `text`, or, if `whole`, the match of the whole text.
pub fn matched(
    program: &Program,
    pattern: &Pattern,
    text: &[u8],
    whole: bool,
    budget: &mut Budget,
) -> Result<Option<Found>, Endless> {
    let n_groups = pattern.n_groups as usize + 1;
    let n_counters = match pattern.forgets {
        true => 0,
        false => pattern.n_counters as usize,
    };
    budget.take(16 + (n_groups + n_counters) / AT_ONCE)?;
    let search = Search {
        program,
        pattern,
        text,
        begin: 0,
        follows: false,
        groups: vec![Group::default(); n_groups],
        counters: vec![(0, 0); n_counters],
        ways: Vec::new(),
        looks: Vec::new(),
        saved: Vec::new(),
        budget_before: budget.left(),
        budget,
        begun: Vec::new(),
        begun_from: 0,
    };
    search.run(whole)
}

struct Search<'a> {
    program: &'a Program,
    pattern: &'a Pattern,
    text: &'a [u8],
    /// The offset at which the text begins for `^` and `\b`. `follows` is true if anything precedes
    /// it.
    begin: usize,
    follows: bool,
    groups: Vec<Group>,
    /// For each repetition, the position at which its last round began, and the number of rounds
    /// that began there. Empty if no repetition can make two rounds at one position.
    counters: Vec<(u32, u8)>,
    ways: Vec<Way>,
    /// For each pending look-ahead, the index of its first backtracking entry.
    looks: Vec<usize>,
    /// For each pending look-ahead, the earlier values of all groups.
    saved: Vec<Group>,
    budget: &'a mut Budget,
    /// The number of steps that were left before the search.
    budget_before: usize,
    /// For each position from `begun_from` on, a bit per instruction that was begun there.
    begun: Vec<u64>,
    begun_from: usize,
}

impl Search<'_> {
    fn run(mut self, whole: bool) -> Result<Option<Found>, Endless> {
        if whole {
            let end = self.matches(0, true)?;
            return Ok(end.map(|end| self.found(0, end)));
        }
        let mut from = 0;
        while let Some(begin) = self.next_begin(from)? {
            (self.begin, self.follows) = (begin, begin > 0);
            self.tick(self.groups.len() / AT_ONCE)?;
            self.groups.fill(Group::default());
            if let Some(end) = self.matches(begin, false)? {
                return Ok(Some(self.found(begin, end)));
            }
            from = begin + 1;
        }
        Ok(None)
    }

    /// Returns the next offset at which a match may begin.
    fn next_begin(&mut self, from: usize) -> Result<Option<usize>, Endless> {
        let mut places = from..=self.text.len();
        let begin = places.find(|&at| self.may_begin(self.pattern.first, at));
        let passed = begin.unwrap_or(self.text.len()).saturating_sub(from);
        self.tick(1 + passed / AT_ONCE)?;
        Ok(begin)
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
        self.budget.take(steps)
    }

    /// True if the byte at this offset is in the set, or the set is unknown.
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

    /// Records that an instruction is begun at a position. Returns true if it was begun there
    /// before.
    fn was_begun(&mut self, address: Address, at: usize) -> Result<bool, Endless> {
        let steps = self.budget_before - self.budget.left();
        if !self.pattern.forgets || steps <= self.budget.notes_after {
            return Ok(false);
        }
        if self.begun.is_empty() {
            // Later searches begin at later offsets.
            self.begun_from = self.begin;
        }
        let local = (address - self.pattern.code.start) as usize;
        let bit = (at - self.begun_from) * self.pattern.code.len() + local;
        let place = bit / 64;
        if place >= MOST_WORDS {
            return Ok(false);
        }
        if place >= self.begun.len() {
            let n = (place + 1).max(self.begun.len() * 2).clamp(64, MOST_WORDS);
            self.tick((n - self.begun.len()) / AT_ONCE)?;
            self.begun.resize(n, 0);
        }
        let word = &mut self.begun[place];
        let was = *word >> (bit % 64) & 1 != 0;
        *word |= 1 << (bit % 64);
        Ok(was)
    }

    fn push(&mut self, way: Way) -> Result<(), Endless> {
        if self.ways.len() >= MAX_TRIGGER_WAYS {
            return Err(Endless);
        }
        self.ways.push(way);
        Ok(())
    }

    /// Returns the end of a match that begins at `begin`; if `whole`, it must be the end of the
    /// text. The matches of the groups are then in `groups`.
    fn matches(&mut self, begin: usize, whole: bool) -> Result<Option<usize>, Endless> {
        let (mut address, mut at) = (self.pattern.entry, begin);
        loop {
            self.tick(1)?;
            let next = match self.program.code[address as usize] {
                Inst::Accept { .. } if !self.looks.is_empty() => self.has_seen(),
                Inst::Accept { .. } if !whole || at == self.text.len() => {
                    self.forget_ways(0);
                    return Ok(Some(at));
                }
                Inst::Accept { .. } => None,
                inst => self.step(inst, address, at)?,
            };
            let next = match next {
                Some(next) => Some(next),
                None => self.give_up()?,
            };
            match next {
                Some(next) => (address, at) = next,
                None => return Ok(None),
            }
        }
    }

    /// Drops the backtracking entries from `base` on. Counters are restored; the matches of groups
    /// stay.
    fn forget_ways(&mut self, base: usize) {
        while self.ways.len() > base {
            if let Some(Way::Counter { counter, was }) = self.ways.pop() {
                self.counters[counter as usize] = was;
            }
        }
    }

    /// Executes an instruction. Returns the next one with its position; `None` if this path fails.
    fn step(
        &mut self,
        inst: Inst,
        address: Address,
        at: usize,
    ) -> Result<Option<(Address, usize)>, Endless> {
        let here = |next: Address| Ok(Some((next, at)));
        match inst {
            Inst::Byte { set, next } => Ok(self.has(set, at).then_some((next, at + 1))),
            Inst::Run { lazy: true, .. } => self.up(address, at as u32),
            Inst::Run { set, .. } => self.begin_run(address, set, at),
            Inst::Split { first, second } => {
                if self.was_begun(address, at)? {
                    return Ok(None);
                }
                self.push(Way::Try {
                    address: second,
                    at: at as u32,
                })?;
                here(first)
            }
            Inst::Repeat { .. } if self.was_begun(address, at)? => Ok(None),
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
            Inst::Look { body, .. } => {
                self.begin_look(address, at)?;
                here(body)
            }
            Inst::Backreference { group, next } => self.refer_back(group, next, at),
            Inst::Accept { .. } => Ok(None),
        }
    }

    fn remember(&mut self, group: u32) -> Result<(), Endless> {
        let was = self.groups[group as usize];
        self.push(Way::Group { group, was })
    }

    /// Counts a round that begins at this position. Returns true if the repetition may make it.
    fn again(&mut self, counter: u32, at: usize) -> Result<bool, Endless> {
        let Some(&was) = self.counters.get(counter as usize) else {
            return Ok(true);
        };
        let now = match was {
            (place, 1) if place == at as u32 => (place, 2),
            (place, 2) if place == at as u32 => return Ok(false),
            _ => (at as u32, 1),
        };
        self.push(Way::Counter { counter, was })?;
        self.counters[counter as usize] = now;
        Ok(true)
    }

    /// Begins a greedy run. Returns the first of its exits.
    fn begin_run(
        &mut self,
        address: Address,
        set: u32,
        at: usize,
    ) -> Result<Option<(Address, usize)>, Endless> {
        if self.was_begun(address, at)? {
            return Ok(None);
        }
        let mut high = at;
        // The run is begun at all these positions before the first of its exits is tried.
        while self.has(set, high) && !self.was_begun(address, high + 1)? {
            high += 1;
        }
        self.tick(2 * (high - at) / AT_ONCE)?;
        self.down(address, at as u32, high as u32)
    }

    fn is_border(&self, at: usize) -> bool {
        use crate::grammar::triggers::byte_set::is_word;
        let has_left = at != self.begin || self.follows;
        let left = has_left && at > 0 && is_word(self.text[at - 1]);
        let right = self.text.get(at).is_some_and(|&byte| is_word(byte));
        left != right
    }

    /// Begins a look-ahead: a separate search, for which the text begins at this position.
    fn begin_look(&mut self, address: Address, at: usize) -> Result<(), Endless> {
        self.tick(self.groups.len() / AT_ONCE)?;
        if self.saved.len() + self.groups.len() > MAX_TRIGGER_WAYS {
            return Err(Endless);
        }
        self.saved.extend_from_slice(&self.groups);
        self.looks.push(self.ways.len());
        let begin = std::mem::replace(&mut self.begin, at) as u32;
        self.push(Way::Look {
            address,
            at: at as u32,
            begin,
        })
    }

    /// Ends the innermost look-ahead, which has matched. Returns the instruction after it, if the
    /// search continues there. The matches of its groups stay.
    fn has_seen(&mut self) -> Option<(Address, usize)> {
        let base = self.looks.pop()?;
        self.forget_ways(base + 1);
        let Some(Way::Look { address, at, begin }) = self.ways.pop() else {
            return None;
        };
        self.end_look(address, at, begin, true)
    }

    /// Ends the innermost look-ahead, which has not matched. Returns the instruction after it, if
    /// the search continues there.
    fn has_not_seen(&mut self, address: Address, at: u32, begin: u32) -> Option<(Address, usize)> {
        self.looks.pop();
        let n = self.saved.len() - self.groups.len();
        self.groups.copy_from_slice(&self.saved[n..]);
        self.end_look(address, at, begin, false)
    }

    fn end_look(
        &mut self,
        address: Address,
        at: u32,
        begin: u32,
        found: bool,
    ) -> Option<(Address, usize)> {
        self.saved.truncate(self.saved.len() - self.groups.len());
        self.begin = begin as usize;
        match self.program.code[address as usize] {
            Inst::Look { negated, next, .. } if found != negated => Some((next, at as usize)),
            _ => None,
        }
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
        self.tick(said.len() / AT_ONCE)?;
        let follows = self.text[at..].starts_with(said);
        Ok(follows.then_some((next, at + said.len())))
    }

    /// Undoes all changes since the last untried alternative, and returns that alternative.
    fn give_up(&mut self) -> Result<Option<(Address, usize)>, Endless> {
        while let Some(way) = self.ways.pop() {
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
                Way::Look { address, at, begin } => {
                    if let Some(next) = self.has_not_seen(address, at, begin) {
                        return Ok(Some(next));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Returns the next exit of a run, from `high` down to `low`.
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
        self.tick((high - found.unwrap_or(low)) as usize / AT_ONCE)?;
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

    /// Returns the next exit of a lazy run. At each position the run is begun only after the
    /// earlier exits, which may lead to the same position, have failed.
    fn up(&mut self, address: Address, from: u32) -> Result<Option<(Address, usize)>, Endless> {
        let Inst::Run {
            set, exit, first, ..
        } = self.program.code[address as usize]
        else {
            return Ok(None);
        };
        let mut at = from as usize;
        let is_exit = loop {
            if self.was_begun(address, at)? {
                break false;
            }
            if self.may_begin(first, at) {
                break true;
            }
            if !self.has(set, at) {
                break false;
            }
            at += 1;
        };
        self.tick(2 * (at - from as usize) / AT_ONCE)?;
        if !is_exit {
            return Ok(None);
        }
        if self.has(set, at) {
            self.push(Way::Up {
                address,
                at: at as u32 + 1,
            })?;
        }
        Ok(Some((exit, at)))
    }
}
