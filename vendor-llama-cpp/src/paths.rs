//! The paths of what the build script found and made.

use std::path::PathBuf;

/// The root of the llama.cpp source tree that was compiled.
pub fn source_dir() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_SOURCE_DIR"))
}

/// The folders of `llama.h` and of `ggml.h`.
pub fn include_dirs() -> [PathBuf; 2] {
    let source = source_dir();
    [source.join("include"), source.join("ggml").join("include")]
}

/// The folder of objects and libraries; all cargo profiles share it.
pub fn build_dir() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_BUILD_DIR"))
}

/// The archive of libllama, ggml and this crate's shim.
pub fn static_library() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_STATIC_LIBRARY"))
}

/// `libllama.so` with ggml in it; `libllama.so.0`, its soname, is a link beside it.
pub fn shared_library() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_SHARED_LIBRARY"))
}

/// The C compiler that compiled llama.cpp.
pub fn c_compiler() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_CC"))
}

/// The C++ compiler that compiled llama.cpp.
pub fn cxx_compiler() -> PathBuf {
    PathBuf::from(env!("VENDOR_LLAMA_CXX"))
}

/// Returns the arguments that a C program adds to its link line after [`static_library`].
pub fn static_link_args() -> Vec<String> {
    let args = env!("VENDOR_LLAMA_STATIC_LINK_ARGS");
    args.split(' ').map(String::from).collect()
}
