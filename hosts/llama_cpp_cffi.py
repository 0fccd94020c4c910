#!/usr/bin/env python3
"""llama_cpp_cffi with and without the preload library: `hosts/llama_cpp_cffi.py`.

llama_cpp_cffi is a Python extension with llama.cpp linked in, for Python 3.11 and x86-64.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import venv
from pathlib import Path
from typing import Iterator, List

import common

VERSION, BUILD = "0.4.42", "b4965"


def install(folder: Path) -> Path:
    """Returns the Python of an environment with llama_cpp_cffi."""
    place = folder / "llama-cpp-cffi"
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        venv.create(place, with_pip=True)
        install = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        # cffi is missing from the package's dependencies.
        common.download([python, *install, f"llama-cpp-cffi=={VERSION}", "cffi"])
        (place / "complete").touch()
    return python


def lacking(folder: Path) -> List[Path]:
    """Returns a library with the function that an older C++ library lacks, if this one does."""
    if hasattr(ctypes.CDLL("libstdc++.so.6"), "__cxa_call_terminate"):
        return []
    source = common.REPOSITORY / "hosts" / "programs" / "call_terminate.cpp"
    made = folder / "libcall_terminate.so"
    subprocess.run(["c++", "-shared", "-fPIC", "-o", made, source], check=True)
    return [made]


def rows(folder: Path, repeats: int) -> Iterator[common.Row]:
    preload, large = common.preload(), common.large_model(folder)
    program = common.REPOSITORY / "hosts" / "programs" / "with_llama_cpp_cffi.py"
    command = [install(folder), program, common.SMALL_MODEL, large, common.PROMPT]
    row = common.Row(f"llama_cpp_cffi {VERSION}", BUILD)
    yield common.alternate(row, [*command, *lacking(folder)], preload, repeats)


if __name__ == "__main__":
    sys.exit(common.main(__doc__, rows))
