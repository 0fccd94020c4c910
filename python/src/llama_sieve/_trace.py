"""The page that shows a trace: `python -m llama_sieve trace FILE`.

The page is one file that loads nothing else. It is the template next to this module with the lines
of the trace in it, which are escaped so that they cannot end their element.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from typing import Iterator, Sequence, Tuple

VERSION = 1
"""The version of the lines that the page can show."""


PART = 1 << 18
"""The number of characters of a trace after which the page begins a new element."""


class NoTrace(ValueError):
    """A file that the page cannot show; the text says why."""


def page(paths: Sequence[str]) -> str:
    """Returns the page for one trace, or for two side by side.

    Raises NoTrace for anything but a trace, and OSError for an unreadable file."""
    blocks = [block for run, path in enumerate(paths) for block in _blocks(path, run)]
    template, _ = _template(f'data-runs="{len(paths)}"', _POLICY)
    return template.replace("<!--RECORDS-->", "\n".join(blocks), 1)


def following(paths: Sequence[str]) -> Tuple[bytes, str]:
    """Returns the page that requests the lines from its server, and the policy to send with it."""
    names = html.escape(json.dumps([os.path.basename(path) for path in paths]), quote=True)
    runs = f'data-runs="{len(paths)}" data-names="{names}"'
    template, policy = _template(runs, f"{_POLICY} connect-src 'self';")
    page = template.replace("<!--RECORDS-->", "", 1)
    return page.encode(errors="replace"), f"{policy}; frame-ancestors 'none'"


_POLICY = "default-src 'none';"


def _template(runs: str, begin: str) -> Tuple[str, str]:
    """Returns the page without lines, and its policy, which begins with `begin`."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "_trace.html"), encoding="utf-8") as file:
        template = file.read()
    # The policy names the only script and the only style that may take effect.
    for kind in ("style", "script"):
        text = re.search(rf"<{kind}>(.*?)</{kind}>", template, re.DOTALL)
        assert text is not None, kind
        digest = hashlib.sha256(text.group(1).encode()).digest()
        name = "sha256-" + base64.b64encode(digest).decode()
        template = template.replace(f"{kind.upper()}_HASH", name, 1)
    template = template.replace(_POLICY, begin, 1).replace('data-runs="RUNS"', runs, 1)
    policy = re.search(r'Policy" content="([^"]*)"', template)
    assert policy is not None
    return template, policy.group(1)


def _blocks(path: str, run: int) -> Iterator[str]:
    """Returns the elements that hold the lines of a trace: the page reads each as it arrives."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        text = file.read()
    check(path, text.split("\n", 1)[0])
    # JSON reads the escape as the same character, and "<" occurs only within strings.
    safe = text.replace("<", "\\u003c")
    name = html.escape(os.path.basename(path), quote=True)
    start = 0
    while start < len(safe):
        end = safe.find("\n", start + PART) + 1 or len(safe)
        yield (
            f'<script type="application/x-ndjson" class="record" data-run="{run}" '
            f'data-name="{name}">\n{safe[start:end]}</script>'
        )
        start = end


def check(path: str, first: str) -> None:
    """Raises NoTrace if this is not the first line of a trace that the page can show."""
    try:
        start = json.loads(first)
    except ValueError:
        start = None
    if not isinstance(start, dict) or start.get("kind") != "start":
        raise NoTrace(f"{path}: is no trace: it does not begin with the line of one")
    version = start.get("version")
    if version != VERSION:
        raise NoTrace(
            f"{path}: is a trace of version {version}, and this llama-sieve reads version "
            f"{VERSION}: use the one that wrote it"
        )


def write(paths: Sequence[str], to: str) -> None:
    """Writes the page for one trace or two to a file. A new one is readable only by this user."""
    text = page(paths)
    handle = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
