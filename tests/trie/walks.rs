//! Compares random sets of sequences, random walks and whole generations with the naive model.

use std::ffi::{CStr, CString};

use crate::naive::*;
use crate::support::arrays::Rng;
use crate::support::{Array, HostSampler, trained_model};
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::trie::*;
use llama_sieve::last_error;
use vendor_llama_cpp::{Context, Model};

#[test]
fn random_walks_follow_the_naive_model() {
    quiet();
    let mut rng = Rng(61);
    let modes = [0, 1, 0x100, 0x101, 0x200, 0x201, 0x300, 0x301];
    for round in 0..400 {
        let n_vocab = rng.pick(&[20, 60, 500]);
        let n = if round % 40 == 0 {
            1000
        } else {
            1 + rng.below(40)
        };
        let n = if round == 200 { 5000 } else { n };
        let mut descriptors = [("first", n), ("second", 5)].map(|(path, n)| Descriptor {
            path: path.to_owned(),
            leaves: random_leaves(&mut rng, n, n_vocab),
            terminators: Vec::new(),
        });
        if rng.chance(0.5) {
            let n = 1 + rng.below(4);
            descriptors[0].terminators = (0..n).map(|_| rng.below(n_vocab) as i32).collect();
        }
        let has_values = |d: &Descriptor| d.leaves.iter().any(|(_, tokens)| !tokens.is_empty());
        if !descriptors.iter().all(has_values) {
            continue;
        }
        let text = json(&descriptors);
        let mode = rng.pick(&modes);
        let mut sampler = slot();
        assert!(!is_active(&sampler));
        assert_eq!(set(&sampler, text.as_bytes(), mode), LLAMA_SIEVE_OK);
        let mut naive = Span::new(&descriptors);
        for _ in 0..60 {
            assert_eq!(is_active(&sampler), naive.is_active());
            assert_eq!(leaf(&sampler).as_deref(), naive.leaf());
            assert_eq!(forced(&sampler), naive.forced());
            assert_eq!(allowed(&sampler), naive.following());
            let mut input = input(&mut rng, n_vocab);
            if rng.chance(0.2) {
                ban(&mut rng, &naive, &mut input);
            }
            check_apply(&sampler, &mut naive, &input, mode);
            let token = next_token(&mut rng, &naive, n_vocab);
            sampler.accept(token);
            naive.accept(token);
            match rng.below(30) {
                0 => {
                    sampler.reset();
                    naive.reset(mode & LLAMA_SIEVE_TRIE_RESET_IDLE != 0);
                }
                1 => {
                    let copy = sampler.clone();
                    // Changes to the original do not affect the copy.
                    sampler.accept(rng.below(n_vocab) as i32);
                    sampler = copy;
                }
                2 => {
                    assert_eq!(activate(&sampler, c"second"), LLAMA_SIEVE_OK);
                    assert!(naive.activate("second"));
                }
                3 => {
                    assert_eq!(set(&sampler, text.as_bytes(), mode), LLAMA_SIEVE_OK);
                    naive = Span::new(&descriptors);
                }
                4 => {
                    let other = slot();
                    other.copy_from(&sampler);
                    sampler.accept(rng.below(n_vocab) as i32);
                    sampler.copy_from(&other);
                }
                5 => {
                    // A wrong payload changes nothing.
                    assert_eq!(set(&sampler, b"{", mode), LLAMA_SIEVE_ERROR_INVALID);
                    assert_eq!(activate(&sampler, c"third"), LLAMA_SIEVE_ERROR_NOT_FOUND);
                    assert!(last_error::get().contains("\"first\", \"second\""));
                }
                _ => {}
            }
        }
    }
}

/// Returns a payload with the values "go", "go on" and "stop", and with two terminators: a full
/// stop (7) and a comma (8).
fn with_terminators() -> String {
    let mut descriptors = values(&[("go", &[1]), ("go on", &[1, 2]), ("stop", &[3])]);
    descriptors[0].terminators = vec![8, 7, 8];
    json(&descriptors)
}

