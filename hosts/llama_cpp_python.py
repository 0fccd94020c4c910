#!/usr/bin/env python3
"""llama-cpp-python with and without `llama_sieve.patch()`: `hosts/llama_cpp_python.py`.

The bindings come from its source distribution, and run on the llama.cpp that the tests compile.
`ci/python` makes the environment. The preload library does not reach these bindings.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List

import common


def install(folder: Path) -> Path:
    """Returns the Python of an environment with our wheel and llama-cpp-python."""
    place = folder / "llama-cpp-python"
    python = place / "venv" / "bin" / "python"
    if not python.exists():
        common.download([common.REPOSITORY / "ci" / "python", "--only-install", place])
    return python


def rows(folder: Path, repeats: int) -> Iterator[common.Row]:
    python, large = install(folder), common.large_model(folder)
    told = [python, "-c", "import llama_cpp; print(llama_cpp.__version__)"]
    version = subprocess.run(told, check=True, capture_output=True, text=True).stdout.strip()
    row = common.Row(f"llama-cpp-python {version}, patched", "0.6.0")
    program = common.REPOSITORY / "hosts" / "programs" / "with_llama_cpp_python.py"
    command = [python, program, common.SMALL_MODEL, large, common.PROMPT]
    arms: Dict[bool, List[common.Arm]] = {False: [], True: []}
    try:
        for _ in range(repeats):
            for patched in (False, True):
                run = functools.partial(common.arm, command + ["patched"] * patched, None)
                arms[patched].append(run())
                if patched:
                    arms[patched].extend(common.recorded(run))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        row.problem = str(error)
        yield row
        return
    yield common.compare(row, arms[False], arms[True])


if __name__ == "__main__":
    sys.exit(common.main(__doc__, rows))
