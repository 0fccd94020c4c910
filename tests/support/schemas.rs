//! Checks JSON against the schemas of this repository.
#![allow(dead_code)] // Each test binary uses its part.

use serde_json::Value;
use test_crates::boon::{Compiler, SchemaIndex, Schemas};

/// A JSON Schema.
pub struct Schema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Schema {
    /// Returns the schema in `file`, a path in the repository.
    pub fn of(file: &str) -> Self {
        let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
        let mut schemas = Schemas::new();
        let index = Compiler::new().compile(&path, &mut schemas);
        Self {
            schemas,
            index: index.expect("the schema is valid"),
        }
    }

    /// Returns the reason why the value is not valid; `None` if it is.
    pub fn fault(&self, value: &Value) -> Option<String> {
        let valid = self.schemas.validate(value, self.index);
        valid.err().map(|error| format!("{error:#}"))
    }

    /// Checks that the value is valid.
    pub fn check(&self, value: &Value) {
        if let Some(fault) = self.fault(value) {
            panic!("{value}: {fault}");
        }
    }
}
