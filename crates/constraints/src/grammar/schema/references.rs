//! Resolves references by identifiers, anchors and pointers within one text. Nothing is fetched.

use llama_sieve_kernels::random::HashMap;

use crate::grammar::hash::Map;
use crate::grammar::schema::reader::{Document, Json, JsonId};
use crate::grammar::schema::refusal::{Answer, Refusal};
use crate::quoted::quoted;

/// The drafts of JSON Schema, in order of publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Draft {
    /// Draft 4.
    Four,
    /// Draft 6.
    Six,
    /// Draft 7.
    Seven,
    /// 2019-09.
    Of2019,
    /// 2020-12.
    Of2020,
}

/// The targets of references in a text.
#[derive(Debug)]
pub struct References {
    /// The draft that the text declares, or the default.
    pub draft: Draft,
    /// True if the text declares a particular draft.
    pub is_said: bool,
    /// The base URI of each schema that was seen.
    bases: Map<JsonId, String>,
    /// The schema of each identifier; `None` if several schemas have that identifier.
    resources: HashMap<String, Option<JsonId>>,
    /// The schema of each anchor, by base URI and name.
    anchors: HashMap<(String, String), JsonId>,
    /// The schemas of each dynamic anchor.
    dynamic: HashMap<String, Vec<JsonId>>,
    has_recursive_anchor: bool,
}

/// Keywords whose value is a schema.
const SCHEMAS: [&str; 12] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords whose value maps names to schemas.
const MAPS: [&str; 6] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
];

/// Returns the first and the last draft with a keyword.
fn drafts_of(keyword: &str) -> (Draft, Draft) {
    match keyword {
        "id" => (Draft::Four, Draft::Four),
        "dependencies" => (Draft::Four, Draft::Seven),
        "$id" | "const" | "contains" | "propertyNames" => (Draft::Six, Draft::Of2020),
        "if" | "then" | "else" => (Draft::Seven, Draft::Of2020),
        "$recursiveRef" | "$recursiveAnchor" => (Draft::Of2019, Draft::Of2019),
        "$anchor"
        | "contentSchema"
        | "dependentRequired"
        | "dependentSchemas"
        | "maxContains"
        | "minContains"
        | "unevaluatedItems"
        | "unevaluatedProperties" => (Draft::Of2019, Draft::Of2020),
        "prefixItems" | "$dynamicRef" | "$dynamicAnchor" => (Draft::Of2020, Draft::Of2020),
        _ => (Draft::Four, Draft::Of2020),
    }
}

impl References {
    /// True if the draft has a keyword, or the text declares no draft.
    pub fn has(&self, keyword: &str) -> bool {
        let (first, last) = drafts_of(keyword);
        !self.is_said || (first..=last).contains(&self.draft)
    }

    /// True if the text declares a draft earlier than `draft`.
    pub fn are_before(&self, draft: Draft) -> bool {
        self.is_said && self.draft < draft
    }

    /// Returns the value of a keyword; `None` if the schema does not have it, or the draft ignores
    /// it. A draft ignores keywords that it does not have and, before 2019-09, all other keywords
    /// of a schema with "$ref".
    pub fn keyword(&self, document: &Document, at: JsonId, keyword: &str) -> Option<JsonId> {
        // This is tested first, since most schemas do not have most keywords.
        let value = document.member(at, keyword)?;
        let is_replaced = self.are_before(Draft::Of2019)
            && keyword != "$ref"
            && document.member(at, "$ref").is_some();
        (!is_replaced && self.has(keyword)).then_some(value)
    }

    /// Finds the targets of references in a text.
    pub fn of(document: &Document) -> Answer<Self> {
        let (draft, is_said) = draft_of(document)?;
        let mut references = Self {
            draft,
            is_said,
            bases: Map::default(),
            resources: HashMap::default(),
            anchors: HashMap::default(),
            dynamic: HashMap::default(),
            has_recursive_anchor: false,
        };
        references
            .resources
            .insert(String::new(), Some(document.root));
        let mut to_do = vec![(document.root, String::new())];
        while let Some((id, base)) = to_do.pop() {
            if !matches!(document.get(id), Json::Object(_)) {
                continue;
            }
            let base = references.see(document, id, base)?;
            for (name, value) in document.members(id).iter() {
                let name = &**name;
                // Definitions are found in every draft, under both names, even in a schema with
                // "$ref".
                let is_definition = matches!(name, "$defs" | "definitions");
                if !is_definition && references.keyword(document, id, name).is_none() {
                    continue;
                }
                if SCHEMAS.contains(&name) {
                    to_do.push((*value, base.clone()));
                }
                if let (true, Json::Array(all)) = (LISTS.contains(&name), document.get(*value)) {
                    to_do.extend(all.iter().map(|&one| (one, base.clone())));
                }
                if MAPS.contains(&name) {
                    let all = document.members(*value);
                    to_do.extend(all.iter().map(|&(_, one)| (one, base.clone())));
                }
            }
        }
        Ok(references)
    }

