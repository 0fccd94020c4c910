use super::*;

/// Compares the first outputs from a fixed state with those of the authors' C code
/// (xoroshiro128plus.c of 2018).
#[test]
fn xoroshiro128_plus_known_answers() {
    let mut rng = Xoroshiro128Plus::from_state([1, 2]).expect("not zero");
    let expected = [
        3u64,
        412_333_834_243,
        2_360_170_716_294_286_339,
        9_295_852_285_959_843_169,
        2_797_080_929_874_688_578,
    ];
    for value in expected {
        assert_eq!(rng.next_u64(), value);
    }
    assert_eq!(Xoroshiro128Plus::from_state([0, 0]), None);
}

/// Compares the stream with a separate implementation of the authors' recurrence and of their
/// seeding by SplitMix64.
#[test]
fn a_seed_begins_the_published_stream_and_a_state_goes_on() {
    for seed in [0, 1, 42, 0xFFFF_FFFF, u64::MAX] {
        let first = seed.wrapping_add(GOLDEN);
        let mut state = [mix(first), mix(first.wrapping_add(GOLDEN))];
        let mut stream = Xoroshiro128Plus::new(seed);
        for i in 0..if cfg!(miri) { 10 } else { 1000 } {
            assert_eq!(stream.state(), state, "seed {seed}, output {i}");
            let resumed = Xoroshiro128Plus::from_state(state);
            assert_eq!(resumed.as_ref(), Some(&stream));
            let [s0, s1] = state;
            assert_eq!(stream.next_u64(), s0.wrapping_add(s1));
            let t = s0 ^ s1;
            state = [s0.rotate_left(24) ^ t ^ (t << 16), t.rotate_left(37)];
        }
    }
    // This state has the longest text of all.
    let longest = Xoroshiro128Plus::from_state([u64::MAX; 2]).expect("not zero");
    assert_eq!(longest.state(), [u64::MAX; 2]);
}

/// Compares outputs of SplitMix64 with published ones, for the seed 1234567.
#[test]
fn splitmix64_known_answers() {
    let expected = [
        6_457_827_717_110_365_317u64,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
    ];
    for (i, value) in (1u64..).zip(expected) {
        assert_eq!(
            mix(1_234_567u64.wrapping_add(i.wrapping_mul(GOLDEN))),
            value
        );
    }
}

#[test]
fn two_outputs_as_one_number_give_the_same_double() {
    let (mut a, mut b) = (Mt19937::new(5), Mt19937::new(5));
    // Miri tests one cycle through the 624 words of the state.
    for _ in 0..if cfg!(miri) { 700 } else { 10_000 } {
        assert_eq!(
            unit_of_libstdcxx(a.next_u64()).to_bits(),
            b.uniform().to_bits()
        );
    }
    assert!(unit_of_libstdcxx(u64::MAX) < 1.0);
    assert!(unit(u64::MAX) < 1.0);
}

#[test]
fn mt19937_goes_on_from_its_state() {
    let mut rng = Mt19937::new(7);
    for passed in [0, 1, 3, 620, 5000] {
        for _ in 0..if cfg!(miri) { passed.min(3) } else { passed } {
            rng.next_u32();
        }
        let mut resumed = Mt19937::from_state(rng.state()).expect("a state that was reached");
        assert_eq!(resumed.state(), rng.state());
        let mut other = rng.clone();
        for _ in 0..if cfg!(miri) { 3 } else { 2000 } {
            assert_eq!(resumed.next_u32(), other.next_u32());
        }
    }
    let mut words = [0; Mt19937::WORDS];
    words[0] = !(1 << 31);
    assert!(Mt19937::from_state(words).is_none());
    words[0] = 1 << 31;
    assert!(Mt19937::from_state(words).is_some());
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn positions_and_seeds_give_different_numbers() {
    let mut seen = std::collections::HashSet::new();
    for seed in 0..100 {
        for position in 0..100 {
            assert!(seen.insert(at_position(seed, position)));
        }
    }
    assert_eq!(at_position(3, 4), at_position(3, 4));
}

#[test]
#[cfg_attr(miri, ignore = "calls C++")]
fn the_stream_is_that_of_libstdcxx() {
    for seed in [0, 1, 42, 4_294_967_294] {
        let expected = vendor_llama_cpp::reference::std_uniform_double(seed, 5000);
        let mut rng = Mt19937::new(seed);
        for (i, &value) in expected.iter().enumerate() {
            assert_eq!(
                rng.uniform().to_bits(),
                value.to_bits(),
                "seed {seed}, draw {i}"
            );
        }
    }
}

#[test]
fn only_the_default_seed_is_replaced() {
    assert_eq!(resolve_seed(0), 0);
    assert_eq!(resolve_seed(42), 42);
    let drawn: Vec<u32> = (0..4).map(|_| resolve_seed(DEFAULT_SEED)).collect();
    assert!(
        drawn.iter().any(|&s| s != drawn[0]),
        "four random seeds are equal"
    );
}
