#!/usr/bin/env python3
"""@fugood/llama.node with and without the preload library: `hosts/llama_node.py [VERSION...]`.

The addon links llama.cpp and llama.cpp's common library into itself, with its own version of
`common_sampler_init`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import common

VERSIONS = ("1.7.15",)


def install(version: str, folder: Path) -> Path:
    """Installs the package in a folder of its own, and returns that folder."""
    place = folder / f"llama.node-{version}"
    if not (place / "node_modules" / "@fugood" / "llama.node").is_dir():
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"private": true, "type": "module"}\n')
        command = [
            "npm",
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ]
        common.download([*command, f"@fugood/llama.node@{version}"], cwd=place)
    shutil.copy(common.REPOSITORY / "hosts" / "programs" / "with_llama_node.mjs", place)
    return place


def build_of(place: Path) -> str:
    """Returns the llama.cpp build that the package reports."""
    program = 'import("@fugood/llama.node").then((m) => console.log(JSON.stringify(m.BuildInfo)))'
    told = subprocess.run(["node", "-e", program], cwd=place, capture_output=True, text=True)
    number = re.search(r'"number":\s*"?(\d+)', told.stdout)
    return f"b{number[1]}" if number else "not told"


def rows(versions: List[str], folder: Path, repeats: int) -> Iterator[common.Row]:
    preload, large = common.preload(), common.large_model(folder)
    for version in versions:
        place = install(version, folder)
        program = place / "with_llama_node.mjs"
        command = ["node", program, common.SMALL_MODEL, large, common.PROMPT]
        row = common.Row(f"@fugood/llama.node {version}", build_of(place))
        yield common.alternate(row, command, preload, repeats)


if __name__ == "__main__":
    sys.exit(common.main(__doc__, rows, VERSIONS))
