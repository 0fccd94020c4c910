"""Runs llama.cpp chains straight from raw logits."""

from __future__ import annotations

import ctypes
import threading
from ctypes import c_char_p, c_int32, c_void_p
from operator import index
from typing import Any, List, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from . import _arrays, host
from ._held import Held, require
from ._library import (
    InvalidError,
    check,
    int32,
    last_error,
    library,
    made,
)
from .samplers import Sampler


class _ChainParams(ctypes.Structure):
    """struct llama_sampler_chain_params."""

    _fields_ = [("no_perf", ctypes.c_bool)]


class Chain(Held):
    """A llama_sampler_chain: `Chain(samplers.top_k(40), samplers.temp(0.8), samplers.dist(42))`.

    It selects the token that llama.cpp's own sampling would, without an array of the vocabulary.
    The chain owns its samplers. One thread at a time: a second one gets BusyError. Needs a
    llama.cpp in the process (`bind_host`).
    """

    _kind = "chain"
    _instead = "make it anew of new samplers"

    def __init__(self, *members: Sampler) -> None:
        # Checked before any sampler is given away.
        for i, member in enumerate(members):
            require(member, Sampler, f"members[{i}]")
            if member in members[:i]:
                raise InvalidError("the same sampler is given twice")
            member._check_free()
        self._library = host.bound_host()
        self._last: Optional[Tuple[int, NDArray[Any]]] = None
        make = self._host("chain_init", c_void_p, _ChainParams)
        self._hold(made(make(_ChainParams(no_perf=True))), self._host("free", None, c_void_p))
        for member in members:
            member.add_to(self)

    def _host(self, name: str, restype: Any, *argtypes: Any) -> Any:
        """Returns llama_sampler_NAME of the llama.cpp that this chain was made with."""
        return host.host_function(f"llama_sampler_{name}", restype, *argtypes, of=self._library)

    def sample(self, logits: Any) -> int:
        """Returns the token that the chain selects from raw logits, without accepting it.

        The array is read in place: one contiguous row of float32, float16 or bfloat16 (of
        ml_dtypes). NoCandidateError if the chain leaves no candidate or selects one with a logit of
        minus infinity. InvalidError if it selects none.
        """
        view = _arrays.vector(logits)
        sample = _arrays.chain_function(view)
        handle = self._take()
        try:
            self._last = None
            token = check(sample(handle, _arrays.address(view), view.size))
            # Kept, since the candidates may be computed again from the array, on this thread.
            self._last = threading.get_ident(), view
            return token
        finally:
            self._lock.release()

    def sample_ctx(self, context: Any, idx: int = -1) -> int:
        """Selects from a context's logits, and accepts, as llama_sampler_sample does.

        `context` is a llama_context pointer (of ctypes, or an address), or has one as `ctx`.
        """
        pointer = host.pointer(context, "ctx")
        number = int32(index(idx), "idx")
        handle = self._take()
        try:
            self._last = None
            return check(library.llama_sieve_chain_sample(handle, pointer, number))
        finally:
            self._lock.release()

    def candidates(self) -> NDArray[Any]:
        """Returns the candidates of the last `sample`, as llama.cpp's own chain would leave them.

        The result is a new array of `CANDIDATE`. It must be requested on the thread that sampled,
        before another chain samples there; InvalidError otherwise. The array of logits must not
        have changed, which is not checked.
        """
        ask = library.llama_sieve_chain_candidates
        handle = self._take()
        try:
            if self._last is None:
                raise InvalidError("the chain has sampled no array yet")
            if self._last[0] != threading.get_ident():
                raise InvalidError("the chain has last sampled on another thread")
            found = np.empty(check(ask(handle, None, 0)), _arrays.CANDIDATE)
            if not found.size:
                raise InvalidError(last_error())
            check(ask(handle, _arrays.address(found), found.size))
            return found
        finally:
            self._lock.release()

    def accept(self, *tokens: int) -> None:
        """Lets every member accept tokens that have become part of the text."""
        take = self._host("accept", None, c_void_p, c_int32)
        for token in tokens:
            self._call(take, int32(index(token), "token"))

    def reset(self) -> None:
        """Resets every member."""
        self._call(self._host("reset", None, c_void_p))

    def clone(self) -> Chain:
        """Returns an independent copy in the same state."""
        address = made(self._call(self._host("clone", c_void_p, c_void_p)))
        other = self._twin(address, self._host("free", None, c_void_p))
        other._last = None
        return other

    @property
    def names(self) -> List[str]:
        """The names of the chain's members, in order."""
        count = self._host("chain_n", ctypes.c_int, c_void_p)
        get = self._host("chain_get", c_void_p, c_void_p, c_int32)
        name = self._host("name", c_char_p, c_void_p)

        def of(chain: int) -> List[str]:
            return [bytes(name(get(chain, i))).decode() for i in range(count(chain))]

        names: List[str] = self._call(of)
        return names

    def __enter__(self) -> Chain:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sample_chains(
    chains: Sequence[Chain], logits: Union[NDArray[np.float32], Sequence[Any]], threads: int = 1
) -> NDArray[np.int32]:
    """Returns a token for each chain, each from its own row of float32, without accepting it.

    The tokens do not depend on `threads`. If a chain has no token, BatchError contains those of the
    others.
    """
    rows = _arrays.rows(logits, len(chains))
    tokens = _arrays.tokens_of_batch(len(rows))
    taken: List[Chain] = []
    try:
        for i, chain in enumerate(chains):
            require(chain, Chain, f"chains[{i}]")
            chain._take()
            taken.append(chain)
        handles = (c_void_p * len(rows))(*[chain._address for chain in taken])
        addresses = (c_void_p * len(rows))(*[_arrays.address(row) for row in rows])
        sample = library.llama_sieve_chain_sample_batch
        n_vocab = rows[0].size if rows else 0
        where = _arrays.address(tokens)
        count = int32(index(threads), "threads")
        code = sample(handles, addresses, n_vocab, len(rows), where, count)
    finally:
        for chain in taken:
            chain._lock.release()
    return _arrays.batch(code, tokens)
