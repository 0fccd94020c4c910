//! The pictures as SVG. Colours have a medium brightness, so that they are visible on white and on
//! black.

use std::fmt::Write;

use llama_sieve::metrics::Summary;
use llama_sieve::sieve::{Order, Params, Sieve};

/// The prompt and the logits of one step of the model.
pub struct Step {
    pub prompt: String,
    /// The tokens of the prompt.
    pub history: Vec<i32>,
    /// Text and logit of each token of the vocabulary.
    pub tokens: Vec<(String, f32)>,
}

impl Step {
    /// Returns a text with the prompt, its tokens, and a line with logit and text for each token of
    /// the vocabulary; texts as JSON strings.
    #[allow(dead_code)] // The test does not write.
    pub fn to_text(&self) -> String {
        let quoted = |text: &str| serde_json::to_string(text).expect("a string");
        let history: Vec<String> = self.history.iter().map(i32::to_string).collect();
        let mut text = format!("{}\n{}\n", quoted(&self.prompt), history.join(" "));
        for (piece, logit) in &self.tokens {
            writeln!(text, "{logit:.2}\t{}", quoted(piece)).expect("a string grows");
        }
        text
    }

    pub fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let plain = |text: &str| serde_json::from_str(text).expect("a JSON string");
        let prompt = plain(lines.next().expect("a prompt"));
        let history = lines.next().expect("the prompt's tokens");
        let history = history.split(' ').map(|id| id.parse().expect("a token"));
        let token = |line: &str| {
            let (logit, piece) = line.split_once('\t').expect("logit and text");
            (plain(piece), logit.parse().expect("a number"))
        };
        Self {
            prompt,
            history: history.collect(),
            tokens: lines.map(token).collect(),
        }
    }

    fn logits(&self) -> Vec<f32> {
        self.tokens.iter().map(|token| token.1).collect()
    }
}

/// Returns parameters that disable every stage.
fn open() -> Params {
    Params {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        penalty_repeat: 1.0,
        seed: 1,
        ..Params::default()
    }
}

/// A distribution over the vocabulary, before and after the stages.
struct Distribution {
    /// The probability of each token before any filter.
    p: Vec<f64>,
    /// The probability of each token after all stages, 0 if it was cut.
    drawn: Vec<f64>,
}

impl Distribution {
    fn of(step: &Step, params: &Params) -> Self {
        let logits = step.logits();
        let mut sieve = Sieve::new(params).expect("valid parameters");
        for &token in &step.history {
            sieve.accept(token);
        }
        sieve.sample(&logits).expect("there is a candidate");
        let log_sum_exp = Summary::of(&logits).log_sum_exp();
        let mut drawn = vec![0.0; logits.len()];
        for candidate in sieve.candidates() {
            drawn[candidate.id as usize] = f64::from(candidate.p);
        }
        let p = logits.iter().map(|&x| (f64::from(x) - log_sum_exp).exp());
        Self {
            p: p.collect(),
            drawn,
        }
    }

    /// Returns the tokens by descending probability.
    fn ranked(&self) -> Vec<usize> {
        let mut ids: Vec<usize> = (0..self.p.len()).collect();
        ids.sort_by(|&a, &b| self.p[b].total_cmp(&self.p[a]));
        ids
    }

    fn kept(&self) -> usize {
        self.drawn.iter().filter(|&&p| p > 0.0).count()
    }
}

/// The number of tokens that have a bar.
const SHOWN: usize = 24;
const ROW: usize = 17;
const TOP: usize = 74;
const LEFT: f64 = 120.0;
const WIDTH: f64 = 440.0;
const TEXT: &str = "#7a828c";
const KEPT: &str = "#2f81f7";
const CUT: &str = "#d0704c";

