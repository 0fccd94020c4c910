#!/usr/bin/env python3
"""The Rust crate llama-cpp-2 with and without the preload library: `hosts/llama_cpp_2.py`.

Uses the crate's feature dynamic-link: without it llama.cpp is linked into the program statically,
where a preload library cannot intercept calls. The crate's bindings are generated with libclang,
from PyPI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import common

VERSION = "0.1.160"
BINDINGS = "0.1.161"
"""The version of llama-cpp-sys-2, which contains llama.cpp."""

MANIFEST = f"""\
[package]
name = "with_llama_cpp_2"
version = "0.0.0"
edition = "2024"

[dependencies]
libc = "0.2"
llama-cpp-2 = {{ version = "={VERSION}", default-features = false, features = ["dynamic-link"] }}
llama-cpp-sys-2 = "={BINDINGS}"

[[bin]]
name = "with_llama_cpp_2"
path = "main.rs"

[workspace]
"""


def built(folder: Path) -> Path:
    """Builds the program in a folder of its own, and returns its path."""
    place, clang = folder / "llama-cpp-2", folder / "libclang"
    place.mkdir(parents=True, exist_ok=True)
    if not clang.is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", clang, "libclang"]
        common.download(command)
    (place / "Cargo.toml").write_text(MANIFEST)
    source = common.REPOSITORY / "hosts" / "programs" / "with_llama_cpp_2" / "main.rs"
    shutil.copy(source, place)
    common.download(["cargo", "fetch", "-q"], cwd=place)
    # The compiler's own headers, which the package of libclang lacks.
    told = subprocess.run(["cc", "-print-file-name=include"], check=True, capture_output=True)
    variables = {
        **os.environ,
        "LIBCLANG_PATH": str(clang / "clang" / "native"),
        "BINDGEN_EXTRA_CLANG_ARGS": f"-I{told.stdout.decode().strip()}",
        "CARGO_TARGET_DIR": str(place / "target"),
    }
    subprocess.run(["cargo", "build", "-q", "--release"], cwd=place, env=variables, check=True)
    return place / "target" / "release" / "with_llama_cpp_2"


def rows(folder: Path, repeats: int) -> Iterator[common.Row]:
    preload, large = common.preload(), common.large_model(folder)
    program = built(folder)
    command = [program, common.SMALL_MODEL, large, common.PROMPT]
    # The folder of the program has only links to the libraries.
    found = next((program.parent / "build").glob("llama-cpp-sys-2-*/out/lib"))
    libraries = {"LD_LIBRARY_PATH": str(found)}
    row = common.Row(f"llama-cpp-2 {VERSION}, dynamic-link", "0.6.0-dev")
    yield common.alternate(row, command, preload, repeats, **libraries)


if __name__ == "__main__":
    sys.exit(common.main(__doc__, rows))
