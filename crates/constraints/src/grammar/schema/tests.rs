//! Schemas and texts.
