"""Compares chains straight from the logits with llama.cpp's own sampling through its bindings."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from test_samplers import chain_of, left_by

import llama_sieve
from llama_sieve import Chain, InvalidError, samplers

V = 32_000


@pytest.fixture(autouse=True)
def bound(llama_cpp):
    llama_sieve.bind_host(llama_cpp)


def members():
    return [
        samplers.penalties(64, 1.2, 0.1, 0.1),
        samplers.top_k(40),
        samplers.top_p(0.95),
        samplers.min_p(0.05),
        samplers.temp(0.8),
        samplers.dist(42),
    ]


def theirs(b):
    return [
        b.llama_sampler_init_penalties(V, 64, 1.2, 0.1, 0.1),
        b.llama_sampler_init_top_k(40),
        b.llama_sampler_init_top_p(0.95, 1),
        b.llama_sampler_init_min_p(0.05, 1),
        b.llama_sampler_init_temp(0.8),
        b.llama_sampler_init_dist(42),
    ]


def test_tokens_and_candidates_are_those_of_the_hosts_chain(llama_cpp, rng):
    b = llama_cpp.llama_cpp
    expected = chain_of(b, theirs(b))
    chain = Chain(*members())
    assert chain.names == ["penalties", "top-k", "top-p", "min-p", "temp", "dist"]
    for step in range(30):
        logits = rng.normal(0, 3, V).astype(np.float32)
        left, selected, _ = left_by(b, expected, logits)
        found = np.frombuffer(left, llama_sieve.CANDIDATE)
        token = int(found["id"][selected])
        assert chain.sample(logits) == token
        if step % 2:
            assert chain.candidates().tobytes() == left
        chain.accept(token)
        b.llama_sampler_accept(expected, token)
    b.llama_sampler_free(expected)


def test_all_of_the_vocabulary_is_left_where_nothing_cuts(llama_cpp, rng):
    b = llama_cpp.llama_cpp
    logits = rng.normal(0, 3, V).astype(np.float32)
    expected = chain_of(b, [b.llama_sampler_init_temp(0.8), b.llama_sampler_init_dist(3)])
    chain = Chain(samplers.temp(0.8), samplers.dist(3))
    left, _, _ = left_by(b, expected, logits)
    with pytest.raises(InvalidError, match="no array yet"):
        chain.candidates()
    chain.sample(logits)
    assert chain.candidates().tobytes() == left
    Chain(samplers.greedy()).sample(logits)
    with pytest.raises(InvalidError, match="llama_sieve_chain_candidates"):
        chain.candidates()
    b.llama_sampler_free(expected)


def test_other_precisions_are_the_same_numbers(rng):
    half = rng.normal(0, 3, V).astype(np.float16)
    assert Chain(*members()).sample(half) == Chain(*members()).sample(half.astype(np.float32))


def test_a_model_says_the_same(llm, llama_cpp):
    prompt = llm.tokenize(b"And the LORD said unto")
    b = llama_cpp.llama_cpp

    def said(sample):
        llm.reset()
        llm.eval(prompt)
        tokens = []
        for _ in range(24):
            tokens.append(sample())
            llm.eval([tokens[-1]])
        return tokens

    expected = chain_of(b, theirs(b))
    chain = Chain(*members())
    ours = said(lambda: chain.sample_ctx(llm._ctx))
    assert ours == said(lambda: b.llama_sampler_sample(expected, llm._ctx.ctx, -1))
    b.llama_sampler_free(expected)


def test_a_batch_is_its_chains_one_by_one(rng):
    rows = rng.normal(0, 3, (4, V)).astype(np.float32)
    alone = [Chain(samplers.top_k(9), samplers.dist(i)).sample(row) for i, row in enumerate(rows)]
    for threads in (1, 2):
        chains = [Chain(samplers.top_k(9), samplers.dist(i)) for i in range(4)]
        assert llama_sieve.sample_chains(chains, rows, threads).tolist() == alone
    with pytest.raises(llama_sieve.BusyError):
        llama_sieve.sample_chains([chains[0]] * 2, rows[:2])
    with pytest.raises(InvalidError, match="4 sequences"):
        llama_sieve.sample_chains(chains, rows[:2])
    with pytest.raises(InvalidError, match="n_threads is -1"):
        llama_sieve.sample_chains(chains, rows, threads=-1)
    rows[1] = -np.inf
    assert llama_sieve.sample_chains([], []).size == 0


def test_a_clone_goes_on_and_a_reset_begins_anew(rng):
    logits = rng.normal(0, 3, V).astype(np.float32)
    chain = Chain(*members())
    first = [chain.sample(logits) for _ in range(5)]
    other = copy.copy(chain)
    assert [other.sample(logits) for _ in range(5)] == [chain.sample(logits) for _ in range(5)]
    chain.reset()
    assert [chain.sample(logits) for _ in range(5)] == first


def test_what_cannot_be_is_an_error(rng):
    logits = rng.normal(0, 3, 100).astype(np.float32)
    with pytest.raises(InvalidError):
        Chain(samplers.top_k(5)).sample(logits)
    with pytest.raises(InvalidError, match="float64"):
        Chain(samplers.greedy()).sample(logits.astype(np.float64))
    with pytest.raises(InvalidError, match="NULL"):
        Chain(samplers.greedy()).sample_ctx(0)
    with Chain(samplers.greedy()) as chain:
        assert chain.sample(logits) == int(np.argmax(logits))
        busy = chain._take()
        with pytest.raises(llama_sieve.BusyError):
            chain.sample(logits)
        chain._lock.release()
    assert busy
    for use in (lambda: chain.sample(logits), chain.reset, chain.clone, lambda: chain.names):
        with pytest.raises(InvalidError, match="closed"):
            use()
    chain.close()
    assert math.isfinite(logits[0])


def test_the_patch_samples_by_it(llm, llama_cpp):
    b = llama_cpp.llama_cpp
    original = b.llama_sampler_sample
    with llama_sieve.patch() as patch:
        assert patch.fused and b.llama_sampler_sample is not original
        chain = b.llama_sampler_chain_init(b.llama_sampler_chain_default_params())
        b.llama_sampler_chain_add(chain, b.llama_sampler_init_top_k(4))
        llm.reset()
        llm.eval(llm.tokenize(b"And"))
        # The host's own function would end the process.
        with pytest.raises(llama_sieve.Error):
            b.llama_sampler_sample(chain, llm._ctx.ctx, -1)
        b.llama_sampler_free(chain)
    assert b.llama_sampler_sample is original


def test_what_is_of_another_class_is_named():
    for use, says in (
        (lambda: Chain(llama_sieve.Sieve()), r"members\[0\] is of type Sieve, not a Sampler"),
        (
            lambda: llama_sieve.sample_chains([llama_sieve.Sieve()], np.zeros((1, 4), "f4")),
            r"chains\[0\] is of type Sieve, not a Chain",
        ),
        (lambda: samplers.top_k(1).add_to(samplers.top_k(2)), "chain is of type Sampler"),
        (lambda: samplers.top_k(1).add_to(llama_sieve.Sieve()), "chain is of type Sieve"),
        (lambda: samplers.top_k(1).add_to(llama_sieve.Perplexity()), "type Perplexity"),
    ):
        with pytest.raises(InvalidError, match=says):
            use()
