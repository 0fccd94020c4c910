"""What the steps of a release share: the paths, the version, the date and the tools."""

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

# Python packages that a release is made with; other versions may give other bytes.
TOOLS = {
    "auditwheel": "6.8.2",
    "cargo-zigbuild": "0.24.1",
    "cmake": "4.4.5",
    "ziglang": "0.15.2",
    "zopflipy": "1.14",
}


def fail(why: str) -> NoReturn:
    """Ends the program with that message."""
    raise SystemExit(f"release: {why}")


def run(
    command: Sequence[object], cwd: Path = ROOT, environment: Optional[Dict[str, str]] = None
) -> None:
    """Runs a command, whose failure ends the program."""
    words = [str(word) for word in command]
    if subprocess.run(words, cwd=cwd, env=environment, check=False).returncode != 0:
        fail(f"failed: {' '.join(words)}")


def said(command: Sequence[object], cwd: Path = ROOT) -> str:
    """What a command prints; its failure ends the program."""
    words = [str(word) for word in command]
    made = subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, check=False)
    if made.returncode != 0:
        fail(f"failed: {' '.join(words)}")
    return made.stdout.decode()


def version() -> str:
    """The version of the workspace."""
    text = (ROOT / "Cargo.toml").read_text("utf-8")
    found = re.search(r'^\[workspace\.package\]\s+version = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        fail("Cargo.toml names no version")
    return found.group(1)


def soname() -> str:
    """The name that programs ask for at run time, whose number has its home in build.rs."""
    found = re.search(r"libllama_sieve\.so\.\d+", (ROOT / "build.rs").read_text("utf-8"))
    if found is None:
        fail("build.rs names no libllama_sieve.so.N")
    return found.group(0)


def epoch() -> int:
    """The date of everything that is packed: SOURCE_DATE_EPOCH, or that of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        return int(said(["git", "log", "-1", "--format=%ct"]))
    if not given.isdecimal():
        fail(f"SOURCE_DATE_EPOCH is {given!r}: a number of seconds was expected")
    return int(given)


def tool(name: str) -> Path:
    """The path of a program that the packages of `TOOLS` bring."""
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
    """That folder, empty."""
    if folder.exists():
        run(["rm", "-rf", folder])
    folder.mkdir(parents=True)
    return folder
