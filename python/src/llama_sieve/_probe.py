"""Loads a llama.cpp and tries every kind of sampler: a process of its own for the doctor's sake.

`python -m llama_sieve._probe LIBRARY [KIND BUILD]` prints one line of JSON. With a kind, that alone
is tried, with the arguments that it had in that build: a wrong list may end the process.
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
    return {
        "version": _version(library),
        "known_build": not unknown,
        "profile": host.profile(),
        "kinds": kinds,
    }


def probe_list(path: str, kind: str, build: int) -> Dict[str, Any]:
    """Whether a kind has the arguments of that build, and does what ours does: "" or why not."""
    host.bind_host(path)
    return {"reason": host.certify(kind, build).reason}


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(probe_list(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
    else:
        print(json.dumps(probe(sys.argv[1])))