fn escape(text: &str) -> String {
    let text = text.replace(' ', "\u{2423}").replace('\n', "\u{21b5}");
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// The text of a picture, to which elements are appended.
struct Svg {
    body: String,
}

impl Svg {
    fn new(title: &str, subtitle: &str) -> Self {
        let mut svg = Self {
            body: String::new(),
        };
        svg.text(12.0, 24.0, "start", 16, title);
        svg.text(12.0, 44.0, "start", 12, subtitle);
        svg
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, size: usize, text: &str) {
        let weight = if size > 12 {
            " font-weight=\"600\""
        } else {
            ""
        };
        writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\"{weight}>{text}</text>"
        )
        .expect("a string grows");
    }

    /// Draws the title of a vertical axis.
    fn upwards(&mut self, x: f64, y: f64, text: &str) {
        writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" font-size=\"12\" transform=\"rotate(-90 {x:.1} {y:.1})\">{text}</text>"
        )
        .expect("a string grows");
    }

    /// Draws a bar: filled for a kept token, framed for a removed one.
    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, kept: bool) {
        let width = width.max(0.8);
        let style = match kept {
            true => format!("fill=\"{KEPT}\""),
            false => format!("fill=\"{CUT}\" fill-opacity=\"0.25\" stroke=\"{CUT}\""),
        };
        writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {style}/>"
        )
        .expect("a string grows");
    }

    /// Draws the outline of a bar before the stage.
    fn outline(&mut self, x: f64, y: f64, width: f64, height: f64) {
        writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"none\" stroke=\"{TEXT}\" stroke-dasharray=\"3 2\"/>"
        )
        .expect("a string grows");
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
        writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>"
        )
        .expect("a string grows");
    }

    /// Draws the meaning of the colours.
    fn legend(&mut self, x: f64, y: f64, entries: &[(&str, Legend)]) {
        let mut x = x;
        for (text, what) in entries {
            match what {
                Legend::Kept => self.bar(x, y - 9.0, 12.0, 10.0, true),
                Legend::Cut => self.bar(x, y - 9.0, 12.0, 10.0, false),
                Legend::Before => self.outline(x, y - 9.0, 12.0, 10.0),
            }
            self.text(x + 17.0, y, "start", 11, text);
            x += 34.0 + 6.2 * text.chars().count() as f64;
        }
    }

    fn finish(self, width: f64, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" fill=\"{TEXT}\">\n{}</svg>\n",
            self.body
        )
    }
}

#[derive(Clone, Copy)]
enum Legend {
    Kept,
    Cut,
    Before,
}

const KEPT_AND_CUT: [(&str, Legend); 2] = [("kept", Legend::Kept), ("cut", Legend::Cut)];

/// One bar with its label and note.
struct Bar {
    label: String,
    p: f64,
    before: Option<f64>,
    kept: bool,
    note: String,
}

/// Returns the largest value that an axis must show.
fn longest(bars: &[Bar]) -> f64 {
    let ends = bars.iter().map(|b| b.p.max(b.before.unwrap_or(0.0)));
    ends.fold(0.0, f64::max)
}

/// Draws bars of probability, with a column of notes under `heading` to their right.
fn bars(
    svg: &mut Svg,
    (left, width): (f64, f64),
    longest: f64,
    bars: &[Bar],
    heading: &str,
) -> f64 {
    let step = [0.01, 0.02, 0.05, 0.1, 0.2];
    let step = step.into_iter().find(|s| longest / s <= 6.0).unwrap_or(0.5);
    let last = (longest / step).ceil();
    let scale = width / (last * step);
    let bottom = (TOP + ROW * bars.len()) as f64;
    let grid = format!("stroke=\"{TEXT}\" stroke-opacity=\"0.35\"");
    for i in 0..=last as usize {
        let x = left + i as f64 * step * scale;
        svg.line((x, TOP as f64 - 4.0), (x, bottom), &grid);
        let percent = format!("{:.0} %", i as f64 * step * 100.0);
        svg.text(x, TOP as f64 - 8.0, "middle", 11, &percent);
    }
    if !heading.is_empty() {
        svg.text(left + width + 32.0, TOP as f64 - 8.0, "start", 11, heading);
    }
    for (i, bar) in bars.iter().enumerate() {
        let y = (TOP + ROW * i) as f64;
        svg.text(left - 6.0, y + 12.0, "end", 12, &escape(&bar.label));
        svg.bar(left, y + 2.0, bar.p * scale, ROW as f64 - 5.0, bar.kept);
        if let Some(before) = bar.before {
            svg.outline(left, y + 1.0, before * scale, ROW as f64 - 3.0);
        }
        svg.text(left + width + 32.0, y + 12.0, "start", 11, &bar.note);
    }
    bottom
}

