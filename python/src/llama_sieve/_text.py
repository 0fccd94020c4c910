"""Quotes foreign texts in printed messages."""

from __future__ import annotations

from typing import Sequence

_MOST = 60
_MOST_NAMES = 8


def quoted(thing: object) -> str:
    """Returns ascii() of the object; of a long text, the beginning."""
    if isinstance(thing, (str, bytes)) and len(thing) > _MOST:
        return ascii(thing[:_MOST]) + "..."
    return ascii(thing)


def listed(names: Sequence[object]) -> str:
    """Returns the names, each quoted; of many, the first ones and the number of the others."""
    few = ", ".join(map(quoted, names[:_MOST_NAMES]))
    more = len(names) - _MOST_NAMES
    return f"{few} and {more} more" if more > 0 else few


def printable(text: object) -> str:
    """Returns the text with characters that are not printable escaped. Line breaks are kept."""
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode("ascii")
        for character in str(text)
    )
