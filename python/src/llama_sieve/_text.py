"""Texts of others in what is printed."""

from __future__ import annotations


def printable(text: object) -> str:
    """The text with escapes for what is no printable character; lines stay lines."""
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode("ascii")
        for character in str(text)
    )
