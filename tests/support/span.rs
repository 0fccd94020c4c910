//! A constrained span as a list of sequences and the tokens so far: a naive implementation of the
//! state machine of docs/token-trie.md.

use llama_sieve::TokenData;

/// The allowed sequences of one descriptor, with their names.
pub type Leaves = Vec<(String, Vec<i32>)>;

/// The descriptors in order.
pub type Descriptors = Vec<Descriptor>;

/// One span that can be constrained.
#[derive(Clone, Debug)]
pub struct Descriptor {
    pub path: String,
    pub leaves: Leaves,
    pub terminators: Vec<i32>,
}

/// The maximum number of tokens of a value. A span that has not ended after as many is closed.
pub const LONGEST: usize = 500;

/// Returns the only descriptor of a payload, with the path "p".
pub fn one(leaves: Leaves) -> [Descriptor; 1] {
    [Descriptor {
        path: "p".to_owned(),
        leaves,
        terminators: Vec::new(),
    }]
}

/// Returns the payload of these descriptors.
pub fn json(descriptors: &[Descriptor]) -> String {
    let descriptor = |descriptor: &Descriptor| {
        let leaves = descriptor.leaves.iter();
        let leaves =
            leaves.map(|(name, tokens)| serde_json::json!({"name": name, "tokens": tokens}));
        let mut value =
            serde_json::json!({"path": descriptor.path, "leaves": leaves.collect::<Vec<_>>()});
        if !descriptor.terminators.is_empty() {
            value["terminators"] = serde_json::json!(descriptor.terminators);
        }
        value
    };
    let descriptors: Vec<_> = descriptors.iter().map(descriptor).collect();
    serde_json::json!({"modelId": "test", "descriptors": descriptors}).to_string()
}

/// The constrained values, and the position of the text in them.
#[derive(Clone, Debug)]
pub struct Span {
    /// The descriptors that have values.
    descriptors: Descriptors,
    active: usize,
    /// The tokens accepted since the span began; `None` while idle.
    prefix: Option<Vec<i32>>,
    leaf: Option<String>,
}

impl Span {
    pub fn new(descriptors: &[Descriptor]) -> Self {
        let mut descriptors = descriptors.to_vec();
        for descriptor in &mut descriptors {
            descriptor.leaves.retain(|(_, tokens)| !tokens.is_empty());
        }
        descriptors.retain(|descriptor| !descriptor.leaves.is_empty());
        Self {
            descriptors,
            active: 0,
            prefix: Some(Vec::new()),
            leaf: None,
        }
    }

    fn restart(&mut self) {
        self.prefix = Some(Vec::new());
        self.leaf = None;
    }

    /// Resets the span. With `idle` a complete span stays idle.
    pub fn reset(&mut self, idle: bool) {
        if !idle || self.is_active() || self.leaf.is_none() {
            self.restart();
        }
    }

    /// Begins the span with the path `path`. Returns false, with nothing changed, if no descriptor
    /// has that path.
    pub fn activate(&mut self, path: &str) -> bool {
        let Some(index) = self.descriptors.iter().position(|d| d.path == path) else {
            return false;
        };
        self.active = index;
        self.restart();
        true
    }

    pub fn is_active(&self) -> bool {
        self.prefix.is_some()
    }

    pub fn leaf(&self) -> Option<&str> {
        self.leaf.as_deref()
    }

    fn leaves(&self) -> &Leaves {
        &self.descriptors[self.active].leaves
    }

    /// Returns the name of the value whose tokens are `prefix`, the smallest if it has several;
    /// `None` if there is no such value.
    fn name(&self, prefix: &[i32]) -> Option<String> {
        let names = self.leaves().iter().filter(|(_, tokens)| tokens == prefix);
        names.map(|(name, _)| name.clone()).min()
    }

    /// Returns the tokens that continue `prefix`, ascending.
    fn children(&self, prefix: &[i32]) -> Vec<i32> {
        let longer = self.leaves().iter().map(|(_, tokens)| tokens);
        let longer =
            longer.filter(|tokens| tokens.len() > prefix.len() && tokens.starts_with(prefix));
        let mut children: Vec<i32> = longer.map(|tokens| tokens[prefix.len()]).collect();
        children.sort_unstable();
        children.dedup();
        children
    }

    /// Returns the tokens that continue the prefix and, if the prefix is a complete value, the
    /// descriptor's terminators, ascending; none while idle.
    pub fn following(&self) -> Vec<i32> {
        let Some(prefix) = &self.prefix else {
            return Vec::new();
        };
        let mut following = self.children(prefix);
        if self.name(prefix).is_some() {
            following.extend(&self.descriptors[self.active].terminators);
        }
        following.sort_unstable();
        following.dedup();
        following
    }

    /// Returns the tokens that `apply` allows; `None` means all. In greedy mode this may complete
    /// the span, at a value that is a prefix of others.
    pub fn allowed(&mut self, data: &[TokenData], greedy: bool) -> Option<Vec<i32>> {
        let prefix = self.prefix.clone()?;
        let children = self.children(&prefix);
        let Some(name) = self.name(&prefix) else {
            return Some(children);
        };
        if !self.descriptors[self.active].terminators.is_empty() {
            return Some(self.following());
        }
        if !greedy {
            return None;
        }
        let best = first_best(data)?;
        if children.contains(&data[best].id) {
            return Some(children);
        }
        self.leaf = Some(name);
        self.prefix = None;
        None
    }

    pub fn accept(&mut self, token: i32) {
        let Some(mut prefix) = self.prefix.take() else {
            return;
        };
        if !self.children(&prefix).contains(&token) {
            self.leaf = self.name(&prefix);
            return;
        }
        prefix.push(token);
        if self.children(&prefix).is_empty() {
            self.leaf = self.name(&prefix);
        } else if prefix.len() < LONGEST {
            self.prefix = Some(prefix);
        }
    }

    pub fn forced(&self) -> Vec<i32> {
        let Some(prefix) = &self.prefix else {
            return Vec::new();
        };
        let values = self.leaves().iter().map(|(_, tokens)| tokens);
        let values: Vec<&Vec<i32>> = values.filter(|value| value.starts_with(prefix)).collect();
        let mut run = Vec::new();
        for depth in prefix.len()..LONGEST {
            // At the end of a value, `None` stands for the choice to end.
            let next = values.iter().map(|value| value.get(depth).copied());
            let mut next: Vec<Option<i32>> = next.collect();
            next.dedup();
            let [Some(only)] = next[..] else {
                break;
            };
            run.push(only);
        }
        run
    }
}

/// Returns the index of the largest logit, the first of equals; NaN counts as minus infinity.
pub fn first_best(data: &[TokenData]) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (i, candidate) in data.iter().enumerate() {
        if best.is_none_or(|best| as_number(candidate.logit) > as_number(data[best].logit)) {
            best = Some(i);
        }
    }
    best
}

/// Returns the logit; minus infinity for NaN.
pub fn as_number(logit: f32) -> f32 {
    if logit.is_nan() {
        f32::NEG_INFINITY
    } else {
        logit
    }
}
