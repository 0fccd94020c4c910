use super::*;

fn tree(texts: &[&str]) -> Nodes {
    tree_with(texts, false)
}

fn tree_with(texts: &[&str], have_controls: bool) -> Nodes {
    let bytes = texts.concat();
    let mut offsets = vec![0];
    offsets.extend(texts.iter().scan(0, |end, text| {
        *end += text.len() as u32;
        Some(*end)
    }));
    Nodes::new(&Sorted {
        bytes: bytes.as_bytes(),
        offsets: &offsets,
        first_rank: 0,
        have_controls,
    })
}

/// Returns the texts of all ranks, gathered from the tree.
fn texts(nodes: &Nodes) -> Vec<String> {
    let mut texts = vec![String::new(); nodes.end()];
    let mut pending = vec![(ROOT, String::new(), nodes.end())];
    while let Some((node, text, end)) = pending.pop() {
        let at = nodes.at(node);
        let own = at.first_rank()..nodes.end_of_own(at, end);
        texts[own].fill(text.clone());
        let children = at.children();
        for child in children.clone() {
            let mut text = text.clone();
            if let Step::Complete(code_point) = nodes.at(child).step() {
                text.push(char::from_u32(code_point).expect("a character"));
            }
            pending.push((child, text, nodes.end_of(child, &children, end)));
        }
    }
    texts
}

#[test]
fn every_text_is_found_again() {
    let all = [
        "a", "a", "ab", "abc", "ac", "b", "zé", "é", "éa", "日", "本", "🙂", "🙂🙂",
    ];
    assert_eq!(texts(&tree(&all)), all);
    assert!(texts(&tree(&[])).is_empty());
}

#[test]
fn a_summary_says_what_is_below() {
    let all: Vec<String> = (0..20).map(|i| format!("a{i:02}é")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let nodes = tree(&all);
    let summary = |node: usize| nodes.summary(node);
    let set = |text: &str| text.chars().map(|c| char_bit(c as u32)).sum();
    let a = nodes.at(ROOT).children().start;
    let (digits, others) = (set("0123456789é"), set("abcdef"));
    assert!(summary(a).kinds.is_within(Kinds::within(digits)));
    assert!(!summary(ROOT).kinds.is_within(Kinds::within(digits)));
    assert!(
        summary(ROOT)
            .kinds
            .is_within(Kinds::within(digits | others))
    );
    assert!(!summary(a).kinds.is_within(Kinds::within(set("012345678é"))));
    assert!(!summary(a).kinds.is_within(Kinds::within(set("0123456789"))));
    assert_eq!(
        [summary(ROOT).height, summary(a).height],
        [Some(4), Some(3)]
    );
    let children = nodes.at(a).children();
    let digit = nodes.next_in(children.clone(), char_bit('1' as u32));
    let digit = digit.expect("there are such texts");
    assert_eq!(nodes.at(digit).step(), Step::Complete('1' as u32));
    assert!(nodes.next_in(children, char_bit('2' as u32)).is_none());
    for n in 1..300_u32 {
        let height = tree(&[&"a".repeat(n as usize)]).summary(ROOT).height;
        assert_eq!(height, (n < 255).then_some(n));
    }
}

/// The summary does not depend on what follows the first control character.
#[test]
fn a_summary_ends_before_the_first_control_character() {
    let nodes = tree_with(&["\n9\n", "a\tb", "ab\n", "ac\u{1}{"], true);
    let kinds = |text: &str| Kinds::within(text.chars().map(|c| char_bit(c as u32)).sum());
    let before = |node: usize| nodes.before_controls(node).expect("controls").kinds;
    assert_eq!(before(ROOT), kinds("abcdef"));
    let children = nodes.at(ROOT).children();
    let all = Kinds::within(CharSet::MAX);
    assert!(!before(children.start).is_within(all), "behind a line feed");
    let a = children.start + 1;
    assert_eq!(before(a), kinds("abcdef"));
    let last = nodes.at(a).children().last().expect("a child");
    assert_eq!(before(last), Kinds::default());
    assert!(tree(&["a"]).before_controls(ROOT).is_none());
}

#[test]
fn every_character_is_of_one_kind() {
    let listed: usize = KINDS.iter().map(|kind| kind.len()).sum();
    assert_eq!(listed, 127);
    assert_eq!(KIND_OF.iter().filter(|&&kind| kind == 0).count(), 1);
}
