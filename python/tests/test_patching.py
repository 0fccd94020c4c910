"""Compares llama-cpp-python with and without the patch."""

from __future__ import annotations

import copy
import ctypes
import math
import os
import pickle
import types

import pytest

import llama_sieve
from llama_sieve import host, patching

I32, U32, F32, SIZE = ctypes.c_int32, ctypes.c_uint32, ctypes.c_float, ctypes.c_size_t
VOCAB, WORDS = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)

SETTINGS = {
    "defaults": {},
    "greedy": {"temperature": 0.0},
    "penalties": {"repeat_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": 0.1},
    "top-p alone": {"top_k": 0, "min_p": 0.0, "top_p": 0.7},
    "typical": {"top_k": 0, "typical_p": 0.4, "temperature": 1.2},
    "flat": {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 2.0},
    "mirostat": {"mirostat_mode": 1},
    "mirostat 2": {"mirostat_mode": 2, "mirostat_tau": 3.0},
    "bias": {"logit_bias": {100: 3.0, 200: -5.0}},
}


@pytest.fixture(scope="module")
def text(llm):
    def generate(seed, **settings):
        llm.set_seed(seed)
        prompt = "And the LORD said unto"
        answer = llm.create_completion(prompt, max_tokens=32, **settings)
        return answer["choices"][0]["text"]

    return generate


def made_by(capfd):
    """Returns the samplers that the patch has reported, each with its maker."""
    lines = [line for line in capfd.readouterr().err.splitlines() if "llama-sieve: patch:" in line]
    return dict(line.split(": ", 3)[2:4] for line in lines)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_text_is_the_same(text, name, capfd):
    settings = SETTINGS[name]
    for seed in (1, 2, 3):
        without = text(seed, **settings)
        with llama_sieve.patch(verbose=True):
            assert text(seed, **settings) == without
        made = made_by(capfd)
        assert made and set(made.values()) == {"ours"}
        assert text(seed, **settings) == without


def test_every_sampler_that_can_be_tried_is_ours(llama_cpp):
    with llama_sieve.patch(llama_cpp) as patch:
        others = {status.kind: status.reason for status in patch.status() if not status.ours}
    assert set(others) <= {"infill"}


def test_each_constructor_makes_a_chain_with_the_same_tokens(llama_cpp, llm):
    """Includes constructors that create_completion does not use."""
    b = llama_cpp.llama_cpp
    words = (ctypes.c_char_p * 2)(b"\n", b":")
    biases = (b.llama_logit_bias * 2)((100, 2.5), (17, -math.inf))
    vocab = llm._model.vocab
    makers = {
        "top-n-sigma": lambda: [b.llama_sampler_init_top_n_sigma(0.8)],
        "xtc": lambda: [b.llama_sampler_init_xtc(0.5, 0.1, 1, 9)],
        "temp-ext": lambda: [b.llama_sampler_init_temp_ext(0.9, 0.4, 1.2)],
        "dry": lambda: [b.llama_sampler_init_dry(vocab, 0.8, 1.75, 2, 64, words, 2)],
        "logit-bias": lambda: [b.llama_sampler_init_logit_bias(llm.n_vocab(), 2, biases)],
        "adaptive-p": lambda: [b.llama_sampler_init_adaptive_p(0.3, 0.9, 4)],
    }

    def tokens(name):
        chain = b.llama_sampler_chain_init(b.llama_sampler_chain_default_params())
        for sampler in makers[name]():
            b.llama_sampler_chain_add(chain, sampler)
        if name != "adaptive-p":
            b.llama_sampler_chain_add(chain, b.llama_sampler_init_dist(6))
        llm.reset()
        llm.eval(llm.tokenize(b"And the LORD said unto"))
        found = []
        for _ in range(24):
            found.append(b.llama_sampler_sample(chain, llm._ctx.ctx, -1))
            llm.eval([found[-1]])
        b.llama_sampler_free(chain)
        return found

    for name in makers:
        without = tokens(name)
        with llama_sieve.patch():
            constructor = getattr(b, patching.symbol_of(name))
            assert constructor.status().ours
            assert tokens(name) == without, name