    /// Records a schema's identifier and anchors. Returns its base URI.
    fn see(&mut self, document: &Document, id: JsonId, base: String) -> Answer<String> {
        let text = |name: &str| {
            let value = self.keyword(document, id, name);
            match value.map(|id| document.get(id)) {
                Some(Json::String(text)) => Some(text.to_string()),
                _ => None,
            }
        };
        let mut base = base;
        let keyword = if self.draft == Draft::Four {
            "id"
        } else {
            "$id"
        };
        let (given, version) = (text(keyword), text("$schema"));
        let (anchor, dynamic_anchor) = (text("$anchor"), text("$dynamicAnchor"));
        if let Some(given) = given {
            let (uri, fragment) = split(&given);
            if !uri.is_empty() {
                base = joined(&base, uri);
                let twice = self.resources.contains_key(&base);
                self.resources.insert(base.clone(), (!twice).then_some(id));
                if let Some(draft) = version.filter(|_| id != document.root)
                    && draft_named(&draft) != Some(self.draft)
                {
                    return Err(Refusal {
                        pointer: document.pointer(id),
                        keyword: "$schema".into(),
                        why: "another version than that of the whole is not supported".into(),
                    });
                }
            }
            if let Some(anchor) = fragment.filter(|anchor| !anchor.is_empty()) {
                self.anchors.insert((base.clone(), anchor.into()), id);
            }
        }
        if let Some(anchor) = anchor {
            self.anchors.insert((base.clone(), anchor), id);
        }
        if let Some(anchor) = dynamic_anchor {
            self.anchors.insert((base.clone(), anchor.clone()), id);
            self.dynamic.entry(anchor).or_default().push(id);
        }
        self.has_recursive_anchor |= matches!(
            self.keyword(document, id, "$recursiveAnchor")
                .map(|id| document.get(id)),
            Some(Json::Bool(true))
        );
        self.bases.insert(id, base.clone());
        Ok(base)
    }

    fn base_of(&self, document: &Document, id: JsonId) -> String {
        let mut at = Some(id);
        while let Some(id) = at {
            if let Some(base) = self.bases.get(&id) {
                return base.clone();
            }
            at = document.parent(id).map(|(parent, _)| parent);
        }
        String::new()
    }

    /// Returns the target of a reference in the schema `from`, or the reason why there is none.
    pub fn target(
        &self,
        document: &Document,
        from: JsonId,
        reference: &str,
    ) -> Result<JsonId, String> {
        let base = self.base_of(document, from);
        let (uri, fragment) = split(reference);
        let uri = joined(&base, uri);
        let Some(&resource) = self.resources.get(&uri) else {
            return Err(format!(
                "\"{}\" is not in the text, and nothing is fetched; put it under \"$defs\"",
                quoted(reference)
            ));
        };
        let Some(resource) = resource else {
            return Err(format!(
                "\"{}\" is the identifier of several schemas; give each its own",
                quoted(&*uri)
            ));
        };
        let fragment = unescaped(fragment.unwrap_or(""));
        let found = match fragment.is_empty() || fragment.starts_with('/') {
            true => document.at_pointer(resource, &fragment),
            false => self.anchors.get(&(uri, fragment)).copied(),
        };
        found.ok_or_else(|| format!("\"{}\" leads nowhere", quoted(reference)))
    }

    /// Returns the target of a dynamic reference. Fails if the target depends on the path of
    /// references that leads to `from`.
    pub fn dynamic_target(
        &self,
        document: &Document,
        from: JsonId,
        reference: &str,
    ) -> Result<JsonId, String> {
        let target = self.target(document, from, reference)?;
        let (_, fragment) = split(reference);
        let name = fragment.unwrap_or("");
        match self.dynamic.get(name).map(Vec::as_slice) {
            None | Some([_]) => Ok(target),
            Some(all) if !all.contains(&target) => Ok(target),
            Some(_) => Err("where it leads depends on the way there; use \"$ref\"".into()),
        }
    }

