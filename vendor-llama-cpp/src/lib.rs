//! The llama.cpp with which llama-sieve is compared, for its tests, benchmarks and examples.
//!
//! The source is not in this repository. It is the `llama.cpp/` folder of the crates.io package
//! llama-cpp-sys-2, in the version that `Cargo.toml` pins. The environment variable `LLAMA_CPP_DIR`
//! can name another checkout. The build script compiles the source (CPU only) with just a C and a
//! C++17 compiler, into a folder of the target directory that all cargo profiles share. That takes
//! one or two minutes on two cores, once.
//!
//! A crate that depends on this one is linked with llama.cpp statically. The same objects also form
//! a shared `libllama.so`, for programs and tests that load it.
//!
//! * [`paths`]: the paths of source, headers and libraries.
//! * [`sys`]: declarations of the C functions.
//! * [`model`]: small safe wrappers that load a model and return its logits.
//! * [`test_model`]: writes tiny models of any vocabulary size.
//! * [`test_vocabulary`]: writes vocabularies with any texts, without a model.
//! * [`mod@reference`]: results of the C++ standard library for comparisons.
//! * [`sorts`]: the sorts of several C++ libraries, for comparisons.

pub mod model;
pub mod paths;
pub mod reference;
pub mod sorts;
pub mod sys;
pub mod test_model;
pub mod test_vocabulary;

pub use model::{Context, Model};
pub use test_model::TestModel;
pub use test_vocabulary::TestVocabulary;