def names(llama_cpp):
    return {name: getattr(llama_cpp.llama_cpp, name) for name in vars(llama_cpp.llama_cpp)}


def test_undoing_puts_everything_back(llama_cpp):
    before = names(llama_cpp)
    outer = llama_sieve.patch()
    with llama_sieve.patch() as inner:
        assert inner is outer
    kept = llama_cpp.llama_cpp.llama_sampler_init_top_k
    assert kept is llama_cpp.llama_sampler_init_top_k
    assert kept is not before["llama_sampler_init_top_k"]
    assert kept.argtypes == before["llama_sampler_init_top_k"].argtypes
    llama_sieve.unpatch()
    assert names(llama_cpp) == before
    assert llama_cpp.llama_sampler_init_top_k is before["llama_sampler_init_top_k"]
    # Code that has kept the stand-in gets the host's own sampler from now on.
    assert kept._choose((40,)) == (None, "the patch was undone")
    llama_sieve.unpatch()


def test_what_others_have_put_there_since_stays(llama_cpp, monkeypatch):
    patch = llama_sieve.patch()
    theirs = types.SimpleNamespace()
    monkeypatch.setattr(llama_cpp.llama_cpp, "llama_sampler_init_temp", theirs)
    patch.undo()
    assert llama_cpp.llama_cpp.llama_sampler_init_temp is theirs
    monkeypatch.undo()
    llama_cpp.llama_cpp.llama_sampler_init_temp = llama_cpp.llama_sampler_init_temp


def test_what_differs_stays_the_hosts_own(text, monkeypatch, capfd):
    without = text(1)
    honest = host.certify

    def certify(kind, build=None):
        if kind == "top-p":
            return host.Verdict(kind, False, "a logit has other bits", 6)
        return honest(kind, build)

    monkeypatch.setattr(host, "certify", certify)
    with llama_sieve.patch(verbose=True) as patch:
        assert text(1) == without
        reasons = {status.kind: status.reason for status in patch.status()}
    assert reasons["top-p"] == "a logit has other bits" and reasons["min-p"] == ""
    made = made_by(capfd)
    assert made["top-p"].startswith("llama.cpp's own") and made["min-p"] == "ours"


def test_only_what_is_asked_for_is_replaced(llama_cpp):
    before = names(llama_cpp)
    with llama_sieve.patch(kinds=["top-k"]):
        changed = {name for name, value in names(llama_cpp).items() if before[name] is not value}
    constructors = {name for name in changed if name.startswith("llama_sampler_init")}
    assert constructors == {"llama_sampler_init_top_k"}
    with pytest.raises(llama_sieve.InvalidError, match="topk"):
        llama_sieve.patch(kinds=["topk"])
    assert names(llama_cpp) == before


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_the_hosts(llama_cpp, value):
    with llama_sieve.patch():
        constructor = llama_cpp.llama_cpp.llama_sampler_init_temp
        assert constructor._choose((value,)) == (None, "an argument is not finite")
        assert constructor._choose((ctypes.c_float(value),))[1] == "an argument is not finite"
        assert constructor._choose((1.0, 2.0))[1] == "another number of arguments"
        with pytest.raises(ctypes.ArgumentError):
            llama_cpp.llama_cpp.llama_sampler_init_temp("hot")


# The declarations in the sources of llama-cpp-python's versions of the last year.
DECLARED = {
    "0.3.16 to 0.3.33": {
        "penalties": [I32, F32, F32, F32],
        "dry": [VOCAB, I32, F32, F32, I32, I32, WORDS, SIZE],
    },
    "0.3.36": {
        "penalties": [I32, I32, F32, F32, F32],
        "dry": [VOCAB, F32, F32, I32, I32, WORDS, SIZE],
    },
}


