//! Runs the examples of the sieve on the trained model, and checks their output.

use std::process::{Command, Output};

use crate::toolchain::{Build, Link, empty_folder, root, said, skipped};

/// Runs examples/steering, which cargo builds in a whole test run; `None` if only this test was
/// built.
fn steering(arguments: &[&str]) -> Option<Output> {
    let test = std::env::current_exe().expect("a test knows its path");
    let profile = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("two folders up");
    let example = profile.join("examples/steering");
    if !example.exists() {
        skipped(
            "examples/steering is not built; cargo build --release --example steering builds it",
        );
        return None;
    }
    let output = Command::new(example).args(arguments).output();
    Some(output.expect("the example runs"))
}

#[test]
fn every_pattern_runs() {
    for (pattern, words) in [
        ("plain", "And the LORD said unto"),
        ("deterministic", "identical"),
        ("creative", "And the LORD said unto"),
        ("factual", "And the LORD said unto"),
        ("concise", "And the LORD said unto"),
        ("adaptive", "entropy below 2 nats"),
        ("steering", "token ids are banned"),
        ("validation", "0 were wrong"),
        ("constrained", "the name is"),
        ("bursts", "bursts"),
        ("guard", "behind a repetition"),
        ("growth", "bytes of the buffers"),
        ("replay", "same tokens again"),
        ("perplexity", "perplexity"),
    ] {
        let Some(output) = steering(&[pattern, "-n", "40"]) else {
            return;
        };
        let text = said(&output);
        assert!(output.status.success(), "{pattern}: {text}");
        assert!(text.contains(words), "{pattern}: {text}");
    }
}

/// Every preset generates a text, and the plot shows its tokens.
#[test]
fn every_preset_has_a_text_and_a_plot() {
    let folder = empty_folder("steering_plots");
    for preset in [
        "tsampler",
        "tsampler-creative",
        "tsampler-factual",
        "tsampler-concise",
        "akunu",
        "akunu-factual",
        "akunu-balanced",
        "akunu-creative",
        "akunu-very-creative",
        "akunu-code",
    ] {
        let plot = folder.join(format!("{preset}.svg")).display().to_string();
        let arguments = ["plain", "--preset", preset, "-n", "20", "--plot", &plot];
        let Some(output) = steering(&arguments) else {
            return;
        };
        let text = said(&output);
        assert!(output.status.success(), "{preset}: {text}");
        let plot = std::fs::read_to_string(plot).expect("it was written");
        let surprisals = plot.matches("<circle").count();
        // One of them is in the legend.
        assert!((2..=21).contains(&surprisals), "{preset}: {surprisals}");
        assert!(plot.starts_with("<svg") && plot.ends_with("</svg>\n"));
        check_room(&plot);
    }
}

/// Checks that every text that begins at its position ends within the picture, even in a wide font.
fn check_room(plot: &str) {
    let number = |line: &str, name: &str| -> f64 {
        let rest = line.split(&format!(" {name}=\"")).nth(1).expect(name);
        let text = rest.split('"').next().expect("it ends");
        text.parse().expect("a number")
    };
    let width = number(plot.lines().next().expect("a line"), "width");
    let to_the_right = |line: &&str| line.starts_with("<text") && !line.contains("text-anchor");
    let texts: Vec<&str> = plot.lines().filter(to_the_right).collect();
    assert_eq!(texts.len(), 4, "a title and a legend of three");
    for line in texts {
        let text = line
            .split(['>', '<'])
            .nth(2)
            .expect("a text")
            .chars()
            .count() as f64;
        let end = number(line, "x") + 0.6 * number(line, "font-size") * text;
        assert!(end <= width, "{line} ends at {end:.0} of {width}");
    }
}

#[test]
fn a_wrong_pattern_is_named() {
    for (arguments, words) in [
        (&["dreaming"][..], "dreaming"),
        (&[], "Usage"),
        (&["-x"], "-x"),
        (&["plain", "--preset", "mine"], "mine"),
        (&["plain", "--seed", "-5"], "--seed -5"),
        (&["plain", "-n", "0"], "-n 0"),
    ] {
        let Some(output) = steering(arguments) else {
            return;
        };
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(words), "{}", said(&output));
    }
}

#[test]
fn the_two_commonest_uses_in_c() {
    let build = Build::new("sieve_example", "examples/sieve.c");
    let build = build.with_ours(Link::Static).with_llama(Link::Static);
    let program = build.build();
    let model = root().join("models/kjv-tiny.gguf").display().to_string();
    let plain = program.succeed(&[&model, "plain", "In the beginning", "7"]);
    assert!(plain.starts_with("In the beginning"), "{plain}");
    assert_eq!(
        program.succeed(&[&model, "plain", "In the beginning", "7"]),
        plain
    );
    let adaptive = program.succeed(&[&model, "adaptive"]);
    assert!(adaptive.starts_with("And the LORD said unto"), "{adaptive}");
    assert_eq!(program.output(&[&model, "dreaming"]).status.code(), Some(2));
    assert_eq!(
        program.output(&["nowhere.gguf", "plain"]).status.code(),
        Some(1)
    );
}