    /// Returns the target of `$recursiveRef`. Fails if the target may depend on the path of
    /// references that leads to `from`.
    pub fn recursive_target(&self, document: &Document, from: JsonId) -> Result<JsonId, String> {
        match self.has_recursive_anchor {
            false => self.target(document, from, "#"),
            true => Err("where it leads depends on the way there; use \"$ref\"".into()),
        }
    }
}

fn draft_named(uri: &str) -> Option<Draft> {
    let uri = uri.trim_end_matches('#');
    let uri = uri
        .strip_prefix("http://")
        .or(uri.strip_prefix("https://"))?;
    match uri.strip_prefix("json-schema.org/")?.trim_end_matches('/') {
        "draft-04/schema" => Some(Draft::Four),
        "draft-06/schema" => Some(Draft::Six),
        "draft-07/schema" => Some(Draft::Seven),
        "draft/2019-09/schema" => Some(Draft::Of2019),
        "draft/2020-12/schema" | "schema" => Some(Draft::Of2020),
        _ => None,
    }
}

fn draft_of(document: &Document) -> Answer<(Draft, bool)> {
    let said = document.member(document.root, "$schema");
    match said.map(|id| document.get(id)) {
        None => Ok((Draft::Of2020, false)),
        Some(Json::String(uri)) => match draft_named(uri) {
            Some(draft) => Ok((draft, !uri.contains("org/schema"))),
            None => Err(Refusal {
                pointer: String::new(),
                keyword: "$schema".into(),
                why: format!(
                    "\"{}\" is not known; drafts 4, 6, 7, 2019-09 and 2020-12 are",
                    quoted(&**uri)
                ),
            }),
        },
        Some(_) => Err(Refusal {
            pointer: String::new(),
            keyword: "$schema".into(),
            why: "expected a string".into(),
        }),
    }
}

/// Splits a reference into the part before the fragment, and the fragment.
fn split(reference: &str) -> (&str, Option<&str>) {
    match reference.split_once('#') {
        Some((uri, fragment)) => (uri, Some(fragment)),
        None => (reference, None),
    }
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let digits = behind
            .get(..2)
            .and_then(|two| std::str::from_utf8(two).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped.filter(|_| byte == b'%') {
            Some(escaped) => {
                bytes.push(escaped);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the parts of a URI without its fragment: scheme, authority, path, query.
fn parts(uri: &str) -> (Option<&str>, Option<&str>, &str, Option<&str>) {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    let (scheme, rest) = match uri.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
        _ => (None, uri),
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    match rest.strip_prefix("//") {
        Some(rest) => {
            let n = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(n);
            (scheme, Some(authority), path, query)
        }
        None => (scheme, None, rest, query),
    }
}

/// Resolves a reference without a fragment against a base, by RFC 3986.
fn joined(base: &str, reference: &str) -> String {
    if reference.is_empty() {
        return base.into();
    }
    let (scheme, authority, path, query) = parts(reference);
    if scheme.is_some() {
        return reference.into();
    }
    let (base_scheme, base_authority, base_path, base_query) = parts(base);
    let mut uri = String::new();
    if let Some(scheme) = base_scheme {
        uri += scheme;
        uri += ":";
    }
    if let Some(authority) = authority.or(base_authority) {
        uri += "//";
        uri += authority;
    }
    if authority.is_some() || path.starts_with('/') {
        uri += &without_dots(path);
    } else if path.is_empty() {
        uri += base_path;
    } else {
        let folder = match base_path.rfind('/') {
            Some(at) => &base_path[..=at],
            None if base_authority.is_some() => "/",
            None => "",
        };
        uri += &without_dots(&format!("{folder}{path}"));
    }
    let keeps_query = path.is_empty() && authority.is_none();
    if let Some(query) = query.or(base_query.filter(|_| keeps_query)) {
        uri += "?";
        uri += query;
    }
    uri
}

fn without_dots(path: &str) -> String {
    if !path.split('/').any(|step| matches!(step, "." | "..")) {
        return path.into();
    }
    let mut steps: Vec<&str> = Vec::new();
    for step in path.split('/') {
        match step {
            "." => {}
            ".." => {
                if steps.len() > 1 {
                    steps.pop();
                }
            }
            _ => steps.push(step),
        }
    }
    if path.ends_with("/.") || path.ends_with("/..") {
        steps.push("");
    }
    steps.join("/")
}