#[test]
fn terminators_may_follow_a_value_that_begins_another() {
    let payload = with_terminators();
    for mode in [0, 1, 0x100, 0x101] {
        let sampler = slot();
        assert_eq!(set(&sampler, payload.as_bytes(), mode), LLAMA_SIEVE_OK);
        assert_eq!(allowed(&sampler), [1, 3]);
        sampler.accept(1);
        assert_eq!(allowed(&sampler), [2, 7, 8]);
        assert_eq!(forced(&sampler), [] as [i32; 0]);
        // The largest logit belongs to none of them.
        let mut array = Array::of_logits((0..10).map(|i| if i == 7 { 5.5 } else { i as f32 }));
        sampler.apply(&mut array);
        let left = array.allowed();
        let expected: &[i32] = if mode == 0x100 { &[8] } else { &[2, 7, 8] };
        assert_eq!(left, expected);
        if mode & 1 == LLAMA_SIEVE_TRIE_GREEDY {
            assert_eq!(array.chosen().id, 8);
        }
        assert!(is_active(&sampler));
        sampler.accept(8);
        assert!(!is_active(&sampler));
        assert_eq!(leaf(&sampler).as_deref(), Some("go"));
        assert_eq!(allowed(&sampler), [] as [i32; 0]);
        // After a value that is not the beginning of another, anything may follow.
        sampler.reset();
        sampler.accept(3);
        assert_eq!(leaf(&sampler).as_deref(), Some("stop"));
    }
}

#[test]
fn a_reset_may_leave_a_complete_span_idle() {
    quiet();
    let payload = with_terminators();
    for (mode, idle) in [(1, false), (0x101, false), (0x201, true), (0x300, true)] {
        let sampler = slot();
        assert_eq!(set(&sampler, payload.as_bytes(), mode), LLAMA_SIEVE_OK);
        // Not complete; the span is restarted from any position.
        for (token, follows) in [(1, true), (4, false)] {
            sampler.accept(token);
            assert_eq!(is_active(&sampler), follows);
            sampler.reset();
            assert!(is_active(&sampler));
            assert_eq!(allowed(&sampler), [1, 3]);
        }
        sampler.accept(3);
        let copy = sampler.clone();
        for sampler in [sampler, copy] {
            sampler.reset();
            assert_eq!(is_active(&sampler), !idle);
            assert_eq!(leaf(&sampler).as_deref(), idle.then_some("stop"));
            assert_eq!(activate(&sampler, c"p"), LLAMA_SIEVE_OK);
            assert!(is_active(&sampler));
        }
    }
}

#[test]
fn a_value_may_be_as_long_as_a_span_and_no_longer() {
    let sampler = slot();
    let value = |n| json(&one(vec![("long".to_owned(), (0..n).collect())]));
    let longest = value(500);
    assert_eq!(set(&sampler, longest.as_bytes(), 1), LLAMA_SIEVE_OK);
    let longer = value(501);
    assert_eq!(
        set(&sampler, longer.as_bytes(), 1),
        LLAMA_SIEVE_ERROR_INVALID
    );
    let said = last_error::get();
    assert!(
        said.contains("descriptors[0].leaves[0].tokens: the value has 501 tokens")
            && said.contains("LLAMA_SIEVE_TRIE_SPAN_LIMIT"),
        "{said}"
    );
    for token in 0..500 {
        assert!(is_active(&sampler));
        assert_eq!(forced(&sampler), (token..500).collect::<Vec<i32>>());
        sampler.accept(token);
    }
    assert!(!is_active(&sampler));
    assert_eq!(leaf(&sampler).as_deref(), Some("long"));
}

/// Uses a payload that was not parsed, and so was not checked.
#[test]
fn a_span_of_500_tokens_is_closed() {
    use llama_sieve::Sampler;
    use llama_sieve::trie::descriptor::{Descriptor, Leaf, Payload};
    use llama_sieve::trie::{Mode, Slot, Trie, TrieSampler};
    quiet();
    let payload = Payload {
        model_id: String::new(),
        descriptors: vec![Descriptor {
            path: "p".to_owned(),
            leaves: vec![Leaf {
                name: "long".to_owned(),
                tokens: (0..600).collect(),
            }],
            terminators: Vec::new(),
        }],
    };
    let slot = std::sync::Arc::new(Slot::new(None));
    let mode = Mode::from_number(LLAMA_SIEVE_TRIE_SAMPLED).expect("a mode");
    slot.set(std::sync::Arc::new(Trie::new(&payload)), mode);
    let mut sampler = TrieSampler::new(std::sync::Arc::clone(&slot));
    for token in 0..500 {
        assert!(slot.is_active());
        assert_eq!(slot.forced(&mut []), 500 - token as usize);
        sampler.accept(token);
    }
    assert!(!slot.is_active());
    assert_eq!(slot.leaf(), None);
    assert!(last_error::get().contains("500 tokens"));
    sampler.reset();
    assert!(slot.is_active());
}

