//! The charts of a saved run, as SVG: ratios to the built-ins at one size, and times over the
//! number of candidates.

use std::path::Path;

use test_crates::plotters::coord::Shift;
use test_crates::plotters::prelude::*;
use test_crates::plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::{Measurement, Run};

/// The number of candidates for which the bars are drawn.
const N: usize = 128_256;
const OURS: RGBColor = RGBColor(0, 114, 178);
const OURS_FLAT: RGBColor = RGBColor(86, 180, 233);
const THEIRS: RGBColor = RGBColor(213, 94, 0);
const GREY: RGBColor = RGBColor(110, 110, 110);
const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws both charts next to the JSON file of the run.
pub fn draw(run: &Run, json: &Path) {
    let stem = json.with_extension("");
    for (suffix, draw) in [
        ("ratios", ratios as fn(&Run, &Path)),
        ("sizes", sizes as fn(&Run, &Path)),
    ] {
        let path = format!("{}-{suffix}.svg", stem.display());
        draw(run, Path::new(&path));
    }
}

fn text(area: &Area, at: (i32, i32), anchor: HPos, size: i32, what: &str) {
    let style = (FONT, size).into_font().color(&BLACK);
    let style = style.pos(Pos::new(anchor, VPos::Center));
    area.draw(&Text::new(what.to_owned(), at, style))
        .expect("an SVG in memory");
}

fn line(area: &Area, points: &[(i32, i32)], color: RGBColor, width: u32) {
    let path = PathElement::new(points.to_vec(), color.stroke_width(width));
    area.draw(&path).expect("an SVG in memory");
}

fn bar(area: &Area, corners: [(i32, i32); 2], color: RGBColor) {
    area.draw(&Rectangle::new(corners, color.filled()))
        .expect("an SVG in memory");
}

/// Returns the names in the order in which they were measured.
fn names<'r>(rows: impl Iterator<Item = &'r Measurement>) -> Vec<&'r str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    names
}

/// The rows of the bars: one of each kind of chain, sampler and constraint.
const BARS: [&str; 10] = [
    "chain: top_k 40, top_p, min_p, temp, dist",
    "chain: penalties, top_k 40, top_p, min_p, temp, dist",
    "chain: top_p, temp, dist",
    "top_k(40)",
    "top_p(.95)",
    "min_p(.05)",
    "typical(.9)",
    "mirostat_v2(5, .1)",
    "all grammars, mask and apply, mean, in turn",
    "trie, 30 choices, compact",
];

/// Draws a bar for each of [`BARS`] and each of the two shapes, on a logarithmic scale that begins
/// at 1.
fn ratios(run: &Run, path: &Path) {
    const LEFT: i32 = 330;
    const WIDTH: i32 = 520;
    const ROW: i32 = 26;
    const TOP: i32 = 78;
    let chosen = || {
        let rows = run.rows.iter();
        rows.filter(|row| row.n == N && BARS.contains(&row.name.as_str()))
            .filter(|row| ["", "peaked", "flat"].contains(&row.shape.as_str()))
            .filter(|row| row.theirs_ns.is_some())
    };
    let there = names(chosen());
    let names: Vec<&str> = BARS
        .into_iter()
        .filter(|name| there.contains(name))
        .collect();
    if names.is_empty() {
        return;
    }
    let most = chosen().filter_map(Measurement::ratio).fold(2.0, f64::max);
    // The scale reaches from 1 to beyond the longest bar.
    let scale = f64::from(WIDTH) / (most * 2.0).ln();
    let x = |ratio: f64| LEFT + (ratio.ln() * scale).max(0.0) as i32;
    let height = TOP + ROW * names.len() as i32 + 16;
    let area = SVGBackend::new(path, (900, height as u32)).into_drawing_area();
    area.fill(&WHITE).expect("an SVG in memory");
    text(
        &area,
        (16, 20),
        HPos::Left,
        16,
        "Times the built-in takes for one of ours, 128,256 candidates",
    );
    text(&area, (16, 42), HPos::Left, 11, &run.title());
    let bottom = height - 12;
    for ratio in [1.0, 3.0, 10.0, 30.0, 100.0, 1000.0, 10_000.0] {
        if ratio < most * 1.3 {
            let color = if ratio == 1.0 {
                BLACK
            } else {
                RGBColor(215, 215, 215)
            };
            line(&area, &[(x(ratio), TOP - 6), (x(ratio), bottom)], color, 1);
            text(
                &area,
                (x(ratio), TOP - 14),
                HPos::Center,
                11,
                &format!("{ratio}"),
            );
        }
    }
    for (i, name) in names.iter().enumerate() {
        let y = TOP + ROW * i as i32;
        text(&area, (LEFT - 8, y + ROW / 2), HPos::Right, 12, name);
        // A row that was measured without logits has no shape.
        let shapes = [("", OURS, 8), ("peaked", OURS, 3), ("flat", OURS_FLAT, 13)];
        for (shape, color, below) in shapes {
            let row = chosen().find(|row| row.name == *name && row.shape == shape);
            let Some(ratio) = row.and_then(Measurement::ratio) else {
                continue;
            };
            let y = y + below;
            bar(&area, [(x(1.0), y), (x(ratio), y + 9)], color);
            text(
                &area,
                (x(ratio) + 4, y + 5),
                HPos::Left,
                10,
                &format!("{ratio:.1}"),
            );
        }
    }
    for (x, color, what) in [(620, OURS, "peaked"), (700, OURS_FLAT, "flat")] {
        bar(&area, [(x, 36), (x + 12, 48)], color);
        text(&area, (x + 18, 42), HPos::Left, 11, what);
    }
    area.present().expect("the chart can be written");
}

