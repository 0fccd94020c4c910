//! The paths of the files that the build script has found and made.

use std::path::PathBuf;

/// Returns the root of the llama.cpp source tree that was compiled.
pub fn source_dir() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_SOURCE_DIR"))
}

/// Returns the folders of `llama.h` and of `ggml.h`.
pub fn include_dirs() -> [PathBuf; 2] {
    let source = source_dir();
    [source.join("include"), source.join("ggml").join("include")]
}

/// Returns the folder of objects and libraries, which all cargo profiles share.
pub fn build_dir() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_BUILD_DIR"))
}

/// Returns the path of the archive of libllama, ggml and this crate's shim.
pub fn static_library() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_STATIC_LIBRARY"))
}

/// Returns the path of `libllama.so`, which includes ggml. A link `libllama.so.0`, its soname, is
/// in the same folder.
pub fn shared_library() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_SHARED_LIBRARY"))
}

/// Returns the path of the C compiler that compiled llama.cpp.
pub fn c_compiler() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_CC"))
}

/// Returns the path of the C++ compiler that compiled llama.cpp.
pub fn cxx_compiler() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_CXX"))
}

/// Returns the arguments that a C program adds to its link line after [`static_library`].
pub fn static_link_args() -> Vec<String> {
    let args = env!("VENDOR_LLAMA_STATIC_LINK_ARGS");
    args.split(' ').map(String::from).collect()
}
