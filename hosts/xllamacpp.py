#!/usr/bin/env python3
"""The wheel xllamacpp with and without the preload library: `hosts/xllamacpp.py [VERSION...]`.

xllamacpp is llama-server in one library: llama.cpp, its common library and the server call each
other inside it. The large vocabulary is a real tokenizer's, because older versions return no answer
whose text is not valid UTF-8.
"""

from __future__ import annotations

import sys
import venv
from pathlib import Path
from typing import Iterator, List

import common
import vocabulary

VERSIONS = (
    *("2026.4.8672", "2026.5.9294", "2026.7.9873", "2026.8.10229"),
    *("2026.9.11063", "2026.10.11549"),
)


def install(version: str, folder: Path) -> Path:
    """Returns the Python of an environment with that version."""
    place = folder / f"xllamacpp-{version}"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        install = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        common.download([python, *install, f"xllamacpp=={version}"])
    return python


def rows(versions: List[str], folder: Path, repeats: int) -> Iterator[common.Row]:
    preload, large = common.preload(), vocabulary.model(folder)
    program = common.REPOSITORY / "hosts" / "programs" / "with_xllamacpp.py"
    for version in versions:
        # The last part of the version is llama.cpp's build.
        build = f"b{version.split('.')[2]}"
        command = [install(version, folder), program, common.SMALL_MODEL, large, common.PROMPT]
        row = common.Row(f"xllamacpp {version}", build)
        yield common.alternate(row, command, preload, repeats)


if __name__ == "__main__":
    sys.exit(common.main(__doc__, rows, VERSIONS))
