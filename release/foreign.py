"""Fetches Debian's packages for a given processor, with apt's data in a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List

from common import FETCH, WORK, fresh, run

MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

# Debian's Python, which has no pip, and the libraries that it and Node are linked with.
DEBIAN = "bookworm"
PYTHON = "3.11"
PACKAGES = [
    f"python{PYTHON}-minimal",
    f"libpython{PYTHON}-minimal",
    f"libpython{PYTHON}-stdlib",
    *("libbz2-1.0", "libc6", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libssl3"),
    *("libstdc++6", "libuuid1", "zlib1g"),
]


def root(machine: str) -> Path:
    """Returns a folder with a Debian for that processor, as far as Python needs it."""
    folder = WORK / "foreign" / machine
    complete = folder / "complete"
    if not complete.exists():
        unpack(fresh(folder), machine, DEBIAN, PACKAGES)
        complete.touch()
    return folder


def unpack(folder: Path, machine: str, debian: str, packages: List[str]) -> None:
    """Unpacks packages of that Debian into a folder, without running their scripts."""
    apt, architecture = fresh(folder / "apt"), ARCHITECTURES[machine]
    for name in ("lists", "archives"):
        (apt / name / "partial").mkdir(parents=True)
    (apt / "sources").write_text(f"deb {MIRROR} {debian} main\n")
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
        "Dir::State::Lists": apt / "lists",
        "Dir::Cache": apt,
        "Dir::Etc::SourceList": apt / "sources",
        "Dir::Etc::SourceParts": "-",
    }
    command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    run([FETCH, *command, "update"], apt)
    run([FETCH, *command, "download", *packages], apt)
    for package in apt.glob("*.deb"):
        run(["dpkg", "-x", package, folder])
