"""Measures how uncertain a model is, and how surprised by its text.

All functions read the arrays in place. NaN and minus infinity mean a probability of 0, and plus
infinity has all the probability.
"""

from __future__ import annotations

import math
from operator import index
from typing import Any, Literal

from . import _arrays
from ._held import Held
from ._library import InvalidError, function, int32, last_error, library, made
from ._text import quoted

Unit = Literal["nats", "bits"]


def _base(unit: Unit) -> int:
    try:
        return {"nats": 0, "bits": 2}[unit]
    except KeyError:
        raise InvalidError(f"unit: {quoted(unit)} is neither 'nats' nor 'bits'") from None


def _defined(value: float) -> float:
    if math.isnan(value):
        raise InvalidError(last_error() or "not defined")
    return value


def entropy(logits: Any, unit: Unit = "nats") -> float:
    """Returns the Shannon entropy of the model's distribution, from its raw logits (float32).

    The result is between 0 and the logarithm of their number, with a relative error below 1e-6.
    InvalidError if no token has a probability.
    """
    view = _arrays.floats(logits)
    return _defined(library.llama_sieve_entropy(_arrays.address(view), view.size, _base(unit)))


def surprisal(logits: Any, token: int, unit: Unit = "nats") -> float:
    """Returns minus the logarithm of the token's probability, from the raw logits (float32).

    The result is plus infinity for a masked token. InvalidError for a token outside the vocabulary.
    """
    view = _arrays.floats(logits)
    token = int32(index(token), "token")
    surprise = library.llama_sieve_surprisal
    return _defined(surprise(_arrays.address(view), view.size, token, _base(unit)))


def candidates_entropy(candidates: Any, unit: Unit = "nats") -> float:
    """Returns the entropy over candidates (`CANDIDATE`), from their logits."""
    view = _arrays.candidates(candidates)
    entropy_of = library.llama_sieve_candidates_entropy
    return _defined(entropy_of(_arrays.address(view), view.size, _base(unit)))


def candidates_surprisal(candidates: Any, token: int, unit: Unit = "nats") -> float:
    """Returns the surprisal among candidates (`CANDIDATE`); plus infinity for other tokens."""
    view = _arrays.candidates(candidates)
    token = int32(index(token), "token")
    surprise = library.llama_sieve_candidates_surprisal
    return _defined(surprise(_arrays.address(view), view.size, token, _base(unit)))


class Perplexity(Held):
    """The exponential of the mean surprisal of a text so far.

    One thread at a time: a second one gets BusyError.
    """

    _kind = "perplexity"
    _instead = "keep the surprisals, and add them to a new one"

    def __init__(self) -> None:
        self._hold(made(library.llama_sieve_ppl_new()), function("ppl_free"))

    def add(self, surprisal: float) -> None:
        """Adds a token by its surprisal in nats. InvalidError for NaN."""
        if math.isnan(surprisal):
            raise InvalidError("surprisal: NaN")
        self._call(library.llama_sieve_ppl_add, surprisal)

    @property
    def value(self) -> float:
        """The perplexity: 1 if every token was certain; NaN before the first token."""
        value: float = self._call(library.llama_sieve_ppl_value)
        return value

    def __len__(self) -> int:
        count: int = self._call(library.llama_sieve_ppl_count)
        return count

    def reset(self) -> None:
        """Drops all tokens."""
        self._call(library.llama_sieve_ppl_reset)

    def clone(self) -> Perplexity:
        """Returns an independent copy with the same tokens."""
        return self._twin(made(self._call(library.llama_sieve_ppl_clone)), function("ppl_free"))

    def __repr__(self) -> str:
        if not self._free.alive:
            return "Perplexity(closed)"
        return f"Perplexity(value={self.value}, tokens={len(self)})"
