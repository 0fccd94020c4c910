"""Samplers for llama.cpp chains: drop-ins for llama.cpp's own samplers of the same names, and
others.

They need a llama.cpp in the process (`bind_host`), and are freed with their object unless a chain
takes them.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from ctypes import c_bool, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_void_p
from operator import index
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, TypeVar

from . import host
from ._held import Held, require
from ._library import (
    BusyError,
    InvalidError,
    LogitBias,
    LoopParams,
    int32,
    library,
    made,
    texts_for_c,
    unsigned,
)

_Sampler = TypeVar("_Sampler", bound="Sampler")


class _Given:
    """The chain that a sampler was given to, which may no longer exist."""

    def __init__(self, owner: Any, chain: int) -> None:
        # The owner is kept alive, so that its chain exists as long as the sampler may be used.
        self._owner = owner
        self._chain = chain

    def take(self, lock: threading.Lock) -> threading.Lock:
        """Locks the chain, and returns the lock; InvalidError if the chain no longer exists."""
        if isinstance(self._owner, Held):
            self._owner._take()
            return self._owner._lock
        if self._owner is None:
            raise InvalidError(
                "the sampler was given away, and nobody here knows how long it lives: use what has "
                "it, or add it to a Chain, or to an object that has the chain as `sampler`"
            )
        if getattr(self._owner, "sampler", None) is None:
            raise InvalidError("the chain that the sampler was given to is closed")
        if host.pointer(self._owner, "sampler") != self._chain:
            raise InvalidError("the object that the sampler was given to has another chain now")
        if not lock.acquire(blocking=False):
            raise BusyError("the sampler is in use by another thread, or twice in one call", -10)
        return lock


class Sampler(Held):
    """A llama_sampler, freed with this object unless a chain owns it. One thread at a time.

    Copying the object calls llama_sampler_clone.
    """

    _kind = "sampler"
    _instead = "make it anew from its arguments"

    def __init__(self, pointer: int) -> None:
        """Takes ownership of the llama_sampler at this address."""
        self._library = host.bound_host()
        self._given: Optional[_Given] = None
        self._hold(host.pointer(pointer, "sampler"), self._function("free", None))

    def _function(self, name: str, restype: Any, *argtypes: Any) -> Any:
        """Returns llama_sampler_NAME of the llama.cpp that this sampler was made with."""
        name = f"llama_sampler_{name}"
        return host.host_function(name, restype, c_void_p, *argtypes, of=self._library)

    @contextmanager
    def _used(self) -> Iterator[int]:
        """Yields the address, and locks the sampler for this thread meanwhile."""
        if self._given is None:
            self._take()
            lock = self._lock
        else:
            lock = self._given.take(self._lock)
        try:
            yield self._address
        finally:
            lock.release()

    @property
    def pointer(self) -> int:
        """The address of the llama_sampler."""
        with self._used() as pointer:
            return pointer

    def _check_free(self) -> None:
        """Raises InvalidError if the sampler cannot be given to a chain."""
        if self._given is not None:
            raise InvalidError("the sampler already belongs to a chain")
        if not self._free.alive:
            raise InvalidError("the sampler is closed")

    def _give(self, given: _Given, then: Callable[[int], Any]) -> None:
        """Gives the sampler away: `then` passes it to its new owner."""
        self._check_free()
        pointer = self._take()
        try:
            then(pointer)
            self._free.detach()
            self._given = given
        finally:
            self._lock.release()

    def release(self) -> int:
        """Returns the llama_sampler, which the caller must add to a chain or free by
        llama_sampler_free.

        This object can then no longer be used.
        """
        self._give(_Given(None, 0), lambda pointer: None)
        return self._address

    def add_to(self, chain: Any) -> None:
        """Adds the sampler to a `Chain`, a llama_sampler chain, or an object that has one as
        `sampler`.

        The chain then owns it, and this object works as long as the chain is known to exist: not if
        only an address was given, and not after `sampler` has become None.
        """
        if isinstance(chain, Held):
            # Imported here, since that module imports this one.
            from .chain import Chain

            require(chain, Chain, "chain")
            chain._call(lambda address: self._join(address, chain))
            return
        owner = chain if hasattr(chain, "sampler") else None
        self._join(host.pointer(chain, "sampler"), owner)

    def _join(self, chain: int, owner: Any) -> None:
        theirs = getattr(owner, "_library", self._library) if isinstance(owner, Held) else None
        if theirs is not None and theirs._handle != self._library._handle:
            raise InvalidError("the sampler and the chain were made with different llama.cpps")
        name = "llama_sampler_chain_add"
        add = host.host_function(name, None, c_void_p, c_void_p, of=self._library)
        self._give(_Given(owner, chain), lambda pointer: add(chain, pointer))

    def clone(self: _Sampler) -> _Sampler:
        """Returns an independent copy in the same state, which belongs to no chain."""
        with self._used() as pointer:
            address = made(self._function("clone", c_void_p)(pointer))
        other = self._twin(address, self._function("free", None))
        other._given = None
        return other

    @property
    def name(self) -> str:
        """The result of llama_sampler_name: "top-k", or "?top-k" if the parameters disable it."""
        with self._used() as pointer:
            return bytes(self._function("name", c_char_p)(pointer)).decode()

    def accept(self, *tokens: int) -> None:
        """Accepts tokens that have become part of the text."""
        take = self._function("accept", None, c_int32)
        numbers = [int32(index(token), "token") for token in tokens]
        with self._used() as pointer:
            for token in numbers:
                take(pointer, token)

    def reset(self) -> None:
        """Returns to the initial state."""
        with self._used() as pointer:
            self._function("reset", None)(pointer)

    def close(self) -> None:
        """Frees the sampler now, if no chain owns it."""
        if self._given is None:
            super().close()
        # Its owner frees it; this object can no longer be used.
        self._given = None


def _new(name: str, types: Iterable[Any], *values: Any) -> Sampler:
    host.bound_host()
    symbol = f"llama_sieve_init_{name}"
    address = ctypes.cast(getattr(library, symbol), c_void_p).value
    assert address is not None
    checked = []
    for kind, value in zip(types, values):
        if kind is c_int32:
            value = int32(index(value), name)
        elif kind in (c_size_t, c_uint32):
            value = unsigned(index(value), 8 * ctypes.sizeof(kind), name)
        checked.append(value)
    return Sampler(made(ctypes.CFUNCTYPE(c_void_p, *types)(address)(*checked)))


def greedy() -> Sampler:
    """Selects the candidate with the largest logit, the first of equals."""
    return _new("greedy", [])


def dist(seed: int) -> Sampler:
    """Draws a candidate with its probability; 0xFFFFFFFF means a random seed."""
    return _new("dist", [c_uint32], seed)


def top_k(k: int) -> Sampler:
    """Keeps the k largest logits; disabled by k <= 0."""
    return _new("top_k", [c_int32], k)


def top_p(p: float, min_keep: int = 1) -> Sampler:
    """Keeps the smallest set of the most probable candidates with sum >= p; disabled by p >= 1."""
    return _new("top_p", [c_float, c_size_t], p, min_keep)


def min_p(p: float, min_keep: int = 1) -> Sampler:
    """Keeps candidates at least p times as probable as the best; disabled by p <= 0."""
    return _new("min_p", [c_float, c_size_t], p, min_keep)


def typical(p: float, min_keep: int = 1) -> Sampler:
    """Keeps the candidates with surprisal nearest to the entropy, until their probabilities add up
    to more than p.

    Disabled by p >= 1."""
    return _new("typical", [c_float, c_size_t], p, min_keep)


def temp(t: float) -> Sampler:
    """Divides every logit by t; t <= 0 keeps only the largest."""
    return _new("temp", [c_float], t)


def temp_ext(t: float, delta: float, exponent: float) -> Sampler:
    """Divides by a temperature between t - delta and t + delta that depends on the entropy."""
    return _new("temp_ext", [c_float] * 3, t, delta, exponent)


def xtc(p: float, t: float, min_keep: int, seed: int) -> Sampler:
    """With probability p, removes the candidates with at least probability t, except the least
    probable of these."""
    return _new("xtc", [c_float, c_float, c_size_t, c_uint32], p, t, min_keep, seed)


def top_n_sigma(n: float) -> Sampler:
    """Masks every logit more than n standard deviations below the largest."""
    return _new("top_n_sigma", [c_float], n)


def mirostat(n_vocab: int, seed: int, tau: float, eta: float, m: int = 100) -> Sampler:
    """Selects so that the surprisal of the text stays near tau bits per token."""
    types = [c_int32, c_uint32, c_float, c_float, c_int32]
    return _new("mirostat", types, n_vocab, seed, tau, eta, m)


def mirostat_v2(seed: int, tau: float, eta: float) -> Sampler:
    """Selects with mirostat's aim, among candidates up to a surprisal that each token adjusts."""
    return _new("mirostat_v2", [c_uint32, c_float, c_float], seed, tau, eta)


