//! Prints the flags with which a C compiler compiles and links against the llama.cpp that this
//! crate has built:
//!
//! ```text
//! cc app.c $(cargo run -q --release -p vendor-llama-cpp --bin llama_flags)
//! ```

use vendor_llama_cpp::paths;

fn main() {
    for folder in paths::include_dirs() {
        print!("-isystem {} ", folder.display());
    }
    let folder = paths::build_dir();
    let folder = folder.display();
    println!("-L{folder} -Wl,-rpath,{folder} -lllama");
}
