//! A plot of entropy and surprisal over a text, as SVG.

use std::fmt::Write;

use llama_sieve::Token;
use llama_sieve::metrics::{self, Base};
use llama_sieve::sieve::Sieve;

/// One token of the text, with entropies and surprisal in nats. `sampling_entropy` is NaN where the
/// sieve drew no token.
pub struct Point {
    text: String,
    entropy: f32,
    surprisal: f32,
    sampling_entropy: f32,
}

impl Point {
    /// Returns the point of a token that was chosen from these logits, whether or not by `sieve`.
    pub fn new(text: String, logits: &[f32], token: Token, sieve: &Sieve) -> Self {
        let number = |number: Option<f32>| number.unwrap_or(f32::NAN);
        let stats = sieve.stats();
        let is_drawn = stats.accepted == sieve.accepted();
        Self {
            text,
            entropy: number(metrics::entropy(logits, Base::Nats)),
            surprisal: number(metrics::surprisal(logits, token, Base::Nats)),
            sampling_entropy: match is_drawn {
                true => stats.sampling_entropy,
                false => f32::NAN,
            },
        }
    }
}

const STEP: f64 = 15.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 72.0;
const HEIGHT: f64 = 220.0;
const TEXT: &str = "#7a828c";
const MODEL: &str = "#2f81f7";
const DRAWN: &str = "#3fa34d";
const CHOSEN: &str = "#d0704c";

/// Draws two lines, the entropies of the model's and of the sampled distribution, a mark for the
/// surprisal of each token, and the tokens below.
pub fn draw(points: &[Point]) -> String {
    let all = points
        .iter()
        .flat_map(|p| [p.entropy, p.surprisal, p.sampling_entropy]);
    let highest = all.filter(|nats| nats.is_finite()).fold(1.0, f32::max);
    let most = f64::from(highest).ceil();
    let x = |i: usize| LEFT + STEP * (i as f64 + 0.5);
    let y = |nats: f32| TOP + HEIGHT * (1.0 - f64::from(nats) / most);
    let width = (LEFT + STEP * points.len() as f64 + 24.0).max(640.0);
    let mut svg = String::new();
    text(
        &mut svg,
        (12.0, 24.0),
        16,
        "",
        "How uncertain the model was, and how surprising its text",
    );
    let (bottom, step) = (TOP + HEIGHT, (most / 8.0).ceil());
    let mut nats = 0.0;
    while nats <= most {
        let at = bottom - HEIGHT * nats / most;
        line(&mut svg, (LEFT, at), (width - 24.0, at), TEXT, 0.3);
        text(
            &mut svg,
            (LEFT - 8.0, at + 4.0),
            11,
            "text-anchor=\"end\"",
            &format!("{nats:.0}"),
        );
        nats += step;
    }
    let middle = TOP + HEIGHT / 2.0;
    let upwards = format!("text-anchor=\"middle\" transform=\"rotate(-90 16 {middle})\"");
    text(&mut svg, (16.0, middle), 12, &upwards, "nats");
    for (color, of) in [
        (MODEL, (|p: &Point| p.entropy) as fn(&Point) -> f32),
        (DRAWN, |p: &Point| p.sampling_entropy),
    ] {
        for (i, pair) in points.windows(2).enumerate() {
            let [a, b] = [of(&pair[0]), of(&pair[1])];
            if a.is_finite() && b.is_finite() {
                line(&mut svg, (x(i), y(a)), (x(i + 1), y(b)), color, 1.0);
            }
        }
    }
    for (i, point) in points.iter().enumerate() {
        if point.surprisal.is_finite() {
            circle(&mut svg, (x(i), y(point.surprisal)));
        }
        let along = format!(
            "text-anchor=\"end\" transform=\"rotate(-60 {:.1} {:.1})\"",
            x(i) + 3.0,
            bottom + 14.0
        );
        text(
            &mut svg,
            (x(i) + 3.0, bottom + 14.0),
            10,
            &along,
            &escape(&point.text),
        );
    }
    for (at, color, what) in [
        (LEFT, MODEL, "entropy of the model"),
        (LEFT + 172.0, DRAWN, "entropy of what was drawn from"),
    ] {
        line(&mut svg, (at, 46.0), (at + 20.0, 46.0), color, 1.0);
        text(&mut svg, (at + 26.0, 50.0), 11, "", what);
    }
    circle(&mut svg, (LEFT + 406.0, 46.0));
    text(
        &mut svg,
        (LEFT + 416.0, 50.0),
        11,
        "",
        "surprisal of the token",
    );
    let height = bottom + 84.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" fill=\"{TEXT}\">\n{svg}</svg>\n"
    )
}

fn text(svg: &mut String, (x, y): (f64, f64), size: u32, more: &str, what: &str) {
    writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" {more}>{what}</text>"
    )
    .expect("a string grows");
}

fn line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), color: &str, opacity: f64) {
    writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{color}\" stroke-opacity=\"{opacity}\" stroke-width=\"1.5\"/>"
    )
    .expect("a string grows");
}

fn circle(svg: &mut String, (x, y): (f64, f64)) {
    writeln!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{CHOSEN}\"/>"
    )
    .expect("a string grows");
}

/// Returns the text of a token for the picture: with visible spaces and line ends, and without
/// markup or characters that XML does not allow.
fn escape(text: &str) -> String {
    let shown = text.chars().map(|c| match c {
        ' ' => '\u{2423}',
        '\n' => '\u{21b5}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    });
    let shown: String = shown.collect();
    shown
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
