use super::*;

fn selected(m: i32) -> Option<usize> {
    let mut data: Vec<TokenData> = (0..50)
        .map(|i| TokenData {
            id: i as Token,
            logit: (i as f32 * 1.7).sin() * 4.0,
            p: 0.0,
        })
        .collect();
    let mut candidates = Candidates::new(&mut data, false);
    Mirostat::new(50, 7, 3.0, 0.1, m).apply(&mut candidates);
    candidates.selected()
}

#[test]
fn an_m_below_1_means_all_also_the_least_there_is() {
    assert_eq!(selected(i32::MIN), selected(0));
    assert_eq!(selected(-5), selected(0));
}
