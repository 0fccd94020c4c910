//! Compiles the patterns of a grammar to one program.

// In bounds: addresses are positions in the program that gave them.

use llama_sieve_kernels::random::HashMap;

use crate::grammar::limits::MAX_TRIGGER_STATES;
use crate::grammar::triggers::byte_set::ByteSet;
use crate::grammar::triggers::syntax::{Node, Times, Tree};

/// The address of an instruction.
pub type Address = u32;

/// The number of an unknown set.
pub const NO_SET: u32 = u32::MAX;

/// An instruction, with the address of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inst {
    /// Matches a byte of a set.
    Byte {
        /// The set.
        set: u32,
        /// The next instruction.
        next: Address,
    },
    /// Matches any number of bytes of a set. The largest number is tried first, unless `lazy` is
    /// set.
    Run {
        /// The set.
        set: u32,
        /// The next instruction.
        exit: Address,
        /// True if the smallest number is tried first.
        lazy: bool,
        /// The set of bytes that the rest of the pattern may begin with.
        first: u32,
    },
    /// Continues with one of two instructions, tried in this order.
    Split {
        /// The instruction that is tried first.
        first: Address,
        /// The instruction that is tried second.
        second: Address,
    },
    /// Continues with `body` or with `exit`. In an endless repetition `body` leads back to this
    /// instruction. In an optional part (`?`, or the optional copies of `{m,n}`) it leads on, to
    /// the next copy or to `exit`.
    Repeat {
        /// The first instruction of the body.
        body: Address,
        /// The instruction after the last round.
        exit: Address,
        /// True if `exit` is tried first.
        lazy: bool,
        /// The number of the repetition's counter.
        counter: u32,
    },
    /// Begins a group.
    Open {
        /// The group.
        group: u32,
        /// The next instruction.
        next: Address,
    },
    /// Ends a group.
    Close {
        /// The group.
        group: u32,
        /// The next instruction.
        next: Address,
    },
    /// Matches only at the beginning of the text.
    Begin {
        /// The next instruction.
        next: Address,
    },
    /// Matches only at the end of the text.
    End {
        /// The next instruction.
        next: Address,
    },
    /// Matches only at a word boundary.
    Word {
        /// True to match everywhere except at a word boundary.
        negated: bool,
        /// The next instruction.
        next: Address,
    },
    /// Matches the empty text where `body` matches.
    Look {
        /// The look-ahead's first instruction.
        body: Address,
        /// True to match where `body` does not.
        negated: bool,
        /// The next instruction.
        next: Address,
    },
    /// Matches the bytes that a group has matched.
    Backreference {
        /// The group.
        group: u32,
        /// The next instruction.
        next: Address,
    },
    /// The end of a pattern, which has matched.
    Accept {
        /// The number of the pattern.
        pattern: u32,
    },
}

/// One pattern of a program.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The address of the pattern's first instruction.
    pub entry: Address,
    /// The addresses of the pattern's instructions.
    pub code: std::ops::Range<Address>,
    /// The number of groups.
    pub n_groups: u32,
    /// The number of counters, which are numbered from 0 in each pattern.
    pub n_counters: u32,
    /// The set of bytes that a match begins with; [`NO_SET`] if unknown.
    pub first: u32,
    /// True if the pattern begins with `^` and ends with `$`, so that it is first matched against
    /// the whole text.
    pub is_whole: bool,
    /// True if an instruction that has failed at a position always fails there again.
    pub forgets: bool,
}

/// All patterns of a grammar.
#[derive(Debug, Default)]
pub struct Program {
    /// The instructions.
    pub code: Vec<Inst>,
    /// The sets.
    pub sets: Vec<ByteSet>,
    /// The patterns.
    pub patterns: Vec<Pattern>,
}

/// The error of patterns with more instructions than are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Builds a program.
#[derive(Debug, Default)]
pub struct Writer {
    program: Program,
    numbers: HashMap<ByteSet, u32>,
    /// The number of counters of the current pattern.
    n_counters: u32,
    forgets: bool,
    /// For each instruction, the number of the last call of [`Self::first_bytes`] that visited it.
    seen: Vec<u32>,
    n_calls: u32,
    n_looked_at: usize,
}

/// A part of a pattern that is still to be written. Parts are written from the last to the first.
enum Task {
    /// A node.
    Node(u32),
    /// The beginning of a group.
    Open { group: u32 },
    /// A look-ahead, whose body has just been written.
    Look { negated: bool, next: Address },
    /// One more alternative, which continues at `next`.
    Alternative { next: Address },
    /// A choice of two alternatives. The first has just been written.
    Split,
    /// A repetition whose body, which may be missing, has just been written.
    Repeat { exit: Address, lazy: bool },
    /// The end of the repetition at `repeat`, whose body has just been written. `enters` is true if
    /// the repetition begins with the body.
    Loop { repeat: Address, enters: bool },
    /// `left` more copies of a body. Each is optional, together with the copies after it.
    Optional {
        body: u32,
        left: u32,
        lazy: bool,
        exit: Address,
    },
    /// `left` more copies of a body. `before` is the address that was first before the last copy
    /// was written.
    Copies {
        body: u32,
        left: u32,
        before: Option<Address>,
    },
}

