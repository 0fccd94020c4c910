//! A linter: finds the members of a chain of samplers that make no sense, and a missing selector.

use super::observer::{CONSTRAINTS, Numbers, TRUNCATIONS};

/// A member of a chain: its name, as `llama_sampler_name` reports it, and its parameters, if known.
#[derive(Clone, Debug)]
pub struct Link {
    /// The name; begins with a question mark if the parameters disable the member.
    pub name: String,
    /// The parameters.
    pub parameters: Numbers,
}

/// The samplers that select a token.
const SELECTORS: [&str; 7] = [
    "dist",
    "gumbel",
    "greedy",
    "mirostat",
    "mirostat-v2",
    "adaptive-p",
    "sieve",
];

/// Returns a sentence for each finding about a chain of these members, in their order.
pub fn findings(chain: &[Link]) -> Vec<String> {
    let mut found = Vec::new();
    for (place, link) in chain.iter().enumerate() {
        let name = link.name.as_str();
        if let Some(of) = name.strip_prefix('?') {
            found.push(format!("{of} does nothing: its parameters switch it off"));
            continue;
        }
        let before = chain.get(..place).unwrap_or_default();
        let first = |names: &[&str]| {
            before
                .iter()
                .find(|link| names.contains(&link.name.as_str()))
        };
        if let Some(selector) = first(&SELECTORS) {
            found.push(match SELECTORS.contains(&name) {
                true => format!("{name} selects anew what {} has selected", selector.name),
                false => format!(
                    "{name} comes after {}, which has selected the token: it changes nothing",
                    selector.name
                ),
            });
        } else if let (true, Some(cut)) = (CONSTRAINTS.contains(&name), first(&TRUNCATIONS)) {
            found.push(format!(
                "{name} comes after {}, which may have removed all that it allows; put it first",
                cut.name
            ));
        } else if let (true, Some(cut)) = (name == "top-k", first(&["min-p"])) {
            found.push(format!(
                "{name} comes after {}: the other way round it leaves the same, and takes less time",
                cut.name
            ));
        }
        let is_cold = |link: &Link| {
            let cold = |&(name, value): &(&str, f64)| name == "t" && value <= 0.0;
            matches!(link.name.as_str(), "temp" | "temp-ext") && link.parameters.iter().any(cold)
        };
        if name == "xtc" && before.iter().any(is_cold) {
            found.push(format!(
                "{name} comes after a temperature of 0, which leaves it one candidate: it does \
                 nothing"
            ));
        }
    }
    let selects = |link: &Link| SELECTORS.contains(&link.name.as_str());
    if !chain.iter().any(selects) {
        found.push("no member selects a token; end the chain with dist or greedy".into());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &str) -> Vec<String> {
        let link = |name: &str| {
            let (name, t) = name.split_once('=').unwrap_or((name, ""));
            let t = t.parse().map(|t| ("t", t));
            Link {
                name: name.into(),
                parameters: t.into_iter().collect(),
            }
        };
        findings(&names.split_whitespace().map(link).collect::<Vec<_>>())
    }

    #[test]
    fn chains_with_a_purpose_have_no_findings() {
        for names in [
            "top-k top-p min-p temp=0.8 dist",
            "grammar logit-bias penalties dry top-n-sigma top-k typical top-p min-p xtc temp-ext=1 dist",
            "temp=0 dist",
            "greedy",
            "mirostat-v2",
            "top-k temp=0.8 gumbel",
            "something dist",
        ] {
            assert_eq!(of(names), Vec::<String>::new(), "{names}");
        }
    }

    #[test]
    fn each_thing_without_a_sense_is_said_once() {
        for (names, word) in [
            ("top-k", "no member selects"),
            ("", "no member selects"),
            ("dist greedy", "greedy selects anew what dist"),
            ("dist top-k", "top-k comes after dist"),
            ("top-p grammar dist", "grammar comes after top-p"),
            ("xtc token-trie dist", "token-trie comes after xtc"),
            ("min-p top-k dist", "top-k comes after min-p"),
            ("temp=0 xtc dist", "a temperature of 0"),
            ("temp-ext=-1 xtc dist", "a temperature of 0"),
            ("?top-k dist", "top-k does nothing"),
        ] {
            let found = of(names);
            assert_eq!(found.len(), 1, "{names}: {found:?}");
            assert!(found[0].contains(word), "{found:?}");
        }
    }
}
