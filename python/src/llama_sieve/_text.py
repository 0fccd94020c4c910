"""Texts of others in what is printed."""

from __future__ import annotations

from typing import Sequence

_MOST = 60
_MOST_NAMES = 8


def quoted(thing: object) -> str:
    """What ascii() gives of the thing; of a long text, the beginning."""
    if isinstance(thing, (str, bytes)) and len(thing) > _MOST:
        return ascii(thing[:_MOST]) + "..."
    return ascii(thing)


def listed(names: Sequence[object]) -> str:
    """The names, each quoted; of many the first, and how many more there are."""
    few = ", ".join(map(quoted, names[:_MOST_NAMES]))
    more = len(names) - _MOST_NAMES
    return f"{few} and {more} more" if more > 0 else few


def printable(text: object) -> str:
    """The text with escapes for what is no printable character; lines stay lines."""
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode("ascii")
        for character in str(text)
    )
