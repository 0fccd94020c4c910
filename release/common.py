"""Code that the steps of a release share: paths, the version, the date and the tools."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, NoReturn, Optional, Sequence

ROOT = Path(__file__).resolve().parent.parent
FETCH = ROOT / "ci" / "fetch"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
DIST = ROOT / "dist"
WORK = TARGET / "packages"

# Python packages that build a release. Other versions may give other bytes.
TOOLS = {
    "auditwheel": "6.8.2",
    "cargo-zigbuild": "0.24.1",
    "cmake": "4.4.5",
    "ziglang": "0.15.2",
    "zopflipy": "1.14",
}


def fail(why: str) -> NoReturn:
    """Exits with that message."""
    raise SystemExit(f"release: {why}")


def run(
    command: Sequence[object], cwd: Path = ROOT, environment: Optional[Dict[str, str]] = None
) -> None:
    """Runs a command. Exits if it fails."""
    words = [str(word) for word in command]
    if subprocess.run(words, cwd=cwd, env=environment, check=False).returncode != 0:
        fail(f"failed: {' '.join(words)}")


def said(command: Sequence[object], cwd: Path = ROOT) -> str:
    """Returns what a command prints. Exits if it fails."""
    words = [str(word) for word in command]
    made = subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, check=False)
    if made.returncode != 0:
        fail(f"failed: {' '.join(words)}")
    return made.stdout.decode()


def version() -> str:
    """Returns the version of the workspace."""
    text = (ROOT / "Cargo.toml").read_text("utf-8")
    found = re.search(r'^\[workspace\.package\]\s+version = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        fail("Cargo.toml has no version")
    return found.group(1)


def soname() -> str:
    """Returns the library's soname, which programs load. Its number is defined in build.rs."""
    found = re.search(r"libllama_sieve\.so\.\d+", (ROOT / "build.rs").read_text("utf-8"))
    if found is None:
        fail("build.rs has no libllama_sieve.so.N")
    return found.group(0)


def epoch() -> int:
    """Returns the date of all packed files: SOURCE_DATE_EPOCH, or the commit's."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        return int(said(["git", "log", "-1", "--format=%ct"]))
    if not given.isdecimal():
        fail(f"SOURCE_DATE_EPOCH is {given!r}: a number of seconds was expected")
    return int(given)


def tool(name: str) -> Path:
    """Returns the path of a program in the environment of `install_tools`."""
    return TARGET / "release-tools" / "bin" / name


def install_tools(names: List[str]) -> None:
    """Makes a virtual environment with these packages of `TOOLS`, where it is not there yet."""
    TARGET.mkdir(parents=True, exist_ok=True)
    # Several checks may begin with this at once.
    with open(TARGET / "release-tools.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tool("python").exists():
            run([sys.executable, "-m", "venv", TARGET / "release-tools"])
        wanted = [f"{name}=={TOOLS[name]}" for name in names]
        if wanted:
            run([FETCH, tool("python"), "-m", "pip", "install", "--quiet", *wanted])


def fresh(folder: Path) -> Path:
    """Empties or creates a folder, and returns it."""
    if folder.exists():
        run(["rm", "-rf", folder])
    folder.mkdir(parents=True)
    return folder
