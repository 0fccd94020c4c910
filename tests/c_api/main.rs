//! The C interface as C and C++ programs meet it: headers, both libraries, the CMake project.
#![cfg(target_os = "linux")]

mod cmake;
mod every_way;
mod host_without;
mod programs;
mod sieve;
#[path = "../support/toolchain.rs"]
mod toolchain;
mod trie;
