use super::*;
use crate::lcg::Lcg;
use crate::simd::Isa;

#[test]
fn ranks_are_the_places_of_a_stable_sort() {
    for n in (0..=MOST).step_by(if cfg!(miri) { 21 } else { 1 }) {
        let mut xs = Lcg(n as u32).quarters(n, 16.0);
        if n > 3 {
            (xs[0], xs[1], xs[2]) = (0.0, -0.0, f32::INFINITY);
        }
        let mut places: Vec<u32> = (0..n as u32).collect();
        places.sort_by(|&a, &b| {
            xs[b as usize]
                .partial_cmp(&xs[a as usize])
                .expect("numbers")
        });
        for isa in Isa::supported() {
            let _forced = isa.force();
            let mut to = vec![0; n];
            ranks(&xs, &mut to);
            let at = |i: u32| places.iter().position(|&p| p == i).expect("each once") as u32;
            let expected: Vec<u32> = (0..n as u32).map(at).collect();
            assert_eq!(to, expected, "{n}, {isa:?}");
        }
    }
}
