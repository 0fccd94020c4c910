use super::*;

#[test]
fn every_instruction_set_agrees_with_the_c_library() {
    for isa in Isa::supported() {
        assert!(agrees(isa), "{isa:?}");
    }
}
