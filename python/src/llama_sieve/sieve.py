"""The sieve: one object with penalties, filters, temperature and draw, from raw logits to a
token."""

from __future__ import annotations

import ctypes
import dataclasses
from dataclasses import dataclass
from enum import IntEnum
from operator import index
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from . import _arrays, host, samplers
from ._held import Held, require
from ._library import (
    InvalidError,
    LogitBias,
    SieveParams,
    SieveStages,
    SieveStats,
    check,
    function,
    int32,
    library,
    made,
    texts_for_c,
    unsigned,
)

RANDOM_SEED = 0xFFFFFFFF
"""The seed that selects a random one, which changes at each reset."""


class Mode(IntEnum):
    """A value that is kept with the parameters and has no effect."""

    FAST = 0
    """tsampler's default."""
    PARITY = 1
    """llama.cpp's chain, which every sieve follows."""


class Rng(IntEnum):
    """The random generator."""

    XOROSHIRO128PLUS = 0
    """tsampler's generator."""
    MT19937 = 1
    """llama.cpp's stream; takes the lower 32 bits of the seed."""
    POSITION = 2
    """A hash of the seed and the number of accepted tokens, instead of a generator."""


class Method(IntEnum):
    """The method of drawing."""

    CDF = 0
    """The inverse of the cumulative distribution."""
    GUMBEL = 1
    """The largest of logit / temperature + Gumbel noise."""


class Order(IntEnum):
    """The position of the temperature."""

    TEMP_LAST = 0
    """After all filters, as in llama.cpp's default chain."""
    TEMP_FIRST = 1
    """Right after the penalties, as in transformers and vLLM."""


@dataclass(frozen=True)
class Params:
    """The parameters of a sieve. `dataclasses.replace` changes them.

    The defaults are llama.cpp's: with the same seed a sieve gives the tokens of llama.cpp's
    default chain.
    """

    temperature: float = 0.8
    """Divides the logits; 1 has no effect; below 0.001 the most probable token is chosen."""
    top_k: int = 40
    """Keeps this many of the largest logits; disabled by <= 0."""
    top_p: float = 0.95
    """Keeps the smallest set of the most probable tokens with sum >= this; disabled by >= 1."""
    min_p: float = 0.05
    """Keeps tokens with at least this fraction of the largest probability; disabled by <= 0."""
    typical_p: float = 1.0
    """Keeps the tokens with surprisal nearest to the entropy, until their probabilities add up to
    more than this; disabled by >= 1."""
    top_n_sigma: float = -1.0
    """Keeps logits within this many standard deviations of the largest; disabled by <= 0."""
    min_keep: int = 1
    """The least number of tokens that typical, top-p, min-p and XTC keep."""
    penalty_last_n: int = 64
    """The number of most recent tokens that are penalised; disabled by <= 0."""
    penalty_repeat: float = 1.0
    """Divides logits above 0, multiplies the others; 1 disables."""
    penalty_freq: float = 0.0
    """Subtracted once per occurrence; 0 disables."""
    penalty_present: float = 0.0
    """Subtracted once; 0 disables."""
    seed: int = RANDOM_SEED
    mode: Mode = Mode.PARITY
    """Has no effect."""
    rng: Rng = Rng.MT19937
    method: Method = Method.CDF
    order: Order = Order.TEMP_LAST
    bias: Optional[Mapping[int, float]] = None
    """Added to the logits of tokens before the penalties; minus infinity bans a token."""

    @classmethod
    def tsampler(cls, **changes: Any) -> Params:
        """Returns tsampler's defaults (xoroshiro128+, repetition penalty 1.1) with changes."""
        return dataclasses.replace(
            cls(penalty_repeat=1.1, mode=Mode.FAST, rng=Rng.XOROSHIRO128PLUS), **changes
        )

    def _native(self) -> SieveParams:
        """Returns the C structure, which keeps the biases alive."""
        native = SieveParams(struct_size=ctypes.sizeof(SieveParams))
        for field in dataclasses.fields(self):
            if field.name != "bias":
                setattr(native, field.name, _checked(field.name, getattr(self, field.name)))
        if self.bias:
            pairs = [LogitBias(int32(index(t), "bias"), b) for t, b in self.bias.items()]
            native.bias = (LogitBias * len(pairs))(*pairs)
            native.n_bias = len(pairs)
        return native


_TYPES = {
    field[0]: field[1] for structure in (SieveParams, SieveStages) for field in structure._fields_
}
"""The types of the fields of both structures, by their names."""


