"""Compares the sieve with numpy in double precision, and tests the promises of the class."""

from __future__ import annotations

import array
import collections
import copy
import ctypes
import dataclasses
import math
import threading

import numpy as np
import pytest
from test_metrics import entropy, log_softmax

import llama_sieve
from llama_sieve import (
    InvalidError,
    Mode,
    Params,
    Rng,
    Sieve,
    Stage,
    Stages,
    StateError,
    _library,
)

V = 4096
QUIET = Params(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7)
"""Every stage off."""


@pytest.fixture
def logits(rng):
    return rng.normal(0, 3, V).astype(np.float32)


def softmax(logits):
    p = np.exp(logits.astype(np.float64) - logits.max())
    return p / p.sum()


def reference(logits, params, history=()):
    """Returns the remaining ids and their probabilities, by the definitions."""
    work = logits.astype(np.float64)
    for token, bias in (params.bias or {}).items():
        work[token] += bias
    recent = list(history)[-params.penalty_last_n :] if params.penalty_last_n > 0 else []
    for token in set(recent):
        above = work[token] > 0
        work[token] *= 1 / params.penalty_repeat if above else params.penalty_repeat
        work[token] -= recent.count(token) * params.penalty_freq + params.penalty_present
    ids = np.argsort(-work, kind="stable")
    if params.top_k > 0:
        ids = ids[: params.top_k]
    if params.top_p < 1:
        reached = np.cumsum(softmax(work[ids]))
        ids = ids[: int(np.searchsorted(reached, params.top_p)) + 1]
    if params.min_p > 0:
        ids = ids[work[ids] >= work[ids[0]] + math.log(params.min_p)]
    return ids, softmax(work[ids] / params.temperature)


def test_structures_are_as_long_as_the_library_says():
    native = _library.library.llama_sieve_default_params()
    assert native.struct_size == ctypes.sizeof(_library.SieveParams)
    for field in dataclasses.fields(Params):
        if field.name != "bias":
            assert getattr(native, field.name) == pytest.approx(field.default), field.name
    assert not native.bias and native.n_bias == 0
    native = _library.library.llama_sieve_default_stages()
    assert native.struct_size == ctypes.sizeof(_library.SieveStages)
    for field in dataclasses.fields(Stages):
        if field.name != "order":
            assert getattr(native, field.name) == pytest.approx(field.default), field.name
    assert tuple(native.stages[: native.n_stages]) == Stages().order


@pytest.mark.parametrize(
    "params",
    [
        QUIET,
        Params(seed=7),
        Params(seed=7, penalty_repeat=1.1, penalty_freq=0.2, penalty_present=0.1),
        dataclasses.replace(QUIET, top_p=0.8),
        dataclasses.replace(QUIET, min_p=0.02, temperature=1.7),
        dataclasses.replace(QUIET, top_k=7, bias={3: 2.5, 11: -math.inf}),
    ],
    ids=lambda params: f"k{params.top_k}-p{params.top_p}-m{params.min_p}",
)
def test_what_is_drawn_from_is_what_the_definitions_leave(logits, params, rng):
    history = [int(token) for token in np.argsort(-logits)[rng.integers(0, 50, 30)]]
    sieve = Sieve(params)
    for token in history:
        sieve.accept(token)
    token = sieve.sample(logits)
    found = sieve.candidates()
    ids, p = reference(logits, params, history)
    kept = p > 0
    assert set(found["id"]) == set(ids[kept])
    assert token in found["id"]
    expected = dict(zip(ids, p))
    for candidate in found:
        assert candidate["p"] == pytest.approx(expected[candidate["id"]], rel=2e-5)
    assert found["p"].sum(dtype=np.float64) == pytest.approx(1, rel=1e-5)