def penalties(
    last_n: int, repeat: float = 1.0, freq: float = 0.0, present: float = 0.0, n_vocab: int = 0
) -> Sampler:
    """Penalises the tokens among the last last_n accepted ones."""
    types = [c_int32, c_int32, c_float, c_float, c_float]
    return _new("penalties", types, n_vocab, last_n, repeat, freq, present)


def dry(
    multiplier: float,
    base: float = 1.75,
    allowed_length: int = 2,
    last_n: int = 64,
    breakers: Iterable[str] = ("\n", ":", '"', "*"),
    vocab: Any = None,
) -> Sampler:
    """Subtracts multiplier * base^(length - allowed_length) from tokens that continue a repetition.

    `vocab` is a llama_vocab, or an object that has one as `vocab`; without it there are no
    breakers.
    """
    words = texts_for_c(breakers, "breaker")
    array = (c_char_p * len(words))(*words)
    types = [c_void_p, c_float, c_float, c_int32, c_int32, c_void_p, c_size_t]
    vocabulary = None if vocab is None else host.pointer(vocab, "vocab")
    pointer = ctypes.cast(array, c_void_p)
    values = (vocabulary, multiplier, base, allowed_length, last_n, pointer, len(words))
    return _new("dry", types, *values)


def adaptive_p(target: float, decay: float, seed: int) -> Sampler:
    """Selects tokens near a probability that it adjusts so that the chosen ones average
    `target`."""
    return _new("adaptive_p", [c_float, c_float, c_uint32], target, decay, seed)