def _checked(name: str, value: Any) -> Any:
    """Returns the value of a field; InvalidError for an integer that the field cannot hold."""
    kind = _TYPES[name]
    if kind is ctypes.c_int32:
        return int32(index(value), name)
    if kind in (ctypes.c_size_t, ctypes.c_uint64):
        return unsigned(index(value), 8 * ctypes.sizeof(kind), name)
    return value


class Stage(IntEnum):
    """One stage of a sieve."""

    PENALTIES = 1
    """The penalties of `Params`."""
    DRY = 2
    """Penalises the continuation of repetitions."""
    TOP_K = 3
    TYPICAL = 4
    TOP_P = 5
    MIN_P = 6
    TOP_N_SIGMA = 7
    XTC = 8
    """Sometimes removes the most probable tokens."""
    TEMPERATURE = 9
    DYNAMIC_TEMPERATURE = 10
    """A temperature that depends on the entropy."""
    MIROSTAT = 11
    """Draws the token so that the surprisal of the text stays near a target."""
    MIROSTAT_V2 = 12
    """The second version of mirostat."""
    ADAPTIVE_P = 13
    """Draws a token whose probability is near a target."""
    SAMPLER = 64
    """The sampler in the first slot; `Stage.SAMPLER + 1` is the one in the second."""


@dataclass(frozen=True)
class Stages:
    """The stages of a sieve, in order, and the parameters that `Params` does not have.

    Each stage occurs at most once, and one that draws the token (mirostat, adaptive-p) comes last.
    The defaults are those of llama.cpp's programs, with which DRY and XTC have no effect, and the
    temperature is constant.
    """

    order: Sequence[int] = (
        Stage.PENALTIES,
        Stage.DRY,
        Stage.TOP_N_SIGMA,
        Stage.TOP_K,
        Stage.TYPICAL,
        Stage.TOP_P,
        Stage.MIN_P,
        Stage.XTC,
        Stage.DYNAMIC_TEMPERATURE,
    )
    dry_multiplier: float = 0.0
    """The factor of every penalty of DRY; 0 disables."""
    dry_base: float = 1.75
    """The base of its exponential; disabled by < 1."""
    dry_allowed_length: int = 2
    """The least number of repeated tokens whose continuation is penalised."""
    dry_penalty_last_n: int = 64
    """The number of most recent tokens in which DRY looks for repetitions; disabled by <= 0."""
    xtc_probability: float = 0.0
    """The chance that XTC acts; disabled by <= 0."""
    xtc_threshold: float = 0.1
    """The probability from which XTC removes tokens; disabled by > 0.5."""
    dynatemp_range: float = 0.0
    """How far the temperature moves up and down; 0 keeps it constant."""
    dynatemp_exponent: float = 1.0
    """The exponent of the normalised entropy."""
    mirostat_tau: float = 5.0
    """The surprisal that both mirostats aim at, in bits."""
    mirostat_eta: float = 0.1
    """The fraction of the error that both mirostats correct at each token."""
    mirostat_m: int = 100
    """The number of candidates that the first mirostat's estimate uses."""
    adaptive_target: float = -1.0
    """The probability that adaptive-p aims at, 0 to 1; below 0 it only draws."""
    adaptive_decay: float = 0.9
    """The decay of adaptive-p's average, 0 to 0.99: it reaches back 1 / (1 - decay) tokens."""

    def _native(self) -> SieveStages:
        """Returns the C structure, which keeps the order alive."""
        native = SieveStages(struct_size=ctypes.sizeof(SieveStages))
        for field in dataclasses.fields(self):
            if field.name != "order":
                setattr(native, field.name, _checked(field.name, getattr(self, field.name)))
        numbers = [int32(index(stage), "order") for stage in self.order]
        native.stages = (ctypes.c_int32 * len(numbers))(*numbers)
        native.n_stages = len(numbers)
        return native


@dataclass(frozen=True)
class Stats:
    """Statistics of the last token's distribution.

    Counts are of candidates left after each stage; entropies and surprisal are in nats, and NaN
    unless requested by `Sieve.measure`.
    """

    model_entropy: float
    """Entropy of the raw logits."""
    surprisal: float
    """Surprisal of the chosen token in the raw logits' distribution."""
    sampling_entropy: float
    """Entropy of the distribution that was drawn from."""
    n_vocab: int
    after_top_k: int
    after_typical: int
    after_top_p: int
    after_min_p: int
    after_top_n_sigma: int


