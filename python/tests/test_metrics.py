"""Compares entropy, surprisal and perplexity with numpy in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest

import llama_sieve

TOLERANCE = 1e-6
SIZES = (1, 2, 17, 1000, 128_256)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the reference in double precision, with NaN as minus infinity."""
    wide = np.where(np.isnan(logits), -np.inf, logits).astype(np.float64)
    shifted = wide - wide.max()
    return shifted - np.log(np.exp(shifted).sum())


def entropy(logits: np.ndarray) -> float:
    logs = log_softmax(logits)
    kept = logs > -np.inf
    return float(-(np.exp(logs[kept]) * logs[kept]).sum())


@pytest.fixture(params=SIZES)
def logits(request, rng):
    return rng.normal(0, 4, request.param).astype(np.float32)


def test_entropy_is_that_of_the_definition(logits):
    expected = entropy(logits)
    assert llama_sieve.entropy(logits) == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
    in_bits = llama_sieve.entropy(logits, unit="bits")
    assert in_bits == pytest.approx(expected / math.log(2), rel=TOLERANCE, abs=TOLERANCE)


@pytest.mark.parametrize("offset", [-1e6, 1e4])
def test_an_offset_changes_nothing(rng, offset):
    logits = (rng.normal(0, 4, 1000).round(1) + offset).astype(np.float32)
    assert llama_sieve.entropy(logits) == pytest.approx(entropy(logits), rel=TOLERANCE)


def test_surprisal_is_that_of_the_definition(logits, rng):
    for token in rng.integers(0, logits.size, 5):
        expected = -log_softmax(logits)[token]
        found = llama_sieve.surprisal(logits, token)
        assert found == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)


def test_what_is_masked_has_no_probability():
    logits = np.array([1, -np.inf, np.nan, 2], np.float32)
    assert llama_sieve.entropy(logits) == pytest.approx(entropy(logits), rel=TOLERANCE)
    assert llama_sieve.surprisal(logits, 1) == math.inf
    assert llama_sieve.surprisal(logits, 2) == math.inf


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: llama_sieve.entropy(np.full(4, -np.inf, np.float32)), "no distribution"),
        (lambda: llama_sieve.entropy(np.empty(0, np.float32)), "llama_sieve_entropy"),
        (lambda: llama_sieve.entropy([1.0, 2.0]), "a list would be copied"),
        (lambda: llama_sieve.entropy(np.zeros(8)), "float64"),
        (lambda: llama_sieve.entropy(np.zeros((2, 2), np.float32)), "dimension"),
        (lambda: llama_sieve.entropy(np.zeros(8, np.float32)[::2]), "contiguous"),
        (lambda: llama_sieve.entropy(np.zeros(8, ">f4")), "float32 is needed"),
        (lambda: llama_sieve.entropy(np.zeros(8, np.float32), unit="bans"), "bans"),
        (lambda: llama_sieve.surprisal(np.zeros(8, np.float32), 8), "8"),
        (lambda: llama_sieve.surprisal(np.zeros(8, np.float32), 2**32), "32 bits"),
        (lambda: llama_sieve.candidates_entropy(np.zeros(8, np.float32)), "CANDIDATE"),
        (lambda: llama_sieve.Perplexity().add(math.nan), "NaN"),
    ],
)
def test_what_is_not_defined_is_an_error_that_says_so(call, says):
    with pytest.raises(llama_sieve.InvalidError, match=says):
        call()


def test_candidates_are_measured_by_their_logits(rng):
    candidates = np.zeros(40, llama_sieve.CANDIDATE)
    candidates["id"] = rng.permutation(40) + 100
    candidates["logit"] = rng.normal(0, 2, 40)
    candidates["p"] = np.nan
    logs = log_softmax(candidates["logit"])
    found = llama_sieve.candidates_entropy(candidates)
    assert found == pytest.approx(entropy(candidates["logit"]), rel=TOLERANCE)
    token = candidates["id"][7]
    found = llama_sieve.candidates_surprisal(candidates, token)
    assert found == pytest.approx(-logs[7], rel=TOLERANCE)
    assert llama_sieve.candidates_surprisal(candidates, 5) == math.inf


def test_perplexity_is_the_exponential_of_the_mean():
    perplexity = llama_sieve.Perplexity()
    assert math.isnan(perplexity.value) and len(perplexity) == 0
    surprisals = [0.5, 1.25, 3.0]
    for surprisal in surprisals:
        perplexity.add(surprisal)
    assert perplexity.value == pytest.approx(math.exp(np.mean(surprisals)), rel=TOLERANCE)
    other = perplexity.clone()
    perplexity.reset()
    assert len(perplexity) == 0 and len(other) == 3
    assert "tokens=3" in repr(other)
