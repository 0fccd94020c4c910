use super::*;
use crate::token::array_of;

fn selected(m: i32) -> Option<usize> {
    let mut data = array_of(&std::array::from_fn::<_, 50, _>(|i| {
        (i as f32 * 1.7).sin() * 4.0
    }));
    let mut candidates = Candidates::new(&mut data, false);
    Mirostat::new(50, 7, 3.0, 0.1, m).apply(&mut candidates);
    candidates.selected()
}

#[test]
fn an_m_below_1_means_all_also_the_least_there_is() {
    assert_eq!(selected(i32::MIN), selected(0));
    assert_eq!(selected(-5), selected(0));
}

/// If the estimate takes more than an eighth of the candidates, sorting all of them is faster.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_large_share_is_sorted() {
    for (m, by_sum) in [(2, true), (500, true), (501, false), (4000, false)] {
        let logits: Vec<f32> = (0..4000).map(|i| (i * 7 % 4000) as f32 / 400.0).collect();
        let mut data = array_of(&logits);
        let mut candidates = Candidates::new(&mut data, false);
        let mut mirostat = Mirostat::new(4000, 7, 3.0, 0.1, m);
        // The first array is sorted, since it looks ordered.
        assert!(!mirostat.keep_by_sum(&mut candidates));
        mirostat.feedback.began = true;
        assert_eq!(mirostat.keep_by_sum(&mut candidates), by_sum, "{m}");
    }
}

/// Room is made for the size of the array, however many candidates are kept.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn room_is_made_for_as_many_as_there_are() {
    const N: usize = 1000;
    let mut data = vec![TokenData::default(); N];
    let mut mirostat = MirostatV2::new(7, 3.0, 0.1);
    mirostat.apply(&mut Candidates::new(&mut data[..2], false));
    assert!(mirostat.feedback.kept.capacity() < N);
    mirostat.apply(&mut Candidates::new(&mut data, false));
    assert!(mirostat.feedback.kept.capacity() >= N);
    let mut data = vec![TokenData::default(); 2 * N];
    data[7].logit = 100.0;
    mirostat.apply(&mut Candidates::new(&mut data, false));
    assert!(mirostat.feedback.kept.capacity() >= 2 * N);
}
