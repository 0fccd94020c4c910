use super::*;

fn payload(token: usize, n_leaves: usize) -> String {
    let leaves: Vec<String> = (0..n_leaves)
        .map(|i| format!(r#"{{"name":"n{i}","tokens":[{token},{i}]}}"#))
        .collect();
    let leaves = leaves.join(",");
    format!(r#"{{"descriptors":[{{"path":"p","leaves":[{leaves}]}}]}}"#)
}

/// Returns the number of bytes that a payload and its trie take in the cache.
fn bytes_of(json: &str) -> usize {
    let payload = Payload::parse(json.as_bytes(), None).expect("the payload is good");
    Trie::new(&payload).bytes() + json.len()
}

#[test]
fn entries_are_bounded() {
    let json = payload(1, 10);
    let cache = Shared::new(NonZeroUsize::new(1).expect("not 0"), bytes_of(&json));
    // Each trie is as large as all tries together may be.
    for (token, evictions) in [(1, 0), (1, 0), (2, 1), (3, 2)] {
        let trie = cache.trie_of(payload(token, 10).as_bytes(), None);
        assert!(trie.is_ok());
        let stats = cache.stats();
        assert_eq!((stats.entries, stats.evictions), (1, evictions));
        assert_eq!(stats.bytes, bytes_of(&json) as u64);
    }
    assert_eq!((cache.stats().hits, cache.stats().misses), (1, 3));
}

/// Returns a payload with one descriptor, whose leaves are in the given order.
fn of_leaves(model: &str, path: &str, leaves: &[&str], terminators: &str) -> String {
    let leaves = leaves.join(",");
    format!(
        r#"{{"modelId":"{model}","descriptors":[{{"path":"{path}","leaves":[{leaves}],"terminators":[{terminators}]}}]}}"#
    )
}

#[test]
fn the_same_set_in_another_order_is_the_same_trie() {
    let cache = Shared::new(NonZeroUsize::new(4).expect("not 0"), MAX_BYTES);
    let (a, b) = (
        r#"{"name":"a","tokens":[1,2]}"#,
        r#"{"name":"b","tokens":[3]}"#,
    );
    let (c, empty) = (
        r#"{"name":"c","tokens":[3]}"#,
        r#"{"name":"x","tokens":[]}"#,
    );
    let of = |json: &str| cache.trie_of(json.as_bytes(), None).expect("it is good");
    let counts = || {
        let (stats, reordered) = cache.stats_and_reordered();
        (stats.hits, reordered, stats.misses, stats.entries)
    };
    let first = of(&of_leaves("m", "p", &[a, b], "5, 4"));
    assert_eq!(counts(), (0, 0, 1, 1));
    // These have the values or terminators in a different order, without the space, or with
    // additions that have no effect: a terminator and a value that occur again, the value under a
    // later name, and a value without tokens.
    let others = [
        of_leaves("m", "p", &[b, a], "5, 4"),
        of_leaves("m", "p", &[a, b], "4,5,4"),
        of_leaves("m", "p", &[c, b, empty, a], "5,4"),
    ];
    for (i, json) in (1u64..).zip(&others) {
        assert!(Arc::ptr_eq(&first, &of(json)));
        assert_eq!(counts(), (i, i, 1, 1), "{json}");
    }
    // By now the cache has their bytes.
    for (i, json) in (4u64..).zip(&others) {
        assert!(Arc::ptr_eq(&first, &of(json)));
        assert_eq!(counts(), (i, 3, 1, 1));
    }
    // A different model, path, name, token or terminator gives a different trie.
    let different = [
        of_leaves("n", "p", &[a, b], "5,4"),
        of_leaves("m", "q", &[a, b], "5,4"),
        of_leaves("m", "p", &[a, c], "5,4"),
        of_leaves("m", "p", &[a], "5,4"),
        of_leaves("m", "p", &[a, b], "5"),
    ];
    for json in &different {
        assert!(!Arc::ptr_eq(&first, &of(json)), "{json}");
    }
    assert_eq!(cache.stats().misses, 6);
    // The trie was evicted with its payloads, and is made again.
    let again = of(&others[0]);
    assert!(!Arc::ptr_eq(&first, &again));
    assert_eq!((cache.stats().misses, cache.stats().entries), (7, 4));
    // A payload that was not made from JSON also finds the trie.
    let payload = Payload::parse(others[1].as_bytes(), None).expect("it is good");
    assert!(Arc::ptr_eq(&again, &cache.trie_of_payload(&payload, None)));
}

#[test]
fn the_order_of_descriptors_counts() {
    let of = |json: &str| canonical(&Payload::parse(json.as_bytes(), None).expect("good"));
    let one = |path: &str| format!(r#"{{"path":"{path}","leaves":[{{"name":"a","tokens":[1]}}]}}"#);
    let both = |a: &str, b: &str| format!(r#"{{"descriptors":[{},{}]}}"#, one(a), one(b));
    assert_ne!(of(&both("p", "q")), of(&both("q", "p")));
    assert_ne!(of(&both("p", "q")), of(&both("pq", "")));
    assert_eq!(of(&both("p", "q")), of(&format!(" {}", both("p", "q"))));
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn what_is_known_of_payloads_is_bounded() {
    let cache = Shared::new(NonZeroUsize::new(2).expect("not 0"), MAX_BYTES);
    for spaces in 0..3 * MOST_KNOWN {
        let json = " ".repeat(spaces) + &payload(1, 3);
        assert!(cache.trie_of(json.as_bytes(), None).is_ok());
        assert_eq!(cache.counted(), (1, cache.stats().bytes));
    }
    assert_eq!(cache.with(|cache| cache.known.len()), MOST_KNOWN);
    // Payloads that lead to one trie evict each other, and the trie stays.
    let json = payload(1, 30);
    let cache = Shared::new(
        NonZeroUsize::new(2).expect("not 0"),
        bytes_of(&json) + json.len() + 10,
    );
    let first = cache.trie_of(json.as_bytes(), None).expect("it is good");
    for spaces in 1..20 {
        let other = " ".repeat(spaces) + &json;
        let trie = cache.trie_of(other.as_bytes(), None).expect("it is good");
        assert!(Arc::ptr_eq(&first, &trie));
        let n_known = if spaces <= 5 { 2 } else { 1 };
        assert_eq!(cache.with(|cache| cache.known.len()), n_known, "{spaces}");
        assert_eq!(cache.counted(), (1, cache.stats().bytes));
        assert_eq!(cache.stats().evictions, 0);
    }
}

/// Checks that two payloads with the same hash are told apart by their bytes.
#[test]
fn a_hash_alone_finds_nothing() {
    let cache = Shared::new(NonZeroUsize::new(4).expect("not 0"), MAX_BYTES);
    let (one, other) = (payload(1, 3), payload(2, 3));
    let first = cache.trie_of(one.as_bytes(), None).expect("it is good");
    let text = |json| Text {
        hash: Text::new(one.as_bytes()).hash,
        json,
    };
    assert!(
        cache
            .with(|cache| cache.get(text(other.as_bytes())))
            .is_none()
    );
    let parsed = Payload::parse(other.as_bytes(), None).expect("it is good");
    let second = cache.trie_of_payload(&parsed, Some(text(other.as_bytes())));
    assert!(!Arc::ptr_eq(&first, &second));
    assert_eq!(cache.counted(), (2, cache.stats().bytes));
    // The second payload has replaced the first one, which is now found only by its canonical form.
    assert!(
        cache
            .with(|cache| cache.get(text(one.as_bytes())))
            .is_none()
    );
    let again = cache.trie_of(one.as_bytes(), None).expect("it is good");
    assert!(Arc::ptr_eq(&first, &again));
}

/// Checks that a payload is evicted together with its trie, both when the cache has too many tries
/// and when it has too many bytes.
#[test]
fn a_payload_goes_with_its_trie() {
    let json = [payload(1, 3), payload(2, 3), payload(3, 3)];
    let room_for_two = 2 * bytes_of(&json[0]);
    for (capacity, max_bytes) in [(2, MAX_BYTES), (3, room_for_two)] {
        let cache = Shared::new(NonZeroUsize::new(capacity).expect("not 0"), max_bytes);
        for json in &json {
            assert!(cache.trie_of(json.as_bytes(), None).is_ok());
        }
        assert_eq!(cache.with(|cache| cache.known.len()), 2);
        assert_eq!(cache.counted(), (2, cache.stats().bytes));
        assert_eq!(cache.stats().bytes, room_for_two as u64);
        assert_eq!(cache.stats().evictions, 1);
    }
    // If there is room for a trie but not for its payload as well, only the trie is kept.
    let trie = bytes_of(&json[0]) - json[0].len();
    let cache = Shared::new(NonZeroUsize::new(2).expect("not 0"), trie);
    let first = cache.trie_of(json[0].as_bytes(), None).expect("it is good");
    let again = cache.trie_of(json[0].as_bytes(), None).expect("it is good");
    assert!(Arc::ptr_eq(&first, &again));
    assert_eq!(cache.counted(), (1, trie as u64));
    assert_eq!(cache.stats_and_reordered().1, 1);
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn bytes_are_bounded_like_entries() {
    let small = bytes_of(&payload(1, 10));
    let cache = Shared::new(NonZeroUsize::new(5).expect("not 0"), 3 * small);
    let get = |token, n_leaves| {
        let json = payload(token, n_leaves);
        let trie = cache.trie_of(json.as_bytes(), None);
        assert_eq!(trie.expect("the payload is good").n_nodes(), n_leaves + 2);
    };
    let expect = |entries: u64, evictions: u64| {
        let stats = cache.stats();
        assert_eq!((stats.entries, stats.evictions), (entries, evictions));
        assert_eq!(stats.bytes, entries * small as u64);
    };
    for token in 1..=3 {
        get(token, 10);
        expect(token as u64, 0);
    }
    // The first one is used again, so that the second is evicted.
    get(1, 10);
    get(4, 10);
    expect(3, 1);
    get(1, 10);
    assert_eq!(cache.stats().hits, 2);
    get(2, 10);
    expect(3, 2);
    // This payload takes the room of all others.
    let fits = |n_leaves: &usize| bytes_of(&payload(9, *n_leaves)) <= 3 * small;
    let n_leaves = (10..100).rev().find(fits).expect("10 are small");
    let large = bytes_of(&payload(9, n_leaves));
    assert!(large > 2 * small);
    get(9, n_leaves);
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.evictions), (1, 5));
    assert_eq!(stats.bytes, large as u64);
    // This payload does not fit, and changes nothing.
    get(9, 100);
    assert_eq!(cache.stats().entries, 1);
    get(9, n_leaves);
    assert_eq!((cache.stats().hits, cache.stats().misses), (3, 7));
}

#[test]
fn what_is_cached_is_refused_as_what_is_read() {
    let value = r#"{"path":"p","leaves":[{"name":"a","tokens":[1]}]}"#;
    let nothing = r#"{"path":"q","leaves":[],"terminators":[9]}"#;
    let alone = format!(r#"{{"descriptors":[{value}]}}"#);
    let both = format!(r#"{{"descriptors":[{value},{nothing}]}}"#);
    for first in [&alone, &both] {
        let cache = Shared::new(NonZeroUsize::new(4).expect("not 0"), MAX_BYTES);
        // Even a token that is in no value must be in the vocabulary.
        for json in [first, &both] {
            assert!(cache.trie_of(json.as_bytes(), None).is_ok());
        }
        for n_vocab in [9, 10] {
            let trie = cache.trie_of(both.as_bytes(), Some(n_vocab));
            assert_eq!(trie.is_ok(), n_vocab > 9, "{first}");
            assert!(cache.trie_of(alone.as_bytes(), Some(n_vocab)).is_ok());
        }
    }
}

/// Checks that a payload that was not made from JSON, and so has no bytes, is found by its
/// canonical form.
#[test]
fn what_is_made_is_found_by_its_sets() {
    let cache = Shared::new(NonZeroUsize::new(4).expect("not 0"), MAX_BYTES);
    let made = Payload::parse(payload(1, 3).as_bytes(), None).expect("the payload is good");
    let first = cache.trie_of_payload(&made, None);
    for hits in [1, 2] {
        assert!(Arc::ptr_eq(&first, &cache.trie_of_payload(&made, None)));
        let (stats, reordered) = cache.stats_and_reordered();
        assert_eq!((stats.hits, reordered, stats.misses), (hits, 0, 1));
    }
}

#[test]
fn the_counters_are_those_of_the_common_cache() {
    let before = stats();
    let made = Payload::parse(payload(4_321, 2).as_bytes(), None).expect("the payload is good");
    let _kept = trie_of_payload(&made);
    // Other tests may use the cache at the same time.
    assert!(stats().misses > before.misses);
}

/// The cache that all constraints share has counters as well. Other tests may use it at the same
/// time.
#[test]
fn the_common_cache_counts() {
    let of = |leaves: &[&str]| {
        let json = of_leaves("the_common_cache_counts", "p", leaves, "");
        trie_of(json.as_bytes(), None).expect("it is good")
    };
    let (a, b) = (
        r#"{"name":"a","tokens":[1]}"#,
        r#"{"name":"b","tokens":[2]}"#,
    );
    let before = stats_and_reordered();
    let first = of(&[a, b]);
    assert!(Arc::ptr_eq(&first, &of(&[b, a])));
    let after = stats_and_reordered();
    assert!(after.0.hits > before.0.hits && after.0.misses > before.0.misses);
    assert!(after.1 > before.1);
    assert!(stats().entries > 0);
}
