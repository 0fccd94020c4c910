#!/usr/bin/env python3
"""Draws docs/pictures/llama-server.svg from the table of docs/hosts.md: `hosts/chart.py [--check]`.

Bars of tokens per second without and with the preload library. With --check nothing is written, and
a picture that differs from the table is an error.
"""

from __future__ import annotations

import argparse
import sys
from html import escape
from typing import Iterator, List, NamedTuple

from common import REPOSITORY

TABLE = REPOSITORY / "docs/hosts.md"
PICTURE = REPOSITORY / "docs/pictures/llama-server.svg"

LABELS = {
    "defaults": "defaults",
    "repeat_penalty 1.1": "repeat_penalty 1.1",
    "dry_multiplier 0.8": "dry_multiplier 0.8",
    "top_k 0, top_p 0.95": "top_p .95 alone",
    "JSON schema": "JSON schema",
    "139 tools, lazy grammar": "agent with 139 tools",
}
"""The picture's label for each setting of the table."""

LEFT, WIDTH, ROW, TOP = 190, 440, 46, 58
STYLE = """\
text { font: 14px sans-serif; fill: #1f2328 } .small { font-size: 12px; fill: #59636e }
.without { fill: #d55e00 } .with { fill: #0072b2 } .paper { fill: #ffffff }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .paper { fill: #0d1117 }
  .without { fill: #e69f00 } .with { fill: #56b4e9 }
}"""


class Row(NamedTuple):
    label: str
    without: int
    with_ours: int


def rows(text: str) -> Iterator[Row]:
    """Yields the first row of the table for each label."""
    missing = dict(LABELS)
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        setting = next((name for name in missing if cells[0].startswith(f"{name}, ")), None)
        if setting is not None and len(cells) == 8:
            yield Row(missing.pop(setting), int(cells[2]), int(cells[3]))
    if missing:
        raise SystemExit(f"{TABLE} has no row of {', '.join(missing)}")


def drawn(table: List[Row]) -> str:
    """Returns the picture of the rows, in SVG."""
    most = max(max(row.without, row.with_ours) for row in table)
    height = TOP + ROW * len(table)
    title = "Tokens per second of an unmodified llama-server"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" role="img"'
        f' viewBox="0 0 760 {height}">',
        f"<title>{title}</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="paper" width="760" height="{height}"/>',
        f'<text x="16" y="24">{title}</text>',
        '<rect class="without" x="16" y="36" width="12" height="12"/>',
        '<text class="small" x="34" y="46">without</text>',
        '<rect class="with" x="96" y="36" width="12" height="12"/>',
        '<text class="small" x="114" y="46">with the preload library</text>',
    ]
    for i, row in enumerate(table):
        y = TOP + ROW * i
        lines.append(
            f'<text x="{LEFT - 12}" y="{y + 24}" text-anchor="end">{escape(row.label)}</text>'
        )
        for name, tokens, top in (("without", row.without, 4), ("with", row.with_ours, 20)):
            length = round(WIDTH * tokens / most)
            lines.append(
                f'<rect class="{name}" x="{LEFT}" y="{y + top}" width="{length}" height="14"/>'
            )
            number = f"{tokens:,}"
            if name == "with":
                number += f" ({row.with_ours / row.without:.1f} times)"
            lines.append(
                f'<text class="small" x="{LEFT + length + 6}" y="{y + top + 11}">{number}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    picture = drawn(list(rows(TABLE.read_text())))
    if not parser.parse_args().check:
        PICTURE.write_text(picture)
    elif not PICTURE.exists() or PICTURE.read_text() != picture:
        print(f"{PICTURE} is not what {TABLE} says: run hosts/chart.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
