use super::*;

fn with_xtc() -> Sieve {
    let mut sieve = Sieve::new(&Params::default()).expect("ordinary parameters");
    let xtc = Stage::Xtc {
        probability: 0.5,
        threshold: 0.1,
    };
    sieve.set_stages(Some(&[xtc])).expect("ordinary stages");
    sieve
}

/// Numbers that differ in only one bit begin different streams.
#[test]
fn each_number_begins_another_stream() {
    let mut sieve = with_xtc();
    let pipeline = &mut sieve.pipeline;
    let mut streams: Vec<Vec<u8>> = (0..8)
        .map(|bits| {
            let mut saved = Vec::new();
            pipeline.members.begin_streams(bits);
            pipeline
                .members
                .save(true, &mut |part| saved.extend_from_slice(part));
            saved
        })
        .collect();
    streams.sort();
    streams.dedup();
    assert_eq!(streams.len(), 8);
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn what_a_pipeline_holds_grows_with_the_vocabulary() {
    let mut sieve = with_xtc();
    let mut bytes = |n| {
        sieve.sample(&vec![0.5; n][..]).expect("a token");
        sieve.pipeline.bytes()
    };
    let (few, many) = (bytes(100), bytes(20_000));
    assert!(few >= 400 && many >= 80_000 && many > few);
}
