use super::*;

fn trie(leaves: &[(&str, &[Token])]) -> Trie {
    let leaves = leaves.iter().map(|&(name, tokens)| Leaf {
        name: name.to_owned(),
        tokens: tokens.to_vec(),
    });
    Trie::new(&Payload {
        model_id: String::new(),
        descriptors: vec![Descriptor {
            path: "action".to_owned(),
            leaves: leaves.collect(),
            terminators: Vec::new(),
        }],
    })
}

/// Tests the trie of this drawing:
///
/// ```text
/// (root) -1-> . -2-> "go"
///              \-3-> "goal" -4-> "goalie"
///        -5-> "stop"
/// ```
#[test]
fn a_drawn_trie() {
    let trie = trie(&[
        ("goalie", &[1, 3, 4]),
        ("stop", &[5]),
        ("go", &[1, 2]),
        ("nothing", &[]),
        ("goal", &[1, 3]),
        ("a second name of goal", &[1, 3]),
    ]);
    let root = trie.first_root();
    assert_eq!(trie.children(root), [1, 5]);
    assert!(!trie.is_terminal(root));
    let go = trie.child(root, 1).expect("1 follows");
    assert_eq!(trie.children(go), [2, 3]);
    assert_eq!(trie.child(go, 4), None);
    let goal = trie.child(go, 3).expect("3 follows");
    assert_eq!(trie.name(goal), Some("a second name of goal"));
    assert_eq!(trie.children(goal), [4]);
    let goalie = trie.child(goal, 4).expect("4 follows");
    assert_eq!(trie.name(goalie), Some("goalie"));
    assert!(trie.children(goalie).is_empty());
    assert_eq!((trie.n_nodes(), trie.max_token()), (6, 5));
}

#[test]
fn bytes_are_those_of_the_arrays_and_texts() {
    let mut payload = Payload {
        model_id: String::new(),
        descriptors: vec![Descriptor {
            path: "path".to_owned(),
            leaves: vec![Leaf {
                name: "a name".to_owned(),
                tokens: vec![1, 2, 3],
            }],
            terminators: Vec::new(),
        }],
    };
    // A root and three nodes, and one more entry for the last node's children.
    let arrays = 4 * (4 + 5 + 4);
    let texts = "path".len() + "a name".len() + 2 * size_of::<Box<str>>();
    let empty = size_of::<Vec<Token>>();
    let bytes = size_of::<Trie>() + arrays + texts + empty;
    assert_eq!(Trie::new(&payload).bytes(), bytes);
    payload.descriptors[0].terminators = vec![9, 8, 9];
    let trie = Trie::new(&payload);
    assert_eq!(trie.bytes(), bytes + 2 * size_of::<Token>());
    assert_eq!(trie.terminators(trie.first_root()), [8, 9]);
    assert_eq!(trie.terminators(1), [] as [Token; 0]);
    assert_eq!(trie.max_token(), 9);
}
