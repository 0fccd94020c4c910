"""Runs a program with the preload library, and llama-cpp-python in it patched."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Dict, List, Mapping, NoReturn, Optional

from . import _elf
from ._library import PRELOAD
from ._text import printable

_SITE = Path(__file__).resolve().parent / "_site"


def environment(before: Mapping[str, str], preload: Path = PRELOAD) -> Dict[str, str]:
    """The environment for a program that is to sample with ours.

    ValueError where the preload library is not there, or where its path cannot be named.
    """
    if not preload.is_file():
        raise ValueError(f"{preload} is missing: install the wheel (pip install ./python)")
    if " " in str(preload) or ":" in str(preload):
        raise ValueError(f"LD_PRELOAD cannot name {preload}: its path has a space or a colon")
    after = dict(before)
    earlier = before.get("LD_PRELOAD", "")
    after["LD_PRELOAD"] = f"{preload}:{earlier}" if earlier else str(preload)
    path = before.get("PYTHONPATH", "")
    after["PYTHONPATH"] = f"{_SITE}{os.pathsep}{path}" if path else str(_SITE)
    return after


def out_of_reach(program: Path) -> Optional[str]:
    """Why no preload library reaches a program; None where nothing speaks against it."""
    try:
        mode = program.stat().st_mode
        elf = _elf.read(program)
    except (OSError, _elf.NotElf):
        # A script: its interpreter gets the environment.
        return None
    if mode & (stat.S_ISUID | stat.S_ISGID):
        return "it runs with more rights than its user has, so that LD_PRELOAD does not count"
    if elf.interpreter is None:
        return "it is linked statically, without a dynamic linker that would load anything"
    return None


def run(command: List[str]) -> NoReturn:
    """Becomes the program. SystemExit where it cannot be run."""
    found = shutil.which(command[0])
    if found is None:
        raise SystemExit(f"llama-sieve: {printable(command[0])}: no such program")
    try:
        variables = environment(os.environ)
    except ValueError as error:
        raise SystemExit(f"llama-sieve: {printable(error)}") from None
    reason = out_of_reach(Path(found))
    if reason is not None:
        line = f"llama-sieve: {found} gets nothing of ours: {reason}"
        print(printable(line), file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(found, command, variables)