fn percent(p: f64) -> String {
    format!("{:.1} %", 100.0 * p)
}

/// Draws the effect of a filter: which of the most probable tokens it keeps.
fn filter(
    step: &Step,
    (title, subtitle): (&str, &str),
    params: &Params,
    heading: &str,
    note: impl Fn(&Distribution, usize, f64) -> String,
) -> String {
    let distribution = Distribution::of(step, params);
    let mut svg = Svg::new(title, subtitle);
    let mut sum = 0.0;
    let mut rows = Vec::new();
    for &id in distribution.ranked().iter().take(SHOWN) {
        sum += distribution.p[id];
        rows.push(Bar {
            label: step.tokens[id].0.clone(),
            p: distribution.p[id],
            before: None,
            kept: distribution.drawn[id] > 0.0,
            note: note(&distribution, id, sum),
        });
    }
    let bottom = bars(&mut svg, (LEFT, WIDTH), longest(&rows), &rows, heading);
    let shown = rows.iter().filter(|row| row.kept).count();
    let (n, kept) = (distribution.p.len(), distribution.kept());
    let rest = format!(
        "and {} more tokens: {} kept, {} cut. In all {kept} of {n} stay.",
        n - SHOWN,
        kept - shown,
        n - SHOWN - (kept - shown)
    );
    svg.text(LEFT, bottom + 18.0, "start", 12, &rest);
    svg.legend(LEFT, bottom + 38.0, &KEPT_AND_CUT);
    svg.finish(LEFT + WIDTH + 164.0, bottom + 50.0)
}

/// Draws the same tokens before and after a stage that removes none.
fn change(step: &Step, (title, subtitle): (&str, &str), params: &Params) -> String {
    let distribution = Distribution::of(step, params);
    let mut svg = Svg::new(title, subtitle);
    let mut rows = Vec::new();
    for &id in distribution.ranked().iter().take(SHOWN) {
        let (before, after) = (distribution.p[id], distribution.drawn[id]);
        rows.push(Bar {
            label: step.tokens[id].0.clone(),
            p: after,
            before: Some(before),
            kept: true,
            note: format!("{} \u{2192} {}", percent(before), percent(after)),
        });
    }
    let bottom = bars(&mut svg, (LEFT, WIDTH), longest(&rows), &rows, "");
    let legend = [("after", Legend::Kept), ("before", Legend::Before)];
    svg.legend(LEFT, bottom + 20.0, &legend);
    svg.finish(LEFT + WIDTH + 164.0, bottom + 32.0)
}

