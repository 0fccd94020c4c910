//! The prefixes of some texts, and a search for those that another text contains or ends with.
//!
//! This is an Aho-Corasick automaton (1975): a trie with a suffix link from each prefix to the
//! longest other prefix that is its suffix. The search takes one transition per byte, for any
//! number of texts.

use crate::memory::push;

/// The empty prefix.
pub(super) const ROOT: u32 = 0;

/// All prefixes of some texts, numbered from the shortest to the longest.
///
/// Numbers have 32 bits. More prefixes would not fit in memory.
#[derive(Debug)]
pub(super) struct Prefixes<'a> {
    texts: Vec<&'a [u8]>,
    nodes: Vec<Node>,
}

/// A prefix of one or several texts.
#[derive(Debug)]
struct Node {
    /// The last byte of the prefix.
    byte: u8,
    length: u32,
    /// The range of the texts that begin with this prefix, which include the prefix itself if it is
    /// a whole text.
    texts: (u32, u32),
    /// The range of the prefixes that are longer by one byte, in the order of that byte.
    children: (u32, u32),
    /// The longest other prefix that is a suffix of this one.
    shorter: u32,
    /// The longest whole text that is a suffix of this prefix; `ROOT` if there is none.
    whole: u32,
}

impl<'a> Prefixes<'a> {
    /// Returns the prefixes of `texts`, which are sorted, distinct and not empty.
    // In bounds: `parent` counts nodes; the texts of a node have at least its length, and those
    // after `from` are longer.
    pub(super) fn new(texts: Vec<&'a [u8]>) -> Self {
        let mut all = Self {
            nodes: Vec::new(),
            texts,
        };
        let root = Node {
            byte: 0,
            length: 0,
            texts: (0, all.texts.len() as u32),
            children: (0, 0),
            shorter: ROOT,
            whole: ROOT,
        };
        push(&mut all.nodes, root);
        let mut parent = 0;
        while parent < all.nodes.len() {
            let first = all.nodes.len() as u32;
            let length = all.nodes[parent].length;
            let (mut from, to) = all.longer_texts(parent as u32);
            while from < to {
                let byte = all.texts[from as usize][length as usize];
                let rest = &all.texts[from as usize..to as usize];
                let same = |text: &&&[u8]| text[length as usize] == byte;
                let until = from + rest.iter().take_while(same).count() as u32;
                all.add(parent as u32, byte, (from, until));
                from = until;
            }
            all.nodes[parent].children = (first, all.nodes.len() as u32);
            parent += 1;
        }
        all
    }

    /// Adds the prefix that is `parent` followed by `byte`. All shorter prefixes must have
    /// their children already.
    fn add(&mut self, parent: u32, byte: u8, texts: (u32, u32)) {
        let length = self.node(parent).length + 1;
        let shorter = match parent {
            ROOT => ROOT,
            _ => self.step(self.node(parent).shorter, byte),
        };
        // The texts are sorted, so the first one of these is the shortest.
        let is_whole = self.text(texts.0).len() == length as usize;
        let whole = match is_whole {
            true => self.nodes.len() as u32,
            false => self.node(shorter).whole,
        };
        let node = Node {
            byte,
            length,
            texts,
            children: (0, 0),
            shorter,
            whole,
        };
        push(&mut self.nodes, node);
    }

    // In bounds: numbers of prefixes were assigned here.
    fn node(&self, number: u32) -> &Node {
        &self.nodes[number as usize]
    }

    // In bounds: numbers of texts were assigned here.
    pub(super) fn text(&self, number: u32) -> &'a [u8] {
        self.texts[number as usize]
    }

    /// Returns the number of prefixes, the empty one included.
    pub(super) fn len(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Returns the length of a prefix in bytes.
    pub(super) fn length(&self, prefix: u32) -> usize {
        self.node(prefix).length as usize
    }

    /// Returns the longest other prefix that is a suffix of `prefix`. It may be the empty one.
    pub(super) fn shorter(&self, prefix: u32) -> u32 {
        self.node(prefix).shorter
    }

    /// Returns the range of the longer texts that begin with `prefix`.
    pub(super) fn longer_texts(&self, prefix: u32) -> (u32, u32) {
        let node = self.node(prefix);
        let is_whole = node.whole == prefix && prefix != ROOT;
        (node.texts.0 + u32::from(is_whole), node.texts.1)
    }

    /// Returns the longest prefix with which a text ends after `byte` was appended; `prefix` is
    /// the longest one before that.
    pub(super) fn step(&self, mut prefix: u32, byte: u8) -> u32 {
        loop {
            let node = self.node(prefix);
            let (from, to) = node.children;
            let children = &self.nodes[from as usize..to as usize];
            if let Ok(child) = children.binary_search_by_key(&byte, |child| child.byte) {
                return from + child as u32;
            }
            if prefix == ROOT {
                return ROOT;
            }
            prefix = node.shorter;
        }
    }

    /// Returns the whole texts with which `prefix` ends.
    pub(super) fn whole_texts(&self, prefix: u32) -> impl Iterator<Item = u32> {
        let known = |whole| (whole != ROOT).then_some(whole);
        let mut next = known(self.node(prefix).whole);
        std::iter::from_fn(move || {
            let whole = self.node(next?);
            next = known(self.node(whole.shorter).whole);
            Some(whole.texts.0)
        })
    }

    /// True if some suffix of `prefix` is a nonempty proper prefix of `text`.
    pub(super) fn ends_with_part_of(&self, mut prefix: u32, text: u32) -> bool {
        while prefix != ROOT {
            let (from, to) = self.longer_texts(prefix);
            if (from..to).contains(&text) {
                return true;
            }
            prefix = self.shorter(prefix);
        }
        false
    }
}
