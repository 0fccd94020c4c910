#!/usr/bin/env python3
"""node-llama-cpp with and without ours, preloaded and attached: `hosts/node.py [VERSION...]`.

The packages of node-llama-cpp contain llama.cpp as shared libraries, and their metadata names the
build.
"""

from __future__ import annotations

import functools
import json
import shutil
import sys
from pathlib import Path
from typing import Iterator, List

import common

VERSIONS = ("3.2.0", "3.6.0", "3.10.0", "3.14.5", "3.16.2", "3.18.1", "3.20.0", "3.22.1")
KOFFI = "3.3.4"

# V8's default of 16 MiB for young objects leads to collections of them, in one of which some runs
# failed without ours, too (docs/hosts.md). With this much memory a run needs no such collection.
YOUNG_OBJECTS = ("--min-semi-space-size=512", "--max-semi-space-size=512")


def install(version: str, folder: Path) -> Path:
    """Installs the package in a folder of its own, and returns that folder."""
    place = folder / f"node-llama-cpp-{version}"
    if not (place / "node_modules" / "node-llama-cpp").is_dir():
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"private": true, "type": "module"}\n')
        # Its optional packages are builds for every accelerator, most of a gigabyte.
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
        wanted = [f"node-llama-cpp@{version}", f"@node-llama-cpp/linux-x64@{version}"]
        wanted += [f"koffi@{KOFFI}", f"@koromix/koffi-linux-x64@{KOFFI}"]
        common.download([*command, "--loglevel=error", "--omit=optional", *wanted], cwd=place)
    shutil.copy(common.REPOSITORY / "hosts" / "programs" / "with_node.mjs", place)
    return place


def build_of(place: Path) -> str:
    """Returns the llama.cpp release that the prebuilt package names, such as "b3995"."""
    binaries = place / "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
    metadata = json.loads((binaries / "_nlcBuildMetadata.json").read_text())
    return str(metadata["buildOptions"]["llamaCpp"]["release"])


def rows(versions: List[str], folder: Path, repeats: int) -> Iterator[common.Row]:
    preload, large = common.preload(), common.large_model(folder)
    for version in versions:
        place = install(version, folder)
        build = build_of(place)
        program = place / "with_node.mjs"
        command = ["node", *YOUNG_OBJECTS, program, common.SMALL_MODEL, large, common.PROMPT]
        run = functools.partial(common.arm, command)
        library = preload.with_name("libllama_sieve.so")
        attached = functools.partial(run, None, LLAMA_SIEVE_ATTACH=str(library))
        with_ours = [
            (common.Row(f"node-llama-cpp {version}", build), functools.partial(run, preload)),
            (common.Row(f"node-llama-cpp {version}, attached", build), attached),
        ]
        yield from common.in_turns(functools.partial(run, None), with_ours, repeats)


if __name__ == "__main__":
    sys.exit(common.main(__doc__, rows, VERSIONS))
