"""Bans texts, or biases them."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_void_p
from typing import Any, Iterable

from . import host
from ._library import check, library, made, texts_for_c
from .grammar import Text, _vocabulary
from .samplers import Sampler

_FOLD_CASE = 1
"""LLAMA_SIEVE_BAN_FOLD_CASE."""
_REGEX = 2
"""LLAMA_SIEVE_BAN_REGEX."""


def _given(texts: Iterable[Text], vocab: Any) -> tuple[Any, Any, int]:
    """Returns a vocabulary, an array of texts, and their number, as the constructors take them."""
    host.bound_host()
    found = texts_for_c(texts, "ban")
    array = (c_char_p * len(found))(*found)
    return _vocabulary(vocab), array, len(found)


class BanStrings(Sampler):
    """A sampler that bans every token that would complete one of the texts.

    None of the texts occurs in the generated text, whichever tokens spell it. With `fold_case`,
    letters that differ only in case are equal, by Unicode's simple case folding. With `regex`, the
    texts are regular expressions in the syntax of Rust's crate `regex`, and none of them matches
    anywhere in the generated text; `$`, `\\b` and expressions that match the empty text are
    refused. `vocab` is a llama_vocab, or an object that has one as `vocab` or a llama_model as
    `model`, such as a llama_cpp.Llama. In a chain it comes before every sampler that truncates.
    """

    _kind = "ban"

    def __init__(
        self, vocab: Any, texts: Iterable[Text], fold_case: bool = False, regex: bool = False
    ) -> None:
        address, array, n = _given(texts, vocab)
        flags = (_FOLD_CASE if fold_case else 0) | (_REGEX if regex else 0)
        create = library.llama_sieve_init_ban_strings
        super().__init__(made(create(address, ctypes.cast(array, c_void_p), n, flags)))

    def rewind(self) -> int:
        """Returns how many of the newest tokens contain the beginning of a banned text that one
        more token could complete.

        The result is 0 if there is no such text. A host that can rewind its cache can take this
        many tokens back and continue differently.
        """
        with self._used() as pointer:
            return check(library.llama_sieve_ban_rewind(pointer))


class BanStringsBias(Sampler):
    """A sampler that biases tokens that continue one of the texts, instead of banning them.

    A token continues a text that began before it if the match extends to the token's end. If m of
    the text's L bytes then match, m / L of `bias`, which is usually negative, is added to the
    token's logit. If the token continues several texts, the one with the largest fraction counts. A
    token that completes a text, or contains a complete one, gets all of `bias`. With `fold_case`,
    letters that differ only in case are equal, and characters are counted instead of bytes. `vocab`
    is that of `BanStrings`. In a chain it comes before every sampler that truncates.
    """

    _kind = "ban"

    def __init__(
        self, vocab: Any, texts: Iterable[Text], bias: float, fold_case: bool = False
    ) -> None:
        address, array, n = _given(texts, vocab)
        flags = _FOLD_CASE if fold_case else 0
        create = library.llama_sieve_init_ban_strings_bias
        super().__init__(made(create(address, ctypes.cast(array, c_void_p), n, flags, bias)))
