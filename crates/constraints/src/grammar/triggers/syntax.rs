//! Parses a pattern into a tree.
//!
//! Except that it limits the nesting of parentheses, the parser accepts and refuses the same
//! patterns as `std::regex` of libstdc++. To this end it also counts the states that `std::regex`
//! would make, whose number is limited.

// In bounds: numbers of nodes are positions in the tree that gave them.

use crate::grammar::limits::MAX_TRIGGER_DEPTH;
use crate::grammar::triggers::byte_set::ByteSet;
use crate::grammar::triggers::scanner::{Refusal, Scanner, Sign};

/// The maximum number of states that `std::regex` makes for one pattern.
const MOST_STATES: u64 = 100_000;

/// A quantifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// `*`.
    Any,
    /// `+`.
    Some,
    /// `?`.
    Once,
    /// `{min}`, `{min,}` and `{min,min + more}`.
    Between {
        /// The minimum number of repetitions.
        min: u32,
        /// The number of further repetitions; `None` for any number.
        more: Option<u32>,
    },
}

/// Part of a pattern.
#[derive(Clone, Debug)]
pub enum Node {
    /// One byte of a set.
    Set(ByteSet),
    /// A sequence of nodes, or, without nodes, the empty text.
    Sequence(Vec<u32>),
    /// Alternatives. The first that leads to a match counts.
    Alternatives(Vec<u32>),
    /// A capturing group.
    Group {
        /// The number of the group, from 1.
        group: u32,
        /// The node inside it.
        body: u32,
    },
    /// A repetition.
    Repeat {
        /// The node that is repeated.
        body: u32,
        /// The quantifier.
        times: Times,
        /// True if the smallest number of repetitions is tried first.
        lazy: bool,
    },
    /// The beginning of the text.
    Begin,
    /// The end of the text.
    End,
    /// A word boundary, or a position that is not one.
    Word {
        /// True for a position that is not a word boundary.
        negated: bool,
    },
    /// A look-ahead.
    Look {
        /// The node that must match at this position, or must not.
        body: u32,
        /// True if `body` must not match.
        negated: bool,
    },
    /// A back reference to the group with this number.
    Backreference(u32),
}

/// A parsed pattern.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: Vec<Node>,
    facts: Vec<Facts>,
    /// The root node.
    pub root: u32,
    /// The number of groups.
    pub n_groups: u32,
}

#[derive(Clone, Copy, Debug)]
struct Facts {
    nullable: bool,
    /// The number of states that `std::regex` makes for the node.
    states: u64,
}

impl Tree {
    /// Returns the node numbered `number`.
    pub fn node(&self, number: u32) -> &Node {
        &self.nodes[number as usize]
    }

    /// True if a node can match the empty text.
    pub fn is_nullable(&self, number: u32) -> bool {
        self.facts[number as usize].nullable
    }

    fn facts(&self, number: u32) -> Facts {
        self.facts[number as usize]
    }

    /// Computes the facts of a node from those of its parts.
    fn facts_of(&self, node: &Node) -> Facts {
        let leaf = |nullable| Facts {
            nullable,
            states: 1,
        };
        let states = |parts: &[u32]| -> u64 {
            let states = parts.iter().map(|&part| self.facts(part).states);
            states.sum()
        };
        match *node {
            Node::Set(_) => leaf(false),
            Node::Begin | Node::End | Node::Word { .. } | Node::Backreference(_) => leaf(true),
            Node::Sequence(ref parts) => Facts {
                nullable: parts.iter().all(|&part| self.facts(part).nullable),
                states: states(parts) + 1,
            },
            Node::Alternatives(ref parts) => Facts {
                nullable: parts.iter().any(|&part| self.facts(part).nullable),
                states: states(parts) + 2 * (parts.len() as u64 - 1),
            },
            Node::Group { body, .. } => self.facts(body).around(2),
            Node::Look { body, .. } => Facts {
                nullable: true,
                ..self.facts(body).around(2)
            },
            Node::Repeat { body, times, .. } => self.facts(body).repeated(times),
        }
    }
}

