"""Traces of hosts that run with ours, for the option --trace. Recording must not change the text,
and each line of a trace must match its schema."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Dict, Iterator, List

import common

_SCHEMA = common.REPOSITORY / "docs" / "trace.schema.json"
_CHECK = common.REPOSITORY / "hosts" / "programs" / "check_trace.py"


class Traces:
    """A folder with the traces of a script's hosts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "traces"
        self._folder.mkdir(exist_ok=True)
        for old in self._folder.glob("*.jsonl"):
            old.unlink()
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Makes every program that is run in this context record a trace."""
        os.environ["LLAMA_SIEVE_TRACE"] = str(self._folder / f"{next(self._numbers)}-%p.jsonl")
        try:
            yield
        finally:
            del os.environ["LLAMA_SIEVE_TRACE"]

    def checked(self) -> Dict[str, int]:
        """Returns how many lines there are of each kind. RuntimeError if one is not valid."""
        place = self._folder / "venv"
        python = place / "bin" / "python"
        if not python.exists():
            venv.create(place, with_pip=True)
            install = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
            common.download([python, *install, "jsonschema-rs"])
        files: List[object] = sorted(self._folder.glob("*.jsonl"))
        command = list(map(str, [python, _CHECK, _SCHEMA, *files]))
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise RuntimeError(ran.stderr.strip()[:500])
        found: Dict[str, int] = json.loads(ran.stdout)
        return found

    def hold(self) -> bool:
        """Prints how many lines were recorded. False if none is a token's, or one is not valid."""
        try:
            kinds = self.checked()
        except RuntimeError as error:
            print(f"a trace is wrong: {error}", file=sys.stderr)
            return False
        told = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))
        print(f"lines of the traces, all valid: {told or 'none'}", file=sys.stderr)
        return kinds.get("token", 0) > 0
