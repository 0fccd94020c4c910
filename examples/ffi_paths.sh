#!/bin/sh
# Builds the libraries that the examples in other languages load, and prints their paths as
# variables for a shell:
#
#     eval "$(examples/ffi_paths.sh)"
#     python3 examples/python/constrained.py
#
# They are the llama.cpp of this repository's tests, llama-sieve, and examples/ffi_shim.c.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
cargo build --quiet --release >&2
flags=$(cargo run --quiet --release -p vendor-llama-cpp --bin llama_flags)
# The folder of libllama, from the compiler's flags.
llama=$(printf '%s\n' $flags | sed -n 's/^-L//p')
shim=$target/release/libffi_shim.so
# shellcheck disable=SC2086 # Several flags.
${CC:-cc} -std=c11 -O2 -shared -fPIC examples/ffi_shim.c -o "$shim" $flags >&2
case $target in /*) ;; *) target=$PWD/$target ;; esac
printf "export LLAMA_SO='%s'\n" "$llama/libllama.so"
printf "export LLAMA_SIEVE_SO='%s'\n" "$target/release/libllama_sieve.so"
printf "export LLAMA_SHIM_SO='%s'\n" "$target/release/libffi_shim.so"
