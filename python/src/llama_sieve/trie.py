"""A sampler that allows only the tokens of a set of values, one after the other."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Mapping, Optional, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from . import host
from ._arrays import address
from ._library import CacheStats, check, library, made, text_for_c, utf8
from .samplers import Sampler

Payload = Union[str, bytes, Mapping[str, Any]]

_GREEDY, _SAMPLED, _COMPACT, _RESET_IDLE = 0, 1, 0x100, 0x200


def payload(values: Mapping[str, Sequence[int]], path: str = "value") -> str:
    """Returns the payload of one descriptor: names of values, and their tokens."""
    leaves = [{"name": name, "tokens": list(tokens)} for name, tokens in values.items()]
    return json.dumps({"descriptors": [{"path": path, "leaves": leaves}]})


def _bytes(text: Payload) -> bytes:
    if isinstance(text, Mapping):
        text = json.dumps(text)
    return utf8(text, "payload")


class TokenTrie(Sampler):
    """A constraint for a llama.cpp chain: see docs/token-trie.md.

    Put it before every sampler that truncates. A chain that it is added to owns and frees it. After
    the chain was freed, this object raises InvalidError. Needs a llama.cpp in the process
    (`bind_host`).
    """

    def __init__(
        self,
        constraint: Optional[Payload] = None,
        *,
        greedy: bool = False,
        compact: bool = False,
        reset_idle: bool = False,
        vocab: Any = None,
    ) -> None:
        """`constraint` is a TokenTreePayload, as a mapping or JSON; with None the trie is idle
        until `set`.

        With `greedy`, the most probable of the values' tokens is selected; otherwise the samplers
        after the trie choose among these tokens. With `compact`, all other candidates are removed,
        not only masked. With `reset_idle`, a reset leaves a complete span idle. With `vocab` (a
        llama_vocab, or an object that has one as `vocab`), tokens outside it are an error.
        """
        flags = (_COMPACT if compact else 0) | (_RESET_IDLE if reset_idle else 0)
        self._mode = (_GREEDY if greedy else _SAMPLED) | flags
        host.bound_host()
        vocabulary = None if vocab is None else host.pointer(vocab, "vocab")
        super().__init__(made(library.llama_sieve_init_trie_slot(vocabulary)))
        if constraint is not None:
            self.set(constraint)

    def set(self, constraint: Payload) -> None:
        """Sets another constraint, active from the next token on. On an error the old one stays."""
        text = _bytes(constraint)
        with self._used() as pointer:
            check(library.llama_sieve_trie_set(pointer, text, len(text), self._mode))

    def clear(self) -> None:
        """Removes the constraint, from the next token on."""
        with self._used() as pointer:
            library.llama_sieve_trie_clear(pointer)

    def activate(self, path: str) -> None:
        """Begins the span of the descriptor with this path. NotFoundError if there is none."""
        with self._used() as pointer:
            check(library.llama_sieve_trie_activate(pointer, text_for_c(path, "path")))

    @property
    def active(self) -> bool:
        """True if the next token is constrained, or may continue a value."""
        with self._used() as pointer:
            active: bool = library.llama_sieve_trie_is_active(pointer)
        return active

    @property
    def leaf(self) -> Optional[str]:
        """The name of the completed value; None while there is none."""
        with self._used() as pointer:
            name: Optional[bytes] = library.llama_sieve_trie_leaf(pointer)
        return None if name is None else name.decode("utf-8", "replace")

    def _tokens(self, function: Any) -> NDArray[np.int32]:
        with self._used() as pointer:
            found = np.empty(function(pointer, None, 0), np.int32)
            number = function(pointer, address(found), found.size)
        return found[:number]

    def forced(self) -> NDArray[np.int32]:
        """Returns the tokens that must follow, which need not be sampled."""
        return self._tokens(library.llama_sieve_trie_forced)

    def allowed(self) -> NDArray[np.int32]:
        """Returns the tokens that may follow, ascending."""
        return self._tokens(library.llama_sieve_trie_allowed)


@dataclass(frozen=True)
class TrieCache:
    """Counters of the process-wide cache of tries."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int


def trie_cache() -> TrieCache:
    """Returns the counters of the cache of tries."""
    native = CacheStats()
    library.llama_sieve_trie_cache_stats(native)
    return TrieCache(**{field.name: getattr(native, field.name) for field in fields(TrieCache)})