/// The rows whose times are drawn over the number of candidates: one of each kind of algorithm.
const BY_SIZE: [&str; 6] = [
    "top_k(40)",
    "top_p(.95)",
    "typical(.9)",
    "dist",
    "chain: penalties, top_k 40, top_p, min_p, temp, dist",
    "sieve, default parameters",
];

/// Draws a panel for each of [`BY_SIZE`]: the times of this library and of the built-in on peaked
/// logits, over the number of candidates. Both axes are logarithmic.
fn sizes(run: &Run, path: &Path) {
    const COLUMNS: usize = 3;
    const PANEL: (i32, i32) = (340, 190);
    const TOP: i32 = 66;
    let chosen = || {
        let rows = run.rows.iter();
        let drawn = |row: &&Measurement| BY_SIZE.contains(&row.name.as_str());
        rows.filter(|row| row.shape == "peaked" && row.n > 0)
            .filter(drawn)
    };
    let names = names(chosen());
    let (low, high) = (40_f64, 262_144_f64);
    if chosen().map(|row| row.n).min() == chosen().map(|row| row.n).max() {
        return;
    }
    let panels = names.len().div_ceil(COLUMNS) as i32;
    let size = (PANEL.0 * COLUMNS as i32, TOP + PANEL.1 * panels);
    let area = SVGBackend::new(path, (size.0 as u32, size.1 as u32)).into_drawing_area();
    area.fill(&WHITE).expect("an SVG in memory");
    text(
        &area,
        (16, 18),
        HPos::Left,
        16,
        "Time for one token over the number of candidates, peaked logits",
    );
    text(&area, (16, 38), HPos::Left, 11, &run.title());
    for (x, color, what) in [
        (16, OURS, "ours"),
        (86, THEIRS, "built-in"),
        (176, GREY, "slope 1: linear"),
    ] {
        line(&area, &[(x, 54), (x + 20, 54)], color, 2);
        text(&area, (x + 26, 54), HPos::Left, 11, what);
    }
    // The scale reaches from 1 ns to 100 ms.
    let to = |origin: (i32, i32), n: f64, ns: f64| {
        let x = (n / low).ln() / (high / low).ln() * 268.0;
        let y = ns.max(1.0).log10() / 8.0 * 140.0;
        (origin.0 + x as i32, origin.1 - y as i32)
    };
    for (i, name) in names.iter().enumerate() {
        let column = (i % COLUMNS) as i32;
        let row = (i / COLUMNS) as i32;
        let origin = (column * PANEL.0 + 46, TOP + row * PANEL.1 + 162);
        text(&area, (origin.0 - 30, origin.1 - 150), HPos::Left, 11, name);
        line(
            &area,
            &[
                (origin.0, origin.1 - 140),
                origin,
                (origin.0 + 272, origin.1),
            ],
            GREY,
            1,
        );
        for (ns, label) in [(1.0, "1 ns"), (1e3, "1 us"), (1e6, "1 ms")] {
            let (x, y) = to(origin, low, ns);
            line(&area, &[(x - 3, y), (x, y)], GREY, 1);
            text(&area, (x - 5, y), HPos::Right, 9, label);
        }
        for (n, label) in [(40.0, "40"), (1e3, "1k"), (32e3, "32k"), (high, "262k")] {
            let (x, y) = to(origin, n, 1.0);
            text(&area, (x, y + 8), HPos::Center, 9, label);
        }
        let times = |time: fn(&Measurement) -> Option<f64>| -> Vec<(i32, i32)> {
            chosen()
                .filter(|row| row.name == *name)
                .filter_map(|row| Some(to(origin, row.n as f64, time(row)?)))
                .collect()
        };
        let ours = chosen().rfind(|row| row.name == *name);
        if let Some(last) = ours {
            let per_candidate = last.ours_ns / last.n as f64;
            let start = 1000.0;
            let ends = [start, last.n as f64].map(|n| to(origin, n, n * per_candidate));
            line(&area, &ends, RGBColor(190, 190, 190), 1);
        }
        line(&area, &times(|row| row.theirs_ns), THEIRS, 2);
        line(&area, &times(|row| Some(row.ours_ns)), OURS, 2);
    }
    area.present().expect("the chart can be written");
}
