use super::*;
use crate::lcg::Lcg;
use crate::samplers::ban_strings::tests::{Words, changed_on_logits};
use crate::token::array_of;
use crate::vocabulary::Vocabulary as _;

fn biases(texts: &[&str], bias: f32, words: &Words) -> BanStringsBias {
    let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    let made = BanStringsBias::new(&texts, bias, &BanVocabulary::new(words, false));
    made.expect("they can be biased").expect("there are some")
}

/// Returns the number that is added to the logit of each token.
fn added(sampler: &mut BanStringsBias, n: usize) -> Vec<f32> {
    let mut array = array_of(&vec![0.0; n]);
    sampler.apply(&mut Candidates::new(&mut array, false));
    array.iter().map(|candidate| candidate.logit).collect()
}

#[test]
fn the_bias_grows_with_the_matched_part() {
    let words = Words(
        ["de", "l", "ve", "lv", "elf", "delve", "x"]
            .map(String::from)
            .into(),
    );
    let (control, end) = (7, 8);
    let mut sampler = biases(&["delve", "delves", "self"], -10.0, &words);
    let nothing = [0.0, 0.0, 0.0, 0.0, 0.0, -10.0, 0.0, 0.0, 0.0];
    assert_eq!(added(&mut sampler, 9), nothing);
    sampler.accept(0);
    let begun = [0.0, -6.0, 0.0, -8.0, 0.0, -10.0, 0.0, 0.0, 0.0];
    assert_eq!(added(&mut sampler, 9), begun);
    // These have no text.
    for token in [control, end, -1, 9, Token::MAX, Token::MIN] {
        sampler.accept(token);
        assert_eq!(added(&mut sampler, 9), begun);
    }
    sampler.accept(1);
    let further = [0.0, 0.0, -10.0, 0.0, 0.0, -10.0, 0.0, 0.0, 0.0];
    assert_eq!(added(&mut sampler, 9), further);
    let mut copy = sampler.clone();
    sampler.reset();
    assert_eq!(added(&mut sampler, 9), nothing);
    assert_eq!(added(&mut copy, 9), further);
    let mut saved = Vec::new();
    let saving = copy.save_memory(&mut |bytes| saved.extend_from_slice(bytes));
    saving.expect("it can be saved");
    sampler.load_memory(&saved).expect("the same texts");
    assert_eq!(added(&mut sampler, 9), further);
    assert!(sampler.load_memory(&saved[1..]).is_none());
    assert!(sampler.load_memory(&[&saved[..], &[0]].concat()).is_none());
    let mut other = biases(&["delve"], -10.0, &words);
    assert!(other.load_memory(&saved).is_none());
}

/// Few and many tokens are changed.
#[test]
fn logits_are_changed_as_arrays_are() {
    let words = Words::new(6000);
    let n = words.n_tokens();
    let mut lcg = Lcg(1);
    let (mut few, mut many) = (0, 0);
    let lists = [
        &["abc", "xyz"][..],
        &["abcdef", "bcdefa", "be"],
        &["a", "bdd"],
    ];
    for texts in lists {
        let mut sampler = biases(texts, -3.0, &words);
        for round in 0..40 {
            // There are as many logits as the vocabulary has tokens, or more.
            let changed = changed_on_logits(&mut sampler, n + [0, 70][round % 2], &mut lcg);
            few += usize::from((1..64).contains(&changed.len()));
            many += usize::from(changed.len() > 512);
            sampler.accept((lcg.bits() >> 8) as Token % n as Token);
        }
    }
    assert!(few > 5 && many > 5, "{few}, {many}");
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    let words = Words::new(40);
    let vocabulary = BanVocabulary::new(&words, true);
    let refusal =
        |texts: &[&[u8]], bias| BanStringsBias::new(texts, bias, &vocabulary).expect_err("refused");
    for bias in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert!(refusal(&[b"a"], bias).contains(&format!("bias is {bias}")));
    }
    assert!(refusal(&[b"a", b""], 1.0).contains("text 1 is empty"));
    assert!(refusal(&[b"\xFF"], 1.0).contains("not UTF-8"));
    for (texts, bias) in [(&[][..], 1.0), (&[&b"a"[..]], 0.0), (&[b"a"], -0.0)] {
        assert!(BanStringsBias::new(texts, bias, &vocabulary).is_ok_and(|made| made.is_none()));
    }
}
