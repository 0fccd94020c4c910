use super::*;

/// Sets a constraint that allows only token 1.
#[cfg(not(model))]
fn set(slot: &Slot) {
    use crate::trie::Payload;

    let json = br#"{"descriptors":[{"path":"p","leaves":[{"name":"n","tokens":[1]}]}]}"#;
    let payload = Payload::parse(json, None).expect("the payload is good");
    let mode = Mode::from_number(SAMPLED).expect("a mode");
    slot.set(Arc::new(Trie::new(&payload)), mode);
}

/// Returns the ids that are left after `by` was called on candidates with these ids.
#[cfg(not(model))]
fn left_of(ids: [i32; 3], by: impl FnOnce(&mut Candidates<'_>)) -> Vec<i32> {
    use crate::token::TokenData;

    let mut data = ids.map(|id| TokenData::new(id, 0.0));
    let mut candidates = Candidates::new(&mut data, false);
    by(&mut candidates);
    candidates.as_slice().iter().map(|c| c.id).collect()
}

#[cfg(not(model))]
#[test]
fn each_lack_is_told_once_for_a_constraint() {
    let slot = Arc::new(Slot::new(None));
    set(&slot);
    let mut state = slot.constraint.lock();
    let constraint = state.as_mut().expect("it was set");
    assert!(constraint.is_first(Lack::Cut) && !constraint.is_first(Lack::Cut));
    assert!(constraint.is_first(Lack::Banned) && !constraint.is_first(Lack::Banned));
    drop(state);
    assert_eq!(TrieSampler::new(slot).name(), c"token-trie");
}

#[cfg(not(model))]
#[test]
fn what_is_put_back_and_what_is_banned_is_told() {
    let of = |logits: [f32; 3], ids: [i32; 3]| {
        let slot = Arc::new(Slot::new(None));
        set(&slot);
        crate::last_error::clear();
        let mut data: Vec<_> = ids
            .iter()
            .zip(logits)
            .map(|(&id, logit)| crate::token::TokenData::new(id, logit))
            .collect();
        TrieSampler::new(slot).apply(&mut Candidates::new(&mut data, false));
        crate::last_error::get()
    };
    const BANNED: f32 = f32::NEG_INFINITY;
    assert_eq!(of([0.0; 3], [0, 1, 2]), "");
    assert!(of([0.0; 3], [0, 3, 2]).contains("put back"));
    let banned = of([0.0, BANNED, 0.0], [0, 1, 2]);
    assert!(banned.contains("every token that may follow is banned"));
}

#[test]
fn a_mode_is_named_by_its_number() {
    for number in [0, 1, 0x100, 0x101, 0x200, 0x201, 0x300, 0x301] {
        let mode = Mode::from_number(number).expect("a mode");
        assert_eq!(mode.greedy, number & 1 == GREEDY);
        assert_eq!(mode.compact, number & COMPACT != 0);
        assert_eq!(mode.reset_idle, number & RESET_IDLE != 0);
    }
    for number in [2, -1, 0x102, 0x400, 0x401, i32::MIN, i32::MAX] {
        assert!(Mode::from_number(number).is_err(), "{number}");
    }
}

#[cfg(not(model))]
#[test]
fn a_slot_that_was_cleared_constrains_nothing() {
    let slot = Arc::new(Slot::new(None));
    let mut sampler = TrieSampler::new(Arc::clone(&slot));
    let mut left = || left_of([0, 1, 2], |candidates| sampler.apply(candidates)).len();
    set(&slot);
    assert!(slot.is_active() && left() == 1);
    slot.clear();
    assert!(!slot.is_active() && left() == 3);
    assert!(slot.activate("p").is_err());
}

/// Checks that `salvage`, which is called after a panic in `apply`, leaves only allowed candidates,
/// whatever the candidates were before. If the slot is empty, all are allowed.
#[cfg(not(model))]
#[test]
fn what_is_salvaged_is_allowed() {
    let slot = Arc::new(Slot::new(None));
    let mut sampler = TrieSampler::new(Arc::clone(&slot));
    let mut left_of = |ids| left_of(ids, |candidates| sampler.salvage(candidates));
    assert_eq!(left_of([0, 1, 2]), [0, 1, 2]);
    set(&slot);
    assert_eq!(left_of([0, 1, 2]), [1]);
    // An allowed token that was removed before is put back.
    assert_eq!(left_of([0, 3, 2]), [1]);
}

/// A path may be as long as a client's payload, and so may the existing paths, so the message is
/// cut.
#[cfg(not(model))]
#[test]
fn an_unknown_path_is_answered_with_a_few_of_those_that_are_known() {
    use crate::trie::Payload;

    let slot = Slot::new(None);
    set(&slot);
    let unknown = slot.activate("no\n");
    let wanted = "no descriptor has the path \"no\\n\"; there are \"p\"";
    assert_eq!(unknown, Err(wanted.to_owned()));
    let long = "\u{7f}".repeat(10_000);
    let descriptor = |number: usize| {
        let leaves = r#"[{"name":"n","tokens":[1]}]"#;
        format!(r#"{{"path":"{number}{long}","leaves":{leaves}}}"#)
    };
    let descriptors: Vec<String> = (0..100).map(descriptor).collect();
    let json = format!(r#"{{"descriptors":[{}]}}"#, descriptors.join(","));
    let payload = Payload::parse(json.as_bytes(), None).expect("the payload is good");
    let mode = Mode::from_number(SAMPLED).expect("a mode");
    slot.set(Arc::new(Trie::new(&payload)), mode);
    let told = slot.activate(&long).expect_err("there is no such path");
    assert!(told.len() < 5_000, "{} bytes", told.len());
    assert!(
        told.contains("there are \"0") && told.ends_with(" and 92 more"),
        "{told}"
    );
}