def test_a_seed_gives_the_same_tokens(logits):
    for rng in Rng:
        first, second = (Sieve(seed=5, rng=rng) for _ in range(2))
        tokens = []
        for _ in range(20):
            tokens.append(first.sample(logits))
            assert second.sample(logits) == tokens[-1]
            first.accept(tokens[-1])
            second.accept(tokens[-1])
        first.reset()
        assert first.sample(logits) == tokens[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_other_precisions_are_the_same_numbers(logits, temperature):
    half = logits.astype(np.float16)
    assert Sieve(seed=3, temperature=temperature).sample(half) == Sieve(
        seed=3, temperature=temperature
    ).sample(half.astype(np.float32))
    bits = (logits.view(np.uint32) >> 16).astype(np.uint16)
    wide = (bits.astype(np.uint32) << 16).view(np.float32)
    sieve = Sieve(seed=3, temperature=temperature)
    assert sieve.sample_bf16(bits) == Sieve(seed=3, temperature=temperature).sample(wide)


def test_arrays_are_read_in_place(logits):
    logits.flags.writeable = False
    before = logits.tobytes()
    assert llama_sieve._arrays.vector(logits) is logits
    token = Sieve(top_k=1).sample(logits)
    assert token == int(np.argmax(logits)) == llama_sieve.greedy(logits)
    assert logits.tobytes() == before
    # An object that shares its memory with numpy is not copied either, so the change takes effect.
    shared = ctypes.c_float * 4
    floats = shared(0, 3, 1, 2)
    assert llama_sieve.greedy(floats) == 1
    floats[2] = 9
    assert llama_sieve.greedy(floats) == 2


class Copied:
    """An object with only `__array__`, which returns a new copy each time."""

    def __init__(self, elements):
        self.elements = elements

    def __array__(self, dtype=None, copy=None):
        return self.elements.copy()


class Shared(Copied):
    """An object whose `__array__` returns its memory, as tensors in main memory do."""

    def __array__(self, dtype=None, copy=None):
        return self.elements


class Elsewhere:
    """An object that cannot become an array in main memory, like tensors on a GPU."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("its memory is elsewhere")


def test_what_would_be_copied_is_an_error(logits):
    for wrong in (
        collections.deque(logits),
        collections.UserList(logits),
        Copied(logits),
        list(logits),
        tuple(logits),
        Elsewhere(),
        None,
        "logits",
        logits.tobytes(),
    ):
        for read in (Sieve().sample, llama_sieve.greedy, llama_sieve.entropy):
            with pytest.raises(TypeError, match="logits: .* give a numpy array") as error:
                read(wrong)
            assert isinstance(error.value, InvalidError) and type(wrong).__name__ in str(error)
    for shared in (Shared(logits), memoryview(logits), array.array("f", logits)):
        assert llama_sieve.greedy(shared) == llama_sieve.greedy(logits)


def test_min_keep_up_to_the_largest_keeps_everything(logits):
    sieve = Sieve(top_k=0, top_p=0.1, min_p=0.0, min_keep=2**64 - 1)
    sieve.sample(logits)
    assert sieve.candidates().size == logits.size


def test_parameters_change_between_tokens(logits):
    sieve = Sieve(QUIET)
    sieve.update(top_k=1)
    assert sieve.params.top_k == 1 and sieve.sample(logits) == int(np.argmax(logits))
    with pytest.raises(InvalidError, match="penalty_repeat"):
        sieve.update(penalty_repeat=0.0)
    assert sieve.params.penalty_repeat == 1.0
    sieve.params = dataclasses.replace(sieve.params, bias={9: math.inf})
    assert sieve.sample(logits) == 9


def test_a_saved_state_goes_on(logits):
    for rng in Rng:
        sieve = Sieve(seed=11, rng=rng)
        for _ in range(5):
            sieve.accept(sieve.sample(logits))
        state = sieve.save()
        rest = []
        for _ in range(5):
            rest.append(sieve.sample(logits))
            sieve.accept(rest[-1])
        other = Sieve(seed=999, rng=rng)
        other.load(state)
        again = []
        for _ in range(5):
            again.append(other.sample(logits))
            other.accept(again[-1])
        assert again == rest
    with pytest.raises(llama_sieve.StateError):
        other.load(b"nonsense")
    with pytest.raises(llama_sieve.StateError):
        Sieve(rng=Rng.MT19937).load(Sieve(rng=Rng.POSITION).save())


def test_a_clone_goes_on_as_the_first_would(logits):
    sieve = Sieve(seed=2)
    sieve.accept(sieve.sample(logits))
    other = copy.copy(sieve)
    assert [other.sample(logits) for _ in range(5)] == [sieve.sample(logits) for _ in range(5)]


def test_a_batch_is_its_sequences_one_by_one(rng):
    rows = rng.normal(0, 3, (6, V)).astype(np.float32)
    alone = [Sieve(seed=i).sample(row) for i, row in enumerate(rows)]
    for threads in (1, 2):
        sieves = [Sieve(seed=i) for i in range(len(rows))]
        together = llama_sieve.sample_batch(sieves, rows, threads=threads)
        assert together.tolist() == alone
    rows[2] = -np.inf
    with pytest.raises(llama_sieve.BatchError) as failed:
        llama_sieve.sample_batch([Sieve(seed=i) for i in range(6)], rows)
    assert failed.value.tokens[2] == failed.value.code == -8
    assert np.delete(failed.value.tokens, 2).tolist() == alone[:2] + alone[3:]
    with pytest.raises(llama_sieve.BusyError):
        llama_sieve.sample_batch([sieves[0], sieves[0]], rows[:2])
    assert sieves[0].sample(rows[0]) >= 0
    with pytest.raises(InvalidError, match="2 sequences"):
        llama_sieve.sample_batch(sieves[:2], rows)
    with pytest.raises(InvalidError):
        llama_sieve.sample_batch(sieves, rows[:, :0])
    assert llama_sieve.sample_batch([], []).size == 0


def test_statistics_are_those_of_the_stages(logits):
    sieve = Sieve(seed=1)
    assert math.isnan(sieve.stats.model_entropy)
    sieve.measure()
    token = sieve.sample(logits)
    stats = sieve.stats
    assert stats.n_vocab == V and stats.after_top_k == 40
    assert stats.after_top_n_sigma == sieve.candidates().size
    assert stats.model_entropy == pytest.approx(entropy(logits), rel=1e-6)
    assert stats.surprisal == pytest.approx(-log_softmax(logits)[token], rel=1e-5)
    p = sieve.candidates()["p"].astype(np.float64)
    assert stats.sampling_entropy == pytest.approx(-(p * np.log(p)).sum(), rel=1e-5)


def test_top_candidates_have_the_models_probabilities(logits):
    top = llama_sieve.top_candidates(logits, 10)
    order = np.argsort(-logits, kind="stable")[:10]
    assert top["id"].tolist() == order.tolist()
    assert top["p"] == pytest.approx(np.exp(log_softmax(logits))[order], rel=2e-5)
    assert llama_sieve.top_candidates(logits[:3], 10).size == 3
    assert llama_sieve.top_candidates(logits, 0).size == 0


def test_a_seed_gives_the_tokens_of_llama_cpps_default_chain(logits, llama_cpp):
    """The chain is llama.cpp's own, through its bindings."""
    bindings = llama_cpp.llama_cpp
    chain = bindings.llama_sampler_chain_init(bindings.llama_sampler_chain_default_params())
    for sampler in (
        bindings.llama_sampler_init_top_k(40),
        bindings.llama_sampler_init_top_p(0.95, 1),
        bindings.llama_sampler_init_min_p(0.05, 1),
        bindings.llama_sampler_init_temp(0.8),
        bindings.llama_sampler_init_dist(7),
    ):
        bindings.llama_sampler_chain_add(chain, sampler)
    sieve = Sieve(seed=7)
    for shift in range(20):
        rolled = np.roll(logits, shift)
        token = sieve.sample(rolled)
        assert token == _sampled(bindings, chain, rolled)
        sieve.accept(token)
    bindings.llama_sampler_free(chain)


def test_stages_give_what_a_chain_of_llama_cpp_gives(logits, llama_cpp):
    """In the order of llama.cpp's programs, with DRY and XTC."""
    bindings = llama_cpp.llama_cpp
    chain = bindings.llama_sampler_chain_init(bindings.llama_sampler_chain_default_params())
    for sampler in (
        bindings.llama_sampler_init_penalties(logits.size, 64, 1.1, 0.0, 0.0)
        if len(bindings.llama_sampler_init_penalties.argtypes) == 5
        else bindings.llama_sampler_init_penalties(64, 1.1, 0.0, 0.0),
        bindings.llama_sampler_init_top_n_sigma(2.0),
        bindings.llama_sampler_init_top_k(40),
        bindings.llama_sampler_init_top_p(0.95, 1),
        bindings.llama_sampler_init_min_p(0.05, 1),
        bindings.llama_sampler_init_xtc(0.5, 0.05, 1, 42),
        bindings.llama_sampler_init_temp_ext(0.8, 0.5, 1.0),
        bindings.llama_sampler_init_dist(42),
    ):
        bindings.llama_sampler_chain_add(chain, sampler)
    sieve = Sieve(seed=42, top_n_sigma=2.0, penalty_repeat=1.1)
    sieve.stages = Stages(xtc_probability=0.5, xtc_threshold=0.05, dynatemp_range=0.5)
    for shift in range(40):
        rolled = np.roll(logits, shift)
        token = sieve.sample(rolled)
        assert token == _sampled(bindings, chain, rolled)
        bindings.llama_sampler_accept(chain, token)
        sieve.accept(token)
    bindings.llama_sampler_free(chain)


def test_stages_in_the_order_of_the_parameters_are_those(logits):
    order = [
        Stage.PENALTIES,
        Stage.TOP_K,
        Stage.TYPICAL,
        Stage.TOP_P,
        Stage.MIN_P,
        Stage.TOP_N_SIGMA,
        Stage.TEMPERATURE,
    ]
    params = Params(seed=5, typical_p=0.9)
    fixed, staged = Sieve(params), Sieve(params, mode=Mode.FAST)
    assert staged.stages is None
    staged.stages = Stages(order)
    order.clear()
    assert len(staged.stages.order) == 7
    for _ in range(20):
        token = fixed.sample(logits)
        assert staged.sample(logits) == token
        assert np.array_equal(staged.candidates(), fixed.candidates())
        fixed.accept(token)
        staged.accept(token)
    # Back to the order of the parameters.
    staged.stages = None
    assert staged.stages is None
    staged.reset()
    assert staged.sample(logits) == Sieve(params, mode=Mode.FAST).sample(logits)


def test_a_preset_has_the_choices_of_tsampler():
    params = Params.tsampler(seed=3)
    assert (params.mode, params.rng, params.penalty_repeat) == (
        Mode.FAST,
        Rng.XOROSHIRO128PLUS,
        pytest.approx(1.1),
    )
    assert dataclasses.replace(params, mode=Mode.PARITY, rng=Rng.MT19937, penalty_repeat=1.0) == (
        Params(seed=3)
    )


def test_a_state_goes_on_with_the_same_stages(logits):
    stages = Stages(
        [Stage.DRY, Stage.XTC, Stage.ADAPTIVE_P],
        dry_multiplier=0.8,
        xtc_probability=0.5,
        adaptive_target=0.3,
    )
    sieve, other = Sieve(seed=3), Sieve(seed=3)
    sieve.stages = stages
    for _ in range(30):
        sieve.accept(sieve.sample(logits))
    state = sieve.save()
    with pytest.raises(StateError, match="other stages"):
        other.load(state)
    other.stages = stages
    other.load(state)
    third = copy.copy(other)
    assert third.stages == other.stages == sieve.stages
    for _ in range(30):
        token = sieve.sample(logits)
        assert other.sample(logits) == token
        assert third.sample(logits) == token
        for each in (sieve, other, third):
            each.accept(token)


def test_breakers_are_those_of_a_vocabulary(logits, llm):
    sieve = Sieve(seed=3)
    sieve.set_dry_breakers()
    sieve.stages = Stages([Stage.DRY], dry_multiplier=5.0, dry_allowed_length=1)
    sieve.set_dry_breakers(llm._model, ["\n", ":", ""])
    sieve.sample(logits)
    with pytest.raises(InvalidError):
        sieve.set_dry_breakers(None, ["\n"])


def test_wrong_stages_change_nothing(logits):
    sieve = Sieve(seed=3)
    good = Stages([Stage.TOP_K, Stage.TEMPERATURE])
    sieve.stages = good
    for wrong, says in (
        (Stages([Stage.TOP_K, Stage.TOP_K]), "named twice"),
        (Stages([Stage.MIROSTAT, Stage.TOP_K]), "must be the last"),
        (Stages([14]), "a stage is 14"),
        (Stages([Stage.XTC], xtc_threshold=math.nan), "not a finite number"),
        (Stages([Stage.DRY], dry_penalty_last_n=2**31), "dry_penalty_last_n"),
    ):
        with pytest.raises(InvalidError, match=says):
            sieve.stages = wrong
        assert sieve.stages.order == tuple(good.order)
    sieve.sample(logits)
    assert sieve.candidates().size == 40


def _sampled(bindings, chain, logits):
    data = np.zeros(logits.size, llama_sieve.CANDIDATE)
    data["id"] = np.arange(logits.size)
    data["logit"] = logits
    array = bindings.llama_token_data_array(
        data=data.ctypes.data_as(bindings.llama_token_data_p), size=logits.size, selected=-1
    )
    bindings.llama_sampler_apply(chain, ctypes.byref(array))
    return array.data[array.selected].id


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda: Sieve(temperature=math.nan), InvalidError, "temperature"),
        (lambda: Sieve(penalty_repeat=0.0), InvalidError, "penalty_repeat"),
        (lambda: Sieve(mode=9), InvalidError, "mode"),
        (lambda: Sieve(top_k=2**31), InvalidError, "top_k"),
        (lambda: Sieve(seed=-1), InvalidError, "seed"),
        (lambda: Sieve(seed=2**64), InvalidError, "seed"),
        (lambda: Sieve(min_keep=-1), InvalidError, "min_keep"),
        (lambda: Sieve(min_keep=2**64), InvalidError, "min_keep.*64 bits"),
        (lambda: Sieve(min_keep=2**64 + 1), InvalidError, "min_keep"),
        (lambda: Sieve(penalty_last_n=-(2**31) - 1), InvalidError, "penalty_last_n"),
        (lambda: Sieve(mode=2**32), InvalidError, "mode.*32 bits"),
        (lambda: Sieve(rng=2**32), InvalidError, "rng.*32 bits"),
        (lambda: Sieve(method=2**32), InvalidError, "method.*32 bits"),
        (lambda: Sieve(order=2**32), InvalidError, "order.*32 bits"),
        (lambda: Sieve(bias={2**32: 1.0}), InvalidError, "bias.*32 bits"),
        (lambda: Sieve(min_keep=1.5), TypeError, "float"),
        (lambda: Sieve().set_sampler(2**32, None), InvalidError, "slot"),
        (
            lambda: llama_sieve.sample_batch([Sieve()], np.zeros((1, 4), np.float32), 2**32),
            InvalidError,
            "threads",
        ),
        (lambda: llama_sieve.surprisal(np.zeros(4, np.float32), 2**32), InvalidError, "token"),
        (lambda: Sieve(bias={1: math.nan}), InvalidError, "bias"),
        (lambda: Sieve(wrong=1), TypeError, "wrong"),
        (lambda: Sieve().accept(-1), InvalidError, "negative"),
        (lambda: Sieve().accept(2**32 + 5), InvalidError, "32 bits"),
        (lambda: Sieve().sample(np.empty(0, np.float32)), InvalidError, "llama_sieve_sample"),
        (lambda: Sieve().sample(np.zeros(4)), InvalidError, "float64"),
        (
            lambda: Sieve().sample(np.full(4, np.nan, np.float32)),
            llama_sieve.NoCandidateError,
            "no token",
        ),
        (lambda: Sieve().sample_bf16(np.zeros(4, np.int16)), InvalidError, "uint16"),
        (lambda: Sieve().sample_ctx(0), InvalidError, "NULL"),
        (lambda: Sieve().set_dry_breakers(0, ["a\0"]), InvalidError, "breaker: a NUL"),
        (lambda: Sieve().set_dry_breakers(0, ["a\ud800"]), InvalidError, "breaker: .* surrogate"),
        (lambda: llama_sieve.certify("top-k\0x"), InvalidError, "kind: a NUL"),
        (lambda: llama_sieve.TokenTrie().activate("a\0b"), InvalidError, "path: a NUL"),
        (lambda: llama_sieve.TokenTrie().activate(5), InvalidError, "path is of type int, neither"),
        (lambda: Sieve().set_dry_breakers(0, "ab"), InvalidError, "breakers: one text is given"),
        (lambda: llama_sieve.TokenTrie("\udc00"), InvalidError, "payload: .* surrogate"),
        (
            lambda: llama_sieve.sample_batch([llama_sieve.Perplexity()], np.zeros((1, 4), "f4")),
            InvalidError,
            r"sieves\[0\] is of type Perplexity, not a Sieve",
        ),
        (lambda: Sieve().set_sampler(0, Sieve()), InvalidError, "sampler is of type Sieve"),
        (lambda: Sieve().sample_ctx("no"), InvalidError, "str"),
        (lambda: llama_sieve.top_candidates(np.zeros(4, np.float32), -1), InvalidError, "-1"),
    ],
)
def test_bad_input_is_an_error_that_names_it(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_a_closed_sieve_says_so(logits):
    with Sieve() as sieve:
        sieve.sample(logits)
    sieve.close()
    for use in (lambda: sieve.sample(logits), sieve.save, sieve.reset, lambda: sieve.accept(1)):
        with pytest.raises(InvalidError, match="closed"):
            use()


def test_a_second_thread_gets_an_error(logits):
    sieve = Sieve()
    handle = sieve._take()
    caught = []

    def use():
        try:
            sieve.sample(logits)
        except llama_sieve.BusyError as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    sieve._lock.release()
    assert handle and len(caught) == 1 and sieve.sample(logits) >= 0


def test_messages_come_where_they_are_sent():
    heard = []
    llama_sieve.set_log(lambda level, text: heard.append((level, text)))
    try:
        # A handle that was never bound.
        _library.library.eliza_inference_clear_token_trie(ctypes.c_void_p(1))
    finally:
        llama_sieve.set_log(None)
    assert len(heard) == 1 and "eliza_inference_clear_token_trie" in heard[0][1]
