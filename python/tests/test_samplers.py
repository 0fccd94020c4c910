"""Compares the drop-in constructors with the host's own, in chains of the host."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

import llama_sieve
from llama_sieve import samplers

V = 5000


def chain_of(bindings, members):
    chain = bindings.llama_sampler_chain_init(bindings.llama_sampler_chain_default_params())
    for member in members:
        if isinstance(member, llama_sieve.Sampler):
            member.add_to(chain)
        else:
            bindings.llama_sampler_chain_add(chain, member)
    return chain


def left_by(bindings, chain, logits):
    """Returns the bytes of the candidates that a chain leaves, and the token that it selects."""
    data = np.zeros(logits.size, llama_sieve.CANDIDATE)
    data["id"] = np.arange(logits.size)
    data["logit"] = logits
    array = bindings.llama_token_data_array(
        data=data.ctypes.data_as(bindings.llama_token_data_p), size=logits.size, selected=-1
    )
    bindings.llama_sampler_apply(chain, ctypes.byref(array))
    return data[: array.size].tobytes(), array.selected, array.sorted


PAIRS = {
    "greedy": lambda b: (samplers.greedy(), b.llama_sampler_init_greedy()),
    "dist": lambda b: (samplers.dist(7), b.llama_sampler_init_dist(7)),
    "top_k": lambda b: (samplers.top_k(40), b.llama_sampler_init_top_k(40)),
    "top_p": lambda b: (samplers.top_p(0.9), b.llama_sampler_init_top_p(0.9, 1)),
    "min_p": lambda b: (samplers.min_p(0.1, 3), b.llama_sampler_init_min_p(0.1, 3)),
    "typical": lambda b: (samplers.typical(0.6), b.llama_sampler_init_typical(0.6, 1)),
    "temp": lambda b: (samplers.temp(0.7), b.llama_sampler_init_temp(0.7)),
    "temp_ext": lambda b: (
        samplers.temp_ext(0.8, 0.3, 1.1),
        b.llama_sampler_init_temp_ext(0.8, 0.3, 1.1),
    ),
    "xtc": lambda b: (samplers.xtc(0.9, 0.01, 1, 5), b.llama_sampler_init_xtc(0.9, 0.01, 1, 5)),
    "top_n_sigma": lambda b: (samplers.top_n_sigma(1.5), b.llama_sampler_init_top_n_sigma(1.5)),
    "mirostat": lambda b: (
        samplers.mirostat(V, 3, 5.0, 0.1),
        b.llama_sampler_init_mirostat(V, 3, 5.0, 0.1, 100),
    ),
    "mirostat_v2": lambda b: (
        samplers.mirostat_v2(3, 5.0, 0.1),
        b.llama_sampler_init_mirostat_v2(3, 5.0, 0.1),
    ),
    "penalties": lambda b: (
        samplers.penalties(32, 1.2, 0.1, 0.3),
        b.llama_sampler_init_penalties(V, 32, 1.2, 0.1, 0.3),
    ),
    "dry": lambda b: (
        samplers.dry(0.8, breakers=()),
        b.llama_sampler_init_dry(None, 0.8, 1.75, 2, 64, None, 0),
    ),
    "adaptive_p": lambda b: (
        samplers.adaptive_p(0.4, 0.9, 2),
        b.llama_sampler_init_adaptive_p(0.4, 0.9, 2),
    ),
    "logit_bias": lambda b: (
        samplers.logit_bias({9: 2.5, 2: -math.inf}),
        b.llama_sampler_init_logit_bias(V, 2, (b.llama_logit_bias * 2)((9, 2.5), (2, -math.inf))),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_each_leaves_what_the_hosts_own_leaves(llama_cpp, rng, name):
    b = llama_cpp.llama_cpp
    llama_sieve.bind_host(llama_cpp)
    chains = [chain_of(b, [member]) for member in PAIRS[name](b)]
    for _ in range(4):
        logits = rng.normal(0, 3, V).astype(np.float32)
        ours, theirs = (left_by(b, chain, logits) for chain in chains)
        assert ours == theirs
        for token in (5, 17, 5, 17):
            for chain in chains:
                b.llama_sampler_accept(chain, token)
    for chain in chains:
        b.llama_sampler_free(chain)


def test_those_that_llama_cpp_no_longer_has(llama_cpp, rng):
    b = llama_cpp.llama_cpp
    llama_sieve.bind_host(llama_cpp)
    chain = chain_of(b, [samplers.tail_free(0.9), samplers.softmax()])
    left, _, is_sorted = left_by(b, chain, rng.normal(0, 3, V).astype(np.float32))
    found = np.frombuffer(left, llama_sieve.CANDIDATE)
    assert is_sorted and 0 < found.size < V and (np.diff(found["logit"]) <= 0).all()
    assert found["p"].sum(dtype=np.float64) == pytest.approx(1, rel=1e-5)
    b.llama_sampler_free(chain)


def entropy(p):
    p = p[p > 0]
    return -(p * np.log(p)).sum()


def first_of_entropy(p, share):
    """Returns the most probable tokens whose entropy, renormalised, is at most a share of that of
    all."""
    order = np.argsort(-p, kind="stable")
    n = next(n for n in range(1, p.size) if entropy(p[order[:n]] / p[order[:n]].sum()) > share)
    return order[: max(n - 1, 1)]


def at_least(p, threshold):
    return np.flatnonzero(p >= min(threshold, p.max()))


# The published definitions: the tokens that are kept, from probabilities in float64.
CUTS = {
    "top_a": (lambda: samplers.top_a(0.2), lambda p: at_least(p, 0.2 * p.max() ** 2)),
    "epsilon": (lambda: samplers.epsilon_cutoff(3e-4), lambda p: at_least(p, 3e-4)),
    "eta": (
        lambda: samplers.eta_cutoff(3e-3),
        lambda p: at_least(p, min(3e-3, math.sqrt(3e-3) * math.exp(-entropy(p)))),
    ),
    "p_less": (lambda: samplers.p_less(), lambda p: at_least(p, (p * p).sum())),
    "p_less_normalised": (
        lambda: samplers.p_less(normalised=True),
        lambda p: at_least(p, (V * (p * p).sum() - 1) / (V - 1)),
    ),
    "top_h": (lambda: samplers.top_h(0.4), lambda p: first_of_entropy(p, 0.4 * entropy(p))),
}


def test_min_k_is_its_definition(llama_cpp, rng):
    llama_sieve.bind_host(llama_cpp)
    for tau in (0, 5, 5e4):
        logits = rng.normal(0, 3, V).astype(np.float32)
        descending = np.sort(logits.astype(np.float64))[::-1]
        n = np.argmax(-np.diff(descending) / np.arange(1, V)) + 1
        n = max(n, min(V, math.floor(tau / (np.ptp(descending) + 1e-8))))
        expected = np.flatnonzero(logits >= descending[n - 1])
        with llama_sieve.Chain(samplers.min_k(tau), samplers.dist(1)) as chain:
            chain.sample(logits)
            assert chain.candidates()["id"].tolist() == expected.tolist()


@pytest.mark.parametrize("name", CUTS)
def test_a_cut_that_llama_cpp_does_not_have_is_its_definition(llama_cpp, rng, name):
    llama_sieve.bind_host(llama_cpp)
    make, kept = CUTS[name]
    for scale in (0.5, 1, 2, 4, 8):
        logits = rng.normal(0, scale, V).astype(np.float32)
        p = np.exp(logits.astype(np.float64) - float(logits.max()))
        expected = kept(p / p.sum())
        with llama_sieve.Chain(make(), samplers.dist(1)) as chain:
            assert chain.sample(logits) in expected
            assert chain.candidates()["id"].tolist() == expected.tolist()


def test_quadratic_is_its_definition(llama_cpp, rng):
    b = llama_cpp.llama_cpp
    llama_sieve.bind_host(llama_cpp)
    logits = rng.normal(0, 3, V).astype(np.float32)
    chain = chain_of(b, [samplers.quadratic(0.2, 1.5)])
    left, _, _ = left_by(b, chain, logits)
    d = logits.astype(np.float64) - float(logits.max())
    expected = float(logits.max()) - 0.2 * 0.75 * d**2 + 0.2 * 0.25 * d**3
    found = np.frombuffer(left, llama_sieve.CANDIDATE)["logit"]
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-4)
    b.llama_sampler_free(chain)


@pytest.mark.parametrize(
    "make",
    [
        lambda: samplers.top_a(0),
        lambda: samplers.epsilon_cutoff(0),
        lambda: samplers.eta_cutoff(-1),
        lambda: samplers.top_h(1),
        lambda: samplers.min_k(-1),
        lambda: samplers.quadratic(0),
    ],
)
def test_one_that_is_switched_off_says_so(llama_cpp, make):
    llama_sieve.bind_host(llama_cpp)
    assert make().name.startswith("?")


def test_a_sampler_belongs_to_one(llama_cpp):
    llama_sieve.bind_host(llama_cpp)
    b = llama_cpp.llama_cpp
    sampler = samplers.top_k(0)
    assert sampler.name == "?top-k"
    sampler.reset()
    chain = chain_of(b, [sampler])
    with pytest.raises(llama_sieve.InvalidError, match="already"):
        sampler.add_to(chain)
    b.llama_sampler_free(chain)
    other = samplers.temp(0.5)
    other.close()
    for use in (other.release, other.reset, lambda: other.accept(1)):
        with pytest.raises(llama_sieve.InvalidError, match="closed"):
            use()


@pytest.mark.parametrize(
    "call",
    [
        lambda: samplers.top_k(2**31),
        lambda: samplers.dist(-1),
        lambda: samplers.dist(2**32),
        lambda: samplers.top_p(0.5, -1),
        lambda: samplers.top_p(0.5, 2**64),
        lambda: samplers.mirostat(2**32, 1, 5.0, 0.1),
        lambda: samplers.penalties(2**32),
        lambda: samplers.logit_bias({2**32: 1.0}),
        lambda: samplers.loop_breaker(max_period=2**32),
        lambda: samplers.loop_breaker("force", tokens=[2**32]),
        lambda: samplers.greedy().accept(2**32),
    ],
)
def test_numbers_that_do_not_fit_are_errors(llama_cpp, call):
    llama_sieve.bind_host(llama_cpp)
    with pytest.raises(llama_sieve.InvalidError):
        call()


def test_every_public_name_is_there():
    assert set(llama_sieve.__all__) == {n for names in llama_sieve._MODULES.values() for n in names}
    for name in llama_sieve.__all__:
        assert getattr(llama_sieve, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = llama_sieve.nothing


def test_a_loop_is_broken_at_its_third_copy(llama_cpp, rng):
    llama_sieve.bind_host(llama_cpp)
    logits = rng.normal(0, 1, V).astype(np.float32)
    logits[[3, 4, 9]] = 9, 8, 7
    breaker = samplers.loop_breaker(min_tokens=1)
    with llama_sieve.Chain(breaker, samplers.greedy()) as chain:
        for token in (5, 3, 5, 3, 5):
            chain.accept(token)
            assert chain.sample(logits) == 3
        chain.accept(3)
        assert chain.sample(logits) == 3  # 5 would continue the loop.
        for token in (3, 3):
            chain.accept(token)
        assert chain.sample(logits) == 4
    with llama_sieve.Chain(
        samplers.loop_breaker("force", tokens=[7, 8], min_tokens=3), samplers.greedy()
    ) as chain:
        for token in (3, 3, 3):
            chain.accept(token)
        for token in (7, 8):
            assert chain.sample(logits) == token
            chain.accept(token)
        assert chain.sample(logits) == 3
    for wrong in (
        {"action": "stop"},
        {"max_period": 1025},
        {"min_tokens": -1},
        {"action": "temperature", "temperature": 0.5},
        {"action": "force"},
        {"action": "end"},
    ):
        with pytest.raises(llama_sieve.Error):
            samplers.loop_breaker(**wrong)


def test_a_sampler_in_a_slot_is_a_stage(llama_cpp, rng):
    llama_sieve.bind_host(llama_cpp)
    logits = rng.normal(0, 3, 500).astype(np.float32)
    sieve = llama_sieve.Sieve(seed=3)
    sieve.stages = llama_sieve.Stages([llama_sieve.Stage.SAMPLER + 2, llama_sieve.Stage.SAMPLER])
    sieve.sample(logits)
    assert sieve.candidates().size == 500
    top_a = samplers.top_a(0.2)
    sieve.set_sampler(2, top_a)
    sieve.set_sampler(0, samplers.loop_breaker(min_tokens=1))
    sieve.sample(logits)
    p = np.exp(logits.astype(np.float64) - logits.max())
    p /= p.sum()
    kept = np.flatnonzero(p >= 0.2 * p.max() ** 2)
    assert sorted(sieve.candidates()["id"]) == sorted(kept)
    # The sampler was copied, so the sieve is not affected when the caller's is freed.
    top_a.close()
    best = int(np.argmax(logits))
    for _ in range(3):
        sieve.accept(best)
    state, copy_of_it = sieve.save(), sieve.clone()
    for each in (sieve, copy_of_it):
        each.sample(logits)
        masked = each.candidates()[each.candidates()["id"] == best]
        assert masked["logit"] == -np.inf
    sieve.reset()
    sieve.load(state)
    assert sieve.sample(logits) != best
    sieve.set_sampler(0, None)
    with pytest.raises(llama_sieve.StateError, match="other stages"):
        sieve.load(state)
    with pytest.raises(llama_sieve.InvalidError, match="slot"):
        sieve.set_sampler(16, samplers.top_a(0.2))
    with pytest.raises(llama_sieve.InvalidError, match="dist draws"):
        sieve.set_sampler(0, samplers.dist(1))
