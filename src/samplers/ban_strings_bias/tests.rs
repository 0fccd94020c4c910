use super::*;
use crate::lcg::Lcg;
use crate::pool::{Buffers, Pool};
use crate::samplers::ban_strings::tests::Words;
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

/// Few and many tokens are changed. The results on logits are those on an array, in any order and
/// of any size.
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
            let n_logits = n + [0, 70][round % 2];
            let logits: Vec<f32> = (0..n_logits).map(|_| lcg.unit()).collect();
            let mut array = array_of(&logits);
            let mut whole = Candidates::new(&mut array, true);
            sampler.apply(&mut whole);
            let is_changed =
                |(candidate, logit): (&crate::token::TokenData, &f32)| candidate.logit != *logit;
            let both = whole.as_slice().iter().zip(&logits);
            let changed = both.filter(|&both| is_changed(both)).count();
            assert_eq!(whole.is_sorted(), changed == 0);
            few += usize::from((1..64).contains(&changed));
            many += usize::from(changed > 512);
            let mut buffers = Buffers::default();
            let mut pool = Pool::new(&logits[..], &mut buffers);
            sampler.narrow(&mut pool);
            assert_eq!(pool.array().0, array);
            // In reverse order no token is at its index.
            let mut reversed = array_of(&logits);
            reversed.reverse();
            sampler.apply(&mut Candidates::new(&mut reversed, false));
            reversed.reverse();
            assert_eq!(reversed, array);
            let mut some = array_of(&logits);
            some.rotate_left(n / 2);
            some.truncate(5);
            sampler.apply(&mut Candidates::new(&mut some, false));
            for candidate in &some {
                assert_eq!(candidate.logit, array[candidate.id as usize].logit);
            }
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
