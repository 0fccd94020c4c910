"""Runs the program llama-sieve, which the wheel includes."""

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
"""Exit codes of llama-sieve: for wrong arguments, and for a fault of its own in `run`."""


def environment(before: Mapping[str, str]) -> Dict[str, str]:
    """Returns an environment in which a program's Python patches llama-cpp-python.

    The preload library is added by llama-sieve itself.
    """
    path = before.get("PYTHONPATH", "")
    return {**before, "PYTHONPATH": f"{_SITE}{os.pathsep}{path}" if path else str(_SITE)}


def become(arguments: List[str]) -> NoReturn:
    """Replaces this process by the program, with its exit code. SystemExit if it cannot be run."""
    running = arguments[:1] == ["run"]
    variables = environment(os.environ) if running else dict(os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if sys.platform == "win32":
            # On this system a parent does not wait for a program that replaces a process.
            raise SystemExit(subprocess.run([PROGRAM, *arguments], env=variables).returncode)
        os.execve(PROGRAM, ["llama-sieve", *arguments], variables)
    except OSError as error:
        _cannot_run(error, OWN_FAULT if running else USAGE)


def call(arguments: List[str], given: Optional[str] = None) -> int:
    """Runs the program with a text as its input; it writes to this process's output. Returns its
    exit code."""
    sys.stdout.flush()
    try:
        return subprocess.run([PROGRAM, *arguments], input=given, text=True).returncode
    except OSError as error:
        _cannot_run(error, USAGE)


def told(arguments: List[str]) -> str:
    """Returns the output of the program. If there is none, raises ValueError with its error
    message."""
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
