//! Checks that the pictures of docs/sampling.md are those that the example draws from the recorded
//! logits, byte for byte.

#[path = "../../examples/draw_sampling/pictures.rs"]
mod drawing;

use std::collections::BTreeSet;
use std::path::Path;

use drawing::Step;

#[test]
fn the_pictures_are_what_the_program_draws() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
    let text = read("logits.tsv");
    assert!(text.len() <= 64 * 1024, "{} bytes", text.len());
    let step = Step::parse(&text);
    assert_eq!(step.tokens.len(), 2048);
    let page = std::fs::read_to_string(folder.join("../sampling.md")).expect("the page");
    let mut names = BTreeSet::from(["logits.tsv".to_owned()]);
    for (name, picture) in drawing::all(&step) {
        assert!(
            read(name) == picture,
            "docs/pictures/{name} is not what `cargo run --release --example draw_sampling` draws"
        );
        assert!(
            page.contains(&format!("(pictures/{name})")),
            "{name} is not shown"
        );
        names.insert(name.to_owned());
    }
    let files = std::fs::read_dir(&folder).expect("the folder is there");
    let names_of = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("an entry");
        entry.file_name().to_string_lossy().into_owned()
    };
    // The other files in the folder are pictures of other pages.
    let others: Vec<String> = files.map(names_of).filter(|n| !names.contains(n)).collect();
    assert!(
        others.iter().all(|name| !page.contains(name.as_str())),
        "{others:?}"
    );
}
