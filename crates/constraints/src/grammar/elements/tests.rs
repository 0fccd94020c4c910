use super::*;

fn written(rules: &[Vec<Element>]) -> Written {
    Written {
        rules: rules.iter().collect(),
        ..Written::default()
    }
}

#[test]
fn a_class_has_what_is_listed() {
    let class = Class::of(false, vec![(0x61, 0x7A), (0x30, 0x30)]);
    assert!(class.has(0x61) && class.has(0x7A) && class.has(0x30));
    assert!(!class.has(0x31) && !class.has(0x60));
    let negated = Class::of(true, vec![(0x61, 0x7A)]);
    assert!(!negated.has(0x62) && negated.has(0x41) && negated.has(0x3F_FFFF));
    assert!(Class::any().has(0));
    // A range that ends before it begins has no characters.
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
    // The byte E3 begins U+3000 to U+3FFF, which a range that ends before it begins overlaps.
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
    let rules = Rules::link(written(&[rule])).expect("not recursive");
    assert_eq!(rules.alternatives.get(0).len(), 71);
}

#[test]
fn part_of_a_character_is_judged_by_what_it_may_become() {
    // The first byte of U+3042, E3, has the bits 3.
    let hiragana = Class::of(false, vec![(0x3041, 0x3096)]);
    assert!(hiragana.may_have(3, 2));
    assert!(!hiragana.may_have(4, 2));
    assert!(!Class::of(true, vec![(0x3041, 0x3096)]).may_have(3, 2));
    assert!(Class::of(true, vec![(0x3041, 0x3096)]).may_have(4, 2));
    // Overlong.
    assert!(!Class::any().may_have(1, 1));
    assert!(Class::any().may_have(2, 1));
    // E0 begins U+0800 and later characters, although its bits are 0.
    assert!(!Class::one(0x7FF).may_have(0, 2));
    assert!(Class::one(0x800).may_have(0, 2));
    assert!(!Class::one(0xFFFF).may_have(0, 3));
    assert!(Class::one(0x1_0000).may_have(0, 3));
}

#[test]
fn equal_rests_are_one_sequence() {
    let (a, b) = (Element::Class(0), Element::Class(1));
    let rule = vec![a, b, Element::Alternative, b, Element::Alternative, b, b];
    let rules = Rules::link(written(&[rule])).expect("not recursive");
    let heads = rules.alternatives.get(0);
    assert_eq!(heads.len(), 3);
    // The sequences "b", "a b", "b b" and the empty one.
    assert_eq!(rules.sequences.len(), 4);
    assert_eq!(rules.first(heads[0]).expect("not empty").rest, heads[1]);
}

#[test]
fn left_recursion_is_found_as_far_as_the_host_finds_it() {
    let (rule, end) = (Element::Rule, Element::Alternative);
    let class = Element::Class(0);
    let link = |rules: &[Vec<Element>]| left_recursive(&written(rules));
    assert!(link(&[vec![rule(0)]]).is_some());
    assert!(link(&[vec![class, rule(0)]]).is_none());
    assert!(link(&[vec![rule(1)], vec![class, end, rule(0)]]).is_some());
    // The check looks past a rule that is written as empty.
    assert!(link(&[vec![rule(1), rule(0)], vec![class, end]]).is_some());
    assert!(link(&[vec![rule(1), rule(0)], vec![class]]).is_none());
    // It does not look past a rule that is empty only through another rule.
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
    assert!(host_check_ends(&written(&chain(10, class())), 5000));
    assert!(!host_check_ends(&written(&chain(60, class())), 1 << 20));
    assert!(left_recursive(&written(&chain(60, class()))).is_none());
    // The check ends at the first rule that begins with itself, if it reaches one.
    let circle = vec![Element::Rule(0)];
    assert!(host_check_ends(&written(&chain(60, circle.clone())), 1000));
    let mut late = chain(60, class());
    late.push(vec![Element::Rule(60)]);
    assert!(!host_check_ends(&written(&late), 1 << 20));
    assert!(left_recursive(&written(&late)).is_some());
}

#[test]
fn a_repetition_begins_with_its_item_and_ends_the_check_where_the_host_ends_it() {
    let (rule, repeat, end) = (Element::Rule, Element::Repeat, Element::Alternative);
    let class = Element::Class(0);
    let begins_with_itself = |rules: &[Vec<Element>], item: Vec<Element>, min, max| {
        let written = Written {
            repeats: vec![Repeat { item, min, max }],
            ..written(rules)
        };
        left_recursive(&written).is_some()
    };
    assert!(begins_with_itself(&[vec![repeat(0)]], vec![rule(0)], 2, 2));
    assert!(begins_with_itself(&[vec![repeat(0)]], vec![rule(0)], 0, 3));
    assert!(!begins_with_itself(
        &[vec![repeat(0)]],
        vec![class, rule(0)],
        0,
        3
    ));
    // After a repetition that may have no rounds.
    assert!(begins_with_itself(
        &[vec![repeat(0), rule(0)]],
        vec![class],
        0,
        3
    ));
    assert!(!begins_with_itself(
        &[vec![repeat(0), rule(0)]],
        vec![class],
        1,
        3
    ));
    // An unbounded repetition of a rule that is written as empty.
    let rules = [vec![repeat(0)], vec![class, end]];
    assert!(begins_with_itself(&rules, vec![rule(1)], 2, ENDLESS));
    assert!(!begins_with_itself(&rules, vec![rule(1)], 2, 9));
}

#[test]
fn what_may_be_empty_is_found_through_rules_and_repetitions() {
    let (rule, repeat, end) = (Element::Rule, Element::Repeat, Element::Alternative);
    let class = Element::Class(0);
    let item = |item, min| Repeat { item, min, max: 9 };
    let written = Written {
        repeats: vec![
            item(vec![class], 0),
            item(vec![class], 1),
            item(vec![rule(1)], 2),
        ],
        ..written(&[
            vec![rule(1), rule(2)],
            vec![class, end],
            vec![repeat(0), repeat(2)],
            vec![repeat(1)],
            vec![class, rule(0)],
        ])
    };
    let rules = Rules::link(written).expect("not recursive");
    let heads = rules.alternatives.iter().flatten();
    let empty: Vec<bool> = heads.map(|&head| rules.may_be_empty(head)).collect();
    assert_eq!(empty, [true, false, true, true, false, false]);
}