class Sieve(Held):
    """A sampler of one sequence over raw logits.

    `Sieve(temperature=0.7, seed=7)`, or `Sieve(Params(...))`. One thread at a time: a second one
    gets BusyError. Sampling releases the GIL.
    """

    _kind = "sieve"
    _instead = "keep its params, its stages and what save() gives, and load() that in a new one"

    def __init__(self, params: Optional[Params] = None, **changes: Any) -> None:
        params = dataclasses.replace(params or Params(), **changes)
        self._hold(made(library.llama_sieve_new(params._native())), function("free"))
        self._params = params
        self._stages: Optional[Stages] = None

    def sample(self, logits: Any) -> int:
        """Chooses the next token from raw logits, without accepting it.

        The array is read in place: one contiguous row of float32, float16 or bfloat16 (of
        ml_dtypes). NaN counts as minus infinity, a banned token. NoCandidateError if no logit is
        above minus infinity.
        """
        view = _arrays.vector(logits)
        return self._sample(_arrays.sample_function(view), _arrays.address(view), view.size)

    def sample_bf16(self, bits: Any) -> int:
        """Chooses the next token from bfloat16 logits that are stored as their bits, in uint16."""
        view = _arrays.vector(bits, "bits")
        if view.dtype != np.uint16:
            raise InvalidError(f"bits: uint16 is needed, this is {view.dtype}")
        return self._sample(function("sample_bf16"), _arrays.address(view), view.size)

    def sample_ctx(self, context: Any, idx: int = -1) -> int:
        """Chooses a token from a llama_context's logits for output idx, and accepts it.

        `context` is a llama_context pointer (of ctypes, or an address), or has one as `ctx`.
        """
        pointer = host.pointer(context, "ctx")
        return self._sample(library.llama_sieve_sample_ctx, pointer, int32(index(idx), "idx"))

    def _sample(self, sample: Any, source: int, number: int) -> int:
        handle = self._take()
        try:
            return check(sample(handle, source, number))
        finally:
            self._lock.release()

    def accept(self, token: int) -> None:
        """Accepts a token that has become part of the text, whether or not the sieve chose it."""
        token = int32(index(token), "token")
        if token < 0:
            raise InvalidError(f"token: {token} is negative")
        handle = self._take()
        try:
            library.llama_sieve_accept(handle, token)
        finally:
            self._lock.release()

    def reset(self) -> None:
        """Returns to the initial state: no history, the generator at its seed."""
        handle = self._take()
        try:
            library.llama_sieve_reset(handle)
        finally:
            self._lock.release()

    @property
    def params(self) -> Params:
        """The parameters. Assigned ones apply from the next token on."""
        return self._params

    @params.setter
    def params(self, params: Params) -> None:
        handle = self._take()
        try:
            check(library.llama_sieve_set_params(handle, params._native()))
            self._params = params
        finally:
            self._lock.release()

    def update(self, **changes: Any) -> None:
        """Changes some parameters from the next token on; the history stays, and so does the
        generator unless `rng` changes."""
        self.params = dataclasses.replace(self._params, **changes)

    @property
    def stages(self) -> Optional[Stages]:
        """The stages in a custom order; None for the order of `Params.order`.

        Assigned stages apply from the next token on. Stages that were in force before keep their
        memory.
        """
        return self._stages

    @stages.setter
    def stages(self, stages: Optional[Stages]) -> None:
        if stages is not None:
            # A copy, so that later changes to the caller's list have no effect.
            stages = dataclasses.replace(stages, order=tuple(stages.order))
        native = None if stages is None else stages._native()
        handle = self._take()
        try:
            check(library.llama_sieve_set_stages(handle, native))
            self._stages = stages
        finally:
            self._lock.release()

    def set_sampler(self, slot: int, sampler: Optional[samplers.Sampler]) -> None:
        """Copies a sampler in its current state into a slot, 0 to 15; None empties the slot.

        The copy runs at the position of `Stage.SAMPLER + slot` in `stages`, and accepts every token
        that the sieve accepts. The sampler must be one of this library's that does not select, such
        as one that truncates, banned texts, a loop breaker, or a grammar. `save()` includes the
        memory of bans and loop breakers, and refuses other samplers with memory.
        """
        number = int32(index(slot), "slot")
        if sampler is not None:
            require(sampler, samplers.Sampler, "sampler")
        handle = self._take()
        try:
            if sampler is None:
                check(library.llama_sieve_set_sampler(handle, number, None))
            else:
                with sampler._used() as pointer:
                    check(library.llama_sieve_set_sampler(handle, number, pointer))
        finally:
            self._lock.release()

    def set_dry_breakers(self, vocab: Any = None, breakers: Iterable[str] = ()) -> None:
        """Sets the strings at which a repetition ends for the stage DRY; initially there are none.

        `vocab` is a llama_vocab pointer (of ctypes, or an address), or has one as `vocab`; without
        breakers it is not needed.
        """
        texts = texts_for_c(breakers, "breaker")
        pointer = None
        if texts:
            host.bound_host()
            pointer = host.pointer(vocab, "vocab")
        array = (ctypes.c_char_p * len(texts))(*texts)
        handle = self._take()
        try:
            check(library.llama_sieve_set_dry_breakers(handle, pointer, array, len(texts)))
        finally:
            self._lock.release()

    def clone(self) -> Sieve:
        """Returns an independent copy in the same state."""
        handle = self._take()
        try:
            return self._twin(made(library.llama_sieve_clone(handle)), function("free"))
        finally:
            self._lock.release()

    def candidates(self) -> NDArray[Any]:
        """Returns the candidates that the last token was drawn from, as a new array of `CANDIDATE`.

        Logits are those after all stages; the probabilities sum to 1.
        """
        handle = self._take()
        try:
            found = np.empty(
                check(library.llama_sieve_candidates(handle, None, 0)), _arrays.CANDIDATE
            )
            check(library.llama_sieve_candidates(handle, _arrays.address(found), found.size))
            return found
        finally:
            self._lock.release()

    def measure(self, measured: bool = True) -> None:
        """Sets whether `stats` has entropies and surprisal, which cost a pass over the logits."""
        handle = self._take()
        try:
            check(library.llama_sieve_measure(handle, bool(measured)))
        finally:
            self._lock.release()

    @property
    def stats(self) -> Stats:
        """Statistics of the last token's distribution."""
        native = SieveStats(struct_size=ctypes.sizeof(SieveStats))
        handle = self._take()
        try:
            check(library.llama_sieve_last_stats(handle, native))
        finally:
            self._lock.release()
        return Stats(
            **{field.name: getattr(native, field.name) for field in dataclasses.fields(Stats)}
        )

    def save(self) -> bytes:
        """Returns history, generator, parameters and the memory of stages, in a portable format.

        `load` does not restore the parameters.
        """
        handle = self._take()
        try:
            size = library.llama_sieve_state_size(handle)
            state = ctypes.create_string_buffer(size)
            check(library.llama_sieve_state_save(handle, state, size))
            return state.raw
        finally:
            self._lock.release()

    def load(self, state: bytes) -> None:
        """Restores what `save` has returned, except the parameters.

        StateError if the bytes are invalid, or those of a sieve with another generator or with
        other stages that remember something.
        """
        state = bytes(state)
        handle = self._take()
        try:
            check(library.llama_sieve_state_load(handle, state, len(state)))
        finally:
            self._lock.release()

    def __enter__(self) -> Sieve:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Sieve({self._params})"


