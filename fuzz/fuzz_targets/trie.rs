//! The token trie against a naive model. Input that begins with a byte 0 encodes sequences and
//! actions; any other input is given to the parser as a payload.
#![no_main]

use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llama_sieve::trie::descriptor::{Descriptor, Leaf};
use llama_sieve::trie::sampler::Mode;
use llama_sieve::trie::{Payload, Slot, Trie, TrieSampler, cache};
use llama_sieve::{Candidates, Sampler, TokenData};
use llama_sieve_fuzz::logits::Logit;
use llama_sieve_fuzz::payload::{Verdict, judge};
use llama_sieve_fuzz::span::{
    Descriptor as Rules, Descriptors, LONGEST, Span, as_number, first_best,
};

fuzz_target!(init: llama_sieve_fuzz::silence(), |data: &[u8]| {
    if let Some((0, script)) = data.split_first().map(|(&first, rest)| (first, rest)) {
        let Ok(script) = Script::arbitrary(&mut Unstructured::new(script)) else {
            return;
        };
        script.run();
        return;
    }
    for n_vocab in [None, Some(300)] {
        raw(data, n_vocab);
    }
});

/// Checks that the parser accepts exactly the payloads that the rules allow, and that the trie
/// contains their values.
fn raw(json: &[u8], n_vocab: Option<usize>) {
    let parsed = Payload::parse(json, n_vocab);
    let descriptors = match (judge(json, n_vocab), &parsed) {
        (Verdict::Accepted(descriptors), Ok(_)) => descriptors,
        (Verdict::Refused(_), Err(_)) | (Verdict::Unclear, _) => return,
        (verdict, parsed) => panic!("{verdict:?}, but {parsed:?}"),
    };
    let payload = parsed.expect("the match says so");
    let trie = Arc::new(Trie::new(&payload));
    // The cache must return the same trie, whether or not it has it already.
    let cached = cache::trie_of(json, n_vocab).expect("it was parsed before");
    assert_eq!(trie.n_nodes(), cached.n_nodes());
    assert_eq!(trie.max_token(), cached.max_token());
    walk_all(&trie, &descriptors);
    apply_to_few(trie);
}

/// Checks that the memory for a small array does not depend on the size of the token ids.
fn apply_to_few(trie: Arc<Trie>) {
    let slot = Arc::new(Slot::new(None));
    let root = trie.first_root();
    let mut children = trie.children(root).to_vec();
    let mode = Mode::from_number(1).expect("a mode");
    slot.set(Arc::clone(&trie), mode);
    let mut data = [5, 4, 3, 2].map(|id| TokenData::new(id, 1.0));
    let mut candidates = Candidates::new(&mut data, false);
    TrieSampler::new(slot).apply(&mut candidates);
    if children.iter().any(|child| (2..=5).contains(child)) {
        children.retain(|child| (2..=5).contains(child));
    }
    let left = candidates.as_slice().iter();
    let left = left.filter(|c| c.logit > f32::NEG_INFINITY);
    let mut left: Vec<i32> = left.map(|c| c.id).collect();
    left.sort_unstable();
    children.truncate(4);
    assert_eq!(left, children);
}

/// Checks that the trie contains every value and nothing else.
fn walk_all(trie: &Arc<Trie>, descriptors: &Descriptors) {
    let mut nodes = 0;
    let mut paths = Vec::new();
    for descriptor in descriptors {
        let mut values: Vec<&[i32]> = descriptor
            .leaves
            .iter()
            .map(|(_, tokens)| &tokens[..])
            .collect();
        values.retain(|tokens| !tokens.is_empty());
        values.sort();
        if values.is_empty() {
            continue;
        }
        paths.push(descriptor.path.as_str());
        // Nodes are the root, and for each sequence the tokens after its common beginning with the
        // one before.
        nodes += 1 + values[0].len();
        for pair in values.windows(2) {
            let common = pair[0].iter().zip(pair[1]).take_while(|(a, b)| a == b);
            nodes += pair[1].len() - common.count();
        }
    }
    assert!(trie.paths().eq(paths.iter().copied()));
    assert_eq!(trie.n_nodes(), nodes);
    for descriptor in descriptors {
        // Of two descriptors with the same path, only the first can be activated.
        let has_values = |d: &Rules| d.leaves.iter().any(|(_, tokens)| !tokens.is_empty());
        let first = descriptors
            .iter()
            .find(|d| d.path == descriptor.path && has_values(d));
        if first.is_none_or(|first| !std::ptr::eq(first, descriptor)) {
            continue;
        }
        let root = trie.root(&descriptor.path);
        let root = root.expect("the descriptor has values");
        let terminators = trie.terminators(root);
        assert!(terminators.is_sorted_by(|a, b| a < b));
        let of_rules = &descriptor.terminators;
        assert!(of_rules.iter().all(|token| terminators.contains(token)));
        assert!(terminators.iter().all(|token| of_rules.contains(token)));
        for (name, tokens) in descriptor
            .leaves
            .iter()
            .filter(|(_, tokens)| !tokens.is_empty())
        {
            let mut node = root;
            for &token in tokens {
                assert!(trie.children(node).is_sorted_by(|a, b| a < b));
                node = trie.child(node, token).expect("a prefix of a value");
            }
            let known = trie.name(node).expect("a value ends here");
            assert!(known <= name.as_str());
        }
    }
}

