//! Writes named rules, including the fixed ones.

// In bounds: numbers of rules are positions in a list that only grows.

use std::rc::Rc;
use std::sync::Arc;

use super::names::{Name, PRIMITIVES, escaped};
use super::spend;
use super::writer::Writer;
use crate::grammar::elements::{Class, Element};
use crate::grammar::schema::automaton::Shared;
use crate::grammar::schema::ecma::found_in;
use crate::grammar::schema::output::Sequence;
use crate::grammar::schema::refusal::{Answer, Refusal};

const DATE: &str = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])";
const TIME: &str =
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{3})?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])";
const UUID: &str = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
const INTEGRAL_PART: &str = "0|[1-9][0-9]{0,15}";
const DECIMAL_PART: &str = "[0-9]{1,16}";

/// The characters that llama.cpp's grammar allows in a string only as escapes.
const ESCAPED: [(u32, u32); 4] = [(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x7F)];

impl Writer<'_> {
    /// Returns a reference to the rule named `name`, which may be written later.
    pub(super) fn rule(&mut self, name: &Name) -> Element {
        if let Some(&rule) = self.names.rules.get(name) {
            return Element::Rule(rule);
        }
        let rule = self.output.reserve();
        self.names.rules.insert(Rc::clone(name), rule);
        self.places.insert(rule, self.place);
        Element::Rule(rule)
    }

    /// Writes a rule named `name`, and returns its name. If a different rule has that name, a
    /// number is appended to it. An equal rule with that name is reused.
    pub(super) fn named(&mut self, name: &str, alternatives: Vec<Sequence>) -> Answer<Name> {
        const COST: usize = 8;
        let content = alternatives.join(&Element::Alternative);
        let base = escaped(name);
        let mut next: Name = base.as_str().into();
        for n in 0_u64.. {
            spend(&self.work, COST + base.len().div_ceil(4) + content.len())?;
            let Element::Rule(rule) = self.rule(&next) else {
                break;
            };
            if self.names.written.insert(rule) {
                self.output.define(rule, alternatives)?;
                break;
            }
            if self.output.written.rules.get(rule as usize) == Some(&*content) {
                break;
            }
            next = format!("{base}{n}").into();
        }
        Ok(next)
    }

    /// Writes a rule that consists of a reference to another rule.
    pub(super) fn alias(&mut self, name: &str, of: &Name) -> Answer<Name> {
        let rule = self.rule(of);
        self.named(name, vec![vec![rule]])
    }

    /// Writes a fixed rule, under its own name or, for the whole schema, as `root`.
    pub(super) fn primitive_in(
        &mut self,
        rule_name: &str,
        primitive: &'static str,
    ) -> Answer<Name> {
        if rule_name != "root" {
            return self.primitive(primitive);
        }
        let content = self.content_of(primitive)?;
        let name = self.named(rule_name, content)?;
        self.parts_of(primitive)?;
        Ok(name)
    }

    /// Writes a fixed rule.
    pub(super) fn primitive(&mut self, primitive: &'static str) -> Answer<Name> {
        if let Some(name) = self.names.primitives.get(primitive) {
            return Ok(Rc::clone(name));
        }
        let content = self.content_of(primitive)?;
        let name = self.named(primitive, content)?;
        self.names.primitives.insert(primitive, Rc::clone(&name));
        self.parts_of(primitive)?;
        Ok(name)
    }

    /// Writes the rules that a fixed rule refers to, except those whose name another rule already
    /// has.
    fn parts_of(&mut self, primitive: &str) -> Answer<()> {
        let parts = PRIMITIVES.iter().find(|(name, _)| *name == primitive);
        for part in parts.map_or(&[][..], |(_, parts)| parts) {
            if !self.names.has(part) {
                self.primitive(part)?;
            }
        }
        Ok(())
    }

    fn content_of(&mut self, primitive: &str) -> Answer<Vec<Sequence>> {
        let all = PRIMITIVES.iter().find(|(name, _)| *name == primitive);
        let mut parts = Vec::new();
        for part in all.map_or(&[][..], |(_, parts)| parts) {
            parts.push(self.rule(&Name::from(*part)));
        }
        Ok(match (primitive, &*parts) {
            ("boolean", _) => vec![self.output.raw("true")?, self.output.raw("false")?],
            ("null", _) => vec![self.output.raw("null")?],
            ("decimal-part", _) => vec![self.expression(DECIMAL_PART)?],
            ("integral-part", _) => vec![self.expression(INTEGRAL_PART)?],
            ("date", _) => vec![self.expression(DATE)?],
            ("time", _) => vec![self.expression(TIME)?],
            ("uuid", _) => vec![self.expression(&format!("\"{UUID}\""))?],
            ("integer", &[whole]) => vec![self.signed(whole)?],
            ("number", &[whole, fraction]) => vec![self.number(whole, fraction)?],
            ("object", &[string, value]) => {
                let colon = self.output.raw(":")?;
                let member = [&[string], &*colon, &[self.space], &[value]].concat();
                vec![self.list(["{", "}"], member)?]
            }
            ("array", &[value]) => vec![self.list(["[", "]"], vec![value])?],
            ("char", _) => self.characters()?,
            ("string", &[character]) => {
                let content = self.times(vec![character], 0, None)?;
                vec![self.output.quoted(content)?]
            }
            ("date-time", &[date, time]) => {
                vec![[&[date], &*self.output.raw("T")?, &[time]].concat()]
            }
            ("date-string" | "time-string" | "date-time-string", _) => {
                vec![self.output.quoted(parts)?]
            }
            // A choice, such as `value`: one alternative for each part.
            _ => parts.into_iter().map(|part| vec![part]).collect(),
        })
    }

    /// Returns the elements for a regular expression that is known to be valid.
    fn expression(&mut self, expression: &str) -> Answer<Sequence> {
        let dfa = found_in(&format!("^({expression})$"), &self.work).map_err(Refusal::whole)?;
        let dfa: Shared = Arc::new(dfa);
        Ok(vec![self.output.automaton(&dfa, false)?])
    }

    fn signed(&mut self, whole: Element) -> Answer<Sequence> {
        let minus = self.output.raw("-")?;
        Ok([&*self.times(minus, 0, Some(1))?, &[whole]].concat())
    }

    fn number(&mut self, whole: Element, fraction: Element) -> Answer<Sequence> {
        let mut number = self.signed(whole)?;
        let point = self.output.raw(".")?;
        number.extend(self.times([&*point, &[fraction]].concat(), 0, Some(1))?);
        let e = self.expression("[eE][-+]?")?;
        number.extend(self.times([&*e, &[whole]].concat(), 0, Some(1))?);
        Ok(number)
    }

    /// Returns items in brackets, separated by commas.
    fn list(&mut self, brackets: [&str; 2], item: Sequence) -> Answer<Sequence> {
        let items = self.separated(item, 0, None)?;
        self.enclosed(brackets, items)
    }

    fn characters(&mut self) -> Answer<Vec<Sequence>> {
        let plain = self.output.set(Class::of(true, ESCAPED.to_vec()))?;
        let escape = self.output.raw("\\")?;
        let letter = self.expression("[\"\\\\bfnrt]|u[0-9a-fA-F]{4}")?;
        Ok(vec![vec![plain], [escape, letter].concat()])
    }
}
