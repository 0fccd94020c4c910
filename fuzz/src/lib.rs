//! Common parts of the fuzz targets: inputs that are decoded from few bytes, and naive models of
//! documented behaviour.

pub mod logits;
pub mod params;
pub mod payload;
#[path = "../../tests/support/span.rs"]
pub mod span;
pub mod stages;

/// Silences messages on stderr, since the targets cause warnings all the time, for instance with
/// ids outside the vocabulary or NaN parameters.
pub fn silence() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, text| {
        assert!(!text.contains("internal error"), "{text}");
    })));
}