impl Facts {
    fn around(self, states: u64) -> Self {
        Self {
            states: self.states + states,
            ..self
        }
    }

    fn repeated(self, times: Times) -> Self {
        match times {
            Times::Any => Self {
                nullable: true,
                ..self.around(1)
            },
            Times::Some => self.around(1),
            Times::Once => Self {
                nullable: true,
                ..self.around(2)
            },
            Times::Between { min, more } => {
                let (min, one) = (u64::from(min), self.states);
                let copies = one.saturating_mul(min);
                let states = match more {
                    None => copies.saturating_add(one + 2),
                    Some(more) => {
                        let more = u64::from(more).saturating_mul(one + 1);
                        copies.saturating_add(more).saturating_add(2)
                    }
                };
                Self {
                    nullable: self.nullable || min == 0,
                    states,
                }
            }
        }
    }
}

/// A group or look-ahead that has not been closed yet.
struct Open {
    kind: Kind,
    /// The complete alternatives.
    alternatives: Vec<u32>,
    /// The parts so far of the last alternative.
    parts: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Whole,
    Plain,
    Group(u32),
    Look { negated: bool },
}

struct Parser<'a> {
    scanner: Scanner<'a>,
    tree: Tree,
    open: Vec<Open>,
    /// The number of states that `std::regex` would have made so far, including unreachable ones.
    states: u64,
}

/// Reads a pattern.
pub fn parse(pattern: &[u8]) -> Result<Tree, Refusal> {
    let mut parser = Parser {
        scanner: Scanner::new(pattern),
        tree: Tree::default(),
        open: vec![Open::new(Kind::Whole)],
        // For the beginning and the end of the whole pattern, and for acceptance.
        states: 3,
    };
    parser.run()?;
    Ok(parser.tree)
}

