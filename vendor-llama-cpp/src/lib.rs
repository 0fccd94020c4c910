//! The llama.cpp that llama-sieve is checked against, for its tests, benches and examples.
//!
//! The source is not in this repository. It is the `llama.cpp/` folder of the crates.io package
//! llama-cpp-sys-2 in the version that `Cargo.toml` pins; the environment variable
//! `LLAMA_CPP_DIR` names another checkout to use instead. The build script compiles it (CPU only)
//! with nothing but a C++17 compiler, into a folder of the target directory that all cargo
//! profiles share: one or two minutes on two cores, once.
//!
//! Whatever depends on this crate is linked with llama.cpp statically. The same objects also make
//! a shared `libllama.so`, for programs and tests that load it.
//!
//! * [`paths`]: where source, headers and libraries are.
//! * [`sys`]: the C functions as they are.
//! * [`model`]: small safe wrappers to load a model and get logits from it.
//! * [`test_model`]: writes tiny models of any vocabulary size.
//! * [`test_vocabulary`]: writes vocabularies of any texts, without a model.
//! * [`mod@reference`]: results of the C++ standard library to compare with.

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
