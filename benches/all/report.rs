//! The results of a run: rows, a Markdown table, a JSON file.

use std::path::Path;
use std::process::Command;

use llama_sieve::simd;
use serde::Serialize;

/// A row of the results. Times are in nanoseconds.
#[derive(Serialize)]
pub struct Measurement {
    pub part: String,
    pub name: String,
    /// The number of candidates.
    pub n: usize,
    /// The name of the input's shape, such as "peaked"; empty in most rows of parts that have only
    /// one input.
    pub shape: String,
    pub ours_ns: f64,
    /// The time of the other side, if there is one: the built-in or, for a cut, the chain without
    /// it.
    pub theirs_ns: Option<f64>,
    /// The time of one maximum over the same input.
    pub floor_ns: Option<f64>,
}

pub const HEAD: &str = "\
| what | candidates | shape | ours us | built-in us | ratio | ours ns/candidate | floor us | ours in floors |
| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |";

/// The explanation of the columns.
pub const LEGEND: &str = "\
Medians. peaked: N(-1.5, 2.4) and 60 tokens that stand out, as of a model that knows what comes next; flat: without them; recorded: logits of the trained model.
The floor is one maximum over the same input, by the library's own vector instructions. The built-in beside the sieve is a host's whole path: filling the candidate
array from the logits, and the chain of the same stages. A batch's time is that of one of its sequences. Beside a cut that llama.cpp does not have is the chain without it.";

impl Measurement {
    /// Returns a measurement, given the microseconds of this library, of the built-in and of one
    /// maximum.
    pub fn of_us(part: &str, name: &str, (n, shape): (usize, &str), us: [f64; 3]) -> Self {
        let [ours, theirs, floor] = us.map(|us| us * 1e3);
        Self {
            part: part.into(),
            name: name.into(),
            n,
            shape: shape.into(),
            ours_ns: ours,
            theirs_ns: Some(theirs),
            floor_ns: Some(floor),
        }
    }

    /// Returns the time of the built-in as a multiple of this library's.
    pub fn ratio(&self) -> Option<f64> {
        self.theirs_ns.map(|theirs| theirs / self.ours_ns)
    }

    /// Returns the row of the table that begins with [`HEAD`].
    pub fn line(&self) -> String {
        let us = |ns: Option<f64>| ns.map_or_else(String::new, |ns| format!("{:.2}", ns / 1e3));
        let ratio = self
            .ratio()
            .map_or_else(String::new, |ratio| format!("{ratio:.1}"));
        let each = if self.n == 0 {
            String::new()
        } else {
            format!("{:.2}", self.ours_ns / self.n as f64)
        };
        let floors = self
            .floor_ns
            .map_or_else(String::new, |floor| format!("{:.1}", self.ours_ns / floor));
        format!(
            "| {} | {} | {} | {} | {} | {ratio} | {each} | {} | {floors} |",
            self.name,
            self.n,
            self.shape,
            us(Some(self.ours_ns)),
            us(self.theirs_ns),
            us(self.floor_ns)
        )
    }
}

/// A whole run, and the machine on which it was made.
#[derive(Serialize)]
pub struct Run {
    pub cpu: String,
    pub instruction_set: String,
    /// The date: the year, the month and the day.
    pub date: String,
    pub version: String,
    pub llama_cpp: String,
    /// The compiler flags of the built-ins, in addition to upstream's own.
    pub extra_flags: String,
    pub rows: Vec<Measurement>,
}

impl Run {
    /// Returns an empty run on this machine.
    pub fn here() -> Self {
        Self {
            cpu: cpu(),
            instruction_set: simd::instruction_set().to_string_lossy().into_owned(),
            date: today(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            llama_cpp: vendor_llama_cpp::model::version().to_owned(),
            extra_flags: std::env::var("CXXFLAGS").unwrap_or_default(),
            rows: Vec::new(),
        }
    }

    pub fn title(&self) -> String {
        let flags = match self.extra_flags.as_str() {
            "" => String::from("upstream's flags"),
            flags => format!("upstream's flags and {flags}"),
        };
        format!(
            "llama-sieve {} ({}) beside llama.cpp {} ({flags}) on {}, {}",
            self.version, self.instruction_set, self.llama_cpp, self.cpu, self.date
        )
    }

    /// Returns a text that lists the rows in which the built-in is quicker.
    pub fn slower(&self) -> String {
        let is_slower = |row: &Measurement| row.ratio().is_some_and(|ratio| ratio < 1.0);
        let slower = |row: &&Measurement| row.part != "cuts" && is_slower(row);
        let mut rows: Vec<&Measurement> = self.rows.iter().filter(slower).collect();
        rows.sort_by(|a, b| {
            a.ratio()
                .partial_cmp(&b.ratio())
                .expect("times are numbers")
        });
        let told = |row: &&Measurement| {
            let ratio = row.ratio().unwrap_or_default();
            format!(
                "- {ratio:.2} times: {}, {} of {}\n",
                row.name, row.n, row.shape
            )
        };
        let lines: String = rows.iter().map(told).collect();
        format!(
            "\nQuicker is the built-in in {} of {} rows:\n\n{lines}",
            rows.len(),
            self.rows.len()
        )
    }

    fn markdown(&self) -> String {
        let lines: String = self.rows.iter().map(|row| row.line() + "\n").collect();
        format!("# {}\n\n{LEGEND}\n\n{HEAD}\n{lines}", self.title())
    }

    /// Writes the table and the JSON file.
    pub fn save(&self, folder: &Path) {
        let kept = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let mut name: String = format!("{}-{}-{}", self.cpu, self.instruction_set, self.date);
        if !self.extra_flags.is_empty() {
            name += &self.extra_flags;
        }
        let name: String = name.to_lowercase().chars().map(kept).collect();
        let parts: Vec<&str> = name.split('-').filter(|part| !part.is_empty()).collect();
        let json = folder.join(parts.join("-") + ".json");
        std::fs::create_dir_all(folder).expect("the folder can be made");
        let text = serde_json::to_string_pretty(self).expect("plain data");
        std::fs::write(&json, text + "\n").expect("the results can be written");
        std::fs::write(json.with_extension("md"), self.markdown()).expect("as above");
        println!("saved {}", json.display());
    }
}

/// Returns the processor's name, as Linux reports it.
fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let names = info.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().replace("(R)", ""))
    });
    names.into_iter().next().unwrap_or_else(|| "unknown".into())
}

fn today() -> String {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    date.map_or_else(
        |_| "undated".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
