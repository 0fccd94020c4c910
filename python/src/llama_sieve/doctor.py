"""Reports what `patch` would replace in llama-cpp-python; `llama-sieve doctor` does the rest."""

from __future__ import annotations

import json
import sys
from importlib import util
from pathlib import Path
from typing import Any, Dict

from . import launch

Report = Dict[str, Any]
"""The fields of `llama-sieve doctor --json`."""


def report() -> Report:
    """Imports llama-cpp-python, and returns a report of what `patch` would replace in it."""
    spec = util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return _without_host(
            "llama-cpp-python is not installed here (pip install llama-cpp-python). Name another "
            "llama.cpp by the path of a library or a program, or by a process id."
        )
    try:
        import llama_cpp  # type: ignore[import-not-found,import-untyped,unused-ignore]

        from .patching import patch
    except Exception as error:
        return _without_host(f"llama-cpp-python cannot be imported: {error}")
    library = Path(llama_cpp.llama_cpp._lib._name).resolve()
    found = _library(library)
    # The preload library is not reported, since it does not reach ctypes.
    found.update(kinds={}, at_first_call=[], callers=[], problem=None)
    try:
        with patch(verbose=False) as made:
            found["kinds"] = {status.kind: status.reason for status in made.status()}
    except Exception as error:
        found["problem"] = str(error)
    name = getattr(llama_cpp, "__version__", "of unknown version")
    remark = f"llama-cpp-python {name}: what llama_sieve.patch() would do."
    return {"subject": sys.executable, "hosts": [found], "remarks": [remark]}


def _without_host(remark: str) -> Report:
    return {"subject": sys.executable, "hosts": [], "remarks": [remark]}


def _library(path: Path) -> Dict[str, Any]:
    """Returns what `llama-sieve doctor` finds in the file of a llama.cpp."""
    found: Dict[str, Any] = {}
    try:
        hosts = json.loads(launch.told(["doctor", "--json", str(path)]))["hosts"]
        found = next((host for host in hosts if host["path"] == str(path)), found)
    except ValueError:
        # The library is loaded nevertheless, so its verdicts count.
        pass
    unknown = dict.fromkeys(("version", "since", "build_id", "profile"))
    return {**unknown, **found, "path": str(path)}


def tell(as_json: bool) -> int:
    """Prints the report as `llama-sieve doctor` prints one. Returns its exit code."""
    return launch.call([".report", *(["--json"] if as_json else [])], json.dumps(report()))
