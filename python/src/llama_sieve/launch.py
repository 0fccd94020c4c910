"""The program llama-sieve, which the wheel brings along: how it is called from Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Mapping, NoReturn, Optional

_HERE = Path(__file__).resolve().parent
_SITE = _HERE / "_site"

PROGRAM = _HERE / ("llama-sieve.exe" if sys.platform == "win32" else "llama-sieve")

USAGE = 2
OWN_FAULT = 125
"""Exit codes of the program's: for wrong arguments, and where it cannot run others."""


def environment(before: Mapping[str, str]) -> Dict[str, str]:
    """The environment in which a program's Python patches llama-cpp-python.

    What a program gets besides, the preload library, llama-sieve gives it.
    """
    path = before.get("PYTHONPATH", "")
    return {**before, "PYTHONPATH": f"{_SITE}{os.pathsep}{path}" if path else str(_SITE)}


def become(arguments: List[str]) -> NoReturn:
    """Becomes the program, with its exit code. SystemExit where it cannot be run."""
    running = arguments[:1] == ["run"]
    variables = environment(os.environ) if running else dict(os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if sys.platform == "win32":
            # What takes a process's place there is not waited for.
            raise SystemExit(subprocess.run([PROGRAM, *arguments], env=variables).returncode)
        os.execve(PROGRAM, ["llama-sieve", *arguments], variables)
    except OSError as error:
        _cannot_run(error, OWN_FAULT if running else USAGE)


def call(arguments: List[str], given: Optional[str] = None) -> int:
    """The exit code of the program, which prints where this process does, and reads a text."""
    sys.stdout.flush()
    try:
        return subprocess.run([PROGRAM, *arguments], input=given, text=True).returncode
    except OSError as error:
        _cannot_run(error, USAGE)


def told(arguments: List[str]) -> str:
    """What the program prints. ValueError, with its words, where it prints nothing."""
    try:
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    except OSError as error:
        _cannot_run(error, USAGE)
    if not done.stdout:
        raise ValueError(done.stderr.strip() or f"llama-sieve ended with {done.returncode}")
    return done.stdout


def _cannot_run(error: OSError, code: int) -> NoReturn:
    why = f"{PROGRAM} cannot be run: {error.strerror}. The wheel has it (pip install llama-sieve)"
    print(f"llama-sieve: {why}", file=sys.stderr)
    raise SystemExit(code) from None
