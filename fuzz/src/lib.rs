//! Common parts of the fuzz targets: inputs made of few bytes, and naive models of what the library
//! promises.

pub mod logits;
pub mod params;
pub mod payload;
pub mod span;
pub mod stages;

/// No messages on stderr: ids outside the vocabulary, parameters that are no numbers and the like
/// are what the targets are for.
pub fn silence() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, text| {
        assert!(!text.contains("internal error"), "{text}");
    })));
}
