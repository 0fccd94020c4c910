"""Loads a llama.cpp and tries every kind of sampler: a process of its own for the doctor's sake.

`python -m llama_sieve._probe LIBRARY` prints one line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any, Dict, Optional

from . import host


def _version(library: ctypes.CDLL) -> Optional[str]:
    function = getattr(library, "llama_version", None)
    if function is None:
        return None
    function.restype = ctypes.c_char_p
    function.argtypes = []
    text: Optional[bytes] = function()
    return None if text is None else text.decode("utf-8", "replace")


def probe(path: str) -> Dict[str, Any]:
    """What the library is, and each kind's verdict: "" where ours would be made, or why not."""
    library = host.bind_host(path)
    unknown = host.unknown_build()
    kinds = {}
    for kind in host.KINDS:
        # What takes a vocabulary is ours where the build is known.
        kinds[kind] = unknown if kind == "infill" else host.certify(kind).reason
    return {"version": _version(library), "known_build": not unknown, "kinds": kinds}


if __name__ == "__main__":
    print(json.dumps(probe(sys.argv[1])))