def logit_bias(biases: Mapping[int, float], n_vocab: int = 0) -> Sampler:
    """Adds biases to the logits of tokens; minus infinity bans a token."""
    pairs = [LogitBias(int32(index(token), "logit_bias"), bias) for token, bias in biases.items()]
    array = (LogitBias * len(pairs))(*pairs)
    types = [c_int32, c_int32, c_void_p]
    return _new("logit_bias", types, n_vocab, len(pairs), ctypes.cast(array, c_void_p))


def tail_free(z: float, min_keep: int = 1) -> Sampler:
    """Cuts where the curve of sorted probabilities flattens; disabled by z >= 1."""
    return _new("tail_free", [c_float, c_size_t], z, min_keep)


def softmax() -> Sampler:
    """Sorts the candidates by descending logit and writes their probabilities."""
    return _new("softmax", [])


def top_a(a: float) -> Sampler:
    """Keeps candidates with p >= a times the square of the largest p; disabled by a <= 0."""
    return _new("top_a", [c_float], a)


def epsilon_cutoff(epsilon: float) -> Sampler:
    """Epsilon sampling: keeps candidates with p >= epsilon; disabled by epsilon <= 0."""
    return _new("epsilon_cutoff", [c_float], epsilon)


def eta_cutoff(eta: float) -> Sampler:
    """Keeps candidates with p >= min(eta, sqrt(eta) exp(-entropy)); disabled by eta <= 0."""
    return _new("eta_cutoff", [c_float], eta)


def p_less(normalised: bool = False) -> Sampler:
    """Keeps candidates with p >= the sum of all p^2; `normalised` lowers that threshold."""
    return _new("p_less", [c_bool], normalised)


def top_h(alpha: float) -> Sampler:
    """Keeps the most probable candidates whose entropy is at most alpha times that of all.

    Disabled by alpha >= 1."""
    return _new("top_h", [c_float], alpha)


def min_k(tau: float = 0.0) -> Sampler:
    """Cuts at the steepest fall of the sorted logits; disabled by tau < 0.

    At least floor(tau / (largest - smallest + 1e-8)) stay.
    """
    return _new("min_k", [c_float], tau)


def quadratic(factor: float, curve: float = 1.0) -> Sampler:
    """Maps the logits by a parabola or cubic that keeps the largest; disabled by factor <= 0."""
    return _new("quadratic", [c_float, c_float], factor, curve)


_LOOP_ACTIONS = ("ban", "temperature", "force", "end")
"""In the order of LLAMA_SIEVE_LOOP_*."""


def loop_breaker(
    action: str = "ban",
    *,
    max_period: int = 0,
    min_tokens: int = 0,
    temperature: float = 0.0,
    tokens: Iterable[int] = (),
    vocab: Any = None,
) -> Sampler:
    """Ends a repetition: at least three copies of the newest tokens, with `min_tokens` tokens in
    all.

    `action`: "ban" bans the token that would continue the repetition, "temperature" divides the
    logits by `temperature`, more at each token, "force" lets `tokens` follow, such as those that
    end the reasoning, and "end" ends the generation, for which it needs the vocabulary. A 0 selects
    the default: periods of up to 1,024 tokens, 128 tokens in all copies together, and a temperature
    of 1.5.
    """
    if action not in _LOOP_ACTIONS:
        raise InvalidError(f"loop_breaker: the action is one of {', '.join(_LOOP_ACTIONS)}")
    host.bound_host()
    forced = [int32(index(token), "loop_breaker") for token in tokens]
    params = LoopParams(
        struct_size=ctypes.sizeof(LoopParams),
        action=_LOOP_ACTIONS.index(action),
        max_period=int32(index(max_period), "loop_breaker"),
        min_tokens=int32(index(min_tokens), "loop_breaker"),
        temperature=temperature,
        tokens=(c_int32 * len(forced))(*forced),
        n_tokens=len(forced),
        vocab=None if vocab is None else host.pointer(vocab, "vocab"),
    )
    return Sampler(made(library.llama_sieve_init_loop_breaker(ctypes.byref(params))))