impl Open {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            alternatives: Vec::new(),
            parts: Vec::new(),
        }
    }
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), Refusal> {
        // True if a repetition may follow the last part.
        let mut repeatable = false;
        loop {
            let sign = self.scanner.sign()?;
            let times = match sign {
                Sign::Star => Some(Times::Any),
                Sign::Plus => Some(Times::Some),
                Sign::Question => Some(Times::Once),
                Sign::Interval { min, more } => Some(Times::Between {
                    min: u32::try_from(min).unwrap_or(0),
                    more: more.map(|more| u32::try_from(more).unwrap_or(u32::MAX)),
                }),
                _ => None,
            };
            if let Some(times) = times {
                if !repeatable {
                    return self.scanner.refuse("there is nothing to repeat");
                }
                self.repeat(times)?;
                continue;
            }
            repeatable = matches!(sign, Sign::Set(_) | Sign::Backreference(_));
            match sign {
                Sign::Over => return self.end(),
                Sign::Close => repeatable = self.close()?,
                sign => self.add(sign)?,
            }
        }
    }

    fn add(&mut self, sign: Sign) -> Result<(), Refusal> {
        match sign {
            Sign::Set(set) => self.push(Node::Set(set)),
            Sign::Begin => self.push(Node::Begin),
            Sign::End => self.push(Node::End),
            Sign::Word { negated } => self.push(Node::Word { negated }),
            Sign::Backreference(number) => self.backreference(number),
            Sign::Or => self.end_alternative(),
            Sign::Group => {
                self.tree.n_groups += 1;
                self.open_group(Kind::Group(self.tree.n_groups))
            }
            Sign::Plain => self.open_group(Kind::Plain),
            Sign::Look { negated } => self.open_group(Kind::Look { negated }),
            Sign::Close
            | Sign::Star
            | Sign::Plus
            | Sign::Question
            | Sign::Interval { .. }
            | Sign::Over => Ok(()),
        }
    }

    fn open_group(&mut self, kind: Kind) -> Result<(), Refusal> {
        if self.open.len() > MAX_TRIGGER_DEPTH {
            return self.scanner.refuse("parentheses are nested too deep");
        }
        self.open.push(Open::new(kind));
        Ok(())
    }

    /// Counts states that `std::regex` would make.
    fn count(&mut self, states: u64) -> Result<(), Refusal> {
        self.states = self.states.saturating_add(states);
        if self.states > MOST_STATES {
            return self.scanner.refuse("the pattern has too many states");
        }
        Ok(())
    }

    /// Adds a node. Returns its number. The caller counts its states.
    fn node(&mut self, node: Node) -> u32 {
        let facts = self.tree.facts_of(&node);
        self.tree.nodes.push(node);
        self.tree.facts.push(facts);
        self.tree.nodes.len() as u32 - 1
    }

    fn current(&mut self) -> Result<&mut Open, Refusal> {
        let refusal = Refusal {
            at: 0,
            what: "a parenthesis closes what was not opened",
        };
        self.open.last_mut().ok_or(refusal)
    }

    fn push(&mut self, node: Node) -> Result<(), Refusal> {
        self.count(1)?;
        let number = self.node(node);
        self.current()?.parts.push(number);
        Ok(())
    }

    fn backreference(&mut self, number: i32) -> Result<(), Refusal> {
        let group = u32::try_from(number).unwrap_or(0);
        if group == 0 || group > self.tree.n_groups {
            return self.scanner.refuse("there is no group of this number yet");
        }
        if self.open.iter().any(|open| open.kind == Kind::Group(group)) {
            return self.scanner.refuse("this group is not closed yet");
        }
        self.push(Node::Backreference(group))
    }

    fn end_alternative(&mut self) -> Result<(), Refusal> {
        self.count(1)?;
        let parts = std::mem::take(&mut self.current()?.parts);
        let number = self.node(Node::Sequence(parts));
        let open = self.current()?;
        open.alternatives.push(number);
        if open.alternatives.len() > 1 {
            self.count(2)?;
        }
        Ok(())
    }

    /// Closes the innermost parenthesis. Returns its kind, and the node of its alternatives.
    fn pop(&mut self) -> Result<(Kind, u32), Refusal> {
        self.end_alternative()?;
        let Some(open) = self.open.pop() else {
            return self.scanner.refuse("a parenthesis closes nothing");
        };
        let body = match *open.alternatives {
            [only] => only,
            _ => self.node(Node::Alternatives(open.alternatives)),
        };
        Ok((open.kind, body))
    }

    /// Closes the innermost parenthesis. Returns true if it may be repeated.
    fn close(&mut self) -> Result<bool, Refusal> {
        if self.open.len() == 1 {
            return self.scanner.refuse("a parenthesis closes nothing");
        }
        let (kind, body) = self.pop()?;
        let number = match kind {
            Kind::Whole => body,
            Kind::Plain => {
                self.count(1)?;
                self.tree.facts[body as usize].states += 1;
                body
            }
            Kind::Group(group) => {
                self.count(2)?;
                self.node(Node::Group { group, body })
            }
            Kind::Look { negated } => {
                self.count(2)?;
                self.node(Node::Look { body, negated })
            }
        };
        self.current()?.parts.push(number);
        Ok(!matches!(kind, Kind::Look { .. }))
    }

    fn repeat(&mut self, times: Times) -> Result<(), Refusal> {
        let lazy = self.scanner.question();
        let Some(body) = self.current()?.parts.pop() else {
            return self.scanner.refuse("there is nothing to repeat");
        };
        let before = self.tree.facts(body).states;
        let number = self.node(Node::Repeat { body, times, lazy });
        let states = self.tree.facts(number).states;
        self.count(match times {
            // `std::regex` makes copies of the repeated part, and keeps the original.
            Times::Between { .. } => states,
            Times::Any | Times::Some | Times::Once => states - before,
        })?;
        self.current()?.parts.push(number);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Refusal> {
        if self.open.len() != 1 {
            return self.scanner.refuse("a parenthesis is not closed");
        }
        self.tree.root = self.pop()?.1;
        Ok(())
    }
}