/// Draws two settings side by side.
fn pair(step: &Step, (title, subtitle): (&str, &str), sides: [(&str, Params); 2]) -> String {
    let mut svg = Svg::new(title, subtitle);
    let width = 200.0;
    let sides = sides.map(|(name, params)| {
        let distribution = Distribution::of(step, &params);
        let row = |&id: &usize| {
            let (before, after) = (distribution.p[id], distribution.drawn[id]);
            let kept = after > 0.0;
            Bar {
                label: step.tokens[id].0.clone(),
                p: if kept { after } else { before },
                before: Some(before),
                kept,
                note: String::new(),
            }
        };
        let rows: Vec<Bar> = distribution.ranked().iter().take(SHOWN).map(row).collect();
        (format!("{name}: {} tokens stay", distribution.kept()), rows)
    });
    let cut = sides
        .iter()
        .any(|(_, rows)| rows.iter().any(|row| !row.kept));
    let lengths = [longest(&sides[0].1), longest(&sides[1].1)];
    let common = lengths[0].max(lengths[1]);
    let mut bottom = 0.0;
    for (i, (said, rows)) in sides.iter().enumerate() {
        let left = LEFT + i as f64 * (width + LEFT + 10.0);
        // Both have the same scale, unless one of them would be unreadable on it.
        let reach = if lengths[i] < common / 3.0 {
            lengths[i]
        } else {
            common
        };
        bottom = bars(&mut svg, (left, width), reach, rows, "");
        svg.text(left, bottom + 18.0, "start", 12, said);
    }
    let mut legend = vec![("drawn from", Legend::Kept), ("model", Legend::Before)];
    if cut {
        legend.insert(1, ("cut", Legend::Cut));
    }
    svg.legend(LEFT, bottom + 40.0, &legend);
    svg.finish(2.0 * (LEFT + width) + 40.0, bottom + 52.0)
}

/// Draws a histogram of the logits with intervals of 0.25, and the threshold from which they are
/// kept.
fn top_n_sigma(step: &Step) -> String {
    let params = Params {
        top_n_sigma: 1.0,
        ..open()
    };
    let distribution = Distribution::of(step, &params);
    let logits = step.logits();
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let kept = (0..logits.len()).filter(|&i| distribution.drawn[i] > 0.0);
    let lowest_kept = kept.map(|i| logits[i]).fold(f32::MAX, f32::min);
    let n = logits.len() as f64;
    let mean = logits.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let square = |&x: &f32| (f64::from(x) - mean).powi(2);
    let sigma = (logits.iter().map(square).sum::<f64>() / n).sqrt();
    let threshold = f64::from(max) - sigma;
    assert!(f64::from(lowest_kept) >= threshold);

    let low = f64::from(logits.iter().copied().fold(f32::MAX, f32::min)).floor();
    let high = f64::from(max).ceil();
    let per_bin = 0.25;
    let bins = ((high - low) / per_bin) as usize;
    let mut counts = vec![[0usize; 2]; bins];
    for (i, &logit) in logits.iter().enumerate() {
        let bin = ((f64::from(logit) - low) / per_bin) as usize;
        counts[bin.min(bins - 1)][usize::from(distribution.drawn[i] > 0.0)] += 1;
    }
    let most = counts.iter().map(|c| c[0] + c[1]).max().unwrap_or(1);
    let (left, width, height) = (60.0, 600.0, 240.0);
    let bottom = TOP as f64 + height;
    // Heights are logarithms, so that an interval of one token is visible next to one of hundreds.
    let tall = |count: usize| height * (1.0 + count as f64).ln() / (1.0 + most as f64).ln();
    let mut svg = Svg::new(
        "top-n-sigma 1",
        "how many tokens have which logit; kept: within one standard deviation of the largest",
    );
    svg.upwards(16.0, bottom - height / 2.0, "tokens (logarithmic)");
    let grid = format!("stroke=\"{TEXT}\" stroke-opacity=\"0.35\"");
    for count in [0, 1, 3, 10, 30, 100] {
        let y = bottom - tall(count);
        svg.line((left, y), (left + width, y), &grid);
        svg.text(left - 8.0, y + 4.0, "end", 11, &count.to_string());
    }
    let x_of = |logit: f64| left + width * (logit - low) / (high - low);
    for (i, [cut, kept]) in counts.iter().enumerate() {
        let x = x_of(low + i as f64 * per_bin);
        let bar = width * per_bin / (high - low) - 1.0;
        for (count, is_kept) in [(*cut, false), (*kept, true)] {
            if count > 0 {
                let tall = tall(count);
                svg.bar(x, bottom - tall, bar, tall, is_kept);
            }
        }
    }
    let mut logit = (low / 2.0).ceil() * 2.0;
    while logit <= high {
        svg.text(
            x_of(logit),
            bottom + 16.0,
            "middle",
            11,
            &format!("{logit:.0}"),
        );
        logit += 2.0;
    }
    svg.text(left + width / 2.0, bottom + 34.0, "middle", 12, "logit");
    let dashed = format!("stroke=\"{TEXT}\" stroke-width=\"1.5\" stroke-dasharray=\"5 3\"");
    let x = x_of(threshold);
    svg.line((x, TOP as f64 - 6.0), (x, bottom), &dashed);
    let said = format!("m \u{2212} s = {threshold:.1}");
    svg.text(x - 5.0, TOP as f64 + 6.0, "end", 11, &said);
    let rest = format!("{} of {} tokens stay", distribution.kept(), logits.len());
    svg.text(left, bottom + 56.0, "start", 12, &rest);
    svg.legend(left + 220.0, bottom + 56.0, &KEPT_AND_CUT);
    svg.finish(left + width + 40.0, bottom + 68.0)
}

