use super::*;
use crate::chain::Chain;
use crate::lcg::Lcg;
use crate::pool::{Buffers, Pool};
use crate::samplers::Greedy;
use crate::token::array_of;

/// A vocabulary of words and letters, followed by a control token and a token that ends a
/// generation.
#[derive(Debug)]
pub(in crate::samplers) struct Words(pub(in crate::samplers) Vec<String>);

impl Words {
    pub(in crate::samplers) fn new(n: usize) -> Self {
        let mut lcg = Lcg(5);
        let mut texts: Vec<String> = ('a'..='z').map(String::from).collect();
        while texts.len() < n {
            let length = 1 + (lcg.bits() >> 24) as usize % 4;
            let letter = |_| char::from(b'a' + ((lcg.bits() >> 20) % 6) as u8);
            texts.push((0..length).map(letter).collect());
        }
        Self(texts)
    }
}

impl Vocabulary for Words {
    fn n_tokens(&self) -> usize {
        self.0.len() + 2
    }

    fn is_eog(&self, token: Token) -> bool {
        token as usize == self.0.len() + 1
    }

    fn end_token(&self) -> Option<Token> {
        Some(self.0.len() as Token + 1)
    }

    fn piece(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clear();
        let text = self.0.get(token as usize).map(String::as_bytes);
        piece.extend_from_slice(text.unwrap_or_default());
    }

    fn detokenize(&self, token: Token, text: &mut Vec<u8>) {
        self.piece(token, text);
    }

    fn tokenize(&self, _text: &[u8]) -> Vec<Token> {
        Vec::new()
    }
}

fn bans(texts: &[&str], words: &Words) -> BanStrings {
    let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    let made = BanStrings::new(&texts, &BanVocabulary::new(words, false));
    made.expect("they can be banned").expect("there are some")
}

/// Applies a sampler to `n_logits` random logits, and to arrays of them: all in the order of their
/// tokens, all in reverse order, and a few. Checks that all results are equal. Returns the logits
/// that changed.
pub(in crate::samplers) fn changed_on_logits(
    sampler: &mut impl Sampler,
    n_logits: usize,
    lcg: &mut Lcg,
) -> Vec<f32> {
    let logits: Vec<f32> = (0..n_logits).map(|_| lcg.unit()).collect();
    let mut array = array_of(&logits);
    let mut whole = Candidates::new(&mut array, true);
    sampler.apply(&mut whole);
    let both = whole.as_slice().iter().map(|candidate| candidate.logit);
    let both = both.zip(&logits).filter(|&(new, &old)| new != old);
    let changed: Vec<f32> = both.map(|(new, _)| new).collect();
    assert_eq!(whole.is_sorted(), changed.is_empty());
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
    some.rotate_left(n_logits / 2);
    some.truncate(5);
    sampler.apply(&mut Candidates::new(&mut some, false));
    for candidate in &some {
        assert_eq!(candidate.logit, array[candidate.id as usize].logit);
    }
    changed
}

/// Few and many tokens are banned, by edits and by masks.
#[test]
fn logits_are_masked_as_arrays_are() {
    let words = Words::new(3000);
    let n = words.n_tokens();
    let mut lcg = Lcg(1);
    let (mut few, mut many) = (0, 0);
    for texts in [&["abc", "xyz"][..], &["a", "be"], &["ab", "zb", "cc"]] {
        let mut sampler = bans(texts, &words);
        for round in 0..40 {
            // There are as many logits as the vocabulary has tokens, or more.
            let banned = changed_on_logits(&mut sampler, n + [0, 70][round % 2], &mut lcg);
            assert!(banned.iter().all(|&logit| logit == f32::NEG_INFINITY));
            few += usize::from((1..FEW).contains(&banned.len()));
            many += usize::from(banned.len() > FEW);
            sampler.accept((lcg.bits() >> 8) as Token % n as Token);
        }
    }
    assert!(few > 5 && many > 5, "{few}, {many}");
}

#[test]
fn control_tokens_and_ends_have_no_text() {
    let words = Words(["a", "b", "ab", "<x>"].map(String::from).into());
    let (control, end) = (4, 5);
    let mut sampler = bans(&["ab", "<x>"], &words);
    let masked = |sampler: &mut BanStrings| {
        let mut array = array_of(&[0.0; 6]);
        sampler.apply(&mut Candidates::new(&mut array, false));
        array.map_or_ids()
    };
    assert_eq!(masked(&mut sampler), [2, 3]);
    sampler.accept(0);
    assert_eq!((masked(&mut sampler), sampler.rewind()), (vec![1, 2, 3], 1));
    sampler.accept(control);
    assert_eq!((masked(&mut sampler), sampler.rewind()), (vec![1, 2, 3], 2));
    for odd in [-1, 6, Token::MAX, Token::MIN] {
        sampler.accept(odd);
    }
    assert_eq!(sampler.rewind(), 6);
    sampler.accept(end);
    assert_eq!((masked(&mut sampler), sampler.rewind()), (vec![1, 2, 3], 7));
    sampler.reset();
    assert_eq!((masked(&mut sampler), sampler.rewind()), (vec![2, 3], 0));
}

trait Masked {
    fn map_or_ids(&self) -> Vec<Token>;
}

impl<T: AsRef<[crate::token::TokenData]>> Masked for T {
    fn map_or_ids(&self) -> Vec<Token> {
        let masked = self
            .as_ref()
            .iter()
            .filter(|c| c.logit == f32::NEG_INFINITY);
        masked.map(|c| c.id).collect()
    }
}

#[test]
fn a_chain_goes_around_the_texts() {
    let words = Words(
        ["no", "de", "lve", "del", "ve", "!"]
            .map(String::from)
            .into(),
    );
    let logits = [1.0, 5.0, 6.0, 4.0, 6.0, 0.0, -1.0, -2.0];
    let mut chain = Chain::new().with(Some(bans(&["lvelve", "delve"], &words)));
    chain = chain.with(Some(Greedy));
    let mut text = String::new();
    for _ in 0..50 {
        let token = chain.sample(&logits).expect("one is left");
        chain.accept(token);
        text += words.0.get(token as usize).expect("a word");
    }
    assert!(
        !text.contains("delve") && !text.contains("lvelve"),
        "{text}"
    );
    assert!(text.starts_with("lvevelvevelve"), "{text}");
}

#[test]
fn what_cannot_be_banned_is_refused_with_its_number() {
    let words = Words::new(40);
    let vocabulary = BanVocabulary::new(&words, true);
    let long = vec![b'a'; MAX_TEXT_BYTES + 1];
    let refusal = |texts: &[&[u8]]| BanStrings::new(texts, &vocabulary).expect_err("refused");
    assert!(refusal(&[b"a", b""]).contains("text 1 is empty"));
    assert!(refusal(&[&long]).contains("text 0"));
    assert!(refusal(&[b"\xFF"]).contains("not UTF-8"));
    assert!(refusal(&vec![&b"ab"[..]; MAX_TEXTS + 1]).contains("16385 texts"));
    assert!(refusal(&vec![&long[1..]; 257]).contains("bytes"));
    assert!(BanStrings::new(&[], &vocabulary).is_ok_and(|made| made.is_none()));
    // The largest number of texts of this length.
    let most = vec![&long[1..]; 256];
    assert!(BanStrings::new(&most, &vocabulary).is_ok_and(|made| made.is_some()));
}