def test_the_argument_lists_of_a_year_are_known():
    old, new = DECLARED["0.3.16 to 0.3.33"], DECLARED["0.3.36"]
    penalties = patching.layout_of("penalties", old["penalties"])
    assert penalties.build < 10_258 and penalties.adapt(64, 1.1, 0.0, 0.5) == (0, 64, 1.1, 0, 0.5)
    dry = patching.layout_of("dry", old["dry"])
    assert dry.build < 10_273
    assert dry.adapt("v", 4096, 0.8, 1.75, 2, -1, "w", 3) == ("v", 0.8, 1.75, 2, 4096, "w", 3)
    assert dry.adapt("v", 4096, 0.8, 1.75, 2, 64, "w", 3) == ("v", 0.8, 1.75, 2, 64, "w", 3)
    for kind, declared in new.items():
        known = patching.layout_of(kind, declared)
        assert known.build >= 10_273 and known.adapt(*range(7)) == tuple(range(7))
    assert patching.layout_of("penalties", [I32, I32, I32, F32, F32]) is None
    assert patching.layout_of("top-k", [SIZE]) is None
    assert patching.layout_of("dry", [I32, *new["dry"][1:]]) is None


def test_an_unknown_argument_list_stays_the_hosts(llama_cpp, monkeypatch):
    original = llama_cpp.llama_cpp.llama_sampler_init_top_k
    monkeypatch.setattr(original, "argtypes", [ctypes.c_int32, ctypes.c_int32])
    with llama_sieve.patch() as patch:
        reasons = {status.kind: status.reason for status in patch.status()}
    assert "argument list" in reasons["top-k"] and reasons["top-p"] == ""


def test_seeds_of_ours_are_told(llama_cpp):
    b = llama_cpp.llama_cpp
    with llama_sieve.patch():
        chain = b.llama_sampler_chain_init(b.llama_sampler_chain_default_params())
        b.llama_sampler_chain_add(chain, b.llama_sampler_init_dist(4711))
        assert b.llama_sampler_get_seed(chain) == 4711
        b.llama_sampler_free(chain)


def test_only_one_module_is_patched_at_a_time(llama_cpp):
    second = types.ModuleType("second")
    second.llama_cpp = llama_cpp.llama_cpp
    before = names(llama_cpp)
    with llama_sieve.patch(llama_cpp) as patch:
        assert llama_sieve.patch() is patch
        llama_sieve.unpatch()
        for other in (second, types.ModuleType("none")):
            with pytest.raises(llama_sieve.InvalidError, match="only one can be"):
                llama_sieve.patch(other)
        assert patching._current is patch and patch._depth == 1
    assert names(llama_cpp) == before


def test_unknown_kinds_are_refused_where_patches_nest(llama_cpp):
    with llama_sieve.patch() as patch:
        with pytest.raises(llama_sieve.InvalidError, match="topk"):
            llama_sieve.patch(kinds=["topk"])
        assert patch._depth == 1
        with llama_sieve.patch(kinds=["top-k"]) as inner:
            assert inner is patch


def test_a_patch_that_was_undone_undoes_no_other(llama_cpp):
    with llama_sieve.patch() as first:
        first.undo()
        second = llama_sieve.patch()
    assert patching._current is second
    llama_sieve.unpatch()


def test_a_patch_is_not_copied(llama_cpp):
    with llama_sieve.patch() as patch:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="call patch"):
                duplicate(patch)


def test_the_certificate_leaves_the_environment_alone(llama_cpp, monkeypatch):
    """The environment is not changed even for a moment, since other threads, and programs that they
    start, would see it."""
    llama_sieve.bind_host(llama_cpp)
    monkeypatch.delenv("LLAMA_SIEVE_HOST", raising=False)
    sets = []
    environment = type(os.environ)
    monkeypatch.setattr(environment, "__setitem__", lambda _, name, value: sets.append(name))
    monkeypatch.setattr(environment, "pop", lambda _, name, *others: sets.append(name))
    assert host.certify("penalties", 11_434)
    assert sets == []
    wrong = host.certify("dry", 4000)
    assert not wrong and "b4000" in wrong.reason and sets == []


def test_a_module_that_is_none_is_refused():
    with pytest.raises(llama_sieve.InvalidError, match="llama-cpp-python"):
        llama_sieve.patch(types.ModuleType("something"))
    assert patching._current is None


def test_a_library_that_is_no_llama_cpp_is_refused():
    with pytest.raises(llama_sieve.NoHostError, match="llama_sampler_init"):
        llama_sieve.bind_host("libm.so.6")
