//! Model checks: explore every interleaving of threads that access a slot, the bound handles or the
//! cache of tries.
//!
//! The code is the library's own. Only its lock (`sync.rs`) is replaced by one that lets a
//! scheduler decide which thread continues. The scheduler tries all interleavings and detects
//! deadlocks. Each model prints the number of interleavings. Shared data is only accessed under
//! locks, so a result can only depend on the order of the lock operations.
//!
//! Compiled only with `RUSTFLAGS="--cfg model"`, as `ci/sanitize model` does.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use test_crates::shuttle::scheduler::DfsScheduler;
use test_crates::shuttle::{Config, MaxSteps, Runner, thread};

use crate::candidates::Candidates;
use crate::ffi::trie::handles::Registry;
use crate::log;
use crate::sampler::Sampler;
use crate::token::{Token, TokenData};
use crate::trie::cache::Shared;
use crate::trie::{Mode, Payload, Slot, Trie, TrieSampler};

/// Runs `model` under every interleaving, without a limit on their number, and prints that number.
/// The run time shows if there are too many. Fails if there are fewer than `at_least`, or if a run
/// takes more than 10,000 steps.
fn every_order(name: &str, at_least: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(10_000);
    config.silence_warnings = true;
    // The models cause warnings about accepted tokens that may not follow.
    log::set_sink(Some(Arc::new(|_, _| {})));
    let orders = Runner::new(DfsScheduler::new(None, false), config).run(model);
    println!("{name}: {orders} orders");
    assert!(orders >= at_least, "only {orders}: nobody met anybody");
}

const N: i32 = 8;
/// The tokens that may follow if nothing is constrained.
const ALL: [Token; N as usize] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Returns a trie of two descriptors: `1 3` and `2 3` in the first, and `4 5` in the second.
fn one() -> Arc<Trie> {
    trie(
        r#"{"descriptors":[{"path":"p","leaves":[{"name":"a","tokens":[1,3]},{"name":"b","tokens":[2,3]}]},
            {"path":"q","leaves":[{"name":"c","tokens":[4,5]}]}]}"#,
    )
}

/// Returns a trie of `6 7` alone.
fn other() -> Arc<Trie> {
    trie(r#"{"descriptors":[{"path":"p","leaves":[{"name":"d","tokens":[6,7]}]}]}"#)
}

fn trie(json: &str) -> Arc<Trie> {
    let payload = Payload::parse(json.as_bytes(), Some(N as usize)).expect("a valid payload");
    Arc::new(Trie::new(&payload))
}

const MASKS: Mode = Mode {
    greedy: false,
    compact: false,
    reset_idle: false,
};
const SHRINKS: Mode = Mode {
    greedy: false,
    compact: true,
    reset_idle: false,
};

/// Returns the tokens that `sampler` allows, in ascending order, whether its mode masks or removes
/// all others.
fn allowed(sampler: &mut TrieSampler) -> Vec<Token> {
    let mut data = ALL.map(|id| TokenData::new(id, id as f32));
    let mut candidates = Candidates::new(&mut data, false);
    sampler.apply(&mut candidates);
    let left = candidates.as_slice().iter();
    left.filter(|c| c.logit > f32::NEG_INFINITY)
        .map(|c| c.id)
        .collect()
}

#[test]
fn a_sampler_sees_the_old_constraint_or_the_new_one() {
    every_order("set and clear during two tokens", 100, || {
        let slot = Arc::new(Slot::new(Some(N as usize)));
        slot.set(one(), MASKS);
        let (set, cleared) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let setter = {
            let (slot, set) = (Arc::clone(&slot), Arc::clone(&set));
            let cleared = Arc::clone(&cleared);
            thread::spawn(move || {
                slot.set(other(), SHRINKS);
                set.store(true, Ordering::SeqCst);
                slot.clear();
                cleared.store(true, Ordering::SeqCst);
            })
        };
        let mut sampler = TrieSampler::new(Arc::clone(&slot));
        // The sampler must see one of these states, and none that was replaced before this call.
        let states: [&[Token]; 3] = [&[1, 2], &[6], &ALL];
        let oldest = || {
            usize::from(set.load(Ordering::SeqCst)) + usize::from(cleared.load(Ordering::SeqCst))
        };
        let before = oldest();
        let first = allowed(&mut sampler);
        let seen = states
            .iter()
            .position(|state| **state == first)
            .expect("one of them");
        assert!(seen >= before, "{first:?} was replaced");

        // The chosen token belongs to the trie that was set at that time, and must not continue
        // anything in the trie that is set now.
        sampler.accept(first[0]);
        let before = oldest().max(seen);
        let second = allowed(&mut sampler);
        // If the same trie is still set, the next token continues the value: 3 after 1, or 7 after
        // 6. If the trie was replaced before the token was accepted, the sampler is idle, since no
        // value of the new trie begins with that token. If it was replaced afterwards, the new trie
        // is at its root.
        let possible: &[&[Token]] = match seen {
            0 => &[&[3], &[6], &ALL],
            1 => &[&[7], &ALL],
            _ => &[&ALL],
        };
        assert!(
            possible.contains(&&second[..]),
            "{first:?}, then {second:?}"
        );
        assert!(before == 0 || second != [3], "{second:?} was replaced");

        setter.join().expect("no panic");
        assert_eq!(
            allowed(&mut sampler),
            ALL,
            "a cleared slot constrains nothing"
        );
        assert!(!slot.is_active());
    });
}

#[test]
fn a_descriptor_is_activated_in_what_is_set() {
    every_order("activate, set and sample", 100, || {
        let slot = Arc::new(Slot::new(Some(N as usize)));
        slot.set(one(), MASKS);
        let setter = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.set(other(), SHRINKS))
        };
        let activator = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.activate("q").is_ok())
        };
        let mut sampler = TrieSampler::new(Arc::clone(&slot));
        let seen = allowed(&mut sampler);
        let known = [&[1, 2][..], &[4], &[6]];
        assert!(known.contains(&&seen[..]), "{seen:?}");
        let mut forced = [0; 4];
        let n = slot.forced(&mut forced);
        let known: [&[Token]; 3] = [&[], &[4, 5], &[6, 7]];
        assert!(known.contains(&&forced[..n]), "{forced:?}");

        setter.join().expect("no panic");
        // Whether or not "q" was still found, it is not in the trie that was set.
        let _found = activator.join().expect("no panic");
        assert_eq!(allowed(&mut sampler), [6]);
    });
}