/// The maximum number of instructions that are visited in all to find the bytes that parts can
/// begin with.
const MOST_LOOKED_AT: usize = 1 << 19;

impl Writer {
    /// Adds a pattern, given by its text and the tree that was parsed from it.
    pub fn add(&mut self, text: &[u8], tree: &Tree) -> Result<(), TooLarge> {
        self.n_counters = 0;
        self.forgets = true;
        let begin = self.program.code.len() as Address;
        let pattern = self.program.patterns.len() as u32;
        let accept = self.emit(Inst::Accept { pattern })?;
        let entry = self.tree(tree, accept)?;
        let end = self.program.code.len() as Address;
        for address in begin..end {
            self.note_what_follows(address);
        }
        let first = self.first_bytes(entry);
        let first = self.number_of(first);
        self.program.patterns.push(Pattern {
            entry,
            code: begin..end,
            n_groups: tree.n_groups,
            n_counters: self.n_counters,
            first,
            is_whole: text.first() == Some(&b'^') && text.last() == Some(&b'$'),
            forgets: self.forgets,
        });
        Ok(())
    }

    /// Returns the program.
    pub fn finish(self) -> Program {
        let mut program = self.program;
        program.code.shrink_to_fit();
        program.sets.shrink_to_fit();
        program.patterns.shrink_to_fit();
        program
    }

    fn emit(&mut self, inst: Inst) -> Result<Address, TooLarge> {
        if self.program.code.len() >= MAX_TRIGGER_STATES {
            return Err(TooLarge);
        }
        self.program.code.push(inst);
        Ok(self.program.code.len() as Address - 1)
    }

    fn set(&mut self, set: ByteSet) -> u32 {
        let sets = &mut self.program.sets;
        *self.numbers.entry(set).or_insert_with(|| {
            sets.push(set);
            sets.len() as u32 - 1
        })
    }

    fn number_of(&mut self, set: Option<ByteSet>) -> u32 {
        set.map_or(NO_SET, |set| self.set(set))
    }

    /// Writes a tree that continues at `next`. Returns its address. The function is not recursive,
    /// since a pattern may be nested deeper than a small stack allows.
    fn tree(&mut self, tree: &Tree, next: Address) -> Result<Address, TooLarge> {
        let mut tasks = vec![Task::Node(tree.root)];
        // The addresses of alternatives after the current one.
        let mut others = Vec::new();
        let mut at = next;
        while let Some(task) = tasks.pop() {
            at = match task {
                Task::Node(number) => self.node(tree, number, at, &mut tasks)?,
                Task::Open { group } => self.emit(Inst::Open { group, next: at })?,
                Task::Look { negated, next } => self.emit(Inst::Look {
                    body: at,
                    negated,
                    next,
                })?,
                Task::Alternative { next } => {
                    others.push(at);
                    next
                }
                Task::Split => match others.pop() {
                    Some(second) => self.emit(Inst::Split { first: at, second })?,
                    None => at,
                },
                Task::Repeat { exit, lazy } => {
                    let counter = self.counter();
                    self.emit(Inst::Repeat {
                        body: at,
                        exit,
                        lazy,
                        counter,
                    })?
                }
                Task::Loop { repeat, enters } => {
                    if let Inst::Repeat { body, .. } = &mut self.program.code[repeat as usize] {
                        *body = at;
                    }
                    if enters { at } else { repeat }
                }
                Task::Optional {
                    body,
                    left,
                    lazy,
                    exit,
                } => {
                    if left > 0 {
                        tasks.push(Task::Optional {
                            body,
                            left: left - 1,
                            lazy,
                            exit,
                        });
                        tasks.push(Task::Repeat { exit, lazy });
                        tasks.push(Task::Node(body));
                    }
                    at
                }
                Task::Copies { body, left, before } => {
                    // A body without code has none however often it is repeated.
                    if left > 0 && before != Some(at) {
                        tasks.push(Task::Copies {
                            body,
                            left: left - 1,
                            before: Some(at),
                        });
                        tasks.push(Task::Node(body));
                    }
                    at
                }
            };
        }
        Ok(at)
    }

