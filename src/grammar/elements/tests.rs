use super::*;

#[test]
fn a_class_has_what_is_listed() {
    let class = Class::of(false, vec![(0x61, 0x7A), (0x30, 0x30)]);
    assert!(class.has(0x61) && class.has(0x7A) && class.has(0x30));
    assert!(!class.has(0x31) && !class.has(0x60));
    let negated = Class::of(true, vec![(0x61, 0x7A)]);
    assert!(!negated.has(0x62) && negated.has(0x41) && negated.has(0x3F_FFFF));
    assert!(Class::any().has(0));
    // A range that ends before it begins has nothing.
    assert!(!Class::of(false, vec![(0x7A, 0x61)]).has(0x70));
    assert!(Class::of(true, vec![(0x7A, 0x61)]).has(0x70));
}

#[test]
fn ranges_that_overlap_are_all_found() {
    let class = Class::of(false, vec![(10, 90), (20, 30), (40, 5), (95, 99), (95, 96)]);
    assert_eq!(&*class.ranges, [(10, 90), (95, 96), (95, 99)]);
    let listed = |c: u32| (10..=90).contains(&c) || (95..=99).contains(&c);
    for code_point in 0..120 {
        assert_eq!(class.has(code_point), listed(code_point), "{code_point}");
    }
    // From E3 may come U+3000 to U+3FFF; a range that ends before it begins overlaps that.
    assert!(Class::of(false, vec![(0x3100, 0x3050)]).may_have(3, 2));
    assert!(!Class::of(false, vec![(0x4100, 0x3050)]).may_have(3, 2));
    assert!(!Class::of(false, vec![(0x3100, 0x2050)]).may_have(3, 2));
}

#[test]
fn equal_alternatives_are_one() {
    let mut rule = Vec::new();
    for class in 0..70 {
        rule.extend([Element::Class(class), Element::Alternative]);
    }
    rule.resize(2000, Element::Alternative);
    let rules = Rules::link(Vec::new(), &[rule], 0).expect("not recursive");
    assert_eq!(rules.alternatives[0].len(), 71);
}

#[test]
fn part_of_a_character_is_judged_by_what_it_may_become() {
    // The first byte of U+3042, E3, says 3.
    let hiragana = Class::of(false, vec![(0x3041, 0x3096)]);
    assert!(hiragana.may_have(3, 2));
    assert!(!hiragana.may_have(4, 2));
    assert!(!Class::of(true, vec![(0x3041, 0x3096)]).may_have(3, 2));
    assert!(Class::of(true, vec![(0x3041, 0x3096)]).may_have(4, 2));
    // Overlong.
    assert!(!Class::any().may_have(1, 1));
    assert!(Class::any().may_have(2, 1));
    // E0: from U+0800 on, though its bits say from 0 on.
    assert!(!Class::one(0x7FF).may_have(0, 2));
    assert!(Class::one(0x800).may_have(0, 2));
    assert!(!Class::one(0xFFFF).may_have(0, 3));
    assert!(Class::one(0x1_0000).may_have(0, 3));
}

#[test]
fn equal_rests_are_one_sequence() {
    let (a, b) = (Element::Class(0), Element::Class(1));
    let rule = vec![a, b, Element::Alternative, b, Element::Alternative, b, b];
    let rules = Rules::link(Vec::new(), &[rule], 0).expect("not recursive");
    let heads = &rules.alternatives[0];
    assert_eq!(heads.len(), 3);
    // b; a b; b b; and the empty one.
    assert_eq!(rules.sequences.len(), 4);
    assert_eq!(rules.first(heads[0]).expect("not empty").rest, heads[1]);
}

#[test]
fn left_recursion_is_found_as_far_as_the_host_finds_it() {
    let (rule, end) = (Element::Rule, Element::Alternative);
    let class = Element::Class(0);
    let link = |rules: &[Vec<Element>]| Rules::link(Vec::new(), rules, 0).err();
    assert!(link(&[vec![rule(0)]]).is_some());
    assert!(link(&[vec![class, rule(0)]]).is_none());
    assert!(link(&[vec![rule(1)], vec![class, end, rule(0)]]).is_some());
    // Behind one that is written empty.
    assert!(link(&[vec![rule(1), rule(0)], vec![class, end]]).is_some());
    assert!(link(&[vec![rule(1), rule(0)], vec![class]]).is_none());
    // Not behind one that is empty by another.
    assert!(link(&[vec![rule(1), rule(0)], vec![rule(2)], vec![class, end]]).is_none());
}

#[test]
#[cfg_attr(miri, ignore = "counts to a million")]
fn rules_that_begin_with_two_others_double_the_hosts_check() {
    let chain = |n: u32, last: Vec<Element>| {
        let rules = 1..n;
        let double = |i| vec![Element::Rule(i), Element::Alternative, Element::Rule(i)];
        let mut rules: Vec<Vec<Element>> = rules.map(double).collect();
        rules.push(last);
        rules
    };
    let class = || vec![Element::Class(0)];
    assert!(host_check_ends(&chain(10, class()), 5000));
    assert!(!host_check_ends(&chain(60, class()), 1 << 20));
    assert!(Rules::link(Vec::new(), &chain(60, class()), 0).is_ok());
    // It ends with the first rule that begins with itself, if it gets there.
    let circle = vec![Element::Rule(0)];
    assert!(host_check_ends(&chain(60, circle.clone()), 1000));
    let mut late = chain(60, class());
    late.push(vec![Element::Rule(60)]);
    assert!(!host_check_ends(&late, 1 << 20));
    assert!(Rules::link(Vec::new(), &late, 0).is_err());
}