/// An allowed value, made of few different tokens, so that values share prefixes.
#[derive(Arbitrary, Debug)]
struct Value {
    name: u8,
    tokens: Vec<u8>,
    /// The number of repetitions of the tokens, to reach the length at which a span is closed.
    times: u8,
}

#[derive(Arbitrary, Debug)]
struct Script {
    descriptors: Vec<(u8, Vec<Value>, Vec<u8>)>,
    mode: Bits,
    steps: Vec<Step>,
}

/// A mode.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Bits {
    greedy: bool,
    compact: bool,
    reset_idle: bool,
}

impl Bits {
    fn mode(self) -> Mode {
        Mode {
            greedy: self.greedy,
            compact: self.compact,
            reset_idle: self.reset_idle,
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Step {
    Apply(Array),
    /// One of the tokens that may follow, if any.
    Follow(u8),
    /// Any token.
    Accept(i16),
    /// Accepts all forced tokens.
    Skip,
    Reset,
    Clone,
    CloneFrom,
    Activate(u8),
    Set(Bits),
    Clear,
}

#[derive(Arbitrary, Debug)]
struct Array {
    logits: Vec<Logit>,
    order: Order,
    selected: Option<u8>,
}

#[derive(Arbitrary, Debug)]
enum Order {
    /// In a host's usual order: `data[id].id == id`.
    InPlace,
    Reversed,
    /// Sorted, and marked as sorted.
    Sorted,
    /// Each n-th candidate is missing.
    Thinned(u8),
    /// Ids as given.
    Ids(Vec<u8>),
}

impl Array {
    fn candidates(&self) -> (Vec<TokenData>, bool) {
        let logits = self.logits.iter().take(300).enumerate();
        let mut data: Vec<TokenData> = logits
            .map(|(i, logit)| TokenData::new(i as i32, logit.value()))
            .collect();
        match &self.order {
            Order::InPlace => {}
            Order::Reversed => data.reverse(),
            Order::Sorted => {
                data.sort_by(|a, b| as_number(b.logit).total_cmp(&as_number(a.logit)));
                return (data, true);
            }
            Order::Thinned(n) => {
                let mut i = 0;
                data.retain(|_| {
                    i += 1;
                    i % (usize::from(*n) + 2) != 0
                });
            }
            Order::Ids(ids) => {
                for (candidate, &id) in data.iter_mut().zip(ids) {
                    candidate.id = i32::from(id) - 2;
                }
            }
        }
        (data, false)
    }
}

fn token(byte: u8) -> i32 {
    i32::from(if byte < 224 { byte % 8 } else { byte })
}

impl Script {
    fn descriptors(&self) -> Descriptors {
        // The naive model compares all sequences at every step, so only one value is long: the
        // first that is repeated may be longer than a span can be.
        let mut longest = LONGEST + 5;
        let descriptors = self.descriptors.iter().take(4);
        let descriptors = descriptors.map(|(path, values, terminators)| {
            let values = values.iter().take(12).map(|value| {
                let tokens = value.tokens.iter().take(24);
                let mut tokens: Vec<i32> = tokens.map(|&byte| token(byte)).collect();
                if value.times >= 192 {
                    tokens = tokens.repeat(usize::from(value.times - 191));
                    tokens.truncate(longest);
                    longest = 24;
                }
                (format!("name {}", value.name % 4), tokens)
            });
            Rules {
                path: format!("path {}", path % 4),
                leaves: values.collect(),
                terminators: terminators.iter().take(4).map(|&b| token(b)).collect(),
            }
        });
        descriptors.collect()
    }

    fn run(&self) {
        let descriptors = self.descriptors();
        let json = json_of(&descriptors);
        raw(json.as_bytes(), None);
        let mut lengths = descriptors
            .iter()
            .flat_map(|d| d.leaves.iter().map(|(_, tokens)| tokens.len()));
        let is_empty = lengths.clone().all(|n| n == 0);
        let is_long = lengths.any(|n| n > LONGEST);
        let parsed = Payload::parse(json.as_bytes(), Some(256));
        assert_eq!(parsed.is_ok(), !is_empty && !is_long);
        if is_empty {
            return;
        }
        // A value that is too long is included, since a span is closed at its maximum length.
        let payload = parsed.unwrap_or_else(|_| payload_of(&descriptors));
        let trie = Arc::new(Trie::new(&payload));
        let slot = Arc::new(Slot::new(Some(256)));
        let mut walk = Walk {
            sampler: TrieSampler::new(Arc::clone(&slot)),
            slot,
            span: None,
            mode: self.mode.mode(),
        };
        walk.check();
        walk.set(&trie, &descriptors);
        for step in self.steps.iter().take(64) {
            walk.step(step, &trie, &descriptors);
            walk.check();
        }
    }
}

/// Makes a payload without the parser's checks.
fn payload_of(descriptors: &Descriptors) -> Payload {
    let descriptors = descriptors.iter().map(|descriptor| Descriptor {
        path: descriptor.path.clone(),
        terminators: descriptor.terminators.clone(),
        leaves: descriptor
            .leaves
            .iter()
            .map(|(name, tokens)| Leaf {
                name: name.clone(),
                tokens: tokens.clone(),
            })
            .collect(),
    });
    Payload {
        model_id: String::new(),
        descriptors: descriptors.collect(),
    }
}

fn json_of(descriptors: &Descriptors) -> String {
    let descriptors: Vec<_> = descriptors
        .iter()
        .map(|descriptor| {
            let leaves: Vec<_> = descriptor
                .leaves
                .iter()
                .map(|(name, tokens)| serde_json::json!({"name": name, "tokens": tokens}))
                .collect();
            let (path, terminators) = (&descriptor.path, &descriptor.terminators);
            match terminators.is_empty() {
                true => serde_json::json!({"path": path, "leaves": leaves}),
                false => {
                    serde_json::json!({"path": path, "leaves": leaves, "terminators": terminators})
                }
            }
        })
        .collect();
    serde_json::json!({ "descriptors": descriptors }).to_string()
}

/// The sampler and its naive model, which get the same calls.
struct Walk {
    sampler: TrieSampler,
    slot: Arc<Slot>,
    /// The model of the sampler's state; `None` while the slot has no trie.
    span: Option<Span>,
    mode: Mode,
}

impl Walk {
    fn set(&mut self, trie: &Arc<Trie>, descriptors: &Descriptors) {
        self.slot.set(Arc::clone(trie), self.mode);
        self.span = Some(Span::new(descriptors));
    }

    fn step(&mut self, step: &Step, trie: &Arc<Trie>, descriptors: &Descriptors) {
        match step {
            Step::Apply(array) => self.apply(array),
            Step::Follow(which) => {
                let children = self.span.as_ref().map_or(Vec::new(), Span::following);
                if !children.is_empty() {
                    self.accept(children[usize::from(*which) % children.len()]);
                }
            }
            Step::Accept(token) => self.accept(i32::from(*token)),
            Step::Skip => {
                let run = self.span.as_ref().map_or(Vec::new(), Span::forced);
                for token in run {
                    self.accept(token);
                }
            }
            Step::Reset => {
                self.sampler.reset();
                if let Some(span) = &mut self.span {
                    span.reset(self.mode.reset_idle);
                }
            }
            Step::Clone => {
                // The walk continues with the clone, which must be independent of the original.
                let copy = self.sampler.clone();
                self.sampler.accept(0);
                self.sampler = copy;
                let shared = self.sampler.shared().expect("a slot");
                self.slot = shared.downcast::<Slot>().expect("a slot");
            }
            Step::CloneFrom => {
                let copy = self.sampler.clone();
                self.sampler.accept(0);
                self.sampler.accept(1);
                self.sampler.clone_from(&copy);
            }
            Step::Activate(path) => {
                let path = format!("path {}", path % 5);
                let known = self.span.as_mut().is_some_and(|span| span.activate(&path));
                assert_eq!(self.slot.activate(&path).is_ok(), known);
            }
            Step::Set(bits) => {
                self.mode = bits.mode();
                self.set(trie, descriptors);
            }
            Step::Clear => {
                self.slot.clear();
                self.span = None;
            }
        }
    }

    fn accept(&mut self, token: i32) {
        self.sampler.accept(token);
        if let Some(span) = &mut self.span {
            span.accept(token);
        }
    }

    fn check(&self) {
        let span = self.span.as_ref();
        assert_eq!(self.slot.is_active(), span.is_some_and(Span::is_active));
        assert_eq!(self.slot.leaf().as_deref(), span.and_then(Span::leaf));
        let forced = span.map_or(Vec::new(), Span::forced);
        let mut room = [-1; 3];
        assert_eq!(self.slot.forced(&mut room), forced.len());
        let written = forced.len().min(room.len());
        assert_eq!(room[..written], forced[..written]);
        assert!(room[written..].iter().all(|&token| token == -1));
        let following = span.map_or(Vec::new(), Span::following);
        let mut room = [-1; 3];
        assert_eq!(self.slot.allowed(&mut room), following.len());
        let written = following.len().min(room.len());
        assert_eq!(room[..written], following[..written]);
        assert!(room[written..].iter().all(|&token| token == -1));
    }

    fn apply(&mut self, array: &Array) {
        let (input, sorted) = array.candidates();
        let selected = array.selected.map(usize::from);
        let mut data = input.clone();
        let mut candidates = Candidates::new(&mut data, sorted).with_selected(selected);
        self.sampler.apply(&mut candidates);
        let output = Output {
            data: candidates.as_slice().to_vec(),
            sorted: candidates.is_sorted(),
            selected: candidates.selected(),
        };
        let greedy = self.mode.greedy;
        let allowed = self
            .span
            .as_mut()
            .and_then(|span| span.allowed(&input, greedy));
        let Some(allowed) = allowed else {
            let unchanged = Output {
                data: input,
                sorted,
                selected,
            };
            return unchanged.assert_same(&output);
        };
        for candidate in &output.data {
            let survives = as_number(candidate.logit) > f32::NEG_INFINITY;
            assert!(
                !survives || allowed.contains(&candidate.id),
                "{candidate:?}, {allowed:?}"
            );
        }
        assert_eq!(output.data.is_empty(), input.is_empty(), "nothing is left");
        // Even if all candidates are banned, those that are left are tokens of values.
        let is_banned = |c: &TokenData| as_number(c.logit) == f32::NEG_INFINITY;
        if output.data.iter().all(is_banned) {
            assert!(output.data.iter().all(|c| allowed.contains(&c.id)));
        }
        for &id in &allowed {
            let mut same = input.iter().filter(|c| c.id == id).peekable();
            let banned = same.peek().is_some() && same.all(is_banned);
            let mut left = output.data.iter().filter(|c| c.id == id);
            assert!(!banned || left.all(is_banned), "{id} was banned");
        }
        let mut ids: Vec<i32> = input.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        // For an array that contains an id twice, the exact result is not guaranteed.
        if ids.windows(2).all(|pair| pair[0] != pair[1]) {
            self.expected(&input, sorted, selected, &allowed)
                .assert_same(&output);
        }
    }

    fn expected(
        &self,
        input: &[TokenData],
        sorted: bool,
        selected: Option<usize>,
        allowed: &[i32],
    ) -> Output {
        let greedy = self.mode.greedy;
        let valid: Vec<TokenData> = input
            .iter()
            .copied()
            .filter(|c| allowed.contains(&c.id))
            .collect();
        let possible = valid
            .iter()
            .filter(|c| as_number(c.logit) > f32::NEG_INFINITY)
            .count();
        if possible == 0 {
            let is_absent = |id: &&i32| valid.iter().all(|c| c.id != **id);
            let absent = allowed.iter().filter(is_absent);
            let put_back = absent.map(|&id| (id, 0.0));
            let banned = valid.iter().map(|c| (c.id, f32::NEG_INFINITY));
            let is_cut = valid.len() < allowed.len();
            let kept: Vec<(i32, f32)> = match is_cut {
                true => put_back.collect(),
                false => banned.collect(),
            };
            let data = kept.iter().map(|&(id, logit)| TokenData::new(id, logit));
            let data: Vec<TokenData> = data.take(input.len()).collect();
            let select = greedy && !data.is_empty();
            let selected = if select { Some(0) } else { selected };
            return Output {
                sorted: sorted && (!is_cut || data.is_empty()),
                data,
                selected,
            };
        }
        let best = valid[first_best(&valid).expect("one is possible")];
        if possible == 1 || best.logit == f32::INFINITY || (greedy && self.mode.compact) {
            let selected = if greedy { Some(0) } else { selected };
            return Output {
                data: vec![best],
                sorted,
                selected,
            };
        }
        if self.mode.compact {
            return Output {
                data: valid,
                sorted,
                selected,
            };
        }
        let masked = input.iter().map(|c| TokenData {
            logit: if allowed.contains(&c.id) {
                as_number(c.logit)
            } else {
                f32::NEG_INFINITY
            },
            ..*c
        });
        let place = input.iter().position(|c| c.id == best.id);
        let selected = if greedy { place } else { selected };
        Output {
            data: masked.collect(),
            sorted: false,
            selected,
        }
    }
}

#[derive(Debug)]
struct Output {
    data: Vec<TokenData>,
    sorted: bool,
    selected: Option<usize>,
}

impl Output {
    fn assert_same(&self, other: &Self) {
        let bits = |output: &Self| -> Vec<(i32, u32)> {
            output
                .data
                .iter()
                .map(|c| (c.id, c.logit.to_bits()))
                .collect()
        };
        assert_eq!(bits(self), bits(other));
        assert_eq!((self.sorted, self.selected), (other.sorted, other.selected));
    }
}
