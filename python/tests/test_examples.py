"""Tests the examples for other engines, with stand-ins for these."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import REPOSITORY, missing

import llama_sieve

EXAMPLES = REPOSITORY / "examples" / "python"
SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'


def example(name):
    path = EXAMPLES / name
    if not path.is_file():
        missing("this is not the repository: its examples are not there")
    return path


def imported(name):
    spec = importlib.util.spec_from_file_location(name, example(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_processor_for_transformers_as_a_program(llama_cpp, seed):
    command = [sys.executable, example("transformers_processor.py"), seed]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    value = json.loads(ran.stdout)
    assert value["name"] in ("Moses", "Aaron") and 120 >= value["age"] == int(value["age"])


def test_the_processor_for_transformers_masks_each_row_by_its_own_text(llm):
    made = imported("transformers_processor").Constrained(
        lambda: llama_sieve.Regex(llm, "a[0-9]+|b[A-Z]+")
    )
    a, b = (llm.tokenize(text, add_bos=False) for text in (b"a", b"b"))
    scores = np.zeros((2, llm.n_vocab()), np.float32)
    first = made(np.array([[1], [1]]), scores.copy())
    assert np.array_equal(first[0], first[1]) and np.isinf(first).any()
    second = made(np.array([[1, a[-1]], [1, b[-1]]]), scores.copy())
    digit, letter = (llm.tokenize(text, add_bos=False)[-1] for text in (b"a7", b"bQ"))
    assert second[0, digit] == 0 and second[1, digit] == -np.inf
    assert second[1, letter] == 0 and second[0, letter] == -np.inf


Direction = Enum("Direction", ["UNIDIRECTIONAL", "SWAP"])


def change(removed=(), added=(), moved=()):
    return SimpleNamespace(removed=removed, added=added, moved=moved)


def request(schema=None):
    return SimpleNamespace(extra_args=None if schema is None else {"json_schema": schema})


@pytest.fixture
def processor(llama_cpp, model_path, monkeypatch):
    monkeypatch.setenv("LLAMA_SIEVE_VOCAB", str(model_path))
    made = imported("vllm_processor").Constrained(None, "cpu", False)
    # The model is loaded only for its vocabulary.
    assert made.vocab.n_vocab() > 0
    yield made
    made.rows.clear()
    made.vocab.close()


def masked(processor, rows):
    """Returns the rows that are masked, in logits with more columns than the vocabulary has
    tokens."""
    logits = processor.apply(np.zeros((rows, processor.vocab.n_vocab() + 40), np.float32))
    return [bool(np.isinf(row).any()) for row in logits], logits


def test_the_processor_for_vllm_follows_the_batch(processor):
    output, plain = [], []
    added = [(0, request(), [1], plain), (1, request(SCHEMA), [1], output)]
    processor.update_state(change(added=added))
    assert masked(processor, 2)[0] == [False, True]
    processor.update_state(None)
    brace = processor.vocab.tokenize(b"{", add_bos=False)[-1]
    _, logits = masked(processor, 2)
    assert logits[1, brace] == 0 and (logits[1, processor.vocab.n_vocab() :] == -np.inf).all()
    output.append(brace)
    plain.append(brace)
    assert masked(processor, 2)[1][1, brace] == -np.inf
    processor.update_state(change(moved=[(1, 0, Direction.SWAP)]))
    assert masked(processor, 2)[0] == [True, False]
    processor.update_state(change(moved=[(0, 2, Direction.UNIDIRECTIONAL)]))
    assert masked(processor, 3)[0] == [False, False, True]
    # One request replaces another.
    processor.update_state(change(added=[(2, request(), [1], [])]))
    assert masked(processor, 3)[0] == [False] * 3
    processor.update_state(change(added=[(1, request(SCHEMA), [1], [])]))
    processor.update_state(change(removed=[1]))
    assert masked(processor, 3)[0] == [False] * 3


def test_the_processor_for_vllm_refuses_a_schema_beforehand(processor):
    processor.validate_params(request())
    processor.validate_params(request(SCHEMA))
    with pytest.raises(ValueError, match="nothing"):
        processor.validate_params(request('{"type": "nothing"}'))