#[test]
fn samplers_that_are_copied_onto_each_other_do_not_wait_for_each_other() {
    every_order("copies in both directions", 20, || {
        let slots = [one(), other()].map(|trie| {
            let slot = Arc::new(Slot::new(Some(N as usize)));
            slot.set(trie, MASKS);
            slot
        });
        let copies = [(0, 1), (1, 0)].map(|(from, to)| {
            let from = TrieSampler::new(Arc::clone(&slots[from]));
            let mut to = TrieSampler::new(Arc::clone(&slots[to]));
            thread::spawn(move || to.clone_from(&from))
        });
        for copy in copies {
            copy.join().expect("no panic");
        }
        for slot in slots {
            let seen = allowed(&mut TrieSampler::new(slot));
            assert!(seen == [1, 2] || seen == [6], "{seen:?}");
        }
    });
}

#[test]
fn a_handle_leads_to_its_live_slot_or_to_none() {
    every_order("bind, set by handle, free", 100, || {
        let registry = Arc::new(Registry::new());
        let slot = Arc::new(Slot::new(Some(N as usize)));
        registry.bind(1, &slot);
        let mut sampler = TrieSampler::new(slot);
        let by_handle = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || {
                let found = registry.get(1);
                if let Some(slot) = &found {
                    slot.set(other(), SHRINKS);
                }
                found.is_some()
            })
        };
        let binder = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || {
                // Binding removes freed slots, but not the slot that is being bound, which is
                // alive.
                let slot = Arc::new(Slot::new(None));
                registry.bind(2, &slot);
                let found = registry.get(2).expect("it is alive");
                assert!(Arc::ptr_eq(&found, &slot));
            })
        };
        let seen = allowed(&mut sampler);
        assert!(seen == ALL || seen == [6], "{seen:?}");
        // A host may free the chain while the handle is bound.
        drop(sampler);
        let found = by_handle.join().expect("no panic");
        binder.join().expect("no panic");
        assert!(found || seen == ALL);
        assert!(registry.get(1).is_none() && registry.get(2).is_none());
    });
}

fn payload(token: Token) -> String {
    format!(
        r#"{{"descriptors":[{{"path":"{token}","leaves":[{{"name":"a","tokens":[{token}]}}]}}]}}"#
    )
}

/// Models two threads that each look up one payload in a cache of the given capacity. A lookup that
/// has to make the trie takes the lock three times, so a second lookup per thread would lead to too
/// many interleavings.
fn cache_model(name: &str, at_least: usize, capacity: usize, lookups: [Token; 2]) {
    let most_evictions = Arc::new(AtomicUsize::new(0));
    let most = Arc::clone(&most_evictions);
    every_order(name, at_least, move || {
        let cache = Arc::new(Shared::new(
            NonZeroUsize::new(capacity).expect("not 0"),
            usize::MAX,
        ));
        let threads = lookups.map(|token| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                let trie = cache.trie_of(payload(token).as_bytes(), None);
                let trie = trie.expect("a valid payload");
                assert_eq!(trie.max_token(), token);
                assert!(trie.paths().eq([token.to_string()]));
                // The other thread may still be running.
                assert!(cache.stats().entries <= capacity as u64);
            })
        });
        for thread in threads {
            thread.join().expect("no panic");
        }
        let stats = cache.stats();
        assert_eq!(stats.hits + stats.misses, lookups.len() as u64);
        assert_eq!((stats.entries, stats.bytes), cache.counted());
        // A miss adds a trie, unless another thread has added it in the meantime.
        assert!(stats.entries + stats.evictions <= stats.misses);
        let different = if lookups[0] == lookups[1] { 1 } else { 2 };
        assert_eq!(stats.entries, different.min(capacity) as u64);
        if different <= capacity {
            assert_eq!(stats.evictions, 0);
        }
        most.fetch_max(stats.evictions as usize, Ordering::SeqCst);
    });
    println!(
        "{name}: at most {} evictions",
        most_evictions.load(Ordering::SeqCst)
    );
}

#[test]
fn the_cache_gives_the_trie_of_the_key_while_others_are_evicted() {
    cache_model("two payloads in a cache of one", 100, 1, [1, 2]);
}

#[test]
fn the_same_payload_from_two_threads_is_kept_once() {
    cache_model("one payload from two threads", 50, 2, [1, 1]);
}
