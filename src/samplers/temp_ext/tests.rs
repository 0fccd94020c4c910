use super::*;
use crate::token::array_of;

/// Checks that ordinary candidates are ranked and scaled in separate buffers. If a logit is
/// infinite, the candidates are sorted and scaled in the array.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn ordinary_candidates_are_written_once() {
    for (largest, aside) in [(3.0, true), (f32::INFINITY, false)] {
        let mut logits: Vec<f32> = (0..400).map(|i| (i % 113) as f32 / 40.0).collect();
        logits[7] = largest;
        let mut data = array_of(&logits);
        let mut temp_ext = TempExt::new(0.8, 0.3, 1.0).expect("it does something");
        temp_ext.apply(&mut Candidates::new(&mut data, false));
        assert_eq!(temp_ext.entropies.is_empty(), aside, "{largest}");
    }
}