/// Returns every picture with the name of its file.
pub fn all(step: &Step) -> Vec<(&'static str, String)> {
    let after = format!("the next token after \u{201c}{}\u{201d}", step.prompt);
    let after = after.as_str();
    let p_of = |d: &Distribution, id: usize, _: f64| percent(d.p[id]);
    let entropy = Summary::of(&step.logits()).entropy().unwrap_or(0.0);
    let said = format!("{after}; its entropy is {entropy:.2} nats");
    vec![
        (
            "penalties.svg",
            change(
                step,
                (
                    "repetition penalty 1.3",
                    "what the tokens of the prompt lose, and all others gain",
                ),
                &Params {
                    penalty_repeat: 1.3,
                    ..open()
                },
            ),
        ),
        (
            "top-k.svg",
            filter(
                step,
                ("top-k 8", after),
                &Params { top_k: 8, ..open() },
                "p",
                p_of,
            ),
        ),
        (
            "typical.svg",
            filter(
                step,
                ("typical 0.5", &said),
                &Params {
                    typical_p: 0.5,
                    ..open()
                },
                "from the entropy",
                |d, id, _| format!("{:.2} nats", (-d.p[id].ln() - entropy).abs()),
            ),
        ),
        (
            "top-p.svg",
            filter(
                step,
                ("top-p 0.5", after),
                &Params {
                    top_p: 0.5,
                    ..open()
                },
                "sum of p",
                |_, _, sum| percent(sum),
            ),
        ),
        (
            "min-p.svg",
            filter(
                step,
                ("min-p 0.15", after),
                &Params {
                    min_p: 0.15,
                    ..open()
                },
                "p / largest p",
                |d, id, _| {
                    let largest = d.p.iter().copied().fold(0.0, f64::max);
                    format!("{:.2}", d.p[id] / largest)
                },
            ),
        ),
        ("top-n-sigma.svg", top_n_sigma(step)),
        (
            "temperature.svg",
            pair(
                step,
                ("temperature 0.5 and 1.5", after),
                [
                    (
                        "temperature 0.5",
                        Params {
                            temperature: 0.5,
                            ..open()
                        },
                    ),
                    (
                        "temperature 1.5",
                        Params {
                            temperature: 1.5,
                            ..open()
                        },
                    ),
                ],
            ),
        ),
        (
            "order.svg",
            pair(
                step,
                ("temperature 1.5 with top-p 0.5, last and first", after),
                [Order::TempLast, Order::TempFirst].map(|order| {
                    let name = match order {
                        Order::TempLast => "temperature last",
                        Order::TempFirst => "temperature first",
                    };
                    let params = Params {
                        order,
                        temperature: 1.5,
                        top_p: 0.5,
                        ..open()
                    };
                    (name, params)
                }),
            ),
        ),
    ]
}