#[test]
fn an_infinite_logit_of_a_valid_token_wins_alone() {
    let payload = json(&values(&[("a", &[1]), ("b", &[2])]));
    for mode in [0, 1, 0x100, 0x101] {
        let sampler = slot();
        set(&sampler, payload.as_bytes(), mode);
        let mut array = Array::of_logits([f32::INFINITY, 3.0, f32::INFINITY, 9.0]);
        sampler.apply(&mut array);
        assert_eq!(array.ids(), [2]);
        // NaN cannot win.
        let mut array = Array::of_logits([1.0, 3.0, f32::NAN, 9.0]);
        sampler.apply(&mut array);
        assert_eq!(array.ids(), [1]);
    }
}

/// Returns the choices for the tests on the trained model.
fn choices(model: &Model) -> Leaves {
    let names = [
        "Moses",
        "Aaron",
        "David",
        "David the king",
        "Jerusalem",
        "the LORD",
        "the land of Egypt",
    ];
    let leaf = |name: &str| (name.to_owned(), model.tokenize(&format!(" {name}"), false));
    names.map(leaf).into()
}

/// Returns a temperature of 2, up to four random samplers, and then dist.
fn random_tail(rng: &mut Rng, n_vocab: i32) -> Vec<HostSampler> {
    let mut tail = vec![HostSampler::new(llama_sieve_init_temp(2.0))];
    for _ in 0..rng.below(5) {
        tail.push(HostSampler::new(match rng.below(8) {
            0 => llama_sieve_init_top_k(1 + rng.below(50) as i32),
            1 => llama_sieve_init_top_p(rng.range(0.0, 1.0), 1),
            2 => llama_sieve_init_min_p(rng.range(0.0, 0.5), rng.below(3)),
            3 => llama_sieve_init_typical(rng.range(0.0, 1.0), rng.below(3)),
            4 => llama_sieve_init_temp(rng.range(0.0, 3.0)),
            5 => llama_sieve_init_top_n_sigma(rng.range(0.0, 2.0)),
            6 => llama_sieve_init_penalties(
                n_vocab,
                64,
                rng.range(1.0, 2.0),
                rng.range(-1.0, 1.0),
                0.5,
            ),
            _ => llama_sieve_init_greedy(),
        }));
    }
    tail.push(HostSampler::new(llama_sieve_init_dist(rng.next() as u32)));
    tail
}

#[test]
fn a_thousand_generations_always_give_a_choice() {
    quiet();
    let model = Model::load(trained_model()).expect("the model loads");
    let n_vocab = model.n_vocab() as i32;
    let choices = choices(&model);
    let payload = CString::new(json(&one(choices.clone()))).expect("no NUL");
    let prompt = model.tokenize("And the LORD said unto", true);
    let mut context = Context::new(&model, 64, 1).expect("a context");
    let mut rng = Rng(62);
    let mut seen = std::collections::HashSet::new();
    for round in 0..1000 {
        let mode = rng.pick(&[
            LLAMA_SIEVE_TRIE_SAMPLED,
            LLAMA_SIEVE_TRIE_SAMPLED | LLAMA_SIEVE_TRIE_COMPACT,
        ]);
        // SAFETY: the vocabulary lives, the payload is a C string.
        let trie =
            unsafe { llama_sampler_init_token_trie(model.vocab().cast(), payload.as_ptr(), mode) };
        let chain = HostSampler::chain(vec![HostSampler::new(trie)]);
        random_tail(&mut rng, n_vocab)
            .into_iter()
            .for_each(|member| chain.add(member));
        context.clear();
        context.decode(&prompt).expect("the prompt fits");
        let mut text = Vec::new();
        loop {
            let token = chain.sample(context.as_ptr());
            // SAFETY: the trie is a member of the living chain.
            let active = unsafe { llama_sieve_trie_is_active(trie) };
            // A value that is the beginning of another ends at a token that does not continue it.
            let ended = !active && choices.iter().any(|(_, tokens)| *tokens == text);
            if !ended {
                text.push(token);
            }
            if !active {
                break;
            }
            context.decode(&[token]).expect("there is room");
        }
        let value = choices.iter().find(|(_, tokens)| *tokens == text);
        let (name, _) = value.unwrap_or_else(|| panic!("round {round}: {text:?} is no choice"));
        // SAFETY: as above.
        let leaf = unsafe { CStr::from_ptr(llama_sieve_trie_leaf(trie)) };
        assert_eq!(leaf.to_str(), Ok(name.as_str()));
        seen.insert(name);
    }
    assert!(seen.len() >= 5, "only {seen:?}");
}