def sample_batch(
    sieves: Sequence[Sieve], logits: Union[NDArray[np.float32], Sequence[Any]], threads: int = 1
) -> NDArray[np.int32]:
    """Chooses a token for each of several independent sequences, without accepting them.

    `logits` is an array with a row of float32 for each sequence, or a sequence of such rows. At
    most `threads` threads work; the tokens do not depend on their number. If a sequence has no
    token, BatchError contains those of the others.
    """
    rows = _arrays.rows(logits, len(sieves))
    tokens = _arrays.tokens_of_batch(len(rows))
    if not rows:
        return tokens
    n_vocab = rows[0].size
    taken = []
    try:
        for i, sieve in enumerate(sieves):
            require(sieve, Sieve, f"sieves[{i}]")
            handle = sieve._take()
            taken.append((sieve, handle))
        handles = (ctypes.c_void_p * len(rows))(*[handle for _, handle in taken])
        addresses = (ctypes.c_void_p * len(rows))(*[_arrays.address(row) for row in rows])
        code = library.llama_sieve_sample_batch(
            handles,
            addresses,
            n_vocab,
            len(rows),
            _arrays.address(tokens),
            int32(index(threads), "threads"),
        )
    finally:
        for sieve, _ in taken:
            sieve._lock.release()
    return _arrays.batch(code, tokens)


def greedy(logits: Any) -> int:
    """Returns the token with the largest logit (float32), the first of equals."""
    view = _arrays.floats(logits)
    return check(library.llama_sieve_greedy(_arrays.address(view), view.size))


def top_candidates(logits: Any, n: int) -> NDArray[Any]:
    """Returns the n most probable tokens in descending order, as a new array of `CANDIDATE`.

    Their probabilities are those within the whole vocabulary.
    """
    view = _arrays.floats(logits)
    n = int32(index(n), "n")
    found = np.empty(max(min(n, view.size), 0), _arrays.CANDIDATE)
    top = library.llama_sieve_top_candidates
    number = check(top(_arrays.address(view), view.size, min(n, view.size), _arrays.address(found)))
    return found[:number]