    /// Writes a node, or adds its parts to the pending ones, so that the last is written first.
    /// Returns the address that is now first.
    fn node(
        &mut self,
        tree: &Tree,
        number: u32,
        next: Address,
        tasks: &mut Vec<Task>,
    ) -> Result<Address, TooLarge> {
        match *tree.node(number) {
            Node::Set(set) => {
                let set = self.set(set);
                self.emit(Inst::Byte { set, next })
            }
            Node::Sequence(ref parts) => {
                tasks.extend(parts.iter().map(|&part| Task::Node(part)));
                Ok(next)
            }
            Node::Alternatives(ref parts) => {
                for (i, &part) in parts.iter().enumerate() {
                    if i + 1 < parts.len() {
                        tasks.push(Task::Split);
                        tasks.push(Task::Node(part));
                        tasks.push(Task::Alternative { next });
                    } else {
                        tasks.push(Task::Node(part));
                    }
                }
                Ok(next)
            }
            Node::Group { group, body } => {
                tasks.extend([Task::Open { group }, Task::Node(body)]);
                self.emit(Inst::Close { group, next })
            }
            Node::Begin => self.emit(Inst::Begin { next }),
            Node::End => self.emit(Inst::End { next }),
            Node::Word { negated } => self.emit(Inst::Word { negated, next }),
            Node::Backreference(group) => {
                self.forgets = false;
                self.emit(Inst::Backreference { group, next })
            }
            Node::Look { body, negated } => {
                self.forgets = false;
                tasks.extend([Task::Look { negated, next }, Task::Node(body)]);
                self.emit(Inst::Accept { pattern: 0 })
            }
            Node::Repeat { body, times, lazy } => {
                let exit = next;
                match times {
                    Times::Any => self.endless(tree, body, lazy, exit, false, tasks),
                    Times::Some => self.endless(tree, body, lazy, exit, true, tasks),
                    Times::Once => {
                        tasks.extend([Task::Repeat { exit, lazy }, Task::Node(body)]);
                        Ok(next)
                    }
                    Times::Between { min, more } => {
                        tasks.push(Task::Copies {
                            body,
                            left: min,
                            before: None,
                        });
                        let Some(left) = more else {
                            return self.endless(tree, body, lazy, exit, false, tasks);
                        };
                        tasks.push(Task::Optional {
                            body,
                            left,
                            lazy,
                            exit,
                        });
                        Ok(next)
                    }
                }
            }
        }
    }

    /// Writes `body`, repeated any number of times. If `enters` is set, the repetition begins with
    /// one round; otherwise with the choice to skip it.
    fn endless(
        &mut self,
        tree: &Tree,
        body: u32,
        lazy: bool,
        exit: Address,
        enters: bool,
        tasks: &mut Vec<Task>,
    ) -> Result<Address, TooLarge> {
        if let Some(set) = single(tree, body) {
            if enters {
                tasks.push(Task::Node(body));
            }
            let set = self.set(set);
            return self.emit(Inst::Run {
                set,
                exit,
                lazy,
                first: NO_SET,
            });
        }
        if tree.is_nullable(body) {
            self.forgets = false;
        }
        let counter = self.counter();
        let repeat = self.emit(Inst::Repeat {
            body: 0,
            exit,
            lazy,
            counter,
        })?;
        tasks.extend([Task::Loop { repeat, enters }, Task::Node(body)]);
        Ok(repeat)
    }

    fn counter(&mut self) -> u32 {
        self.n_counters += 1;
        self.n_counters - 1
    }

    fn note_what_follows(&mut self, address: Address) {
        let Inst::Run {
            set, exit, lazy, ..
        } = self.program.code[address as usize]
        else {
            return;
        };
        let first = self.first_bytes(exit);
        let first = self.number_of(first);
        self.program.code[address as usize] = Inst::Run {
            set,
            exit,
            lazy,
            first,
        };
    }

    /// Returns the bytes with which a match may continue from an instruction; `None` if the match
    /// may end there, if a look-ahead or a back reference may come first, or if too many
    /// instructions would have to be visited.
    fn first_bytes(&mut self, from: Address) -> Option<ByteSet> {
        self.seen.resize(self.program.code.len(), 0);
        self.n_calls += 1;
        let mut set = ByteSet::default();
        let mut open = vec![from];
        while let Some(address) = open.pop() {
            if std::mem::replace(&mut self.seen[address as usize], self.n_calls) == self.n_calls {
                continue;
            }
            self.n_looked_at += 1;
            if self.n_looked_at > MOST_LOOKED_AT {
                return None;
            }
            match self.program.code[address as usize] {
                Inst::Byte { set: number, .. } => set.add_all(&self.program.sets[number as usize]),
                Inst::Run {
                    set: number, exit, ..
                } => {
                    set.add_all(&self.program.sets[number as usize]);
                    open.push(exit);
                }
                Inst::Split { first, second } => open.extend([first, second]),
                Inst::Repeat { body, exit, .. } => open.extend([body, exit]),
                Inst::Open { next, .. }
                | Inst::Close { next, .. }
                | Inst::Begin { next }
                | Inst::End { next }
                | Inst::Word { next, .. } => open.push(next),
                // A look-ahead sets groups even if nothing can follow it.
                Inst::Look { .. } | Inst::Backreference { .. } | Inst::Accept { .. } => {
                    return None;
                }
            }
        }
        Some(set)
    }
}

/// Returns the set of a node that matches a single byte, perhaps in non-capturing parentheses.
fn single(tree: &Tree, mut number: u32) -> Option<ByteSet> {
    loop {
        match *tree.node(number) {
            Node::Set(set) => return Some(set),
            Node::Sequence(ref parts) => match **parts {
                [only] => number = only,
                _ => return None,
            },
            _ => return None,
        }
    }
}
