//! Checks that the committed charts of the benchmark are those that its program draws from the
//! committed runs.
#![allow(dead_code)] // Only the drawing half of the benchmark is used.

#[path = "../../benches/all/chart.rs"]
mod chart;
#[path = "../../benches/all/report.rs"]
mod report;

use std::path::Path;

#[test]
fn committed_charts_are_those_of_the_committed_runs() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results");
    let drawn = Path::new(env!("CARGO_TARGET_TMPDIR")).join("charts");
    std::fs::create_dir_all(&drawn).expect("the target directory can be written");
    let mut charts = 0;
    for file in std::fs::read_dir(&results).expect("the results are part of the repository") {
        let json = file.expect("readable").path();
        let is_run = json
            .extension()
            .is_some_and(|extension| extension == "json")
            && json
                .file_name()
                .is_some_and(|name| name != "instructions.json");
        if !is_run {
            continue;
        }
        let name = json.file_name().expect("a file");
        chart::draw(&report::Run::read(&json), &drawn.join(name));
        for chart in ["ratios", "sizes"] {
            let name = format!(
                "{}-{chart}.svg",
                json.file_stem().expect("a file").display()
            );
            let Ok(committed) = std::fs::read_to_string(results.join(&name)) else {
                continue;
            };
            let again = std::fs::read_to_string(drawn.join(&name)).expect("just drawn");
            assert!(
                committed == again,
                "{name} is not what its run gives: cargo bench -- --draw {}",
                json.display()
            );
            charts += 1;
        }
    }
    assert!(charts > 0, "no charts");
}
