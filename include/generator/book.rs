//! Arranges cbindgen's output in reading order: by [section](crate::sections), with each constant
//! and type before the item that mentions it.

use crate::sections::{SECTIONS, Section};

/// cbindgen's last line before the first item.
const BEGIN: &str = "struct llama_context;\n";
const OPENED: &str = "#ifdef __cplusplus\nextern \"C\" {\n#endif // __cplusplus\n";
const CLOSED: &str = "#ifdef __cplusplus\n}  // extern \"C\"\n#endif  // __cplusplus\n";
const COLUMNS: usize = 100;

/// Returns the header: the text before the first item, the sections, and the end. Returns an error
/// if cbindgen's output does not have the expected form.
pub fn bind(text: &str) -> Result<String, String> {
    let (front, rest) = text
        .split_once(BEGIN)
        .ok_or("cbindgen.toml begins otherwise")?;
    let (page, rest) = rest.split_once("\n\n").ok_or("there are no items")?;
    let (rest, end) = rest.split_once(CLOSED).ok_or("there is no end")?;
    let items = items(&rest.replacen(OPENED, "", 1))?;

    let mut sections: Vec<Vec<&Item>> = SECTIONS.iter().map(|_| Vec::new()).collect();
    for item in &items {
        sections[section_of(&item.name)?].push(item);
    }
    let mut header = format!("{front}{BEGIN}{page}\n\n{OPENED}");
    for (number, (section, items)) in (1..).zip(SECTIONS.iter().zip(&sections)) {
        header.push_str(&heading(number, section));
        for item in arranged(items) {
            header.push('\n');
            header.push_str(&in_one_line(&item.text));
        }
    }
    Ok(format!("{header}\n{CLOSED}{end}"))
}

/// A constant, a type or a function, with its comment before it.
struct Item {
    name: String,
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Constant,
    Type,
    Function,
}

impl Item {
    fn new(text: String) -> Result<Self, String> {
        let (_, code) = text
            .split_once(" */\n")
            .ok_or_else(|| format!("without a comment: {text}"))?;
        let word = |at: usize| code.split([' ', ';', '\n']).nth(at);
        let (kind, name) = match word(0) {
            Some("#define") => (Kind::Constant, word(1)),
            Some("typedef") => (
                Kind::Type,
                match code.split_once("(*") {
                    Some((_, pointer)) => pointer.split(')').next(),
                    None => word(2),
                },
            ),
            _ => {
                let words = code.split('(').next();
                let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
                (
                    Kind::Function,
                    words.and_then(|w| w.rsplit(|c| !is_of_name(c)).next()),
                )
            }
        };
        let name = name
            .ok_or_else(|| format!("without a name: {text}"))?
            .to_owned();
        Ok(Self { name, text, kind })
    }

    /// Returns how closely this item's text mentions `other`: `usize::MAX` if it contains the whole
    /// name, otherwise the length of the longest prefix of the name, longer than `llama_sieve_`,
    /// that it contains before an asterisk; `None` if it contains neither.
    fn mentions(&self, other: &Item) -> Option<usize> {
        let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
        let mut closest = None;
        let mut rest = self.text.as_str();
        while let Some(at) = rest.find(is_of_name) {
            let from = &rest[at..];
            let end = from.find(|c| !is_of_name(c)).unwrap_or(from.len());
            let (word, behind) = from.split_at(end);
            if word == other.name {
                return Some(usize::MAX);
            }
            if behind.starts_with('*') && word.len() > 12 && other.name.starts_with(word) {
                closest = closest.max(Some(word.len()));
            }
            rest = behind;
        }
        closest
    }
}

/// Splits a text into items, which are separated by blank lines outside comments.
fn items(text: &str) -> Result<Vec<Item>, String> {
    let (mut items, mut item) = (Vec::new(), String::new());
    let mut is_comment = false;
    for line in text.lines().chain([""]) {
        is_comment |= line.trim_start() == "/*";
        if is_comment || !line.is_empty() {
            item.push_str(line);
            item.push('\n');
        } else if !item.is_empty() {
            items.push(Item::new(std::mem::take(&mut item))?);
        }
        is_comment &= line.trim_start() != "*/";
    }
    Ok(items)
}

/// Returns the index of the section that lists the longest prefix of a name, or an error if no
/// section lists one.
fn section_of(name: &str) -> Result<usize, String> {
    let lower = name.to_lowercase();
    let short = lower.strip_prefix("llama_sieve_").unwrap_or(&lower);
    let of = |names: &str| {
        let beginnings = names.split_whitespace();
        let fitting = beginnings.filter(|beginning| short.starts_with(beginning));
        fitting.map(str::len).max()
    };
    let sections = SECTIONS.iter().enumerate();
    let best = sections
        .filter_map(|(i, section)| Some((of(section.names)?, i)))
        .max();
    let (_, section) = best.ok_or_else(|| {
        format!("{name} is in no section: include/generator/sections.rs lists the names")
    })?;
    Ok(section)
}

/// Returns a section's items in reading order: functions as in the sources, and each constant and
/// type before its [owner].
fn arranged<'a>(items: &[&'a Item]) -> Vec<&'a Item> {
    let owned: Vec<_> = items
        .iter()
        .map(|&item| (item, owner(item, items)))
        .collect();
    let mut arranged = Vec::new();
    for (item, _) in owned.iter().filter(|(_, owner)| owner.is_none()) {
        place(item, &owned, &mut arranged);
    }
    arranged
}

/// Returns the name of the item before which this one is put. For a type, that is the first
/// function that mentions it; for a constant, the first function or type that mentions it most
/// closely.
fn owner<'a>(item: &Item, items: &[&'a Item]) -> Option<&'a str> {
    let may_own = |other: &Item| match item.kind {
        Kind::Constant => other.kind != Kind::Constant,
        Kind::Type => other.kind == Kind::Function,
        Kind::Function => false,
    };
    let others = items.iter().filter(|other| may_own(other));
    let speaking = others.filter_map(|other| Some((other.mentions(item)?, *other)));
    // `max_by_key` returns the last of equal maxima, which is the first item of the reversed list.
    let owner = speaking.rev().max_by_key(|(closeness, _)| *closeness);
    owner.map(|(_, other)| other.name.as_str())
}

fn place<'a>(item: &'a Item, owned: &[(&'a Item, Option<&str>)], arranged: &mut Vec<&'a Item>) {
    for (other, owner) in owned {
        if *owner == Some(&item.name) {
            place(other, owned, arranged);
        }
    }
    arranged.push(item);
}

fn heading(number: usize, section: &Section) -> String {
    let rule = "-".repeat(COLUMNS - 3);
    let mut heading = format!("\n/* {rule}\n * {number}. {}\n *\n", section.title);
    for line in section.words.lines() {
        heading.push_str(&format!(" * {line}\n"));
    }
    format!("{heading} * {} */\n", &rule[..rule.len() - 3])
}

/// Joins each comment that has a single line of text into one line with its delimiters, if it fits.
fn in_one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut joined = String::new();
    let mut at = 0;
    while at < lines.len() {
        let line = match lines[at..] {
            [open, words, close, ..] if open.ends_with("/*") && close.ends_with(" */") => {
                at += 2;
                let line = format!("{open} {} */", words.trim());
                if line.chars().count() > COLUMNS {
                    lines[at - 2..=at].join("\n")
                } else {
                    line
                }
            }
            _ => lines[at].to_owned(),
        };
        at += 1;
        joined.push_str(&line);
        joined.push('\n');
    }
    joined
}
