//! Tests the C interface as C and C++ programs use it: the headers, both libraries, and the CMake
//! project.
#![cfg(target_os = "linux")]

mod cmake;
mod every_way;
mod host_without;
mod programs;
mod sieve;
#[path = "../support/toolchain.rs"]
mod toolchain;
mod trie;
